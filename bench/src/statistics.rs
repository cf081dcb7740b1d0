//! Statistics of a few rounds: the median, its confidence interval, and whether two sets of rounds differ
//! by more than noise.
//!
//! No distribution is assumed: a drifting or disturbed machine does not produce a normal distribution. The
//! interval lies between order statistics, which requires only independent rounds, and states its
//! confidence: three rounds cannot reach 95 %.

/// Confidence aimed at by intervals; fewer than six rounds cannot reach 95 %.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Confidence required to report a difference: five pairs that all agree (94 %). Three pairs agree by
/// chance in one case out of four.
pub(crate) const CONFIDENCE_OF_A_DIFFERENCE: f64 = 0.9;

/// Returns the median: the middle value, or the mean of the two middle values; `None` without values.
///
/// Values that are not finite are left out.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Confidence interval of the median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    /// Lower end: one of the values.
    pub low: f64,
    /// Upper end: one of the values.
    pub high: f64,
    /// Confidence, 0 to 1: at least [`CONFIDENCE`] with enough values, otherwise the confidence of the
    /// interval from the smallest to the largest value.
    pub confidence: f64,
}

/// Returns the narrowest interval of the median between two order statistics with a confidence of at least
/// [`CONFIDENCE`], or the interval from the smallest to the largest value if none reaches it; `None` for
/// fewer than two values.
///
/// The true median lies below the kth smallest of n values with the probability that fewer than k of n
/// coins show tails (binomial, one half), and above the kth largest with the same probability.
pub(crate) fn interval(values: &[f64]) -> Option<Interval> {
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

/// Result of comparing two contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The first contender has more.
    More,
    /// The first contender has less.
    Less,
    /// The difference is within the noise: another run could show the opposite.
    WithinNoise,
    /// Too few rounds: with fewer than five ([`CONFIDENCE_OF_A_DIFFERENCE`]), equal contenders would often
    /// look different unless their values lie far apart.
    TooFew,
}

impl Verdict {
    /// Returns a remark for tables, empty for a difference, since the figures show it.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::More | Self::Less => "",
            Self::WithinNoise => "within the noise",
            Self::TooFew => "too few rounds to tell",
        }
    }
}

/// Comparison of two sets of rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison {
    /// Ratio of first to second: the median of the ratios if rounds are pairs, otherwise the ratio of the
    /// medians.
    pub ratio: f64,
    /// Lower end of the ratio's interval.
    pub low: f64,
    /// Upper end of the ratio's interval.
    pub high: f64,
    /// Confidence of the interval, 0 to 1.
    pub confidence: f64,
    /// Conclusion from the interval.
    pub verdict: Verdict,
}

impl Comparison {
    /// Returns the remark beside the ratio: no conclusion, or a conclusion from few rounds.
    pub(crate) fn remark(&self) -> &'static str {
        match self.verdict {
            Verdict::More | Verdict::Less if self.confidence < CONFIDENCE_OF_A_DIFFERENCE => {
                "apart in all rounds"
            }
            verdict => verdict.remark(),
        }
    }

    /// Replaces the verdict [`Verdict::TooFew`] if the values of few rounds lie far apart.
    fn or_far_apart(mut self, first: &[f64], second: &[f64]) -> Comparison {
        if self.verdict == Verdict::TooFew && first.len().min(second.len()) >= ROUNDS_MIN {
            self.verdict = FEW.judge(first, second).unwrap_or(Verdict::TooFew);
        }
        self
    }
}

/// Compares interleaved rounds. The nth rounds of both contenders were measured one after the other, so the
/// machine's drift is in both and cancels out in their ratio. If the numbers of rounds differ, the rounds
/// are not pairs. Three or four rounds show only large differences.
///
/// Returns `None` if either side has no values, or if the second median is zero.
pub(crate) fn compare(first: &[f64], second: &[f64]) -> Option<Comparison> {
    if median(second)? == 0.0 {
        return None;
    }
    if first.len() == second.len() && second.iter().all(|value| *value != 0.0) {
        let ratios: Vec<f64> = first.iter().zip(second).map(|(a, b)| a / b).collect();
        let found = comparison(median(&ratios)?, interval(&ratios));
        return Some(found.or_far_apart(first, second));
    }
    compare_unpaired(first, second)
}

/// Compares rounds that are not pairs: only disjoint intervals are a difference.
fn compare_unpaired(first: &[f64], second: &[f64]) -> Option<Comparison> {
    let (of_first, of_second) = (median(first)?, median(second)?);
    if of_second == 0.0 {
        return None;
    }
    let both = interval(first).zip(interval(second));
    let ratios = both.map(|(first, second)| Interval {
        low: first.low / second.high,
        high: first.high / second.low,
        confidence: (first.confidence + second.confidence - 1.0).max(0.0),
    });
    Some(comparison(of_first / of_second, ratios).or_far_apart(first, second))
}

/// Compares rounds by their numbers, like [`compare`]: rounds of the same number were measured one after
/// the other. If either side lacks a round of the other side, the rounds are not pairs.
pub(crate) fn compare_rounds(first: &[Numbered], second: &[Numbered]) -> Option<Comparison> {
    let by_number = |rounds: &[Numbered]| {
        let mut rounds = rounds.to_vec();
        rounds.sort_by_key(|(number, _)| *number);
        rounds.into_iter().unzip()
    };
    let (numbers, first): (Vec<u32>, Vec<f64>) = by_number(first);
    let (second_numbers, second): (Vec<u32>, Vec<f64>) = by_number(second);
    if numbers == second_numbers {
        compare(&first, &second)
    } else {
        compare_unpaired(&first, &second)
    }
}

/// Number and value of a round.
pub(crate) type Numbered = (u32, f64);

/// Compares rounds of two runs, which were not interleaved. The criteria are stricter, since a comparison
/// of runs has so many figures that a false alarm in one pair of a hundred would appear every time.
pub(crate) fn compare_runs(first: &[f64], second: &[f64]) -> Verdict {
    let (Some(one), Some(other)) = (interval(first), interval(second)) else {
        return Verdict::TooFew;
    };
    if one.low <= other.high && other.low <= one.high {
        return Verdict::WithinNoise;
    }
    match first.len().min(second.len()) {
        0..ROUNDS_MIN => Verdict::TooFew,
        ROUNDS_MIN..ROUNDS_OF_AN_INTERVAL => FEW.judge(first, second).unwrap_or(Verdict::TooFew),
        _ => RUNS.judge(first, second).unwrap_or(Verdict::WithinNoise),
    }
}

/// Distance at which two sets of rounds count as different.
#[derive(Debug, Clone, Copy)]
struct Distance {
    /// Smallest ratio of the larger to the smaller median.
    ratio: f64,
    /// Smallest gap between the two intervals, as a multiple of the wider interval. Gap and width are ratios, compared by
    /// their logarithms: rounds of 300 and of 9,000 requests/s are told apart although those of the faster server
    /// scatter by more requests than the slower one answers.
    gap: f64,
}

impl Distance {
    fn judge(self, first: &[f64], second: &[f64]) -> Option<Verdict> {
        let (of_first, of_second) = (median(first)?, median(second)?);
        let (one, other) = (interval(first)?, interval(second)?);
        // A count of 0 has no logarithm.
        let is_positive = one.low > 0.0 && other.low > 0.0;
        let distance = |high: f64, low: f64| {
            if is_positive {
                (high / low).ln()
            } else {
                high - low
            }
        };
        let (verdict, gap, ratio) = if of_first > of_second {
            let gap = distance(one.low, other.high);
            (Verdict::More, gap, of_first / of_second)
        } else {
            let gap = distance(other.low, one.high);
            (Verdict::Less, gap, of_second / of_first)
        };
        let wider = distance(one.high, one.low).max(distance(other.high, other.low));
        (gap > 0.0 && gap >= self.gap * wider && ratio >= self.ratio).then_some(verdict)
    }
}

/// Distance for three or four rounds. Two equal contenders with rounds that scatter by 10 % (standard
/// deviation) lie this far apart in one pair of 5,000, and with a scatter of 20 % in one pair of 800.
const FEW: Distance = Distance {
    ratio: 1.25,
    gap: 2.0,
};
/// Distance for two runs of five rounds or more: the drift between runs, a few percent, is not visible
/// within either run.
const RUNS: Distance = Distance {
    ratio: 1.05,
    gap: 1.0,
};
/// Fewest rounds for a difference by distance: two rounds often lie close together by chance.
const ROUNDS_MIN: usize = 3;
/// Number of rounds from which an interval reaches [`CONFIDENCE_OF_A_DIFFERENCE`].
const ROUNDS_OF_AN_INTERVAL: usize = 5;

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

/// Returns the probability that `n` fair coins show fewer than `k` tails.
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

    /// The expected values are from tables of the sign test, e.g. Conover, Practical Nonparametric
    /// Statistics, §3.2.
    #[test]
    fn the_interval_lies_between_order_statistics() {
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
    fn drift_common_to_both_contenders_is_not_noise() {
        let first = [100.0, 80.0, 60.0, 90.0, 70.0, 50.0];
        let second: Vec<f64> = first.iter().map(|value| value * 0.9).collect();
        let found = compare(&first, &second).expect("a comparison");
        assert_eq!(found.verdict, Verdict::More);
        assert!((found.ratio - 1.0 / 0.9).abs() < 1e-9);
        // Without pairs the difference is smaller than the drift.
        let unpaired = compare(&first, &second[..5]).expect("a comparison");
        assert_eq!(unpaired.verdict, Verdict::WithinNoise);
    }

    #[test]
    fn rounds_are_paired_by_their_numbers() {
        let first = [100.0, 80.0, 60.0, 90.0, 70.0, 50.0];
        let mut one: Vec<Numbered> = (0..).zip(first).collect();
        let other: Vec<Numbered> = one.iter().map(|(n, value)| (*n, value * 0.9)).collect();
        // A resumed run has its rounds in a different order.
        one.rotate_left(2);
        let found = compare_rounds(&one, &other).expect("a comparison");
        assert_eq!(found.verdict, Verdict::More);
        assert!((found.low - found.high).abs() < 1e-9);
        // Both sides have five rounds, but of different numbers, so the rounds are not pairs.
        let (without_first, without_last) = (&other[1..], &other[..5]);
        let found = compare_rounds(without_first, without_last).expect("a comparison");
        assert_eq!(found.verdict, Verdict::WithinNoise);
        assert!(found.low < 0.7 && found.high > 1.4, "{found:?}");
    }

    #[test]
    fn a_difference_that_changes_sides_is_noise() {
        let found = compare(&[10.0, 12.0, 9.0], &[11.0, 11.0, 11.0]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::WithinNoise);
        assert_eq!(found.verdict.remark(), "within the noise");
    }

    #[test]
    fn few_rounds_show_no_difference() {
        let found = compare(&[10.0], &[20.0]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::TooFew);
        let found = compare(&[10.0; 2], &[20.0; 2]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::TooFew);
        // Three pairs may agree by chance; five hardly.
        let found = compare(&[10.0, 10.1, 10.2], &[11.0, 11.1, 11.2]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::TooFew);
        let found = compare(&[10.0; 5], &[20.0; 5]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::Less);
        assert_eq!(found.remark(), "");
        assert_eq!(compare(&[1.0], &[]), None);
        assert_eq!(compare(&[1.0], &[0.0]), None);
    }

    #[test]
    fn three_rounds_show_a_large_difference() {
        let found = compare(&[10.0, 10.5, 11.0], &[15.0, 15.5, 16.0]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::Less);
        assert_eq!(found.remark(), "apart in all rounds");
        // The medians are as far apart, but the scatter is wider, so another three rounds could differ.
        let found = compare(&[8.0, 10.5, 12.0], &[14.0, 15.5, 19.0]).expect("a comparison");
        assert_eq!(found.verdict, Verdict::TooFew);
        assert_eq!(found.remark(), "too few rounds to tell");
    }

    #[test]
    fn rates_of_another_order_differ_however_wide_the_faster_scatters() {
        let (slow, fast) = ([321.0, 268.0, 346.0], [10_144.0, 6_422.0, 12_757.0]);
        let found = compare(&slow, &fast).expect("a comparison");
        assert_eq!(found.verdict, Verdict::Less);
        assert_eq!(compare_runs(&fast, &slow), Verdict::More);
    }

    #[test]
    fn two_runs_differ_only_by_more_than_chance_and_drift() {
        let (calm, later) = ([10.0, 10.1, 10.2], [10.6, 10.7, 10.8]);
        assert_eq!(compare_runs(&calm, &later), Verdict::TooFew);
        assert_eq!(compare_runs(&calm, &[20.0, 20.1, 20.2]), Verdict::Less);
        assert_eq!(compare_runs(&[0.0; 3], &[5.0; 3]), Verdict::Less);
        let rounds = |from: f64| [0.0, 0.1, 0.2, 0.3, 0.4].map(|more| from + more);
        assert_eq!(
            compare_runs(&rounds(10.0), &rounds(10.45)),
            Verdict::WithinNoise
        );
        assert_eq!(compare_runs(&rounds(11.5), &rounds(10.0)), Verdict::More);
        assert_eq!(compare_runs(&[1.0], &[2.0]), Verdict::TooFew);
    }

    /// Compares an unchanged server with itself: 100 figures, 50 times, with a scatter of 10 % around the
    /// same value, from a generator with a fixed seed.
    #[test]
    fn an_unchanged_server_gives_no_alarm() {
        let mut state = 1u64;
        let mut scattered = || {
            let mut sum = 0.0;
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                sum += (state >> 33) as f64 / (1u64 << 31) as f64;
            }
            100.0 * (1.0 + 0.1 * (sum - 6.0))
        };
        for rounds in [3, 4, 5] {
            let mut alarms = 0;
            for _ in 0..5_000 {
                let first: Vec<f64> = (0..rounds).map(|_| scattered()).collect();
                let second: Vec<f64> = (0..rounds).map(|_| scattered()).collect();
                let verdict = compare_runs(&first, &second);
                alarms += u32::from(matches!(verdict, Verdict::More | Verdict::Less));
            }
            assert!(alarms <= 5, "{alarms} in 5,000 with {rounds} rounds");
        }
    }
}
