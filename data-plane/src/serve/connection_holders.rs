//! Holders of connections: the connections of each client, the history of clients during shortages, and the choice of the
//! connections to give up for another client. Pure.

use crate::limits::{
    FEW_CONNECTIONS_MAX, IDLE_EVICTIONS_AT_ONCE_MAX, IDLE_EVICTIONS_CLIENT_DIVISOR,
    SMALL_HOLDER_DIVISOR,
};
use crate::serve::connection_entry::{Activity, ConnectionEntry, Newcomer, Shortage};
use base::client_history::{ClientHistory, ClientStanding};
use base::client_network::ClientNetwork;
use base::network_table::{HolderRank, LargeNetworks, WideTable};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Connections of all clients, the numbers of connections of the wide IPv6 networks, and the history of clients during
/// shortages.
#[derive(Default)]
pub(super) struct ConnectionHolders {
    pub(super) by_client: EntriesByClient,
    pub(super) wide: WideTable<usize>,
    pub(super) history: ClientHistory,
}

type EntriesByClient = HashMap<ClientNetwork, Vec<Arc<ConnectionEntry>>>;

impl ConnectionHolders {
    pub(super) fn held_by(&self, client: ClientNetwork) -> usize {
        self.by_client.get(&client).map_or(0, Vec::len)
    }

    /// Returns the wide networks with more than an eighth of all connections.
    pub(super) fn large(&self) -> LargeNetworks {
        if self.wide.is_empty() {
            return LargeNetworks::default();
        }
        let all: usize = self.by_client.values().map(Vec::len).sum();
        self.wide.large(all / SMALL_HOLDER_DIVISOR, |held| *held)
    }

    /// Chooses the connections by the rules of [`ConnectionLedger::choose`].
    ///
    /// [`ConnectionLedger::choose`]: crate::serve::connection_ledger::ConnectionLedger::choose
    pub(super) fn to_give_up(&self, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
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
        let may_end = leaving < at_once(all + newcomer.waiting);
        if let Some(request) = survey.request
            && request.pace == RequestPace::OfSlowClient
        {
            return request.ended_if(may_end);
        }
        let has_waited = newcomer.has_waited(survey.standing);
        match (survey.rival, survey.request, survey.short_idle) {
            (Some(rival), ..) if rival.rank[0] > FEW_CONNECTIONS_MAX => {
                rival.longest_request(leaving, shortage)
            }
            (_, Some(request), _) if request.pace == RequestPace::Stalled => {
                request.ended_if(may_end)
            }
            (_, _, Some(idle)) if has_waited && !newcomer.is_ahead(idle.1.0) => longest_idle(idle),
            (_, Some(request), _) => request.ended_if(may_end),
            // A handshake needs several round trips, so it goes after requests that move.
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
        let mut survey = Survey {
            client,
            standing,
            largest: None,
            rival: None,
            idle: None,
            short_idle: None,
            request: None,
            all: 0,
            leaving: 0,
        };
        for (holder, entries) in &self.by_client {
            survey.all += entries.len();
            let (mut held, mut going) = (0, 0);
            let mut oldest: Option<(u64, &ConnectionEntry)> = None;
            let own_beside = own_beside(*holder);
            let is_of_slow_client = self.history.is_slow(*holder);
            // A busy connection of a proxy belongs to any client of the proxy, not to the largest holder.
            let is_of_proxy = entries.iter().any(|entry| entry.is_of_proxy);
            for entry in entries.iter().filter(|entry| entry.helps(shortage)) {
                held += 1;
                going += usize::from(entry.is_chosen());
                if entry.is_chosen() {
                    continue;
                }
                let activity = entry.standing();
                if let Activity::Idle(since_ms) = activity {
                    if oldest.is_none_or(|(oldest_ms, _)| since_ms < oldest_ms) {
                        oldest = Some((since_ms, entry));
                    }
                    continue;
                }
                if own_beside > 0 && !is_of_proxy {
                    continue;
                }
                let pace = newcomer.and_then(|it| {
                    RequestPace::of(entry, activity, is_of_slow_client, it, standing)
                });
                let found = pace.map(|pace| EndingRequest {
                    pace,
                    activity,
                    entry,
                });
                let is_before = |found: &EndingRequest<'_>| {
                    survey.request.is_none_or(|than| found.key() < than.key())
                };
                if let Some(found) = found.filter(is_before) {
                    survey.request = Some(found);
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
            if let Some((since_ms, entry)) = oldest
                && (rank[0] > own_beside || is_own)
            {
                let is_only = rank[0] == 1 && !is_own;
                let is_short = is_only
                    && newcomer.is_some_and(|newcomer| {
                        !newcomer.is_short_idle_over(entry, since_ms, standing)
                    });
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

/// Returns true if a client with `held` connections, plus the wanted connection, holds at most an eighth of
/// `most`.
pub(super) fn is_far_less(held: usize, most: usize) -> bool {
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

/// Candidates for the choice of connections to give up.
struct Survey<'a> {
    /// Client that wants a connection; None where descriptors are short.
    client: Option<ClientNetwork>,
    /// Standing of the client.
    standing: ClientStanding,
    /// Largest holder.
    largest: Option<Holder<'a>>,
    /// Largest holder among those beside which the client has nothing.
    rival: Option<Holder<'a>>,
    /// Client that loses an idle connection, with the moment at which the connection became idle.
    idle: Option<(Holder<'a>, Reverse<u64>)>,
    /// Client that loses its only connection, which became idle a moment ago, with that moment.
    short_idle: Option<(Holder<'a>, Reverse<u64>)>,
    /// Request that gives way first.
    request: Option<EndingRequest<'a>>,
    /// Number of all connections.
    all: usize,
    /// Number of chosen connections that have not ended yet.
    leaving: usize,
}

/// Pace of a request that may end in favour of a client without a connection. The first in the order ends first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RequestPace {
    /// The client of the request lost a connection as too slow lately. To other clients, the request gives way at once.
    OfSlowClient,
    /// The request has not moved for long, and gives way at once.
    Stalled,
    /// The request moves, and gives way to a client that has waited.
    Moving,
}

impl RequestPace {
    /// Returns the pace of a request under way; None for a request that does not end in favour of the newcomer.
    fn of(
        entry: &ConnectionEntry,
        activity: Activity,
        is_of_slow_client: bool,
        newcomer: Newcomer,
        standing: ClientStanding,
    ) -> Option<RequestPace> {
        let is_slow = standing == ClientStanding::Slow;
        if entry.is_of_proxy {
            // The client behind the proxy is not known, so a request that moves never ends.
            let is_stalled = !is_slow && newcomer.is_stalled(Activity::Busy(activity.since_ms()));
            is_stalled.then_some(RequestPace::Stalled)
        } else if is_slow && matches!(activity, Activity::Busy(_)) {
            // A slow client ends no request that waits for the server.
            None
        } else if is_of_slow_client && !is_slow {
            Some(RequestPace::OfSlowClient)
        } else if newcomer.is_stalled(activity) {
            Some(RequestPace::Stalled)
        } else {
            let may_end = newcomer.may_end_moving(entry, standing);
            may_end.then_some(RequestPace::Moving)
        }
    }
}

/// Request under way that may end in favour of a client without a connection.
#[derive(Copy, Clone)]
struct EndingRequest<'a> {
    pace: RequestPace,
    activity: Activity,
    entry: &'a Arc<ConnectionEntry>,
}

impl EndingRequest<'_> {
    /// Returns the key by which the request is found: by the pace, and between equals the request without progress for
    /// longest.
    fn key(&self) -> (RequestPace, u64) {
        (self.pace, self.activity.pack())
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
