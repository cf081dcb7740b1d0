//! Sections of a report by suite: the tables and charts of the repeated source document. Each suite has a file,
//! however short.

mod agreement;
mod general;
mod growth;
mod hello;
mod import;
mod journal;
mod matrix;
mod page;
mod proxy;

use crate::published::Source;
use crate::report::document::Block;
use crate::report::view::View;

pub(super) use agreement::table as agreement_table;
pub(super) use page::table as page_table;
pub(super) use proxy::overview as proxy_tables;

/// Returns the tables and charts of a run, with the figures of `sources` where published.
pub(super) fn blocks(view: View, sources: &[Source]) -> Vec<Block> {
    match view.run.suite.as_str() {
        "hello" => hello::blocks(view, sources),
        "matrix" => matrix::blocks(view),
        "journal" => journal::blocks(view, sources),
        "growth" => growth::blocks(view, "nodes"),
        "dynamic" => growth::blocks(view, "page"),
        "page" => page::blocks(view),
        "proxy" => proxy::blocks(view),
        "agreement" => agreement::blocks(view),
        "import" => import::blocks(view),
        _ => general::blocks(view),
    }
}
