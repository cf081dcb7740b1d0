//! Record of the servers that leave and still have connections.

use super::link::{AsyncLink, Received};
use super::message::{Message, OpenConnections, ServerName};
use crate::admin::status::PredecessorStatus;
use crate::control::limits::PREDECESSORS_MAX;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;

/// Servers that leave, the oldest first.
#[derive(Default)]
pub(in crate::control) struct Predecessors {
    all: Vec<Predecessor>,
}

struct Predecessor {
    name: ServerName,
    link: AsyncLink,
    open: OpenConnections,
}

impl Predecessors {
    /// Adds the youngest. Must be called on the runtime.
    pub(super) fn add(
        &mut self,
        name: ServerName,
        link: OwnedFd,
        open: OpenConnections,
    ) -> io::Result<()> {
        let link = AsyncLink::new(link)?;
        self.all.push(Predecessor { name, link, open });
        Ok(())
    }

    /// Ends the oldest servers beyond [`PREDECESSORS_MAX`].
    pub(super) fn end_surplus(&mut self) {
        let surplus = self.all.len().saturating_sub(PREDECESSORS_MAX);
        for oldest in &self.all[..surplus] {
            let ServerName { version, process } = &oldest.name;
            log::warn!(
                "process {process} ({version}) ends, since more than {PREDECESSORS_MAX} earlier servers have connections: {} requests are cut",
                oldest.open.requests
            );
            // An ended process reads nothing.
            let _ = oldest.link.send_now(&Message::End);
        }
    }

    /// Waits until a server has ended. Cancelling the wait loses nothing.
    pub(in crate::control) async fn ended(&mut self) {
        loop {
            let (nth, received) = self.next().await;
            match received {
                Ok((Message::Connections(open), _)) => self.all[nth].open = open,
                Ok(_) => {}
                Err(_) => {
                    let ServerName { version, process } = self.all.remove(nth).name;
                    log::info!("process {process} ({version}) has ended");
                    return;
                }
            }
        }
    }

    async fn next(&mut self) -> (usize, io::Result<Received>) {
        std::future::poll_fn(|cx| {
            let each = self.all.iter().enumerate();
            let mut ready = each.map(|(nth, it)| (nth, it.link.poll_receive(cx)));
            let found = ready.find_map(|(nth, received)| match received {
                Poll::Ready(received) => Some((nth, received)),
                Poll::Pending => None,
            });
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Returns duplicates of all links, for a successor.
    pub(super) fn passed_on(&self) -> io::Result<Vec<(ServerName, OwnedFd)>> {
        let each = self.all.iter();
        each.map(|it| Ok((it.name.clone(), it.link.as_fd().try_clone_to_owned()?)))
            .collect()
    }

    /// Returns the servers for the status.
    pub(in crate::control) fn status(&self) -> Vec<PredecessorStatus> {
        let each = self.all.iter().map(|it| PredecessorStatus {
            pid: it.name.process,
            version: it.name.version.clone(),
            connections: it.open.all,
            requests: it.open.requests,
        });
        each.collect()
    }

    /// Ends all idle connections at once, after a reload that withdrew something.
    pub(in crate::control) fn end_idle(&self) {
        for predecessor in &self.all {
            let _ = predecessor.link.send_now(&Message::EndIdle);
        }
    }

    /// Has all servers stop.
    pub(in crate::control) fn stop(&self) {
        for predecessor in &self.all {
            let _ = predecessor.link.send_now(&Message::Stop);
        }
    }

    /// Has all servers open their logs again.
    pub(in crate::control) fn reopen(&self) {
        for predecessor in &self.all {
            let _ = predecessor.link.send_now(&Message::Reopen);
        }
    }
}
