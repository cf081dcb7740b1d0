//! The beginning of a TLS connection. Usually one rustls configuration fits every name and the
//! connection exists at once; only where some site demands client certificates must the client's
//! hello be read first, to know which configuration it gets.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use rustls::server::{AcceptedAlert, Acceptor};
use rustls::{ServerConfig, ServerConnection};

use crate::tls::{RecordLayer, TlsShared};

/// A connection under TLS, by how far it came.
#[derive(Debug)]
pub enum TlsConnection {
    /// Goes on as any rustls connection.
    Ready(Box<ServerConnection>),
    /// Waits for the client's hello.
    AwaitingHello(Box<HelloReader>),
    /// Is over, and nothing is left of it but its keys.
    Sealed(Box<RecordLayer>),
    /// Its keys were lost on the way: nothing can be said or read any more.
    Lost,
}

/// A connection whose client hasn't yet said whom it wants.
pub struct HelloReader {
    acceptor: Acceptor,
    shared: Arc<TlsShared>,
}

/// How far a [`AwaitingHello`] came.
#[derive(Debug)]
pub enum HelloResult {
    /// The hello isn't whole yet.
    More,
    /// It is; what was read after it is inside the connection. Process packets and write next.
    Ready(Box<ServerConnection>),
    /// No connection comes of it: send the alert and close.
    Refused {
        /// Bytes to send, maybe none.
        alert: Vec<u8>,
        /// Why.
        error: rustls::Error,
    },
}

impl HelloReader {
    pub(super) fn new(shared: Arc<TlsShared>) -> HelloReader {
        HelloReader {
            acceptor: Acceptor::default(),
            shared,
        }
    }

    /// Reads once from `rd`, at most a few KiB, and looks whether the hello is whole. After `Ready`
    /// whatever is left in `rd` belongs to the connection; after `Refused` don't call it again.
    ///
    /// # Errors
    /// Those of `rd`, and `UnexpectedEof` where it gives nothing.
    pub fn read_hello(&mut self, rd: &mut dyn Read) -> io::Result<HelloResult> {
        if self.acceptor.read_tls(rd)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let accepted = match self.acceptor.accept() {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return Ok(HelloResult::More),
            Err((error, alert)) => return Ok(refused(error, alert)),
        };
        let config = self.shared.config(&accepted.client_hello());
        Ok(match accepted.into_connection(Arc::clone(config)) {
            Ok(connection) => HelloResult::Ready(unlimited(connection)),
            Err((error, alert)) => refused(error, alert),
        })
    }
}

impl fmt::Debug for HelloReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choosing").finish_non_exhaustive()
    }
}

/// A connection with one configuration for all names.
pub(super) fn connect(config: &Arc<ServerConfig>) -> Result<Box<ServerConnection>, rustls::Error> {
    ServerConnection::new(Arc::clone(config)).map(unlimited)
}

/// Takes off rustls's own limit of unsent bytes: the writer has its own, and must never find that
/// rustls took half of what it was given.
fn unlimited(mut connection: ServerConnection) -> Box<ServerConnection> {
    connection.set_buffer_limit(None);
    Box::new(connection)
}

fn refused(error: rustls::Error, mut alert: AcceptedAlert) -> HelloResult {
    let mut bytes = Vec::new();
    let _ = alert.write_all(&mut bytes); // a Vec takes everything
    HelloResult::Refused {
        alert: bytes,
        error,
    }
}
