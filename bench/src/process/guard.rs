//! Ends a tree if we end first, in whatever way: also when we are killed and can do nothing.
//!
//! It is a shell that reads from a pipe whose other end we alone hold. When that closes without its
//! having been told that all is over, it kills what it was told to watch.

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
    /// A guard over control groups, and over the process groups that [`Guard::watch`] names.
    pub(super) fn new(folders: &[PathBuf]) -> io::Result<Guard> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", WATCH, "guard"])
            .args(folders)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Apart from us: what the terminal sends must not end it.
            .process_group(0)
            .spawn()?;
        let told = shell.stdin.take();
        Ok(Guard { shell, told })
    }

    /// Watches a process group too.
    pub(super) fn watch(&mut self, process_group: u32) -> io::Result<()> {
        match &mut self.told {
            Some(pipe) => writeln!(pipe, "{process_group}"),
            None => Ok(()),
        }
    }

    /// Lets go of the pipe as if we had ended, and waits until the guard has done its work.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        drop(self.told.take());
        let _ = self.shell.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Its tree is gone, so there is nothing to guard; process ids may be given out again.
        let _ = self.shell.kill();
        drop(self.told.take());
        let _ = self.shell.wait();
    }
}

/// Arguments: control groups. Input: process groups, one a line.
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
