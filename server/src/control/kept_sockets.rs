//! Listening sockets that the service manager keeps for the next start of the server, by the protocol of systemd
//! (sd_pid_notify_with_fds(3), `FDSTORE=1`). A connection that arrives while no server runs waits in the kernel.
//!
//! The name of a socket says everything that decides about its use: protocol, audience and address as configured. A start
//! takes the sockets with names of its own configuration, and closes all others.

use base::sys::{self, NOTIFICATION_SOCKETS_MAX};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Beginning of the names of the server's sockets. Sockets that a unit of systemd passes in have other names.
const PREFIX: &str = "anthill/";
/// Longest wait until the service manager has closed the sockets of addresses that are no longer configured, 2 s. The server
/// then binds its addresses, and a socket that is still open makes a bind fail.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Record of the sockets in the store of the service manager.
#[derive(Debug, Default)]
pub(super) struct KeptSockets {
    /// Descriptors that the store can hold; 0 without a store.
    room: usize,
    /// Names with the numbers of their sockets.
    kept: Vec<(String, usize)>,
}

/// Name of the socket of an address, with `tcp` or `udp` as protocol. A name has no colon, which separates the names.
pub(super) fn socket_name(protocol: &str, address: &str) -> String {
    format!("{PREFIX}{protocol}/{}", address.replace(':', "_"))
}

impl KeptSockets {
    /// Creates the record of the store that the environment names.
    pub(super) fn of_environment() -> KeptSockets {
        KeptSockets {
            room: sys::descriptor_store_room(),
            kept: Vec::new(),
        }
    }

    /// Takes the sockets with names of the server out of the passed sockets, and records them as kept.
    pub(super) fn take(&mut self, passed: &mut Vec<(String, OwnedFd)>) -> Vec<(String, OwnedFd)> {
        let (own, others) = std::mem::take(passed)
            .into_iter()
            .partition(|(name, _)| name.starts_with(PREFIX));
        *passed = others;
        let own: Vec<(String, OwnedFd)> = own;
        self.record(&own);
        own
    }

    /// Records sockets that the service manager keeps already.
    pub(super) fn record(&mut self, sockets: &[(String, OwnedFd)]) {
        for (name, _) in sockets {
            match self.kept.iter_mut().find(|kept| kept.0 == *name) {
                Some(kept) => kept.1 += 1,
                None => self.kept.push((name.clone(), 1)),
            }
        }
    }

    /// Has the service manager close the sockets with the names, and waits until the sockets are closed.
    pub(super) fn close(&mut self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        self.kept.retain(|kept| {
            let stays = !names.contains(&kept.0);
            if !stays {
                remove(&kept.0);
            }
            stays
        });
        if let Err(error) = sys::notify_barrier(CLOSE_PATIENCE) {
            log::warn!("the service manager has not closed the former sockets yet: {error}");
        }
    }

    /// Has the service manager close all sockets: a later client of a server that stops is refused at once.
    pub(super) fn close_all(&mut self) {
        for (name, _) in self.kept.drain(..) {
            remove(&name);
        }
    }

    /// Has the service manager keep the sockets, each under its name, and close all others.
    pub(super) fn update(&mut self, wanted: &[(String, Vec<BorrowedFd<'_>>)]) {
        self.kept.retain(|kept| {
            let stays = wanted.iter().any(|it| it.0 == kept.0);
            if !stays {
                remove(&kept.0);
            }
            stays
        });
        for (name, sockets) in wanted {
            if self.kept.iter().any(|kept| kept.0 == *name) {
                continue;
            }
            let used: usize = self.kept.iter().map(|kept| kept.1).sum();
            if self.room < used + sockets.len() {
                if self.room > 0 {
                    log::warn!(
                        "a restart refuses connections to {name} for a moment: the service manager keeps {} sockets",
                        self.room
                    );
                }
                continue;
            }
            let state = format!("FDSTORE=1\nFDNAME={name}");
            let mut parts = sockets.chunks(NOTIFICATION_SOCKETS_MAX);
            match parts.try_for_each(|part| sys::notify_with(&state, part).map(drop)) {
                Ok(()) => self.kept.push((name.clone(), sockets.len())),
                // The next reload tries again.
                Err(error) => log::warn!("the service manager does not keep {name}: {error}"),
            }
        }
    }
}

fn remove(name: &str) {
    // The sockets of a manager that takes no messages stay open until the next start closes them.
    let _ = sys::notify(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
}
