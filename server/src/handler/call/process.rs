//! A program run for one request, as CGI has it: started, fed with the request's body and read at the
//! same time, and ended with all that it started, whatever happens.
//!
//! No handler by itself: [`crate::handler::script::cgi`] and whoever else runs programs says which one, with which
//! variables. Finding and starting it happens on a pool, for both may wait for the disk.

use crate::base::admission::{AdmissionControl, CallSlot, WorkStart};
use crate::base::fair_share::{RefusalCounters, SharedLimit};
use crate::base::sys;
use crate::base::thread_pool::{ThreadPool, ThreadPoolError};
use crate::handler::call::body::budget;
use crate::handler::call::body::budget::BodyBudget;
use crate::handler::call::body::rate::RatedBody;
use crate::handler::call::body::spool::BodySpool;
use crate::handler::call::reaper::{Reaper, reap};
use crate::handler::call::request::{LocalRequestParts, RequestBody, ScriptRequest};
use crate::handler::call::script_call::{
    BODY_LOST, CallLimits, ScriptCall, Transport, TransportEnd,
};
use crate::handler::call::stderr::StderrLog;
use crate::handler::pipe::PipeRead;
use crate::handler::{HandlerError, Response};
use crate::limits;
use crate::wire::cgi::Environment;
use crate::wire::reject::Reject;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, WaitStatus, pidfd_open, prlimit,
    waitid,
};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// The ledger of programs that run for requests: how many may, and who waits for their end.
pub struct ProcessRunner {
    slots: Arc<AdmissionControl>,
    gathered: Arc<BodyBudget>,
    spools: Arc<BodySpool>,
    reaper: Arc<Reaper>,
    pool: ThreadPool,
}

/// A program to be run.
pub struct ProcessSpec {
    /// Its file, absolute.
    pub file: CString,
    /// Its name and arguments, each with a NUL behind it.
    pub arguments: Vec<u8>,
    /// All that is in its environment.
    pub variables: Environment,
    /// The folder that it stands in.
    pub folder: CString,
    /// Where nobody wants it any more its input ends, and it gets so long to clean up before it is
    /// told to end; zero for who is told at once.
    pub grace: Duration,
    /// It and each of its children may have so much memory of their own, if that is bounded.
    pub memory_bytes: Option<u64>,
    /// And so many seconds of a processor.
    pub processor_seconds: Option<u64>,
}

impl ProcessRunner {
    /// With so many places, and bodies that are kept until they are whole in `folder`. What clients
    /// are refused for their shares is counted in `refusals`.
    pub fn new(max: usize, folder: &Path, refusals: &Arc<RefusalCounters>) -> ProcessRunner {
        let slots = AdmissionControl::new(max, WorkStart::AtOnce, SharedLimit::Calls, refusals);
        ProcessRunner {
            slots: Arc::new(slots),
            gathered: Arc::default(),
            spools: Arc::new(BodySpool::new(folder, refusals)),
            reaper: Arc::default(),
            pool: ThreadPool::new("anthill-spawn", limits::PROGRAM_THREADS, SPAWN_QUEUE_MAX),
        }
    }

    /// From now on with so many places.
    pub fn resize(&self, max: usize) {
        self.slots.resize(max);
    }

    /// Where the beginnings of bodies are counted, for backends too.
    pub fn gathered(&self) -> &Arc<BodyBudget> {
        &self.gathered
    }

    /// Where bodies are kept until they are whole, for backends too.
    pub fn spools(&self) -> &Arc<BodySpool> {
        &self.spools
    }

    /// Waits for the end of programs that no call wants any more; blocks, for a few seconds at most.
    pub fn finish(&self) {
        self.reaper.finish();
    }

    /// Runs the program that `find` names, which may block, and answers with what it says.
    pub async fn run(
        &self,
        asked: Arc<ScriptRequest>,
        here: LocalRequestParts,
        bounds: CallLimits,
        find: FindProcessFn,
    ) -> Result<Response, HandlerError> {
        let exchange = self.start(&asked, here.body, bounds, find).await?;
        exchange.answer(here.inside).await
    }

    /// Looks for a program, which may block, without starting it.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, HandlerError> + Send + 'static,
    ) -> Result<T, HandlerError> {
        self.pool.run(look).await.map_err(not_run)?
    }

    /// Starts the program that `find` names, which may block.
    pub async fn start(
        &self,
        asked: &Arc<ScriptRequest>,
        mut body: Option<RequestBody>,
        bounds: CallLimits,
        find: FindProcessFn,
    ) -> Result<ScriptCall<ProcessTransport>, HandlerError> {
        let patience = Duration::from_secs(limits::CALL_QUEUE_SECONDS);
        let slot = self.slots.enter(asked.peer.into(), bounds.queue, patience);
        let slot = RequestBody::queued(&mut body, slot).await;
        let slot = slot.map_err(|busy| HandlerError::new("script", busy.into()))?;
        let (reaper, for_job) = (Arc::clone(&self.reaper), Arc::clone(asked));
        let has_body = body.is_some();
        let started = self.pool.run(move || {
            let order = find(&for_job)?;
            SpawnedProcess::new(&order, has_body, reaper, slot)
                .map_err(|error| not_started(&for_job, &order, &error))
        });
        let started = started.await.map_err(not_run)??;
        let failed = |error: io::Error| {
            let why = format!("{}: {error}", asked.line());
            HandlerError::because("script", Reject::SCRIPT_NOT_STARTED, why)
        };
        let running =
            ProcessTransport::new(started, body, bounds.patience, asked).map_err(failed)?;
        Ok(ScriptCall::new(running, asked, bounds))
    }
}

/// A function that finds the program for a request. The function is boxed so that all callers share one
/// copy of the code that starts programs.
pub type FindProcessFn =
    Box<dyn FnOnce(&ScriptRequest) -> Result<ProcessSpec, HandlerError> + Send>;

/// Where programs look for others: where we do, or the usual places if nobody said it.
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// More calls than this never wait for a start: `queue` bounds them long before.
const SPAWN_QUEUE_MAX: usize = 4_096;

/// Nobody had time to look for a program.
fn not_run(gone: ThreadPoolError) -> HandlerError {
    let reject = match gone {
        ThreadPoolError::Busy => Reject::CALLS_BUSY,
        ThreadPoolError::Failed => Reject::HANDLER_FAILED,
    };
    HandlerError::new("script", reject)
}

/// Why a program wasn't started, as an answer and for the log.
fn not_started(asked: &ScriptRequest, order: &ProcessSpec, error: &io::Error) -> HandlerError {
    let program = order.file.to_string_lossy();
    let (reject, what) = match error.raw_os_error() {
        Some(libc::EACCES) => (
            Reject::SCRIPT_NOT_EXECUTABLE,
            format!(
                "{program} can't be executed: chmod +x it, and let the server enter its folder"
            ),
        ),
        Some(libc::ENOENT | libc::ENOTDIR) => (
            Reject::SCRIPT_NOT_STARTED,
            format!("{program}: the program in its first line (#!) is not there"),
        ),
        Some(libc::ENOEXEC) => (
            Reject::SCRIPT_NOT_STARTED,
            format!("{program} is no program: does its first line begin with #!?"),
        ),
        Some(libc::ETXTBSY) => (Reject::CHANGING, format!("{program} is being written")),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            (Reject::CALLS_BUSY, format!("{program}: {error}"))
        }
        _ => (Reject::SCRIPT_NOT_STARTED, format!("{program}: {error}")),
    };
    HandlerError::because("script", reject, format!("{}: {what}", asked.line()))
}

/// A program that was started, with our ends of its pipes.
struct SpawnedProcess {
    group: ProcessGroup,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl SpawnedProcess {
    fn new(
        order: &ProcessSpec,
        has_body: bool,
        reaper: Arc<Reaper>,
        slot: CallSlot,
    ) -> io::Result<SpawnedProcess> {
        let (ours_in, theirs_in) = match has_body {
            true => {
                let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                (Some(ours), theirs)
            }
            false => {
                let null = rustix::fs::openat(
                    CWD,
                    "/dev/null",
                    OFlags::RDONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                (None, null)
            }
        };
        let (stdout, theirs_out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, theirs_err) = pipe_with(PipeFlags::CLOEXEC)?;
        // Ours alone: programs don't expect to be told to come back later.
        for ours in ours_in.iter().chain([&stdout, &stderr]) {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let program = sys::SpawnOptions {
            file: &order.file,
            arguments: &order.arguments,
            variables: order.variables.as_bytes(),
            folder: &order.folder,
            standard: [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()],
        };
        let leader = reaper.start(|| spawn(&program))?;
        let group = ProcessGroup {
            leader,
            reaper,
            slot: Some(slot),
            is_left: false,
            grace: order.grace,
        };
        if let Some(bytes) = order.memory_bytes {
            bound_memory(leader, bytes)?;
        }
        if let Some(seconds) = order.processor_seconds {
            bound(leader, Resource::Cpu, seconds)?;
        }
        Ok(SpawnedProcess {
            group,
            stdin: ours_in,
            stdout,
            stderr,
        })
    }
}

/// Starts a program; one that is just being written may be ready in a moment.
fn spawn(program: &sys::SpawnOptions<'_>) -> io::Result<Pid> {
    for _ in 0..BEING_WRITTEN_LOOKS {
        match sys::spawn(program) {
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
                std::thread::sleep(BEING_WRITTEN_PAUSE);
            }
            other => return other,
        }
    }
    sys::spawn(program)
}

/// Bounds the memory of a program that has just begun, and of what it starts from now on, bytes.
pub fn bound_memory(leader: Pid, most: u64) -> io::Result<()> {
    bound(leader, Resource::Data, most)
}

/// What it maps of files doesn't count. It has begun by now, and can't have taken much; but it may have
/// started another program already, which is bounded too.
fn bound(leader: Pid, resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    match prlimit(Some(leader), resource, limit) {
        // It has ended already.
        Ok(_) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    // What it starts from now on has the same bound, so the list is complete.
    for child in children(leader) {
        bound(child, resource, most)?;
    }
    Ok(())
}

/// The processes that this one has started, where the kernel tells (proc(5), since Linux 3.5 with
/// CONFIG_PROC_CHILDREN).
fn children(of: Pid) -> Vec<Pid> {
    let pid = of.as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    let pids = listed.split_ascii_whitespace();
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

const BEING_WRITTEN_LOOKS: u32 = 5;
const BEING_WRITTEN_PAUSE: Duration = Duration::from_millis(10);

/// A program and all that it started. Dropped before it has ended, it is ended.
struct ProcessGroup {
    leader: Pid,
    reaper: Arc<Reaper>,
    slot: Option<CallSlot>,
    is_left: bool,
    grace: Duration,
}

impl ProcessGroup {
    /// How the program ended, if it has; what it left behind is ended.
    fn reap(&mut self) -> Option<io::Result<WaitStatus>> {
        let status = match reap(self.leader) {
            Ok(None) => return None,
            Ok(Some(status)) => Ok(status),
            Err(error) => Err(error),
        };
        self.is_left = true;
        self.reaper.end_rest(self.leader, self.slot.take());
        Some(status)
    }

    /// Lets it end by itself for a while, if it hasn't yet.
    fn leave(&mut self, patience: Duration) {
        if !self.is_left && self.reap().is_none() {
            self.is_left = true;
            let until = std::time::Instant::now() + patience;
            self.reaper.end_later(self.leader, until, self.slot.take());
        }
    }

    /// Lets it clean up. It may write to these pipes meanwhile, though nobody reads: who finds them
    /// closed dies of it.
    fn give_grace(&mut self, pipes: Vec<OwnedFd>) {
        if !self.is_left && self.reap().is_none() {
            self.is_left = true;
            let until = std::time::Instant::now() + self.grace;
            let slot = self.slot.take();
            self.reaper.end_gently(self.leader, until, slot, pipes);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_left {
            self.reaper.end(self.leader, self.slot.take());
        }
    }
}

/// A program at work for a request.
pub struct ProcessTransport {
    // Before its pipes, so that it is told to end before it finds them closed.
    group: ProcessGroup,
    input: StdinWriter,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    said: StderrLog,
    left: OrphanWatch,
    /// How it ended, if that was found out before its output did.
    status: Option<io::Result<WaitStatus>>,
}

/// Has the program ended, and left somebody behind who holds its output open? That is looked after only
/// while nothing comes: the end of the output tells of most ends.
#[derive(Default)]
struct OrphanWatch {
    /// When nothing came for a while.
    timer: Option<Pin<Box<Sleep>>>,
    /// Something came since it was last looked.
    has_come: bool,
    /// It had ended then.
    had_ended: bool,
    /// It is no longer waited for.
    is_given_up: bool,
}

impl OrphanWatch {
    /// Ready when nothing came for a while after the program ended.
    fn poll(&mut self, cx: &mut Context<'_>, leader: Pid) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(LEFT)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + LEFT);
            let had_ended = std::mem::replace(&mut self.had_ended, has_ended(leader));
            if !std::mem::take(&mut self.has_come) && had_ended {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// It is still to be waited for, so that its number is nobody else's.
fn has_ended(leader: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(leader), look), Ok(Some(_)))
}

const LEFT: Duration = Duration::from_secs(limits::ORPHAN_OUTPUT_PAUSE_SECONDS_MAX);

impl Drop for ProcessTransport {
    fn drop(&mut self) {
        if self.group.is_left || self.group.grace.is_zero() {
            return;
        }
        self.input.stdin = None;
        let pipes = self.stdout.take().into_iter().chain(self.stderr.take());
        let pipes = pipes.filter_map(|pipe| pipe.into_nonblocking_fd().ok());
        self.group.give_grace(pipes.collect());
    }
}

impl ProcessTransport {
    fn new(
        started: SpawnedProcess,
        body: Option<RequestBody>,
        patience: Duration,
        asked: &Arc<ScriptRequest>,
    ) -> io::Result<ProcessTransport> {
        Ok(ProcessTransport {
            input: StdinWriter::new(started.stdin, body, patience)?,
            stdout: Some(Receiver::from_owned_fd_unchecked(started.stdout)?),
            stderr: Some(Receiver::from_owned_fd_unchecked(started.stderr)?),
            group: started.group,
            said: StderrLog::new(asked),
            left: OrphanWatch::default(),
            status: None,
        })
    }

    fn poll_said(&mut self, cx: &mut Context<'_>) {
        let mut buffer = [0; 1_024];
        while let Some(stderr) = &mut self.stderr {
            match poll_read(stderr, cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(0) => self.stderr = None,
                Poll::Ready(read) => self.said.take(&buffer[..read]),
            }
        }
    }

    /// How it ended, if it does so in a moment.
    async fn exit(&mut self) -> Option<io::Result<WaitStatus>> {
        let group = &mut self.group;
        if let Some(status) = self.status.take().or_else(|| group.reap()) {
            return Some(status);
        }
        let patience = Duration::from_millis(limits::PROGRAM_EXIT_MILLISECONDS);
        match pidfd_open(group.leader, PidfdFlags::empty()).map(sys::async_readable) {
            Ok(Ok(ending)) => {
                let _ = timeout(patience, ending.readable()).await;
            }
            // Before Linux 5.3 there is only to look again.
            _ => tokio::time::sleep(patience / 10).await,
        }
        group.reap()
    }
}

impl Transport for ProcessTransport {
    const NAME: &'static str = "script";

    fn poll_side_io(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_said(cx);
        self.input.poll(cx)
    }

    fn waits_for_client(&self) -> bool {
        self.input
            .reader
            .as_ref()
            .is_some_and(RatedBody::is_awaited)
    }

    fn is_stalled_by_client(&mut self) -> bool {
        self.input
            .reader
            .as_ref()
            .is_some_and(RatedBody::is_dripping)
            && self.group.slot.as_mut().is_some_and(CallSlot::give_way)
    }

    fn slot(&mut self) -> Option<&mut CallSlot> {
        self.group.slot.as_mut()
    }

    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
        if self.input.is_lost {
            return Poll::Ready(0);
        }
        let Some(stdout) = &mut self.stdout else {
            return Poll::Ready(0);
        };
        if let Poll::Ready(read) = poll_read(stdout, cx, into) {
            self.left.has_come = true;
            return Poll::Ready(read);
        }
        ready!(self.left.poll(cx, self.group.leader));
        // What came just now isn't known to the runtime yet.
        if let Ok(read) = rustix::io::read(&*stdout, &mut *into) {
            self.left.has_come = true;
            return Poll::Ready(read);
        }
        log::warn!(
            "{}: script: it has ended, but a child kept its output open; it is no longer waited for",
            self.said.about()
        );
        self.left.is_given_up = true;
        self.stdout = None;
        self.status = self.group.reap();
        Poll::Ready(0)
    }

    async fn ended(&mut self) -> TransportEnd {
        if self.input.is_lost {
            return TransportEnd::Broken(Reject::BODY_NOT_KEPT, BODY_LOST.to_owned());
        }
        let status = self.exit().await;
        // What it said last is there by now.
        self.poll_said(&mut Context::from_waker(Waker::noop()));
        self.said.flush();
        match status {
            Some(Ok(status)) if status.exit_status() == Some(0) => TransportEnd::Well,
            // What was sent may be anything but whole.
            Some(Ok(status)) if status.signaled() => {
                TransportEnd::Broken(Reject::SCRIPT_ENDED_EARLY, how(status))
            }
            Some(Ok(status)) => TransportEnd::Complaining(how(status)),
            // Somebody else has waited for it, so that nobody knows.
            Some(Err(error)) => TransportEnd::Broken(
                Reject::SCRIPT_ENDED_EARLY,
                format!("how it ended can't be known: {error}"),
            ),
            // It closed its output and goes on.
            None => TransportEnd::Well,
        }
    }

    fn may_be_truncated(&self) -> bool {
        self.left.is_given_up
    }

    fn finish_detached(mut self, patience: Duration) {
        self.group.leave(patience);
    }
}

fn how(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with {code}"),
        (_, Some(signal)) => format!("it was ended by signal {signal}"),
        _ => "it ended".to_owned(),
    }
}

/// Bytes read; 0 at the end, which an error is too.
fn poll_read(from: &mut Receiver, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
    let mut buffer = ReadBuf::new(into);
    match ready!(Pin::new(from).poll_read(cx, &mut buffer)) {
        Ok(()) => Poll::Ready(buffer.filled().len()),
        Err(_) => Poll::Ready(0),
    }
}

/// The request's body on its way to standard input.
struct StdinWriter {
    stdin: Option<Sender>,
    reader: Option<RatedBody>,
    chunk: Vec<u8>,
    /// Of what was gathered, while that is in `chunk`.
    share: Option<budget::BodyReservation>,
    at: usize,
    /// The body can't be read back from where it was kept.
    is_lost: bool,
}

impl StdinWriter {
    fn new(
        stdin: Option<OwnedFd>,
        body: Option<RequestBody>,
        patience: Duration,
    ) -> io::Result<StdinWriter> {
        let (ahead, share, rest) = match body {
            Some(body) => (body.ahead, body.share, body.rest),
            None => (Vec::new(), None, None),
        };
        Ok(StdinWriter {
            stdin: stdin.map(Sender::from_owned_fd_unchecked).transpose()?,
            reader: rest.map(|rest| RatedBody::new(rest, patience)),
            chunk: ahead,
            share,
            at: 0,
            is_lost: false,
        })
    }

    /// Moves what can be moved; has anything?
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        if self.is_lost {
            return has_moved;
        }
        while let Some(stdin) = &mut self.stdin {
            if self.at == self.chunk.len() {
                match self.share.take() {
                    Some(_) => self.chunk = Vec::new(),
                    None => self.chunk.clear(),
                }
                self.at = 0;
                let Some(reader) = &mut self.reader else {
                    self.stdin = None;
                    break;
                };
                match reader.poll_take(cx, &mut self.chunk, limits::PROGRAM_CHUNK_BYTES) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(PipeRead::Bytes(_))) => {}
                    Poll::Ready(Err(_)) if reader.is_kept() => {
                        self.is_lost = true;
                        break;
                    }
                    // Broken off or whole: who promised more than came is known by the driver.
                    Poll::Ready(Ok(PipeRead::End) | Err(_)) => {
                        self.reader = None;
                        continue;
                    }
                }
            }
            match Pin::new(stdin).poll_write(cx, &self.chunk[self.at..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) => {
                    self.at += written;
                    has_moved = true;
                }
                Poll::Ready(Err(_)) => {
                    // It wants no more of it, and so nobody does.
                    self.reader = None;
                    self.stdin = None;
                }
            }
        }
        has_moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_program_has_started_before_it_was_bounded_is_bounded_too() {
        // Two shells in one another: the inner one is asked for its bound once both have it.
        let mut program = Command::new("/bin/sh")
            .args(["-c", "sh -c 'echo begun; read go; ulimit -t'; :"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(program.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "begun");
        bound(Pid::from_child(&program), Resource::Cpu, 1_234).unwrap();
        program.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "1234");
        assert!(program.wait().unwrap().success());
    }
}
