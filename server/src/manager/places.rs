//! Fair shares of a bound among the clients of the manager.
//!
//! On a loopback address all programs and all operators have one address, so a share by address alone would leave a
//! login nothing. Clients without a login therefore take at most half of a bound.

use base::client_network::ClientNetwork;
use base::fair_share::ClientHoldings;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Units of a bound, shared by all workers.
pub(super) struct Places {
    bound: usize,
    held: Mutex<ClientHoldings>,
}

/// Units of one client, free again when dropped.
pub(super) struct Place {
    places: Arc<Places>,
    client: ClientNetwork,
    units: usize,
}

impl Places {
    /// Returns free places.
    pub(super) fn new(bound: usize) -> Arc<Places> {
        let held = Mutex::default();
        Arc::new(Places { bound, held })
    }

    /// Takes units for a client; `None` beyond the client's share. A request for more than an eighth of the bound
    /// counts as an eighth.
    pub(super) fn take(
        self: &Arc<Places>,
        client: IpAddr,
        has_login: bool,
        units: usize,
    ) -> Option<Place> {
        let client = ClientNetwork::from(client);
        let bound = if has_login {
            self.bound
        } else {
            self.bound / 2
        };
        let units = units.min(self.bound / 8);
        let mut held = self.held();
        let may = held.may_take(client, units, bound);
        may.then(|| held.add(client, units));
        may.then(|| Place {
            places: Arc::clone(self),
            client,
            units,
        })
    }

    fn held(&self) -> MutexGuard<'_, ClientHoldings> {
        // Poisoning is ignored: no code that could panic half-way runs under the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.held().remove(self.client, self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<Places>, client: u8, has_login: bool, units: usize) -> Option<Place> {
        places.take([127, 0, 0, client].into(), has_login, units)
    }

    #[test]
    fn clients_without_a_login_leave_half_of_the_bound() {
        let places = Places::new(64);
        let all: Vec<Place> = (0..64).map_while(|_| take(&places, 1, false, 1)).collect();
        assert_eq!(all.len(), 24);
        let other: Vec<Place> = (0..64).map_while(|_| take(&places, 2, false, 1)).collect();
        assert_eq!(other.len(), 4);
        let login: Vec<Place> = (0..64).map_while(|_| take(&places, 1, true, 1)).collect();
        assert_eq!(login.len(), 20);
        drop((all, login));
        assert!(take(&places, 1, false, 1).is_some());
    }

    #[test]
    fn a_large_request_fits_alone() {
        let places = Places::new(64);
        let large = take(&places, 1, false, 1_000);
        assert_eq!(large.as_ref().map(|it| it.units), Some(8));
        drop(large);
        assert_eq!(places.held().all(), 0);
    }
}
