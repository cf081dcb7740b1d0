//! Table of the FastCGI and SCGI backends.

use super::balancer::latency_bound;
use super::parts::{LEFT, RIGHT, Table, close_table, push_number};
use crate::admin::backends::routes;
use crate::admin::text_table::count;
use crate::git::browse::render::html::Html;
use crate::manager::snapshot::Snapshot;
use data_plane::upstream::{BackendReport, ReusePolicy};

/// Columns of the table.
pub(super) const BACKENDS: Table = Table {
    class: "backends",
    columns: &[
        ("Backend", LEFT),
        ("Under way", RIGHT),
        ("Waiting", RIGHT),
        ("Places", RIGHT),
        ("Kept open", RIGHT),
        ("2xx", RIGHT),
        ("3xx", RIGHT),
        ("4xx", RIGHT),
        ("5xx", RIGHT),
        ("Failed", RIGHT),
        ("Refused", RIGHT),
        ("Median \u{2264} ms", RIGHT),
        ("99 % \u{2264} ms", RIGHT),
    ],
    has_titles: true,
};

/// Appends the table; nothing without a backend.
pub(super) fn push_backends(page: &mut Html, snapshot: &Snapshot) {
    let backends = &snapshot.status.backends;
    if backends.is_empty() {
        return;
    }
    page.markup("<h2>FastCGI and SCGI backends</h2>\n");
    BACKENDS.open(page, "Backends of scripts", usize::MAX);
    for backend in backends {
        push_backend(page, backend);
    }
    close_table(page);
}

fn push_backend(page: &mut Html, backend: &BackendReport) {
    page.markup("<tr><th scope=row>").text(&backend.address);
    page.markup("<small>")
        .text(routes(backend))
        .markup("</small>");
    if let Some(fault) = &backend.fault {
        page.markup("<small class=down>the last connection failed: ");
        page.text(fault).markup("</small>");
    }
    page.markup("</th>");
    for number in [backend.busy, backend.waiting, backend.places] {
        push_number(page, &count(number as u64));
    }
    match backend.keep {
        ReusePolicy::UpTo(_) => push_number(page, &count(backend.idle as u64)),
        ReusePolicy::Never | ReusePolicy::Handover => push_number(page, "-"),
    }
    let answers = backend.answers[1..].iter();
    for number in answers.chain([&backend.failures, &backend.refused]) {
        push_number(page, &count(*number));
    }
    for thousandths in [500, 990] {
        push_number(page, &latency_bound(&backend.latencies, thousandths));
    }
    page.markup("</tr>\n");
}
