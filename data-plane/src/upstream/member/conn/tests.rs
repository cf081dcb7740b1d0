//! Tests of connections over TLS on the loopback address, with rustls as the member.

use super::*;
use crate::tls::{TlsClient, TlsClientSettings};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;
use std::thread;
use tokio::io::unix::AsyncFd;

type Stream = StreamOwned<ServerConnection, TcpStream>;
type Step = Box<dyn FnOnce(&mut Stream) + Send>;

/// Member that completes the handshake and then performs steps of the test.
struct Member {
    steps: Sender<Step>,
    done: Receiver<()>,
}

impl Member {
    /// Performs a step and waits for its end.
    fn act(&self, step: impl FnOnce(&mut Stream) + Send + 'static) {
        self.begin(step);
        self.done.recv().unwrap();
    }

    /// Begins a step.
    fn begin(&self, step: impl FnOnce(&mut Stream) + Send + 'static) {
        self.steps.send(Box::new(step)).unwrap();
    }
}

/// Runs a test with a connection after the handshake and one request and response.
fn with_connection<F>(
    version: &'static rustls::SupportedProtocolVersion,
    test: impl FnOnce(MemberConn, Member) -> F,
) where
    F: Future<Output = ()>,
{
    let own = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, own.cert.pem()).unwrap();
    let settings = TlsClientSettings {
        authorities: Some(ca),
        ..TlsClientSettings::default()
    };
    let client = TlsClient::load(&settings, []).unwrap();
    let endpoint = client.endpoint("a.test").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = BackendAddress::Tcp(listener.local_addr().unwrap());
    let (steps, to_do) = channel::<Step>();
    let (did, done) = channel();
    let member = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        for step in to_do {
            step(&mut stream);
            let _ = did.send(());
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let member = Member { steps, done };
        member.begin(|stream| {
            stream.read_exact(&mut [0; 7]).unwrap();
            stream.write_all(b"response").unwrap();
            stream.flush().unwrap();
        });
        let (mut conn, is_connected) =
            MemberConn::begin(&address, None, Some(&endpoint), Vec::new()).unwrap();
        assert!(!is_connected);
        poll_fn(|cx| conn.poll_connected(cx)).await.unwrap();
        assert_eq!(
            poll_fn(|cx| conn.poll_write(cx, b"request")).await.unwrap(),
            7
        );
        poll_fn(|cx| conn.poll_flush(cx)).await.unwrap();
        assert_eq!(read(&mut conn, 8).await, b"response");
        member.done.recv().unwrap();
        assert!(conn.is_quiet());
        test(conn, member).await;
    });
    member.join().unwrap();
}

/// Reads `len` bytes.
async fn read(conn: &mut MemberConn, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 20_000];
    while all.len() < len {
        let read = poll_fn(|cx| conn.poll_read(cx, &mut buffer)).await.unwrap();
        assert!(read > 0, "the end after {} bytes", all.len());
        all.extend_from_slice(&buffer[..read]);
    }
    all
}

/// Waits until the runtime knows that bytes, or the end, have arrived.
async fn arrival(conn: &MemberConn) {
    let fd: &AsyncFd<_> = conn.socket.fd();
    fd.readable().await.unwrap().retain_ready();
}

const VERSIONS: [&rustls::SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];

#[test]
fn unsent_bytes_are_bounded_while_the_member_reads_nothing() {
    for version in VERSIONS {
        with_connection(version, |mut conn, member| async move {
            let body = vec![b'x'; 100_000];
            let mut written = 0;
            let mut noop = Context::from_waker(Waker::noop());
            while let Poll::Ready(sealed) = conn.poll_write(&mut noop, &body) {
                let sealed = sealed.unwrap();
                assert!(sealed > 0 && sealed <= 32 * 1024);
                written += sealed;
            }
            assert!(conn.has_unsent());
            let waiting = conn.tls.as_mut().unwrap().unsent_bytes();
            assert!(waiting <= 32 * 1024, "{waiting}");
            assert!(conn.poll_flush(&mut noop).is_pending());
            member.begin(move |stream| {
                let mut all = vec![0; written];
                stream.read_exact(&mut all).unwrap();
                assert!(all.iter().all(|byte| *byte == b'x'));
            });
            poll_fn(|cx| conn.poll_flush(cx)).await.unwrap();
            assert!(!conn.has_unsent());
            member.done.recv().unwrap();
        });
    }
}

#[test]
fn long_responses_arrive_whole_in_small_and_large_buffers() {
    for version in VERSIONS {
        with_connection(version, |mut conn, member| async move {
            let body: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
            for size in [100, 16_000, 40_000] {
                let sent = body.clone();
                member.begin(move |stream| {
                    stream.write_all(&sent).unwrap();
                    stream.flush().unwrap();
                });
                let mut all = Vec::new();
                let mut buffer = vec![0; size];
                while all.len() < body.len() {
                    let read = poll_fn(|cx| conn.poll_read(cx, &mut buffer)).await.unwrap();
                    all.extend_from_slice(&buffer[..read]);
                }
                assert!(all == body);
                member.done.recv().unwrap();
                assert!(conn.is_quiet());
            }
        });
    }
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    for version in VERSIONS {
        for has_goodbye in [true, false] {
            with_connection(version, |mut conn, member| async move {
                member.act(move |stream| {
                    if has_goodbye {
                        stream.conn.send_close_notify();
                        stream.flush().unwrap();
                    }
                    stream.sock.shutdown(std::net::Shutdown::Both).unwrap();
                });
                let end = poll_fn(|cx| conn.poll_read(cx, &mut [0; 20_000])).await;
                if has_goodbye {
                    assert_eq!(end.unwrap(), 0)
                } else {
                    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof)
                }
            });
        }
    }
}

#[test]
fn an_idle_connection_processes_new_keys() {
    with_connection(&rustls::version::TLS13, |mut conn, member| async move {
        for turn in 0..3 {
            member.act(|stream| {
                stream.conn.refresh_traffic_keys().unwrap();
                stream.flush().unwrap();
            });
            arrival(&conn).await;
            assert!(conn.is_quiet(), "turn {turn}");
            assert!(!conn.has_unsent(), "the answer is sent");
        }
        member.begin(|stream| {
            stream.read_exact(&mut [0; 7]).unwrap();
            stream.write_all(b"response").unwrap();
        });
        poll_fn(|cx| conn.poll_write(cx, b"request")).await.unwrap();
        assert_eq!(read(&mut conn, 8).await, b"response");
        member.done.recv().unwrap();
    });
}

#[test]
fn an_idle_connection_with_data_or_an_end_is_not_quiet() {
    type Act = fn(&mut Stream);
    let acts: [(&str, Act); 3] = [
        ("data", |stream| stream.write_all(b"data").unwrap()),
        ("close_notify", |stream| {
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }),
        ("the end", |stream| {
            stream.sock.shutdown(std::net::Shutdown::Both).unwrap();
        }),
    ];
    for version in VERSIONS {
        for (name, act) in acts {
            with_connection(version, |mut conn, member| async move {
                member.act(act);
                arrival(&conn).await;
                assert!(!conn.is_quiet(), "{name}");
                assert!(!conn.is_quiet(), "{name}, asked again");
                assert_eq!(conn.has_unasked_bytes(), name == "data", "{name}");
            });
        }
    }
}

#[test]
fn a_dropped_connection_says_goodbye() {
    for version in VERSIONS {
        with_connection(version, |conn, member| async move {
            drop(conn);
            member.act(|stream| {
                // Without close_notify, rustls reports an unexpected end.
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            });
        });
    }
}
