//! Passive ejection of a failing member, with growing pauses. Pure.
//!
//! A failed connection ejects the member at once, failed requests after a number in a row. After the pause
//! one request at a time is sent on trial (Apache's `retry`): success ends the ejection, failure doubles the
//! pause. Reports of requests sent before the last ejection are stale, and the caller drops them.
//!
//! A client can provoke failures by requests for slow or broken pages, at a member of its choice with a session
//! cookie. Failures of one client therefore count once a second, and a row of failures must last for a second without
//! any success. A request that took long does not count if the member answered another request meanwhile, because
//! many slow requests fail at the same moment. A client with an earlier failure decides no trial for other clients: its
//! failure keeps only its own requests away from the member.
//!
//! A request that the member left without a byte of an answer, and that another member then answered, proves the member
//! bad as far as the client of the request is concerned. The client's requests stay away from the member at once, before
//! the failures suffice for an ejection: a proxy in front of all clients would otherwise lose requests for seconds.

use crate::limits::{
    EJECTION_CLIENT_MILLISECONDS, EJECTION_CLIENTS_MAX, EJECTION_ROW_MILLISECONDS,
};
use crate::member_settings::EjectionSettings;

/// State of the ejection of one member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ejection {
    /// Failed requests since the last success.
    failures: FailureRow,
    /// Contents that broke off since the last complete content. The head of such an answer is a success.
    broken_contents: FailureRow,
    /// Ejections since the last success.
    ejections: u32,
    /// End of the pause in milliseconds, while the member is ejected.
    until_ms: Option<u64>,
    /// Clients with a counted failure since the last success.
    clients: Vec<FailedClient>,
}

/// Failures in a row.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct FailureRow {
    count: u32,
    /// Beginning of the row.
    since_ms: u64,
}

impl FailureRow {
    /// Adds a failure. A row that begins with the failure counts from `since_ms`.
    fn add(&mut self, since_ms: u64) {
        if self.count == 0 {
            self.since_ms = since_ms;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Returns true if the row suffices for an ejection after `failures_max` failures.
    fn suffices(&self, failures_max: u32, now_ms: u64) -> bool {
        let lasts_ms = now_ms.saturating_sub(self.since_ms);
        self.count >= failures_max && (failures_max <= 1 || lasts_ms >= EJECTION_ROW_MILLISECONDS)
    }
}

/// Client with a counted failure.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct FailedClient {
    /// Hash of the client's address.
    hash: u64,
    /// Time of the last failure that counted.
    counted_ms: u64,
    /// Failed trials after the first counted failure.
    trials: u32,
    /// End of the pause for this client alone.
    until_ms: u64,
}

/// A failed request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FailedRequest {
    /// Kind of the failure.
    pub(crate) kind: RequestFailure,
    /// Hash of the client's address.
    pub(crate) client: u64,
    /// Time since which the member had the request.
    pub(crate) began_ms: u64,
    /// Time of the failure.
    pub(crate) now_ms: u64,
}

/// Kind of a failed request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestFailure {
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

impl FailedRequest {
    /// Returns the start of a row of failures with this request as the first one. `answered_at_ms` is the time of the
    /// last success of the member. A success says nothing about a content that broke off.
    fn row_since_ms(&self, answered_at_ms: u64) -> u64 {
        match self.kind {
            RequestFailure::Content => self.now_ms,
            _ => self.began_ms.max(answered_at_ms),
        }
    }
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
    pub(crate) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    /// Returns the number of failed requests in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.count.max(self.broken_contents.count)
    }

    /// Returns true if a success would change the state.
    pub(crate) fn has_failures(&self) -> bool {
        self.failures() > 0 || self.ejections > 0
    }

    /// Returns true if a client's requests stay away from the member after its own failed trials.
    pub(crate) fn is_paused_for(&self, client: u64, now_ms: u64) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|known| known.hash == client && now_ms < known.until_ms)
    }

    /// Returns true if a failure counts. `answered_at_ms` is the time of the last success of the member.
    pub(crate) fn counts(
        &mut self,
        failed: &FailedRequest,
        answered_at_ms: u64,
        settings: &EjectionSettings,
    ) -> bool {
        if self
            .until_ms
            .is_some_and(|until_ms| failed.now_ms < until_ms)
        {
            return false;
        }
        if failed.kind.is_of_connection() {
            return true;
        }
        if self.until_ms.is_some() {
            return self.is_first_trial(failed, settings);
        }
        let took_ms = failed.now_ms.saturating_sub(failed.began_ms);
        let is_slow_request = failed.kind == RequestFailure::Answer
            && took_ms > EJECTION_CLIENT_MILLISECONDS
            && answered_at_ms > failed.began_ms;
        !is_slow_request && self.is_new_client(failed)
    }

    /// Keeps a client's requests away from the member for a pause, after another member answered a request that the member
    /// left. Requests of other clients, and of sessions with the member, are not concerned.
    pub(crate) fn pause_for(&mut self, client: u64, now_ms: u64, settings: &EjectionSettings) {
        let ejections = self.ejections;
        if let Some(known) = self.known_client(client)
            && now_ms >= known.until_ms
        {
            let pause_ms = pause_ms(settings, ejections.saturating_add(known.trials));
            known.until_ms = now_ms.saturating_add(pause_ms);
            known.trials = known.trials.saturating_add(1);
        }
    }

    /// Returns true if the requests of a client stay away from the member, or have stayed away.
    pub(crate) fn has_paused_clients(&self) -> bool {
        self.clients.iter().any(|known| known.until_ms > 0)
    }

    /// Records the client of a failed trial. Returns false for a client with an earlier failure, and keeps the client's
    /// requests away from the member for a pause.
    fn is_first_trial(&mut self, failed: &FailedRequest, settings: &EjectionSettings) -> bool {
        let ejections = self.ejections;
        let Some(known) = self.known_client(failed.client) else {
            self.remember(failed);
            return true;
        };
        let pause_ms = pause_ms(settings, ejections.saturating_add(known.trials));
        known.until_ms = failed.now_ms.saturating_add(pause_ms);
        known.trials = known.trials.saturating_add(1);
        false
    }

    /// Records the client of a failure. Returns false for a client with a failure within the last second.
    fn is_new_client(&mut self, failed: &FailedRequest) -> bool {
        let Some(known) = self.known_client(failed.client) else {
            self.remember(failed);
            return true;
        };
        let since_ms = failed.now_ms.saturating_sub(known.counted_ms);
        let counts = since_ms >= EJECTION_CLIENT_MILLISECONDS;
        if counts {
            known.counted_ms = failed.now_ms;
        }
        counts
    }

    fn known_client(&mut self, client: u64) -> Option<&mut FailedClient> {
        self.clients.iter_mut().find(|known| known.hash == client)
    }

    /// Adds the client of a failure, while there is room.
    fn remember(&mut self, failed: &FailedRequest) {
        if self.clients.len() < EJECTION_CLIENTS_MAX {
            self.clients.push(FailedClient {
                hash: failed.client,
                counted_ms: failed.now_ms,
                trials: 0,
                until_ms: 0,
            });
        }
    }

    /// Records a failure that counts. `failures_max` failures in a row begin a pause. `answered_at_ms` is the time of
    /// the last success of the member. Returns true if the failure begins a pause.
    pub(crate) fn record_failure(
        &mut self,
        failed: &FailedRequest,
        answered_at_ms: u64,
        failures_max: u32,
        settings: &EjectionSettings,
    ) -> bool {
        let row = match failed.kind {
            RequestFailure::Content => &mut self.broken_contents,
            _ => &mut self.failures,
        };
        row.add(failed.row_since_ms(answered_at_ms));
        let is_due = failed.kind.is_of_connection() || row.suffices(failures_max, failed.now_ms);
        if is_due || self.until_ms.is_some() {
            let pause_ms = pause_ms(settings, self.ejections);
            self.until_ms = Some(failed.now_ms.saturating_add(pause_ms));
            self.ejections = self.ejections.saturating_add(1);
            return true;
        }
        false
    }

    /// Records the head of an answer, which ends the ejection. A member that broke contents off keeps the length of
    /// its pauses until a content is complete. The row of broken contents begins anew at the end of an ejection, so
    /// that other requests have the time to prove the member good.
    pub(crate) fn record_answer(&mut self, now_ms: u64) {
        if self.broken_contents.count == 0 {
            return self.clear();
        }
        self.failures = FailureRow::default();
        if self.until_ms.take().is_some() {
            self.broken_contents.since_ms = now_ms;
        }
    }

    /// Records a complete content.
    pub(crate) fn record_content(&mut self) {
        self.broken_contents = FailureRow::default();
        if self.failures.count == 0 && self.until_ms.is_none() {
            self.clear();
        }
    }

    /// Ends the ejection and forgets all failures.
    pub(crate) fn clear(&mut self) {
        *self = Ejection::default();
    }
}

/// Returns the length of a pause after a number of earlier pauses.
fn pause_ms(settings: &EjectionSettings, doublings: u32) -> u64 {
    let [pause, max] = [settings.pause, settings.pause_max]
        .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    pause.saturating_mul(factor).min(max)
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
        ejection.counts(&failed, 0, &settings())
            && ejection.record_failure(&failed, 0, 3, &settings())
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
        assert!(!fail_of(&mut ejection, Answer, 2, 1_000));
        ejection.record_answer(1_000);
        assert_eq!(ejection, Ejection::default());
        assert!(!fail_of(&mut ejection, Answer, 1, 1_000));
        assert!(!fail_of(&mut ejection, Answer, 2, 2_000));
        assert_eq!(ejection.until_ms(), None);
        assert!(fail_of(&mut ejection, Answer, 3, 2_000));
        let state = (ejection.until_ms(), ejection.failures());
        assert_eq!(state, (Some(2_100), 3));
    }

    #[test]
    fn a_row_without_a_success_must_last_a_second() {
        for kind in [Answer, Content] {
            let mut ejection = Ejection::default();
            for client in 0..1_000 {
                assert!(!fail_of(&mut ejection, kind, client, 5_000 + client));
            }
            assert!(fail_of(&mut ejection, kind, 1_000, 6_000), "{kind:?}");
        }
    }

    #[test]
    fn one_failure_in_a_row_needs_no_second() {
        let mut ejection = Ejection::default();
        let failed = FailedRequest {
            kind: Answer,
            client: 1,
            began_ms: 5_000,
            now_ms: 5_000,
        };
        assert!(ejection.counts(&failed, 0, &settings()));
        assert!(ejection.record_failure(&failed, 0, 1, &settings()));
    }

    #[test]
    fn slow_requests_begin_a_row_at_their_begin_or_at_the_last_success() {
        for (answered_at_ms, is_ejected) in [(0, true), (5_000, true), (5_001, false)] {
            let mut ejection = Ejection::default();
            let failures = (1..=3).map(|client| {
                let failed = FailedRequest {
                    kind: Answer,
                    client,
                    began_ms: 5_000,
                    now_ms: 6_000,
                };
                ejection.counts(&failed, answered_at_ms, &settings())
                    && ejection.record_failure(&failed, answered_at_ms, 3, &settings())
            });
            assert_eq!(failures.last(), Some(is_ejected), "{answered_at_ms}");
        }
    }

    #[test]
    fn a_client_with_an_earlier_failure_decides_no_trial_for_others() {
        let mut ejection = Ejection::default();
        fail_of(&mut ejection, Answer, 1, 0);
        fail_of(&mut ejection, Answer, 2, 0);
        assert!(fail_of(&mut ejection, Answer, 3, 1_000));
        assert_eq!(ejection.until_ms(), Some(1_100));
        // The pause of the client doubles, and other clients may try the member.
        let mut now_ms = 1_100;
        for pause_ms in [200, 400, 500, 500] {
            assert!(!fail_of(&mut ejection, Answer, 1, now_ms));
            assert!(ejection.is_paused_for(1, now_ms + pause_ms - 1));
            assert!(!ejection.is_paused_for(2, now_ms));
            now_ms += pause_ms;
            assert!(!ejection.is_paused_for(1, now_ms));
        }
        assert_eq!((ejection.until_ms(), ejection.failures()), (Some(1_100), 3));
        // The trial of a further client counts.
        assert!(fail_of(&mut ejection, Answer, 4, now_ms));
        assert_eq!(ejection.until_ms(), Some(now_ms + 200));
        now_ms += 200;
        assert!(!fail_of(&mut ejection, Answer, 4, now_ms));
        assert!(ejection.is_paused_for(4, now_ms));
        ejection.record_answer(now_ms);
        assert_eq!(ejection, Ejection::default());
    }

    #[test]
    fn a_client_stays_away_from_a_member_that_left_its_request_to_another() {
        let mut ejection = Ejection::default();
        assert!(!fail_of(&mut ejection, Answer, 1, 1_000));
        assert!(!ejection.has_paused_clients());
        ejection.pause_for(1, 1_010, &settings());
        assert!(ejection.has_paused_clients());
        assert!(ejection.is_paused_for(1, 1_109) && !ejection.is_paused_for(1, 1_110));
        assert!(!ejection.is_paused_for(2, 1_010));
        assert_eq!(ejection.until_ms(), None);
        // Further requests from before the pause change nothing, and the next pause doubles.
        ejection.pause_for(1, 1_050, &settings());
        assert!(!ejection.is_paused_for(1, 1_110));
        ejection.pause_for(1, 1_120, &settings());
        assert!(ejection.is_paused_for(1, 1_319) && !ejection.is_paused_for(1, 1_320));
        // An answer to any client refutes the failures.
        ejection.record_answer(1_200);
        assert!(!ejection.is_paused_for(1, 1_200));
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
        let mut counts = |failed, answered_at_ms| -> bool {
            ejection.counts(&failed, answered_at_ms, &settings())
        };
        assert!(!counts(failed(Answer, 60_000, 1), 5_001));
        assert!(counts(failed(Answer, 60_000, 1), 5_000));
        assert!(counts(failed(Answer, 1_000, 2), 64_999));
        // The content of another answer says nothing about a content that broke off.
        assert!(counts(failed(Content, 60_000, 3), 64_999));
        assert!(counts(failed(Connection, 5_000, 3), 64_999));
    }

    #[test]
    fn the_list_of_clients_is_bounded() {
        let mut ejection = Ejection::default();
        for client in 0..10_000 {
            fail_of(&mut ejection, Content, client, 5_000);
            ejection.record_answer(5_000);
        }
        assert!(ejection.clients.len() <= EJECTION_CLIENTS_MAX);
    }

    #[test]
    fn contents_that_break_off_eject_in_spite_of_good_heads() {
        let mut ejection = Ejection::default();
        let mut pauses = Vec::new();
        let mut now_ms = 0;
        for client in 0..10 {
            ejection.record_answer(now_ms);
            if fail_of(&mut ejection, Content, client, now_ms) {
                let until_ms = ejection.until_ms().unwrap();
                pauses.push(until_ms - now_ms);
                now_ms = until_ms;
            } else {
                now_ms += 500;
            }
        }
        // The head of a trial's answer does not shorten the next pause, and begins a row of another second.
        assert_eq!(pauses, [100, 200, 400]);
        ejection.record_answer(now_ms);
        ejection.record_content();
        assert_eq!(ejection, Ejection::default());
    }

    #[test]
    fn a_complete_content_leaves_other_failures() {
        let mut ejection = Ejection::default();
        fail_of(&mut ejection, Answer, 1, 0);
        fail_of(&mut ejection, Content, 2, 0);
        ejection.record_content();
        let rows = (ejection.failures.count, ejection.broken_contents.count);
        assert_eq!(rows, (1, 0));
        fail_of(&mut ejection, Connection, 1, 0);
        ejection.record_content();
        assert_eq!(ejection.until_ms(), Some(100));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut ejection = Ejection::default();
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        assert!(!fail_of(&mut ejection, Answer, 100, now_ms));
        assert!(!fail_of(&mut ejection, Answer, 101, now_ms));
        now_ms += 1_000;
        for client in 0..70 {
            assert!(fail_of(&mut ejection, Answer, client, now_ms));
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
