//! TLS 1.3 records that no client library sends, sealed by the test with the client's keys, right after the
//! handshake and after requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion};

use crate::support::trust::client_config_of;
use crate::support::{Server, lossy, server_table, site_table};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HELLO: &str = "<p>hello</p>\n";
const PATIENCE: Duration = Duration::from_secs(20);
/// A whole KeyUpdate that does not ask for a KeyUpdate in return (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

const UNEXPECTED_MESSAGE: [u8; 2] = [2, 10];
const BAD_RECORD_MAC: [u8; 2] = [2, 20];
const RECORD_OVERFLOW: [u8; 2] = [2, 22];
const DECODE_ERROR: [u8; 2] = [2, 50];

fn server() -> Server {
    Server::start(&(server_table("") + &site_table("")))
}

/// Completes the handshake on the client's side; the server may still wait for the last flight.
fn complete_handshake(server: &Server) -> (ClientConnection, TcpStream) {
    let mut config = client_config_of(&rustls::version::TLS13);
    config.enable_secret_extraction = true;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(config.into(), name).expect("a client");
    let mut socket = TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).expect("a handshake");
    }
    (tls, socket)
}

/// A client that seals and opens single records.
struct RecordClient {
    socket: TcpStream,
    seal: Box<dyn MessageEncrypter>,
    sealed: u64,
    open: Box<dyn MessageDecrypter>,
    opened: u64,
}

impl RecordClient {
    /// Connects, completes the handshake and makes `exchanges` requests.
    fn after(server: &Server, exchanges: usize) -> RecordClient {
        let (mut tls, socket) = complete_handshake(server);
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).expect("into a Vec");
        }
        let suite = tls.negotiated_cipher_suite().expect("a suite");
        let suite = default_provider()
            .cipher_suites
            .into_iter()
            .find(|known| known.suite() == suite.suite())
            .and_then(|known| known.tls13())
            .expect("a suite of TLS 1.3");
        let secrets = tls.dangerous_extract_secrets().expect("keys");
        let parts = |keys| match keys {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
            | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
            _ => panic!("keys of an unknown suite"),
        };
        let ((sealed, tx), (opened, rx)) = (secrets.tx, secrets.rx);
        let ((tx, tx_iv), (rx, rx_iv)) = (parts(tx), parts(rx));
        let mut forger = RecordClient {
            socket,
            seal: suite.aead_alg.encrypter(tx, tx_iv),
            sealed,
            open: suite.aead_alg.decrypter(rx, rx_iv),
            opened,
        };
        forger.send(&flight);
        for _ in 0..exchanges {
            let request = forger.record(ContentType::ApplicationData, REQUEST);
            forger.send(&request);
            forger.read_response();
        }
        forger
    }

    /// Seals one record.
    fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let plain = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(payload),
        };
        let sealed = self.seal.encrypt(plain, self.sealed).expect("sealed");
        self.sealed += 1;
        sealed.encode()
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    /// Reads the server's next record. Returns None at the end of the connection.
    fn next(&mut self) -> Option<(ContentType, Vec<u8>)> {
        let mut header = [0; 5];
        if self.socket.read(&mut header[..1]).expect("read in time") == 0 {
            return None;
        }
        self.socket.read_exact(&mut header[1..]).expect("a header");
        assert_eq!(header[0], 23, "nothing is sent in plain");
        let len = u16::from_be_bytes([header[3], header[4]]);
        let mut payload = vec![0; usize::from(len)];
        self.socket.read_exact(&mut payload).expect("a record");
        let version = ProtocolVersion::TLSv1_2;
        let sealed = InboundOpaqueMessage::new(ContentType::ApplicationData, version, &mut payload);
        let plain = self.open.decrypt(sealed, self.opened).expect("opened");
        self.opened += 1;
        Some((plain.typ, plain.payload.to_vec()))
    }

    /// Reads a whole response and skips session tickets before the response.
    fn read_response(&mut self) {
        let mut answer = Vec::new();
        while !answer.ends_with(HELLO.as_bytes()) {
            match self.next().expect("a response") {
                (ContentType::ApplicationData, data) => answer.extend(data),
                (ContentType::Handshake, message) => assert_eq!(message[0], 4, "a ticket"),
                (typ, content) => panic!("{typ:?}: {content:?}"),
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", lossy(&answer));
    }

    /// Reads to the end of the connection and returns all records except session tickets.
    fn rest(mut self) -> Vec<(ContentType, Vec<u8>)> {
        let mut rest = Vec::new();
        while let Some((typ, content)) = self.next() {
            if typ != ContentType::Handshake {
                rest.push((typ, content));
            }
        }
        rest
    }

    fn expect_alert(self, alert: [u8; 2], case: &str) {
        let expected = vec![(ContentType::Alert, alert.to_vec())];
        assert_eq!(self.rest(), expected, "{case}");
    }
}

/// A message may be cut at any byte, and the server must keep every fragment (RFC 8446 §5.1). The server
/// must reject a record under the old key after the KeyUpdate; the alert proves that the server has
/// processed the KeyUpdate.
#[test]
fn a_key_update_arrives_in_two_records() {
    let server = server();
    for exchanges in [0, 1, 2] {
        for at in 1..KEY_UPDATE.len() {
            for is_waited_for in [false, true] {
                let mut client = RecordClient::after(&server, exchanges);
                let (one, other) = KEY_UPDATE.split_at(at);
                // The response shows that the server has read the fragment behind the request. Without
                // a response in between, both fragments may arrive in one read.
                if is_waited_for {
                    let mut first = client.record(ContentType::ApplicationData, REQUEST);
                    first.extend(client.record(ContentType::Handshake, one));
                    client.send(&first);
                    client.read_response();
                } else {
                    let first = client.record(ContentType::Handshake, one);
                    client.send(&first);
                }
                let mut second = client.record(ContentType::Handshake, other);
                second.extend(client.record(ContentType::ApplicationData, b"the old key"));
                client.send(&second);
                client.expect_alert(BAD_RECORD_MAC, &format!("{exchanges}, cut at {at}"));
            }
        }
    }
}

#[test]
fn data_between_two_fragments_is_refused() {
    let server = server();
    for exchanges in [0, 1, 2] {
        for at in 1..KEY_UPDATE.len() {
            let mut client = RecordClient::after(&server, exchanges);
            let mut records = client.record(ContentType::ApplicationData, REQUEST);
            records.extend(client.record(ContentType::Handshake, &KEY_UPDATE[..at]));
            client.send(&records);
            client.read_response();
            let request = client.record(ContentType::ApplicationData, REQUEST);
            client.send(&request);
            client.expect_alert(UNEXPECTED_MESSAGE, &format!("{exchanges}, cut at {at}"));
        }
    }
}

#[test]
fn malformed_records_get_their_alerts() {
    let server = server();
    let cases: [(&str, ContentType, &[u8], [u8; 2]); 7] = [
        (
            "an empty KeyUpdate",
            ContentType::Handshake,
            &[24, 0, 0, 0],
            DECODE_ERROR,
        ),
        (
            "a KeyUpdate of 2 bytes",
            ContentType::Handshake,
            &[24, 0, 0, 2, 0, 0],
            DECODE_ERROR,
        ),
        ("half an alert", ContentType::Alert, &[1], DECODE_ERROR),
        (
            "an empty alert",
            ContentType::Alert,
            &[],
            UNEXPECTED_MESSAGE,
        ),
        (
            "a Certificate",
            ContentType::Handshake,
            &[11, 0, 0, 4, 0, 0, 0, 0],
            UNEXPECTED_MESSAGE,
        ),
        (
            "a sealed change_cipher_spec",
            ContentType::ChangeCipherSpec,
            &[1],
            UNEXPECTED_MESSAGE,
        ),
        // The record has content, a type byte and zeros as padding (RFC 8446 §5.4): 2^14 + 2 bytes.
        // `record` adds the last byte.
        (
            "too much padding",
            ContentType::Unknown(0),
            &[&[b'x', 23][..], &[0; (1 << 14) - 1]].concat(),
            RECORD_OVERFLOW,
        ),
    ];
    for exchanges in [0, 1, 2] {
        for (name, typ, content, alert) in cases {
            let mut client = RecordClient::after(&server, exchanges);
            let record = client.record(typ, content);
            client.send(&record);
            client.expect_alert(alert, &format!("{exchanges}: {name}"));
        }
    }
}

/// The server closes the connection without an alert of its own, at any level of the client's alert
/// (RFC 8446 §6.2).
#[test]
fn an_error_alert_gets_no_answer() {
    let server = server();
    for exchanges in [0, 1, 2] {
        for alert in [[2, 40], [1, 50], [2, 255]] {
            let mut client = RecordClient::after(&server, exchanges);
            let record = client.record(ContentType::Alert, &alert);
            client.send(&record);
            assert_eq!(client.rest(), [], "{exchanges}: {alert:?}");
        }
        let mut client = RecordClient::after(&server, exchanges);
        let record = client.record(ContentType::Alert, &[1, 0]);
        client.send(&record);
        client.expect_alert([1, 0], "close_notify is answered by close_notify");
    }
}

/// Sends all pending records, and reads until a session ticket arrives.
fn wait_for_tickets(tls: &mut ClientConnection, socket: &mut TcpStream) {
    while tls.wants_write() {
        tls.write_tls(socket).expect("sent");
    }
    while tls.tls13_tickets_received() == 0 {
        let read = tls.read_tls(socket).expect("tickets in time");
        assert!(read > 0, "the connection is open");
        tls.process_new_packets().expect("tickets");
    }
}

/// The client's kernel holds a request back until the client's Finished is acknowledged (Nagle's
/// algorithm), so the server must not delay its tickets until the request.
#[test]
fn tickets_come_before_the_first_request() {
    let server = server();
    let (mut tls, mut socket) = complete_handshake(&server);
    wait_for_tickets(&mut tls, &mut socket);
}

#[test]
fn tickets_come_before_the_rest_of_the_first_request() {
    let server = server();
    let (mut tls, mut socket) = complete_handshake(&server);
    tls.writer().write_all(&REQUEST[..10]).expect("sealed");
    wait_for_tickets(&mut tls, &mut socket);
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(&REQUEST[10..]).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(HELLO.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a response");
        answer.extend(byte);
    }
}
