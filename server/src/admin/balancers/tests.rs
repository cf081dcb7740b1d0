use super::*;
use balancer::settings::{
    AdminState, BalancerSettings, BalancingMethod, ConnectionSettings, MemberCheck, MemberRole,
};
use balancer::{ChangeReason, CheckFailure, CheckOutcome, LatencyBuckets, MemberId, MemberState};
use std::sync::Arc;
use std::time::Duration;
use wire::heartbeat::Heartbeat;

fn member(address: &str) -> MemberReport {
    MemberReport {
        id: MemberId(1),
        url: MemberUrl {
            is_tls: false,
            host: MemberHost::Address(address.parse().unwrap()),
        },
        state: MemberState::Up,
        admin: AdminState::Enabled,
        role: MemberRole::Regular,
        weight: 100,
        set: 0,
        route: Box::default(),
        redirect: Box::default(),
        ignores_errors: false,
        load_status: 0,
        busy: 0,
        elected: 0,
        retries: 0,
        errors: 0,
        sent_bytes: 0,
        received_bytes: 0,
        latency_micros: None,
        latencies: LatencyBuckets::default(),
        heartbeat: None,
        ejected_ms: None,
        awaits_trial: false,
        slow_start_percent: None,
        is_check_failed: false,
        check: MemberCheck::Balancer,
        checks_passed: 0,
        checks_failed: 0,
        last_check: None,
        state_since_ms: 98_000,
        changes: Vec::new(),
    }
}

fn balancer(name: &str, members: Vec<MemberReport>) -> BalancerReport {
    BalancerReport {
        settings: Arc::new(BalancerSettings {
            name: name.into(),
            method: BalancingMethod::ByRequests,
            members: Vec::new(),
            sticky: None,
            check: None,
            ejection: Default::default(),
            retry: Default::default(),
            slow_start: Duration::ZERO,
            connection: ConnectionSettings::default(),
        }),
        are_checks_doubted: false,
        waiting: 0,
        members,
    }
}

/// Returns latencies with most answers in a bucket.
fn latencies(bucket: usize) -> LatencyBuckets {
    let mut latencies = LatencyBuckets::default();
    latencies.counts[bucket] = 9;
    latencies.counts[13] = 2;
    latencies
}

fn list(balancers: Vec<BalancerReport>) -> BalancerList {
    BalancerList {
        now_ms: 100_000,
        // 2026-11-21 00:00:00 UTC.
        origin_unix_ms: 1_795_219_200_000,
        balancers,
    }
}

fn example() -> BalancerList {
    let failed = MemberReport {
        state: MemberState::CheckFailed,
        route: "b".into(),
        weight: 250,
        set: 1,
        busy: 3,
        elected: 1_234,
        errors: 5,
        retries: 6,
        sent_bytes: 70_000,
        received_bytes: 8_000_000,
        latency_micros: Some(1_250),
        latencies: latencies(2),
        checks_passed: 9,
        checks_failed: 10,
        last_check: Some((CheckOutcome::Failed(CheckFailure::Status(500)), 97_400)),
        state_since_ms: 25_500,
        changes: vec![StateChange {
            old: MemberState::Up,
            new: MemberState::CheckFailed,
            reason: ChangeReason::ChecksFailed(CheckFailure::Timeout),
            at_ms: 25_500,
        }],
        ..member("127.0.0.1:9002")
    };
    let heard = MemberReport {
        heartbeat: Some(Heartbeat {
            ready: 7,
            busy: 2,
            port: None,
        }),
        slow_start_percent: Some(37),
        ..member("127.0.0.1:9003")
    };
    let mut app = balancer("app", vec![member("127.0.0.1:9001"), failed, heard]);
    app.waiting = 2;
    app.are_checks_doubted = true;
    let standby = MemberReport {
        role: MemberRole::Standby,
        ..member("[::1]:80")
    };
    let spare = MemberReport {
        role: MemberRole::Spare,
        ..member("[::1]:81")
    };
    list(vec![app, balancer("b", vec![standby, spare])])
}

#[test]
fn the_text_lists_balancers_and_members() {
    let expected = "\
app: byrequests, 2 requests wait
  checks doubted: most members fail, so members with failed checks are tried
  MEMBER         STATE        WEIGHT SET ROUTE BUSY ELECTED ERRORS RETRIES SENT RECEIVED MEDIAN
  127.0.0.1:9001 up                1   0 -        0       0      0       0    0        0      -
  127.0.0.1:9002 check failed    2.5   1 b        3    1234      5       6  68K     7.6M 2.5 ms
    changed from up to check failed: timeout, 1 min 14 s ago
  127.0.0.1:9003 up                1   0 -        0       0      0       0    0        0      -
    slow start: 37 % of its weight
    announces 7 idle and 2 busy workers

b: byrequests
  MEMBER   STATE WEIGHT SET ROUTE BUSY ELECTED ERRORS RETRIES SENT RECEIVED MEDIAN
  [::1]:80 up         1   0 -        0       0      0       0    0        0      -
    standby: serves if no other member of its set can
  [::1]:81 up         1   0 -        0       0      0       0    0        0      -
    spare: replaces an unusable member of its set
";
    assert_eq!(example().text(), expected);
    assert_eq!(
        list(Vec::new()).text(),
        "the configuration has no balancer\n"
    );
}

#[test]
fn lines_stay_within_100_columns() {
    let wide = MemberReport {
        url: MemberUrl {
            is_tls: true,
            host: MemberHost::Name("a-long-name.of.a.member.example.org".into(), 65_535),
        },
        state: MemberState::CheckFailed,
        route: "a-route-that-is-long".into(),
        weight: 9_999,
        set: 99,
        busy: 9_999_999,
        elected: u64::MAX,
        errors: u64::MAX,
        retries: 9_999_999,
        sent_bytes: u64::MAX,
        received_bytes: 1_047_000,
        latency_micros: Some(9_999_999),
        latencies: latencies(12),
        ..member("127.0.0.1:9001")
    };
    let text = list(vec![balancer("app", vec![wide, member("127.0.0.1:9001")])]).text();
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= LINE_WIDTH), "{text}");
    assert!(text.contains("  https://a-long-name.of.a.member.example.org:65535\n"));
}

#[test]
fn json_has_all_values() {
    let json = example().json();
    let second = "{\"url\":\"http://127.0.0.1:9002\",\"state\":\"check failed\",\"admin\":\"enabled\",\
                  \"role\":\"regular\",\"weight\":2.5,\"set\":1,\"route\":\"b\",\"redirect\":\"\",\
                  \"ignores_errors\":false,\"busy\":3,\"elected\":1234,\"errors\":5,\"retries\":6,\
                  \"sent_bytes\":70000,\"received_bytes\":8000000,\"latency_us\":1250,\"latency_p50_us\":2500,\
                  \"heartbeat\":null,\"ejected_ms\":null,\"slow_start_percent\":null,\
                  \"checks_passed\":9,\"checks_failed\":10,\
                  \"last_check\":{\"passed\":false,\"reason\":\"status 500\",\"seconds_ago\":2},\
                  \"seconds_in_state\":74,\"changes\":[{\"from\":\"up\",\"to\":\"check failed\",\"reason\":\"timeout\",\
                  \"seconds_ago\":74}]}";
    assert!(json.contains(second), "{json}");
    let begin = "{\"balancers\":[{\"name\":\"app\",\"method\":\"byrequests\",\"waiting\":2,\
                 \"checks_doubted\":true,\"members\":[{\"url\":\"http://127.0.0.1:9001\"";
    assert!(json.starts_with(begin) && json.ends_with("}]}\n"), "{json}");
    assert!(json.contains("\"heartbeat\":{\"ready\":7,\"busy\":2}"));
    assert!(json.contains("\"slow_start_percent\":37"));
}

#[test]
fn a_time_is_of_the_day_or_has_a_date() {
    let mut list = example();
    assert_eq!(list.time(25_500), "00:00:25 UTC");
    list.now_ms += 86_400_000;
    assert_eq!(list.time(25_500), "2026-11-21 00:00 UTC");
    let details = list.lasting_details(&list.balancers[0].members[2]);
    assert_eq!(
        details,
        [
            "slow start: 37 % of its weight",
            "announces 7 idle and 2 busy workers"
        ]
    );
}

#[test]
fn the_doubt_is_worded_for_a_single_member() {
    let mut single = balancer("app", vec![member("127.0.0.1:9001")]);
    single.are_checks_doubted = true;
    let text = list(vec![single]).text();
    let doubt =
        "  checks doubted: the only member fails, and is tried in spite of its failed checks\n";
    assert!(text.contains(doubt), "{text}");
}
