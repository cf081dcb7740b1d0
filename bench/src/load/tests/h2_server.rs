//! An HTTP/2 server on loopback with responses chosen by a test.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::{Connection, SendResponse};
use http::Response;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsAcceptor;

/// A server that runs until dropped.
pub(super) struct H2Server {
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    _stop: oneshot::Sender<()>,
}

/// Reply to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    /// Status and content, in DATA frames of the given number of bytes.
    Send(u16, &'static [u8], usize),
    /// Status 200 and content, after a stall of all connections for the given time.
    Stall(Duration, &'static [u8]),
    /// RST_STREAM.
    Reset(Reason),
    /// Status 200 and content, followed by GOAWAY.
    Last(&'static [u8]),
    /// The connection is dropped.
    Hang,
    /// No response.
    Never,
}

impl H2Server {
    pub(super) fn start(
        tls: Option<ServerConfig>,
        answer: impl Fn(usize) -> Reply + 'static + Send,
    ) -> H2Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a local address");
        listener.set_nonblocking(true).expect("non-blocking");
        let (requests, connections) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (stop, stopped) = oneshot::channel();
        let (pending, reached) = (Arc::clone(&requests), Arc::clone(&connections));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            LocalSet::new().block_on(&runtime, async move {
                let accepting = async {
                    let listener = TcpListener::from_std(listener).expect("a listener");
                    let answer: std::rc::Rc<dyn Fn() -> Reply> =
                        std::rc::Rc::new(move || answer(pending.fetch_add(1, Ordering::SeqCst)));
                    let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
                    loop {
                        let (socket, _) = listener.accept().await.expect("a connection");
                        reached.fetch_add(1, Ordering::SeqCst);
                        let (answer, tls) = (std::rc::Rc::clone(&answer), tls.clone());
                        spawn_local(async move {
                            match tls {
                                None => serve(socket, &*answer).await,
                                Some(tls) => {
                                    if let Ok(stream) = tls.accept(socket).await {
                                        serve(stream, &*answer).await;
                                    }
                                }
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
        H2Server {
            address,
            requests,
            connections,
            _stop: stop,
        }
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, answer: &dyn Fn() -> Reply) {
    let Ok(mut connection): Result<Connection<_, Bytes>, _> = h2::server::handshake(stream).await
    else {
        return;
    };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        match answer() {
            Reply::Send(status, body, piece) => send(&mut respond, status, body, piece),
            Reply::Stall(span, body) => {
                // Blocks the whole thread, and with the thread all connections.
                thread::sleep(span);
                send(&mut respond, 200, body, usize::MAX);
            }
            Reply::Reset(reason) => respond.send_reset(reason),
            Reply::Last(body) => {
                send(&mut respond, 200, body, usize::MAX);
                connection.graceful_shutdown();
            }
            Reply::Hang => return,
            Reply::Never => {
                spawn_local(async move {
                    let _kept = respond;
                    pending::<()>().await;
                });
            }
        }
    }
}

fn send(respond: &mut SendResponse<Bytes>, status: u16, body: &'static [u8], piece: usize) {
    let mut response = Response::new(());
    *response.status_mut() = status.try_into().expect("a status");
    let Ok(mut stream) = respond.send_response(response, false) else {
        return;
    };
    for piece in body.chunks(piece.min(body.len()).max(1)) {
        let _ = stream.send_data(Bytes::from_static(piece), false);
    }
    let _ = stream.send_data(Bytes::new(), true);
}
