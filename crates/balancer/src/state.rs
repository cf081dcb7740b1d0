//! State of a member: for the operator with the changes, their reasons and a short history, and as the [`Standing`] that a
//! choice reads.

use crate::check::CheckFailure;
use crate::limits::{SLOW_START_PERCENT, STATE_CHANGES_MAX};
use crate::member_settings::{AdminState, MemberRole};
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
    pub(crate) fn of(admin: AdminState, is_check_failed: bool, is_ejected: bool) -> MemberState {
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
pub(crate) struct StateHistory(VecDeque<StateChange>);

impl StateHistory {
    /// Adds a change, and drops the oldest change of a full history.
    pub(crate) fn push(&mut self, change: StateChange) {
        if self.0.len() == STATE_CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(change);
        STATE_CHANGES.fetch_add(1, Ordering::Release);
    }

    /// Returns all kept changes.
    pub(crate) fn to_vec(&self) -> Vec<StateChange> {
        self.0.iter().copied().collect()
    }
}

/// State, role, set and weight of a member at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// Administrative state.
    pub(crate) admin: AdminState,
    /// Role in the set.
    pub(crate) role: MemberRole,
    /// True if active checks failed.
    pub(crate) is_check_failed: bool,
    /// True if active checks failed and no request has succeeded since.
    pub(crate) is_unproven: bool,
    /// True from an ejection to the next success, also after the pause.
    pub(crate) is_ejected: bool,
    /// True if the requests of a client may stay away from the member, although the member is usable.
    pub(crate) has_paused_clients: bool,
    /// Number of the set.
    pub(crate) set: u8,
    /// Weight in hundredths.
    pub(crate) weight: u32,
}

impl Standing {
    /// Packs the standing into a word for an atomic store.
    pub(crate) fn pack(self) -> u64 {
        let admin = match self.admin {
            AdminState::Enabled => 0,
            AdminState::Draining => 1,
            AdminState::Disabled => 2,
            AdminState::Stopped => 3,
        };
        let role = match self.role {
            MemberRole::Regular => 0,
            MemberRole::Spare => 1,
            MemberRole::Standby => 2,
        };
        let flags = u64::from(self.is_check_failed)
            | u64::from(self.is_ejected) << 1
            | u64::from(self.is_unproven) << 2
            | u64::from(self.has_paused_clients) << 3;
        u64::from(self.weight) << 32 | u64::from(self.set) << 16 | flags << 4 | role << 2 | admin
    }

    /// Reads a packed word.
    pub(crate) fn unpack(word: u64) -> Standing {
        Standing {
            admin: match word & 3 {
                0 => AdminState::Enabled,
                1 => AdminState::Draining,
                2 => AdminState::Disabled,
                _ => AdminState::Stopped,
            },
            role: match word >> 2 & 3 {
                0 => MemberRole::Regular,
                1 => MemberRole::Spare,
                _ => MemberRole::Standby,
            },
            is_check_failed: word >> 4 & 1 == 1,
            is_ejected: word >> 5 & 1 == 1,
            is_unproven: word >> 6 & 1 == 1,
            has_paused_clients: word >> 7 & 1 == 1,
            set: (word >> 16) as u8,
            weight: (word >> 32) as u32,
        }
    }

    /// Returns the state for the operator.
    pub(crate) fn state(self) -> MemberState {
        MemberState::of(self.admin, self.is_check_failed, self.is_ejected)
    }

    /// Returns true if the operator lets the member get at least the requests of its sessions.
    pub(crate) fn is_allowed(self) -> bool {
        matches!(self.admin, AdminState::Enabled | AdminState::Draining)
    }
}

/// Share of a member's weight in thousandths, 1 to 1,000.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WeightShare(u32);

impl WeightShare {
    /// The whole weight.
    pub(crate) const WHOLE: WeightShare = WeightShare(1_000);

    /// Returns the share at `now_ms` of a member that recovered at `recovered_at_ms` (0 for a member without
    /// a recovery), with a slow start of `duration_ms`.
    pub(crate) fn at(now_ms: u64, recovered_at_ms: u64, duration_ms: u64) -> WeightShare {
        let elapsed_ms = now_ms.saturating_sub(recovered_at_ms);
        if recovered_at_ms == 0 || elapsed_ms >= duration_ms {
            return WeightShare::WHOLE;
        }
        let first = SLOW_START_PERCENT * 10;
        let risen = u128::from(1_000 - first) * u128::from(elapsed_ms) / u128::from(duration_ms);
        WeightShare((u128::from(first) + risen) as u32)
    }

    /// Returns the share in thousandths.
    pub(crate) fn thousandths(self) -> u32 {
        self.0
    }

    /// Returns the share of `weight`, at least 1.
    pub(crate) fn of(self, weight: u32) -> u32 {
        match self {
            WeightShare::WHOLE => weight.max(1),
            WeightShare(share) => {
                (u64::from(weight) * u64::from(share) / 1_000).clamp(1, u64::from(u32::MAX)) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn a_packed_standing_is_read_unchanged(
            admin in 0..4_usize, role in 0..3_usize, is_check_failed: bool, is_ejected: bool,
            is_unproven: bool, has_paused_clients: bool, set: u8, weight: u32,
        ) {
            let admins = [
                AdminState::Enabled, AdminState::Draining, AdminState::Disabled, AdminState::Stopped,
            ];
            let roles = [MemberRole::Regular, MemberRole::Spare, MemberRole::Standby];
            let standing = Standing {
                admin: admins[admin], role: roles[role], is_check_failed, is_unproven,
                is_ejected, has_paused_clients, set, weight,
            };
            prop_assert_eq!(Standing::unpack(standing.pack()), standing);
        }
    }

    #[test]
    fn the_share_rises_from_a_tenth_to_the_whole() {
        let share = |now_ms| WeightShare::at(now_ms, 1_000, 10_000).thousandths();
        assert_eq!(
            [1_000, 6_000, 10_999, 11_000, 90_000].map(share),
            [100, 550, 999, 1_000, 1_000]
        );
        // A clock that stands before the recovery.
        assert_eq!(share(0), 100);
    }

    #[test]
    fn a_member_without_recovery_has_the_whole_weight() {
        assert_eq!(WeightShare::at(5, 0, 10_000), WeightShare::WHOLE);
        assert_eq!(WeightShare::at(5, 5, 0), WeightShare::WHOLE);
    }

    #[test]
    fn a_share_of_a_weight_is_at_least_one() {
        assert_eq!(WeightShare(100).of(100), 10);
        assert_eq!(WeightShare(100).of(10_000), 1_000);
        assert_eq!(WeightShare(100).of(5), 1);
        assert_eq!(WeightShare::WHOLE.of(0), 1);
    }
}
