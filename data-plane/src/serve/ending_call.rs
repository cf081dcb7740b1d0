//! Choice of the requests that end in favour of a client with few requests, when the memory of bodies is reserved. Pure.
//!
//! A few addresses with many slow or silent requests each would otherwise reserve the whole memory, and newcomers would get
//! 503 for as long as the addresses wish. Only requests of the own worker are compared: the kernel spreads the connections
//! of each client over all workers.

use crate::limits::{
    SERVER_STALL_MILLISECONDS, SHORT_STALL_MILLISECONDS, SLOW_HOLDER_DIVISOR, SLOW_REQUEST_WEIGHT,
    SMALL_HOLDER_DIVISOR,
};
use crate::serve::connection_entry::Activity;
use base::client_history::ClientStanding;
use base::client_network::ClientNetwork;
use base::fair_share::ClientHoldings;
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use std::cmp::Reverse;

/// Requests under way of one client on one connection. `T` leads to the connection.
pub(super) struct BusyConnection<T> {
    pub(super) owner: T,
    pub(super) client: ClientNetwork,
    /// Number of requests that are not yet told to end.
    pub(super) requests: usize,
    /// Activity of the request without progress for longest.
    pub(super) activity: Activity,
    /// Bytes that the requests moved together in the last seconds, a second; None if not known.
    pub(super) rate: Option<u64>,
}

impl<T> BusyConnection<T> {
    /// Converts the owner.
    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> U) -> BusyConnection<U> {
        BusyConnection {
            owner: convert(self.owner),
            client: self.client,
            requests: self.requests,
            activity: self.activity,
            rate: self.rate,
        }
    }

    /// Returns true if the requests wait for their client, which moves less than 32 KiB/s for each.
    fn is_slow(&self) -> bool {
        let is_below = |rate| rate < DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE * self.requests as u64;
        matches!(self.activity, Activity::AwaitsClient(_)) && self.rate.is_some_and(is_below)
    }

    /// Returns true if a request has waited for its client for 1 s, or for the server for 10 s.
    fn is_still(&self, now_ms: u64) -> bool {
        let least_ms = match self.activity {
            Activity::Idle(_) => return false,
            Activity::AwaitsClient(_) => SHORT_STALL_MILLISECONDS,
            Activity::Busy(_) => SERVER_STALL_MILLISECONDS,
        };
        now_ms.saturating_sub(self.activity.since_ms()) >= least_ms
    }
}

/// Request without memory.
pub(super) struct Claim {
    pub(super) client: ClientNetwork,
    pub(super) standing: ClientStanding,
    /// Requests of the client that need the memory themselves: 0 for a further request.
    pub(super) own: usize,
    pub(super) now_ms: u64,
}

/// Requests of one connection that end.
pub(super) struct EndedRequests<T> {
    pub(super) owner: T,
    pub(super) client: ClientNetwork,
    pub(super) count: usize,
    /// True if the client was too slow.
    pub(super) is_slow: bool,
}

/// Outcome of a choice.
pub(super) struct Choice<T> {
    /// Requests that end.
    pub(super) ended: Vec<EndedRequests<T>>,
    /// True if the claiming client has no other request.
    pub(super) holds_nothing: bool,
}

/// Chooses up to `count` requests that end for `claim`, of the clients with the most requests first:
///
/// - A client with at least eight times as many requests as the claiming client would have loses the requests without
///   progress for longest.
/// - A client with at least twice as many requests loses requests that have waited for the client for 1 s, or that wait for
///   the client and move less than 32 KiB/s.
/// - To a client without another request, any client loses such a request, or one that has waited for the server for 10 s.
/// - A newcomer takes the place of any request of a client with at least 2.
///
/// Where clients with slow requests and clients with further requests may lose one, each slow request counts as 4. A client that was too slow lately takes no place.
pub(super) fn choose<T>(
    connections: Vec<BusyConnection<T>>,
    claim: &Claim,
    count: usize,
) -> Choice<T> {
    let mut held = ClientHoldings::default();
    for connection in &connections {
        held.add(connection.client, connection.requests);
    }
    let largest = held.largest_beside(claim.client, held.all());
    let other = largest.map_or_else(|| held.of(claim.client), |largest| largest.other);
    let other = other.saturating_sub(claim.own);
    let mut choice = Choice {
        ended: Vec::new(),
        holds_nothing: other == 0,
    };
    let takes = |units| other == 0 || SLOW_HOLDER_DIVISOR * (other + 1) <= units;
    let largest = largest.filter(|it| takes(it.units) && claim.standing != ClientStanding::Slow);
    let Some(largest) = largest else {
        return choice;
    };
    let units = |client| {
        if client == largest.client {
            largest.units
        } else {
            held.of(client)
        }
    };
    let takes_any = SMALL_HOLDER_DIVISOR * (other + 1) <= largest.units;
    let is_newcomer = other == 0 && claim.standing == ClientStanding::New;
    let rank = |connection: &BusyConnection<T>| {
        let own = units(connection.client);
        let gives_way = connection.is_still(claim.now_ms) || connection.is_slow();
        let may_end = if takes_any {
            connection.client == largest.client
        } else if gives_way {
            let is_waiting = matches!(connection.activity, Activity::Busy(_));
            takes(own) && (other == 0 || !is_waiting)
        } else {
            is_newcomer && own >= 2
        };
        let may_end = may_end && connection.requests > 0 && connection.client != claim.client;
        let is_moving = !connection.is_still(claim.now_ms);
        let since_ms = connection.activity.since_ms();
        let weight = if gives_way {
            own * SLOW_REQUEST_WEIGHT
        } else {
            own
        };
        may_end.then_some((Reverse(weight), !gives_way, is_moving, since_ms))
    };
    let ranked = connections.into_iter();
    let ranked = ranked.filter_map(|connection| Some((rank(&connection)?, connection)));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut left = count;
    for (_, connection) in ranked {
        let taken = connection.requests.min(left);
        if taken == 0 {
            break;
        }
        left -= taken;
        choice.ended.push(EndedRequests {
            client: connection.client,
            count: taken,
            is_slow: connection.is_slow(),
            owner: connection.owner,
        });
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const NOW_MS: u64 = 20_000;
    const SLOW: Option<u64> = Some(2_000);
    const FAST: Option<u64> = Some(7 * DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE);

    type Busy = BusyConnection<(u8, usize)>;

    fn client(last: u8) -> ClientNetwork {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn busy(last: u8, requests: usize, activity: Activity) -> Busy {
        moving(last, requests, activity, None)
    }

    fn moving(last: u8, requests: usize, activity: Activity, rate: Option<u64>) -> Busy {
        BusyConnection {
            owner: (last, requests),
            client: client(last),
            requests,
            activity,
            rate,
        }
    }

    fn claim(last: u8) -> Claim {
        Claim {
            client: client(last),
            standing: ClientStanding::New,
            own: 0,
            now_ms: NOW_MS,
        }
    }

    /// Returns the connection that loses a request to a claim.
    fn chosen(connections: Vec<Busy>, claim: &Claim) -> Option<(u8, usize)> {
        let choice = choose(connections, claim, 1);
        choice.ended.first().map(|ended| ended.owner)
    }

    #[test]
    fn the_longest_request_of_the_largest_client_ends_for_a_newcomer() {
        let all = |largest: usize| {
            vec![
                busy(1, largest, Activity::Busy(NOW_MS - 10)),
                busy(1, 2, Activity::Busy(NOW_MS - 20)),
                busy(2, 7, Activity::Busy(NOW_MS - 900)),
                busy(1, 0, Activity::Busy(0)),
            ]
        };
        let chosen = |largest, last| chosen(all(largest), &claim(last));
        assert_eq!(chosen(6, 9), Some((1, 2)));
        assert_eq!(chosen(62, 2), Some((1, 2)), "client 2 has 7 of 71");
        assert_eq!(chosen(61, 2), None);
        assert_eq!(chosen(6, 1), None, "client 2 has no more than client 1");
    }

    #[test]
    fn a_request_without_progress_ends_where_all_clients_have_few() {
        let (awaits, works) = (Activity::AwaitsClient, Activity::Busy);
        let of = |first, second| vec![busy(1, 1, first), busy(2, 1, second)];
        let table = [
            (works(NOW_MS - 9_999), awaits(NOW_MS - 999), None),
            (works(NOW_MS - 9_999), awaits(NOW_MS - 1_000), Some((2, 1))),
            (works(NOW_MS - 10_000), awaits(NOW_MS - 999), Some((1, 1))),
            (works(NOW_MS - 15_000), awaits(NOW_MS - 1_000), Some((1, 1))),
        ];
        for (first, second, expected) in table {
            let row = format!("{first:?} {second:?}");
            assert_eq!(chosen(of(first, second), &claim(9)), expected, "{row}");
            assert_eq!(chosen(of(first, second), &claim(2)), None, "{row}");
        }
        assert_eq!(chosen(Vec::new(), &claim(9)), None);
    }

    /// Slow uploads of clients with 7 requests each move all the time, and so do those of an honest client.
    #[test]
    fn slow_requests_of_clients_with_more_give_way_before_others() {
        let now = Activity::AwaitsClient(NOW_MS - 100);
        let silent = Activity::Busy(NOW_MS - 15_000);
        let all = || {
            vec![
                moving(1, 4, now, FAST),
                moving(2, 1, silent, SLOW),
                moving(3, 7, now, FAST.map(|rate| rate - 1)),
                moving(4, 7, now, FAST.map(|rate| rate / 2)),
                moving(5, 6, now, SLOW),
            ]
        };
        let choice = choose(all(), &claim(9), 8);
        let ended = choice.ended.iter().map(|it| (it.owner, it.count));
        let expected = [((3, 7), 7), ((4, 7), 1)];
        assert_eq!(ended.collect::<Vec<_>>(), expected);
        assert!(choice.holds_nothing && choice.ended.iter().all(|it| it.is_slow));
        // A client with 2 requests takes only from clients with at least 6.
        let of_two = |claim| {
            let mut all = all();
            all.push(busy(9, 2, now));
            choose(all, &claim, 100)
        };
        let ended = of_two(claim(9)).ended;
        let owners: Vec<_> = ended.iter().map(|it| it.owner.0).collect();
        assert_eq!(owners, [3, 4, 5]);
        // Content of one of both requests needs memory.
        let content = Claim { own: 1, ..claim(9) };
        assert_eq!(of_two(content).ended.len(), 3);
        let content = Claim { own: 2, ..claim(9) };
        assert!(of_two(content).holds_nothing);
    }

    #[test]
    fn a_newcomer_takes_the_place_of_a_request_that_moves() {
        let works = Activity::Busy;
        let all = || {
            vec![
                busy(1, 1, works(NOW_MS - 900)),
                busy(2, 3, works(NOW_MS - 10)),
                busy(3, 3, works(NOW_MS - 20)),
                moving(4, 2, Activity::AwaitsClient(NOW_MS - 30), FAST),
            ]
        };
        assert_eq!(chosen(all(), &claim(9)), Some((3, 3)));
        // A stalled upload counts as 4 requests.
        let with_stalled = |largest| {
            let mut all = all();
            all.push(busy(5, 1, Activity::AwaitsClient(NOW_MS - 1_000)));
            all.push(busy(6, largest, works(NOW_MS - 5)));
            chosen(all, &claim(9))
        };
        assert_eq!(with_stalled(4), Some((5, 1)));
        assert_eq!(with_stalled(5), Some((6, 5)));
        let of = |standing| Claim {
            standing,
            ..claim(9)
        };
        assert_eq!(chosen(all(), &of(ClientStanding::Served)), None);
        assert_eq!(chosen(all(), &of(ClientStanding::Slow)), None);
        assert!(!choose(all(), &of(ClientStanding::New), 1).ended[0].is_slow);
    }

    #[test]
    fn a_client_that_was_too_slow_takes_no_place() {
        let stalled = vec![busy(1, 99, Activity::AwaitsClient(0))];
        let slow = Claim {
            standing: ClientStanding::Slow,
            ..claim(9)
        };
        assert_eq!(chosen(stalled, &slow), None);
    }
}
