//! Soundness of measured figures: the failures that a server may have. A server that drops every third connection may
//! be faster than a server that responds to all, so failures rank before speed.

use crate::import::is_imported;
use crate::result::{Cell, Failures, Round, Run, Scenario};

/// Failures that a scenario provokes by its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// A load without excused failures: every working server can handle the requests.
    Bearable,
    /// A load under which a small server may refuse, close or delay some connections. Wrong responses
    /// remain failures.
    Heavy,
    /// A load that rises until failures begin; the failures are the measured result.
    Rising,
}

impl Load {
    /// Returns the load of a number of concurrent connections; 1,000 or more are heavy.
    pub(crate) fn of(connections: usize) -> Load {
        if connections >= HEAVY_CONNECTIONS {
            Load::Heavy
        } else {
            Load::Bearable
        }
    }

    /// Returns the load of a scenario in a result.
    pub(crate) fn of_scenario(run: &Run, scenario: &Scenario) -> Load {
        if run.suite == RISING_SUITE {
            return Load::Rising;
        }
        let counts = ["connections", "users"].map(|key| scenario.number(key).unwrap_or(0.0));
        Load::of(counts[0].max(counts[1]) as usize)
    }

    fn excuses(self, kind: &str) -> bool {
        match self {
            Load::Bearable => false,
            Load::Heavy => [Failures::CONNECT, Failures::CLOSED, Failures::TIMEOUT].contains(&kind),
            Load::Rising => true,
        }
    }
}

/// Standing of a contender in a scenario, ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Standing {
    /// The contender works.
    Sound,
    /// Under a heavy load the contender refused or delayed the given share of the requests, 0 to 1.
    /// Refusals are not a fault, but a contender that responded to all requests ranks higher.
    Refused(f64),
    /// More requests failed than chance explains.
    Failed,
}

impl Standing {
    /// Returns the standing of a cell.
    pub(crate) fn of(run: &Run, cell: &Cell) -> Standing {
        // Imported results lack the facts needed for a verdict; their failures are shown only.
        if is_imported(run) {
            return Standing::Sound;
        }
        let mut scenarios = run.scenarios.iter();
        let scenario = scenarios.find(|scenario| scenario.id == cell.scenario);
        let load = scenario.map_or(Load::Bearable, |scenario| Load::of_scenario(run, scenario));
        if cell.failure.is_some() || cell.rounds.iter().any(|round| failed_in_part(round, load)) {
            return Standing::Failed;
        }
        // One failure in a single round may be chance, but not one failure in every round.
        let counts = Counts::of(&cell.rounds, load);
        if counts.failed_in_part() {
            Standing::Failed
        } else if load == Load::Heavy && exceeds_chance(counts.excused, counts.asked) {
            Standing::Refused(counts.excused as f64 / counts.asked as f64)
        } else {
            Standing::Sound
        }
    }

    /// Returns the rank: contenders of a lower rank come first in tables, regardless of speed.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Standing::Sound => 0,
            Standing::Refused(_) => 1,
            Standing::Failed => 2,
        }
    }

    /// Returns the mark shown beside the contender, if any.
    pub(crate) fn mark(self) -> Option<String> {
        match self {
            Standing::Sound => None,
            Standing::Refused(share) => Some(format!("refused {:.1} %", share * 100.0)),
            Standing::Failed => Some(MARK.to_owned()),
        }
    }
}

/// Returns true if more requests of a round failed than in a working server under the load: more than one
/// request, and more than 0.1 % of the requests.
///
/// Loopback loses no packets. The remaining failures are chance, for example a connection closed for its
/// age just as the client sends the next request. A server without any correct response fails under every
/// load.
pub(crate) fn failed_in_part(round: &Round, load: Load) -> bool {
    Counts::of(std::slice::from_ref(round), load).failed_in_part()
}

/// Returns true if the cell's figures are those of a working server.
pub(crate) fn is_sound(run: &Run, cell: &Cell) -> bool {
    Standing::of(run, cell) != Standing::Failed
}

/// Returns the reason why a cell is unsound.
pub(crate) fn reason(cell: &Cell) -> String {
    let in_words = || {
        let failed: u64 = cell.rounds.iter().map(Round::failed).sum();
        let asked = failed + cell.rounds.iter().map(|round| round.requests).sum::<u64>();
        format!("the server {MARK}: {failed} of {asked} requests of all rounds")
    };
    cell.failure.clone().unwrap_or_else(in_words)
}

/// Request counts of some rounds.
struct Counts {
    right: u64,
    /// All requests, including failed ones.
    asked: u64,
    /// Failures not excused by the load.
    failed: u64,
    /// Failures excused by the load.
    excused: u64,
    /// True if the share of excused failures is bounded.
    bounded: bool,
}

impl Counts {
    fn of(rounds: &[Round], load: Load) -> Counts {
        let of_kinds = |excused: bool| {
            let failures = rounds.iter().flat_map(|round| &round.failures);
            let counted = failures.filter(|(kind, _)| load.excuses(kind) == excused);
            counted.map(|(_, count)| count).sum::<u64>()
        };
        let right: u64 = rounds.iter().map(|round| round.requests).sum();
        let (failed, excused) = (of_kinds(false), of_kinds(true));
        Counts {
            right,
            asked: right + failed + excused,
            failed,
            excused,
            bounded: load == Load::Heavy,
        }
    }

    fn failed_in_part(&self) -> bool {
        let too_many = self.bounded && self.excused as f64 > self.asked as f64 * REFUSED_SHARE_MAX;
        (self.right == 0 && self.asked > 0) || too_many || exceeds_chance(self.failed, self.asked)
    }
}

fn exceeds_chance(failed: u64, asked: u64) -> bool {
    failed > 1 && failed as f64 > asked as f64 * FAILED_SHARE_MAX
}

/// Mark shown beside an unsound contender.
pub(crate) const MARK: &str = "failed in part";

const FAILED_SHARE_MAX: f64 = 0.001;
/// Largest share of excused failures under a heavy load. A server that refuses more has shed the load, so
/// its figures are those of a smaller load.
const REFUSED_SHARE_MAX: f64 = 0.1;
/// Connections from which a load is heavy: twice the 500 that the source documents call many. The documents
/// also use 1,500, where servers with one process per connection begin to refuse.
const HEAVY_CONNECTIONS: usize = 1_000;
/// Name of the suite with a load that rises until failures begin.
const RISING_SUITE: &str = "growth";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{FORMAT, Machine, Parameter};

    fn round(requests: u64, failures: &[(&str, u64)]) -> Round {
        let failures = failures.iter();
        Round {
            requests,
            failures: failures
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect(),
            ..Round::default()
        }
    }

    #[test]
    fn every_kind_of_failure_counts() {
        for kind in [
            Failures::CONNECT,
            Failures::CLOSED,
            Failures::PROTOCOL,
            Failures::STATUS,
            Failures::LENGTH,
            Failures::TIMEOUT,
            Failures::OTHER,
        ] {
            let half_a_percent = round(9_950, &[(kind, 50)]);
            assert!(failed_in_part(&half_a_percent, Load::of(10)), "{kind}");
            let chance = round(9_999, &[(kind, 1)]);
            assert!(!failed_in_part(&chance, Load::of(10)), "{kind}");
        }
        let together = round(998, &[(Failures::CLOSED, 1), (Failures::STATUS, 1)]);
        assert!(failed_in_part(&together, Load::Bearable));
    }

    #[test]
    fn a_heavy_load_excuses_refusals_but_no_wrong_responses() {
        let refused = round(90, &[(Failures::CONNECT, 5), (Failures::CLOSED, 5)]);
        assert!(!failed_in_part(&refused, Load::of(1_500)));
        assert!(failed_in_part(&refused, Load::of(500)));
        // A server that refuses half of the requests has shed the load.
        let most = round(50, &[(Failures::CONNECT, 50)]);
        assert!(failed_in_part(&most, Load::of(1_500)));
        assert!(!failed_in_part(&most, Load::Rising));
        let wrong = round(90, &[(Failures::STATUS, 10)]);
        assert!(failed_in_part(&wrong, Load::of(1_500)));
        assert!(!failed_in_part(&wrong, Load::Rising));
    }

    #[test]
    fn a_server_without_correct_responses_fails_under_every_load() {
        for load in [Load::Bearable, Load::Heavy, Load::Rising] {
            assert!(failed_in_part(
                &round(0, &[(Failures::CONNECT, 3_000)]),
                load
            ));
        }
    }

    #[test]
    fn one_failure_is_chance_in_one_short_round_but_not_in_every_round() {
        let once = round(99, &[(Failures::CLOSED, 1)]);
        assert!(!failed_in_part(&once, Load::Bearable));
        let standing = |rounds: &[Round]| {
            let (run, cell) = run("hello", 10, rounds);
            Standing::of(&run, &cell)
        };
        let never = round(100, &[]);
        assert_eq!(
            standing(&[once.clone(), never.clone(), never]),
            Standing::Sound
        );
        assert_eq!(
            standing(&[once.clone(), once.clone(), once]),
            Standing::Failed
        );
    }

    #[test]
    fn a_server_that_refuses_some_requests_ranks_between_sound_and_failed() {
        let standing = |refused: u64| {
            let (run, cell) = run(
                "journal",
                1_500,
                &[round(1_000 - refused, &[(Failures::CONNECT, refused)])],
            );
            Standing::of(&run, &cell)
        };
        assert_eq!(standing(0), Standing::Sound);
        assert_eq!(standing(50), Standing::Refused(0.05));
        assert_eq!(standing(50).mark().as_deref(), Some("refused 5.0 %"));
        assert_eq!(standing(200), Standing::Failed);
        let ranks = [0, 50, 200].map(|refused| standing(refused).rank());
        assert_eq!(ranks, [0, 1, 2]);
    }

    #[test]
    fn imported_results_are_not_judged() {
        let half = round(50, &[(Failures::CLOSED, 50)]);
        let (run, cell) = run("import", 10, &[half]);
        assert_eq!(Standing::of(&run, &cell), Standing::Sound);
    }

    /// Returns a run of one cell, and the cell.
    fn run(suite: &str, connections: u64, rounds: &[Round]) -> (Run, Cell) {
        let cell = Cell {
            scenario: "s".to_owned(),
            contender: "nginx".to_owned(),
            rounds: rounds.to_vec(),
            failure: None,
        };
        let scenario = Scenario {
            id: "s".to_owned(),
            title: String::new(),
            parameters: [("connections".to_owned(), Parameter::Count(connections))].into(),
        };
        let run = Run {
            format: FORMAT,
            tool: String::new(),
            suite: suite.to_owned(),
            title: String::new(),
            begun: String::new(),
            ended: String::new(),
            complete: true,
            command: String::new(),
            machine: Machine::default(),
            contenders: Vec::new(),
            scenarios: vec![scenario],
            cells: vec![cell.clone()],
            notes: Vec::new(),
        };
        (run, cell)
    }
}
