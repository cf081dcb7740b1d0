//! Requests under way on the page, the oldest first: with the paths and the clients for a login, and without them for
//! all other clients.

use super::parts::{LEFT, RIGHT, Table, close_table};
use crate::admin::active_requests::{host, site};
use crate::git::browse::render::html::Html;
use crate::manager::access::Rights;
use crate::manager::limits::MANAGER_ACTIVE_REQUESTS;
use crate::manager::snapshot::Snapshot;

/// Columns of the table. The last columns are for a login. The age is a number, at the right.
pub(super) const REQUESTS: Table = Table {
    class: "requests",
    columns: &[
        ("Age", RIGHT),
        ("State", LEFT),
        ("Version", LEFT),
        ("Method", LEFT),
        ("Site", LEFT),
        ("Member", LEFT),
        ("Client", LEFT),
        ("Host", LEFT),
        ("Path", LEFT),
    ],
    has_titles: false,
};
/// Number of columns for all clients.
const PUBLIC_COLUMNS: usize = 6;

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
    let columns = if has_login {
        usize::MAX
    } else {
        PUBLIC_COLUMNS
    };
    REQUESTS.open(page, "Requests under way", columns);
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
    close_table(page);
}
