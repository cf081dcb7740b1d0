//! Responses that are made here and not stored anywhere: refusals, redirects, the answer to OPTIONS.
//! What they say is the same over every version of HTTP.

use crate::handler::Response;
use crate::serve::dispatch::ALLOW;
use crate::site::plain_error;
use crate::wire::reject::Reject;
use crate::wire::status::Status;

/// A small response.
pub(super) struct SyntheticResponse {
    pub(super) status: Status,
    /// Field lines, but for those of every response and Content-Length.
    pub(super) fields: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl SyntheticResponse {
    /// No.
    pub(super) fn refusal(reject: Reject) -> SyntheticResponse {
        SyntheticResponse {
            status: reject.status,
            fields: [refusal_fields(reject), HTML].concat(),
            body: plain_error(reject.status, reject.reason),
        }
    }

    /// Elsewhere.
    pub(super) fn redirect(status: Status, location: &[u8]) -> SyntheticResponse {
        SyntheticResponse {
            status,
            fields: [b"Location: ", location, b"\r\n", HTML].concat(),
            body: plain_error(status, "see the Location field"),
        }
    }

    /// What may be asked.
    pub(super) fn options() -> SyntheticResponse {
        SyntheticResponse {
            status: Status::NO_CONTENT,
            fields: ALLOW.to_vec(),
            body: Vec::new(),
        }
    }

    /// What shows that a name is ours (RFC 8555 §8.3).
    pub(super) fn challenge(answer: Vec<u8>) -> SyntheticResponse {
        SyntheticResponse {
            status: Status::OK,
            fields: b"Content-Type: application/octet-stream\r\nCache-Control: no-store\r\n"
                .to_vec(),
            body: answer,
        }
    }

    /// All field lines; a 204 has no length (RFC 9110 §8.6).
    pub(super) fn lines(&self) -> Vec<u8> {
        let mut lines = b"Server: anthill\r\n".to_vec();
        lines.extend_from_slice(&self.fields);
        if self.status != Status::NO_CONTENT {
            let length = format!("Content-Length: {}\r\n", self.body.len());
            lines.extend_from_slice(length.as_bytes());
        }
        lines
    }
}

/// Returns the Server and Date lines for a handler's response, and omits each line that the
/// response already has as a field: the operator may have set another Server, and a script or a page may have the
/// Date at which its content was made. `date` is the line with the current time.
pub(super) fn server_and_date_lines(response: &Response, date: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(64);
    for (name, line) in [("Server", &b"Server: anthill\r\n"[..]), ("Date", date)] {
        if response.fields.first(name).is_none() {
            lines.extend_from_slice(line);
        }
    }
    lines
}

/// The fields that a refusal must carry (RFC 9110 §15.5.2, §15.5.6, §15.6.4).
pub(super) fn refusal_fields(reject: Reject) -> &'static [u8] {
    if reject == Reject::LOGINS_FAILED {
        return RETRY_AFTER_FAILED_LOGINS;
    }
    match reject.status {
        Status::UNAUTHORIZED => b"WWW-Authenticate: Basic realm=\"anthill\", charset=\"UTF-8\"\r\n",
        Status::METHOD_NOT_ALLOWED => ALLOW,
        Status::SERVICE_UNAVAILABLE | Status::TOO_MANY_REQUESTS => RETRY_AFTER,
        _ => b"",
    }
}

/// Retry-After of a refusal for load: the load may be over after 1 s.
const RETRY_AFTER: &[u8] = b"Retry-After: 1\r\n";
/// After [`LOGIN_FAILURE_SECONDS`](crate::limits::LOGIN_FAILURE_SECONDS) one more login may fail.
const RETRY_AFTER_FAILED_LOGINS: &[u8] = b"Retry-After: 6\r\n";
const HTML: &[u8] = b"Content-Type: text/html; charset=utf-8\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LOGIN_FAILURE_SECONDS;

    #[test]
    fn a_client_with_too_many_failed_logins_is_told_when_to_come_back() {
        let seconds = format!("Retry-After: {LOGIN_FAILURE_SECONDS}\r\n");
        assert_eq!(refusal_fields(Reject::LOGINS_FAILED), seconds.as_bytes());
    }
}
