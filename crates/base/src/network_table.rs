//! Table of what each client holds of a bound, with the sums of wide IPv6 networks.
//!
//! A provider gives a customer a /64 network, or a /56 or /48 with up to 65,536 of them. Counted by /64 alone, one
//! customer would be as many clients as the customer likes. A /56 or /48 network that holds more than the share of one
//! client therefore counts as one client. Phones and households with a /64 each stay apart while their network holds less.
//! Two clients of one wide network are compared by the networks that hold only one of the two, so a flood from one /56
//! does not keep other customers of the same /48 out.
//!
//! IPv4 has no such step: an address costs its holder money, and the addresses of a /24 network usually belong to
//! different households, or each to many customers of a provider.
//!
//! Each client adds at most two sums, and a sum without holders leaves the table, so the table is bounded by the number
//! of clients that hold something.

use crate::client_network::{ClientNetwork, may_take_more};
use std::collections::HashMap;

/// IPv6 network of several clients: a /56 or a /48.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct WideNetwork {
    /// First 64 bits of the addresses, with zeros behind the prefix.
    prefix: u64,
    bits: u32,
}

/// Lengths of the prefixes of wide networks, the widest first.
const WIDE_BITS: [u32; 2] = [48, 56];

impl WideNetwork {
    /// Returns the wide networks that contain `client`, the widest first. A client with IPv4 has none.
    pub fn of(client: ClientNetwork) -> impl Iterator<Item = WideNetwork> {
        let prefix = client.ipv6_prefix();
        let networks = prefix.map(|prefix| {
            WIDE_BITS.map(|bits| WideNetwork {
                prefix: prefix & mask(bits),
                bits,
            })
        });
        networks.into_iter().flatten()
    }

    /// Returns the first 8 octets of the addresses, and the length of the prefix in bits.
    pub fn octets(self) -> [u8; 9] {
        let mut octets = [0; 9];
        octets[..8].copy_from_slice(&self.prefix.to_be_bytes());
        octets[8] = self.bits as u8;
        octets
    }

    /// Returns true if the client is in the network.
    pub fn contains(self, client: ClientNetwork) -> bool {
        let prefix = client.ipv6_prefix();
        prefix.is_some_and(|prefix| prefix & mask(self.bits) == self.prefix)
    }
}

fn mask(bits: u32) -> u64 {
    u64::MAX << (64 - bits)
}

/// Amount held by one client or network.
pub trait Holding: Copy + Default {
    /// Returns true if nothing is held.
    fn is_none(&self) -> bool;
}

impl Holding for usize {
    fn is_none(&self) -> bool {
        *self == 0
    }
}

/// Holdings of the wide networks alone.
#[derive(Debug)]
pub struct WideTable<H>(HashMap<WideNetwork, H>);

impl<H> Default for WideTable<H> {
    fn default() -> WideTable<H> {
        WideTable(HashMap::new())
    }
}

impl<H: Holding> WideTable<H> {
    /// Changes the holdings of the wide networks of `client`.
    pub fn change(&mut self, client: ClientNetwork, change: impl Fn(&mut H)) {
        for network in WideNetwork::of(client) {
            let held = self.0.entry(network).or_default();
            change(held);
            if held.is_none() {
                self.0.remove(&network);
            }
        }
    }

    /// Returns the holdings of the wide networks of `client`, the widest first.
    pub fn of(&self, client: ClientNetwork) -> impl Iterator<Item = H> {
        WideNetwork::of(client).map(|network| self.0.get(&network).copied().unwrap_or_default())
    }

    /// Returns the wide networks with more than `share` units.
    pub fn large(&self, share: usize, units: impl Fn(&H) -> usize) -> LargeNetworks {
        let sizes = self.0.iter().map(|(network, held)| (*network, units(held)));
        let mut large: Vec<_> = sizes.filter(|(_, units)| *units > share).collect();
        large.sort_unstable_by_key(|(network, _)| network.bits);
        LargeNetworks(large)
    }

    /// Returns true if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Wide networks that count as one client, each with its units, the widest first.
#[derive(Default, Debug)]
pub struct LargeNetworks(Vec<(WideNetwork, usize)>);

/// Sizes by which holders are compared: of the widest large network of a client, of the next network inside, and of the
/// client itself. A client without a large network has three times its own size.
pub type HolderRank = [usize; 3];

impl LargeNetworks {
    /// Returns the rank of `client`, which holds `own` units. Networks that also contain `other` do not count.
    pub fn rank(
        &self,
        client: ClientNetwork,
        own: usize,
        other: Option<ClientNetwork>,
    ) -> HolderRank {
        let mut rank = [own; 3];
        let mut place = 0;
        for (network, units) in &self.0 {
            let is_common = other.is_some_and(|other| network.contains(other));
            if place < WIDE_BITS.len() && !is_common && network.contains(client) {
                rank[place] = *units;
                place += 1;
            }
        }
        rank
    }

    /// Returns the units as which `client` counts beside `other`: of the widest large network that contains only
    /// `client`, or else the client's `own`.
    pub fn counted(
        &self,
        client: ClientNetwork,
        own: usize,
        other: Option<ClientNetwork>,
    ) -> usize {
        self.rank(client, own, other)[0]
    }

    /// Returns the large /56 network that contains the client.
    pub fn inner(&self, client: ClientNetwork) -> Option<WideNetwork> {
        let mut networks = self.0.iter().map(|(network, _)| *network);
        networks.find(|network| network.bits == WIDE_BITS[1] && network.contains(client))
    }

    /// Returns the number of holders beside `other` among `clients`. A large network counts once, and networks that
    /// contain `other` do not count as one.
    pub fn holders(
        &self,
        clients: impl Iterator<Item = ClientNetwork>,
        other: Option<ClientNetwork>,
    ) -> usize {
        let is_counted =
            |network: &WideNetwork| !other.is_some_and(|other| network.contains(other));
        let counted = self.0.iter().map(|(network, _)| *network);
        let counted: Vec<WideNetwork> = counted.filter(is_counted).collect();
        if counted.is_empty() {
            return clients.count();
        }
        let mut seen = vec![false; counted.len()];
        let mut holders = 0;
        for client in clients {
            match counted.iter().position(|network| network.contains(client)) {
                Some(at) => holders += usize::from(!std::mem::replace(&mut seen[at], true)),
                None => holders += 1,
            }
        }
        holders
    }

    /// Returns true if no network is large.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Holdings of each client and of the wide networks.
#[derive(Debug)]
pub struct NetworkTable<H> {
    clients: HashMap<ClientNetwork, H>,
    wide: WideTable<H>,
}

impl<H> Default for NetworkTable<H> {
    fn default() -> NetworkTable<H> {
        NetworkTable {
            clients: HashMap::new(),
            wide: WideTable::default(),
        }
    }
}

impl<H: Holding> NetworkTable<H> {
    /// Returns the holding of `client`.
    pub fn of(&self, client: ClientNetwork) -> H {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// Returns the holdings of `client` and of its wide networks.
    pub fn each_of(&self, client: ClientNetwork) -> impl Iterator<Item = H> {
        std::iter::once(self.of(client)).chain(self.wide.of(client))
    }

    /// Changes the holdings of `client` and of its wide networks.
    pub fn change(&mut self, client: ClientNetwork, change: impl Fn(&mut H)) {
        let held = self.clients.entry(client).or_default();
        change(held);
        if held.is_none() {
            self.clients.remove(&client);
        }
        self.wide.change(client, change);
    }

    /// Returns the number of clients in the table.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns true if no client holds anything.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns true if the client holds something.
    pub fn contains(&self, client: ClientNetwork) -> bool {
        self.clients.contains_key(&client)
    }

    /// Returns each client with its holding.
    pub fn iter(&self) -> impl Iterator<Item = (ClientNetwork, &H)> {
        self.clients.iter().map(|(client, held)| (*client, held))
    }

    /// Returns the wide networks with more than `share` units.
    pub fn large(&self, share: usize, units: impl Fn(&H) -> usize) -> LargeNetworks {
        self.wide.large(share, units)
    }

    /// Returns true if `client` may take `more` units of `bound`, of which all clients together hold `all`. In the last
    /// quarter the share holds for the client, and for each wide network of the client as a whole.
    pub fn may_take(
        &self,
        client: ClientNetwork,
        units: impl Fn(&H) -> usize,
        all: usize,
        more: usize,
        bound: usize,
    ) -> bool {
        let mut held = self.each_of(client);
        held.all(|held| may_take_more(units(&held), all, more, bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    /// Returns a client in 2001:db8:A::/48, with B as the last 16 bits of its /64 prefix.
    fn v6(a: u16, b: u16) -> ClientNetwork {
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, 0, 1)).into()
    }

    fn v4(last: u8) -> ClientNetwork {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn table(holdings: &[(ClientNetwork, usize)]) -> NetworkTable<usize> {
        let mut table = NetworkTable::default();
        for (client, units) in holdings {
            table.change(*client, |held| *held += units);
        }
        table
    }

    fn large(table: &NetworkTable<usize>, share: usize) -> LargeNetworks {
        table.large(share, |held| *held)
    }

    #[test]
    fn a_wide_network_counts_as_one_client_beyond_its_share() {
        let flood: Vec<_> = (0..40).map(|nth| (v6(0, 0x100 + nth), 5)).collect();
        let table = table(&flood);
        assert_eq!(large(&table, 200).rank(v6(0, 0x100), 5, None), [5, 5, 5]);
        let large = large(&table, 25);
        // The /48 and the /56 hold the same clients.
        assert_eq!(large.rank(v6(0, 0x100), 5, None), [200, 200, 5]);
        // A customer with another /56 of the same /48 is compared with the /56 of the flood.
        assert_eq!(
            large.rank(v6(0, 0x100), 5, Some(v6(0, 0xcc00))),
            [200, 5, 5]
        );
        assert_eq!(large.counted(v6(0, 0xcc00), 0, Some(v6(0, 0x100))), 0);
        assert_eq!(large.counted(v6(0, 0xcc00), 0, None), 200);
        // A client of the /56 itself is compared with each client of it.
        assert_eq!(large.rank(v6(0, 0x100), 5, Some(v6(0, 0x101))), [5, 5, 5]);
        assert_eq!(large.rank(v4(1), 7, None), [7, 7, 7]);
    }

    #[test]
    fn large_networks_count_once_among_the_holders() {
        let mut holdings: Vec<_> = (0..10).map(|nth| (v6(0, nth), 5)).collect();
        holdings.extend([(v4(1), 1), (v4(2), 1), (v6(7, 1), 1)]);
        let table = table(&holdings);
        let large = large(&table, 6);
        let holders = |other| large.holders(table.iter().map(|(client, _)| client), other);
        assert_eq!(holders(None), 4);
        assert_eq!(holders(Some(v6(0, 0xff00))), 4, "the /56 of the flood");
        assert_eq!(holders(Some(v6(0, 5))), 13);
    }

    #[test]
    fn a_table_forgets_clients_and_networks_that_hold_nothing() {
        let mut table = table(&[(v6(0, 1), 2), (v6(0, 2), 3), (v4(1), 1)]);
        assert_eq!((table.len(), table.wide.0.len()), (3, 2));
        table.change(v6(0, 1), |held| *held -= 2);
        assert_eq!(table.wide.of(v6(0, 9)).collect::<Vec<_>>(), [3, 3]);
        table.change(v6(0, 2), |held| *held -= 3);
        table.change(v4(1), |held| *held -= 1);
        assert!(table.is_empty() && table.wide.is_empty());
    }

    #[test]
    fn the_last_quarter_is_for_small_networks_too() {
        let flood: Vec<_> = (0..12).map(|nth| (v6(0, nth), 1)).collect();
        let table = table(&flood);
        let may = |client, all| table.may_take(client, |held| *held, all, 1, 16);
        assert!(may(v6(0, 99), 11), "three quarters are for any client");
        assert!(!may(v6(0, 99), 12), "another /64 of the /56");
        assert!(may(v6(1, 1), 12) && may(v4(1), 12));
        assert!(!may(v4(1), 16));
    }
}
