//! Control group with a memory limit, for a server as on a small machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::eventually;

/// Number of groups made by the tests of this process.
static GROUPS: AtomicU32 = AtomicU32::new(0);

/// Control group with a limit of its memory, sockets included. Drop removes the group, once its processes have ended.
pub struct MemoryGroup {
    folder: PathBuf,
    /// True for the first version of control groups, where sockets have a limit and a counter of their own.
    is_first_version: bool,
}

impl MemoryGroup {
    /// Makes a group of processes that may use `bytes` of memory together.
    pub fn new(bytes: u64) -> MemoryGroup {
        let (first, second) = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup");
        let is_first_version = Path::new(first).is_dir();
        let root = Path::new(if is_first_version { first } else { second });
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let folder = root.join(format!("anthill-test-{}-{number}", std::process::id()));
        let limits = if is_first_version {
            &["memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"][..]
        } else {
            &["memory.max"]
        };
        let made = fs::create_dir(&folder).and_then(|()| {
            let set = |name| fs::write(folder.join(name), bytes.to_string());
            limits.iter().try_for_each(set)
        });
        let group = MemoryGroup {
            folder,
            is_first_version,
        };
        if let Err(error) = made {
            let folder = group.folder.display();
            panic!("{folder}: {error}: a memory limit needs root and writable control groups");
        }
        group
    }

    /// Returns a command that runs `program` inside the group.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-euc", "echo $$ > \"$0\"; exec \"$@\""]);
        command.arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }

    /// Returns the largest number of bytes that the group has used, sockets included.
    pub fn peak(&self) -> u64 {
        if self.is_first_version {
            // The two peaks may be of different times, so the sum is never too small.
            self.number("memory.max_usage_in_bytes")
                + self.number("memory.kmem.tcp.max_usage_in_bytes")
        } else {
            self.number("memory.peak")
        }
    }

    fn number(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(name)).expect(name);
        text.trim().parse().expect("a number")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let removed = || fs::remove_dir(&self.folder).ok();
        if std::thread::panicking() {
            let _ = removed();
        } else {
            eventually("the removal of the group", removed)
        }
    }
}
