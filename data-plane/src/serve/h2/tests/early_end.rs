//! Responses that are complete before the content of their request. curl up to 7.88 sends the rest of the content, but
//! handles no frame behind a complete response, so the windows for the rest come before its end.

use super::*;
use wire::limits::H2_REST_WINDOW_BYTES;
use wire::status::Status;

/// Length of the request's content.
const CONTENT_BYTES: usize = 3_000_000;

/// Returns HEADERS of a request with content of [`CONTENT_BYTES`].
fn upload(id: u32) -> Vec<u8> {
    let length = CONTENT_BYTES.to_string();
    let fields = [
        (":method", "PUT"),
        (":path", "/call"),
        ("content-length", &length),
    ];
    head_with(id, &fields, false)
}

/// Returns the windows for the rest of the content. The bytes that the handler has not read change nothing.
fn rest_windows(id: u32) -> [Frame; 2] {
    [(0, 262_144), (id, WINDOW)].map(|(id, granted)| Frame::Window {
        id,
        more: CONTENT_BYTES as u32 - granted,
    })
}

/// Sends the rest of the content without handling a frame. The stream ends, and the connection goes on.
#[track_caller]
fn send_rest(client: &mut H2Client, id: u32, sent: usize) {
    client.send(&data_frames(id, &vec![b'x'; CONTENT_BYTES - sent], true));
    let frames = client.receive();
    // The window of the connection opens again for other streams.
    let is_of_connection = |frame: &Frame| matches!(frame, Frame::Window { id: 0, .. });
    assert!(frames.iter().all(is_of_connection), "{frames:?}");
    client.send(&head(id + 2, "/missing", true));
    assert_eq!(client.receive()[0], status(id + 2, 404));
}

#[test]
fn the_windows_for_the_rest_come_before_a_whole_response() {
    for sent in [0, 10_000, WINDOW as usize] {
        let (pair, mut client) = connected();
        client.send(&upload(1));
        let mut call = pair.call();
        client.send(&data_frames(1, &vec![b'x'; sent], false));
        assert!(client.hears_nothing());
        call.answer(b"early");
        let mut expected = rest_windows(1).to_vec();
        expected.push(status(1, 200));
        let (id, bytes, ended) = (1, 5, true);
        expected.push(Frame::Data { id, bytes, ended });
        assert_eq!(client.receive(), expected, "{sent}");
        send_rest(&mut client, 1, sent);
        // The window of the connection is as large as before.
        for id in [5, 7] {
            client.send(&head(id, "/call", false));
            let _call = pair.call();
            client.send(&data_frames(id, &[b'x'; WINDOW as usize], false));
        }
        assert!(client.client.end.is_none());
    }
}

#[test]
fn the_windows_for_the_rest_come_before_a_response_without_content() {
    for code in [201, 204, 401] {
        let (pair, mut client) = connected();
        client.send(&upload(1));
        pair.call().respond_whole(Status(code), b"");
        let mut expected = rest_windows(1).to_vec();
        let (id, status, ended) = (1, code, true);
        expected.push(Frame::Head { id, status, ended });
        assert_eq!(client.receive(), expected, "{code}");
        send_rest(&mut client, 1, 0);
    }
}

#[test]
fn other_statuses_open_no_window() {
    for code in [303, 403, 413, 500] {
        let (pair, mut client) = connected();
        client.send(&upload(1));
        pair.call().respond_whole(Status(code), b"early");
        let frames = client.receive();
        assert_eq!(frames[0], status(1, code));
        assert_eq!(frames.len(), 2, "{frames:?}");
    }
}

#[test]
fn the_windows_for_the_rest_come_before_the_end_of_streamed_content() {
    for length in [None, Some(6)] {
        let (pair, mut client) = connected();
        client.send(&upload(1));
        let mut call = pair.call();
        let mut writer = call.stream(length);
        write_some(&mut writer, b"early");
        assert_eq!(client.receive(), [status(1, 200), part(1, 5)]);
        write_some(&mut writer, b"!");
        writer.finish();
        let (id, bytes, ended) = (1, 0, true);
        let end = Frame::Data { id, bytes, ended };
        let mut expected = rest_windows(1).to_vec();
        // With a length, the last byte is the end for the client.
        let at = if length.is_some() { 2 } else { 0 };
        expected.insert(at, part(1, 1));
        expected.push(end);
        assert_eq!(client.receive(), expected, "{length:?}");
        send_rest(&mut client, 1, 0);
    }
}

/// A script that announces a length may still read the content after its last byte, and the windows stay small for that
/// time. curl stops handling frames with the last byte.
#[test]
fn the_last_byte_of_an_announced_length_waits_for_the_handler_or_for_the_content() {
    for is_read in [false, true] {
        let (pair, mut client) = connected();
        client.send(&upload(1));
        let mut call = pair.call();
        let mut writer = call.stream(Some(5));
        write_some(&mut writer, b"early");
        assert_eq!(client.receive(), [status(1, 200), part(1, 4)]);
        assert!(client.hears_nothing());
        if is_read {
            let mut left = CONTENT_BYTES;
            let mut window = WINDOW as usize;
            let mut frames = Vec::new();
            while left > 0 {
                let bytes = left.min(window);
                assert!(bytes > 0, "the window stays closed");
                client.send(&data_frames(1, &vec![b'x'; bytes], left == bytes));
                (left, window) = (left - bytes, window - bytes);
                call.read(1 << 20);
                frames = client.receive();
                window += super::back_pressure::granted(&frames, 1);
            }
            assert_eq!(frames, [part(1, 1)], "the content has ended");
        } else {
            writer.finish();
            let mut expected = rest_windows(1).to_vec();
            expected.push(part(1, 1));
            let (id, bytes, ended) = (1, 0, true);
            expected.push(Frame::Data { id, bytes, ended });
            assert_eq!(client.receive(), expected);
            send_rest(&mut client, 1, 0);
        }
    }
}

#[test]
fn a_request_without_content_gets_the_last_byte_at_once() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let mut writer = pair.call().stream(Some(5));
    write_some(&mut writer, b"whole");
    assert_eq!(client.receive(), [status(1, 200), part(1, 5)]);
}

#[test]
fn content_of_unknown_length_gets_a_large_window() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    client.send(&data_frames(1, &[b'x'; WINDOW as usize], false));
    assert!(client.hears_nothing());
    call.answer(b"early");
    let frames = client.receive();
    let more = H2_REST_WINDOW_BYTES;
    assert_eq!(frames[1], Frame::Window { id: 1, more });
    for _ in 0..100 {
        client.send(&data_frames(1, &[b'x'; WINDOW as usize], false));
        assert!(client.hears_nothing());
    }
    // A second stream like it finds the window of the connection open.
    client.send(&head(3, "/call", false));
    pair.call().answer(b"early");
    let frames = client.receive();
    let sum: u64 = [0, 3]
        .iter()
        .map(|id| super::back_pressure::granted(&frames, *id) as u64)
        .sum();
    assert!(sum < 1 << 32, "{frames:?}");
    // A client without a length waits for a frame behind the end of its content.
    for id in [3, 1] {
        client.send(&data(id, b"x", true));
        let frames = client.receive();
        assert!(
            matches!(frames[..], [Frame::Window { id: 0, .. }]),
            "{frames:?}"
        );
    }
    client.send(&head(5, "/missing", true));
    assert_eq!(client.receive()[0], status(5, 404));
}
