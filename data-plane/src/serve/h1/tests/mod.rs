//! Tests of whole connections of HTTP/1.1 under a virtual clock.

mod back_pressure;
mod cuts;
mod deadlines;
mod departure;
mod drain;
mod secure;
mod tunnel;

use crate::handler::pipe::PipeWriter;
use crate::limits::{PIPE_BYTES, UNSENT_BYTES_MAX};
use crate::serve::pair::{Pair, PairClient, PairRead, PairWorld};
use crate::serve::worker::WorkerCommand;
use crate::site::{ContentBudget, Site, SiteRules};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A request without content. The test answers the call.
const CALL: &[u8] = b"GET /call HTTP/1.1\r\nHost: a.test\r\n\r\n";
/// A request for a path that does not exist. The response is made at once.
const MISSING: &[u8] = b"GET /missing HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Returns the head of a POST request to a handler, with `length` bytes of content.
fn post(length: usize) -> Vec<u8> {
    format!("POST /call HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// A worker and a client.
fn connected() -> (Pair, PairClient) {
    let pair = Pair::new();
    let client = PairClient::connect(&pair);
    (pair, client)
}

/// A worker with a site of one file `/file` of `bytes` bytes in memory, and a client. The second value keeps the folder.
fn with_file(bytes: usize) -> (Pair, TempDir, PairClient) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), content(bytes)).expect("a file");
    let budget = Arc::new(ContentBudget::new(64 << 20));
    let site = Site::open(SiteRules::new(folder.path()), budget).expect("a site");
    let pair = Pair::serving(PairWorld {
        site: Some(site),
        ..PairWorld::default()
    });
    // The first request loads the file on another thread.
    let mut client = PairClient::connect(&pair);
    client.send(&get("/file"));
    let mut received = 0;
    pair.settle_until(|| {
        received += client.receive().len();
        received > bytes
    });
    client.close();
    let client = PairClient::connect(&pair);
    (pair, folder, client)
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes()
}

/// Returns bytes of which no two parts of a few bytes are equal.
fn content(bytes: usize) -> Vec<u8> {
    let words =
        (0..bytes as u32 / 4 + 1).flat_map(|nth| nth.wrapping_mul(0x9e37_79b9).to_be_bytes());
    words.take(bytes).collect()
}
