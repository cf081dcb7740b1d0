//! Verdict on the response to an HTTP check, over any version of HTTP. Pure.

use crate::limits::CHECK_CONTENT_BYTES_MAX;
use balancer::{CheckFailure, CheckOutcome};

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
