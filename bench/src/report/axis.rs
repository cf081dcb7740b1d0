//! Scales and axes of charts: positions of values, and round numbers for the ticks.

use crate::report::document::Axis;

/// Mapping of values to positions from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// Linear scale from zero to an end.
    Linear {
        /// Value at position 1.
        end: f64,
    },
    /// Logarithmic scale: equal distances are equal ratios.
    Logarithmic {
        /// Value at position 0, above zero.
        begin: f64,
        /// Value at position 1.
        end: f64,
    },
}

impl Scale {
    /// Returns a linear scale that ends at a round number not below any value.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = round_step(largest / 4.0);
        Scale::Linear {
            end: if largest > 0.0 {
                (largest / step).ceil() * step
            } else {
                1.0
            },
        }
    }

    /// Returns a logarithmic scale between powers of ten around all values above zero.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let smallest = positive.clone().fold(f64::INFINITY, f64::min);
        let largest = positive.fold(0.0, f64::max);
        if largest == 0.0 {
            return Scale::Logarithmic {
                begin: 1.0,
                end: 10.0,
            };
        }
        let begin = 10f64.powf(smallest.log10().floor());
        let end = 10f64.powf(largest.log10().ceil());
        Scale::Logarithmic {
            begin,
            end: if end > begin { end } else { begin * 10.0 },
        }
    }

    /// Returns a logarithmic scale if the largest value is more than 30 times the smallest, so that small
    /// values remain visible, otherwise a linear scale.
    pub(super) fn fitting(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let positive = values
            .clone()
            .filter(|value| value.is_finite() && *value > 0.0);
        let smallest = positive.clone().fold(f64::INFINITY, f64::min);
        let largest = positive.fold(0.0, f64::max);
        if largest > smallest * 30.0 {
            Scale::logarithmic(values)
        } else {
            Scale::linear(values)
        }
    }

    /// Returns the position of a value, from 0 to 1.
    pub(super) fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear { end } => value / end,
            Scale::Logarithmic { begin, .. } if value <= begin => 0.0,
            Scale::Logarithmic { begin, end } => (value / begin).ln() / (end / begin).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns the axis with ticks at round numbers.
    pub(super) fn axis(self, title: &str, format: impl Fn(f64) -> String) -> Axis {
        let values: Vec<f64> = match self {
            Scale::Linear { end } => {
                let step = round_step(end / 4.0);
                (0..=(end / step).round() as u32)
                    .map(|n| f64::from(n) * step)
                    .collect()
            }
            Scale::Logarithmic { begin, end } => {
                let decades = (end / begin).log10().round() as i32;
                (0..=decades).map(|n| begin * 10f64.powi(n)).collect()
            }
        };
        let tick = |value: f64| (self.place(value), without_empty_decimals(&format(value)));
        Axis {
            title: title.to_owned(),
            ticks: values.into_iter().map(tick).collect(),
        }
    }
}

/// Removes trailing zeros after the decimal point: `1.00 ms` becomes `1 ms`, since ticks are round numbers.
fn without_empty_decimals(text: &str) -> String {
    let Some((whole, rest)) = text.split_once('.') else {
        return text.to_owned();
    };
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (decimals, unit) = rest.split_at(digits);
    match decimals.trim_end_matches('0') {
        "" => format!("{whole}{unit}"),
        decimals => format!("{whole}.{decimals}{unit}"),
    }
}

/// Returns the smallest of 1, 2, 2.5 and 5 times a power of ten not below `step`.
fn round_step(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 0.25;
    }
    let magnitude = 10f64.powf(step.log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = |round: &&f64| **round * magnitude >= step * 0.999_999;
    rounds.iter().find(fits).unwrap_or(&10.0) * magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn an_axis_has_round_numbers_and_room_for_all() {
        let scale = Scale::linear([351.5, 17.6].into_iter());
        assert_eq!(
            written(&scale.axis("", |v| v.to_string())),
            ["0", "100", "200", "300", "400"]
        );
        assert!((scale.place(100.0) - 0.25).abs() < 1e-9);
        let scale = Scale::logarithmic([0.3, 40.0].into_iter());
        assert_eq!(
            written(&scale.axis("", |v| v.to_string())),
            ["0.1", "1", "10", "100"]
        );
        assert!((scale.place(1.0) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn ticks_have_short_texts() {
        let short = ["1.00k", "10.0 ms", "2.50k", "0", "0.250", "100"].map(without_empty_decimals);
        assert_eq!(short, ["1k", "10 ms", "2.5k", "0", "0.25", "100"]);
    }

    #[test]
    fn zero_and_empty_values_have_a_position() {
        for values in [vec![], vec![0.0], vec![f64::NAN]] {
            for scale in [
                Scale::linear(values.clone().into_iter()),
                Scale::logarithmic(values.clone().into_iter()),
                Scale::fitting(values.clone().into_iter()),
            ] {
                assert_eq!(scale.place(0.0), 0.0);
                assert!(scale.axis("", |v| v.to_string()).ticks.len() > 1);
            }
        }
        assert_eq!(Scale::linear([5.0].into_iter()).place(-1.0), 0.0);
    }
}
