//! Reader of the response to an HTTP/1.1 check. Pure.

use crate::limits::{
    CHECK_CONTENT_BYTES_MAX, CHECK_FIELDS_MAX, CHECK_HEAD_BYTES_MAX, CHECK_INTERIM_RESPONSES_MAX,
};
use balancer::{CheckFailure, CheckOutcome};
use wire::h1::body_decoder::{BodyDecoder, BodyStep};
use wire::h1::response_head::{ParsedResponse, ResponseHeadBounds, parse_response_head};
use wire::reject::Reject;
use wire::request_head::Method;

/// Reader of one response. The outcome is known as soon as the response cannot change the outcome. The
/// reader then still finds the end of the response, so that the member does not write to a closed
/// connection.
pub(super) struct CheckReader<'a> {
    verdict: CheckVerdict<'a>,
    phase: ReaderPhase,
    interim_responses: u32,
}

enum ReaderPhase {
    /// Bytes of an incomplete head, and the number of bytes already examined.
    Head(Vec<u8>, usize),
    /// Decoder of the framing; None if the content ends with the connection.
    Content(Option<BodyDecoder>),
    /// The response is complete, malformed or longer than the reader needs.
    End,
}

impl<'a> CheckReader<'a> {
    /// Returns a reader before the first byte.
    pub(super) fn new(expected: ExpectedResponse<'a>) -> CheckReader<'a> {
        CheckReader {
            verdict: CheckVerdict::new(expected),
            phase: ReaderPhase::Head(Vec::new(), 0),
            interim_responses: 0,
        }
    }

    /// Returns the outcome, once known.
    pub(super) fn outcome(&self) -> Option<CheckOutcome> {
        self.verdict.outcome()
    }

    /// Returns true if no further bytes are needed.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.phase, ReaderPhase::End)
    }

    /// Takes received bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        match &mut self.phase {
            ReaderPhase::Head(input, _) => {
                input.extend_from_slice(bytes);
                self.take_heads();
            }
            ReaderPhase::Content(_) => self.take_content(bytes),
            ReaderPhase::End => {}
        }
    }

    /// Takes the end of the connection.
    pub(super) fn end(&mut self) {
        let failure = match &self.phase {
            ReaderPhase::Content(None) => CheckFailure::Text,
            _ => CheckFailure::BadAnswer,
        };
        self.fail(failure);
    }

    /// Ends the response. An outcome already known stays.
    fn fail(&mut self, failure: CheckFailure) {
        self.verdict.fail(failure);
        self.phase = ReaderPhase::End;
    }

    /// Takes all complete heads up to the head of the final response.
    fn take_heads(&mut self) {
        let ReaderPhase::Head(input, scanned) =
            std::mem::replace(&mut self.phase, ReaderPhase::End)
        else {
            return;
        };
        if self.take_heads_of(input, scanned).is_err() {
            self.fail(CheckFailure::BadAnswer);
        }
    }

    fn take_heads_of(&mut self, mut input: Vec<u8>, mut scanned: usize) -> Result<(), Reject> {
        let method = if self.verdict.expected.is_head {
            Method::Head
        } else {
            Method::Get
        };
        loop {
            let parsed = parse_response_head(&input, &mut scanned, method, &HEAD_BOUNDS)?;
            let ParsedResponse::Complete { head, head_bytes } = parsed else {
                self.phase = ReaderPhase::Head(input, scanned);
                return Ok(());
            };
            let status = head.status.0;
            if !matches!(status, 100 | 102..200) {
                let framed = head.body.framed();
                self.verdict.judge_status(status);
                self.phase = ReaderPhase::Content(framed.map(BodyDecoder::new));
                self.take_content(&input[head_bytes..]);
                return Ok(());
            }
            self.interim_responses += 1;
            if self.interim_responses > CHECK_INTERIM_RESPONSES_MAX {
                return Err(Reject::UPSTREAM_INTERIM_FLOOD);
            }
            input.drain(..head_bytes);
            scanned = 0;
        }
    }

    fn take_content(&mut self, mut bytes: &[u8]) {
        while let ReaderPhase::Content(decoder) = &mut self.phase {
            let step = match decoder {
                Some(decoder) => decoder.step(bytes),
                None if bytes.is_empty() => return,
                None => Ok(BodyStep::Data {
                    consumed: bytes.len(),
                    payload: 0..bytes.len(),
                }),
            };
            match step {
                Ok(BodyStep::Data { consumed, payload }) => {
                    if self.verdict.search(&bytes[payload]) {
                        self.phase = ReaderPhase::End;
                    }
                    bytes = &bytes[consumed..];
                }
                Ok(BodyStep::More { .. }) => return,
                Ok(BodyStep::End { .. }) => return self.fail(CheckFailure::Text),
                Err(_) => return self.fail(CheckFailure::BadAnswer),
            }
        }
    }
}

/// Bounds of the head of a response.
const HEAD_BOUNDS: ResponseHeadBounds = ResponseHeadBounds {
    head_bytes: CHECK_HEAD_BYTES_MAX,
    fields: CHECK_FIELDS_MAX,
};

/// Response expected by a check.
#[derive(Copy, Clone)]
pub(super) struct ExpectedResponse<'a> {
    /// True for the response to HEAD.
    pub(super) is_head: bool,
    /// Smallest and largest status.
    pub(super) status: (u16, u16),
    /// Text in the content.
    pub(super) text: Option<&'a str>,
}

/// Comparison of a response with the expected response.
pub(super) struct CheckVerdict<'a> {
    pub(super) expected: ExpectedResponse<'a>,
    outcome: Option<CheckOutcome>,
    /// Number of content bytes read.
    length: usize,
    /// Last content bytes, which may be the beginning of the expected text.
    tail: Vec<u8>,
}

impl<'a> CheckVerdict<'a> {
    /// Returns a verdict before the first byte.
    pub(super) fn new(expected: ExpectedResponse<'a>) -> CheckVerdict<'a> {
        CheckVerdict {
            expected,
            outcome: None,
            length: 0,
            tail: Vec::new(),
        }
    }

    /// Returns the outcome, once known.
    pub(super) fn outcome(&self) -> Option<CheckOutcome> {
        self.outcome
    }

    /// Records a failure. An outcome already known stays.
    pub(super) fn fail(&mut self, failure: CheckFailure) {
        self.outcome.get_or_insert(CheckOutcome::Failed(failure));
    }

    /// Compares the status of the final response.
    pub(super) fn judge_status(&mut self, status: u16) {
        let (least, most) = self.expected.status;
        if !(least..=most).contains(&status) {
            self.fail(CheckFailure::Status(status));
        } else if self.expected.text.is_none() {
            self.outcome = Some(CheckOutcome::Passed);
        }
    }

    /// Searches the text in a part of the content. Returns true if no further content is searched.
    pub(super) fn search(&mut self, payload: &[u8]) -> bool {
        let left = CHECK_CONTENT_BYTES_MAX - self.length;
        let payload = &payload[..payload.len().min(left)];
        self.length += payload.len();
        if let (None, Some(text)) = (self.outcome, self.expected.text) {
            self.tail.extend_from_slice(payload);
            if contains(&self.tail, text.as_bytes()) {
                self.outcome = Some(CheckOutcome::Passed);
            }
            let kept = text.len().saturating_sub(1).min(self.tail.len());
            self.tail.drain(..self.tail.len() - kept);
        }
        let is_enough = self.length == CHECK_CONTENT_BYTES_MAX;
        if is_enough {
            self.fail(CheckFailure::Text);
        }
        is_enough
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: CheckOutcome = CheckOutcome::Passed;

    fn failed(failure: CheckFailure) -> CheckOutcome {
        CheckOutcome::Failed(failure)
    }

    /// Reads a response in parts of `part` bytes, up to the end of the connection.
    fn read(expected: ExpectedResponse<'_>, response: &[u8], part: usize) -> CheckOutcome {
        let mut reader = CheckReader::new(expected);
        for bytes in response.chunks(part) {
            reader.feed(bytes);
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
        let head = ExpectedResponse {
            is_head: true,
            ..get
        };
        let text = ExpectedResponse {
            text: Some("ready"),
            ..get
        };
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let table = [
            (get, "HTTP/1.1 200 OK\r\n\r\n".to_owned(), PASSED),
            (
                get,
                "HTTP/1.0 302 Found\r\nContent-Length: 9\r\n\r\n".into(),
                PASSED,
            ),
            (
                get,
                "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 None\r\n\r\n".into(),
                PASSED,
            ),
            (
                get,
                "HTTP/1.1 404 No\r\n\r\n".into(),
                failed(CheckFailure::Status(404)),
            ),
            (
                get,
                "HTTP/1.1 101 Up\r\n\r\n".into(),
                failed(CheckFailure::Status(101)),
            ),
            (
                get,
                "HTTP/1.1 200 OK\r\nContent-Le".into(),
                failed(CheckFailure::BadAnswer),
            ),
            (
                get,
                "SSH-2.0-OpenSSH_9.2\r\n".into(),
                failed(CheckFailure::BadAnswer),
            ),
            (get, String::new(), failed(CheckFailure::BadAnswer)),
            (
                get,
                "HTTP/1.1 103 Early\r\n\r\n".repeat(40),
                failed(CheckFailure::BadAnswer),
            ),
            (
                head,
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".into(),
                PASSED,
            ),
            (text, "HTTP/1.1 200 OK\r\n\r\nall are ready".into(), PASSED),
            (
                text,
                "HTTP/1.1 200 OK\r\n\r\nall are read".into(),
                failed(CheckFailure::Text),
            ),
            (
                text,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready".into(),
                PASSED,
            ),
            (
                text,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nread".into(),
                failed(CheckFailure::BadAnswer),
            ),
            (
                text,
                format!("{chunked}2\r\nre\r\n3\r\nady\r\n0\r\n\r\n"),
                PASSED,
            ),
            (
                text,
                format!("{chunked}2\r\nre\r\n0\r\n\r\nready"),
                failed(CheckFailure::Text),
            ),
            (
                text,
                format!("{chunked}x\r\nready"),
                failed(CheckFailure::BadAnswer),
            ),
            (
                text,
                "HTTP/1.1 500 Bad\r\n\r\nready".into(),
                failed(CheckFailure::Status(500)),
            ),
        ];
        for (expected, response, outcome) in &table {
            for part in 1..=response.len().max(1) {
                let judged = read(*expected, response.as_bytes(), part);
                assert_eq!(judged, *outcome, "{response:?} in parts of {part}");
            }
        }
    }

    #[test]
    fn only_the_first_64_kib_of_the_content_are_searched() {
        let text = ExpectedResponse {
            is_head: false,
            status: (200, 200),
            text: Some("ready"),
        };
        for (before, outcome) in [
            (CHECK_CONTENT_BYTES_MAX - 5, PASSED),
            (CHECK_CONTENT_BYTES_MAX - 4, failed(CheckFailure::Text)),
        ] {
            let content = format!("HTTP/1.1 200 OK\r\n\r\n{}ready", " ".repeat(before));
            for part in [1_000, usize::MAX] {
                assert_eq!(read(text, content.as_bytes(), part), outcome);
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
        let mut reader = CheckReader::new(expected);
        reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nready");
        assert_eq!((reader.outcome(), reader.is_done()), (Some(PASSED), false));
        reader.feed(b"...");
        assert_eq!((reader.outcome(), reader.is_done()), (Some(PASSED), true));
    }
}
