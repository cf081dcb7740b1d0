//! Tests of connection handover, with a backend that accepts and reads on command.

use super::*;
use crate::limits::BACKEND_CONNECTIONS_MAX;
use crate::limits::{
    BACKEND_IDLE_MILLISECONDS, BACKEND_UNREAD_QUEUED_MILLISECONDS,
    BACKEND_UNREAD_RETRY_MILLISECONDS,
};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use wire::fastcgi::HEADER_BYTES;

/// A listening socket of a backend, and the server's side of the backend.
struct TestBackend {
    listener: UnixListener,
    backend: Arc<Backend>,
    _folder: tempfile::TempDir,
}

/// Bytes of every request: the variables and, sent separately, the end of the body.
const REQUEST: &[u8] = b"variables, and the end";
const TIMEOUT: Duration = Duration::from_secs(30);

fn client() -> ClientNetwork {
    std::net::IpAddr::from([127, 0, 0, 1]).into()
}

fn run<F: Future<Output = ()>>(body: impl FnOnce(TestBackend) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let backend =
        Backends::default().find_or_new(&BackendAddress::Unix(path), ReusePolicy::Handover);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let test = TestBackend {
        listener,
        backend,
        _folder: folder,
    };
    tokio::task::LocalSet::new().block_on(&runtime, body(test));
}

impl TestBackend {
    async fn enter(&self) -> CallSlot {
        self.backend
            .enter(client(), false, 100)
            .await
            .expect("a slot")
    }

    /// Sends a request on an idle connection, or on a new connection if none is idle.
    fn send(&self) -> Conn {
        let idle = self.backend.take_idle(ReusePolicy::Handover);
        let idle = idle.or_else(|| self.backend.connect_now());
        let sent = idle
            .expect("a connection")
            .begin(REQUEST, HEADER_BYTES, true);
        let (conn, sent) = sent.expect("a request sent");
        assert_eq!(sent, REQUEST.len());
        let conn = conn.expect("a registered connection");
        self.backend.record_sent(&conn);
        conn
    }

    fn accept(&self) -> UnixStream {
        self.listener.accept().expect("a connection").0
    }

    /// Answers calls until the backend counts as busy.
    async fn until_busy(&self) -> (Conn, CallSlot, UnixStream) {
        loop {
            let slot = self.enter().await;
            let conn = self.send();
            let mut stream = self.accept();
            read_request(&mut stream);
            self.backend.put_idle(conn, ReusePolicy::Handover);
            if self.backend.lock().idle.is_empty() {
                continue;
            }
            // The backend may cease to count as busy soon, so the loop checks once more.
            let again = self.send();
            self.listener.set_nonblocking(true).expect("set");
            let is_new = self.listener.accept().is_ok();
            self.listener.set_nonblocking(false).expect("set");
            if !is_new {
                return (again, slot, stream);
            }
        }
    }
}

/// Reads a request except the record at its end.
fn read_request(stream: &mut UnixStream) {
    let mut request = [0; REQUEST.len() - HEADER_BYTES];
    stream.read_exact(&mut request).expect("a request");
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn until(what: &str, is_true: impl Fn() -> bool) {
    let all = tokio::time::timeout(TIMEOUT, async {
        while !is_true() {
            pause(1).await;
        }
    });
    assert!(all.await.is_ok(), "waited for {what}");
}

/// Returns the bytes received by the backend until the server closes the connection.
async fn until_closed(mut stream: UnixStream) -> Vec<u8> {
    let received = tokio::task::spawn_blocking(move || {
        let mut rest = Vec::new();
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream
            .read_to_end(&mut rest)
            .expect("the end of the stream");
        rest
    });
    received.await.expect("a thread that reads")
}

#[test]
fn a_connection_is_handed_over_and_is_closed_without_a_further_call() {
    run(async |test| {
        let (conn, _slot, stream) = test.until_busy().await;
        test.backend.put_idle(conn, ReusePolicy::Handover);
        until("the sweeper to end", || !test.backend.lock().is_swept).await;
        assert!(test.backend.lock().idle.is_empty());
        // The end records of two requests, and one request between the end records.
        let received = until_closed(stream).await;
        assert_eq!(received.len(), REQUEST.len() + HEADER_BYTES);
    });
}

#[test]
fn rare_calls_use_separate_connections() {
    run(async |test| {
        for _ in 0..3 {
            let _slot = test.enter().await;
            let conn = test.send();
            let stream = test.accept();
            pause(2 * BACKEND_IDLE_MILLISECONDS).await;
            test.backend.put_idle(conn, ReusePolicy::Handover);
            assert!(test.backend.lock().idle.is_empty());
            assert!(!test.backend.lock().is_swept);
            assert_eq!(until_closed(stream).await, REQUEST);
        }
    });
}

/// Three calls arrive while the backend works at one. The backend receives no second call, and the other
/// calls wait in the server.
#[test]
fn slots_are_reduced_to_the_calls_in_progress() {
    run(async |test| {
        let mut slots = Vec::new();
        let mut conns = Vec::new();
        for _ in 0..3 {
            slots.push(test.enter().await);
            conns.push(test.send());
        }
        let mut streams = vec![test.accept()];
        read_request(&mut streams[0]);
        pause(2 * BACKEND_UNREAD_QUEUED_MILLISECONDS).await;
        for answered in 0..3 {
            // Requests in the backend's queue are served first.
            test.backend
                .put_idle(conns.remove(0), ReusePolicy::Handover);
            slots.remove(0);
            assert!(test.backend.lock().idle.is_empty() || answered == 2);
            if answered < 2 {
                let mut next = test.accept();
                read_request(&mut next);
                streams.push(next);
                // One slot remains, or two while the backend may be about to take up the next request.
                let is_reduced = test.backend.slots.withheld() >= BACKEND_CONNECTIONS_MAX - 2;
                assert!(is_reduced);
                pause(2).await;
            }
        }
        // With no call left, the estimate is reset.
        until("all slots", || test.backend.slots.withheld() == 0).await;
    });
}

/// The slots are restored when the backend answers nothing: waiting calls then use the backend's own queue.
#[test]
fn all_slots_are_restored_for_a_stalled_backend() {
    run(async |test| {
        let (first_slot, second_slot) = (test.enter().await, test.enter().await);
        let (first, _second) = (test.send(), test.send());
        let mut stream = test.accept();
        read_request(&mut stream);
        pause(2 * BACKEND_UNREAD_QUEUED_MILLISECONDS).await;
        test.backend.put_idle(first, ReusePolicy::Handover);
        drop(first_slot);
        assert_eq!(test.backend.slots.withheld(), BACKEND_CONNECTIONS_MAX - 1);
        assert_eq!(test.backend.slots.taken(), 1);
        // The backend still works at the other call.
        let third = test.backend.enter(client(), false, 0);
        let third = tokio::time::timeout(TIMEOUT, third).await;
        assert!(third.expect("in time").is_ok());
        drop(second_slot);
    });
}

/// The server does not wait for a process occupied with other work, and hands over no further connection to
/// the process.
#[test]
fn a_connection_with_an_unread_request_is_shut_down() {
    run(async |test| {
        let (mut conn, _slot, stream) = test.until_busy().await;
        let mut byte = [0];
        let read = poll_fn(|cx| conn.poll_read(cx, &mut byte));
        let read = tokio::time::timeout(TIMEOUT, read).await;
        assert_eq!(read.expect("in time").expect("the end of the stream"), 0);
        assert_eq!(test.backend.reuse_policy_for(true), ReusePolicy::Never);
        drop(conn);
        until_closed(stream).await;
    });
}

/// The server second_slot for a process at work on the request, for any length of time.
#[test]
fn a_connection_with_a_read_request_stays_open() {
    run(async |test| {
        let (conn, _slot, mut stream) = test.until_busy().await;
        let mut end = [0; HEADER_BYTES];
        stream.read_exact(&mut end).expect("an end record");
        read_request(&mut stream);
        until("the sweeper to end", || !test.backend.lock().is_swept).await;
        pause(2 * BACKEND_UNREAD_RETRY_MILLISECONDS).await;
        stream.write_all(b"x").expect("an open connection");
        assert_eq!(test.backend.reuse_policy_for(true), ReusePolicy::Handover);
        drop(conn);
    });
}

#[test]
fn lost_connections_suspend_the_handover() {
    run(async |test| {
        assert_eq!(test.backend.reuse_policy_for(true), ReusePolicy::Handover);
        assert_eq!(test.backend.reuse_policy_for(false), ReusePolicy::Never);
        test.backend.record_lost();
        assert_eq!(test.backend.reuse_policy_for(true), ReusePolicy::Handover);
        test.backend.record_lost();
        assert_eq!(test.backend.reuse_policy_for(true), ReusePolicy::Never);
    });
}

#[test]
fn a_new_backend_is_found_after_the_registration() {
    let backends = Backends::default();
    let address = BackendAddress::Unix("app.sock".into());
    let find = || backends.find_or_new(&address, ReusePolicy::Never);
    let first = find();
    assert!(!Arc::ptr_eq(&first, &find()));
    backends.register(&first);
    backends.register(&first);
    assert!(Arc::ptr_eq(&first, &find()));
    // The registry holds no backend without a World.
    drop(first);
    let second = find();
    backends.register(&second);
    assert!(Arc::ptr_eq(&second, &find()));
    assert_eq!(backends.lock().len(), 1);
}
