//! Choice of the request that ends in favour of a client with few requests, when the memory of bodies is reserved. Pure.
//!
//! A few addresses with many slow or silent requests each would otherwise reserve the whole memory, and newcomers would get
//! 503 for as long as the addresses wish. Only requests of the own worker are compared: the kernel spreads the connections
//! of each client over all workers.

use crate::limits::{
    FEW_CONNECTIONS_MAX, SERVER_STALL_MILLISECONDS, SHORT_STALL_MILLISECONDS, SMALL_HOLDER_DIVISOR,
};
use crate::serve::connection_entry::Activity;
use base::client_network::ClientNetwork;
use base::fair_share::ClientHoldings;

/// Requests under way of one client on one connection. `T` leads to the connection.
pub(super) struct BusyConnection<T> {
    pub(super) owner: T,
    pub(super) client: ClientNetwork,
    /// Number of requests that are not yet told to end.
    pub(super) requests: usize,
    /// Activity of the request without progress for longest.
    pub(super) activity: Activity,
}

impl<T> BusyConnection<T> {
    /// Converts the owner.
    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> U) -> BusyConnection<U> {
        BusyConnection {
            owner: convert(self.owner),
            client: self.client,
            requests: self.requests,
            activity: self.activity,
        }
    }
}

/// Returns the connection that loses a request to a request of `client`:
///
/// - A client with at least eight times as many requests as `client` would have loses the request without progress for
///   longest.
/// - Where all clients have few requests, a client without any takes the place of a request that has waited for its client
///   for 1 s, or else for the server for 10 s.
pub(super) fn choose<T>(
    connections: Vec<BusyConnection<T>>,
    client: ClientNetwork,
    now_ms: u64,
) -> Option<T> {
    let mut held = ClientHoldings::default();
    for connection in &connections {
        held.add(connection.client, connection.requests);
    }
    let largest = held.largest_beside(client, held.all())?;
    let takes_of_largest = SMALL_HOLDER_DIVISOR * (largest.other + 1) <= largest.units;
    let takes_of_few = largest.other == 0 && largest.units <= FEW_CONNECTIONS_MAX;
    let since_ms = |connection: &BusyConnection<T>| connection.activity.since_ms();
    let is_past = |since_ms: u64, milliseconds| now_ms.saturating_sub(since_ms) >= milliseconds;
    let order = |connection: &BusyConnection<T>| match connection.activity {
        _ if takes_of_largest => {
            let is_largest = connection.client == largest.client;
            is_largest.then_some((0, since_ms(connection)))
        }
        Activity::AwaitsClient(since_ms) if is_past(since_ms, SHORT_STALL_MILLISECONDS) => {
            Some((0, since_ms))
        }
        Activity::Busy(since_ms) if is_past(since_ms, SERVER_STALL_MILLISECONDS) => {
            Some((1, since_ms))
        }
        _ => None,
    };
    if !takes_of_largest && !takes_of_few {
        return None;
    }
    let ranked = connections.into_iter().filter(|it| it.requests > 0);
    let ranked = ranked.filter_map(|it| order(&it).map(|rank| (rank, it.owner)));
    let (_, owner) = ranked.min_by_key(|(rank, _)| *rank)?;
    Some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const NOW_MS: u64 = 20_000;

    fn client(last: u8) -> ClientNetwork {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn busy(last: u8, requests: usize, activity: Activity) -> BusyConnection<(u8, usize)> {
        BusyConnection {
            owner: (last, requests),
            client: client(last),
            requests,
            activity,
        }
    }

    #[test]
    fn the_longest_request_of_the_largest_client_ends_for_a_newcomer() {
        let all = |largest: usize| {
            vec![
                busy(1, largest, Activity::Busy(NOW_MS - 10)),
                busy(1, 2, Activity::AwaitsClient(NOW_MS - 20)),
                busy(2, 7, Activity::AwaitsClient(NOW_MS - 900)),
                busy(1, 0, Activity::Busy(0)),
            ]
        };
        let chosen = |largest, last| choose(all(largest), client(last), NOW_MS);
        assert_eq!(chosen(6, 9), Some((1, 2)));
        assert_eq!(chosen(62, 2), Some((1, 2)), "client 2 has 7 of 71");
        assert_eq!(chosen(61, 2), None);
        assert_eq!(chosen(6, 1), None, "client 2 has no more than client 1");
    }

    #[test]
    fn a_request_without_progress_ends_where_all_clients_have_few() {
        let all = |first, second| vec![busy(1, 7, first), busy(2, 1, second)];
        let chosen = |first, second, last| choose(all(first, second), client(last), NOW_MS);
        let (awaits, works) = (Activity::AwaitsClient, Activity::Busy);
        let table = [
            (works(NOW_MS - 9_999), awaits(NOW_MS - 999), None),
            (works(NOW_MS - 9_999), awaits(NOW_MS - 1_000), Some((2, 1))),
            (works(NOW_MS - 10_000), awaits(NOW_MS - 999), Some((1, 7))),
            (works(NOW_MS - 15_000), awaits(NOW_MS - 1_000), Some((2, 1))),
        ];
        for (first, second, expected) in table {
            assert_eq!(chosen(first, second, 9), expected, "{first:?} {second:?}");
            assert_eq!(chosen(first, second, 2), None, "client 2 has a request");
        }
        assert_eq!(
            choose(Vec::<BusyConnection<()>>::new(), client(9), NOW_MS),
            None
        );
    }
}
