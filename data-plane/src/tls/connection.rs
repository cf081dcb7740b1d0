//! Start of a TLS connection. Usually one rustls configuration fits all names, and the connection exists at
//! once. If a site demands client certificates, the ClientHello must be read first to choose the
//! configuration.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use rustls::server::{AcceptedAlert, Acceptor};
use rustls::{ServerConfig, ServerConnection};

use crate::tls::{HandshakeFailure, RecordLayer, Tls, TlsShared};

/// TLS connection in one of its stages.
#[derive(Debug)]
pub(crate) enum TlsConnection {
    /// A rustls connection.
    Ready(Box<ServerConnection>),
    /// A connection that waits for the ClientHello.
    AwaitingHello(Box<HelloReader>),
    /// A connection reduced to its record layer, after rustls has completed the handshake.
    Sealed(Box<RecordLayer>),
    /// A connection without keys: the connection can neither read nor write.
    Lost,
}

/// Connection before the ClientHello is complete.
pub(crate) struct HelloReader {
    acceptor: Acceptor,
    shared: Arc<TlsShared>,
}

/// Result of reading a part of the ClientHello.
#[derive(Debug)]
pub(crate) enum HelloResult {
    /// The ClientHello is incomplete.
    More,
    /// The ClientHello is complete. The connection contains the bytes read after the ClientHello. The
    /// caller processes packets and writes next.
    Ready(Box<ServerConnection>),
    /// The handshake failed. The caller sends the alert and closes the connection.
    Refused {
        /// Bytes to send, possibly empty.
        alert: Vec<u8>,
        /// Reason of the failure.
        failure: HandshakeFailure,
    },
}

impl Tls {
    /// Makes the server side of a new connection.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration, which indicates a bug.
    pub(crate) fn accept(&self) -> Result<TlsConnection, rustls::Error> {
        if self.shared.choosing {
            let choosing = HelloReader::new(Arc::clone(&self.shared));
            return Ok(TlsConnection::AwaitingHello(Box::new(choosing)));
        }
        connect(&self.shared.open).map(TlsConnection::Ready)
    }
}

impl HelloReader {
    fn new(shared: Arc<TlsShared>) -> HelloReader {
        HelloReader {
            acceptor: Acceptor::default(),
            shared,
        }
    }

    /// Reads once from `rd`, at most a few KiB, and checks whether the ClientHello is complete. After
    /// `Ready`, bytes left in `rd` belong to the connection. After `Refused`, the function must not be
    /// called again.
    ///
    /// # Errors
    /// Errors of `rd`, and `UnexpectedEof` if `rd` returns no bytes.
    pub(crate) fn read_hello(&mut self, rd: &mut dyn Read) -> io::Result<HelloResult> {
        if self.acceptor.read_tls(rd)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let accepted = match self.acceptor.accept() {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return Ok(HelloResult::More),
            Err((error, alert)) => return Ok(refused(error, None, alert)),
        };
        let hello = accepted.client_hello();
        let config = self.shared.config(&hello);
        let name = hello.server_name().map(str::to_owned);
        Ok(match accepted.into_connection(Arc::clone(config)) {
            Ok(connection) => HelloResult::Ready(unlimited(connection)),
            Err((error, alert)) => refused(error, name.as_deref(), alert),
        })
    }
}

impl fmt::Debug for HelloReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choosing").finish_non_exhaustive()
    }
}

/// Makes a connection with one configuration for all names.
fn connect(config: &Arc<ServerConfig>) -> Result<Box<ServerConnection>, rustls::Error> {
    ServerConnection::new(Arc::clone(config)).map(unlimited)
}

/// Removes rustls's limit of unsent bytes. The writer has a limit of its own and relies on rustls to take
/// all bytes of a write.
fn unlimited(mut connection: ServerConnection) -> Box<ServerConnection> {
    connection.set_buffer_limit(None);
    Box::new(connection)
}

fn refused(
    error: rustls::Error,
    server_name: Option<&str>,
    mut alert: AcceptedAlert,
) -> HelloResult {
    let mut bytes = Vec::new();
    let _ = alert.write_all(&mut bytes); // writing to a Vec never fails
    HelloResult::Refused {
        alert: bytes,
        failure: HandshakeFailure::new(error, server_name),
    }
}
