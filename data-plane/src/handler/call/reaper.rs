//! Termination of programs. Each process group left by a call gets SIGTERM, then SIGKILL after a grace, and
//! is waited for. All workers share one reaper. The reaper's thread runs only while groups are ending.
//! Running groups are recorded as well, so that a stopping server leaves no process behind.

use crate::ledger::admission::CallSlot;
use crate::limits::{PROGRAM_EXIT_POLL_MILLISECONDS, PROGRAM_GRACE_SECONDS};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, waitpgid,
    waitpid,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Process groups that run or are ending.
#[derive(Default)]
pub(crate) struct Reaper {
    state: Mutex<ReaperState>,
    /// Notified when a group is added, removed or started.
    changed: Condvar,
}

#[derive(Default)]
struct ReaperState {
    /// Leaders of the groups that belong to a call.
    working: Vec<Pid>,
    /// Number of starts in progress.
    starting: usize,
    /// The server is stopping: no group is started any more.
    is_closed: bool,
    leaving: Vec<EndingGroup>,
    has_thread: bool,
}

/// A process group that is ending. The leader is a child of the server, the other members may not be.
struct EndingGroup {
    leader: Pid,
    is_leader_reaped: bool,
    /// Time until which the group may end on its own. None after SIGTERM.
    until: Option<Instant>,
    kill_at: Instant,
    /// Pipes kept open for the group's output. A group with pipes is given time to clean up, even by a
    /// stopping server.
    pipes: Vec<OwnedFd>,
    /// Slot of the call, held until the group has ended.
    _slot: Option<CallSlot>,
}

impl Reaper {
    /// Starts a group with `spawn`, which may block, and records the group as running until one of the
    /// `end` functions is called.
    ///
    /// Errors: those of `spawn`, and EAGAIN once the server is stopping.
    pub(crate) fn start(&self, spawn: impl FnOnce() -> io::Result<Pid>) -> io::Result<Pid> {
        {
            let mut state = self.lock();
            if state.is_closed {
                return Err(Errno::AGAIN.into());
            }
            state.starting += 1;
        }
        let started = spawn();
        let mut state = self.lock();
        state.starting -= 1;
        self.changed.notify_all();
        match started {
            // `finish` may have stopped waiting for the start, and the program has done no work yet.
            Ok(leader) if state.is_closed => {
                let _ = kill_process_group(leader, Signal::KILL);
                let _ = waitpid(Some(leader), WaitOptions::empty());
                Err(Errno::AGAIN.into())
            }
            Ok(leader) => {
                state.working.push(leader);
                Ok(leader)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends a group: SIGTERM at once, and SIGKILL to the remaining processes after the grace.
    pub(crate) fn end(self: &Arc<Self>, leader: Pid, slot: Option<CallSlot>) {
        self.add_leaving(EndingGroup::new(leader, None, slot));
    }

    /// Lets the leader end on its own until `until`. The rest of the group is ended with the leader.
    pub(crate) fn end_later(self: &Arc<Self>, leader: Pid, until: Instant, slot: Option<CallSlot>) {
        self.add_leaving(EndingGroup::new(leader, Some(until), slot));
    }

    /// Lets the leader end on its own until `until`, and keeps `pipes` open although the server no longer
    /// reads their output.
    pub(crate) fn end_gently(
        self: &Arc<Self>,
        leader: Pid,
        until: Instant,
        slot: Option<CallSlot>,
        pipes: Vec<OwnedFd>,
    ) {
        self.add_leaving(EndingGroup {
            pipes,
            ..EndingGroup::new(leader, Some(until), slot)
        });
    }

    /// Ends the rest of a group after its leader has been reaped.
    pub(crate) fn end_rest(self: &Arc<Self>, leader: Pid, slot: Option<CallSlot>) {
        if has_gone(leader) {
            self.lock().take(leader);
        } else {
            self.add_leaving(EndingGroup {
                is_leader_reaped: true,
                ..EndingGroup::new(leader, None, slot)
            })
        }
    }

    fn add_leaving(self: &Arc<Self>, leaving: EndingGroup) {
        let mut state = self.lock();
        if state.take(leaving.leader) {
            self.add_to(&mut state, leaving);
        }
    }

    fn add_to(self: &Arc<Self>, state: &mut ReaperState, leaving: EndingGroup) {
        if leaving.until.is_none() {
            terminate(leaving.leader);
        }
        state.leaving.push(leaving);
        if !state.has_thread {
            let reaper = Arc::clone(self);
            let thread = thread::Builder::new()
                .name("anthill-reaper".into())
                .stack_size(STACK_BYTES);
            match thread.spawn(move || reaper.work()) {
                Ok(_) => state.has_thread = true,
                // The next group tries to start the thread again.
                Err(error) => {
                    log::error!("the thread that waits for programs can't be started: {error}")
                }
            }
        }
        self.changed.notify_all();
    }

    /// Refuses further starts, ends all groups and waits for their exit, for a bounded time. Groups at work
    /// and groups that may end on their own get SIGTERM at once. Groups with pipes may first clean up for
    /// at most the grace.
    pub(crate) fn finish(self: &Arc<Self>) {
        let soon = Instant::now() + GRACE;
        let give_up = soon + 2 * GRACE;
        let mut state = self.lock();
        state.is_closed = true;
        while state.starting > 0 && Instant::now() < soon {
            state = self.wait(state, soon);
        }
        for leader in std::mem::take(&mut state.working) {
            self.add_to(&mut state, EndingGroup::new(leader, None, None));
        }
        for leaving in state.leaving.iter_mut() {
            match &mut leaving.until {
                Some(until) if !leaving.pipes.is_empty() => {
                    *until = soon.min(*until);
                    leaving.kill_at = *until + GRACE;
                }
                _ => leaving.hurry(),
            }
        }
        self.changed.notify_all();
        while !state.leaving.is_empty() {
            let now = Instant::now();
            if now >= give_up {
                return log::error!("{} programs are still running", state.leaving.len());
            }
            let mut until = give_up;
            if !state.has_thread {
                // The thread could not be started, so the groups are checked here.
                state.leaving.retain_mut(|leaving| !leaving.step(now));
                until = give_up.min(now + LOOK);
            }
            state = self.wait(state, until);
        }
    }

    /// Waits until a group is added or removed, at most until `until`.
    fn wait<'s>(
        &self,
        state: MutexGuard<'s, ReaperState>,
        until: Instant,
    ) -> MutexGuard<'s, ReaperState> {
        let left = until.saturating_duration_since(Instant::now());
        let woken = self.changed.wait_timeout(state, left);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, ReaperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            state.leaving.retain_mut(|leaving| !leaving.step(now));
            if state.leaving.is_empty() {
                state.has_thread = false;
                self.changed.notify_all();
                return;
            }
            state = self.wait(state, now + LOOK);
        }
    }
}

impl ReaperState {
    /// Removes a group from the running groups. Returns false if the group was not recorded, as after
    /// `finish`.
    fn take(&mut self, leader: Pid) -> bool {
        let place = self.working.iter().position(|other| *other == leader);
        place.map(|at| self.working.swap_remove(at)).is_some()
    }
}

impl EndingGroup {
    fn new(leader: Pid, until: Option<Instant>, slot: Option<CallSlot>) -> EndingGroup {
        EndingGroup {
            leader,
            is_leader_reaped: false,
            until,
            kill_at: until.unwrap_or_else(Instant::now) + GRACE,
            pipes: Vec::new(),
            _slot: slot,
        }
    }

    fn hurry(&mut self) {
        if self.until.take().is_some() {
            terminate(self.leader);
            self.kill_at = Instant::now() + GRACE;
        }
    }

    /// Sends the signal that is due. Returns true once the group has ended or is given up.
    fn step(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| until <= now) {
            self.hurry();
        }
        if !self.is_leader_reaped && !matches!(reap(self.leader), Ok(None)) {
            self.is_leader_reaped = true;
            if self.until.is_some() {
                self.hurry();
            }
        }
        if self.is_leader_reaped && has_gone(self.leader) {
            return true;
        }
        if self.until.is_none() && self.kill_at <= now {
            let _ = kill_process_group(self.leader, Signal::KILL);
            // A process that survives SIGKILL is blocked in the kernel, or is a zombie that its parent
            // doesn't reap. The slot is freed all the same.
            if self.is_leader_reaped && self.kill_at + GRACE <= now {
                let group = self.leader.as_raw_nonzero();
                log::warn!("the process group {group} of a script is still there after SIGKILL");
                return true;
            }
        }
        false
    }
}

/// Reaps a child and returns the exit status. Returns None while the child runs.
pub(crate) fn reap(child: Pid) -> io::Result<Option<WaitStatus>> {
    let reaped = waitpid(Some(child), WaitOptions::NOHANG)?;
    Ok(reaped.map(|(_, status)| status))
}

/// Returns true if a group with a reaped leader has no process left that the server may signal.
fn has_gone(leader: Pid) -> bool {
    // Orphans of the group become children of the server if the server is process 1, as in a container.
    while let Ok(Some(_)) = waitpgid(leader, WaitOptions::NOHANG) {}
    test_kill_process_group(leader).is_err()
}

/// Sends SIGTERM to a group. The error is ignored: the group may have ended.
fn terminate(leader: Pid) {
    let _ = kill_process_group(leader, Signal::TERM);
    // A stopped process handles SIGTERM only after SIGCONT.
    let _ = kill_process_group(leader, Signal::CONT);
}

const LOOK: Duration = Duration::from_millis(PROGRAM_EXIT_POLL_MILLISECONDS);
const GRACE: Duration = Duration::from_secs(PROGRAM_GRACE_SECONDS);
/// Stack size of the thread, which only polls and sends signals.
const STACK_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Starts a process that doesn't end on its own, in a process group of its own.
    fn sleeper() -> io::Result<Pid> {
        let mut command = Command::new("sleep");
        let child = command.arg("1000").process_group(0).spawn()?;
        Ok(Pid::from_child(&child))
    }

    #[test]
    fn finish_ends_all_groups() {
        let reaper = Arc::new(Reaper::default());
        let working = reaper.start(sleeper).unwrap();
        let left = reaper.start(sleeper).unwrap();
        let until = Instant::now() + Duration::from_secs(1_000);
        reaper.end_later(left, until, None);
        reaper.finish();
        for leader in [working, left] {
            assert!(test_kill_process_group(leader).is_err());
        }
        // The call is dropped only after `finish`.
        reaper.end(working, None);
        assert!(reaper.lock().leaving.is_empty());
        let late = reaper.start(|| unreachable!("nobody is started any more"));
        assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn a_program_started_during_finish_is_ended() {
        let reaper = Arc::new(Reaper::default());
        let stopping = Arc::clone(&reaper);
        let mut started = None;
        let late = reaper.start(|| {
            let stop = thread::spawn(move || stopping.finish());
            while !reaper.lock().is_closed {
                thread::yield_now();
            }
            started = Some((sleeper()?, stop));
            Ok(started.as_ref().unwrap().0)
        });
        assert!(late.is_err());
        let (leader, stop) = started.unwrap();
        stop.join().unwrap();
        assert!(test_kill_process_group(leader).is_err());
    }
}
