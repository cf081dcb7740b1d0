//! Requests of the manager to the control plane: snapshots of the server, and commands of its users.

use super::banner::manager_urls;
use super::publish::Publisher;
use super::{member_edit, metrics};
use crate::admin::balancers::BalancerList;
use crate::admin::edit_ledger::EditState;
use crate::admin::metrics::history::History;
use crate::admin::status::Status;
use crate::manager::{ManagerRequest, Snapshot, SnapshotState};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

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

/// Sends a snapshot. `state` collects the status of the server and the edits, if no snapshot is recent.
pub(super) fn send_snapshot(
    publisher: &Publisher,
    history: &History,
    state: &dyn Fn() -> (Status, EditState),
    answer: oneshot::Sender<Arc<Snapshot>>,
) {
    let recent = publisher.manager().recent_snapshot();
    let snapshot = recent.unwrap_or_else(|| snapshot(publisher, history, state()));
    // A client that has gone away needs no answer.
    let _ = answer.send(snapshot);
}

/// Returns the URL of a login for each address of the manager, all with one secret. The error is the answer for
/// the operator.
pub(super) fn login(publisher: &Publisher) -> Result<String, String> {
    if !cfg!(feature = "manager") {
        let answer = "error: this build has no manager\nhelp: install a build with the manager\n";
        return Err(answer.to_owned());
    }
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

fn snapshot(
    publisher: &Publisher,
    history: &History,
    (status, edits): (Status, EditState),
) -> Arc<Snapshot> {
    let changes = publisher.manager().changes();
    let nothing = BalancerList {
        now_ms: 0,
        origin_unix_ms: 0,
        balancers: Vec::new(),
    };
    let hits = publisher.world().hosts.iter();
    let hits = hits.filter_map(|host| host.hits.as_ref());
    publisher.manager().add_snapshot(SnapshotState {
        changes,
        status,
        balancers: member_edit::list(publisher.world(), None).unwrap_or(nothing),
        requests: publisher.active_requests(),
        edits,
        facts: metrics::facts(publisher.world(), publisher.stats()),
        hits: hits.map(|hits| hits.views()).collect(),
        history: history.past(),
    })
}
