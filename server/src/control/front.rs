//! Front of the control plane: signals and commands that arrive while the control plane makes a World.
//!
//! A World may need the scan of a large folder, or the manifest of a large release. Meanwhile a signal to stop ends the
//! work at once, a command that only reads is answered from the state before the work, and any other command waits. After
//! a second such a command ends the reads under way: a reload never waits for a disk.

use super::scans::Urgency;
use super::socket::{ControlRequest, ControlSocket};
use super::status::StatusView;
use crate::admin::command::Command;
use crate::control::limits::URGENT_COMMAND_WAIT_MILLISECONDS;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

/// Signals of the operator and of the service manager.
pub(super) struct Signals {
    pub(super) interrupt: Signal,
    pub(super) terminate: Signal,
    pub(super) hangup: Signal,
    pub(super) reopen: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }
}

/// Receiver of signals and commands.
pub(super) struct Front {
    pub(super) control: ControlSocket,
    /// Requests to stop that wait for the end of the drain.
    pub(super) stopping_for: Vec<ControlRequest>,
    /// Commands that wait for the end of the work.
    waiting: VecDeque<ControlRequest>,
    /// A signal to reload came during the work.
    has_hangup: bool,
    urgency: Urgency,
    /// Time at which the reads under way end for the waiting commands.
    urgent_at: Option<Instant>,
}

/// Command or signal that waited for the end of the work.
pub(super) enum Waited {
    Asked(ControlRequest),
    Hangup,
}

impl Front {
    pub(super) fn new(control: ControlSocket, urgency: Urgency) -> Front {
        Front {
            control,
            stopping_for: Vec::new(),
            waiting: VecDeque::new(),
            has_hangup: false,
            urgency,
            urgent_at: None,
        }
    }

    /// Has a reload wait, as a signal during a work does.
    #[cfg(test)]
    pub(super) fn hang_up(&mut self) {
        self.has_hangup = true;
    }

    /// Returns the next command that waited. Reads are permitted again.
    pub(super) fn next_waited(&mut self) -> Option<Waited> {
        self.urgency.end();
        self.urgent_at = None;
        if std::mem::take(&mut self.has_hangup) {
            return Some(Waited::Hangup);
        }
        self.waiting.pop_front().map(Waited::Asked)
    }

    /// Refuses the commands that waited, since the server stops.
    pub(super) fn refuse_waiting(&mut self) {
        for request in self.waiting.drain(..) {
            request.answer(Err("error: the server is stopping\n".to_owned()));
        }
    }

    /// Receives signals and commands during a work of the control plane. Returns true if the server is to stop. A work that
    /// has not ended until then is dropped.
    pub(super) async fn attend(
        &mut self,
        work: impl Future<Output = bool>,
        view: &StatusView,
        signals: &mut Signals,
    ) -> bool {
        let mut work = std::pin::pin!(work);
        self.urgent_at = if self.has_hangup || !self.waiting.is_empty() {
            Some(urgent_at())
        } else {
            None
        };
        loop {
            let urgent = self.urgent_at;
            let becomes_urgent = async {
                match urgent {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                stops = &mut work => return stops,
                _ = signals.interrupt.recv() => return true,
                _ = signals.terminate.recv() => return true,
                _ = signals.hangup.recv() => {
                    self.has_hangup = true;
                    self.urgent_at.get_or_insert_with(urgent_at);
                }
                request = self.control.next_request() => {
                    if self.receive(request, view) {
                        return true;
                    }
                }
                () = becomes_urgent => {
                    log::info!("a command waits: the reads under way are given up, and repeated later");
                    self.urgency.begin();
                    // The reads of the work are refused from now on.
                    self.urgent_at = None;
                }
            }
        }
    }

    /// Answers a command, or lets it wait. Returns true for a command to stop.
    fn receive(&mut self, request: ControlRequest, view: &StatusView) -> bool {
        match Command::parse(&request.line) {
            Ok(Command::Stop) => {
                // The response is sent at the end of the drain.
                self.stopping_for.push(request);
                return true;
            }
            Ok(command) => match view.answer(&command) {
                Some(answer) => request.answer(Ok(answer)),
                None => {
                    self.waiting.push_back(request);
                    self.urgent_at.get_or_insert_with(urgent_at);
                }
            },
            Err(unknown) => request.answer(Err(format!("error: {unknown}\n"))),
        }
        false
    }
}

fn urgent_at() -> Instant {
    Instant::now() + Duration::from_millis(URGENT_COMMAND_WAIT_MILLISECONDS)
}
