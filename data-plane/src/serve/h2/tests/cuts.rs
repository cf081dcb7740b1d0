//! An exchange of HTTP/2 that is split or cut at every byte, compared with the whole exchange.

use super::*;

/// Returns the frames of an exchange on several streams.
fn exchange_frames() -> Vec<Vec<u8>> {
    vec![
        greeting(WINDOW),
        head(1, "/missing", true),
        head(3, "/echo", false),
        data(3, b"01234", false),
        head(5, "/echo", false),
        data(5, b"abcdefghij", true),
        window(0, 1),
        data(3, b"56789", true),
        ping(false, b"12345678"),
        head(7, "/missing", false),
        data(7, b"x", true),
    ]
}

/// Sends the parts one after the other on a new connection, and returns the responses.
fn exchange(pair: &Pair, parts: &[&[u8]]) -> (Responses, H2Client) {
    let mut client = H2Client::silent(pair);
    let mut all = Responses::default();
    for part in parts {
        client.send(part);
        let (frames, responses) = client.receive_with_content();
        let is_error = |frame: &Frame| matches!(frame, Frame::Goaway { .. } | Frame::Reset { .. });
        assert!(!frames.iter().any(is_error), "{frames:?}");
        all.append(responses);
    }
    (all, client)
}

#[test]
fn requests_may_be_split_at_every_byte() {
    let pair = Pair::new();
    let bytes = exchange_frames().concat();
    let (whole, _) = exchange(&pair, &[&bytes]);
    let ids: Vec<_> = whole.streams.iter().map(|it| it.id).collect();
    assert_eq!(ids, [1, 3, 5, 7]);
    assert!(whole.streams.iter().all(|it| it.ended));
    assert_eq!(whole.streams[1].content, b"0123456789");
    assert_eq!(whole.streams[2].content, b"abcdefghij");
    for at in 1..bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(exchange(&pair, &[first, second]).0, whole, "{at}");
    }
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(exchange(&pair, &single).0, whole);
}

#[test]
fn a_cut_exchange_is_a_part_of_the_whole_one() {
    let pair = Pair::new();
    let frames = exchange_frames();
    let bytes = frames.concat();
    let (whole, _) = exchange(&pair, &[&bytes]);
    // Ends of the requests in the order of `whole.streams`.
    let end_of = |frame: usize| -> usize { frames[..=frame].iter().map(Vec::len).sum() };
    let ends = [end_of(1), end_of(7), end_of(5), end_of(10)];
    for at in 0..bytes.len() {
        let mut client = H2Client::silent(&pair);
        client.send(&bytes[..at]);
        let (_, mut responses) = client.receive_with_content();
        client.client.finish();
        let (_, more) = client.receive_with_content();
        responses.append(more);
        assert!(client.client.end.is_some(), "{at}");
        assert_eq!(pair.open_connections(), 0, "{at}");
        for (expected, end) in whole.streams.iter().zip(ends) {
            let found = responses.streams.iter().find(|it| it.id == expected.id);
            match found {
                Some(found) if end <= at => assert_eq!(found, expected, "{at}"),
                None => assert!(end > at, "{at}"),
                Some(found) => {
                    assert_eq!(found.status, expected.status, "{at}");
                    assert!(expected.content.starts_with(&found.content), "{at}");
                    // A response may be complete before its request.
                    assert!(!found.ended || found.status == 404, "{at}");
                }
            }
        }
    }
}

#[test]
fn a_lost_client_leaves_nothing_behind() {
    let pair = Pair::new();
    let bytes = exchange_frames().concat();
    for at in 0..bytes.len() {
        let client = H2Client::silent(&pair);
        client.send(&bytes[..at]);
        client.client.close();
        assert_eq!(pair.open_connections(), 0, "{at}");
    }
    assert_eq!(pair.context().stats.panics.value(), 0);
}

const CONTENT: &[u8] = b"0123456789";

/// Begins a call. The response has the content `0123456789`.
fn responding(pair: &Pair, has_length: bool) -> (H2Client, PairCall, PipeWriter) {
    let client = H2Client::connect(pair);
    client.send(&head(1, "/call", true));
    let mut call = pair.call();
    let writer = call.stream(has_length.then_some(10));
    pair.settle();
    (client, call, writer)
}

#[test]
fn a_response_may_be_split_at_every_byte() {
    let pair = Pair::new();
    for has_length in [false, true] {
        for at in 0..=CONTENT.len() {
            let (mut client, call, mut writer) = responding(&pair, has_length);
            let mut all = Responses::default();
            for part in [&CONTENT[..at], &CONTENT[at..]] {
                assert_eq!(write_some(&mut writer, part), part.len());
                all.append(client.receive_with_content().1);
            }
            assert!(!all.streams[0].ended);
            writer.finish();
            all.append(client.receive_with_content().1);
            assert!(all.streams[0].ended && all.streams[0].content == CONTENT);
            assert!(call.is_dropped() && client.client.end.is_none());
        }
    }
}

#[test]
fn a_response_that_the_handler_breaks_off_resets_its_stream() {
    let pair = Pair::new();
    for has_length in [false, true] {
        for at in 0..=CONTENT.len() {
            let (mut client, call, mut writer) = responding(&pair, has_length);
            write_some(&mut writer, &CONTENT[..at]);
            drop(writer);
            let (frames, responses) = client.receive_with_content();
            let expected = stream_reset(1, H2ErrorCode::INTERNAL_ERROR);
            assert_eq!(frames.last(), Some(&expected), "{at}");
            assert!(!responses.streams[0].ended);
            assert_eq!(responses.streams[0].content, CONTENT[..at]);
            assert!(call.is_dropped() && client.client.end.is_none());
        }
    }
}

#[test]
fn a_client_that_leaves_at_any_byte_of_a_response_ends_the_call() {
    let pair = Pair::new();
    let length = {
        let (mut client, _call, mut writer) = responding(&pair, false);
        write_some(&mut writer, CONTENT);
        client.client.receive().len()
    };
    for at in 0..=length {
        for is_lost in [false, true] {
            let (mut client, call, mut writer) = responding(&pair, false);
            write_some(&mut writer, CONTENT);
            pair.settle();
            assert_eq!(client.client.take(at).len(), at);
            assert!(!call.is_dropped());
            if is_lost {
                client.client.close();
            } else {
                client.client.finish();
            }
            assert!(call.is_dropped(), "{at} {is_lost}");
            assert_eq!(pair.open_connections(), 0, "{at} {is_lost}");
            drop(writer);
        }
    }
}
