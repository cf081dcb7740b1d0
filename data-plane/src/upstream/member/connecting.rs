//! Connection to a member while the connection is being established, for requests and for checks.

use crate::upstream::address::BackendAddress;
use crate::upstream::member::address::{AddressCandidates, MemberAddress};
use crate::upstream::member::conn::MemberConn;
use crate::upstream::member::pool::{ConnUser, MemberPool};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// Connection attempt, at one address of the member after another. The caller ends the attempt after its
/// timeout.
pub(crate) struct MemberConnecting {
    pool: Arc<MemberPool>,
    /// Timeout of the caller, shared by all addresses.
    timeout: Duration,
    /// Bytes at the beginning of each connection.
    first: Vec<u8>,
    /// Connection to the current address.
    conn: Option<MemberConn>,
    others: OtherAddresses,
    /// End of the attempt at the current address, if further addresses wait for an attempt.
    patience: Option<Pin<Box<Sleep>>>,
    /// Failure at the last address.
    failure: Option<io::Error>,
    /// The request; None for a check.
    user: Option<ConnUser>,
}

/// Addresses of the member that are still to be tried.
enum OtherAddresses {
    /// No address was tried, or the host name is being looked up.
    Unknown,
    /// The member has a single address.
    None,
    Named(Box<AddressCandidates>),
}

impl MemberConnecting {
    /// Returns an attempt, which begins with the first call of [`MemberConnecting::poll`]. The caller ends the
    /// attempt after `timeout`. The connection begins with the bytes `first`.
    pub(crate) fn new(
        pool: Arc<MemberPool>,
        timeout: Duration,
        first: Vec<u8>,
    ) -> MemberConnecting {
        MemberConnecting {
            pool,
            timeout,
            first,
            conn: None,
            others: OtherAddresses::Unknown,
            patience: None,
            failure: None,
            user: None,
        }
    }

    /// Sets the request to which the descriptor of the connection is accounted.
    pub(crate) fn for_request(self, user: ConnUser) -> MemberConnecting {
        MemberConnecting {
            user: Some(user),
            ..self
        }
    }

    /// Ready with the established connection, or with the failure at the last address.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<MemberConn>> {
        loop {
            if self.conn.is_some() {
                match ready!(self.poll_current(cx)) {
                    Ok(conn) => return Poll::Ready(Ok(conn)),
                    Err(failure) => self.failure = Some(failure),
                }
            }
            let address = match ready!(self.poll_next_address(cx)) {
                Ok(address) => address,
                Err(failure) => return Poll::Ready(Err(failure)),
            };
            match self.pool.connect(&address, self.first.clone(), self.user) {
                Ok((conn, true)) => return Poll::Ready(Ok(conn)),
                Ok((conn, false)) => self.conn = Some(conn),
                Err(failure) => self.failure = Some(failure),
            }
        }
    }

    /// Ready with the result at the current address, also after the time of the address has passed.
    fn poll_current(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<MemberConn>> {
        let Some(conn) = &mut self.conn else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let connected = conn.poll_connected(cx);
        if connected.is_pending() {
            let Some(patience) = &mut self.patience else {
                return Poll::Pending;
            };
            ready!(patience.as_mut().poll(cx));
            self.conn = None;
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let conn = self.conn.take();
        let taken = conn.ok_or_else(|| io::ErrorKind::NotConnected.into());
        Poll::Ready(ready!(connected).and(taken))
    }

    /// Ready with the next address, or with the last failure after the last address.
    fn poll_next_address(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<BackendAddress>> {
        if let OtherAddresses::Unknown = self.others {
            match &self.pool.address {
                MemberAddress::Fixed(address) => {
                    self.others = OtherAddresses::None;
                    return Poll::Ready(Ok(address.clone()));
                }
                MemberAddress::Named(named) => {
                    let candidates = ready!(named.poll_candidates(self.pool.settings.from, cx))?;
                    self.others = OtherAddresses::Named(Box::new(candidates));
                }
            }
        }
        let next = match &mut self.others {
            OtherAddresses::Named(candidates) => candidates.next().map(BackendAddress::Tcp),
            OtherAddresses::Unknown | OtherAddresses::None => None,
        };
        self.set_patience();
        Poll::Ready(next.ok_or_else(|| match self.failure.take() {
            Some(failure) => failure,
            None => io::ErrorKind::AddrNotAvailable.into(),
        }))
    }

    /// Gives each of several addresses an equal part of the time, so that an address without any answer
    /// leaves time for the next address.
    fn set_patience(&mut self) {
        let OtherAddresses::Named(candidates) = &self.others else {
            return;
        };
        let count = u32::try_from(candidates.address_count()).unwrap_or(u32::MAX);
        let part = self.timeout / count;
        self.patience = (count > 1).then(|| Box::pin(tokio::time::sleep(part)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::resolver::Resolver;
    use balancer::settings::{ConnectionSettings, MemberHost};
    use socket2::{Domain, Socket, Type};
    use std::future::poll_fn;
    use std::net::{IpAddr, SocketAddr, TcpListener};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Connects to the port of `listener` by a name with the addresses 127.0.0.N.
    fn connect(listener: &TcpListener, last: &[u8]) -> io::Result<MemberConn> {
        let addresses: Vec<IpAddr> = last
            .iter()
            .map(|last| IpAddr::from([127, 0, 0, *last]))
            .collect();
        let resolver = Resolver::new(Arc::new(move |_: &str| Ok(addresses.clone())));
        let port = listener.local_addr().unwrap().port();
        let host = MemberHost::Name("a.example".into(), port);
        let address = MemberAddress::new(&host, &resolver);
        resolver.refresh(0);
        let pool = MemberPool::new(Box::default(), address, ConnectionSettings::default(), None);
        poll(MemberConnecting::new(Arc::new(pool), TIMEOUT, Vec::new()))
    }

    fn poll(mut connecting: MemberConnecting) -> io::Result<MemberConn> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(poll_fn(|cx| connecting.poll(cx)))
    }

    /// Listens at 127.0.0.3, and returns sockets at the same port of 127.0.0.1 and 127.0.0.2 that do not listen, so that
    /// no other program listens there.
    fn listen_at_third_address() -> (TcpListener, [Socket; 2]) {
        loop {
            let listener = TcpListener::bind("127.0.0.3:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let closed = [1, 2].map(|last| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                let address = SocketAddr::from(([127, 0, 0, last], port));
                socket.bind(&address.into()).map(|()| socket)
            });
            if let [Ok(first), Ok(second)] = closed {
                return (listener, [first, second]);
            }
        }
    }

    #[test]
    fn the_next_address_is_tried_after_a_failure() {
        let (listener, _closed) = listen_at_third_address();
        assert!(connect(&listener, &[1, 2, 3]).is_ok());
        assert_eq!(
            listener.accept().unwrap().1.ip(),
            IpAddr::from([127, 0, 0, 1])
        );
        let refused = connect(&listener, &[1, 2]).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_name_without_an_address_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let failure = connect(&listener, &[]).err().unwrap();
        assert_eq!(
            failure.to_string(),
            "the host name a.example has no address"
        );
    }

    #[test]
    fn a_fixed_address_is_tried_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let resolver = Resolver::system();
        let fixed = |address| {
            let address = MemberAddress::new(&MemberHost::Address(address), &resolver);
            let settings = ConnectionSettings::default();
            Arc::new(MemberPool::new(Box::default(), address, settings, None))
        };
        assert!(poll(MemberConnecting::new(fixed(address), TIMEOUT, Vec::new())).is_ok());
        drop(listener);
        let refused = poll(MemberConnecting::new(fixed(address), TIMEOUT, Vec::new()))
            .err()
            .unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
