//! Reader of the response to an HTTP/2 check. Pure.

use crate::limits::{CHECK_FIELDS_MAX, CHECK_HEAD_BYTES_MAX};
use crate::upstream::check::reader::{CheckVerdict, ExpectedResponse};
use balancer::{CheckFailure, CheckOutcome};
use wire::field_section::FieldSection;
use wire::h2::hpack::HpackScratch;
use wire::h2::{H2ClientConnection, H2ClientEvent};
use wire::limits::HeadLimits;
use wire::request_head::Method;

/// Connection with the one request of a check. The request follows the preface at once (RFC 9113 §3.4).
pub(super) struct CheckH2Reader<'a> {
    verdict: CheckVerdict<'a>,
    method: Method,
    h2: H2ClientConnection<()>,
    section: FieldSection,
    strings: HpackScratch,
    limits: HeadLimits,
    /// Received beginning of an incomplete frame.
    rest: Vec<u8>,
    is_done: bool,
}

impl<'a> CheckH2Reader<'a> {
    /// Returns a connection with one request, the field block `block`.
    pub(super) fn new(expected: ExpectedResponse<'a>, block: &[u8]) -> CheckH2Reader<'a> {
        let mut h2 = H2ClientConnection::connect(CHECK_HEAD_BYTES_MAX);
        let method = if expected.is_head {
            Method::Head
        } else {
            Method::Get
        };
        h2.open_stream(block, method, true, ());
        CheckH2Reader {
            verdict: CheckVerdict::new(expected),
            method,
            h2,
            section: FieldSection::default(),
            strings: HpackScratch::default(),
            limits: HeadLimits {
                head_bytes: CHECK_HEAD_BYTES_MAX,
                fields: CHECK_FIELDS_MAX,
                ..HeadLimits::default()
            },
            rest: Vec::new(),
            is_done: false,
        }
    }

    /// Takes the bytes for the member.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.h2.out)
    }

    /// Returns the outcome, once known.
    pub(super) fn outcome(&self) -> Option<CheckOutcome> {
        self.verdict.outcome()
    }

    /// Returns true if no further bytes are needed.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes the end of the connection.
    pub(super) fn end(&mut self) {
        self.fail(CheckFailure::BadAnswer);
    }

    /// Ends the response. An outcome already known stays.
    fn fail(&mut self, failure: CheckFailure) {
        self.verdict.fail(failure);
        self.is_done = true;
    }

    /// Takes received bytes. `now_ms` comes from any monotonic clock.
    pub(super) fn feed(&mut self, bytes: &[u8], now_ms: u64) {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut input = &rest[..];
        while !self.is_done {
            let (section, strings) = (&mut self.section, &mut self.strings);
            let received = self
                .h2
                .receive(&mut input, section, strings, &self.limits, now_ms);
            match received {
                Ok(H2ClientEvent::More) => break,
                Ok(event) => self.take_event(event),
                Err(_) => self.fail(CheckFailure::BadAnswer),
            }
            if self.h2.take_unprocessed().is_some() {
                self.fail(CheckFailure::BadAnswer);
            }
        }
        self.rest = input.to_vec();
    }

    fn take_event(&mut self, event: H2ClientEvent<'_, ()>) {
        let ended = match event {
            H2ClientEvent::More | H2ClientEvent::Handled | H2ClientEvent::Interim { .. } => false,
            H2ClientEvent::Response { ended, .. } => {
                self.judge_head();
                ended
            }
            H2ClientEvent::Data { bytes, ended, .. } => {
                self.h2.release_capacity(STREAM, bytes.len());
                self.is_done = self.verdict.search(bytes);
                ended
            }
            H2ClientEvent::Trailers { .. } => true,
            H2ClientEvent::Failed { .. } => return self.fail(CheckFailure::BadAnswer),
        };
        if ended {
            self.fail(CheckFailure::Text);
        }
    }

    fn judge_head(&mut self) {
        match self.section.response_head(self.method) {
            Ok(head) => self.verdict.judge_status(head.status.0),
            Err(_) => self.fail(CheckFailure::BadAnswer),
        }
    }
}

/// Stream of the request.
const STREAM: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::h2::frame::{self, END_HEADERS, END_STREAM};

    const PASSED: CheckOutcome = CheckOutcome::Passed;

    fn failed(failure: CheckFailure) -> CheckOutcome {
        CheckOutcome::Failed(failure)
    }

    fn push(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        frame::header(bytes, payload.len(), kind, flags, stream);
        bytes.extend_from_slice(payload);
    }

    /// Returns SETTINGS, a head with the status, and content.
    fn response(status: u16, content: &[u8], flags: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, frame::SETTINGS, 0, 0, b"");
        let block = format!("\0\x07:status\x03{status}");
        push(
            &mut bytes,
            frame::HEADERS,
            END_HEADERS,
            STREAM,
            block.as_bytes(),
        );
        push(&mut bytes, frame::DATA, flags, STREAM, content);
        bytes
    }

    /// Reads a response in parts of `part` bytes, up to the end of the connection.
    fn read(expected: ExpectedResponse<'_>, response: &[u8], part: usize) -> CheckOutcome {
        let mut reader = CheckH2Reader::new(expected, b"\x82");
        for bytes in response.chunks(part) {
            reader.feed(bytes, 0);
        }
        reader.end();
        reader.outcome().unwrap()
    }

    #[test]
    fn responses_are_judged_at_every_split() {
        let get = ExpectedResponse {
            is_head: false,
            status: (200, 399),
            text: None,
        };
        let text = ExpectedResponse {
            text: Some("ready"),
            ..get
        };
        let head = ExpectedResponse {
            is_head: true,
            ..get
        };
        let mut announced = Vec::new();
        push(&mut announced, frame::SETTINGS, 0, 0, b"");
        let block = b"\0\x07:status\x03200\0\x0econtent-length\x019";
        let flags = END_HEADERS | END_STREAM;
        push(&mut announced, frame::HEADERS, flags, STREAM, block);
        let mut goaway = Vec::new();
        push(&mut goaway, frame::SETTINGS, 0, 0, b"");
        push(&mut goaway, frame::GOAWAY, 0, 0, &[0; 8]);
        let table = [
            (get, response(200, b"", END_STREAM), PASSED),
            (
                get,
                response(404, b"", END_STREAM),
                failed(CheckFailure::Status(404)),
            ),
            (
                get,
                response(101, b"", END_STREAM),
                failed(CheckFailure::BadAnswer),
            ),
            (
                get,
                b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
                failed(CheckFailure::BadAnswer),
            ),
            (head, announced.clone(), PASSED),
            (get, announced, failed(CheckFailure::BadAnswer)),
            (get, goaway, failed(CheckFailure::BadAnswer)),
            (get, Vec::new(), failed(CheckFailure::BadAnswer)),
            (text, response(200, b"all are ready", END_STREAM), PASSED),
            (
                text,
                response(200, b"all are read", END_STREAM),
                failed(CheckFailure::Text),
            ),
            (
                text,
                response(200, b"all are read", 0),
                failed(CheckFailure::BadAnswer),
            ),
            (
                text,
                response(500, b"ready", END_STREAM),
                failed(CheckFailure::Status(500)),
            ),
        ];
        for (expected, response, outcome) in &table {
            for part in 1..=response.len().max(1) {
                let judged = read(*expected, response, part);
                let shown = response.escape_ascii();
                assert_eq!(judged, *outcome, "{shown} in parts of {part}");
            }
        }
    }

    #[test]
    fn the_outcome_is_known_before_the_end() {
        let expected = ExpectedResponse {
            is_head: false,
            status: (200, 200),
            text: Some("ready"),
        };
        let mut reader = CheckH2Reader::new(expected, b"\x82");
        assert!(reader.take_output().ends_with(b"\x01\x82"));
        reader.feed(&response(200, b"ready", 0), 0);
        assert_eq!((reader.outcome(), reader.is_done()), (Some(PASSED), false));
        // The acknowledgement of SETTINGS.
        assert_eq!(reader.take_output(), b"\0\0\0\x04\x01\0\0\0\0");
        reader.feed(b"\0\0\0\0\x01\0\0\0\x01", 0);
        assert_eq!((reader.outcome(), reader.is_done()), (Some(PASSED), true));
    }
}
