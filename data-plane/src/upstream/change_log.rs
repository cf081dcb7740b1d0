//! Log lines for changes of members.

use crate::upstream::balancer::{ChangeReason, DoubtChange, StateChange};
use crate::upstream::settings::MemberUrl;
use log::Level;

/// Logs the change of a member's state: a warning for a member that fails, else an information.
pub fn log_change(balancer: &str, member: &MemberUrl, change: StateChange) {
    let is_intended = matches!(
        change.reason,
        ChangeReason::Operator | ChangeReason::Configuration
    );
    let level = match is_intended || change.new.is_usable() {
        true => Level::Info,
        false => Level::Warn,
    };
    log::log!(level, "balancer {balancer}: {member} {change}");
}

/// Logs the beginning or the end of the doubt about the checks of a balancer.
pub fn log_doubt(balancer: &str, doubt: DoubtChange) {
    match doubt {
        DoubtChange::Begun => log::warn!(
            "balancer {balancer}: most members fail their checks, so the checks are doubted and \
             members with failed checks are tried"
        ),
        DoubtChange::Ended => {
            log::info!(
                "balancer {balancer}: enough members pass their checks, so the checks count again"
            );
        }
    }
}
