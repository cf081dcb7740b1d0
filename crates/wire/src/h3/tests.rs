//! Streams as transcripts of bytes and events, with the input split at every byte.

use super::error::{H3ConnectionError, H3ErrorCode};
use super::frame::{self, H3FrameHeader};
use super::qpack::{self, QpackScratch, STATIC};
use crate::h3::request_stream::{RequestStreamEvent, RequestStreamReceiver};
use crate::h3::unidirectional::{UnidirectionalState, UnidirectionalStream};
use crate::invariants::h3;
use proptest::prelude::*;

/// Field section of a request for `/` on localhost: GET, https and the path come from the static table.
const HEAD: &[u8] = b"\0\0\xd1\xd7\x50\x09localhost\xc1";

fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let length = payload.len() as u64;
    H3FrameHeader { kind, length }.push(&mut out);
    out.extend_from_slice(payload);
    out
}

#[test]
fn encoded_integers_are_decoded_back() {
    // Examples of RFC 9000 Appendix A.1.
    for (bytes, number) in [
        (
            &b"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c"[..],
            151_288_809_941_952_652,
        ),
        (b"\x9d\x7f\x3e\x7d", 494_878_333),
        (b"\x7b\xbd", 15_293),
        (b"\x25", 37),
    ] {
        let mut input = bytes;
        assert_eq!(frame::integer(&mut input), Some(number));
        assert_eq!(input, b"");
        let mut out = Vec::new();
        frame::push_integer(number, &mut out);
        assert_eq!(out, bytes);
        for cut in 0..bytes.len() {
            let mut input = &bytes[..cut];
            assert_eq!(frame::integer(&mut input), None);
            assert_eq!(input.len(), cut);
        }
    }
    // An integer in a longer form than necessary.
    assert_eq!(frame::integer(&mut &b"\x40\x25"[..]), Some(37));
    for number in [
        0,
        63,
        64,
        16_383,
        16_384,
        (1 << 30) - 1,
        1 << 30,
        frame::INTEGER_MAX,
    ] {
        let mut out = Vec::new();
        frame::push_integer(number, &mut out);
        assert_eq!(frame::integer(&mut &out[..]), Some(number));
    }
}

#[test]
fn the_static_table_follows_the_rfc() {
    // Entries of RFC 9204 Appendix A, from the first to the last.
    for (index, name, value) in [
        (0, ":authority", ""),
        (1, ":path", "/"),
        (17, ":method", "GET"),
        (25, ":status", "200"),
        (52, "content-type", "text/html; charset=utf-8"),
        (71, ":status", "500"),
        (83, "alt-svc", "clear"),
        (98, "x-frame-options", "sameorigin"),
    ] {
        assert_eq!(STATIC[index], (name, value));
    }
    assert_eq!(STATIC.len(), 99);
}

fn fields(section: &[u8]) -> Result<Vec<String>, H3ConnectionError> {
    let mut fields = Vec::new();
    qpack::decode(section, &mut QpackScratch::default(), |name, value| {
        fields.push(format!("{}={}", name.escape_ascii(), value.escape_ascii()));
        Ok(())
    })?;
    Ok(fields)
}

#[test]
fn field_sections_are_decoded() {
    // Example of RFC 9204 Appendix B.1.
    let literal = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(fields(literal), Ok(vec![":path=/index.html".into()]));
    let all = fields(HEAD).expect("a field section");
    assert_eq!(
        all,
        [
            ":method=GET",
            ":scheme=https",
            ":authority=localhost",
            ":path=/"
        ]
    );
    assert_eq!(fields(b"\0\0"), Ok(vec![]));
    // Base has no meaning with a Required Insert Count of 0.
    assert_eq!(fields(b"\0\x05\xc1"), Ok(vec![":path=/".into()]));
    for bad in [
        &b""[..],
        b"\0",
        b"\x01\0",
        b"\0\0\x80",
        b"\0\0\x10",
        b"\0\0\x40\x01a",
        b"\0\0\x00\x01a",
        b"\0\0\xff\x24",
        b"\0\0\xff",
        b"\0\0\x51\x0b/index",
        b"\0\0\x23ab",
    ] {
        let code = fields(bad).expect_err("malformed").code;
        assert_eq!(code, H3ErrorCode::QPACK_DECOMPRESSION_FAILED, "{bad:?}");
    }
}

#[test]
fn encoded_fields_are_decoded_back() {
    let mut section = Vec::new();
    let lines =
        b"HTTP/1.1 200 OK\r\nServer: anthill\r\nContent-Length: 0\r\nVary: Accept-Encoding\r\n\
        Connection: close\r\nX-Own: Value\r\n";
    qpack::push_head(200, lines, &mut section);
    qpack::push_date(b"Sun, 06 Nov 1994 08:49:37 GMT", &mut section);
    assert_eq!(
        fields(&section).expect("a field section"),
        [
            ":status=200",
            "server=anthill",
            "content-length=0",
            "vary=Accept-Encoding",
            "x-own=Value",
            "date=Sun, 06 Nov 1994 08:49:37 GMT"
        ]
    );
    for status in [100, 103, 200, 206, 304, 404, 418, 431, 503] {
        let mut section = Vec::new();
        qpack::push_status(status, &mut section);
        assert_eq!(fields(&section), Ok(vec![format!(":status={status}")]));
    }
}

#[test]
fn headers_of_any_length_are_framed() {
    for bytes in [0, 1, 0x3fff, 0x4000, 70_000] {
        let mut out = b"before".to_vec();
        let at = frame::begin_headers(&mut out);
        out.resize(out.len() + bytes, b'x');
        frame::end_headers(&mut out, at);
        let mut rest = &out[at..];
        assert_eq!(frame::integer(&mut rest), Some(frame::HEADERS));
        assert_eq!(frame::integer(&mut rest), Some(bytes as u64));
        assert_eq!(rest.len(), bytes);
        let mut out = Vec::new();
        let at = frame::begin_data(&mut out);
        out.resize(out.len() + bytes, b'x');
        assert_eq!(frame::end_data(&mut out, at), bytes);
        let read = h3::transcript(&[framed(frame::HEADERS, HEAD), out].concat(), 100);
        assert_eq!(read.len(), if bytes == 0 { 2 } else { 3 });
    }
}

/// Returns the transcript of a request stream, after a check for independence of the split.
fn transcript(input: &[u8]) -> Vec<String> {
    let whole = h3::transcript(input, input.len().max(1));
    for part_bytes in 1..input.len().min(64) {
        assert_eq!(h3::transcript(input, part_bytes), whole, "{part_bytes}");
    }
    for cut in 0..input.len().min(64) {
        // A truncated stream is detected at its end at the latest.
        h3::transcript(&input[..cut], 3);
    }
    whole
}

#[test]
fn a_request_with_body_trailers_and_unknown_frames_is_read() {
    let input = [
        framed(0x21, b"grease"),
        framed(frame::HEADERS, HEAD),
        framed(0x40, b""),
        framed(frame::DATA, b"some "),
        framed(frame::DATA, b""),
        framed(frame::DATA, b"and the rest"),
        framed(frame::HEADERS, b"\0\0\x23x-y\x01z"),
        framed(0x1f * 3 + 0x21, b"more grease"),
    ]
    .concat();
    let seen = transcript(&input);
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(
        seen[0].contains("GET / HTTP/3.0") || seen[0].contains("method: Get"),
        "{seen:?}"
    );
    assert_eq!(seen[1], "data some and the rest");
    assert!(seen[2].starts_with("trailers"));
    // Two nearly empty DATA frames, and three frames of unknown types.
    assert_eq!(seen[3], "Ok(()) 5");
}

#[test]
fn short_frames_between_large_frames_are_not_idle() {
    let upload = |parts: &[usize]| {
        let mut input = framed(frame::HEADERS, HEAD);
        for _ in 0..200 {
            for part in parts {
                input.extend(framed(frame::DATA, &vec![0; *part]));
            }
        }
        let mut receiver = RequestStreamReceiver::default();
        let mut input = &input[..];
        while receiver.receive(&mut input).expect("well-formed") != RequestStreamEvent::More {}
        receiver.take_idle_frames()
    };
    assert_eq!(upload(&[4_096, 1]), 0);
    assert_eq!(upload(&[16_384, 7, 9]), 0);
    assert_eq!(upload(&[16_384, 1, 1]), 200);
    assert_eq!(upload(&[1]), 200);
    assert_eq!(upload(&[1_000, 1]), 200);
    assert_eq!(upload(&[0]), 200);
}

#[test]
fn short_messages_of_a_tunnel_are_not_idle() {
    let idle_frames = |bytes: &[u8], is_tunnel: bool| {
        let mut receiver = RequestStreamReceiver::default();
        let head = framed(frame::HEADERS, HEAD);
        receiver.receive(&mut &head[..]).expect("well-formed");
        if is_tunnel {
            receiver.open_tunnel();
        }
        let input = framed(frame::DATA, bytes).repeat(100);
        let mut input = &input[..];
        while receiver.receive(&mut input).expect("well-formed") != RequestStreamEvent::More {}
        receiver.take_idle_frames()
    };
    assert_eq!(idle_frames(b"x", false), 100);
    assert_eq!(idle_frames(b"x", true), 0);
    assert_eq!(idle_frames(b"", true), 100);
}

#[test]
fn protocol_violations_on_a_request_stream_are_refused() {
    let head = framed(frame::HEADERS, HEAD);
    let trailer = framed(frame::HEADERS, b"\0\0");
    let bad = [
        (framed(frame::DATA, b"x"), "H3_FRAME_UNEXPECTED"),
        (framed(frame::SETTINGS, b""), "H3_FRAME_UNEXPECTED"),
        (framed(frame::GOAWAY, b"\0"), "H3_FRAME_UNEXPECTED"),
        (framed(frame::PUSH_PROMISE, b"\0"), "H3_FRAME_UNEXPECTED"),
        (framed(frame::MAX_PUSH_ID, b"\0"), "H3_FRAME_UNEXPECTED"),
        (framed(frame::PRIORITY_UPDATE, b"\0"), "H3_FRAME_UNEXPECTED"),
        (framed(0x8, b"1234"), "H3_FRAME_UNEXPECTED"),
        (
            [&head[..], &trailer, &trailer].concat(),
            "H3_FRAME_UNEXPECTED",
        ),
        (
            [&head[..], &trailer, &framed(frame::DATA, b"x")].concat(),
            "H3_FRAME_UNEXPECTED",
        ),
        (head[..5].to_vec(), "H3_FRAME_ERROR"),
        (b"\x01".to_vec(), "H3_FRAME_ERROR"),
        ([&head[..], b"\x21\x05abc"].concat(), "H3_FRAME_ERROR"),
        (b"\x01\x80\x10\0\0".to_vec(), "H3_EXCESSIVE_LOAD"),
        (Vec::new(), "H3_REQUEST_INCOMPLETE"),
        (framed(0x21, b"grease"), "H3_REQUEST_INCOMPLETE"),
    ];
    for (input, code) in bad {
        let seen = transcript(&input);
        let last = seen.last().expect("an end");
        assert!(last.contains(code), "{input:?}: {seen:?}");
    }
}

/// Returns the result of unidirectional streams, after a check for independence of the split.
fn receive(streams: &[&[u8]]) -> Result<(), H3ConnectionError> {
    let whole = receive_in_parts(streams, usize::MAX);
    for part_bytes in 1..20 {
        assert_eq!(receive_in_parts(streams, part_bytes), whole, "{part_bytes}");
    }
    whole
}

fn receive_in_parts(streams: &[&[u8]], part_bytes: usize) -> Result<(), H3ConnectionError> {
    let mut control = UnidirectionalState::default();
    for stream in streams {
        let mut inbound = UnidirectionalStream::default();
        for part in stream.chunks(part_bytes) {
            if !inbound.receive(&mut control, part)? {
                break;
            }
        }
    }
    Ok(())
}

/// Returns a control stream with SETTINGS followed by the given frames.
fn control(frames: &[(u64, &[u8])]) -> Vec<u8> {
    let mut stream = vec![0];
    stream.extend(framed(
        frame::SETTINGS,
        b"\x01\x40\x64\x06\x80\x01\0\0\x21\x05",
    ));
    for (kind, payload) in frames {
        stream.extend(framed(*kind, payload));
    }
    stream
}

#[test]
fn allowed_unidirectional_streams_are_accepted() {
    let said = control(&[
        (0x21, b"grease"),
        (frame::MAX_PUSH_ID, b"\x05"),
        (frame::MAX_PUSH_ID, b"\x05"),
        (frame::GOAWAY, b"\x08"),
        (frame::GOAWAY, b"\x04"),
        (frame::PRIORITY_UPDATE, b"\x04u=2"),
    ]);
    let all = [
        &said[..],
        b"\x02\x20",
        b"\x03\x44\x7f\x01",
        b"\x21 unknown",
        b"\x40",
    ];
    assert_eq!(receive(&all), Ok(()));
    let mut opening = Vec::new();
    frame::push_opening(16_384, &mut opening);
    assert_eq!(receive(&[&opening]), Ok(()));
    let mut goaway = opening;
    frame::push_goaway(frame::INTEGER_MAX - 3, &mut goaway);
    frame::push_goaway(8, &mut goaway);
    assert_eq!(receive(&[&goaway]), Ok(()));
}

#[test]
fn protocol_violations_on_unidirectional_streams_are_refused() {
    let first = |kind, payload: &[u8]| [&[0][..], &framed(kind, payload)].concat();
    let table: Vec<(Vec<u8>, H3ErrorCode)> = vec![
        (
            first(frame::GOAWAY, b"\0"),
            H3ErrorCode::H3_MISSING_SETTINGS,
        ),
        (first(0x21, b""), H3ErrorCode::H3_MISSING_SETTINGS),
        (first(frame::SETTINGS, b"\x06"), H3ErrorCode::H3_FRAME_ERROR),
        (
            first(frame::SETTINGS, b"\x02\x01"),
            H3ErrorCode::H3_SETTINGS_ERROR,
        ),
        (
            first(frame::SETTINGS, b"\x06\x01\x06\x01"),
            H3ErrorCode::H3_SETTINGS_ERROR,
        ),
        (
            first(frame::SETTINGS, &[0; 5_000]),
            H3ErrorCode::H3_EXCESSIVE_LOAD,
        ),
        (
            control(&[(frame::SETTINGS, b"")]),
            H3ErrorCode::H3_FRAME_UNEXPECTED,
        ),
        (
            control(&[(frame::DATA, b"x")]),
            H3ErrorCode::H3_FRAME_UNEXPECTED,
        ),
        (
            control(&[(frame::HEADERS, HEAD)]),
            H3ErrorCode::H3_FRAME_UNEXPECTED,
        ),
        (
            control(&[(frame::PUSH_PROMISE, b"\0")]),
            H3ErrorCode::H3_FRAME_UNEXPECTED,
        ),
        (control(&[(0x6, b"")]), H3ErrorCode::H3_FRAME_UNEXPECTED),
        (
            control(&[(frame::GOAWAY, b"\0\0")]),
            H3ErrorCode::H3_FRAME_ERROR,
        ),
        (
            control(&[(frame::GOAWAY, b"")]),
            H3ErrorCode::H3_FRAME_ERROR,
        ),
        (
            control(&[(frame::GOAWAY, b"\x04"), (frame::GOAWAY, b"\x08")]),
            H3ErrorCode::H3_ID_ERROR,
        ),
        (
            control(&[(frame::MAX_PUSH_ID, b"\x04"), (frame::MAX_PUSH_ID, b"\x03")]),
            H3ErrorCode::H3_ID_ERROR,
        ),
        (
            control(&[(frame::CANCEL_PUSH, b"\0")]),
            H3ErrorCode::H3_ID_ERROR,
        ),
        (
            control(&[(frame::PRIORITY_UPDATE, b"\x02")]),
            H3ErrorCode::H3_ID_ERROR,
        ),
        (
            control(&[(frame::PRIORITY_UPDATE, b"")]),
            H3ErrorCode::H3_FRAME_ERROR,
        ),
        (
            control(&[(frame::PRIORITY_UPDATE_OF_PUSH, b"\0")]),
            H3ErrorCode::H3_ID_ERROR,
        ),
        (b"\x01\0".to_vec(), H3ErrorCode::H3_STREAM_CREATION_ERROR),
        (
            b"\x02\xc1\x01x".to_vec(),
            H3ErrorCode::QPACK_ENCODER_STREAM_ERROR,
        ),
        (
            b"\x02\x3f\x01".to_vec(),
            H3ErrorCode::QPACK_ENCODER_STREAM_ERROR,
        ),
        (
            b"\x02\x21".to_vec(),
            H3ErrorCode::QPACK_ENCODER_STREAM_ERROR,
        ),
        (
            b"\x02\xff\xff\xff\xff\xff\xff\xff\x20".to_vec(),
            H3ErrorCode::H3_EXCESSIVE_LOAD,
        ),
        (
            b"\x03\x80".to_vec(),
            H3ErrorCode::QPACK_DECODER_STREAM_ERROR,
        ),
        (
            b"\x03\x01".to_vec(),
            H3ErrorCode::QPACK_DECODER_STREAM_ERROR,
        ),
    ];
    for (stream, code) in table {
        let error = receive(&[&stream]).expect_err("an error");
        assert_eq!(error.code, code, "{:?}", stream.escape_ascii().to_string());
    }
    for kind in [&b"\0\x04\0"[..], b"\x02", b"\x03"] {
        let error = receive(&[kind, kind]).expect_err("an error");
        assert_eq!(error.code, H3ErrorCode::H3_STREAM_CREATION_ERROR);
        let mut inbound = UnidirectionalStream::default();
        let _ = inbound.receive(&mut UnidirectionalState::default(), kind);
        let ended = inbound.end().expect_err("an error");
        assert_eq!(ended.code, H3ErrorCode::H3_CLOSED_CRITICAL_STREAM);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::invariants::h2::cases()))]

    #[test]
    fn invariants_of_arbitrary_sections(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        h3::section(&bytes);
        h3::section(&[b"\0\0", &bytes[..]].concat());
    }

    #[test]
    fn arbitrary_streams_do_not_depend_on_the_split(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        h3::message(&bytes);
        h3::message(&[&framed(frame::HEADERS, HEAD)[..], &bytes].concat());
        h3::one_way(&bytes);
        for kind in 0..4 {
            h3::one_way(&[&[kind], &bytes[..]].concat());
        }
    }
}
