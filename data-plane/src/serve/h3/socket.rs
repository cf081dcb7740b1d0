//! UDP socket of an endpoint, without generic receive offload (GRO) of the kernel. For GRO, quinn would
//! allocate 3 MB of receive buffers, more than all other memory of the server. Clients send mostly small
//! requests and acknowledgements; 32 datagrams are still read by one call.

use base::sys;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

#[derive(Debug)]
pub(super) struct QuicSocket(Arc<dyn AsyncUdpSocket>);

impl QuicSocket {
    /// Wraps a socket. The caller must be within the runtime of the worker.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Arc<QuicSocket>> {
        let same = socket.try_clone()?;
        let wrapped = TokioRuntime.wrap_udp_socket(socket)?;
        sys::receive_singly(same.as_fd())?;
        Ok(Arc::new(QuicSocket(wrapped)))
    }
}

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.0.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}
