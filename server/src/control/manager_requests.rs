//! Requests of the manager to the control plane: snapshots of the server, and commands of its users.

use super::banner::manager_urls;
use super::publish::Publisher;
use super::{member_edit, metrics};
use crate::admin::balancers::BalancerList;
use crate::admin::command::Command;
use crate::admin::status::Status;
use crate::manager::{ManagerRequest, Snapshot};
use crate::serve::worker::Audience;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;

/// Waits for the next request; forever without a channel.
pub(super) async fn next(requests: &mut Option<Receiver<ManagerRequest>>) -> ManagerRequest {
    let request = match requests {
        Some(requests) => requests.recv().await,
        None => None,
    };
    match request {
        Some(request) => request,
        None => std::future::pending().await,
    }
}

/// Answers a request. `status` collects the status of the server.
pub(super) fn answer(publisher: &Publisher, status: &dyn Fn() -> Status, request: ManagerRequest) {
    let context = publisher.manager();
    // A client that has gone away needs no answer, so errors of the senders are ignored.
    match request {
        ManagerRequest::Snapshot(answer) => {
            let recent = context.recent_snapshot();
            let _ = answer.send(recent.unwrap_or_else(|| snapshot(publisher, status())));
        }
        ManagerRequest::Command {
            command,
            user,
            answer,
        } => {
            let outcome = run(publisher, &user, &command);
            context.forget_snapshot();
            let _ = answer.send(outcome);
        }
    }
}

/// Returns the URL of a login for each address of the manager, all with one secret. The error is the answer for
/// the operator.
pub(super) fn login(publisher: &Publisher) -> Result<String, String> {
    let urls = manager_urls(publisher.listeners());
    if urls.is_empty() {
        let answer = "error: the configuration has no manager\n\
                      help: add manager = \"127.0.0.1:8800\" to [server]\n";
        return Err(answer.to_owned());
    }
    let secret = publisher.manager().new_secret();
    let secret = secret.ok_or("error: the system returned no random numbers\n")?;
    let url = |url: &String| format!("{url}login?secret={secret}\n");
    Ok(urls.iter().map(url).collect())
}

fn snapshot(publisher: &Publisher, status: Status) -> Arc<Snapshot> {
    let (balancers, now_ms) = (Vec::new(), 0);
    let nothing = BalancerList { now_ms, balancers };
    let list = member_edit::list(publisher.world(), None).unwrap_or(nothing);
    let listening = publisher.listeners().bound(Audience::Manager).collect();
    let facts = metrics::facts(publisher);
    publisher
        .manager()
        .add_snapshot(status, list, facts, listening)
}

/// Runs a command of a user: a change of a member.
fn run(publisher: &Publisher, user: &str, command: &Command) -> Result<String, String> {
    let Command::Member(edit) = command else {
        return Err("error: the manager only changes members\n".to_owned());
    };
    let edited = member_edit::edit(publisher.world(), publisher.checker(), edit)?;
    let (balancer, member, state) = (&edit.balancer, &edit.member, edit.state.name());
    log::info!("balancer {balancer}: {member} set to {state} (manager: {user})");
    Ok(edited.line())
}
