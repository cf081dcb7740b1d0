//! Process table of the kernel, read from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Sub;

/// Snapshot of all processes.
#[derive(Debug, Default)]
pub(super) struct Table(BTreeMap<u32, Process>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Process {
    state: u8,
    parent: u32,
    process_group: u32,
    /// Start time in clock ticks since boot, to distinguish processes with a reused id.
    born: u64,
    /// CPU time, including reaped children.
    cpu: CpuTime,
}

/// CPU time in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTime {
    /// CPU time in user mode.
    pub user_seconds: f64,
    /// CPU time in the kernel.
    pub system_seconds: f64,
}

impl Table {
    pub(super) fn read() -> Table {
        let mut table = Table::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok());
            if let Some((pid, process)) = pid.and_then(|pid| Some((pid, Process::read(pid)?))) {
                table.0.insert(pid, process);
            }
        }
        table
    }

    /// Returns the CPU time of one process and its reaped children, or zero if the process has ended.
    pub(super) fn read_one(pid: u32) -> CpuTime {
        Process::read(pid).map_or(CpuTime::default(), |process| process.cpu)
    }

    /// Returns the living processes of a tree: the roots, the members of the roots' process groups, all
    /// processes in `seen`, and the descendants of all of these processes. Members are added to `seen`,
    /// because a process can't be assigned to a tree after its parent has ended.
    pub(super) fn descendants(
        &self,
        roots: impl Iterator<Item = u32>,
        seen: &mut BTreeMap<u32, u64>,
    ) -> Vec<u32> {
        let roots: BTreeSet<u32> = roots.collect();
        seen.retain(|pid, born| self.0.get(pid).is_some_and(|process| process.born == *born));
        loop {
            let before = seen.len();
            for (pid, process) in &self.0 {
                let belongs = roots.contains(pid)
                    || roots.contains(&process.process_group)
                    || seen.contains_key(&process.parent);
                if belongs {
                    seen.insert(*pid, process.born);
                }
            }
            if seen.len() == before {
                return self.living(seen.keys().copied().collect());
            }
        }
    }

    /// Returns the processes of the list that have not ended.
    pub(super) fn living(&self, mut pids: Vec<u32>) -> Vec<u32> {
        let lives = |pid: &u32| self.0.get(pid).is_some_and(|process| !process.is_zombie());
        pids.retain(lives);
        pids
    }

    /// Returns the total CPU time of the given processes.
    pub(super) fn cpu(&self, pids: &[u32]) -> CpuTime {
        let times = pids.iter().filter_map(|pid| Some(self.0.get(pid)?.cpu));
        times.fold(CpuTime::default(), CpuTime::plus)
    }
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        Process::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a stat line. A process name may contain any character, so fields are counted from the last
    /// parenthesis (proc(5)).
    fn parse(stat: &[u8]) -> Option<Process> {
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> = std::str::from_utf8(&stat[end + 1..])
            .ok()?
            .split_whitespace()
            .collect();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |field: usize| Some(fields.get(field)?.parse::<f64>().ok()? / ticks);
        Some(Process {
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            process_group: fields.get(2)?.parse().ok()?,
            born: fields.get(19)?.parse().ok()?,
            cpu: CpuTime {
                user_seconds: seconds(11)? + seconds(13)?,
                system_seconds: seconds(12)? + seconds(14)?,
            },
        })
    }

    fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

impl CpuTime {
    /// Returns the sum of user and system time in seconds.
    pub fn seconds(self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    pub(super) fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user_seconds: self.user_seconds + other.user_seconds,
            system_seconds: self.system_seconds + other.system_seconds,
        }
    }
}

impl Sub for CpuTime {
    type Output = CpuTime;

    fn sub(self, before: CpuTime) -> CpuTime {
        CpuTime {
            user_seconds: (self.user_seconds - before.user_seconds).max(0.0),
            system_seconds: (self.system_seconds - before.system_seconds).max(0.0),
        }
    }
}

/// Returns the proportional set size of a process in bytes, or `None` if the process can't be read.
pub(super) fn pss(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()?
            * 1024,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: u32, process_group: u32, state: u8) -> Process {
        Process {
            state,
            parent,
            process_group,
            born: 5,
            cpu: CpuTime {
                user_seconds: 1.0,
                system_seconds: 0.5,
            },
        }
    }

    #[test]
    fn a_stat_line_is_parsed_with_any_process_name() {
        let stat = b"42 (a) S 1 (x) S 7 42 42 0 -1 4194560 0 0 0 0 100 50 20 10 20 0 1 0 99";
        let read = Process::parse(stat).expect("a process");
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!((read.parent, read.process_group, read.state), (7, 42, b'S'));
        assert!((read.cpu.user_seconds - 120.0 / ticks).abs() < 1e-9);
        assert!((read.cpu.system_seconds - 60.0 / ticks).abs() < 1e-9);
        assert_eq!(Process::parse(b"42 (a"), None);
    }

    #[test]
    fn a_tree_contains_its_roots_descendants_and_process_groups() {
        let table = Table(BTreeMap::from([
            (10, process(1, 10, b'S')),
            (11, process(10, 10, b'S')),
            // A process in a process group of its own, and its child.
            (12, process(11, 12, b'R')),
            (5, process(12, 12, b'S')),
            // An orphan still in the process group, an ended process, and an unrelated process.
            (20, process(1, 10, b'S')),
            (21, process(10, 10, b'Z')),
            (30, process(1, 30, b'S')),
        ]));
        let mut seen = BTreeMap::new();
        let tree = table.descendants([10].into_iter(), &mut seen);
        assert_eq!(tree, [5, 10, 11, 12, 20]);
        assert!((table.cpu(&tree).seconds() - 7.5).abs() < 1e-9);
        assert!(
            table
                .descendants([99].into_iter(), &mut BTreeMap::new())
                .is_empty()
        );
    }

    #[test]
    fn seen_members_stay_in_the_tree_unless_their_id_is_reused() {
        let mut table = Table(BTreeMap::from([
            (12, process(1, 12, b'S')),
            (13, process(12, 12, b'S')),
        ]));
        let mut seen = BTreeMap::from([(12, 5)]);
        assert_eq!(table.descendants([10].into_iter(), &mut seen), [12, 13]);
        table.0.remove(&13);
        table.0.insert(
            12,
            Process {
                born: 6,
                ..process(1, 12, b'S')
            },
        );
        assert!(table.descendants([10].into_iter(), &mut seen).is_empty());
    }
}
