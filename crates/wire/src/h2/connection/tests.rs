//! Connections as transcripts of client frames, events and server frames. The input arrives whole, in two
//! parts split at every position, and byte by byte.

use super::super::hpack;
use super::*;
use crate::field_section::SectionKind;
use crate::h1::body_decoder::BodyLength;
use crate::h2::frame::PREFACE;
use crate::h2::stream::RemoteState;
use crate::invariants::h2::{cases, frames, transcript};
use crate::priority::Priority;
use proptest::prelude::*;

/// Bytes sent by a client.
#[derive(Clone)]
struct ClientBytes(Vec<u8>);

impl ClientBytes {
    /// Returns the preface and SETTINGS with the given payload.
    fn hello(settings: &[u8]) -> ClientBytes {
        ClientBytes(PREFACE.to_vec()).frame(frame::SETTINGS, 0, 0, settings)
    }

    fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> ClientBytes {
        frame::header(&mut self.0, payload.len(), kind, flags, stream);
        self.0.extend_from_slice(payload);
        self
    }

    fn get(self, id: u32) -> ClientBytes {
        self.frame(frame::HEADERS, 5, id, &block(&[]))
    }
}

/// Returns the field block of `GET /` with additional fields.
fn block(more: &[(&str, &str)]) -> Vec<u8> {
    fields(
        &[
            &[
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/"),
                (":authority", "a"),
            ],
            more,
        ]
        .concat(),
    )
}

fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
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

/// Returns a short form of the events, and checks that the events are independent of the split.
fn events(client: &ClientBytes) -> Vec<String> {
    let input = &client.0;
    let whole = transcript(input, input.len());
    assert_eq!(transcript(input, 1), whole, "byte by byte");
    for cut in 1..input.len().min(200) {
        assert_eq!(transcript(input, cut), whole, "in parts of {cut}");
    }
    let short = |event: String| match event.split_once(" RequestHead {") {
        Some((id, _)) => format!("{id} request {}", event.ends_with("true")),
        None => event,
    };
    whole.0.into_iter().map(short).collect()
}

/// Returns the code that ends the connection.
fn code(client: &ClientBytes) -> Option<String> {
    let last = events(client).pop()?;
    let code = last.strip_prefix("H2ConnectionError { code: ")?;
    code.split(',').next().map(str::to_owned)
}

#[test]
fn requests_and_bodies_become_events() {
    let mut post = block(&[("content-length", "9"), ("priority", "u=1")]);
    post[0..4].copy_from_slice(b"\0\x07:m");
    let client = ClientBytes::hello(b"")
        .frame(frame::SETTINGS, frame::ACK, 0, b"")
        .get(1)
        .frame(frame::PING, 0, 0, b"12345678")
        .frame(frame::HEADERS, 4, 3, &post)
        .frame(frame::DATA, 0, 3, b"hello")
        .frame(
            frame::DATA,
            frame::PADDED | frame::END_STREAM,
            3,
            b"\x03body\0\0\0",
        )
        .frame(frame::HEADERS, 0, 7, &post[..10])
        .frame(frame::CONTINUATION, 0, 7, &post[10..20])
        .frame(frame::CONTINUATION, frame::END_HEADERS, 7, &post[20..])
        .frame(frame::DATA, 0, 7, b"123456789")
        .frame(frame::HEADERS, 5, 7, &fields(&[("x-sum", "1")]))
        .frame(
            frame::HEADERS,
            5 | frame::PADDED | frame::WITH_PRIORITY,
            9,
            &{
                let mut padded = b"\x02\0\0\0\0\x10".to_vec();
                padded.extend_from_slice(&block(&[]));
                padded.extend_from_slice(b"\0\0");
                padded
            },
        )
        .frame(0x77, 0xff, 9, b"whatever");
    let expected = [
        "1 request true",
        "3 request false",
        "3 data hellobody",
        "3 ended",
        "7 request false",
        "7 data 123456789",
        "7 trailers x-sum: 1\\r\\n None",
        "7 ended",
        "9 request true",
    ];
    assert_eq!(events(&client), expected);
}

/// Trailers with a pseudo-header field or a field of the connection are malformed (RFC 9113 §8.1). Trailers
/// that are merely too long get a response.
#[test]
fn trailers_are_kept_dropped_or_refused() {
    let long = "x".repeat(100);
    let reset = ["1 request false", "1 reset"];
    let trailers = |text: &str| {
        ["1 request false", text, "1 ended"]
            .map(str::to_owned)
            .to_vec()
    };
    let table = [
        (vec![("a", "b")], trailers("1 trailers a: b\\r\\n None")),
        (
            vec![
                ("host", "b"),
                ("a", "b"),
                ("content-type", "c"),
                ("cookie", "d"),
            ],
            trailers("1 trailers a: b\\r\\n None"),
        ),
        (vec![(":path", "/")], reset.map(str::to_owned).to_vec()),
        (
            vec![("connection", "close")],
            reset.map(str::to_owned).to_vec(),
        ),
        (vec![("upgrade", "x")], reset.map(str::to_owned).to_vec()),
        (vec![("A", "b")], reset.map(str::to_owned).to_vec()),
        (vec![("x", "a\nb")], reset.map(str::to_owned).to_vec()),
    ];
    let post = fields(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "a"),
    ]);
    for (sent, expected) in table {
        let client = ClientBytes::hello(b"")
            .frame(frame::HEADERS, 4, 1, &post)
            .frame(frame::HEADERS, 5, 1, &fields(&sent));
        assert_eq!(events(&client), expected, "{sent:?}");
    }
    let client = ClientBytes::hello(b"")
        .frame(frame::HEADERS, 4, 1, &post)
        .frame(frame::HEADERS, 5, 1, &fields(&vec![("x", &long[..]); 40]));
    let events = events(&client);
    assert!(events[1].ends_with("Some(310)"), "{events:?}");
}

#[test]
fn a_field_section_becomes_a_request_head() {
    let mut request = FieldSection::default();
    let limits = HeadLimits::default();
    request.begin(Version::Http2, &limits, true, SectionKind::Request);
    for (name, value) in [
        (":method", "GET"),
        (":path", "/a%20b?q=1"),
        (":authority", "www.example.org:8443"),
        (":scheme", "https"),
        ("cookie", "a=1"),
        ("user-agent", "ant"),
        ("host", "www.example.org:8443"),
        ("cookie", "b=2"),
        ("te", "trailers"),
        ("priority", "u=5, i"),
        ("if-none-match", "\"x\""),
    ] {
        let taken = request.field(name.as_bytes(), value.as_bytes());
        assert_eq!(taken, Ok(()));
    }
    request.end();
    let head = request.head().expect("a head");
    assert_eq!(head.line, b"GET /a%20b?q=1 HTTP/2.0");
    assert_eq!(
        (head.host, &*head.path),
        (&b"www.example.org"[..], &b"/a b"[..])
    );
    assert_eq!(head.query, Some(&b"q=1"[..]));
    assert_eq!(head.known_fields.user_agent, Some(&b"ant"[..]));
    assert_eq!(head.body, BodyLength::None);
    assert!(head.keep_alive && head.accepts_trailers);
    assert!(!head.known_fields.if_none_match.is_none());
    let lines: Vec<_> = head.fields.iter().map(|(name, _)| name).collect();
    let expected: [&[u8]; 6] = [
        b"host",
        b"user-agent",
        b"te",
        b"priority",
        b"if-none-match",
        b"cookie",
    ];
    assert_eq!(lines, expected);
    assert_eq!(head.fields.first("cookie"), Some(&b"a=1; b=2"[..]));
    let priority = Priority {
        urgency: 5,
        incremental: true,
    };
    assert_eq!(request.priority(), Some(priority));
    // A clone of the section yields the same head.
    let kept = request.clone();
    request.begin(Version::Http2, &limits, true, SectionKind::Request);
    assert_eq!(
        kept.head().expect("a head").line,
        b"GET /a%20b?q=1 HTTP/2.0"
    );
}

/// An extended CONNECT has a path, a query and a host like other requests. Its line in the log has the
/// path.
#[test]
fn an_extended_connect_becomes_a_request_head() {
    let mut request = FieldSection::default();
    for (ended, body) in [(false, BodyLength::Chunked), (true, BodyLength::None)] {
        request.begin(
            Version::Http3,
            &HeadLimits::default(),
            ended,
            SectionKind::Request,
        );
        for (name, value) in [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/a/../chat?room=1"),
            (":authority", "www.example.org"),
            ("sec-websocket-version", "13"),
        ] {
            let taken = request.field(name.as_bytes(), value.as_bytes());
            assert_eq!(taken, Ok(()));
        }
        request.end();
        let head = request.head().expect("a head");
        assert_eq!(head.line, b"CONNECT /a/../chat?room=1 HTTP/3.0");
        assert_eq!(head.method, crate::request_head::Method::Connect);
        assert_eq!(
            (head.host, &*head.path),
            (&b"www.example.org"[..], &b"/chat"[..])
        );
        assert_eq!(head.query, Some(&b"room=1"[..]));
        assert_eq!(head.upgrade, Some(&b"websocket"[..]));
        assert_eq!(head.body, body);
    }
}

#[test]
fn malformed_heads_are_refused_by_rule() {
    let good = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "a"),
    ];
    let without = |name: &str| -> Vec<(&str, &str)> {
        good.into_iter().filter(|(it, _)| *it != name).collect()
    };
    let with = |more: &[(&'static str, &'static str)]| [&good[..], more].concat();
    let long = "x".repeat(200);
    let changed = |name: &'static str, value: &'static str| -> Vec<(&str, &str)> {
        let change = |(it, old)| (it, if it == name { value } else { old });
        good.into_iter().map(change).collect()
    };
    let connect =
        |more: &[(&'static str, &'static str)]| [&changed(":method", "CONNECT")[..], more].concat();
    let connect_without = |name: &str| {
        let mut fields = connect(&[(":protocol", "websocket")]);
        fields.retain(|(it, _)| *it != name);
        fields
    };
    let table = [
        (without(":method"), 215),
        (without(":scheme"), 215),
        (without(":path"), 215),
        (without(":authority"), 210),
        (with(&[(":path", "/")]), 215),
        (with(&[(":status", "200")]), 215),
        (with(&[("x", "y"), (":path", "/")]), 215),
        (with(&[("X", "y")]), 202),
        (with(&[("x y", "y")]), 202),
        (with(&[("", "y")]), 202),
        (with(&[("x", " y")]), 203),
        (with(&[("x", "y\0")]), 203),
        (with(&[("x", "a\r\nb")]), 203),
        (with(&[("connection", "close")]), 216),
        (with(&[("transfer-encoding", "chunked")]), 216),
        (with(&[("te", "gzip")]), 216),
        (with(&[("host", "b")]), 211),
        (with(&[("content-length", "5")]), 311),
        (with(&[("content-length", "x")]), 303),
        (with(&[("expect", "more")]), 214),
        (changed(":method", "get"), 103),
        (changed(":path", ""), 215),
        (changed(":path", "x"), 110),
        (changed(":path", "*"), 110),
        (changed(":path", "http://a/"), 110),
        (changed(":path", "/../x"), 111),
        (changed(":path", "/%2f"), 114),
        (changed(":scheme", "ftp"), 110),
        (changed(":authority", "a b"), 212),
        (changed(":authority", "u@a"), 212),
        (changed(":authority", ""), 212),
        (changed(":method", "CONNECT"), 215),
        (with(&[(":protocol", "websocket")]), 215),
        (connect(&[(":protocol", "")]), 215),
        (connect(&[(":protocol", "a, b")]), 215),
        (connect(&[(":protocol", "a"), (":protocol", "a")]), 215),
        (connect(&[("x", "y"), (":protocol", "a")]), 215),
        (connect(&[(":protocol", "a"), ("content-length", "0")]), 311),
        (connect(&[(":protocol", "a"), ("upgrade", "a")]), 216),
        (connect(&[(":protocol", "h2c")]), 219),
        (connect(&[(":protocol", "HTTP/2.0")]), 219),
        (connect_without(":scheme"), 215),
        (connect_without(":path"), 215),
        (connect_without(":authority"), 215),
        (vec![("x", &long[..]); 101], 207),
        (vec![("x", &long[..]); 80], 206),
    ];
    for (fields, rule) in table {
        let mut request = FieldSection::default();
        let mut limits = HeadLimits::default();
        if rule == 207 {
            limits.head_bytes *= 2;
        }
        request.begin(Version::Http2, &limits, true, SectionKind::Request);
        for (name, value) in &fields {
            let taken = request.field(name.as_bytes(), value.as_bytes());
            assert_eq!(taken, Ok(()));
        }
        request.end();
        let refused = request.head().map(|head| format!("{head:?}"));
        assert_eq!(refused.map_err(|it| it.rule), Err(rule), "{fields:?}");
    }
}

#[test]
fn connection_errors_have_their_codes() {
    let hello = || ClientBytes::hello(b"");
    let endless = (0..20).fold(hello().frame(frame::HEADERS, 1, 1, b""), |client, _| {
        client.frame(frame::CONTINUATION, 0, 1, b"")
    });
    let mut bomb = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
    bomb.extend_from_slice(&[b'x'; 4_000]);
    bomb.extend_from_slice(&[0xbe; 20]);
    let table = [
        (
            ClientBytes(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            "PROTOCOL_ERROR",
        ),
        (ClientBytes(PREFACE.to_vec()).get(1), "PROTOCOL_ERROR"),
        (hello().get(2), "PROTOCOL_ERROR"),
        (hello().get(0), "PROTOCOL_ERROR"),
        (hello().get(5).get(3), "PROTOCOL_ERROR"),
        (
            hello().frame(frame::HEADERS, 5, 3, b"\x80"),
            "COMPRESSION_ERROR",
        ),
        (hello().frame(frame::DATA, 0, 1, b"x"), "PROTOCOL_ERROR"),
        (
            hello().frame(frame::CONTINUATION, 4, 1, b""),
            "PROTOCOL_ERROR",
        ),
        (
            hello().frame(frame::HEADERS, 0, 1, b"").get(3),
            "PROTOCOL_ERROR",
        ),
        (endless, "ENHANCE_YOUR_CALM"),
        (
            hello().frame(frame::HEADERS, 5, 3, &bomb),
            "ENHANCE_YOUR_CALM",
        ),
        (
            hello().frame(frame::PUSH_PROMISE, 4, 1, b"\0\0\0\x02"),
            "PROTOCOL_ERROR",
        ),
        (hello().frame(frame::PING, 0, 0, b"1"), "FRAME_SIZE_ERROR"),
        (
            hello().frame(frame::PING, 0, 1, b"12345678"),
            "PROTOCOL_ERROR",
        ),
        (
            hello().frame(frame::RST_STREAM, 0, 1, b"\0\0\0\0"),
            "PROTOCOL_ERROR",
        ),
        (
            hello().frame(frame::WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
            "PROTOCOL_ERROR",
        ),
        (
            hello().frame(frame::WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
            "FLOW_CONTROL_ERROR",
        ),
        (
            hello().frame(frame::PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=1"),
            "PROTOCOL_ERROR",
        ),
        (
            hello().frame(frame::SETTINGS, 1, 0, b"\0\x04\0\0\0\0"),
            "FRAME_SIZE_ERROR",
        ),
    ];
    for (client, expected) in table {
        assert_eq!(
            code(&client).as_deref(),
            Some(expected),
            "{:?}",
            events(&client)
        );
    }
}

/// The frames allowed on a closed stream depend on the side that closed the stream.
#[test]
fn frames_on_closed_streams_are_ignored_or_refused() {
    // The server resets the stream for its priority; frames in flight are ignored.
    let provoked = ClientBytes::hello(b"")
        .frame(frame::HEADERS, 4, 1, &block(&[]))
        .frame(frame::PRIORITY, 0, 1, b"\0\0\0\x01\0");
    let late = provoked
        .clone()
        .frame(frame::DATA, 0, 1, b"on its way")
        .frame(frame::HEADERS, 5, 1, &block(&[]))
        .frame(frame::WINDOW_UPDATE, 0, 1, b"\0\0\0\x01")
        .get(3);
    assert_eq!(
        events(&late),
        ["1 request false", "1 reset", "3 request true"]
    );
    // The peer ended the stream.
    for client in [
        ClientBytes::hello(b"")
            .get(3)
            .frame(frame::DATA, 0, 3, b"x"),
        ClientBytes::hello(b"").get(3).get(3),
        ClientBytes::hello(b"")
            .frame(frame::HEADERS, 4, 3, &block(&[]))
            .frame(frame::RST_STREAM, 0, 3, b"\0\0\0\x08")
            .frame(frame::DATA, 0, 3, b"x"),
    ] {
        assert_eq!(code(&client).as_deref(), Some("STREAM_CLOSED"));
    }
}

#[test]
fn short_frames_between_large_frames_cost_no_points() {
    let upload = |parts: &[usize]| {
        let mut connection = H2Connection::<()>::new(16 * 1024);
        let mut spent = 0;
        for _ in 0..2_000 {
            for part in parts {
                spent += u32::from(connection.price_data(*part, false, 0).is_err());
            }
        }
        spent
    };
    assert_eq!(upload(&[4_096, 1]), 0);
    assert_eq!(upload(&[16_384, 7, 9]), 0);
    assert!(upload(&[16_384, 1, 1]) > 0);
    assert!(upload(&[1]) > 0 && upload(&[1_000, 1]) > 0);
}

/// Returns the number of DATA frames of one stream until the connection ends, at most 3,000.
fn data_frames_taken(bytes: &[u8], is_tunnel: bool) -> usize {
    let mut connection = H2Connection::<()>::new(16 * 1024);
    let opening = ClientBytes::hello(b"")
        .frame(frame::HEADERS, 4, 1, &block(&[]))
        .0;
    let data = ClientBytes(Vec::new()).frame(frame::DATA, 0, 1, bytes).0;
    let (mut request, mut strings) = (FieldSection::default(), HpackScratch::default());
    let limits = HeadLimits::default();
    let mut receive = |connection: &mut H2Connection<()>, mut input: &[u8]| {
        while !input.is_empty() {
            connection.receive(&mut input, &mut request, &mut strings, &limits, 0)?;
        }
        Ok::<(), H2ConnectionError>(())
    };
    receive(&mut connection, &opening).expect("a request");
    connection.accept(
        1,
        remote_state(BodyLength::Chunked, false),
        Priority::default(),
        (),
    );
    connection.stream(1).expect("a stream").carries_messages = is_tunnel;
    let goes_on = |_: &usize| receive(&mut connection, &data).is_ok();
    (0..3_000).take_while(goes_on).count()
}

/// The messages of a tunnel may be short, and empty frames are a flood all the same.
#[test]
fn short_messages_of_a_tunnel_cost_no_points() {
    assert!(data_frames_taken(b"x", false) < 3_000);
    assert_eq!(data_frames_taken(b"x", true), 3_000);
    assert!(data_frames_taken(b"", true) < 3_000);
}

#[test]
fn floods_end_the_connection() {
    let flood = |frames: &dyn Fn(ClientBytes, u32) -> ClientBytes| {
        let client = (0..3_000).fold(ClientBytes::hello(b""), |client, nth| {
            frames(client, 2 * nth + 1)
        });
        let (events, _) = transcript(&client.0, client.0.len());
        let count = events.len();
        let last = events.into_iter().next_back().unwrap_or_default();
        (last, count)
    };
    let reset = flood(&|client, id| {
        client
            .get(id)
            .frame(frame::RST_STREAM, 0, id, b"\0\0\0\x08")
    });
    let provoked = flood(&|client, id| {
        client
            .get(id)
            .frame(frame::WINDOW_UPDATE, 0, id, b"\0\0\0\0")
            .frame(frame::PRIORITY, 0, id, b"")
    });
    let settings = flood(&|client, _| client.frame(frame::SETTINGS, 0, 0, b""));
    let ping = flood(&|client, _| client.frame(frame::PING, 0, 0, b"12345678"));
    let priority = flood(&|client, id| client.frame(frame::PRIORITY, 0, id, b"\0\0\0\0\0"));
    let update = flood(&|client, id| {
        let id = id.to_be_bytes();
        client.frame(frame::PRIORITY_UPDATE, 0, 0, &id)
    });
    let window = flood(&|client, _| client.frame(frame::WINDOW_UPDATE, 0, 0, b"\0\0\0\x01"));
    let unknown = flood(&|client, _| client.frame(0x42, 0, 0, b""));
    for (last, count) in [
        reset, provoked, settings, ping, priority, update, window, unknown,
    ] {
        assert!(last.contains("ENHANCE_YOUR_CALM"), "{last}");
        assert!(count < 1_000, "{count} events before {last}");
    }
    let empty = (0..3_000).fold(
        ClientBytes::hello(b"").frame(frame::HEADERS, 4, 1, &block(&[])),
        |client, _| client.frame(frame::DATA, 0, 1, b""),
    );
    let (events, _) = transcript(&empty.0, empty.0.len());
    assert!(
        events
            .last()
            .is_some_and(|it| it.contains("ENHANCE_YOUR_CALM"))
    );
}

#[test]
fn responses_respect_the_windows() {
    let receive = |h2: &mut H2Connection<u32>, client: ClientBytes| {
        let (mut request, mut strings) = (FieldSection::default(), HpackScratch::default());
        let mut input = &client.0[..];
        while !input.is_empty() {
            let limits = HeadLimits::default();
            let event = h2.receive(&mut input, &mut request, &mut strings, &limits, 0);
            assert!(event.is_ok(), "{event:?}");
        }
    };
    let mut h2: H2Connection<u32> = H2Connection::new(16_384);
    // The initial send window of a stream is 10 bytes.
    receive(&mut h2, ClientBytes::hello(b"\0\x04\0\0\0\x0a").get(1));
    assert!(h2.fits_at_once(10) && !h2.fits_at_once(11));
    h2.accept(1, RemoteState::Ended, Priority::default(), 1);
    assert_eq!(h2.next_to_send(), None, "it isn't ready");
    h2.stream(1).expect("a stream").ready = true;
    assert_eq!(h2.next_to_send(), Some((1, 10)));
    let at = h2.begin_data(1);
    h2.out.extend_from_slice(b"0123456789");
    h2.end_data(1, at, false);
    assert_eq!(h2.next_to_send(), None);
    assert!(h2.stream(1).expect("a stream").is_blocked());
    // The stream's window grows, then the initial window; then the initial window shrinks, and the stream's
    // window becomes negative.
    let client = ClientBytes(Vec::new()).frame(frame::WINDOW_UPDATE, 0, 1, b"\0\0\0\x05");
    receive(&mut h2, client);
    assert_eq!(h2.next_to_send(), Some((1, 5)));
    let client = ClientBytes(Vec::new()).frame(frame::SETTINGS, 0, 0, b"\0\x04\0\0\0\x64");
    receive(&mut h2, client);
    assert_eq!(h2.next_to_send(), Some((1, 95)));
    let client = ClientBytes(Vec::new()).frame(frame::SETTINGS, 0, 0, b"\0\x04\0\0\0\0");
    receive(&mut h2, client);
    assert_eq!(h2.next_to_send(), None);
    assert_eq!(h2.finish(1), Some(1));
    assert_eq!(h2.open(), 0);
}

/// Go's client opens both windows by 4 KiB as its program reads; other clients open them by less.
#[test]
fn small_window_updates_of_a_reading_client_are_no_flood() {
    let (mut request, mut strings) = (FieldSection::default(), HpackScratch::default());
    let mut receive = |h2: &mut H2Connection<u32>, client: ClientBytes| {
        let mut input = &client.0[..];
        while !input.is_empty() {
            h2.receive(
                &mut input,
                &mut request,
                &mut strings,
                &HeadLimits::default(),
                0,
            )?;
        }
        Ok::<(), H2ConnectionError>(())
    };
    let mut outcome_of = |step: u32| {
        let mut h2: H2Connection<u32> = H2Connection::new(16_384);
        receive(&mut h2, ClientBytes::hello(b"").get(1))?;
        h2.accept(1, RemoteState::Ended, Priority::default(), 1);
        h2.stream(1).expect("a stream").ready = true;
        // 32 MiB are transferred while the clock stands still.
        for _ in 0..2_048 {
            assert!(h2.next_to_send().is_some_and(|(_, bytes)| bytes >= 16_384));
            let at = h2.begin_data(1);
            h2.out.resize(h2.out.len() + 16_384, 0);
            h2.end_data(1, at, false);
            h2.out.clear();
            for _ in 0..16_384 / step {
                let more = step.to_be_bytes();
                let both = ClientBytes(Vec::new()).frame(frame::WINDOW_UPDATE, 0, 0, &more);
                receive(&mut h2, both.frame(frame::WINDOW_UPDATE, 0, 1, &more))?;
            }
        }
        Ok::<(), H2ConnectionError>(())
    };
    for step in [1_024, 4_096, 8_192, 16_384] {
        assert!(outcome_of(step).is_ok(), "steps of {step} bytes");
    }
    assert!(outcome_of(64).is_err());
}

#[test]
fn a_smaller_table_of_the_peer_is_signalled() {
    let mut h2: H2Connection<u32> = H2Connection::new(16_384);
    let client = ClientBytes::hello(b"\0\x01\0\0\0\0");
    let mut input = &client.0[..];
    let (mut request, mut strings) = (FieldSection::default(), HpackScratch::default());
    let limits = HeadLimits::default();
    while !input.is_empty() {
        h2.receive(&mut input, &mut request, &mut strings, &limits, 0)
            .expect("SETTINGS");
    }
    h2.out.clear();
    h2.head(1, b"\x88", true);
    h2.head(3, b"\x88", true);
    let expected = b"\0\0\x02\x01\x05\0\0\0\x01\x20\x88\0\0\x01\x01\x05\0\0\0\x03\x88";
    assert_eq!(h2.out, expected);
    // The head is larger than a frame.
    h2.out.clear();
    h2.head(5, &[0x88; 20_000], false);
    let mut block = vec![0; 9];
    block.copy_from_slice(&h2.out[..9]);
    assert_eq!(block, b"\0\x40\0\x01\0\0\0\0\x05");
    assert_eq!(&h2.out[9 + 16_384..][..9], b"\0\x0e\x20\x09\x04\0\0\0\x05");
    let mut fields = 0;
    let whole = [&h2.out[9..9 + 16_384], &h2.out[9 + 16_384 + 9..]].concat();
    let decoded = hpack::HpackDecoder::default().decode(&whole, &mut strings, |_, _| {
        fields += 1;
        Ok(())
    });
    assert_eq!((decoded, fields), (Ok(()), 20_000));
}

fn config() -> ProptestConfig {
    ProptestConfig::with_cases(cases())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        frames(&bytes);
    }

    #[test]
    fn invariants_of_near_frames(
        client in proptest::collection::vec(
            (0u8..18, any::<u8>(), 0u32..12, prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..12),
                Just(block(&[])),
                Just(block(&[("content-length", "4")])),
                Just(b"\0\0\0\x04".to_vec()),
                Just(b"\0\0\0\x01\0".to_vec()),
                Just(b"\0\x04\0\0\0\x04".to_vec()),
            ]), 0..24)
    ) {
        let hello = ClientBytes::hello(b"");
        let client = client.into_iter().fold(hello, |client, (kind, flags, stream, payload)| {
            client.frame(kind, flags, stream, &payload)
        });
        let whole = transcript(&client.0, client.0.len());
        prop_assert_eq!(&transcript(&client.0, 1), &whole);
        prop_assert_eq!(&transcript(&client.0, 11), &whole);
    }
}
