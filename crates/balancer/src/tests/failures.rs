//! Passive ejection, retries, trials and slow start.

use super::fixture::{Fixture, Lease, letter, member, members, settings};
use crate::member_settings::AdminState;
use crate::{ChangeReason, ChooseRequest, MemberState, NoMember};
use std::time::Duration;

#[test]
fn a_failed_connection_ejects_the_member_until_the_pause_is_over() {
    let mut fixture = Fixture::of("abc");
    let change = fixture.fail_connection('b').unwrap();
    assert_eq!(
        (change.old, change.new),
        (MemberState::Up, MemberState::Ejected)
    );
    assert_eq!(change.reason, ChangeReason::ConnectionFailed);
    assert_eq!(fixture.report_of('b').ejected_ms, Some(1_000));
    fixture.now_ms += 999;
    assert!(!fixture.sequence(20).contains('b'));
    fixture.now_ms += 1;
    assert!(fixture.sequence(20).contains('b'));
    assert_eq!(fixture.state('b'), MemberState::Up);
    let changes = fixture.report_of('b').changes;
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[1].reason, ChangeReason::RequestSucceeded);
}

#[test]
fn failures_in_a_row_eject_the_member() {
    let mut fixture = Fixture::of("ab");
    for _ in 0..2 {
        assert_eq!(fixture.lease_of('a').record_failure(fixture.now_ms), None);
    }
    fixture.now_ms += 1_000;
    fixture.lease_of('a').record_answer(200, 1, fixture.now_ms);
    for _ in 0..2 {
        assert_eq!(fixture.lease_of('a').record_failure(fixture.now_ms), None);
    }
    fixture.now_ms += 1_000;
    let change = fixture
        .lease_of('a')
        .record_failure(fixture.now_ms)
        .unwrap();
    assert_eq!(change.reason, ChangeReason::RequestsFailed(3));
    assert_eq!(fixture.sequence(3), "bbb");
    assert_eq!(fixture.report_of('a').errors, 5);
}

#[test]
fn statuses_of_the_operator_count_as_failures() {
    let mut fixture = Fixture::of("ab");
    for status in [500, 503, 503] {
        assert_eq!(
            fixture
                .lease_of('a')
                .record_answer(status, 1, fixture.now_ms),
            None
        );
    }
    fixture.now_ms += 1_000;
    assert!(
        fixture
            .lease_of('a')
            .record_answer(503, 1, fixture.now_ms)
            .is_some()
    );
    assert_eq!(fixture.state('a'), MemberState::Ejected);
}

#[test]
fn one_request_at_a_time_is_the_trial_of_an_ejected_member() {
    let mut fixture = Fixture::of("ab");
    fixture.fail_connection('a');
    fixture.now_ms += 1_000;
    let trial = fixture.lease_of('a');
    assert_eq!(fixture.sequence(5), "bbbbb");
    // A trial without a report ends, and the next request is the next trial.
    drop(trial);
    let mut trial = fixture.lease_of('a');
    assert!(trial.record_answer(200, 1, fixture.now_ms).is_some());
    // The member is up before the end of the answer.
    assert!(fixture.sequence(4).contains('a'));
    drop(trial);
    assert!(fixture.sequence(4).contains('a'));
}

/// Begins a request with a body that streams from the client.
fn upload(fixture: &Fixture) -> Lease {
    let request = ChooseRequest {
        is_gathered: false,
        ..fixture.request()
    };
    fixture.balancer.choose(&request).unwrap()
}

#[test]
fn an_upload_is_no_trial_unless_no_other_request_comes() {
    let mut fixture = Fixture::of("ab");
    fixture.fail_connection('a');
    fixture.now_ms += 1_000;
    for _ in 0..5 {
        assert_eq!(letter(&upload(&fixture)), 'b');
    }
    fixture.now_ms += 10_000;
    let uploads: Vec<_> = (0..5).map(|_| upload(&fixture)).collect();
    let letters: String = uploads.iter().map(letter).collect();
    assert_eq!(letters.matches('a').count(), 1, "{letters}");
    // The upload has 10 s for a verdict.
    fixture.now_ms += 9_999;
    assert_eq!(fixture.sequence(5), "bbbbb");
    fixture.now_ms += 1;
    let second = fixture.lease_of('a');
    // The end of the first trial does not end the second one.
    drop(uploads);
    assert_eq!(fixture.sequence(5), "bbbbb");
    drop(second);
    assert!(fixture.sequence(2).contains('a'));
}

#[test]
fn a_trial_without_a_verdict_ends_after_the_time_for_the_answer() {
    let mut settings = settings(members("ab"));
    settings.connection.connect_timeout = Duration::from_secs(1);
    settings.connection.first_byte_timeout = Duration::from_secs(2);
    let mut fixture = Fixture::new(settings);
    fixture.fail_connection('a');
    fixture.now_ms += 1_000;
    let _slow = fixture.lease_of('a');
    fixture.now_ms += 2_999;
    assert_eq!(fixture.sequence(5), "bbbbb");
    fixture.now_ms += 1;
    assert!(fixture.sequence(5).contains('a'));
}

#[test]
fn one_client_alone_ejects_a_member_within_seconds_and_not_at_once() {
    let mut fixture = Fixture::of("ab");
    let fail = |fixture: &Fixture| {
        let mut lease = loop {
            let request = ChooseRequest {
                client_hash: 7,
                ..fixture.request()
            };
            let lease = fixture.balancer.choose(&request).unwrap();
            if letter(&lease) == 'a' {
                break lease;
            }
        };
        lease.record_failure(fixture.now_ms)
    };
    for _ in 0..10 {
        assert_eq!(fail(&fixture), None);
    }
    fixture.now_ms += 1_000;
    assert_eq!(fail(&fixture), None);
    fixture.now_ms += 1_000;
    assert!(fail(&fixture).is_some());
    assert_eq!(fixture.report_of('a').errors, 12);
}

#[test]
fn slow_requests_do_not_eject_a_member_that_answers_others() {
    let mut fixture = Fixture::of("ab");
    let mut slow: Vec<_> = (0..9).map(|_| fixture.lease_of('a')).collect();
    fixture.now_ms += 30_000;
    fixture.lease_of('a').record_answer(200, 1, fixture.now_ms);
    let mut later: Vec<_> = (0..3).map(|_| fixture.lease_of('a')).collect();
    fixture.now_ms += 30_000;
    for lease in &mut slow {
        assert_eq!(lease.record_failure(fixture.now_ms), None);
    }
    // The member answered nothing since these requests began.
    let failed = later
        .iter_mut()
        .map(|lease| lease.record_failure(fixture.now_ms));
    assert_eq!(failed.filter(Option::is_some).count(), 1);
    assert_eq!(fixture.state('a'), MemberState::Ejected);
}

#[test]
fn the_wait_in_the_queue_is_no_time_of_the_member() {
    let mut fixture = Fixture::of("ab");
    let mut queued: Vec<_> = (0..3).map(|_| fixture.lease_of('a')).collect();
    fixture.now_ms += 5_000;
    fixture.lease_of('a').record_answer(200, 1, fixture.now_ms);
    for lease in &mut queued {
        lease.leave_queue(fixture.now_ms);
    }
    fixture.now_ms += 1_000;
    for lease in &mut queued {
        lease.record_failure(fixture.now_ms);
    }
    assert_eq!(fixture.state('a'), MemberState::Ejected);
}

#[test]
fn members_that_break_contents_off_are_ejected() {
    let mut fixture = Fixture::of("ab");
    let break_off = |fixture: &Fixture| {
        let mut lease = fixture.lease_of('a');
        lease.record_answer(200, 1, fixture.now_ms);
        lease.record_broken_content(fixture.now_ms)
    };
    assert_eq!(break_off(&fixture), None);
    assert_eq!(break_off(&fixture), None);
    let mut whole = fixture.lease_of('a');
    whole.record_answer(200, 1, fixture.now_ms);
    whole.record_content();
    assert_eq!(break_off(&fixture), None);
    assert_eq!(break_off(&fixture), None);
    fixture.now_ms += 1_000;
    let change = break_off(&fixture).unwrap();
    assert_eq!(change.reason, ChangeReason::RequestsFailed(3));
    // The head of the trial's answer brings the member back, and a second of cuts doubles the pause.
    fixture.now_ms += 1_000;
    assert_eq!(break_off(&fixture), None);
    fixture.now_ms += 1_000;
    assert!(break_off(&fixture).is_some());
    assert_eq!(fixture.report_of('a').ejected_ms, Some(2_000));
}

#[test]
fn a_failed_trial_doubles_the_pause() {
    let mut fixture = Fixture::of("ab");
    fixture.fail_connection('a');
    for pause_ms in [1_000, 2_000, 4_000, 8_000, 8_000] {
        assert_eq!(fixture.report_of('a').ejected_ms, Some(pause_ms));
        fixture.now_ms += pause_ms;
        assert_eq!(fixture.lease_of('a').record_failure(fixture.now_ms), None);
    }
    fixture.now_ms += 8_000;
    fixture.lease_of('a').record_answer(200, 1, fixture.now_ms);
    fixture.fail_connection('a');
    assert_eq!(fixture.report_of('a').ejected_ms, Some(1_000));
}

/// Requests a member of the letters `ab` for a client.
fn choose_for(fixture: &Fixture, client_hash: u64) -> Lease {
    let request = ChooseRequest {
        client_hash,
        ..fixture.request()
    };
    fixture.balancer.choose(&request).unwrap()
}

#[test]
fn three_clients_with_broken_requests_keep_no_member_out() {
    let attackers = [900, 901, 902];
    let mut fixture = Fixture::of("ab");
    let attack = |fixture: &Fixture| {
        let mut ejections = 0;
        for client in attackers.iter().cycle().take(12) {
            let mut lease = choose_for(fixture, *client);
            if letter(&lease) == 'a' {
                ejections += usize::from(lease.record_failure(fixture.now_ms).is_some());
            }
        }
        ejections
    };
    // Other clients are served between the failures.
    for _ in 0..100 {
        assert_eq!(attack(&fixture), 0);
        fixture.now_ms += 50;
        assert!(fixture.sequence(4).contains('a'));
    }
    // Without other clients the member is ejected, and the first of their requests brings the member back.
    assert_eq!(attack(&fixture), 0);
    fixture.now_ms += 1_000;
    assert_eq!(attack(&fixture), 1);
    fixture.now_ms += 1_000;
    for _ in 0..3 {
        assert_eq!(attack(&fixture), 0);
        assert_eq!(fixture.report_of('a').ejected_ms, Some(0));
    }
    assert!(fixture.sequence(2).contains('a'));
    assert_eq!(fixture.state('a'), MemberState::Up);
}

#[test]
fn reports_of_requests_from_before_the_ejection_are_stale() {
    let mut fixture = Fixture::of("ab");
    let mut slow: Vec<_> = (0..5).map(|_| fixture.lease_of('a')).collect();
    fixture.fail_connection('a');
    // A late success does not end the pause.
    assert_eq!(slow[0].record_answer(200, 1, fixture.now_ms), None);
    assert_eq!(fixture.state('a'), MemberState::Ejected);
    fixture.now_ms += 1_000;
    // Late failures are no failed trials.
    for lease in &mut slow {
        assert_eq!(lease.record_failure(fixture.now_ms), None);
    }
    assert_eq!(fixture.report_of('a').ejected_ms, Some(0));
    assert!(fixture.sequence(4).contains('a'));
    for lease in &mut slow {
        assert_eq!(lease.record_failure(fixture.now_ms), None);
    }
    assert_eq!(fixture.state('a'), MemberState::Up);
}

#[test]
fn a_member_that_ignores_errors_is_never_ejected() {
    let fixture = Fixture::new(settings(vec![
        member('a', |member| member.ignores_errors = true),
        member('b', |_| {}),
    ]));
    for _ in 0..5 {
        assert_eq!(fixture.fail_connection('a'), None);
    }
    assert_eq!(fixture.sequence(4).matches('a').count(), 2);
    assert_eq!(fixture.report_of('a').errors, 5);
    fixture.fail_connection('b');
    fixture.edit('b', |member| member.ignores_errors = true);
    assert_eq!(fixture.state('b'), MemberState::Up);
}

#[test]
fn if_all_members_are_ejected_all_are_tried() {
    let fixture = Fixture::of("ab");
    fixture.fail_connection('a');
    fixture.fail_connection('b');
    // Several requests at a time, since no other member could serve them.
    let leases: Vec<_> = (0..4).map(|_| fixture.choose().unwrap()).collect();
    let letters: String = leases.iter().map(letter).collect();
    assert_eq!(
        (letters.matches('a').count(), letters.matches('b').count()),
        (2, 2)
    );
    drop(leases);
    assert_eq!(fixture.state('a'), MemberState::Ejected);
    fixture
        .choose()
        .unwrap()
        .record_answer(200, 1, fixture.now_ms);
    let states = [fixture.state('a'), fixture.state('b')];
    assert_eq!(
        states
            .iter()
            .filter(|state| **state == MemberState::Up)
            .count(),
        1
    );
}

#[test]
fn a_request_tries_each_ejected_member_once() {
    let fixture = Fixture::of("ab");
    fixture.fail_connection('a');
    fixture.fail_connection('b');
    let after = |tried| fixture.choose_after(tried).map(|lease| letter(&lease));
    assert_eq!(after("a"), Ok('b'));
    assert_eq!(after("ab"), Err(NoMember::NoneUsable));
}

#[test]
fn disabled_members_do_not_prevent_the_trial_of_ejected_members() {
    let fixture = Fixture::of("ab");
    fixture.fail_connection('a');
    fixture.edit('b', |member| member.admin = AdminState::Disabled);
    assert_eq!(fixture.sequence(1), "a");
}

#[test]
fn a_single_member_is_always_tried() {
    let fixture = Fixture::of("a");
    for _ in 0..5 {
        fixture
            .choose()
            .unwrap()
            .record_connect_failure(fixture.now_ms);
    }
    assert_eq!(fixture.sequence(1), "a");
}

#[test]
fn a_recovered_member_starts_slowly() {
    let mut settings = settings(members("ab"));
    settings.slow_start = Duration::from_secs(10);
    let mut fixture = Fixture::new(settings);
    fixture.fail_connection('a');
    fixture.now_ms += 1_000;
    fixture.lease_of('a').record_answer(200, 1, fixture.now_ms);
    assert_eq!(fixture.report_of('a').slow_start_percent, Some(10));
    assert_eq!(fixture.report_of('b').slow_start_percent, None);
    let share = |fixture: &Fixture| fixture.sequence(550).matches('a').count();
    let first = share(&fixture);
    assert!((49..=51).contains(&first), "{first}");
    fixture.now_ms += 10_000;
    let later = share(&fixture);
    assert!((274..=276).contains(&later), "{later}");
    assert_eq!(fixture.report_of('a').slow_start_percent, None);
}

#[test]
fn the_latency_in_the_report_does_not_fall_without_requests() {
    let mut fixture = Fixture::of("a");
    fixture.sequence(1);
    fixture.now_ms += 60_000;
    assert_eq!(fixture.report_of('a').latency_micros, Some(1_000));
}

#[test]
fn retries_are_bounded_by_the_budget() {
    let fixture = Fixture::of("ab");
    fixture.sequence(200);
    // 20 percent of 200 requests. Second choices of a request do not count as requests.
    (0..100).for_each(|_| drop(fixture.choose_after("a")));
    let taken = (0..100).filter(|client| fixture.balancer.take_retry(*client, fixture.now_ms));
    // 40 clients in turn leave nothing.
    assert_eq!(taken.count(), 40);
}
