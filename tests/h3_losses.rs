//! HTTP/3 with lost datagrams: losses in the network, and in the receive buffer of a busy server.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;

use base::limits::UDP_RECEIVE_BYTES;

use crate::h2::server;
use crate::h3::{ask_once, run_scenario_at};
use crate::support::Server;
use crate::support::lossy::LossyPath;

/// Numbers of simultaneous connections, and of pages requested over each connection.
const CONNECTIONS: usize = 20;
const PAGES: usize = 10;

#[test]
fn every_request_is_answered_though_datagrams_are_lost_and_reordered() {
    for seed in [1, 0x9e37_79b9_7f4a_7c15] {
        let server = server("");
        let path = LossyPath::begin(server.https_port, seed);
        let scene = ["many", &CONNECTIONS.to_string(), &PAGES.to_string()];
        let said = run_scenario_at(path.port(), &scene);
        assert_eq!(said, format!("{} answers", CONNECTIONS * PAGES));
        let counts = path.counts();
        let all = [&counts.lost, &counts.repeated, &counts.reordered];
        let all = all.map(|count| count.load(Ordering::Relaxed));
        assert!(all.iter().all(|count| *count > 20), "{all:?}");
        assert_eq!(server.counter("h3_errors"), 0);
        assert_eq!(server.counter("panics"), 0);
    }
}

/// Returns the minimum number of 1,200-byte datagrams that the server's receive buffer holds. The kernel
/// doubles the requested size, caps the size at `net.core.rmem_max`, and charges 2,304 bytes for each
/// 1,200-byte datagram.
fn receive_buffer_datagrams() -> usize {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("a limit");
    let allowed: usize = allowed.trim().parse().expect("a number");
    2 * allowed.min(UDP_RECEIVE_BYTES) / 2_500
}

/// Sends datagrams while the server is stopped, so that all datagrams are in the receive buffer at the same
/// time.
fn send_while_stopped(server: &Server, count: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket
        .connect(("127.0.0.1", server.https_port))
        .expect("a port");
    server.while_stopped(|| {
        for _ in 0..count {
            socket.send(&[0; 1_200]).expect("sent");
        }
    });
}

/// A receive buffer of the usual default size holds 92 datagrams.
#[test]
fn datagrams_wait_in_the_receive_buffer_while_the_server_is_busy() {
    let server = server("");
    let room = receive_buffer_datagrams();
    assert!(room > 120, "{room}");
    send_while_stopped(&server, room);
    assert_eq!(ask_once(&server), "200");
    assert_eq!(server.counter("datagrams_lost"), 0);
}

#[test]
fn lost_datagrams_are_counted() {
    let server = server("");
    let room = 2 * UDP_RECEIVE_BYTES / 2_304;
    send_while_stopped(&server, 2 * room);
    assert_eq!(ask_once(&server), "200");
    let lost = server.counter("datagrams_lost");
    assert!(
        (room as u64 - 500..=2 * room as u64).contains(&lost),
        "{lost}"
    );
}
