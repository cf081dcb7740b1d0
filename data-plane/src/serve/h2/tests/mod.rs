//! Tests of whole connections of HTTP/2 under a virtual clock.

mod back_pressure;
mod client;
mod cuts;
mod deadlines;
mod departure;
mod drain;
mod early_end;
mod memory;
mod tunnel;

use crate::handler::pipe::PipeWriter;
use crate::serve::h2::tests::client::{
    Frame, H2Client, Responses, WINDOW, data, data_frames, greeting, head, head_with, ping, reset,
    window,
};
use crate::serve::pair::{Pair, PairCall, PairClient, PairRead, fill, write_some};
use wire::h2::H2ErrorCode;

/// A worker, and a client after the exchange of SETTINGS.
fn connected() -> (Pair, H2Client) {
    let pair = Pair::new();
    let client = H2Client::connect(&pair);
    (pair, client)
}

fn goaway(last: u32, code: H2ErrorCode) -> Frame {
    Frame::Goaway { last, code }
}

fn status(id: u32, status: u16) -> Frame {
    Frame::Head {
        id,
        status,
        ended: false,
    }
}

fn part(id: u32, bytes: usize) -> Frame {
    Frame::Data {
        id,
        bytes,
        ended: false,
    }
}

fn stream_reset(id: u32, code: H2ErrorCode) -> Frame {
    Frame::Reset { id, code }
}

/// Returns the number of content bytes of a stream in `frames`; of all streams for 0.
fn bytes_of(frames: &[Frame], stream: u32) -> usize {
    let bytes = |frame: &Frame| match frame {
        Frame::Data { id, bytes, .. } if stream == 0 || stream == *id => *bytes,
        _ => 0,
    };
    frames.iter().map(bytes).sum()
}

/// Asserts that the server is silent until just before `due_ms` from now, and sends `expected` at `due_ms`.
#[track_caller]
fn assert_sent_after(due_ms: u64, client: &mut H2Client, pair: &Pair, expected: &[Frame]) {
    pair.advance(due_ms - 1);
    assert_eq!(
        (client.receive(), client.client.end),
        (vec![], None),
        "too early"
    );
    pair.advance(1);
    assert_eq!(client.receive(), expected);
}
