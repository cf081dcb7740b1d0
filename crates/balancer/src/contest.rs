//! Input of the balancing methods: the members among which a method chooses, with the state that choices keep under the
//! balancer's lock.

use crate::member::Member;
use crate::random::RandomSource;
use crate::state::WeightShare;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A choice to be made by a balancing method.
pub(crate) struct Contest<'a, C> {
    /// All members of the balancer.
    pub(crate) seats: &'a mut [Seat<C>],
    /// Numbers of the members to choose from, at least one, in Apache's order.
    pub(crate) candidates: &'a [u16],
    /// Numbers of the regular members of the set that are unusable.
    pub(crate) unusable: &'a [u16],
    /// Candidates that replace unusable members, in the order of `unusable`: the end of `candidates`.
    pub(crate) spares: &'a [u16],
    /// Number of the set.
    pub(crate) set: u8,
    /// Milliseconds on the monotonic clock.
    pub(crate) now_ms: u64,
    /// Length of the slow start in milliseconds.
    pub(crate) slow_start_ms: u64,
    /// Tables that the method has prepared, one for each set with regular members; empty without a preparation.
    pub(crate) tables: &'a [SetTable],
    /// Hash of the client.
    pub(crate) client_hash: u64,
    /// Random numbers.
    pub(crate) random: &'a mut RandomSource,
}

impl<C> Contest<'_, C> {
    /// Returns a member.
    pub(crate) fn seat(&self, index: u16) -> &Seat<C> {
        &self.seats[usize::from(index)]
    }

    /// Returns the weight of a member in hundredths, reduced during a slow start.
    pub(crate) fn weight(&self, index: u16) -> u32 {
        let member = &self.seat(index).member;
        let share = member.weight_share(self.now_ms, self.slow_start_ms);
        share.of(member.standing().weight)
    }
}

/// Table from the hash of a client to a member of one set, prepared when the list of members changes.
pub(crate) struct SetTable {
    /// Number of the set.
    pub(crate) set: u8,
    /// Numbers of members.
    pub(crate) entries: Box<[u16]>,
}

/// A member in the frozen list of a balancer.
pub(crate) struct Seat<C> {
    /// The member.
    pub(crate) member: Arc<Member<C>>,
    /// State of the balancing methods.
    pub(crate) load: Load,
    /// Route of the member in sessions; the empty text for no route.
    pub(crate) route: Box<str>,
    /// Route that replaces the member while the member is unusable; the empty text for none.
    pub(crate) redirect: Box<str>,
    /// Value of the signed session cookie; None if the balancer sets no cookie.
    pub(crate) cookie: Option<Arc<str>>,
}

/// State of the balancing methods for one member. A member keeps the state over reloads.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load {
    /// Urgency of the member (Apache's lbstatus).
    pub(crate) status: i64,
    /// Traffic for the method `bytraffic`.
    pub(crate) traffic: TrafficLoad,
}

/// Traffic of a member for the method `bytraffic`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TrafficLoad {
    /// Bytes sent and received before the last reset.
    base: (u64, u64),
    /// Score in addition to the bytes, for members that recovered under a slow start.
    handicap: u64,
    /// Recovery that the handicap already covers, as a time in milliseconds.
    covered_recovery_ms: u64,
    /// Bytes that the handicap already covers.
    covered_bytes: u64,
}

impl<C> Seat<C> {
    /// Creates a seat. The routes and the cookie follow with [`Roster::new`].
    ///
    /// [`Roster::new`]: crate::roster::Roster::new
    pub(crate) fn new(member: Arc<Member<C>>, load: Load) -> Seat<C> {
        Seat {
            member,
            load,
            route: Box::default(),
            redirect: Box::default(),
            cookie: None,
        }
    }

    /// Returns the bytes sent to the member and received from the member since the last reset.
    fn traffic(&self) -> (u64, u64) {
        let counters = &self.member.counters;
        let sent = counters.sent_bytes.load(Relaxed);
        let received = counters.received_bytes.load(Relaxed);
        let base = self.load.traffic.base;
        (sent.saturating_sub(base.0), received.saturating_sub(base.1))
    }

    /// Returns the score of the member for the method `bytraffic`: the bytes by weight. As in Apache, bytes
    /// sent and received are divided one by one.
    pub(crate) fn traffic_score(&self) -> u64 {
        let weight = u64::from(self.member.standing().weight.max(1));
        let (sent, received) = self.traffic();
        (sent / weight + received / weight).saturating_add(self.load.traffic.handicap)
    }

    /// Returns true if the member recovered since the last [`Seat::begin_slow_start`].
    pub(crate) fn has_new_recovery(&self) -> bool {
        self.member.recovered_at_ms() != self.load.traffic.covered_recovery_ms
    }

    /// Raises the score of a recovered member to `floor`, the lowest score of the other members. Under a
    /// slow start, a member does not have to catch up.
    pub(crate) fn begin_slow_start(&mut self, floor: u64) {
        let missing = floor.saturating_sub(self.traffic_score());
        let (sent, received) = self.traffic();
        let traffic = &mut self.load.traffic;
        traffic.handicap = traffic.handicap.saturating_add(missing);
        traffic.covered_bytes = sent + received;
        traffic.covered_recovery_ms = self.member.recovered_at_ms();
    }

    /// Counts the bytes since the last call by the weight reduced to `share`.
    pub(crate) fn cover_slow_start(&mut self, share: WeightShare) {
        let (sent, received) = self.traffic();
        let bytes = sent + received;
        let weight = self.member.standing().weight.max(1);
        let traffic = &mut self.load.traffic;
        let new = bytes.saturating_sub(traffic.covered_bytes);
        let reduced = new / u64::from(share.of(weight));
        let surplus = reduced.saturating_sub(new / u64::from(weight));
        traffic.handicap = traffic.handicap.saturating_add(surplus);
        traffic.covered_bytes = bytes;
    }

    /// Resets the state of all methods, as Apache does when the method changes. The counters for the operator
    /// keep their values.
    pub(crate) fn reset_load(&mut self) {
        let counters = &self.member.counters;
        self.load = Load {
            status: 0,
            traffic: TrafficLoad {
                base: (
                    counters.sent_bytes.load(Relaxed),
                    counters.received_bytes.load(Relaxed),
                ),
                covered_recovery_ms: self.member.recovered_at_ms(),
                ..TrafficLoad::default()
            },
        };
    }
}
