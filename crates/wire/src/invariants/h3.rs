//! Invariants of HTTP/3 for arbitrary input. The fuzz targets and the property tests share the functions,
//! which panic on a violation.

use crate::field_section::{FieldSection, SectionKind};
use crate::fields::Fields;
use crate::h3::error::H3ConnectionError;
use crate::h3::frame;
use crate::h3::qpack;
use crate::h3::qpack::QpackScratch;
use crate::h3::request_stream::{RequestStreamEvent, RequestStreamReceiver};
use crate::h3::unidirectional::{UnidirectionalState, UnidirectionalStream};
use crate::limits::HeadLimits;
use crate::request_head::Version;

/// Checks the QPACK decoder: the number of fields is at most the length of the input, and encoding and
/// decoding the fields again changes nothing.
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

/// Checks the receiver of request streams: the events are independent of the split.
pub fn message(bytes: &[u8]) {
    for input in [bytes.to_vec(), built_frames(bytes)] {
        let whole = transcript(&input, input.len().max(1));
        assert_eq!(whole, transcript(&input, 1), "byte by byte");
        assert_eq!(whole, transcript(&input, 7), "seven bytes at a time");
    }
}

/// Checks the receiver of unidirectional streams: the result is independent of the split.
pub fn one_way(bytes: &[u8]) {
    for input in [
        bytes.to_vec(),
        [&[0, 4, 0][..], &built_frames(bytes)].concat(),
    ] {
        let whole = unidirectional_result(&input, input.len().max(1));
        assert_eq!(whole, unidirectional_result(&input, 1), "byte by byte");
        assert_eq!(
            whole,
            unidirectional_result(&input, 7),
            "seven bytes at a time"
        );
    }
}

/// Builds frames with correct lengths: type and length take a byte each.
fn built_frames(bytes: &[u8]) -> Vec<u8> {
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

/// Returns the events of a request stream that arrives in parts of `part_bytes` bytes and then ends.
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
                    // Adjacent parts are joined, which removes the dependence on the split.
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

/// Returns the request head of a field section as text.
fn shown(section: &[u8]) -> String {
    let mut request = FieldSection::default();
    request.begin(
        Version::Http3,
        &HeadLimits::default(),
        true,
        SectionKind::Request,
    );
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

/// Returns the result of a unidirectional stream that arrives in parts of `part_bytes` bytes.
fn unidirectional_result(
    input: &[u8],
    part_bytes: usize,
) -> (Result<bool, H3ConnectionError>, u32) {
    let mut control = UnidirectionalState::default();
    let mut inbound = UnidirectionalStream::default();
    let mut idle = 0;
    for part in input.chunks(part_bytes) {
        let result = inbound.receive(&mut control, part);
        idle += inbound.take_idle_frames();
        if result != Ok(true) {
            return (result, idle);
        }
    }
    (Ok(true), idle)
}
