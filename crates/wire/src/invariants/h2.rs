//! Invariants of HTTP/2 for arbitrary input. The fuzz targets and the property tests share the functions,
//! which panic on a violation.

use crate::field_section::FieldSection;
use crate::fields::Fields;
use crate::h2::connection::{H2Connection, H2Event, remote_state};
use crate::h2::frame;
use crate::h2::frame::{H2FrameHeader, HEADER_BYTES, PREFACE};
use crate::h2::hpack::{HpackDecoder, HpackScratch, STATIC};
use crate::h2::settings::{FRAME_BYTES, TABLE_BYTES};
use crate::limits::{H2_STREAMS_MAX, HeadLimits};
use crate::priority::Priority;

/// Returns the number of cases of an HTTP/2 property test: the environment variable H2_CASES, or 256.
pub fn cases() -> u32 {
    let value = std::env::var("H2_CASES").ok();
    value.and_then(|cases| cases.parse().ok()).unwrap_or(256)
}

/// Checks the HPACK decoder with a sequence of field blocks, each behind a length byte: the dynamic table
/// stays within its bounds, and the length of the input bounds the number of fields.
pub fn hpack(bytes: &[u8]) {
    let mut decoder = HpackDecoder::default();
    let mut strings = HpackScratch::default();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first() {
        let (block, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let mut fields = 0;
        let decoded = decoder.decode(block, &mut strings, |name, value| {
            fields += 1;
            let bytes_max = (block.len() * 2).max(TABLE_BYTES as usize);
            assert!(name.len() + value.len() <= bytes_max + STATIC.len());
            Ok(())
        });
        assert!(fields <= block.len());
        assert!(decoder.held_bytes() <= 8 * TABLE_BYTES as usize);
        if decoded.is_err() {
            return;
        }
    }
}

/// Frames of a client, both raw and built from the bytes: the events are independent of the split, and all
/// output consists of frames.
pub fn frames(bytes: &[u8]) {
    let raw = [PREFACE, &b"\0\0\0\x04\0\0\0\0\0"[..], bytes].concat();
    for input in [bytes, &raw, &built_frames(bytes)] {
        let whole = transcript(input, input.len().max(1));
        assert_eq!(whole, transcript(input, 1), "byte by byte");
        assert_eq!(whole, transcript(input, 7), "seven bytes at a time");
    }
}

/// Builds frames with correct lengths: type, flags, stream and length take a byte each.
fn built_frames(bytes: &[u8]) -> Vec<u8> {
    let mut made = PREFACE.to_vec();
    frame::header(&mut made, 0, frame::SETTINGS, 0, 0);
    let mut rest = bytes;
    while let Some(([kind, flags, stream, length], after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let stream = u32::from(stream & 15);
        frame::header(&mut made, payload.len(), kind % 18, *flags, stream);
        made.extend_from_slice(payload);
    }
    made
}

/// Returns the events and the output for an input that arrives in parts of `part_bytes` bytes.
pub fn transcript(input: &[u8], part_bytes: usize) -> (Vec<String>, Vec<u8>) {
    let mut driver = H2TestDriver::new();
    for part in input.chunks(part_bytes) {
        if !driver.receive(part) {
            break;
        }
    }
    (driver.events, driver.sent)
}

/// Driver that answers every request and records all events.
struct H2TestDriver {
    h2: H2Connection<u32>,
    request: FieldSection,
    strings: HpackScratch,
    rest: Vec<u8>,
    events: Vec<String>,
    sent: Vec<u8>,
}

impl H2TestDriver {
    fn new() -> H2TestDriver {
        H2TestDriver {
            h2: H2Connection::new(HeadLimits::default().head_bytes),
            request: FieldSection::default(),
            strings: HpackScratch::default(),
            rest: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Handles all events in the received bytes. Returns false once the connection has ended.
    fn receive(&mut self, part: &[u8]) -> bool {
        self.rest.extend_from_slice(part);
        let rest = std::mem::take(&mut self.rest);
        let mut input = &rest[..];
        let limits = HeadLimits::default();
        loop {
            let H2TestDriver {
                h2,
                request,
                strings,
                ..
            } = self;
            let event = h2.receive(&mut input, request, strings, &limits, 0);
            let goes_on = match event {
                Ok(H2Event::More) => {
                    self.rest = input.to_vec();
                    return true;
                }
                Ok(event) => {
                    self.handle(event);
                    true
                }
                Err(fatal) => {
                    self.events.push(format!("{fatal:?}"));
                    self.h2.goaway(fatal.code, fatal.reason);
                    false
                }
            };
            self.collect_output();
            if !goes_on {
                return false;
            }
        }
    }

    fn handle(&mut self, event: H2Event<'_, u32>) {
        match event {
            H2Event::More | H2Event::Handled => {}
            H2Event::GoawayAcknowledged => self.events.push("GOAWAY acknowledged".into()),
            H2Event::Head { id, ended } => self.answer(id, ended),
            H2Event::Trailers { id } => {
                let trailers = self.request.trailers();
                let fault = self.request.fault().map(|reject| reject.rule);
                let text = format!("{id} trailers {} {fault:?}", trailers.escape_ascii());
                self.events.push(text);
                self.end(id);
            }
            H2Event::Reset { id, work, .. } => {
                assert_eq!(id, work);
                self.events.push(format!("{id} reset"));
            }
            H2Event::Data { id, bytes, ended } => {
                self.h2.release_capacity(id, bytes.len());
                let text = format!("{id} data {}", bytes.escape_ascii());
                // Adjacent parts are joined, which removes the dependence on the split.
                match self.events.last_mut() {
                    Some(last) if last.starts_with(&format!("{id} data ")) => {
                        last.push_str(&bytes.escape_ascii().to_string());
                    }
                    _ => self.events.push(text),
                }
                if ended {
                    self.end(id);
                }
            }
        }
        assert!(self.h2.open() <= H2_STREAMS_MAX);
    }

    /// Answers a request at the end of its body.
    fn end(&mut self, id: u32) {
        self.events.push(format!("{id} ended"));
        self.h2.head(id, b"\x88", true);
        assert_eq!(self.h2.finish(id), Some(id));
    }

    /// Answers in one of three ways, chosen by the stream identifier.
    fn answer(&mut self, id: u32, ended: bool) {
        let head = self.request.head();
        let shown = match &head {
            Ok(head) => {
                for (name, value) in Fields(head.fields.0) {
                    assert!(!name.is_empty() && !value.contains(&b'\n'));
                }
                format!("{id} {head:?}")
            }
            Err(reject) => format!("{id} {}", reject.rule),
        };
        let body = head.map(|head| head.body);
        self.events.push(format!("{shown} {ended}"));
        let priority = self.h2.priority_of(id, self.request.priority());
        match body {
            Err(_) if id.is_multiple_of(3) => {
                let _ = self
                    .h2
                    .refuse(id, crate::h2::H2ErrorCode::PROTOCOL_ERROR, 0);
            }
            Ok(body) if !ended || id % 3 == 1 => {
                self.h2.accept(id, remote_state(body, ended), priority, id);
                if let Some(stream) = self.h2.stream(id) {
                    stream.ready = true;
                }
            }
            _ if self.h2.fits_at_once(4) => {
                self.h2.head(id, b"\x88", false);
                self.h2.body_follows(id, 4);
                self.h2.out.extend_from_slice(b"body");
                self.h2.finish_unaccepted(id, ended);
            }
            _ => {
                self.h2.head(id, b"\x88", true);
                self.h2.finish_unaccepted(id, ended);
            }
        }
        assert!(priority.urgency <= 7 || priority == Priority::default());
    }

    /// Collects the output and checks that the output consists of frames.
    fn collect_output(&mut self) {
        let out = std::mem::take(&mut self.h2.out);
        let mut rest = &out[..];
        while let Some(header) = rest.first_chunk::<HEADER_BYTES>().map(H2FrameHeader::parse) {
            assert!(header.length <= FRAME_BYTES as usize && header.kind <= frame::CONTINUATION);
            rest = rest
                .get(HEADER_BYTES + header.length..)
                .expect("a whole frame");
        }
        assert!(rest.is_empty());
        self.sent.extend_from_slice(&out);
    }
}
