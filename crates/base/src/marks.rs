//! Marks of clients and address ranges that lapse after a time: of those that guessed passwords, or were too slow. Bounded.
//! Pure.

use crate::client_network::ClientNetwork;
use crate::limits::MARKS_MAX;
use std::collections::HashMap;
use std::hash::Hash;

/// Address range that one party often has as a whole: the /24 network of an IPv4 address, or the /48 network of an IPv6
/// address.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Neighbourhood([u8; 15]);

impl From<ClientNetwork> for Neighbourhood {
    fn from(client: ClientNetwork) -> Neighbourhood {
        let octets = client.octets();
        let length = client.ipv6_prefix().map_or(15, |_| 6);
        Neighbourhood(std::array::from_fn(|at| {
            if at < length { octets[at] } else { 0 }
        }))
    }
}

/// Marks of clients or neighbourhoods, at most [`MARKS_MAX`]. Times are in milliseconds, monotonic.
pub struct MarkTable<K> {
    until_ms: HashMap<K, u64>,
}

impl<K> Default for MarkTable<K> {
    fn default() -> MarkTable<K> {
        MarkTable {
            until_ms: HashMap::new(),
        }
    }
}

impl<K: Copy + Eq + Hash + From<ClientNetwork>> MarkTable<K> {
    /// Marks `client` until `until_ms`. In a full table, the mark replaces the mark that lapses first.
    pub fn mark(&mut self, client: ClientNetwork, until_ms: u64, now_ms: u64) {
        let key = K::from(client);
        let marks = &mut self.until_ms;
        if marks.len() >= MARKS_MAX && !marks.contains_key(&key) {
            marks.retain(|_, until_ms| now_ms < *until_ms);
            let first = marks.iter().min_by_key(|(_, until_ms)| **until_ms);
            let first = first.map(|(first, _)| *first);
            if marks.len() >= MARKS_MAX {
                first.map(|first| marks.remove(&first));
            }
        }
        marks.insert(key, until_ms);
    }

    /// Returns true if `client` has a mark at `now_ms`.
    pub fn is_marked(&self, client: ClientNetwork, now_ms: u64) -> bool {
        if self.until_ms.is_empty() {
            return false;
        }
        let until_ms = self.until_ms.get(&K::from(client));
        until_ms.is_some_and(|until_ms| now_ms < *until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(text: &str) -> ClientNetwork {
        let address: IpAddr = text.parse().expect("an address");
        address.into()
    }

    #[test]
    fn a_mark_holds_for_a_neighbourhood_until_it_lapses() {
        let mut marked = MarkTable::<Neighbourhood>::default();
        marked.mark(client("192.0.2.1"), 100, 0);
        marked.mark(client("2001:db8:1:2::3"), 100, 0);
        for near in ["192.0.2.255", "2001:db8:1:ffff::1"].map(client) {
            assert!(marked.is_marked(near, 99) && !marked.is_marked(near, 100));
        }
        for far in ["192.0.3.1", "2001:db8:2:2::3"].map(client) {
            assert!(!marked.is_marked(far, 1));
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut marked = MarkTable::<Neighbourhood>::default();
        let nth = |nth: usize| client(&format!("10.{}.{}.1", nth >> 8, nth & 255));
        for at in 0..MARKS_MAX + 10 {
            marked.mark(nth(at), 1_000 + at as u64, 0);
            assert!(marked.until_ms.len() <= MARKS_MAX);
        }
        assert!(marked.is_marked(nth(MARKS_MAX + 9), 0));
        assert!(marked.is_marked(nth(10), 0) && !marked.is_marked(nth(9), 0));
        // Marks that have lapsed make room.
        marked.mark(client("192.0.2.1"), 90_000, 80_000);
        assert_eq!(marked.until_ms.len(), 1);
    }
}
