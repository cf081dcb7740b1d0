//! The departure of a worker with connections of HTTP/2, while another process serves in its place.

use super::*;
use crate::serve::h2::tests::drain::{LAST_PING, first_goaway};
use crate::serve::pair::PairEnd;
use crate::serve::worker::WorkerCommand;

#[test]
fn an_idle_connection_stays_and_its_next_response_announces_the_end() {
    let (pair, mut client) = connected();
    pair.leave(3_600);
    pair.advance(70_000);
    // A PING is no request.
    client.send(&ping(false, b"12345678"));
    let answered = Frame::Ping {
        is_ack: true,
        payload: *b"12345678",
    };
    assert_eq!(client.receive(), [answered]);
    client.send(&head(1, "/missing", true));
    let frames = client.receive();
    assert_eq!(frames[0], status(1, 404));
    assert!(frames.ends_with(&first_goaway()), "{frames:?}");
    // A request between the two GOAWAYs is answered as well.
    client.send(&head(3, "/missing", true));
    assert_eq!(client.receive()[0], status(3, 404));
    client.send(&ping(true, &LAST_PING));
    assert_eq!(client.receive(), [goaway(3, H2ErrorCode::NO_ERROR)]);
    assert!(client.client.end.is_some());
    client.client.close();
    assert!(pair.has_ended());
}

#[test]
fn a_connection_with_a_request_is_told_at_once() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let mut call = pair.call();
    pair.leave(3_600);
    assert_eq!(client.receive(), first_goaway());
    client.send(&ping(true, &LAST_PING));
    assert_eq!(client.receive(), [goaway(1, H2ErrorCode::NO_ERROR)]);
    pair.advance(600_000);
    assert!(client.hears_nothing() && !pair.has_ended());
    call.answer(b"answer");
    assert_eq!(bytes_of(&client.receive(), 1), 6);
    assert!(client.client.end.is_some());
    client.client.close();
    assert!(pair.has_ended());
}

#[test]
fn a_request_that_crosses_the_last_goaway_does_not_reset_the_connection() {
    let pair = Pair::new();
    let mut client = H2Client::over(PairClient::connect_tcp(&pair));
    pair.leave(3_600);
    client.send(&[greeting(WINDOW), head(1, "/missing", true)].concat());
    let mut frames = Vec::new();
    pair.settle_until(|| {
        frames.extend(client.receive());
        frames.ends_with(&first_goaway())
    });
    // The client does not acknowledge the first GOAWAY in time.
    pair.advance(1_000);
    client.send(&head(3, "/missing", true));
    pair.settle_until(|| {
        frames.extend(client.receive());
        client.client.end.is_some()
    });
    assert_eq!(frames.last(), Some(&goaway(1, H2ErrorCode::NO_ERROR)));
    assert_eq!(client.client.end, Some(PairEnd::Closed));
}

#[test]
fn a_silent_connection_ends_after_the_idle_time() {
    let (pair, mut client) = connected();
    pair.leave(3_600);
    let expected = goaway(0, H2ErrorCode::NO_ERROR);
    assert_sent_after(75_000, &mut client, &pair, &[expected]);
    assert!(client.client.end.is_some());
}

#[test]
fn idle_connections_are_told_at_once_on_command() {
    let (pair, mut client) = connected();
    pair.leave(3_600);
    assert!(client.hears_nothing());
    pair.command(WorkerCommand::EndIdle);
    assert_eq!(client.receive(), first_goaway());
    client.send(&ping(true, &LAST_PING));
    assert_eq!(client.receive(), [goaway(0, H2ErrorCode::NO_ERROR)]);
    assert!(client.client.end.is_some());
    pair.advance(100);
    assert!(pair.has_ended());
}

#[test]
fn the_deadline_tells_idle_connections_and_cuts_requests() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let call = pair.call();
    let cut = pair.leave(60);
    client.receive();
    let mut idle = H2Client::connect(&pair);
    pair.advance(60_000);
    assert_eq!(idle.receive(), first_goaway());
    assert!(!call.is_dropped());
    pair.advance(1_500);
    assert!(pair.has_ended() && call.is_dropped());
    assert_eq!(cut.load(std::sync::atomic::Ordering::Relaxed), 1);
}
