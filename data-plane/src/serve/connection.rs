//! A TCP connection of a client, as the drivers of HTTP/1.1 and HTTP/2 share it.

use crate::handler::LocalBoxFuture;
use crate::limits::LINGER_READS_MAX;
use crate::serve::accepted_connection::AcceptLoop;
use crate::serve::access_log::{ClientInfo, tls_version};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::{Audience, DispatchContext, EndpointLookup, RateCheck};
use crate::serve::linger::Linger;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::request_ledger::ConnectionAccount;
use crate::tls::ConnectionIdentity;
use base::sys;
use std::future::poll_fn;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::task::yield_now;

/// A connection, from accept to close. Dropping the connection closes the socket.
pub(super) struct Connection {
    pub(super) stream: MaybeTlsStream,
    pub(super) context: Rc<WorkerContext>,
    /// Row of the connection in the worker's table.
    pub(super) slot: usize,
    pub(super) peer: IpAddr,
    /// Audience of the listener that accepted the connection.
    audience: Audience,
    /// Place of the connection at the manager's listener; None for a connection of another listener.
    place: Option<Rc<()>>,
    /// Received bytes that are not processed yet.
    pub(super) rest: Vec<u8>,
    /// Identity of the certificate used by the finished handshake; None before the end of the handshake and
    /// without TLS.
    pub(super) identity: Option<ConnectionIdentity>,
}

/// State of the connection after a response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum AfterResponse {
    Keep,
    Close,
    /// Close after a lingering read, because the client may still be sending bytes that the server will not
    /// parse.
    Linger,
    /// Reset the connection: the response broke off, and the client must not take the truncated response
    /// for a complete one.
    Reset,
}

impl AfterResponse {
    /// Returns the treatment of an HTTP/1.1 connection after a response that announces the end, though the client would
    /// have gone on. While another process serves, the connection lingers: a request that the client has sent meanwhile
    /// would otherwise reset the connection, and the reset may overtake the response (RFC 9112 §9.6). A server that stops
    /// does not wait for its clients.
    #[cold]
    pub(super) fn of_last_response(context: &WorkerContext) -> AfterResponse {
        if context.ends_idle() {
            AfterResponse::Close
        } else {
            AfterResponse::Linger
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.context.stats.panics.increment();
        }
        self.context.close(self.slot);
    }
}

impl Connection {
    pub(super) fn new(
        stream: MaybeTlsStream,
        context: Rc<WorkerContext>,
        slot: usize,
        peer: IpAddr,
        listener: &AcceptLoop,
    ) -> Connection {
        let is_manager = listener.audience == Audience::Manager;
        Connection {
            stream,
            context,
            slot,
            peer,
            audience: listener.audience,
            place: is_manager.then(|| Rc::clone(&listener.places)),
            rest: Vec::new(),
            identity: None,
        }
    }

    /// Waits for the end of `work`. Returns None if the client ends or breaks the connection before.
    pub(super) async fn unless_gone<T>(&self, mut work: LocalBoxFuture<T>) -> Option<T> {
        poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            self.stream.socket.poll_gone(cx).map(|()| None)
        })
        .await
    }

    pub(super) fn client_info(&self) -> ClientInfo {
        ClientInfo {
            peer: self.peer,
            audience: self.audience(),
            tls: tls_version(&self.stream),
        }
    }

    /// Returns the audience of the listener that accepted the connection.
    #[inline]
    pub(super) fn audience(&self) -> Audience {
        self.audience
    }

    /// Returns true if the connection uses TLS.
    #[inline]
    pub(super) fn is_secure(&self) -> bool {
        self.stream.tls.is_some()
    }

    /// Returns the context in which a request is dispatched.
    pub(super) fn dispatch_context(&self) -> DispatchContext {
        DispatchContext {
            audience: self.audience(),
            identity: self.identity,
            peer: self.peer,
            secure: self.identity.is_some(),
            forwarded_by: None,
            endpoints: EndpointLookup::Row(self.slot),
            now_ms: self.context.clock.millis(),
            may_wait: false,
            rate: RateCheck::default(),
            has_disk_changes: self.context.poller.has_unread_changes(),
            hides_login: false,
        }
    }

    /// Returns an account of the connection in the ledger of requests, for a request of `client`.
    pub(super) fn account(&self, client: IpAddr) -> Rc<ConnectionAccount> {
        let socket = Some(self.stream.socket.clone());
        self.context.request_ledger.account_on(client, socket)
    }

    /// Puts the connection into a phase, and sets the deadline of the phase.
    pub(super) fn phase(&self, phase: ConnectionPhase) {
        self.context.phase(self.slot, phase);
    }

    /// Sends the TLS close_notify alert as far as the socket accepts bytes.
    pub(super) fn close(&mut self) {
        self.stream
            .close_notify(&mut Context::from_waker(Waker::noop()));
    }

    /// Resets the connection without sending the bytes buffered by TLS or the kernel: the buffered bytes
    /// could complete a response that broke off. The reset shows the client that the connection did not end
    /// regularly.
    pub(super) fn reset(&mut self) {
        let _ = self.stream.socket.reset_on_close();
    }

    /// Closes the connection so that the client can read the last response: shuts down the write side, then
    /// reads and discards input within the bounds of [`Linger`]. A close with unread bytes would reset the
    /// connection, and the reset may overtake the response (RFC 9112 §9.6). The connection counts as idle from
    /// the end of the response on, and gives way to other connections.
    pub(super) async fn linger(&mut self) {
        self.rest = Vec::new();
        poll_fn(|cx| {
            self.stream.close_notify(cx);
            Poll::Ready(())
        })
        .await;
        if sys::shutdown_write(self.stream.socket.as_fd()).is_err() {
            return;
        }
        // Neither TLS nor a place of the manager's listener is needed to discard bytes.
        self.stream.tls = None;
        self.place = None;
        let mut linger = Linger::new(self.context.clock.millis());
        self.phase(ConnectionPhase::Linger);
        loop {
            let discarded = poll_fn(|cx| match self.poll_discard(cx) {
                Discarded {
                    bytes: 0,
                    is_open: true,
                } => Poll::Pending,
                discarded => Poll::Ready(discarded),
            });
            let discarded = discarded.await;
            self.context.clock.tick();
            let now_ms = self.context.clock.millis();
            linger.note(discarded.bytes, now_ms);
            if !discarded.is_open || linger.is_over(now_ms) {
                return;
            }
            self.context.linger_until(self.slot, linger.due_ms());
            // Lets other connections run.
            yield_now().await;
        }
    }

    /// Reads and discards bytes of the client, sealed or not, for one turn of the connection. The task is woken for
    /// further bytes.
    pub(super) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Discarded {
        let context = self.context.clone();
        let mut scratch = context.scratch.borrow_mut();
        let mut bytes = 0;
        for _ in 0..LINGER_READS_MAX {
            match self.stream.socket.poll_read(cx, &mut scratch) {
                Poll::Pending => {
                    return Discarded {
                        bytes,
                        is_open: true,
                    };
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Discarded {
                        bytes,
                        is_open: false,
                    };
                }
                Poll::Ready(Ok(read)) => {
                    context.stats.bytes_received.add(read as u64);
                    bytes += read;
                }
            }
        }
        cx.waker().wake_by_ref();
        Discarded {
            bytes,
            is_open: true,
        }
    }
}

/// Result of one turn of discarding.
pub(super) struct Discarded {
    pub(super) bytes: usize,
    /// False after the end of the client's direction, or after an error.
    pub(super) is_open: bool,
}
