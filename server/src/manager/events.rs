//! Server-sent events with the present state of the server (WHATWG HTML §9.2), one event a second: first all
//! sections of the page, and then the changes.

use super::access::Visitor;
use super::channel::{ManagerContext, StreamPlace};
use super::gzip::ContentEncoder;
use super::live_part::LivePart;
use super::snapshot::Snapshot;
use crate::base::body_memory::BodyAccount;
use crate::handler::ResponseBody;
use crate::handler::pipe::{PipeWriter, counted_pipe};
use crate::limits::{MANAGER_SNAPSHOT_MILLISECONDS, PIPE_BYTES};
use crate::wire::reject::Reject;
use std::sync::Arc;
use std::time::Duration;

/// Stream of events for one client.
struct EventStream {
    context: Arc<ManagerContext>,
    visitor: Visitor,
    writer: PipeWriter,
    encoder: ContentEncoder,
    /// Sections that the client has.
    shown: Option<Arc<LivePart>>,
    _place: StreamPlace,
}

/// Returns the body of a stream of events, plain or compressed. `memory` is the account of the request.
pub(super) async fn events(
    context: &Arc<ManagerContext>,
    visitor: &Visitor,
    memory: &BodyAccount,
    is_gzip: bool,
) -> Result<ResponseBody, Reject> {
    let place = context.stream_place().ok_or(Reject::CALLS_BUSY)?;
    let first = context.snapshot().await?;
    let (writer, reader) = counted_pipe(PIPE_BYTES, memory);
    let stream = EventStream {
        context: Arc::clone(context),
        visitor: visitor.clone(),
        writer,
        encoder: ContentEncoder::new(is_gzip),
        shown: None,
        _place: place,
    };
    Ok(ResponseBody::Stream {
        length: None,
        reader,
        work: Box::pin(stream.run(first)),
    })
}

impl EventStream {
    /// Sends an event for each snapshot, as long as the client reads and its rights last. The rights end with the
    /// session and with the configuration. The control plane makes no snapshot during a drain, so a drain ends the
    /// stream.
    async fn run(mut self, first: Arc<Snapshot>) {
        let generation = first.status.generation;
        let mut next = Ok(first);
        while let Ok(snapshot) = next
            && snapshot.status.generation == generation
            && self.may_read()
        {
            let Some(event) = self.event(&snapshot) else {
                return;
            };
            drop(snapshot);
            if self.writer.write_all(&event).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(MANAGER_SNAPSHOT_MILLISECONDS)).await;
            next = self.context.snapshot().await;
        }
        let mut end = Vec::new();
        self.encoder.finish(&mut end);
        if self.writer.write_all(&end).await.is_ok() {
            self.writer.finish();
        }
    }

    /// Returns the bytes of the event for a snapshot; None after a failed compression.
    fn event(&mut self, snapshot: &Snapshot) -> Option<Vec<u8>> {
        let now = Arc::clone(snapshot.live());
        let mut bytes = Vec::new();
        let is_whole = match self.shown.replace(Arc::clone(&now)) {
            None => self.encoder.push(now.whole(), &mut bytes),
            Some(shown) if Arc::ptr_eq(&shown, &now) => true,
            Some(shown) => self.encoder.push(&now.since(&shown), &mut bytes),
        };
        is_whole.then_some(bytes)
    }

    /// Returns false after the end of the client's session.
    fn may_read(&self) -> bool {
        match &self.visitor {
            Visitor::Session(id) => self.context.has_session(id),
            _ => true,
        }
    }
}
