//! Errors of the ACME client: a text for the operator, and the facts that decide the renewer's next action.

use std::fmt;

use crate::acme::limits::ACME_PROBLEM_CHARS_MAX;
use crate::acme::remedy;
use wire::json::Json;

/// Failure of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcmeError {
    what: String,
    /// What the operator can do, a clause; None for a failure without a known remedy.
    remedy: Option<String>,
    /// Problem type sent by the directory, without `urn:ietf:params:acme:error:` (RFC 8555 §6.7).
    problem: Option<String>,
    /// Seconds to wait before the next request, as the directory asked in Retry-After.
    pub(super) retry_after: Option<u64>,
    /// Whether the step was abandoned because the server stops or the plan was replaced. No fault is
    /// reported.
    pub(super) stopped: bool,
    /// Whether the directory responded with a refusal. An unreachable directory leaves the flag false.
    pub(super) refused: bool,
}

impl AcmeError {
    /// Creates an error. `what` is a clause without capital letter and full stop.
    pub(super) fn new(what: impl Into<String>) -> AcmeError {
        AcmeError {
            what: what.into(),
            remedy: None,
            problem: None,
            retry_after: None,
            stopped: false,
            refused: false,
        }
    }

    /// Creates the error of an abandoned step.
    pub(super) fn stopped() -> AcmeError {
        AcmeError {
            stopped: true,
            ..AcmeError::new("stopped")
        }
    }

    /// Creates the error for a refusal with the given status and, if parsable, a problem document (RFC
    /// 9457).
    pub(super) fn problem(status: u16, document: Option<&Json>) -> AcmeError {
        let text = document.map_or_else(|| format!("status {status}"), words);
        let problem = document.and_then(|it| it.text("type")).map(short_type);
        AcmeError {
            problem: problem.map(str::to_owned),
            refused: true,
            ..AcmeError::new(text).with_remedy(problem.and_then(|it| remedy::of_refusal(it, None)))
        }
    }

    /// Sets what the operator can do.
    pub(super) fn with_remedy(mut self, remedy: Option<String>) -> AcmeError {
        self.remedy = remedy;
        self
    }

    /// Prefixes the text with the action in progress.
    pub(super) fn during(mut self, doing: impl fmt::Display) -> AcmeError {
        if !self.stopped {
            self.what = format!("{doing}: {}", self.what);
        }
        self
    }

    /// Returns true if the directory sent the given problem type.
    pub(super) fn is(&self, problem: &str) -> bool {
        self.problem.as_deref() == Some(problem)
    }
}

impl fmt::Display for AcmeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; help: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Formats a problem document: detail, type, and the details of the first subproblems.
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

/// Subproblems quoted in a message. Further subproblems seldom add information.
const SUBPROBLEMS_MAX: usize = 3;

/// Returns a problem type without its common beginning.
pub(super) fn short_type(kind: &str) -> &str {
    kind.strip_prefix("urn:ietf:params:acme:error:")
        .unwrap_or(kind)
}

/// Sanitizes foreign text for logs and terminals: one line, bounded length, no control characters.
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
    fn a_problem_document_becomes_one_line() {
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
