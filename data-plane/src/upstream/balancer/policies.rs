//! Settings of a balancer with the operator's changes.

use crate::upstream::balancer::edit::BalancerEdit;
use crate::upstream::balancer::edited::Edited;
use crate::upstream::settings::{BalancerSettings, BalancingMethod, StickySettings};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a balancer, configured and in force.
pub(super) struct Policies {
    method: Edited<BalancingMethod>,
    sticky: Edited<Option<StickySettings>>,
    attempts_max: Edited<u8>,
    queue_timeout: Edited<Duration>,
    /// Settings in force.
    current: Arc<BalancerSettings>,
}

impl Policies {
    /// Adopts the first configuration.
    pub(super) fn new(settings: BalancerSettings) -> Policies {
        Policies {
            method: Edited::new(settings.method),
            sticky: Edited::new(settings.sticky.clone()),
            attempts_max: Edited::new(settings.retry.attempts_max),
            queue_timeout: Edited::new(settings.connection.queue_timeout),
            current: Arc::new(settings),
        }
    }

    /// Returns the settings in force.
    pub(super) fn current(&self) -> &Arc<BalancerSettings> {
        &self.current
    }

    /// Adopts a new configuration.
    pub(super) fn configure(&mut self, settings: BalancerSettings) {
        self.method.configure(settings.method);
        self.sticky.configure(settings.sticky.clone());
        self.attempts_max.configure(settings.retry.attempts_max);
        self.queue_timeout
            .configure(settings.connection.queue_timeout);
        self.put_in_force(settings);
    }

    /// Applies a change of the operator.
    pub(super) fn edit(&mut self, edit: BalancerEdit) {
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
