//! A balancer on the page, with a table of its members.

use super::member::selection;
use super::parts::{LEFT, RIGHT, push_column};
use crate::admin::balancers::{BalancerList, COLUMNS, LEFT_COLUMNS};
use crate::handler::git::browse::render::html::Html;
use crate::upstream::balancer::{BalancerReport, MemberReport};

/// Appends a balancer with a table of its members.
pub(super) fn push_balancer(page: &mut Html, balancer: &BalancerReport) {
    let settings = &balancer.settings;
    page.markup("<h2>").text(&*settings.name);
    page.markup("</h2>\n<p class=soft>Method ")
        .text(settings.method.name());
    if balancer.waiting > 0 {
        page.markup("; waiting requests: ")
            .text(balancer.waiting.to_string());
    }
    if balancer.are_checks_doubted {
        page.markup("; checks doubted: most members fail, so members with failed checks are tried");
    }
    page.markup("</p>\n<div class=scroll><table aria-label=\"Members of ");
    page.text(&*settings.name).markup("\"><thead><tr>");
    for (at, column) in COLUMNS.iter().enumerate() {
        let open = match LEFT_COLUMNS.contains(&at) {
            true => LEFT,
            false => RIGHT,
        };
        let (first, rest) = column.split_at(1);
        push_column(page, &(first.to_owned() + &rest.to_lowercase()), open);
    }
    page.markup("</tr></thead><tbody>\n");
    for member in &balancer.members {
        push_member(page, &settings.name, member);
    }
    page.markup("</tbody></table></div>\n");
}

fn push_member(page: &mut Html, balancer: &str, member: &MemberReport) {
    page.markup("<tr>");
    for (at, cell) in BalancerList::cells(member).iter().enumerate() {
        match at {
            0 => {
                page.markup("<th scope=row>");
                page.link(&selection(balancer, &member.url.to_string()), cell);
                page.markup("</th>");
            }
            _ if LEFT_COLUMNS.contains(&at) => {
                page.markup("<td>").text(cell).markup("</td>");
            }
            _ => {
                page.markup("<td class=n>").text(cell).markup("</td>");
            }
        }
    }
    page.markup("</tr>\n");
}
