//! Section of the agreement suite: the kit's load generator and wrk, with a row per server and the CPU use
//! of server and clients.

use crate::agreement::{Agreement, agreements};
use crate::report::document::{Block, Entry, Row, Table};
use crate::report::number;
use crate::report::view::{View, is_ours};

/// Returns the blocks of a run: the table, then the general blocks.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let mut blocks = vec![Block::Table(table(view))];
    blocks.extend(super::general::blocks(view));
    blocks
}

/// Returns the table of agreements.
pub(crate) fn table(view: View) -> Table {
    let head = [
        "server",
        "requests/s, our generator ÷ wrk",
        "server CPU, our generator",
        "server CPU, wrk",
        "our generator's CPU",
        "wrk's CPU",
        "",
    ];
    Table {
        caption: "Pairs of rounds on the same start of the same server".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: agreements(view.run)
            .iter()
            .map(|agreement| row(view, agreement))
            .collect(),
        ..Table::default()
    }
}

fn row(view: View, agreement: &Agreement) -> Row {
    let facts = view.run.contenders.iter();
    let title = facts
        .filter(|facts| facts.name == agreement.contender)
        .map(|facts| facts.title.as_str())
        .next();
    let share = |share: f64| Entry::new(format!("{:.0} %", share * 100.0));
    let found = &agreement.found;
    let percent = |ratio: f64| number::signed((ratio - 1.0) * 100.0, |value| format!("{value:.1}"));
    let interval = format!(
        "{} to {} %, {}",
        percent(found.low),
        percent(found.high),
        agreement.pairs_in_words()
    );
    Row {
        cells: vec![
            Entry::new(format!(
                "{}, {}",
                title.unwrap_or(agreement.contender),
                agreement.protocol
            )),
            Entry::with(format!("{} %", percent(found.ratio)), interval),
            share(agreement.ours.server),
            share(agreement.wrks.server),
            share(agreement.ours.client),
            share(agreement.wrks.client),
            Entry::new(agreement.verdict().words()),
        ],
        ours: is_ours(agreement.contender),
        published: false,
    }
}
