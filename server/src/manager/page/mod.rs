//! The page of the manager: the server, its certificates, the balancers with their members, and the form of the
//! selected member. The page works without script.

mod balancer;
mod chart;
mod member;
mod parts;
mod problems;
mod server;
mod style;

pub(super) use member::selection;
pub(super) use style::STYLE;

use super::access::Visitor;
use super::channel::Snapshot;
use crate::handler::git::browse::render::html::Html;
use crate::upstream::balancer::MemberReport;
use balancer::push_balancer;
use member::push_selected;
use parts::push_hidden;
use problems::push_problems;
use server::{
    push_certificates, push_charts, push_counters, push_refusals, push_server, push_sites,
};

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
    /// Balancer and member with a form.
    pub(in crate::manager) selected: Option<(&'p str, &'p str)>,
    /// Reason why an edit was refused.
    pub(in crate::manager) error: Option<&'p str>,
}

impl Snapshot {
    /// Returns the part of the page that all clients share.
    pub(in crate::manager) fn tables(&self) -> &str {
        self.tables.get_or_init(|| tables(self))
    }

    /// Returns the part of the page that all clients share as a server-sent event.
    pub(in crate::manager) fn event(&self) -> &str {
        let event = || format!("data: {}\n\n", self.tables().replace('\n', "\ndata: "));
        self.event.get_or_init(event)
    }

    /// Returns the member with the URL `member`.
    pub(in crate::manager) fn member(&self, balancer: &str, member: &str) -> Option<&MemberReport> {
        let mut balancers = self.balancers.balancers.iter();
        let balancer = balancers.find(|it| *it.settings.name == *balancer)?;
        let mut members = balancer.members.iter();
        members.find(|it| it.url.to_string() == member)
    }
}

impl Page<'_> {
    /// Renders the page.
    pub(in crate::manager) fn html(&self) -> String {
        let status = &self.snapshot.status;
        let tables = self.snapshot.tables();
        let mut page = Html::with_capacity(tables.len() + 4_096);
        page.markup("<!doctype html>\n<html lang=en><meta charset=utf-8>")
            .markup("<meta name=viewport content=\"width=device-width,initial-scale=1\">")
            .markup("<title>Manager</title><link rel=stylesheet href=\"/style.css\"><script src=\"/live.js\" defer></script>\n")
            .markup("<header><h1 class=path>Manager</h1><p class=about>anthill ")
            .text(status.version)
            .markup(", configuration ")
            .text(&status.configuration)
            .markup("</p>");
        self.push_login(&mut page);
        page.markup("</header>\n<main>\n");
        if let Some(error) = self.error {
            page.markup("<p class=error role=alert>").text(error);
            page.markup("</p>\n");
        }
        let selected = self.selected.and_then(|(balancer, url)| {
            let member = self.snapshot.member(balancer, url)?;
            Some((balancer, member))
        });
        if let Some(selected) = selected {
            push_selected(&mut page, &self.snapshot.balancers, selected, self.token);
        }
        page.markup("<div id=live>")
            .markup(tables)
            .markup("</div></main>\n<footer>anthill</footer>\n</html>\n");
        page.into_string()
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

/// Script that updates the page.
pub(super) const LIVE: &str = include_str!("live.js");

/// Renders the parts of the page that are equal for all clients. Each part has an element of its own, so that the script
/// finds the parts again after an update.
fn tables(snapshot: &Snapshot) -> String {
    let mut page = Html::default();
    let parts: [fn(&mut Html, &Snapshot); 8] = [
        push_problems,
        push_server,
        push_charts,
        push_balancers,
        push_sites,
        push_refusals,
        push_certificates,
        push_counters,
    ];
    for push in parts {
        page.markup("<section>");
        push(&mut page, snapshot);
        page.markup("</section>");
    }
    page.into_string()
}

fn push_balancers(page: &mut Html, snapshot: &Snapshot) {
    for balancer in &snapshot.balancers.balancers {
        push_balancer(page, balancer);
    }
}
