//! The commands `anthill balancer`: the list of the balancers, and the answer to an edit.

use crate::admin::balancers::BalancerList;
use crate::admin::member_name::find_balancer;
use crate::control::limits::{MEMBER_WAIT_POLL_MILLISECONDS, MEMBER_WAIT_SECONDS_MAX};
use base::clock::{monotonic_ms, monotonic_origin_unix_ms};
use data_plane::upstream::{Balancer, Member};
use data_plane::world::World;
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
        origin_unix_ms: monotonic_origin_unix_ms(),
        balancers: reports.collect(),
    })
}

/// Answer to an edit.
pub(super) struct EditAnswer {
    /// Lines about the changed values.
    lines: Vec<String>,
    balancer: Arc<Balancer>,
    /// Member with a changed state. Its requests under way are a part of the answer.
    member: Option<Arc<Member>>,
    wait: Option<Duration>,
}

impl EditAnswer {
    /// Returns the answer. `member` is given if the operator set the state of the member.
    pub(super) fn new(
        lines: Vec<String>,
        balancer: Arc<Balancer>,
        member: Option<Arc<Member>>,
        wait_seconds: Option<u32>,
    ) -> EditAnswer {
        let wait = wait_seconds.map(|seconds| {
            let seconds = seconds.min(MEMBER_WAIT_SECONDS_MAX);
            Duration::from_secs(seconds.into())
        });
        EditAnswer {
            lines,
            balancer,
            member,
            wait,
        }
    }

    /// Waits for the end of the member's requests, if the operator wants to wait. Returns the text for the
    /// operator.
    pub(super) async fn text(self) -> Result<String, String> {
        let Some(member) = &self.member else {
            return Ok(if self.lines.is_empty() {
                "nothing changed: the values are in force already\n".to_owned()
            } else {
                self.lines.join("\n") + "\n"
            });
        };
        let poll = Duration::from_millis(MEMBER_WAIT_POLL_MILLISECONDS);
        let wait = self.wait.unwrap_or_default();
        let idle = async {
            while self.wait.is_some() && member.busy() > 0 {
                tokio::time::sleep(poll).await;
            }
        };
        match tokio::time::timeout(wait, idle).await {
            Ok(()) => Ok(self.line(member) + "\n"),
            Err(_) => Err(format!(
                "error: {} after {} s\n\
                 help: the state of the member is changed; repeat the command to wait longer\n",
                self.line(member),
                wait.as_secs()
            )),
        }
    }

    /// Returns the state of the member as a line without its end.
    fn line(&self, member: &Member) -> String {
        let requests = match member.busy() {
            0 => "no request".to_owned(),
            1 => "1 request".to_owned(),
            busy => format!("{busy} requests"),
        };
        let (name, url) = (self.balancer.name(), member.url());
        let state = member.state().name();
        format!("{name}: {url}: {state}, {requests} under way")
    }
}
