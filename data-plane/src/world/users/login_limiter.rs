//! Limit of failed logins for each client: a bounded table of token buckets.
//!
//! An unknown password takes a token before hashing, so simultaneous guesses count at once. A right
//! password gives the token back. The module is pure: the caller passes the time.

use crate::limits::{
    LOGIN_CLIENTS_MAX, LOGIN_FAILED_SECONDS, LOGIN_FAILURE_SECONDS, LOGIN_FAILURES_MAX,
    LOGIN_TRUSTED_SECONDS,
};
use crate::world::users::hash_queue::LoginStanding;
use base::client_network::ClientNetwork;
use base::marks::{MarkTable, Neighbourhood};
use std::collections::HashMap;

/// Limiter of failed logins, a single limiter for the process.
#[derive(Default)]
pub(crate) struct LoginLimiter {
    clients: HashMap<ClientNetwork, ClientRecord>,
    /// Neighbourhoods in which wrong logins count. A program that guesses passwords often has a whole range of addresses.
    failed: MarkTable<Neighbourhood>,
}

/// Token bucket and trust of a client. Times are in milliseconds, monotonic.
#[derive(Copy, Clone, Default)]
struct ClientRecord {
    /// Time at which the last token taken is returned, and the bucket is full.
    full_at_ms: u64,
    /// End of the time for which a right login of the client counts.
    trusted_until_ms: u64,
}

const TOKEN_MS: u64 = LOGIN_FAILURE_SECONDS * 1_000;
const TOKENS_MS: u64 = LOGIN_FAILURES_MAX * TOKEN_MS;

impl ClientRecord {
    fn is_worth_keeping(self, now_ms: u64) -> bool {
        let until_ms = [self.full_at_ms, self.trusted_until_ms];
        until_ms.into_iter().any(|until_ms| now_ms < until_ms)
    }

    /// Returns the time at which the bucket would be full again after another token is taken, or `None` if
    /// no token is left.
    fn with_one_more(self, now_ms: u64) -> Option<u64> {
        let full_at_ms = self.full_at_ms.max(now_ms) + TOKEN_MS;
        (full_at_ms <= now_ms + TOKENS_MS).then_some(full_at_ms)
    }
}

impl LoginLimiter {
    /// Returns true if the client may try an unknown login. A refused client may try again within
    /// [`LOGIN_FAILURE_SECONDS`].
    pub(crate) fn may_try(&self, client: ClientNetwork, now_ms: u64) -> bool {
        self.of(client).with_one_more(now_ms).is_some()
    }

    /// Takes a token for a try, which counts as a failure until [`LoginLimiter::succeeded`] or
    /// [`LoginLimiter::refund`] is called. Returns false if no token is left.
    #[must_use]
    pub(super) fn tries(&mut self, client: ClientNetwork, now_ms: u64) -> bool {
        let Some(full_at_ms) = self.of(client).with_one_more(now_ms) else {
            return false;
        };
        self.make_room(client, now_ms);
        self.clients.entry(client).or_default().full_at_ms = full_at_ms;
        true
    }

    /// Records that a login with a token was right, and gives the token back.
    pub(super) fn succeeded(&mut self, client: ClientNetwork, now_ms: u64) {
        self.refund(client);
        self.record_success(client, now_ms);
    }

    /// Records that a login without a token was right.
    pub(crate) fn record_success(&mut self, client: ClientNetwork, now_ms: u64) {
        self.make_room(client, now_ms);
        let known = self.clients.entry(client).or_default();
        known.trusted_until_ms = now_ms + LOGIN_TRUSTED_SECONDS * 1_000;
    }

    /// Records that a login was wrong.
    pub(crate) fn record_failure(&mut self, client: ClientNetwork, now_ms: u64) {
        let until_ms = now_ms + LOGIN_FAILED_SECONDS * 1_000;
        self.failed.mark(client, until_ms, now_ms);
    }

    /// Gives back the token of a login that was never hashed.
    pub(super) fn refund(&mut self, client: ClientNetwork) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.full_at_ms = known.full_at_ms.saturating_sub(TOKEN_MS);
        }
    }

    /// Returns the standing of the client: trusted if a login was right in the last [`LOGIN_TRUSTED_SECONDS`], and
    /// failed if none was and a login of the neighbourhood was wrong in the last [`LOGIN_FAILED_SECONDS`].
    pub(super) fn standing(&self, client: ClientNetwork, now_ms: u64) -> LoginStanding {
        if now_ms < self.of(client).trusted_until_ms {
            LoginStanding::Trusted
        } else if self.failed.is_marked(client, now_ms) {
            LoginStanding::Failed
        } else {
            LoginStanding::Unknown
        }
    }

    #[cfg(test)]
    fn trusts(&self, client: ClientNetwork, now_ms: u64) -> bool {
        self.standing(client, now_ms) == LoginStanding::Trusted
    }

    fn of(&self, client: ClientNetwork) -> ClientRecord {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// Makes room in a full table by removing the client with the fewest failures, untrusted clients
    /// before trusted clients: a flood from many addresses brings failures, but no right logins.
    fn make_room(&mut self, client: ClientNetwork, now_ms: u64) {
        if self.clients.len() < LOGIN_CLIENTS_MAX || self.clients.contains_key(&client) {
            return;
        }
        self.clients
            .retain(|_, known| known.is_worth_keeping(now_ms));
        if self.clients.len() < LOGIN_CLIENTS_MAX {
            return;
        }
        let value = |known: &ClientRecord| {
            let is_trusted = now_ms < known.trusted_until_ms;
            (is_trusted, known.full_at_ms)
        };
        let least = self.clients.iter().min_by_key(|(_, known)| value(known));
        if let Some(least) = least.map(|(client, _)| *client) {
            self.clients.remove(&least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    fn client(nth: usize) -> ClientNetwork {
        let address = IpAddr::from([10, (nth >> 16) as u8, (nth >> 8) as u8, nth as u8]);
        address.into()
    }

    /// Returns the number of logins that the client may try at `now_ms`.
    fn tries(limiter: &mut LoginLimiter, client: ClientNetwork, now_ms: u64) -> u64 {
        (0..).take_while(|_| limiter.tries(client, now_ms)).count() as u64
    }

    #[test]
    fn each_client_has_a_failure_budget_that_refills_over_time() {
        let mut limiter = LoginLimiter::default();
        assert_eq!(tries(&mut limiter, client(1), 5), LOGIN_FAILURES_MAX);
        assert!(!limiter.may_try(client(1), 5));
        assert_eq!(tries(&mut limiter, client(2), 5), LOGIN_FAILURES_MAX);
        assert_eq!(tries(&mut limiter, client(1), 4 + TOKEN_MS), 0);
        assert_eq!(tries(&mut limiter, client(1), 5 + TOKEN_MS), 1);
        assert_eq!(tries(&mut limiter, client(1), 5 + 4 * TOKEN_MS), 3);
        let all = tries(&mut limiter, client(1), 1_000 * TOKEN_MS);
        assert_eq!(all, LOGIN_FAILURES_MAX, "the budget has a maximum");
    }

    #[test]
    fn right_logins_and_unchecked_logins_are_no_failures() {
        let mut limiter = LoginLimiter::default();
        for _ in 0..100 {
            assert!(limiter.tries(client(1), 0));
            limiter.succeeded(client(1), 0);
            assert!(limiter.tries(client(1), 0));
            limiter.refund(client(1));
        }
        assert_eq!(tries(&mut limiter, client(1), 0), LOGIN_FAILURES_MAX);
        limiter.refund(client(1));
        assert_eq!(tries(&mut limiter, client(1), 0), 1);
    }

    #[test]
    fn trust_expires_and_does_not_lift_the_limit_of_failures() {
        let mut limiter = LoginLimiter::default();
        assert!(!limiter.trusts(client(1), 0));
        limiter.record_success(client(1), 7);
        let until = 7 + LOGIN_TRUSTED_SECONDS * 1_000;
        assert!(limiter.trusts(client(1), until - 1));
        assert!(!limiter.trusts(client(1), until) && !limiter.trusts(client(2), 7));
        assert_eq!(tries(&mut limiter, client(1), 7), LOGIN_FAILURES_MAX);
    }

    #[test]
    fn a_wrong_login_counts_for_its_neighbourhood_until_a_right_one() {
        let mut limiter = LoginLimiter::default();
        let standing = |limiter: &LoginLimiter, now_ms| limiter.standing(client(1), now_ms);
        assert_eq!(standing(&limiter, 0), LoginStanding::Unknown);
        limiter.record_failure(client(1), 5);
        let until = 5 + LOGIN_FAILED_SECONDS * 1_000;
        assert_eq!(standing(&limiter, until - 1), LoginStanding::Failed);
        assert_eq!(standing(&limiter, until), LoginStanding::Unknown);
        assert_eq!(limiter.standing(client(255), 5), LoginStanding::Failed);
        assert_eq!(limiter.standing(client(256), 5), LoginStanding::Unknown);
        limiter.record_success(client(1), 6);
        assert_eq!(standing(&limiter, 7), LoginStanding::Trusted);
        let later = 6 + LOGIN_TRUSTED_SECONDS * 1_000;
        assert_eq!(standing(&limiter, later), LoginStanding::Unknown);
        let address = |text: &str| ClientNetwork::from(text.parse::<IpAddr>().unwrap());
        limiter.record_failure(address("2001:db8:1:2::3"), 0);
        let neighbour = limiter.standing(address("2001:db8:1:ffff::1"), 1);
        assert_eq!(neighbour, LoginStanding::Failed);
        let stranger = limiter.standing(address("2001:db8:2:2::3"), 1);
        assert_eq!(stranger, LoginStanding::Unknown);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let mut limiter = LoginLimiter::default();
        let address = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last));
        for last in 0..LOGIN_FAILURES_MAX as u16 {
            assert!(limiter.tries(address(last).into(), 0));
        }
        assert!(!limiter.may_try(address(0x1234).into(), 0));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_clients_with_few_failures_first() {
        let mut limiter = LoginLimiter::default();
        let guessing = client(0xff_0000);
        tries(&mut limiter, guessing, 0);
        let trusted = client(0xff_0001);
        limiter.record_success(trusted, 0);
        for nth in 0..3 * LOGIN_CLIENTS_MAX {
            assert!(limiter.tries(client(nth), 0));
            assert!(limiter.clients.len() <= LOGIN_CLIENTS_MAX);
        }
        assert!(!limiter.may_try(guessing, 0) && limiter.trusts(trusted, 0));
        // Expired entries make room.
        assert!(limiter.tries(client(0xff_0002), 10_000_000));
        assert_eq!(limiter.clients.len(), 1);
    }
}
