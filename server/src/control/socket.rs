//! The control socket: `reload`, `status`, `hits`, `purge` and `stop` come through it, one line each, from
//! whoever may open it (mode 0600).
//!
//! Questions are read and answers written by tasks of their own, so that nobody who is slow, or says
//! nothing at all, holds up the control plane.

use crate::config::{Config, OperatorError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// A question is one line, and the longest has a path in it.
const QUESTION_BYTES_MAX: usize = 8 * 1024;
/// Whoever asks has this long to do so, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Questions that may be on their way at the same time.
const ASKERS_MAX: usize = 16;
/// Pause after a connection couldn't be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket. Dropping it takes its file away.
pub(super) struct ControlSocket {
    path: PathBuf,
    listener: Option<std::os::unix::net::UnixListener>,
    questions: (UnboundedSender<Question>, UnboundedReceiver<Question>),
}

/// A question, and who waits for its answer.
pub(super) struct Question {
    pub(super) line: String,
    stream: UnixStream,
}

/// Refuses to start where another server with this configuration runs.
pub(super) fn refuse_second(config: &Config) -> Result<(), OperatorError> {
    let path = config.server.control.get_ref();
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let what = format!(
                "an anthill with this configuration is running already (it answers at {})",
                path.display()
            );
            let help =
                "`anthill reload` makes it read its configuration again, `anthill stop` ends it";
            Err(OperatorError::failure(what).help(help))
        }
        Err(_) => Ok(()),
    }
}

impl ControlSocket {
    /// Binds the socket; a stale file of a server that was killed is replaced. Nobody is answered
    /// before [`ControlSocket::open`].
    pub(super) fn bind(config: &Config) -> Result<ControlSocket, OperatorError> {
        let control = &config.server.control;
        let path = control.get_ref();
        let listener = bind(path).map_err(|error| {
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
        Ok(ControlSocket {
            path: path.clone(),
            listener: Some(listener),
            questions: mpsc::unbounded_channel(),
        })
    }

    /// Begins to take questions, on the runtime of this thread.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if let Some(listener) = self.listener.take() {
            let listener = UnixListener::from_std(listener)?;
            tokio::spawn(accept(listener, self.questions.0.clone()));
        }
        Ok(())
    }

    /// Waits for the next question.
    pub(super) async fn question(&mut self) -> Question {
        match self.questions.1.recv().await {
            Some(question) => question,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It is replaced at the next start anyway.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Question {
    /// Sends the answer: `ok` or `error`, and text for whoever asked.
    pub(super) fn answer(self, outcome: Result<String, String>) {
        tokio::spawn(self.write(outcome));
    }

    /// The same, done when it is sent.
    pub(super) async fn write(mut self, outcome: Result<String, String>) {
        let (word, text) = match &outcome {
            Ok(text) => ("ok", text),
            Err(text) => ("error", text),
        };
        let answer = format!("{word}\n{text}");
        let _ = tokio::time::timeout(PATIENCE, self.stream.write_all(answer.as_bytes())).await;
    }
}

fn bind(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    if let Some(folder) = path.parent() {
        crate::config::prepare_folder(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn accept(listener: UnixListener, asked: UnboundedSender<Question>) {
    let places = Arc::new(Semaphore::new(ASKERS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let asked = asked.clone();
                tokio::spawn(async move {
                    if let Ok(Some(question)) = tokio::time::timeout(PATIENCE, read(stream)).await {
                        let _ = asked.send(question);
                    }
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn read(mut stream: UnixStream) -> Option<Question> {
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
    Some(Question { line, stream })
}
