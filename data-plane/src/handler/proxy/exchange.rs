//! One request on one connection to a member: sends the head and the body of the request.

use crate::handler::pipe::{PipeRead, PipeReader};
use crate::handler::proxy::request_head::forwarded_trailers;
use crate::handler::proxy::route::ProxyRoute;
use crate::ledger::member_uses::UseProgress;
use crate::limits::PROXY_UNSENT_BYTES_MAX;
use crate::upstream::MemberConn;
use base::kernel_pipe::{PipeSink, Transferred};
use std::io::{self, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A request on its way to a member.
pub(super) struct Exchange {
    /// The connection; None once given back.
    conn: Option<MemberConn>,
    /// Bytes for the member; the bytes before `out_at` are sent.
    out: Vec<u8>,
    out_at: usize,
    body: Option<StreamedBody>,
    /// Bytes sent to the member and received from the member.
    sent_bytes: u64,
    received_bytes: u64,
    /// True while the call waits for the client to send more of the body.
    waits_for_client: bool,
    /// True if the member read no more before the end of the request, so that the connection can't be used again.
    is_cut: bool,
}

/// Body that streams from the client to the member.
pub(super) struct StreamedBody {
    pub(super) reader: PipeReader,
    /// True for the chunked coding, false for a body of known length.
    pub(super) is_chunked: bool,
    /// True until the member wants the body (`Expect: 100-continue`).
    pub(super) is_held: bool,
    /// Route of the request. Trailers must not replace the fields of the route.
    pub(super) route: Arc<ProxyRoute>,
}

/// Reason why a request can't be sent to its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SendError {
    /// The connection to the member broke.
    Member,
    /// The client broke the body off.
    Client,
}

impl Exchange {
    /// Begins the exchange with the bytes that are known: the head, and the body if complete.
    pub(super) fn new(conn: MemberConn, out: Vec<u8>, body: Option<StreamedBody>) -> Exchange {
        Exchange {
            conn: Some(conn),
            out,
            out_at: 0,
            body,
            sent_bytes: 0,
            received_bytes: 0,
            waits_for_client: false,
            is_cut: false,
        }
    }

    /// Sends as much of the request as possible. Ready after the end of the request.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            while self.out_at < self.out.len() {
                let Some(conn) = &mut self.conn else {
                    return Poll::Ready(Err(SendError::Member));
                };
                let sent = ready!(conn.poll_write(cx, &self.out[self.out_at..]));
                let sent = sent.map_err(|_| SendError::Member)?;
                self.out_at += sent;
                self.sent_bytes += sent as u64;
            }
            let flushed = self.poll_flush(cx);
            if self.body.is_none() && flushed.is_ready() {
                // A call may wait long for the response.
                self.out = Vec::new();
                self.out_at = 0;
            }
            if self.body.is_none() || matches!(flushed, Poll::Ready(Err(_))) {
                return flushed;
            }
            self.out.clear();
            self.out_at = 0;
            ready!(self.poll_body(cx))?;
        }
    }

    /// Sends bytes that wait in the connection's buffer.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        match &mut self.conn {
            Some(conn) => conn.poll_flush(cx).map_err(|_| SendError::Member),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Takes the next part of the body from the client.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(()));
        };
        if body.is_held {
            return Poll::Pending;
        }
        let start = if body.is_chunked { CHUNK_HEAD_BYTES } else { 0 };
        self.out.resize(start, 0);
        let read = body
            .reader
            .poll_take(cx, &mut self.out, PROXY_UNSENT_BYTES_MAX);
        self.waits_for_client = read.is_pending();
        if read.is_pending() {
            self.out.clear();
        }
        match (ready!(read), body.is_chunked) {
            (Ok(PipeRead::Bytes(_)), false) => {}
            (Ok(PipeRead::Bytes(count)), true) => self.end_chunk(count),
            (Ok(PipeRead::End), is_chunked) => {
                self.out.clear();
                if is_chunked {
                    let trailers = body.reader.take_trailers().unwrap_or_default();
                    let trailers = forwarded_trailers(&trailers, &body.route);
                    push_last_chunk(&trailers, &mut self.out);
                }
                self.body = None;
            }
            (Err(_), _) => return Poll::Ready(Err(SendError::Client)),
        }
        Poll::Ready(Ok(()))
    }

    /// Frames the `count` bytes behind the room for the head of a chunk.
    fn end_chunk(&mut self, count: usize) {
        let mut head = &mut self.out[..CHUNK_HEAD_BYTES];
        let written = write!(head, "{count:06x}\r\n");
        debug_assert!(written.is_ok() && head.is_empty(), "{count}");
        self.out.extend_from_slice(b"\r\n");
    }

    /// Lets a held body begin.
    pub(super) fn release_body(&mut self) {
        if let Some(body) = &mut self.body {
            body.is_held = false;
            body.reader.hold(false);
        }
    }

    /// Returns true if the member waits for the beginning of the body.
    pub(super) fn is_body_held(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.is_held)
    }

    /// Returns true if the call waits for the client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client
    }

    /// Ready if the request has to end, because another client needs the descriptor of the connection.
    /// `client_takes_slowly` is true while the call waits for room for the response.
    pub(super) fn poll_told(&self, cx: &Context<'_>, client_takes_slowly: bool) -> Poll<()> {
        let progress = UseProgress {
            bytes: self.sent_bytes + self.received_bytes,
            awaits_client: client_takes_slowly || self.waits_for_client,
        };
        match &self.conn {
            Some(conn) => conn.poll_told(cx, progress),
            None => Poll::Pending,
        }
    }

    /// Reads bytes of the member; returns 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.conn {
            Some(conn) => {
                let read = ready!(conn.poll_read(cx, into));
                self.received_bytes += read.as_ref().map_or(0, |read| *read as u64);
                Poll::Ready(read)
            }
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Returns the connection to the member, unless given back.
    pub(super) fn conn_mut(&mut self) -> Option<&mut MemberConn> {
        self.conn.as_mut()
    }

    /// Appends at most `max` bytes of the member to the empty buffer `into`, without a copy. None if the
    /// connection needs a copy.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        max: usize,
    ) -> Option<Poll<io::Result<usize>>> {
        let conn = self.conn.as_ref().filter(|conn| conn.can_fill())?;
        let filled = conn.poll_fill(cx, into, max);
        if let Poll::Ready(Ok(read)) = &filled {
            self.received_bytes += *read as u64;
        }
        Some(filled)
    }

    /// Moves at most `max` bytes of the member to `sink`, and the bytes that `sink` does not take to `rest`. None if
    /// the connection needs a copy.
    pub(super) fn poll_transfer(
        &mut self,
        cx: &mut Context<'_>,
        sink: &dyn PipeSink,
        max: usize,
        rest: &mut Vec<u8>,
    ) -> Option<Poll<rustix::io::Result<Transferred>>> {
        let conn = self.conn.as_ref().filter(|conn| conn.can_fill())?;
        let transferred = match conn.poll_transfer(cx, sink, max, rest) {
            Poll::Pending => return Some(Poll::Pending),
            Poll::Ready(transferred) => transferred.transpose()?,
        };
        if let Ok(bytes) = &transferred {
            self.received_bytes += bytes.received as u64;
        }
        Some(Poll::Ready(transferred))
    }

    /// Moves the exchange out, for the transfer of the response's content.
    pub(super) fn take(&mut self) -> Exchange {
        Exchange {
            conn: self.conn.take(),
            out: std::mem::take(&mut self.out),
            body: self.body.take(),
            ..*self
        }
    }

    /// Returns true if the connection has answered a request before.
    pub(super) fn is_on_reused_connection(&self) -> bool {
        self.conn.as_ref().is_some_and(MemberConn::is_reused)
    }

    /// Takes the connection after the end of the response. Returns None if the request isn't sent to its end.
    pub(super) fn take_finished(&mut self) -> Option<MemberConn> {
        let is_sent = !self.is_cut && self.body.is_none() && self.out_at == self.out.len();
        let mut conn = self.conn.take_if(|conn| is_sent && !conn.has_unsent())?;
        conn.record_answer();
        Some(conn)
    }

    /// Returns the number of bytes sent to the member.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns the number of bytes received from the member.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Drops the rest of the request, because the member reads no more.
    pub(super) fn stop_sending(&mut self) {
        self.is_cut = true;
        self.body = None;
        self.out_at = self.out.len();
    }
}

impl Drop for Exchange {
    /// Resets a connection that can't be used again. The member learns at once that the response is no longer
    /// wanted, and no local port stays in TIME_WAIT.
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            conn.close_with_reset();
        }
    }
}

/// Appends the last chunk and the trailer section with the lines `trailers`.
pub(super) fn push_last_chunk(trailers: &[u8], out: &mut Vec<u8>) {
    for part in [b"0\r\n", trailers, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Bytes of the head of a chunk: 6 hexadecimal digits and CRLF.
const CHUNK_HEAD_BYTES: usize = 8;
