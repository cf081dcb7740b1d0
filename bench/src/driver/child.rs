//! A load generator that is a program: run on its processors, ended when the user says so or when it
//! takes too long, and its CPU time read before it is gone.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::process::spawn_on;

/// What is to be run.
pub struct Child<'c> {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Where its output goes.
    pub folder: &'c Path,
    /// Its processors; none for any.
    pub cpus: &'c [usize],
    /// Longer than that, and it is ended.
    pub patience_seconds: f64,
}

/// What it did.
pub struct Finished {
    /// Standard output, then standard error.
    pub output: String,
    /// CPU time in user mode, of all its threads.
    pub user_seconds: f64,
    /// CPU time in the kernel.
    pub system_seconds: f64,
}

/// Why it didn't finish.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The system refused something.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("it had not ended after {0:.0} s: the server hangs, or it does")]
    Hung(f64),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
}

impl Child<'_> {
    /// Runs it to its end.
    pub fn run(&self, stop: &AtomicBool) -> Result<Finished, ChildError> {
        let (out, err) = (
            self.folder.join("driver.out"),
            self.folder.join("driver.err"),
        );
        let mut command = Command::new(self.words.first().map_or("", String::as_str));
        command
            .args(self.words.get(1..).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            // A Ctrl-C at the terminal is for us: we end it.
            .process_group(0);
        let mut child = spawn_on(self.cpus, command)?;
        let waited = self.wait(child.id(), stop);
        if waited.is_err() {
            // It may have ended by itself in between.
            let _ = child.kill();
        }
        // Its times are gone once it is waited for.
        let times = cpu_seconds(child.id());
        child.wait()?;
        waited?;
        let (user_seconds, system_seconds) = times.unwrap_or_default();
        let mut output = String::from_utf8_lossy(&fs::read(&out)?).into_owned();
        output.push_str(&String::from_utf8_lossy(&fs::read(&err)?));
        Ok(Finished {
            output,
            user_seconds,
            system_seconds,
        })
    }

    /// Until it has ended; it isn't reaped.
    fn wait(&self, id: u32, stop: &AtomicBool) -> Result<(), ChildError> {
        let begun = Instant::now();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("no process number"))?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            let ended = waitid(WaitId::Pid(pid), options).map_err(io::Error::from)?;
            if ended.is_some() {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(ChildError::Interrupted);
            }
            if begun.elapsed().as_secs_f64() > self.patience_seconds {
                return Err(ChildError::Hung(self.patience_seconds));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// User and system time of a process that has ended and wasn't waited for.
fn cpu_seconds(id: u32) -> Option<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / ticks);
    Some((seconds()?, seconds()?))
}

/// Often enough to be no part of a round.
const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience_seconds: f64, stop: bool) -> Result<Finished, ChildError> {
        let folder = tempfile::tempdir().expect("a folder");
        let child = Child {
            words: ["sh", "-c", script].map(str::to_owned).to_vec(),
            folder: folder.path(),
            cpus: &[],
            patience_seconds,
        };
        child.run(&AtomicBool::new(stop))
    }

    #[test]
    fn its_words_and_its_times() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo out; echo err >&2";
        let finished = shell(script, 60.0, false).expect("an end");
        assert_eq!(finished.output, "out\nerr\n");
        assert!(finished.user_seconds > 0.0);
    }

    #[test]
    fn it_is_ended() {
        let hung = shell("exec sleep 100", 0.05, false);
        assert!(matches!(hung, Err(ChildError::Hung(_))));
        let stopped = shell("exec sleep 100", 60.0, true);
        assert!(matches!(stopped, Err(ChildError::Interrupted)));
    }
}
