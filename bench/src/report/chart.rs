//! Charts as inline SVG for wide and narrow screens. Horizontal positions are in percent and vertical
//! positions in pixels. Only curves are stretched, so text is never scaled.
//!
//! Colours, line widths and the rules for narrow screens are in style.css.

use std::fmt::Write;

use crate::report::document::{Bar, Bars, Curve, Curves, Groups, Point, Series};

/// Draws horizontal bars: one row of the page per bar, with the name beside or above the bar.
pub(super) fn bars(chart: &Bars) -> String {
    let longest = chart.bars.iter().map(reach).fold(0.0, f64::max);
    let published = chart
        .bars
        .iter()
        .filter_map(|bar| bar.published.as_ref())
        .map(|(value, _)| *value);
    let published_longest = published.fold(0.0, f64::max);
    let mut out = format!(
        "<figure class=\"bars\"><figcaption>{}</figcaption>\n",
        escape(&chart.caption)
    );
    for bar in &chart.bars {
        bar_row(&mut out, bar, longest, published_longest);
    }
    if !chart.published.is_empty() {
        let text = escape(&chart.published);
        let _ = writeln!(
            out,
            "<p class=\"published-note\"><span class=\"thin\"></span> {text}</p>"
        );
    }
    out.push_str("</figure>\n");
    out
}

fn bar_row(out: &mut String, bar: &Bar, longest: f64, published_longest: f64) {
    let class = if bar.ours { "row ours" } else { "row" };
    let _ = write!(
        out,
        "<div class=\"{class}\"><span class=\"name\">{}</span>",
        escape(&bar.name)
    );
    let height = if bar.published.is_some() { 40 } else { 22 };
    let _ = write!(
        out,
        "<svg height=\"{height}\" role=\"img\" aria-label=\"{}\">",
        escape(&spoken(bar))
    );
    let _ = write!(out, "<title>{}</title>", escape(&spoken(bar)));
    let length = share(bar.value, longest) * BAR_SHARE;
    let _ = write!(
        out,
        "<rect class=\"fill\" y=\"3\" width=\"{length:.2}%\" height=\"16\" rx=\"2\"/>"
    );
    if let Some((low, high)) = bar.whisker {
        let (low, high) = (
            share(low, longest) * BAR_SHARE,
            share(high, longest) * BAR_SHARE,
        );
        lying_whisker(out, low, high);
    }
    let end = share(reach(bar), longest) * BAR_SHARE;
    let _ = write!(
        out,
        "<text class=\"value\" x=\"{end:.2}%\" dx=\"7\" y=\"16\">{}</text>",
        escape(&bar.text)
    );
    if let Some((value, text)) = &bar.published {
        let length = share(*value, published_longest) * BAR_SHARE;
        let _ = write!(
            out,
            "<rect class=\"published\" y=\"25\" width=\"{length:.2}%\" height=\"5\" rx=\"1\"/>"
        );
        let _ = write!(
            out,
            "<text class=\"published-value\" x=\"{length:.2}%\" dx=\"7\" y=\"32\">{}</text>",
            escape(text)
        );
    }
    out.push_str("</svg></div>\n");
}

fn lying_whisker(out: &mut String, low: f64, high: f64) {
    let _ = write!(
        out,
        "<g class=\"whisker\"><line x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"11\" y2=\"11\"/>\
         <line x1=\"{low:.2}%\" x2=\"{low:.2}%\" y1=\"7\" y2=\"15\"/>\
         <line x1=\"{high:.2}%\" x2=\"{high:.2}%\" y1=\"7\" y2=\"15\"/></g>"
    );
}

/// Draws vertical bars in groups, with each figure rotated above its bar.
pub(super) fn groups(chart: &Groups) -> String {
    let all = chart.groups.iter().flat_map(|(_, bars)| bars);
    let highest = all.map(reach).fold(0.0, f64::max);
    let members = chart
        .groups
        .iter()
        .map(|(_, bars)| bars.len())
        .max()
        .unwrap_or(1)
        .max(1);
    let least_width = chart.groups.len() * (members * 17 + 18);
    let mut out = format!(
        "<figure class=\"groups\"><figcaption>{}</figcaption>\n",
        escape(&chart.caption)
    );
    legend(&mut out, chart.series.iter());
    let _ = write!(
        out,
        "<div class=\"scroll\"><svg height=\"{}\" style=\"min-width:{least_width}px\" role=\"img\" aria-label=\"{}\">",
        GROUPS_HEIGHT + 26.0,
        escape(&chart.caption)
    );
    let _ = write!(
        out,
        "<line class=\"ground\" x2=\"100%\" y1=\"{GROUPS_HEIGHT}\" y2=\"{GROUPS_HEIGHT}\"/>"
    );
    let width = 100.0 / chart.groups.len().max(1) as f64;
    for (number, (name, bars)) in chart.groups.iter().enumerate() {
        let span = Span {
            left: number as f64 * width,
            width,
        };
        group(&mut out, name, bars, span, highest);
    }
    out.push_str("</svg></div></figure>\n");
    out
}

/// Horizontal extent of a group, in percent.
#[derive(Clone, Copy)]
struct Span {
    left: f64,
    width: f64,
}

fn group(out: &mut String, name: &str, bars: &[Bar], span: Span, highest: f64) {
    let Span { left, width } = span;
    let step = width * 0.9 / bars.len().max(1) as f64;
    for (number, bar) in bars.iter().enumerate() {
        let x = left + width * 0.05 + step * number as f64;
        standing_bar(out, bar, x, step, highest);
    }
    let (middle, below) = (left + width / 2.0, GROUPS_HEIGHT + 18.0);
    let _ = write!(
        out,
        "<text class=\"tick middle\" x=\"{middle:.2}%\" y=\"{below}\">{}</text>",
        escape(name)
    );
}

fn standing_bar(out: &mut String, bar: &Bar, x: f64, step: f64, highest: f64) {
    let room = GROUPS_HEIGHT - LABEL_HEIGHT;
    let height = share(bar.value, highest) * room;
    let top = GROUPS_HEIGHT - height;
    let (class, width) = (colour(bar.series, bar.ours, false), step * 0.86);
    let _ = write!(
        out,
        "<g class=\"{class}\"><title>{}</title><rect class=\"fill\" x=\"{x:.2}%\" y=\"{top:.1}\" width=\"{width:.2}%\" height=\"{height:.1}\"/>",
        escape(&spoken(bar))
    );
    let middle = x + width / 2.0;
    if let Some((low, high)) = bar.whisker {
        let y = |value: f64| GROUPS_HEIGHT - share(value, highest) * room;
        let (low, high) = (y(low), y(high));
        let _ = write!(
            out,
            "<line class=\"whisker\" x1=\"{middle:.2}%\" x2=\"{middle:.2}%\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
        );
    }
    let above = GROUPS_HEIGHT - share(reach(bar), highest) * room - 5.0;
    // A nested `svg` positions the text in percent, so that the text can rotate around its own origin.
    let _ = write!(
        out,
        "<svg class=\"turned\" x=\"{middle:.2}%\" y=\"{above:.1}\"><text transform=\"rotate(-90)\" dy=\"4\">{}</text></svg></g>",
        escape(&bar.text)
    );
}

/// Draws curves with the names at their ends if all curves reach the right edge, else with a legend of all curves: the
/// name of a curve that ends within the plot would overlap other curves. A narrow screen always has the legend.
pub(super) fn curves(chart: &Curves) -> String {
    let are_named = chart.curves.iter().all(reaches_the_edge);
    let mut out = format!(
        "<figure class=\"curves{}\"><figcaption>{}</figcaption>\n",
        if are_named { " named" } else { "" },
        escape(&chart.caption)
    );
    legend(&mut out, chart.curves.iter().map(|curve| &curve.series));
    let _ = write!(
        out,
        "<div class=\"plot\"><svg height=\"{CURVES_HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&chart.caption)
    );
    grid(&mut out, chart);
    for curve in &chart.curves {
        one_curve(&mut out, curve);
    }
    let named = if are_named { &chart.curves[..] } else { &[] };
    for (curve, y) in named.iter().zip(name_places(named)) {
        if let (Some(last), Some(y)) = (curve.points.last(), y) {
            let class = series_class(&curve.series);
            let _ = write!(
                out,
                "<text class=\"end {class}\" x=\"{:.2}%\" dx=\"9\" y=\"{:.1}\">{}</text>",
                last.across * 100.0,
                y + 4.0,
                escape(&curve.series.name)
            );
        }
    }
    out.push_str("</svg></div></figure>\n");
    out
}

fn grid(out: &mut String, chart: &Curves) {
    for (place, text) in &chart.up.ticks {
        let y = (1.0 - place) * CURVES_HEIGHT;
        let class = if *place == 0.0 { "ground" } else { "grid" };
        let _ = write!(
            out,
            "<line class=\"{class}\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        let middle = y + 4.0;
        let _ = write!(
            out,
            "<text class=\"tick last\" dx=\"-8\" y=\"{middle:.1}\">{}</text>",
            escape(text)
        );
    }
    for (place, text) in &chart.across.ticks {
        let class = match *place {
            p if p > 0.97 => "tick last",
            _ => "tick middle",
        };
        let (x, below) = (place * 100.0, CURVES_HEIGHT + 17.0);
        let _ = write!(
            out,
            "<text class=\"{class}\" x=\"{x:.2}%\" y=\"{below}\">{}</text>",
            escape(text)
        );
    }
    let below = CURVES_HEIGHT + 36.0;
    let title = escape(&chart.across.title);
    let _ = write!(
        out,
        "<text class=\"axis middle\" x=\"50%\" y=\"{below}\">{title}</text>"
    );
}

fn one_curve(out: &mut String, curve: &Curve) {
    let class = series_class(&curve.series);
    let _ = write!(out, "<g class=\"{class}\">");
    // The curve is stretched to the plot's width, but its line width is not.
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 1000 {CURVES_HEIGHT}\" width=\"100%\" height=\"{CURVES_HEIGHT}\" preserveAspectRatio=\"none\"><polyline points=\""
    );
    for point in &curve.points {
        let _ = write!(
            out,
            "{:.1},{:.1} ",
            point.across * 1000.0,
            height_of(point.up)
        );
    }
    out.push_str("\"/></svg>");
    for point in curve.points.iter().filter(|_| curve.marked) {
        mark(out, point);
    }
    out.push_str("</g>");
}

fn mark(out: &mut String, point: &Point) {
    let (x, y) = (point.across * 100.0, height_of(point.up));
    if let Some((low, high)) = point.whisker {
        let (low, high) = (height_of(low), height_of(high));
        let _ = write!(
            out,
            "<line class=\"whisker\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
        );
    }
    let _ = write!(
        out,
        "<circle cx=\"{x:.2}%\" cy=\"{y:.1}\" r=\"3.5\"><title>{}</title></circle>",
        escape(&point.text)
    );
}

/// Draws the legend.
fn legend<'a>(out: &mut String, series: impl Iterator<Item = &'a Series>) {
    out.push_str("<ul class=\"legend\">");
    for one in series {
        let _ = write!(
            out,
            "<li class=\"{}\"><svg width=\"22\" height=\"12\" aria-hidden=\"true\"><line class=\"swatch\" x1=\"1\" x2=\"21\" y1=\"6\" y2=\"6\"/></svg>{}</li>",
            series_class(one),
            escape(&one.name)
        );
    }
    out.push_str("</ul>\n");
}

/// Returns the vertical positions of the names at the ends of the curves, without overlaps: in the order of
/// the ends, each at least one line below the previous name. If the last name would leave the plot, the
/// names move up.
fn name_places(curves: &[Curve]) -> Vec<Option<f64>> {
    let mut ends: Vec<(usize, f64)> = curves
        .iter()
        .enumerate()
        .filter(|(_, curve)| reaches_the_edge(curve))
        .filter_map(|(number, curve)| Some((number, height_of(curve.points.last()?.up))))
        .collect();
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut above = f64::NEG_INFINITY;
    for (_, y) in &mut ends {
        *y = y.max(above + NAME_HEIGHT);
        above = *y;
    }
    let mut below = CURVES_HEIGHT + NAME_HEIGHT;
    for (_, y) in ends.iter_mut().rev() {
        *y = y.min(below - NAME_HEIGHT);
        below = *y;
    }
    let mut places = vec![None; curves.len()];
    for (number, y) in ends {
        places[number] = Some(y);
    }
    places
}

fn reaches_the_edge(curve: &Curve) -> bool {
    curve.points.last().is_some_and(|last| last.across > 0.97)
}

/// Returns the length of a bar including its whisker.
fn reach(bar: &Bar) -> f64 {
    bar.whisker
        .map_or(bar.value, |(_, high)| high.max(bar.value))
}

fn share(value: f64, longest: f64) -> f64 {
    if longest > 0.0 && value.is_finite() {
        (value / longest).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn height_of(up: f64) -> f64 {
    (1.0 - up) * CURVES_HEIGHT
}

fn spoken(bar: &Bar) -> String {
    format!("{}: {}", bar.name, bar.text)
}

fn series_class(series: &Series) -> String {
    colour(series.colour, series.ours, series.published)
}

/// Returns the CSS classes of a series: one of seven colours, dashed from the eighth series on.
fn colour(number: usize, ours: bool, published: bool) -> String {
    match (ours, published) {
        (_, true) => "series published".to_owned(),
        (true, _) => "series ours".to_owned(),
        _ if number >= COLOURS => format!("series c{} dashed", number % COLOURS),
        _ => format!("series c{number}"),
    }
}

/// Percentage of a row's width for the longest bar; the remaining width is for the figure.
const BAR_SHARE: f64 = 74.0;
const GROUPS_HEIGHT: f64 = 230.0;
/// Height in pixels for a figure above the highest vertical bar.
const LABEL_HEIGHT: f64 = 46.0;
const CURVES_HEIGHT: f64 = 280.0;
const NAME_HEIGHT: f64 = 15.0;
/// Number of colours in style.css.
const COLOURS: usize = 7;

/// Escapes a text for elements and attributes of HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_curves_do_not_overlap_or_leave_the_plot() {
        let curve = |up: f64| Curve {
            points: vec![Point {
                across: 1.0,
                up,
                ..Point::default()
            }],
            ..Curve::default()
        };
        let curves: Vec<Curve> = [0.01, 0.0, 0.02, 0.9].into_iter().map(curve).collect();
        let places: Vec<f64> = name_places(&curves).into_iter().flatten().collect();
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= NAME_HEIGHT - 1e-9),
            "{places:?}"
        );
        assert!(
            sorted.iter().all(|y| (0.0..=CURVES_HEIGHT).contains(y)),
            "{places:?}"
        );
        assert!(
            places[2] < places[0] && places[0] < places[1],
            "the order stays: {places:?}"
        );
    }

    #[test]
    fn a_curve_that_ends_within_the_plot_brings_all_names_into_the_legend() {
        let curve = |name: &str, across: f64| Curve {
            series: Series {
                name: name.to_owned(),
                ..Series::default()
            },
            points: vec![Point {
                across,
                ..Point::default()
            }],
            ..Curve::default()
        };
        let drawn = |across| {
            curves(&Curves {
                curves: vec![curve("whole", 1.0), curve("other", across)],
                ..Curves::default()
            })
        };
        for (across, are_named) in [(1.0, true), (0.6, false)] {
            let svg = drawn(across);
            assert_eq!(svg.contains("class=\"curves named\""), are_named, "{svg}");
            for name in ["whole", "other"] {
                assert!(svg.contains(&format!("</svg>{name}</li>")), "{svg}");
                let at_the_end = svg.contains(&format!(">{name}</text>"));
                assert_eq!(at_the_end, are_named, "{name}: {svg}");
            }
        }
    }

    #[test]
    fn an_empty_chart_is_drawn() {
        for svg in [
            bars(&Bars::default()),
            groups(&Groups::default()),
            curves(&Curves::default()),
        ] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let bar = Bar {
            name: "a".into(),
            value: 0.0,
            text: "<0>".into(),
            ..Bar::default()
        };
        let svg = bars(&Bars {
            bars: vec![bar],
            ..Bars::default()
        });
        assert!(
            svg.contains("width=\"0.00%\"") && svg.contains("&lt;0&gt;"),
            "{svg}"
        );
    }
}
