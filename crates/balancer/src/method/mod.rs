//! Balancing methods: each chooses one of the candidates of a [`Contest`].

mod by_busyness;
mod by_requests;
mod by_traffic;
mod heartbeat;
mod ip_hash;
mod maglev;
mod p2c;
#[cfg(test)]
pub(super) mod test_contest;

use crate::contest::Contest;
pub(super) use crate::method::maglev::MaglevTables;
use crate::settings::BalancingMethod;

/// Chooses a member.
pub(super) fn pick<C>(
    method: BalancingMethod,
    tables: &MaglevTables,
    contest: &mut Contest<'_, C>,
) -> u16 {
    match method {
        BalancingMethod::ByRequests => by_requests::pick(contest),
        BalancingMethod::ByTraffic => by_traffic::pick(contest),
        BalancingMethod::ByBusyness => by_busyness::pick(contest),
        BalancingMethod::Heartbeat => heartbeat::pick(contest),
        BalancingMethod::IpHash => ip_hash::pick(contest),
        BalancingMethod::Maglev => maglev::pick(tables, contest),
        BalancingMethod::P2c => p2c::pick(contest),
    }
}
