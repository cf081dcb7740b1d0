//! Request rate of each client, by token buckets in a table of bounded size. All workers share the table.
//!
//! A bucket is a single time: the time at which the bucket is full again. The table has a fixed number of shards, and
//! each shard a lock that is held for one look-up.

use crate::limits::RATE_CLIENTS_MAX;
use base::client_network::ClientNetwork;
use base::hash::FastBuildHasher;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Rate of requests that a client may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Requests in each period.
    pub requests: u32,
    /// Length of a period in milliseconds.
    pub period_ms: u64,
    /// Requests that a client may send at once after a pause.
    pub burst: u32,
}

/// Token buckets of the clients under one limit.
pub struct ClientRate {
    limit: RateLimit,
    hasher: FastBuildHasher,
    shards: [Mutex<Buckets>; SHARDS],
}

/// Times in nanoseconds at which the buckets are full again. A client without an entry has a full bucket.
type Buckets = HashMap<ClientNetwork, u64, FastBuildHasher>;

/// Shards of a table: more than the workers of a small machine, so that workers rarely wait for one another.
const SHARDS: usize = 16;
/// Clients of a shard.
const SHARD_CLIENTS_MAX: usize = RATE_CLIENTS_MAX / SHARDS;
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

impl RateLimit {
    /// Returns the time in which a bucket gains one token, in nanoseconds.
    fn token_ns(&self) -> u64 {
        (self.period_ms.saturating_mul(MS) / u64::from(self.requests.max(1))).max(1)
    }

    /// Returns the time in which an empty bucket becomes full, in nanoseconds.
    fn bucket_ns(&self) -> u64 {
        self.token_ns().saturating_mul(self.burst.max(1).into())
    }
}

impl ClientRate {
    /// Makes a table in which each client has a full bucket.
    pub fn new(limit: RateLimit) -> ClientRate {
        ClientRate {
            limit,
            hasher: FastBuildHasher::default(),
            shards: Default::default(),
        }
    }

    /// Returns the limit of the clients.
    pub fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Takes a token of the client.
    ///
    /// # Errors
    /// The bucket is empty. The error is the time until the next token in milliseconds, at least 1. A refused request
    /// takes nothing, so a client that waits as long as told is admitted.
    pub(crate) fn take(&self, client: ClientNetwork, now_ms: u64) -> Result<(), u64> {
        self.try_take(client, now_ms, true)
    }

    /// Returns the result of [`ClientRate::take`] without taking a token.
    pub(crate) fn peek(&self, client: ClientNetwork, now_ms: u64) -> Result<(), u64> {
        self.try_take(client, now_ms, false)
    }

    fn try_take(&self, client: ClientNetwork, now_ms: u64, takes: bool) -> Result<(), u64> {
        let now = now_ms.saturating_mul(MS);
        let shard = self.hasher.of(&client.octets()) as usize % SHARDS;
        let mut buckets = self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.get(&client).copied().unwrap_or(0);
        let full_at = full_at.max(now).saturating_add(self.limit.token_ns());
        let latest = now.saturating_add(self.limit.bucket_ns());
        if full_at > latest {
            return Err((full_at - latest).div_ceil(MS).max(1));
        }
        if takes {
            make_room(&mut buckets, client, now);
            buckets.insert(client, full_at);
        }
        Ok(())
    }
}

/// Makes room in a full shard: full buckets are removed, else the bucket that is full first. A flood from many addresses
/// removes buckets of the flood, each with one token taken, before the bucket of a client at its limit.
fn make_room(buckets: &mut Buckets, client: ClientNetwork, now: u64) {
    if buckets.len() < SHARD_CLIENTS_MAX || buckets.contains_key(&client) {
        return;
    }
    buckets.retain(|_, full_at| *full_at > now);
    if buckets.len() < SHARD_CLIENTS_MAX {
        return;
    }
    let first = buckets.iter().min_by_key(|(_, full_at)| **full_at);
    if let Some(first) = first.map(|(client, _)| *client) {
        buckets.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    fn client(nth: u32) -> ClientNetwork {
        let [_, b, c, d] = nth.to_be_bytes();
        IpAddr::from([10, b, c, d]).into()
    }

    fn rate(requests: u32, period_ms: u64, burst: u32) -> ClientRate {
        ClientRate::new(RateLimit {
            requests,
            period_ms,
            burst,
        })
    }

    /// Returns the number of requests admitted at once.
    fn admitted(rate: &ClientRate, client: ClientNetwork, now_ms: u64) -> usize {
        (0..)
            .take_while(|_| rate.take(client, now_ms).is_ok())
            .count()
    }

    #[test]
    fn a_client_has_a_burst_and_then_the_rate() {
        let rate = rate(2, 1_000, 5);
        assert_eq!(admitted(&rate, client(1), 7), 5);
        assert_eq!(admitted(&rate, client(2), 7), 5, "another client");
        assert_eq!(admitted(&rate, client(1), 506), 0);
        assert_eq!(admitted(&rate, client(1), 507), 1);
        assert_eq!(admitted(&rate, client(1), 2_007), 3);
        assert_eq!(
            admitted(&rate, client(1), 1_000_000),
            5,
            "the burst is the most"
        );
    }

    #[test]
    fn the_wait_is_true_to_the_millisecond() {
        for (requests, period_ms, burst) in [(1, 60_000, 1), (3, 1_000, 4), (1_000_000, 1_000, 1)] {
            let rate = rate(requests, period_ms, burst);
            let mut now = 5;
            while rate.take(client(1), now).is_ok() {}
            for _ in 0..20 {
                let wait = rate.take(client(1), now).expect_err("an empty bucket");
                assert_eq!(
                    rate.peek(client(1), now),
                    Err(wait),
                    "a refusal takes nothing"
                );
                if wait > 1 {
                    assert!(rate.peek(client(1), now + wait - 1).is_err());
                }
                now += wait;
                assert_eq!(rate.peek(client(1), now), Ok(()));
                while rate.take(client(1), now).is_ok() {}
            }
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let rate = rate(1, 1_000, 3);
        let address = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last));
        let results = (0..5).map(|last| rate.take(address(last).into(), 0).is_ok());
        assert_eq!(
            results.collect::<Vec<_>>(),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn the_table_is_bounded_and_keeps_clients_at_their_limit() {
        let rate = rate(1, 1_000, 3);
        let busy = client(0xff_ffff);
        assert_eq!(admitted(&rate, busy, 0), 3);
        for nth in 0..3 * RATE_CLIENTS_MAX as u32 {
            assert!(rate.take(client(nth), 0).is_ok());
        }
        let clients = |rate: &ClientRate| {
            let sizes = rate
                .shards
                .iter()
                .map(|shard| shard.lock().expect("a lock").len());
            sizes.sum::<usize>()
        };
        assert!(clients(&rate) <= RATE_CLIENTS_MAX);
        assert_eq!(rate.take(busy, 0), Err(1_000));
        // Full buckets make room.
        for nth in 0..SHARDS as u32 * 100 {
            assert!(rate.take(client(nth), 1_000_000).is_ok());
        }
        assert!(clients(&rate) < RATE_CLIENTS_MAX, "{}", clients(&rate));
    }
}
