//! Section of any suite: bar charts and a complete table per scenario, or one table per metric if the
//! scenarios are many.

use crate::report::document::{Block, Folded};
use crate::report::metric::Metric;
use crate::report::tables;
use crate::report::view::View;

/// Returns the blocks of a run.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let scenarios = view.scenarios();
    if scenarios.len() > SCENARIOS_AS_SECTIONS {
        return many(view);
    }
    let mut blocks = Vec::new();
    for scenario in scenarios {
        blocks.push(Block::Heading(scenario.title.clone()));
        blocks.extend(tables::bar_blocks(view, scenario, &BARS));
        blocks.push(Block::Table(tables::scenario(
            view,
            scenario,
            &tables::LOAD,
        )));
    }
    blocks
}

/// Returns one table per metric; tables of minor metrics are folded.
fn many(view: View) -> Vec<Block> {
    let scenarios = view.scenarios();
    let metrics = tables::present(view, &scenarios, &tables::LOAD);
    let table = |metric: Metric| Block::Table(tables::metric(view, &scenarios, metric));
    let (shown, folded): (Vec<Metric>, Vec<Metric>) = metrics
        .into_iter()
        .partition(|metric| BARS.contains(metric));
    let mut blocks: Vec<Block> = shown.into_iter().map(table).collect();
    blocks.extend(folded.into_iter().map(|metric| {
        Block::Folded(Folded {
            summary: tables::caption(metric),
            blocks: vec![table(metric)],
        })
    }));
    blocks
}

const BARS: [Metric; 3] = [Metric::Rate, Metric::CpuPerRequest, Metric::Memory];
/// Largest number of scenarios with sections of their own; more sections would be too long to compare.
const SCENARIOS_AS_SECTIONS: usize = 6;
