//! History of clients: those that got a place lately, and those that lost a place because they were too slow. A place is one
//! of a bound: of connections, or of the calls of a backend. Without the history, a client that comes back after each loss
//! would be a newcomer again. Bounded. Pure.
//!
//! Addresses count one by one: if a slow client counted against its neighbours, one address in the range of a household or
//! a provider would be enough to keep all of them waiting.

use crate::client_network::ClientNetwork;
use crate::limits::{
    PLACE_USE_MILLISECONDS_MIN, SERVED_CLIENTS_MAX, SERVED_MILLISECONDS, SLOW_CLIENT_MILLISECONDS,
};
use crate::marks::MarkTable;
use std::collections::HashMap;

/// Standing of a client among clients that hold equally much. A client of a better standing goes first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClientStanding {
    /// The client got no place in the last [`SERVED_MILLISECONDS`].
    New,
    /// The client got a place lately.
    Served,
    /// The client was too slow in the last [`SLOW_CLIENT_MILLISECONDS`].
    Slow,
}

/// Places given lately, and clients that were too slow. Times are in milliseconds, monotonic.
#[derive(Default)]
pub struct ClientHistory {
    now_ms: u64,
    /// Number of places given so far.
    grants: u64,
    served: HashMap<ClientNetwork, Grant>,
    slow: MarkTable<ClientNetwork>,
}

/// Latest place of a client.
#[derive(Copy, Clone)]
struct Grant {
    /// Sequence number. Numbers grow with each place given to any client.
    number: u64,
    at_ms: u64,
    /// Time for which the client has held its latest places, in milliseconds.
    used_ms: u64,
}

impl ClientHistory {
    /// Sets the clock. The clock never goes back.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Records a place given to a client.
    pub fn record_grant(&mut self, client: ClientNetwork) {
        self.grants += 1;
        let former = self.recent(client);
        let grant = Grant {
            number: self.grants,
            at_ms: self.now_ms,
            used_ms: former.map_or(0, |grant| grant.used_ms),
        };
        self.served.insert(client, grant);
        if self.served.len() > SERVED_CLIENTS_MAX {
            let forgotten = self.grants.saturating_sub(SERVED_CLIENTS_MAX as u64 / 2);
            self.served.retain(|_, grant| grant.number > forgotten);
        }
    }

    /// Records that a client gives a place back that it has taken at `taken_ms`. Without a recorded place, the call has no
    /// effect.
    pub fn record_use(&mut self, client: ClientNetwork, taken_ms: u64) {
        if let Some(grant) = self.served.get_mut(&client) {
            let held_ms = self.now_ms.saturating_sub(taken_ms.max(grant.at_ms));
            grant.used_ms += held_ms.max(PLACE_USE_MILLISECONDS_MIN);
        }
    }

    /// Records that a client lost a place because the client was too slow.
    pub fn record_slow(&mut self, client: ClientNetwork) {
        let until_ms = self.now_ms + SLOW_CLIENT_MILLISECONDS;
        self.slow.mark(client, until_ms, self.now_ms);
    }

    /// Returns true if the client was too slow lately.
    pub fn is_slow(&self, client: ClientNetwork) -> bool {
        self.slow.is_marked(client, self.now_ms)
    }

    /// Returns the sequence number of the latest place of a client; 0 for none in the last [`SERVED_MILLISECONDS`].
    pub fn latest_grant(&self, client: ClientNetwork) -> u64 {
        self.recent(client).map_or(0, |grant| grant.number)
    }

    /// Returns the time for which a client has held its latest places, in milliseconds.
    pub fn used_ms(&self, client: ClientNetwork) -> u64 {
        self.recent(client).map_or(0, |grant| grant.used_ms)
    }

    /// Returns the latest place of a client, if the client got it in the last [`SERVED_MILLISECONDS`].
    fn recent(&self, client: ClientNetwork) -> Option<Grant> {
        let grant = self.served.get(&client).copied();
        grant.filter(|grant| self.now_ms - grant.at_ms < SERVED_MILLISECONDS)
    }

    /// Returns the standing of a client.
    pub fn standing(&self, client: ClientNetwork) -> ClientStanding {
        if self.is_slow(client) {
            ClientStanding::Slow
        } else if self.latest_grant(client) > 0 {
            ClientStanding::Served
        } else {
            ClientStanding::New
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(nth: usize) -> ClientNetwork {
        IpAddr::from([10, (nth >> 16) as u8, (nth >> 8) as u8, nth as u8]).into()
    }

    #[test]
    fn a_place_is_remembered_for_its_time() {
        let mut history = ClientHistory::default();
        history.advance(7);
        history.record_grant(client(1));
        history.record_grant(client(2));
        assert!(history.latest_grant(client(1)) < history.latest_grant(client(2)));
        assert_eq!(history.standing(client(1)), ClientStanding::Served);
        assert_eq!(history.standing(client(3)), ClientStanding::New);
        history.advance(7 + SERVED_MILLISECONDS - 1);
        assert_eq!(history.standing(client(1)), ClientStanding::Served);
        history.advance(7 + SERVED_MILLISECONDS);
        assert_eq!(history.standing(client(1)), ClientStanding::New);
    }

    #[test]
    fn the_time_of_use_adds_up_while_the_client_comes_back() {
        let mut history = ClientHistory::default();
        history.advance(1_000);
        history.record_use(client(1), 0);
        assert_eq!(history.used_ms(client(1)), 0);
        history.record_grant(client(1));
        history.advance(1_700);
        history.record_use(client(1), 1_000);
        history.record_grant(client(1));
        history.advance(1_800);
        // The time before the place counts as little as the shortness of its use.
        history.record_use(client(1), 0);
        assert_eq!(history.used_ms(client(1)), 700 + PLACE_USE_MILLISECONDS_MIN);
        history.advance(1_700 + SERVED_MILLISECONDS);
        assert_eq!(history.used_ms(client(1)), 0);
        history.record_grant(client(1));
        assert_eq!(history.used_ms(client(1)), 0);
    }

    #[test]
    fn a_slow_client_goes_last_and_its_neighbours_do_not() {
        let mut history = ClientHistory::default();
        history.record_slow(client(1));
        assert_eq!(history.standing(client(1)), ClientStanding::Slow);
        assert_eq!(history.standing(client(2)), ClientStanding::New);
        history.advance(SLOW_CLIENT_MILLISECONDS);
        assert_eq!(history.standing(client(1)), ClientStanding::New);
    }

    #[test]
    fn the_places_given_longest_ago_are_forgotten_first() {
        let mut history = ClientHistory::default();
        for nth in 0..3 * SERVED_CLIENTS_MAX {
            history.record_grant(client(nth));
            assert!(history.served.len() <= SERVED_CLIENTS_MAX);
        }
        assert_eq!(history.latest_grant(client(0)), 0);
        let last = 3 * SERVED_CLIENTS_MAX;
        let kept = last - SERVED_CLIENTS_MAX / 2..last;
        assert!(
            kept.into_iter()
                .all(|nth| history.latest_grant(client(nth)) > 0)
        );
    }
}
