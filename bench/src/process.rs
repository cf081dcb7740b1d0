//! Processes under measurement: what a whole tree of them uses, where it runs, and that it ends.
//!
//! A server may be one process or hundreds that live for a millisecond. Where the kernel lets us, each
//! tree gets a control group of its own, which counts every process that ever was in it, to the
//! microsecond. Where not, the tree is read from /proc in clock ticks; then children that nobody waited
//! for are lost, and [`Tree::counting`] says so.
//!
//! Nothing outlives us: dropping a tree kills it, and a guard (a shell that waits for our end of a
//! pipe to close) does so if we end without dropping anything.

mod group;
mod guard;
mod sampler;
mod table;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub use group::ShareError;
pub use sampler::Measuring;

use group::Group;
use guard::Guard;
use table::Table;

/// A contender's processes: those that we started, and all that came of them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tree(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    group: Group,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    roots: Vec<Root>,
    guard: Option<Guard>,
    /// Time of roots that have ended, where no group counts.
    ended: CpuTime,
    /// Members so far and when each was born, where there is no group.
    seen: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct Root {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
}

/// What is needed to start a process.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// For messages: `stunnel`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables added to its environment.
    pub environment: BTreeMap<String, String>,
    /// Its current folder.
    pub folder: PathBuf,
    /// Where what it prints goes, to the end.
    pub log: PathBuf,
    /// The processors it may use; all of ours if empty.
    pub cpus: Vec<usize>,
}

/// CPU time, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTime {
    /// In user mode.
    pub user_seconds: f64,
    /// In the kernel.
    pub system_seconds: f64,
}

/// How a tree's CPU time is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// By a control group: every process that was ever in it, in microseconds.
    Group,
    /// From /proc, in clock ticks, for this reason. Children that nobody waited for are lost.
    Processes {
        /// Why there is no group.
        why: String,
    },
}

impl Tree {
    /// An empty tree. With `share`, all its processes together get that many processors at most
    /// (0.1 = a tenth of one), or the reason why that can't be.
    pub fn new(name: &str, share: Option<f64>) -> Result<Tree, ShareError> {
        let group = Group::create(name, share)?;
        Ok(Tree(Arc::new(Inner {
            group,
            state: Mutex::default(),
        })))
    }

    /// Starts a process in it.
    pub fn spawn(&self, launch: &Launch) -> io::Result<()> {
        let mut state = self.state();
        if state.guard.is_none() {
            state.guard = Some(Guard::new(self.0.group.folders())?);
        }
        let child = launch.spawn(&self.0.group)?;
        let group = child.id();
        state.roots.push(Root {
            name: launch.name.clone(),
            child,
            status: None,
        });
        match &mut state.guard {
            Some(guard) => guard.watch(group),
            None => Ok(()),
        }
    }

    /// CPU time so far, of processes that have ended too.
    pub fn cpu(&self) -> CpuTime {
        match self.0.group.cpu() {
            Some(time) => time,
            None => {
                let table = Table::read();
                let mut state = self.state();
                table
                    .cpu(&self.members(&table, &mut state))
                    .plus(state.ended)
            }
        }
    }

    /// Its proportional set size now: private memory, and its part of what is shared; bytes.
    pub fn pss(&self) -> u64 {
        self.pids().into_iter().filter_map(table::pss).sum()
    }

    /// Its living processes.
    pub fn pids(&self) -> Vec<u32> {
        let table = Table::read();
        self.members(&table, &mut self.state())
    }

    /// How [`Tree::cpu`] counts.
    pub fn counting(&self) -> Counting {
        self.0.group.counting()
    }

    /// Measures from here on: CPU time, and the peak of PSS, taken every `interval` by a thread on
    /// the processors of the caller. `cpus` is how many processors the tree is held to.
    pub fn measure(&self, interval: Duration, cpus: usize) -> Measuring {
        Measuring::begin(self.clone(), interval, cpus)
    }

    /// The first of the processes that we started which has ended: its name and how it ended.
    pub fn ended(&self) -> Option<(String, ExitStatus)> {
        let mut state = self.state();
        state.reap();
        let ended = |root: &Root| Some((root.name.clone(), root.status?));
        state.roots.iter().find_map(ended)
    }

    /// Asks all that we started to end, the last one first, and kills what is left after `grace`.
    /// When it returns, no process of the tree is left.
    pub fn end(&self, grace: Duration) {
        // Before any parent is gone.
        self.pids();
        for root in self.state().roots.iter_mut().rev() {
            root.signal(Signal::TERM);
        }
        let deadline = Instant::now() + grace;
        while !self.is_empty() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        self.kill();
    }

    /// Kills all of it, and waits until it is gone.
    pub fn kill(&self) {
        while !self.is_empty() {
            self.0.group.kill();
            for pid in self.pids() {
                signal(pid, Signal::KILL);
            }
            std::thread::sleep(POLL);
        }
        let mut state = self.state();
        state.roots.clear();
        state.guard = None;
        self.0.group.remove();
    }

    /// Whether no process of it is left; reaps those that we started.
    fn is_empty(&self) -> bool {
        self.state().reap();
        self.pids().is_empty()
    }

    fn members(&self, table: &Table, state: &mut State) -> Vec<u32> {
        match self.0.group.pids() {
            Some(pids) => table.living(pids),
            None => {
                let roots = state.roots.iter().map(|root| root.child.id());
                table.descendants(roots, &mut state.seen)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        if state.roots.is_empty() {
            self.group.remove();
            return;
        }
        let group = std::mem::take(&mut self.group);
        Tree(Arc::new(Inner {
            group,
            state: Mutex::new(state),
        }))
        .kill();
    }
}

impl State {
    fn reap(&mut self) {
        for root in self.roots.iter_mut().filter(|root| root.status.is_none()) {
            // What it used is in /proc until it is waited for.
            let used = Table::read_one(root.child.id());
            if let Ok(Some(status)) = root.child.try_wait() {
                root.status = Some(status);
                self.ended = self.ended.plus(used);
            }
        }
    }
}

impl Root {
    fn signal(&mut self, what: Signal) {
        if self.status.is_none() {
            signal(self.child.id(), what);
        }
    }
}

impl Launch {
    /// Started by a shell that enters the groups and then becomes the program, so that nothing of it
    /// runs outside of them; in a process group of its own, so that Ctrl-C reaches us alone.
    fn spawn(&self, group: &Group) -> io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(ENTER)
            .arg(&self.name)
            .arg(group.folders().len().to_string());
        command
            .args(group.folders())
            .arg(&self.program)
            .args(&self.arguments);
        command
            .env("PATH", path())
            .envs(&self.environment)
            .current_dir(&self.folder);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        spawn_on(&self.cpus, command)
    }
}

impl CpuTime {
    /// Both together, seconds.
    pub fn seconds(self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    fn plus(self, other: CpuTime) -> CpuTime {
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

/// The processors that this thread may use.
pub fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect()
}

/// Holds the calling thread, and what it starts, to these processors.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Starts a program (a client, say) on these processors; on all of ours if there are none.
pub fn spawn_on(cpus: &[usize], mut command: Command) -> io::Result<Child> {
    if cpus.is_empty() {
        return command.spawn();
    }
    // A child has the processors of the thread that starts it, so a thread is spent on it.
    let started = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpus)?;
            command.spawn()
        });
        thread.join()
    });
    started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts programs panicked")))
}

/// Where servers find the interpreters of their scripts: the system's before the user's, whose own may
/// be wrappers that take ten times as long, and which only some servers would pass on.
fn path() -> OsString {
    let mut folders: Vec<PathBuf> = SYSTEM_FOLDERS.map(PathBuf::from).into();
    folders.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    // A folder that can't stand in it came from there, so there is none.
    std::env::join_paths(folders).unwrap_or_default()
}

const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Allows us, and what we start, as many open files as the system does; says how many that is.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Some programs allocate a slot for each that they might open, so not without bound.
    let wanted = limit.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return wanted;
        }
    }
    limit.current.unwrap_or(wanted)
}

/// Whether a CPU share can be given here, or why not.
pub fn share_is_possible() -> Result<(), ShareError> {
    Tree::new("probe", Some(0.5)).map(drop)
}

fn signal(pid: u32, what: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, what);
    }
}

fn exists(path: &Path) -> bool {
    path.try_exists().unwrap_or(false)
}

/// Arguments: how many groups, the groups, the program and its arguments.
const ENTER: &str = r#"
groups=$1
shift
while [ "$groups" -gt 0 ]; do
    echo 0 >"$1/cgroup.procs" || exit 125
    shift
    groups=$((groups - 1))
done
exec "$@"
"#;

/// How often it is looked whether something has ended.
const POLL: Duration = Duration::from_millis(5);

/// 1,500 connections and their upstreams, many times over.
const OPEN_FILES_MAX: u64 = 65_536;

#[cfg(test)]
mod tests;
