//! What a stored page costs on a warm connection, in system calls: one read and one write.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::wire::{BOTH, Over, Wire, wait_until};
use crate::support::{Folder, Server, lossy, server_table, site_table, tool};

const WARM: usize = 10;
const COUNTED: usize = 100;

#[test]
fn a_warm_page_costs_one_read_and_one_write() {
    for over in BOTH {
        // Within one packet, and in several.
        for size in [500, 5_100] {
            let mut calls = calls_of_warm_requests(over, size);
            // The allocator's lock is everybody's, and the folder may be looked at just then. What comes
            // of that is taken up with a word to the thread that has looked, which is woken by a write.
            calls.retain(|call| !call.contains("futex") && call != "write");
            assert!(calls.len() + COUNTED / 4 >= 2 * COUNTED, "{calls:?}");
            // What is left may begin in the middle of a request.
            let begun = calls.iter().position(|call| call == "receive").unwrap_or(0);
            let calls = &calls[begun..];
            let expected = ["receive", "send"].into_iter().cycle();
            let odd = calls
                .iter()
                .zip(expected)
                .position(|(call, expected)| call != expected);
            assert_eq!(odd, None, "{size} bytes over {over:?}: {calls:?}");
        }
    }
}

/// The system calls of the worker for [`COUNTED`] requests, but for its waiting.
fn calls_of_warm_requests(over: Over, size: usize) -> Vec<String> {
    // No text: while it is compressed in the background, two threads share one allocator.
    let folder = Folder::new().with("public/page.bin", "x".repeat(size));
    let trace = folder.path("trace");
    // -D: the server is our child, and strace its companion that ends with it.
    let mut strace = Command::new(tool("strace"));
    strace
        .args(["-D", "-f", "-qq", "-s", "0", "-o"])
        .arg(&trace);
    strace.arg(env!("CARGO_BIN_EXE_anthill"));
    let config = server_table("") + "[log]\naccess = \"off\"\n" + &site_table("http = \"serve\"");
    let server = Server::start_by(strace, folder, &config);
    let mut wire = Wire::over(&server, over);
    for _ in 0..WARM + COUNTED {
        assert_eq!(wire.get("/page.bin", "").body.len(), size);
    }
    wait_until(Duration::from_secs(60), "traced", || {
        let text = lossy(&fs::read(&trace).expect("a trace"));
        let begun = text.lines().filter_map(|line| {
            let (thread, call) = line.split_once(' ')?;
            let (name, _) = call.trim_start().split_once('(')?;
            Some((thread, name))
        });
        let begun: Vec<_> = begun.collect();
        // The worker is who reads from connections. On 32 bits, these calls have shorter names.
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
        (sends >= WARM + COUNTED).then(|| calls.split_off(end - 2 * COUNTED))
    })
}
