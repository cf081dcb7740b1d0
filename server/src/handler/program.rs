//! A program run for one request, as CGI has it: started, fed with the request's body and read at the
//! same time, and ended with all that it started, whatever happens.
//!
//! No handler by itself: [`super::cgi`] and whoever else runs programs says which one, with which
//! variables. Finding and starting it happens on a pool, for both may wait for the disk.

use super::asked::{Asked, Here, Upload};
use super::pipe::{Broken, Reader, Taken, Writer, pipe};
use super::reaper::{Reaper, reap};
use super::slots::{Slot, Slots};
use super::{Body, Fault, Inside, Response};
use crate::base::pool::{Gone, Pool};
use crate::base::sys;
use crate::limits;
use crate::wire::cgi::{Answer, Document, Variables, Wrong};
use crate::wire::head::Method;
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitStatus, pidfd_open};
use std::borrow::Cow;
use std::ffi::CString;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The ledger of programs that run for requests: how many may, and who waits for their end.
pub struct Programs {
    slots: Arc<Slots>,
    reaper: Arc<Reaper>,
    pool: Pool,
}

/// The bounds of one call.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Calls that may wait for their turn.
    pub queue: usize,
    /// So long nothing may move, unless it is the client that is waited for.
    pub silent: Duration,
    /// The whole call.
    pub whole: Duration,
    /// Of the response's body.
    pub output_bytes: u64,
}

/// A program to be run.
pub struct Order {
    /// Its file, absolute.
    pub file: CString,
    /// Its name and arguments, each with a NUL behind it.
    pub arguments: Vec<u8>,
    /// All that is in its environment.
    pub variables: Variables,
    /// The folder that it stands in.
    pub folder: CString,
}

impl Programs {
    /// With so many places.
    pub fn new(max: usize) -> Programs {
        Programs {
            slots: Arc::new(Slots::new(max)),
            reaper: Arc::default(),
            pool: Pool::new("anthill-spawn", limits::PROGRAM_THREADS, SPAWN_QUEUE_MAX),
        }
    }

    /// From now on with so many places.
    pub fn resize(&self, max: usize) {
        self.slots.resize(max);
    }

    /// Waits for the end of programs that no call wants any more; blocks, for a few seconds at most.
    pub fn finish(&self) {
        self.reaper.finish();
    }

    /// Runs the program that `find` names, which may block, and answers with what it says.
    pub async fn run<F>(
        &self,
        asked: Arc<Asked>,
        here: Here,
        bounds: Bounds,
        find: F,
    ) -> Result<Response, Fault>
    where
        F: FnOnce(&Asked) -> Result<Order, Fault> + Send + 'static,
    {
        let patience = Duration::from_secs(limits::CALL_QUEUE_SECONDS);
        let slot = self.slots.enter(bounds.queue, patience).await;
        let slot = slot.map_err(|_| Fault::new("script", Reject::CALLS_BUSY))?;
        let (reaper, for_job) = (Arc::clone(&self.reaper), Arc::clone(&asked));
        let has_body = here.body.is_some();
        let started = self.pool.run(move || {
            let order = find(&for_job)?;
            Started::new(&order, has_body, reaper, slot)
                .map_err(|error| not_started(&for_job, &order, &error))
        });
        let started = started.await.map_err(|gone| match gone {
            Gone::Busy => Fault::new("script", Reject::CALLS_BUSY),
            Gone::Failed => Fault::new("script", Reject::HANDLER_FAILED),
        })??;
        let failed = |error: io::Error| {
            let why = format!("{}: {error}", asked.line());
            Fault::because("script", Reject::SCRIPT_NOT_STARTED, why)
        };
        let running = Running::new(started, here.body, &asked, bounds).map_err(failed)?;
        running.answer(asked, here.inside).await
    }
}

/// More calls than this never wait for a start: `queue` bounds them long before.
const SPAWN_QUEUE_MAX: usize = 4_096;

/// Why a program wasn't started, as an answer and for the log.
fn not_started(asked: &Asked, order: &Order, error: &io::Error) -> Fault {
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
    Fault::because("script", reject, format!("{}: {what}", asked.line()))
}

/// A program that was started, with our ends of its pipes.
struct Started {
    group: Group,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Started {
    fn new(order: &Order, has_body: bool, reaper: Arc<Reaper>, slot: Slot) -> io::Result<Started> {
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
        let leader = spawn(&sys::Program {
            file: &order.file,
            arguments: &order.arguments,
            variables: order.variables.as_bytes(),
            folder: &order.folder,
            standard: [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()],
        })?;
        Ok(Started {
            group: Group {
                leader,
                reaper,
                slot: Some(slot),
                is_left: false,
            },
            stdin: ours_in,
            stdout,
            stderr,
        })
    }
}

/// Starts a program; one that is just being written may be ready in a moment.
fn spawn(program: &sys::Program<'_>) -> io::Result<Pid> {
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

const BEING_WRITTEN_LOOKS: u32 = 5;
const BEING_WRITTEN_PAUSE: Duration = Duration::from_millis(10);

/// A program and all that it started. Dropped before it has ended, it is ended.
struct Group {
    leader: Pid,
    reaper: Arc<Reaper>,
    slot: Option<Slot>,
    is_left: bool,
}

impl Group {
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

    /// Lets it end by itself for a while.
    fn leave(mut self, patience: Duration) {
        if self.reap().is_none() {
            self.is_left = true;
            let until = std::time::Instant::now() + patience;
            self.reaper.end_later(self.leader, until, self.slot.take());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_left {
            self.reaper.end(self.leader, self.slot.take());
        }
    }
}

/// A program at work for a request.
struct Running {
    // Before its pipes, so that it is told to end before it finds them closed.
    group: Option<Group>,
    line: String,
    input: Input,
    stdout: Receiver,
    said: Said,
    scratch: Box<[u8]>,
    /// What was read and is no part of the head, or not known to be.
    read: Vec<u8>,
    bounds: Bounds,
    started: Instant,
    /// When something last moved.
    moved: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What came of waiting for a head.
enum Begun {
    Answer(Answer),
    Wrong(Wrong),
    Ended,
    Late,
}

/// What came of the body.
enum Done {
    Ended,
    /// Nobody wants it any more.
    Unwanted,
    Late,
    TooLong,
}

impl Running {
    fn new(
        started: Started,
        body: Option<Upload>,
        asked: &Asked,
        bounds: Bounds,
    ) -> io::Result<Running> {
        let now = Instant::now();
        let line = asked.line();
        let due = now + bounds.silent.min(bounds.whole);
        Ok(Running {
            input: Input::new(started.stdin, body)?,
            stdout: Receiver::from_owned_fd_unchecked(started.stdout)?,
            said: Said::new(Receiver::from_owned_fd_unchecked(started.stderr)?, &line),
            group: Some(started.group),
            line,
            scratch: vec![0; limits::PROGRAM_CHUNK_BYTES].into(),
            read: Vec::new(),
            bounds,
            started: now,
            moved: now,
            timer: Box::pin(sleep_until(due)),
        })
    }

    /// Waits for the head of the answer, and makes a response of it.
    async fn answer(
        mut self,
        asked: Arc<Asked>,
        inside: Option<Rc<dyn Inside>>,
    ) -> Result<Response, Fault> {
        let mut scanned = 0;
        let begun = poll_fn(|cx| self.poll_head(cx, &mut scanned)).await;
        let (reject, why) = match begun {
            Begun::Answer(Answer::Document(document)) => return Ok(self.document(document, &asked)),
            Begun::Answer(Answer::Local(path)) => {
                let patience = self.bounds.silent;
                self.group
                    .take()
                    .into_iter()
                    .for_each(|it| it.leave(patience));
                return elsewhere(&asked, inside, path).await;
            }
            Begun::Wrong(Wrong::Malformed(why)) => (Reject::SCRIPT_HEAD_MALFORMED, why.to_owned()),
            Begun::Wrong(Wrong::TooLarge) => {
                (Reject::SCRIPT_HEAD_TOO_LARGE, "it has no end".to_owned())
            }
            Begun::Late => {
                let seconds = self.moved.elapsed().as_secs();
                (Reject::HANDLER_SLOW, format!("silent for {seconds} s"))
            }
            Begun::Ended => {
                let status = self.exit().await;
                let how = match status {
                    Some(Ok(status)) => ended(status),
                    _ => "it closed its output".to_owned(),
                };
                (Reject::SCRIPT_ENDED_EARLY, how)
            }
        };
        self.said.rest();
        let why = format!("{}: {why}", self.line);
        Err(Fault::because("script", reject, why))
    }

    fn document(mut self, document: Document, asked: &Asked) -> Response {
        let status = Status(document.status);
        let name = |(name, value)| (Cow::Owned(name), value);
        let fields = document.fields.into_iter().map(name).collect();
        let has_none = matches!(document.status, 204 | 304);
        if has_none || asked.method == Method::Head {
            // Nobody reads more of it, but what it has begun it may finish.
            let patience = self.bounds.silent;
            self.group
                .take()
                .into_iter()
                .for_each(|it| it.leave(patience));
            let (writer, reader) = pipe(1);
            writer.finish();
            let body = Body::Stream {
                length: document.length,
                reader,
                work: Box::pin(async {}),
            };
            return Response {
                status,
                fields,
                body,
            };
        }
        let (writer, reader) = pipe(limits::PIPE_BYTES);
        Response {
            status,
            fields,
            body: Body::Stream {
                length: document.length,
                reader,
                work: Box::pin(self.send(writer)),
            },
        }
    }

    /// Moves the body to its end.
    async fn send(mut self, mut writer: Writer) {
        let done = poll_fn(|cx| self.poll_body(cx, &mut writer)).await;
        let what = match done {
            Done::Unwanted => return,
            Done::Late => format!(
                "silent for {} s in its response",
                self.moved.elapsed().as_secs()
            ),
            Done::TooLong => format!("more than {} bytes of output", self.bounds.output_bytes),
            Done::Ended => match self.exit().await {
                // What was sent may be anything but whole.
                Some(Ok(status)) if status.signaled() => ended(status),
                status => {
                    writer.finish();
                    self.said.rest();
                    match status {
                        Some(Ok(status)) if status.exit_status() != Some(0) => {
                            log::warn!("{}: script: {}", self.line, ended(status));
                        }
                        Some(_) => {}
                        None => {
                            let patience = self.bounds.silent;
                            self.group
                                .take()
                                .into_iter()
                                .for_each(|it| it.leave(patience));
                        }
                    }
                    return;
                }
            },
        };
        self.said.rest();
        log::error!("{}: script: {what}; its response was broken off", self.line);
    }

    /// Reads until the head is whole.
    fn poll_head(&mut self, cx: &mut Context<'_>, scanned: &mut usize) -> Poll<Begun> {
        loop {
            self.poll_aside(cx);
            let read = match poll_read(&mut self.stdout, cx, &mut self.scratch) {
                Poll::Pending => {
                    return match self.poll_late(cx, true) {
                        Poll::Ready(()) => Poll::Ready(Begun::Late),
                        Poll::Pending => Poll::Pending,
                    };
                }
                Poll::Ready(0) => return Poll::Ready(Begun::Ended),
                Poll::Ready(read) => read,
            };
            self.moved = Instant::now();
            self.read.extend_from_slice(&self.scratch[..read]);
            match Answer::parse(&self.read, scanned) {
                Ok(None) => {}
                Ok(Some((answer, end))) => {
                    self.read.drain(..end);
                    return Poll::Ready(Begun::Answer(answer));
                }
                Err(wrong) => return Poll::Ready(Begun::Wrong(wrong)),
            }
        }
    }

    /// Moves output to the response's pipe.
    fn poll_body(&mut self, cx: &mut Context<'_>, writer: &mut Writer) -> Poll<Done> {
        let mut sent = 0;
        loop {
            self.poll_aside(cx);
            let room = match writer.poll_room(cx) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(Broken)) => return Poll::Ready(Done::Unwanted),
                Poll::Pending => {
                    // It is the client that is waited for, which has its own deadline.
                    return self.poll_late(cx, false).map(|()| Done::Late);
                }
            };
            if !self.read.is_empty() {
                let taken = writer.write_some(&self.read).unwrap_or(0);
                self.read.drain(..taken);
                sent += taken;
            } else {
                let part = room.min(self.scratch.len());
                match poll_read(&mut self.stdout, cx, &mut self.scratch[..part]) {
                    Poll::Pending => return self.poll_late(cx, true).map(|()| Done::Late),
                    Poll::Ready(0) => return Poll::Ready(Done::Ended),
                    Poll::Ready(read) => {
                        // There is room for it all.
                        let _ = writer.write_some(&self.scratch[..read]);
                        sent += read;
                    }
                }
            }
            self.moved = Instant::now();
            match self.bounds.output_bytes.checked_sub(sent as u64) {
                Some(left) if sent > 0 => self.bounds.output_bytes = left,
                Some(_) => {}
                None => return Poll::Ready(Done::TooLong),
            }
            sent = 0;
        }
    }

    /// What goes on beside the output: input, and words for the log.
    fn poll_aside(&mut self, cx: &mut Context<'_>) {
        if self.input.poll(cx) {
            self.moved = Instant::now();
        }
        self.said.poll(cx);
    }

    /// Ready when it takes too long.
    fn poll_late(&mut self, cx: &mut Context<'_>, is_its_turn: bool) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if !is_its_turn {
                self.moved = now;
            }
            let due = (self.moved + self.bounds.silent).min(self.started + self.bounds.whole);
            if due <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    /// How it ended, if it does so in a moment.
    async fn exit(&mut self) -> Option<io::Result<WaitStatus>> {
        let group = self.group.as_mut()?;
        if let Some(status) = group.reap() {
            return Some(status);
        }
        let patience = Duration::from_millis(limits::PROGRAM_EXIT_MILLISECONDS);
        match pidfd_open(group.leader, PidfdFlags::empty()).map(sys::readable) {
            Ok(Ok(ending)) => {
                let _ = timeout(patience, ending.readable()).await;
            }
            // Before Linux 5.3 there is only to look again.
            _ => tokio::time::sleep(patience / 10).await,
        }
        group.reap()
    }
}

/// Another page of this server instead.
async fn elsewhere(
    asked: &Asked,
    inside: Option<Rc<dyn Inside>>,
    path: Vec<u8>,
) -> Result<Response, Fault> {
    let Some(inside) = inside.filter(|_| asked.hops < limits::REDIRECTS_INSIDE_MAX) else {
        let why = format!("{} leads to itself", asked.line());
        return Err(Fault::because("script", Reject::REDIRECTED_TOO_OFTEN, why));
    };
    inside.ask(asked.question(path)).await
}

fn ended(status: WaitStatus) -> String {
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
struct Input {
    stdin: Option<Sender>,
    reader: Option<Reader>,
    chunk: Vec<u8>,
    at: usize,
}

impl Input {
    fn new(stdin: Option<OwnedFd>, body: Option<Upload>) -> io::Result<Input> {
        let (ahead, reader) = match body {
            Some(body) => (body.ahead, body.reader),
            None => (Vec::new(), None),
        };
        Ok(Input {
            stdin: stdin.map(Sender::from_owned_fd_unchecked).transpose()?,
            reader,
            chunk: ahead,
            at: 0,
        })
    }

    /// Moves what can be moved; has anything?
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Some(stdin) = &mut self.stdin {
            if self.at == self.chunk.len() {
                self.chunk.clear();
                self.at = 0;
                let Some(reader) = &mut self.reader else {
                    self.stdin = None;
                    break;
                };
                match reader.poll_take(cx, &mut self.chunk, limits::PROGRAM_CHUNK_BYTES) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(Taken::Bytes(_))) => {}
                    // Broken off or whole: who promised more than came is known by the driver.
                    Poll::Ready(Ok(Taken::End) | Err(_)) => {
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

/// What a program says on standard error, line by line into the log.
struct Said {
    stderr: Option<Receiver>,
    about: String,
    line: Vec<u8>,
    left: usize,
}

impl Said {
    fn new(stderr: Receiver, about: &str) -> Said {
        Said {
            stderr: Some(stderr),
            about: about.to_owned(),
            line: Vec::new(),
            left: limits::PROGRAM_SAID_BYTES_MAX,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        let mut buffer = [0; 1_024];
        while let Some(stderr) = &mut self.stderr {
            match poll_read(stderr, cx, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(0) => self.stderr = None,
                Poll::Ready(read) => self.take(&buffer[..read]),
            }
        }
    }

    /// What is there now, and then no more.
    fn rest(&mut self) {
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.flush();
        self.stderr = None;
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            if byte != b'\n' {
                self.line.push(byte);
            }
            if byte == b'\n' || self.line.len() == limits::PROGRAM_LINE_BYTES_MAX {
                self.flush();
            }
            if self.left == 0 {
                self.flush();
                log::warn!("{}: script said more than is logged", self.about);
            }
        }
    }

    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii_end();
        if !text.is_empty() {
            let text = String::from_utf8_lossy(text);
            log::warn!("{}: script said: {text}", self.about);
        }
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        self.flush();
    }
}
