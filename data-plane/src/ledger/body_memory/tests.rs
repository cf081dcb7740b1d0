//! Tests of the memory ledger of bodies.

use super::*;
use BodyPurpose::{Call, FarReadAhead, Gathering, ReadAhead};
use MemoryLevel::{Full, Pressed, Relaxed};

const MIB: usize = 1 << 20;

fn client(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// Returns a ledger of 1 MiB with one worker, and an account that has no share of its own.
fn ledger() -> (Arc<BodyMemory>, Rc<WorkerBodyMemory>, BodyAccount) {
    let all = BodyMemory::new(MIB);
    let worker = WorkerBodyMemory::new(&all, 1);
    let account = worker.admit(client(1)).unwrap();
    (all, worker, account)
}

/// Each row: bytes reserved before, level, and whether 1,024 bytes more are granted for each purpose.
#[test]
fn the_level_decides_about_further_bytes() {
    let table = [
        (CALL_RESERVED_BYTES, Relaxed, [true, true, true, true]),
        (MIB / 4 - 1_024, Relaxed, [true, true, true, true]),
        (MIB / 4, Relaxed, [false, true, true, true]),
        (MIB / 2 - 1_024, Relaxed, [false, true, true, true]),
        (MIB / 2, Pressed, [false, false, true, true]),
        (MIB - MIB / 4 - 1_024, Pressed, [false, false, true, true]),
        (MIB - MIB / 4, Pressed, [false, false, false, true]),
        (MIB - 1_024, Pressed, [false, false, false, true]),
        (MIB, Full, [false, false, false, false]),
        (2 * MIB, Full, [false, false, false, false]),
    ];
    for (before, level, granted) in table {
        for (purpose, is_granted) in [FarReadAhead, ReadAhead, Gathering, Call]
            .into_iter()
            .zip(granted)
        {
            let (all, worker, account) = ledger();
            worker.return_spare();
            account.reserve(before.saturating_sub(all.bytes()));
            account.release(all.bytes() - before.min(all.bytes()));
            worker.return_spare();
            assert_eq!((all.bytes(), all.level()), (before, level));
            let row = format!("{before} {purpose:?}");
            assert_eq!(account.try_reserve(1_024, purpose), is_granted, "{row}");
            assert_eq!(account.is_pressed(), all.level() != Relaxed, "{row}");
        }
    }
}

#[test]
fn granted_bytes_are_counted_beyond_the_bound() {
    let (all, worker, account) = ledger();
    while account.try_reserve(1_024, Call) {}
    assert!(worker.admit(client(2)).is_none());
    let before = all.bytes();
    let mut stream = BodyReservation::new(&account);
    stream.grow(10_000);
    assert_eq!((stream.bytes(), all.bytes()), (10_000, before + 10_000));
    assert!(!stream.try_grow(1, Call));
    drop((stream, account));
    assert!(worker.admit(client(2)).is_some());
}

#[test]
fn all_bytes_return_at_the_end() {
    let (all, worker, account) = ledger();
    let calls: Vec<_> = (0..60)
        .filter_map(|nth| worker.admit(client(nth)))
        .collect();
    assert_eq!(calls.len(), 60);
    let mut body = BodyReservation::new(&calls[7]);
    assert!(body.try_grow(40_000, Gathering));
    body.shrink_to(10_000);
    assert_eq!(body.bytes(), 10_000);
    body.shrink_to(20_000);
    assert_eq!(body.bytes(), 10_000);
    drop(calls);
    assert!(all.bytes() >= 10_000);
    drop((body, account));
    assert!(worker.clients.iter().all(|client| client.get() == 0));
    // At most two batches stay with the worker.
    assert!(all.bytes() <= 2 * MIB / BODY_BATCH_DIVISOR);
    drop(worker);
    assert_eq!(all.bytes(), 0);
}

#[test]
fn one_client_leaves_the_last_quarter_to_others() {
    let (all, worker, account) = ledger();
    let largest: Vec<_> = std::iter::from_fn(|| worker.admit(client(1))).collect();
    assert_eq!((largest.len() + 1) * CALL_RESERVED_BYTES, MIB - MIB / 4);
    let second: Vec<_> = std::iter::from_fn(|| worker.admit(client(2))).collect();
    assert_eq!(second.len() * CALL_RESERVED_BYTES, MIB / 8);
    let third: Vec<_> = std::iter::from_fn(|| worker.admit(client(3))).collect();
    assert_eq!(third.len() * CALL_RESERVED_BYTES, MIB / 8);
    assert_eq!(all.level(), Full);
    drop((largest, account));
    assert!(worker.admit(client(1)).is_some());
}

#[test]
fn workers_share_the_bound() {
    let all = BodyMemory::new(MIB);
    let workers = [(); 4].map(|()| WorkerBodyMemory::new(&all, 4));
    let mut calls = Vec::new();
    for nth in 0.. {
        let worker = &workers[nth % 4];
        match worker.admit(client((nth / 4) as u8)) {
            Some(call) => calls.push(call),
            None => break,
        }
    }
    // Unused parts of batches keep at most 2 of 64 parts from the calls.
    let used = calls.len() * CALL_RESERVED_BYTES;
    let expected = MIB - 2 * MIB / BODY_BATCH_DIVISOR..=MIB;
    assert!(expected.contains(&used), "{used}");
}

#[test]
fn an_uncounted_call_has_no_bound() {
    let account = BodyAccount::default();
    assert!(account.try_reserve(usize::MAX, ReadAhead));
    assert!(!account.is_pressed());
    account.reserve(10);
    account.release(10);
}

/// A call that turns out to need more bytes has the conditions of a new call: the share of its client, and the bound.
#[test]
fn a_call_grows_within_the_share_of_its_client() {
    let (all, worker, account) = ledger();
    worker.return_spare();
    let other = worker.admit(client(2)).unwrap();
    account.reserve(MIB - MIB / 4);
    assert!(!account.try_extend(1_024));
    assert!(other.try_extend(1_024));
    while other.try_extend(1_024) {}
    assert!(all.bytes() <= MIB);
    assert!(BodyAccount::default().try_extend(MIB));
}

#[test]
fn bytes_left_to_a_call_return_with_the_call() {
    let (all, worker, account) = ledger();
    let mut reservation = BodyReservation::new(&account);
    reservation.grow(100_000);
    reservation.leave_to_call();
    drop(reservation);
    assert!(all.bytes() >= 100_000 + CALL_RESERVED_BYTES);
    drop(account);
    worker.return_spare();
    assert_eq!(all.bytes(), 0);
}
