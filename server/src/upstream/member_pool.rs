//! Idle connections to a member. Each worker keeps its own connections, so that a connection never changes
//! its runtime.

use crate::base::task::spawn_local;
use crate::base::worker_number::worker_number;
use crate::limits::{MEMBER_IDLE_LISTS, MEMBER_IDLE_SWEEP_MILLISECONDS};
use crate::tls::TlsEndpoint;
use crate::upstream::address::BackendAddress;
use crate::upstream::member_address::MemberAddress;
use crate::upstream::member_conn::{MemberConn, MemberWindow};
use crate::upstream::settings::ConnectionSettings;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections to one member.
pub(crate) struct MemberPool {
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
    /// True after the pool was replaced. Connections of HTTP/2 end once they are idle.
    is_closed: AtomicBool,
}

/// Idle connections of one worker.
#[derive(Default)]
struct IdleList {
    /// The most recently used connection is the last element.
    connections: Vec<IdleMemberConn>,
    /// True while a task watches the list.
    is_swept: bool,
}

struct IdleMemberConn {
    conn: MemberConn,
    since: Instant,
}

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

    /// Returns true if connections of the pool suit the settings and the TLS of a new configuration.
    pub(crate) fn suits(&self, settings: &ConnectionSettings, tls: Option<&TlsEndpoint>) -> bool {
        let is_same_tls = match (&self.tls, tls) {
            (None, None) => true,
            (Some(own), Some(other)) => own.is_same(other),
            _ => false,
        };
        is_same_tls && self.settings == *settings
    }

    /// Starts a new connection to one of the member's addresses. The connection begins with the bytes `first`.
    /// Returns the connection, and true if the connection is established.
    pub(super) fn connect(
        &self,
        address: &BackendAddress,
        first: Vec<u8>,
    ) -> io::Result<(MemberConn, bool)> {
        MemberConn::begin(address, self.settings.from, self.tls.as_ref(), first)
    }

    /// Takes the idle connection of the current worker that was used last. Connections that the member
    /// closed are dropped, and connections with a wider window than `widest`.
    pub(crate) fn take_idle(&self, widest: MemberWindow) -> Option<MemberConn> {
        let mut list = self.list();
        while let Some(mut idle) = list.connections.pop() {
            self.idle_count.fetch_sub(1, Ordering::Relaxed);
            if idle.conn.is_quiet() && idle.conn.window() <= widest {
                return Some(idle.conn);
            }
        }
        None
    }

    /// Keeps a connection without a request under way for the next request, if there is room. A connection
    /// with a PROXY header belongs to one client and is closed.
    pub(crate) fn put_idle(self: &Arc<Self>, conn: MemberConn, now: Instant) {
        if self.settings.send_proxy_header.is_some() {
            return;
        }
        if self.idle_count.load(Ordering::Relaxed) >= self.settings.idle_max {
            return;
        }
        self.idle_count.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list();
        list.connections.push(IdleMemberConn { conn, since: now });
        let is_swept = std::mem::replace(&mut list.is_swept, true);
        drop(list);
        if !is_swept {
            spawn_local(Arc::clone(self).sweep());
        }
    }

    /// Returns the scheme of the member's URL.
    pub(crate) fn scheme(&self) -> &'static [u8] {
        match self.tls {
            Some(_) => b"https",
            None => b"http",
        }
    }

    /// Counts an idle connection of HTTP/2, which stays with its worker. Returns false if the connection must be
    /// closed, because the pool was replaced or has its largest number of idle connections.
    pub(super) fn count_idle(&self) -> bool {
        let is_kept =
            !self.is_closed() && self.idle_count.load(Ordering::Relaxed) < self.settings.idle_max;
        if is_kept {
            self.idle_count.fetch_add(1, Ordering::Relaxed);
        }
        is_kept
    }

    /// Counts an idle connection of HTTP/2 that is in use again, or was closed.
    pub(super) fn uncount_idle(&self) {
        self.idle_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true after the pool was replaced.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Closes all idle connections, because the pool was replaced. Workers close idle connections of HTTP/2
    /// within a second.
    pub(crate) fn close_idle(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for list in &self.idle {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            self.remove(&mut list, |_| true);
        }
    }

    /// Closes connections of the current worker that the member closed or that were idle for too long,
    /// until the worker has no idle connection.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(MEMBER_IDLE_SWEEP_MILLISECONDS)).await;
            let now = Instant::now();
            let idle_timeout = self.settings.idle_timeout;
            let mut list = self.list();
            self.remove(&mut list, |idle| {
                now.duration_since(idle.since) >= idle_timeout || !idle.conn.is_quiet()
            });
            list.is_swept = !list.connections.is_empty();
            if !list.is_swept {
                return;
            }
        }
    }

    fn remove(&self, list: &mut IdleList, is_removed: impl Fn(&mut IdleMemberConn) -> bool) {
        let before = list.connections.len();
        list.connections.retain_mut(|idle| !is_removed(idle));
        let removed = before - list.connections.len();
        self.idle_count.fetch_sub(removed, Ordering::Relaxed);
    }

    /// Returns the list of the current worker.
    fn list(&self) -> MutexGuard<'_, IdleList> {
        let list = &self.idle[worker_number() % MEMBER_IDLE_LISTS];
        list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
