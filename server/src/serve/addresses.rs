//! How many connections each address has, over all workers. Asked only where that is limited: the
//! kernel spreads the connections of one address over all workers, so no worker can count alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The ledger.
#[derive(Default)]
pub struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// One connection's entry in it, struck out when dropped.
pub struct Entered {
    ledger: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// Counts one more connection from `address`; None where it has `most` already.
    pub fn enter(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Entered> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Entered {
            ledger: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(&self.address) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_makes_room() {
        let ledger = Arc::new(Addresses::default());
        let [one, other] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let first = ledger.enter(one, 2);
        let second = ledger.enter(one, 2);
        assert!(first.is_some() && second.is_some());
        assert!(ledger.enter(one, 2).is_none());
        assert!(ledger.enter(other, 2).is_some());
        drop(first);
        assert!(ledger.enter(one, 2).is_some());
        drop(second);
        assert!(ledger.0.lock().expect("the ledger").is_empty());
    }
}
