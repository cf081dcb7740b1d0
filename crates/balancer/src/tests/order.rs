//! Order of members: sets, spares, standbys, draining, and the methods of Apache.

use super::fixture::{Fixture, member, members, settings};
use crate::member_settings::{AdminState, MemberRole};
use crate::method::BalancingMethod;
use crate::{MemberState, NoMember};
use std::time::Duration;

#[test]
fn the_lowest_set_with_a_usable_member_serves() {
    let in_set = |set| move |member: &mut crate::settings::MemberSettings| member.set = set;
    let fixture = Fixture::new(settings(vec![
        member('a', in_set(7)),
        member('b', in_set(3)),
        member('c', in_set(3)),
    ]));
    assert_eq!(fixture.sequence(4), "bcbc");
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(2), "cc");
    fixture.edit('c', |member| member.admin = AdminState::Stopped);
    assert_eq!(fixture.sequence(2), "aa");
    fixture.edit('a', |member| member.set = 0);
    fixture.edit('b', |member| member.admin = AdminState::Enabled);
    assert_eq!(fixture.sequence(2), "aa");
}

#[test]
fn each_unusable_regular_member_is_replaced_by_one_spare() {
    let spare = |name| member(name, |member| member.role = MemberRole::Spare);
    let fixture = Fixture::new(settings(vec![
        spare('a'),
        member('b', |_| {}),
        member('c', |_| {}),
        spare('d'),
    ]));
    assert_eq!(fixture.sequence(4), "bcbc");
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(4), "caca");
    fixture.edit('c', |member| member.admin = AdminState::Draining);
    assert_eq!(fixture.sequence(4), "adad");
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(2), "dd");
}

#[test]
fn a_standby_serves_a_set_without_any_other_usable_member() {
    let fixture = Fixture::new(settings(vec![
        member('a', |member| member.role = MemberRole::Standby),
        member('b', |_| {}),
        member('c', |member| member.set = 1),
    ]));
    assert_eq!(fixture.sequence(2), "bb");
    fixture.edit('b', |member| member.admin = AdminState::Draining);
    // As in Apache, a standby precedes the regular members of higher sets.
    assert_eq!(fixture.sequence(2), "aa");
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(2), "cc");
}

#[test]
fn roles_change_at_runtime() {
    let fixture = Fixture::of("abc");
    fixture.edit('b', |member| member.role = MemberRole::Spare);
    assert_eq!(fixture.sequence(4), "acac");
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(4), "cbcb");
}

#[test]
fn no_member_is_an_answer() {
    let fixture = Fixture::of("ab");
    for name in ['a', 'b'] {
        fixture.edit(name, |member| member.admin = AdminState::Disabled);
    }
    assert_eq!(fixture.choose().err(), Some(NoMember::NoneUsable));
    let empty = Fixture::new(settings(Vec::new()));
    assert_eq!(empty.choose().err(), Some(NoMember::NoneUsable));
}

#[test]
fn a_tried_member_is_replaced_as_an_unusable_member() {
    let fixture = Fixture::new(settings(vec![
        member('a', |_| {}),
        member('b', |_| {}),
        member('s', |member| member.role = MemberRole::Spare),
        member('t', |member| member.set = 1),
    ]));
    let after = |tried| fixture.answer(fixture.choose_after(tried));
    assert_eq!([after("a"), after("a")], ['b', 's']);
    assert_eq!(after("ab"), 's');
    assert_eq!(after("abs"), 't');
    assert_eq!(after("abst"), '!');
}

#[test]
fn a_change_of_weight_starts_the_sequence_as_in_apache() {
    let fixture = Fixture::of("abc");
    assert_eq!(fixture.sequence(4), "abca");
    fixture.edit('a', |member| member.weight = 300);
    // The urgencies are 300, 100 and 100 before the first choice.
    assert_eq!(fixture.sequence(10), "aabacaabac");
}

#[test]
fn a_member_that_is_enabled_again_has_nothing_to_catch_up() {
    let fixture = Fixture::of("abc");
    fixture.edit('a', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(30), "bc".repeat(15));
    fixture.edit('a', |member| member.admin = AdminState::Enabled);
    assert_eq!(fixture.sequence(6), "abcabc");
}

#[test]
fn a_change_of_method_starts_the_methods_anew() {
    let fixture = Fixture::of("abc");
    assert_eq!(fixture.sequence(1), "a");
    fixture.edit_balancer(|settings| settings.method = BalancingMethod::ByBusyness);
    assert_eq!(fixture.sequence(3), "abc");
    assert_eq!(
        fixture.report().settings.method,
        BalancingMethod::ByBusyness
    );
}

#[test]
fn edits_of_the_balancer_are_in_force() {
    let fixture = Fixture::new(settings(members("ab")));
    let timeout = Duration::from_secs(7);
    fixture.edit_balancer(|settings| {
        settings.retry.attempts_max = 9;
        settings.connection.queue_timeout = timeout;
    });
    let settings = fixture.balancer.settings();
    assert_eq!(settings.retry.attempts_max, 9);
    assert_eq!(settings.connection.queue_timeout, timeout);
}

#[test]
fn the_report_has_all_values_of_the_manager_page() {
    let mut fixture = Fixture::new(settings(vec![
        member('a', |member| member.route = "r1".into()),
        member('b', |_| {}),
    ]));
    let mut lease = fixture.lease_of('a');
    lease.add_sent(10);
    lease.add_received(100);
    lease.record_answer(200, 1_500, fixture.now_ms);
    let report = fixture.report_of('a');
    assert_eq!(
        (report.elected, report.busy, report.load_status),
        (1, 1, -100)
    );
    assert_eq!((report.sent_bytes, report.received_bytes), (10, 100));
    assert_eq!((report.latency_micros, &*report.route), (Some(1_500), "r1"));
    drop(lease);
    fixture.now_ms += 5;
    let change = fixture
        .edit('a', |member| member.admin = AdminState::Draining)
        .unwrap();
    assert_eq!(
        (change.old, change.new),
        (MemberState::Up, MemberState::Draining)
    );
    let report = fixture.report_of('a');
    assert_eq!((report.busy, report.changes), (0, vec![change]));
    drop(fixture.choose_after("a"));
    assert_eq!(fixture.report_of('b').retries, 1);
}
