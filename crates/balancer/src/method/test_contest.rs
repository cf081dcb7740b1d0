//! A list of members under a virtual clock, for tests of the balancing methods.

use crate::contest::{Contest, Load, Seat};
use crate::member::Member;
use crate::member_core::SharedSettings;
use crate::member_settings::{
    AdminState, EjectionSettings, MemberHost, MemberRole, MemberSettings, MemberUrl,
};
use crate::random::{RandomSource, mix};
use crate::request::MemberId;
use crate::slot_queue::SlotQueue;
use crate::state::ChangeReason;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::heartbeat::Heartbeat;

/// A balancing method.
type TestMethod = dyn FnMut(&mut Contest<'_, ()>) -> u16;

/// Members of one set, and the method under test.
pub(crate) struct TestContest {
    method: Box<TestMethod>,
    seats: Vec<Seat<()>>,
    excluded: Vec<u16>,
    random: RandomSource,
    /// Time of the choices.
    pub(crate) now_ms: u64,
    /// Length of the slow start.
    pub(crate) slow_start_ms: u64,
    /// Bytes that each member answers.
    pub(crate) bytes: Vec<u64>,
}

impl TestContest {
    /// Creates one member for each weight in hundredths.
    pub(crate) fn new(
        method: impl FnMut(&mut Contest<'_, ()>) -> u16 + 'static,
        weights: &[u32],
    ) -> TestContest {
        let queue = Arc::new(SlotQueue::default());
        let shared = SharedSettings {
            check: None,
            ejection: Arc::new(EjectionSettings::default()),
            tunnels: None,
        };
        let seat = |(index, weight): (usize, &u32)| {
            let id = MemberId(index as u32);
            let settings = member_settings(index as u16, *weight);
            Seat::new(
                Arc::new(Member::new(id, &settings, &shared, &queue)),
                Load::default(),
            )
        };
        let seats: Vec<Seat<()>> = weights.iter().enumerate().map(seat).collect();
        TestContest {
            method: Box::new(method),
            seats,
            excluded: Vec::new(),
            random: RandomSource::new(1),
            now_ms: 1_000,
            slow_start_ms: 0,
            bytes: vec![0; weights.len()],
        }
    }

    fn choose(&mut self, client_hash: u64) -> u16 {
        let is_role =
            |index: &u16, role| self.seats[usize::from(*index)].member.standing().role == role;
        let all = 0..self.seats.len() as u16;
        let (unusable, usable): (Vec<u16>, Vec<u16>) =
            all.partition(|index| self.excluded.contains(index));
        let role = |role| {
            usable
                .iter()
                .copied()
                .filter(move |index| is_role(index, role))
        };
        let mut candidates: Vec<u16> = role(MemberRole::Regular).collect();
        let spares: Vec<u16> = role(MemberRole::Spare).take(unusable.len()).collect();
        candidates.extend(&spares);
        let mut contest = Contest {
            seats: &mut self.seats,
            candidates: &candidates,
            unusable: &unusable,
            spares: &spares,
            set: 0,
            now_ms: self.now_ms,
            slow_start_ms: self.slow_start_ms,
            tables: &[],
            client_hash,
            random: &mut self.random,
        };
        let chosen = (self.method)(&mut contest);
        let counters = &self.seats[usize::from(chosen)].member.counters;
        counters
            .received_bytes
            .fetch_add(self.bytes[usize::from(chosen)], Relaxed);
        chosen
    }

    /// Chooses `length` times, and names the members by letters.
    pub(crate) fn sequence(&mut self, length: usize) -> String {
        (0..length)
            .map(|_| char::from(b'a' + self.choose(0) as u8))
            .collect()
    }

    /// Chooses `length` times, and counts the choices of each member.
    pub(crate) fn counts(&mut self, length: usize) -> Vec<usize> {
        let mut counts = vec![0; self.seats.len()];
        for _ in 0..length {
            counts[usize::from(self.choose(0))] += 1;
        }
        counts
    }

    /// Returns the members of `count` clients.
    pub(crate) fn by_client(&mut self, count: u64) -> Vec<u16> {
        (0..count).map(|client| self.choose(mix(client))).collect()
    }

    /// Makes a member unusable.
    pub(crate) fn exclude(&mut self, index: u16) {
        self.excluded.push(index);
    }

    /// Makes a member usable.
    pub(crate) fn include(&mut self, index: u16) {
        self.excluded.retain(|it| *it != index);
    }

    /// Makes a member usable after an outage that ends now.
    pub(crate) fn recover(&mut self, index: u16) {
        self.include(index);
        let member = &self.seats[usize::from(index)].member;
        for admin in [AdminState::Disabled, AdminState::Enabled] {
            member.change(ChangeReason::Operator, self.now_ms, |core| {
                core.settings.admin = admin;
            });
        }
    }

    /// Makes a member a spare.
    pub(crate) fn make_spare(&mut self, index: u16) {
        let member = &self.seats[usize::from(index)].member;
        member.change(ChangeReason::Operator, self.now_ms, |core| {
            core.settings.role = MemberRole::Spare;
        });
    }

    /// Sets the requests under way of all members.
    pub(crate) fn set_busy(&mut self, busy: &[usize]) {
        for (seat, busy) in self.seats.iter().zip(busy) {
            while seat.member.busy() > 0 {
                seat.member.leave();
            }
            (0..*busy).for_each(|_| assert!(seat.member.try_count()));
        }
    }

    /// Records the latency of all members.
    pub(crate) fn set_latency(&mut self, micros: &[u64]) {
        for (index, micros) in micros.iter().enumerate() {
            self.set_latency_of(index, *micros);
        }
    }

    /// Records the latency of a member.
    pub(crate) fn set_latency_of(&mut self, index: usize, micros: u64) {
        self.seats[index].member.latency.record(micros, self.now_ms);
    }

    /// Records a heartbeat of a member.
    pub(crate) fn hear(&self, index: usize, heartbeat: Heartbeat) {
        self.seats[index]
            .member
            .heartbeat
            .record(heartbeat, self.now_ms);
    }
}

fn member_settings(index: u16, weight: u32) -> MemberSettings {
    MemberSettings {
        url: MemberUrl {
            is_tls: false,
            host: MemberHost::Address(([127, 0, 0, 1], 9_000 + index).into()),
        },
        weight,
        set: 0,
        role: MemberRole::Regular,
        route: Box::default(),
        redirect: Box::default(),
        admin: AdminState::Enabled,
        ignores_errors: false,
        connections_max: None,
        check: Default::default(),
    }
}
