//! What must hold for any bytes whatever: the fuzz targets and the property tests call these. Each
//! panics if a promise was broken.

use crate::limits::Limits;
use crate::wire::field_section::FieldSection;
use crate::wire::fields::Fields;
use crate::wire::h3::error::H3ConnectionError;
use crate::wire::h3::frame;
use crate::wire::h3::qpack;
use crate::wire::h3::qpack::QpackScratch;
use crate::wire::h3::request_stream::{RequestStreamEvent, RequestStreamReceiver};
use crate::wire::h3::unidirectional::{UnidirectionalState, UnidirectionalStream};
use crate::wire::request_head::Version;

/// One field section: no field out of nothing, and what is decoded is the same when it is written
/// and decoded again.
pub fn section(bytes: &[u8]) {
    let mut fields = Vec::new();
    let mut strings = QpackScratch::default();
    let decoded = qpack::decode(bytes, &mut strings, |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
        Ok(())
    });
    assert!(fields.len() <= bytes.len());
    if decoded.is_err() {
        return;
    }
    let mut written = vec![0, 0];
    for (name, value) in &fields {
        qpack::push_field(name, value, &mut written);
    }
    let mut again = Vec::new();
    let decoded = qpack::decode(&written, &mut strings, |name, value| {
        again.push((name.to_vec(), value.to_vec()));
        Ok(())
    });
    assert_eq!(decoded, Ok(()));
    for (name, _) in &mut fields {
        name.make_ascii_lowercase();
    }
    assert_eq!(fields, again);
}

/// The stream of a request: what comes of it is the same however it is cut.
pub fn message(bytes: &[u8]) {
    for input in [bytes.to_vec(), made(bytes)] {
        let whole = transcript(&input, input.len().max(1));
        assert_eq!(whole, transcript(&input, 1), "byte by byte");
        assert_eq!(whole, transcript(&input, 7), "seven bytes at a time");
    }
}

/// A stream that goes one way: the same.
pub fn one_way(bytes: &[u8]) {
    for input in [bytes.to_vec(), [&[0, 4, 0][..], &made(bytes)].concat()] {
        let whole = heard(&input, input.len().max(1));
        assert_eq!(whole, heard(&input, 1), "byte by byte");
        assert_eq!(whole, heard(&input, 7), "seven bytes at a time");
    }
}

/// Frames with true lengths: type and length are a byte each.
fn made(bytes: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    let mut rest = bytes;
    while let Some(([kind, length], after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        frame::push_integer(u64::from(kind % 16), &mut made);
        frame::push_integer(payload.len() as u64, &mut made);
        made.extend_from_slice(payload);
    }
    made
}

/// What came of the stream of a request that arrives in parts of so many bytes, and ends.
pub fn transcript(input: &[u8], part_bytes: usize) -> Vec<String> {
    let mut receiver = RequestStreamReceiver::default();
    let mut seen: Vec<String> = Vec::new();
    for mut part in input.chunks(part_bytes) {
        loop {
            let shown = match receiver.receive(&mut part) {
                Ok(RequestStreamEvent::More) => break,
                Ok(RequestStreamEvent::Fields(fields)) => format!("fields {}", shown(fields)),
                Ok(RequestStreamEvent::Trailers(fields)) => format!("trailers {}", shown(fields)),
                Ok(RequestStreamEvent::Data(bytes)) => {
                    let text = bytes.escape_ascii().to_string();
                    // However it was cut.
                    match seen.last_mut() {
                        Some(last) if last.starts_with("data ") => last.push_str(&text),
                        _ => seen.push(format!("data {text}")),
                    }
                    continue;
                }
                Err(fatal) => {
                    seen.push(format!("{fatal:?}"));
                    return seen;
                }
            };
            seen.push(shown);
        }
        assert!(part.is_empty());
    }
    seen.push(format!(
        "{:?} {}",
        receiver.end(),
        receiver.take_idle_frames()
    ));
    seen
}

/// What a field section says.
fn shown(section: &[u8]) -> String {
    let mut request = FieldSection::default();
    request.begin(Version::Http3, &Limits::default(), true, false);
    let decoded = qpack::decode(section, &mut QpackScratch::default(), |name, value| {
        Ok(request.field(name, value)?)
    });
    if let Err(fatal) = decoded {
        return format!("{fatal:?}");
    }
    request.end();
    match request.head() {
        Ok(head) => {
            for (name, value) in Fields(head.fields.0) {
                assert!(!name.is_empty() && !value.contains(&b'\n'));
            }
            format!("{head:?}")
        }
        Err(reject) => format!("{}", reject.rule),
    }
}

/// What came of a stream that goes one way, in parts of so many bytes.
fn heard(input: &[u8], part_bytes: usize) -> (Result<bool, H3ConnectionError>, u32) {
    let mut control = UnidirectionalState::default();
    let mut inbound = UnidirectionalStream::default();
    let mut idle = 0;
    for part in input.chunks(part_bytes) {
        let heard = inbound.receive(&mut control, part);
        idle += inbound.take_idle_frames();
        if heard != Ok(true) {
            return (heard, idle);
        }
    }
    (Ok(true), idle)
}
