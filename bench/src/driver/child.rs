//! A load generator run as a child process. The process is pinned to its processors, is ended on
//! interruption or after a timeout, and its CPU time is read before the process is reaped.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::process::spawn_on;

/// A child process to run.
pub(crate) struct Child<'c> {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Folder for the output files.
    pub folder: &'c Path,
    /// Processors of the process. Empty for all processors.
    pub cpus: &'c [usize],
    /// Time limit in seconds, after which the process is killed.
    pub patience_seconds: f64,
}

/// Result of a finished process.
pub(crate) struct Finished {
    /// Standard output, followed by standard error.
    pub output: String,
    /// CPU time of all threads in user mode, in seconds.
    pub user_seconds: f64,
    /// CPU time of all threads in the kernel, in seconds.
    pub system_seconds: f64,
}

/// Reason why a process did not finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// An I/O error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The process exceeded the time limit.
    #[error("not finished after {0:.0} s: the server or the load generator hangs")]
    Hung(f64),
    /// The operator interrupted the run.
    #[error("interrupted")]
    Interrupted,
}

impl Child<'_> {
    /// Runs the process to its end.
    pub(crate) fn run(&self, stop: &AtomicBool) -> Result<Finished, ChildError> {
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
            // Ctrl-C at the terminal reaches only the kit, and the kit ends the process.
            .process_group(0);
        let mut child = spawn_on(self.cpus, command)?;
        let waited = self.wait(child.id(), stop);
        if waited.is_err() {
            // Fails if the process has ended in the meantime.
            let _ = child.kill();
        }
        // The CPU times are lost once the process is reaped.
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

    /// Waits for the end of the process without reaping the process.
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

/// Returns the user and system CPU time of an ended, unreaped process.
fn cpu_seconds(id: u32) -> Option<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program name is enclosed in parentheses and may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / ticks);
    Some((seconds()?, seconds()?))
}

/// Polling interval, short compared with a round.
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
    fn output_and_cpu_times_are_returned() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo out; echo err >&2";
        let finished = shell(script, 60.0, false).expect("an end");
        assert_eq!(finished.output, "out\nerr\n");
        assert!(finished.user_seconds > 0.0);
    }

    #[test]
    fn a_hung_or_interrupted_process_is_killed() {
        let hung = shell("exec sleep 100", 0.05, false);
        assert!(matches!(hung, Err(ChildError::Hung(_))));
        let stopped = shell("exec sleep 100", 60.0, true);
        assert!(matches!(stopped, Err(ChildError::Interrupted)));
    }
}
