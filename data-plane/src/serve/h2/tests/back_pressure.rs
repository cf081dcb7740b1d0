//! Back-pressure over HTTP/2: flow-control windows in both directions, and the socket.

use super::*;
use crate::limits::{PIPE_BYTES, READ_BUFFER_BYTES, UNSENT_BYTES_MAX};
use std::task::{Context, Waker};

/// Window of the server's connections.
const CONNECTION_WINDOW: usize = 256 * 1024;

/// Returns the sum of the window updates for `stream`.
pub(super) fn granted(frames: &[Frame], stream: u32) -> usize {
    let more = |frame: &Frame| match frame {
        Frame::Window { id, more } if *id == stream => *more as usize,
        _ => 0,
    };
    frames.iter().map(more).sum()
}

// ---- Content of requests ----

#[test]
fn a_handler_that_does_not_read_keeps_the_window_of_its_stream_closed() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    client.send(&data_frames(1, &[b'x'; WINDOW as usize], false));
    assert!(client.hears_nothing());
    assert_eq!(call.request.body.unread(), WINDOW as usize);
    // Less than half of the window is not worth a frame.
    call.read(32_766);
    assert!(client.hears_nothing());
    call.read(1);
    assert_eq!(
        client.receive(),
        [Frame::Window {
            id: 1,
            more: 32_767
        }]
    );
    client.send(&data_frames(1, &[b'x'; 32_767], false));
    assert!(client.hears_nothing());
    // More bytes than the window.
    client.send(&data(1, b"x", false));
    let expected = stream_reset(1, H2ErrorCode::FLOW_CONTROL_ERROR);
    assert!(client.receive().contains(&expected));
    assert!(call.is_dropped());
}

#[test]
fn content_flows_as_fast_as_the_handler_takes_it() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    let (mut left, mut stream, mut all) = (2_000_000, WINDOW as usize, CONNECTION_WINDOW);
    let mut taken = 0;
    while left > 0 {
        let bytes = left.min(stream).min(all).min(16_384);
        assert!(bytes > 0, "the windows stay closed");
        client.send(&data(1, &vec![b'x'; bytes], left == bytes));
        (left, stream, all) = (left - bytes, stream - bytes, all - bytes);
        match call.read(1 << 20) {
            PairRead::Part(bytes) | PairRead::End(bytes) => taken += bytes.len(),
            PairRead::Broken(_) => panic!("broken"),
        }
        let frames = client.receive();
        stream += granted(&frames, 1);
        all += granted(&frames, 0);
    }
    assert_eq!(taken, 2_000_000);
}

#[test]
fn handlers_that_do_not_read_keep_the_window_of_the_connection_closed() {
    let (pair, mut client) = connected();
    let mut calls = Vec::new();
    for id in [1, 3, 5, 7] {
        client.send(&head(id, "/call", false));
        calls.push(pair.call());
        client.send(&data_frames(id, &[b'x'; WINDOW as usize], false));
        assert!(client.hears_nothing());
    }
    client.send(&head(9, "/call", false));
    let mut last = pair.call();
    let room = CONNECTION_WINDOW - 4 * WINDOW as usize;
    client.send(&data(9, &vec![b'x'; room], false));
    assert!(client.hears_nothing());
    // Handlers that take the content open the window.
    calls[0].read(1 << 20);
    calls[1].read(1 << 20);
    let frames = client.receive();
    assert_eq!(granted(&frames, 0), 0);
    assert_eq!(granted(&frames, 1), WINDOW as usize);
    last.read(2);
    let frames = client.receive();
    assert_eq!(granted(&frames, 0), 2 * WINDOW as usize + 2);
    // More bytes than the window.
    client.send(&data_frames(9, &vec![b'x'; WINDOW as usize - room], false));
    client.send(&data_frames(1, &vec![b'x'; WINDOW as usize], false));
    assert!(client.hears_nothing());
    client.send(&data(3, &[b'x'; 9], false));
    let frames = client.receive();
    let expected = goaway(9, H2ErrorCode::FLOW_CONTROL_ERROR);
    assert_eq!(frames, [expected]);
}

/// Ways in which a request with content ends before its end was received.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum EarlyEnd {
    Answered,
    TakenAndAnswered,
    StreamBegan,
    Failed,
    ClientReset,
    TooLate,
    NoHandler,
    ReaderDropped,
}

#[test]
fn the_window_of_the_connection_gets_back_what_no_handler_takes() {
    for end in [
        EarlyEnd::Answered,
        EarlyEnd::TakenAndAnswered,
        EarlyEnd::StreamBegan,
        EarlyEnd::Failed,
        EarlyEnd::ClientReset,
        EarlyEnd::TooLate,
        EarlyEnd::NoHandler,
        EarlyEnd::ReaderDropped,
    ] {
        let (pair, mut client) = connected();
        let mut all = CONNECTION_WINDOW;
        let bytes = 40_000;
        for nth in 0..20 {
            let id = 2 * nth + 1;
            let path = if end == EarlyEnd::NoHandler {
                "/missing"
            } else {
                "/call"
            };
            assert!(all >= bytes, "{end:?} {nth}");
            client.send(&head(id, path, false));
            let mut call = pair.next_call();
            client.send(&data_frames(id, &vec![b'x'; bytes], false));
            all -= bytes;
            match (end, &mut call) {
                (EarlyEnd::Answered, Some(call)) => call.answer(b"early"),
                (EarlyEnd::TakenAndAnswered, Some(call)) => {
                    // The server learns of both at once.
                    call.read(1 << 20);
                    call.answer(b"early");
                }
                (EarlyEnd::StreamBegan, Some(call)) => {
                    let writer = call.stream(None);
                    pair.settle();
                    drop(writer);
                }
                (EarlyEnd::ReaderDropped, Some(call)) => {
                    let (_, reader) = crate::handler::pipe::pipe(1);
                    call.request.body = reader;
                }
                (EarlyEnd::TooLate, Some(call)) => {
                    call.read(1);
                    pair.settle();
                    call.read(1 << 20);
                    pair.settle();
                    pair.advance(10_000 + 1_000 * bytes as u64 / 512);
                }
                _ => {}
            }
            if end == EarlyEnd::Failed {
                call = None;
            }
            pair.settle();
            all += granted(&client.receive(), 0);
            client.send(&reset(id));
            drop(call);
            all += granted(&client.receive(), 0);
        }
        // The server grants half of the window at once.
        assert!(all > CONNECTION_WINDOW / 2, "{end:?} {all}");
        assert!(client.client.end.is_none());
    }
}

#[test]
fn content_that_no_handler_takes_is_discarded_at_once_behind_the_response() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    client.send(&data_frames(1, &[b'x'; WINDOW as usize], false));
    assert!(client.hears_nothing());
    call.answer(b"early");
    let frames = client.receive();
    assert_eq!(bytes_of(&frames, 1), 5);
    assert!(granted(&frames, 1) >= WINDOW as usize);
    client.send(&data_frames(1, &[b'x'; WINDOW as usize], true));
    client.receive();
    // The stream is over.
    client.send(&head(3, "/missing", true));
    assert_eq!(client.receive()[0], status(3, 404));
}

#[test]
fn the_window_stays_closed_for_content_that_a_handler_refuses_until_the_response() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    // The handler takes no content.
    call.request.body = crate::handler::pipe::pipe(1).1;
    pair.settle();
    let mut all = CONNECTION_WINDOW;
    client.send(&data_frames(1, &[b'x'; WINDOW as usize], false));
    let frames = client.receive();
    all = all - WINDOW as usize + granted(&frames, 0);
    assert_eq!(granted(&frames, 1), 0);
    // The window of the connection stays open for other streams.
    for id in [3, 5, 7, 9, 11] {
        client.send(&head(id, "/call", false));
        pair.call().request.body = crate::handler::pipe::pipe(1).1;
        assert!(all >= WINDOW as usize, "{all}");
        client.send(&data_frames(id, &[b'x'; WINDOW as usize], false));
        all = all - WINDOW as usize + granted(&client.receive(), 0);
    }
    call.answer(b"early");
    let frames = client.receive();
    assert_eq!(bytes_of(&frames, 1), 5);
    assert!(granted(&frames, 1) >= WINDOW as usize);
}

// ---- Responses ----

#[test]
fn the_end_of_a_response_needs_no_window() {
    for has_length in [false, true] {
        let pair = Pair::new();
        let mut client = H2Client::silent(&pair).greeted(WINDOW);
        client.send(&head(1, "/call", true));
        let mut call = pair.call();
        let length = u64::from(WINDOW);
        let mut writer = call.stream(has_length.then_some(length));
        // Both windows are closed behind the last byte.
        write_some(&mut writer, &[b'x'; WINDOW as usize]);
        assert_eq!(bytes_of(&client.receive(), 1), WINDOW as usize);
        writer.finish();
        let (id, bytes, ended) = (1, 0, true);
        assert_eq!(client.receive(), [Frame::Data { id, bytes, ended }]);
        assert!(call.is_dropped());
    }
}

#[test]
fn the_break_of_a_response_needs_no_window() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let mut call = pair.call();
    let mut writer = call.stream(None);
    write_some(&mut writer, &[b'x'; WINDOW as usize]);
    assert_eq!(bytes_of(&client.receive(), 1), WINDOW as usize);
    drop(writer);
    let expected = stream_reset(1, H2ErrorCode::INTERNAL_ERROR);
    assert_eq!(client.receive(), [expected]);
    assert!(call.is_dropped());
}

#[test]
fn a_response_takes_the_window_of_its_stream_and_no_more() {
    let pair = Pair::new();
    let mut client = H2Client::silent(&pair).greeted(1_000);
    client.send(&head(1, "/call", true));
    let mut call = pair.call();
    let mut writer = call.stream(Some(3_000));
    write_some(&mut writer, &[b'x'; 3_000]);
    writer.finish();
    assert_eq!(client.receive(), [status(1, 200), part(1, 1_000)]);
    client.send(&window(1, 1_500));
    assert_eq!(client.receive(), [part(1, 1_500)]);
    client.send(&window(1, 499));
    assert_eq!(client.receive(), [part(1, 499)]);
    client.send(&window(0, 1 << 20));
    assert!(client.hears_nothing());
    client.send(&window(1, 1));
    assert_eq!(bytes_of(&client.receive(), 1), 1);
    assert!(call.is_dropped());
}

#[test]
fn responses_take_the_window_of_the_connection_and_no_more() {
    let pair = Pair::new();
    let mut client = H2Client::silent(&pair).greeted(1 << 20);
    let mut writers = Vec::new();
    for id in [1, 3] {
        client.send(&head(id, "/call", true));
        let mut writer = pair.call().stream(None);
        fill(&pair, &mut writer);
        writers.push(writer);
    }
    assert_eq!(bytes_of(&client.receive(), 0), WINDOW as usize);
    client.send(&window(1, 1 << 20));
    assert!(client.hears_nothing());
    client.send(&window(0, 10_000));
    assert_eq!(bytes_of(&client.receive(), 0), 10_000);
    // A response without content needs no window.
    client.send(&head(5, "/call", true));
    pair.call().answer(b"");
    let (id, status, ended) = (5, 200, true);
    assert_eq!(client.receive(), [Frame::Head { id, status, ended }]);
}

#[test]
fn a_stream_without_window_does_not_hold_up_others() {
    let (pair, mut client) = connected();
    client.send(&[window(0, 1 << 20), head(1, "/call", true)].concat());
    let mut writer = pair.call().stream(None);
    fill(&pair, &mut writer);
    assert_eq!(bytes_of(&client.receive(), 1), WINDOW as usize);
    client.send(&head(3, "/call", true));
    pair.call().answer(&[b'x'; 50_000]);
    assert_eq!(bytes_of(&client.receive(), 3), 50_000);
}

#[test]
fn a_smaller_initial_window_closes_the_windows_of_open_streams() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/call", true));
    let mut writer = pair.call().stream(None);
    write_some(&mut writer, &[b'x'; 1_000]);
    assert_eq!(bytes_of(&client.receive(), 1), 1_000);
    client.send(&greeting(500)[24..]);
    write_some(&mut writer, &[b'x'; 1_000]);
    assert_eq!(client.receive(), [Frame::SettingsAck]);
    // The window is 500 bytes below 0.
    client.send(&window(1, 500));
    assert!(client.hears_nothing());
    client.send(&window(1, 300));
    assert_eq!(client.receive(), [part(1, 300)]);
}

#[test]
fn a_client_that_reads_nothing_bounds_the_bytes_of_the_handlers() {
    let pair = Pair::new();
    let client = H2Client::over(PairClient::connect_narrow(&pair)).greeted(1 << 24);
    client.send(&window(0, 1 << 24));
    let (mut written, mut writers) = (0, Vec::new());
    for id in [1, 3, 5] {
        client.send(&head(id, "/call", true));
        let Some(mut call) = pair.next_call() else {
            // The server reads no further request before the client reads.
            break;
        };
        let mut writer = call.stream(None);
        written += fill(&pair, &mut writer);
        writers.push((call, writer));
    }
    let held = written - client.client.unread();
    let pipes = writers.len() * PIPE_BYTES;
    assert!(held <= pipes + UNSENT_BYTES_MAX, "{held}");
}

#[test]
fn windows_that_open_at_once_move_no_more_bytes_than_the_buffer_holds() {
    let pair = Pair::new();
    let client = H2Client::over(PairClient::connect_narrow(&pair)).greeted(0);
    let mut writers = Vec::new();
    for id in [1, 3, 5, 7] {
        client.send(&head(id, "/call", true));
        let mut writer = pair.call().stream(None);
        assert_eq!(fill(&pair, &mut writer), PIPE_BYTES);
        writers.push(writer);
    }
    client.send(&[window(0, 1 << 24), greeting(1 << 20)[24..].to_vec()].concat());
    let mut noop = Context::from_waker(Waker::noop());
    let held = writers.iter_mut().map(|writer| writer.held(&mut noop));
    let left: usize = held.map(|held| held.expect("a reader")).sum();
    let moved = 4 * PIPE_BYTES - left;
    assert!(moved > 0 && moved <= client.client.unread() + UNSENT_BYTES_MAX);
}

#[test]
fn a_client_that_reads_nothing_bounds_its_own_requests() {
    let pair = Pair::new();
    let client = H2Client::over(PairClient::connect_narrow(&pair)).greeted(WINDOW);
    let before = pair.bytes_received();
    let requests = (0..3_000).flat_map(|nth| head(2 * nth + 1, "/missing", true));
    let requests: Vec<u8> = requests.collect();
    client.client.send_some(&requests);
    let taken = pair.bytes_received() - before;
    assert!(taken < 2 * READ_BUFFER_BYTES as u64, "{taken}");
}

// ---- The end of one direction ----

#[test]
fn the_end_of_the_client_ends_all_calls() {
    for is_lost in [false, true] {
        let (pair, client) = connected();
        client.send(&[head(1, "/call", true), head(3, "/call", false)].concat());
        let (first, mut second) = (pair.call(), pair.call());
        let writer = second.stream(None);
        pair.settle();
        if is_lost {
            client.client.close();
        } else {
            client.client.finish();
        }
        assert!(first.is_dropped() && second.is_dropped());
        assert_eq!(second.read(1), PairRead::Broken(vec![]));
        assert_eq!(pair.open_connections(), 0);
        drop(writer);
    }
}

#[test]
fn a_reset_of_the_client_ends_its_call_alone() {
    let (pair, mut client) = connected();
    client.send(&[head(1, "/call", true), head(3, "/call", true)].concat());
    let (first, mut second) = (pair.call(), pair.call());
    client.send(&reset(1));
    assert!(first.is_dropped() && !second.is_dropped());
    second.answer(b"second");
    assert_eq!(bytes_of(&client.receive(), 3), 6);
}
