//! Edits on the page: the newest edit, the differences from anthill.toml, and the history with a button to undo each
//! edit.

use super::parts::push_hidden;
use super::time::{push_time, push_timed};
use crate::admin::edit_ledger::{EditEntry, EditLedger};
use crate::admin::edit_report::EditDifferences;
use crate::git::browse::render::html::Html;
use crate::manager::snapshot::Snapshot;

/// Appends the newest edit, and the edits in force with the lines for anthill.toml. The script of the page compares the
/// newest edits of two renderings.
pub(super) fn push_edits(page: &mut Html, snapshot: &Snapshot) {
    let (ledger, configured) = (&snapshot.edits.ledger, &snapshot.edits.configured);
    if let Some(entry) = ledger.history.back() {
        page.markup("<p class=soft id=newest-edit>Newest edit, entry ");
        page.text(entry.id.to_string()).markup(": ");
        push_timed(page, &entry.line());
        page.markup("</p>\n");
    }
    let count = ledger.in_force.len();
    if count == 0 {
        return;
    }
    page.markup("<details><summary>Differences from anthill.toml: ");
    page.text(count.to_string()).markup("</summary>");
    let differences = EditDifferences::new(ledger, configured);
    page.preformatted(differences.edits_text().as_bytes());
    for (heading, lines) in differences.blocks() {
        // The style hides the button from browsers without script.
        page.markup("<p class=bar><span>").text(heading);
        page.markup(":</span> <button type=button class=copy>Copy the lines</button></p>");
        page.preformatted(lines.as_bytes());
    }
    page.markup("</details>\n");
}

/// Appends the newest entries of the history, at most `max`. A client with the token of a login gets the buttons; an
/// entry that leaves its value has none.
pub(super) fn push_history(page: &mut Html, ledger: &EditLedger, token: Option<&str>, max: usize) {
    if ledger.history.is_empty() {
        return;
    }
    page.markup("<h2 id=history>History of edits</h2>\n<ul class=rows aria-labelledby=history>");
    for entry in ledger.history.iter().rev().take(max) {
        push_entry(page, entry, token);
    }
    page.markup("</ul>\n");
    if ledger.history.len() > max {
        page.markup("<p>").link("/history", "All entries");
        page.markup("</p>\n");
    }
}

fn push_entry(page: &mut Html, entry: &EditEntry, token: Option<&str>) {
    page.markup("<li><div class=main>").text(entry.line());
    for (word, id) in [
        ("undoes", entry.change.undoes),
        ("undone by", entry.undone_by),
    ] {
        if id != 0 {
            page.markup(" <span class=soft>(").markup(word);
            page.markup(" ").text(id.to_string()).markup(")</span>");
        }
    }
    page.markup("</div><div class=side><span>entry ");
    page.text(entry.id.to_string()).markup("</span><span>");
    page.text(&entry.user).markup("</span><span>");
    push_time(page, entry.at);
    page.markup("</span>");
    let is_change = entry.change.old != entry.change.new;
    if let Some(token) = token.filter(|_| entry.undone_by == 0 && is_change) {
        let id = entry.id.to_string();
        page.markup("<form method=post action=\"/\">");
        push_hidden(page, "nonce", token);
        push_hidden(page, "undo", &id);
        page.markup("<button aria-label=\"Undo entry ").text(&id);
        page.markup("\">Undo</button></form>");
    }
    page.markup("</div></li>\n");
}
