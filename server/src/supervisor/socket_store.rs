//! Sockets that outlive the server. The supervisor keeps a duplicate of each listening socket, so connections wait in the
//! kernel while no server runs, and the next server accepts them.

use super::limits::{SOCKET_NAME_BYTES_MAX, SOCKETS_MAX};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sockets with their names. Several sockets may share a name: one for each worker. Sockets that the supervisor got itself
/// from a service manager are kept as well: those of a unit, and those that the manager has kept for the server.
#[derive(Debug, Default)]
pub(super) struct SocketStore {
    kept: Vec<(String, OwnedFd)>,
}

impl SocketStore {
    /// Creates a store with the sockets of a service manager.
    pub(super) fn new(given: Vec<(String, OwnedFd)>) -> SocketStore {
        SocketStore { kept: given }
    }

    /// Keeps sockets of the server under a name. Returns false if the store has no room for all, or the name is not one of
    /// the protocol.
    pub(super) fn keep(&mut self, name: &str, sockets: Vec<OwnedFd>) -> bool {
        let has_room = self.kept.len() + sockets.len() <= SOCKETS_MAX;
        if !has_room || !is_name(name) {
            return false;
        }
        let sockets = sockets.into_iter();
        self.kept
            .extend(sockets.map(|socket| (name.to_owned(), socket)));
        true
    }

    /// Closes all sockets with a name.
    pub(super) fn close(&mut self, name: &str) {
        self.kept.retain(|kept| kept.0 != name);
    }

    /// Returns all sockets for the next server.
    pub(super) fn each(&self) -> Vec<(&str, BorrowedFd<'_>)> {
        let kept = self.kept.iter();
        kept.map(|(name, socket)| (&**name, socket.as_fd()))
            .collect()
    }
}

/// Returns true for a name that LISTEN_FDNAMES can hold: printable ASCII without a colon.
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    (1..=SOCKET_NAME_BYTES_MAX).contains(&name.len())
        && bytes.all(|byte| byte.is_ascii_graphic() && byte != b':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn sockets(count: usize) -> Vec<OwnedFd> {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let copies = (0..count).map(|_| first.try_clone().unwrap().into());
        copies.collect()
    }

    fn names(store: &SocketStore) -> Vec<&str> {
        store.each().into_iter().map(|it| it.0).collect()
    }

    #[test]
    fn sockets_stay_until_their_name_is_closed() {
        let given = sockets(1).pop().unwrap();
        let mut store = SocketStore::new(vec![("web.socket".to_owned(), given)]);
        assert!(store.keep("a", sockets(2)));
        assert!(store.keep("b", sockets(1)));
        assert_eq!(names(&store), ["web.socket", "a", "a", "b"]);
        store.close("a");
        assert_eq!(names(&store), ["web.socket", "b"]);
        store.close("web.socket");
        assert_eq!(names(&store), ["b"], "kept by the service manager before");
    }

    #[test]
    fn names_and_room_are_bounded() {
        let mut store = SocketStore::default();
        let long = "x".repeat(256);
        for name in ["", "a:b", "a b", "a\nb", "ä", &long] {
            assert!(!store.keep(name, sockets(1)), "{name}");
        }
        assert!(store.keep("a", sockets(SOCKETS_MAX - 1)));
        assert!(!store.keep("b", sockets(2)));
        assert!(store.keep("b", sockets(1)));
        assert_eq!(store.each().len(), SOCKETS_MAX);
    }
}
