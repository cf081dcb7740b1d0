//! Reloads: members keep their state by URL, and the registry keeps balancers by name.

use super::fixture::{Balancers, Fixture, checks, letter, member, members, settings, url};
use crate::member_settings::{AdminState, MemberHost, MemberUrl};
use crate::method::BalancingMethod;
use crate::{ChangeReason, DoubtChange, MemberState, SessionKey};
use std::net::IpAddr;
use std::sync::Arc;
use wire::heartbeat::Heartbeat;

#[test]
fn members_keep_their_state_over_reloads() {
    let fixture = Fixture::of("abc");
    assert_eq!(fixture.sequence(4), "abca");
    fixture.fail_connection('b');
    let ids = ['a', 'b', 'c'].map(|name| fixture.member(name).id());
    let lease = fixture.lease_of('c');
    let elected = fixture.report_of('c').elected;
    fixture
        .balancer
        .reconfigure(settings(members("dcba")), fixture.now_ms);
    assert_eq!(['a', 'b', 'c'].map(|name| fixture.member(name).id()), ids);
    assert_eq!(fixture.state('b'), MemberState::Ejected);
    let report = fixture.report_of('c');
    assert_eq!((report.elected, report.busy), (elected, 1));
    drop(lease);
    assert_eq!(fixture.member('c').busy(), 0);
    assert!(fixture.sequence(20).contains('d'));
}

#[test]
fn a_removed_member_gets_no_requests_and_its_requests_end() {
    let fixture = Fixture::of("ab");
    let mut lease = fixture.lease_of('b');
    let member = Arc::clone(lease.member());
    fixture
        .balancer
        .reconfigure(settings(members("a")), fixture.now_ms);
    assert_eq!(fixture.sequence(3), "aaa");
    assert_eq!(lease.record_answer(200, 1, fixture.now_ms), None);
    assert_eq!(member.busy(), 1);
    drop(lease);
    assert_eq!(member.busy(), 0);
}

#[test]
fn the_sequence_goes_on_after_a_reload_without_changes() {
    let fixture = Fixture::of("abc");
    assert_eq!(fixture.sequence(2), "ab");
    fixture
        .balancer
        .reconfigure(settings(members("abc")), fixture.now_ms);
    assert_eq!(fixture.sequence(4), "cabc");
}

#[test]
fn edits_are_in_force_before_a_new_member_gets_requests() {
    let fixture = Fixture::of("abc");
    let mut edited = settings(vec![
        member('a', |_| {}),
        member('b', |member| member.admin = AdminState::Disabled),
        member('c', |member| member.admin = AdminState::Draining),
        member('d', |member| member.admin = AdminState::Stopped),
    ]);
    edited.method = BalancingMethod::ByBusyness;
    let configure = |file: &str| {
        let report = fixture.balancer.reconfigure_prepared(
            edited.clone(),
            &members(file),
            fixture.now_ms,
            |member| assert!(member.url() == &url('a') || member.state() != MemberState::Up),
        );
        let changes = report.changes.into_iter();
        changes.map(|(_, change)| change.reason).collect::<Vec<_>>()
    };
    assert_eq!(configure("abcd"), [ChangeReason::Operator; 2]);
    assert_eq!(fixture.state('b'), MemberState::Disabled);
    assert_eq!(fixture.state('c'), MemberState::Draining);
    assert_eq!(fixture.sequence(3), "aaa");
    let method = fixture.balancer.settings().method;
    assert_eq!(method, BalancingMethod::ByBusyness);
    assert_eq!(configure("abcd"), []);
}

#[test]
fn a_change_of_the_file_is_no_change_of_the_operator() {
    let fixture = Fixture::of("ab");
    let changed = settings(vec![
        member('a', |member| member.weight = 200),
        member('b', |member| member.admin = AdminState::Disabled),
    ]);
    let file = [
        member('a', |_| {}),
        member('b', |member| member.admin = AdminState::Disabled),
    ];
    let balancer = &fixture.balancer;
    let report = balancer.reconfigure_prepared(changed, &file, fixture.now_ms, |_| {});
    assert_eq!(fixture.report_of('a').weight, 200);
    assert_eq!(fixture.state('b'), MemberState::Disabled);
    assert_eq!(report.changes.len(), 1);
    assert_eq!(*report.changes[0].0.url(), url('b'));
    assert_eq!(report.changes[0].1.reason, ChangeReason::Configuration);
}

#[test]
fn without_checks_failed_checks_end() {
    let mut checked = settings(members("ab"));
    checked.check = Some(checks());
    let mut fixture = Fixture::new(checked);
    fixture.run_checks("a", 2_000);
    assert_eq!(fixture.state('a'), MemberState::CheckFailed);
    fixture
        .balancer
        .reconfigure(settings(members("ab")), fixture.now_ms);
    assert_eq!(fixture.state('a'), MemberState::Up);
}

#[test]
fn a_reload_that_leaves_failed_members_alone_puts_the_checks_in_doubt() {
    let mut checked = settings(members("abc"));
    checked.check = Some(checks());
    let mut fixture = Fixture::new(checked.clone());
    fixture.run_checks("a", 2_000);
    checked.members = members("a");
    let report = fixture.balancer.reconfigure(checked, fixture.now_ms);
    assert_eq!(report.doubt, Some(DoubtChange::Begun));
    assert!(fixture.report().are_checks_doubted);
    assert_eq!(fixture.sequence(1), "a");
}

#[test]
fn a_reload_changes_the_method() {
    let fixture = Fixture::of("abc");
    fixture.sequence(1);
    let mut changed = settings(members("abc"));
    changed.method = BalancingMethod::Maglev;
    fixture.balancer.reconfigure(changed, fixture.now_ms);
    let request = fixture.request();
    let answer = |_| fixture.answer(fixture.balancer.choose(&request));
    let sequence: String = (0..6).map(answer).collect();
    assert_eq!(sequence, sequence[..1].repeat(6));
}

#[test]
fn the_registry_finds_balancers_by_name_without_side_effects() {
    let balancers = Balancers::new(SessionKey::new(&[0; 32]), 1);
    let first = balancers.find_or_new(&settings(members("ab")), 0);
    assert!(balancers.find("test").is_none());
    balancers.register(&first);
    balancers.register(&first);
    let other_settings = settings(members("abcd"));
    let second = balancers.find_or_new(&other_settings, 0);
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!((second.members().len(), balancers.all().len()), (2, 1));
    drop((first, second));
    assert!(balancers.find("test").is_none());
    assert_eq!(balancers.find_or_new(&other_settings, 0).members().len(), 4);
}

#[test]
fn heartbeats_are_accepted_from_members_alone() {
    let mut configured = settings(vec![
        member('a', |_| {}),
        member('b', |member| {
            member.url = MemberUrl {
                is_tls: false,
                host: MemberHost::Name("b.example".into(), 80),
            };
        }),
    ]);
    configured.method = BalancingMethod::Heartbeat;
    let fixture = Fixture::new(configured);
    let heartbeat = Heartbeat {
        ready: 5,
        busy: 1,
        port: None,
    };
    let hear_port = |from: &str, port| {
        let from: IpAddr = from.parse().unwrap();
        let resolves = |name: &str, address: IpAddr| {
            name == "b.example" && address == IpAddr::from([192, 0, 2, 2])
        };
        fixture.balancer.record_heartbeat(
            from,
            Heartbeat { port, ..heartbeat },
            fixture.now_ms,
            resolves,
        )
    };
    let hear = |from| hear_port(from, None);
    assert!(!hear("192.0.2.1"));
    assert_eq!(fixture.report_of('a').heartbeat, None);
    assert!(hear("::ffff:192.0.2.2"));
    assert_eq!(fixture.report_of('a').heartbeat, None);
    assert!(!hear_port("127.0.0.1", Some(9_001)));
    assert_eq!(fixture.report_of('a').heartbeat, None);
    assert!(hear_port("127.0.0.1", Some(9_000)));
    assert!(hear("127.0.0.1"));
    assert_eq!(fixture.report_of('a').heartbeat, Some(heartbeat));
    assert!(matches!(letter(&fixture.choose().unwrap()), 'a' | '?'));
}
