//! Interleaved rounds: the order of all measurements, and the recording of their results.
//!
//! The speed of a machine drifts with neighbours, temperature and clock frequency. Contenders therefore
//! alternate (A B C A B C), so that each round of a contender has a round of every other contender close in
//! time. A contender is started for its round and stopped after it. Only one contender runs at a time, its
//! memory is the memory of that round alone, and its memory layout is random in every round instead of
//! fixed for all rounds. Scenarios measured on the same start of a server form a batch.
//!
//! The run is saved after each round, so an interruption or a crash loses no finished round.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::progress::{Progress, Step};
use crate::result::{Cell, Round, Run, Scenario};

/// Scenarios measured on the same start of a server, and the contenders that take part.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    /// Scenarios in the order of measurement.
    pub scenarios: Vec<Scenario>,
    /// Names of the contenders in the order of their turns.
    pub contenders: Vec<String>,
    /// Order of the scenarios within a turn.
    pub order: Order,
}

/// Order in which the scenarios of a batch are measured on one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The listed order, but scenarios that failed before come last.
    Listed,
    /// [`Order::Listed`], reversed in every second round, so that no scenario is always the first.
    Alternating,
    /// The listed order; after the first failure, the remaining scenarios of the turn are skipped.
    Rising,
    /// Strictly the listed order, since each scenario depends on the previous scenario.
    Chained,
}

/// The next measurement: a contender's start in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn<'t> {
    /// Index of the batch.
    pub batch: usize,
    /// Name of the contender.
    pub contender: &'t str,
    /// Number of the interleaved round, from 0.
    pub round: u32,
}

/// Starts and measures servers. Tests implement the trait without processes.
pub(crate) trait Measure {
    /// Starts a contender for all scenarios of a batch.
    fn start(&mut self, turn: Turn<'_>) -> Result<(), RoundError>;
    /// Measures a scenario, given by its index in the batch, on the started contender.
    fn measure(&mut self, turn: Turn<'_>, scenario: usize) -> Result<Round, RoundError>;
    /// Stops the contender; called once after each successful start.
    fn stop(&mut self, turn: Turn<'_>);
    /// Adds facts about the contenders to the run; called before each save.
    fn describe(&self, _run: &mut Run) {}
}

/// Reason why a round is missing or unsound.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RoundError {
    /// The user ended the run.
    Interrupted,
    /// The contender lacks the ability, which is not a failure; the text names the reason.
    Unable(String),
    /// The contender responds, but more requests failed than chance explains. The round is kept and marked,
    /// and the turn goes on.
    Unsound {
        /// Text for the cell's failure.
        why: String,
        /// The measured round, including its failures.
        round: Box<Round>,
    },
    /// The contender exited, hung, sent no correct response, or did not start.
    Failed {
        /// Text for the cell's failure.
        why: String,
        /// The measured round including its failures, if any.
        round: Option<Box<Round>>,
    },
}

impl RoundError {
    /// Returns a failure without a measured round.
    pub(crate) fn failed(why: impl Into<String>) -> RoundError {
        RoundError::Failed {
            why: why.into(),
            round: None,
        }
    }
}

/// Outcome of [`collect`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CollectOutcome {
    /// True if the user ended the run.
    pub interrupted: bool,
    /// A text `contender, scenario: why` for each failed cell.
    pub failures: Vec<String>,
    /// Number of rounds measured by the call.
    pub rounds: usize,
    /// Failed attempts by scenario and contender.
    failed_attempts: BTreeMap<(String, String), u32>,
}

impl CollectOutcome {
    fn count_failed_attempts(&mut self, scenario: &Scenario, contender: &str, times: u32) {
        let cell = (scenario.id.clone(), contender.to_owned());
        *self.failed_attempts.entry(cell).or_default() += times;
    }

    fn failed_attempts(&self, scenario: &Scenario, contender: &str) -> u32 {
        let cell = (scenario.id.clone(), contender.to_owned());
        self.failed_attempts.get(&cell).copied().unwrap_or(0)
    }
}

/// Parameters of [`collect`] besides the batches and the measurer.
pub(crate) struct RoundCollector<'c> {
    /// The run that receives scenarios, cells and rounds; other fields belong to the caller.
    pub run: &'c mut Run,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Flag set when the user ends the run.
    pub stop: &'c AtomicBool,
    /// Progress display.
    pub progress: &'c mut Progress,
    /// Saves the run; called after each round.
    pub save: &'c mut dyn FnMut(&mut Run) -> io::Result<()>,
}

/// Measures all batches. An error means that the result could not be saved; failures of contenders are
/// recorded in the cells and in the returned [`CollectOutcome`].
pub(crate) fn collect(
    batches: &[Batch],
    measurer: &mut dyn Measure,
    mut collector: RoundCollector<'_>,
) -> io::Result<CollectOutcome> {
    let mut outcome = CollectOutcome::default();
    let each = collector.rounds as usize;
    let turns = |batch: &Batch| batch.scenarios.len() * batch.contenders.len();
    collector
        .progress
        .begin(batches.iter().map(turns).sum::<usize>() * each);
    for (index, batch) in batches.iter().enumerate() {
        collector.lay_out(batch);
        for round in 0..collector.rounds {
            for contender in &batch.contenders {
                let turn = Turn {
                    batch: index,
                    contender,
                    round,
                };
                collector.take_turn(batch, turn, measurer, &mut outcome)?;
                if outcome.interrupted || collector.stop.load(Ordering::Relaxed) {
                    outcome.interrupted = true;
                    collector.progress.end();
                    return Ok(outcome);
                }
            }
        }
        collector.explain(batch);
    }
    collector.progress.end();
    Ok(outcome)
}

impl RoundCollector<'_> {
    /// Adds the scenarios and empty cells of a batch, in the order of the tables.
    fn lay_out(&mut self, batch: &Batch) {
        for scenario in &batch.scenarios {
            if !self
                .run
                .scenarios
                .iter()
                .any(|known| known.id == scenario.id)
            {
                self.run.scenarios.push(scenario.clone());
            }
            for contender in &batch.contenders {
                let known =
                    |cell: &Cell| cell.scenario == scenario.id && cell.contender == *contender;
                // A resumed run already has cells.
                if self.run.cells.iter().any(known) {
                    continue;
                }
                self.run.cells.push(Cell {
                    scenario: scenario.id.clone(),
                    contender: contender.clone(),
                    rounds: Vec::new(),
                    failure: None,
                });
            }
        }
    }

    /// Records a reason in the empty cells of contenders that failed in another scenario of the batch. For
    /// a rising load an empty cell is expected.
    fn explain(&mut self, batch: &Batch) {
        if batch.order == Order::Rising {
            return;
        }
        for contender in &batch.contenders {
            let of_group = |cell: &&Cell| {
                let mut scenarios = batch.scenarios.iter();
                cell.contender == *contender && scenarios.any(|known| known.id == cell.scenario)
            };
            let mut cells = self.run.cells.iter().filter(of_group);
            let why = cells.find_map(|cell| Some((cell.scenario.clone(), cell.failure.clone()?)));
            let Some((scenario, why)) = why else {
                continue;
            };
            for cell in &mut self.run.cells {
                if of_group(&&*cell) && cell.rounds.is_empty() && cell.failure.is_none() {
                    cell.failure = Some(format!(
                        "not measured, after a failure in {scenario}: {why}"
                    ));
                }
            }
        }
    }

    /// Carries out a contender's turn: start, measurement of each scenario, stop.
    fn take_turn(
        &mut self,
        batch: &Batch,
        turn: Turn<'_>,
        measurer: &mut dyn Measure,
        outcome: &mut CollectOutcome,
    ) -> io::Result<()> {
        if self.is_measured(batch, turn) {
            self.progress.skip(batch.scenarios.len());
            return Ok(());
        }
        self.remove_rounds(batch, turn);
        let failed_attempts =
            |nth: usize| outcome.failed_attempts(&batch.scenarios[nth], turn.contender);
        let mut wanted: Vec<usize> = (0..batch.scenarios.len())
            .filter(|&nth| failed_attempts(nth) < FAILED_ATTEMPTS_MAX)
            .collect();
        if batch.order == Order::Alternating && turn.round % 2 == 1 {
            wanted.reverse();
        }
        if matches!(batch.order, Order::Listed | Order::Alternating) {
            // Scenarios in which the server exited before come last, so that the other scenarios are
            // measured first.
            wanted.sort_by_key(|&nth| failed_attempts(nth));
        }
        self.progress.skip(batch.scenarios.len() - wanted.len());
        let Some(&first) = wanted.first() else {
            return Ok(());
        };
        self.progress.step(self.step(batch, first, turn));
        match measurer.start(turn) {
            Ok(()) => {}
            Err(RoundError::Interrupted) => {
                outcome.interrupted = true;
                return Ok(());
            }
            Err(
                RoundError::Unable(why)
                | RoundError::Failed { why, .. }
                | RoundError::Unsound { why, .. },
            ) => {
                self.report_failure(format!("{}: {why}", turn.contender), outcome);
                // A contender that never ran is not expected to start in a later round.
                let mut cells = wanted.iter();
                let ran = cells.any(|&nth| !self.cell(batch, nth, turn).rounds.is_empty());
                let failed_attempts = if ran { 1 } else { FAILED_ATTEMPTS_MAX };
                for &nth in &wanted {
                    self.fail(batch, nth, turn, &why);
                    outcome.count_failed_attempts(
                        &batch.scenarios[nth],
                        turn.contender,
                        failed_attempts,
                    );
                }
                self.progress.skip(wanted.len());
                return self.save(measurer);
            }
        }
        let outcome = self.measure_scenarios(batch, turn, &wanted, measurer, outcome);
        measurer.stop(turn);
        outcome
    }

    /// Returns true if the resumed run already has all rounds of the turn.
    fn is_measured(&mut self, batch: &Batch, turn: Turn<'_>) -> bool {
        for nth in 0..batch.scenarios.len() {
            let rounds = &self.cell(batch, nth, turn).rounds;
            match rounds.iter().find(|round| round.number == turn.round) {
                None => return false,
                Some(round) if batch.order == Order::Rising && round.failed() > 0 => return true,
                Some(_) => {}
            }
        }
        true
    }

    /// Removes the rounds of an interrupted turn, since all rounds of a turn must come from one start.
    fn remove_rounds(&mut self, batch: &Batch, turn: Turn<'_>) {
        for nth in 0..batch.scenarios.len() {
            let cell = self.cell(batch, nth, turn);
            cell.rounds.retain(|round| round.number != turn.round);
        }
    }

    fn measure_scenarios(
        &mut self,
        batch: &Batch,
        turn: Turn<'_>,
        wanted: &[usize],
        measurer: &mut dyn Measure,
        outcome: &mut CollectOutcome,
    ) -> io::Result<()> {
        for (position, &nth) in wanted.iter().enumerate() {
            let rest = wanted.len() - position - 1;
            self.progress.step(self.step(batch, nth, turn));
            let failed = match measurer.measure(turn, nth) {
                Ok(round) => {
                    let failed = round.failed() > 0;
                    self.keep(batch, nth, turn, round);
                    outcome.rounds += 1;
                    self.save(measurer)?;
                    if !(failed && batch.order == Order::Rising) {
                        continue;
                    }
                    true
                }
                Err(RoundError::Interrupted) => {
                    outcome.interrupted = true;
                    return Ok(());
                }
                Err(RoundError::Unable(why)) => {
                    self.progress.skip(1);
                    self.fail(batch, nth, turn, &why);
                    outcome.count_failed_attempts(
                        &batch.scenarios[nth],
                        turn.contender,
                        FAILED_ATTEMPTS_MAX,
                    );
                    continue;
                }
                Err(RoundError::Unsound { why, round }) => {
                    // A scenario is reported once: the counts of later rounds would differ in every
                    // message.
                    if self.cell(batch, nth, turn).failure.is_none() {
                        let scenario = &batch.scenarios[nth].id;
                        self.report_failure(
                            format!("{}, {scenario}: {why}", turn.contender),
                            outcome,
                        );
                    }
                    self.fail(batch, nth, turn, &why);
                    self.keep(batch, nth, turn, *round);
                    outcome.rounds += 1;
                    self.save(measurer)?;
                    continue;
                }
                Err(RoundError::Failed { why, round }) => {
                    let scenario = &batch.scenarios[nth].id;
                    self.report_failure(format!("{}, {scenario}: {why}", turn.contender), outcome);
                    match round {
                        Some(round) => {
                            self.keep(batch, nth, turn, *round);
                            outcome.rounds += 1;
                        }
                        None => self.progress.skip(1),
                    }
                    self.fail(batch, nth, turn, &why);
                    outcome.count_failed_attempts(&batch.scenarios[nth], turn.contender, 1);
                    self.save(measurer)?;
                    true
                }
            };
            if failed {
                // After an exit or a hang the remaining scenarios of the turn are skipped. In the next
                // round the contender starts anew, with the skipped scenarios first.
                self.progress.skip(rest);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Shows a failure to the user immediately, each text once.
    fn report_failure(&mut self, message: String, outcome: &mut CollectOutcome) {
        if !outcome.failures.contains(&message) {
            self.progress.warn(&format!("failed: {message}"));
            outcome.failures.push(message);
        }
    }

    /// Records why a cell is unsound; the first reason is kept.
    fn fail(&mut self, batch: &Batch, nth: usize, turn: Turn<'_>, why: &str) {
        let failure = &mut self.cell(batch, nth, turn).failure;
        failure.get_or_insert_with(|| why.to_owned());
    }

    fn keep(&mut self, batch: &Batch, nth: usize, turn: Turn<'_>, mut round: Round) {
        round.number = turn.round;
        self.progress.measured(self.step(batch, nth, turn), &round);
        self.cell(batch, nth, turn).rounds.push(round);
    }

    fn cell(&mut self, batch: &Batch, nth: usize, turn: Turn<'_>) -> &mut Cell {
        let scenario = &batch.scenarios[nth].id;
        self.run
            .cells
            .iter_mut()
            .find(|cell| cell.scenario == *scenario && cell.contender == turn.contender)
            .expect("lay_out made a cell for each scenario and contender of the batch")
    }

    fn step<'s>(&self, batch: &'s Batch, nth: usize, turn: Turn<'s>) -> Step<'s> {
        Step {
            scenario: &batch.scenarios[nth].id,
            contender: turn.contender,
            round: turn.round,
            rounds: self.rounds,
        }
    }

    fn save(&mut self, measurer: &dyn Measure) -> io::Result<()> {
        measurer.describe(self.run);
        (self.save)(self.run)
    }
}

/// Failed attempts before a contender is dropped from a scenario: one or two failures may be chance.
const FAILED_ATTEMPTS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{FORMAT, Failures, Machine};

    type Answers<'s> = dyn Fn(&Turn<'_>, usize) -> Result<Round, RoundError> + 's;

    /// Measurer for tests: logs every call and takes its results from `script`.
    struct Script<'s> {
        log: Vec<String>,
        script: Box<Answers<'s>>,
        refuses: &'static str,
    }

    impl Measure for Script<'_> {
        fn start(&mut self, turn: Turn<'_>) -> Result<(), RoundError> {
            self.log.push(format!("+{}", turn.contender));
            if turn.contender == self.refuses {
                return Err(RoundError::failed("no such file"));
            }
            Ok(())
        }

        fn measure(&mut self, turn: Turn<'_>, scenario: usize) -> Result<Round, RoundError> {
            self.log
                .push(format!("{}{scenario}.{}", turn.contender, turn.round));
            (self.script)(&turn, scenario)
        }

        fn stop(&mut self, turn: Turn<'_>) {
            self.log.push(format!("-{}", turn.contender));
        }
    }

    fn script<'s>(
        answers: impl Fn(&Turn<'_>, usize) -> Result<Round, RoundError> + 's,
    ) -> Script<'s> {
        Script {
            log: Vec::new(),
            script: Box::new(answers),
            refuses: "",
        }
    }

    fn right() -> Round {
        Round {
            seconds: 1.0,
            requests: 10,
            ..Round::default()
        }
    }

    fn batch(scenarios: usize) -> Batch {
        let scenario = |nth: usize| Scenario {
            id: format!("s{nth}"),
            title: String::new(),
            parameters: BTreeMap::new(),
        };
        Batch {
            scenarios: (0..scenarios).map(scenario).collect(),
            contenders: vec!["a".to_owned(), "b".to_owned()],
            order: Order::Listed,
        }
    }

    fn empty_run() -> Run {
        Run {
            format: FORMAT,
            tool: String::new(),
            suite: String::new(),
            title: String::new(),
            begun: String::new(),
            ended: String::new(),
            complete: false,
            command: String::new(),
            machine: Machine::default(),
            contenders: Vec::new(),
            scenarios: Vec::new(),
            cells: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Collects with two rounds and returns the run, its outcome and the number of saves.
    fn run(
        batches: &[Batch],
        script: &mut Script<'_>,
        stop: &AtomicBool,
    ) -> (Run, CollectOutcome, usize) {
        let (mut run, mut saved) = (empty_run(), 0);
        let outcome = collect(
            batches,
            script,
            RoundCollector {
                run: &mut run,
                rounds: 2,
                stop,
                progress: &mut Progress::silent(),
                save: &mut |_| {
                    saved += 1;
                    Ok(())
                },
            },
        );
        (run, outcome.expect("saving works"), saved)
    }

    #[test]
    fn contenders_alternate() {
        let mut script = script(|_, _| Ok(right()));
        let stop = AtomicBool::new(false);
        let (run, outcome, saved) = run(&[batch(2)], &mut script, &stop);
        assert_eq!(
            script.log.join(" "),
            "+a a0.0 a1.0 -a +b b0.0 b1.0 -b +a a0.1 a1.1 -a +b b0.1 b1.1 -b"
        );
        assert_eq!((outcome.rounds, saved), (8, 8));
        assert_eq!(run.cells.len(), 4);
        let numbers: Vec<u32> = run.cells[3].rounds.iter().map(|r| r.number).collect();
        assert_eq!(numbers, [0, 1]);
    }

    #[test]
    fn every_second_round_of_an_alternating_batch_is_reversed() {
        let mut script = script(|_, _| Ok(right()));
        let alternating = Batch {
            order: Order::Alternating,
            ..batch(2)
        };
        run(&[alternating], &mut script, &AtomicBool::new(false));
        assert_eq!(
            script.log.join(" "),
            "+a a0.0 a1.0 -a +b b0.0 b1.0 -b +a a1.1 a0.1 -a +b b1.1 b0.1 -b"
        );
    }

    #[test]
    fn a_resumed_run_measures_only_missing_rounds() {
        let (stop, mut measured) = (AtomicBool::new(false), 0);
        let mut first = script(|turn, scenario| {
            if (turn.contender, scenario, turn.round) == ("b", 1, 0) {
                return Err(RoundError::Interrupted);
            }
            Ok(right())
        });
        let (mut run, outcome, _) = run(&[batch(2)], &mut first, &stop);
        assert!(outcome.interrupted);
        let mut second = script(|_, _| Ok(right()));
        let collector = RoundCollector {
            run: &mut run,
            rounds: 2,
            stop: &stop,
            progress: &mut Progress::silent(),
            save: &mut |_| {
                measured += 1;
                Ok(())
            },
        };
        let outcome = collect(&[batch(2)], &mut second, collector).expect("saving works");
        assert!(!outcome.interrupted);
        assert_eq!(
            second.log.join(" "),
            "+b b0.0 b1.0 -b +a a0.1 a1.1 -a +b b0.1 b1.1 -b"
        );
        assert_eq!(measured, 6);
        assert_eq!(run.cells.len(), 4);
        for cell in &run.cells {
            let mut numbers: Vec<u32> = cell.rounds.iter().map(|round| round.number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1]);
        }
    }

    #[test]
    fn a_contender_that_does_not_start_is_dropped_at_once() {
        let mut script = script(|_, _| Ok(right()));
        script.refuses = "a";
        let stop = AtomicBool::new(false);
        let (run, outcome, _) = run(&[batch(1)], &mut script, &stop);
        assert_eq!(script.log.join(" "), "+a +b b0.0 -b +b b0.1 -b");
        assert_eq!(run.cells[0].failure.as_deref(), Some("no such file"));
        assert_eq!(outcome.failures, ["a: no such file"]);
    }

    #[test]
    fn a_contender_that_dies_keeps_its_earlier_rounds() {
        let mut script = script(|turn, scenario| {
            if (turn.contender, scenario, turn.round) == ("a", 0, 1) {
                return Err(RoundError::failed("the server ended"));
            }
            Ok(right())
        });
        let stop = AtomicBool::new(false);
        let (run, outcome, _) = run(&[batch(2)], &mut script, &stop);
        // Contender a was stopped and its second scenario skipped; contender b goes on.
        assert!(script.log.join(" ").ends_with("+a a0.1 -a +b b0.1 b1.1 -b"));
        assert_eq!(run.cells[0].rounds.len(), 1);
        assert_eq!(run.cells[0].failure.as_deref(), Some("the server ended"));
        assert_eq!(outcome.failures, ["a, s0: the server ended"]);
    }

    #[test]
    fn wrong_responses_are_kept_by_kind() {
        let mut script = script(|_, _| {
            let round = Round {
                failures: BTreeMap::from([(Failures::STATUS.to_owned(), 5)]),
                ..Round::default()
            };
            Err(RoundError::Failed {
                why: "wrong responses".to_owned(),
                round: Some(Box::new(round)),
            })
        });
        let stop = AtomicBool::new(false);
        let (run, outcome, _) = run(&[batch(1)], &mut script, &stop);
        assert_eq!(run.cells[0].rounds[0].failures[Failures::STATUS], 5);
        assert_eq!(outcome.failures.len(), 2);
        // Contender a starts anew in the next round.
        assert_eq!(
            script.log.join(" "),
            "+a a0.0 -a +b b0.0 -b +a a0.1 -a +b b0.1 -b"
        );
    }

    #[test]
    fn a_partial_failure_is_reported_once_and_the_turn_goes_on() {
        let mut script = script(|turn, scenario| {
            let round = Box::new(right());
            match (turn.contender, scenario) {
                ("a", 0) => Err(RoundError::Unsound {
                    why: format!("the server failed in part, {}", turn.round),
                    round,
                }),
                _ => Ok(*round),
            }
        });
        let stop = AtomicBool::new(false);
        let (run, outcome, _) = run(&[batch(2)], &mut script, &stop);
        assert_eq!(
            script.log.join(" "),
            "+a a0.0 a1.0 -a +b b0.0 b1.0 -b +a a0.1 a1.1 -a +b b0.1 b1.1 -b"
        );
        assert_eq!(run.cells[0].rounds.len(), 2);
        assert_eq!(
            run.cells[0].failure.as_deref(),
            Some("the server failed in part, 0")
        );
        assert_eq!(outcome.failures, ["a, s0: the server failed in part, 0"]);
    }

    #[test]
    fn a_contender_that_dies_is_restarted_until_three_failures() {
        let mut script = script(|turn, scenario| match (turn.contender, scenario) {
            ("a", 1) => Err(RoundError::failed("the server ended")),
            _ => Ok(right()),
        });
        let (mut run, stop) = (empty_run(), AtomicBool::new(false));
        let collector = RoundCollector {
            run: &mut run,
            rounds: 4,
            stop: &stop,
            progress: &mut Progress::silent(),
            save: &mut |_| Ok(()),
        };
        let outcome = collect(&[batch(2)], &mut script, collector).expect("saving works");
        let of_a: Vec<&str> = script
            .log
            .iter()
            .filter(|step| step.starts_with('a'))
            .map(String::as_str)
            .collect();
        assert_eq!(
            of_a,
            ["a0.0", "a1.0", "a0.1", "a1.1", "a0.2", "a1.2", "a0.3"]
        );
        assert_eq!(run.cells[0].rounds.len(), 4);
        assert_eq!(outcome.failures, ["a, s1: the server ended"]);
    }

    #[test]
    fn a_contender_that_dies_in_one_scenario_is_measured_in_the_remaining_scenarios() {
        let mut script = script(|turn, scenario| match (turn.contender, scenario) {
            ("a", 0) => Err(RoundError::failed("the server ended")),
            _ => Ok(right()),
        });
        let (mut run, stop) = (empty_run(), AtomicBool::new(false));
        let collector = RoundCollector {
            run: &mut run,
            rounds: 3,
            stop: &stop,
            progress: &mut Progress::silent(),
            save: &mut |_| Ok(()),
        };
        collect(&[batch(3)], &mut script, collector).expect("saving works");
        let of_a: Vec<&str> = script
            .log
            .iter()
            .filter(|step| step.starts_with('a'))
            .map(String::as_str)
            .collect();
        assert_eq!(
            of_a,
            ["a0.0", "a1.1", "a2.1", "a0.1", "a1.2", "a2.2", "a0.2"]
        );
        let of_a = run.cells.iter().filter(|cell| cell.contender == "a");
        let of_a: Vec<_> = of_a
            .map(|cell| (cell.rounds.len(), cell.failure.as_deref()))
            .collect();
        assert_eq!(of_a, [(0, Some("the server ended")), (2, None), (2, None)]);
    }

    #[test]
    fn a_scenario_without_rounds_has_a_reason() {
        let mut script = script(|turn, _| match turn.contender {
            "a" => Err(RoundError::failed("the server ended")),
            _ => Ok(right()),
        });
        let stop = AtomicBool::new(false);
        let (run, _, _) = run(&[batch(3)], &mut script, &stop);
        let of_a = run.cells.iter().filter(|cell| cell.contender == "a");
        let reasons: Vec<_> = of_a.map(|cell| cell.failure.as_deref()).collect();
        assert_eq!(
            reasons,
            [
                Some("the server ended"),
                Some("the server ended"),
                Some("not measured, after a failure in s0: the server ended")
            ]
        );
        assert_eq!(script.log.iter().filter(|step| *step == "a2.1").count(), 0);
    }

    #[test]
    fn an_interruption_stops_the_server_and_keeps_the_rest() {
        let stop = AtomicBool::new(false);
        let mut script = script(|turn, _| {
            if turn.contender == "b" {
                stop.store(true, Ordering::Relaxed);
                return Err(RoundError::Interrupted);
            }
            Ok(right())
        });
        let (run, outcome, _) = run(&[batch(1)], &mut script, &stop);
        assert!(outcome.interrupted);
        assert_eq!(script.log.join(" "), "+a a0.0 -a +b b0.0 -b");
        assert_eq!(run.cells[0].rounds.len(), 1);
        assert!(run.cells[1].rounds.is_empty());
    }

    #[test]
    fn a_rising_load_ends_at_the_first_failures() {
        let mut script = script(|_, scenario| {
            let mut round = right();
            if scenario == 1 {
                round.failures.insert(Failures::TIMEOUT.to_owned(), 1);
            }
            Ok(round)
        });
        let rising = Batch {
            order: Order::Rising,
            ..batch(3)
        };
        let stop = AtomicBool::new(false);
        let (run, outcome, _) = run(&[rising], &mut script, &stop);
        assert!(outcome.failures.is_empty());
        let rounds: Vec<usize> = run.cells.iter().map(|cell| cell.rounds.len()).collect();
        assert_eq!(rounds, [2, 2, 2, 2, 0, 0]);
    }
}
