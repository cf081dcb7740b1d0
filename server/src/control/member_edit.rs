//! The commands `anthill balancer`: the list of the balancers, and changes of a member's state.

use crate::admin::balancers::BalancerList;
use crate::admin::command::MemberCommand;
use crate::admin::member_name::{find_balancer, find_member};
use crate::base::clock::monotonic_ms;
use crate::limits::{MEMBER_WAIT_POLL_MILLISECONDS, MEMBER_WAIT_SECONDS_MAX};
use crate::upstream::balancer::{Balancer, Member, MemberEdit};
use crate::upstream::checker::Checker;
use crate::upstream::{log_change, log_doubt};
use crate::world::World;
use std::sync::Arc;
use std::time::Duration;

/// Returns the balancers of the World with their members, or the balancer with the name `only`. The error is the
/// answer for the operator.
pub(super) fn list(world: &World, only: Option<&str>) -> Result<BalancerList, String> {
    let now_ms = monotonic_ms();
    let mut plans = &world.balancers[..];
    if let Some(only) = only {
        let names = plans.iter().map(|plan| plan.balancer().name());
        let at = find_balancer(only, &names.collect::<Vec<_>>())?;
        plans = &plans[at..=at];
    }
    let reports = plans.iter().map(|plan| plan.balancer().report(now_ms));
    Ok(BalancerList {
        now_ms,
        balancers: reports.collect(),
    })
}

/// Member with a changed state.
pub(super) struct EditedMember {
    balancer: Arc<Balancer>,
    member: Arc<Member>,
    wait: Option<Duration>,
}

/// Changes the state of a member. The error is the answer for the operator.
pub(super) fn edit(
    world: &World,
    checker: &Checker,
    command: &MemberCommand,
) -> Result<EditedMember, String> {
    let names = world.balancers.iter().map(|plan| plan.balancer().name());
    let at = find_balancer(&command.balancer, &names.collect::<Vec<_>>())?;
    let balancer = Arc::clone(world.balancers[at].balancer());
    let now_ms = monotonic_ms();
    let members = balancer.report(now_ms).members.into_iter();
    let members: Vec<_> = members.map(|member| (member.url, member.route)).collect();
    let at = find_member(balancer.name(), &command.member, &members)?;
    let member = balancer.member(&members[at].0);
    let member = member.ok_or_else(|| "error: the member is gone\n".to_owned())?;
    let edit = MemberEdit::Admin(command.state);
    let report = balancer.edit_member(member.id(), edit, now_ms);
    let report = report.map_err(|error| format!("error: {error}\n"))?;
    if let Some(change) = report.change {
        log_change(balancer.name(), member.url(), change);
    }
    if let Some(doubt) = report.doubt {
        log_doubt(balancer.name(), doubt);
    }
    checker.wake();
    let wait = command.wait_seconds.map(|seconds| {
        let seconds = seconds.min(MEMBER_WAIT_SECONDS_MAX);
        Duration::from_secs(seconds.into())
    });
    Ok(EditedMember {
        balancer,
        member,
        wait,
    })
}

impl EditedMember {
    /// Waits for the end of the member's requests, if the operator wants to wait. Returns the answer for the
    /// operator.
    pub(super) async fn answer(self) -> Result<String, String> {
        let Some(wait) = self.wait else {
            return Ok(self.line() + "\n");
        };
        let poll = Duration::from_millis(MEMBER_WAIT_POLL_MILLISECONDS);
        let idle = async {
            while self.member.busy() > 0 {
                tokio::time::sleep(poll).await;
            }
        };
        match tokio::time::timeout(wait, idle).await {
            Ok(()) => Ok(self.line() + "\n"),
            Err(_) => Err(format!(
                "error: {} after {} s\n\
                 help: the state of the member is changed; repeat the command to wait longer\n",
                self.line(),
                wait.as_secs()
            )),
        }
    }

    /// Returns the state of the member as a line without its end.
    pub(super) fn line(&self) -> String {
        let requests = match self.member.busy() {
            0 => "no request".to_owned(),
            1 => "1 request".to_owned(),
            busy => format!("{busy} requests"),
        };
        let (name, url) = (self.balancer.name(), self.member.url());
        let state = self.member.state().name();
        format!("{name}: {url}: {state}, {requests} under way")
    }
}
