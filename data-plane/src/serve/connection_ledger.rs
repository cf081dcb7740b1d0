//! Ledger of open connections over all workers and all versions of HTTP: the connections of each client,
//! and the choice of connections to give up when no more may be opened.
//!
//! The kernel spreads the connections of a client over all workers, so no worker can count alone. The
//! ledger is locked once when a connection begins and once when the connection ends. In between, a
//! connection records its state in an atomic of the entry, which costs one store for each request and no
//! lock.

use std::cmp::Reverse;
use std::collections::{HashMap, hash_map};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ledger::descriptors::{ClientDescriptor, descriptors};
use crate::limits::{
    ANY_STALL_WAIT_MILLISECONDS, FEW_CONNECTIONS_MAX, IDLE_EVICTIONS_AT_ONCE_MAX,
    IDLE_EVICTIONS_CLIENT_DIVISOR, SHORT_STALL_MILLISECONDS, SMALL_HOLDER_DIVISOR,
};
use base::call_shares::WaitRank;
use base::client_history::{ClientHistory, ClientStanding};
use base::client_network::ClientNetwork;
use base::network_table::{HolderRank, LargeNetworks, WideTable};
use tokio::sync::Notify;

/// The open connections of all clients.
#[derive(Default)]
pub struct ConnectionLedger {
    state: Mutex<LedgerState>,
    /// Notified when any worker has closed a connection.
    room: Notify,
}

/// Connections of all clients, the numbers of connections of the wide IPv6 networks, and the history of clients during
/// shortages.
#[derive(Default)]
struct LedgerState {
    by_client: EntriesByClient,
    wide: WideTable<usize>,
    history: ClientHistory,
}

type EntriesByClient = HashMap<ClientNetwork, Vec<Arc<ConnectionEntry>>>;

/// Ledger entry of a connection.
pub(crate) struct ConnectionEntry {
    client: ClientNetwork,
    /// Index among the entries of the client; changes under the ledger's lock alone.
    position: AtomicUsize,
    /// Packed [`Activity`] of the connection.
    standing: AtomicU64,
    /// The standing for which the connection was chosen to be given up; [`NOT_CHOSEN`] if the connection
    /// wasn't chosen.
    chosen: AtomicU64,
    owner: ConnectionOwner,
    /// True for a connection of a trusted proxy, which carries the requests of many clients.
    is_of_proxy: bool,
}

/// Channel by which a connection is told to end.
pub(crate) enum ConnectionOwner {
    /// A row of the worker that receives the orders.
    Row(Arc<EvictionOrders>, usize),
    /// A task that waits for the notification (HTTP/3).
    #[cfg_attr(not(feature = "http3"), expect(dead_code))]
    Task(Box<Notify>),
}

/// Queue of connections that other workers want a worker to give up.
#[derive(Default)]
pub(crate) struct EvictionOrders {
    rows: Mutex<Vec<(usize, Arc<ConnectionEntry>)>>,
    news: Notify,
}

/// Activity of a connection: the moment at which the connection became idle, or at which the request
/// under way last moved. In milliseconds of the workers' clocks, which have a common origin.
///
/// An idle connection waits for the next request, for the end of the handshake or of a head, or for the
/// client to hear that the connection ends. Closing an idle connection loses no response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// No request is under way.
    Idle(u64),
    /// A request is under way.
    Busy(u64),
    /// A request is under way, and waits for bytes of its content, or for room for its response: only the client can make it
    /// move.
    AwaitsClient(u64),
}

/// Resource that is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// All of `connections` are open, and a client wants another connection.
    Connections(Newcomer),
    /// The process has no descriptors left. Connections of HTTP/3 have no descriptors of their own.
    Descriptors,
}

/// Client that wants another connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Newcomer {
    /// The client.
    pub client: ClientNetwork,
    /// Time since which the connection waits, in milliseconds of the workers' clocks.
    pub since_ms: u64,
    /// Current time in milliseconds.
    pub now_ms: u64,
    /// Number of connections that wait with the client's. The more wait, the more requests end at once.
    pub waiting: usize,
}

/// Guard of a connection's entry. Dropping the guard removes the entry from the ledger.
pub(crate) struct ConnectionEntryGuard {
    ledger: Arc<ConnectionLedger>,
    entry: Arc<ConnectionEntry>,
    /// Descriptor of the connection; None over HTTP/3, where all connections share one descriptor.
    _descriptor: Option<ClientDescriptor>,
}

/// Mark of a connection that isn't chosen. No standing packs to the mark: the connection would have been
/// busy for 146 million years.
const NOT_CHOSEN: u64 = u64::MAX;

impl Activity {
    /// Packs the activity into a number; the lowest two bits are 0 for an idle connection.
    fn pack(self) -> u64 {
        match self {
            Activity::Idle(since_ms) => since_ms << 2,
            Activity::Busy(since_ms) => since_ms << 2 | 1,
            Activity::AwaitsClient(since_ms) => since_ms << 2 | 2,
        }
    }

    fn unpack(packed: u64) -> Activity {
        match packed & 3 {
            0 => Activity::Idle(packed >> 2),
            1 => Activity::Busy(packed >> 2),
            _ => Activity::AwaitsClient(packed >> 2),
        }
    }
}

impl ConnectionEntry {
    /// Records the current standing of the connection.
    #[inline]
    pub(crate) fn set_activity(&self, standing: Activity) {
        self.standing.store(standing.pack(), Relaxed);
    }

    /// Returns the channel by which the connection is told to end.
    pub(crate) fn owner(&self) -> &ConnectionOwner {
        &self.owner
    }

    /// Returns true if the connection is to be given up. A connection that has made progress since the
    /// choice stays open, and is no longer chosen.
    pub(crate) fn is_evicted(&self) -> bool {
        let chosen = self.chosen.load(Relaxed);
        if chosen == NOT_CHOSEN {
            return false;
        }
        let stands = chosen == self.standing.load(Relaxed);
        if !stands {
            self.chosen.store(NOT_CHOSEN, Relaxed);
        }
        stands
    }

    /// Waits until the connection is given up. For connections of HTTP/3 alone.
    #[cfg(feature = "http3")]
    pub(crate) async fn evicted(&self) {
        let ConnectionOwner::Task(told) = &self.owner else {
            return std::future::pending().await;
        };
        loop {
            told.notified().await;
            if self.is_evicted() {
                return;
            }
        }
    }

    fn is_chosen(&self) -> bool {
        self.chosen.load(Relaxed) != NOT_CHOSEN
    }

    fn standing(&self) -> Activity {
        Activity::unpack(self.standing.load(Relaxed))
    }

    /// Returns the moment at which the connection became idle; `None` for a busy connection and for a
    /// connection already chosen.
    fn idle_since_ms(&self) -> Option<u64> {
        match self.standing() {
            Activity::Idle(since_ms) if !self.is_chosen() => Some(since_ms),
            _ => None,
        }
    }

    /// Returns true if the end of the connection would help against the shortage.
    fn helps(&self, shortage: Shortage) -> bool {
        let has_descriptor = matches!(self.owner, ConnectionOwner::Row(..));
        has_descriptor || shortage != Shortage::Descriptors
    }
}

impl EvictionOrders {
    /// Orders the worker to give up `row`, if the row still belongs to the connection of `entry`.
    pub(crate) fn give_up(&self, row: usize, entry: Arc<ConnectionEntry>) {
        self.rows().push((row, entry));
        self.news.notify_one();
    }

    /// Waits for orders.
    pub(crate) async fn next(&self) -> Vec<(usize, Arc<ConnectionEntry>)> {
        loop {
            let rows = std::mem::take(&mut *self.rows());
            if !rows.is_empty() {
                return rows;
            }
            self.news.notified().await;
        }
    }

    fn rows(&self) -> MutexGuard<'_, Vec<(usize, Arc<ConnectionEntry>)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLedger {
    /// Returns true if `client` may open another connection under a limit of `most`; 0 means no limit.
    pub(crate) fn may_enter(&self, client: ClientNetwork, most: usize) -> bool {
        most == 0 || self.lock().held_by(client) < most
    }

    /// Enters a connection of `client`, idle since `now_ms`. Returns `None` where the client has `most`
    /// connections already; 0 means no limit.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: ClientNetwork,
        most: usize,
        owner: ConnectionOwner,
        now_ms: u64,
    ) -> Option<ConnectionEntryGuard> {
        let mut state = self.lock();
        if most > 0 && state.held_by(client) >= most {
            return None;
        }
        Some(self.insert(&mut state, client, owner, now_ms, false))
    }

    /// Enters a connection of the trusted proxy `client`, idle since `now_ms`. A proxy may open any number of
    /// connections, and loses no connection with a request under way.
    pub(crate) fn enter_proxy(
        self: &Arc<Self>,
        client: ClientNetwork,
        owner: ConnectionOwner,
        now_ms: u64,
    ) -> ConnectionEntryGuard {
        self.insert(&mut self.lock(), client, owner, now_ms, true)
    }

    fn insert(
        self: &Arc<Self>,
        state: &mut LedgerState,
        client: ClientNetwork,
        owner: ConnectionOwner,
        now_ms: u64,
        is_of_proxy: bool,
    ) -> ConnectionEntryGuard {
        let entries = state.by_client.entry(client).or_default();
        let has_descriptor = matches!(owner, ConnectionOwner::Row(..));
        let entry = Arc::new(ConnectionEntry {
            client,
            position: AtomicUsize::new(entries.len()),
            standing: AtomicU64::new(Activity::Idle(now_ms).pack()),
            chosen: AtomicU64::new(NOT_CHOSEN),
            owner,
            is_of_proxy,
        });
        entries.push(entry.clone());
        state.wide.change(client, |held| *held += 1);
        ConnectionEntryGuard {
            ledger: self.clone(),
            entry,
            _descriptor: has_descriptor.then(|| descriptors().enter_client()),
        }
    }

    /// Returns a future that resolves when a connection is closed after the call.
    pub(crate) fn connection_closed(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Announces that a connection has been closed.
    pub(crate) fn notify_closed(&self) {
        self.room.notify_waiters();
    }

    /// Chooses the connections to give up. A client is ranked by all of the client's connections: the
    /// idle, the busy, and the chosen connections that have not ended yet. A wide IPv6 network with more than
    /// an eighth of all connections is ranked as one client ([`LargeNetworks`]).
    ///
    /// - A client loses an idle connection only to a client that holds fewer connections. Where no idle
    ///   connection meets the condition, the newcomer's client loses an idle connection of its own.
    /// - Among the clients that may lose an idle connection, the client with most connections loses the
    ///   connections that have been idle for longest. Between equals the longest idle connection decides.
    /// - Where no idle connection can go, the largest holder loses the busy connection with the longest
    ///   time since the request moved. The largest holder loses a busy connection only to a client that
    ///   holds far less, or to any client if the largest holder has more than three quarters of all
    ///   connections.
    /// - A largest holder without idle connections also loses a busy connection before a small holder
    ///   loses an idle connection. Otherwise a client with only busy connections would lose none, and
    ///   small clients would lose idle connections instead. The rule holds for a holder of more than
    ///   three quarters of all connections, and for a holder of more than an eighth if the small holder
    ///   has far less. Below an eighth a request is worth more than an idle connection.
    /// - Where all holders have few connections and none is idle, the request that has not moved for longest
    ///   ends in favour of a client without a connection, if the request has not moved for a second, or if the
    ///   newcomer has waited for a while. Otherwise many clients with a hanging request each would keep all
    ///   newcomers out.
    /// - A client that lost a connection as too slow lately loses a request at once to a client that did not. Such
    ///   a client takes only connections without activity for a second, and no request that waits for the server.
    /// - The only connection of a client that was idle for less than a second is likely part of a page load or of a
    ///   handshake. It ends only where no request is under way, in favour of a client that has waited for a while.
    pub(crate) fn choose(&self, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
        let mut state = self.lock();
        if let Some(newcomer) = shortage.newcomer() {
            state.history.advance(newcomer.now_ms);
        }
        let chosen = state.to_give_up(shortage);
        for entry in &chosen {
            entry.chosen.store(entry.standing.load(Relaxed), Relaxed);
        }
        chosen
    }

    /// Records a connection that `client` gets although all connections were taken.
    pub(crate) fn record_grant(&self, client: ClientNetwork, now_ms: u64) {
        let mut state = self.lock();
        state.history.advance(now_ms);
        state.history.record_grant(client);
    }

    /// Records that a chosen connection ends in favour of another client. The client of the connection was too slow if it has
    /// few connections, and only the client could have made the request move. A client with many connections was chosen for
    /// their number.
    pub(crate) fn record_eviction(&self, entry: &ConnectionEntry) {
        let chosen = Activity::unpack(entry.chosen.load(Relaxed));
        if matches!(chosen, Activity::AwaitsClient(_)) {
            let mut state = self.lock();
            if state.held_by(entry.client) <= FEW_CONNECTIONS_MAX {
                state.history.record_slow(entry.client);
            }
        }
    }

    /// Chooses the waiting client to turn away where too many wait: the client that would be served last, with its last
    /// connection. A client that was too slow lately is always turned away. Returns `None` where every waiting client is a
    /// newcomer without a connection, or holds far less than the largest holder, because room can be made for the client.
    pub(crate) fn last_in_line(
        &self,
        clients: impl Iterator<Item = ClientNetwork>,
    ) -> Option<usize> {
        let state = self.lock();
        let large = state.large();
        let rank = |client| large.rank(client, state.held_by(client), None);
        let ranked = clients.map(|client| {
            let rank = rank(client);
            (WaitRank::new(&state.history, client, rank), rank[0], client)
        });
        let (nth, (_, held, client)) = ranked.enumerate().max_by_key(|(_, (rank, ..))| *rank)?;
        let standing = state.history.standing(client);
        if standing == ClientStanding::Slow {
            return Some(nth);
        }
        let holders = state.by_client.keys();
        let most = holders.map(|client| rank(*client)[0]).max()?;
        let is_newcomer = held == 0 && standing == ClientStanding::New;
        (!is_newcomer && !is_far_less(held, most)).then_some(nth)
    }

    /// Returns the positions of the clients in the order in which they are served: clients that were too slow lately go last;
    /// otherwise the client with the fewest connections goes first, and between equals the client that got a connection
    /// longest ago. The first position goes first between equals.
    pub(crate) fn line(&self, clients: impl Iterator<Item = ClientNetwork>) -> Vec<usize> {
        let state = self.lock();
        let large = state.large();
        let ranked = clients.map(|client| {
            let held = large.rank(client, state.held_by(client), None);
            WaitRank::new(&state.history, client, held)
        });
        let mut line: Vec<(WaitRank, usize)> = ranked.zip(0..).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, nth)| nth).collect()
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a client with `held` connections, plus the wanted connection, holds at most an eighth of
/// `most`.
fn is_far_less(held: usize, most: usize) -> bool {
    SMALL_HOLDER_DIVISOR * (held + 1) <= most
}

/// Client that may lose connections.
#[derive(Copy, Clone)]
struct Holder<'a> {
    client: ClientNetwork,
    entries: &'a [Arc<ConnectionEntry>],
    rank: HolderRank,
    /// Number of chosen connections that have not ended yet.
    leaving: usize,
    /// Units as which the client that wants a connection counts beside the holder.
    own_beside: usize,
}

impl Holder<'_> {
    /// Returns the key by which the largest holder is found. Between equals, a holder with a connection that is not chosen
    /// yet comes first.
    fn size(&self) -> (HolderRank, bool) {
        (self.rank, self.leaving < self.entries.len())
    }

    /// Returns the request that has not moved for longest, unless enough connections of the holder are about to end.
    /// `leaving` of the connections of all clients are about to end.
    fn longest_request(&self, leaving: usize, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
        let is_network = self.rank[0] > self.entries.len();
        let leaving = if is_network { leaving } else { self.leaving };
        // Each newcomer needs one connection. Later newcomers wait for connections that are about to end.
        let wanted = usize::from(leaving < at_once(self.rank[0]));
        longest(self.entries, wanted, shortage, |entry| {
            Some(entry.standing().pack())
        })
    }
}

impl LedgerState {
    fn held_by(&self, client: ClientNetwork) -> usize {
        self.by_client.get(&client).map_or(0, Vec::len)
    }

    /// Returns the wide networks with more than an eighth of all connections.
    fn large(&self) -> LargeNetworks {
        if self.wide.is_empty() {
            return LargeNetworks::default();
        }
        let all: usize = self.by_client.values().map(Vec::len).sum();
        self.wide.large(all / SMALL_HOLDER_DIVISOR, |held| *held)
    }

    /// Chooses the connections by the rules of [`ConnectionLedger::choose`].
    fn to_give_up(&self, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
        let newcomer = shortage.newcomer();
        let survey = self.survey(shortage);
        let Survey { all, leaving, .. } = survey;
        if let Some(largest) = survey.largest.filter(|_| survey.ends_request_of_largest()) {
            return largest.longest_request(leaving, shortage);
        }
        let longest_idle = |(holder, _): (Holder<'_>, Reverse<u64>)| {
            let at_once_max = at_once(holder.entries.len());
            longest(holder.entries, at_once_max, shortage, |entry| {
                entry.idle_since_ms()
            })
        };
        if let Some(idle) = survey.idle {
            return longest_idle(idle);
        }
        let Some(newcomer) = newcomer else {
            return Vec::new();
        };
        let is_slow = survey.standing == ClientStanding::Slow;
        let may_end = leaving < at_once(all + newcomer.waiting);
        if let Some(stalled) = survey.stalled
            && !stalled.was_never_slow
            && !is_slow
        {
            return stalled.ended_if(may_end);
        }
        let has_waited = newcomer.has_waited() && !is_slow;
        match (survey.rival, survey.stalled, survey.short_idle) {
            (Some(rival), ..) if rival.rank[0] > FEW_CONNECTIONS_MAX => {
                rival.longest_request(leaving, shortage)
            }
            (_, Some(stalled), _) => {
                let is_due = has_waited || newcomer.is_short_stall_over(stalled.since_ms);
                stalled.ended_if(may_end && is_due)
            }
            (_, None, Some(idle)) if has_waited => longest_idle(idle),
            _ => Vec::new(),
        }
    }

    /// Walks over all connections, and finds the candidates for the choice.
    fn survey(&self, shortage: Shortage) -> Survey<'_> {
        let newcomer = shortage.newcomer();
        let client = newcomer.map(|newcomer| newcomer.client);
        let networks = self.large();
        let own = client.map_or(0, |client| self.held_by(client));
        // Units as which the newcomer counts beside a holder.
        let own_beside = |holder: ClientNetwork| match client {
            Some(client) if !networks.is_empty() => networks.counted(client, own, Some(holder)),
            _ => own,
        };
        let standing = client.map_or(ClientStanding::New, |it| self.history.standing(it));
        let is_slow = standing == ClientStanding::Slow;
        let mut survey = Survey {
            client,
            standing,
            largest: None,
            rival: None,
            idle: None,
            short_idle: None,
            stalled: None,
            all: 0,
            leaving: 0,
        };
        for (holder, entries) in &self.by_client {
            survey.all += entries.len();
            let (mut held, mut going, mut oldest) = (0, 0, None);
            let own_beside = own_beside(*holder);
            let was_never_slow = !self.history.is_slow(*holder);
            // A busy connection of a proxy belongs to any client of the proxy, not to the largest holder.
            let is_of_proxy = entries.iter().any(|entry| entry.is_of_proxy);
            for entry in entries.iter().filter(|entry| entry.helps(shortage)) {
                held += 1;
                going += usize::from(entry.is_chosen());
                let since_ms = match entry.standing() {
                    _ if entry.is_chosen() => continue,
                    Activity::Idle(since_ms) => {
                        oldest = Some(oldest.map_or(since_ms, |oldest: u64| oldest.min(since_ms)));
                        continue;
                    }
                    // A slow client ends no request that waits for the server.
                    Activity::Busy(_) if is_slow => continue,
                    Activity::Busy(since_ms) | Activity::AwaitsClient(since_ms) => since_ms,
                };
                let found = StalledRequest {
                    was_never_slow,
                    since_ms,
                    entry,
                };
                let is_longer = survey.stalled.is_none_or(|than| found.key() < than.key());
                if is_longer && !is_of_proxy && own_beside == 0 {
                    survey.stalled = Some(found);
                }
            }
            survey.leaving += going;
            let rank = networks.rank(*holder, held, client);
            let found = Holder {
                client: *holder,
                entries,
                rank,
                leaving: going,
                own_beside,
            };
            if held > 0 && !is_of_proxy {
                let is_larger = |than: Holder<'_>| found.size() > than.size();
                if survey.largest.is_none_or(is_larger) {
                    survey.largest = Some(found);
                }
                if own_beside == 0 && survey.rival.is_none_or(is_larger) {
                    survey.rival = Some(found);
                }
            }
            let is_own = client == Some(*holder);
            if let Some(since_ms) = oldest
                && (rank[0] > own_beside || is_own)
            {
                let is_only = rank[0] == 1 && !is_own;
                let is_short = is_only
                    && newcomer.is_some_and(|newcomer| !newcomer.is_short_stall_over(since_ms));
                let loser = if is_short {
                    &mut survey.short_idle
                } else {
                    &mut survey.idle
                };
                let oldest = Reverse(since_ms);
                if loser.is_none_or(|(loser, longest)| (rank, oldest) > (loser.rank, longest)) {
                    *loser = Some((found, oldest));
                }
            }
        }
        survey
    }
}

/// Candidates for the choice of connections to give up.
struct Survey<'a> {
    /// Client that wants a connection; None where descriptors are short.
    client: Option<ClientNetwork>,
    standing: ClientStanding,
    /// Largest holder.
    largest: Option<Holder<'a>>,
    /// Largest holder among those beside which the client has nothing.
    rival: Option<Holder<'a>>,
    /// Client that loses an idle connection, with the moment at which the connection became idle.
    idle: Option<(Holder<'a>, Reverse<u64>)>,
    /// The same among the only connections of their clients that became idle a moment ago.
    short_idle: Option<(Holder<'a>, Reverse<u64>)>,
    /// Request that gives way first.
    stalled: Option<StalledRequest<'a>>,
    /// Number of all connections.
    all: usize,
    /// Number of chosen connections that have not ended yet.
    leaving: usize,
}

/// Request under way that may end in favour of a client without a connection.
#[derive(Copy, Clone)]
struct StalledRequest<'a> {
    /// True if the client of the request did not lose a connection as too slow lately.
    was_never_slow: bool,
    /// Moment at which the request last moved.
    since_ms: u64,
    entry: &'a Arc<ConnectionEntry>,
}

impl StalledRequest<'_> {
    /// Returns the key by which the request is found: requests of slow clients first, then those without progress for
    /// longest.
    fn key(&self) -> (bool, u64) {
        (self.was_never_slow, self.since_ms)
    }

    /// Returns the connection of the request if `ends` is true.
    fn ended_if(&self, ends: bool) -> Vec<Arc<ConnectionEntry>> {
        let entry = ends.then(|| Arc::clone(self.entry));
        entry.into_iter().collect()
    }
}

impl Survey<'_> {
    /// Returns true if the largest holder loses a request, rather than any client an idle connection.
    fn ends_request_of_largest(&self) -> bool {
        let Some(largest) = self.largest else {
            return false;
        };
        let most = largest.rank[0];
        let idle = self.idle.or(self.short_idle);
        let idle = idle.map_or(0, |(loser, _)| loser.rank[0]);
        let is_other = self.client != Some(largest.client);
        let is_excessive = 4 * most > 3 * self.all;
        let is_larger = is_far_less(largest.own_beside.max(idle), most);
        // Without an idle connection to spare, a lack of descriptors ends no request: the client that would
        // gain isn't known.
        if idle == 0 {
            self.client.is_some() && is_other && (is_excessive || is_larger)
        } else {
            let is_large = SMALL_HOLDER_DIVISOR * most > self.all;
            idle < most && is_other && (is_excessive || is_larger && is_large)
        }
    }
}

impl Shortage {
    /// Returns the client that wants a connection.
    fn newcomer(self) -> Option<Newcomer> {
        match self {
            Shortage::Connections(newcomer) => Some(newcomer),
            Shortage::Descriptors => None,
        }
    }
}

impl Newcomer {
    /// Returns true if a connection without activity since `since_ms` gives way at once.
    fn is_short_stall_over(&self, since_ms: u64) -> bool {
        self.now_ms >= since_ms.saturating_add(SHORT_STALL_MILLISECONDS)
    }

    /// Returns true if the newcomer has waited so long that a connection with recent activity gives way too.
    fn has_waited(&self) -> bool {
        self.now_ms >= self.since_ms.saturating_add(ANY_STALL_WAIT_MILLISECONDS)
    }
}

/// Returns the number of connections that a client with `held` connections may lose at once.
fn at_once(held: usize) -> usize {
    (held / IDLE_EVICTIONS_CLIENT_DIVISOR).clamp(1, IDLE_EVICTIONS_AT_ONCE_MAX)
}

/// Returns the entries with the longest standing, at most `wanted`.
fn longest(
    entries: &[Arc<ConnectionEntry>],
    wanted: usize,
    shortage: Shortage,
    since: fn(&ConnectionEntry) -> Option<u64>,
) -> Vec<Arc<ConnectionEntry>> {
    let may_go = |entry: &&Arc<ConnectionEntry>| entry.helps(shortage) && !entry.is_chosen();
    let mut longest: Vec<_> = entries
        .iter()
        .filter(may_go)
        .filter_map(|entry| since(entry).map(|since| (since, entry)))
        .collect();
    if (1..longest.len()).contains(&wanted) {
        longest.select_nth_unstable_by_key(wanted - 1, |(since, _)| *since);
    }
    longest.truncate(wanted);
    longest
        .into_iter()
        .map(|(_, entry)| entry.clone())
        .collect()
}

impl ConnectionEntryGuard {
    /// Returns the entry in the ledger.
    pub(crate) fn entry(&self) -> &Arc<ConnectionEntry> {
        &self.entry
    }

    /// Records the current standing of the connection.
    #[inline]
    pub(crate) fn set_activity(&self, standing: Activity) {
        self.entry.set_activity(standing);
    }
}

impl Drop for ConnectionEntryGuard {
    fn drop(&mut self) {
        let state = &mut *self.ledger.lock();
        let hash_map::Entry::Occupied(mut held) = state.by_client.entry(self.entry.client) else {
            return;
        };
        state.wide.change(self.entry.client, |held| *held -= 1);
        let entries = held.get_mut();
        let position = self.entry.position.load(Relaxed);
        entries.swap_remove(position);
        match entries.get(position) {
            Some(moved) => moved.position.store(position, Relaxed),
            None if entries.is_empty() => {
                held.remove();
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
