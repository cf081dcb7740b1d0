//! Idle connections to a member. Each worker keeps its own connections, so that a connection never changes
//! its runtime.

use crate::ledger::descriptors::{DescriptorRefused, MemberDescriptor, descriptors};
use crate::ledger::member_uses::Shedding;
use crate::limits::{
    MEMBER_FRESH_MILLISECONDS, MEMBER_IDLE_CLOSED_AT_ONCE, MEMBER_IDLE_LISTS,
    MEMBER_IDLE_SWEEP_MILLISECONDS,
};
use crate::tls::TlsEndpoint;
use crate::upstream::address::BackendAddress;
use crate::upstream::member::address::{ConnOrigin, MemberAddress};
use crate::upstream::member::conn::MemberConn;
use crate::upstream::member::socket::MemberWindow;
use balancer::Connections;
use balancer::settings::ConnectionSettings;
use base::client_network::ClientNetwork;
use base::clock::monotonic_ms;
use base::task::spawn_local;
use base::worker_number::worker_number;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Connections to one member.
pub struct MemberPool {
    /// Host and port of the member's URL.
    pub(crate) authority: Box<[u8]>,
    /// Address of the member.
    pub(crate) address: MemberAddress,
    /// Settings of the connections.
    pub(crate) settings: ConnectionSettings,
    /// TLS of the connections; None for plain connections.
    tls: Option<TlsEndpoint>,
    idle: [Mutex<IdleList>; MEMBER_IDLE_LISTS],
    /// Number of idle connections in all lists.
    idle_count: AtomicUsize,
    /// True after the member left the configuration or got another pool. Connections are no longer kept, and
    /// those of HTTP/2 end once they are idle.
    is_closed: AtomicBool,
}

impl Connections for MemberPool {
    /// Closes all idle connections, and lets connections in use end with their requests. Workers close idle
    /// connections of HTTP/2 within a second.
    fn close_idle(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for list in &self.idle {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            self.remove(&mut list, |_| true);
        }
    }
}

/// Time for which a connection beyond the largest number of idle connections waits for a request.
const MEMBER_IDLE_SURPLUS: Duration = Duration::from_millis(MEMBER_IDLE_SWEEP_MILLISECONDS);

/// Pools in use, so that idle connections to any member can make room for a request.
static POOLS: Mutex<Vec<Weak<MemberPool>>> = Mutex::new(Vec::new());

/// Closes idle connections to members of all balancers, the longest idle first in each list, and at most
/// [`MEMBER_IDLE_CLOSED_AT_ONCE`]. Returns the number of closed connections.
pub(crate) fn close_idle_members() -> usize {
    let pools: Vec<Arc<MemberPool>> = {
        let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).collect()
    };
    let mut left = MEMBER_IDLE_CLOSED_AT_ONCE;
    for pool in &pools {
        left -= pool.close_longest_idle(left);
    }
    MEMBER_IDLE_CLOSED_AT_ONCE - left
}

/// Idle connections of one worker.
#[derive(Default)]
struct IdleList {
    /// The most recently used connection is the last element.
    connections: Vec<IdleMemberConn>,
    /// Connections of HTTP/2, the longest idle first.
    h2: Vec<IdleH2Conn>,
    /// Number of the next idle connection of HTTP/2.
    next_h2: u64,
    /// True while a task watches the list.
    is_swept: bool,
}

struct IdleMemberConn {
    conn: MemberConn,
    since: Instant,
}

/// Idle connection of HTTP/2, which stays with its task.
struct IdleH2Conn {
    number: u64,
    /// Task that ends the connection once the entry is removed.
    task: Waker,
    descriptor: Option<MemberDescriptor>,
}

/// Entry of an idle connection of HTTP/2 in its pool.
pub(super) struct IdleH2Ticket(u64);

impl MemberPool {
    /// Creates a pool without connections. `tls` is set for an `https` member.
    pub(crate) fn new(
        authority: Box<[u8]>,
        address: MemberAddress,
        settings: ConnectionSettings,
        tls: Option<TlsEndpoint>,
    ) -> MemberPool {
        MemberPool {
            authority,
            address,
            settings,
            tls,
            idle: Default::default(),
            idle_count: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Adds the pool to the pools that give up idle connections when descriptors are short.
    pub(crate) fn register(self: &Arc<Self>) {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        let is_known = |pool: &Weak<MemberPool>| std::ptr::eq(pool.as_ptr(), Arc::as_ptr(self));
        if !pools.iter().any(is_known) {
            pools.push(Arc::downgrade(self));
        }
    }

    /// Returns true if connections of the pool suit the settings and the TLS of a new configuration.
    pub(crate) fn suits(&self, settings: &ConnectionSettings, tls: Option<&TlsEndpoint>) -> bool {
        let is_same_tls = match (&self.tls, tls) {
            (None, None) => true,
            (Some(own), Some(other)) => own.is_same(other),
            _ => false,
        };
        is_same_tls && self.settings == *settings
    }

    /// Starts a new connection to one of the member's addresses, for a request of `user`; None for a check. The
    /// connection begins with the bytes `first`. Returns the connection, and true if the connection is established.
    ///
    /// # Errors
    /// Fails with EMFILE if no descriptor is left for the connection, or if the client has its share.
    pub(super) fn connect(
        &self,
        address: &BackendAddress,
        first: Vec<u8>,
        user: Option<ConnUser>,
    ) -> io::Result<(MemberConn, bool)> {
        let descriptor = descriptor_for(user)?;
        let begin =
            |first| MemberConn::begin(address, self.settings.from, self.tls.as_ref(), first);
        let begun = match begin(first.clone()) {
            // The rest of the process has taken more descriptors than its reserve.
            Err(error) if is_out_of_descriptors(&error) && close_idle_members() > 0 => begin(first),
            begun => begun,
        };
        let (mut conn, is_established) = begun?;
        conn.hold(descriptor);
        Ok((conn, is_established))
    }

    /// Takes the idle connection of the current worker that was used last. Connections that the member
    /// closed are dropped, connections to an address that the member has left, and connections for which `reserve` finds no memory for the window.
    pub(crate) fn take_idle(
        &self,
        mut reserve: impl FnMut(MemberWindow) -> bool,
    ) -> Option<MemberConn> {
        let mut list = self.list();
        while let Some(mut idle) = list.connections.pop() {
            self.idle_count.fetch_sub(1, Ordering::Relaxed);
            if self.is_usable(&mut idle.conn) && reserve(idle.conn.window()) {
                return Some(idle.conn);
            }
        }
        None
    }

    /// Takes an idle connection of the current worker that has answered a moment ago and that the member has
    /// not closed. A request that needs a new connection may take the connection if no local port is left.
    /// `reserve` reserves memory for the window.
    pub(crate) fn take_fresh(
        &self,
        now: Instant,
        mut reserve: impl FnMut(MemberWindow) -> bool,
    ) -> Option<MemberConn> {
        let fresh = Duration::from_millis(MEMBER_FRESH_MILLISECONDS);
        let mut list = self.list();
        while let Some(mut idle) = list.connections.pop() {
            if now.duration_since(idle.since) > fresh {
                list.connections.push(idle);
                return None;
            }
            self.idle_count.fetch_sub(1, Ordering::Relaxed);
            if self.is_usable(&mut idle.conn) && idle.conn.is_alive() && reserve(idle.conn.window())
            {
                return Some(idle.conn);
            }
        }
        None
    }

    /// Keeps a connection without a request under way for the next request. Connections beyond the largest number of
    /// idle connections stay for a moment: requests that end together begin together again. A connection with a
    /// PROXY header belongs to one client and is closed, and so is a connection to an address that the member has left.
    pub(crate) fn put_idle(self: &Arc<Self>, mut conn: MemberConn, now: Instant) {
        let is_kept = self.settings.idle_max > 0 && self.settings.send_proxy_header.is_none();
        if !is_kept || self.is_closed() || !self.leads_to(conn.origin()) {
            return conn.close_with_reset();
        }
        conn.release_client();
        self.idle_count.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list();
        list.connections.push(IdleMemberConn { conn, since: now });
        let is_swept = std::mem::replace(&mut list.is_swept, true);
        drop(list);
        if !is_swept {
            spawn_local(Arc::clone(self).sweep());
        }
    }

    /// Returns true if the idle connection can take a request.
    fn is_usable(&self, conn: &mut MemberConn) -> bool {
        conn.is_quiet() && self.leads_to(conn.origin())
    }

    /// Returns true if a connection leads to an address of the member. The addresses of a host name change.
    #[inline]
    pub(super) fn leads_to(&self, origin: &mut ConnOrigin) -> bool {
        self.address.is_current(origin)
    }

    /// Returns the scheme of the member's URL.
    pub(crate) fn scheme(&self) -> &'static [u8] {
        match self.tls {
            Some(_) => b"https",
            None => b"http",
        }
    }

    /// Enters an idle connection of HTTP/2, which stays with the task `task`. Returns None if the connection must be
    /// closed, because the pool was replaced or has its largest number of idle connections.
    pub(super) fn enter_idle_h2(
        &self,
        conn: &mut MemberConn,
        task: &Waker,
    ) -> Option<IdleH2Ticket> {
        let is_full = self.idle_count.load(Ordering::Relaxed) >= self.settings.idle_max;
        if is_full || self.is_closed() {
            return None;
        }
        self.idle_count.fetch_add(1, Ordering::Relaxed);
        conn.release_client();
        let mut list = self.list();
        let number = list.next_h2;
        list.next_h2 += 1;
        list.h2.push(IdleH2Conn {
            number,
            task: task.clone(),
            descriptor: conn.take_descriptor(),
        });
        Some(IdleH2Ticket(number))
    }

    /// Returns true if the idle connection has not been given up for want of descriptors.
    pub(super) fn keeps_idle_h2(&self, ticket: &IdleH2Ticket) -> bool {
        self.list().h2.iter().any(|idle| idle.number == ticket.0)
    }

    /// Removes the entry of a connection of HTTP/2 that is in use again or closed. Returns false if the connection has
    /// been given up.
    pub(super) fn leave_idle_h2(&self, ticket: &IdleH2Ticket, conn: &mut MemberConn) -> bool {
        let mut list = self.list();
        let Some(at) = list.h2.iter().position(|idle| idle.number == ticket.0) else {
            return false;
        };
        let idle = list.h2.remove(at);
        self.idle_count.fetch_sub(1, Ordering::Relaxed);
        if let Some(descriptor) = idle.descriptor {
            conn.hold(descriptor);
        }
        true
    }

    /// Returns true after the pool was replaced.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Closes unused connections of the current worker once a second, until the worker has no idle connection.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(MEMBER_IDLE_SWEEP_MILLISECONDS)).await;
            if !self.close_unused(Instant::now()) {
                return;
            }
        }
    }

    /// Closes connections of the current worker that the member closed, that have been idle for too long or that lead to
    /// an address that the member has left, and connections beyond the largest number of idle connections that no request has used for a moment. Returns true
    /// if an idle connection remains.
    fn close_unused(&self, now: Instant) -> bool {
        let idle_timeout = self.settings.idle_timeout;
        let idle_count = self.idle_count.load(Ordering::Relaxed);
        let mut surplus = idle_count.saturating_sub(self.settings.idle_max);
        let mut list = self.list();
        // The longest idle connections are the first.
        self.remove(&mut list, |idle| {
            let idle_time = now.duration_since(idle.since);
            let is_surplus = surplus > 0 && idle_time >= MEMBER_IDLE_SURPLUS;
            let is_removed =
                is_surplus || idle_time >= idle_timeout || !self.is_usable(&mut idle.conn);
            surplus -= usize::from(is_removed && surplus > 0);
            is_removed
        });
        list.is_swept = !list.connections.is_empty();
        list.is_swept
    }

    fn remove(&self, list: &mut IdleList, mut is_removed: impl FnMut(&mut IdleMemberConn) -> bool) {
        let removed = list.connections.extract_if(.., |idle| is_removed(idle));
        let closed = removed.map(|idle| idle.conn.close_with_reset()).count();
        self.idle_count.fetch_sub(closed, Ordering::Relaxed);
    }

    /// Closes at most `count` idle connections, the longest idle first in each list. Returns the number of
    /// closed connections.
    fn close_longest_idle(&self, count: usize) -> usize {
        let mut closed = 0;
        for list in &self.idle {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = list.connections.len().min(count - closed);
            let removed = list.connections.drain(..oldest);
            closed += removed.map(|idle| idle.conn.close_with_reset()).count();
            let oldest = list.h2.len().min(count - closed);
            // Dropping the entry gives the descriptor back at once, and the task closes the socket.
            closed += list.h2.drain(..oldest).map(|idle| idle.task.wake()).count();
        }
        self.idle_count.fetch_sub(closed, Ordering::Relaxed);
        closed
    }

    /// Returns the list of the current worker.
    fn list(&self) -> MutexGuard<'_, IdleList> {
        let list = &self.idle[worker_number() % MEMBER_IDLE_LISTS];
        list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Request that wants a new connection.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ConnUser {
    /// Client of the request.
    pub(crate) client: ClientNetwork,
    /// Time since the request found no descriptor for the first time.
    pub(crate) waited: Duration,
}

/// Enters a connection for a request of `user` into the ledger of descriptors. When no descriptor is left, idle
/// connections to members make room, and then a request of another client.
fn descriptor_for(user: Option<ConnUser>) -> io::Result<MemberDescriptor> {
    let client = user.map(|user| user.client);
    let entered = match (descriptors().enter_member(client), user) {
        (Err(DescriptorRefused::Full), None) if close_idle_members() > 0 => {
            descriptors().enter_member(None)
        }
        (Err(DescriptorRefused::Full), Some(user)) => {
            close_idle_members();
            descriptors().enter_member_by_shedding(Shedding {
                client: user.client,
                waited: user.waited,
                now_ms: monotonic_ms(),
            })
        }
        (entered, _) => entered,
    };
    entered.map_err(|_| Errno::MFILE.into())
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}
