//! The control socket: `reload`, `status` and `stop` come through it, one line each, from whoever
//! may open it (mode 0600).

use super::plane::{Outcome, Plane};
use crate::config::{Config, OperatorError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// A question is one short line.
const QUESTION_BYTES_MAX: usize = 256;
/// Whoever connects and says nothing holds the control thread no longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

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

/// Listens; a stale file of a server that was killed is replaced.
pub(super) fn listen(config: &Config) -> Result<UnixListener, OperatorError> {
    let control = &config.server.control;
    let path = control.get_ref();
    bind(path).map_err(|error| {
        let what = format!(
            "the control socket {} can't be made: {error}",
            path.display()
        );
        config.point(
            control.span(),
            what,
            "a path in a folder that the server may write to, at most 107 bytes long",
        )
    })
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        crate::config::prepare_folder(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Takes the socket's file away.
pub(super) fn remove(config: &Config) {
    // It is replaced at the next start anyway.
    let _ = std::fs::remove_file(config.server.control.get_ref());
}

/// Answers one question; true when it was to stop.
pub(super) async fn answer(plane: &mut Plane, mut stream: UnixStream) -> bool {
    let Ok(Some(question)) = tokio::time::timeout(PATIENCE, question(&mut stream)).await else {
        return false;
    };
    let reply = match plane.command(question.trim()).await {
        Outcome::Text(text) => format!("ok\n{text}"),
        Outcome::Error(text) => format!("error\n{text}"),
        Outcome::Stop => {
            // Who asked waits for the end of the connection, which is the end of the server.
            plane.stopping_for(stream);
            return true;
        }
    };
    // Somebody who doesn't read their answer must not hold up the control thread.
    let _ = tokio::time::timeout(PATIENCE, stream.write_all(reply.as_bytes())).await;
    false
}

async fn question(stream: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < QUESTION_BYTES_MAX {
        let mut bytes = [0; QUESTION_BYTES_MAX];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => break,
            Ok(read) => line.extend_from_slice(&bytes[..read]),
        }
    }
    let end = line.iter().position(|byte| *byte == b'\n')?;
    String::from_utf8(line[..end].to_vec()).ok()
}
