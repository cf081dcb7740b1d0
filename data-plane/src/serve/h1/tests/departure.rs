//! The departure of a worker with connections of HTTP/1.1, while another process serves in its place.

use super::*;
use crate::serve::pair::{PairEnd, write_some};

const UPGRADE: &[u8] =
    b"GET /tunnel HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[track_caller]
fn assert_last_response(response: &str, status: &str) {
    assert!(response.starts_with(status), "{response}");
    assert!(response.contains("\r\nConnection: close\r\n"), "{response}");
}

#[test]
fn a_departure_without_connections_ends_at_once() {
    let pair = Pair::new();
    pair.leave(3_600);
    assert!(pair.has_ended());
}

#[test]
fn an_idle_connection_stays_and_its_next_response_is_the_last() {
    let (pair, mut fresh) = connected();
    let mut kept = PairClient::connect(&pair);
    kept.send(MISSING);
    assert!(!kept.receive_text().contains("Connection: close"));
    let cut = pair.leave(3_600);
    pair.advance(70_000);
    assert!(fresh.hears_nothing() && kept.hears_nothing() && !pair.has_ended());
    for mut client in [fresh, kept] {
        client.send(MISSING);
        assert_last_response(&client.receive_text(), "HTTP/1.1 404 ");
        assert_eq!(client.end, Some(PairEnd::Closed));
        client.close();
    }
    assert!(pair.has_ended());
    assert_eq!(cut.load(Relaxed), 0);
}

#[test]
fn a_silent_connection_ends_after_the_idle_time() {
    let (pair, mut client) = connected();
    pair.leave(3_600);
    pair.advance(74_999);
    assert!(client.hears_nothing());
    pair.advance(1);
    assert!(client.hears_the_end());
    assert_eq!(pair.context().stats.deadlines.value(), 0);
    pair.advance(100);
    assert!(pair.has_ended());
}

#[test]
fn a_request_behind_the_last_response_does_not_reset_the_connection() {
    let pair = Pair::new();
    let mut client = PairClient::connect_tcp(&pair);
    pair.leave(3_600);
    client.send(MISSING);
    pair.settle_until(|| client.unread() > 0);
    client.send(MISSING);
    let response = String::from_utf8(client.receive_to_end()).expect("text");
    assert_last_response(&response, "HTTP/1.1 404 ");
    assert_eq!(response.matches("HTTP/1.1 ").count(), 1);
    assert_eq!(client.end, Some(PairEnd::Closed));
}

#[test]
fn requests_under_way_are_completed() {
    let (pair, mut called) = connected();
    called.send(CALL);
    let mut call = pair.call();
    let mut uploading = PairClient::connect(&pair);
    uploading.send(&post(8));
    let mut upload = pair.call();
    uploading.send(b"1234");
    let mut heading = PairClient::connect(&pair);
    heading.send(&MISSING[..10]);
    pair.leave(3_600);
    pair.advance(1_000);
    assert!(called.hears_nothing() && uploading.hears_nothing() && heading.hears_nothing());
    call.answer(b"answer");
    let response = called.receive_text();
    assert_last_response(&response, "HTTP/1.1 200 ");
    assert!(response.ends_with("\r\n\r\nanswer"));
    uploading.send(b"5678");
    assert_eq!(upload.read(100), PairRead::End(b"12345678".to_vec()));
    upload.answer(b"stored");
    assert_last_response(&uploading.receive_text(), "HTTP/1.1 200 ");
    heading.send(&MISSING[10..]);
    assert_last_response(&heading.receive_text(), "HTTP/1.1 404 ");
    assert!(!pair.has_ended());
    for client in [called, uploading, heading] {
        client.close();
    }
    assert!(pair.has_ended());
}

#[test]
fn a_connection_with_a_begun_response_has_one_more() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let mut writer = pair.call().stream(None);
    assert!(!client.receive_text().contains("Connection: close"));
    pair.leave(3_600);
    write_some(&mut writer, b"part");
    assert_eq!(client.receive(), b"4\r\npart\r\n");
    writer.finish();
    assert_eq!(client.receive(), b"0\r\n\r\n");
    pair.advance(10_000);
    assert!(client.hears_nothing() && !pair.has_ended());
    client.send(MISSING);
    assert_last_response(&client.receive_text(), "HTTP/1.1 404 ");
}

#[test]
fn the_deadline_cuts_requests_and_counts_them() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let call = pair.call();
    let mut tunnel = PairClient::connect(&pair);
    tunnel.send(UPGRADE);
    let mut upgraded = pair.call();
    let mut writer = upgraded.stream_with(wire::status::Status(101), None);
    assert!(tunnel.receive_text().starts_with("HTTP/1.1 101 "));
    let cut = pair.leave(600);
    pair.advance(300_000);
    write_some(&mut writer, b"more");
    assert_eq!(tunnel.receive(), b"more");
    let mut idle = PairClient::connect(&pair);
    pair.advance(299_999);
    assert!(!idle.hears_the_end() || pair.open_connections() == 2);
    assert!(client.hears_nothing() && !call.is_dropped() && !pair.has_ended());
    // Clients of idle connections get some time to learn of the end.
    pair.advance(2_000);
    assert!(pair.has_ended() && call.is_dropped() && upgraded.is_dropped());
    assert!(client.hears_the_end() && tunnel.hears_the_end());
    assert_eq!(cut.load(Relaxed), 2);
}

#[test]
fn idle_connections_end_at_once_when_told() {
    let (pair, mut idle) = connected();
    let mut busy = PairClient::connect(&pair);
    busy.send(CALL);
    let mut call = pair.call();
    let mut streaming = PairClient::connect(&pair);
    streaming.send(CALL);
    let writer = pair.call().stream(None);
    pair.leave(3_600);
    pair.command(WorkerCommand::EndIdle);
    assert!(idle.hears_the_end());
    assert!(busy.hears_nothing());
    call.answer(b"answer");
    assert_last_response(&busy.receive_text(), "HTTP/1.1 200 ");
    streaming.receive();
    writer.finish();
    assert_eq!(streaming.receive(), b"0\r\n\r\n");
    pair.advance(100);
    assert!(streaming.hears_the_end() && pair.has_ended());
}

#[test]
fn a_drain_ends_a_departure() {
    let (pair, mut idle) = connected();
    let mut busy = PairClient::connect(&pair);
    busy.send(CALL);
    let call = pair.call();
    pair.leave(3_600);
    pair.drain(5);
    assert!(idle.hears_the_end() && busy.hears_nothing());
    pair.advance(5_000);
    assert!(pair.has_ended() && call.is_dropped());
}

#[test]
fn a_leaving_worker_carries_out_commands() {
    let (pair, client) = connected();
    pair.leave(3_600);
    let (done, mut flushed) = oneshot::channel();
    pair.command(WorkerCommand::FlushLogs(done));
    assert!(flushed.try_recv().is_ok());
    client.close();
    assert!(pair.has_ended());
}
