//! The server's half of the page: state, counters and certificates.

use super::parts::{LEFT, RIGHT, push_column};
use crate::admin::text_table::{bytes, count, duration};
use crate::base::clock::format_utc;
use crate::handler::git::browse::render::html::Html;
use crate::manager::channel::Snapshot;

/// Appends the state of the server.
pub(super) fn push_server(page: &mut Html, snapshot: &Snapshot) {
    let status = &snapshot.status;
    let part =
        |part: usize, whole: usize| format!("{} of {}", bytes(part as u64), bytes(whole as u64));
    let address = |(address, is_tls): &(std::net::SocketAddr, bool)| match is_tls {
        true => format!("https {address}"),
        false => format!("http {address}"),
    };
    let listening: Vec<String> = status.listening.iter().map(address).collect();
    let manager: Vec<String> = snapshot.listening.iter().map(address).collect();
    page.markup("<h2>Server</h2>\n<dl class=facts>");
    let facts = [
        ("Up", duration(status.up_seconds)),
        ("Process", status.pid.to_string()),
        ("Configuration", status.generation.to_string()),
        ("Workers", status.workers.to_string()),
        ("Listens on", listening.join(", ")),
        ("Manager on", manager.join(", ")),
        ("Connections", status.connections.to_string()),
        (
            "Content",
            part(status.content_bytes, status.content_bytes_max),
        ),
        ("Bodies", part(status.body_bytes, status.body_bytes_max)),
        (
            "Page cache",
            part(status.pages.bytes, status.pages.bytes_max),
        ),
        ("Log lines lost", count(status.log_lines_lost)),
    ];
    for (name, value) in facts {
        page.markup("<dt>").markup(name).markup("</dt><dd>");
        page.text(value).markup("</dd>");
    }
    page.markup("</dl>\n<details><summary>Counters</summary><dl class=facts>");
    for (name, value) in status.counters.iter().chain(&status.shares) {
        page.markup("<dt>").text(name.replace('_', " "));
        page.markup("</dt><dd>")
            .text(value.to_string())
            .markup("</dd>");
    }
    page.markup("</dl></details>\n");
}

/// Appends the certificates with the days left.
pub(super) fn push_certificates(page: &mut Html, snapshot: &Snapshot) {
    let certificates = &snapshot.status.certificates;
    if certificates.is_empty() {
        return;
    }
    page.markup("<h2 id=certificates>Certificates</h2>\n<div class=scroll>")
        .markup("<table aria-labelledby=certificates><thead><tr>");
    let columns = [
        ("Names", LEFT),
        ("Days left", RIGHT),
        ("Kind", LEFT),
        ("Renewal", LEFT),
    ];
    columns
        .iter()
        .for_each(|(name, open)| push_column(page, name, open));
    page.markup("</tr></thead><tbody>\n");
    for certificate in certificates {
        let kind = match (certificate.awaits_certificate, certificate.is_self_signed) {
            (true, _) => "self-signed, until the first certificate is issued",
            (false, true) => "self-signed",
            (false, false) => "issued",
        };
        let renewal = certificate
            .renewal
            .as_ref()
            .map(|renewal| match &renewal.failure {
                Some((at, why)) => format!("failed at {}: {why}", format_utc(*at)),
                None => format_utc(renewal.next),
            });
        page.markup("<tr><th scope=row>")
            .text(certificate.names.join(", "));
        page.markup("</th><td class=n>")
            .text(certificate.days_left.to_string());
        page.markup("</td><td>").markup(kind).markup("</td><td>");
        page.text(renewal.unwrap_or_default())
            .markup("</td></tr>\n");
    }
    page.markup("</tbody></table></div>\n");
}
