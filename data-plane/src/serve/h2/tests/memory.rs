//! Memory of the contents of requests over HTTP/2, while the memory of bodies is short.

use super::*;
use crate::limits::{CALL_RESERVED_BYTES, PIPE_BYTES_MIN};
use crate::serve::pair::PairWorld;

/// Bound of the memory: 128 calls, of which 8 are for newcomers.
const BOUND: usize = 1 << 20;
/// Calls of clients that are no newcomers.
const CALLS: usize = 120;
/// Requests of a client that holds few.
const FEW: usize = 7;

fn pair() -> Pair {
    Pair::serving(PairWorld {
        body_memory_bytes: BOUND,
        ..PairWorld::default()
    })
}

fn connect(pair: &Pair, last: u8) -> H2Client {
    pair.set_client([198, 51, 100, last]);
    H2Client::connect(pair)
}

/// Returns the numbers of the first `count` streams of a client.
fn ids(count: usize) -> impl Iterator<Item = u32> {
    (0..count as u32).map(|nth| 2 * nth + 1)
}

/// Uploads of many clients, which fill the memory.
struct Crowd {
    clients: Vec<H2Client>,
    calls: Vec<PairCall>,
    next_id: u32,
}

impl Crowd {
    fn new(pair: &Pair) -> Crowd {
        let count = CALLS / FEW + 1;
        let clients: Vec<_> = (0..count as u8).map(|last| connect(pair, last)).collect();
        let mut crowd = Crowd {
            clients,
            calls: Vec::new(),
            next_id: 1 + 2 * FEW as u32,
        };
        for client in &crowd.clients {
            ids(FEW).for_each(|id| client.send(&head(id, "/call", false)));
        }
        crowd.take_calls(pair);
        assert_eq!(crowd.calls.len(), CALLS);
        crowd
    }

    fn take_calls(&mut self, pair: &Pair) {
        self.calls.extend(std::iter::from_fn(|| pair.next_call()));
    }

    /// Sends 320 bytes of each content in 400 ms, which the handlers take.
    fn trickle(&mut self, pair: &Pair) {
        pair.advance(400);
        for client in &self.clients {
            for id in (1..self.next_id).step_by(2) {
                client.send(&data(id, &[b'x'; 320], false));
            }
        }
        self.calls.retain(|call| !call.is_dropped());
        for call in &mut self.calls {
            call.read(1 << 20);
        }
        pair.settle();
    }

    /// Each client begins further uploads.
    fn come_back(&mut self, pair: &Pair) {
        for client in &self.clients {
            client.send(&head(self.next_id, "/call", false));
            client.send(&head(self.next_id + 2, "/call", false));
        }
        self.next_id += 4;
        self.take_calls(pair);
    }
}

/// Returns true if a request of a new client reaches a handler, which answers.
fn is_served(pair: &Pair, last: u8) -> bool {
    let mut client = connect(pair, last);
    client.send(&head(1, "/call", true));
    let Some(mut call) = pair.next_call() else {
        return false;
    };
    call.answer(b"hello");
    client.receive().contains(&status(1, 200))
}

/// Each content is longer than the 4 KiB that its call has reserved.
#[test]
fn contents_never_exceed_the_bound() {
    let pair = pair();
    let clients: Vec<_> = (0..8).map(|last| connect(&pair, last)).collect();
    for client in &clients {
        ids(15).for_each(|id| client.send(&head(id, "/call", false)));
    }
    let mut calls: Vec<_> = std::iter::from_fn(|| pair.next_call()).collect();
    assert_eq!(calls.len(), CALLS);
    for client in &clients {
        for id in ids(15) {
            client.send(&data(id, &[b'x'; 6_000], false));
            assert!(pair.body_bytes() <= BOUND, "{}", pair.body_bytes());
            calls.retain(|call| !call.is_dropped());
        }
    }
    assert!((80..CALLS).contains(&calls.len()), "{}", calls.len());
    assert!(is_served(&pair, 9));
}

#[test]
fn a_content_without_memory_is_refused() {
    let pair = Pair::serving(PairWorld {
        body_memory_bytes: 2 * CALL_RESERVED_BYTES,
        ..PairWorld::default()
    });
    let other = connect(&pair, 2);
    other.send(&head(1, "/call", false));
    let mut client = connect(&pair, 1);
    client.send(&head(1, "/call", false));
    let [_other, first] = [1, 2].map(|_| pair.call());
    client.send(&data(1, &[b'x'; PIPE_BYTES_MIN], false));
    assert!(client.hears_nothing());
    client.send(&data(1, b"x", false));
    assert!(client.receive().contains(&status(1, 503)));
    assert!(first.is_dropped());
}

/// Uploads that move all the time, at 800 B/s each, of clients with 7 each.
#[test]
fn slow_uploads_give_way_to_newcomers_and_do_not_come_back_before_them() {
    let pair = pair();
    let mut crowd = Crowd::new(&pair);
    for _ in 0..10 {
        crowd.trickle(&pair);
    }
    for last in 100..140 {
        assert!(is_served(&pair, last), "{last}");
        assert!(pair.body_bytes() <= BOUND, "{}", pair.body_bytes());
        crowd.come_back(&pair);
        crowd.trickle(&pair);
    }
}

/// A newcomer has content in its first window. Fewer uploads give way than the window would hold alone.
#[test]
fn the_first_window_of_a_newcomer_takes_the_place_of_slow_uploads() {
    let pair = pair();
    let mut crowd = Crowd::new(&pair);
    for _ in 0..10 {
        crowd.trickle(&pair);
    }
    let client = connect(&pair, 200);
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    for nth in 0..4 {
        client.send(&data(1, &[b'x'; 16_000], nth == 3));
        crowd.calls.retain(|call| !call.is_dropped());
        assert!(pair.body_bytes() <= BOUND, "{}", pair.body_bytes());
    }
    let PairRead::End(content) = call.read(1 << 20) else {
        panic!("the content is incomplete");
    };
    assert_eq!(content.len(), 64_000);
    crowd.trickle(&pair);
    assert!(crowd.calls.len() >= CALLS - 4 * 3, "{}", crowd.calls.len());
}

/// A window is a promise of memory: the client gets no more than the call has reserved.
#[test]
fn the_window_stays_small_while_memory_is_short() {
    let pair = pair();
    let mut client = connect(&pair, 1);
    client.send(&head(1, "/call", false));
    let mut call = pair.call();
    // Further calls take more than half of the memory.
    let clients: Vec<_> = (2..7).map(|last| connect(&pair, last)).collect();
    for other in &clients {
        ids(15).for_each(|id| other.send(&head(id, "/call", false)));
    }
    let calls: Vec<_> = std::iter::from_fn(|| pair.next_call()).collect();
    assert_eq!(calls.len(), 75);
    let (mut window, mut sent) = (WINDOW as usize, 0);
    let mut all = 0;
    while sent < 300_000 {
        let bytes = window.min(16_384);
        assert!(bytes > 0, "the window stays closed after {sent}");
        client.send(&data(1, &vec![b'x'; bytes], false));
        match call.read(1 << 20) {
            PairRead::Part(bytes) => all += bytes.len(),
            _ => panic!("the content is incomplete"),
        }
        (sent, window) = (sent + bytes, window - bytes);
        let frames = client.receive();
        let more = frames.iter().map(|frame| match frame {
            Frame::Window { id: 1, more } => *more as usize,
            _ => 0,
        });
        window += more.sum::<usize>();
        let is_first = sent <= WINDOW as usize;
        assert!(
            is_first || window <= PIPE_BYTES_MIN,
            "{window} after {sent}"
        );
    }
    assert_eq!(all, sent);
    drop(calls);
    for other in clients {
        drop(other);
    }
    pair.settle();
    // The window opens with the next bytes.
    client.send(&data(1, &vec![b'x'; window], false));
    call.read(1 << 20);
    let frames = client.receive();
    let opened = frames.iter().any(|frame| match frame {
        Frame::Window { id: 1, more } => *more > 32_000,
        _ => false,
    });
    assert!(opened, "{frames:?}");
}
