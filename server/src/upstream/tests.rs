//! Connections that are passed on, with a backend that accepts and reads when it is told to.

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

/// A backend's socket, and this side of it.
struct Play {
    listener: UnixListener,
    backend: Arc<Backend>,
    _folder: tempfile::TempDir,
}

/// What is said of every request: its variables and, by itself, the end of its body.
const REQUEST: &[u8] = b"variables, and the end";
const PATIENCE: Duration = Duration::from_secs(30);

fn client() -> ClientNetwork {
    std::net::IpAddr::from([127, 0, 0, 1]).into()
}

fn play<F: Future<Output = ()>>(scene: impl FnOnce(Play) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let backend = Backends::default().at(&BackendAddress::Unix(path), ReusePolicy::Handover);
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

    /// A request, on a connection that was kept if there is one.
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

    /// Several calls were answered a moment ago.
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
            // It isn't for long: then once more.
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

/// Reads a request, but not its end.
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

/// What the other end hears until this one closes.
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
        // Both ends of the two requests, and one request between them.
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

/// Three ask, and the backend works at one. Then it gets no more than one, and the others wait here.
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
            // Whoever waits in the backend's queue comes first.
            play.backend
                .put_idle(links.remove(0), ReusePolicy::Handover);
            slots.remove(0);
            assert!(play.backend.lock().idle.is_empty() || place == 2);
            if place < 2 {
                let mut next = play.accept();
                take_up(&mut next);
                streams.push(next);
                // One, or two while it may be about to take up the next.
                let is_narrow = play.backend.slots.missing() >= BACKEND_CONNECTIONS_MAX - 2;
                assert!(is_narrow);
                pause(2).await;
            }
        }
        // Nobody is there any more, and nothing is known.
        until("all places", || play.backend.slots.missing() == 0).await;
    });
}

/// The places come back when it answers nothing: those that wait do so in its own queue.
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
        // The other is still at it.
        let third = play.backend.enter(client(), 0);
        let third = tokio::time::timeout(PATIENCE, third).await;
        assert!(third.expect("in time").is_ok());
        drop(waits);
    });
}

/// A process that goes on with something else is not waited for, and nobody's connection is passed on
/// to it any more.
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

/// And one that is at work is, however long that takes.
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
