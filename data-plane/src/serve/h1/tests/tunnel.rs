//! A tunnel on a connection of HTTP/1.1.

use super::*;
use crate::serve::pair::{PairCall, PairEnd, fill, write_some};
use wire::status::Status;

/// Opens a tunnel. Returns the call and the handler's direction.
fn tunnel_of(pair: &Pair, mut client: PairClient) -> (PairClient, PairCall, PipeWriter) {
    client.send(
        b"GET /tunnel HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    let mut call = pair.call();
    assert!(call.request.upgrade.is_some());
    let writer = call.stream_with(Status(101), None);
    let head = client.receive_text();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (client, call, writer)
}

fn tunnel() -> (Pair, PairClient, PairCall, PipeWriter) {
    let pair = Pair::new();
    let (client, call, writer) = tunnel_of(&pair, PairClient::connect(&pair));
    (pair, client, call, writer)
}

#[test]
fn a_tunnel_moves_bytes_and_may_be_silent() {
    let (pair, mut client, mut call, mut writer) = tunnel();
    for _ in 0..2 {
        client.send(b"from the client");
        assert_eq!(call.read(99), PairRead::Part(b"from the client".to_vec()));
        write_some(&mut writer, b"from the handler");
        assert_eq!(client.receive(), b"from the handler");
        pair.advance(600_000);
        assert!(client.hears_nothing() && !call.is_dropped());
    }
}

#[test]
fn the_handlers_direction_may_be_silent_for_the_idle_time() {
    let (pair, mut client, mut call, mut writer) = tunnel();
    pair.advance(100_000);
    client.finish();
    assert_eq!(call.read(9), PairRead::End(vec![]));
    pair.advance(74_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    write_some(&mut writer, b"more");
    assert_eq!(client.receive(), b"more");
    pair.advance(74_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    // A coarse timer may be late by a part of the time.
    pair.advance(6_000);
    assert!(call.is_dropped() && client.hears_the_end());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn the_clients_direction_may_be_silent_for_the_idle_time() {
    let (pair, mut client, mut call, writer) = tunnel();
    pair.advance(100_000);
    writer.finish();
    assert!(client.hears_the_end());
    pair.advance(74_000);
    client.send(b"more");
    assert_eq!(call.read(9), PairRead::Part(b"more".to_vec()));
    pair.advance(74_000);
    assert!(!call.is_dropped());
    pair.advance(6_000);
    assert!(call.is_dropped());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn a_tunnel_ends_with_both_directions() {
    let (pair, mut client, mut call, writer) = tunnel();
    client.send(b"last");
    client.finish();
    assert_eq!(call.read(9), PairRead::End(b"last".to_vec()));
    writer.finish();
    pair.settle();
    assert_eq!(client.receive(), b"");
    assert_eq!(client.end, Some(PairEnd::Closed));
}

#[test]
fn a_tunnel_that_is_not_taken_is_broken_off() {
    let pair = Pair::new();
    let narrow = PairClient::connect_narrow(&pair);
    let (mut client, call, mut writer) = tunnel_of(&pair, narrow);
    pair.advance(50_000);
    let written = fill(&pair, &mut writer);
    assert!(written - client.unread() <= PIPE_BYTES + UNSENT_BYTES_MAX);
    for _ in 0..29 {
        pair.advance(1_000);
        client.take(200);
        fill(&pair, &mut writer);
    }
    pair.advance(999);
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(call.is_dropped());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn a_handler_that_does_not_read_bounds_the_bytes_of_a_tunnel() {
    let (pair, client, mut call, _writer) = tunnel();
    let before = pair.bytes_received();
    let sent = client.send_some(&content(1 << 20));
    assert_eq!((pair.bytes_received() - before) as usize, PIPE_BYTES);
    assert_eq!(call.request.body.unread(), PIPE_BYTES);
    let mut received = Vec::new();
    while received.len() < sent {
        let PairRead::Part(part) = call.read(10_000) else {
            panic!("the end");
        };
        assert!(!part.is_empty(), "no further byte after {}", received.len());
        received.extend_from_slice(&part);
        pair.settle();
    }
    assert!(received == content(1 << 20)[..sent]);
}

#[test]
fn a_drain_leaves_a_tunnel_its_time() {
    let (pair, mut client, call, mut writer) = tunnel();
    pair.drain(30);
    pair.advance(29_999);
    write_some(&mut writer, b"more");
    assert_eq!(client.receive(), b"more");
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(call.is_dropped() && pair.has_ended() && client.hears_the_end());
}
