//! Control groups of a process tree: one group to count CPU time and one to limit CPU time.
//!
//! Control groups exist in two versions, on some systems both at the same time. Version 2 counts CPU time
//! in every group, and limits require the `cpu` controller in the parent. Version 1 has a separate
//! hierarchy for each of the two. A group is created below the group of the kit, or below the nearest
//! ancestor that permits the creation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::table::CpuTime;

/// Control groups of a tree, or the reason for having none.
#[derive(Debug, Default)]
pub(super) struct Group {
    folders: Vec<PathBuf>,
    counter: Option<Counter>,
    why_not: String,
}

#[derive(Debug, Clone)]
enum Counter {
    /// `cpu.stat` of version 2.
    Stat(PathBuf),
    /// `cpuacct.usage_user` and `cpuacct.usage_sys` of version 1.
    Usage(PathBuf),
}

/// Method of counting a tree's CPU time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// By a control group: every process that was ever a member, in microseconds.
    Group,
    /// From /proc, in clock ticks. The time of unreaped children is lost.
    Processes {
        /// Reason for the lack of a control group.
        why: String,
    },
}

/// Reason why the CPU time of processes can't be limited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot limit the CPU time of processes here: {0}")]
pub struct ShareError(String);

impl Group {
    /// Creates the groups of a new tree. Fails if `share` is given and no limit can be set. A missing group
    /// for counting is not an error.
    pub(super) fn create(name: &str, share: Option<f64>) -> Result<Group, ShareError> {
        let hierarchies = Hierarchies::of_this_process();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let plain: String = name
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        let name = format!("anthill-bench-{}-{number}-{plain}", std::process::id());
        let mut group = Group::default();
        if let Some(share) = share {
            group.limit(&hierarchies, &name, share)?;
        }
        if let Err(why) = group.count(&hierarchies, &name) {
            group.why_not = why;
        }
        Ok(group)
    }

    fn limit(
        &mut self,
        hierarchies: &Hierarchies,
        name: &str,
        share: f64,
    ) -> Result<(), ShareError> {
        let quota = (share * PERIOD_US as f64).round().max(1000.0) as u64;
        let mut why = Vec::new();
        if let Some(two) = &hierarchies.unified {
            let made = two.make(name, |folder| {
                let parent = folder.parent().unwrap_or(folder);
                let enabled = fs::read_to_string(parent.join("cgroup.subtree_control"))?;
                if !enabled
                    .split_whitespace()
                    .any(|controller| controller == "cpu")
                {
                    fs::write(parent.join("cgroup.subtree_control"), "+cpu")?;
                }
                fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD_US}"))
            });
            match made {
                Ok(folder) => {
                    self.counter = Some(Counter::Stat(folder.clone()));
                    self.folders.push(folder);
                    return Ok(());
                }
                Err(error) => why.push(format!("version 2: {error}")),
            }
        }
        if let Some(one) = &hierarchies.cpu {
            let made = one.make(name, |folder| {
                fs::write(folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                fs::write(folder.join("cpu.cfs_quota_us"), quota.to_string())
            });
            match made {
                Ok(folder) => {
                    self.folders.push(folder);
                    return Ok(());
                }
                Err(error) => why.push(format!("version 1: {error}")),
            }
        }
        if why.is_empty() {
            why.push("no control groups are mounted".into());
        }
        Err(ShareError(why.join("; ")))
    }

    fn count(&mut self, hierarchies: &Hierarchies, name: &str) -> Result<(), String> {
        if self.counter.is_some() {
            return Ok(());
        }
        let mut why = Vec::new();
        if let Some(two) = &hierarchies.unified {
            match two.make(name, |folder| must_exist(&folder.join("cpu.stat"))) {
                Ok(folder) => {
                    self.counter = Some(Counter::Stat(folder.clone()));
                    self.folders.push(folder);
                    return Ok(());
                }
                Err(error) => why.push(format!("version 2: {error}")),
            }
        }
        if let Some(one) = &hierarchies.cpuacct {
            // If cpu and cpuacct share a hierarchy, the limiting group is used for counting too.
            let same = self
                .folders
                .iter()
                .find(|folder| folder.starts_with(&one.mount))
                .cloned();
            let made = match same {
                Some(folder) => Ok(folder),
                None => one.make(name, |folder| {
                    must_exist(&folder.join("cpuacct.usage_user"))
                }),
            };
            match made {
                Ok(folder) => {
                    self.counter = Some(Counter::Usage(folder.clone()));
                    if !self.folders.contains(&folder) {
                        self.folders.push(folder);
                    }
                    return Ok(());
                }
                Err(error) => why.push(format!("version 1: {error}")),
            }
        }
        if why.is_empty() {
            why.push("no control groups are mounted".into());
        }
        Err(why.join("; "))
    }

    /// Returns the folders of the groups. A process enters a group by `cgroup.procs`.
    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    pub(super) fn counting(&self) -> Counting {
        match self.counter {
            Some(_) => Counting::Group,
            None => Counting::Processes {
                why: self.why_not.clone(),
            },
        }
    }

    /// Returns the CPU time of all past and present members.
    pub(super) fn cpu(&self) -> Option<CpuTime> {
        match self.counter.as_ref()? {
            Counter::Stat(folder) => stat_time(&fs::read_to_string(folder.join("cpu.stat")).ok()?),
            Counter::Usage(folder) => {
                let seconds = |file: &str| {
                    let text = fs::read_to_string(folder.join(file)).ok()?;
                    Some(text.trim().parse::<f64>().ok()? / 1e9)
                };
                Some(CpuTime {
                    user_seconds: seconds("cpuacct.usage_user")?,
                    system_seconds: seconds("cpuacct.usage_sys")?,
                })
            }
        }
    }

    /// Returns the processes in the group, or `None` without a group. Nested groups are not read, because
    /// the kit creates none.
    pub(super) fn pids(&self) -> Option<Vec<u32>> {
        let folder = self.folders.first()?;
        let text = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
        Some(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Kills all members at once, on Linux 5.14 and later.
    pub(super) fn kill(&self) {
        for folder in &self.folders {
            let file = folder.join("cgroup.kill");
            if exists(&file) {
                // On failure, the members are killed one by one.
                let _ = fs::write(file, "1");
            }
        }
    }

    /// Removes the groups. The groups must be empty.
    pub(super) fn remove(&self) {
        for folder in &self.folders {
            // A process that has just ended may still count as a member.
            let gone = |()| fs::remove_dir(folder).is_ok() || !exists(folder);
            let pause = || std::thread::sleep(POLL);
            let _ = (0..REMOVE_TRIES).any(|_| {
                gone(()) || {
                    pause();
                    false
                }
            });
        }
    }
}

/// Mount points of the control group hierarchies, and the kit's own group in each.
#[derive(Debug, Default)]
struct Hierarchies {
    unified: Option<Hierarchy>,
    cpu: Option<Hierarchy>,
    cpuacct: Option<Hierarchy>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    own: PathBuf,
}

impl Hierarchies {
    fn of_this_process() -> Hierarchies {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Hierarchies::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    fn parse(mounts: &str, memberships: &str) -> Hierarchies {
        let mut found = Hierarchies::default();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let hierarchy = |controller: &str| {
                let path = membership(memberships, controller)?;
                let below = path.strip_prefix(mount.root).unwrap_or(path);
                let own = mount.point.join(below.trim_start_matches('/'));
                Some(Hierarchy {
                    mount: mount.point.clone(),
                    own,
                })
            };
            let options = || mount.options.split(',');
            match mount.kind {
                "cgroup2" => found.unified = hierarchy(""),
                "cgroup" => {
                    if options().any(|option| option == "cpu") {
                        found.cpu = hierarchy("cpu");
                    }
                    if options().any(|option| option == "cpuacct") {
                        found.cpuacct = hierarchy("cpuacct");
                    }
                }
                _ => {}
            }
        }
        found
    }
}

impl Hierarchy {
    /// Creates a group below the kit's own group or below the nearest ancestor where creation and `prepare`
    /// succeed. Returns the last error if no ancestor works.
    fn make(
        &self,
        name: &str,
        prepare: impl Fn(&Path) -> io::Result<()>,
    ) -> Result<PathBuf, String> {
        let mut why = format!("{} does not exist", self.mount.display());
        for parent in self
            .own
            .ancestors()
            .filter(|parent| parent.starts_with(&self.mount))
        {
            let folder = parent.join(name);
            let made = fs::create_dir(&folder).and_then(|()| {
                prepare(&folder)
                    .and_then(|()| can_enter(&folder))
                    .inspect_err(|_| {
                        let _ = fs::remove_dir(&folder);
                    })
            });
            match made {
                Ok(()) => return Ok(folder),
                Err(error) => why = format!("{}: {error}", folder.display()),
            }
        }
        Err(why)
    }
}

/// Tests with a shell process that processes may enter the group, since several permissions decide.
fn can_enter(folder: &Path) -> io::Result<()> {
    let entered = std::process::Command::new("/bin/sh")
        .args(["-c", "echo 0 >\"$1/cgroup.procs\"", "sh"])
        .arg(folder)
        .stderr(std::process::Stdio::null())
        .status()?;
    if entered.success() {
        Ok(())
    } else {
        Err(io::Error::other("no process may enter the control group"))
    }
}

fn must_exist(file: &Path) -> io::Result<()> {
    fs::metadata(file).map(drop)
}

/// Returns the path of the kit's group in the hierarchy of a controller. `""` selects version 2.
fn membership<'m>(memberships: &'m str, controller: &str) -> Option<&'m str> {
    memberships.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers
            .split(',')
            .any(|known| known == controller)
            .then_some(path)
    })
}

fn stat_time(stat: &str) -> Option<CpuTime> {
    let seconds = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().parse::<f64>().ok()? / 1e6)
    };
    Some(CpuTime {
        user_seconds: seconds("user_usec ")?,
        system_seconds: seconds("system_usec ")?,
    })
}

/// A line of /proc/self/mountinfo.
struct Mount<'m> {
    root: &'m str,
    point: PathBuf,
    kind: &'m str,
    options: &'m str,
}

impl<'m> Mount<'m> {
    fn parse(line: &'m str) -> Option<Mount<'m>> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        Some(Mount {
            root,
            point: PathBuf::from(point),
            kind,
            options,
        })
    }
}

/// Number in the names of groups, to make the names unique within the kit's process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Period of the CPU limit. The kernel's default: long enough for a low overhead, short enough to avoid
/// noticeable stalls.
const PERIOD_US: u64 = 100_000;

const REMOVE_TRIES: usize = 400;

fn exists(path: &Path) -> bool {
    path.try_exists().unwrap_or(false)
}

/// Polling interval for the end of processes.
pub(super) const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEMD: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const BOTH: &str = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                        31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
    const CONTAINER: &str = "30 23 0:26 /docker/a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";

    #[test]
    fn hierarchies_are_found_with_the_own_group() {
        let own = |hierarchy: Option<Hierarchy>| hierarchy.map(|h| h.own.display().to_string());
        let found = Hierarchies::parse(SYSTEMD, "0::/user.slice/a.scope\n");
        assert_eq!(
            own(found.unified).as_deref(),
            Some("/sys/fs/cgroup/user.slice/a.scope")
        );
        assert_eq!(found.cpu, None);

        let found = Hierarchies::parse(BOTH, "4:cpu,cpuacct:/x\n0::/\n");
        assert_eq!(
            own(found.cpu.clone()).as_deref(),
            Some("/sys/fs/cgroup/cpu,cpuacct/x")
        );
        assert_eq!(found.cpu, found.cpuacct);
        assert_eq!(
            own(found.unified).as_deref(),
            Some("/sys/fs/cgroup/unified/")
        );

        let found = Hierarchies::parse(CONTAINER, "1:cpu:/docker/a/b\n");
        assert_eq!(own(found.cpu).as_deref(), Some("/sys/fs/cgroup/cpu/b"));
    }

    #[test]
    fn times_are_read_from_version_2() {
        let time =
            stat_time("usage_usec 3500000\nuser_usec 1500000\nsystem_usec 2000000\nnr_periods 0\n");
        assert_eq!(
            time,
            Some(CpuTime {
                user_seconds: 1.5,
                system_seconds: 2.0
            })
        );
        assert_eq!(stat_time("nothing"), None);
    }

    #[test]
    fn missing_mounts_are_reported() {
        let mut group = Group::default();
        let error = group
            .limit(&Hierarchies::default(), "x", 0.1)
            .expect_err("no groups");
        assert!(error.to_string().ends_with("no control groups are mounted"));
        assert!(group.count(&Hierarchies::default(), "x").is_err());
        assert!(group.pids().is_none() && group.cpu().is_none());
    }
}
