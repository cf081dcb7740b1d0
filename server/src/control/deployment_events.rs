//! Handling of deployment events: a push begins deployments, and a deployed tree is served before the
//! waiting clients get a response.

use super::deployments::{DeploymentEvent, FinishedDeployment, PublishOutcome};
use super::rebuild::Rebuilder;
use crate::deploy::{DeployError, DeployFailureCause, DeployOutcome, DeployPlan, DeployedTree};
use data_plane::site::Site;

/// Handles a deployment event.
pub(super) async fn handle(rebuilder: &mut Rebuilder, event: DeploymentEvent) {
    match event {
        DeploymentEvent::Pushed(pushed) => rebuilder.deployments_mut().pushed(pushed),
        DeploymentEvent::Done(finished) => finish(rebuilder, finished).await,
    }
}

/// Serves the tree of a finished attempt, then responds to the waiting clients.
async fn finish(rebuilder: &mut Rebuilder, finished: FinishedDeployment) {
    let older = rebuilder.deployments_mut().finish_attempt(&finished);
    let FinishedDeployment { plan, outcome } = finished;
    let published = match (outcome, older) {
        // No client waits for an older tree that could not be read before.
        (DeployOutcome::Deployed(tree), _) => serve(rebuilder, &plan, tree).await,
        (outcome, Some(older)) => {
            // The older tree may be readable by now, regardless of the outcome for the later commit.
            let published = serve(rebuilder, &plan, older).await;
            without_new_tree(outcome, published)
        }
        (outcome, None) => without_new_tree(outcome, PublishOutcome::Served),
    };
    if rebuilder.deployments_mut().settle(&plan, published) {
        // The repository was unreadable, so the branch had no watch. With the new watch, the branch is
        // checked again.
        rebuilder.mark_branches_changed();
        rebuilder.apply().await;
    }
}

/// Returns the outcome of an attempt that deployed no new tree. `published` is the outcome for the tree that
/// the root leads to.
fn without_new_tree(outcome: DeployOutcome, published: PublishOutcome) -> PublishOutcome {
    match outcome {
        // The branch may have been deleted; the server still serves the tree of the root.
        DeployOutcome::Same | DeployOutcome::NoBranch | DeployOutcome::Deployed(_) => published,
        DeployOutcome::StillFailed => PublishOutcome::StillFailed,
        DeployOutcome::Failed(cause, why) => PublishOutcome::Failed(cause, why),
    }
}

/// Publishes a World with the tree. Returns when every worker serves the tree.
async fn serve(rebuilder: &mut Rebuilder, plan: &DeployPlan, tree: DeployedTree) -> PublishOutcome {
    rebuilder.rescan_sites_of(plan);
    rebuilder.apply().await;
    let is_old = |site: &Site| site.rules().root == plan.root && !tree.is_in(site);
    let has_old = rebuilder.places().any(|(_, site)| is_old(&site));
    if has_old {
        // The server may have run out of file descriptors. The control plane tries an older tree again.
        let cause = DeployFailureCause::Commit(tree.commit.clone());
        rebuilder.deployments_mut().mark_unread(plan, tree);
        let what = "the deployed tree can't be read yet; see the error log";
        return PublishOutcome::Failed(cause, DeployError::new(what));
    }
    rebuilder.forget_pages(plan);
    log::info!("{}", plan.success_message(&tree));
    rebuilder
        .deployments_mut()
        .mark_served(plan, tree.commit, tree.release);
    PublishOutcome::Served
}
