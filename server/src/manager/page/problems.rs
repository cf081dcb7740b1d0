//! List of what is wrong with the server, for the top of the page.

use super::balancer::{selection_url, state};
use super::time::push_timed;
use crate::admin::limits::MANAGER_PROBLEMS_MAX;
use crate::admin::problems::{Problem, members_down, problems};
use crate::config::shown_url;
use crate::git::browse::render::html::Html;
use crate::manager::snapshot::Snapshot;
use balancer::MemberReport;

/// Appends the list of problems, the errors first.
pub(super) fn push_problems(page: &mut Html, snapshot: &Snapshot) {
    let problems = problems(&snapshot.facts_for_metrics());
    let down = members_down(&snapshot.balancers.balancers);
    if problems.is_empty() && down.is_empty() {
        page.markup("<p class=\"verdict fine\"><b>\u{2713} No problems found.</b></p>\n");
        return;
    }
    page.markup("<h2 id=problems>Problems</h2>\n<ul class=problems>");
    for problem in &problems {
        if let Problem::Error(text) = problem {
            push_timed(open_error(page), text);
            page.markup("</li>");
        }
    }
    push_members_down(page, &down);
    for problem in &problems {
        if let Problem::Warning(text) = problem {
            page.markup("<li class=warn><b>\u{26a0} Warning:</b> ");
            push_timed(page, text);
            page.markup("</li>");
        }
    }
    page.markup("</ul>\n");
}

fn open_error(page: &mut Html) -> &mut Html {
    page.markup("<li class=bad><b>\u{2715} Error:</b> ")
}

/// Appends the first of the members that are down, each with a link and the last change of the state.
fn push_members_down(page: &mut Html, down: &[(&str, &MemberReport)]) {
    for (balancer, member) in down.iter().take(MANAGER_PROBLEMS_MAX) {
        let url = shown_url(&member.url);
        open_error(page).text(balancer).markup(": ");
        page.link(&selection_url(balancer, Some(&url)), &url);
        page.markup(": ").text(state(member));
        if let Some(change) = member.changes.last() {
            page.markup(" (").text(change.to_string()).markup(")");
        }
        page.markup("</li>");
    }
    if let Some(more @ 1..) = down.len().checked_sub(MANAGER_PROBLEMS_MAX) {
        open_error(page).text(more.to_string());
        page.markup(" more members get no requests</li>");
    }
}
