//! Going on with a run that was interrupted: what its file has isn't measured again.
//!
//! Rounds of two sittings may only stand beside each other if nothing else changed, so the command,
//! the machine and the contenders must be the same.

use std::path::{Path, PathBuf};

use crate::result::{ContenderFacts, Machine, Run};
use crate::result_file::ReadError;

/// Why a run can't be gone on with; every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The file can't be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// It is another run's.
    #[error("{}: {what}, so that its rounds can't stand beside new ones", path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// In what way.
        what: String,
    },
}

/// Takes what a file has into a run that is about to begin. Without a file nothing happens; what
/// failed is tried again.
pub fn take_up(run: &mut Run, path: &Path) -> Result<(), ResumeError> {
    if !path.exists() {
        return Ok(());
    }
    let old = Run::read(path)?;
    if let Some(what) = difference(&old, run) {
        let path = path.to_owned();
        return Err(ResumeError::Differs { path, what });
    }
    run.cells = old.cells;
    run.cells.retain(|cell| !cell.rounds.is_empty());
    for cell in &mut run.cells {
        cell.failure = None;
    }
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
    if old.command != new.command {
        return Some(format!("it was asked for by `{}`", old.command));
    }
    let machine = |machine: &Machine| (machine.cpu.clone(), machine.cpus, machine.kernel.clone());
    if machine(&old.machine) != machine(&new.machine) {
        return Some("it is of another machine or kernel".to_owned());
    }
    let changed = |facts: &&ContenderFacts| {
        let mut before = old.contenders.iter();
        let before = before.find(|before| before.name == facts.name && before.missing.is_none());
        before.is_some_and(|before| {
            (&before.version, before.program_bytes) != (&facts.version, facts.program_bytes)
        })
    };
    let changed = new.contenders.iter().find(changed)?;
    Some(format!("{} was another version", changed.title))
}
