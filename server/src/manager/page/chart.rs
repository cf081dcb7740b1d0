//! Charts of the last minutes, drawn as SVG. Each line of a chart has a dash pattern of its own and its figures in
//! text, so that colour never carries meaning alone. Pure.

use crate::admin::limits::{HISTORY_INTERVAL_SECONDS, HISTORY_SAMPLES_MAX};
use crate::git::browse::render::html::Html;
use std::fmt::Write;

/// Chart with up to 3 lines.
pub(super) struct Chart<'c> {
    /// Id of the chart in the page.
    pub(super) id: &'c str,
    /// Title of the chart.
    pub(super) title: &'c str,
    /// Function that writes a value with its unit.
    pub(super) format: fn(u64) -> String,
    /// Lines with the values, the oldest first. All lists end at the present.
    pub(super) lines: &'c ChartLines,
}

/// Lines of a chart: name and values.
pub(super) type ChartLines = [(&'static str, Vec<u64>)];

/// Height of a chart in units of the drawing. The drawing is stretched to the size in the style sheet.
const HEIGHT: u64 = 600;
/// Smallest number of samples for which a drawing has room: 3 min.
const SAMPLES_MIN: usize = 36;

impl Chart<'_> {
    /// Appends the chart as a figure.
    pub(super) fn push(&self, page: &mut Html) {
        let all = self.lines.iter().flat_map(|(_, values)| values);
        let max = all.copied().max().unwrap_or(0);
        page.markup("<figure class=chart><figcaption><b title=\"");
        page.text(self.title).markup("\">").text(self.title);
        let samples = self.samples();
        page.markup("</b><span class=soft>highest ");
        page.text((self.format)(max)).markup("</span></figcaption>");
        self.push_drawing(page, max, samples);
        page.markup("<dl class=legend>");
        for (number, (name, values)) in self.lines.iter().enumerate() {
            let now = values.last().copied().unwrap_or(0);
            page.markup(&format!("<div class=l{number}><dt>"));
            page.text(name).markup("</dt><dd>");
            page.text((self.format)(now)).markup("</dd></div>");
        }
        page.markup("</dl></figure>\n");
    }

    /// Returns the number of samples for which the drawing has room.
    fn samples(&self) -> usize {
        let longest = self.lines.iter().map(|(_, values)| values.len()).max();
        shown_samples(longest.unwrap_or(0))
    }

    /// Appends the drawing. The newest value is at the right border.
    fn push_drawing(&self, page: &mut Html, max: u64, samples: usize) {
        let width = samples - 1;
        page.markup(&format!(
            "<svg viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=none role=img \
             aria-labelledby=\"{0}-t {0}-d\"><title id={0}-t>",
            self.id
        ));
        page.text(self.title);
        page.markup(&format!("</title><desc id={}-d>", self.id));
        page.text(self.description(max)).markup("</desc>");
        for (number, (_, values)) in self.lines.iter().enumerate() {
            page.markup(&format!("<path class=l{number} d=\""));
            page.markup(&path(values, max, samples)).markup("\"/>");
        }
        page.markup("</svg>");
    }

    /// Returns the chart in words.
    fn description(&self, max: u64) -> String {
        let minutes = minutes(self.samples());
        let mut out = format!("Last {minutes} min, highest {}.", (self.format)(max));
        for (name, values) in self.lines {
            let now = values.last().copied().unwrap_or(0);
            let (now, median) = ((self.format)(now), (self.format)(median(values)));
            let _ = write!(out, " {name}: now {now}, median {median}.");
        }
        out
    }
}

/// Returns the number of samples for which a drawing of `samples` values has room.
fn shown_samples(samples: usize) -> usize {
    samples.clamp(SAMPLES_MIN, HISTORY_SAMPLES_MAX)
}

/// Returns the minutes of a drawing of `samples` values.
pub(super) fn minutes(samples: usize) -> u64 {
    shown_samples(samples) as u64 * HISTORY_INTERVAL_SECONDS / 60
}

/// Returns the median of values, the lower one of two in the middle; 0 without values.
fn median(values: &[u64]) -> u64 {
    let mut values = values.to_vec();
    let middle = values.len().saturating_sub(1) / 2;
    if values.is_empty() {
        return 0;
    }
    *values.select_nth_unstable(middle).1
}

/// Returns the path of a line in a drawing with room for a number of samples.
fn path(values: &[u64], max: u64, samples: usize) -> String {
    let mut out = String::with_capacity(values.len() * 8);
    let shown = &values[values.len().saturating_sub(samples)..];
    let first = samples - shown.len();
    for (at, value) in shown.iter().enumerate() {
        let height = u128::from(*value) * u128::from(HEIGHT) / u128::from(max.max(1));
        let letter = if at == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{letter}{} {}", first + at, HEIGHT - height as u64);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: &ChartLines) -> String {
        let mut page = Html::default();
        let chart = Chart {
            id: "a",
            title: "A <chart>",
            format: |value| format!("{value} MB"),
            lines,
        };
        chart.push(&mut page);
        page.into_string()
    }

    #[test]
    fn lines_end_at_the_right_and_fit_the_height() {
        assert_eq!(path(&[], 0, 240), "");
        assert_eq!(path(&[0], 0, 240), "M239 600");
        assert_eq!(path(&[10, 0, 5], 10, 240), "M237 0L238 600L239 300");
        assert_eq!(path(&[u64::MAX], u64::MAX, 240), "M239 0");
        assert_eq!(path(&[1; 9], 1, 3), "M0 0L1 0L2 0");
    }

    #[test]
    fn a_chart_has_its_figures_in_words() {
        let text = chart(&[("all", vec![2, 900, 4]), ("none", vec![])]);
        for part in [
            "<title id=a-t>A &lt;chart&gt;</title>",
            "Last 3 min, highest 900 MB. all: now 4 MB, median 4 MB. none: now 0 MB, median 0 MB.",
            "<div class=l0><dt>all</dt><dd>4 MB</dd></div>",
            "<path class=l1 d=\"\"/>",
        ] {
            assert!(text.contains(part), "no {part}: {text}");
        }
    }
}
