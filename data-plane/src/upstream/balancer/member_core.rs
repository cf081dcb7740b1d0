//! State of a member that changes under its lock: the configured values with the operator's changes, the checks and the
//! ejection.

use crate::upstream::balancer::check::{CheckOutcome, CheckPlan, CheckStreak};
use crate::upstream::balancer::edit::{Edited, MemberCheck, MemberEdit};
use crate::upstream::balancer::ejection::Ejection;
use crate::upstream::balancer::state::{Standing, StateHistory};
use crate::upstream::settings::{
    AdminState, CheckSettings, EjectionSettings, MemberRole, MemberSettings,
};
use std::sync::Arc;

/// State of a member that changes under the lock.
pub(super) struct MemberCore {
    pub(super) weight: Edited<u32>,
    pub(super) set: Edited<u8>,
    pub(super) role: Edited<MemberRole>,
    pub(super) admin: Edited<AdminState>,
    pub(super) route: Edited<Box<str>>,
    pub(super) redirect: Edited<Box<str>>,
    pub(super) ignores_errors: Edited<bool>,
    pub(super) check: Edited<MemberCheck>,
    /// Checks of the balancer.
    balancer_check: Option<Arc<CheckSettings>>,
    pub(super) ejection_settings: Arc<EjectionSettings>,
    pub(super) streak: CheckStreak,
    pub(super) ejection: Ejection,
    pub(super) plan: CheckPlan,
    pub(super) history: StateHistory,
    /// Time in milliseconds from which the member has its state: the last change, or else the addition of the member.
    pub(super) state_since_ms: Option<u64>,
    /// Result of the last check with its time in milliseconds; None without checks.
    pub(super) last_check: Option<(CheckOutcome, u64)>,
    /// Value of the signed session cookie.
    pub(super) cookie: Option<Arc<str>>,
}

/// Settings that a balancer gives to all members.
#[derive(Clone)]
pub(super) struct SharedSettings {
    /// Checks of the members.
    pub(super) check: Option<Arc<CheckSettings>>,
    /// Passive ejection.
    pub(super) ejection: Arc<EjectionSettings>,
    /// Largest number of tunnels and event streams at a member; None for half of the requests.
    pub(super) tunnels: Option<usize>,
}

impl SharedSettings {
    /// Returns the largest number of tunnels and event streams at a member.
    pub(super) fn tunnels_max(&self, settings: &MemberSettings) -> usize {
        match settings.connections_max {
            Some(connections) => {
                let tunnels = self.tunnels.unwrap_or(connections / 2);
                tunnels.clamp(1, connections.max(1))
            }
            None => usize::MAX,
        }
    }
}

impl MemberCore {
    pub(super) fn new(settings: &MemberSettings, shared: &SharedSettings) -> MemberCore {
        MemberCore {
            weight: Edited::new(settings.weight),
            set: Edited::new(settings.set),
            role: Edited::new(settings.role),
            admin: Edited::new(settings.admin),
            route: Edited::new(settings.route.clone()),
            redirect: Edited::new(settings.redirect.clone()),
            ignores_errors: Edited::new(settings.ignores_errors),
            check: Edited::new(MemberCheck::Balancer),
            balancer_check: shared.check.clone(),
            ejection_settings: Arc::clone(&shared.ejection),
            streak: CheckStreak::default(),
            ejection: Ejection::default(),
            plan: CheckPlan::default(),
            history: StateHistory::default(),
            state_since_ms: None,
            last_check: None,
            cookie: None,
        }
    }

    /// Adopts a new configuration.
    pub(super) fn configure(&mut self, settings: &MemberSettings, shared: &SharedSettings) {
        let had_checks = self.check_settings().is_some();
        self.weight.configure(settings.weight);
        self.set.configure(settings.set);
        self.role.configure(settings.role);
        self.admin.configure(settings.admin);
        self.route.configure(settings.route.clone());
        self.redirect.configure(settings.redirect.clone());
        self.ignores_errors.configure(settings.ignores_errors);
        self.balancer_check.clone_from(&shared.check);
        self.ejection_settings = Arc::clone(&shared.ejection);
        self.settle(had_checks);
    }

    /// Applies a change of the operator.
    pub(super) fn edit(&mut self, edit: MemberEdit) {
        let had_checks = self.check_settings().is_some();
        match edit {
            MemberEdit::Weight(weight) => self.weight.edit(weight),
            MemberEdit::Set(set) => self.set.edit(set),
            MemberEdit::Route(route) => self.route.edit(route),
            MemberEdit::Redirect(route) => self.redirect.edit(route),
            MemberEdit::Admin(admin) => self.admin.edit(admin),
            MemberEdit::Role(role) => self.role.edit(role),
            MemberEdit::IgnoresErrors(ignores) => self.ignores_errors.edit(ignores),
            MemberEdit::CheckFailed(is_failed) => self.streak.force(is_failed),
            MemberEdit::Check(check) => self.check.edit(check),
        }
        self.settle(had_checks);
    }

    /// Ends states without a cause: failed checks of a member without checks any more, and the ejection of a
    /// member that ignores errors.
    fn settle(&mut self, had_checks: bool) {
        if had_checks && self.check_settings().is_none() {
            self.streak.force(false);
            self.last_check = None;
        }
        if *self.ignores_errors.current() {
            self.ejection.clear();
        }
    }

    /// Returns the settings of the member's checks. A stopped member has no checks.
    pub(super) fn check_settings(&self) -> Option<Arc<CheckSettings>> {
        if *self.admin.current() == AdminState::Stopped {
            return None;
        }
        match self.check.current() {
            MemberCheck::Balancer => self.balancer_check.clone(),
            MemberCheck::Off => None,
            MemberCheck::Own(check) => Some(Arc::clone(check)),
        }
    }

    /// Returns everything that a choice reads of the member.
    pub(super) fn standing(&self) -> Standing {
        Standing {
            admin: *self.admin.current(),
            role: *self.role.current(),
            is_check_failed: self.streak.is_failed(),
            is_unproven: self.streak.is_unrefuted_failure() && !*self.ignores_errors.current(),
            is_ejected: self.ejection.until_ms().is_some(),
            has_paused_clients: self.ejection.has_paused_clients(),
            set: *self.set.current(),
            weight: *self.weight.current(),
        }
    }
}
