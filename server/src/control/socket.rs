//! Control socket: takes the commands `reload`, `reopen`, `status`, `balancer`, `manager login`, `hits`, `purge` and
//! `stop`, one line each, from processes that may open the socket (mode 0600).
//!
//! Separate tasks read commands and write answers, so a slow or silent client doesn't delay the control
//! plane.

use crate::config::{Config, OperatorError, UnixAccount};
use base::task;
use base::trusted_path::{LastLink, MissingFolder, TrustedPath};
use rustix::fs::{AtFlags, FileType, Mode, fchmod, unlinkat};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

/// Maximum length of a command in bytes: one line, at most with a path.
const QUESTION_BYTES_MAX: usize = 8 * 1024;
/// Timeout of a client for sending the command, and for reading the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of commands being read at the same time.
const ASKERS_MAX: usize = 16;
/// Pause after a connection couldn't be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bound control socket. Dropping the value removes the file of the socket.
pub(super) struct ControlSocket {
    /// Path of the file with its device and inode; None without a file.
    file: Option<(TrustedPath, Option<FileIdentity>)>,
    listener: Option<std::os::unix::net::UnixListener>,
    /// Dropping the sender ends the task that accepts connections.
    accepting: Option<oneshot::Sender<()>>,
    questions: (
        UnboundedSender<ControlRequest>,
        UnboundedReceiver<ControlRequest>,
    ),
}

/// Device and inode of a file.
type FileIdentity = (u64, u64);

/// Returns the file at the path: a successor may have put its own socket in the place.
fn identity(way: &TrustedPath) -> Option<FileIdentity> {
    let file = way.stat().ok()??;
    #[allow(clippy::unnecessary_cast, reason = "some targets have other types")]
    Some((file.st_dev as u64, file.st_ino as u64))
}

/// Command of a client, with the connection for the answer.
pub(super) struct ControlRequest {
    pub(super) line: String,
    /// User of the client's process.
    pub(super) uid: Option<u32>,
    /// Number of the client's process.
    pub(super) process: Option<i32>,
    stream: UnixStream,
}

/// Fails if another server with the same configuration runs.
pub(super) fn refuse_second(config: &Config) -> Result<(), OperatorError> {
    let path = config.server.control.get_ref();
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let what = format!(
                "a server with this configuration is running already, with the control socket {}",
                path.display()
            );
            let help = "`anthill reload` loads a changed configuration, `anthill stop` stops the running server";
            Err(OperatorError::failure(what).help(help))
        }
        Err(_) => Ok(()),
    }
}

impl ControlSocket {
    /// Binds the socket, and replaces the stale file of a killed server. Clients get no answer before
    /// [`ControlSocket::open`].
    pub(super) fn bind(config: &Config) -> Result<ControlSocket, OperatorError> {
        let mut socket = ControlSocket::without_file();
        socket.take_path(config)?;
        Ok(socket)
    }

    /// Returns a socket that nobody can connect to.
    pub(super) fn without_file() -> ControlSocket {
        ControlSocket {
            file: None,
            listener: None,
            accepting: None,
            questions: mpsc::unbounded_channel(),
        }
    }

    /// Binds the path of the configuration, and replaces the file of an earlier server.
    pub(super) fn take_path(&mut self, config: &Config) -> Result<(), OperatorError> {
        let control = &config.server.control;
        let path = control.get_ref();
        let (listener, way) = bind(path).map_err(|error| {
            let what = format!(
                "the control socket {} can't be made: {error}",
                path.display()
            );
            config.point(
                control.span(),
                what,
                "a path in a folder that the server may write to, at most 107 bytes long",
            )
        })?;
        let identity = identity(&way);
        (self.listener, self.file) = (Some(listener), Some((way, identity)));
        Ok(())
    }

    /// Accepts no more connections, and leaves the path to a successor.
    pub(super) fn leave(&mut self) {
        (self.listener, self.file, self.accepting) = (None, None, None);
    }

    /// Starts reading commands, on the runtime of the calling thread.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if let Some(listener) = self.listener.take() {
            let listener = UnixListener::from_std(listener)?;
            let asked = self.questions.0.clone();
            let (accepting, ended) = oneshot::channel();
            self.accepting = Some(accepting);
            task::spawn(async move {
                tokio::select! {
                    () = accept(listener, asked) => {}
                    _ = ended => {}
                }
            });
        }
        Ok(())
    }

    /// Waits for the next command.
    pub(super) async fn next_request(&mut self) -> ControlRequest {
        match self.questions.1.recv().await {
            Some(question) => question,
            // Not reached: `self` holds a sender, so the channel never closes.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some((way, own)) = &self.file
            && identity(way) == *own
        {
            // An error is ignored, since the next start replaces the file.
            let _ = unlinkat(way.folder(), way.name(), AtFlags::empty());
        }
    }
}

impl AsFd for ControlRequest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl ControlRequest {
    /// Returns the name of the client for the history of edits.
    pub(super) fn user(&self) -> String {
        let name = self
            .uid
            .map_or_else(|| "?".to_owned(), UnixAccount::name_of);
        format!("{name} (control socket)")
    }

    /// Sends a question in a task: `ask` on the first line, and the text.
    pub(super) fn question(self, text: String) {
        task::spawn(self.send("ask", text));
    }

    /// Sends the answer in a task: `ok` or `error` on the first line, and the text of `outcome`.
    pub(super) fn answer(self, outcome: Result<String, String>) {
        task::spawn(self.write(outcome));
    }

    /// Sends the answer like [`ControlRequest::answer`], and returns when the answer is sent.
    pub(super) async fn write(self, outcome: Result<String, String>) {
        let (word, text) = match outcome {
            Ok(text) => ("ok", text),
            Err(text) => ("error", text),
        };
        self.send(word, text).await;
    }

    async fn send(mut self, word: &'static str, text: String) {
        let answer = format!("{word}\n{text}");
        let _ = tokio::time::timeout(PATIENCE, self.stream.write_all(answer.as_bytes())).await;
    }
}

/// Binds the socket at `path` in an open folder, with the mode set before the file appears. A later chmod
/// by path would let the owner of the folder redirect root to the mode of another file.
fn bind(path: &Path) -> io::Result<(std::os::unix::net::UnixListener, TrustedPath)> {
    if let Some(folder) = path.parent() {
        crate::config::prepare_folder(folder, None)?;
    }
    let way = TrustedPath::resolve(path, LastLink::Keep, MissingFolder::Fail)?;
    way.must_stay_with_its_folder()?.map_err(io::Error::other)?;
    if let Some(stale) = way.stat()? {
        if FileType::from_raw_mode(stale.st_mode) != FileType::Socket {
            return Err(io::Error::other("the path has a file that is not a socket"));
        }
        unlinkat(way.folder(), way.name(), AtFlags::empty())?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the mode of the socket at the time of bind (unix_bind_bsd() in the kernel).
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    // bind(2) takes no descriptor of a folder. A path below /proc/self/fd always leads to the open folder,
    // and is needed only if an account other than root controls a part of the path.
    let by_descriptor = || {
        let folder = way.folder().as_raw_fd();
        Path::new(&format!("/proc/self/fd/{folder}")).join(way.name())
    };
    let place = match way.must_be_controlled_by(0) {
        Ok(()) => path.to_owned(),
        Err(_) => by_descriptor(),
    };
    net::bind(&socket, &net::SocketAddrUnix::new(&place)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok((socket.into(), way))
}

/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;

/// Accepts connections without a pause. The client that has been silent for the longest time makes room for a
/// new client.
async fn accept(listener: UnixListener, asked: UnboundedSender<ControlRequest>) {
    // Dropping a sender ends the reading of a connection.
    let mut readings: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        readings.retain(|reading| !reading.is_closed());
        if readings.len() >= ASKERS_MAX {
            readings.pop_front();
        }
        let (reading, replaced) = oneshot::channel();
        readings.push_back(reading);
        let asked = asked.clone();
        task::spawn(async move {
            tokio::select! {
                // A command that has arrived counts, also at the end of the client's turn.
                biased;
                question = tokio::time::timeout(PATIENCE, read(stream)) => {
                    if let Ok(Some(question)) = question {
                        let _ = asked.send(question);
                    }
                }
                _ = replaced => {}
            }
        });
    }
}

async fn read(mut stream: UnixStream) -> Option<ControlRequest> {
    let mut line = Vec::new();
    let end = loop {
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            break end;
        }
        if line.len() > QUESTION_BYTES_MAX {
            break QUESTION_BYTES_MAX;
        }
        let mut bytes = [0; 256];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => line.extend_from_slice(&bytes[..read]),
        }
    };
    let line = String::from_utf8_lossy(&line[..end]).trim().to_owned();
    let peer = stream.peer_cred().ok();
    Some(ControlRequest {
        line,
        uid: peer.map(|peer| peer.uid()),
        process: peer.and_then(|peer| peer.pid()),
        stream,
    })
}
