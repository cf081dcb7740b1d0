//! Failure of a TLS handshake on the server's side, with the server name of the client.

use std::fmt;

/// Failure of a handshake, or of the records after the handshake.
#[derive(Debug)]
pub(crate) struct HandshakeFailure {
    /// Reason.
    pub error: rustls::Error,
    /// Server name (SNI) of the client, if known.
    pub server_name: Option<Box<str>>,
}

impl HandshakeFailure {
    /// Makes the failure of a connection with the server name.
    pub(crate) fn new(error: rustls::Error, server_name: Option<&str>) -> HandshakeFailure {
        HandshakeFailure {
            error,
            server_name: server_name.map(Box::from),
        }
    }

    /// Returns the reason, if the client has no client certificate that is accepted.
    pub(crate) fn certificate_refusal(&self) -> Option<&rustls::Error> {
        use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
        matches!(self.error, NoCertificatesPresented | InvalidCertificate(_)).then_some(&self.error)
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for HandshakeFailure {}
