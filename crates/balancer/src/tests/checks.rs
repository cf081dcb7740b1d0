//! Active checks, the doubt about the checks, and requests woken when their member goes down.

use super::fixture::{Fixture, checks, letter, member, members, settings};
use crate::member_settings::{AdminState, CheckSettings, MemberCheck, MemberRole, MemberSettings};
use crate::test_waker::CountingWaker;
use crate::{ChangeReason, CheckFailure, CheckOutcome, DoubtChange, MemberState, NextCheck};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

fn checked(names: &str) -> Fixture {
    let mut settings = settings(members(names));
    settings.check = Some(checks());
    Fixture::new(settings)
}

#[test]
fn the_first_checks_are_spread_over_the_interval() {
    let mut fixture = checked("abcde");
    let mut starts = Vec::new();
    for _ in 0..10 {
        for (name, _) in fixture.run_due_checks("") {
            starts.push((name, fixture.now_ms - 10_000));
        }
        if let NextCheck::At(at_ms) = fixture.balancer.next_check(fixture.now_ms) {
            fixture.now_ms = at_ms;
        }
    }
    let expected: Vec<(char, u64)> = ('a'..='e').zip((0..).step_by(100)).collect();
    let second: Vec<(char, u64)> = ('a'..='e').zip((500..).step_by(100)).collect();
    assert_eq!(starts, [expected, second].concat());
}

#[test]
fn one_check_of_a_member_runs_at_a_time() {
    let mut fixture = checked("a");
    let NextCheck::Run(run) = fixture.balancer.next_check(fixture.now_ms) else {
        panic!("a check is due");
    };
    fixture.now_ms += 5_000;
    assert!(matches!(
        fixture.balancer.next_check(fixture.now_ms),
        NextCheck::None
    ));
    // A check without a result ends, and the next check is overdue.
    drop(run);
    assert!(matches!(
        fixture.balancer.next_check(fixture.now_ms),
        NextCheck::Run(_)
    ));
}

#[test]
fn a_member_that_stops_answering_is_out_within_two_intervals_and_the_timeout() {
    let mut fixture = checked("abcd");
    fixture.run_checks("", 1_000);
    // The checks of the member fail after 500 ms each, in the worst case one passed just before.
    let stopped_at_ms = fixture.now_ms;
    while fixture.state('b') == MemberState::Up {
        let mut failing = Vec::new();
        while let NextCheck::Run(run) = fixture.balancer.next_check(fixture.now_ms) {
            let is_b = run.member().id() == fixture.member('b').id();
            match is_b {
                true => failing.push((fixture.now_ms + 500, run)),
                false => drop(fixture.balancer.finish_check(
                    run,
                    CheckOutcome::Passed,
                    fixture.now_ms,
                )),
            }
        }
        fixture.now_ms += 50;
        for (end_ms, run) in failing {
            fixture.now_ms = fixture.now_ms.max(end_ms);
            let outcome = CheckOutcome::Failed(CheckFailure::Timeout);
            fixture.balancer.finish_check(run, outcome, fixture.now_ms);
        }
    }
    assert!(
        fixture.now_ms - stopped_at_ms <= 1_600,
        "{}",
        fixture.now_ms - stopped_at_ms
    );
}

#[test]
fn a_member_falls_and_rises_with_its_checks() {
    let mut fixture = checked("abcd");
    let reports = fixture.run_checks("b", 1_000);
    let changes: Vec<_> = reports
        .iter()
        .filter_map(|(_, report)| report.change)
        .collect();
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (changes[0].old, changes[0].new),
        (MemberState::Up, MemberState::CheckFailed)
    );
    assert_eq!(
        changes[0].reason,
        ChangeReason::ChecksFailed(CheckFailure::Timeout)
    );
    assert!(!fixture.sequence(20).contains('b'));
    let reports = fixture.run_checks("", 1_000);
    let changes: Vec<_> = reports
        .iter()
        .filter_map(|(_, report)| report.change)
        .collect();
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (changes[0].new, changes[0].reason),
        (MemberState::Up, ChangeReason::ChecksPassed)
    );
    assert!(fixture.sequence(20).contains('b'));
    assert_eq!(fixture.report_of('b').checks_failed, 2);
}

#[test]
fn passed_checks_end_an_ejection_from_the_outage() {
    let mut fixture = checked("abcd");
    fixture.fail_connection('b');
    fixture.now_ms += 1_000;
    fixture.lease_of('b').record_connect_failure(fixture.now_ms);
    fixture.run_checks("b", 1_000);
    assert_eq!(fixture.state('b'), MemberState::CheckFailed);
    fixture.run_checks("", 1_000);
    assert_eq!(fixture.state('b'), MemberState::Up);
}

#[test]
fn an_ejection_outlasts_passed_checks_of_a_member_that_was_never_down() {
    let mut fixture = checked("abcd");
    fixture.fail_connection('b');
    fixture.run_checks("", 950);
    assert_eq!(fixture.state('b'), MemberState::Ejected);
}

#[test]
fn when_most_members_fail_the_checks_are_doubted_once() {
    let mut fixture = checked("abcd");
    let reports = fixture.run_checks("abcd", 2_000);
    let doubts: Vec<_> = reports
        .iter()
        .filter_map(|(_, report)| report.doubt)
        .collect();
    assert_eq!(doubts, [DoubtChange::Begun]);
    let sequence = fixture.sequence(40);
    assert!(
        "abcd"
            .chars()
            .all(|name| sequence.matches(name).count() == 10),
        "{sequence}"
    );
    assert!(fixture.report().are_checks_doubted);
    let reports = fixture.run_checks("ab", 2_000);
    let doubts: Vec<_> = reports
        .iter()
        .filter_map(|(_, report)| report.doubt)
        .collect();
    assert_eq!(doubts, [DoubtChange::Ended]);
    let sequence = fixture.sequence(40);
    assert!(!sequence.contains(['a', 'b']), "{sequence}");
}

/// Makes requests one after another, of which those to the members with the letters in `dead` time out. Returns the
/// letters of the members.
fn requests_with_dead_members(fixture: &Fixture, dead: &str, count: usize) -> String {
    let request = |_| {
        let mut lease = fixture.choose().unwrap();
        match dead.contains(letter(&lease)) {
            true => drop(lease.record_failure(fixture.now_ms)),
            false => drop(lease.record_answer(200, 1, fixture.now_ms)),
        }
        letter(&lease)
    };
    (0..count).map(request).collect()
}

#[test]
fn under_doubt_dead_members_cost_one_request_each_per_pause() {
    let mut fixture = checked("abcd");
    fixture.run_checks("abc", 2_000);
    assert!(fixture.report().are_checks_doubted);
    for pause_ms in [1_000, 2_000, 4_000, 8_000, 8_000] {
        let sequence = requests_with_dead_members(&fixture, "abc", 40);
        for dead in ['a', 'b', 'c'] {
            assert_eq!(sequence.matches(dead).count(), 1, "{sequence}");
        }
        fixture.run_checks("abc", pause_ms);
    }
}

#[test]
fn under_doubt_a_dead_member_holds_one_request_at_a_time() {
    let mut fixture = checked("abcd");
    fixture.run_checks("abc", 2_000);
    let held: Vec<_> = (0..40).map(|_| fixture.choose().unwrap()).collect();
    let count = |name| held.iter().filter(|lease| letter(lease) == name).count();
    assert_eq!(['a', 'b', 'c', 'd'].map(count), [1, 1, 1, 37]);
}

#[test]
fn under_doubt_members_that_answer_keep_getting_requests() {
    let mut fixture = checked("abcd");
    fixture.run_checks("abcd", 2_000);
    assert_eq!(fixture.sequence(4).len(), 4);
    let held: Vec<_> = (0..40).map(|_| fixture.choose().unwrap()).collect();
    let count = |name| held.iter().filter(|lease| letter(lease) == name).count();
    assert_eq!(['a', 'b', 'c', 'd'].map(count), [10; 4]);
    drop(held);
    // One failure takes such a member out again.
    fixture.lease_of('b').record_failure(fixture.now_ms);
    assert!(!fixture.sequence(20).contains('b'));
}

#[test]
fn before_a_member_under_doubt_answers_requests_prefer_passing_members() {
    let mut fixture = checked("ab");
    fixture.run_checks("ab", 2_000);
    let held: Vec<_> = (0..6).map(|_| fixture.choose().unwrap()).collect();
    // No member passes, so no request is refused.
    let count = |name| held.iter().filter(|lease| letter(lease) == name).count();
    assert_eq!(['a', 'b'].map(count), [3, 3]);
}

#[test]
fn a_standby_a_spare_or_a_further_set_with_passing_checks_prevents_doubt() {
    let changes: [fn(&mut MemberSettings); 3] = [
        |member| member.role = MemberRole::Standby,
        |member| member.role = MemberRole::Spare,
        |member| member.set = 1,
    ];
    for change in changes {
        let mut members = members("abc");
        members.push(member('d', change));
        let mut settings = settings(members);
        settings.check = Some(checks());
        let mut fixture = Fixture::new(settings);
        fixture.run_checks("abc", 2_000);
        assert!(!fixture.report().are_checks_doubted);
        assert_eq!(fixture.sequence(10), "dddddddddd");
        // Without a member that passes, all members are tried.
        fixture.run_checks("abcd", 2_000);
        assert!(fixture.report().are_checks_doubted);
        assert!(fixture.sequence(10).contains(['a', 'b', 'c']));
    }
}

#[test]
fn half_of_the_members_may_fail_without_doubt() {
    let mut fixture = checked("abcd");
    let reports = fixture.run_checks("ab", 2_000);
    assert!(reports.iter().all(|(_, report)| report.doubt.is_none()));
    assert!(!fixture.sequence(20).contains(['a', 'b']));
}

#[test]
fn only_enabled_members_count_for_the_doubt() {
    let mut fixture = checked("abcd");
    fixture.edit('c', |member| member.admin = AdminState::Disabled);
    fixture.edit('d', |member| member.admin = AdminState::Draining);
    fixture.run_checks("a", 2_000);
    assert!(!fixture.report().are_checks_doubted);
    fixture.run_checks("ab", 2_000);
    assert!(fixture.report().are_checks_doubted);
    // Draining and disabled members stay as they are.
    assert!(!fixture.sequence(20).contains(['c', 'd']));
}

#[test]
fn ejected_members_stay_out_while_the_checks_are_doubted() {
    let mut fixture = checked("abcd");
    fixture.run_checks("abcd", 2_000);
    fixture.fail_connection('a');
    assert!(!fixture.sequence(20).contains('a'));
}

#[test]
fn stopped_members_have_no_checks_and_disabled_members_have() {
    let mut fixture = checked("ab");
    fixture.edit('a', |member| member.admin = AdminState::Stopped);
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    let reports = fixture.run_checks("", 2_000);
    assert!(!reports.is_empty() && reports.iter().all(|(name, _)| *name == 'b'));
    fixture.edit('a', |member| member.admin = AdminState::Enabled);
    assert!(
        fixture
            .run_checks("", 1_000)
            .iter()
            .any(|(name, _)| *name == 'a')
    );
}

#[test]
fn a_member_may_have_checks_of_its_own_or_none() {
    let mut fixture = checked("abcd");
    let own = CheckSettings {
        every: Duration::from_millis(100),
        fall: 1,
        ..checks()
    };
    fixture.edit('a', |member| member.check = MemberCheck::Own(Arc::new(own)));
    fixture.edit('b', |member| member.check = MemberCheck::Off);
    let reports = fixture.run_checks("", 1_000);
    let count = |name| reports.iter().filter(|report| report.0 == name).count();
    assert_eq!((count('a'), count('b'), count('c')), (10, 0, 2));
    fixture.run_checks("a", 100);
    assert_eq!(fixture.state('a'), MemberState::CheckFailed);
    fixture.edit('a', |member| member.check = MemberCheck::Off);
    assert_eq!(fixture.state('a'), MemberState::Up);
}

#[test]
fn the_operator_overrides_the_checks() {
    let mut fixture = checked("abcd");
    fixture.force_checks('a', true);
    assert!(!fixture.sequence(8).contains('a'));
    fixture.run_checks("", 1_000);
    assert_eq!(fixture.state('a'), MemberState::Up);
}

#[test]
fn requests_are_woken_when_the_operator_fails_the_checks() {
    let fixture = checked("abcd");
    let mut waiting = fixture.lease_of('b');
    let cx = Context::from_waker(std::task::Waker::noop());
    assert!(waiting.poll_member_down(&cx).is_pending());
    fixture.force_checks('b', true);
    assert!(waiting.poll_member_down(&cx).is_ready());
}

#[test]
fn requests_waiting_for_an_answer_are_woken_when_the_member_goes_down() {
    let mut fixture = checked("abcd");
    let mut waiting = fixture.lease_of('b');
    let mut other = fixture.lease_of('c');
    let counting = [CountingWaker::default(), CountingWaker::default()];
    let wakers = [counting[0].waker(), counting[1].waker()];
    assert!(
        waiting
            .poll_member_down(&Context::from_waker(&wakers[0]))
            .is_pending()
    );
    assert!(
        other
            .poll_member_down(&Context::from_waker(&wakers[1]))
            .is_pending()
    );
    fixture.run_checks("b", 1_000);
    assert_eq!((counting[0].count(), counting[1].count()), (1, 0));
    assert!(
        waiting
            .poll_member_down(&Context::from_waker(&wakers[0]))
            .is_ready()
    );
    assert!(
        other
            .poll_member_down(&Context::from_waker(&wakers[1]))
            .is_pending()
    );
}

#[test]
fn requests_chosen_after_the_outage_are_not_woken() {
    let mut fixture = checked("abcd");
    fixture.run_checks("b", 1_000);
    fixture.run_checks("", 1_000);
    let mut lease = fixture.lease_of('b');
    let cx = Context::from_waker(std::task::Waker::noop());
    assert!(lease.poll_member_down(&cx).is_pending());
}

#[test]
fn doubted_checks_wake_no_requests_until_the_doubt_ends() {
    let mut fixture = checked("abc");
    fixture.run_checks("ab", 1_000);
    assert!(fixture.report().are_checks_doubted);
    let counting = CountingWaker::default();
    let waker = counting.waker();
    let cx = Context::from_waker(&waker);
    let mut waiting = fixture.lease_of('a');
    let mut other = fixture.lease_of('c');
    assert!(waiting.poll_member_down(&cx).is_pending());
    assert!(other.poll_member_down(&cx).is_pending());
    fixture.run_checks("abc", 1_000);
    assert_eq!(counting.count(), 0);
    // Member b and c recover: the failed checks of a count again.
    fixture.run_checks("a", 1_000);
    assert_eq!(counting.count(), 1);
    assert!(waiting.poll_member_down(&cx).is_ready());
}

#[test]
fn the_report_has_the_last_check_and_the_time_of_the_state() {
    let mut fixture = checked("ab");
    let added_at_ms = fixture.now_ms;
    fixture.now_ms += 1_000;
    let report = fixture.report_of('b');
    assert_eq!(
        (report.last_check, report.state_since_ms),
        (None, added_at_ms)
    );
    fixture.run_checks("b", 3_000);
    let report = fixture.report_of('b');
    let change = report.changes.last().expect("a change");
    assert_eq!(report.state_since_ms, change.at_ms);
    let (outcome, at_ms) = report.last_check.expect("a check");
    let failed = CheckOutcome::Failed(CheckFailure::Timeout);
    assert_eq!((outcome, outcome.to_string().as_str()), (failed, "timeout"));
    assert!(at_ms > change.at_ms, "{at_ms}");
    let passed = fixture.report_of('a').last_check.expect("a check").0;
    assert_eq!(
        (passed, passed.to_string().as_str()),
        (CheckOutcome::Passed, "passed")
    );
    // A member without checks any more has no last check.
    fixture.edit('b', |member| member.check = MemberCheck::Off);
    assert_eq!(fixture.report_of('b').last_check, None);
}

#[test]
fn a_passed_check_after_the_pause_shows_that_only_a_request_is_missing() {
    let mut fixture = checked("ab");
    fixture.run_checks("", 1_000);
    fixture.fail_connection('a');
    assert!(!fixture.report_of('a').awaits_trial);
    // Checks during the pause prove nothing: the member may fail requests alone.
    fixture.run_checks("", 900);
    assert!(!fixture.report_of('a').awaits_trial);
    fixture.run_checks("", 1_000);
    assert!(fixture.report_of('a').awaits_trial);
    assert_eq!(fixture.state('a'), MemberState::Ejected);
    fixture.run_checks("a", 1_000);
    assert!(!fixture.report_of('a').awaits_trial);
    fixture.run_checks("", 1_000);
    assert!(fixture.sequence(2).contains('a'));
    assert!(!fixture.report_of('a').awaits_trial);
}
