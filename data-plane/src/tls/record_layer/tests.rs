use crate::tls::record_layer::*;
use crate::tls::traffic_secrets::TrafficSecretLog;
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite as suite};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedCipherSuite};
use std::io::{Read, Write};
use std::sync::Arc;

/// Client of rustls and the server's record layer.
struct Ends {
    client: ClientConnection,
    records: RecordLayer,
}

/// Bytes of a record with close_notify and without padding.
pub(super) const GOODBYE_BYTES: usize = HEADER_BYTES + 2 + 1 + TAG_BYTES;

pub(super) const SUITES: [SupportedCipherSuite; 3] = [
    suite::TLS13_AES_128_GCM_SHA256,
    suite::TLS13_AES_256_GCM_SHA384,
    suite::TLS13_CHACHA20_POLY1305_SHA256,
];

impl Ends {
    fn new(suite: SupportedCipherSuite) -> Ends {
        let provider = Arc::new(rustls::crypto::CryptoProvider {
            cipher_suites: vec![suite],
            ..provider::default_provider()
        });
        let own = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(TrafficSecretLog);
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let wanting = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("a.test").unwrap();
        let mut client = ClientConnection::new(Arc::new(wanting), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut secrets = None;
        while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
            let mut said = Vec::new();
            client.write_tls(&mut said).unwrap();
            server.read_tls(&mut &said[..]).unwrap();
            server.process_new_packets().unwrap();
            secrets = TrafficSecrets::take_for_thread().or(secrets);
            said.clear();
            while server.is_handshaking() && server.wants_write() {
                server.write_tls(&mut said).unwrap();
            }
            client.read_tls(&mut &said[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        let mut tickets = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut tickets).unwrap();
        }
        let records = RecordLayer::new(server, &secrets.unwrap(), tickets).unwrap();
        let mut ends = Ends { client, records };
        assert_eq!(ends.heard().unwrap(), b"");
        assert!(ends.client.tls13_tickets_received() > 0);
        ends
    }

    /// Returns the client's records for `plain`.
    fn said(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        self.client.writer().write_all(plain).unwrap();
        while self.client.wants_write() {
            self.client.write_tls(&mut said).unwrap();
        }
        said
    }

    /// Passes all sealed bytes to the client and returns the plaintext.
    fn heard(&mut self) -> Result<Vec<u8>, rustls::Error> {
        let unsent = self.records.unsent().to_vec();
        self.records.note_sent(unsent.len());
        let mut rest = &unsent[..];
        let mut heard = Vec::new();
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            self.client.process_new_packets()?;
            let mut piece = Vec::new();
            // The read ends without an error only after close_notify, and would otherwise block.
            let _ = self.client.reader().read_to_end(&mut piece);
            heard.extend(piece);
        }
        Ok(heard)
    }

    /// Returns a record sealed with the client's key.
    fn forged(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        forged(&mut self.records.reading, kind, content)
    }
}

/// Seals a record under the key and the sequence number expected next by `reading`. Opening the record
/// increments the number.
pub(super) fn forged(reading: &mut DirectionKeys, kind: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() + 1 + TAG_BYTES) as u16;
    let mut record = vec![content::APPLICATION_DATA, 3, 3];
    record.extend(len.to_be_bytes());
    let header = record.clone();
    let mut inner = [content, &[kind]].concat();
    let (nonce, key) = reading.use_key();
    let tag = key.seal(nonce, &header, &mut inner).unwrap();
    reading.sequence -= 1;
    record.extend(inner);
    record.extend(tag);
    record
}

pub(super) fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn both_directions_in_every_suite() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        for len in [1, 100, CONTENT_BYTES_MAX, CONTENT_BYTES_MAX + 1, 50_000] {
            let plain = text(len);
            let mut said = ends.said(&plain);
            let opened = ends.records.open(&mut said).unwrap();
            assert_eq!((opened.plain, opened.used), (len, said.len()));
            assert!(said[..len] == plain);
            let (one, other) = plain.split_at(len / 3);
            let slices = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(other)];
            assert_eq!(ends.records.seal(&slices), len);
            assert!(ends.heard().unwrap() == plain);
            assert!(ends.records.unsent().is_empty());
        }
    }
}

#[test]
fn only_whole_records_are_opened() {
    let mut ends = Ends::new(SUITES[0]);
    let mut said = ends.said(b"one");
    said.extend(ends.said(b"another"));
    for split in 0..=said.len() {
        let mut ends_here = said[..split].to_vec();
        // The records are opened a second time with a reset sequence number.
        ends.records.reading.sequence = 0;
        let opened = ends.records.open(&mut ends_here).unwrap();
        let mut rest = ends_here[opened.used..].to_vec();
        let mut plain = ends_here[..opened.plain].to_vec();
        rest.extend(&said[split..]);
        let opened = ends.records.open(&mut rest).unwrap();
        assert_eq!(opened.used, rest.len());
        plain.extend(&rest[..opened.plain]);
        assert_eq!(plain, b"oneanother", "split at {split}");
    }
}

#[test]
fn keys_are_renewed_on_request_of_the_peer() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        for turn in 0..5 {
            // rustls requests an update in return.
            ends.client.refresh_traffic_keys().unwrap();
            let mut said = ends.said(b"under the next key");
            let opened = ends.records.open(&mut said).unwrap();
            assert_eq!(&said[..opened.plain], b"under the next key", "turn {turn}");
            ends.records.seal(&[IoSlice::new(b"so is this")]);
            assert_eq!(ends.heard().unwrap(), b"so is this");
        }
    }
}

#[test]
fn a_key_update_in_fragments_is_processed() {
    let mut ends = Ends::new(SUITES[0]);
    let mut pieces = Vec::new();
    for piece in [&KEY_UPDATE[..2], &KEY_UPDATE[2..], &[0]] {
        pieces.extend(ends.forged(content::HANDSHAKE, piece));
        ends.records.reading.sequence += 1;
    }
    ends.records.reading.sequence = 0;
    let before = ends.records.reading.secret.clone();
    let opened = ends.records.open(&mut pieces).unwrap();
    assert_eq!((opened.plain, opened.used), (0, pieces.len()));
    assert!(before != ends.records.reading.secret);
    assert_eq!(ends.records.reading.sequence, 0);
    // Application data may not appear between the fragments of a message (§5.1).
    let mut pieces = ends.forged(content::HANDSHAKE, &KEY_UPDATE);
    ends.records.open(&mut pieces).unwrap();
    let mut data = ends.forged(content::APPLICATION_DATA, b"data");
    assert_eq!(ends.records.open(&mut data), Err(RecordError::UNEXPECTED));
}

#[test]
fn a_key_at_its_limit_is_changed() {
    let mut ends = Ends::new(SUITES[0]);
    ends.records.seal(&[IoSlice::new(b"first")]);
    assert_eq!(ends.heard().unwrap(), b"first");
    let before = ends.records.writing.secret.clone();
    ends.records.writing.sequence = RECORDS_OF_A_KEY;
    ends.records.seal(&[IoSlice::new(b"more")]);
    assert!(before != ends.records.writing.secret);
    assert_eq!(ends.records.writing.sequence, 1);
}

#[test]
fn close_notify_ends_both_directions() {
    let mut ends = Ends::new(SUITES[0]);
    let mut said = ends.said(b"last words");
    ends.client.send_close_notify();
    said.extend(ends.said(b""));
    let goodbye = said.len() - GOODBYE_BYTES;
    let opened = ends.records.open(&mut said).unwrap();
    assert_eq!(&said[..opened.plain], b"last words");
    assert_eq!(said[goodbye], content::APPLICATION_DATA);
    assert!(ends.records.ended());
    // Bytes after close_notify are not examined.
    let opened = ends.records.open(&mut [1, 2, 3]).unwrap();
    assert_eq!(opened, OpenedRecords { plain: 0, used: 0 });
    ends.records.seal_goodbye();
    assert_eq!(ends.records.unsent().len(), GOODBYE_BYTES);
    ends.heard().unwrap();
    assert_eq!(ends.client.reader().read(&mut [0]).unwrap(), 0);
}

/// Opens `record`, which must be refused, and returns the server's error and the client's error.
fn refused(ends: &mut Ends, mut record: Vec<u8>) -> (RecordError, rustls::Error) {
    let broken = ends.records.open(&mut record).unwrap_err();
    assert!(ends.records.ended());
    let heard = ends.heard().unwrap_err();
    (broken, heard)
}

#[test]
fn faulty_records_are_refused_with_an_alert() {
    use rustls::AlertDescription as Alert;
    type Make = fn(&mut Ends) -> Vec<u8>;
    let cases: [(&str, RecordError, Alert, Make); 25] = [
        (
            "a changed byte",
            RecordError::BAD_MAC,
            Alert::BadRecordMac,
            |ends| {
                let mut said = ends.said(b"data");
                said[7] ^= 1;
                said
            },
        ),
        (
            "a changed length",
            RecordError::BAD_MAC,
            Alert::BadRecordMac,
            |ends| {
                let mut said = ends.said(b"data");
                said[4] -= 1;
                said
            },
        ),
        (
            "a record again",
            RecordError::BAD_MAC,
            Alert::BadRecordMac,
            |ends| {
                let said = ends.said(b"data");
                [&said[..], &said].concat()
            },
        ),
        (
            "no room for a tag",
            RecordError::BAD_MAC,
            Alert::BadRecordMac,
            |_| vec![23, 3, 3, 0, 3, 1, 2, 3],
        ),
        (
            "too long",
            RecordError::OVERFLOW,
            Alert::RecordOverflow,
            |_| vec![23, 3, 3, 0x41, 1],
        ),
        (
            "too much in it",
            RecordError::OVERFLOW,
            Alert::RecordOverflow,
            |ends| ends.forged(content::APPLICATION_DATA, &text(CONTENT_BYTES_MAX + 1)),
        ),
        (
            "a plain alert",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |_| vec![21, 3, 3, 0, 2, 1, 0],
        ),
        (
            "change_cipher_spec",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |_| vec![20, 3, 3, 0, 1, 1],
        ),
        (
            "plain HTTP",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |_| b"GET / HTTP/1.1".to_vec(),
        ),
        (
            "nothing but padding",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(0, &[0; 20]),
        ),
        (
            "another message",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(content::HANDSHAKE, &[1, 0, 0, 1, 0]),
        ),
        (
            "more after KeyUpdate",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(content::HANDSHAKE, &[24, 0, 0, 1, 0, 24]),
        ),
        (
            "KeyUpdate of 2",
            RecordError::ILLEGAL,
            Alert::IllegalParameter,
            |ends| ends.forged(content::HANDSHAKE, &[24, 0, 0, 1, 2]),
        ),
        (
            "half an alert",
            RecordError::MALFORMED,
            Alert::DecodeError,
            |ends| ends.forged(content::ALERT, &[1]),
        ),
        (
            "two alerts in a record",
            RecordError::MALFORMED,
            Alert::DecodeError,
            |ends| ends.forged(content::ALERT, &[1, 90, 1, 0]),
        ),
        (
            "an alert without content",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(content::ALERT, &[]),
        ),
        (
            "a handshake message without content",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(content::HANDSHAKE, &[]),
        ),
        (
            "KeyUpdate of 0 bytes",
            RecordError::MALFORMED,
            Alert::DecodeError,
            |ends| ends.forged(content::HANDSHAKE, &[24, 0, 0, 0]),
        ),
        (
            "KeyUpdate of 2 bytes",
            RecordError::MALFORMED,
            Alert::DecodeError,
            |ends| ends.forged(content::HANDSHAKE, &[24, 0, 0, 2, 0, 0]),
        ),
        (
            "KeyUpdate of 16 MB",
            RecordError::MALFORMED,
            Alert::DecodeError,
            |ends| ends.forged(content::HANDSHAKE, &[24, 255, 255, 255]),
        ),
        (
            "two KeyUpdates in a record",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(content::HANDSHAKE, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]),
        ),
        (
            "a Certificate that was not asked for",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(content::HANDSHAKE, &[11, 0, 0, 4, 0, 0, 0, 0]),
        ),
        (
            "a sealed change_cipher_spec",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(20, &[1]),
        ),
        (
            "an unknown type of content",
            RecordError::UNEXPECTED,
            Alert::UnexpectedMessage,
            |ends| ends.forged(24, &[1]),
        ),
        (
            "too much padding",
            RecordError::OVERFLOW,
            Alert::RecordOverflow,
            |ends| {
                ends.forged(
                    0,
                    &[
                        &[b'x', content::APPLICATION_DATA][..],
                        &[0; CONTENT_BYTES_MAX],
                    ]
                    .concat(),
                )
            },
        ),
    ];
    for (name, broken, alert, make) in cases {
        let mut ends = Ends::new(SUITES[0]);
        let record = make(&mut ends);
        let (found, heard) = refused(&mut ends, record);
        assert_eq!(found, broken, "{name}");
        assert_eq!(heard, rustls::Error::AlertReceived(alert), "{name}");
    }
}

#[test]
fn records_without_data_are_bounded() {
    for (kind, content) in [
        (content::APPLICATION_DATA, &[][..]),
        (content::ALERT, &[1, 90]),
        (content::HANDSHAKE, &[24, 0, 0, 1, 0]),
    ] {
        let mut ends = Ends::new(SUITES[0]);
        for _ in 0..IDLE_RECORDS_MAX {
            let mut record = ends.forged(kind, content);
            assert_eq!(ends.records.open(&mut record).unwrap().plain, 0);
        }
        let mut data = ends.forged(content::APPLICATION_DATA, b"data");
        assert_eq!(ends.records.open(&mut data).unwrap().plain, 4);
        for _ in 0..IDLE_RECORDS_MAX {
            let mut record = ends.forged(kind, content);
            ends.records.open(&mut record).unwrap();
        }
        let mut record = ends.forged(kind, content);
        assert_eq!(ends.records.open(&mut record), Err(RecordError::UNEXPECTED));
    }
}

#[test]
fn padding_is_removed() {
    let mut ends = Ends::new(SUITES[0]);
    let mut record = ends.forged(0, &[b"data".as_slice(), &[23, 0, 0, 0]].concat());
    let opened = ends.records.open(&mut record).unwrap();
    assert_eq!(&record[..opened.plain], b"data");
}

proptest::proptest! {
    /// Any bytes are opened or refused, and plaintext is never longer than the input.
    #[test]
    fn any_bytes_are_opened_or_refused(
        mut bytes: Vec<u8>,
        kinds in proptest::collection::vec((0..30_u8, 0..100_usize), 0..8),
    ) {
        let mut ends = Ends::new(SUITES[0]);
        let mut sent = Vec::new();
        let first = ends.records.reading.sequence;
        for (kind, len) in kinds {
            sent.extend(ends.forged(kind, &text(len)));
            ends.records.reading.sequence += 1;
        }
        ends.records.reading.sequence = first;
        sent.append(&mut bytes);
        if let Ok(opened) = ends.records.open(&mut sent) {
            proptest::prop_assert!(opened.plain <= opened.used && opened.used <= sent.len());
        }
    }
}

#[test]
fn keys_of_another_secret_are_not_renewed() {
    let mut ends = Ends::new(SUITES[0]);
    ends.records.writing.secret[0] ^= 1;
    let mut asked = ends.forged(content::HANDSHAKE, &[24, 0, 0, 1, 1]);
    assert_eq!(ends.records.open(&mut asked), Err(RecordError::INTERNAL));
    let mut ends = Ends::new(SUITES[0]);
    ends.records.writing.secret[0] ^= 1;
    ends.records.writing.sequence = RECORDS_OF_A_KEY;
    ends.records.seal(&[IoSlice::new(b"never sent")]);
    assert!(ends.records.ended());
    assert!(ends.records.unsent().is_empty());
}

/// A client may request KeyUpdates without end and without reading, with a byte of data in between.
#[test]
fn answers_to_key_updates_are_bounded_while_nothing_else_is_sent() {
    let overhead = HEADER_BYTES + 1 + TAG_BYTES;
    let answer = overhead + KEY_UPDATE.len() + 1;
    let most = usize::from(ANSWERS_MAX);
    for asked in [1, most - 1, most, most + 1, 10 * most] {
        let mut ends = Ends::new(SUITES[0]);
        for _ in 0..2 {
            for turn in 1..=asked {
                let mut update = ends.forged(content::HANDSHAKE, &[24, 0, 0, 1, 1]);
                ends.records.open(&mut update).unwrap();
                let mut data = ends.forged(content::APPLICATION_DATA, b"x");
                assert_eq!(ends.records.open(&mut data).unwrap().plain, 1);
                let sent = turn.min(most - 1) * answer;
                assert_eq!(ends.records.unsent().len(), sent, "turn {turn} of {asked}");
            }
            // The server sends the last KeyUpdate right before the next application data.
            ends.records.seal(&[IoSlice::new(b"data")]);
            let sent = asked.min(most) * answer + overhead + 4;
            assert_eq!(ends.records.unsent().len(), sent, "{asked}");
            assert_eq!(ends.heard().unwrap(), b"data");
        }
    }
}

/// The cases are a fatal alert, an error alert at the level "warning", and an unknown alert (RFC 8446
/// §6.2), each also between the fragments of a message.
#[test]
fn nothing_is_sent_after_the_peers_error_alert() {
    for alert in [[2, 40], [1, 10], [2, 255]] {
        for begun in [false, true] {
            let mut ends = Ends::new(SUITES[0]);
            ends.records.seal(&[IoSlice::new(b"not sent yet")]);
            if begun {
                let mut half = ends.forged(content::HANDSHAKE, &KEY_UPDATE[..2]);
                ends.records.open(&mut half).unwrap();
            }
            let mut record = ends.forged(content::ALERT, &alert);
            assert_eq!(ends.records.open(&mut record), Err(RecordError::ALERT));
            ends.records.seal_goodbye();
            assert!(ends.records.unsent().is_empty(), "{alert:?}");
            assert!(ends.records.ended());
        }
    }
}

#[test]
fn records_between_the_fragments_of_a_message_are_refused() {
    for len in 1..=KEY_UPDATE.len() {
        for (kind, content) in [
            (content::APPLICATION_DATA, &b"data"[..]),
            (content::APPLICATION_DATA, b""),
            (content::ALERT, &[1, 0]),
            (content::ALERT, &[1, 90]),
            (content::HANDSHAKE, b""),
            (24, b"x"),
        ] {
            let mut ends = Ends::new(SUITES[0]);
            let mut half = ends.forged(content::HANDSHAKE, &KEY_UPDATE[..len]);
            assert_eq!(ends.records.open(&mut half).unwrap().plain, 0);
            let mut record = ends.forged(kind, content);
            let opened = ends.records.open(&mut record);
            assert_eq!(
                opened,
                Err(RecordError::UNEXPECTED),
                "{len} bytes, then {kind}"
            );
        }
    }
}

#[test]
fn the_server_sends_no_record_after_its_alert() {
    let mut ends = Ends::new(SUITES[0]);
    let broken = ends.records.open(&mut [21, 3, 3, 0, 2, 1, 0]).unwrap_err();
    assert_eq!(broken, RecordError::UNEXPECTED);
    let said = ends.records.unsent().len();
    ends.records.seal_goodbye();
    assert_eq!(ends.records.unsent().len(), said);
}
