//! Choice of a member for a client by a hash of the client's address. The client's own member may be
//! unusable.
//!
//! Each client of an unusable member gets a substitute, and the clients of all other members stay where
//! they are. A hot spare gets all clients of the member that the spare replaces.

use crate::upstream::balancer::contest::Contest;
use crate::upstream::balancer::random::{combine, scale};

/// Returns the client's own member `home` if the member is a candidate, else the substitute.
pub(super) fn pick_home_or_substitute(contest: &Contest<'_>, home: Option<u16>) -> u16 {
    if let Some(home) = home {
        if contest.candidates.contains(&home) && is_within_share(contest, home) {
            return home;
        }
        let rank = contest.unusable.iter().position(|index| *index == home);
        if let Some(spare) = rank.and_then(|rank| contest.spares.get(rank)) {
            return *spare;
        }
    }
    substitute(contest, home)
}

/// Returns true if the client belongs to the part of the clients that a member gets. During a slow start
/// the part grows, and a client in the part stays there.
fn is_within_share(contest: &Contest<'_>, index: u16) -> bool {
    let member = &contest.seat(index).member;
    let share = member.weight_share(contest.now_ms, contest.slow_start_ms);
    let place = scale(combine(contest.client_hash, SLOW_START_SALT), 1_000);
    place < u64::from(share.thousandths())
}

/// Chooses a candidate by weighted rendezvous hashing. The client's own member is chosen only if alone.
fn substitute(contest: &Contest<'_>, home: Option<u16>) -> u16 {
    let mut best = (f64::NEG_INFINITY, home.unwrap_or(0));
    for index in contest.candidates {
        if Some(*index) == home {
            continue;
        }
        let member = &contest.seat(*index).member;
        let hash = combine(contest.client_hash, u64::from(member.id().0));
        // A uniform number in (0, 1), in the 53 bits of a float.
        let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let score = f64::from(contest.weight(*index)) / -uniform.ln();
        if score > best.0 {
            best = (score, *index);
        }
    }
    best.1
}

/// Separates the hash for the slow start from the hash for the choice.
const SLOW_START_SALT: u64 = 1;
