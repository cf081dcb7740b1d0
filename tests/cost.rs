//! System calls of a worker for a stored page on a warm connection: one read and one write.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::wire::{BOTH, Over, Wire, wait_until};
use crate::support::{Folder, Server, lossy, server_table, site_table, tool};

const WARM: usize = 10;
const COUNTED: usize = 100;
const ROUNDS_MAX: usize = 50;

#[test]
fn a_warm_page_costs_one_read_and_one_write() {
    for over in BOTH {
        // Responses within one packet, and across several packets.
        for size in [500, 5_100] {
            let mut traced = Traced::start(over, size);
            // After its start the server compares pages with the disk until the server has read the changes
            // reported by inotify in the meantime. On a busy machine the comparison takes several rounds.
            let mut odd = Vec::new();
            let is_settled = (0..ROUNDS_MAX).any(|_| {
                odd = traced.calls_of_a_round();
                is_one_read_and_one_write(&odd)
            });
            assert!(is_settled, "{size} bytes over {over:?}: {odd:?}");
        }
    }
}

/// Returns true if `calls` alternate between one receive and one send for each request.
fn is_one_read_and_one_write(calls: &[String]) -> bool {
    // All threads share the allocator's lock (futex). Another thread may scan the folder meanwhile; the
    // worker wakes the scanning thread by a write to take its result.
    let calls = calls
        .iter()
        .filter(|call| !call.contains("futex") && *call != "write");
    // The first call may be in the middle of a request.
    let calls: Vec<&String> = calls.skip_while(|call| *call != "receive").collect();
    let expected = ["receive", "send"].into_iter().cycle();
    calls.len() + COUNTED / 4 >= 2 * COUNTED
        && calls
            .iter()
            .zip(expected)
            .all(|(call, expected)| *call == expected)
}

/// A server under strace and a client's connection to it.
struct Traced {
    /// The access log is off, so the worker writes to the client alone.
    _server: Server,
    wire: Wire,
    /// The file that strace writes.
    trace: PathBuf,
    size: usize,
    /// The number of requests so far.
    requests: usize,
}

impl Traced {
    /// Starts a server with a page of `size` bytes and sends [`WARM`] requests over `over`.
    fn start(over: Over, size: usize) -> Traced {
        // A page of text would be compressed in the background by a second thread, and both threads
        // share one allocator.
        let folder = Folder::new().with("public/page.bin", "x".repeat(size));
        let trace = folder.path("trace");
        // -D: the server is the child of this process, and strace a grandchild that ends with the server.
        let mut strace = Command::new(tool("strace"));
        strace
            .args(["-D", "-f", "-qq", "-s", "0", "-o"])
            .arg(&trace);
        strace.arg(crate::support::program());
        let config =
            server_table("") + "[log]\naccess = \"off\"\n" + &site_table("http = \"serve\"");
        let server = Server::start_by(strace, folder, &config);
        let wire = Wire::over(&server, over);
        let mut traced = Traced {
            _server: server,
            wire,
            trace,
            size,
            requests: 0,
        };
        traced.request(WARM);
        traced
    }

    /// Sends `count` requests, one after the other.
    fn request(&mut self, count: usize) {
        for _ in 0..count {
            assert_eq!(self.wire.get("/page.bin", "").body.len(), self.size);
        }
        self.requests += count;
    }

    /// Returns the worker's system calls for [`COUNTED`] further requests, without its waits.
    fn calls_of_a_round(&mut self) -> Vec<String> {
        self.request(COUNTED);
        wait_until(Duration::from_secs(60), "traced", || {
            let text = lossy(&fs::read(&self.trace).expect("a trace"));
            let begun = text.lines().filter_map(|line| {
                let (thread, call) = line.split_once(' ')?;
                let (name, _) = call.trim_start().split_once('(')?;
                Some((thread, name))
            });
            let begun: Vec<_> = begun.collect();
            // The worker is the thread with reads from connections. On 32 bits, the system calls have
            // shorter names.
            let is_receive = |name: &str| matches!(name, "recvfrom" | "recv");
            let (worker, _) = begun.iter().rfind(|(_, name)| is_receive(name))?;
            let of_worker = begun.iter().filter(|(thread, _)| thread == worker);
            let mut calls: Vec<String> = of_worker
                .map(|(_, name)| match *name {
                    name if is_receive(name) => "receive".to_owned(),
                    "sendto" | "send" | "writev" => "send".to_owned(),
                    other => other.to_owned(),
                })
                .filter(|name| !name.starts_with("epoll_"))
                .collect();
            let sends = calls.iter().filter(|name| *name == "send").count();
            let end = calls.iter().rposition(|name| name == "send")? + 1;
            calls.truncate(end);
            (sends >= self.requests).then(|| calls.split_off(end - 2 * COUNTED))
        })
    }
}
