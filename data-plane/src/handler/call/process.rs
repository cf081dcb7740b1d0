//! Running a program for a request, as CGI defines (RFC 3875): the program is started, receives the request
//! body while its output is read, and ends in every case together with all processes of its group.
//!
//! The module is not a handler. Callers such as [`crate::handler::script::cgi`] choose the program and its
//! environment. Looking up and starting a program may block on the disk, so a thread pool does both.

use crate::handler::call::body::request_body::{BodyReader, RequestBody};
use crate::handler::call::body::spool::BodySpool;
use crate::handler::call::reaper::{Reaper, reap};
use crate::handler::call::request::{LocalRequestParts, ScriptRequest};
use crate::handler::call::script_call::{
    BODY_LOST, CallLimits, ScriptCall, Transport, TransportEnd,
};
use crate::handler::call::stderr::StderrLog;
use crate::handler::pipe::PipeRead;
use crate::handler::{HandlerError, Response};
use crate::ledger::admission::{AdmissionControl, CallSlot, WorkStart};
use crate::ledger::body_memory::BodyReservation;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits;
use base::sys;
use base::thread_pool::{ThreadPool, ThreadPoolError};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitStatus, pidfd_open, waitid};
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
use wire::cgi::Environment;
use wire::reject::Reject;

/// Starter of programs for requests. Bounds the number of running programs and waits for their end.
pub struct ProcessRunner {
    slots: Arc<AdmissionControl>,
    spool: Arc<BodySpool>,
    reaper: Arc<Reaper>,
    pool: ThreadPool,
}

/// File, arguments, environment and limits of a program.
pub struct ProcessSpec {
    /// Absolute path of the executable.
    pub file: CString,
    /// Program name and arguments, each followed by a NUL.
    pub arguments: Vec<u8>,
    /// Complete environment of the program.
    pub variables: Environment,
    /// Working directory.
    pub folder: CString,
    /// Time for cleaning up after the call is dropped: standard input is closed, and SIGTERM follows after
    /// the grace. With zero, SIGTERM is sent at once.
    pub grace: Duration,
    /// Limits of the program and of each process that it starts.
    pub limits: sys::ResourceLimits,
}

impl ProcessRunner {
    /// Makes a runner with `max` slots, which spools request bodies in `folder`. Refusals for a client's
    /// share are counted in `refusals`.
    pub fn new(max: usize, folder: &Path, refusals: &Arc<RefusalCounters>) -> ProcessRunner {
        let slots = AdmissionControl::new(max, WorkStart::AtOnce, SharedLimit::Calls, refusals);
        ProcessRunner {
            slots: Arc::new(slots),
            spool: Arc::new(BodySpool::new(folder, refusals)),
            reaper: Arc::default(),
            pool: ThreadPool::new("anthill-spawn", limits::PROGRAM_THREADS, SPAWN_QUEUE_MAX),
        }
    }

    /// Sets the number of slots to `max`.
    pub fn resize(&self, max: usize) {
        self.slots.resize(max);
    }

    /// Returns the spool for bodies of unknown length, which backends use too.
    pub fn spool(&self) -> &Arc<BodySpool> {
        &self.spool
    }

    /// Ends all programs and waits for their exit. Blocks, for a few seconds at most.
    pub fn finish(&self) {
        self.reaper.finish();
    }

    /// Runs the program found by `find` and returns the program's response. `find` may block.
    pub async fn run(
        &self,
        request: Arc<ScriptRequest>,
        local: LocalRequestParts,
        bounds: CallLimits,
        find: FindProcessFn,
    ) -> Result<Response, HandlerError> {
        let call = self.start(&request, local.body, bounds, find).await?;
        let call = call.with_memory(local.memory);
        call.answer(local.subrequests).await
    }

    /// Runs `look`, which may block, on the thread pool. No program is started.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, HandlerError> + Send + 'static,
    ) -> Result<T, HandlerError> {
        self.pool.run(look).await.map_err(pool_error)?
    }

    /// Starts the program found by `find`, which may block, after a wait for a slot.
    pub async fn start(
        &self,
        request: &Arc<ScriptRequest>,
        mut body: Option<RequestBody>,
        bounds: CallLimits,
        find: FindProcessFn,
    ) -> Result<Box<ScriptCall<ProcessTransport>>, HandlerError> {
        let patience = Duration::from_secs(limits::CALL_QUEUE_SECONDS);
        let is_streamed = body.as_ref().is_some_and(RequestBody::is_streamed);
        let client = request.peer.into();
        let slot = self
            .slots
            .enter_with_body(client, is_streamed, bounds.queue, patience);
        let slot = RequestBody::queued(&mut body, slot).await;
        let slot = slot.map_err(|refused| HandlerError::new("script", refused.into()))?;
        let (reaper, for_job) = (Arc::clone(&self.reaper), Arc::clone(request));
        let has_body = body.is_some();
        let started = self.pool.run(move || {
            let spec = find(&for_job)?;
            SpawnedProcess::new(&spec, has_body, reaper, slot)
                .map_err(|error| start_error(&for_job, &spec, &error))
        });
        let started = started.await.map_err(pool_error)??;
        let failed = |error: io::Error| {
            let why = format!("{}: {error}", request.line());
            HandlerError::because("script", Reject::SCRIPT_NOT_STARTED, why)
        };
        let running =
            ProcessTransport::new(started, body, bounds.patience, request).map_err(failed)?;
        Ok(ScriptCall::new(running, request, bounds))
    }
}

/// A function that finds the program for a request. The function is boxed so that all callers share one
/// copy of the code that starts programs.
pub type FindProcessFn =
    Box<dyn FnOnce(&ScriptRequest) -> Result<ProcessSpec, HandlerError> + Send>;

/// Returns the search path for programs: `PATH` of the server's environment, or the usual folders if `PATH`
/// is not set.
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Length of the pool's queue of starts. Never reached, because the limit on calls is far lower.
const SPAWN_QUEUE_MAX: usize = 4_096;

/// Converts an error of the thread pool into an error response.
fn pool_error(error: ThreadPoolError) -> HandlerError {
    let reject = match error {
        ThreadPoolError::Busy => Reject::CALLS_BUSY,
        ThreadPoolError::Failed => Reject::HANDLER_FAILED,
    };
    HandlerError::new("script", reject)
}

/// Converts a failed start into an error response with a reason for the log.
fn start_error(request: &ScriptRequest, spec: &ProcessSpec, error: &io::Error) -> HandlerError {
    let program = spec.file.to_string_lossy();
    let (reject, what) = match error.raw_os_error() {
        Some(libc::EACCES) => (
            Reject::SCRIPT_NOT_EXECUTABLE,
            format!(
                "{program} can't be executed: run chmod +x on the file, and let the server enter the folder"
            ),
        ),
        Some(libc::ENOENT | libc::ENOTDIR) => (
            Reject::SCRIPT_NOT_STARTED,
            format!("{program}: the interpreter named in the first line (#!) is missing"),
        ),
        Some(libc::ENOEXEC) => (
            Reject::SCRIPT_NOT_STARTED,
            format!("{program} is not a program: the first line of a script begins with #!"),
        ),
        Some(libc::ETXTBSY) => (Reject::CHANGING, format!("{program} is being written")),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            (Reject::CALLS_BUSY, format!("{program}: {error}"))
        }
        _ => (Reject::SCRIPT_NOT_STARTED, format!("{program}: {error}")),
    };
    HandlerError::because("script", reject, format!("{}: {what}", request.line()))
}

/// A started program, with the server's ends of the three pipes.
struct SpawnedProcess {
    group: ProcessGroup,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl SpawnedProcess {
    fn new(
        spec: &ProcessSpec,
        has_body: bool,
        reaper: Arc<Reaper>,
        slot: CallSlot,
    ) -> io::Result<SpawnedProcess> {
        let (ours_in, theirs_in) = if has_body {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(ours), theirs)
        } else {
            let null = rustix::fs::openat(
                CWD,
                "/dev/null",
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            (None, null)
        };
        let (stdout, theirs_out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, theirs_err) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only the server's ends are non-blocking: programs don't expect EAGAIN.
        for ours in ours_in.iter().chain([&stdout, &stderr]) {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let program = sys::SpawnOptions {
            file: &spec.file,
            arguments: &spec.arguments,
            variables: spec.variables.as_bytes(),
            folder: &spec.folder,
            standard: [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()],
            limits: spec.limits,
        };
        let leader = reaper.start(|| spawn(&program))?;
        let group = ProcessGroup {
            leader,
            reaper,
            slot: Some(slot),
            is_handed_over: false,
            grace: spec.grace,
        };
        Ok(SpawnedProcess {
            group,
            stdin: ours_in,
            stdout,
            stderr,
        })
    }
}

/// Starts a program. Tries again after ETXTBSY, since the writer of the file may close the file soon.
fn spawn(program: &sys::SpawnOptions<'_>) -> io::Result<Pid> {
    for _ in 0..TEXT_BUSY_ATTEMPTS {
        match sys::spawn(program) {
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
                std::thread::sleep(TEXT_BUSY_PAUSE);
            }
            other => return other,
        }
    }
    sys::spawn(program)
}

const TEXT_BUSY_ATTEMPTS: u32 = 5;
const TEXT_BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Process group of a program. Dropping the value before the program's exit ends the group.
struct ProcessGroup {
    leader: Pid,
    reaper: Arc<Reaper>,
    slot: Option<CallSlot>,
    /// True if the reaper ends the group, so that the drop has nothing to do.
    is_handed_over: bool,
    grace: Duration,
}

impl ProcessGroup {
    /// Returns the exit status once the program has ended, and ends the rest of the group.
    fn reap(&mut self) -> Option<io::Result<WaitStatus>> {
        let status = match reap(self.leader) {
            Ok(None) => return None,
            Ok(Some(status)) => Ok(status),
            Err(error) => Err(error),
        };
        self.is_handed_over = true;
        self.reaper.end_rest(self.leader, self.slot.take());
        Some(status)
    }

    /// Hands a running program over to the reaper. The program may end on its own within `time_max`.
    fn hand_over(&mut self, time_max: Duration) {
        if !self.is_handed_over && self.reap().is_none() {
            self.is_handed_over = true;
            let until = Instant::now() + time_max;
            self.reaper.end_later(self.leader, until, self.slot.take());
        }
    }

    /// Hands a running program over to the reaper, with the grace to clean up. The unread `pipes` stay
    /// open meanwhile: writing to a closed pipe would kill the program with SIGPIPE.
    fn give_grace(&mut self, pipes: Vec<OwnedFd>) {
        if !self.is_handed_over && self.reap().is_none() {
            self.is_handed_over = true;
            let until = Instant::now() + self.grace;
            let slot = self.slot.take();
            self.reaper.end_gently(self.leader, until, slot, pipes);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_handed_over {
            self.reaper.end(self.leader, self.slot.take());
        }
    }
}

/// Connection of a call to a running program.
pub struct ProcessTransport {
    // Declared before the pipes, so that a dropped call sends SIGTERM before the pipes are closed.
    group: ProcessGroup,
    input: StdinWriter,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    stderr_log: StderrLog,
    orphan_watch: OrphanWatch,
    /// Exit status, if known before the end of the output.
    status: Option<io::Result<WaitStatus>>,
}

/// Watch for a program that has ended while a descendant keeps the output open. The program is checked only
/// while no output arrives, since end of file reports most exits.
#[derive(Default)]
struct OrphanWatch {
    /// Timer of the next check.
    timer: Option<Pin<Box<Sleep>>>,
    /// Output has arrived since the last check.
    has_come: bool,
    /// The program had ended at the last check.
    had_ended: bool,
    /// The server no longer waits for the output.
    is_given_up: bool,
}

impl OrphanWatch {
    /// Becomes ready when the program has ended and no output has arrived for a whole interval since.
    fn poll(&mut self, cx: &mut Context<'_>, leader: Pid) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep(ORPHAN_OUTPUT_PAUSE)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + ORPHAN_OUTPUT_PAUSE);
            let had_ended = std::mem::replace(&mut self.had_ended, has_ended(leader));
            if !std::mem::take(&mut self.has_come) && had_ended {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Returns true if the process has ended. The process is not reaped, so the kernel can't reuse its number.
fn has_ended(leader: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(leader), look), Ok(Some(_)))
}

const ORPHAN_OUTPUT_PAUSE: Duration = Duration::from_secs(limits::ORPHAN_OUTPUT_PAUSE_SECONDS_MAX);

impl Drop for ProcessTransport {
    fn drop(&mut self) {
        if self.group.is_handed_over || self.group.grace.is_zero() {
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
        request: &Arc<ScriptRequest>,
    ) -> io::Result<ProcessTransport> {
        Ok(ProcessTransport {
            input: StdinWriter::new(started.stdin, body, patience)?,
            stdout: Some(Receiver::from_owned_fd_unchecked(started.stdout)?),
            stderr: Some(Receiver::from_owned_fd_unchecked(started.stderr)?),
            group: started.group,
            stderr_log: StderrLog::new(request),
            orphan_watch: OrphanWatch::default(),
            status: None,
        })
    }

    fn poll_stderr(&mut self, cx: &mut Context<'_>) {
        let mut buffer = [0; 1_024];
        while let Some(stderr) = &mut self.stderr {
            match poll_read(stderr, cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(0) => self.stderr = None,
                Poll::Ready(read) => self.stderr_log.take(&buffer[..read]),
            }
        }
    }

    /// Returns the exit status if the program ends within a short time.
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
            // Linux before 5.3 has no pidfd, so the status is polled once after a pause.
            _ => tokio::time::sleep(patience / 10).await,
        }
        group.reap()
    }
}

impl Transport for ProcessTransport {
    const NAME: &'static str = "script";

    fn poll_side_io(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_stderr(cx);
        self.input.poll(cx)
    }

    fn waits_for_client(&self) -> bool {
        self.input
            .reader
            .as_ref()
            .is_some_and(BodyReader::is_awaited)
    }

    fn is_stalled_by_client(&mut self) -> bool {
        let slot = self.group.slot.as_mut();
        let reader = self.input.reader.as_ref();
        reader.is_some_and(|reader| reader.is_slot_promised(slot))
    }

    fn slot(&mut self) -> Option<&mut CallSlot> {
        self.group.slot.as_mut()
    }

    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
        if self.input.is_body_lost {
            return Poll::Ready(0);
        }
        let Some(stdout) = &mut self.stdout else {
            return Poll::Ready(0);
        };
        if let Poll::Ready(read) = poll_read(stdout, cx, into) {
            self.orphan_watch.has_come = true;
            return Poll::Ready(read);
        }
        ready!(self.orphan_watch.poll(cx, self.group.leader));
        // A direct read: the runtime may not yet have reported output of the last moment.
        if let Ok(read) = rustix::io::read(&*stdout, &mut *into) {
            self.orphan_watch.has_come = true;
            return Poll::Ready(read);
        }
        log::warn!(
            "{}: script: the script has ended, but a child process keeps the output open; the server stops reading the output",
            self.stderr_log.about()
        );
        self.orphan_watch.is_given_up = true;
        self.stdout = None;
        self.status = self.group.reap();
        Poll::Ready(0)
    }

    async fn ended(&mut self) -> TransportEnd {
        if self.input.is_body_lost {
            return TransportEnd::Aborted(Reject::BODY_NOT_KEPT, BODY_LOST.to_owned());
        }
        let status = self.exit().await;
        // The program has ended, so its last message has arrived in the pipe.
        self.poll_stderr(&mut Context::from_waker(Waker::noop()));
        self.stderr_log.flush();
        match status {
            Some(Ok(status)) if status.exit_status() == Some(0) => TransportEnd::Success,
            // After a fatal signal, the response may be incomplete.
            Some(Ok(status)) if status.signaled() => {
                TransportEnd::Aborted(Reject::SCRIPT_ENDED_EARLY, describe_exit(status))
            }
            Some(Ok(status)) => TransportEnd::Failure(describe_exit(status)),
            // Another waiter has reaped the process, and the status is lost.
            Some(Err(error)) => TransportEnd::Aborted(
                Reject::SCRIPT_ENDED_EARLY,
                format!("the exit status is unknown: {error}"),
            ),
            // The program has closed its output but keeps running.
            None => TransportEnd::Success,
        }
    }

    fn may_be_truncated(&self) -> bool {
        self.orphan_watch.is_given_up
    }

    fn finish_detached(mut self, time_max: Duration) {
        self.group.hand_over(time_max);
    }
}

fn describe_exit(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => format!("ended by signal {signal}"),
        _ => "ended without an exit status".to_owned(),
    }
}

/// Reads into `into` and returns the number of bytes. Both end of file and an error return 0.
fn poll_read(from: &mut Receiver, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
    let mut buffer = ReadBuf::new(into);
    match ready!(Pin::new(from).poll_read(cx, &mut buffer)) {
        Ok(()) => Poll::Ready(buffer.filled().len()),
        Err(_) => Poll::Ready(0),
    }
}

/// Writer of the request body to standard input.
struct StdinWriter {
    stdin: Option<Sender>,
    reader: Option<BodyReader>,
    chunk: Vec<u8>,
    /// Memory of the beginning of the body, held while the beginning is in `chunk`.
    reservation: Option<BodyReservation>,
    at: usize,
    /// The spooled body can't be read back.
    is_body_lost: bool,
}

impl StdinWriter {
    fn new(
        stdin: Option<OwnedFd>,
        body: Option<RequestBody>,
        patience: Duration,
    ) -> io::Result<StdinWriter> {
        let (chunk, reservation, rest) = match body {
            Some(body) => (body.first_part, body.reservation, body.rest),
            None => (Vec::new(), None, None),
        };
        Ok(StdinWriter {
            stdin: stdin.map(Sender::from_owned_fd_unchecked).transpose()?,
            reader: rest.map(|rest| BodyReader::new(rest, patience)),
            chunk,
            reservation,
            at: 0,
            is_body_lost: false,
        })
    }

    /// Moves bytes of the body as far as possible. Returns true if any bytes were written.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        if self.is_body_lost {
            return has_moved;
        }
        while let Some(stdin) = &mut self.stdin {
            if self.at == self.chunk.len() {
                match self.reservation.take() {
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
                    Poll::Ready(Err(_)) if reader.is_spooled() => {
                        self.is_body_lost = true;
                        break;
                    }
                    // The body is complete or aborted. The connection's driver compares the length
                    // with Content-Length.
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
                    // The program has closed its input, so the rest of the body isn't needed.
                    self.reader = None;
                    self.stdin = None;
                }
            }
        }
        has_moved
    }
}
