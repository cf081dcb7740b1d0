//! Pauses between the searches of a worker for requests that end in favour of one client. Pure.
//!
//! A search walks over all connections of the worker. After a search that found no request to end, a search for the same client
//! would find none a moment later either. A client that asks again and again must not have the worker search each time.

use crate::limits::{
    CALL_SEARCHED_PER_MILLISECOND, SEARCH_PAUSE_CLIENTS_MAX, SEARCH_PAUSE_MILLISECONDS_MAX,
};
use base::client_network::ClientNetwork;
use base::hash::FastBuildHasher;
use std::collections::HashMap;

/// Clients for which the last search found no request to end.
#[derive(Default)]
pub(super) struct SearchPauses {
    /// End of each client's pause, in milliseconds of the worker's clock.
    ends_ms: HashMap<ClientNetwork, u64, FastBuildHasher>,
}

impl SearchPauses {
    /// Returns true if a search for `client` would be too early.
    pub(super) fn contains(&self, client: ClientNetwork, now_ms: u64) -> bool {
        self.ends_ms.get(&client).is_some_and(|end| now_ms < *end)
    }

    /// Begins the pause of `client` after a search among `connections` connections that found nothing. All clients with a
    /// pause together have the worker search [`CALL_SEARCHED_PER_MILLISECOND`] connections a millisecond.
    pub(super) fn begin(&mut self, client: ClientNetwork, connections: usize, now_ms: u64) {
        if self.ends_ms.len() >= SEARCH_PAUSE_CLIENTS_MAX {
            self.ends_ms.retain(|_, end| now_ms < *end);
        }
        if self.ends_ms.len() >= SEARCH_PAUSE_CLIENTS_MAX {
            self.ends_ms.clear();
        }
        let clients = self.ends_ms.len() as u64 + 1;
        let pause_ms = 1 + connections as u64 * clients / CALL_SEARCHED_PER_MILLISECOND;
        let end_ms = now_ms + pause_ms.min(SEARCH_PAUSE_MILLISECONDS_MAX);
        self.ends_ms.insert(client, end_ms);
    }

    /// Forgets pauses that are over.
    pub(super) fn forget_ended(&mut self, now_ms: u64) {
        if !self.ends_ms.is_empty() {
            self.ends_ms.retain(|_, end| now_ms < *end);
        }
        if self.ends_ms.is_empty() {
            self.ends_ms = HashMap::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(nth: u32) -> ClientNetwork {
        IpAddr::from(nth.to_be_bytes()).into()
    }

    #[test]
    fn a_pause_grows_with_the_work_of_the_searches() {
        let mut pauses = SearchPauses::default();
        pauses.begin(client(1), 10, 5_000);
        assert!(pauses.contains(client(1), 5_000));
        assert!(!pauses.contains(client(1), 5_001));
        assert!(!pauses.contains(client(2), 5_000));
        // 90 clients and 640 connections: 57,600 connections for one search of each client.
        for nth in 1..=90 {
            pauses.begin(client(nth), 640, 6_000);
        }
        let most_ms = 640 * 90 / CALL_SEARCHED_PER_MILLISECOND;
        assert!(pauses.contains(client(90), 6_000 + most_ms));
        assert!(!pauses.contains(client(90), 6_001 + most_ms));
        pauses.begin(client(90), 1_000_000, 7_000);
        let end_ms = 7_000 + SEARCH_PAUSE_MILLISECONDS_MAX;
        assert!(pauses.contains(client(90), end_ms - 1));
        assert!(!pauses.contains(client(90), end_ms));
    }

    #[test]
    fn the_table_is_bounded_and_given_back() {
        let mut pauses = SearchPauses::default();
        for nth in 0..2 * SEARCH_PAUSE_CLIENTS_MAX as u32 {
            pauses.begin(client(nth), 1_000_000, 1);
            assert!(pauses.ends_ms.len() <= SEARCH_PAUSE_CLIENTS_MAX);
        }
        pauses.forget_ended(1 + SEARCH_PAUSE_MILLISECONDS_MAX);
        assert_eq!(pauses.ends_ms.capacity(), 0);
    }
}
