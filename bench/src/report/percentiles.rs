//! Chart of latency by percentile, as in HdrHistogram: the horizontal axis is logarithmic in rarity, so
//! that the slowest requests, hidden in an average, are visible.

use std::io::Cursor;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use crate::published::{Figure, NamedFigure};
use crate::report::axis::Scale;
use crate::report::document::{Axis, Curve, Curves, Point, Series};
use crate::report::number;
use crate::report::view::View;
use crate::result::{Cell, Scenario};
use crate::statistics;

/// Returns a curve per contender with percentiles, and per published figure; `None` without a measured
/// curve.
pub(super) fn curves(view: View, scenario: &Scenario, published: &[NamedFigure]) -> Option<Curves> {
    let known = known(view, scenario, published);
    if known.iter().all(|one| one.series.published) {
        return None;
    }
    let points = || known.iter().flat_map(|one| &one.points);
    let scale = Scale::fitting(points().map(|(_, time)| *time));
    let rarest = points()
        .map(|(percentile, _)| *percentile)
        .fold(90.0, f64::max);
    Some(Curves {
        caption: format!("Latency by percentile: {}", scenario.title),
        across: axis(rarest),
        up: scale.axis("latency", number::time),
        curves: known.iter().map(|one| one.curve(scale, rarest)).collect(),
    })
}

/// Latency percentiles of a contender or of a published figure.
struct Known {
    series: Series,
    /// True if the points come from a histogram, and so are many.
    fine: bool,
    /// Percentiles, and times in microseconds.
    points: Vec<(f64, f64)>,
}

fn known(view: View, scenario: &Scenario, published: &[NamedFigure]) -> Vec<Known> {
    let measured = view
        .contenders_in(scenario)
        .into_iter()
        .filter_map(|facts| {
            let (fine, points) = points_of(view.cell(scenario, &facts.name)?);
            Some(Known {
                series: view.marked_series(&[scenario], facts),
                fine,
                points,
            })
        });
    let published = published.iter().map(|NamedFigure { name, figure }| {
        let series = Series {
            name: name.clone(),
            published: true,
            ..Series::default()
        };
        Known {
            series,
            fine: false,
            points: published_points(figure),
        }
    });
    measured
        .chain(published)
        .filter(|one| one.points.len() > 1)
        .collect()
}

impl Known {
    fn curve(&self, scale: Scale, rarest: f64) -> Curve {
        let name = &self.series.name;
        let point = |(percentile, time): &(f64, f64)| Point {
            across: place(*percentile, rarest),
            up: scale.place(*time),
            whisker: None,
            text: format!("{name}: {percentile} % within {}", number::time(*time)),
        };
        Curve {
            series: self.series.clone(),
            points: self.points.iter().map(point).collect(),
            marked: !self.fine,
        }
    }
}

/// Returns percentiles and times of a cell, and true if the points come from histograms. Without
/// histograms, the points are medians of the percentiles reported by the driver.
fn points_of(cell: &Cell) -> (bool, Vec<(f64, f64)>) {
    if let Some(histogram) = histogram(cell) {
        let time = |percentile: &f64| histogram.value_at_percentile(*percentile) as f64;
        // A percentile of rarity one in n needs at least n requests.
        let shown = fine_percentiles(histogram.len());
        return (
            true,
            shown
                .iter()
                .map(|percentile| (*percentile, time(percentile)))
                .collect(),
        );
    }
    let latencies: Vec<_> = cell
        .rounds
        .iter()
        .filter_map(|round| round.latency.as_ref())
        .collect();
    let mut keys: Vec<(f64, &String)> = latencies
        .iter()
        .flat_map(|latency| latency.percentiles_us.keys())
        .filter_map(|key| Some((key.parse().ok()?, key)))
        .filter(|(percentile, _)| (0.0..100.0).contains(percentile))
        .collect();
    keys.sort_by(|a, b| a.0.total_cmp(&b.0));
    keys.dedup_by(|a, b| a.0 == b.0);
    let of_rounds = |key: &String| -> Option<f64> {
        let values = latencies
            .iter()
            .filter_map(|latency| latency.percentiles_us.get(key).copied());
        statistics::median(&values.collect::<Vec<_>>())
    };
    (
        false,
        keys.into_iter()
            .filter_map(|(percentile, key)| Some((percentile, of_rounds(key)?)))
            .collect(),
    )
}

/// Returns the sum of all rounds' histograms; `None` if a histogram is missing or unreadable.
fn histogram(cell: &Cell) -> Option<Histogram<u64>> {
    let mut sum: Option<Histogram<u64>> = None;
    for round in &cell.rounds {
        let text = round.latency.as_ref()?.histogram.as_ref()?;
        let bytes = STANDARD.decode(text).ok()?;
        let one: Histogram<u64> = Deserializer::new()
            .deserialize(&mut Cursor::new(bytes))
            .ok()?;
        match &mut sum {
            Some(sum) => sum.add(&one).ok()?,
            None => sum = Some(one),
        }
    }
    sum
}

fn fine_percentiles(requests: u64) -> Vec<f64> {
    let steps = |decade: i32| (0..20).map(move |step| f64::from(decade) + f64::from(step) / 20.0);
    let rarity = (0..5).flat_map(steps).map(|rarity| 10f64.powf(rarity));
    let shown = rarity.take_while(|rarity| *rarity <= (requests as f64).min(10_000.0) * 1.000_1);
    shown.map(|rarity| 100.0 - 100.0 / rarity).collect()
}

fn published_points(figure: &Figure) -> Vec<(f64, f64)> {
    let point = |(key, time): (&String, &f64)| {
        let percentile = key
            .strip_prefix('p')?
            .strip_suffix("_us")?
            .parse::<f64>()
            .ok()?;
        Some((percentile, *time))
    };
    let mut points: Vec<_> = figure.values.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn axis(rarest: f64) -> Axis {
    let written = [50.0, 90.0, 99.0, 99.9, 99.99];
    let shown = written
        .into_iter()
        .filter(|percentile| *percentile <= rarest + 1e-9);
    let tick = |percentile: f64| (place(percentile, rarest), format!("{percentile} %"));
    Axis {
        title: "percentile of the requests".into(),
        ticks: shown.map(tick).collect(),
    }
}

fn place(percentile: f64, rarest: f64) -> f64 {
    let rarity = |percentile: f64| -(1.0 - percentile / 100.0).max(1e-9).log10();
    (rarity(percentile) / rarity(rarest)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Latency, Round};
    use hdrhistogram::serialization::{Serializer, V2Serializer};

    fn cell(histogram: Option<String>) -> Cell {
        let latency = Latency {
            percentiles_us: [
                ("50".to_owned(), 5.0),
                ("99".to_owned(), 80.0),
                ("100".to_owned(), 90.0),
            ]
            .into(),
            histogram,
            ..Latency::default()
        };
        let round = Round {
            latency: Some(latency),
            ..Round::default()
        };
        Cell {
            scenario: "s".into(),
            contender: "c".into(),
            rounds: vec![round],
            failure: None,
        }
    }

    #[test]
    fn a_histogram_gives_a_fine_curve() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        (1..=1000).for_each(|value| histogram.record(value).unwrap());
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&histogram, &mut bytes)
            .unwrap();
        let (fine, points) = points_of(&cell(Some(STANDARD.encode(bytes))));
        assert!(fine && points.len() > 50);
        let at = |wanted: f64| {
            points
                .iter()
                .find(|point| (point.0 - wanted).abs() < 1e-6)
                .unwrap()
                .1
        };
        assert!((at(90.0) - 900.0).abs() <= 1.0, "{points:?}");
        assert!(
            points.iter().all(|point| point.0 < 99.91),
            "1,000 requests show no 99.99 %"
        );
    }

    #[test]
    fn without_a_histogram_the_named_percentiles_are_used() {
        assert_eq!(
            points_of(&cell(None)),
            (false, vec![(50.0, 5.0), (99.0, 80.0)])
        );
        assert_eq!(points_of(&cell(Some("not base64!".into()))).1.len(), 2);
    }

    #[test]
    fn each_decade_of_rarity_has_the_same_room() {
        let step = place(99.0, 99.9) - place(90.0, 99.9);
        assert!((step - (place(99.9, 99.9) - place(99.0, 99.9))).abs() < 1e-9);
        assert_eq!(place(0.0, 99.9), 0.0);
    }
}
