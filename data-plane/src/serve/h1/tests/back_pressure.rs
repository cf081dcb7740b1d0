//! Back-pressure over HTTP/1.1, and the end of one direction.

use super::*;
use crate::limits::{
    CALL_RESERVED_BYTES, PIPE_BYTES_MIN, READ_BUFFER_BYTES, UNFINISHED_HEAD_BYTES_FREE,
    UNSENT_BYTES_MAX,
};
use crate::serve::pair::{PairEnd, fill, write_some};

/// Most bytes that the kernel holds for a narrow connection.
const NARROW_KERNEL_BYTES: usize = 16 * 1024;

// ---- A client that does not read ----

#[test]
fn a_client_that_does_not_read_bounds_the_bytes_of_the_handler() {
    let pair = Pair::new();
    let mut client = PairClient::connect_narrow(&pair);
    client.send(CALL);
    let mut call = pair.call();
    let content = content(1 << 18);
    let mut writer = call.stream(Some(content.len() as u64));
    let mut written = 0;
    loop {
        let more = write_some(&mut writer, &content[written..]);
        pair.settle();
        written += more;
        if more == 0 {
            break;
        }
    }
    let held = written - client.unread();
    // A pipe, and the buffer of the connection.
    assert!(
        (PIPE_BYTES..=PIPE_BYTES + UNSENT_BYTES_MAX).contains(&held),
        "{held}"
    );
    // Bytes that the client takes make room for as many.
    let mut received = Vec::new();
    while written < content.len() {
        let taken = client.take(usize::MAX);
        assert!(!taken.is_empty());
        received.extend_from_slice(&taken);
        written += write_some(&mut writer, &content[written..]);
        pair.settle();
        assert!(written - received.len() <= PIPE_BYTES + UNSENT_BYTES_MAX + NARROW_KERNEL_BYTES);
    }
    writer.finish();
    received.extend_from_slice(&client.receive());
    let (head, body) = received.split_at(received.len() - content.len());
    assert!(head.ends_with(b"\r\n\r\n") && body == content);
    assert!(client.end.is_none());
}

#[test]
fn little_memory_leaves_the_bytes_in_the_pipe() {
    let pair = Pair::serving(PairWorld {
        body_memory_bytes: 2 * CALL_RESERVED_BYTES,
        ..PairWorld::default()
    });
    let client = PairClient::connect_narrow(&pair);
    client.send(&post(100_000));
    let mut call = pair.call();
    client.send_some(&[b'x'; 100_000]);
    // The pipe to the handler stays small.
    assert_eq!(call.request.body.unread(), PIPE_BYTES_MIN);
    let mut writer = call.stream(None);
    let written = fill(&pair, &mut writer);
    let held = written - client.unread();
    assert!(
        (PIPE_BYTES..=PIPE_BYTES + PIPE_BYTES_MIN).contains(&held),
        "{held}"
    );
}

#[test]
fn a_client_that_does_not_read_gets_no_further_responses() {
    let (pair, _folder, client) = with_file(100_000);
    let requests = get("/file").repeat(100);
    client.send(&requests);
    // The kernel holds less than four of the responses, and one more waits in the connection.
    assert!(pair.context().stats.requests.value() < 6);
    assert!(pair.bytes_received() <= 2 * READ_BUFFER_BYTES as u64);
}

// ---- A handler that does not read ----

#[test]
fn a_handler_that_does_not_read_bounds_the_bytes_of_the_client() {
    let (pair, client) = connected();
    let (head, body) = (post(1 << 20), content(1 << 20));
    client.send(&head);
    let mut call = pair.call();
    let sent = client.send_some(&body);
    let taken = pair.bytes_received() as usize - head.len();
    assert_eq!(call.request.body.unread(), PIPE_BYTES);
    assert_eq!(taken, PIPE_BYTES);
    assert!(sent < 1 << 20);
    // Each part that the handler takes makes room for as many bytes.
    let mut received = Vec::new();
    let mut at = sent;
    loop {
        match call.read(10_000) {
            PairRead::Part(part) => {
                assert!(!part.is_empty(), "no further byte after {}", received.len());
                received.extend_from_slice(&part);
            }
            PairRead::End(part) => {
                received.extend_from_slice(&part);
                break;
            }
            PairRead::Broken(_) => panic!("broken"),
        }
        pair.settle();
        at += client.send_some(&body[at..]);
        let taken = pair.bytes_received() as usize - head.len();
        assert!(taken - received.len() <= PIPE_BYTES);
    }
    assert!(received == body);
}

#[test]
fn a_handler_that_wants_no_content_yet_gets_none() {
    let (pair, mut client) = connected();
    client.send(&post(100));
    let mut call = pair.call();
    call.request.body.hold(true);
    client.send(&[b'x'; 100]);
    assert_eq!(call.request.body.unread(), 0);
    pair.advance(100_000);
    assert!(client.hears_nothing());
    call.request.body.hold(false);
    pair.settle();
    assert_eq!(call.read(200), PairRead::End(vec![b'x'; 100]));
}

#[test]
fn the_client_is_asked_for_content_when_the_handler_wants_it() {
    let (pair, mut client) = connected();
    client.send(
        b"POST /call HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
    );
    let mut call = pair.call();
    assert_eq!(client.receive(), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"1234");
    assert_eq!(call.read(9), PairRead::End(b"1234".to_vec()));
    call.answer(b"");
    assert!(client.receive_text().starts_with("HTTP/1.1 200 "));
}

#[test]
fn bytes_of_further_requests_are_bounded_during_a_call() {
    let (pair, mut client) = connected();
    client.send(CALL);
    let mut call = pair.call();
    let before = pair.bytes_received();
    let mut sent = client.send_some(&MISSING.repeat(1_000));
    // The last request is whole.
    sent += client.send_some(&MISSING[sent % MISSING.len()..]);
    let taken = pair.bytes_received() - before;
    let most = READ_BUFFER_BYTES / 2;
    assert_eq!(taken as usize, most);
    call.answer(b"");
    let responses = client.receive_text();
    assert_eq!(
        responses.matches("HTTP/1.1 404 ").count(),
        sent / MISSING.len()
    );
}

#[test]
fn without_memory_fewer_bytes_of_further_requests_are_read() {
    let pair = Pair::serving(PairWorld {
        body_memory_bytes: CALL_RESERVED_BYTES,
        ..PairWorld::default()
    });
    let client = PairClient::connect(&pair);
    client.send(CALL);
    let before = pair.bytes_received();
    client.send_some(&MISSING.repeat(10_000));
    let taken = pair.bytes_received() - before;
    assert_eq!(taken as usize, UNFINISHED_HEAD_BYTES_FREE);
}

#[test]
fn without_memory_for_bodies_no_call_begins() {
    let pair = Pair::serving(PairWorld {
        body_memory_bytes: CALL_RESERVED_BYTES,
        ..PairWorld::default()
    });
    let (mut first, mut second) = (PairClient::connect(&pair), PairClient::connect(&pair));
    first.send(CALL);
    let mut call = pair.call();
    second.send(CALL);
    assert!(second.receive_text().starts_with("HTTP/1.1 503 "));
    assert!(pair.next_call().is_none());
    call.answer(b"");
    assert!(first.receive_text().starts_with("HTTP/1.1 200 "));
    // The end of the call gives its memory back.
    drop(call);
    PairClient::connect(&pair).send(CALL);
    assert!(pair.next_call().is_some());
}

// ---- The end of one direction ----

#[test]
fn a_client_that_has_ended_its_direction_gets_its_response() {
    let (pair, _folder, mut client) = with_file(1 << 20);
    client.send(&get("/file"));
    client.finish();
    let mut received = Vec::new();
    while client.end.is_none() {
        let part = client.take(usize::MAX);
        assert!(!part.is_empty() || client.end.is_some());
        received.extend_from_slice(&part);
    }
    assert!(received.ends_with(&content(1 << 20)));
    assert_eq!(client.end, Some(PairEnd::Closed));
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn a_client_that_ends_its_direction_in_a_head_is_closed() {
    let (pair, mut client) = connected();
    client.send(&CALL[..20]);
    client.finish();
    assert!(client.hears_the_end());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn the_end_of_the_client_ends_its_call() {
    for sends_content in [false, true] {
        for begins in [false, true] {
            let (pair, client) = connected();
            let request = if sends_content { &post(10) } else { CALL };
            client.send(request);
            let mut call = pair.call();
            let writer = begins.then(|| call.stream(None));
            pair.settle();
            assert!(!call.is_dropped());
            client.finish();
            assert!(call.is_dropped(), "{sends_content} {begins}");
            if sends_content {
                assert_eq!(call.read(1), PairRead::Broken(vec![]));
            }
            assert_eq!(pair.open_connections(), 0);
            drop(writer);
        }
    }
}

#[test]
fn the_loss_of_the_client_ends_its_call() {
    for unread in [0, PIPE_BYTES] {
        let (pair, client) = connected();
        client.send(&post(1 << 20));
        let call = pair.call();
        // With a full pipe, the server does not read.
        client.send_some(&vec![b'x'; 2 * unread]);
        client.close();
        assert!(call.is_dropped());
        assert_eq!(pair.open_connections(), 0);
    }
}
