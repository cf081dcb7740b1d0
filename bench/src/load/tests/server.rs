//! An HTTP/1.1 server on loopback with every byte of a response chosen by a test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{
    HandshakeKind, NamedGroup, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};

/// A server that runs until dropped.
pub(super) struct Server {
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

/// Requests and connections seen by the server.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    heads: Mutex<Vec<String>>,
    handshakes: Mutex<Vec<(HandshakeKind, Option<NamedGroup>)>>,
    stopping: AtomicBool,
}

/// A connection, with or without TLS.
pub(super) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Answers the request with the given number, from 0, and returns true to keep the connection.
pub(super) trait Answer: Fn(&mut dyn Stream, usize) -> bool + Send + Sync + 'static {}
impl<T: Fn(&mut dyn Stream, usize) -> bool + Send + Sync + 'static> Answer for T {}

impl Server {
    pub(super) fn plain(answer: impl Answer) -> Server {
        Server::start(None, answer)
    }

    pub(super) fn tls(config: ServerConfig, answer: impl Answer) -> Server {
        Server::start(Some(Arc::new(config)), answer)
    }

    /// Starts a server that sends the same bytes for every request and keeps the connection.
    pub(super) fn fixed(bytes: &'static [u8]) -> Server {
        Server::plain(move |stream, _| stream.write_all(bytes).is_ok())
    }

    fn start(tls: Option<Arc<ServerConfig>>, answer: impl Answer) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a local address");
        let seen = Arc::new(Seen::default());
        let (of_server, answer) = (Arc::clone(&seen), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_server.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let (seen, answer, tls) =
                    (Arc::clone(&of_server), Arc::clone(&answer), tls.clone());
                seen.connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || serve(stream.expect("a connection"), tls, &seen, &*answer));
            }
        });
        Server { address, seen }
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// Returns the header sections of all requests.
    pub(super) fn heads(&self) -> Vec<String> {
        self.seen.heads.lock().expect("heads").clone()
    }

    /// Returns the kind and the group of every handshake, as seen by the server.
    pub(super) fn handshakes(&self) -> Vec<(HandshakeKind, Option<NamedGroup>)> {
        self.seen.handshakes.lock().expect("handshakes").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.seen.stopping.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, tls: Option<Arc<ServerConfig>>, seen: &Seen, answer: &dyn Answer) {
    stream.set_nodelay(true).expect("no delay");
    let Some(config) = tls else {
        return converse(&mut stream, seen, answer);
    };
    let mut session = ServerConnection::new(config).expect("a session");
    while session.is_handshaking() {
        if session.complete_io(&mut stream).is_err() {
            return;
        }
    }
    let group = session
        .negotiated_key_exchange_group()
        .map(|group| group.name());
    let kind = session.handshake_kind().expect("a finished handshake");
    seen.handshakes
        .lock()
        .expect("handshakes")
        .push((kind, group));
    let mut stream = StreamOwned::new(session, stream);
    converse(&mut stream, seen, answer);
    stream.conn.send_close_notify();
    let _ = stream.flush();
    // Behaves as socat does: the socket stays open until the client closes the connection.
    while stream
        .sock
        .read(&mut [0; 64])
        .is_ok_and(|length| length > 0)
    {}
}

fn converse(stream: &mut dyn Stream, seen: &Seen, answer: &dyn Answer) {
    while let Some(head) = head(stream) {
        let number = seen.requests.fetch_add(1, Ordering::SeqCst);
        seen.heads.lock().expect("heads").push(head);
        if !answer(stream, number) {
            break;
        }
    }
}

fn head(stream: &mut dyn Stream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Creates a self-signed certificate for `localhost`.
pub(super) fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate")
}

/// Creates a TLS configuration with the given certificate.
pub(super) fn tls(
    certificate: &CertifiedKey<KeyPair>,
    version: &'static SupportedProtocolVersion,
) -> ServerConfig {
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_protocol_versions(&[version])
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .expect("a certificate with its key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
