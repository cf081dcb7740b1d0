//! Tests of admission control.

use super::*;
use crate::limits::{CALL_QUEUED_MILLISECONDS, CALL_UNANSWERED_ENDS_MAX};
use base::limits::NEWCOMER_WAIT_MILLISECONDS;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

fn wait<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(future)
}

/// Runs a future with a virtual clock, which jumps to the next deadline while the future waits.
fn wait_virtually<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(future)
}

const NONE: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn client(nth: u8) -> ClientNetwork {
    IpAddr::from([192, 0, 2, nth]).into()
}

fn caller(nth: u8) -> Caller {
    Caller {
        client: client(nth),
        is_streamed: false,
    }
}

fn slots(max: usize) -> Arc<AdmissionControl> {
    begun(max, WorkStart::AtOnce)
}

fn begun(max: usize, work_start: WorkStart) -> Arc<AdmissionControl> {
    Arc::new(AdmissionControl::new(
        max,
        work_start,
        SharedLimit::Calls,
        &Arc::default(),
    ))
}

fn refused(slots: &AdmissionControl) -> u64 {
    slots.refusals.each().map(|(_, count)| count).sum()
}

/// Takes a slot for a call, and panics if no slot is free.
fn place(slots: &Arc<AdmissionControl>, nth: u8) -> CallSlot {
    match slots.begin(caller(nth), 0) {
        Ok(SlotOrQueue::Slot(slot)) => slot,
        _ => panic!("no place for {nth}"),
    }
}

/// Queues a call, and panics if the call gets a slot or is refused.
fn queued(slots: &Arc<AdmissionControl>, nth: u8, queue_max: usize) -> QueueGuard {
    match slots.begin(caller(nth), queue_max) {
        Ok(SlotOrQueue::Queue(waiting)) => waiting,
        Ok(SlotOrQueue::Slot(_)) => panic!("a place for {nth}"),
        Err(refused) => panic!("{refused:?} for {nth}"),
    }
}

/// Returns the message that a waiting call has received.
fn outcome(waiting: &mut QueueGuard) -> Option<Result<(), AdmissionRefused>> {
    waiting.outcome.try_recv().ok()
}

#[test]
fn slots_are_passed_on_in_order_and_the_queue_is_bounded() {
    wait(async {
        let slots = slots(1);
        let first = slots.enter(client(1), 1, NONE).await.unwrap();
        let none = slots.enter(client(1), 0, NONE).await;
        assert_eq!(none.err(), Some(AdmissionRefused::Full));
        // The call enters the queue and waits only 1 ms.
        let none = slots.enter(client(1), 1, NONE).await;
        assert_eq!(none.err(), Some(AdmissionRefused::Full));
        let second = slots.enter(client(1), 1, LONG);
        let (second, ()) = tokio::join!(second, async { drop(first) });
        assert!(second.is_ok());
        assert_eq!(refused(&slots), 0);
    });
}

#[test]
fn as_many_calls_yield_as_calls_wait() {
    let slots = slots(2);
    let [mut first, mut other] = [place(&slots, 1), place(&slots, 1)];
    assert!(!first.yield_to_any_client());
    let third = queued(&slots, 1, 1);
    assert!(first.yield_to_any_client());
    assert!(
        !other.yield_to_any_client(),
        "one waits, and one goes already"
    );
    assert!(first.yield_to_any_client());
    drop(first);
    let third = third.into_slot();
    assert!(!other.yield_to_any_client(), "no call waits any more");
    let _fourth = queued(&slots, 1, 1);
    assert!(other.yield_to_any_client());
    drop((third, other));
}

#[test]
fn resized_slots() {
    let slots = slots(3);
    let mut held: Vec<_> = (0..3).map(|_| place(&slots, 1)).collect();
    slots.resize(1);
    for _ in 0..2 {
        assert!(slots.begin(caller(1), 0).is_err());
        held.pop();
    }
    assert!(slots.begin(caller(1), 0).is_err());
    held.pop();
    held.push(place(&slots, 1));
    let mut waits = queued(&slots, 1, 1);
    assert_eq!(outcome(&mut waits), None);
    slots.resize(2);
    assert_eq!(outcome(&mut waits), Some(Ok(())));
    drop(waits.into_slot());
    drop(held);
    assert_eq!(slots.taken(), 0);
    assert!(slots.lock().shares.clients() == 0);
}

#[test]
fn a_single_client_may_use_all_slots() {
    let slots = slots(16);
    let held: Vec<_> = (0..16).map(|_| place(&slots, 1)).collect();
    let waits: Vec<_> = (0..128).map(|_| queued(&slots, 1, 128)).collect();
    assert_eq!(
        slots.begin(caller(1), 128).err(),
        Some(AdmissionRefused::Full)
    );
    drop((held, waits));
    assert_eq!(refused(&slots), 0);
}

#[test]
fn a_free_slot_goes_to_the_client_with_the_fewest_slots() {
    let slots = slots(3);
    let mut held = [1, 1, 2].map(|nth| Some(place(&slots, nth)));
    let mut own = [1, 1].map(|nth| queued(&slots, nth, 9));
    let [mut one, mut two, mut new] = [2, 2, 3].map(|nth| queued(&slots, nth, 9));
    held[0] = None;
    assert_eq!((outcome(&mut own[0]), outcome(&mut one)), (None, None));
    assert_eq!(outcome(&mut new), Some(Ok(())));
    // Client 1 has no slot now, and the client's oldest call comes first.
    held[1] = None;
    assert_eq!((outcome(&mut own[1]), outcome(&mut one)), (None, None));
    assert_eq!(outcome(&mut own[0]), Some(Ok(())));
    held[2] = None;
    assert_eq!((outcome(&mut one), outcome(&mut two)), (Some(Ok(())), None));
    let [own, other] = own;
    drop(other);
    for got in [one, new, own] {
        drop(got.into_slot());
    }
    assert_eq!(outcome(&mut two), Some(Ok(())));
    drop(two.into_slot());
    assert_eq!(slots.taken(), 0);
}

#[test]
fn a_call_cancelled_after_the_grant_frees_its_slot() {
    let slots = slots(1);
    let first = place(&slots, 1);
    let [second, mut third] = [1, 1].map(|nth| queued(&slots, nth, 2));
    drop(first);
    drop(second);
    assert_eq!(outcome(&mut third), Some(Ok(())));
    drop(third.into_slot());
    assert_eq!(slots.taken(), 0);
}

#[test]
fn a_full_queue_makes_room_for_clients_with_fewer_calls_in_it() {
    let slots = slots(1);
    let _held = place(&slots, 1);
    let mut greedy: Vec<_> = (0..4).map(|_| queued(&slots, 1, 4)).collect();
    let mut others = vec![queued(&slots, 2, 4)];
    assert_eq!(
        outcome(&mut greedy[3]),
        Some(Err(AdmissionRefused::ShareTaken)),
        "newest"
    );
    others.push(queued(&slots, 2, 4));
    assert_eq!(
        outcome(&mut greedy[2]),
        Some(Err(AdmissionRefused::ShareTaken))
    );
    // Now both clients have 2 calls in the queue.
    for nth in [1, 2] {
        let none = slots.begin(caller(nth), 4).err();
        assert_eq!(none, Some(AdmissionRefused::ShareTaken));
    }
    others.push(queued(&slots, 3, 4));
    others.push(queued(&slots, 4, 4));
    assert_eq!(outcome(&mut greedy[0]), None, "the oldest");
    // All have a call in the queue, but client 1 was served.
    others.push(queued(&slots, 5, 4));
    assert_eq!(
        outcome(&mut greedy[0]),
        Some(Err(AdmissionRefused::ShareTaken))
    );
    assert_eq!(
        slots.begin(caller(6), 4).err(),
        Some(AdmissionRefused::Full)
    );
    assert_eq!(refused(&slots), 7);
}

#[test]
fn slow_calls_of_a_client_over_its_share_yield() {
    let slots = slots(3);
    let mut held = [1, 1, 1].map(|nth| Some(place(&slots, nth)));
    let mut gives_way = |nth: usize, pace| {
        let slot: &mut CallSlot = held[nth].as_mut().unwrap();
        let gives_way = slot.yield_to_other_clients(pace);
        if gives_way {
            held[nth] = None;
        }
        gives_way
    };
    assert!(!gives_way(0, ClientPace::Slow), "no call waits");
    let own = queued(&slots, 1, 9);
    assert!(
        !gives_way(0, ClientPace::Slow),
        "no other client's call waits"
    );
    let mut other = queued(&slots, 2, 9);
    assert!(!gives_way(1, ClientPace::Fast));
    assert!(gives_way(1, ClientPace::SlowForMany(20)));
    assert_eq!(outcome(&mut other), Some(Ok(())));
    assert!(
        !gives_way(0, ClientPace::Slow),
        "no other client's call waits any more"
    );
    drop(own);
    let next = queued(&slots, 2, 9);
    assert!(
        !gives_way(2, ClientPace::Slow),
        "client 2 would have more then"
    );
    let mut new = queued(&slots, 3, 9);
    assert!(
        gives_way(2, ClientPace::SlowForMany(20)),
        "client 3 has none"
    );
    assert_eq!(outcome(&mut new), Some(Ok(())));
    let mut last = queued(&slots, 4, 9);
    assert!(
        !gives_way(0, ClientPace::SlowForMany(20)),
        "client 1 has its share"
    );
    assert!(gives_way(0, ClientPace::Slow), "too slow for any client");
    assert_eq!(outcome(&mut last), Some(Ok(())));
    assert_eq!(refused(&slots), 3);
    drop(next);
    drop([other, new, last].map(QueueGuard::into_slot));
    assert!(slots.lock().shares.clients() == 0);
    assert_eq!(slots.lock().promised, 0);
}

#[test]
fn one_slot_is_yielded_for_each_waiting_call() {
    let slots = slots(4);
    let mut held = [1; 4].map(|nth| place(&slots, nth));
    let _waits = queued(&slots, 2, 9);
    assert!(held[0].yield_to_other_clients(ClientPace::Slow));
    assert!(!held[1].yield_to_other_clients(ClientPace::Slow));
    assert!(
        held[0].yield_to_other_clients(ClientPace::Fast),
        "it was promised"
    );
}

#[test]
fn the_client_with_the_most_slots_yields_first() {
    let slots = slots(5);
    let mut most: Vec<_> = (0..3).map(|_| place(&slots, 1)).collect();
    let mut some: Vec<_> = (0..2).map(|_| place(&slots, 2)).collect();
    assert!(!most[0].yield_to_other_clients(ClientPace::SlowForMany(20)));
    let _waits = queued(&slots, 3, 9);
    assert!(!some[0].yield_to_other_clients(ClientPace::Slow));
    assert!(most[0].yield_to_other_clients(ClientPace::SlowForMany(20)));
    drop(most);
}

#[test]
fn a_waiting_client_with_more_slots_takes_no_slot_of_a_slow_client() {
    let slots = slots(16);
    let mut slow = place(&slots, 1);
    let held: Vec<_> = (0..15).map(|_| place(&slots, 2)).collect();
    let waits = queued(&slots, 2, 9);
    assert!(!slow.yield_to_other_clients(ClientPace::Slow));
    let _new = queued(&slots, 3, 9);
    assert!(
        slow.yield_to_other_clients(ClientPace::Slow),
        "client 3 has none"
    );
    drop((waits, held));
}

#[test]
fn a_client_yields_only_while_the_client_keeps_more_slots() {
    // (slots of the slow client, slots of the waiting client, gives way)
    let table = [
        (1, 0, true),
        (1, 1, false),
        (2, 1, false),
        (3, 1, true),
        (3, 2, false),
        (4, 2, true),
    ];
    for (own, waiting, expected) in table {
        let slots = slots(own + waiting);
        let mut slow: Vec<_> = (0..own).map(|_| place(&slots, 1)).collect();
        let _held: Vec<_> = (0..waiting).map(|_| place(&slots, 2)).collect();
        let _waits = queued(&slots, 2, 9);
        let gives_way = slow[0].yield_to_other_clients(ClientPace::Slow);
        assert_eq!(gives_way, expected, "{own} {waiting}");
    }
}

#[test]
fn slow_clients_with_one_call_each_yield_to_a_new_client() {
    let slots = slots(4);
    let mut slow: Vec<_> = (1..5).map(|nth| place(&slots, nth)).collect();
    let again = queued(&slots, 1, 9);
    assert!(
        !slow[3].yield_to_other_clients(ClientPace::Slow),
        "client 1 has one"
    );
    let mut new = queued(&slots, 5, 9);
    assert!(slow[3].yield_to_other_clients(ClientPace::Slow));
    slow.pop();
    assert_eq!(outcome(&mut new), Some(Ok(())));
    drop((again, new.into_slot()));
}

#[test]
fn the_slowest_call_gives_way_to_a_newcomer_after_its_wait() {
    let slots = slots(4);
    let paces = [31, 20, 10, 32].map(ClientPace::SlowForMany);
    let mut held = [1, 2, 3, 4].map(|nth| place(&slots, nth));
    let _own = queued(&slots, 1, 9);
    let mut new = queued(&slots, 5, 9);
    for (slot, pace) in held.iter_mut().zip(paces) {
        assert!(!slot.yield_to_other_clients(pace));
    }
    let wait = Duration::from_millis(NEWCOMER_WAIT_MILLISECONDS);
    let giving_way = |waited| {
        let mut state = slots.lock();
        let then = state.queue[1].since + waited;
        [1, 2, 3, 4]
            .map(|nth| state.must_yield(client(nth), nth.into(), paces[usize::from(nth) - 1], then))
    };
    assert_eq!(giving_way(wait - NONE), [false; 4]);
    assert_eq!(giving_way(wait), [false, false, true, false]);
    let [_first, _second, third, _fourth] = held;
    drop(third);
    assert_eq!(outcome(&mut new), Some(Ok(())));
    let again = queued(&slots, 5, 9);
    assert_eq!(giving_way(wait), [false; 4], "client 5 has one");
    drop((again, new.into_slot()));
}

#[test]
fn the_last_slots_stay_reserved_after_a_client_had_to_wait() {
    let slots = slots(16);
    let mut held: Vec<_> = (0..16).map(|_| place(&slots, 1)).collect();
    let other = queued(&slots, 2, 9);
    held.truncate(12);
    let mut own = queued(&slots, 1, 9);
    drop(other.into_slot());
    assert_eq!(slots.taken(), 12);
    assert_eq!(outcome(&mut own), None);
    let _others = [place(&slots, 2), place(&slots, 3)];
    let until = slots.lock().contended_until.unwrap();
    slots.grant_free_slots(&mut slots.lock(), until - NONE);
    assert_eq!(outcome(&mut own), None);
    slots.grant_free_slots(&mut slots.lock(), until);
    assert_eq!(outcome(&mut own), Some(Ok(())));
    own.is_granted = true;
}

#[test]
fn calls_without_an_answer_count_as_queued_in_the_backend() {
    let slots = begun(128, WorkStart::WithAnswer);
    let mut slow: Vec<_> = (0..4).map(|_| place(&slots, 1)).collect();
    slow.iter_mut().for_each(CallSlot::mark_begun);
    let mut other = place(&slots, 2);
    assert!(
        !slow[0].yield_to_other_clients(ClientPace::Slow),
        "it has just begun"
    );
    let must_yield = |slots: &AdmissionControl, after| {
        let mut state = slots.lock();
        let then = Instant::now() + after;
        state.must_yield(client(1), 1, ClientPace::SlowForMany(20), then)
    };
    assert!(must_yield(&slots, UNANSWERED));
    let mut served: Vec<_> = (0..3).map(|_| place(&slots, 2)).collect();
    served.iter_mut().for_each(CallSlot::mark_begun);
    assert!(
        !must_yield(&slots, UNANSWERED),
        "client 2 has 3 at work, and 1 waits"
    );
    drop(served);
    slots.lock().count_ended(Instant::now() + UNANSWERED);
    assert!(!must_yield(&slots, UNANSWERED), "one has just ended");
    assert!(must_yield(&slots, UNANSWERED + END_PAUSE));
    other.mark_begun();
    assert!(!must_yield(&slots, UNANSWERED + END_PAUSE));
    drop((slow, other));
    assert!(slots.lock().backend.is_empty() && slots.lock().shares.clients() == 0);
}

#[test]
fn slow_uploads_count_as_work_of_the_backend() {
    let slots = begun(128, WorkStart::WithAnswer);
    let mut uploads: Vec<_> = (0..4).map(|_| place(&slots, 1)).collect();
    let other = place(&slots, 2);
    let pace = ClientPace::SlowForMany(6);
    for upload in &mut uploads {
        assert!(
            !upload.yield_to_other_clients(pace),
            "the other has just begun"
        );
    }
    assert_eq!(
        slots.lock().backend.unanswered().count(),
        1,
        "the call of the other"
    );
    let must_yield = |pace| {
        let mut state = slots.lock();
        state.must_yield(client(1), 1, pace, Instant::now() + UNANSWERED)
    };
    assert!(must_yield(pace));
    assert!(!must_yield(ClientPace::Fast));
    // A client within its equal share may be slow.
    uploads.truncate(1);
    assert!(!must_yield(pace));
    assert!(must_yield(ClientPace::Slow));
    // The response of an upload is no second work.
    uploads[0].mark_begun();
    assert_eq!(slots.lock().shares.all().begun, 1);
    drop((uploads, other));
    assert!(slots.lock().backend.is_empty() && slots.lock().shares.clients() == 0);
}

/// Returns true if an upload at 6 KiB/s of client 1 gives way after `wait` without an answer to other calls.
fn upload_yields(slots: &AdmissionControl, wait: Duration) -> bool {
    let then = Instant::now() + wait;
    let mut state = slots.lock();
    state.backend.forget_check();
    state.must_yield(client(1), 1, ClientPace::SlowForMany(6), then)
}

const NEWCOMER_WAIT: Duration = Duration::from_millis(NEWCOMER_WAIT_MILLISECONDS);

#[test]
fn the_slowest_upload_gives_way_to_a_newcomer_without_an_answer() {
    let slots = begun(128, WorkStart::WithAnswer);
    let mut uploads: Vec<_> = (1..=6).map(|nth| place(&slots, nth)).collect();
    for (upload, rate) in uploads.iter_mut().zip(6..) {
        assert!(!upload.yield_to_other_clients(ClientPace::SlowForMany(rate)));
    }
    assert!(!upload_yields(&slots, LONG), "every call is an upload");
    let mut newcomer = place(&slots, 99);
    let early = NEWCOMER_WAIT - Duration::from_millis(500);
    assert!(!upload_yields(&slots, early));
    let yields = |nth: usize, rate| {
        let mut state = slots.lock();
        let then = Instant::now() + NEWCOMER_WAIT;
        state.must_yield(
            client(nth as u8),
            nth as u64,
            ClientPace::SlowForMany(rate),
            then,
        )
    };
    assert!(!yields(2, 7), "client 1 is slower");
    assert!(yields(1, 6));
    slots.lock().count_ended(Instant::now() + NEWCOMER_WAIT);
    assert!(!yields(1, 6), "one has just ended");
    slots.lock().ended = 0;
    // Another call of the client counts as served, so the client is no newcomer.
    let mut other = place(&slots, 99);
    other.mark_begun();
    assert!(!yields(1, 6));
    drop(other);
    newcomer.mark_begun();
    assert!(!yields(1, 6), "answered");
    drop((uploads, newcomer));
    assert!(slots.lock().backend.is_empty() && slots.lock().shares.clients() == 0);
}

#[test]
fn a_call_that_the_backend_works_on_ends_no_upload() {
    let slots = begun(128, WorkStart::WithAnswer);
    let mut upload = place(&slots, 1);
    assert!(!upload.yield_to_other_clients(ClientPace::SlowForMany(6)));
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&ours).write_all(b"a request").unwrap();
    let ours = Arc::new(OwnedFd::from(ours));
    let computing = place(&slots, 99);
    computing.record_sent(Some(SentRequest::new(&ours, 0)));
    assert!(upload_yields(&slots, NEWCOMER_WAIT), "in the queue");
    (&theirs).read_exact(&mut [0; 9]).unwrap();
    assert!(!upload_yields(&slots, NEWCOMER_WAIT), "at work");
    drop(computing);
    // Over TCP the answer to a later call shows that the backend has taken up the earlier one.
    let computing = place(&slots, 99);
    let mut later = place(&slots, 3);
    assert!(upload_yields(&slots, NEWCOMER_WAIT));
    later.mark_begun();
    assert!(!upload_yields(&slots, NEWCOMER_WAIT));
    drop((later, computing));
    // The wait for an answer begins with the end of the upload.
    let mut uploading = place(&slots, 97);
    uploading.set_awaits_client(true);
    assert!(
        !upload_yields(&slots, LONG),
        "the call waits for its client"
    );
    uploading.set_awaits_client(false);
    assert!(upload_yields(&slots, NEWCOMER_WAIT));
    drop(uploading);
    let _computing = place(&slots, 98);
    let ended = (0..CALL_UNANSWERED_ENDS_MAX + 5).filter(|_| upload_yields(&slots, NEWCOMER_WAIT));
    assert_eq!(ended.count(), CALL_UNANSWERED_ENDS_MAX as usize);
}

#[test]
fn a_call_waits_as_long_as_its_patience() {
    wait_virtually(async {
        let slots = slots(1);
        let held = place(&slots, 1);
        let begun = Instant::now();
        let outcome = slots.enter(client(2), 9, LONG).await;
        assert_eq!(outcome.err(), Some(AdmissionRefused::Full));
        assert!((LONG..=LONG + NONE).contains(&begun.elapsed()));
        drop(held);
    });
}

#[test]
fn a_waiting_call_takes_a_reserved_slot_when_the_reservation_has_expired() {
    wait_virtually(async {
        let slots = slots(16);
        let mut held: Vec<_> = (0..16).map(|_| place(&slots, 1)).collect();
        let begun = Instant::now();
        let other = queued(&slots, 2, 9);
        held.truncate(12);
        drop(other.into_slot());
        let reserved = Duration::from_secs(CALL_SHARE_SECONDS);
        let early = slots.enter(client(1), 9, reserved / 2).await;
        assert_eq!(early.err(), Some(AdmissionRefused::ShareTaken));
        let late = slots.enter(client(1), 9, reserved).await;
        assert!(late.is_ok());
        assert!((reserved..=reserved + CHECK_INTERVAL).contains(&begun.elapsed()));
    });
}

/// Places a call that is sent on a Unix socket, and returns the backend's end of the socket.
fn sent_call(slots: &Arc<AdmissionControl>, nth: u8) -> (CallSlot, Arc<OwnedFd>, UnixStream) {
    let slot = place(slots, nth);
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&ours).write_all(b"a request").unwrap();
    let ours = Arc::new(OwnedFd::from(ours));
    slot.record_sent(Some(SentRequest::new(&ours, 0)));
    (slot, ours, theirs)
}

fn read(theirs: &mut UnixStream) {
    theirs.read_exact(&mut [0; 9]).unwrap();
}

const SLOW: ClientPace = ClientPace::SlowForMany(6);

/// Uploads of clients 1 to 10, of which the backend has taken up the first two, and a newcomer behind them.
#[test]
fn calls_that_the_backend_works_on_end_before_those_in_its_queue() {
    let slots = begun(128, WorkStart::WithAnswer);
    let mut uploads: Vec<_> = (1..=10).map(|nth| sent_call(&slots, nth)).collect();
    for (upload, _, theirs) in &mut uploads[..2] {
        read(theirs);
        assert!(!upload.yield_to_other_clients(SLOW));
    }
    for (upload, ..) in &mut uploads[2..] {
        assert!(!upload.yield_to_other_clients(SLOW));
    }
    let newcomer = sent_call(&slots, 99);
    let mut behind = sent_call(&slots, 98);
    assert!(!behind.0.yield_to_other_clients(SLOW));
    let giving_way = || {
        let mut state = slots.lock();
        state.backend.forget_check();
        let then = Instant::now() + NEWCOMER_WAIT;
        let mut yields = |nth: u8, id| state.must_yield(client(nth), id, SLOW, then);
        let all: Vec<u8> = (1..=10).filter(|nth| yields(*nth, (*nth).into())).collect();
        (all, yields(98, 12))
    };
    // A quarter of the 8 calls before the newcomer in the queue end at once.
    assert_eq!(giving_way(), (vec![1, 2], false));
    // The next two in the queue end together with the end of the first two.
    uploads.drain(..2);
    assert_eq!(giving_way(), (vec![3, 4], false));
    uploads.drain(..5);
    assert_eq!(giving_way(), (vec![8], false));
    drop((uploads, newcomer, behind));
    assert!(slots.lock().backend.is_empty() && slots.lock().shares.clients() == 0);
}

fn has_slot(slots: &Arc<AdmissionControl>, caller: Caller) -> bool {
    matches!(slots.begin(caller, 9), Ok(SlotOrQueue::Slot(_)))
}

const QUEUED: Duration = Duration::from_millis(CALL_QUEUED_MILLISECONDS);

#[test]
fn a_call_of_a_client_that_was_too_slow_begins_behind_a_newcomer() {
    wait_virtually(async {
        let slots = begun(128, WorkStart::WithAnswer);
        let mut upload = sent_call(&slots, 1);
        read(&mut upload.2);
        let mut newcomer = sent_call(&slots, 99);
        assert!(!upload.0.yield_to_other_clients(SLOW));
        tokio::time::sleep(NEWCOMER_WAIT).await;
        assert!(upload.0.yield_to_other_clients(SLOW));
        drop(upload);
        assert!(has_slot(&slots, caller(2)), "any other client");
        assert!(!has_slot(&slots, caller(1)));
        let waits = slots.enter(client(1), 9, LONG);
        let began = Instant::now();
        let (second, ()) = tokio::join!(waits, async {
            tokio::time::sleep(QUEUED).await;
            // The backend works on one call at once, so the answer makes room.
            read(&mut newcomer.2);
            drop(newcomer);
        });
        assert!(second.is_ok() && began.elapsed() >= QUEUED);
    });
}

#[test]
fn clients_that_were_too_slow_leave_a_process_of_the_backend_to_newcomers() {
    wait_virtually(async {
        let slots = begun(128, WorkStart::WithAnswer);
        for nth in 1..=8 {
            slots.lock().shares.record_slow(client(nth));
        }
        let mut held: Vec<_> = (11..=14).map(|nth| sent_call(&slots, nth)).collect();
        held.iter_mut().for_each(|(_, _, theirs)| read(theirs));
        held.push(sent_call(&slots, 15));
        tokio::time::sleep(QUEUED).await;
        // A call waits in the backend's own queue, so the backend works on 4 calls at once.
        assert!(!has_slot(&slots, caller(1)));
        assert_eq!(slots.lock().backend.capacity(), Some(4));
        held.drain(2..);
        let mut slow = vec![sent_call(&slots, 1)];
        read(&mut slow[0].2);
        assert!(!has_slot(&slots, caller(2)), "3 of 4 are taken");
        assert!(has_slot(&slots, caller(99)));
        drop(slow);
        assert!(has_slot(&slots, caller(2)));
    });
}

#[test]
fn a_second_upload_waits_here_until_the_backend_takes_up_the_first() {
    wait_virtually(async {
        let slots = begun(128, WorkStart::WithAnswer);
        let upload = |nth| slots.enter_with_body(client(nth), true, 9, LONG);
        let first = upload(1).await.unwrap();
        let (second, ()) = tokio::join!(upload(2), async {
            tokio::time::sleep(QUEUED).await;
            assert_eq!(slots.load(), (1, 1), "the first one is not sent yet");
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let read = SentRequest::new(&Arc::new(OwnedFd::from(ours)), 0);
            first.record_sent(Some(read));
        });
        let second = second.unwrap();
        assert!(has_slot(&slots, caller(3)), "a whole request");
        // Over TCP, an upload waits while the client of the first one is awaited.
        drop(first);
        let mut second = second;
        second.record_sent(None);
        second.set_awaits_client(true);
        let third = queued_upload(&slots, 4);
        second.set_awaits_client(false);
        drop(third.into_slot());
    });
}

fn queued_upload(slots: &Arc<AdmissionControl>, nth: u8) -> QueueGuard {
    let caller = Caller {
        is_streamed: true,
        ..caller(nth)
    };
    match slots.begin(caller, 9) {
        Ok(SlotOrQueue::Queue(waiting)) => waiting,
        _ => panic!("a slot for {nth}"),
    }
}

#[test]
fn every_second_free_slot_goes_to_a_call_without_a_streamed_body() {
    let slots = slots(1);
    let mut held = Some(place(&slots, 1));
    let mut uploads = [2, 3, 4].map(|nth| queued_upload(&slots, nth));
    let mut whole = [5, 6].map(|nth| queued(&slots, nth, 9));
    drop(held.take());
    let mut order = Vec::new();
    while order.len() < 5 {
        let all = uploads.iter_mut().chain(&mut whole);
        let granted = all.filter(|it| !it.is_granted).find_map(|it| {
            outcome(it)?.ok()?;
            it.is_granted = true;
            Some(it.slots.slot(it.client, it.id))
        });
        let granted = granted.expect("a slot");
        order.push((2..=6).find(|nth| client(*nth) == granted.client).unwrap());
    }
    assert_eq!(order, [2, 5, 3, 6, 4]);
}

#[test]
fn responses_that_drip_keep_half_of_the_slots() {
    wait_virtually(async {
        let slots = slots(4);
        let mut drips = [1, 2, 3, 4].map(|nth| place(&slots, nth));
        let yields = |drips: &mut [CallSlot; 4]| drips.each_mut().map(|slot| slot.yield_as_drip(0));
        assert_eq!(yields(&mut drips), [false; 4], "no call waits");
        let newcomer = queued(&slots, 99, 9);
        assert_eq!(yields(&mut drips), [false; 4], "the newcomer has just come");
        tokio::time::sleep(NEWCOMER_WAIT).await;
        assert_eq!(yields(&mut drips), [false, false, true, false]);
        let [_first, _second, third, mut fourth] = drips;
        drop(third);
        drop(newcomer.into_slot());
        // A response that is fast again has a place like other ones.
        fourth.end_drip();
        assert!(!fourth.yield_to_other_clients(ClientPace::Fast));
        assert_eq!(slots.lock().drips.len(), 2);
    });
}

#[test]
fn a_drip_of_a_client_over_its_share_gives_way() {
    let slots = slots(4);
    let mut drips = [1, 1, 1, 2].map(|nth| place(&slots, nth));
    let _waits = queued(&slots, 99, 9);
    assert!(!drips[3].yield_as_drip(0));
    assert!(drips[0].yield_as_drip(0));
}

/// The backend works on 4 calls, so 2 of the drips stay.
#[test]
fn responses_that_drip_keep_half_of_the_processes_of_a_backend() {
    wait_virtually(async {
        let slots = begun(128, WorkStart::WithAnswer);
        let mut drips = [1, 2, 3, 4].map(|nth| place(&slots, nth));
        drips.iter_mut().for_each(CallSlot::mark_begun);
        let newcomer = sent_call(&slots, 99);
        tokio::time::sleep(NEWCOMER_WAIT).await;
        let yields = drips.each_mut().map(|slot| slot.yield_as_drip(0));
        assert_eq!(yields, [false, false, true, false]);
        drop((drips, newcomer));
    });
}
