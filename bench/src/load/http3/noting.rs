//! Where QUIC's tasks run, which notes whether a server showed its certificate.
//!
//! `quinn` doesn't tell a full handshake from a resumed one. Only in a full one there is a certificate
//! to be looked at, and that happens in the task of its connection.

use std::future::{Future, poll_fn};
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

use crate::load::tls::watching_for_certificates;

/// The runtime of one socket, over which one handshake at a time is under way.
#[derive(Debug, Default)]
pub(super) struct Noting {
    saw_certificate: Arc<AtomicBool>,
}

impl Noting {
    /// A handshake begins.
    pub(super) fn begin(&self) {
        self.saw_certificate.store(false, Ordering::Relaxed);
    }

    /// Whether a certificate came since.
    pub(super) fn saw_certificate(&self) -> bool {
        self.saw_certificate.load(Ordering::Relaxed)
    }
}

impl Runtime for Noting {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, mut future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let saw_certificate = Arc::clone(&self.saw_certificate);
        tokio::spawn(poll_fn(move |context| {
            let (polled, saw) = watching_for_certificates(|| future.as_mut().poll(context));
            if saw {
                saw_certificate.store(true, Ordering::Relaxed);
            }
            polled
        }));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }
}
