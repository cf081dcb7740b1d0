//! Runtime for QUIC tasks that observes whether the server presented a certificate.
//!
//! `quinn` doesn't report whether a handshake was full or resumed. Only in a full handshake the server
//! presents a certificate, and the task of the connection processes the certificate.

use std::future::{Future, poll_fn};
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

use crate::load::tls::watching_for_certificates;

/// Runtime of one socket, with at most one handshake in progress at a time.
#[derive(Debug, Default)]
pub(super) struct CertificateObserver {
    saw_certificate: Arc<AtomicBool>,
}

impl CertificateObserver {
    /// Resets the observation at the beginning of a handshake.
    pub(super) fn begin(&self) {
        self.saw_certificate.store(false, Ordering::Relaxed);
    }

    /// Returns true if the server presented a certificate since [`CertificateObserver::begin`].
    pub(super) fn saw_certificate(&self) -> bool {
        self.saw_certificate.load(Ordering::Relaxed)
    }
}

impl Runtime for CertificateObserver {
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
