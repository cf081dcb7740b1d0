//! Budget of retries: a share of the requests of the last seconds. Without a budget, members that fail
//! under too much load would get even more. Pure.

use crate::limits::{RETRIES_MIN, RETRY_SHARES, RETRY_WINDOW_SECONDS};

/// Requests and retries of the last [`RETRY_WINDOW_SECONDS`], by second.
#[derive(Default)]
pub(crate) struct RetryBudget {
    seconds: [SecondCounts; RETRY_WINDOW_SECONDS as usize],
    /// Last second with a count.
    second: u64,
    /// Sum of all seconds.
    sum: SecondCounts,
    shares: ClientShares,
    /// Client of the last request, and the last request of any other client.
    last: [Option<ClientRequest>; 2],
}

/// Time of the last request of a client.
#[derive(Copy, Clone)]
struct ClientRequest {
    client_hash: u64,
    at_ms: u64,
}

/// Requests and retries of each client in the current window, by a hash of the client's address. Clients with equal
/// hashes share the counts.
struct ClientShares {
    /// Number of the window since the start of the process.
    window: u64,
    counts: [SecondCounts; RETRY_SHARES],
}

impl Default for ClientShares {
    fn default() -> ClientShares {
        ClientShares {
            window: 0,
            counts: [SecondCounts::default(); RETRY_SHARES],
        }
    }
}

impl ClientShares {
    /// Returns the counts of a client. All counts begin anew with each window.
    fn of(&mut self, client_hash: u64, now_ms: u64) -> &mut SecondCounts {
        let window = now_ms / (RETRY_WINDOW_SECONDS * 1_000);
        if window > self.window {
            (self.window, self.counts) = (window, [SecondCounts::default(); RETRY_SHARES]);
        }
        &mut self.counts[client_hash as usize % RETRY_SHARES]
    }
}

/// Counts of one second, of a client, or of the whole window.
#[derive(Copy, Clone, Default)]
struct SecondCounts {
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    /// Counts a request of a client.
    pub(crate) fn record_request(&mut self, client_hash: u64, now_ms: u64) {
        let now = self.advance(now_ms);
        now.requests = now.requests.saturating_add(1);
        self.sum.requests = self.sum.requests.saturating_add(1);
        let own = self.shares.of(client_hash, now_ms);
        own.requests = own.requests.saturating_add(1);
        if self.last[0].is_some_and(|last| last.client_hash != client_hash) {
            self.last[1] = self.last[0];
        }
        self.last[0] = Some(ClientRequest {
            client_hash,
            at_ms: now_ms,
        });
    }

    /// Returns true if no other client has made a request within the window.
    fn is_alone(&self, client_hash: u64, now_ms: u64) -> bool {
        let mut last = self.last.iter().flatten();
        let is_recent = |at_ms: u64| now_ms.saturating_sub(at_ms) < RETRY_WINDOW_SECONDS * 1_000;
        !last.any(|last| last.client_hash != client_hash && is_recent(last.at_ms))
    }

    /// Takes one retry of a client from a budget of `percent` of the requests. Returns false if the budget or the
    /// client's share of the budget is used up. A client takes the part of the budget that its own requests bring, and
    /// beyond that at most half of the part that other clients left, since a single client can provoke any number of
    /// retries. A client without others, such as a proxy in front of all clients, takes the whole budget.
    pub(crate) fn take_retry(&mut self, percent: u8, client_hash: u64, now_ms: u64) -> bool {
        self.advance(now_ms);
        let share_of = |requests: u32| u64::from(requests) * u64::from(percent) / 100;
        let allowed = share_of(self.sum.requests).max(u64::from(RETRIES_MIN));
        let left = allowed.saturating_sub(u64::from(self.sum.retries));
        let is_alone = self.is_alone(client_hash, now_ms);
        let own = self.shares.of(client_hash, now_ms);
        let retries = u64::from(own.retries);
        if left == 0 || !is_alone && retries >= left.max(share_of(own.requests)) {
            return false;
        }
        own.retries += 1;
        self.advance(now_ms).retries += 1;
        self.sum.retries += 1;
        true
    }

    /// Clears the seconds that left the window, and returns the counts of the current second. A time before
    /// the last count belongs to the second of the last count.
    fn advance(&mut self, now_ms: u64) -> &mut SecondCounts {
        let second = (now_ms / 1_000).max(self.second);
        let passed = (second - self.second).min(RETRY_WINDOW_SECONDS);
        for step in 1..=passed {
            let left = &mut self.seconds[((self.second + step) % RETRY_WINDOW_SECONDS) as usize];
            self.sum.requests = self.sum.requests.saturating_sub(left.requests);
            self.sum.retries = self.sum.retries.saturating_sub(left.retries);
            *left = SecondCounts::default();
        }
        self.second = second;
        &mut self.seconds[(second % RETRY_WINDOW_SECONDS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes as many retries as possible for 10,000 clients.
    fn taken(budget: &mut RetryBudget, percent: u8, now_ms: u64) -> usize {
        (0..10_000)
            .filter(|client| budget.take_retry(percent, *client, now_ms))
            .count()
    }

    /// Asserts that a budget is used up, except for at most the retries that no client may take: as many as each
    /// client has.
    fn assert_uses_up(bound: usize, taken: usize) {
        let left = bound - taken;
        assert!(left <= taken / RETRY_SHARES + 1, "{taken} of {bound}");
    }

    /// Takes as many retries as possible for each client in turn.
    fn taken_in_turn<const N: usize>(
        budget: &mut RetryBudget,
        now_ms: u64,
        clients: [u64; N],
    ) -> [usize; N] {
        clients.map(|client| {
            (0..10_000)
                .filter(|_| budget.take_retry(20, client, now_ms))
                .count()
        })
    }

    /// Returns a budget after `count` requests of a client.
    fn after_requests(client: u64, count: u32, now_ms: u64) -> RetryBudget {
        let mut budget = RetryBudget::default();
        for _ in 0..count {
            budget.record_request(client, now_ms);
        }
        budget
    }

    #[test]
    fn one_client_takes_half_of_the_part_that_others_left() {
        let mut budget = after_requests(200, 1_000, 50_000);
        let taken = taken_in_turn(&mut budget, 55_000, [1, 1, 2, 3, 4]);
        assert_eq!(taken, [100, 0, 50, 25, 13]);
        let taken = taken_in_turn(&mut after_requests(200, 1, 0), 0, [1, 2, 3, 4, 5]);
        assert_eq!(taken, [5, 3, 1, 1, 0]);
    }

    #[test]
    fn a_client_without_others_takes_the_whole_budget() {
        for (count, retries) in [(1, 10), (1_000, 200)] {
            let mut budget = after_requests(1, count, 50_000);
            assert_eq!(taken_in_turn(&mut budget, 50_000, [1]), [retries]);
        }
        // Another client's request counts for 10 s.
        let mut budget = after_requests(2, 1, 50_000);
        for _ in 0..40 {
            budget.record_request(1, 50_000);
        }
        assert_eq!(taken_in_turn(&mut budget, 59_999, [1]), [8]);
        budget.record_request(1, 60_000);
        assert_eq!(taken_in_turn(&mut budget, 60_000, [1]), [2]);
    }

    #[test]
    fn a_client_takes_the_part_that_its_own_requests_bring() {
        let mut budget = after_requests(1, 900, 50_000);
        for _ in 0..100 {
            budget.record_request(2, 50_000);
        }
        assert_eq!(taken_in_turn(&mut budget, 50_000, [1]), [180]);
        assert_eq!(taken_in_turn(&mut budget, 50_000, [2]), [20]);
    }

    #[test]
    fn the_share_of_a_client_begins_anew_with_each_window() {
        let mut budget = RetryBudget::default();
        for now_ms in [0, 10_000, 20_000] {
            budget.record_request(2, now_ms);
            assert_eq!(taken_in_turn(&mut budget, now_ms, [1]), [5]);
        }
    }

    #[test]
    fn a_few_retries_are_always_allowed() {
        let mut budget = RetryBudget::default();
        assert_eq!(taken(&mut budget, 0, 0), RETRIES_MIN as usize);
        assert_eq!(taken(&mut budget, 0, 9_999), 0);
        assert_eq!(taken(&mut budget, 0, 10_000), RETRIES_MIN as usize);
    }

    #[test]
    fn retries_are_a_share_of_the_requests_of_the_window() {
        let mut budget = RetryBudget::default();
        for now_ms in 0..10_000 {
            budget.record_request(now_ms, now_ms);
        }
        let first = taken(&mut budget, 20, 9_999);
        assert_uses_up(2_000, first);
        // Nine of ten seconds remain, and the retries of the last second.
        assert_eq!(taken(&mut budget, 10, 10_500), 0);
        assert_uses_up(2_700, first + taken(&mut budget, 30, 10_500));
        // Seconds later the window is empty.
        assert_eq!(taken(&mut budget, 20, 60_000), RETRIES_MIN as usize);
    }

    #[test]
    fn a_clock_that_stands_back_changes_nothing() {
        let mut budget = after_requests(1, 1_000, 50_000);
        assert_eq!(taken(&mut budget, 10, 49_000), 100);
    }

    proptest! {
        #[test]
        fn retries_stay_within_the_share(
            steps in proptest::collection::vec((0..3_000_u64, 0..50_u32, any::<bool>()), 1..100),
            percent in 0..=100_u8,
        ) {
            let mut budget = RetryBudget::default();
            let mut now_ms = 0;
            let mut events: Vec<(u64, u32, u32)> = Vec::new();
            for (pause_ms, requests, asks) in steps {
                now_ms += pause_ms;
                for client in 0..requests {
                    budget.record_request(u64::from(client) + now_ms, now_ms);
                }
                let retries = if asks { taken(&mut budget, percent, now_ms) as u32 } else { 0 };
                events.push((now_ms / 1_000, requests, retries));
                let second = now_ms / 1_000;
                let window = events.iter().filter(|it| it.0 + RETRY_WINDOW_SECONDS > second);
                let sum = window.fold((0, 0), |sum, it| (sum.0 + it.1, sum.1 + it.2));
                let bound = RETRIES_MIN.max(sum.0 * u32::from(percent) / 100);
                prop_assert!(retries == 0 || sum.1 <= bound);
                if asks {
                    assert_uses_up(bound as usize, sum.1.min(bound) as usize);
                }
            }
        }
    }
}
