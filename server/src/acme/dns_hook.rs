//! DNS hook: the operator's program that publishes TXT records for dns-01. The hook runs as `present NAME
//! VALUE`, and afterwards as `cleanup NAME VALUE`. Each run has a deadline, and the last line of standard
//! error appears in error messages.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::acme::error::{AcmeError, clean};
use crate::acme::limits::ACME_HOOK_OUTPUT_BYTES_MAX;
use crate::acme::renewer_state::PauseFn;

/// Program and deadline of the hook.
pub(super) struct DnsHook<'h> {
    pub(super) program: &'h Path,
    pub(super) seconds: u64,
    pub(super) pause: &'h PauseFn<'h>,
}

/// Published TXT record. [`DnsHook::cleanup`] removes the record.
pub(super) struct TxtRecord {
    name: String,
    value: String,
}

impl DnsHook<'_> {
    /// Publishes `value` at `name`.
    pub(super) fn present(&self, name: &str, value: &str) -> Result<TxtRecord, AcmeError> {
        let record = TxtRecord {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        match self.run("present", &record, self.pause) {
            Ok(()) => Ok(record),
            Err(failure) => {
                // A failed hook may have published the record, so the cleanup runs all the same.
                self.cleanup(&record);
                Err(failure)
            }
        }
    }

    /// Removes the record. The cleanup also runs after the order was abandoned, and a failure is only
    /// logged.
    pub(super) fn cleanup(&self, record: &TxtRecord) {
        let pause = |pause| {
            thread::sleep(pause);
            Ok(())
        };
        if let Err(failure) = self.run("cleanup", record, &pause) {
            log::warn!("acme: {failure}");
        }
    }

    fn run(&self, action: &str, record: &TxtRecord, pause: &PauseFn<'_>) -> Result<(), AcmeError> {
        let shown = format!("hook {action} {}", record.name);
        let failed = |what: String| AcmeError::new(format!("{shown}: {what}"));
        let mut child = Command::new(self.program)
            .args([action, &record.name, &record.value])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A process group of its own, so that all descendants can be killed.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", self.program.display())))?;
        let output = HookOutput::capture(&mut child);
        let status = self.wait(&mut child, pause);
        if !matches!(status, Ok(Some(_))) {
            kill(&mut child);
        }
        match status? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(format!(
                "{}{}",
                exit_text(status),
                output.last_line()
            ))),
            None => {
                let seconds = self.seconds;
                Err(failed(format!("no exit within {seconds} s, killed")))
            }
        }
    }

    /// Waits for the exit status; None if the deadline passes.
    fn wait(
        &self,
        child: &mut Child,
        pause: &PauseFn<'_>,
    ) -> Result<Option<ExitStatus>, AcmeError> {
        let until = Instant::now() + Duration::from_secs(self.seconds);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(Some(status)),
                Ok(None) if Instant::now() >= until => return Ok(None),
                Ok(None) => pause(POLL_INTERVAL)?,
                Err(error) => return Err(AcmeError::new(format!("waiting for the hook: {error}"))),
            }
        }
    }
}

/// Interval of polls for the exit status. The standard library has no wait with a deadline.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn exit_text(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => "killed by a signal".to_owned(),
    }
}

/// Kills the process group of the hook.
fn kill(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL); // the group may be gone
    }
    let _ = child.wait();
}

/// Last bytes of the hook's standard error. A thread reads the pipe to the end, so that the hook never
/// blocks on a full pipe.
struct HookOutput(Arc<Mutex<Vec<u8>>>);

impl HookOutput {
    fn capture(child: &mut Child) -> HookOutput {
        let output = HookOutput(Arc::default());
        let Some(mut source) = child.stderr.take() else {
            return output;
        };
        let into = Arc::clone(&output.0);
        // The thread is not joined: a background process of the hook may keep standard error open forever.
        let reader = thread::Builder::new().name("anthill-hook".into());
        let reading = reader.spawn(move || {
            let mut piece = [0; 1_024];
            while let Ok(1..) = source.read(&mut piece).inspect(|read| {
                let mut all = into.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend_from_slice(&piece[..*read]);
                let excess = all.len().saturating_sub(ACME_HOOK_OUTPUT_BYTES_MAX);
                all.drain(..excess);
            }) {}
        });
        if let Err(error) = reading {
            log::warn!("acme: cannot read the hook's standard error: {error}");
        }
        output
    }

    /// Returns `: ` and the last line, or an empty text.
    fn last_line(&self) -> String {
        // The reading thread may lag behind the exit of the process.
        thread::sleep(POLL_INTERVAL);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&all);
        let line = text.lines().rfind(|line| !line.trim().is_empty());
        line.map_or_else(String::new, |line| format!(": {}", clean(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn hook(script: &str, seconds: u64) -> (tempfile::TempDir, Result<TxtRecord, AcmeError>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hook");
        let script = format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display());
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let hook = DnsHook {
            program: &file,
            seconds,
            pause: &|pause| {
                thread::sleep(pause);
                Ok(())
            },
        };
        // A program just written may still be open in a child process of another test.
        let mut presented = hook.present("_acme-challenge.a.test", "value");
        for _ in 0..50 {
            match &presented {
                Err(failure) if failure.to_string().contains("busy") => {
                    thread::sleep(POLL_INTERVAL);
                    presented = hook.present("_acme-challenge.a.test", "value");
                }
                _ => break,
            }
        }
        if let Ok(record) = &presented {
            hook.cleanup(record);
        }
        (folder, presented)
    }

    #[test]
    fn the_hook_presents_and_cleans_up() {
        let (folder, presented) = hook("echo \"$@\" >> calls; echo noise; echo noise >&2", 60);
        assert!(presented.is_ok());
        assert_eq!(
            fs::read_to_string(folder.path().join("calls")).unwrap(),
            "present _acme-challenge.a.test value\ncleanup _acme-challenge.a.test value\n"
        );
    }

    #[test]
    fn a_failed_hook_is_quoted_and_cleaned_up() {
        let (folder, presented) = hook(
            "echo $1 >> calls; echo a >&2; echo 'no key' >&2; exit 3",
            60,
        );
        assert_eq!(
            presented.err().unwrap().to_string(),
            "hook present _acme-challenge.a.test: exit status 3: no key"
        );
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
        assert_eq!(calls, "present\ncleanup\n");
    }

    #[test]
    fn a_hanging_hook_is_killed_with_its_children() {
        let (folder, presented) = hook(
            "[ $1 = present ] || exit 0\nsleep 1000 &\necho $! > child\nyes >&2 &\nwait",
            3,
        );
        let output = presented.err().unwrap().to_string();
        assert!(output.contains("no exit within 3 s"), "{output}");
        let child = fs::read_to_string(folder.path().join("child")).unwrap();
        let status = || fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        // A killed process exits within a moment; a surviving process would sleep for 1000 s.
        let until = Instant::now() + Duration::from_secs(100);
        while status().is_ok_and(|status| !status.contains(" Z ")) {
            assert!(Instant::now() < until, "the hook's child survives");
            thread::sleep(POLL_INTERVAL);
        }
    }
}
