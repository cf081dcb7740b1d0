//! The server's link to its supervisor, which starts successors.

use super::departure::Departing;
use super::link::AsyncLink;
use super::message::Message;
use super::predecessors::Predecessors;
use super::support::RestartSupport;
use crate::config::OperatorError;
use crate::control::publish::Publisher;
use crate::control::socket::ControlRequest;
use base::restarts::{SUCCESSOR_SOCKET, SUPERVISOR_SOCKET};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Link to the supervisor, and the operators that wait for a restart.
pub(in crate::control) struct Supervision {
    link: AsyncLink,
    waiting: Vec<ControlRequest>,
    _support: RestartSupport,
}

/// Event of the supervisor for the control plane.
pub(in crate::control) enum SupervisorEvent {
    /// A successor starts, with the link to it.
    Successor(OwnedFd),
    /// No successor starts or serves, for the reason.
    Refused(String),
    /// The supervisor has ended.
    Ended,
}

/// Sockets of a supervisor for its server.
#[derive(Default)]
pub(in crate::control) struct SupervisorSockets {
    supervisor: Option<OwnedFd>,
    successor: Option<OwnedFd>,
}

impl SupervisorSockets {
    /// Takes the sockets out of all passed sockets.
    pub(in crate::control) fn take(passed: &mut Vec<(String, OwnedFd)>) -> SupervisorSockets {
        let mut find = |name| {
            let at = passed.iter().position(|it| it.0 == name)?;
            Some(passed.swap_remove(at).1)
        };
        SupervisorSockets {
            supervisor: find(SUPERVISOR_SOCKET),
            successor: find(SUCCESSOR_SOCKET),
        }
    }

    /// Takes the link to the running server that this process is to replace.
    pub(in crate::control) fn take_successor_link(&mut self) -> Option<OwnedFd> {
        self.successor.take()
    }

    /// Returns the link to the supervisor. Must be called on the runtime.
    pub(in crate::control) fn supervision(&mut self) -> Option<Supervision> {
        let link = self.supervisor.take()?;
        let support = RestartSupport::of_build().ok()?;
        match AsyncLink::new(link) {
            Ok(link) => Some(Supervision {
                link,
                waiting: Vec::new(),
                _support: support,
            }),
            Err(error) => {
                log::error!("the supervisor can't be asked for a restart: {error}");
                None
            }
        }
    }
}

impl Supervision {
    /// Asks the supervisor for a successor. `request` is answered at the end of the restart.
    pub(in crate::control) fn restart(&mut self, request: Option<ControlRequest>) {
        match self.link.send_now(&Message::Restart) {
            Ok(()) => self.waiting.extend(request),
            Err(error) => {
                log::error!("the supervisor can't be asked for a restart: {error}");
                if let Some(request) = request {
                    request.answer(Err(format!(
                        "error: the supervisor does not answer: {error}\n"
                    )));
                }
            }
        }
    }

    /// Waits for the next event. Cancelling the wait loses nothing.
    pub(in crate::control) async fn next(&self) -> SupervisorEvent {
        loop {
            match self.link.receive().await {
                Ok((Message::Successor, passed)) => {
                    if let Some(link) = passed.into_iter().next() {
                        return SupervisorEvent::Successor(link);
                    }
                }
                Ok((Message::Refused(reason), _)) => return SupervisorEvent::Refused(reason),
                Ok(_) => {}
                Err(_) => return SupervisorEvent::Ended,
            }
        }
    }

    /// Begins the takeover by a successor of the supervisor.
    pub(in crate::control) fn begin(
        link: OwnedFd,
        publisher: &Publisher,
        predecessors: &Predecessors,
    ) -> io::Result<Departing> {
        Departing::over(link, publisher, predecessors)
    }

    /// Tells the supervisor that the successor serves.
    pub(in crate::control) fn leave(&self) {
        let _ = self.link.send_now(&Message::Leaving);
    }

    /// Answers the operators that wait. Returns when the answers are sent, since a server that leaves may end next.
    pub(in crate::control) async fn answer(&mut self, outcome: Result<String, String>) {
        for request in self.waiting.drain(..) {
            request.write(outcome.clone()).await;
        }
    }
}

/// Tells the running server why this successor does not serve.
pub(in crate::control) fn refuse(link: &OwnedFd, error: &OperatorError) {
    let _ = super::link::send(link.as_fd(), &Message::Refused(error.in_one_line()), &[]);
}
