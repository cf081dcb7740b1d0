//! Standing of a member: everything that a choice reads of a member in one word, so that a choice takes no
//! lock of the member.

use crate::upstream::balancer::state::MemberState;
use crate::upstream::settings::{AdminState, MemberRole};

/// State, role, set and weight of a member at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Administrative state.
    pub(super) admin: AdminState,
    /// Role in the set.
    pub(super) role: MemberRole,
    /// True if active checks failed.
    pub(super) is_check_failed: bool,
    /// True if active checks failed and no request has succeeded since.
    pub(super) is_unproven: bool,
    /// True from an ejection to the next success, also after the pause.
    pub(super) is_ejected: bool,
    /// True if the requests of a client may stay away from the member, although the member is usable.
    pub(super) has_paused_clients: bool,
    /// Number of the set.
    pub(super) set: u8,
    /// Weight in hundredths.
    pub(super) weight: u32,
}

impl Standing {
    /// Packs the standing into a word for an atomic store.
    pub(super) fn pack(self) -> u64 {
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
    pub(super) fn unpack(word: u64) -> Standing {
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
    pub(super) fn state(self) -> MemberState {
        MemberState::of(self.admin, self.is_check_failed, self.is_ejected)
    }

    /// Returns true if the operator lets the member get at least the requests of its sessions.
    pub(super) fn is_allowed(self) -> bool {
        matches!(self.admin, AdminState::Enabled | AdminState::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
