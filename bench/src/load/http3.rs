//! HTTP/3 connections by the `quinn` and `h3` crates. The anthill server has its own implementation of
//! HTTP/3 frames and field sections, so the two implementations test each other.
//!
//! Each connection has its own UDP socket, as the clients of a real server have. Datagrams of one
//! connection can't displace datagrams of another from the socket buffer, and a server that distributes
//! clients by address sees many addresses.

mod counted;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, ConnectionError, StreamError};
use http::{HeaderMap, Method, Request, StatusCode, header};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    AsyncTimer, AsyncUdpSocket, ClientConfig, Endpoint, EndpointConfig, Runtime, TokioRuntime,
    TransportConfig, VarInt,
};
use rustls::pki_types::ServerName;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::link::TlsStart;
use super::share::{Report, Share};
use super::streams::{self, Ask, Dial, Dialled, Received, RequestError};
use super::tally::{Failure, ResponseSummary};
use super::timeline::Timeline;
use super::tls::watching_for_certificates;
use super::workload::Workload;
use crate::result::Failures;
use counted::Counted;

/// Runs the thread's share of the connections.
pub(super) fn run(
    workload: &Arc<Workload>,
    timeline: &Arc<Timeline>,
    share: Share,
) -> io::Result<Report> {
    let Some(tls) = &share.tls else {
        return Err(io::Error::other("HTTP/3 requires TLS"));
    };
    let received = Received::new(timeline);
    let dial = Http3 {
        config: config(tls)?,
        name: tls.name.clone(),
        free: Rc::default(),
        received: Rc::clone(&received),
    };
    streams::run(workload, timeline, &share, &received, || Ok(dial))
}

fn config(tls: &TlsStart) -> io::Result<ClientConfig> {
    let crypto = QuicClientConfig::try_from(Arc::clone(&tls.config)).map_err(io::Error::other)?;
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW_BYTES)
        .max_concurrent_bidi_streams(VarInt::from_u32(0));
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

struct Http3 {
    config: ClientConfig,
    name: ServerName<'static>,
    /// Sockets of ended connections, for reuse. A socket must stay open for a while after CONNECTION_CLOSE,
    /// and new connections can use the socket in the meantime.
    free: Rc<RefCell<Vec<Socket>>>,
    received: Rc<Received>,
}

/// A UDP socket, with the runtime that observes the handshakes on the socket.
struct Socket {
    endpoint: Endpoint,
    observer: Arc<CertificateObserver>,
}

/// A socket in use.
struct Lease {
    socket: Option<Socket>,
    free: Rc<RefCell<Vec<Socket>>>,
}

/// A connection. The socket is returned after the last clone of the sender has closed the connection.
#[derive(Clone)]
struct Connection {
    sender: SendRequest<Counted<h3_quinn::OpenStreams>, Bytes>,
    _lease: Rc<Lease>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.free.borrow_mut().extend(self.socket.take());
    }
}

impl Dial for Http3 {
    type Sender = Connection;

    async fn dial(
        &self,
        address: SocketAddr,
        source: Option<IpAddr>,
    ) -> Result<Dialled<Connection>, Failure> {
        let socket = self.socket(address, source).map_err(failed)?;
        let name = self.name.to_str();
        let connecting = socket
            .endpoint
            .connect_with(self.config.clone(), address, &name);
        let observer = Arc::clone(&socket.observer);
        let lease = Rc::new(Lease {
            socket: Some(socket),
            free: Rc::clone(&self.free),
        });
        observer.begin();
        let connection = connecting.map_err(failed)?.await.map_err(failed)?;
        let resumed = !observer.saw_certificate();
        let quic = h3_quinn::Connection::new(connection);
        let (mut driver, sender) = h3::client::builder()
            .send_grease(false)
            .build(Counted::new(quic, &self.received))
            .await
            .map_err(failed)?;
        // The end of the connection is reported by the requests on the connection.
        spawn_local(async move { driver.wait_idle().await });
        Ok(Dialled {
            sender: Connection {
                sender,
                _lease: lease,
            },
            resumed: Some(resumed),
        })
    }

    /// Waits until the CONNECTION_CLOSE frames are sent, so that the server doesn't keep the connections.
    async fn leave(&self) {
        let sockets = self.free.take();
        let all_idle = async {
            for socket in &sockets {
                socket.endpoint.wait_idle().await;
            }
        };
        // Peers that don't respond are not awaited further: CONNECTION_CLOSE was sent long before the
        // timeout.
        let _ = timeout(LEAVE, all_idle).await;
    }
}

impl Http3 {
    /// Returns a socket with the local address `source`, or with any address of the family of `address`.
    fn socket(&self, address: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let wanted = source.unwrap_or(any);
        let fits = |socket: &Socket| matches!(socket.endpoint.local_addr(), Ok(local) if local.ip() == wanted);
        let mut free = self.free.borrow_mut();
        if let Some(at) = free.iter().position(fits) {
            return Ok(free.swap_remove(at));
        }
        let observer = Arc::<CertificateObserver>::default();
        let endpoint = Endpoint::new(
            EndpointConfig::default(),
            None,
            UdpSocket::bind((wanted, 0))?,
            Arc::clone(&observer) as Arc<dyn Runtime>,
        )?;
        Ok(Socket { endpoint, observer })
    }
}

impl Ask for Connection {
    async fn ask(
        mut self,
        request: Request<()>,
        expected: Option<&[u8]>,
    ) -> Result<ResponseSummary, RequestError> {
        let has_content = request.method() != Method::HEAD;
        let mut stream = match self.sender.send_request(request).await {
            Ok(stream) => stream,
            Err(error) => return Err(unsent(error)),
        };
        stream.finish().await.map_err(request_error)?;
        let (status, fields) = head(&mut stream).await.map_err(request_error)?;
        let (length, differs) = read(&mut stream, expected)
            .await
            .map_err(|error| request_error(error).in_content())?;
        if has_content && status != StatusCode::NOT_MODIFIED {
            check_length(&fields, length)?;
        }
        Ok(ResponseSummary {
            status: status.as_u16(),
            length,
            differs,
        })
    }
}

/// Runtime of one socket that observes whether the server presented a certificate, with at most one handshake in
/// progress at a time.
///
/// `quinn` doesn't report whether a handshake was full or resumed. Only in a full handshake the server presents a
/// certificate, and the task of the connection processes the certificate.
#[derive(Debug, Default)]
struct CertificateObserver {
    saw_certificate: Arc<AtomicBool>,
}

impl CertificateObserver {
    /// Resets the observation at the beginning of a handshake.
    fn begin(&self) {
        self.saw_certificate.store(false, Ordering::Relaxed);
    }

    /// Returns true if the server presented a certificate since [`CertificateObserver::begin`].
    fn saw_certificate(&self) -> bool {
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

type Stream = RequestStream<Counted<h3_quinn::BidiStream<Bytes>>, Bytes>;

/// Reads the header section of the final response, skipping interim responses.
async fn head(stream: &mut Stream) -> Result<(StatusCode, HeaderMap), StreamError> {
    loop {
        let (head, ()) = stream.recv_response().await?.into_parts();
        if !head.status.is_informational() {
            return Ok((head.status, head.headers));
        }
    }
}

/// Reads the content to the end. Returns the length, and whether the content differs from `expected`.
async fn read(stream: &mut Stream, expected: Option<&[u8]>) -> Result<(u64, bool), StreamError> {
    let (mut length, mut differs) = (0, false);
    while let Some(mut piece) = stream.recv_data().await? {
        while piece.has_remaining() {
            let bytes = piece.chunk();
            let end = length + bytes.len();
            differs |= expected.is_some_and(|expected| expected.get(length..end) != Some(bytes));
            piece.advance(end - length);
            length = end;
        }
    }
    // Trailers belong to the response too.
    stream.recv_trailers().await?;
    Ok((length as u64, differs))
}

/// Checks that the content has the length announced in Content-Length (RFC 9114 §4.1.2).
fn check_length(fields: &HeaderMap, length: u64) -> Result<(), RequestError> {
    let Some(announced) = fields.get(header::CONTENT_LENGTH) else {
        return Ok(());
    };
    let same = announced
        .to_str()
        .is_ok_and(|text| text.parse() == Ok(length));
    if same {
        return Ok(());
    }
    let what = format!("Content-Length {announced:?} before {length} bytes of content");
    Err(RequestError::Request(Failure::new(
        Failures::PROTOCOL,
        what,
    )))
}

fn failed(error: impl ToString) -> Failure {
    Failure::new(Failures::CONNECT, error)
}

/// Classifies an error before the request was sent. A connection closed without error or timed out in the
/// meantime has not processed the request.
fn unsent(error: StreamError) -> RequestError {
    match &error {
        StreamError::ConnectionError {
            0: ConnectionError::Timeout { .. },
            ..
        } => RequestError::Untouched,
        error if error.is_h3_no_error() => RequestError::Untouched,
        _ => request_error(error),
    }
}

/// Classifies an error by its effect on the request and the connection (RFC 9114 §4.1.1 and §8).
fn request_error(error: StreamError) -> RequestError {
    match &error {
        StreamError::RemoteClosing { .. } => RequestError::Untouched,
        StreamError::RemoteTerminate { code, .. } if *code == Code::H3_REQUEST_REJECTED => {
            RequestError::Untouched
        }
        StreamError::RemoteTerminate { .. } => {
            RequestError::Request(Failure::new(Failures::CLOSED, error))
        }
        StreamError::StreamError { .. } | StreamError::HeaderTooBig { .. } => {
            RequestError::Request(Failure::new(Failures::PROTOCOL, error))
        }
        StreamError::ConnectionError {
            0: ConnectionError::Local { .. },
            ..
        } => RequestError::Connection(Failure::new(Failures::PROTOCOL, error)),
        _ => RequestError::Connection(Failure::new(Failures::CLOSED, error)),
    }
}

/// Flow-control window, as large as in HTTP/2, so that the window never blocks the server.
const WINDOW_BYTES: VarInt = VarInt::from_u32((1 << 30) - 1);

/// Time limit for closing all connections.
const LEAVE: Duration = Duration::from_millis(100);
