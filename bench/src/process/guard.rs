//! A guard process that kills a tree when the kit ends, in particular when the kit itself is killed.
//!
//! The guard is a shell reading from a pipe. Only the kit holds the write end. When the pipe is closed and
//! the guard was not dismissed before, the guard kills all processes under watch.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    told: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard for control groups, and for the process groups added by [`Guard::watch`].
    pub(super) fn new(folders: &[PathBuf]) -> io::Result<Guard> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", WATCH, "guard"])
            .args(folders)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In a process group of its own, so that signals of the terminal don't end the guard.
            .process_group(0)
            .spawn()?;
        let told = shell.stdin.take();
        Ok(Guard { shell, told })
    }

    /// Adds a process group.
    pub(super) fn watch(&mut self, process_group: u32) -> io::Result<()> {
        match &mut self.told {
            Some(pipe) => writeln!(pipe, "{process_group}"),
            None => Ok(()),
        }
    }

    /// Closes the pipe, as the end of the kit does, and waits until the guard has finished.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        drop(self.told.take());
        let _ = self.shell.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The tree has ended, and the guard must not kill reused process ids.
        let _ = self.shell.kill();
        drop(self.told.take());
        let _ = self.shell.wait();
    }
}

/// Arguments: control groups. Input: process groups, one per line.
const WATCH: &str = r#"
groups=
while read -r group; do groups="$groups $group"; done
for folder; do
    [ ! -e "$folder/cgroup.kill" ] || echo 1 >"$folder/cgroup.kill"
    while read -r pid; do kill -KILL "$pid"; done <"$folder/cgroup.procs"
done
for group in $groups; do kill -KILL "-$group"; done
for folder; do
    tries=0
    until rmdir "$folder" || [ $tries -gt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
done
"#;
