//! Invariants of HTTP/2 in the role of a client for arbitrary input of a server. The fuzz target and the property
//! tests share the functions, which panic on a violation.

use crate::field_section::FieldSection;
use crate::fields::Fields;
use crate::h2::frame::{self, H2FrameHeader, HEADER_BYTES, PREFACE};
use crate::h2::hpack::HpackScratch;
use crate::h2::settings::FRAME_BYTES;
use crate::h2::{H2ClientConnection, H2ClientEvent};
use crate::limits::{HeadLimits, PROXY_FIELDS_MAX, PROXY_HEAD_BYTES_MAX};
use crate::request_head::Method;

/// Requests of the connection in a [`transcript`]: stream, method, and true for a request without a body. The
/// request with a body does not end.
pub const REQUESTS: [(u32, Method, bool); 4] = [
    (1, Method::Get, true),
    (3, Method::Head, true),
    (5, Method::Post, false),
    (7, Method::Get, true),
];

/// Frames of a server, both raw and built from the bytes: the events are independent of the split, and all output
/// consists of frames.
pub fn frames(bytes: &[u8]) {
    let raw = [&b"\0\0\0\x04\0\0\0\0\0"[..], bytes].concat();
    for input in [bytes, &raw, &built_frames(bytes)] {
        let whole = transcript(input, input.len().max(1));
        assert_eq!(whole, transcript(input, 1), "byte by byte");
        assert_eq!(whole, transcript(input, 7), "seven bytes at a time");
    }
}

/// Builds frames with correct lengths: type, flags, stream and length take a byte each.
fn built_frames(bytes: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
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

/// Returns the events and the output for an input that arrives in parts of `part_bytes` bytes, after
/// [`REQUESTS`].
pub fn transcript(input: &[u8], part_bytes: usize) -> (Vec<String>, Vec<u8>) {
    let mut driver = H2ClientTestDriver::new();
    for part in input.chunks(part_bytes) {
        if !driver.receive(part) {
            break;
        }
    }
    (driver.events, driver.sent)
}

/// Driver that records all events.
struct H2ClientTestDriver {
    h2: H2ClientConnection<u32>,
    section: FieldSection,
    strings: HpackScratch,
    limits: HeadLimits,
    rest: Vec<u8>,
    events: Vec<String>,
    sent: Vec<u8>,
}

impl H2ClientTestDriver {
    fn new() -> H2ClientTestDriver {
        let mut h2 = H2ClientConnection::connect(PROXY_HEAD_BYTES_MAX);
        for (id, method, ended) in REQUESTS {
            assert!(h2.can_open());
            assert_eq!(h2.open_stream(b"\x82", method, ended, id), id);
        }
        h2.out.drain(..PREFACE.len());
        H2ClientTestDriver {
            h2,
            section: FieldSection::default(),
            strings: HpackScratch::default(),
            limits: HeadLimits {
                head_bytes: PROXY_HEAD_BYTES_MAX,
                fields: PROXY_FIELDS_MAX,
                ..HeadLimits::default()
            },
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
        loop {
            let H2ClientTestDriver {
                h2,
                section,
                strings,
                limits,
                ..
            } = self;
            let event = h2.receive(&mut input, section, strings, limits, 0);
            let goes_on = match event {
                Ok(H2ClientEvent::More) => {
                    self.rest = input.to_vec();
                    return true;
                }
                Ok(event) => {
                    self.handle(event);
                    true
                }
                Err(error) => {
                    self.events.push(format!("{error:?}"));
                    self.h2.close(error.code, error.reason);
                    false
                }
            };
            while let Some(id) = self.h2.take_unprocessed() {
                self.events.push(format!("{id} unprocessed"));
            }
            self.collect_output();
            if !goes_on {
                return false;
            }
        }
    }

    fn handle(&mut self, event: H2ClientEvent<'_, u32>) {
        match event {
            H2ClientEvent::More | H2ClientEvent::Handled => {}
            H2ClientEvent::Interim { work } => self.record_head(work, false),
            H2ClientEvent::Response { work, ended } => self.record_head(work, ended),
            H2ClientEvent::Data { work, bytes, ended } => {
                self.h2.release_capacity(work, bytes.len());
                let text = bytes.escape_ascii().to_string();
                // Adjacent parts are joined, which removes the dependence on the split.
                match self.events.last_mut() {
                    Some(last) if last.starts_with(&format!("{work} data ")) => {
                        last.push_str(&text)
                    }
                    _ => self.events.push(format!("{work} data {text}")),
                }
                if ended {
                    self.events.push(format!("{work} ended"));
                }
            }
            H2ClientEvent::Trailers { work } => {
                let trailers = self.section.trailers().escape_ascii().to_string();
                self.events.push(format!("{work} trailers {trailers}"));
            }
            H2ClientEvent::Failed { work, failure } => {
                self.events.push(format!("{work} {failure:?}"));
            }
        }
        assert!(self.h2.open() <= REQUESTS.len());
    }

    /// Records a head, which must be valid.
    fn record_head(&mut self, id: u32, ended: bool) {
        let (_, method, _) = REQUESTS[id as usize / 2];
        let head = self.section.response_head(method).expect("a valid head");
        for (name, value) in Fields(head.fields.0) {
            assert!(!name.is_empty() && !value.contains(&b'\n'));
        }
        let fields = head.fields.0.escape_ascii();
        let text = format!("{id} {} {:?} {fields}", head.status.0, head.body);
        self.events.push(text);
        if ended {
            self.events.push(format!("{id} ended"));
        }
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
