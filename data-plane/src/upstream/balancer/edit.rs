//! Changes of balancers and members by the operator at runtime: every value that Apache's balancer-manager
//! can change. A change stays over reloads until the configuration changes the value.

use crate::upstream::balancer::member::{MemberCheck, MemberCore};
use crate::upstream::settings::{
    AdminState, BalancingMethod, MemberRole, MemberUrl, StickySettings,
};
use std::fmt;
use std::time::Duration;

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

/// Change of a balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BalancerEdit {
    /// Balancing method (`b_lbm`).
    Method(BalancingMethod),
    /// Sessions (`b_ss`); None ends sessions.
    Sticky(Option<StickySettings>),
    /// True if sessions never change their member (`b_sforce`).
    Strict(bool),
    /// Largest number of further members for one request, 0 to 99 (`b_max`).
    AttemptsMax(u8),
    /// Longest wait for a busy member, at most 7,200 s (`b_tmo`).
    QueueTimeout(Duration),
}

/// Changes of the operator that are in force at a balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BalancerEdits {
    /// Changes of the balancer.
    pub balancer: Vec<BalancerEdit>,
    /// Changes of members, each with the URL of the member.
    pub members: Vec<(MemberUrl, MemberEdit)>,
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
    pub(super) fn check(&self) -> Result<(), EditError> {
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

    /// Changes the values of a member.
    pub(super) fn apply(self, core: &mut MemberCore) {
        let had_checks = core.check_settings().is_some();
        match self {
            MemberEdit::Weight(weight) => core.weight.edit(weight),
            MemberEdit::Set(set) => core.set.edit(set),
            MemberEdit::Route(route) => core.route.edit(route),
            MemberEdit::Redirect(route) => core.redirect.edit(route),
            MemberEdit::Admin(admin) => core.admin.edit(admin),
            MemberEdit::Role(role) => core.role.edit(role),
            MemberEdit::IgnoresErrors(ignores) => core.ignores_errors.edit(ignores),
            MemberEdit::CheckFailed(is_failed) => core.streak.force(is_failed),
            MemberEdit::Check(check) => core.check.edit(check),
        }
        core.settle(had_checks);
    }
}

impl BalancerEdit {
    /// Checks the ranges of Apache.
    pub(super) fn check(&self) -> Result<(), EditError> {
        let is_in_range = match self {
            BalancerEdit::AttemptsMax(attempts) => *attempts <= 99,
            BalancerEdit::QueueTimeout(timeout) => timeout.as_secs() <= 7_200,
            BalancerEdit::Method(_) | BalancerEdit::Sticky(_) | BalancerEdit::Strict(_) => true,
        };
        is_in_range.then_some(()).ok_or(EditError::OutOfRange)
    }
}
