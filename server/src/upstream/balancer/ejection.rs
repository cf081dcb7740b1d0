//! Passive ejection of a failing member, with growing pauses. Pure.
//!
//! A failed connection ejects the member at once, failed requests after a number in a row. After the pause
//! one request at a time is sent on trial (Apache's `retry`): success ends the ejection, failure doubles the
//! pause. Reports of requests sent before the last ejection are stale, and the caller drops them.

use crate::upstream::settings::EjectionSettings;

/// State of the ejection of one member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ejection {
    /// Failed requests since the last success.
    failures: u32,
    /// Ejections since the last success.
    ejections: u32,
    /// End of the pause in milliseconds, while the member is ejected.
    until_ms: Option<u64>,
}

/// Kind of a failed request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestFailure {
    /// No connection could be established.
    Connection,
    /// The request failed after the connection was established.
    Answer,
}

impl Ejection {
    /// Returns the end of the pause of an ejected member.
    pub(super) fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    /// Returns the number of failed requests since the last success.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns true if a success would change the state.
    pub(super) fn has_failures(&self) -> bool {
        self.failures > 0 || self.ejections > 0
    }

    /// Records a failed request. `failures_max` failed requests in a row begin a pause. Returns true if the failure
    /// begins a pause.
    pub(super) fn record_failure(
        &mut self,
        failure: RequestFailure,
        failures_max: u32,
        now_ms: u64,
        settings: &EjectionSettings,
    ) -> bool {
        if self.until_ms.is_some_and(|until_ms| now_ms < until_ms) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let is_due = match failure {
            RequestFailure::Connection => true,
            RequestFailure::Answer => self.failures >= failures_max,
        };
        // A trial after a pause has one chance.
        if is_due || self.until_ms.is_some() {
            self.until_ms = Some(now_ms.saturating_add(self.pause_ms(settings)));
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

    /// Ends the ejection and forgets all failures.
    pub(super) fn clear(&mut self) {
        *self = Ejection::default();
    }
}

#[cfg(test)]
mod tests {
    use super::RequestFailure::{Answer, Connection};
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

    #[test]
    fn a_failed_connection_ejects_at_once() {
        let mut ejection = Ejection::default();
        assert!(ejection.record_failure(Connection, 3, 1_000, &settings()));
        assert_eq!(ejection.until_ms(), Some(1_100));
    }

    #[test]
    fn failed_requests_eject_after_a_number_in_a_row() {
        let mut ejection = Ejection::default();
        assert!(!ejection.record_failure(Answer, 3, 0, &settings()));
        assert!(!ejection.record_failure(Answer, 3, 0, &settings()));
        ejection.clear();
        assert!(!ejection.record_failure(Answer, 3, 0, &settings()));
        assert!(!ejection.record_failure(Answer, 3, 0, &settings()));
        assert_eq!(ejection.until_ms(), None);
        assert!(ejection.record_failure(Answer, 3, 0, &settings()));
        assert_eq!((ejection.until_ms(), ejection.failures()), (Some(100), 3));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut ejection = Ejection::default();
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        for _ in 0..70 {
            assert!(ejection.record_failure(Answer, 3, now_ms, &settings()) || pauses.is_empty());
            while ejection.until_ms().is_none() {
                ejection.record_failure(Answer, 3, now_ms, &settings());
            }
            let until_ms = ejection.until_ms().unwrap();
            pauses.push(until_ms - now_ms);
            now_ms = until_ms;
        }
        assert_eq!(pauses[..5], [100, 200, 400, 500, 500]);
        assert_eq!(pauses[69], 500);
        ejection.clear();
        assert!(ejection.record_failure(Connection, 3, now_ms, &settings()));
        assert_eq!(ejection.until_ms(), Some(now_ms + 100));
    }

    #[test]
    fn failures_within_a_pause_do_not_count() {
        let mut ejection = Ejection::default();
        ejection.record_failure(Connection, 3, 0, &settings());
        for now_ms in 0..100 {
            assert!(!ejection.record_failure(Connection, 3, now_ms, &settings()));
        }
        assert_eq!(ejection.until_ms(), Some(100));
    }

    #[test]
    fn a_failed_trial_ejects_at_once() {
        let mut ejection = Ejection::default();
        ejection.record_failure(Connection, 3, 0, &settings());
        assert!(ejection.record_failure(Answer, 3, 100, &settings()));
        assert_eq!(ejection.until_ms(), Some(300));
    }
}
