//! Tests of connection handover, with a backend that accepts and reads on command.

use crate::limits::{
    BACKEND_IDLE_MILLISECONDS, BACKEND_UNREAD_QUEUED_MILLISECONDS,
    BACKEND_UNREAD_RETRY_MILLISECONDS,
};
use crate::upstream::*;
use crate::wire::fastcgi::HEADER_BYTES;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// A listening socket of a backend, and the server's side of the backend.
struct Play {
    listener: UnixListener,
    backend: Arc<Backend>,
    _folder: tempfile::TempDir,
}

/// Bytes of every request: the variables and, sent separately, the end of the body.
const REQUEST: &[u8] = b"variables, and the end";
const PATIENCE: Duration = Duration::from_secs(30);

fn client() -> ClientNetwork {
    std::net::IpAddr::from([127, 0, 0, 1]).into()
}

fn play<F: Future<Output = ()>>(scene: impl FnOnce(Play) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let backend =
        Backends::default().find_or_new(&BackendAddress::Unix(path), ReusePolicy::Handover);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let play = Play {
        listener,
        backend,
        _folder: folder,
    };
    tokio::task::LocalSet::new().block_on(&runtime, scene(play));
}

impl Play {
    async fn place(&self) -> CallSlot {
        self.backend.enter(client(), 100).await.expect("a place")
    }

    /// Sends a request on an idle connection, or on a new connection if none is idle.
    fn ask(&self) -> Conn {
        let kept = self.backend.take_idle(ReusePolicy::Handover);
        let kept = kept.or_else(|| self.backend.connect_now());
        let begun = kept
            .expect("a connection")
            .begin(REQUEST, HEADER_BYTES, true);
        let (link, said) = begun.expect("said");
        assert_eq!(said, REQUEST.len());
        let link = link.expect("a link");
        self.backend.begins(&link);
        link
    }

    fn accept(&self) -> UnixStream {
        self.listener.accept().expect("a connection").0
    }

    /// Answers calls until the backend counts as busy.
    async fn is_busy(&self) -> (Conn, CallSlot, UnixStream) {
        loop {
            let slot = self.place().await;
            let link = self.ask();
            let mut stream = self.accept();
            take_up(&mut stream);
            self.backend.put_idle(link, ReusePolicy::Handover);
            if self.backend.lock().idle.is_empty() {
                continue;
            }
            // The backend may cease to count as busy soon, so the loop checks once more.
            let again = self.ask();
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
fn take_up(stream: &mut UnixStream) {
    let mut request = [0; REQUEST.len() - HEADER_BYTES];
    stream.read_exact(&mut request).expect("a request");
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let all = tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            pause(1).await;
        }
    });
    assert!(all.await.is_ok(), "waited for {what}");
}

/// Returns the bytes received by the backend until the server closes the connection.
async fn until_closed(mut stream: UnixStream) -> Vec<u8> {
    let heard = tokio::task::spawn_blocking(move || {
        let mut rest = Vec::new();
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.read_to_end(&mut rest).expect("its end");
        rest
    });
    heard.await.expect("heard")
}

#[test]
fn a_connection_goes_on_to_the_next_and_is_closed_when_nobody_comes() {
    play(async |play| {
        let (link, _slot, stream) = play.is_busy().await;
        play.backend.put_idle(link, ReusePolicy::Handover);
        until("nobody cares any more", || !play.backend.lock().is_swept).await;
        assert!(play.backend.lock().idle.is_empty());
        // The end records of two requests, and one request between the end records.
        let heard = until_closed(stream).await;
        assert_eq!(heard.len(), REQUEST.len() + HEADER_BYTES);
    });
}

#[test]
fn where_hardly_anybody_comes_each_has_a_connection_of_its_own() {
    play(async |play| {
        for _ in 0..3 {
            let _slot = play.place().await;
            let link = play.ask();
            let stream = play.accept();
            pause(2 * BACKEND_IDLE_MILLISECONDS).await;
            play.backend.put_idle(link, ReusePolicy::Handover);
            assert!(play.backend.lock().idle.is_empty());
            assert!(!play.backend.lock().is_swept);
            assert_eq!(until_closed(stream).await, REQUEST);
        }
    });
}

/// Three calls arrive while the backend works at one. The backend receives no second call, and the other
/// calls wait in the server.
#[test]
fn there_are_as_few_connections_as_are_worked_at() {
    play(async |play| {
        let mut slots = Vec::new();
        let mut links = Vec::new();
        for _ in 0..3 {
            slots.push(play.place().await);
            links.push(play.ask());
        }
        let mut streams = vec![play.accept()];
        take_up(&mut streams[0]);
        pause(2 * BACKEND_UNREAD_QUEUED_MILLISECONDS).await;
        for place in 0..3 {
            // Requests in the backend's queue are served first.
            play.backend
                .put_idle(links.remove(0), ReusePolicy::Handover);
            slots.remove(0);
            assert!(play.backend.lock().idle.is_empty() || place == 2);
            if place < 2 {
                let mut next = play.accept();
                take_up(&mut next);
                streams.push(next);
                // One slot remains, or two while the backend may be about to take up the next request.
                let is_narrow = play.backend.slots.missing() >= BACKEND_CONNECTIONS_MAX - 2;
                assert!(is_narrow);
                pause(2).await;
            }
        }
        // With no call left, the estimate is reset.
        until("all places", || play.backend.slots.missing() == 0).await;
    });
}

/// The slots are restored when the backend answers nothing: waiting calls then use the backend's own queue.
#[test]
fn a_slow_backend_gets_all() {
    play(async |play| {
        let (held, waits) = (play.place().await, play.place().await);
        let (first, _second) = (play.ask(), play.ask());
        let mut stream = play.accept();
        take_up(&mut stream);
        pause(2 * BACKEND_UNREAD_QUEUED_MILLISECONDS).await;
        play.backend.put_idle(first, ReusePolicy::Handover);
        drop(held);
        assert_eq!(play.backend.slots.missing(), BACKEND_CONNECTIONS_MAX - 1);
        assert_eq!(play.backend.slots.taken(), 1);
        // The backend still works at the other call.
        let third = play.backend.enter(client(), 0);
        let third = tokio::time::timeout(PATIENCE, third).await;
        assert!(third.expect("in time").is_ok());
        drop(waits);
    });
}

/// The server does not wait for a process occupied with other work, and hands over no further connection to
/// the process.
#[test]
fn who_is_not_heard_is_told() {
    play(async |play| {
        let (mut link, _slot, stream) = play.is_busy().await;
        let mut byte = [0];
        let read = poll_fn(|cx| link.poll_read(cx, &mut byte));
        let read = tokio::time::timeout(PATIENCE, read).await;
        assert_eq!(read.expect("in time").expect("its end"), 0);
        assert_eq!(play.backend.reuse_policy_for(true), ReusePolicy::Never);
        drop(link);
        until_closed(stream).await;
    });
}

/// The server waits for a process at work on the request, for any length of time.
#[test]
fn who_is_heard_is_waited_for() {
    play(async |play| {
        let (link, _slot, mut stream) = play.is_busy().await;
        let mut end = [0; HEADER_BYTES];
        stream.read_exact(&mut end).expect("an end");
        take_up(&mut stream);
        until("it is known", || !play.backend.lock().is_swept).await;
        pause(2 * BACKEND_UNREAD_RETRY_MILLISECONDS).await;
        stream.write_all(b"x").expect("heard");
        assert_eq!(play.backend.reuse_policy_for(true), ReusePolicy::Handover);
        drop(link);
    });
}

#[test]
fn a_backend_that_closes_is_not_asked_to_stay() {
    play(async |play| {
        assert_eq!(play.backend.reuse_policy_for(true), ReusePolicy::Handover);
        assert_eq!(play.backend.reuse_policy_for(false), ReusePolicy::Never);
        play.backend.lost();
        assert_eq!(play.backend.reuse_policy_for(true), ReusePolicy::Handover);
        play.backend.lost();
        assert_eq!(play.backend.reuse_policy_for(true), ReusePolicy::Never);
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
