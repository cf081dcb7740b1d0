//! Tunnel between a client and a member after a protocol switch (RFC 9110 §7.8), for example to WebSocket. The
//! bytes of both directions pass unchanged, each direction until its own end.

use crate::handler::pipe::{PipeRead, PipeReader, PipeWriter};
use crate::ledger::member_uses::UseProgress;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::PROXY_UNSENT_BYTES_MAX;
use crate::upstream::Lease;
use crate::upstream::{MemberConn, with_receive_buffer};
use base::clock::monotonic_ms;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Future that moves the bytes of both directions. Each side may end its direction first. The other direction
/// then goes on to its own end; the driver of the client's connection ends a silent rest of a tunnel after
/// `idle_seconds`.
pub(super) struct Tunnel {
    conn: MemberConn,
    /// Use of the member until the end of the tunnel.
    lease: Option<Lease>,
    /// Bytes from the client; None if the member takes no more.
    reader: Option<PipeReader>,
    /// Bytes for the member; the bytes before `out_at` are sent.
    out: Vec<u8>,
    out_at: usize,
    /// True after the end of the client's bytes.
    has_client_ended: bool,
    /// Bytes for the client.
    writer: PipeWriter,
    /// True after the end of the member's bytes.
    has_member_ended: bool,
    /// Received bytes that are not passed on, from `rest_at`.
    rest: Vec<u8>,
    rest_at: usize,
    /// Bytes moved in both directions.
    moved_bytes: u64,
    refusals: Arc<RefusalCounters>,
}

/// End of one direction of a tunnel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum DirectionEnd {
    /// All bytes of the sender have passed, or the recipient takes no more.
    Over,
    /// The connection of the client or of the member is lost, and with the connection the other direction.
    Lost,
}

impl Tunnel {
    /// Creates a tunnel. The pipe to the client comes with bytes that the member sent behind the head of its response.
    pub(super) fn new(
        conn: MemberConn,
        lease: Option<Lease>,
        reader: PipeReader,
        (writer, rest): (PipeWriter, Vec<u8>),
        refusals: Arc<RefusalCounters>,
    ) -> Tunnel {
        Tunnel {
            conn,
            lease,
            reader: Some(reader),
            out: Vec::new(),
            out_at: 0,
            has_client_ended: false,
            writer,
            has_member_ended: false,
            rest,
            rest_at: 0,
            moved_bytes: 0,
            refusals,
        }
    }

    /// Returns true if the tunnel has to end, because a request of another client gets the place of the member, or needs the
    /// descriptor of the connection. Called after the bytes at hand have moved.
    fn gives_way(&mut self, cx: &mut Context<'_>) -> bool {
        let lease = self.lease.as_mut();
        let progress = UseProgress {
            bytes: self.moved_bytes,
            awaits_client: false,
        };
        let is_told = lease.is_some_and(|lease| lease.poll_told(cx).is_ready())
            || self.conn.poll_told(cx, progress).is_ready();
        if is_told {
            self.refusals.increment(SharedLimit::MemberPlaces);
        }
        is_told
    }

    /// Moves bytes from the client to the member, and then the end of the client's bytes.
    fn poll_to_member(&mut self, cx: &mut Context<'_>) -> Poll<DirectionEnd> {
        loop {
            if ready!(self.poll_send(cx)).is_err() {
                // The member may have sent bytes before the member closed the connection.
                self.reader = None;
                self.out = Vec::new();
            }
            let Some(reader) = self.reader.as_mut().filter(|_| !self.has_client_ended) else {
                return Poll::Ready(DirectionEnd::Over);
            };
            match ready!(reader.poll_take(cx, &mut self.out, PROXY_UNSENT_BYTES_MAX)) {
                Ok(PipeRead::Bytes(_)) => {}
                Ok(PipeRead::End) => {
                    self.has_client_ended = true;
                    self.conn.end_sending();
                }
                Err(_) => return Poll::Ready(DirectionEnd::Lost),
            }
        }
    }

    /// Sends the bytes in `out`. The member takes no more bytes after an error.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reader.is_none() || self.has_client_ended {
            return Poll::Ready(Ok(()));
        }
        while self.out_at < self.out.len() {
            let sent = ready!(self.conn.poll_write(cx, &self.out[self.out_at..]))?;
            self.out_at += sent;
            self.count(sent, 0);
        }
        // A silent tunnel holds no buffer.
        self.out = Vec::new();
        self.out_at = 0;
        self.conn.poll_flush(cx)
    }

    /// Moves bytes from the member to the client, and then the end of the member's bytes.
    fn poll_to_client(&mut self, cx: &mut Context<'_>) -> Poll<DirectionEnd> {
        while !self.has_member_ended {
            let room = match ready!(self.writer.poll_room(cx)) {
                Ok(room) => room,
                Err(_) => return Poll::Ready(DirectionEnd::Lost),
            };
            if self.rest_at < self.rest.len() {
                let rest = &self.rest[self.rest_at..];
                self.rest_at += self.writer.write_some(rest).unwrap_or(rest.len());
                continue;
            }
            let read = with_receive_buffer(|buffer| {
                let into = room.min(buffer.len());
                let read = ready!(self.conn.poll_read(cx, &mut buffer[..into]));
                let bytes = &buffer[..read.as_ref().map_or(0, |read| *read)];
                // The pipe has room for all bytes.
                let _ = self.writer.write_some(bytes);
                Poll::Ready(read)
            });
            match ready!(read) {
                Ok(0) => {
                    self.writer.end();
                    self.has_member_ended = true;
                }
                Ok(read) => self.count(0, read),
                Err(_) => {
                    self.writer.end();
                    return Poll::Ready(DirectionEnd::Lost);
                }
            }
        }
        Poll::Ready(DirectionEnd::Over)
    }

    /// Moves the bytes at hand. Ready after the end of both directions.
    fn poll_directions(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let to_client = self.poll_to_client(cx);
        if to_client == Poll::Ready(DirectionEnd::Lost) {
            return Poll::Ready(());
        }
        match ready!(self.poll_to_member(cx)) {
            DirectionEnd::Lost => Poll::Ready(()),
            DirectionEnd::Over => to_client.map(|_| ()),
        }
    }

    /// Reports moved bytes to the balancer.
    fn count(&mut self, sent: usize, received: usize) {
        self.moved_bytes += (sent + received) as u64;
        if let Some(lease) = &self.lease {
            lease.mark_moved(monotonic_ms());
            lease.add_sent(sent as u64);
            lease.add_received(received as u64);
        }
    }
}

impl Future for Tunnel {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let moved = self.poll_directions(cx);
        if moved.is_pending() && self.gives_way(cx) {
            return Poll::Ready(());
        }
        moved
    }
}
