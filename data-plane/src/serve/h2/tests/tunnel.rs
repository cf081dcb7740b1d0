//! A tunnel on a stream of HTTP/2.

use super::*;

/// Opens a tunnel. Returns the call and the handler's direction.
fn tunnel() -> (Pair, H2Client, PairCall, PipeWriter) {
    let (pair, mut client) = connected();
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":path", "/tunnel"),
    ];
    client.send(&head_with(1, &fields, false));
    let mut call = pair.call();
    let writer = call.stream(None);
    assert_eq!(client.receive(), [status(1, 200)]);
    (pair, client, call, writer)
}

#[test]
fn a_tunnel_may_be_silent() {
    let (pair, mut client, call, mut writer) = tunnel();
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    writer.write_some(b"more").expect("a reader");
    assert_eq!(client.receive(), [part(1, 4)]);
}

#[test]
fn a_tunnel_with_one_direction_left_may_be_silent_for_the_idle_time() {
    // The client has ended its direction.
    let (pair, mut client, call, mut writer) = tunnel();
    pair.advance(100_000);
    client.send(&data(1, b"last", true));
    pair.advance(74_999);
    writer.write_some(b"more").expect("a reader");
    assert_eq!(client.receive(), [part(1, 4)]);
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(75_000, &mut client, &pair, &[expected]);
    assert!(call.is_dropped());
    // The handler has ended its direction.
    let (pair, mut client, call, writer) = tunnel();
    pair.advance(100_000);
    writer.finish();
    let (id, bytes, ended) = (1, 0, true);
    assert_eq!(client.receive(), [Frame::Data { id, bytes, ended }]);
    pair.advance(74_999);
    client.send(&data(1, b"more", false));
    let expected = stream_reset(1, H2ErrorCode::NO_ERROR);
    assert_sent_after(75_000, &mut client, &pair, &[expected]);
    assert!(call.is_dropped());
}
