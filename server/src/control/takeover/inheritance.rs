//! The side of the successor.

use super::link::{self, AsyncLink};
use super::message::{Message, OpenConnections, PROTOCOL, ServerName};
use super::predecessors::Predecessors;
use super::support::RestartSupport;
use crate::admin::command::Command;
use crate::config::{Config, OperatorError};
use crate::control::limits::{
    SUCCESSOR_START_SECONDS_MAX, TAKEOVER_ANSWER_SECONDS_MAX, TAKEOVER_MESSAGES_MAX,
};
use base::sys;
use data_plane::serve::h3::QuicForward;
use rustix::event::PollFlags;
use rustix::net::sockopt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// What a successor gets from the running server.
pub(in crate::control) struct Inheritance {
    link: OwnedFd,
    from: ServerName,
    sockets: Vec<(String, OwnedFd)>,
    forwards: Vec<QuicForward>,
    formers: Vec<(ServerName, OwnedFd)>,
    _support: RestartSupport,
}

const ANSWER: Duration = Duration::from_secs(TAKEOVER_ANSWER_SECONDS_MAX);

impl Inheritance {
    /// Asks the server at the control socket of the configuration for its sockets.
    pub(in crate::control) fn request(config: &Config) -> Result<Inheritance, OperatorError> {
        RestartSupport::of_build()?;
        let path = config.server.control.get_ref();
        let stream = UnixStream::connect(path).map_err(|error| {
            let what = format!(
                "no server runs that could be replaced: {}: {error}",
                path.display()
            );
            OperatorError::failure(what).help("leave out --replace to start a server")
        })?;
        must_be_trusted(config, &stream)?;
        let link = ask_for_link(&stream).map_err(|failure| match failure {
            AskFailure::Refused(text) => refused(&text),
            AskFailure::Broken(error) => broken(&error),
        })?;
        Inheritance::over(link)
    }

    /// Receives everything over a link to the running server.
    pub(in crate::control) fn over(link: OwnedFd) -> Result<Inheritance, OperatorError> {
        let support = RestartSupport::of_build()?;
        let mut inheritance = match link::receive(link.as_fd(), ANSWER) {
            Ok((Message::Hello(from), _)) => Inheritance {
                link,
                from,
                sockets: Vec::new(),
                forwards: Vec::new(),
                formers: Vec::new(),
                _support: support,
            },
            Ok((Message::Refused(reason), _)) => return Err(refused(&reason)),
            Ok(_) => return Err(broken(&io::ErrorKind::InvalidData.into())),
            Err(error) => return Err(broken(&error)),
        };
        for _ in 0..TAKEOVER_MESSAGES_MAX {
            let received = link::receive(inheritance.link.as_fd(), ANSWER);
            let (message, passed) = received.map_err(|error| broken(&error))?;
            match message {
                Message::Sockets(name) => {
                    let named = passed.into_iter().map(|socket| (name.clone(), socket));
                    inheritance.sockets.extend(named);
                }
                Message::Forward {
                    address,
                    generation,
                } => {
                    let sockets = passed.into_iter();
                    inheritance
                        .forwards
                        .extend(sockets.map(|socket| QuicForward {
                            address,
                            generation,
                            socket,
                        }));
                }
                Message::Former(name) => {
                    let link = passed.into_iter().next();
                    inheritance
                        .formers
                        .extend(link.map(|link| (name.clone(), link)));
                }
                Message::Complete => return Ok(inheritance),
                Message::Refused(reason) => return Err(refused(&reason)),
                _ => break,
            }
        }
        Err(broken(&io::ErrorKind::InvalidData.into()))
    }

    /// Returns the listening sockets with their names.
    pub(in crate::control) fn take_sockets(&mut self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.sockets)
    }

    /// Returns the sockets for the packets of connections of other servers over HTTP/3.
    pub(in crate::control) fn take_forwards(&mut self) -> Vec<QuicForward> {
        std::mem::take(&mut self.forwards)
    }

    /// Asks the running server to pause, and returns when it has written its state. The value is for [`Yielded::serving`]. A
    /// running server that ends meanwhile leaves everything to the successor.
    pub(in crate::control) async fn ask_to_yield(self) -> Result<Yielded, OperatorError> {
        let link = AsyncLink::new(self.link).map_err(|error| broken(&error))?;
        // An ended server is noticed by the next receive.
        let _ = link.send_now(&Message::Yield);
        let is_gone = loop {
            match timeout(ANSWER, link.receive()).await {
                Ok(Ok((Message::Yielded, _))) => break false,
                Ok(Ok((Message::Refused(reason), _))) => return Err(refused(&reason)),
                Ok(Ok(_)) => {}
                Ok(Err(_)) => break true,
                Err(_) => return Err(broken(&io::ErrorKind::TimedOut.into())),
            }
        };
        if is_gone {
            log::warn!("process {} ended before it handed over", self.from.process);
        }
        Ok(Yielded {
            link,
            from: self.from,
            formers: self.formers,
        })
    }
}

/// Running server that has paused.
pub(in crate::control) struct Yielded {
    link: AsyncLink,
    from: ServerName,
    formers: Vec<(ServerName, OwnedFd)>,
}

impl Yielded {
    /// Tells the paused server that the successor serves, and returns the record of the servers that leave.
    pub(in crate::control) async fn serving(self) -> Result<Predecessors, OperatorError> {
        let ServerName { version, process } = self.from.clone();
        let mut predecessors = Predecessors::default();
        for (name, link) in self.formers {
            let added = predecessors.add(name, link, OpenConnections::default());
            added.map_err(|error| broken(&error))?;
        }
        // An ended server is noticed by the next receive.
        let _ = self.link.send_now(&Message::Serving(ServerName::own()));
        let patience = Duration::from_secs(SUCCESSOR_START_SECONDS_MAX);
        let open = loop {
            match timeout(patience, self.link.receive()).await {
                Ok(Ok((Message::Connections(open), _))) => break open,
                Ok(Ok((Message::Refused(reason), _))) => return Err(refused(&reason)),
                Ok(Ok(_)) => {}
                // The other server has ended, and its connections with it.
                Ok(Err(_)) => return Ok(predecessors),
                Err(_) => return Err(broken(&io::ErrorKind::TimedOut.into())),
            }
        };
        log::info!(
            "this server has taken over; process {process} ({version}) keeps {} connections",
            open.all
        );
        let link = self.link.as_fd().try_clone_to_owned();
        let added = link.and_then(|link| predecessors.add(self.from, link, open));
        added.map_err(|error| broken(&error))?;
        predecessors.end_surplus();
        Ok(predecessors)
    }
}

enum AskFailure {
    /// The running server answered with a reason.
    Refused(String),
    Broken(io::Error),
}

/// Sends the command, and returns the link that the answer carries.
fn ask_for_link(stream: &UnixStream) -> Result<OwnedFd, AskFailure> {
    let failed = AskFailure::Broken;
    let until = Instant::now() + ANSWER;
    let command = format!("{}\n", Command::Replace(PROTOCOL));
    (&*stream).write_all(command.as_bytes()).map_err(failed)?;
    let mut text = Vec::new();
    loop {
        link::wait(stream.as_fd(), PollFlags::IN, until).map_err(failed)?;
        let mut bytes = [0; 1_024];
        match link::receive_text(stream.as_fd(), &mut bytes) {
            Ok((0, _)) => break,
            Ok((length, passed)) => {
                if let Some(link) = passed.into_iter().next() {
                    return Ok(link);
                }
                text.extend_from_slice(&bytes[..length]);
                if text.len() > ANSWER_BYTES_MAX {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(AskFailure::Broken(error)),
        }
    }
    let text = String::from_utf8_lossy(&text);
    match text.strip_prefix("error\n") {
        Some(reason) if reason.contains("unknown command") => Err(AskFailure::Refused(
            "the program is too old, or was built without takeover".to_owned(),
        )),
        Some(reason) => Err(AskFailure::Refused(reason.trim().to_owned())),
        None => Err(AskFailure::Broken(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Bytes of an answer that refuses the takeover, 8 KiB.
const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// Fails if neither root, nor the own account, nor the account of the configuration listens at the socket.
fn must_be_trusted(config: &Config, stream: &UnixStream) -> Result<(), OperatorError> {
    let uid = sockopt::socket_peercred(stream).map_err(|error| broken(&error.into()))?;
    let uid = uid.uid.as_raw();
    let user = config.server.user.as_ref();
    let account = user.and_then(|user| sys::lookup_user(user.get_ref()).ok().flatten());
    let is_trusted = uid == 0
        || uid == rustix::process::geteuid().as_raw()
        || account.is_some_and(|account| account.uid == uid);
    if is_trusted {
        return Ok(());
    }
    let what = format!(
        "the control socket {} belongs to user {uid}, who may not hand over sockets",
        config.server.control.get_ref().display()
    );
    Err(OperatorError::failure(what).help("`control` in [server] names the control socket"))
}

/// Returns the error for a running server that refuses to be replaced.
fn refused(reason: &str) -> OperatorError {
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let (reason, help) = reason.split_once("\nhelp: ").unwrap_or((reason, HELP));
    OperatorError::failure(format!("the running server stays in use: {reason}")).help(help)
}

const HELP: &str =
    "`anthill stop`, then `anthill serve` starts another program, with an outage of a moment";

fn broken(error: &io::Error) -> OperatorError {
    OperatorError::failure(format!(
        "the running server does not hand over, and stays in use: {error}"
    ))
    .help(HELP)
}
