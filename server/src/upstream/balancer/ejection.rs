//! Passive ejection of a failing member, with growing pauses. Pure.
//!
//! A failed connection ejects the member at once, failed requests after a number in a row. After the pause
//! one request at a time is sent on trial (Apache's `retry`): success ends the ejection, failure doubles the
//! pause. Reports of requests sent before the last ejection are stale, and the caller drops them.
//!
//! A client can provoke failures by requests for slow or broken pages, at a member of its choice with a session
//! cookie. Failures of one client therefore count once a second. A request that took long does not count if the
//! member answered another request meanwhile, because many slow requests fail at the same moment.

use crate::limits::{EJECTION_CLIENT_MILLISECONDS, EJECTION_CLIENTS_MAX};
use crate::upstream::settings::EjectionSettings;

/// State of the ejection of one member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ejection {
    /// Failed requests since the last success.
    failures: u32,
    /// Contents that broke off since the last complete content. The head of such an answer is a success.
    broken_contents: u32,
    /// Ejections since the last success.
    ejections: u32,
    /// End of the pause in milliseconds, while the member is ejected.
    until_ms: Option<u64>,
    /// Clients with a counted failure, and the time of the first of these failures.
    clients: Vec<u64>,
    clients_since_ms: u64,
}

/// A failed request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct FailedRequest {
    /// Kind of the failure.
    pub(super) kind: RequestFailure,
    /// Hash of the client's address.
    pub(super) client: u64,
    /// Time since which the member had the request.
    pub(super) began_ms: u64,
    /// Time of the failure.
    pub(super) now_ms: u64,
}

/// Kind of a failed request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestFailure {
    /// No connection could be established.
    Connection,
    /// The handshake of TLS failed.
    Tls,
    /// The member does not speak HTTP/2.
    Http2,
    /// The request failed after the connection was established.
    Answer,
    /// The member broke off the content of an answer.
    Content,
}

impl RequestFailure {
    /// Returns true for a failure before the member had the request.
    fn is_of_connection(self) -> bool {
        matches!(
            self,
            RequestFailure::Connection | RequestFailure::Tls | RequestFailure::Http2
        )
    }
}

impl Ejection {
    /// Returns the end of the pause of an ejected member.
    pub(super) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    /// Returns the number of failed requests in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures.max(self.broken_contents)
    }

    /// Returns true if a success would change the state.
    pub(super) fn has_failures(&self) -> bool {
        self.failures() > 0 || self.ejections > 0
    }

    /// Returns true if a failure counts. `answered_at_ms` is the time of the last success of the member.
    pub(super) fn counts(&mut self, failed: &FailedRequest, answered_at_ms: u64) -> bool {
        if self
            .until_ms
            .is_some_and(|until_ms| failed.now_ms < until_ms)
        {
            return false;
        }
        // A trial after a pause has one chance.
        if failed.kind.is_of_connection() || self.until_ms.is_some() {
            return true;
        }
        let took_ms = failed.now_ms.saturating_sub(failed.began_ms);
        let is_slow_request = failed.kind == RequestFailure::Answer
            && took_ms > EJECTION_CLIENT_MILLISECONDS
            && answered_at_ms > failed.began_ms;
        !is_slow_request && self.is_new_client(failed)
    }

    /// Records the client of a failure. Returns false for a client with a failure within the last second.
    fn is_new_client(&mut self, failed: &FailedRequest) -> bool {
        let since_ms = failed.now_ms.saturating_sub(self.clients_since_ms);
        if since_ms >= EJECTION_CLIENT_MILLISECONDS {
            self.clients.clear();
        }
        if self.clients.is_empty() {
            self.clients_since_ms = failed.now_ms;
        }
        if self.clients.contains(&failed.client) {
            return false;
        }
        if self.clients.len() < EJECTION_CLIENTS_MAX {
            self.clients.push(failed.client);
        }
        true
    }

    /// Records a failure that counts. `failures_max` failures in a row begin a pause. Returns true if the failure
    /// begins a pause.
    pub(super) fn record_failure(
        &mut self,
        failed: &FailedRequest,
        failures_max: u32,
        settings: &EjectionSettings,
    ) -> bool {
        let in_a_row = match failed.kind {
            RequestFailure::Content => &mut self.broken_contents,
            _ => &mut self.failures,
        };
        *in_a_row = in_a_row.saturating_add(1);
        let is_due = failed.kind.is_of_connection() || *in_a_row >= failures_max;
        if is_due || self.until_ms.is_some() {
            self.until_ms = Some(failed.now_ms.saturating_add(self.pause_ms(settings)));
            self.ejections = self.ejections.saturating_add(1);
            return true;
        }
        false
    }

    /// Returns the length of the next pause.
    fn pause_ms(&self, settings: &EjectionSettings) -> u64 {
        let [pause, max] = [settings.pause, settings.pause_max]
            .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let factor = 1_u64.checked_shl(self.ejections).unwrap_or(u64::MAX);
        pause.saturating_mul(factor).min(max)
    }

    /// Records the head of an answer, which ends the ejection. A member that broke contents off keeps the length of
    /// its pauses until a content is complete.
    pub(super) fn record_answer(&mut self) {
        match self.broken_contents {
            0 => self.clear(),
            _ => (self.failures, self.until_ms) = (0, None),
        }
    }

    /// Records a complete content.
    pub(super) fn record_content(&mut self) {
        self.broken_contents = 0;
        if self.failures == 0 && self.until_ms.is_none() {
            self.clear();
        }
    }

    /// Ends the ejection and forgets all failures.
    pub(super) fn clear(&mut self) {
        *self = Ejection::default();
    }
}

#[cfg(test)]
mod tests {
    use super::RequestFailure::{Answer, Connection, Content};
    use super::*;
    use std::time::Duration;

    fn settings() -> EjectionSettings {
        EjectionSettings {
            failures: 3,
            pause: Duration::from_millis(100),
            pause_max: Duration::from_millis(500),
            statuses: Vec::new(),
        }
    }

    /// Lets a request of a client fail at once. Returns true if the member is ejected.
    fn fail_of(ejection: &mut Ejection, kind: RequestFailure, client: u64, now_ms: u64) -> bool {
        let began_ms = now_ms;
        let failed = FailedRequest {
            kind,
            client,
            began_ms,
            now_ms,
        };
        ejection.counts(&failed, 0) && ejection.record_failure(&failed, 3, &settings())
    }

    /// Lets requests of three clients fail at once. Returns true if the member is ejected.
    fn fail(ejection: &mut Ejection, kind: RequestFailure, now_ms: u64) -> bool {
        (0..3).any(|client| fail_of(ejection, kind, client, now_ms))
    }

    #[test]
    fn a_failed_connection_ejects_at_once() {
        let mut ejection = Ejection::default();
        assert!(fail_of(&mut ejection, Connection, 1, 1_000));
        assert_eq!(ejection.until_ms(), Some(1_100));
    }

    #[test]
    fn failed_requests_eject_after_a_number_in_a_row() {
        let mut ejection = Ejection::default();
        assert!(!fail_of(&mut ejection, Answer, 1, 0));
        assert!(!fail_of(&mut ejection, Answer, 2, 0));
        ejection.record_answer();
        assert_eq!(ejection, Ejection::default());
        assert!(!fail_of(&mut ejection, Answer, 1, 0));
        assert!(!fail_of(&mut ejection, Answer, 2, 0));
        assert_eq!(ejection.until_ms(), None);
        assert!(fail_of(&mut ejection, Answer, 3, 0));
        assert_eq!((ejection.until_ms(), ejection.failures()), (Some(100), 3));
    }

    #[test]
    fn failures_of_one_client_count_once_a_second() {
        let mut ejection = Ejection::default();
        for now_ms in 5_000..6_000 {
            assert!(!fail_of(&mut ejection, Answer, 1, now_ms));
        }
        assert_eq!(ejection.failures(), 1);
        assert!(!fail_of(&mut ejection, Answer, 1, 6_000));
        assert!(!fail_of(&mut ejection, Answer, 1, 6_999));
        assert!(fail_of(&mut ejection, Answer, 1, 7_000));
    }

    #[test]
    fn a_long_request_does_not_count_if_the_member_answered_meanwhile() {
        let mut ejection = Ejection::default();
        // A request from 5,000 ms to 65,000 ms, and one that took 1 s.
        let failed = |kind, took_ms: u64, client| FailedRequest {
            kind,
            client,
            began_ms: 65_000 - took_ms,
            now_ms: 65_000,
        };
        assert!(!ejection.counts(&failed(Answer, 60_000, 1), 5_001));
        assert!(ejection.counts(&failed(Answer, 60_000, 1), 5_000));
        assert!(ejection.counts(&failed(Answer, 1_000, 2), 64_999));
        // The content of another answer says nothing about a content that broke off.
        assert!(ejection.counts(&failed(Content, 60_000, 3), 64_999));
        assert!(ejection.counts(&failed(Connection, 5_000, 3), 64_999));
    }

    #[test]
    fn the_list_of_clients_is_bounded() {
        let mut ejection = Ejection::default();
        for client in 0..10_000 {
            assert_eq!(fail_of(&mut ejection, Content, client, 5_000), client >= 2);
            ejection.record_answer();
        }
        assert!(ejection.clients.len() <= EJECTION_CLIENTS_MAX);
    }

    #[test]
    fn contents_that_break_off_eject_in_spite_of_good_heads() {
        let mut ejection = Ejection::default();
        let mut pauses = Vec::new();
        let mut now_ms = 0;
        for client in 0..6 {
            ejection.record_answer();
            if fail_of(&mut ejection, Content, client, now_ms) {
                let until_ms = ejection.until_ms().unwrap();
                pauses.push(until_ms - now_ms);
                now_ms = until_ms;
            }
        }
        // The head of a trial's answer does not shorten the next pause.
        assert_eq!(pauses, [100, 200, 400, 500]);
        ejection.record_answer();
        ejection.record_content();
        assert_eq!(ejection, Ejection::default());
    }

    #[test]
    fn a_complete_content_leaves_other_failures() {
        let mut ejection = Ejection::default();
        fail_of(&mut ejection, Answer, 1, 0);
        fail_of(&mut ejection, Content, 2, 0);
        ejection.record_content();
        assert_eq!((ejection.failures(), ejection.broken_contents), (1, 0));
        fail(&mut ejection, Connection, 0);
        ejection.record_content();
        assert_eq!(ejection.until_ms(), Some(100));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut ejection = Ejection::default();
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        for _ in 0..70 {
            assert!(fail(&mut ejection, Answer, now_ms));
            let until_ms = ejection.until_ms().unwrap();
            pauses.push(until_ms - now_ms);
            now_ms = until_ms;
        }
        assert_eq!(pauses[..5], [100, 200, 400, 500, 500]);
        assert_eq!(pauses[69], 500);
        ejection.clear();
        assert!(fail_of(&mut ejection, Connection, 1, now_ms));
        assert_eq!(ejection.until_ms(), Some(now_ms + 100));
    }

    #[test]
    fn failures_within_a_pause_do_not_count() {
        let mut ejection = Ejection::default();
        fail_of(&mut ejection, Connection, 1, 0);
        for now_ms in 0..100 {
            assert!(!fail_of(&mut ejection, Connection, 1, now_ms));
        }
        assert_eq!(ejection.until_ms(), Some(100));
    }

    #[test]
    fn a_failed_trial_ejects_at_once() {
        let mut ejection = Ejection::default();
        fail_of(&mut ejection, Connection, 1, 0);
        assert!(fail_of(&mut ejection, Answer, 1, 100));
        assert_eq!(ejection.until_ms(), Some(300));
    }
}
