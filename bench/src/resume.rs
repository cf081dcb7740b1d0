//! Resuming an interrupted run: rounds already in the result file are not measured again.
//!
//! Rounds of two sessions are comparable only if nothing else changed, so the command, the machine and the
//! contenders must be equal.

use std::path::{Path, PathBuf};

use crate::result::{ContenderFacts, Machine, Run};
use crate::result_file::ReadError;
use crate::soundness::is_sound;

/// Reason why a run cannot be resumed; every message names the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    /// The result file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The result file belongs to a different run.
    #[error("{}: the run cannot be resumed: {what}", path.display())]
    Differs {
        /// Path of the result file.
        path: PathBuf,
        /// The difference, in words.
        what: String,
    },
}

/// Copies the rounds of a result file into a new run. Without a file, the run stays as passed in. Cells
/// with a failure are measured again: their rounds are dropped together with the failure, since the rounds
/// alone would look sound.
pub(crate) fn take_up(run: &mut Run, path: &Path) -> Result<(), ResumeError> {
    if !path.exists() {
        return Ok(());
    }
    let old = Run::read(path)?;
    if let Some(what) = difference(&old, run) {
        let path = path.to_owned();
        return Err(ResumeError::Differs { path, what });
    }
    run.cells = old.cells.clone();
    run.cells
        .retain(|cell| !cell.rounds.is_empty() && is_sound(&old, cell));
    for facts in &mut run.contenders {
        let known = old.contenders.iter().find(|known| known.name == facts.name);
        if let Some(known) = known.filter(|known| known.missing.is_none()) {
            *facts = known.clone();
        }
    }
    if !old.complete {
        let note = format!("Resumed: some rounds were measured before {}.", run.begun);
        run.notes.push(note);
    }
    run.begun = old.begun;
    Ok(())
}

fn difference(old: &Run, new: &Run) -> Option<String> {
    if asked_for(old) != asked_for(new) {
        return Some(format!("its command was `{}`", old.command));
    }
    let machine = |machine: &Machine| (machine.cpu.clone(), machine.cpus, machine.kernel.clone());
    if machine(&old.machine) != machine(&new.machine) {
        return Some("the machine or kernel differs".to_owned());
    }
    let changed = |facts: &&ContenderFacts| {
        let mut before = old.contenders.iter();
        let before = before.find(|before| before.name == facts.name && before.missing.is_none());
        before.is_some_and(|before| {
            (&before.version, before.program_bytes) != (&facts.version, facts.program_bytes)
        })
    };
    let changed = new.contenders.iter().find(changed)?;
    Some(format!("the version of {} differs", changed.title))
}

/// Returns the words of the command without `--resume`.
fn asked_for(run: &Run) -> Vec<&str> {
    let words = run.command.split_whitespace();
    words.filter(|word| *word != "--resume").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Cell, FORMAT, Failures, Parameter, Round, Scenario};

    fn run(command: &str) -> Run {
        Run {
            format: FORMAT,
            tool: String::new(),
            suite: "hello".to_owned(),
            title: String::new(),
            begun: "2026-11-20T10:00:00Z".to_owned(),
            ended: String::new(),
            complete: false,
            command: command.to_owned(),
            machine: Machine::default(),
            contenders: vec![ContenderFacts {
                name: "nginx".to_owned(),
                title: "nginx".to_owned(),
                version: "1.22.1".to_owned(),
                ..ContenderFacts::default()
            }],
            scenarios: Vec::new(),
            cells: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn sound_rounds_are_kept_and_failed_cells_are_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hello.json");
        let mut begun = run("anthill bench run hello");
        take_up(&mut begun, &path).expect("nothing is there yet");
        assert!(begun.cells.is_empty() && begun.notes.is_empty());
        let mut old = run("anthill bench run hello");
        old.scenarios = vec![Scenario {
            id: "hello".to_owned(),
            title: String::new(),
            parameters: [("connections".to_owned(), Parameter::Count(1_500))].into(),
        }];
        let cell = |contender: &str, rounds: Vec<Round>, failure: Option<&str>| Cell {
            scenario: "hello".to_owned(),
            contender: contender.to_owned(),
            rounds,
            failure: failure.map(str::to_owned),
        };
        let right = Round {
            requests: 100,
            ..Round::default()
        };
        // Refused connections are excused under 1,500 connections, but not in a cell without any correct
        // response.
        let refused = Round {
            failures: [(Failures::CONNECT.to_owned(), 3_000)].into(),
            ..Round::default()
        };
        old.cells = vec![
            cell("nginx", vec![right.clone()], None),
            cell("apache", vec![right], Some("the server ended")),
            cell("caddy", Vec::new(), Some("the server ended")),
            cell("busybox", vec![refused.clone()], Some("nothing was right")),
            cell("h2o", vec![refused], None),
        ];
        old.contenders[0].commands = vec!["nginx -c nginx.conf".to_owned()];
        old.write(&path).expect("a file");
        let mut new = run("anthill bench run --resume hello");
        new.begun = "2026-11-21T10:00:00Z".to_owned();
        take_up(&mut new, &path).expect("the same run");
        assert_eq!(new.cells, old.cells[..1]);
        assert_eq!(new.begun, old.begun);
        assert_eq!(new.contenders[0].commands, old.contenders[0].commands);
        assert!(new.notes[0].contains("before 2026-11-21"));
    }

    #[test]
    fn a_different_run_is_rejected_with_the_difference() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hello.json");
        run("anthill bench run hello --rounds 3")
            .write(&path)
            .expect("a file");
        let refused = |mut new: Run| match take_up(&mut new, &path) {
            Err(error) => error.to_string(),
            Ok(()) => String::new(),
        };
        let other = refused(run("anthill bench run hello --rounds 5"));
        assert!(
            other.contains("hello.json: the run cannot be resumed: its command was"),
            "{other}"
        );
        let mut newer = run("anthill bench run hello --rounds 3");
        newer.contenders[0].version = "1.24.0".to_owned();
        assert!(refused(newer).contains("the version of nginx differs"));
        let mut moved = run("anthill bench run hello --rounds 3");
        moved.machine.cpus = 64;
        assert!(refused(moved).contains("the machine or kernel differs"));
    }
}
