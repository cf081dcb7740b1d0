//! Connections to a server as transcripts of server frames and events. The input arrives whole, in parts split at
//! every position, and byte by byte.

use super::*;
use crate::invariants::h2::cases;
use crate::invariants::h2_client::{frames, transcript};
use crate::limits::{PROXY_FIELDS_MAX, PROXY_HEAD_BYTES_MAX};
use proptest::prelude::*;

/// Flags of HEADERS with the end of the stream, and without.
const LAST: u8 = frame::END_HEADERS | frame::END_STREAM;
const MORE: u8 = frame::END_HEADERS;

/// Bytes sent by a server.
#[derive(Clone)]
struct ServerBytes(Vec<u8>);

impl ServerBytes {
    /// Returns SETTINGS with the given payload.
    fn hello(settings: &[u8]) -> ServerBytes {
        ServerBytes(Vec::new()).frame(frame::SETTINGS, 0, 0, settings)
    }

    fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> ServerBytes {
        frame::header(&mut self.0, payload.len(), kind, flags, stream);
        self.0.extend_from_slice(payload);
        self
    }

    /// Adds HEADERS with the fields.
    fn head(self, flags: u8, stream: u32, fields: &[(&str, &str)]) -> ServerBytes {
        self.frame(frame::HEADERS, flags, stream, &block(fields))
    }

    fn data(self, flags: u8, stream: u32, bytes: &[u8]) -> ServerBytes {
        self.frame(frame::DATA, flags, stream, bytes)
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // `push_field` would write the name in lower case.
        block.extend_from_slice(&[0, name.len() as u8]);
        block.extend_from_slice(name.as_bytes());
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

/// Returns the events, and checks that the events are independent of the split.
fn events(server: &ServerBytes) -> Vec<String> {
    let input = &server.0;
    let whole = transcript(input, input.len());
    assert_eq!(transcript(input, 1), whole, "byte by byte");
    for cut in 1..input.len().min(200) {
        assert_eq!(transcript(input, cut), whole, "in parts of {cut}");
    }
    whole.0
}

/// Returns the code that ends the connection.
fn code(server: &ServerBytes) -> Option<String> {
    let last = events(server).pop()?;
    let code = last.strip_prefix("H2ConnectionError { code: ")?;
    code.split(',').next().map(str::to_owned)
}

#[test]
fn responses_become_events() {
    let ok = (":status", "200");
    let long = block(&[ok, ("content-type", "a/b"), ("content-length", "3")]);
    let server = ServerBytes::hello(b"")
        .frame(frame::SETTINGS, frame::ACK, 0, b"")
        .head(MORE, 1, &[(":status", "103"), ("link", "</a>")])
        .head(MORE, 5, &[(":status", "100")])
        .head(MORE, 1, &[ok, ("content-length", "9")])
        .frame(frame::PING, 0, 0, b"12345678")
        .data(0, 1, b"hello")
        .head(LAST, 3, &[ok, ("content-length", "9000")])
        .data(frame::PADDED | frame::END_STREAM, 1, b"\x03body\0\0\0")
        .frame(frame::HEADERS, 0, 7, &long[..10])
        .frame(frame::CONTINUATION, 0, 7, &long[10..20])
        .frame(frame::CONTINUATION, MORE, 7, &long[20..])
        .data(0, 7, b"abc")
        .head(LAST, 7, &[("grpc-status", "0")])
        .head(MORE, 5, &[ok])
        .data(frame::END_STREAM, 5, b"early");
    let expected = [
        "1 103 None link: </a>\\r\\n",
        "5 100 None ",
        "1 200 Length(9) content-length: 9\\r\\n",
        "1 data hello",
        "3 200 None content-length: 9000\\r\\n",
        "3 ended",
        "1 data body",
        "1 ended",
        "7 200 Length(3) content-type: a/b\\r\\ncontent-length: 3\\r\\n",
        "7 data abc",
        "7 trailers grpc-status: 0\\r\\n",
        "5 200 Chunked ",
        "5 data early",
        "5 ended",
    ];
    assert_eq!(events(&server), expected);
}

#[test]
fn malformed_responses_reset_their_streams() {
    let ok = (":status", "200");
    let hello = || ServerBytes::hello(b"");
    let get = |fields: &[(&str, &str)]| hello().head(MORE, 1, fields);
    let table = [
        (get(&[]), 760),
        (get(&[("a", "b")]), 760),
        (get(&[ok, (":path", "/")]), 760),
        (get(&[(":status", "2000")]), 760),
        (hello().head(LAST, 1, &[(":status", "103")]), 760),
        (get(&[ok, ("A", "b")]), 731),
        (get(&[ok, ("connection", "close")]), 731),
        (get(&[(":status", "101")]), 737),
        (get(&[ok, ("content-length", "1x")]), 734),
        (hello().head(LAST, 1, &[ok, ("content-length", "1")]), 734),
        (
            get(&[ok, ("content-length", "4")]).data(0, 1, b"hello"),
            734,
        ),
        (
            get(&[ok, ("content-length", "6")]).data(1, 1, b"hello"),
            734,
        ),
        (get(&[(":status", "204")]).data(1, 1, b"hello"), 734),
        (hello().head(MORE, 3, &[ok]).data(1, 3, b"hello"), 734),
        (hello().data(0, 1, b"hello"), 761),
        (get(&[(":status", "103")]).data(0, 1, b"hello"), 761),
        (get(&[ok]).head(LAST, 1, &[ok]), 739),
        (get(&[ok]).head(LAST, 1, &[("A", "b")]), 739),
        (get(&[ok]).head(MORE, 1, &[("a", "b")]), 739),
        (
            get(&[ok, ("content-length", "1")]).head(LAST, 1, &[("a", "b")]),
            739,
        ),
        (get(&[ok]).frame(frame::WINDOW_UPDATE, 0, 1, &[0; 4]), 761),
    ];
    for (number, (server, rule)) in table.into_iter().enumerate() {
        // The other streams of the connection go on.
        let events = events(&server.head(LAST, 7, &[ok]));
        let failure = events
            .iter()
            .find(|it| it.starts_with("1 Malformed") || it.starts_with("3 Malformed"));
        let failure = failure.unwrap_or_else(|| panic!("case {number}: {events:?}"));
        assert!(
            failure.contains(&format!("rule: {rule}")),
            "case {number}: {failure}"
        );
        assert_eq!(
            events.last().map(String::as_str),
            Some("7 ended"),
            "case {number}"
        );
    }
}

#[test]
fn faults_of_the_connection_end_the_connection() {
    let ok = (":status", "200");
    let hello = || ServerBytes::hello(b"");
    let raw = |bytes: &[u8]| ServerBytes(bytes.to_vec());
    let closed = || hello().head(LAST, 1, &[ok]);
    let (protocol, size) = ("PROTOCOL_ERROR", "FRAME_SIZE_ERROR");
    let (flow, calm) = ("FLOW_CONTROL_ERROR", "ENHANCE_YOUR_CALM");
    let table = [
        (raw(b"HTTP/1.1 400 Bad Request\r\n"), size),
        (raw(b"").frame(frame::PING, 0, 0, &[0; 8]), protocol),
        (
            raw(b"").frame(frame::SETTINGS, frame::ACK, 0, b""),
            protocol,
        ),
        (ServerBytes::hello(b"\0\x02\0\0\0\x01"), protocol),
        (ServerBytes::hello(b"\0\x02\0\0"), size),
        (hello().frame(frame::SETTINGS, 0, 1, b""), protocol),
        (
            hello().frame(frame::PUSH_PROMISE, MORE, 1, b"\0\0\0\x02\x82"),
            protocol,
        ),
        (
            hello().frame(frame::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"),
            protocol,
        ),
        (hello().head(LAST, 0, &[ok]), protocol),
        (hello().head(LAST, 2, &[ok]), protocol),
        (hello().head(LAST, 9, &[ok]), protocol),
        (hello().data(0, 0, b"x"), protocol),
        (hello().data(0, 2, b"x"), protocol),
        (hello().data(0, 9, b"x"), protocol),
        (hello().frame(frame::RST_STREAM, 0, 9, &[0; 4]), protocol),
        (hello().frame(frame::RST_STREAM, 0, 1, &[0; 3]), size),
        (hello().frame(frame::WINDOW_UPDATE, 0, 9, &[0; 4]), protocol),
        (hello().frame(frame::WINDOW_UPDATE, 0, 0, &[0; 4]), protocol),
        (
            hello().frame(frame::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            flow,
        ),
        (hello().frame(frame::PING, 0, 0, &[0; 7]), size),
        (hello().frame(frame::GOAWAY, 0, 1, &[0; 8]), protocol),
        (hello().frame(frame::GOAWAY, 0, 0, &[0; 7]), size),
        (
            hello().frame(frame::CONTINUATION, MORE, 1, &block(&[ok])),
            protocol,
        ),
        (
            hello()
                .frame(frame::HEADERS, 0, 1, b"")
                .frame(frame::PING, 0, 0, &[0; 8]),
            protocol,
        ),
        (
            hello().frame(frame::HEADERS, MORE, 1, b"\xff\xff"),
            "COMPRESSION_ERROR",
        ),
        (closed().head(LAST, 1, &[ok]), "STREAM_CLOSED"),
        (closed().data(0, 1, b"x"), "STREAM_CLOSED"),
        (flood(hello(), frame::PING, 0, &[0; 8]), calm),
        (flood(hello(), frame::SETTINGS, 0, b""), calm),
        (flood(hello(), frame::SETTINGS, frame::ACK, b""), calm),
        (
            flood(hello(), frame::GOAWAY, 0, b"\x7f\xff\xff\xff\0\0\0\0"),
            calm,
        ),
        (flood(hello(), 0x77, 0, b"unknown"), calm),
        (
            flood_on_stream(hello().head(MORE, 1, &[ok]), frame::DATA, 0),
            calm,
        ),
        (flood_on_stream(closed(), frame::RST_STREAM, 4), calm),
        (flood_on_stream(hello(), frame::PRIORITY, 5), calm),
        (continuation_flood(), calm),
    ];
    for (number, (server, expected)) in table.into_iter().enumerate() {
        let ended = transcript(&server.0, server.0.len()).0.pop();
        let is_short = server.0.len() < 200;
        let code = if is_short {
            code(&server)
        } else {
            ended
                .clone()
                .filter(|it| it.contains(expected))
                .map(|_| expected.to_owned())
        };
        assert_eq!(code.as_deref(), Some(expected), "case {number}: {ended:?}");
    }
}

/// Adds 2,000 frames on stream 0.
fn flood(server: ServerBytes, kind: u8, flags: u8, payload: &[u8]) -> ServerBytes {
    (0..2_000).fold(server, |server, _| server.frame(kind, flags, 0, payload))
}

/// Adds 2,000 frames with `bytes` zero bytes on stream 1.
fn flood_on_stream(server: ServerBytes, kind: u8, bytes: usize) -> ServerBytes {
    let payload = vec![0; bytes];
    (0..2_000).fold(server, |server, _| server.frame(kind, 0, 1, &payload))
}

fn continuation_flood() -> ServerBytes {
    let server = ServerBytes::hello(b"").frame(frame::HEADERS, 0, 1, b"");
    (0..20).fold(server, |server, _| {
        server.frame(frame::CONTINUATION, 0, 1, b"")
    })
}

#[test]
fn interim_responses_are_bounded() {
    let mut server = ServerBytes::hello(b"");
    for _ in 0..=PROXY_INTERIM_RESPONSES_MAX {
        server = server.head(MORE, 1, &[(":status", "103")]);
    }
    let events = transcript(&server.0, server.0.len()).0;
    assert_eq!(events.len(), PROXY_INTERIM_RESPONSES_MAX as usize + 1);
    assert!(events[events.len() - 1].contains("rule: 736"), "{events:?}");
}

#[test]
fn interim_responses_on_many_streams_are_a_flood() {
    let mut client = Client::new(b"");
    for number in 0..100 {
        client.h2.open_stream(b"\x82", Method::Get, true, number);
    }
    let mut server = ServerBytes(Vec::new());
    for round in 0..3 {
        for id in (1..200).step_by(2) {
            server = server.head(MORE, id, &[(":status", "103")]);
        }
        let input = &mut &server.0[..];
        let (section, strings) = (&mut client.section, &mut client.strings);
        let mut error = None;
        while error.is_none() && !input.is_empty() {
            let event = client
                .h2
                .receive(input, section, strings, &client.limits, 0);
            error = event.err().map(|error| error.code);
        }
        let expected = (round == 2).then_some(H2ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(error, expected, "round {round}");
        server.0.clear();
    }
}

#[test]
fn goaway_names_the_streams_that_may_be_sent_again() {
    let ok = (":status", "200");
    let goaway = b"\0\0\0\x03\0\0\0\0";
    let server = ServerBytes::hello(b"")
        .frame(frame::RST_STREAM, 0, 7, b"\0\0\0\x07")
        .frame(frame::GOAWAY, 0, 0, goaway)
        .head(LAST, 5, &[ok])
        .head(LAST, 1, &[ok])
        .frame(frame::RST_STREAM, 0, 3, b"\0\0\0\x02");
    let expected = [
        "7 Refused",
        "5 unprocessed",
        "1 200 None ",
        "1 ended",
        "3 Reset(INTERNAL_ERROR)",
    ];
    assert_eq!(events(&server), expected);
    // The first of two GOAWAYs allows all streams.
    let server = ServerBytes::hello(b"")
        .frame(frame::GOAWAY, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0")
        .head(LAST, 7, &[ok])
        .frame(frame::GOAWAY, 0, 0, b"\0\0\0\x07\0\0\0\0");
    assert_eq!(events(&server), ["7 200 None ", "7 ended"]);
}

/// Connection with the values of a driver.
struct Client {
    h2: H2ClientConnection<u32>,
    section: FieldSection,
    strings: HpackScratch,
    limits: HeadLimits,
}

impl Client {
    fn new(settings: &[u8]) -> Client {
        let mut client = Client {
            h2: H2ClientConnection::connect(PROXY_HEAD_BYTES_MAX),
            section: FieldSection::default(),
            strings: HpackScratch::default(),
            limits: HeadLimits {
                head_bytes: PROXY_HEAD_BYTES_MAX,
                fields: PROXY_FIELDS_MAX,
                ..HeadLimits::default()
            },
        };
        client.receive(ServerBytes::hello(settings));
        client
    }

    /// Handles the bytes, and returns the text of the events.
    fn receive(&mut self, server: ServerBytes) -> Vec<String> {
        let mut input = &server.0[..];
        let mut events = Vec::new();
        loop {
            let (section, strings) = (&mut self.section, &mut self.strings);
            let event = self
                .h2
                .receive(&mut input, section, strings, &self.limits, 0);
            match event.expect("valid input") {
                H2ClientEvent::More => return events,
                H2ClientEvent::Handled => {}
                event => events.push(format!("{event:?}")),
            }
        }
    }

    fn post(&mut self, id: u32) {
        assert_eq!(self.h2.open_stream(b"\x83", Method::Post, false, id), id);
    }
}

#[test]
fn the_greeting_disables_push_and_sets_the_windows() {
    let client = Client::new(b"");
    let (preface, frames) = client.h2.out.split_at(PREFACE.len());
    assert_eq!(preface, PREFACE);
    let header: [u8; 9] = frames[..9].try_into().expect("a frame");
    let header = H2FrameHeader::parse(&header);
    assert_eq!((header.kind, header.length), (frame::SETTINGS, 24));
    assert_eq!(&frames[9..15], b"\0\x02\0\0\0\0");
    assert_eq!(&frames[15..21], b"\0\x04\0\0\x10\0");
    assert_eq!(frames[33..37], *b"\0\0\x04\x08");
}

#[test]
fn the_server_bounds_the_streams_and_the_bytes() {
    // Two streams, a window of 10 bytes.
    let mut client = Client::new(b"\0\x03\0\0\0\x02\0\x04\0\0\0\x0a");
    client.post(1);
    client.post(3);
    assert!(!client.h2.can_open());
    assert_eq!(
        (client.h2.data_room(1), client.h2.data_room(5)),
        (Some(10), None)
    );
    client.h2.send_data(1, b"0123456", false);
    assert_eq!(client.h2.data_room(1), Some(3));
    // The window shrinks by 8 bytes, below zero.
    client.receive(ServerBytes::hello(b"\0\x04\0\0\0\x02"));
    assert_eq!(client.h2.data_room(1), Some(0));
    let update =
        |more: u8| ServerBytes(Vec::new()).frame(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, more]);
    client.receive(update(5));
    assert_eq!(client.h2.data_room(1), Some(0));
    client.receive(update(4));
    assert_eq!(client.h2.data_room(1), Some(4));
    client.h2.send_data(1, b"789", true);
    // The response ends the stream, and another stream may begin.
    let server = ServerBytes(Vec::new()).head(LAST, 1, &[(":status", "200")]);
    assert_eq!(
        client.receive(server),
        ["Response { work: 1, ended: true }"]
    );
    assert_eq!(client.h2.data_room(1), None);
    assert!(client.h2.can_open());
    client.h2.send_trailers(3, b"");
    assert_eq!(client.h2.open(), 1);
    // The window of the connection counts all streams.
    let mut client = Client::new(b"\0\x04\x7f\xff\xff\xff");
    client.post(1);
    client.post(3);
    let frame = vec![0; 16_384];
    while let Some(room @ 1..) = client.h2.data_room(1) {
        client.h2.send_data(1, &frame[..room], false);
    }
    // 16 KiB are left to the other streams, and half of these to the second one.
    assert_eq!(client.h2.data_room(3), Some(8_192));
    client.h2.send_data(3, &frame[..8_192], true);
    assert!(!client.h2.has_room_for(UploadLength::Short));
    // A single upload uses the whole window.
    while let Some(room @ 1..) = client.h2.data_room(1) {
        client.h2.send_data(1, &frame[..room], false);
    }
    client.post(5);
    assert_eq!(client.h2.data_room(5), Some(0));
    let update = |more: &[u8]| ServerBytes(Vec::new()).frame(frame::WINDOW_UPDATE, 0, 0, more);
    client.receive(update(b"\0\0\0\x08"));
    assert_eq!(client.h2.data_room(5), Some(4));
    assert_eq!(client.h2.data_room(1), Some(0));
    client.receive(update(b"\0\0\x40\0"));
    assert!(client.h2.has_room_for(UploadLength::Short));
    assert_eq!(client.h2.data_room(1), Some(8));
}

#[test]
fn a_long_upload_has_half_of_the_window_to_itself() {
    use UploadLength::{Long, None, Short, Unknown};
    let all = [None, Short, Unknown, Long];
    let table = [
        (None, [true, true, true, true]),
        (Short, [true, true, true, true]),
        (Unknown, [true, true, true, false]),
        (Long, [true, true, false, false]),
    ];
    // 65,535 bytes for each stream and for the connection.
    for (upload, expected) in table {
        let mut client = Client::new(b"");
        client.receive(ServerBytes::hello(b""));
        client.h2.open_upload(b"\x83", Method::Post, upload, 1);
        assert_eq!(
            all.map(|more| client.h2.has_room_for(more)),
            expected,
            "{upload:?}"
        );
        client.h2.send_data(1, b"", true);
        assert!(client.h2.has_room_for(Long), "the upload has ended");
    }
    // 1 MiB for the connection, and 64 KiB for each stream.
    let mut client = Client::new(b"");
    client.receive(ServerBytes::hello(b"").frame(frame::WINDOW_UPDATE, 0, 0, b"\0\x0f\0\x01"));
    let mut uploads = 0;
    while client.h2.has_room_for(Long) {
        client.h2.open_upload(b"\x83", Method::Post, Long, 1);
        uploads += 1;
    }
    assert_eq!(uploads, 9);
}

#[test]
fn unread_content_is_bounded_by_the_window() {
    let mut client = Client::new(b"");
    client.post(1);
    client.post(3);
    client.h2.out.clear();
    let ok = [(":status", "200")];
    let head = ServerBytes(Vec::new())
        .head(MORE, 1, &ok)
        .head(MORE, 3, &ok);
    client.receive(head);
    let part = vec![b'x'; 1_024];
    let data = || ServerBytes(Vec::new()).data(0, 1, &part);
    for _ in 0..3 {
        let events = client.receive(data());
        assert!(events[0].starts_with("Data { work: 1"));
        client.h2.release_connection_capacity(part.len() as u32);
    }
    assert!(client.h2.out.is_empty());
    // The stream gets its window back once its content is taken, and more with memory.
    client.h2.release_stream_capacity(1, 1_024);
    client.h2.widen_stream_window(1, 6 * 1_024);
    client.h2.widen_stream_window(1, 1_024);
    client.h2.release_stream_capacity(1, 2 * 1_024);
    assert_eq!(client.h2.out, b"\0\0\x04\x08\0\0\0\0\x01\0\0\x0c\0");
    (0..4).for_each(|_| drop(client.receive(data())));
    let events = client.receive(data());
    assert!(
        events[0].starts_with("Failed { work: 1, failure: Malformed("),
        "{events:?}"
    );
    assert!(client.receive(data()).is_empty());
    assert_eq!(client.h2.open(), 1);
}

#[test]
fn frames_of_a_cancelled_stream_are_ignored() {
    let mut client = Client::new(b"");
    client.post(1);
    client.h2.open_stream(b"\x82", Method::Get, true, 3);
    client.h2.out.clear();
    client.h2.cancel(1);
    client.h2.cancel(3);
    client.h2.cancel(3);
    let both = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08";
    assert_eq!(client.h2.out, both);
    let late = ServerBytes(Vec::new())
        .head(MORE, 1, &[(":status", "200")])
        .data(0, 1, b"late")
        .head(LAST, 3, &[(":status", "200")])
        .frame(frame::RST_STREAM, 0, 3, &[0; 4])
        .frame(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9]);
    assert_eq!(client.receive(late), Vec::<String>::new());
    // The response is complete before the request: the rest of the request is not needed.
    client.post(5);
    client.receive(ServerBytes(Vec::new()).head(LAST, 5, &[(":status", "200")]));
    client.h2.out.clear();
    client.h2.cancel(5);
    assert_eq!(client.h2.out, b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\0");
    // Servers count such resets as well.
    assert_eq!(client.h2.resets(), 3);
    client.h2.shrink();
    assert!(client.h2.held_bytes() < 4_096);
}

#[test]
fn a_chatty_grpc_server_is_no_flood() {
    let mut client = Client::new(b"");
    client.post(1);
    for _ in 0..10_000 {
        client.h2.out.clear();
        client.h2.send_data(1, b"message", false);
        let answer = ServerBytes(Vec::new())
            .frame(frame::PING, 0, 0, &[0; 8])
            .frame(frame::WINDOW_UPDATE, 0, 0, b"\0\0\0\x07")
            .frame(frame::WINDOW_UPDATE, 0, 1, b"\0\0\0\x07");
        client.receive(answer);
    }
}

#[test]
fn identifiers_run_out_at_the_end() {
    let mut client = Client::new(b"");
    client.h2.last = STREAM_ID_MAX - 2;
    assert!(client.h2.can_open());
    client.post(STREAM_ID_MAX);
    assert!(!client.h2.can_open() && client.h2.is_going_away());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        frames(&bytes);
    }

    #[test]
    fn invariants_of_near_frames(
        server in proptest::collection::vec(
            (0u8..18, any::<u8>(), 0u32..12, prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..12),
                Just(block(&[(":status", "200")])),
                Just(block(&[(":status", "103")])),
                Just(block(&[(":status", "200"), ("content-length", "4")])),
                Just(block(&[("grpc-status", "0")])),
                Just(b"\0\0\0\x04".to_vec()),
                Just(b"\0\0\0\x05\0\0\0\0".to_vec()),
                Just(b"\0\x04\0\0\0\x04".to_vec()),
            ]), 0..24)
    ) {
        let hello = ServerBytes::hello(b"");
        let server = server.into_iter().fold(hello, |server, (kind, flags, stream, payload)| {
            server.frame(kind, flags, stream, &payload)
        });
        let whole = transcript(&server.0, server.0.len());
        prop_assert_eq!(&transcript(&server.0, 1), &whole);
        prop_assert_eq!(&transcript(&server.0, 11), &whole);
    }
}
