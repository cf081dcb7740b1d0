//! Why a certificate wasn't had, in words for the operator, and what of it the robot acts on.

use std::fmt;

use crate::limits::ACME_PROBLEM_CHARS_MAX;
use crate::wire::json::Json;

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcmeError {
    what: String,
    /// The directory's type of problem, without `urn:ietf:params:acme:error:` (RFC 8555 §6.7).
    problem: Option<String>,
    /// Seconds that the directory asked to be left alone.
    pub(super) retry_after: Option<u64>,
    /// The server is stopping, or another configuration has come: nothing is wrong.
    pub(super) stopped: bool,
    /// The directory answered, and refused; as against one that can't be reached.
    pub(super) refused: bool,
}

impl AcmeError {
    /// `what` is half a sentence.
    pub(super) fn new(what: impl Into<String>) -> AcmeError {
        AcmeError {
            what: what.into(),
            problem: None,
            retry_after: None,
            stopped: false,
            refused: false,
        }
    }

    /// The server is stopping.
    pub(super) fn stopped() -> AcmeError {
        AcmeError {
            stopped: true,
            ..AcmeError::new("stopped")
        }
    }

    /// A problem document (RFC 9457), or whatever came instead, of this status.
    pub(super) fn problem(status: u16, document: Option<&Json>) -> AcmeError {
        let text = document.map_or_else(|| format!("status {status}"), words);
        let problem = document.and_then(|it| it.text("type")).map(short_type);
        AcmeError {
            problem: problem.map(str::to_owned),
            refused: true,
            ..AcmeError::new(text)
        }
    }

    /// Puts before it what was being done.
    pub(super) fn during(mut self, doing: impl fmt::Display) -> AcmeError {
        if !self.stopped {
            self.what = format!("{doing}: {}", self.what);
        }
        self
    }

    /// Whether the directory named this type of problem.
    pub(super) fn is(&self, problem: &str) -> bool {
        self.problem.as_deref() == Some(problem)
    }
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What a problem document says: its text, its type, and what it says of single names.
pub(super) fn words(problem: &Json) -> String {
    let mut text = clean(problem.text("detail").unwrap_or("no details"));
    if let Some(kind) = problem.text("type") {
        text.push_str(&format!(" ({})", clean(short_type(kind))));
    }
    for sub in problem.list("subproblems").iter().take(SUBPROBLEMS_MAX) {
        let name = sub.field("identifier").and_then(|it| it.text("value"));
        let detail = clean(sub.text("detail").unwrap_or_default());
        text.push_str(&format!("; {}: {detail}", clean(name.unwrap_or("also"))));
    }
    text
}

/// More of them say the same.
const SUBPROBLEMS_MAX: usize = 3;

fn short_type(kind: &str) -> &str {
    kind.strip_prefix("urn:ietf:params:acme:error:")
        .unwrap_or(kind)
}

/// Text of somebody else's for a log and a terminal: one line, bounded, no control characters.
pub(super) fn clean(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut cleaned: String = printable.take(ACME_PROBLEM_CHARS_MAX).collect();
    if text.chars().nth(ACME_PROBLEM_CHARS_MAX).is_some() {
        cleaned.push('…');
    }
    cleaned.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_in_words() {
        let json = Json::parse(
            br#"{"type":"urn:ietf:params:acme:error:malformed","detail":"bad\u001b[31m\nthings",
            "subproblems":[{"identifier":{"type":"dns","value":"a.test"},"detail":"no record"}]}"#,
        );
        let failure = AcmeError::problem(400, json.as_ref());
        assert_eq!(
            failure.to_string(),
            "bad [31m things (malformed); a.test: no record"
        );
        assert!(failure.is("malformed") && failure.refused);
        assert_eq!(AcmeError::problem(503, None).to_string(), "status 503");
        assert_eq!(clean(&"x".repeat(9_999)).chars().count(), 501);
    }
}
