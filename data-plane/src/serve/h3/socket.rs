//! UDP socket of an endpoint.
//!
//! *Receiving* is up to one process. While a new program takes over, the predecessor waits on a socket pair for
//! the word of its successor, then stops reading the UDP socket and reads the pair, where the successor
//! forwards the packets for connections of the predecessor. If the successor ends before it serves, the
//! predecessor reads the UDP socket again. *Sending* stays as it is: all processes share the UDP socket.
//!
//! The socket works without generic receive offload (GRO) of the kernel. For GRO, quinn would allocate 3 MB of
//! receive buffers, more than all other memory of the server. Clients send mostly small requests and
//! acknowledgements; 32 datagrams are still read by one call.

use crate::serve::h3::forwarded::{ForwardedKind, HEADER_BYTES, decode};
use crate::serve::h3::forwards::Forwards;
use base::sys;
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use socket2::{SockRef, Socket};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct QuicSocket {
    socket: Arc<OwnedFd>,
    state: UdpSocketState,
    /// Predecessors, to which their packets are forwarded.
    forwards: Arc<Forwards>,
    reading: Mutex<Reading>,
    /// True once the process accepts no new connections, because a successor serves.
    has_left: AtomicBool,
    /// True while the kernel took no further datagram.
    is_full: AtomicBool,
    /// Notified when no process reads packets for the connections of the socket any more.
    abandoned: Notify,
}

/// Source of the received datagrams.
#[derive(Debug)]
struct Reading {
    /// The UDP socket in the event loop; None while another process reads the socket.
    udp: Option<AsyncFd<Arc<OwnedFd>>>,
    successor: Successor,
    /// Task that reads.
    reader: Option<Waker>,
}

#[derive(Debug)]
enum Successor {
    None,
    /// A pair that the event loop does not know yet.
    Offered(OwnedFd),
    /// A pair with a successor that does not read the UDP socket yet.
    Awaited(AsyncFd<OwnedFd>),
    /// The successor reads the UDP socket, and forwards over the pair.
    Reads(AsyncFd<OwnedFd>),
    /// The successor ended after this process had left.
    Gone,
}

impl QuicSocket {
    /// Wraps a socket that the process reads from now on. The caller must be within the runtime of the worker.
    pub(super) fn new(socket: UdpSocket, forwards: Arc<Forwards>) -> io::Result<Arc<QuicSocket>> {
        let state = UdpSocketState::new((&socket).into())?;
        sys::receive_singly(socket.as_fd())?;
        let socket = Arc::new(OwnedFd::from(socket));
        let udp = sys::async_shared(socket.clone(), Interest::READABLE)?;
        Ok(Arc::new(QuicSocket {
            socket,
            state,
            forwards,
            reading: Mutex::new(Reading {
                udp: Some(udp),
                successor: Successor::None,
                reader: None,
            }),
            has_left: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            abandoned: Notify::new(),
        }))
    }

    /// Returns the predecessors, to which their packets are forwarded.
    pub(super) fn forwards(&self) -> &Forwards {
        &self.forwards
    }

    /// Waits at `pair` for a successor, in place of an earlier pair. The process reads on until the
    /// successor says otherwise.
    pub(super) fn offer(&self, pair: Socket) {
        let mut reading = self.reading();
        reading.successor = Successor::Offered(pair.into());
        if let Some(reader) = reading.reader.take() {
            reader.wake();
        }
    }

    /// Records that the process accepts no new connections.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
        if matches!(self.reading().successor, Successor::Reads(_)) {
            // The successor has copies.
            self.forwards.clear();
        }
    }

    /// Waits until no process reads packets for the connections of the socket any more.
    pub(super) async fn abandoned(&self) {
        self.abandoned.notified().await;
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_udp(
        &self,
        udp: &AsyncFd<Arc<OwnedFd>>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(udp.poll_read_ready(cx))?;
            let received = guard.try_io(|udp| self.state.recv(udp.get_ref().into(), buffers, meta));
            if let Ok(received) = received {
                if let Ok(count) = received {
                    self.forwards.take_out(buffers, &mut meta[..count]);
                }
                return Poll::Ready(received);
            }
        }
    }

    /// Receives from the UDP socket, which the process reads again if a successor has ended.
    fn poll_own(
        &self,
        reading: &mut Reading,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let udp = match reading.udp.take() {
            Some(udp) => udp,
            None => sys::async_shared(self.socket.clone(), Interest::READABLE)?,
        };
        let udp = reading.udp.insert(udp);
        self.poll_udp(udp, cx, buffers, meta)
    }

    /// Receives while a successor exists.
    #[cold]
    fn poll_beside_successor(
        &self,
        reading: &mut Reading,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            reading.successor = match std::mem::replace(&mut reading.successor, Successor::None) {
                Successor::None => return self.poll_own(reading, cx, buffers, meta),
                Successor::Offered(pair) => Successor::Awaited(sys::async_readable(pair)?),
                Successor::Awaited(pair) => match poll_pair(&pair, cx, buffers, meta) {
                    Poll::Ready(FromPair::Begin) => {
                        reading.udp = None;
                        say_done(&pair);
                        Successor::Reads(pair)
                    }
                    Poll::Ready(FromPair::End) => Successor::None,
                    Poll::Ready(FromPair::Datagrams(_)) => Successor::Awaited(pair),
                    Poll::Pending => {
                        reading.successor = Successor::Awaited(pair);
                        return self.poll_own(reading, cx, buffers, meta);
                    }
                },
                Successor::Reads(pair) => match poll_pair(&pair, cx, buffers, meta) {
                    // The next successor asks the older predecessors as well.
                    Poll::Ready(FromPair::Begin) => {
                        say_done(&pair);
                        Successor::Reads(pair)
                    }
                    Poll::Ready(FromPair::Datagrams(count)) => {
                        reading.successor = Successor::Reads(pair);
                        return Poll::Ready(Ok(count));
                    }
                    Poll::Pending => {
                        reading.successor = Successor::Reads(pair);
                        return Poll::Pending;
                    }
                    Poll::Ready(FromPair::End) if self.has_left.load(Ordering::Relaxed) => {
                        self.abandoned.notify_one();
                        Successor::Gone
                    }
                    Poll::Ready(FromPair::End) => Successor::None,
                },
                Successor::Gone => {
                    reading.successor = Successor::Gone;
                    return Poll::Pending;
                }
            };
        }
    }
}

/// Messages read from a pair.
enum FromPair {
    Begin,
    /// The number of datagrams in the first buffers.
    Datagrams(usize),
    /// The other end is closed.
    End,
}

/// Tells the successor that the process reads the UDP socket no more. A successor that gets no word waits for a
/// bounded time.
fn say_done(pair: &AsyncFd<OwnedFd>) {
    let _ = (&*SockRef::from(pair.get_ref())).write(&ForwardedKind::Done.message());
}

/// Reads messages until the buffers are full, or until a message is no datagram.
fn poll_pair(
    pair: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
    buffers: &mut [IoSliceMut<'_>],
    meta: &mut [RecvMeta],
) -> Poll<FromPair> {
    let mut count = 0;
    while let (Some(buffer), Some(meta)) = (buffers.get_mut(count), meta.get_mut(count)) {
        let mut guard = match pair.poll_read_ready(cx) {
            Poll::Ready(Ok(guard)) => guard,
            Poll::Ready(Err(_)) => return Poll::Ready(FromPair::End),
            Poll::Pending if count == 0 => return Poll::Pending,
            Poll::Pending => break,
        };
        let mut header = [0; HEADER_BYTES];
        let received = guard.try_io(|pair| {
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
            (&*SockRef::from(pair.get_ref())).read_vectored(&mut parts)
        });
        let Ok(received) = received else { continue };
        match received {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Datagrams before the end are for connections that the end closes.
            Ok(0) | Err(_) => return Poll::Ready(FromPair::End),
            Ok(length) => match ForwardedKind::of(header[0]) {
                Some(ForwardedKind::Begin) => return Poll::Ready(FromPair::Begin),
                Some(ForwardedKind::Datagram) if length > HEADER_BYTES => {
                    if let Some(datagram) = decode(&header, length - HEADER_BYTES) {
                        *meta = datagram;
                        count += 1;
                    }
                }
                _ => {}
            },
        }
    }
    Poll::Ready(FromPair::Datagrams(count))
}

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(QuicSocketPoller {
            socket: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = self.state.send((&*self.socket).into(), transmit);
        if let Err(error) = &sent
            && error.kind() == ErrorKind::WouldBlock
        {
            self.is_full.store(true, Ordering::Relaxed);
        }
        sent
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut reading = self.reading();
        let reading = &mut *reading;
        let received = match (&reading.udp, &reading.successor) {
            (Some(udp), Successor::None) => self.poll_udp(udp, cx, buffers, meta),
            _ => self.poll_beside_successor(reading, cx, buffers, meta),
        };
        if received.is_pending() {
            let reader = reading.reader.as_ref();
            if !reader.is_some_and(|reader| reader.will_wake(cx.waker())) {
                reading.reader = Some(cx.waker().clone());
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = SockRef::from(&*self.socket).local_addr()?;
        address.as_socket().ok_or(ErrorKind::Unsupported.into())
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Waits until the kernel takes datagrams again. The event loop knows the socket for writing only while a
/// connection waits: otherwise each sent datagram would wake the workers.
#[derive(Debug)]
struct QuicSocketPoller {
    socket: Arc<QuicSocket>,
    waiting: Option<AsyncFd<OwnedFd>>,
}

impl UdpPoller for QuicSocketPoller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.waiting.is_none() && !this.socket.is_full.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let waiting = match this.waiting.take() {
            Some(waiting) => waiting,
            // An event loop takes each descriptor once.
            None => sys::async_socket(this.socket.socket.try_clone()?)?,
        };
        if waiting.poll_write_ready(cx)?.is_pending() {
            this.waiting = Some(waiting);
            return Poll::Pending;
        }
        this.socket.is_full.store(false, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}
