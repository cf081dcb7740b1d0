//! Tests of the memory ledger of bodies.

use super::*;
use BodyPurpose::{Call, FarReadAhead, Gathering, ReadAhead};
use std::collections::HashSet;

const MIB: usize = 1 << 20;

fn client(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// Returns a worker's part of the ledger that counts each of the clients 1 to 9 in a bucket of its own.
fn worker_of(all: &Arc<BodyMemory>) -> Rc<WorkerBodyMemory> {
    loop {
        let worker = WorkerBodyMemory::new(all, 1);
        let buckets = (1..10).map(|last| worker.buckets(client(last).into()).list[0]);
        if buckets.collect::<HashSet<_>>().len() == 9 {
            return worker;
        }
    }
}

/// Returns a ledger of 1 MiB with one worker, and an account that has no share of its own.
fn ledger() -> (Arc<BodyMemory>, Rc<WorkerBodyMemory>, BodyAccount) {
    let all = BodyMemory::new(MIB);
    let worker = worker_of(&all);
    let account = worker.admit(client(1)).unwrap();
    (all, worker, account)
}

/// Each row: bytes reserved before, whether nothing is read ahead, and whether 1,024 bytes more are granted for each purpose.
#[test]
fn the_level_decides_about_further_bytes() {
    let table = [
        (CALL_RESERVED_BYTES, false, [true, true, true, true]),
        (MIB / 4 - 1_024, false, [true, true, true, true]),
        (MIB / 4, false, [false, true, true, true]),
        (MIB / 2 - 1_024, false, [false, true, true, true]),
        (MIB / 2, true, [false, false, true, true]),
        (MIB - MIB / 4 - 1_024, true, [false, false, true, true]),
        (MIB - MIB / 4, true, [false, false, false, true]),
        (MIB - MIB / 16 - 1_024, true, [false, false, false, true]),
        (MIB - MIB / 16, true, [false, false, false, false]),
        (2 * MIB, true, [false, false, false, false]),
    ];
    for (before, is_pressed, granted) in table {
        for (purpose, is_granted) in [FarReadAhead, ReadAhead, Gathering, Call]
            .into_iter()
            .zip(granted)
        {
            let (all, worker, account) = ledger();
            let other = worker.admit(client(2)).unwrap();
            worker.return_spare();
            other.reserve(before.saturating_sub(all.bytes()));
            other.release(all.bytes() - before.min(all.bytes()));
            worker.return_spare();
            assert_eq!((all.bytes(), account.is_pressed()), (before, is_pressed));
            let row = format!("{before} {purpose:?}");
            assert_eq!(account.try_reserve(1_024, purpose), is_granted, "{row}");
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

/// The reserve of 1 MiB is 64 KiB, 8 calls.
#[test]
fn a_sixteenth_is_for_newcomers_and_half_of_it_for_clients_that_come_back() {
    let (all, worker, account) = ledger();
    let all_of = |last| std::iter::from_fn(|| worker.admit(client(last))).collect();
    let calls: [Vec<_>; 3] = [1, 2, 3].map(all_of);
    worker.return_spare();
    assert_eq!(all.bytes(), MIB - MIB / 16);
    assert!(worker.admit(client(4)).is_none());
    assert!(!worker.is_within_share(client(1)) && worker.is_within_share(client(4)));
    let mut last = 4;
    let mut admitted = |standing| {
        let calls = std::iter::from_fn(|| {
            last += 1;
            worker.admit_in_place(client(last), standing)
        });
        calls.collect::<Vec<_>>()
    };
    let served = admitted(ClientStanding::Served);
    assert_eq!(served.len() * CALL_RESERVED_BYTES, MIB / 32);
    assert!(admitted(ClientStanding::Slow).is_empty());
    let newcomers = admitted(ClientStanding::New);
    assert_eq!(newcomers.len() * CALL_RESERVED_BYTES, MIB / 32);
    assert_eq!(all.bytes(), MIB);
    drop((calls, served, newcomers, account));
    drop(worker);
    assert_eq!(all.bytes(), 0);
}

#[test]
fn other_workers_take_over_as_many_requests_as_the_reserve_holds() {
    let all = BodyMemory::new(MIB);
    assert_eq!(all.take_wanted(), 0);
    for _ in 0..20 {
        all.want_of_others();
    }
    assert_eq!((all.take_wanted(), all.take_wanted()), (8, 0));
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
    assert_eq!(third.len() * CALL_RESERVED_BYTES, MIB / 8 - MIB / 16);
    assert_eq!(all.bytes(), MIB - MIB / 16);
    drop((largest, account));
    assert!(worker.admit(client(1)).is_some());
}

/// Each row: bytes of one client, whether the client may read ahead further, and whether another client may.
#[test]
fn one_client_leaves_the_last_quarter_of_the_read_ahead_to_others() {
    let most = MIB / 2 - MIB / 8;
    let table = [
        (MIB / 16, FarReadAhead, true, true),
        (MIB / 4 - MIB / 16, FarReadAhead, false, true),
        (MIB / 4, FarReadAhead, false, false),
        (most - 1_024, ReadAhead, true, true),
        (most, ReadAhead, false, true),
        (MIB / 2, ReadAhead, false, false),
    ];
    for (before, purpose, may_large, may_small) in table {
        let (all, worker, large) = ledger();
        let small = worker.admit(client(2)).unwrap();
        worker.return_spare();
        large.reserve(before - all.bytes());
        worker.return_spare();
        assert_eq!(all.bytes(), before);
        let row = format!("{before} {purpose:?}");
        if purpose == ReadAhead {
            assert_eq!(
                (large.is_pressed(), small.is_pressed()),
                (!may_large, !may_small),
                "{row}"
            );
        }
        assert_eq!(large.try_reserve(1_024, purpose), may_large, "{row}");
        large.release(if may_large { 1_024 } else { 0 });
        worker.return_spare();
        assert_eq!(small.try_reserve(1_024, purpose), may_small, "{row}");
    }
    // Several clients below their shares fill the half.
    let (all, worker, account) = ledger();
    let others: Vec<_> = (2..10)
        .filter_map(|nth| worker.admit(client(nth)))
        .collect();
    for other in others.iter().chain([&account]) {
        while other.try_reserve(1_024, ReadAhead) {}
    }
    assert_eq!(all.bytes(), MIB / 2);
    assert!(account.is_pressed());
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
    // Unused parts of batches keep at most 2 of 64 parts from the calls, and a sixteenth is for newcomers.
    let used = calls.len() * CALL_RESERVED_BYTES;
    let most = MIB - MIB / 16;
    let expected = most - 2 * MIB / BODY_BATCH_DIVISOR..=most;
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
