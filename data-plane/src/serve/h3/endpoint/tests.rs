//! Takeovers of a UDP socket between processes, played by several servers in one process, with clients of quinn.

use super::{endpoint_config, open};
use crate::serve::h3::QuicForward;
use crate::serve::h3::connection_id::for_retry;
use crate::serve::h3::context::QuicWorkers;
use crate::serve::h3::forwarded::ForwardedKind;
use crate::serve::h3::forwards::pair;
use crate::serve::h3::socket::QuicSocket;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TokioRuntime, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Network of one UDP socket of servers, and the certificate of the servers.
struct Network {
    socket: UdpSocket,
    server: ServerConfig,
    client: ClientConfig,
}

impl Network {
    fn new() -> Network {
        let own = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls13: &[_] = &[&rustls::version::TLS13];
        let server = rustls::ServerConfig::builder_with_provider(provider.clone());
        let server = server.with_protocol_versions(tls13).unwrap();
        let server = server.with_no_client_auth();
        let server = server.with_single_cert(vec![own.cert.der().clone()], key);
        let server = QuicServerConfig::try_from(server.unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider);
        let client = client.with_protocol_versions(tls13).unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let client = QuicClientConfig::try_from(client).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let tokens = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, b"").extract(b"");
        Network {
            socket,
            server: ServerConfig::new(Arc::new(server), Arc::new(tokens)),
            client: ClientConfig::new(Arc::new(client)),
        }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Starts a process that reads the socket.
    async fn process(&self, predecessor: Option<&Process>) -> Process {
        let quic = match predecessor {
            Some(predecessor) => QuicWorkers::succeeding(predecessor.quic.hand_over().unwrap()),
            None => QuicWorkers::default(),
        };
        self.start(quic).await
    }

    async fn start(&self, quic: QuicWorkers) -> Process {
        let socket = open(&quic, self.socket.try_clone().unwrap()).await.unwrap();
        let config = endpoint_config(quic.generation);
        let runtime = Arc::new(TokioRuntime);
        let server = Some(self.server.clone());
        let endpoint =
            Endpoint::new_with_abstract_socket(config, server, socket.clone(), runtime).unwrap();
        Process {
            quic,
            endpoint,
            socket,
        }
    }

    /// Begins a connection of a new client.
    fn connect(&self) -> (Endpoint, quinn::Connecting) {
        let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let connecting = endpoint.connect_with(self.client.clone(), self.address(), "a.test");
        let connecting = connecting.unwrap();
        (endpoint, connecting)
    }

    /// Connects a new client, which the process accepts.
    async fn client_of(&self, process: &Process) -> Client {
        let (endpoint, connecting) = self.connect();
        let (connection, server) = tokio::join!(connecting, process.accept());
        Client {
            endpoint,
            connection: connection.unwrap(),
            server,
        }
    }
}

/// A server of one generation.
struct Process {
    quic: QuicWorkers,
    endpoint: Endpoint,
    socket: Arc<QuicSocket>,
}

impl Process {
    async fn accept(&self) -> Connection {
        let incoming = in_time(self.endpoint.accept()).await.unwrap();
        in_time(incoming.accept().unwrap()).await.unwrap()
    }

    /// Stops accepting connections, as a process with a successor that serves.
    fn leave(&self) {
        self.endpoint.set_server_config(None);
        self.quic.leave_sockets();
    }

    /// Ends the process, and waits until the kernel has closed its sockets.
    async fn end(self) {
        let Process {
            quic,
            endpoint,
            socket,
        } = self;
        endpoint.close(VarInt::from_u32(0), b"the process ends");
        in_time(endpoint.wait_idle()).await;
        drop((quic, endpoint));
        in_time(async {
            while Arc::strong_count(&socket) > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A connection, with both ends.
struct Client {
    endpoint: Endpoint,
    connection: Connection,
    server: Connection,
}

impl Client {
    /// Passes 100 KB in both directions.
    async fn works(&self) {
        let data = vec![b'x'; 100_000];
        let served = async {
            let (mut send, mut receive) = self.server.accept_bi().await.unwrap();
            let request = receive.read_to_end(data.len()).await.unwrap();
            send.write_all(&request).await.unwrap();
            send.finish().unwrap();
        };
        let asked = async {
            let (mut send, mut receive) = self.connection.open_bi().await.unwrap();
            send.write_all(&data).await.unwrap();
            send.finish().unwrap();
            assert_eq!(receive.read_to_end(data.len()).await.unwrap(), data);
        };
        in_time(async { tokio::join!(served, asked) }).await;
    }
}

/// Waits for an event that takes milliseconds.
async fn in_time<F: Future>(event: F) -> F::Output {
    let event = timeout(Duration::from_secs(30), event).await;
    event.expect("the event within 30 s")
}

/// Generations of handed forwards, in ascending order.
fn generations(process: &Process) -> Vec<u8> {
    let handed = process.quic.hand_over().unwrap();
    let mut generations: Vec<_> = handed.iter().map(|it| it.generation).collect();
    generations.sort_unstable();
    generations
}

#[tokio::test]
async fn connections_stay_with_their_processes_over_three_takeovers() {
    let network = Network::new();
    let mut processes = vec![network.process(None).await];
    let mut clients = vec![network.client_of(&processes[0]).await];
    for _ in 0..3 {
        let next = network.process(processes.last()).await;
        processes.last().unwrap().leave();
        clients.push(network.client_of(&next).await);
        processes.push(next);
        for client in &clients {
            client.works().await;
        }
    }
    let mut own: Vec<_> = processes.iter().map(|it| it.quic.generation).collect();
    own.sort_unstable();
    assert_eq!(generations(&processes[3]), own);
    own.dedup();
    assert_eq!(own.len(), 4);
}

#[tokio::test]
async fn a_client_of_a_predecessor_changes_its_port() {
    let network = Network::new();
    let first = network.process(None).await;
    let client = network.client_of(&first).await;
    let _second = network.process(Some(&first)).await;
    first.leave();
    client.works().await;
    for _ in 0..3 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        client.endpoint.rebind(socket).unwrap();
        client.works().await;
        assert_eq!(client.server.remote_address().port(), port);
    }
}

#[tokio::test]
async fn a_handshake_under_way_is_finished_by_the_predecessor() {
    let network = Network::new();
    let first = network.process(None).await;
    let (endpoint, connecting) = network.connect();
    let incoming = in_time(first.endpoint.accept()).await.unwrap();
    let _second = network.process(Some(&first)).await;
    first.leave();
    let server = incoming.accept().unwrap();
    let (connection, server) = in_time(async { tokio::join!(connecting, server) }).await;
    let client = Client {
        endpoint,
        connection: connection.unwrap(),
        server: server.unwrap(),
    };
    client.works().await;
}

/// The client sends the token of the predecessor to the successor.
#[tokio::test]
async fn a_retry_of_the_predecessor_leads_to_the_successor() {
    let network = Network::new();
    let first = network.process(None).await;
    let (endpoint, connecting) = network.connect();
    let incoming = in_time(first.endpoint.accept()).await.unwrap();
    let second = network.process(Some(&first)).await;
    first.leave();
    for_retry(|| incoming.retry()).unwrap();
    let server = async {
        let incoming = in_time(second.endpoint.accept()).await.unwrap();
        assert!(incoming.remote_address_validated());
        incoming.accept().unwrap().await
    };
    let (connection, server) = in_time(async { tokio::join!(connecting, server) }).await;
    let client = Client {
        endpoint,
        connection: connection.unwrap(),
        server: server.unwrap(),
    };
    client.works().await;
}

#[tokio::test]
async fn a_process_reads_again_after_its_successor_has_ended() {
    let network = Network::new();
    let first = network.process(None).await;
    let old = network.client_of(&first).await;
    // The second successor gets sockets, and ends before it reads.
    for reads in [true, false, true] {
        let handed = first.quic.hand_over().unwrap();
        let successor = QuicWorkers::succeeding(handed);
        if reads {
            let second = network.start(successor).await;
            old.works().await;
            let new = network.client_of(&second).await;
            new.works().await;
            drop(new);
            second.end().await;
        }
        old.works().await;
        network.client_of(&first).await.works().await;
    }
}

#[tokio::test]
async fn a_process_that_has_left_learns_that_nobody_reads_its_packets() {
    let network = Network::new();
    let first = network.process(None).await;
    let old = network.client_of(&first).await;
    let second = network.process(Some(&first)).await;
    first.leave();
    old.works().await;
    second.end().await;
    in_time(first.socket.abandoned()).await;
}

/// Until a successor sends its first message, no other process reads the socket.
#[tokio::test]
async fn a_process_that_has_left_reads_on_if_its_successor_speaks_no_quic() {
    let network = Network::new();
    let first = network.process(None).await;
    let old = network.client_of(&first).await;
    let successor = QuicWorkers::succeeding(first.quic.hand_over().unwrap());
    first.leave();
    old.works().await;
    drop(successor);
    old.works().await;
}

#[tokio::test]
async fn an_ended_predecessor_is_forgotten() {
    let network = Network::new();
    let first = network.process(None).await;
    let old = network.client_of(&first).await;
    let second = network.process(Some(&first)).await;
    first.leave();
    let gone = first.quic.generation;
    assert_eq!(generations(&second).len(), 2);
    drop(old.server);
    first.end().await;
    assert_eq!(generations(&second), [second.quic.generation]);
    assert_ne!(second.quic.generation, gone);
    let new = network.client_of(&second).await;
    new.works().await;
    in_time(old.connection.closed()).await;
}

/// A client writes the generation of a predecessor that is behind into its packets.
#[tokio::test]
async fn forged_packets_for_a_slow_predecessor_are_dropped() {
    const PACKETS: usize = 20_000;
    let network = Network::new();
    let generation = 7;
    let (socket, slow) = pair().unwrap();
    // The predecessor has given up reading, and takes no packet.
    (&slow).write_all(&ForwardedKind::Done.message()).unwrap();
    let forward = QuicForward {
        address: network.address(),
        generation,
        socket: socket.into(),
    };
    let process = network.start(QuicWorkers::succeeding(vec![forward])).await;
    assert_ne!(process.quic.generation, generation);
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    forger.connect(network.address()).unwrap();
    for at in 0..PACKETS {
        let mut packet = [generation; 1_200];
        packet[0] = if at % 2 == 0 { 0x40 } else { 0xc0 };
        if at % 2 == 1 {
            packet[5] = 7;
        }
        forger.send(&packet).unwrap();
        if at % 32 == 0 {
            tokio::task::yield_now().await;
        }
    }
    network.client_of(&process).await.works().await;
    let dropped = process.quic.datagrams_dropped() as usize;
    let mut begin = [0; 100];
    assert_eq!((&slow).read(&mut begin).unwrap(), 1);
    let mut kept = 0;
    let mut message = [0; 2_000];
    while let Ok(length) = (&slow).read(&mut message) {
        assert_eq!(length, 42 + 1_200);
        kept += 1;
    }
    assert!((32..PACKETS / 2).contains(&kept), "{kept} packets kept");
    // The kernel drops some at the UDP socket.
    assert!((1..=PACKETS - kept).contains(&dropped), "{dropped} dropped");
}

/// Packets of 1 byte to 1,472 bytes of all forms, with the generations of living and of dead processes.
#[tokio::test]
async fn nonsense_disturbs_neither_process() {
    let network = Network::new();
    let first = network.process(None).await;
    let old = network.client_of(&first).await;
    let second = network.process(Some(&first)).await;
    first.leave();
    let new = network.client_of(&second).await;
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    forger.connect(network.address()).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let own = [first.quic.generation, second.quic.generation];
    for round in 0..3_000 {
        let length = 1 + usize::from(random()) * 6 % 1_472;
        let mut packet: Vec<u8> = (0..length).map(|_| random()).collect();
        let generation = own[round % 2];
        if let Some(byte) = packet.get_mut(1) {
            *byte = generation;
        }
        if round % 3 == 0 && length > 12 {
            packet[0] |= 0xc0;
            packet[1..6].copy_from_slice(&[0, 0, 0, 1, 7]);
            packet[6] = generation;
        }
        forger.send(&packet).unwrap();
        if round % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    old.works().await;
    new.works().await;
}
