//! Log lines for changes of members.

use crate::upstream::Balancer;
use balancer::settings::MemberUrl;
use balancer::{ChangeReason, DoubtChange, StateChange};
use log::Level;

/// Logs the change of a member's state: a warning for a member that fails, else an information.
pub fn log_change(balancer: &str, member: &MemberUrl, change: StateChange) {
    let is_intended = matches!(
        change.reason,
        ChangeReason::Operator | ChangeReason::Configuration
    );
    let level = if is_intended || change.new.is_usable() {
        Level::Info
    } else {
        Level::Warn
    };
    log::log!(level, "balancer {balancer}: {member} {change}");
}

/// Logs the beginning or the end of the doubt about the checks of a balancer.
pub fn log_doubt(balancer: &Balancer, doubt: DoubtChange) {
    let is_only = balancer.members().len() == 1;
    let (level, text) = match (doubt, is_only) {
        (DoubtChange::Begun, true) => (
            Level::Warn,
            "the only member fails, and is tried in spite of its failed checks",
        ),
        (DoubtChange::Begun, false) => (
            Level::Warn,
            "most members fail their checks, so the checks are doubted and members with failed checks are tried",
        ),
        (DoubtChange::Ended, true) => (
            Level::Info,
            "the only member passes its checks, so the checks count again",
        ),
        (DoubtChange::Ended, false) => (
            Level::Info,
            "enough members pass their checks, so the checks count again",
        ),
    };
    log::log!(level, "balancer {}: {text}", balancer.name());
}
