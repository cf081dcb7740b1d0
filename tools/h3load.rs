//! Asks a server in HTTP/3, for measuring: the same client for every server.
//!
//! `h3load ADDRESS PATH CONNECTIONS STREAMS REQUESTS` asks for the path REQUESTS times in all, over so
//! many connections with so many requests at a time on each, and says what came of it in one line of
//! JSON. `h3load ADDRESS PATH CONNECTIONS idle` asks once on each, says `ready` and keeps them open
//! until its standard input ends.

use anthill::wire::h3::qpack::{self, Strings};
use anthill::wire::h3::{Event, Receiver, frame};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, TransportConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use std::cell::Cell;
use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::{JoinSet, LocalSet};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, connections, how @ ..] = &arguments[..] else {
        return Err("h3load ADDRESS PATH CONNECTIONS STREAMS REQUESTS | idle".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let load = Load {
        address: address.parse()?,
        path: path.clone(),
        connections: connections.parse()?,
    };
    LocalSet::new().block_on(&runtime, async {
        match how {
            [idle] if idle == "idle" => load.idle().await,
            [streams, requests] => load.run(streams.parse()?, requests.parse()?).await,
            _ => Err("STREAMS REQUESTS, or idle".into()),
        }
    })
}

struct Load {
    address: SocketAddr,
    path: String,
    connections: usize,
}

impl Load {
    async fn connect(&self, endpoint: &Endpoint) -> Outcome<Connection> {
        let connection = endpoint.connect(self.address, "localhost")?.await?;
        let mut opening = Vec::new();
        frame::push_opening(16 * 1024, &mut opening);
        let mut control = connection.open_uni().await?;
        control.write_all(&opening).await?;
        // Its end would be the end of the connection.
        std::mem::forget(control);
        let theirs = connection.clone();
        tokio::spawn(async move {
            while let Ok(mut stream) = theirs.accept_uni().await {
                tokio::spawn(async move {
                    while let Ok(Some(_)) = stream.read_chunk(4096, true).await {}
                });
            }
        });
        Ok(connection)
    }

    async fn idle(&self) -> Outcome<()> {
        let endpoint = endpoint()?;
        let request = request(&self.path);
        let mut open = Vec::new();
        for _ in 0..self.connections {
            let connection = self.connect(&endpoint).await?;
            ask(&connection, &request).await?;
            open.push(connection);
        }
        println!("ready");
        let waited = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        waited.await??;
        Ok(())
    }

    async fn run(&self, streams: usize, requests: u64) -> Outcome<()> {
        let endpoint = endpoint()?;
        let request: Rc<[u8]> = request(&self.path).into();
        let mut open = Vec::new();
        for _ in 0..self.connections {
            open.push(self.connect(&endpoint).await?);
        }
        let left = Rc::new(Cell::new(requests));
        let bytes = Rc::new(Cell::new(0));
        let failed = Rc::new(Cell::new(0u64));
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for connection in &open {
            for _ in 0..streams {
                let (connection, request) = (connection.clone(), request.clone());
                let (left, bytes, failed) = (left.clone(), bytes.clone(), failed.clone());
                tasks.spawn_local(async move {
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        match ask(&connection, &request).await {
                            Ok(length) => bytes.set(bytes.get() + length),
                            Err(error) => {
                                failed.set(failed.get() + 1);
                                eprintln!("{error}");
                            }
                        }
                    }
                });
            }
        }
        while tasks.join_next().await.is_some() {}
        println!(
            "{{\"requests\": {requests}, \"failed\": {}, \"bytes\": {}, \"seconds\": {:.3}}}",
            failed.get(),
            bytes.get(),
            began.elapsed().as_secs_f64()
        );
        for connection in open {
            connection.close(0x100u32.into(), b"");
        }
        endpoint.wait_idle().await;
        Ok(())
    }
}

/// One request; the bytes of its answer, which must be 200.
async fn ask(connection: &Connection, request: &[u8]) -> Outcome<u64> {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(request).await?;
    send.finish()?;
    let mut receiver = Receiver::default();
    let mut bytes = 0;
    let mut is_ok = false;
    while let Some(chunk) = recv.read_chunk(64 * 1024, true).await? {
        let mut input = &chunk.bytes[..];
        loop {
            match receiver.receive(&mut input).map_err(|fatal| fatal.reason)? {
                Event::More => break,
                Event::Data(part) => bytes += part.len() as u64,
                Event::Trailers(_) => {}
                Event::Fields(section) => {
                    let decoded = qpack::decode(section, &mut Strings::default(), |name, value| {
                        is_ok |= name == b":status" && value == b"200";
                        Ok(())
                    });
                    decoded.map_err(|fatal| fatal.reason)?;
                }
            }
        }
    }
    match is_ok {
        true => Ok(bytes),
        false => Err("another status than 200".into()),
    }
}

/// HEADERS of a GET, as a browser would send it.
fn request(path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let at = frame::begin_headers(&mut out);
    out.extend_from_slice(&[0, 0]);
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
        ("user-agent", "h3load"),
        ("accept", "*/*"),
    ] {
        qpack::push_field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    frame::end_headers(&mut out, at);
    out
}

fn endpoint() -> Outcome<Endpoint> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(None);
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    let mut endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

/// Takes any certificate: the servers make their own.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
