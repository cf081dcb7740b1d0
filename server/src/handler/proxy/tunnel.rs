//! Tunnel between a client and a member after a protocol switch (RFC 9110 §7.8), for example to WebSocket. The
//! bytes of both directions pass unchanged, each direction until its own end.

use crate::handler::pipe::{PipeRead, PipeReader, PipeWriter};
use crate::limits::PROXY_UNSENT_BYTES_MAX;
use crate::upstream::balancer::Lease;
use crate::upstream::{MemberConn, with_receive_buffer};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Future that moves the bytes of both directions.
pub(super) struct Tunnel {
    conn: MemberConn,
    /// Use of the member until the end of the tunnel.
    lease: Option<Lease>,
    /// Bytes from the client.
    reader: PipeReader,
    /// Bytes for the member; the bytes before `out_at` are sent.
    out: Vec<u8>,
    out_at: usize,
    /// True after the end of the client's bytes.
    has_client_ended: bool,
    /// Bytes for the client.
    writer: PipeWriter,
    /// Received bytes that are not passed on, from `rest_at`.
    rest: Vec<u8>,
    rest_at: usize,
}

impl Tunnel {
    /// Creates a tunnel. `rest` holds bytes that the member sent behind the head of its response.
    pub(super) fn new(
        conn: MemberConn,
        lease: Option<Lease>,
        reader: PipeReader,
        writer: PipeWriter,
        rest: Vec<u8>,
    ) -> Tunnel {
        Tunnel {
            conn,
            lease,
            reader,
            out: Vec::new(),
            out_at: 0,
            has_client_ended: false,
            writer,
            rest,
            rest_at: 0,
        }
    }

    /// Moves bytes from the client to the member. Ready after the member's connection broke.
    fn poll_to_member(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            while self.out_at < self.out.len() {
                match ready!(self.conn.poll_write(cx, &self.out[self.out_at..])) {
                    Ok(sent) => self.count(sent, 0),
                    Err(_) => return Poll::Ready(()),
                }
            }
            if ready!(self.conn.poll_flush(cx)).is_err() {
                return Poll::Ready(());
            }
            self.out = Vec::new();
            self.out_at = 0;
            if self.has_client_ended {
                return Poll::Pending;
            }
            match ready!(
                self.reader
                    .poll_take(cx, &mut self.out, PROXY_UNSENT_BYTES_MAX)
            ) {
                Ok(PipeRead::Bytes(_)) => {}
                Ok(PipeRead::End) => {
                    self.has_client_ended = true;
                    self.conn.end_sending();
                }
                Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Moves bytes from the member to the client. Ready after the end of the member's bytes.
    fn poll_to_client(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let room = match ready!(self.writer.poll_room(cx)) {
                Ok(room) => room,
                Err(_) => return Poll::Ready(()),
            };
            if self.rest_at < self.rest.len() {
                let rest = &self.rest[self.rest_at..];
                self.rest_at += self.writer.write_some(rest).unwrap_or(rest.len());
                continue;
            }
            let read = with_receive_buffer(|buffer| {
                let into = room.min(buffer.len());
                let read = ready!(self.conn.poll_read(cx, &mut buffer[..into]));
                let read = read.unwrap_or(0);
                // The pipe has room for all bytes.
                let _ = self.writer.write_some(&buffer[..read]);
                Poll::Ready(read)
            });
            match ready!(read) {
                0 => {
                    self.writer.end();
                    return Poll::Ready(());
                }
                read => self.count(0, read),
            }
        }
    }

    fn count(&mut self, sent: usize, received: usize) {
        self.out_at += sent;
        if let Some(lease) = &self.lease {
            lease.add_sent(sent as u64);
            lease.add_received(received as u64);
        }
    }
}

impl Future for Tunnel {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let tunnel = &mut *self;
        if tunnel.poll_to_client(cx).is_ready() {
            return Poll::Ready(());
        }
        tunnel.poll_to_member(cx)
    }
}
