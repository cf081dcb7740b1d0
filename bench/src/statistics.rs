//! What may be said of a few rounds: their median, how far it can be trusted, and whether two sets
//! of rounds differ by more than the noise between them.
//!
//! Nothing is assumed about how rounds are distributed: a machine that drifts or is disturbed gives
//! no bell curve. The interval is that of the order statistics, which needs only that rounds are
//! independent, and it says how sure it is: three rounds can't be 95 % sure of anything.

/// The confidence that is aimed at; fewer than six rounds can't reach it.
pub const CONFIDENCE: f64 = 0.95;

/// What calling something a difference needs: five pairs that all say so (94 %). Of three, all say the
/// same by chance in one case of four.
pub const CONFIDENCE_OF_A_DIFFERENCE: f64 = 0.9;

/// The middle of some values, or the mean of the two in the middle; `None` of nothing.
///
/// Values that aren't finite are left out.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Where the true median lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Its lower end: one of the values.
    pub low: f64,
    /// Its upper end: one of the values.
    pub high: f64,
    /// How sure that is, 0 to 1: [`CONFIDENCE`] or more if there are enough values, else what the
    /// smallest and the largest give.
    pub confidence: f64,
}

/// The narrowest interval of the median between two order statistics that reaches [`CONFIDENCE`],
/// else from the smallest to the largest. `None` of fewer than two values.
///
/// The true median lies below the kth smallest of n values with the probability that fewer than k
/// of n coins show tails (binomial, one half), and above the kth largest with the same.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n < 2 {
        return None;
    }
    let mut chosen = (1, 1.0 - 2.0 * fewer_tails_than(1, n));
    for k in 2..=n / 2 {
        let confidence = 1.0 - 2.0 * fewer_tails_than(k, n);
        if confidence < CONFIDENCE {
            break;
        }
        chosen = (k, confidence);
    }
    let (k, confidence) = chosen;
    Some(Interval {
        low: sorted[k - 1],
        high: sorted[n - k],
        confidence,
    })
}

/// Whether one contender differs from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first has more.
    More,
    /// The first has less.
    Less,
    /// The difference is within the noise: another run could show the opposite.
    WithinNoise,
    /// So few rounds that two contenders that are the same would often look different: fewer than
    /// five ([`CONFIDENCE_OF_A_DIFFERENCE`]).
    TooFew,
}

impl Verdict {
    /// In words, for tables: empty if there is a difference, since the figures show it.
    pub fn remark(self) -> &'static str {
        match self {
            Self::More | Self::Less => "",
            Self::WithinNoise => "within the noise",
            Self::TooFew => "too few rounds to tell",
        }
    }
}

/// Two sets of rounds beside each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// First to second: the median of the ratios if rounds are pairs, else the ratio of medians.
    pub ratio: f64,
    /// Lower end of the ratio's interval.
    pub low: f64,
    /// Upper end of the ratio's interval.
    pub high: f64,
    /// How sure the interval is.
    pub confidence: f64,
    /// What follows from it.
    pub verdict: Verdict,
}

/// Compares interleaved rounds. The nth of both were measured one after the other, so what drifts
/// on the machine is in both and falls out of their ratio; if one has fewer rounds, they are no
/// pairs any more, and only intervals that don't meet are called a difference.
///
/// `None` if either has no values, or the second is zero.
pub fn compare(first: &[f64], second: &[f64]) -> Option<Comparison> {
    let (of_first, of_second) = (median(first)?, median(second)?);
    if of_second == 0.0 {
        return None;
    }
    if first.len() == second.len() && second.iter().all(|value| *value != 0.0) {
        let ratios: Vec<f64> = first.iter().zip(second).map(|(a, b)| a / b).collect();
        return Some(comparison(median(&ratios)?, interval(&ratios)));
    }
    let both = interval(first).zip(interval(second));
    let ratios = both.map(|(first, second)| Interval {
        low: first.low / second.high,
        high: first.high / second.low,
        confidence: (first.confidence + second.confidence - 1.0).max(0.0),
    });
    Some(comparison(of_first / of_second, ratios))
}

fn comparison(ratio: f64, interval: Option<Interval>) -> Comparison {
    let Some(Interval {
        low,
        high,
        confidence,
    }) = interval
    else {
        return Comparison {
            ratio,
            low: ratio,
            high: ratio,
            confidence: 0.0,
            verdict: Verdict::TooFew,
        };
    };
    let meets = low <= 1.0 && high >= 1.0;
    let verdict = if !meets && confidence < CONFIDENCE_OF_A_DIFFERENCE {
        Verdict::TooFew
    } else if low > 1.0 {
        Verdict::More
    } else if high < 1.0 {
        Verdict::Less
    } else {
        Verdict::WithinNoise
    };
    Comparison {
        ratio,
        low,
        high,
        confidence,
        verdict,
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The probability that `n` fair coins show fewer than `k` tails.
fn fewer_tails_than(k: usize, n: usize) -> f64 {
    let mut term = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut sum = 0.0;
    for tails in 0..k {
        sum += term;
        term *= (n - tails) as f64 / (tails + 1) as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median(&[f64::NAN, 2.0, f64::INFINITY]), Some(2.0));
    }

    /// Tables of the sign test give these: e.g. Conover, Practical Nonparametric Statistics, §3.2.
    #[test]
    fn the_interval_is_that_of_the_order_statistics() {
        let upto = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        let of = |n: u32| interval(&upto(n)).expect("an interval");
        assert_eq!(interval(&[1.0]), None);
        for (n, low, high, confidence) in [
            (3, 1.0, 3.0, 0.75),
            (5, 1.0, 5.0, 0.9375),
            (6, 1.0, 6.0, 0.96875),
            (7, 1.0, 7.0, 0.984_375),
            (9, 2.0, 8.0, 0.960_937_5),
            (20, 6.0, 15.0, 0.958_610_534),
        ] {
            let found = of(n);
            assert_eq!((found.low, found.high), (low, high), "{n}");
            assert!(
                (found.confidence - confidence).abs() < 1e-8,
                "{n}: {found:?}"
            );
        }
    }

    #[test]
    fn drift_that_both_have_is_no_noise() {
        let first = [100.0, 80.0, 60.0, 90.0, 70.0, 50.0];
        let second: Vec<f64> = first.iter().map(|value| value * 0.9).collect();
        let found = compare(&first, &second).expect("a comparison");
        assert_eq!(found.verdict, Verdict::More);
        assert!((found.ratio - 1.0 / 0.9).abs() < 1e-9);
        // Without pairs the same difference drowns in the drift.
        let unpaired = compare(&first, &second[..5]).expect("a comparison");
        assert_eq!(unpaired.verdict, Verdict::WithinNoise);
    }

    #[test]
    fn a_difference_that_changes_sides_is_noise() {
        let found = compare(&[10.0, 12.0, 9.0], &[11.0, 11.0, 11.0]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::WithinNoise);
        assert_eq!(found.verdict.remark(), "within the noise");
    }

    #[test]
    fn few_rounds_tell_no_difference() {
        let found = compare(&[10.0], &[20.0]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::TooFew);
        // Three that agree may do so by chance; five hardly.
        let found = compare(&[10.0; 3], &[20.0; 3]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::TooFew);
        let found = compare(&[10.0; 5], &[20.0; 5]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::Less);
        assert_eq!(compare(&[1.0], &[]), None);
        assert_eq!(compare(&[1.0], &[0.0]), None);
    }
}
