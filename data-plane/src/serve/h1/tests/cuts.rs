//! An exchange of HTTP/1.1 that is split or cut at every byte, compared with the whole exchange.

use super::*;
use crate::serve::pair::{PairCall, PairEnd, write_some};
use wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};

/// Requests of several kinds on one connection, each with the end of its response.
const REQUESTS: [&[u8]; 5] = [
    MISSING,
    b"POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n0123456789",
    b"POST /echo HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
        4\r\nabcd\r\n6;x=y\r\nefghij\r\n0\r\nTrailer-Line: x\r\n\r\n",
    b"POST /missing HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n01234",
    b"GET /echo HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
];

/// A response as its client understands it.
#[derive(PartialEq, Eq, Debug)]
struct Parsed {
    head: String,
    content: Vec<u8>,
    is_complete: bool,
}

/// Parses responses. Only the last may be incomplete; an incomplete head is left out.
fn parse(mut bytes: &[u8]) -> Vec<Parsed> {
    let mut responses = Vec::new();
    while let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
        let (head, rest) = bytes.split_at(end + 4);
        let head = String::from_utf8(head.to_vec()).expect("a head");
        let length = head.split_once("Content-Length: ").map(|(_, value)| {
            let digits = value.split("\r\n").next().expect("a value");
            BodyLength::Length(digits.parse().expect("a length"))
        });
        let mut decoder = BodyDecoder::new(length.unwrap_or(BodyLength::Chunked));
        let (mut content, mut at) = (Vec::new(), 0);
        let is_complete = loop {
            match decoder.step(&rest[at..]).expect("sound content") {
                BodyStep::Data { consumed, payload } => {
                    content.extend_from_slice(&rest[at..][payload]);
                    at += consumed;
                }
                BodyStep::More { .. } => break false,
                BodyStep::End { consumed } => {
                    at += consumed;
                    break true;
                }
            }
        };
        responses.push(Parsed {
            head,
            content,
            is_complete,
        });
        if !is_complete {
            break;
        }
        bytes = &rest[at..];
    }
    responses
}

/// Sends the parts one after the other on a new connection, and returns the responses.
fn exchange(pair: &Pair, parts: &[&[u8]]) -> Vec<Parsed> {
    let mut client = PairClient::connect(pair);
    let mut received = Vec::new();
    for part in parts {
        client.send_some(part);
        received.extend_from_slice(&client.receive());
    }
    assert!(client.end.is_some());
    assert_eq!(pair.open_connections(), 0);
    parse(&received)
}

#[test]
fn requests_may_be_split_at_every_byte() {
    let pair = Pair::new();
    let requests = REQUESTS.concat();
    let whole = exchange(&pair, &[&requests]);
    assert_eq!(whole.len(), REQUESTS.len());
    assert!(whole.iter().all(|response| response.is_complete));
    let contents: Vec<_> = whole.iter().map(|it| it.content.as_slice()).collect();
    assert_eq!(contents[1..3], [b"0123456789", b"abcdefghij"]);
    for at in 1..requests.len() {
        let (first, second) = requests.split_at(at);
        assert_eq!(exchange(&pair, &[first, second]), whole, "{at}");
    }
    let bytes: Vec<_> = requests.chunks(1).collect();
    assert_eq!(exchange(&pair, &bytes), whole);
}

#[test]
fn a_cut_request_gets_no_response_of_its_own() {
    let pair = Pair::new();
    let requests = REQUESTS.concat();
    let whole = exchange(&pair, &[&requests]);
    for at in 0..requests.len() {
        let mut client = PairClient::connect(&pair);
        client.send(&requests[..at]);
        client.finish();
        let responses = parse(&client.receive());
        assert!(client.end.is_some(), "{at}");
        assert_eq!(pair.open_connections(), 0, "{at}");
        let mut end = 0;
        let complete = REQUESTS.iter().take_while(|request| {
            end += request.len();
            end <= at
        });
        let complete = complete.count();
        assert_eq!(responses[..complete], whole[..complete], "{at}");
        // A handler may have begun its response to the cut request.
        for (cut, response) in responses[complete..].iter().zip(&whole[complete..]) {
            assert!(!cut.is_complete, "{at}");
            assert_eq!(cut.head, response.head, "{at}");
            assert!(response.content.starts_with(&cut.content), "{at}");
        }
        assert!(responses.len() <= complete + 1, "{at}");
    }
}

#[test]
fn a_lost_client_leaves_nothing_behind() {
    let pair = Pair::new();
    let requests = REQUESTS.concat();
    for at in 0..requests.len() {
        let client = PairClient::connect(&pair);
        client.send(&requests[..at]);
        client.close();
        assert_eq!(pair.open_connections(), 0, "{at}");
    }
    assert_eq!(pair.context().stats.panics.value(), 0);
}

/// Begins a call. The response has the content `0123456789`, in chunks or with its length.
fn responding(pair: &Pair, has_length: bool) -> (PairClient, PairCall, PipeWriter) {
    let client = PairClient::connect(pair);
    client.send(CALL);
    let mut call = pair.call();
    let writer = call.stream(has_length.then_some(10));
    pair.settle();
    (client, call, writer)
}

const CONTENT: &[u8] = b"0123456789";

#[test]
fn a_response_may_be_split_at_every_byte() {
    let pair = Pair::new();
    for has_length in [false, true] {
        for at in 0..=CONTENT.len() {
            let (mut client, call, mut writer) = responding(&pair, has_length);
            let mut received = Vec::new();
            for part in [&CONTENT[..at], &CONTENT[at..]] {
                assert_eq!(write_some(&mut writer, part), part.len());
                received.extend_from_slice(&client.receive());
            }
            writer.finish();
            received.extend_from_slice(&client.receive());
            let responses = parse(&received);
            let [response] = responses.as_slice() else {
                panic!("{responses:?}");
            };
            assert!(response.is_complete && response.content == CONTENT, "{at}");
            assert!(call.is_dropped() && client.end.is_none());
        }
    }
}

#[test]
fn a_response_that_the_handler_breaks_off_is_incomplete() {
    let pair = Pair::new();
    for has_length in [false, true] {
        for at in 0..=CONTENT.len() {
            let (mut client, call, mut writer) = responding(&pair, has_length);
            write_some(&mut writer, &CONTENT[..at]);
            drop(writer);
            let responses = parse(&client.receive());
            let [response] = responses.as_slice() else {
                panic!("{responses:?}");
            };
            // All bytes of the announced length are there, and the client can't see the missing end.
            let is_whole = has_length && at == CONTENT.len();
            assert_eq!(response.is_complete, is_whole, "{at}");
            assert_eq!(response.content, CONTENT[..at]);
            assert!(client.end.is_some() && call.is_dropped(), "{at}");
        }
    }
}

#[test]
fn only_a_complete_response_without_framing_ends_with_an_end() {
    for is_complete in [false, true] {
        let pair = Pair::new();
        let mut client = PairClient::connect_tcp(&pair);
        client.send(b"GET /call HTTP/1.0\r\nHost: a.test\r\n\r\n");
        let mut call = None;
        pair.settle_until(|| {
            call = pair.next_call();
            call.is_some()
        });
        let mut writer = call.expect("a call").stream(None);
        write_some(&mut writer, CONTENT);
        if is_complete {
            writer.finish();
            assert!(client.receive_to_end().ends_with(b"\r\n\r\n0123456789"));
            assert_eq!(client.end, Some(PairEnd::Closed));
        } else {
            pair.settle();
            drop(writer);
            client.receive_to_end();
            assert_eq!(client.end, Some(PairEnd::Reset));
        }
    }
}

#[test]
fn a_client_that_leaves_at_any_byte_of_a_response_ends_the_call() {
    let pair = Pair::new();
    let length = {
        let (mut client, _call, mut writer) = responding(&pair, false);
        write_some(&mut writer, CONTENT);
        client.receive().len()
    };
    for at in 0..=length {
        for is_lost in [false, true] {
            let (mut client, call, mut writer) = responding(&pair, false);
            write_some(&mut writer, CONTENT);
            pair.settle();
            assert_eq!(client.take(at).len(), at);
            assert!(!call.is_dropped());
            if is_lost {
                client.close();
            } else {
                client.finish();
            }
            assert!(call.is_dropped(), "{at} {is_lost}");
            assert_eq!(pair.open_connections(), 0, "{at} {is_lost}");
            drop(writer);
        }
    }
}
