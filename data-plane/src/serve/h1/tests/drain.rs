//! The drain of a worker with connections of HTTP/1.1.

use super::*;
use crate::serve::pair::{PairEnd, fill, write_some};

#[test]
fn a_drain_without_connections_ends_at_once() {
    let pair = Pair::new();
    pair.drain(30);
    assert!(pair.has_ended());
}

#[test]
fn a_drain_closes_idle_connections_at_once() {
    let (pair, mut fresh) = connected();
    let mut kept = PairClient::connect(&pair);
    kept.send(MISSING);
    assert!(kept.receive_text().starts_with("HTTP/1.1 404 "));
    pair.drain(30);
    assert!(fresh.hears_the_end() && kept.hears_the_end());
    assert!(pair.has_ended());
    assert_eq!(pair.context().stats.deadlines.value(), 0);
}

#[test]
fn a_call_under_way_gets_its_response_and_the_connection_ends() {
    let (pair, mut client) = connected();
    let mut idle = PairClient::connect(&pair);
    client.send(CALL);
    let mut call = pair.call();
    pair.drain(30);
    assert!(idle.hears_the_end());
    pair.advance(29_000);
    assert!(client.hears_nothing() && !call.is_dropped() && !pair.has_ended());
    call.answer(b"answer");
    let response = client.receive_text();
    assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nanswer"), "{response}");
    assert_eq!(client.end, Some(PairEnd::Closed));
    pair.advance(100);
    assert!(pair.has_ended());
}

#[test]
fn a_response_that_has_begun_is_completed() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let mut writer = pair.call().stream(None);
    assert!(client.receive_text().starts_with("HTTP/1.1 200 "));
    pair.drain(30);
    write_some(&mut writer, b"part");
    assert_eq!(client.receive(), b"4\r\npart\r\n");
    writer.finish();
    assert_eq!(client.receive(), b"0\r\n\r\n");
    // The head of the response announced that the connection stays, which ends as soon as it is idle.
    pair.advance(100);
    assert!(client.hears_the_end() && pair.has_ended());
}

#[test]
fn a_head_under_way_gets_its_response_and_the_connection_ends() {
    let (pair, mut client) = connected();
    client.send(&MISSING[..10]);
    pair.drain(30);
    assert!(client.hears_nothing());
    client.send(&MISSING[10..]);
    let response = client.receive_text();
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
    assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    pair.advance(100);
    assert!(client.end == Some(PairEnd::Closed) && pair.has_ended());
}

#[test]
fn content_under_way_is_received() {
    let (pair, mut client) = connected();
    client.send(&post(8));
    let mut call = pair.call();
    client.send(b"1234");
    pair.drain(30);
    client.send(b"5678");
    assert_eq!(call.read(100), PairRead::End(b"12345678".to_vec()));
    call.answer(b"answer");
    let response = client.receive_text();
    assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
    assert!(response.ends_with("answer"));
}

#[test]
fn the_time_of_a_drain_ends_calls_and_connections() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let call = pair.call();
    let mut reader = PairClient::connect_narrow(&pair);
    reader.send(CALL);
    let mut second = pair.call();
    let mut writer = second.stream(None);
    fill(&pair, &mut writer);
    pair.drain(20);
    pair.advance(19_999);
    assert!(client.hears_nothing());
    assert!(!pair.has_ended() && !call.is_dropped() && !second.is_dropped());
    pair.advance(1);
    assert!(pair.has_ended() && call.is_dropped() && second.is_dropped());
    assert!(client.hears_the_end());
    assert!(!reader.receive().ends_with(b"0\r\n\r\n") && reader.end.is_some());
}

#[test]
fn deadlines_of_connections_run_during_a_drain() {
    let (pair, mut client) = connected();
    client.send(&MISSING[..10]);
    pair.drain(30);
    pair.advance(9_999);
    assert!(client.hears_nothing());
    pair.advance(1);
    assert!(client.receive_text().starts_with("HTTP/1.1 408 "));
    client.finish();
    pair.advance(100);
    assert!(pair.has_ended());
}
