//! Every deadline of a connection of HTTP/1.1: idle, head, content of the request, response, linger.

use super::*;
use crate::serve::pair::{PairCall, PairEnd, fill};
use std::time::Duration;

/// Asserts that the server is silent until just before `due_ms` from now, and answers with 408 at `due_ms`.
#[track_caller]
fn assert_late_after(due_ms: u64, client: &mut PairClient, pair: &Pair) {
    pair.advance(due_ms - 1);
    assert!(client.hears_nothing(), "too early");
    pair.advance(1);
    let response = client.receive_text();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    assert_eq!(client.end, Some(PairEnd::Closed));
    assert_eq!(pair.context().stats.deadlines.value(), 1);
}

/// Asserts that the connection stays until just before `due_ms` from now, and is closed without a byte at `due_ms`.
#[track_caller]
fn assert_closed_after(due_ms: u64, client: &mut PairClient, pair: &Pair) {
    pair.advance(due_ms - 1);
    assert!(client.hears_nothing(), "too early");
    pair.advance(1);
    assert!(client.hears_the_end(), "too late");
    assert_eq!(pair.open_connections(), 0);
}

/// Asserts that a response that the client does not take is broken off `due_ms` from now.
#[track_caller]
fn assert_broken_off_after(due_ms: u64, pair: &Pair) {
    pair.advance(due_ms - 1);
    assert_eq!(pair.open_connections(), 1, "too early");
    pair.advance(1);
    assert_eq!(pair.open_connections(), 0, "too late");
    assert_eq!(pair.context().stats.deadlines.value(), 1);
}

/// Time between two sweeps of a worker in milliseconds.
const SWEEP_MS: u64 = 500;

// ---- Idle ----

#[test]
fn a_silent_connection_is_closed_after_the_idle_time() {
    let (pair, mut client) = connected();
    assert_closed_after(75_000, &mut client, &pair);
    assert_eq!(client.end, Some(PairEnd::Closed));
    // Silence is no fault of the client.
    assert_eq!(pair.context().stats.deadlines.value(), 0);
}

#[test]
fn the_sweep_of_the_worker_enforces_deadlines() {
    let (pair, mut client) = connected();
    // The deadline is no multiple of the time between two sweeps.
    pair.advance_unswept(3_700);
    client.send(MISSING);
    client.receive();
    pair.advance_unswept(74_999);
    assert!(client.hears_nothing());
    pair.advance_unswept(1 + SWEEP_MS);
    assert!(client.hears_the_end());
}

#[test]
fn each_response_begins_the_idle_time_anew() {
    let (pair, mut client) = connected();
    for _ in 0..3 {
        pair.advance(74_999);
        client.send(MISSING);
        assert!(client.receive_text().starts_with("HTTP/1.1 404 "));
    }
    assert_closed_after(75_000, &mut client, &pair);
}

#[test]
fn the_idle_time_begins_at_the_end_of_a_call() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let mut call = pair.call();
    pair.advance(200_000);
    call.answer(b"late");
    assert!(client.receive_text().ends_with("\r\n\r\nlate"));
    assert_closed_after(75_000, &mut client, &pair);
}

// ---- Head ----

#[test]
fn a_head_has_its_time_from_its_first_byte() {
    let (pair, mut client) = connected();
    pair.advance(74_999);
    client.send(&CALL[..1]);
    assert_late_after(10_000, &mut client, &pair);
}

#[test]
fn further_bytes_of_a_head_gain_no_time() {
    let (pair, mut client) = connected();
    for byte in &CALL[..9] {
        client.send(&[*byte]);
        pair.advance(1_000);
    }
    client.send(&CALL[9..10]);
    assert_late_after(1_000, &mut client, &pair);
}

#[test]
fn each_head_has_its_own_time() {
    let (pair, mut client) = connected();
    for _ in 0..3 {
        client.send(&MISSING[..1]);
        pair.advance(9_999);
        client.send(&MISSING[1..]);
        assert!(client.receive_text().starts_with("HTTP/1.1 404 "));
    }
    client.send(&MISSING[..1]);
    assert_late_after(10_000, &mut client, &pair);
}

#[test]
fn a_head_behind_the_end_of_another_has_its_own_time() {
    let (pair, mut client) = connected();
    client.send(&MISSING[..20]);
    pair.advance(9_999);
    client.send(&[&MISSING[20..], &MISSING[..1]].concat());
    assert!(client.receive_text().starts_with("HTTP/1.1 404 "));
    assert_late_after(10_000, &mut client, &pair);
}

#[test]
fn a_head_behind_a_call_has_its_time_after_the_call() {
    let (pair, mut client) = connected();
    client.send(&[CALL, &CALL[..10]].concat());
    let mut call = pair.call();
    pair.advance(100_000);
    call.answer(b"first");
    assert!(client.receive_text().ends_with("first"));
    assert_late_after(10_000, &mut client, &pair);
}

// ---- Work of the server ----

#[test]
fn no_deadline_runs_while_the_handler_works() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let mut call = pair.call();
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    let mut writer = call.stream(None);
    writer.write_some(b"part").expect("a reader");
    pair.settle();
    assert!(client.receive_text().ends_with("\r\n\r\n4\r\npart\r\n"));
    // The client has taken all bytes, and the handler has no further ones.
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    writer.finish();
    pair.settle();
    assert_eq!(client.receive(), b"0\r\n\r\n");
    assert_closed_after(75_000, &mut client, &pair);
}

// ---- Content of the request ----

/// Begins a request with 100,000 bytes of content, of which no byte has arrived.
fn upload() -> (Pair, PairClient, PairCall) {
    let (pair, client) = connected();
    client.send(&post(100_000));
    let call = pair.call();
    (pair, client, call)
}

#[test]
fn content_may_pause_for_10_seconds_in_all() {
    let (pair, mut client, mut call) = upload();
    assert_late_after(10_000, &mut client, &pair);
    assert_eq!(call.read(10), PairRead::Broken(vec![]));
    assert!(call.is_dropped());
}

#[test]
fn content_gains_time_by_its_bytes() {
    let (pair, mut client, mut call) = upload();
    pair.advance(9_999);
    client.send(&[b'x'; 512]);
    pair.advance(999);
    client.send(&[b'x'; 1_024]);
    // 10 s, and 1 s for each 512 bytes.
    assert_late_after(13_000 - 10_998, &mut client, &pair);
    assert_eq!(call.read(2_000), PairRead::Broken(vec![b'x'; 512 + 1_024]));
}

#[test]
fn content_that_the_handler_takes_at_once_gains_no_more_time() {
    let (pair, mut client) = connected();
    client.send(b"POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9999\r\n\r\n");
    assert!(client.receive_text().starts_with("HTTP/1.1 200 "));
    for _ in 0..9 {
        pair.advance(1_000);
        client.send(b"12345678");
        assert_eq!(client.receive(), b"12345678");
    }
    // 10 s, and 1 s for each 512 bytes.
    assert_closed_after(1_000 + 72 * 1_000 / 512, &mut client, &pair);
}

#[test]
fn the_wait_for_the_handler_does_not_count_against_the_client() {
    let (pair, mut client, mut call) = upload();
    pair.advance(9_000);
    let sent = client.send_some(&[b'x'; 90_000]);
    assert!(sent > PIPE_BYTES);
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    let mut taken = 0;
    while let PairRead::Part(bytes) = call.read(100_000) {
        taken += bytes.len();
        pair.settle();
        if taken == sent {
            break;
        }
    }
    // The time begins anew, and the bytes before the wait gain none.
    assert_late_after(10_000, &mut client, &pair);
}

#[test]
fn a_patient_handler_grants_a_longer_pause() {
    let (pair, mut client, mut call) = upload();
    call.request.body.be_patient(Duration::from_secs(60));
    client.send(b"x");
    assert_late_after(60_000 + 1_000 / 512, &mut client, &pair);
}

#[test]
fn late_content_behind_the_head_of_the_response_ends_the_connection() {
    let (pair, mut client, mut call) = upload();
    let writer = call.stream(None);
    pair.settle();
    assert!(client.receive_text().starts_with("HTTP/1.1 200 "));
    pair.advance(9_999);
    assert!(client.hears_nothing());
    pair.advance(1);
    assert!(client.hears_the_end() && call.is_dropped());
    drop(writer);
}

#[test]
fn discarded_content_has_the_same_time() {
    let (pair, mut client) = connected();
    client.send(b"POST /missing HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9999\r\n\r\n");
    pair.advance(9_000);
    client.send(&[b'x'; 1_024]);
    assert_late_after(3_000, &mut client, &pair);
}

// ---- Response ----

/// Begins a response of which the client takes no byte, until the handler finds no more room.
fn stalled() -> (Pair, PairClient, PairCall, PipeWriter) {
    let pair = Pair::new();
    let client = PairClient::connect_narrow(&pair);
    client.send(CALL);
    let mut call = pair.call();
    let mut writer = call.stream(None);
    fill(&pair, &mut writer);
    (pair, client, call, writer)
}

#[test]
fn a_response_that_is_not_taken_is_broken_off() {
    let (pair, mut client, call, _writer) = stalled();
    assert_broken_off_after(30_000, &pair);
    assert!(call.is_dropped());
    let received = client.receive();
    assert!(!received.ends_with(b"0\r\n\r\n") && client.end.is_some());
}

#[test]
fn a_few_bytes_of_a_response_gain_no_time() {
    let (pair, mut client, _call, mut writer) = stalled();
    let mut taken = 0;
    for _ in 0..29 {
        pair.advance(1_000);
        taken += client.take(200).len();
        fill(&pair, &mut writer);
    }
    assert!((4_000..8_000).contains(&taken), "{taken}");
    assert_broken_off_after(1_000, &pair);
}

/// Takes `bytes` bytes, and calls `refill` after each part.
fn take_quickly(client: &mut PairClient, bytes: usize, mut refill: impl FnMut()) {
    let mut taken = 0;
    while taken < bytes {
        let part = client.take(8_192).len();
        assert!(part > 0, "no further byte after {taken}");
        taken += part;
        refill();
    }
}

#[test]
fn a_client_that_takes_8_kib_gains_the_whole_time() {
    let (pair, mut client, _call, mut writer) = stalled();
    for _ in 0..3 {
        pair.advance(29_999);
        take_quickly(&mut client, 3 * 8_192, || {
            fill(&pair, &mut writer);
        });
    }
    assert_broken_off_after(30_000, &pair);
}

#[test]
fn the_time_of_a_response_begins_when_the_client_holds_it_up() {
    let pair = Pair::new();
    let mut client = PairClient::connect_narrow(&pair);
    client.send(CALL);
    let mut call = pair.call();
    let mut writer = call.stream(None);
    pair.advance(29_999);
    fill(&pair, &mut writer);
    pair.advance(29_999);
    // The client takes everything, and the handler pauses.
    client.receive();
    pair.advance(100_000);
    fill(&pair, &mut writer);
    assert_broken_off_after(30_000, &pair);
}

#[test]
fn a_stored_page_that_is_not_taken_is_broken_off() {
    let (pair, _folder, client) = with_file(1 << 20);
    client.send(&get("/file"));
    assert!((1..1 << 20).contains(&client.unread()));
    assert_broken_off_after(30_000, &pair);
}

#[test]
fn a_client_that_takes_a_stored_page_slowly_gets_it() {
    let (pair, _folder, mut client) = with_file(1 << 20);
    client.send(&get("/file"));
    let mut received = Vec::new();
    loop {
        let more = client.take(usize::MAX);
        if more.is_empty() {
            break;
        }
        received.extend_from_slice(&more);
        pair.advance(29_999);
    }
    assert!(received.ends_with(&content(1 << 20)));
    client.send(MISSING);
    assert!(client.receive_text().starts_with("HTTP/1.1 404 "));
}

// ---- Linger ----

/// Sends a malformed request, and reads the refusal.
fn refused() -> (Pair, PairClient) {
    let (pair, mut client) = connected();
    client.send(b"malformed\r\n\r\n");
    assert!(client.receive_text().starts_with("HTTP/1.1 400 "));
    assert_eq!(client.end, Some(PairEnd::Closed));
    assert_eq!(pair.open_connections(), 1);
    (pair, client)
}

#[test]
fn the_server_reads_on_behind_a_refusal_until_5_seconds_of_silence() {
    let (pair, client) = refused();
    pair.advance(4_999);
    client.send(b"more");
    pair.advance(4_999);
    assert_eq!(pair.open_connections(), 1);
    pair.advance(1);
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn the_server_reads_on_behind_a_refusal_for_30_seconds() {
    let (pair, client) = refused();
    for _ in 0..29 {
        pair.advance(1_000);
        client.send(b"more");
    }
    pair.advance(999);
    assert_eq!(pair.open_connections(), 1);
    pair.advance(1);
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn the_end_of_the_client_ends_the_wait_behind_a_refusal() {
    let (pair, client) = refused();
    client.finish();
    assert_eq!(pair.open_connections(), 0);
}
