//! State of a member for the operator, the changes of the state with their reasons, and a short history.

use crate::limits::STATE_CHANGES_MAX;
use crate::upstream::settings::AdminState;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// State of a member. The first reason against requests wins, in the order from the last variant to the
/// first.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// The member gets requests.
    Up,
    /// The member gets only requests of its sessions.
    Draining,
    /// Requests failed, and the member gets no requests until its pause is over and a request succeeded.
    Ejected,
    /// Active checks failed.
    CheckFailed,
    /// The operator disabled the member.
    Disabled,
    /// The operator stopped the member.
    Stopped,
}

impl MemberState {
    /// Returns the state that follows from the single reasons.
    pub(super) fn of(admin: AdminState, is_check_failed: bool, is_ejected: bool) -> MemberState {
        match admin {
            AdminState::Stopped => MemberState::Stopped,
            AdminState::Disabled => MemberState::Disabled,
            AdminState::Enabled | AdminState::Draining if is_check_failed => {
                MemberState::CheckFailed
            }
            AdminState::Enabled | AdminState::Draining if is_ejected => MemberState::Ejected,
            AdminState::Draining => MemberState::Draining,
            AdminState::Enabled => MemberState::Up,
        }
    }

    /// Returns true if the member gets at least the requests of its sessions.
    pub fn is_usable(self) -> bool {
        matches!(self, MemberState::Up | MemberState::Draining)
    }

    /// Returns the name of the state for logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Up => "up",
            MemberState::Draining => "draining",
            MemberState::Ejected => "ejected",
            MemberState::CheckFailed => "check failed",
            MemberState::Disabled => "disabled",
            MemberState::Stopped => "stopped",
        }
    }
}

/// Result of an active check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CheckOutcome {
    /// The member passed the check.
    Passed,
    /// The member failed the check.
    Failed(CheckFailure),
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckOutcome::Passed => f.write_str("passed"),
            CheckOutcome::Failed(failure) => failure.fmt(f),
        }
    }
}

/// Reason for a failed check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CheckFailure {
    /// No connection could be established.
    Connection,
    /// The member did not answer in time.
    Timeout,
    /// The connection ended before the end of the answer, or the answer was no HTTP response.
    BadAnswer,
    /// The status of the response is outside of the expected range.
    Status(u16),
    /// The content of the response lacks the expected text.
    Text,
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckFailure::Connection => f.write_str("no connection"),
            CheckFailure::Timeout => f.write_str("timeout"),
            CheckFailure::BadAnswer => f.write_str("bad answer"),
            // Servers with several sites answer a Host without a site with these statuses.
            CheckFailure::Status(status @ (404 | 421)) => write!(
                f,
                "status {status} (a check sends the member's address as Host unless `health` has `host`)"
            ),
            CheckFailure::Status(status) => write!(f, "status {status}"),
            CheckFailure::Text => f.write_str("expected text missing"),
        }
    }
}

/// Reason for a change of a member's state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ChangeReason {
    /// A connection to the member could not be established.
    ConnectionFailed,
    /// The handshake of TLS with the member failed.
    TlsFailed,
    /// The member does not speak HTTP/2.
    Http2Failed,
    /// The number of failed requests in a row, or one failed request after a pause.
    RequestsFailed(u32),
    /// A request after the pause succeeded.
    RequestSucceeded,
    /// Checks failed, the last one for the given reason.
    ChecksFailed(CheckFailure),
    /// Checks passed.
    ChecksPassed,
    /// The operator changed the member at runtime.
    Operator,
    /// A new configuration changed the member.
    Configuration,
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeReason::ConnectionFailed => f.write_str("connection failed"),
            ChangeReason::TlsFailed => f.write_str("TLS failed"),
            ChangeReason::Http2Failed => f.write_str("HTTP/2 failed"),
            ChangeReason::RequestsFailed(1) => f.write_str("a request failed"),
            ChangeReason::RequestsFailed(count) => write!(f, "{count} requests in a row failed"),
            ChangeReason::RequestSucceeded => f.write_str("a request succeeded"),
            // The new state is "check failed".
            ChangeReason::ChecksFailed(failure) => failure.fmt(f),
            ChangeReason::ChecksPassed => f.write_str("checks passed"),
            ChangeReason::Operator => f.write_str("operator"),
            ChangeReason::Configuration => f.write_str("configuration"),
        }
    }
}

/// Change of a member's state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StateChange {
    /// State before the change.
    pub old: MemberState,
    /// State after the change.
    pub new: MemberState,
    /// Reason for the change.
    pub reason: ChangeReason,
    /// Time of the change in milliseconds on the monotonic clock of the process.
    pub at_ms: u64,
}

impl fmt::Display for StateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (old, new) = (self.old.name(), self.new.name());
        write!(f, "changed from {old} to {new}: {}", self.reason)
    }
}

/// Changes of the states of all members since the start of the process.
static STATE_CHANGES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of changes of the states of all members since the start of the process, so that a reader of the
/// states knows without a look at each member whether they are the same as before.
pub fn state_changes() -> u64 {
    STATE_CHANGES.load(Ordering::Acquire)
}

/// Last changes of a member's state, the oldest first.
#[derive(Default)]
pub(super) struct StateHistory(VecDeque<StateChange>);

impl StateHistory {
    /// Adds a change, and drops the oldest change of a full history.
    pub(super) fn push(&mut self, change: StateChange) {
        if self.0.len() == STATE_CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(change);
        STATE_CHANGES.fetch_add(1, Ordering::Release);
    }

    /// Returns all kept changes.
    pub(super) fn to_vec(&self) -> Vec<StateChange> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_reason_is_the_state() {
        use AdminState::{Disabled, Draining, Enabled, Stopped};
        let table = [
            (Enabled, false, false, MemberState::Up),
            (Enabled, false, true, MemberState::Ejected),
            (Enabled, true, true, MemberState::CheckFailed),
            (Draining, false, false, MemberState::Draining),
            (Draining, false, true, MemberState::Ejected),
            (Draining, true, false, MemberState::CheckFailed),
            (Disabled, true, true, MemberState::Disabled),
            (Stopped, true, true, MemberState::Stopped),
        ];
        for (admin, is_check_failed, is_ejected, state) in table {
            assert_eq!(MemberState::of(admin, is_check_failed, is_ejected), state);
        }
    }

    #[test]
    fn the_history_keeps_the_last_changes() {
        let mut history = StateHistory::default();
        let before = state_changes();
        for at_ms in 0..100 {
            history.push(StateChange {
                old: MemberState::Up,
                new: MemberState::Ejected,
                reason: ChangeReason::ConnectionFailed,
                at_ms,
            });
        }
        let times: Vec<u64> = history.to_vec().iter().map(|change| change.at_ms).collect();
        assert_eq!(times, (84..100).collect::<Vec<u64>>());
        // Other tests of the process change members as well.
        assert!(state_changes() >= before + 100);
    }
}
