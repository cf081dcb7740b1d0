//! Whether figures are those of a server that works. One that drops every third connection may answer
//! the rest faster than one that answers all, so what it failed in decides before how fast it was.

use crate::import::is_imported;
use crate::result::{Cell, Failures, Round, Run, Scenario};

/// What failures a scenario provokes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// None: any server bears it.
    Bearable,
    /// So many at once that a small server may refuse or close some, or leave them waiting. A wrong
    /// answer stays a wrong answer.
    Heavy,
    /// It rises until failures begin: they are what is measured.
    Rising,
}

impl Load {
    /// Of so many connections at once; of 1,000 or more it is heavy.
    pub fn of(connections: usize) -> Load {
        if connections >= HEAVY_CONNECTIONS {
            Load::Heavy
        } else {
            Load::Bearable
        }
    }

    /// Of a scenario of a result.
    pub fn of_scenario(run: &Run, scenario: &Scenario) -> Load {
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

/// What may be said of a contender in a scenario, the better before the worse.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub enum Standing {
    /// It works.
    Sound,
    /// Under a heavy load it refused or left waiting this share of the requests, 0 to 1. That is no
    /// fault, but one that answered all of them stands above it.
    Refused(f64),
    /// It failed in more than chance explains.
    Failed,
}

impl Standing {
    /// Of a cell.
    pub fn of(run: &Run, cell: &Cell) -> Standing {
        // What others measured isn't known well enough to be judged: its failures are shown.
        if is_imported(run) {
            return Standing::Sound;
        }
        let mut scenarios = run.scenarios.iter();
        let scenario = scenarios.find(|scenario| scenario.id == cell.scenario);
        let load = scenario.map_or(Load::Bearable, |scenario| Load::of_scenario(run, scenario));
        if cell.failure.is_some() || cell.rounds.iter().any(|round| failed_in_part(round, load)) {
            return Standing::Failed;
        }
        // One failure may be chance in a round, and isn't in each of them.
        let counts = Counts::of(&cell.rounds, load);
        if counts.failed_in_part() {
            Standing::Failed
        } else if load == Load::Heavy && exceeds_chance(counts.excused, counts.asked) {
            Standing::Refused(counts.excused as f64 / counts.asked as f64)
        } else {
            Standing::Sound
        }
    }

    /// The lower, the better: nobody stands above one of a lower rank, however fast it was.
    pub fn rank(self) -> u8 {
        match self {
            Standing::Sound => 0,
            Standing::Refused(_) => 1,
            Standing::Failed => 2,
        }
    }

    /// What stands beside the contender; `None` if nothing is to be said.
    pub fn mark(self) -> Option<String> {
        match self {
            Standing::Sound => None,
            Standing::Refused(share) => Some(format!("refused {:.1} %", share * 100.0)),
            Standing::Failed => Some(MARK.to_owned()),
        }
    }
}

/// Whether more of a round's requests failed than a server that works would fail in under that load:
/// more than one in a thousand, and more than one. On a machine that talks to itself nothing is lost on
/// the way; what is left is chance, as a connection that is closed for its age just when it is asked
/// again. A server that answered nothing doesn't work under any load.
pub fn failed_in_part(round: &Round, load: Load) -> bool {
    Counts::of(std::slice::from_ref(round), load).failed_in_part()
}

/// Whether nothing of a cell failed.
pub fn is_sound(run: &Run, cell: &Cell) -> bool {
    Standing::of(run, cell) != Standing::Failed
}

/// Why a cell isn't sound.
pub fn reason(cell: &Cell) -> String {
    let in_words = || {
        let failed: u64 = cell.rounds.iter().map(Round::failed).sum();
        let asked = failed + cell.rounds.iter().map(|round| round.requests).sum::<u64>();
        format!("it {MARK}: {failed} of {asked} requests of all rounds")
    };
    cell.failure.clone().unwrap_or_else(in_words)
}

/// Requests of some rounds.
struct Counts {
    right: u64,
    /// All of them, those that failed too.
    asked: u64,
    /// That failed in what the load doesn't excuse.
    failed: u64,
    /// That failed in what it does.
    excused: u64,
    /// Whether even that has a bound.
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

/// What stands beside a contender that isn't sound.
pub const MARK: &str = "failed in part";

const FAILED_SHARE_MAX: f64 = 0.001;
/// Under a heavy load. What refuses more has shed the load that it is measured under, so that its
/// figures are those of another one.
const REFUSED_SHARE_MAX: f64 = 0.1;
/// Twice what the documents call many, 500; they have 1,500 too, where servers with a process for
/// each connection begin to refuse.
const HEAVY_CONNECTIONS: usize = 1_000;
/// The suite whose load rises until failures begin.
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
    fn a_heavy_load_excuses_refusals_and_no_wrong_answers() {
        let refused = round(90, &[(Failures::CONNECT, 5), (Failures::CLOSED, 5)]);
        assert!(!failed_in_part(&refused, Load::of(1_500)));
        assert!(failed_in_part(&refused, Load::of(500)));
        // One that refuses more isn't measured under that load.
        let most = round(50, &[(Failures::CONNECT, 50)]);
        assert!(failed_in_part(&most, Load::of(1_500)));
        assert!(!failed_in_part(&most, Load::Rising));
        let wrong = round(90, &[(Failures::STATUS, 10)]);
        assert!(failed_in_part(&wrong, Load::of(1_500)));
        assert!(!failed_in_part(&wrong, Load::Rising));
    }

    #[test]
    fn who_answers_nothing_works_under_no_load() {
        for load in [Load::Bearable, Load::Heavy, Load::Rising] {
            assert!(failed_in_part(
                &round(0, &[(Failures::CONNECT, 3_000)]),
                load
            ));
        }
    }

    #[test]
    fn one_failure_is_chance_in_a_short_round_and_not_in_each() {
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
    fn who_refuses_some_stands_between() {
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
    fn what_others_measured_is_not_judged() {
        let half = round(50, &[(Failures::CLOSED, 50)]);
        let (run, cell) = run("import", 10, &[half]);
        assert_eq!(Standing::of(&run, &cell), Standing::Sound);
    }

    /// A run of one cell.
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
