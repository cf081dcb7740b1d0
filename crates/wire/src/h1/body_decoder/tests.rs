//! Tests of bodies of HTTP/1.1, split at every point, and invariants of arbitrary ones.

use super::*;
use crate::invariants;
use proptest::prelude::*;

/// Returns the payload and the result: the number of bytes left over, "more", or the rule.
fn decode(length: BodyLength, input: &[u8]) -> (Vec<u8>, Result<usize, String>) {
    let mut decoder = BodyDecoder::new(length);
    let mut payload = Vec::new();
    let mut at = 0;
    loop {
        match decoder.step(&input[at..]) {
            Ok(BodyStep::Data {
                consumed,
                payload: span,
            }) => {
                payload.extend_from_slice(&input[at..][span]);
                at += consumed;
            }
            Ok(BodyStep::More { consumed }) => {
                assert_eq!(at + consumed, input.len());
                return (payload, Err("more".to_owned()));
            }
            Ok(BodyStep::End { consumed }) => {
                return (payload, Ok(input.len() - at - consumed));
            }
            Err(reject) => {
                assert_eq!(decoder.step(&input[at..]), Err(reject), "errors stay");
                return (payload, Err(reject.rule.to_string()));
            }
        }
    }
}

#[test]
fn skipped_payload_counts_for_a_known_length() {
    let mut decoder = BodyDecoder::new(BodyLength::Length(10));
    decoder.skip(4);
    assert_eq!(decoder.missing_bytes(), Some(6));
    let data = BodyStep::Data {
        consumed: 2,
        payload: 0..2,
    };
    assert_eq!(decoder.step(b"ab"), Ok(data));
    decoder.skip(4);
    assert!(decoder.is_done());
    assert_eq!(decoder.step(b"GET"), Ok(BodyStep::End { consumed: 0 }));
    for (length, count) in [(BodyLength::Length(3), 4), (BodyLength::Chunked, 1)] {
        let mut decoder = BodyDecoder::new(length);
        decoder.skip(count);
        assert!(decoder.step(b"abc").is_err());
    }
}

#[test]
fn bodies_of_known_length_are_decoded() {
    let (payload, end) = decode(BodyLength::None, b"GET");
    assert_eq!((&payload[..], end), (&b""[..], Ok(3)));
    let (payload, end) = decode(BodyLength::Length(0), b"GET");
    assert_eq!((&payload[..], end), (&b""[..], Ok(3)));
    let (payload, end) = decode(BodyLength::Length(5), b"helloGET");
    assert_eq!((&payload[..], end), (&b"hello"[..], Ok(3)));
    let (payload, end) = decode(BodyLength::Length(u64::MAX), b"hel");
    assert_eq!((&payload[..], end), (&b"hel"[..], Err("more".to_owned())));
}

#[test]
fn chunked_bodies_are_decoded() {
    let table: &[(&[u8], &[u8], usize)] = &[
        (b"0\r\n\r\n", b"", 0),
        (b"000\r\n\r\nGET", b"", 3),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello", 0),
        (b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nG", b"hello!", 1),
        (b"0000000000000005\r\nhello\r\n0\r\n\r\n", b"hello", 0),
        (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789", 0),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", 0),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n", 0),
        (b"5;a\r\nhello\r\n0;b=\"c;d\"\r\n\r\n", b"hello", 0),
        (b"5 ; a = b\r\nhello\r\n0\r\n\r\n", b"hello", 0),
        (
            b"5;a;b=c \t; d =\t\"e\" ;f\r\nhello\r\n0\r\n\r\n",
            b"hello",
            0,
        ),
        (
            b"5;a=\"\";b=\"\\\"\\\\;\t\xe9\"\r\nhello\r\n0\r\n\r\n",
            b"hello",
            0,
        ),
        (b"0\r\nA: b\r\n\r\nG", b"", 1),
        (b"0\r\nA: \tb\xe9 \r\nB:\r\n\r\n", b"", 0),
    ];
    for (input, payload, left) in table {
        let found = decode(BodyLength::Chunked, input);
        assert_eq!(
            found,
            (payload.to_vec(), Ok(*left)),
            "{}",
            input.escape_ascii()
        );
    }
}

#[test]
fn malformed_chunked_bodies_are_refused() {
    const CHUNK: u16 = 306;
    const TRAILER: u16 = 308;
    let table: &[(&[u8], u16)] = &[
        (b"\r\n", CHUNK),
        (b"\n", CHUNK),
        (b" 5\r\nhello\r\n", CHUNK),
        (b"x\r\n", CHUNK),
        (b"g\r\n", CHUNK),
        (b"0x5\r\nhello\r\n", CHUNK),
        (b"+5\r\nhello\r\n", CHUNK),
        (b"-1\r\n", CHUNK),
        (b";a\r\n", CHUNK),
        (b"5\nhello\r\n", CHUNK),
        (b"5\r\r\nhello", CHUNK),
        (b"5\rhello\r\n", CHUNK),
        (b"5 \r\nhello\r\n", CHUNK),
        (b"5\t\r\nhello\r\n", CHUNK),
        (b"5 5\r\nhello\r\n", CHUNK),
        (b"5,5\r\nhello\r\n", CHUNK),
        (b"5.0\r\nhello\r\n", CHUNK),
        (b"1_0\r\nhello\r\n", CHUNK),
        (b"5\0\r\nhello\r\n", CHUNK),
        (b"5;a\nhello\r\n", CHUNK),
        (b"5;a\r\r\nhello", CHUNK),
        (b"5;a\0\r\nhello", CHUNK),
        (b"5;a\x7f\r\nhello", CHUNK),
        (b"5;\r\nhello\r\n", CHUNK),
        (b"5; \r\nhello\r\n", CHUNK),
        (b"5;;a\r\nhello\r\n", CHUNK),
        (b"5;a;\r\nhello\r\n", CHUNK),
        (b"5;a \r\nhello\r\n", CHUNK),
        (b"5;a b\r\nhello\r\n", CHUNK),
        (b"5;=b\r\nhello\r\n", CHUNK),
        (b"5;a=\r\nhello\r\n", CHUNK),
        (b"5;a= \r\nhello\r\n", CHUNK),
        (b"5;a==b\r\nhello\r\n", CHUNK),
        (b"5;a=b=c\r\nhello\r\n", CHUNK),
        (b"5;a=b c\r\nhello\r\n", CHUNK),
        (b"5;a=b\"c\"\r\nhello\r\n", CHUNK),
        (b"5;a=\"b\r\nhello\r\n", CHUNK),
        (b"5;a=\"b\"c\r\nhello\r\n", CHUNK),
        (b"5;a=\"\\\r\n\"\r\nhello\r\n", CHUNK),
        (b"5;a=\"\0\"\r\nhello\r\n", CHUNK),
        (b"5;\"a\"\r\nhello\r\n", CHUNK),
        (b"5;(a)\r\nhello\r\n", CHUNK),
        (b"5;a/b\r\nhello\r\n", CHUNK),
        (b"5;\xe9\r\nhello\r\n", CHUNK),
        (b"5\r\nhello", 0),
        (b"5\r\nhello0\r\n\r\n", CHUNK),
        (b"5\r\nhello\n0\r\n\r\n", CHUNK),
        (b"5\r\nhello!\r\n", CHUNK),
        (b"5\r\nhello\r0\r\n\r\n", CHUNK),
        (b"5\r\nhello\r\n\r\n", CHUNK),
        (b"10000000000000000\r\n", CHUNK),
        (b"00000000000000005\r\n", CHUNK),
        (b"fffffffffffffffff\r\n", CHUNK),
        (b"0\r\n\n", TRAILER),
        (b"0\r\n\rX", TRAILER),
        (b"0\r\n A: b\r\n\r\n", TRAILER),
        (b"0\r\nA: b\r\n c\r\n\r\n", TRAILER),
        (b"0\r\nA : b\r\n\r\n", TRAILER),
        (b"0\r\n: b\r\n\r\n", TRAILER),
        (b"0\r\nA\r\n\r\n", TRAILER),
        (b"0\r\nA: b\n\r\n", TRAILER),
        (b"0\r\nA: b\rc\r\n\r\n", TRAILER),
        (b"0\r\nA: \0\r\n\r\n", TRAILER),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", TRAILER),
    ];
    for (input, rule) in table {
        let (_, end) = decode(BodyLength::Chunked, input);
        let expected = match rule {
            0 => "more".to_owned(),
            rule => rule.to_string(),
        };
        assert_eq!(end, Err(expected), "{}", input.escape_ascii());
    }
}

#[test]
fn chunked_bodies_are_bounded() {
    let extended = |bytes: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(bytes - 1));
    let fits = extended(CHUNK_EXTENSION_BYTES_MAX);
    assert_eq!(decode(BodyLength::Chunked, fits.as_bytes()).1, Ok(0));
    let over = extended(CHUNK_EXTENSION_BYTES_MAX + 1);
    assert_eq!(
        decode(BodyLength::Chunked, over.as_bytes()).1,
        Err("307".to_owned())
    );
    let trailed = |bytes: usize| format!("0\r\nA:{}\r\n\r\n", "x".repeat(bytes - 4));
    let fits = trailed(TRAILER_BYTES_MAX - 1);
    assert_eq!(decode(BodyLength::Chunked, fits.as_bytes()).1, Ok(0));
    let over = trailed(TRAILER_BYTES_MAX + 1);
    assert_eq!(
        decode(BodyLength::Chunked, over.as_bytes()).1,
        Err("310".to_owned())
    );
}

#[test]
fn trailers_are_kept_on_demand() {
    let table: &[(&[u8], &[u8])] = &[
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\nGET", b""),
        (b"0\r\nA: b\r\n\r\nG", b"A: b\r\n"),
        (
            b"1\r\n!\r\n0;x=\"y\"\r\ngrpc-status:0\r\nB: \tc\xe9 \r\n\r\n",
            b"grpc-status:0\r\nB: \tc\xe9 \r\n",
        ),
    ];
    for (input, expected) in table {
        for part_bytes in 1..=input.len() {
            let mut decoder = BodyDecoder::new(BodyLength::Chunked);
            let (mut trailers, mut at) = (Vec::new(), 0);
            while !decoder.is_done() {
                let part = &input[at..input.len().min(at + part_bytes)];
                at += match decoder.step_with_trailers(part, &mut trailers) {
                    Ok(BodyStep::Data { consumed, .. }) => consumed,
                    Ok(BodyStep::More { consumed } | BodyStep::End { consumed }) => consumed,
                    Err(reject) => panic!("{reject:?}"),
                };
            }
            assert_eq!(trailers, *expected, "{}", input.escape_ascii());
            assert!(!expected.is_empty() || trailers.capacity() == 0);
        }
    }
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let mut trailers = Vec::new();
    let endless = [b"0\r\nA:", &vec![b'x'; 2 * TRAILER_BYTES_MAX][..]].concat();
    let refused = decoder.step_with_trailers(&endless, &mut trailers);
    assert_eq!(refused, Err(Reject::TRAILER_TOO_LARGE));
    assert_eq!(trailers.len(), TRAILER_BYTES_MAX);
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        invariants::body(&bytes);
    }

    #[test]
    fn invariants_of_near_chunks(
        text in "\u{2}([0-9a-f]{1,2}(;[a-z =]{0,6})?\r\n[a-z]{0,6}\r?\n?){0,6}0\r\n(A: b\r\n)?\r\n"
    ) {
        invariants::body(text.as_bytes());
    }

    #[test]
    fn framed_bodies_are_decoded_back(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6)
    ) {
        let mut framed = Vec::new();
        for chunk in &chunks {
            framed.extend_from_slice(format!("{:x};x\r\n", chunk.len()).as_bytes());
            framed.extend_from_slice(chunk);
            framed.extend_from_slice(b"\r\n");
        }
        framed.extend_from_slice(b"0\r\nA: b\r\n\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(framed.len())).collect();
        cuts.push(framed.len());
        cuts.sort_unstable();
        let mut decoder = BodyDecoder::new(BodyLength::Chunked);
        let (mut payload, mut at) = (Vec::new(), 0);
        for cut in cuts {
            loop {
                let input = &framed[at..cut];
                match decoder.step(input).expect("well-formed") {
                    BodyStep::Data { consumed, payload: span } => {
                        payload.extend_from_slice(&input[span]);
                        at += consumed;
                    }
                    BodyStep::More { consumed } | BodyStep::End { consumed } => {
                        at += consumed;
                        break;
                    }
                }
            }
        }
        prop_assert!(decoder.is_done());
        prop_assert_eq!(at, framed.len());
        prop_assert_eq!(payload, chunks.concat());
    }
}
