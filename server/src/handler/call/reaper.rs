//! The end of programs: every group of processes that a call has left behind is told to end, is
//! ended if it doesn't, and is waited for. One ledger for all workers, and a thread only while there
//! is somebody to wait for. It knows those at work too, so that a server that stops leaves nobody behind.

use crate::base::admission::CallSlot;
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
use std::time::{Duration, Instant};

/// Whom it waits for.
#[derive(Default)]
pub struct Reaper {
    state: Mutex<ReaperState>,
    /// Somebody came or went.
    changed: Condvar,
}

#[derive(Default)]
struct ReaperState {
    /// Leaders of groups that a call has.
    working: Vec<Pid>,
    /// So many are just being started.
    starting: usize,
    /// Nobody is started any more.
    is_closed: bool,
    leaving: Vec<EndingGroup>,
    has_thread: bool,
}

/// A group of processes on its way out. Its leader is our child, the others may be anybody's.
struct EndingGroup {
    leader: Pid,
    is_leader_reaped: bool,
    /// Until then it may end by itself; None when it was told to end.
    until: Option<Instant>,
    kill_at: Instant,
    /// What it may still write to; then it isn't hurried but for a stop, and gets a moment even there.
    pipes: Vec<OwnedFd>,
    /// Its place is taken until it has gone.
    _slot: Option<CallSlot>,
}

impl Reaper {
    /// Starts a group by `spawn`, which may block; it is at work until one of the others here is told
    /// of its end. Errors: those of `spawn`, and EAGAIN once the server has stopped.
    pub fn start(&self, spawn: impl FnOnce() -> io::Result<Pid>) -> io::Result<Pid> {
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
            // It has done nothing yet, and who stops the server may not have waited for it.
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

    /// Ends this group: SIGTERM now, SIGKILL for who is left after a grace.
    pub fn end(self: &Arc<Self>, leader: Pid, slot: Option<CallSlot>) {
        self.add_leaving(EndingGroup::new(leader, None, slot));
    }

    /// Lets its leader end by itself until then; the others of its group are ended with it.
    pub fn end_later(self: &Arc<Self>, leader: Pid, until: Instant, slot: Option<CallSlot>) {
        self.add_leaving(EndingGroup::new(leader, Some(until), slot));
    }

    /// The same, with what it may write to until then though nobody reads it.
    pub fn end_gently(
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

    /// Ends who is left of a group whose leader has been reaped, if anybody is.
    pub fn end_rest(self: &Arc<Self>, leader: Pid, slot: Option<CallSlot>) {
        match has_gone(leader) {
            true => drop(self.lock().take(leader)),
            false => self.add_leaving(EndingGroup {
                is_leader_reaped: true,
                ..EndingGroup::new(leader, None, slot)
            }),
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
                // The next one tries again.
                Err(error) => log::error!("no thread to wait for programs: {error}"),
            }
        }
        self.changed.notify_all();
    }

    /// Starts nobody any more, and waits until all have gone, which the grace bounds. Who is at work
    /// still, for a call that wasn't ended, is told to end, and so is what may do so by itself; what
    /// cleans up may do so for a moment first.
    pub fn finish(self: &Arc<Self>) {
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
                return log::error!("{} programs don't end", state.leaving.len());
            }
            let mut until = give_up;
            if !state.has_thread {
                // There was none to be had, so it is done here.
                state.leaving.retain_mut(|leaving| !leaving.step(now));
                until = give_up.min(now + LOOK);
            }
            state = self.wait(state, until);
        }
    }

    /// Until somebody comes or goes, or then.
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
    /// Is it at work? From now on it isn't. The server that stops has taken it before.
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

    /// Has it gone?
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
            // What even this doesn't end is in the kernel's hands, or dead and waited for by nobody:
            // the place isn't held for it.
            if self.is_leader_reaped && self.kill_at + GRACE <= now {
                let group = self.leader.as_raw_nonzero();
                log::warn!("processes of the group {group}, of a script, don't end");
                return true;
            }
        }
        false
    }
}

/// Takes the status of a child that has ended; None while it runs.
pub fn reap(child: Pid) -> io::Result<Option<WaitStatus>> {
    let reaped = waitpid(Some(child), WaitOptions::NOHANG)?;
    Ok(reaped.map(|(_, status)| status))
}

/// Nobody of a group whose leader was reaped is there, or nobody whom we may tell anything.
fn has_gone(leader: Pid) -> bool {
    // Orphans of it are ours where we are the first process, as in a container.
    while let Ok(Some(_)) = waitpgid(leader, WaitOptions::NOHANG) {}
    test_kill_process_group(leader).is_err()
}

/// Tells a group to end. It may have gone, and then nobody is told.
fn terminate(leader: Pid) {
    let _ = kill_process_group(leader, Signal::TERM);
    // One that was stopped can't hear.
    let _ = kill_process_group(leader, Signal::CONT);
}

const LOOK: Duration = Duration::from_millis(PROGRAM_EXIT_POLL_MILLISECONDS);
const GRACE: Duration = Duration::from_secs(PROGRAM_GRACE_SECONDS);
/// It only looks and sends signals.
const STACK_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// A process that doesn't end by itself, in a group of its own.
    fn sleeper() -> io::Result<Pid> {
        let mut command = Command::new("sleep");
        let child = command.arg("1000").process_group(0).spawn()?;
        Ok(Pid::from_child(&child))
    }

    #[test]
    fn who_stops_leaves_nobody_behind() {
        let reaper = Arc::new(Reaper::default());
        let working = reaper.start(sleeper).unwrap();
        let left = reaper.start(sleeper).unwrap();
        let until = Instant::now() + Duration::from_secs(1_000);
        reaper.end_later(left, until, None);
        reaper.finish();
        for leader in [working, left] {
            assert!(test_kill_process_group(leader).is_err());
        }
        // Its call is dropped only now.
        reaper.end(working, None);
        assert!(reaper.lock().leaving.is_empty());
        let late = reaper.start(|| unreachable!("nobody is started any more"));
        assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn who_is_being_started_when_the_server_stops_is_ended() {
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
