//! The page of the manager: problems, the selected balancer or member with its forms, the server, its
//! certificates, the balancers with their members, and the edits. The page works without script.

mod backends;
mod balancer;
mod chart;
mod edit_form;
mod history;
mod member;
mod parts;
mod problems;
mod requests;
mod sections;
mod server;
mod style;
mod time;
mod ticks;

pub(super) use balancer::{selection_url, table_url};
pub(super) use style::style_sheet;

use super::access::Visitor;
use super::form::Form;
use super::form_edit::FormRefusal;
use super::gzip::SharedText;
use super::live_part::LivePart;
use super::selection::Selection;
use super::snapshot::Snapshot;
use crate::admin::edit_ledger::{EditChange, MEMBERSHIP};
use crate::admin::limits::EDIT_HISTORY_ENTRIES_MAX;
use crate::git::browse::render::html::Html;
use crate::manager::limits::MANAGER_HISTORY_ENTRIES;
use ::balancer::settings::CheckKind;
use edit_form::EditForm;
use history::push_history;
use member::push_selected;
use parts::push_hidden;
use std::sync::Arc;
use ticks::push_tick_forms;

/// The page for one client.
pub(in crate::manager) struct Page<'p> {
    /// State of the server.
    pub(in crate::manager) snapshot: &'p Snapshot,
    /// Login of the client.
    pub(in crate::manager) visitor: &'p Visitor,
    /// Token of the login; None for a client that may not edit.
    pub(in crate::manager) token: Option<&'p str>,
    /// True if a user may log in by password.
    pub(in crate::manager) has_users: bool,
}

/// Content of the page below the header.
pub(in crate::manager) enum Content<'p> {
    /// The whole page.
    Overview {
        /// Balancer or member with a form.
        selected: Option<&'p Selection<'p>>,
        /// Reason why the client sees no selection.
        error: &'p str,
        /// Refused form with the reasons.
        refused: Option<(&'p Form, &'p FormRefusal)>,
    },
    /// All entries of the history.
    History,
    /// A question before a dangerous edit, with the form of the edit and the changes.
    Question(&'p str, &'p Form, &'p [EditChange]),
}

/// Rendered page: the part that all clients share, between the parts of one client.
pub(in crate::manager) struct PageText {
    /// Text before the shared part.
    pub(in crate::manager) head: SharedText,
    /// Shared part, if the page has it.
    pub(in crate::manager) live: Option<Arc<LivePart>>,
    /// Text after the shared part.
    pub(in crate::manager) foot: SharedText,
}

impl Page<'_> {
    /// Renders the page.
    pub(in crate::manager) fn render(&self, content: &Content<'_>) -> PageText {
        let status = &self.snapshot.status;
        let mut page = Html::default();
        let mut foot = Html::default();
        let mut live = None;
        page.markup("<!doctype html>\n<html lang=en><meta charset=utf-8>")
            .markup("<meta name=viewport content=\"width=device-width,initial-scale=1\">")
            .markup("<title>Manager</title><link rel=stylesheet href=\"/style.css\"><script src=\"/live.js\" defer></script>\n")
            .markup("<header><h1 class=path><a href=\"/\">Manager</a></h1><p class=about>anthill ")
            .text(status.version)
            .markup(", configuration ")
            .text(&status.configuration)
            .markup("</p>");
        self.push_login(&mut page);
        page.markup("</header>\n<main>\n");
        match content {
            Content::Overview {
                selected,
                error,
                refused,
            } => {
                let refusal = refused.map_or("", |(_, refusal)| &refusal.error);
                for error in [error, refusal] {
                    push_error(&mut page, error);
                }
                if let Some(selected) = selected {
                    self.push_selection(&mut page, selected, *refused);
                }
                if let Some(token) = self.token {
                    push_tick_forms(&mut page, &self.snapshot.balancers, token);
                }
                page.markup("<div id=live>\n");
                live = Some(Arc::clone(self.snapshot.live(self.visitor.rights())));
                foot.markup("</div>\n");
                let ledger = &self.snapshot.edits.ledger;
                push_history(&mut foot, ledger, self.token, MANAGER_HISTORY_ENTRIES);
            }
            Content::History => {
                let ledger = &self.snapshot.edits.ledger;
                push_history(&mut page, ledger, self.token, EDIT_HISTORY_ENTRIES_MAX);
            }
            Content::Question(question, form, changes) => {
                self.push_question(&mut page, question, form, changes);
            }
        }
        foot.markup("</main>\n<footer>anthill</footer>\n</html>\n");
        PageText {
            head: page.into_string().into(),
            live,
            foot: foot.into_string().into(),
        }
    }

    /// Appends the selected balancer or member.
    fn push_selection(
        &self,
        page: &mut Html,
        selection: &Selection<'_>,
        refused: Option<(&Form, &FormRefusal)>,
    ) {
        let configured = self.snapshot.edits.configured.iter();
        let conditions = configured.filter_map(|it| match &it.settings.check.as_ref()?.kind {
            CheckKind::Http { .. } => Some(&*it.settings.name),
            CheckKind::Tcp => None,
        });
        let conditions: Vec<&str> = conditions.collect();
        let form = self.token.map(|token| EditForm {
            selection,
            token,
            conditions: &conditions,
            refused,
        });
        let list = &self.snapshot.balancers;
        push_selected(page, list, selection, form.as_ref());
    }

    /// Appends a question with the changes, the fields of a form, and a button that confirms the edit.
    fn push_question(&self, page: &mut Html, question: &str, form: &Form, changes: &[EditChange]) {
        page.markup("<section class=question><h2>Confirm the edit</h2><ul>");
        for change in changes {
            page.markup("<li>").text(change.line()).markup("</li>\n");
        }
        page.markup("</ul><p>");
        push_marked(page, question);
        page.markup("</p><form method=post action=\"/\" class=bar>");
        let ticked = form.values("w").filter(|_| form.is_of_ticked());
        ticked.for_each(|url| push_named(page, "w", url));
        for (name, value) in form.fields() {
            let is_ticked = name == "w" && form.is_of_ticked();
            if name != "nonce" && name != "confirmed" && !is_ticked {
                push_named(page, &name, &value);
            }
        }
        push_hidden(page, "nonce", self.token.unwrap_or_default());
        push_hidden(page, "confirmed", "1");
        page.markup("<button class=danger>")
            .text(confirmation(changes));
        page.markup("</button>");
        page.link("/", "Cancel").markup("</form></section>\n");
    }

    /// Appends the name of the login with a button to log out, or the ways to log in.
    fn push_login(&self, page: &mut Html) {
        page.markup("<div class=login>");
        match self.visitor.name() {
            Some(name) => page
                .markup("<span>Logged in: <b>")
                .text(name)
                .markup("</b></span>"),
            None => page.markup("<span>Read only</span>"),
        };
        match (self.visitor, self.token) {
            (Visitor::Session(_), Some(token)) => {
                page.markup("<form method=post action=\"/logout\">");
                push_hidden(page, "nonce", token);
                page.markup("<button>Log out</button></form>");
            }
            (Visitor::Anonymous, _) if self.has_users => {
                page.markup("<a href=\"/login\">Log in</a>");
            }
            (Visitor::Anonymous, _) => {
                page.markup("<span>To edit: <code>anthill manager login</code></span>");
            }
            _ => {}
        }
        page.markup("</div>");
    }
}

/// Appends the reason of a refusal; nothing for an empty reason.
fn push_error(page: &mut Html, error: &str) {
    if !error.is_empty() {
        page.markup("<p class=error role=alert>");
        push_marked(page, error);
        page.markup("</p>\n");
    }
}

/// Appends a message for terminals, with the words between backticks in bold type.
fn push_marked(page: &mut Html, message: &str) {
    for (nth, part) in message.split('`').enumerate() {
        let [open, close] = [["", ""], ["<b>", "</b>"]][nth % 2];
        page.markup(open).text(part).markup(close);
    }
}

/// Returns the label of the button that confirms changes.
fn confirmation(changes: &[EditChange]) -> String {
    let verb = |change: &EditChange| match (&*change.target.value, &*change.new) {
        (MEMBERSHIP, _) => "Remove",
        (_, "disabled") => "Disable",
        (_, "draining") => "Drain",
        (_, "stopped") => "Stop",
        _ => "Change",
    };
    match changes {
        [one] => {
            let member = &one.target.member;
            let member = member.strip_prefix("http://").unwrap_or(member);
            format!("{} {member}", verb(one))
        }
        [first, rest @ ..] if rest.iter().all(|it| verb(it) == verb(first)) => {
            format!("{} {} members", verb(first), changes.len())
        }
        _ => "Confirm".to_owned(),
    }
}

/// Appends a hidden field with a name of the client.
fn push_named(page: &mut Html, name: &str, value: &str) {
    page.markup("<input type=hidden name=\"").text(name);
    page.markup("\" value=\"").text(value).markup("\">");
}

/// Script that updates the page.
pub(super) const LIVE: &str = include_str!("live.js");
