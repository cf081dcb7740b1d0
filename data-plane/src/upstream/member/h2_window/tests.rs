//! Windows of responses over HTTP/2, and the round trips of a response from a member that uses the whole window.

use crate::ledger::body_memory::{BodyAccount, BodyMemory, WorkerBodyMemory};
use crate::limits::{CALL_RESERVED_BYTES, PIPE_BYTES};
use crate::upstream::member::address::ConnOrigin;
use crate::upstream::member::h2_conn::{H2MemberConn, H2RequestStream};
use crate::upstream::member::h2_mailbox::ResponsePart;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wire::field_section::FieldSection;
use wire::h2::frame::{self, END_HEADERS, END_STREAM, H2FrameHeader, HEADER_BYTES};
use wire::h2::hpack::HpackScratch;
use wire::h2::{H2ClientEvent, UploadLength};
use wire::limits::H2_MEMBER_STREAM_WINDOW_BYTES;
use wire::limits::HeadLimits;
use wire::request_head::Method;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const FIRST: usize = H2_MEMBER_STREAM_WINDOW_BYTES as usize;

fn account(memory: &Arc<BodyMemory>) -> BodyAccount {
    WorkerBodyMemory::new(memory, 1).admit(CLIENT).unwrap()
}

/// Connection to a member that sends as much as the window allows.
struct Member {
    conn: H2MemberConn,
    next: u32,
    /// Window of the current stream.
    window: usize,
    /// Number of WINDOW_UPDATE frames for streams.
    updates: usize,
}

impl Member {
    fn new() -> Member {
        let mut member = Member {
            conn: H2MemberConn::new(false, ConnOrigin::default(), None),
            next: 1,
            window: 0,
            updates: 0,
        };
        let mut settings = Vec::new();
        frame::header(&mut settings, 0, frame::SETTINGS, 0, 0);
        member.receive(&settings);
        member
    }

    /// Begins a request. The member's window is the first one, with the updates sent along.
    fn get(&mut self, memory: &BodyAccount) -> H2RequestStream {
        let stream = self.conn.begin(
            CLIENT.into(),
            b"\x82",
            Method::Get,
            UploadLength::None,
            memory,
        );
        self.window = FIRST;
        self.read_updates(self.next);
        stream
    }

    /// Passes frames of the member to the connection, as the connection's task does.
    fn receive(&mut self, bytes: &[u8]) {
        let (mut section, mut strings) = (FieldSection::default(), HpackScratch::default());
        let mut state = self.conn.0.borrow_mut();
        let mut input = bytes;
        loop {
            let limits = HeadLimits::default();
            let received = state
                .h2
                .receive(&mut input, &mut section, &mut strings, &limits, 0);
            match received.unwrap() {
                H2ClientEvent::More => break,
                H2ClientEvent::Response { work, ended } => {
                    work.push_head(std::mem::take(&mut section), ended);
                }
                H2ClientEvent::Data { work, bytes, ended } => {
                    state.h2.release_connection_capacity(bytes.len() as u32);
                    work.push_content(bytes, ended);
                }
                H2ClientEvent::Handled => {}
                _ => panic!("unexpected event"),
            }
        }
        assert!(input.is_empty());
    }

    /// Takes the output, and counts the updates for the stream `id`.
    fn read_updates(&mut self, id: u32) {
        let out = std::mem::take(&mut self.conn.0.borrow_mut().h2.out);
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let mut rest = out.strip_prefix(&preface[..]).unwrap_or(&out);
        while let Some(header) = rest.first_chunk().map(H2FrameHeader::parse) {
            let (this, after) = rest.split_at(HEADER_BYTES + header.length);
            if header.kind == frame::WINDOW_UPDATE && header.stream == id {
                let more = this
                    .last_chunk()
                    .map_or(0, |more| u32::from_be_bytes(*more));
                self.window += more as usize;
                self.updates += 1;
            }
            rest = after;
        }
    }

    /// Sends a response of `length` bytes, with Content-Length if `is_known`, to a client that takes all. Returns the
    /// number of round trips.
    fn respond(&mut self, stream: &mut H2RequestStream, length: usize, is_known: bool) -> usize {
        let id = self.next;
        self.next += 2;
        let mut block = vec![0x88];
        if is_known {
            let digits = length.to_string();
            block.extend_from_slice(b"\0\x0econtent-length");
            block.push(digits.len() as u8);
            block.extend_from_slice(digits.as_bytes());
        }
        let mut bytes = Vec::new();
        frame::header(&mut bytes, block.len(), frame::HEADERS, END_HEADERS, id);
        bytes.extend_from_slice(&block);
        let mut left = length;
        for trip in 1.. {
            while left > 0 && self.window > 0 {
                let part = left.min(self.window).min(16_384);
                left -= part;
                self.window -= part;
                let flags = if left == 0 { END_STREAM } else { 0 };
                frame::header(&mut bytes, part, frame::DATA, flags, id);
                bytes.resize(bytes.len() + part, b'x');
            }
            self.receive(&std::mem::take(&mut bytes));
            if trip == 1 {
                stream.expect_content(is_known.then_some(length as u64));
            }
            if take_all(stream) {
                return trip;
            }
            self.read_updates(id);
        }
        0
    }
}

/// Takes the received content. Returns true at the end.
fn take_all(stream: &mut H2RequestStream) -> bool {
    let cx = Context::from_waker(Waker::noop());
    loop {
        match stream.poll_content(&cx, PIPE_BYTES, |_| ()) {
            Poll::Ready(Ok(ResponsePart::Bytes(_))) => {}
            Poll::Ready(Ok(ResponsePart::End(_))) => return true,
            Poll::Ready(Err(failure)) => panic!("{failure:?}"),
            Poll::Pending => return false,
        }
    }
}

#[test]
fn waiting_responses_take_no_memory_beyond_their_calls() {
    let memory = BodyMemory::new(1 << 20);
    let worker = WorkerBodyMemory::new(&memory, 1);
    let mut member = Member::new();
    let calls: Vec<_> = (0..90)
        .map(|_| {
            let account = worker.admit(CLIENT).unwrap();
            (
                member.conn.begin(
                    CLIENT.into(),
                    b"\x82",
                    Method::Get,
                    UploadLength::None,
                    &account,
                ),
                account,
            )
        })
        .collect();
    let reserved = calls.len() * CALL_RESERVED_BYTES;
    // The ledger counts the unused rest of the worker's batch as well.
    assert!(
        memory.bytes() < reserved + 2 * ((1 << 20) / 64),
        "{}",
        memory.bytes()
    );
    // Unread content of each response fits into the first window.
    let mut bytes = Vec::new();
    for id in (1..180).step_by(2) {
        frame::header(&mut bytes, 1, frame::HEADERS, END_HEADERS, id);
        bytes.push(0x88);
        frame::header(&mut bytes, FIRST, frame::DATA, 0, id);
        bytes.resize(bytes.len() + FIRST, b'x');
    }
    member.receive(&bytes);
    assert!(memory.bytes() < reserved + 2 * ((1 << 20) / 64));
}

#[test]
fn a_long_response_needs_one_more_round_trip_and_the_next_none() {
    let memory = BodyMemory::new(64 << 20);
    for is_known in [true, false] {
        let mut member = Member::new();
        let trips = [64_000, 64_000, 1 << 20, 1_000, 64_000, 100, 200].map(|length| {
            let memory = account(&memory);
            let mut stream = member.get(&memory);
            let trips = member.respond(&mut stream, length, is_known);
            (trips, std::mem::take(&mut member.updates))
        });
        // Number of round trips and of updates of the window.
        let updates = if is_known { 0 } else { 1 };
        let expected = [
            (2, 1 + updates),
            (1, 1),
            (16, 16),
            (1, 1),
            (2, 1 + updates),
            (1, 1),
            (1, 0),
        ];
        assert_eq!(trips, expected, "{is_known}");
    }
}

#[test]
fn a_long_response_completes_without_memory() {
    let memory = BodyMemory::new(64 << 20);
    let full = account(&memory);
    full.reserve(40 << 20);
    let mut member = Member::new();
    let call = account(&memory);
    let before = memory.bytes();
    let mut stream = member.get(&call);
    let trips = member.respond(&mut stream, 64_000, true);
    assert!((16..32).contains(&trips), "{trips}");
    assert!(memory.bytes() <= before);
    // Memory is free again.
    drop(full);
    let mut stream = member.get(&call);
    assert_eq!(member.respond(&mut stream, 64_000, true), 1);
}

#[test]
fn a_window_takes_no_more_memory_than_the_response_needs() {
    let memory = BodyMemory::new(64 << 20);
    let call = account(&memory);
    let mut member = Member::new();
    let mut stream = member.get(&call);
    let before = memory.bytes();
    member.respond(&mut stream, 10_000, true);
    drop(stream);
    let mut stream = member.get(&call);
    stream.expect_content(Some(3_000));
    drop(stream);
    assert_eq!(memory.bytes(), before);
}
