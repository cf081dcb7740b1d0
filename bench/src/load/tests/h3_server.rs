//! An HTTP/3 server on loopback with responses chosen by a test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::server::{Connection, RequestStream};
use http::{HeaderMap, Response};
use quinn::Endpoint;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::ServerConfig;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

/// A server that runs until dropped.
pub(super) struct H3Server {
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    _stop: oneshot::Sender<()>,
}

/// Reply to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    /// Status and content, in DATA frames of the given number of bytes.
    Send(u16, &'static [u8], usize),
    /// Status 200 and content, after a stall of all connections for the given time.
    Stall(Duration, &'static [u8]),
    /// An interim response, the content, and trailers.
    Full(&'static [u8]),
    /// The given Content-Length, and the given content.
    Announce(u64, &'static [u8]),
    /// The stream is reset.
    Reset(Code),
    /// Status 200 and content, after GOAWAY.
    Last(&'static [u8]),
    /// The connection is closed with the given error.
    Close(Code),
    /// No response.
    Never,
}

type Answer = std::rc::Rc<dyn Fn() -> Reply>;

impl H3Server {
    pub(super) fn start(
        mut tls: ServerConfig,
        answer: impl Fn(usize) -> Reply + 'static + Send,
    ) -> H3Server {
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let (requests, connections, closed) = (
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicUsize>::default(),
        );
        let (stop, stopped) = oneshot::channel();
        let (pending, reached, left) = (
            Arc::clone(&requests),
            Arc::clone(&connections),
            Arc::clone(&closed),
        );
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            LocalSet::new().block_on(&runtime, async move {
                let crypto = QuicServerConfig::try_from(tls).expect("TLS for QUIC");
                let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
                let endpoint = Endpoint::server(config, "127.0.0.1:0".parse().expect("loopback"))
                    .expect("a port");
                let address = endpoint.local_addr().expect("a local address");
                tell.send(address).expect("the test");
                let answer: Answer =
                    std::rc::Rc::new(move || answer(pending.fetch_add(1, Ordering::SeqCst)));
                let accepting = async {
                    while let Some(incoming) = endpoint.accept().await {
                        let (answer, reached) = (std::rc::Rc::clone(&answer), Arc::clone(&reached));
                        let left = Arc::clone(&left);
                        spawn_local(async move {
                            if let Ok(connection) = incoming.await {
                                reached.fetch_add(1, Ordering::SeqCst);
                                serve(connection, answer).await;
                                left.fetch_add(1, Ordering::SeqCst);
                            }
                        });
                    }
                };
                tokio::select! {
                    () = accepting => {}
                    _ = stopped => {}
                }
            });
        });
        H3Server {
            address: told.recv().expect("an address"),
            requests,
            connections,
            closed,
            _stop: stop,
        }
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of ended connections.
    pub(super) fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }
}

async fn serve(quic: quinn::Connection, answer: Answer) {
    let handle = quic.clone();
    let mut connection: Connection<_, Bytes> =
        match h3::server::Connection::new(h3_quinn::Connection::new(quic)).await {
            Ok(connection) => connection,
            Err(_) => return,
        };
    while let Ok(Some(resolver)) = connection.accept().await {
        let reply = answer();
        if let Reply::Stall(span, _) = reply {
            // Blocks the whole thread, and with the thread all connections.
            thread::sleep(span);
        }
        if let Reply::Last(_) = reply {
            connection.shutdown(0).await.expect("a goodbye");
        }
        let handle = handle.clone();
        spawn_local(async move {
            if let Ok((_, stream)) = resolver.resolve_request().await {
                // Fails if the client has closed the connection before the end of the response.
                let _ = respond(stream, reply, &handle).await;
            }
        });
    }
}

type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

async fn respond(
    mut stream: Stream,
    reply: Reply,
    connection: &quinn::Connection,
) -> Result<(), h3::error::StreamError> {
    match reply {
        Reply::Send(status, body, piece) => {
            stream.send_response(head(status)).await?;
            for piece in body.chunks(piece) {
                stream.send_data(Bytes::from_static(piece)).await?;
            }
        }
        Reply::Stall(_, body) | Reply::Last(body) => {
            stream.send_response(head(200)).await?;
            stream.send_data(Bytes::from_static(body)).await?;
        }
        Reply::Full(body) => {
            stream.send_response(head(103)).await?;
            stream.send_response(head(200)).await?;
            stream.send_data(Bytes::from_static(body)).await?;
            let trailers = HeaderMap::from_iter([(
                http::HeaderName::from_static("x-end"),
                http::HeaderValue::from_static("yes"),
            )]);
            return stream.send_trailers(trailers).await;
        }
        Reply::Announce(length, body) => {
            let mut head = head(200);
            head.headers_mut()
                .insert(http::header::CONTENT_LENGTH, length.into());
            stream.send_response(head).await?;
            stream.send_data(Bytes::from_static(body)).await?;
        }
        Reply::Reset(code) => {
            stream.stop_stream(code);
            return Ok(());
        }
        Reply::Close(code) => {
            let code = u32::try_from(code.value()).expect("a small code");
            connection.close(code.into(), b"enough");
            return Ok(());
        }
        Reply::Never => std::future::pending().await,
    }
    stream.finish().await
}

fn head(status: u16) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status.try_into().expect("a status");
    response
}
