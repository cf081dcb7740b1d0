//! Settings of a balancer in force: the configuration with the changes of the operator, every value that Apache's
//! balancer-manager can change.

use crate::balancer_settings::{BalancerSettings, StickySettings};
use crate::edit::{EditError, Edited, MemberEdit};
use crate::member_settings::MemberUrl;
use crate::method::BalancingMethod;
use std::sync::Arc;
use std::time::Duration;

/// Settings of a balancer, configured and in force.
pub(crate) struct Policies {
    method: Edited<BalancingMethod>,
    sticky: Edited<Option<StickySettings>>,
    attempts_max: Edited<u8>,
    queue_timeout: Edited<Duration>,
    /// Settings in force.
    current: Arc<BalancerSettings>,
}

impl Policies {
    /// Adopts the first configuration.
    pub(crate) fn new(settings: BalancerSettings) -> Policies {
        Policies {
            method: Edited::new(settings.method),
            sticky: Edited::new(settings.sticky.clone()),
            attempts_max: Edited::new(settings.retry.attempts_max),
            queue_timeout: Edited::new(settings.connection.queue_timeout),
            current: Arc::new(settings),
        }
    }

    /// Returns the settings in force.
    pub(crate) fn current(&self) -> &Arc<BalancerSettings> {
        &self.current
    }

    /// Adopts a new configuration.
    pub(crate) fn configure(&mut self, settings: BalancerSettings) {
        self.method.configure(settings.method);
        self.sticky.configure(settings.sticky.clone());
        self.attempts_max.configure(settings.retry.attempts_max);
        self.queue_timeout
            .configure(settings.connection.queue_timeout);
        self.put_in_force(settings);
    }

    /// Applies a change of the operator.
    pub(crate) fn edit(&mut self, edit: BalancerEdit) {
        match edit {
            BalancerEdit::Method(method) => self.method.edit(method),
            BalancerEdit::Sticky(sticky) => self.sticky.edit(sticky),
            BalancerEdit::Strict(is_strict) => {
                let sticky = self.sticky.current().clone();
                let sticky = sticky.map(|sticky| StickySettings {
                    is_strict,
                    ..sticky
                });
                self.sticky.edit(sticky);
            }
            BalancerEdit::AttemptsMax(attempts) => self.attempts_max.edit(attempts),
            BalancerEdit::QueueTimeout(timeout) => self.queue_timeout.edit(timeout),
        }
        self.put_in_force(BalancerSettings::clone(&self.current));
    }

    fn put_in_force(&mut self, mut settings: BalancerSettings) {
        settings.method = *self.method.current();
        settings.sticky.clone_from(self.sticky.current());
        settings.retry.attempts_max = *self.attempts_max.current();
        settings.connection.queue_timeout = *self.queue_timeout.current();
        self.current = Arc::new(settings);
    }
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

impl BalancerEdit {
    /// Checks the ranges of Apache.
    pub(crate) fn check(&self) -> Result<(), EditError> {
        let is_in_range = match self {
            BalancerEdit::AttemptsMax(attempts) => *attempts <= 99,
            BalancerEdit::QueueTimeout(timeout) => timeout.as_secs() <= 7_200,
            BalancerEdit::Method(_) | BalancerEdit::Sticky(_) | BalancerEdit::Strict(_) => true,
        };
        is_in_range.then_some(()).ok_or(EditError::OutOfRange)
    }
}

/// Changes of the operator that are in force at a balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BalancerEdits {
    /// Changes of the balancer.
    pub balancer: Vec<BalancerEdit>,
    /// Changes of members, each with the URL of the member.
    pub members: Vec<(MemberUrl, MemberEdit)>,
}
