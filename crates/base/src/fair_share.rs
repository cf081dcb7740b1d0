//! Fair shares: what each client holds of a shared bound.

use crate::client_network::{ClientNetwork, share_of};
use crate::network_table::{HolderRank, LargeNetworks, NetworkTable};

/// Units of one bound held by each client.
#[derive(Default, Debug)]
pub struct ClientHoldings {
    all: usize,
    held: NetworkTable<usize>,
}

/// Holder that loses units to another client.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LargestHolder {
    /// Client with the most units in the largest network.
    pub client: ClientNetwork,
    /// Units as which the client counts beside the other client.
    pub units: usize,
    /// Units as which the other client counts beside the holder.
    pub other: usize,
}

impl ClientHoldings {
    /// Returns the units held by all clients together.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Returns the units held by `client`.
    pub fn of(&self, client: ClientNetwork) -> usize {
        self.held.of(client)
    }

    /// Returns the number of clients that hold units.
    pub fn clients(&self) -> usize {
        self.held.len()
    }

    /// Returns true if `client` may take `more` units of `bound`. See [`may_take_more`], which holds for the wide
    /// networks of the client too.
    pub fn may_take(&self, client: ClientNetwork, more: usize, bound: usize) -> bool {
        let units = |held: &usize| *held;
        self.held.may_take(client, units, self.all, more, bound)
    }

    /// Returns the client that loses units of `bound` to `other`: the client with the most units, in the network that
    /// counts as the largest client beside `other`.
    pub fn largest_beside(&self, other: ClientNetwork, bound: usize) -> Option<LargestHolder> {
        let large: LargeNetworks = self.held.large(share_of(bound), |held| *held);
        let holders = self.held.iter().filter(|(client, _)| *client != other);
        let ranked = holders.map(|(client, own)| {
            let rank: HolderRank = large.rank(client, *own, Some(other));
            (rank, client)
        });
        let (rank, client) = ranked.max()?;
        Some(LargestHolder {
            client,
            units: rank[0],
            other: large.counted(other, self.of(other), Some(client)),
        })
    }

    /// Adds `units` to the account of `client`.
    pub fn add(&mut self, client: ClientNetwork, units: usize) {
        if units > 0 {
            self.all += units;
            self.held.change(client, |own| *own += units);
        }
    }

    /// Adds `units` to the account of `client`, or as many as [`ClientHoldings::may_take`] allows of `bound`.
    /// Returns the number of units added.
    pub fn add_up_to(&mut self, client: ClientNetwork, units: usize, bound: usize) -> usize {
        let own = self.held.each_of(client).max().unwrap_or(0);
        let all = self.all;
        let for_any = (bound - bound / 4).saturating_sub(all);
        let for_small = share_of(bound).saturating_sub(own);
        let free = for_any.max(for_small).min(bound.saturating_sub(all));
        let units = units.min(free);
        self.add(client, units);
        units
    }

    /// Takes `units` from the account of `client`. A client without units leaves the table.
    pub fn remove(&mut self, client: ClientNetwork, units: usize) {
        let units = units.min(self.of(client));
        if units > 0 {
            self.all -= units;
            self.held.change(client, |own| *own -= units);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_network::may_take_more;
    use std::net::IpAddr;

    fn client(text: &str) -> ClientNetwork {
        let address: IpAddr = text.parse().expect("an address");
        address.into()
    }

    #[test]
    fn a_client_that_holds_nothing_leaves_the_table() {
        let mut held = ClientHoldings::default();
        let [one, other] = [client("192.0.2.1"), client("192.0.2.2")];
        held.add(one, 3);
        held.add(other, 2);
        held.add(other, 2);
        let third = client("192.0.2.3");
        let largest = |held: &ClientHoldings| {
            let largest = held.largest_beside(third, 16).expect("a holder");
            (largest.client, largest.units, largest.other)
        };
        assert_eq!((held.all(), largest(&held)), (7, (other, 4, 0)));
        held.remove(other, 3);
        assert_eq!(largest(&held), (one, 3, 0));
        held.remove(other, 5);
        assert_eq!((held.all(), held.clients(), held.of(other)), (3, 1, 0));
    }

    #[test]
    fn a_client_is_given_what_its_share_leaves() {
        let [one, other] = [client("192.0.2.1"), client("192.0.2.2")];
        let mut held = ClientHoldings::default();
        assert_eq!(held.add_up_to(one, 5, 16), 5);
        assert_eq!(held.add_up_to(one, 20, 16), 7, "three quarters");
        assert_eq!(held.add_up_to(one, 1, 16), 0);
        assert_eq!(held.add_up_to(other, 20, 16), 2, "an eighth");
        assert_eq!(held.add_up_to(other, 1, 16), 0);
        for nth in 3..9 {
            held.add_up_to(client(&format!("192.0.2.{nth}")), 20, 16);
        }
        assert_eq!(held.all(), 16);
        for own in 0..=16 {
            for foreign in 0..=16 - own {
                let mut held = ClientHoldings::default();
                held.add(one, own);
                held.add(other, foreign);
                let given = held.add_up_to(one, 20, 16);
                let all = own + foreign;
                assert!(given == 0 || may_take_more(own, all, given, 16));
                assert!(!may_take_more(own, all, given + 1, 16));
            }
        }
    }
}
