//! State of a member that changes under its lock: the configured values with the operator's changes, the checks and the
//! ejection.

use crate::check::{CheckOutcome, CheckPlan, CheckStreak};
use crate::edit::{Edited, MemberCheck, MemberEdit};
use crate::ejection::Ejection;
use crate::member_settings::{
    AdminState, CheckSettings, EjectionSettings, MemberRole, MemberSettings,
};
use crate::state::{Standing, StateHistory};
use std::sync::Arc;

/// State of a member that changes under the lock.
pub(crate) struct MemberCore {
    pub(crate) weight: Edited<u32>,
    pub(crate) set: Edited<u8>,
    pub(crate) role: Edited<MemberRole>,
    pub(crate) admin: Edited<AdminState>,
    pub(crate) route: Edited<Box<str>>,
    pub(crate) redirect: Edited<Box<str>>,
    pub(crate) ignores_errors: Edited<bool>,
    pub(crate) check: Edited<MemberCheck>,
    /// Checks of the balancer.
    balancer_check: Option<Arc<CheckSettings>>,
    pub(crate) ejection_settings: Arc<EjectionSettings>,
    pub(crate) streak: CheckStreak,
    pub(crate) ejection: Ejection,
    pub(crate) plan: CheckPlan,
    pub(crate) history: StateHistory,
    /// Time in milliseconds from which the member has its state: the last change, or else the addition of the member.
    pub(crate) state_since_ms: Option<u64>,
    /// Result of the last check with its time in milliseconds; None without checks.
    pub(crate) last_check: Option<(CheckOutcome, u64)>,
    /// Value of the signed session cookie.
    pub(crate) cookie: Option<Arc<str>>,
}

/// Settings that a balancer gives to all members.
#[derive(Clone)]
pub(crate) struct SharedSettings {
    /// Checks of the members.
    pub(crate) check: Option<Arc<CheckSettings>>,
    /// Passive ejection.
    pub(crate) ejection: Arc<EjectionSettings>,
    /// Largest number of tunnels and event streams at a member; None for half of the requests.
    pub(crate) tunnels: Option<usize>,
}

impl SharedSettings {
    /// Returns the largest number of tunnels and event streams at a member.
    pub(crate) fn tunnels_max(&self, settings: &MemberSettings) -> usize {
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
    pub(crate) fn new(settings: &MemberSettings, shared: &SharedSettings) -> MemberCore {
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
    pub(crate) fn configure(&mut self, settings: &MemberSettings, shared: &SharedSettings) {
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
    pub(crate) fn edit(&mut self, edit: MemberEdit) {
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
    pub(crate) fn check_settings(&self) -> Option<Arc<CheckSettings>> {
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
    pub(crate) fn standing(&self) -> Standing {
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
