//! Causes of refused requests, for the log: the key of the configuration with its value, or the lines of a member.

use crate::limits::PROXY_QUOTED_BYTES_MAX;
use crate::upstream::balancer::PlaceReport;
use std::time::Duration;
use wire::h1::response_head::faulty_lines;
use wire::reject::Reject;

/// Cause of a request that leaves a member, because the checks took the member out.
pub(super) const MEMBER_DOWN: &str = "the checks took the member out while the request waited";

/// Cause of a refused event stream, known by its response alone.
pub(super) const TUNNELS_FULL: &str = "every place of tunnels and event streams is taken";

/// Returns the cause of a wait that ended by a timeout: its key, and its value as written in the configuration.
pub(super) fn timeout(key: &str, timeout: Duration) -> String {
    format!("longer than `{key}` ({timeout:?})")
}

/// Returns the cause of a request that may not wait for a busy member.
pub(super) fn queue_full(places: &PlaceReport) -> String {
    format!("{places}, and `queue` ({}) is full", places.queue_max)
}

/// Returns the cause of a request that waited too long for a busy member.
pub(super) fn queue_timeout(places: &PlaceReport, timeout: Duration) -> String {
    format!("{places} for longer than `queue_timeout` ({timeout:?})")
}

/// Returns the cause of a request that left a full queue for the request of another client.
pub(super) fn queue_share(places: &PlaceReport) -> String {
    let queue_max = places.queue_max;
    format!("`queue` ({queue_max}) is full, and the client has its share")
}

/// Returns the lines of a malformed head, escaped and shortened; None for a rule about the whole head.
pub(super) fn malformed_head(head: &[u8], reject: Reject) -> Option<String> {
    let lines = faulty_lines(head, reject).into_iter().map(quoted);
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Returns bytes of a member in quotation marks.
fn quoted(line: &[u8]) -> String {
    let end = line.len().min(PROXY_QUOTED_BYTES_MAX);
    let more = if end < line.len() { "…" } else { "" };
    format!("\"{}{more}\"", line[..end].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_malformed_head_are_quoted() {
        let fields = "HTTP/1.1 200 OK\r\nA: 1\r\nB : 2\r\nC: 3\r\n\r\n";
        let lengths = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nA: 1\r\nContent-Length: 2\r\n\r\nTransfer-Encoding: x";
        let table = [
            (fields, Reject::UPSTREAM_FIELD_MALFORMED, Some("\"B : 2\"")),
            (
                lengths,
                Reject::UPSTREAM_LENGTHS,
                Some("\"content-length: 1\", \"Content-Length: 2\""),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                Reject::UPSTREAM_CODING,
                Some("\"Transfer-Encoding: gzip\""),
            ),
            (
                "\x15\x03\x03\0\x02",
                Reject::UPSTREAM_LINE_MALFORMED,
                Some("\"\\x15\\x03\\x03\\x00\\x02\""),
            ),
            (fields, Reject::UPSTREAM_HEAD_TOO_LARGE, None),
        ];
        for (head, reject, expected) in table {
            let quoted = malformed_head(head.as_bytes(), reject);
            assert_eq!(quoted.as_deref(), expected);
        }
    }

    #[test]
    fn long_lines_are_cut() {
        let line = "x".repeat(PROXY_QUOTED_BYTES_MAX + 1);
        let cut = malformed_head(line.as_bytes(), Reject::UPSTREAM_LINE_MALFORMED);
        assert_eq!(
            cut,
            Some(format!("\"{}…\"", "x".repeat(PROXY_QUOTED_BYTES_MAX)))
        );
    }
}
