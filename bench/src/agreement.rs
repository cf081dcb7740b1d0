//! Agreement between the kit's own load generator and wrk, from the suite in which both load the same
//! server in pairs of rounds.
//!
//! A pair is evidence about the generators only where the server is the limit. If a client has no CPU time
//! left, the difference is a difference between the clients, and the verdict says so.

use crate::driver::Driver;
use crate::result::{Cell, Round, Run, Scenario, Usage};
use crate::statistics::{CONFIDENCE_OF_A_DIFFERENCE, Comparison, compare, median};

/// Comparison of the kit's load generator with wrk on one server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Agreement<'r> {
    /// Name of the server.
    pub contender: &'r str,
    /// Transport of the requests: `TLS`, `plain`.
    pub protocol: String,
    /// Requests/s of the kit's generator divided by requests/s of wrk, compared pair by pair.
    pub found: Comparison,
    /// Number of pairs.
    pub pairs: usize,
    /// CPU use of the kit's generator and of the server during its rounds.
    pub ours: Busy,
    /// CPU use of wrk and of the server during its rounds.
    pub wrks: Busy,
}

/// Used shares of CPU time, 0 to 1: medians of the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Busy {
    /// The client's share.
    pub client: f64,
    /// The server's share.
    pub server: f64,
}

/// Conclusion from an [`Agreement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The two generators differ by at most 5 %: the whole interval lies within.
    Agree,
    /// The two generators differ by more than 5 %: the whole interval lies beyond.
    Differ,
    /// The interval lies on both sides of 5 %.
    Undecided,
    /// Too few pairs: the confidence of the interval supports no conclusion.
    TooFew,
    /// The named client was the limit, so the pairs tell nothing about the measurement of servers.
    ClientBound(Driver),
}

impl Agreement<'_> {
    /// Returns the number of pairs in words: `1 pair`, `7 pairs`.
    pub(crate) fn pairs_in_words(&self) -> String {
        match self.pairs {
            1 => "1 pair".to_owned(),
            many => format!("{many} pairs"),
        }
    }

    /// Returns the conclusion.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.wrks.client > CLIENT_BOUND {
            return Verdict::ClientBound(Driver::Wrk);
        }
        if self.ours.client > CLIENT_BOUND {
            return Verdict::ClientBound(Driver::Embedded);
        }
        if self.found.confidence < CONFIDENCE_OF_A_DIFFERENCE {
            return Verdict::TooFew;
        }
        let (low, high) = (self.found.low - 1.0, self.found.high - 1.0);
        if low >= -TOLERANCE && high <= TOLERANCE {
            Verdict::Agree
        } else if low > TOLERANCE || high < -TOLERANCE {
            Verdict::Differ
        } else {
            Verdict::Undecided
        }
    }
}

impl Verdict {
    /// Returns the verdict as a short text for tables.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Agree => "the whole interval is within 5 %",
            Self::Differ => "the whole interval is beyond 5 %",
            Self::Undecided => "undecided: the interval crosses 5 %",
            Self::TooFew => "undecided: too few pairs",
            Self::ClientBound(Driver::Wrk) => "wrk is the limit, not the server",
            Self::ClientBound(_) => "our generator is the limit, not the server",
        }
    }
}

/// Returns the agreements of a run; the list is empty for other suites.
pub(crate) fn agreements(run: &Run) -> Vec<Agreement<'_>> {
    let asked_by = |driver: Driver| {
        let of_driver = move |scenario: &&Scenario| {
            run.suite == SUITE && scenario.word("driver") == Some(driver.name())
        };
        run.scenarios.iter().filter(of_driver)
    };
    let mut found = Vec::new();
    for (ours, wrks) in asked_by(Driver::Embedded)
        .flat_map(|ours| asked_by(Driver::Wrk).map(move |wrks| (ours, wrks)))
        .filter(|(ours, wrks)| protocol(ours) == protocol(wrks))
    {
        let of_ours = |cell: &&Cell| cell.scenario == ours.id;
        for cell in run.cells.iter().filter(of_ours) {
            let its =
                |other: &&Cell| other.scenario == wrks.id && other.contender == cell.contender;
            let beside = run.cells.iter().find(its);
            found.extend(beside.and_then(|beside| agreement(protocol(ours), cell, beside)));
        }
    }
    found
}

fn agreement<'r>(protocol: &str, ours: &'r Cell, wrks: &Cell) -> Option<Agreement<'r>> {
    // A round measured by only one of the two generators has no pair.
    let pair = |round: &Round| {
        let other = wrks
            .rounds
            .iter()
            .find(|other| other.number == round.number)?;
        Some((round.rate(), other.rate()))
    };
    let (first, second): (Vec<f64>, Vec<f64>) = ours.rounds.iter().filter_map(pair).unzip();
    Some(Agreement {
        contender: &ours.contender,
        protocol: match protocol {
            "https" => "TLS".to_owned(),
            _ => "plain".to_owned(),
        },
        found: compare(&first, &second)?,
        pairs: first.len(),
        ours: busy(ours),
        wrks: busy(wrks),
    })
}

fn protocol(scenario: &Scenario) -> &str {
    scenario.word("protocol").unwrap_or_default()
}

fn busy(cell: &Cell) -> Busy {
    let of = |usage: fn(&Round) -> &Usage| {
        let shares = cell.rounds.iter();
        let shares = shares.filter_map(|round| usage(round).busy(round.seconds));
        median(&shares.collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    Busy {
        client: of(|round| &round.client),
        server: of(|round| &round.server),
    }
}

/// Name of the suite that runs both generators.
pub(crate) const SUITE: &str = "agreement";
/// Largest difference that counts as agreement: 5 %.
const TOLERANCE: f64 = 0.05;
/// Share of CPU time above which a client counts as the limit: the client no longer waits for the server.
const CLIENT_BOUND: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{FORMAT, Machine, Parameter};

    fn cell(driver: &str, rates: &[u64], client_seconds: f64) -> (Scenario, Cell) {
        let word = |word: &str| Parameter::Word(word.to_owned());
        let parameters = [("driver", word(driver)), ("protocol", word("https"))];
        let scenario = Scenario {
            id: format!("tls-{driver}"),
            title: String::new(),
            parameters: parameters
                .map(|(key, value)| (key.to_owned(), value))
                .into(),
        };
        let usage = |seconds| Usage {
            user_seconds: seconds,
            cpus: 1,
            ..Usage::default()
        };
        let round = |(number, requests): (usize, &u64)| Round {
            number: number as u32,
            seconds: 1.0,
            requests: *requests,
            server: usage(0.99),
            client: usage(client_seconds),
            ..Round::default()
        };
        let cell = Cell {
            scenario: scenario.id.clone(),
            contender: "nginx".to_owned(),
            rounds: rates.iter().enumerate().map(round).collect(),
            failure: None,
        };
        (scenario, cell)
    }

    fn run(ours: &[u64], wrks: &[u64], wrks_seconds: f64) -> Run {
        let (scenarios, cells) = [cell("embedded", ours, 0.6), cell("wrk", wrks, wrks_seconds)]
            .into_iter()
            .unzip();
        Run {
            format: FORMAT,
            tool: String::new(),
            suite: SUITE.to_owned(),
            title: String::new(),
            begun: String::new(),
            ended: String::new(),
            complete: true,
            command: String::new(),
            machine: Machine::default(),
            contenders: Vec::new(),
            scenarios,
            cells,
            notes: Vec::new(),
        }
    }

    #[test]
    fn rounds_of_both_generators_are_paired_by_number() {
        let run = run(&[1040, 1030, 1045, 1035, 1042, 900], &[1000; 5], 0.8);
        let found = agreements(&run);
        let [agreement] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((agreement.contender, agreement.pairs), ("nginx", 5));
        assert_eq!(agreement.protocol, "TLS");
        assert_eq!(agreement.found.ratio, 1.04);
        assert_eq!(agreement.verdict(), Verdict::Agree);
        assert!(crate::summary::agreement(&run).contains("+4.0 %"));
    }

    #[test]
    fn verdicts_follow_from_the_interval_and_the_clients_cpu_use() {
        let apart = run(&[94, 93, 92, 93, 91], &[100; 5], 0.8);
        assert_eq!(agreements(&apart)[0].verdict(), Verdict::Differ);
        // The median alone would count as agreement.
        let scattered = run(&[92, 98, 103, 97, 99], &[100; 5], 0.8);
        assert_eq!(agreements(&scattered)[0].verdict(), Verdict::Undecided);
        let words = crate::summary::agreement(&scattered);
        assert!(
            words.contains("-2.0 % (-8.0 to +3.0") && words.contains("undecided"),
            "{words}"
        );
        // One or three pairs support no verdict, however small the difference.
        for pairs in [1, 3] {
            let few = run(&[101; 5][..pairs], &[100; 5][..pairs], 0.8);
            assert_eq!(agreements(&few)[0].verdict(), Verdict::TooFew);
            let words = crate::summary::agreement(&few);
            let counted = ["1 pair)", "3 pairs)"][pairs / 2];
            assert!(
                words.contains(counted) && words.contains("too few"),
                "{words}"
            );
        }
        let exhausted = run(&[140, 140, 140], &[100, 100, 100], 0.97);
        let verdict = agreements(&exhausted)[0].verdict();
        assert_eq!(verdict, Verdict::ClientBound(Driver::Wrk));
        let other = Run {
            suite: "hello".to_owned(),
            ..exhausted
        };
        assert_eq!(agreements(&other), []);
    }
}
