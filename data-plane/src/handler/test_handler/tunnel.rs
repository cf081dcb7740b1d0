//! Test handler of tunnels.

use crate::handler::pipe::{PipeRead, PipeReader, PipeWriter, pipe};
use crate::handler::{HandlerError, Request, Response, ResponseBody};
use crate::limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Counters of all tunnels of a route.
#[derive(Default, Debug)]
pub struct TunnelTotals {
    /// Bytes received in tunnels.
    received: AtomicU64,
    /// Tunnels of which the client has ended its direction.
    ended: AtomicU64,
}

/// Opens a tunnel that returns the client's bytes, and `bye` after the end of the client's direction.
/// Without a requested tunnel, the response names the totals of all tunnels.
///
/// The query is a list of `name=value`:
///
/// - `refuse=403` refuses the tunnel with the status.
/// - `page` answers with a streamed page instead of a tunnel.
/// - `switch=name` opens the tunnel with another protocol, requested or not.
/// - `ends=n` ends the handler's direction after `n` bytes, while the client's direction goes on.
/// - `cut=n` breaks the tunnel off after `n` bytes.
/// - `mute` keeps the handler's direction open after the end of the client's direction.
/// - `deaf` takes no bytes.
pub(super) fn tunnel(
    totals: Arc<TunnelTotals>,
    request: Request,
    query: Vec<(String, String)>,
) -> Result<Response, HandlerError> {
    let value = |name: &str| {
        let found = query.iter().find(|(its, _)| its == name);
        found.map(|(_, value)| value.as_str())
    };
    let mut fields = ResponseFields::new();
    if let Some(status) = value("refuse").and_then(|status| status.parse().ok()) {
        let content = b"refused\n".to_vec();
        return Ok(Response::new(
            Status(status),
            fields,
            ResponseBody::Whole(content),
        ));
    }
    let (writer, reader) = pipe(limits::PIPE_BYTES);
    if value("page").is_some() {
        let work = page(request.body, writer);
        return Ok(Response::new(Status::OK, fields, streamed(reader, work)));
    }
    let status = match (value("switch"), &request.upgrade) {
        (Some(protocol), _) => {
            fields.push(b"Upgrade", protocol.as_bytes());
            Status(101)
        }
        (None, Some(upgrade)) if upgrade.is_extended_connect => Status::OK,
        (None, Some(_)) => Status(101),
        (None, None) => return Ok(totals.response()),
    };
    let bytes_of = |name: &str| value(name).and_then(|bytes| bytes.parse().ok());
    let run = Echo {
        totals,
        body: request.body,
        writer: Some(writer),
        ends_after: bytes_of("ends"),
        cut_after: bytes_of("cut"),
        is_mute: value("mute").is_some(),
    };
    let body = match value("deaf") {
        Some(_) => streamed(reader, run.idle()),
        None => streamed(reader, run.run()),
    };
    Ok(Response::new(status, fields, body))
}

fn streamed(reader: PipeReader, work: impl Future<Output = ()> + 'static) -> ResponseBody {
    ResponseBody::Stream {
        length: None,
        reader,
        work: Box::pin(work),
    }
}

/// Writes a short page after the end of the request's body.
async fn page(mut body: PipeReader, mut writer: PipeWriter) {
    let mut content = Vec::new();
    while let Ok(read) = body.take(&mut content, limits::PIPE_BYTES).await {
        if read == PipeRead::End {
            content.extend_from_slice(b"no tunnel\n");
            if writer.write_all(&content).await.is_ok() {
                writer.finish();
            }
            return;
        }
    }
}

impl TunnelTotals {
    fn response(&self) -> Response {
        let received = self.received.load(Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed);
        let content = format!("{received} bytes, {ended} ended\n").into_bytes();
        let mut fields = ResponseFields::new();
        fields.push(b"Cache-Control", b"no-store");
        Response::new(Status::OK, fields, ResponseBody::Whole(content))
    }
}

/// Handler's end of a tunnel.
struct Echo {
    totals: Arc<TunnelTotals>,
    body: PipeReader,
    writer: Option<PipeWriter>,
    ends_after: Option<u64>,
    cut_after: Option<u64>,
    is_mute: bool,
}

impl Echo {
    async fn run(mut self) {
        let mut part = Vec::new();
        let mut seen = 0;
        loop {
            part.clear();
            match self.body.take(&mut part, limits::PIPE_BYTES / 4).await {
                Ok(PipeRead::Bytes(count)) => seen += count as u64,
                Ok(PipeRead::End) => return self.end().await,
                Err(_) => return,
            }
            self.totals
                .received
                .fetch_add(part.len() as u64, Ordering::Relaxed);
            if let Some(writer) = &mut self.writer
                && writer.write_all(&part).await.is_err()
            {
                return;
            }
            if self.cut_after.is_some_and(|bytes| seen >= bytes) {
                return;
            }
            if self.ends_after.is_some_and(|bytes| seen >= bytes)
                && let Some(writer) = self.writer.take()
            {
                writer.finish();
            }
        }
    }

    async fn end(mut self) {
        self.totals.ended.fetch_add(1, Ordering::Relaxed);
        if self.is_mute {
            std::future::pending::<()>().await;
        }
        if let Some(mut writer) = self.writer.take()
            && writer.write_all(b"bye").await.is_ok()
        {
            writer.finish();
        }
    }

    /// Takes no bytes, and keeps both pipes open.
    async fn idle(self) {
        let _pipes = self;
        std::future::pending::<()>().await;
    }
}
