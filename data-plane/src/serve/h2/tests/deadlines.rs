//! Every deadline of a connection of HTTP/2.

use super::*;
use crate::serve::pair::PairWorld;
use std::time::Duration;
use wire::h2::frame::PREFACE;

// ---- Preface, frames and field blocks ----

#[test]
fn a_client_without_settings_is_left_after_10_seconds() {
    let whole = greeting(WINDOW);
    for length in [16, PREFACE.len(), whole.len() - 1] {
        let pair = Pair::new();
        let mut client = H2Client::silent(&pair);
        client.send(&whole[..length]);
        client.receive();
        let expected = goaway(0, H2ErrorCode::SETTINGS_TIMEOUT);
        assert_sent_after(10_000, &mut client, &pair, &[expected]);
        // The server reads on behind GOAWAY for a while.
        pair.advance(4_999);
        assert_eq!(pair.open_connections(), 1);
        pair.advance(1);
        assert_eq!(pair.open_connections(), 0);
    }
}

#[test]
fn the_first_bytes_of_a_preface_have_the_time_of_a_head() {
    let pair = Pair::new();
    let mut client = H2Client::silent(&pair);
    client.send(&PREFACE[..8]);
    pair.advance(9_999);
    assert!(client.client.hears_nothing());
    pair.advance(1);
    assert!(client.client.receive_text().starts_with("HTTP/1.1 408 "));
}

#[test]
fn a_frame_has_its_time_from_its_first_byte() {
    let (pair, mut client) = connected();
    pair.advance(60_000);
    let frame = head(1, "/missing", true);
    for byte in &frame[..9] {
        client.send(&[*byte]);
        pair.advance(1_000);
    }
    client.send(&frame[9..10]);
    let expected = goaway(0, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(1_000, &mut client, &pair, &[expected]);
    assert_eq!(client.client.end, Some(crate::serve::pair::PairEnd::Closed));
}

#[test]
fn a_field_block_has_its_time_from_its_first_frame() {
    let (pair, mut client) = connected();
    let mut frame = head(1, "/missing", true);
    frame[4] = 0;
    client.send(&frame);
    pair.advance(5_000);
    // CONTINUATION without END_HEADERS.
    client.send(&[0, 0, 0, 9, 0, 0, 0, 0, 1]);
    let expected = goaway(1, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(5_000, &mut client, &pair, &[expected]);
}

#[test]
fn each_frame_has_its_own_time() {
    let (pair, mut client) = connected();
    for id in [1, 3, 5] {
        let frame = head(id, "/missing", true);
        client.send(&frame[..5]);
        pair.advance(9_999);
        client.send(&frame[5..]);
        assert_eq!(client.receive()[0], status(id, 404));
    }
    // The beginning of a frame behind the end of another.
    let (first, second) = (head(7, "/missing", true), head(9, "/missing", true));
    client.send(&first[..5]);
    pair.advance(9_999);
    client.send(&[&first[5..], &second[..5]].concat());
    assert_eq!(client.receive()[0], status(7, 404));
    let expected = goaway(7, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(10_000, &mut client, &pair, &[expected]);
}

// ---- Idle ----

#[test]
fn a_connection_without_streams_is_left_after_the_idle_time() {
    let (pair, mut client) = connected();
    let expected = goaway(0, H2ErrorCode::NO_ERROR);
    assert_sent_after(75_000, &mut client, &pair, &[expected]);
    assert!(client.client.end.is_some());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn frames_without_a_request_gain_no_time() {
    let (pair, mut client) = connected();
    for _ in 0..7 {
        pair.advance(10_000);
        client.send(&[ping(false, b"12345678"), window(0, 1)].concat());
        let (is_ack, payload) = (true, *b"12345678");
        assert_eq!(client.receive(), [Frame::Ping { is_ack, payload }]);
    }
    let expected = goaway(0, H2ErrorCode::NO_ERROR);
    assert_sent_after(5_000, &mut client, &pair, &[expected]);
}

#[test]
fn each_request_begins_the_idle_time_anew() {
    let (pair, mut client) = connected();
    for id in [1, 3] {
        pair.advance(74_999);
        client.send(&head(id, "/missing", true));
        assert_eq!(client.receive()[0], status(id, 404));
    }
    pair.advance(74_999);
    client.send(&head(5, "/call", true));
    let mut call = pair.call();
    // The handler may take its time.
    pair.advance(600_000);
    assert!(client.hears_nothing());
    call.answer(b"late");
    assert_eq!(bytes_of(&client.receive(), 5), 4);
    let expected = goaway(5, H2ErrorCode::NO_ERROR);
    assert_sent_after(75_000, &mut client, &pair, &[expected]);
}

// ---- Content of a request ----

/// Begins a request with content, of which no byte has arrived.
fn upload() -> (Pair, H2Client, PairCall) {
    let (pair, client) = connected();
    client.send(&head(1, "/call", false));
    let call = pair.call();
    (pair, client, call)
}

/// Asserts that the content is refused with 408 `due_ms` from now. The connection stays.
#[track_caller]
fn assert_late_after(due_ms: u64, client: &mut H2Client, pair: &Pair) {
    pair.advance(due_ms - 1);
    assert!(client.hears_nothing(), "too early");
    pair.advance(1);
    let frames = client.receive();
    assert_eq!(frames[0], status(1, 408));
    assert!(matches!(
        frames[1],
        Frame::Data {
            id: 1,
            ended: true,
            ..
        }
    ));
    // The stream stays open for the rest of the content.
    let expected = stream_reset(1, H2ErrorCode::NO_ERROR);
    assert_sent_after(5_000, client, pair, &[expected]);
    client.send(&head(3, "/missing", true));
    assert_eq!(client.receive()[0], status(3, 404));
}

#[test]
fn content_may_pause_for_10_seconds_in_all() {
    let (pair, mut client, mut call) = upload();
    assert_late_after(10_000, &mut client, &pair);
    assert!(call.is_dropped());
    assert_eq!(call.read(9), PairRead::Broken(vec![]));
}

#[test]
fn content_gains_time_by_its_bytes() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/echo", false));
    assert_eq!(client.receive(), [status(1, 200)]);
    pair.advance(9_999);
    client.send(&data(1, &[b'x'; 512], false));
    assert_eq!(client.receive(), [part(1, 512)]);
    pair.advance(999);
    client.send(&data(1, &[b'x'; 1_024], false));
    assert_eq!(client.receive(), [part(1, 1_024)]);
    // 10 s, and 1 s for each 512 bytes.
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(13_000 - 10_998, &mut client, &pair, &[expected]);
}

#[test]
fn content_that_the_handler_takes_at_once_gains_no_more_time() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/echo", false));
    assert_eq!(client.receive(), [status(1, 200)]);
    for _ in 0..9 {
        pair.advance(1_000);
        client.send(&data(1, b"12345678", false));
        assert_eq!(client.receive(), [part(1, 8)]);
    }
    // 10 s, and 1 s for each 512 bytes.
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(1_000 + 72 * 1_000 / 512, &mut client, &pair, &[expected]);
}

#[test]
fn the_wait_for_the_handler_does_not_count_against_the_client() {
    let (pair, mut client, mut call) = upload();
    pair.advance(9_999);
    client.send(&data(1, b"0123456789", false));
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    assert_eq!(call.read(10), PairRead::Part(b"0123456789".to_vec()));
    pair.settle();
    assert_late_after(10_000, &mut client, &pair);
}

#[test]
fn a_handler_that_wants_no_content_yet_waits() {
    let (pair, mut client, mut call) = upload();
    call.request.body.hold(true);
    pair.settle();
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    call.request.body.hold(false);
    pair.settle();
    assert_late_after(10_000, &mut client, &pair);
}

#[test]
fn a_patient_handler_grants_a_longer_pause() {
    let (pair, mut client, mut call) = upload();
    call.request.body.be_patient(Duration::from_secs(60));
    // The next event of the connection sets the deadline.
    client.send(&window(0, 1));
    assert_late_after(60_000, &mut client, &pair);
}

#[test]
fn late_content_behind_the_head_of_the_response_resets_the_stream() {
    let (pair, mut client, mut call) = upload();
    let _writer = call.stream(None);
    assert_eq!(client.receive(), [status(1, 200)]);
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(10_000, &mut client, &pair, &[expected]);
    assert!(call.is_dropped());
}

#[test]
fn the_rest_of_the_last_frame_has_the_time_of_content() {
    let (pair, mut client, mut call) = upload();
    let frame = data(1, b"0123456789", true);
    client.send(&frame[..14]);
    assert_eq!(call.read(10), PairRead::Part(b"01234".to_vec()));
    pair.settle();
    pair.advance(9_999);
    assert!(client.hears_nothing());
    pair.advance(1);
    assert_eq!(client.receive()[0], status(1, 408));
    // The server discards the rest of the frame.
    client.send(&[&frame[14..], &head(3, "/missing", true)].concat());
    assert_eq!(client.receive()[0], status(3, 404));
}

#[test]
fn content_behind_an_early_response_has_5_seconds_of_silence_and_30_in_all() {
    let (pair, mut client) = connected();
    client.send(&head(1, "/missing", false));
    assert_eq!(client.receive()[0], status(1, 404));
    pair.advance(4_999);
    client.send(&data(1, b"0123456789", false));
    let expected = stream_reset(1, H2ErrorCode::NO_ERROR);
    assert_sent_after(5_000, &mut client, &pair, std::slice::from_ref(&expected));
    client.send(&head(3, "/missing", false));
    assert_eq!(client.receive()[0], status(3, 404));
    for _ in 0..29 {
        pair.advance(1_000);
        client.send(&data(3, b"0123456789", false));
    }
    let expected = stream_reset(3, H2ErrorCode::NO_ERROR);
    assert_sent_after(1_000, &mut client, &pair, &[expected]);
}

// ---- Response ----

/// Begins a response that fills the window of its stream.
fn stalled() -> (Pair, H2Client, PairCall, PipeWriter) {
    let (pair, mut client) = connected();
    client.send(&[window(0, 1 << 20), head(1, "/call", true)].concat());
    let mut call = pair.call();
    let mut writer = call.stream(None);
    fill(&pair, &mut writer);
    assert_eq!(bytes_of(&client.receive(), 1), WINDOW as usize);
    (pair, client, call, writer)
}

#[test]
fn a_response_without_window_resets_its_stream() {
    let (pair, mut client, call, _writer) = stalled();
    client.send(&head(3, "/call", true));
    let mut other = pair.call();
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(30_000, &mut client, &pair, &[expected]);
    assert!(call.is_dropped() && !other.is_dropped());
    other.answer(b"other");
    assert_eq!(bytes_of(&client.receive(), 3), 5);
}

#[test]
fn a_window_of_a_few_bytes_gains_no_time() {
    let (pair, mut client, _call, mut writer) = stalled();
    for _ in 0..29 {
        pair.advance(1_000);
        client.send(&window(1, 282));
        fill(&pair, &mut writer);
        assert_eq!(bytes_of(&client.receive(), 1), 282);
    }
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(1_000, &mut client, &pair, &[expected]);
}

#[test]
fn a_window_of_8_kib_gains_the_whole_time() {
    let (pair, mut client, _call, mut writer) = stalled();
    for _ in 0..3 {
        pair.advance(29_999);
        client.send(&window(1, 8_192));
        fill(&pair, &mut writer);
        assert_eq!(bytes_of(&client.receive(), 1), 8_192);
    }
    let expected = stream_reset(1, H2ErrorCode::CANCEL);
    assert_sent_after(30_000, &mut client, &pair, &[expected]);
}

#[test]
fn a_handler_that_pauses_is_no_fault_of_the_client() {
    let (pair, mut client, call, mut writer) = stalled();
    pair.advance(29_999);
    client.send(&window(1, 1 << 20));
    client.receive();
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    writer.write_some(b"more").expect("a reader");
    assert_eq!(bytes_of(&client.receive(), 1), 4);
}

#[test]
fn a_silent_call_gives_way_to_another_client_after_10_seconds() {
    let mut world = PairWorld::default();
    world.limits.streams = 1;
    let pair = Pair::serving(world);
    let mut client = H2Client::connect(&pair);
    client.send(&head(1, "/call", true));
    let mut call = pair.call();
    let mut writer = call.stream(None);
    client.receive();
    pair.advance(9_000);
    writer.write_some(b"event").expect("a reader");
    assert_eq!(bytes_of(&client.receive(), 1), 5);
    pair.set_client([192, 0, 2, 2]);
    let mut other = H2Client::connect(&pair);
    pair.advance(9_000);
    other.send(&head(1, "/call", true));
    let refused = stream_reset(1, H2ErrorCode::REFUSED_STREAM);
    assert!(other.receive().contains(&refused) && !call.is_dropped());
    pair.advance(1_000);
    other.send(&head(3, "/call", true));
    pair.call().answer(b"other");
    assert_eq!(bytes_of(&other.receive(), 3), 5);
    pair.settle();
    assert!(call.is_dropped());
}

/// Begins two responses that fill the window of the connection.
fn stalled_together() -> (Pair, H2Client, [PipeWriter; 2]) {
    let pair = Pair::new();
    let mut client = H2Client::silent(&pair).greeted(1 << 20);
    let begin = |id| {
        client.send(&head(id, "/call", true));
        let mut writer = pair.call().stream(None);
        fill(&pair, &mut writer);
        writer
    };
    let writers = [begin(1), begin(3)];
    assert_eq!(bytes_of(&client.receive(), 0), WINDOW as usize);
    (pair, client, writers)
}

#[test]
fn responses_without_window_of_the_connection_end_the_connection() {
    let (pair, mut client, _writers) = stalled_together();
    let expected = goaway(3, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(30_000, &mut client, &pair, &[expected]);
    client.client.finish();
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn a_closed_window_of_the_connection_holds_up_only_bytes_of_a_handler() {
    let pair = Pair::new();
    let mut client = H2Client::silent(&pair).greeted(1 << 20);
    client.send(&head(1, "/call", true));
    let mut call = pair.call();
    let mut writer = call.stream(None);
    write_some(&mut writer, &[b'x'; WINDOW as usize]);
    assert_eq!(bytes_of(&client.receive(), 1), WINDOW as usize);
    pair.advance(600_000);
    assert!(client.hears_nothing() && !call.is_dropped());
    write_some(&mut writer, b"more");
    pair.settle();
    let expected = goaway(1, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(30_000, &mut client, &pair, &[expected]);
}

#[test]
fn a_window_of_the_connection_of_a_few_bytes_gains_no_time() {
    let (pair, mut client, mut writers) = stalled_together();
    for _ in 0..29 {
        pair.advance(1_000);
        client.send(&window(0, 282));
        fill(&pair, &mut writers[0]);
        assert_eq!(bytes_of(&client.receive(), 0), 282);
    }
    let expected = goaway(3, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(1_000, &mut client, &pair, &[expected]);
}

#[test]
fn a_window_of_the_connection_of_8_kib_gains_the_whole_time() {
    let (pair, mut client, mut writers) = stalled_together();
    for _ in 0..3 {
        pair.advance(29_999);
        client.send(&window(0, 8_192));
        fill(&pair, &mut writers[0]);
        // The stream that takes no part is no reason to end it.
        let frames = client.receive();
        assert!(
            frames.len() == 1 && bytes_of(&frames, 0) == 8_192,
            "{frames:?}"
        );
    }
    let expected = goaway(3, H2ErrorCode::ENHANCE_YOUR_CALM);
    assert_sent_after(30_000, &mut client, &pair, &[expected]);
}

/// Begins a response that fills the socket of a client that reads nothing.
fn stalled_socket() -> (Pair, H2Client, PairCall, PipeWriter) {
    let pair = Pair::new();
    let client = H2Client::over(PairClient::connect_narrow(&pair)).greeted(1 << 24);
    client.send(&[window(0, 1 << 24), head(1, "/call", true)].concat());
    let mut call = pair.call();
    let mut writer = call.stream(None);
    fill(&pair, &mut writer);
    (pair, client, call, writer)
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let (pair, _client, call, _writer) = stalled_socket();
    pair.advance(29_999);
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(call.is_dropped());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn a_client_that_reads_a_few_bytes_gains_no_time() {
    let (pair, mut client, call, mut writer) = stalled_socket();
    let mut taken = 0;
    for _ in 0..29 {
        pair.advance(1_000);
        taken += client.client.take(200).len();
        fill(&pair, &mut writer);
    }
    assert!((4_000..8_000).contains(&taken), "{taken}");
    pair.advance(999);
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(call.is_dropped());
}

#[test]
fn a_client_that_reads_8_kib_gains_the_whole_time() {
    let (pair, mut client, call, mut writer) = stalled_socket();
    for _ in 0..3 {
        pair.advance(29_999);
        let mut taken = 0;
        while taken < 3 * 8_192 {
            let part = client.client.take(8_192).len();
            assert!(part > 0, "no further byte after {taken}");
            taken += part;
            fill(&pair, &mut writer);
        }
    }
    pair.advance(29_999);
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(call.is_dropped());
}

#[test]
fn the_last_bytes_of_a_connection_have_1_second() {
    let pair = Pair::new();
    let client = H2Client::over(PairClient::connect_narrow(&pair)).greeted(WINDOW);
    let requests = (0..20).flat_map(|nth| head(2 * nth + 1, "/missing", true));
    let mut bytes: Vec<u8> = requests.collect();
    // PING on a stream.
    let mut wrong = ping(false, b"12345678");
    wrong[8] = 1;
    bytes.extend(wrong);
    client.send(&bytes);
    // The kernel holds only some of the responses.
    assert_eq!(pair.context().stats.requests.value(), 20);
    assert_eq!(pair.context().stats.h2_errors.value(), 1);
    pair.advance(999);
    assert_eq!(pair.open_connections(), 1);
    pair.advance(1);
    assert_eq!(pair.open_connections(), 0);
}
