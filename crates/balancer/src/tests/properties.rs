//! Properties of balancers under arbitrary events.

use super::fixture::{
    Fixture, Lease, QueueTicket, Waited, checks, client, letter, member, settings, sticky,
};
use crate::balancer_settings::BalancerSettings;
use crate::member_settings::{AdminState, MemberRole, MemberSettings};
use crate::method::BalancingMethod;
use crate::{ChooseRequest, MemberState, NoMember};
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An event in the life of a balancer. Numbers are taken modulo the number of members or requests.
#[derive(Clone, Debug)]
enum Event {
    Choose { client: u64, session: Option<u8> },
    Retry { client: u64, tried: usize },
    Answer { request: usize, status: u16 },
    Fail { request: usize },
    BreakOff { request: usize },
    Complete { request: usize },
    FailConnection { request: usize },
    End { request: usize },
    GiveUp { waiting: usize },
    Admin { member: usize, admin: AdminState },
    Weight { member: usize, weight: u32 },
    Role { member: usize, role: MemberRole },
    Pass { milliseconds: u64 },
    Checks { failing: String },
    Reload { without: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let number = || any::<prop::sample::Index>().prop_map(|index| index.index(1_000));
    let admin = prop::sample::select(vec![
        AdminState::Enabled,
        AdminState::Enabled,
        AdminState::Draining,
        AdminState::Disabled,
        AdminState::Stopped,
    ]);
    let role = prop::sample::select(vec![
        MemberRole::Regular,
        MemberRole::Regular,
        MemberRole::Spare,
        MemberRole::Standby,
    ]);
    prop_oneof![
        8 => (any::<u64>(), prop::option::of(0..6_u8))
            .prop_map(|(client, session)| Event::Choose { client, session }),
        2 => (any::<u64>(), number()).prop_map(|(client, tried)| Event::Retry { client, tried }),
        4 => (number(), prop::sample::select(vec![200, 404, 503]))
            .prop_map(|(request, status)| Event::Answer { request, status }),
        2 => number().prop_map(|request| Event::Fail { request }),
        1 => number().prop_map(|request| Event::BreakOff { request }),
        1 => number().prop_map(|request| Event::Complete { request }),
        1 => number().prop_map(|request| Event::FailConnection { request }),
        6 => number().prop_map(|request| Event::End { request }),
        1 => number().prop_map(|waiting| Event::GiveUp { waiting }),
        1 => (number(), admin).prop_map(|(member, admin)| Event::Admin { member, admin }),
        1 => (number(), 100..=10_000_u32).prop_map(|(member, weight)| Event::Weight { member, weight }),
        1 => (number(), role).prop_map(|(member, role)| Event::Role { member, role }),
        2 => (0..3_000_u64).prop_map(|milliseconds| Event::Pass { milliseconds }),
        2 => "[a-f]{0,6}".prop_map(|failing| Event::Checks { failing }),
        1 => number().prop_map(|without| Event::Reload { without }),
    ]
}

fn method() -> impl Strategy<Value = BalancingMethod> {
    prop::sample::select(vec![
        BalancingMethod::ByRequests,
        BalancingMethod::ByTraffic,
        BalancingMethod::ByBusyness,
        BalancingMethod::Heartbeat,
        BalancingMethod::IpHash,
        BalancingMethod::Maglev,
        BalancingMethod::P2c,
    ])
}

fn member_settings(name: char) -> impl Strategy<Value = MemberSettings> {
    let max = prop::option::of(1..4_usize);
    (0..2_u8, max, any::<bool>()).prop_map(move |(set, connections_max, ignores_errors)| {
        member(name, |member| {
            member.set = set;
            member.connections_max = connections_max;
            member.ignores_errors = ignores_errors;
            member.route = format!("r{name}").into();
        })
    })
}

fn balancer_settings() -> impl Strategy<Value = BalancerSettings> {
    let members: Vec<_> = ('a'..='f').map(member_settings).collect();
    (
        members,
        1..=6_usize,
        method(),
        any::<bool>(),
        any::<bool>(),
        0..2_000_u64,
    )
        .prop_map(
            |(mut members, count, method, is_signed, is_strict, slow_start_ms)| {
                members.truncate(count);
                let mut settings = settings(members);
                settings.method = method;
                settings.check = Some(checks());
                settings.slow_start = Duration::from_millis(slow_start_ms);
                settings.connection.queue = 3;
                let mut sticky = sticky();
                sticky.is_signed = is_signed;
                sticky.is_strict = is_strict;
                settings.sticky = Some(sticky);
                settings
            },
        )
}

/// A balancer with requests under way and waiting requests.
struct World {
    fixture: Fixture,
    settings: BalancerSettings,
    leases: Vec<Lease>,
    tickets: Vec<QueueTicket>,
}

impl World {
    fn choose(&mut self, client_hash: u64, session: Option<&str>, tried: Option<usize>) {
        let members = self.fixture.balancer.members();
        let tried = tried.map(|at| members[at % members.len()].id());
        let tried: Vec<_> = tried.into_iter().collect();
        let request = ChooseRequest {
            client: client((client_hash % 3) as u8),
            client_hash,
            session,
            tried: &tried,
            is_gathered: !client_hash.is_multiple_of(4),
            is_tunnel: client_hash.is_multiple_of(5),
            now_ms: self.fixture.now_ms,
        };
        let doubted = self.fixture.report().are_checks_doubted;
        let is_session = session.is_some();
        match self.fixture.balancer.choose(&request) {
            Ok(lease) => {
                let state = lease.member().state();
                let is_fit = match state {
                    MemberState::Up | MemberState::Ejected => true,
                    MemberState::Draining => is_session,
                    MemberState::CheckFailed => doubted,
                    MemberState::Disabled | MemberState::Stopped => false,
                };
                assert!(is_fit, "{} is {state:?}", letter(&lease));
                assert!(!tried.contains(&lease.member().id()));
                self.leases.push(lease);
            }
            Err(NoMember::Busy { session_member }) => {
                self.tickets
                    .extend(self.fixture.balancer.wait(&request, session_member));
            }
            Err(NoMember::NoneUsable | NoMember::SessionLost) => {}
        }
    }

    fn take(&mut self, request: usize) -> Option<&mut Lease> {
        let count = self.leases.len();
        (count > 0).then(|| &mut self.leases[request % count])
    }

    fn edit(&self, member: usize, edit: impl FnOnce(&mut MemberSettings)) {
        self.fixture.edit_balancer(|settings| {
            let at = member % settings.members.len();
            edit(&mut settings.members[at]);
        });
    }

    fn apply(&mut self, event: Event) {
        let now_ms = self.fixture.now_ms;
        match event {
            Event::Choose { client, session } => {
                let session = session.map(|at| format!("x.r{}", char::from(b'a' + at)));
                self.choose(client, session.as_deref(), None);
            }
            Event::Retry { client, tried } => self.choose(client, None, Some(tried)),
            Event::Answer { request, status } => {
                if let Some(lease) = self.take(request) {
                    lease.add_received(request as u64 * 100);
                    lease.record_answer(status, 1_000 + request as u64, now_ms);
                }
            }
            Event::Fail { request } => {
                self.take(request)
                    .and_then(|lease| lease.record_failure(now_ms));
            }
            Event::BreakOff { request } => {
                self.take(request)
                    .and_then(|lease| lease.record_broken_content(now_ms));
            }
            Event::Complete { request } => {
                self.take(request)
                    .map(Lease::record_content)
                    .unwrap_or_default();
            }
            Event::FailConnection { request } => {
                self.take(request)
                    .and_then(|lease| lease.record_connect_failure(now_ms));
            }
            Event::End { request } => {
                if !self.leases.is_empty() {
                    drop(self.leases.swap_remove(request % self.leases.len()));
                }
            }
            Event::GiveUp { waiting } => {
                if !self.tickets.is_empty() {
                    drop(self.tickets.swap_remove(waiting % self.tickets.len()));
                }
            }
            Event::Admin { member, admin } => self.edit(member, |it| it.admin = admin),
            Event::Weight { member, weight } => self.edit(member, |it| it.weight = weight),
            Event::Role { member, role } => self.edit(member, |it| it.role = role),
            Event::Pass { milliseconds } => self.fixture.now_ms += milliseconds,
            Event::Checks { failing } => {
                self.fixture.run_due_checks(&failing);
            }
            Event::Reload { without } => {
                let mut settings = self.settings.clone();
                if settings.members.len() > 1 {
                    settings.members.remove(without % settings.members.len());
                }
                self.fixture.balancer.reconfigure(settings, now_ms);
            }
        }
        self.poll_tickets();
    }

    fn poll_tickets(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for mut ticket in std::mem::take(&mut self.tickets) {
            match Pin::new(&mut ticket).poll(&mut cx) {
                Poll::Ready(Waited::Lease(lease)) => self.leases.push(lease),
                Poll::Ready(Waited::ChooseAgain | Waited::Dropped) => {}
                Poll::Pending => self.tickets.push(ticket),
            }
        }
    }

    /// Asserts that the counts of requests under way are the numbers of leases.
    fn check(&self) {
        for member in self.fixture.balancer.members() {
            let same = |lease: &&Lease| lease.member().id() == member.id();
            let leases: Vec<&Lease> = self.leases.iter().filter(same).collect();
            // A member that left the list and came back is a new member.
            let leases = leases
                .iter()
                .filter(|lease| std::ptr::eq(&**lease.member(), &*member));
            assert_eq!(member.busy(), leases.count());
        }
        let waiting = self.fixture.report().waiting;
        assert_eq!(waiting, self.tickets.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn only_usable_members_are_chosen_and_no_request_is_lost(
        settings in balancer_settings(),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut world = World {
            fixture: Fixture::new(settings.clone()),
            settings,
            leases: Vec::new(),
            tickets: Vec::new(),
        };
        for event in events {
            world.apply(event);
            world.check();
        }
        world.leases.clear();
        world.poll_tickets();
        world.leases.clear();
        world.tickets.clear();
        world.check();
    }

    #[test]
    fn a_balancer_with_a_usable_member_finds_a_member(
        method in method(),
        usable in prop::collection::vec(any::<bool>(), 1..8),
        client_hash: u64,
    ) {
        let members = usable.iter().zip('a'..).map(|(is_usable, name)| {
            let admin = if *is_usable { AdminState::Enabled } else { AdminState::Disabled };
            member(name, |member| member.admin = admin)
        });
        let mut settings = settings(members.collect());
        settings.method = method;
        let fixture = Fixture::new(settings);
        let request = ChooseRequest { client_hash, ..fixture.request() };
        let chosen = fixture.balancer.choose(&request).map(|lease| letter(&lease));
        match chosen {
            Ok(name) => prop_assert!(usable[name as usize - 'a' as usize]),
            Err(refused) => {
                prop_assert_eq!(refused, NoMember::NoneUsable);
                prop_assert!(!usable.contains(&true));
            }
        }
    }
}
