//! Section of source document 002: the bar chart from fastest to slowest, and the cost per request.

use crate::published::{Figure, Source};
use crate::report::document::{Bars, Block};
use crate::report::metric::Metric;
use crate::report::tables;
use crate::report::view::View;
use crate::result::Scenario;

/// Returns the blocks of a run.
pub(super) fn blocks(view: View, sources: &[Source]) -> Vec<Block> {
    let scenarios = view.scenarios();
    let mut blocks = Vec::new();
    for scenario in &scenarios {
        if scenarios.len() > 1 {
            blocks.push(Block::Heading(scenario.title.clone()));
        }
        let mut bars = tables::bars(view, scenario, Metric::Rate);
        bars.in_markdown = true;
        lay_beneath(&mut bars, view, scenario, sources);
        blocks.push(Block::Bars(bars));
        blocks.push(Block::Table(tables::scenario(
            view,
            scenario,
            &tables::LOAD,
        )));
        blocks.extend(tables::bar_blocks(
            view,
            scenario,
            &[Metric::PerCpuSecond, Metric::Memory],
        ));
    }
    blocks
}

/// Adds document 002's published rate to each bar as a thin bar. The thin bars have a scale of their own,
/// since the rates of a Raspberry Pi of 2015 would be invisible on the measured scale.
fn lay_beneath(bars: &mut Bars, view: View, scenario: &Scenario, sources: &[Source]) {
    for source in sources {
        let mut found = false;
        for bar in &mut bars.bars {
            let facts = view
                .run
                .contenders
                .iter()
                .find(|facts| facts.name == bar.contender);
            let is_about = |figure: &&Figure| {
                facts.is_some_and(|facts| figure.is_about("hello", scenario, &facts.name))
            };
            let rate = source
                .figures
                .iter()
                .find(is_about)
                .and_then(|figure| figure.value(Metric::Rate));
            if let Some(rate) = rate {
                bar.published = Some((rate, Metric::Rate.format(rate)));
                found = true;
            }
        }
        if found {
            let machine = source
                .machines
                .first()
                .map_or("another machine", |machine| &machine.name);
            bars.published = format!(
                "published, other machine: {} ({machine}). The thin bars have a scale of their own; compare their order and proportions, not their lengths with the measured bars.",
                source.citation()
            );
        }
    }
}
