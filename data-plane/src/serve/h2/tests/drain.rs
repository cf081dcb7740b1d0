//! The drain of a worker with connections of HTTP/2.

use super::*;

const ALL_STREAMS: u32 = (1 << 31) - 1;
pub(super) const LAST_PING: [u8; 8] = *b"anthill!";

/// The first GOAWAY, and the PING behind it. The acknowledgment of the PING shows that the client has received both.
pub(super) fn first_goaway() -> [Frame; 2] {
    [
        goaway(ALL_STREAMS, H2ErrorCode::NO_ERROR),
        Frame::Ping {
            is_ack: false,
            payload: LAST_PING,
        },
    ]
}

#[test]
fn a_connection_without_streams_ends_with_the_acknowledgment() {
    let (pair, mut client) = connected();
    pair.drain(30);
    assert_eq!(client.receive(), first_goaway());
    assert!(client.client.end.is_none() && !pair.has_ended());
    client.send(&ping(true, &LAST_PING));
    assert_eq!(client.receive(), [goaway(0, H2ErrorCode::NO_ERROR)]);
    assert!(client.client.end.is_some());
    pair.advance(100);
    assert!(pair.has_ended());
}

#[test]
fn a_client_without_an_acknowledgment_has_1_second() {
    let (pair, mut client) = connected();
    pair.drain(30);
    assert_eq!(client.receive(), first_goaway());
    // The acknowledgment of another PING.
    client.send(&ping(true, b"12345678"));
    let expected = goaway(0, H2ErrorCode::NO_ERROR);
    assert_sent_after(1_000, &mut client, &pair, &[expected]);
    assert!(client.client.end.is_some());
    pair.advance(100);
    assert!(pair.has_ended());
}

#[test]
fn a_request_between_the_goaways_is_answered_and_a_later_one_is_ignored() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let mut under_way = pair.call();
    pair.drain(30);
    assert_eq!(client.receive(), first_goaway());
    client.send(&head(3, "/call", true));
    let mut between = pair.call();
    client.send(&ping(true, &LAST_PING));
    assert_eq!(client.receive(), [goaway(3, H2ErrorCode::NO_ERROR)]);
    client.send(&head(5, "/call", true));
    assert!(pair.next_call().is_none() && client.hears_nothing());
    pair.advance(20_000);
    assert!(client.hears_nothing() && !pair.has_ended());
    under_way.answer(b"one");
    assert_eq!(bytes_of(&client.receive(), 1), 3);
    assert!(client.client.end.is_none());
    between.answer(b"three");
    assert_eq!(bytes_of(&client.receive(), 3), 5);
    assert!(client.client.end.is_some());
    pair.advance(100);
    assert!(pair.has_ended());
}

#[test]
fn content_under_way_is_received() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    pair.drain(30);
    client.send(&ping(true, &LAST_PING));
    let mut frames = first_goaway().to_vec();
    frames.push(goaway(1, H2ErrorCode::NO_ERROR));
    assert_eq!(client.receive(), frames);
    client.send(&data(1, b"content", true));
    assert_eq!(call.read(10), PairRead::End(b"content".to_vec()));
    call.answer(b"answer");
    assert_eq!(bytes_of(&client.receive(), 1), 6);
    assert!(client.client.end.is_some());
}

#[test]
fn the_goaways_are_sent_once() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let _call = pair.call();
    pair.drain(30);
    assert_eq!(client.receive(), first_goaway());
    pair.advance(1_000);
    assert_eq!(client.receive(), [goaway(1, H2ErrorCode::NO_ERROR)]);
    client.send(&ping(true, &LAST_PING));
    pair.advance(10_000);
    assert!(client.hears_nothing());
}

#[test]
fn the_time_of_a_drain_ends_calls() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let call = pair.call();
    pair.drain(20);
    pair.advance(19_999);
    client.receive();
    assert!(client.client.end.is_none() && !call.is_dropped() && !pair.has_ended());
    pair.advance(1);
    assert!(pair.has_ended() && call.is_dropped());
    assert!(client.receive().is_empty() && client.client.end.is_some());
}

#[test]
fn deadlines_of_streams_run_during_a_drain() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let call = pair.call();
    pair.drain(60);
    pair.advance(1_000);
    let mut frames = first_goaway().to_vec();
    frames.push(goaway(1, H2ErrorCode::NO_ERROR));
    assert_eq!(client.receive(), frames);
    pair.advance(8_999);
    assert!(client.hears_nothing());
    pair.advance(1);
    assert_eq!(client.receive()[0], status(1, 408));
    assert!(call.is_dropped());
    pair.advance(5_000);
    assert_eq!(client.receive(), [stream_reset(1, H2ErrorCode::NO_ERROR)]);
    pair.advance(100);
    assert!(client.client.end.is_some() && pair.has_ended());
}

#[test]
fn a_drain_of_a_client_that_reads_nothing_ends_in_its_time() {
    let pair = Pair::new();
    let client = H2Client::over(PairClient::connect_narrow(&pair)).greeted(1 << 24);
    client.send(&[window(0, 1 << 24), head(1, "/call", true)].concat());
    let mut call = pair.call();
    let mut writer = call.stream(None);
    fill(&pair, &mut writer);
    pair.drain(10);
    pair.advance(9_999);
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(pair.has_ended() && call.is_dropped());
}
