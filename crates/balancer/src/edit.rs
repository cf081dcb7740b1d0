//! Changes of members by the operator at runtime: every value that Apache's balancer-manager can change. A change stays
//! over reloads until the configuration changes the value.

use crate::member_settings::{AdminState, CheckSettings, MemberRole};
use std::fmt;
use std::sync::Arc;

/// Change of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberEdit {
    /// Weight in hundredths, 100 to 10,000 (`w_lf`).
    Weight(u32),
    /// Set, 0 to 99 (`w_ls`).
    Set(u8),
    /// Route (`w_wr`).
    Route(Box<str>),
    /// Route of the replacement (`w_rr`).
    Redirect(Box<str>),
    /// Administrative state (`w_status_N`, `w_status_D`, `w_status_S`).
    Admin(AdminState),
    /// Role (`w_status_H`, `w_status_R`).
    Role(MemberRole),
    /// True if errors of the member do not count (`w_status_I`).
    IgnoresErrors(bool),
    /// True to treat the checks as failed, false to treat the checks as passed, until the checks themselves
    /// decide again (`w_status_C`).
    CheckFailed(bool),
    /// Checks (`w_hm`, `w_he`, `w_hi`, `w_hp`, `w_hf`, `w_hu`).
    Check(MemberCheck),
}

/// Reason for a refused change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EditError {
    /// The balancer has no such member.
    UnknownMember,
    /// The value is out of range.
    OutOfRange,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EditError::UnknownMember => "the balancer has no such member",
            EditError::OutOfRange => "the value is out of range",
        })
    }
}

impl std::error::Error for EditError {}

impl MemberEdit {
    /// Checks the ranges of Apache.
    pub(crate) fn check(&self) -> Result<(), EditError> {
        let is_in_range = match self {
            MemberEdit::Weight(weight) => (100..=10_000).contains(weight),
            MemberEdit::Set(set) => *set <= 99,
            MemberEdit::Check(MemberCheck::Own(check)) => {
                check.rise > 0 && check.fall > 0 && !check.every.is_zero()
            }
            MemberEdit::Route(_)
            | MemberEdit::Redirect(_)
            | MemberEdit::Admin(_)
            | MemberEdit::Role(_)
            | MemberEdit::IgnoresErrors(_)
            | MemberEdit::CheckFailed(_)
            | MemberEdit::Check(MemberCheck::Balancer | MemberCheck::Off) => true,
        };
        is_in_range.then_some(()).ok_or(EditError::OutOfRange)
    }
}

/// Checks of a member, as changed by the operator at runtime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberCheck {
    /// The checks of the balancer.
    Balancer,
    /// No checks.
    Off,
    /// Checks of the member's own.
    Own(Arc<CheckSettings>),
}

/// A configured value, and the operator's change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edited<T> {
    configured: T,
    edited: Option<T>,
}

impl<T: PartialEq> Edited<T> {
    /// Creates an unchanged value.
    pub(crate) fn new(configured: T) -> Edited<T> {
        Edited {
            configured,
            edited: None,
        }
    }

    /// Returns the value in force.
    pub(crate) fn current(&self) -> &T {
        self.edited.as_ref().unwrap_or(&self.configured)
    }

    /// Changes the value at runtime. A change to the configured value ends the change.
    pub(crate) fn edit(&mut self, value: T) {
        self.edited = (value != self.configured).then_some(value);
    }

    /// Sets the configured value. The operator's change stays in force over reloads, until the
    /// configuration itself changes the value.
    pub(crate) fn configure(&mut self, configured: T) {
        if configured != self.configured {
            *self = Edited::new(configured);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_stays_until_the_configuration_changes() {
        let mut value = Edited::new(1);
        value.edit(5);
        value.configure(1);
        assert_eq!(*value.current(), 5);
        value.configure(2);
        assert_eq!(*value.current(), 2);
        value.configure(1);
        assert_eq!(*value.current(), 1);
    }

    #[test]
    fn a_change_to_the_configured_value_is_no_change() {
        let mut value = Edited::new(1);
        value.edit(5);
        value.edit(1);
        assert_eq!(value, Edited::new(1));
    }
}
