//! Processes under measurement: resource usage of a process tree, CPU pinning, and reliable termination.
//!
//! A server may be one process, or hundreds of processes with a lifetime of 1 ms. If the kernel permits,
//! each tree gets a control group of its own, which counts the CPU time of every past and present member in
//! microseconds. Otherwise the tree is read from /proc in clock ticks. The time of unreaped children is
//! then lost, as [`Tree::counting`] reports.
//!
//! No process outlives the kit. Dropping a tree kills its processes. If the kit itself is killed, a guard
//! (a shell waiting for the end of a pipe from the kit) kills the processes.

mod group;
mod guard;
mod sampler;
mod table;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(crate) use group::{Counting, ShareError};
pub(crate) use sampler::Measuring;
pub(crate) use table::CpuTime;

use group::{Group, POLL};
use guard::Guard;
use table::Table;

/// Processes of a contender: the started processes and all their descendants. Cheap to clone.
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
    /// CPU time of ended roots, used without a control group.
    ended: CpuTime,
    /// Members seen so far with their start times, used without a control group.
    seen: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct Root {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
}

/// Parameters for starting a process.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Name for messages: `stunnel`.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments.
    pub arguments: Vec<String>,
    /// Additional environment variables.
    pub environment: BTreeMap<String, String>,
    /// Working directory.
    pub folder: PathBuf,
    /// File to which the output is appended.
    pub log: PathBuf,
    /// Processors of the process. Empty for all processors of the kit.
    pub cpus: Vec<usize>,
}

impl Tree {
    /// Creates an empty tree. With `share`, all processes together get at most `share` processors (0.1 is a
    /// tenth of a processor). Fails if the limit can't be set.
    pub fn new(name: &str, share: Option<f64>) -> Result<Tree, ShareError> {
        let group = Group::create(name, share)?;
        Ok(Tree(Arc::new(Inner {
            group,
            state: Mutex::default(),
        })))
    }

    /// Starts a process in the tree.
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

    /// Returns the CPU time used so far, including ended processes.
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

    /// Returns the proportional set size in bytes: private memory, and a proportional part of shared
    /// memory.
    pub fn pss(&self) -> u64 {
        self.pids().into_iter().filter_map(table::pss).sum()
    }

    /// Returns the living processes.
    pub fn pids(&self) -> Vec<u32> {
        let table = Table::read();
        self.members(&table, &mut self.state())
    }

    /// Returns the counting method of [`Tree::cpu`].
    pub fn counting(&self) -> Counting {
        self.0.group.counting()
    }

    /// Returns the name and the exit status of the first started process that has ended.
    pub fn ended(&self) -> Option<(String, ExitStatus)> {
        let mut state = self.state();
        state.reap();
        let ended = |root: &Root| Some((root.name.clone(), root.status?));
        state.roots.iter().find_map(ended)
    }

    /// Terminates all started processes, the last started first, and kills the remaining processes after
    /// `grace`. No process of the tree is left on return.
    pub fn end(&self, grace: Duration) {
        // Records the members while their parents exist.
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

    /// Kills all processes and waits for their end.
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

    /// Returns true if no process is left. Reaps started processes that have ended.
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
            // /proc has the CPU time only until the process is reaped.
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
    /// Starts a shell that enters the control groups and executes the program, so that no part of the
    /// program runs outside of the groups. The shell is in a process group of its own, so that Ctrl-C
    /// reaches only the kit.
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

/// Returns the processors available to the calling thread.
pub(crate) fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect()
}

/// Pins the calling thread and its future children to the given processors.
pub(crate) fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Starts a program, for example a client, on the given processors. An empty list means all processors of
/// the kit.
pub(crate) fn spawn_on(cpus: &[usize], mut command: Command) -> io::Result<Child> {
    if cpus.is_empty() {
        return command.spawn();
    }
    // A child inherits the processors of its parent thread, so a temporary thread is pinned.
    let started = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpus)?;
            command.spawn()
        });
        thread.join()
    });
    started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts programs panicked")))
}

/// Returns the PATH for servers, used to find interpreters of scripts. System folders come before the
/// folders of the user: an interpreter of the user may be a wrapper that takes ten times as long, and only
/// some servers pass PATH on.
fn path() -> OsString {
    let mut folders: Vec<PathBuf> = SYSTEM_FOLDERS.map(PathBuf::from).into();
    folders.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    // Fails only for a folder with a colon, impossible for folders split from PATH.
    std::env::join_paths(folders).unwrap_or_default()
}

const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Raises the limit of open files, for the kit and its children, and returns the limit.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // The limit is bounded, because some programs allocate a slot for each possible file.
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

fn signal(pid: u32, what: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Fails if the process has ended in the meantime.
        let _ = kill_process(pid, what);
    }
}

/// Arguments: the number of groups, the groups, the program and its arguments.
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

/// Enough for 1,500 connections and their upstream connections, many times over.
const OPEN_FILES_MAX: u64 = 65_536;

#[cfg(test)]
mod tests;
