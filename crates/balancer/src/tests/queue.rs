//! Bounds of simultaneous requests, and requests that wait for a busy member.

use super::fixture::{
    Fixture, Lease, QueueTicket, Waited, client, letter, member, settings, sticky,
};
use crate::balancer_settings::BalancerSettings;
use crate::limits::TUNNEL_SILENCE_MILLISECONDS;
use crate::member_settings::{AdminState, MemberRole, MemberSettings};
use crate::test_waker::CountingWaker;
use crate::{ChooseRequest, NoMember, WaitRefused};
use base::call_shares::ClientPace;
use base::limits::{NEWCOMER_WAIT_MILLISECONDS, SLOW_CLIENT_MILLISECONDS};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

fn bounded(name: char) -> MemberSettings {
    member(name, |member| {
        member.connections_max = Some(1);
        member.route = format!("r{name}").into();
    })
}

fn with_queue(members: Vec<MemberSettings>) -> BalancerSettings {
    let mut settings = settings(members);
    settings.connection.queue = 2;
    settings.sticky = Some(sticky());
    settings
}

const BUSY: NoMember = NoMember::Busy {
    session_member: None,
};

fn poll(ticket: &mut QueueTicket) -> Poll<Waited> {
    Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the letter of the member that a waiting request got; `?` for a request that chooses again.
fn served(ticket: &mut QueueTicket) -> Option<char> {
    match poll(ticket) {
        Poll::Pending => None,
        Poll::Ready(Waited::ChooseAgain) => Some('?'),
        Poll::Ready(Waited::Dropped) => Some('!'),
        Poll::Ready(Waited::Lease(lease)) => Some(letter(&lease)),
    }
}

/// Returns the lease that a waiting request got.
fn lease(ticket: &mut QueueTicket) -> Option<Lease> {
    match poll(ticket) {
        Poll::Ready(Waited::Lease(lease)) => Some(lease),
        Poll::Ready(_) | Poll::Pending => None,
    }
}

impl Fixture {
    fn wait(&self) -> Result<QueueTicket, WaitRefused> {
        self.wait_of(1)
    }

    /// Lets a request of the client 192.0.2.`last` wait.
    fn wait_of(&self, last: u8) -> Result<QueueTicket, WaitRefused> {
        self.balancer.wait(&self.request_of(last), None)
    }

    /// Chooses a member for a request of the client 192.0.2.`last`.
    fn choose_of(&self, last: u8) -> Result<Lease, NoMember> {
        self.balancer.choose(&self.request_of(last))
    }

    fn request_of(&self, last: u8) -> ChooseRequest<'static> {
        ChooseRequest {
            client: client(last),
            ..self.request()
        }
    }

    /// Makes requests of a client until no member is free for the client.
    fn fill_of(&self, last: u8) -> Vec<Lease> {
        std::iter::from_fn(|| self.choose_of(last).ok()).collect()
    }
}

/// Returns a balancer of members with `max` places each and `queue` waiting requests each.
fn shared(names: &str, max: usize, queue: usize) -> Fixture {
    let members = names
        .chars()
        .map(|name| member(name, |member| member.connections_max = Some(max)));
    let mut settings = settings(members.collect());
    settings.connection.queue = queue;
    Fixture::new(settings)
}

#[test]
fn one_client_leaves_a_quarter_of_the_places_to_others() {
    let fixture = shared("ab", 8, 9);
    let greedy = fixture.fill_of(1);
    assert_eq!(greedy.len(), 12);
    let mut waiting = fixture.wait_of(1).unwrap();
    assert_eq!(fixture.fill_of(2).len(), 2);
    assert_eq!(served(&mut waiting), None);
    // A place of another client stays reserved.
    drop(fixture.choose_of(2).unwrap());
    assert_eq!(served(&mut waiting), None);
    drop(greedy);
    assert!(served(&mut waiting).is_some());
    assert_eq!(
        fixture
            .report()
            .members
            .iter()
            .map(|it| it.busy)
            .sum::<usize>(),
        0
    );
}

#[test]
fn members_with_one_place_each_have_a_common_reserve() {
    let fixture = shared("abcd", 1, 9);
    let greedy = fixture.fill_of(1);
    assert_eq!(greedy.len(), 3);
    assert_eq!(fixture.choose_of(1).err(), Some(BUSY));
    assert_eq!(fixture.fill_of(2).len(), 1);
}

#[test]
fn a_client_with_fewer_places_goes_first() {
    let fixture = shared("a", 4, 9);
    let mut greedy = fixture.fill_of(1);
    let other = fixture.fill_of(2);
    assert_eq!((greedy.len(), other.len()), (3, 1));
    let mut of_greedy = fixture.wait_of(1).unwrap();
    let mut second = fixture.wait_of(2).unwrap();
    let mut new = fixture.wait_of(3).unwrap();
    greedy.pop();
    assert_eq!((served(&mut new), served(&mut second)), (Some('a'), None));
    // The new client's request has ended. The last place stays reserved for clients without a place.
    assert_eq!((served(&mut second), served(&mut of_greedy)), (None, None));
    drop(other);
    assert_eq!(
        (served(&mut second), served(&mut of_greedy)),
        (Some('a'), Some('a'))
    );
}

#[test]
fn between_equals_the_client_served_longest_ago_goes_first() {
    let fixture = shared("a", 1, 9);
    let lease = fixture.choose_of(1).unwrap();
    let mut of_greedy: Vec<QueueTicket> = (0..3).map(|_| fixture.wait_of(1).unwrap()).collect();
    let mut other = fixture.wait_of(2).unwrap();
    drop(lease);
    assert!(served(&mut other).is_some());
    assert!(of_greedy.iter_mut().all(|ticket| served(ticket).is_some()));
}

#[test]
fn a_full_queue_drops_the_newest_request_of_the_client_with_the_most() {
    let fixture = shared("a", 1, 3);
    let _lease = fixture.choose_of(1).unwrap();
    let mut of_greedy: Vec<QueueTicket> = (0..3).map(|_| fixture.wait_of(1).unwrap()).collect();
    assert_eq!(fixture.wait_of(1).err(), Some(WaitRefused::QueueFull));
    let mut other = fixture.wait_of(2).unwrap();
    let outcomes: Vec<_> = of_greedy.iter_mut().map(served).collect();
    assert_eq!(outcomes, [None, None, Some('!')]);
    assert_eq!((served(&mut other), fixture.report().waiting), (None, 3));
    // With 2 and 1 requests, a further exchange would only turn the shares around.
    assert_eq!(fixture.wait_of(2).err(), Some(WaitRefused::QueueFull));
    assert!(fixture.wait_of(3).is_ok());
}

#[test]
fn a_full_member_is_passed_over() {
    let fixture = Fixture::new(with_queue(vec![bounded('a'), bounded('b')]));
    let first = fixture.choose().unwrap();
    let second = fixture.choose().unwrap();
    assert_eq!((letter(&first), letter(&second)), ('a', 'b'));
    assert_eq!(fixture.choose().err(), Some(BUSY));
    drop(first);
    assert_eq!(letter(&fixture.choose().unwrap()), 'a');
}

#[test]
fn neither_a_spare_nor_a_higher_set_takes_the_requests_of_full_members() {
    let fixture = Fixture::new(with_queue(vec![
        bounded('a'),
        member('b', |member| member.role = MemberRole::Spare),
        member('c', |member| member.role = MemberRole::Standby),
        member('d', |member| member.set = 1),
    ]));
    let lease = fixture.choose().unwrap();
    assert_eq!(fixture.choose().err(), Some(BUSY));
    drop(lease);
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(1), "b");
}

#[test]
fn a_full_spare_or_standby_is_busy_too() {
    for role in [MemberRole::Spare, MemberRole::Standby] {
        let fixture = Fixture::new(with_queue(vec![
            member('a', |member| member.admin = AdminState::Disabled),
            MemberSettings {
                role,
                ..bounded('b')
            },
        ]));
        let _lease = fixture.choose().unwrap();
        assert_eq!(fixture.choose().err(), Some(BUSY));
    }
}

#[test]
fn places_go_to_waiting_requests_in_order() {
    let fixture = Fixture::new(with_queue(vec![bounded('a')]));
    let lease = fixture.choose().unwrap();
    let mut first = fixture.wait().unwrap();
    let mut second = fixture.wait().unwrap();
    assert_eq!(fixture.wait().err().unwrap(), WaitRefused::QueueFull);
    assert_eq!((served(&mut first), served(&mut second)), (None, None));
    drop(lease);
    // A new request does not overtake a waiting request.
    assert_eq!(fixture.choose().err(), Some(BUSY));
    assert_eq!(served(&mut second), None);
    assert_eq!(served(&mut first), Some('a'));
    assert_eq!(served(&mut second), Some('a'));
    assert_eq!(fixture.member('a').busy(), 0);
    assert_eq!(fixture.report_of('a').elected, 3);
}

#[test]
fn a_waiting_request_is_woken() {
    let fixture = Fixture::new(with_queue(vec![bounded('a')]));
    let lease = fixture.choose().unwrap();
    let mut ticket = fixture.wait().unwrap();
    let counting = CountingWaker::default();
    let waker = counting.waker();
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut ticket).poll(&mut cx).is_pending());
    drop(lease);
    assert_eq!(counting.count(), 1);
    assert!(Pin::new(&mut ticket).poll(&mut cx).is_ready());
}

#[test]
fn a_request_that_gives_up_passes_its_place_on() {
    let fixture = Fixture::new(with_queue(vec![bounded('a')]));
    let lease = fixture.choose().unwrap();
    let first = fixture.wait().unwrap();
    let mut second = fixture.wait().unwrap();
    drop(lease);
    drop(first);
    assert_eq!(served(&mut second), Some('a'));
    drop(second);
    assert_eq!(
        (fixture.member('a').busy(), fixture.report().waiting),
        (0, 0)
    );
}

#[test]
fn a_place_that_became_free_before_the_queue_is_taken_at_once() {
    let fixture = Fixture::new(with_queue(vec![bounded('a')]));
    assert_eq!(fixture.choose().map(|lease| letter(&lease)), Ok('a'));
    let mut ticket = fixture.wait().unwrap();
    assert_eq!(fixture.report().waiting, 0);
    assert_eq!(served(&mut ticket), Some('a'));
    assert_eq!(fixture.member('a').busy(), 0);
    // The wait is over, and a second poll has no member to give.
    assert_eq!(served(&mut ticket), Some('?'));
}

#[test]
fn a_session_waits_for_its_own_member() {
    let fixture = Fixture::new(with_queue(vec![bounded('a'), bounded('b')]));
    let (a, b) = (fixture.choose().unwrap(), fixture.choose().unwrap());
    let request = ChooseRequest {
        session: Some("x.rb"),
        ..fixture.request()
    };
    let session_member = Some(fixture.member('b').id());
    let busy = fixture.balancer.choose(&request).err();
    assert_eq!(busy, Some(NoMember::Busy { session_member }));
    let mut session = fixture.balancer.wait(&request, session_member).unwrap();
    let mut any = fixture.wait().unwrap();
    drop(a);
    assert_eq!((served(&mut session), served(&mut any)), (None, Some('a')));
    drop(b);
    assert_eq!(served(&mut session), Some('b'));
}

#[test]
fn a_waiting_request_does_not_get_a_member_it_tried() {
    let fixture = Fixture::new(with_queue(vec![bounded('a'), bounded('b')]));
    let (a, b) = (fixture.choose().unwrap(), fixture.choose().unwrap());
    let tried = [fixture.member('a').id()];
    let request = ChooseRequest {
        tried: &tried,
        ..fixture.request()
    };
    let mut ticket = fixture.balancer.wait(&request, None).unwrap();
    drop(a);
    assert_eq!(served(&mut ticket), None);
    drop(b);
    assert_eq!(served(&mut ticket), Some('b'));
}

#[test]
fn requests_choose_again_when_a_member_changes() {
    let fixture = Fixture::new(with_queue(vec![bounded('a')]));
    let _lease = fixture.choose().unwrap();
    let mut ticket = fixture.wait().unwrap();
    fixture.edit('a', |member| member.weight = 200);
    assert_eq!(served(&mut ticket), Some('?'));
}

#[test]
fn a_failed_member_hands_no_place_over() {
    let fixture = Fixture::new(with_queue(vec![bounded('a'), bounded('b')]));
    let (mut a, b) = (fixture.choose().unwrap(), fixture.choose().unwrap());
    let mut ticket = fixture.wait().unwrap();
    a.record_connect_failure(fixture.now_ms);
    drop(a);
    assert_eq!(served(&mut ticket), Some('?'));
    assert_eq!(fixture.choose().err(), Some(BUSY));
    drop(b);
    assert_eq!(fixture.sequence(1), "b");
}

#[test]
fn a_recovered_member_serves_all_waiting_requests() {
    let two = |name| member(name, |member| member.connections_max = Some(2));
    let mut fixture = Fixture::new(with_queue(vec![two('a'), bounded('b')]));
    fixture.lease_of('a').record_connect_failure(fixture.now_ms);
    fixture.now_ms += 1_000;
    let mut trial = fixture.lease_of('a');
    let _b = fixture.choose().unwrap();
    let mut tickets = [fixture.wait().unwrap(), fixture.wait().unwrap()];
    trial.record_answer(200, 1, fixture.now_ms);
    assert_eq!(tickets.each_mut().map(served), [Some('?'); 2]);
}

#[test]
fn a_request_that_gives_up_passes_its_wake_up_on() {
    let fixture = Fixture::new(with_queue(vec![bounded('a'), bounded('b')]));
    let (mut a, _b) = (fixture.choose().unwrap(), fixture.choose().unwrap());
    let first = fixture.wait().unwrap();
    let mut second = fixture.wait().unwrap();
    a.record_connect_failure(fixture.now_ms);
    drop(a);
    assert_eq!(served(&mut second), None);
    drop(first);
    assert_eq!(served(&mut second), Some('?'));
}

#[test]
fn a_request_without_any_usable_member_does_not_wait() {
    let fixture = Fixture::new(with_queue(vec![bounded('a')]));
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    let refused = fixture.wait().err().unwrap();
    assert_eq!(refused, WaitRefused::NoMember(NoMember::NoneUsable));
    assert_eq!(fixture.report().waiting, 0);
}

#[test]
fn a_lower_bound_counts_for_running_requests() {
    let two = |name| member(name, |member| member.connections_max = Some(2));
    let fixture = Fixture::new(with_queue(vec![two('a')]));
    let leases = [fixture.choose().unwrap(), fixture.choose().unwrap()];
    fixture
        .balancer
        .reconfigure(with_queue(vec![bounded('a')]), fixture.now_ms);
    let mut ticket = fixture.wait().unwrap();
    let [first, second] = leases;
    drop(first);
    assert_eq!(served(&mut ticket), None);
    drop(second);
    assert_eq!(served(&mut ticket), Some('a'));
}

#[test]
fn tunnels_have_half_of_the_places() {
    let fixture = shared("ab", 8, 9);
    let tunnel = |last| ChooseRequest {
        is_tunnel: true,
        ..fixture.request_of(last)
    };
    let mut held: Vec<Lease> = (10..18)
        .map(|last| fixture.balancer.choose(&tunnel(last)).expect("a place"))
        .collect();
    assert_eq!(fixture.balancer.choose(&tunnel(1)).err(), Some(BUSY));
    let mut waiting = fixture.balancer.wait(&tunnel(1), None).expect("room");
    assert!(fixture.choose_of(2).is_ok());
    assert_eq!(served(&mut waiting), None);
    // A tunnel that turns out to be an ordinary response leaves the place to another tunnel.
    held[0].end_tunnel();
    let Poll::Ready(Waited::Lease(_lease)) = poll(&mut waiting) else {
        panic!("no place");
    };
    assert!(!held[0].begin_tunnel(), "the place of tunnels is taken");
    assert!(held[1].begin_tunnel());
}

#[test]
fn a_tunnel_of_a_client_above_its_share_is_told_to_end() {
    let fixture = shared("a", 4, 9);
    let mut greedy = fixture.fill_of(1);
    let _small = fixture.choose_of(2).expect("a place");
    assert!(greedy.iter_mut().take(2).all(Lease::begin_tunnel));
    let counting = CountingWaker::default();
    let waker = counting.waker();
    let cx = Context::from_waker(&waker);
    assert!(greedy[0].poll_told(&cx).is_pending() && greedy[1].poll_told(&cx).is_pending());
    let mut waiting = fixture.wait_of(3).unwrap();
    assert_eq!(counting.count(), 1);
    assert!(greedy[0].poll_told(&cx).is_ready() && greedy[1].poll_told(&cx).is_pending());
    drop(greedy.remove(0));
    assert_eq!(served(&mut waiting), Some('a'));
}

#[test]
fn the_slowest_call_of_a_member_gives_way_to_a_newcomer() {
    let mut fixture = shared("ab", 2, 9);
    let slow = ClientPace::SlowForMany;
    let mut held: Vec<Lease> = (1..5)
        .map(|last| fixture.choose_of(last).expect("a place"))
        .collect();
    let at_a = |lease: &Lease| letter(lease) == 'a';
    held.sort_by_key(letter);
    assert!(at_a(&held[1]) && !at_a(&held[2]));
    let mut waiting = fixture.wait_of(5).unwrap();
    fixture.now_ms += NEWCOMER_WAIT_MILLISECONDS - 1;
    let rates = [12, 10, 31, 32];
    for (lease, rate) in held.iter_mut().zip(rates) {
        assert!(!lease.gives_way(slow(rate), fixture.now_ms));
    }
    fixture.now_ms += 1;
    assert!(!held[0].gives_way(slow(12), fixture.now_ms), "10 is slower");
    assert!(!held[3].gives_way(slow(32), fixture.now_ms));
    // A call that does not wait for its client is not slow.
    held[1].end_wait();
    assert!(held[0].gives_way(slow(12), fixture.now_ms));
    assert!(
        !held[2].gives_way(slow(31), fixture.now_ms),
        "one at a time"
    );
    drop(held.remove(0));
    assert_eq!(served(&mut waiting), Some('a'));
    assert_eq!(fixture.report().waiting, 0);
}

#[test]
fn a_client_that_gave_way_waits_behind_newcomers() {
    let mut fixture = shared("a", 4, 9);
    let slow = ClientPace::SlowForMany(5);
    let mut held: Vec<Lease> = (1..5)
        .map(|last| fixture.choose_of(last).expect("a place"))
        .collect();
    let mut first = fixture.wait_of(5).unwrap();
    fixture.now_ms += NEWCOMER_WAIT_MILLISECONDS;
    assert!(held[0].gives_way(slow, fixture.now_ms));
    held.remove(0);
    held.extend(lease(&mut first));
    assert_eq!(held.len(), 4);
    // Client 1 comes back at once, before a client that was never here.
    let mut again = fixture.wait_of(1).unwrap();
    let mut new = fixture.wait_of(6).unwrap();
    fixture.now_ms += NEWCOMER_WAIT_MILLISECONDS;
    assert!(held[0].gives_way(slow, fixture.now_ms));
    held.remove(0);
    held.extend(lease(&mut new));
    assert_eq!((held.len(), served(&mut again)), (4, None));
    // The place that client 3 leaves is the last eighth of the places, which is closed to client 1.
    held.remove(0);
    assert_eq!(served(&mut again), None);
    held.remove(0);
    assert_eq!(served(&mut again), Some('a'));
    fixture.now_ms += SLOW_CLIENT_MILLISECONDS;
    assert!(fixture.choose_of(2).is_ok(), "ten minutes later");
}

#[test]
fn no_call_of_a_disabled_member_gives_way() {
    let mut fixture = shared("ab", 1, 9);
    let mut held = [1, 2].map(|last| fixture.choose_of(last).expect("a place"));
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    let _waiting = fixture.wait_of(3).unwrap();
    fixture.now_ms += NEWCOMER_WAIT_MILLISECONDS;
    let gives_way = held.each_mut().map(|lease| {
        let gives_way = lease.gives_way(ClientPace::Slow, fixture.now_ms);
        (letter(lease), gives_way)
    });
    assert_eq!(gives_way, [('a', false), ('b', true)]);
}

#[test]
fn a_silent_tunnel_gives_way_to_a_client_without_a_tunnel() {
    let mut fixture = shared("a", 8, 9);
    let tunnel = |last| ChooseRequest {
        is_tunnel: true,
        ..fixture.request_of(last)
    };
    let waker = Waker::noop();
    let cx = Context::from_waker(waker);
    let mut held: Vec<Lease> = (1..5)
        .map(|last| fixture.balancer.choose(&tunnel(last)).expect("a place"))
        .collect();
    assert!(
        held.iter_mut()
            .all(|lease| lease.poll_told(&cx).is_pending())
    );
    // The second tunnel has been silent for longest.
    for (nth, after) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
        held[nth].mark_moved(fixture.now_ms + after);
    }
    let since = fixture.now_ms + 10;
    let wait = |fixture: &mut Fixture, last, silence_ms: u64| {
        fixture.now_ms = since + silence_ms - NEWCOMER_WAIT_MILLISECONDS;
        let request = ChooseRequest {
            is_tunnel: true,
            ..fixture.request_of(last)
        };
        let ticket = fixture.balancer.wait(&request, None).expect("room");
        fixture.now_ms = since + silence_ms;
        fixture.balancer.claim_tunnel(&ticket, fixture.now_ms);
        ticket
    };
    let mut told = || -> Vec<bool> {
        let polled = held.iter_mut().map(|lease| lease.poll_told(&cx).is_ready());
        polled.collect()
    };
    let short = wait(&mut fixture, 6, TUNNEL_SILENCE_MILLISECONDS - 1);
    let _own = wait(&mut fixture, 1, TUNNEL_SILENCE_MILLISECONDS);
    assert_eq!(told(), [false; 4]);
    let mut new = wait(&mut fixture, 7, TUNNEL_SILENCE_MILLISECONDS);
    assert_eq!(told(), [false, true, false, false]);
    let _next = wait(&mut fixture, 8, TUNNEL_SILENCE_MILLISECONDS + 60);
    assert_eq!(told(), [false, true, false, false], "one at a time");
    drop((short, held.remove(1)));
    assert!(served(&mut new).is_some());
}

#[test]
fn the_slow_call_of_the_largest_client_gives_way() {
    let fixture = shared("a", 8, 9);
    let mut greedy = fixture.fill_of(1);
    let mut small = fixture.choose_of(2).expect("a place");
    let _last = fixture.choose_of(3).expect("a place");
    assert!(
        !greedy[0].gives_way(ClientPace::Slow, fixture.now_ms),
        "no request waits"
    );
    let mut waiting = fixture.wait_of(4).unwrap();
    assert!(
        !small.gives_way(ClientPace::SlowForMany(20), fixture.now_ms),
        "an equal share"
    );
    assert!(
        !small.gives_way(ClientPace::Slow, fixture.now_ms),
        "the largest client comes first"
    );
    assert!(greedy[1].gives_way(ClientPace::SlowForMany(20), fixture.now_ms));
    assert!(
        !greedy[2].gives_way(ClientPace::Slow, fixture.now_ms),
        "one waiting request"
    );
    drop(greedy.remove(1));
    assert_eq!(served(&mut waiting), Some('a'));
    // A client that is fast again keeps its place, and with no slow call of a larger client a small one gives way.
    let _next = fixture.choose_of(5).expect("a place");
    let _waiting = fixture.wait_of(6).unwrap();
    assert!(!greedy[0].gives_way(ClientPace::Fast, fixture.now_ms));
    assert!(!greedy[1].gives_way(ClientPace::Fast, fixture.now_ms));
    assert!(small.gives_way(ClientPace::Slow, fixture.now_ms));
}
