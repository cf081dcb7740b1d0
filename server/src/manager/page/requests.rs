//! Requests under way on the page, the oldest first: with the paths and the clients for a login, and without them for
//! all other clients.

use super::parts::{LEFT, RIGHT, open_scroll, push_column};
use crate::admin::active_requests::{host, site};
use crate::git::browse::render::html::Html;
use crate::manager::access::Rights;
use crate::manager::limits::MANAGER_ACTIVE_REQUESTS;
use crate::manager::snapshot::Snapshot;

/// Columns for all clients. The age is a number, at the right.
const COLUMNS: [&str; 6] = ["Age", "State", "Version", "Method", "Site", "Member"];
/// Further columns for a login.
const LOGIN_COLUMNS: [&str; 3] = ["Client", "Host", "Path"];

/// Appends the requests under way.
pub(super) fn push_requests(page: &mut Html, snapshot: &Snapshot, rights: Rights) {
    let has_login = rights != Rights::Public;
    let list = &snapshot.requests;
    let shown = list.oldest.requests.len().min(MANAGER_ACTIVE_REQUESTS);
    page.markup("<h2>Requests under way</h2>\n<p class=soft>");
    page.text(list.summary(shown)).markup("</p>\n");
    if shown == 0 {
        return;
    }
    if !has_login {
        page.markup("<p class=soft>Paths and clients are shown after a login: ");
        page.markup("<code>anthill manager login</code></p>\n");
    }
    open_scroll(page, "Table of the requests under way");
    page.markup("<table aria-label=\"Requests under way\"><thead><tr>");
    let further = if has_login { &LOGIN_COLUMNS[..] } else { &[] };
    for column in COLUMNS.iter().chain(further) {
        let open = if *column == "Age" { RIGHT } else { LEFT };
        push_column(page, column, open);
    }
    page.markup("</tr></thead><tbody>\n");
    for request in &list.oldest.requests[..shown] {
        page.markup("<tr><td class=n>").text(list.age(request));
        let member = request.member.as_deref().unwrap_or("-");
        let site = Some(site(request)).filter(|site| !site.is_empty());
        let (phase, site) = (request.phase.name(), site.unwrap_or("no site"));
        for text in [phase, request.version, request.method, site, member] {
            page.markup("</td><td>").text(text);
        }
        if has_login {
            let client = request.client.to_string();
            for text in [client, host(request), request.target.path()] {
                page.markup("</td><td>").text(text);
            }
        }
        page.markup("</td></tr>\n");
    }
    page.markup("</tbody></table></div>\n");
}
