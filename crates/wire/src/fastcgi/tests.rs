//! Tests of FastCGI records: conversations, and invariants of arbitrary ones.

use super::*;
use crate::invariants;
use proptest::prelude::*;

/// Builds a record with padding, as a backend would send it.
fn record(kind: u8, id: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let mut record = vec![1, kind, 0, id, high, low, padding, 0];
    record.extend_from_slice(content);
    record.resize(record.len() + usize::from(padding), 0xaa);
    record
}

fn conversation() -> Vec<u8> {
    [
        record(STDERR, 1, b"oh\nno\n", 2),
        record(UNKNOWN_TYPE, 0, &[99, 0, 0, 0, 0, 0, 0, 0], 0),
        record(STDOUT, 1, b"Content-Type: a/b\n\n", 5),
        record(STDOUT, 1, b"body", 0),
        record(STDOUT, 1, b"", 0),
        record(STDERR, 1, b"", 3),
        record(END_REQUEST, 1, &[0; 8], 7),
    ]
    .concat()
}

/// Standard output, standard error, the end, and the number of bytes consumed.
type Decoded = (Vec<u8>, Vec<u8>, Option<FastCgiEnd>, usize);

fn decode(bytes: &[u8], part_bytes: usize) -> Result<Decoded, MalformedRecord> {
    decode_with(FastCgiDecoder::default(), bytes, part_bytes)
}

fn decode_with(
    mut decoder: FastCgiDecoder,
    bytes: &[u8],
    part_bytes: usize,
) -> Result<Decoded, MalformedRecord> {
    let mut at = 0;
    let (mut output, mut words) = (Vec::new(), Vec::new());
    loop {
        let window = &bytes[at..bytes.len().min(at + part_bytes)];
        match decoder.step(window)? {
            FastCgiStep::Stdout { consumed, part } => {
                output.extend_from_slice(&window[part]);
                at += consumed;
            }
            FastCgiStep::Stderr { consumed, part } => {
                words.extend_from_slice(&window[part]);
                at += consumed;
            }
            FastCgiStep::End { consumed, end } => {
                return Ok((output, words, Some(end), at + consumed));
            }
            FastCgiStep::More => {
                at += window.len();
                if at == bytes.len() {
                    return Ok((output, words, None, at));
                }
            }
        }
    }
}

#[test]
fn records_are_decoded_at_every_split_point() {
    let bytes = conversation();
    let output = b"Content-Type: a/b\n\nbody".to_vec();
    let whole = (
        output,
        b"oh\nno\n".to_vec(),
        Some(FastCgiEnd::Complete(0)),
        bytes.len(),
    );
    for part_bytes in 1..=bytes.len() {
        assert_eq!(
            decode(&bytes, part_bytes),
            Ok(whole.clone()),
            "{part_bytes} at a time"
        );
    }
    for cut in 0..bytes.len() {
        let (.., end, used) = decode(&bytes[..cut], cut.max(1)).unwrap();
        assert_eq!((end, used), (None, cut), "cut at {cut}");
    }
    // Bytes behind the end belong to the next request.
    let twice = [bytes.clone(), bytes.clone()].concat();
    assert_eq!(decode(&twice, twice.len()).unwrap().3, bytes.len());
}

#[test]
fn records_of_an_earlier_request_are_skipped() {
    let mut out = Vec::new();
    let mut params = FastCgiRequestEncoder::begin(true, &mut out);
    params.add(b"A", &[&[1; 300]]);
    params.end();
    push_input(1, b"body", &mut out);
    push_input(1, b"", &mut out);
    let first = out.clone();
    renumber(&mut out, 0x0203);
    let ids = |records: &[u8]| {
        let (mut at, mut ids) = (0, Vec::new());
        while at < records.len() {
            let length = u16::from_be_bytes([records[at + 4], records[at + 5]]);
            ids.push(u16::from_be_bytes([records[at + 2], records[at + 3]]));
            at += HEADER_BYTES + usize::from(length) + usize::from(records[at + 6]);
        }
        ids
    };
    assert_eq!(ids(&first), [1; 5]);
    assert_eq!(ids(&out), [0x0203; 5]);
    renumber(&mut out, 1);
    assert_eq!(out, first);

    // Records of an earlier request are skipped at every position.
    let stray = [
        record(STDOUT, 1, b"stray", 3),
        record(STDERR, 1, b"stray\n", 0),
    ]
    .concat();
    let ours = [record(STDOUT, 2, b"ours", 0), record(STDERR, 2, b"word", 1)].concat();
    let end = record(END_REQUEST, 2, &[0; 8], 0);
    let all = [&stray[..], &ours, &stray, &end].concat();
    let second = || FastCgiDecoder::new(2, true);
    for part_bytes in 1..=all.len() {
        let decoded = decode_with(second(), &all, part_bytes);
        let expected = (b"ours".to_vec(), b"word".to_vec());
        let expected = (
            expected.0,
            expected.1,
            Some(FastCgiEnd::Complete(0)),
            all.len(),
        );
        assert_eq!(decoded, Ok(expected), "{part_bytes} at a time");
    }
    let other_end = record(END_REQUEST, 1, &[0; 8], 0);
    for part_bytes in 1..=other_end.len() {
        let decoded = decode_with(second(), &other_end, part_bytes).unwrap();
        assert_eq!(
            decoded.2,
            Some(FastCgiEnd::OtherRequest),
            "{part_bytes} at a time"
        );
    }
    let of_none = record(STDOUT, 0, b"x", 0);
    assert_eq!(decode_with(second(), &of_none, 99), Err(MalformedRecord));
}

#[test]
fn malformed_records_are_refused() {
    let with = |at: usize, byte: u8| {
        let mut record = record(STDOUT, 1, b"x", 0);
        record[at] = byte;
        decode(&record, 99)
    };
    assert!(with(0, 1).is_ok());
    assert_eq!(with(0, 2), Err(MalformedRecord));
    for kind in [0, BEGIN_REQUEST, 2, PARAMS, STDIN, 8, 9, 12, 255] {
        assert_eq!(with(1, kind), Err(MalformedRecord), "type {kind}");
    }
    assert_eq!(with(3, 2), Err(MalformedRecord));
    assert_eq!(
        decode(&record(END_REQUEST, 1, &[0; 7], 0), 99),
        Err(MalformedRecord)
    );
    assert_eq!(
        decode(b"HTTP/1.1 400 Bad Request\r\n", 99),
        Err(MalformedRecord)
    );
}

#[test]
fn protocol_status_becomes_the_result() {
    for (status, end) in [
        (0, FastCgiEnd::Complete(9)),
        (1, FastCgiEnd::Unable),
        (2, FastCgiEnd::Overloaded),
        (3, FastCgiEnd::Unable),
    ] {
        let record = record(END_REQUEST, 1, &[0, 0, 0, 9, status, 0, 0, 0], 0);
        assert_eq!(decode(&record, 99).unwrap().2, Some(end));
    }
    let long = record(END_REQUEST, 1, &[0; 20], 4);
    assert_eq!(
        decode(&long, 3),
        Ok((vec![], vec![], Some(FastCgiEnd::Complete(0)), long.len()))
    );
}

#[test]
fn a_request_is_encoded_by_the_specification() {
    let mut out = Vec::new();
    let mut params = FastCgiRequestEncoder::begin(true, &mut out);
    params.add(b"A", &[b"b"]);
    params.add(b"LONG", &[&[b'x'; 150], b"", &[b'x'; 50]]);
    params.end();
    push_input(1, b"hi", &mut out);
    push_input(1, b"", &mut out);
    let mut expected = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
    expected.extend_from_slice(&[1, 4, 0, 1, 0, 4 + 5 + 204, 0, 0, 1, 1, b'A', b'b']);
    expected.extend_from_slice(&[4, 0x80, 0, 0, 200]);
    expected.extend_from_slice(b"LONG");
    expected.extend_from_slice(&[b'x'; 200]);
    expected.extend_from_slice(&[1, 4, 0, 1, 0, 0, 0, 0]);
    expected.extend_from_slice(&[1, 5, 0, 1, 0, 2, 0, 0, b'h', b'i', 1, 5, 0, 1, 0, 0, 0, 0]);
    assert_eq!(out, expected);
}

#[test]
fn variables_fill_no_record_or_several() {
    let mut out = Vec::new();
    FastCgiRequestEncoder::begin(false, &mut out).end();
    assert_eq!(out[HEADER_BYTES * 2..], [1, 4, 0, 1, 0, 0, 0, 0]);
    let mut out = Vec::new();
    let mut params = FastCgiRequestEncoder::begin(false, &mut out);
    params.add(b"A", &[&[b'x'; CONTENT_BYTES_MAX]]);
    params.end();
    let (mut at, mut pairs, mut lengths) = (HEADER_BYTES * 2, Vec::new(), Vec::new());
    while at < out.len() {
        assert_eq!(out[at..at + 4], [1, 4, 0, 1]);
        let length = usize::from(u16::from_be_bytes([out[at + 4], out[at + 5]]));
        at += HEADER_BYTES + length;
        pairs.extend_from_slice(&out[at - length..at]);
        lengths.push(length);
    }
    assert_eq!(lengths, [CONTENT_BYTES_MAX, 1 + 4 + 1, 0]);
    assert_eq!(pairs[..6], [1, 0x80, 0, 0xff, 0xff, b'A']);
    assert!(pairs[6..].iter().all(|byte| *byte == b'x'));
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::records(&bytes);
    }

    #[test]
    fn invariants_of_near_records(
        records in proptest::collection::vec((3..8u8, 1..4u8, 0..12usize, 0..4u8), 0..6)
    ) {
        let all: Vec<_> = records.iter().map(|it| record(it.0, it.1, &vec![0; it.2], it.3)).collect();
        invariants::records(&all.concat());
    }
}
