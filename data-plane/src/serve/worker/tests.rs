//! Tests of accepting from a listening socket that two processes share.

use super::*;
use crate::limits::Limits;
use crate::serve::pair::{Pair, PairCall, PairWorld};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

const CALL: &[u8] = b"GET /call HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Starts a worker that accepts on a socket, at most `connections`. The listener shares the socket, like another process.
fn accepting(connections: usize) -> (Pair, TcpListener) {
    let limits = Limits {
        connections,
        ..Limits::default()
    };
    let pair = Pair::serving(PairWorld {
        limits,
        ..PairWorld::default()
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    pair.listen(listener.try_clone().expect("a socket"));
    (pair, listener)
}

/// Connects, and sends a request that a handler answers.
fn call(listener: &TcpListener) -> TcpStream {
    let address = listener.local_addr().expect("an address");
    let mut client = TcpStream::connect(address).expect("a connection");
    client.write_all(CALL).expect("room");
    client.set_nonblocking(true).expect("a socket");
    client
}

/// Takes the next call, for which the worker may have to accept a connection first.
fn next_call(pair: &Pair) -> PairCall {
    let mut next = None;
    pair.settle_until(|| {
        next = next.take().or_else(|| pair.next_call());
        next.is_some()
    });
    next.expect("a call")
}

/// Returns true if the connection is open, and without a byte of the server.
fn is_waiting(mut client: &TcpStream) -> bool {
    let read = client.read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Returns true if the kernel holds a connection that no process has accepted.
fn has_queue(listener: &TcpListener) -> bool {
    let mut events = [PollFd::new(listener, PollFlags::IN)];
    let now = Timespec::default();
    rustix::event::poll(&mut events, Some(&now)).is_ok_and(|count| count > 0)
}

fn command(pair: &Pair, command: impl FnOnce(oneshot::Sender<()>) -> WorkerCommand) {
    let (done, mut answer) = oneshot::channel();
    pair.command(command(done));
    assert!(answer.try_recv().is_ok());
}

#[test]
fn a_paused_worker_leaves_connections_to_the_kernel() {
    let (pair, listener) = accepting(9);
    let _first = call(&listener);
    let mut under_way = next_call(&pair);
    command(&pair, WorkerCommand::Pause);
    let second = call(&listener);
    pair.advance(5_000);
    assert!(pair.next_call().is_none() && pair.open_connections() == 1);
    assert!(is_waiting(&second));
    under_way.answer(b"answer");
    command(&pair, WorkerCommand::Resume);
    next_call(&pair).answer(b"answer");
    assert_eq!(pair.open_connections(), 2);
}

#[test]
fn a_connection_in_the_queue_goes_to_the_other_process() {
    let (pair, listener) = accepting(9);
    command(&pair, WorkerCommand::Pause);
    let client = call(&listener);
    pair.leave(3_600);
    pair.advance(100);
    assert!(pair.has_ended());
    assert!(is_waiting(&client));
    let (mut taken, _) = listener.accept().expect("a connection in the queue");
    let mut request = [0; CALL.len()];
    taken.read_exact(&mut request).expect("the request");
    assert_eq!(request, CALL);
}

#[test]
fn connections_that_wait_for_a_place_go_on_waiting() {
    let (pair, listener) = accepting(1);
    let first = call(&listener);
    let mut under_way = next_call(&pair);
    let second = call(&listener);
    let third = call(&listener);
    // The worker accepts both connections before their places.
    pair.settle_until(|| !has_queue(&listener));
    command(&pair, WorkerCommand::Pause);
    pair.advance(1_000);
    assert!(pair.next_call().is_none() && is_waiting(&second) && is_waiting(&third));
    under_way.answer(b"answer");
    drop(first);
    let mut under_way = next_call(&pair);
    pair.leave(3_600);
    assert!(is_waiting(&third) && !pair.has_ended());
    under_way.answer(b"answer");
    drop(second);
    next_call(&pair).answer(b"answer");
    assert!(!pair.has_ended());
    drop(third);
    pair.settle_until(|| pair.open_connections() == 0);
    pair.advance(200);
    assert!(pair.has_ended());
}
