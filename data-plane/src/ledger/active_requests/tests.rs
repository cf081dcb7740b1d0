use super::*;

/// Enters a request that started at the time, with the time as its path.
fn enter(table: &Arc<ActiveRequests>, started_us: u64) -> ActiveRequestGuard {
    let path = format!("/{started_us}");
    table.enter(|request| {
        assert!(request.route.is_none() && request.member.is_none());
        request.started_us = started_us;
        request.phase = RequestPhase::Handler;
        request.target.set(b"example.org", path.as_bytes());
    })
}

/// Returns a target with the host and the path.
fn target(host: &[u8], path: &[u8]) -> ActiveTarget {
    let mut target = ActiveTarget::default();
    target.set(host, path);
    target
}

/// Returns the starts of the oldest requests.
fn starts(ledger: &ActiveRequestLedger, max: usize) -> Vec<u64> {
    let oldest = ledger.oldest(max);
    let requests = oldest.requests.iter();
    let starts = requests.map(|it| {
        assert_eq!(
            it.target,
            target(b"example.org", format!("/{}", it.started_us).as_bytes())
        );
        it.started_us
    });
    starts.collect()
}

#[test]
fn the_oldest_requests_of_all_workers_come_first() {
    let ledger = ActiveRequestLedger::new(2);
    let tables = [ledger.worker(0), ledger.worker(1)];
    let guards: Vec<_> = [(0, 10), (1, 20), (1, 25), (0, 30), (0, 40), (1, 50)]
        .map(|(worker, at): (usize, u64)| enter(&tables[worker], at))
        .into();
    assert_eq!(starts(&ledger, 100), [10, 20, 25, 30, 40, 50]);
    assert_eq!(starts(&ledger, 4), [10, 20, 25, 30]);
    assert_eq!(starts(&ledger, 0), [0; 0]);
    assert_eq!(ledger.oldest(4).count, 6);
    drop(guards);
    assert_eq!(ledger.oldest(4).count, 0);
    assert_eq!(starts(&ledger, 4), [0; 0]);
    assert_eq!(ledger.worker(2).table().count, 0);
}

#[test]
fn requests_and_tunnels_of_all_workers_are_counted() {
    let ledger = ActiveRequestLedger::new(2);
    let tables = [ledger.worker(0), ledger.worker(1)];
    let guards =
        [(0, 1), (1, 2), (1, 3)].map(|(worker, at): (usize, u64)| enter(&tables[worker], at));
    guards[1].set_phase(RequestPhase::Tunnel);
    let counted = |requests, tunnels| RequestsUnderWay { requests, tunnels };
    assert_eq!(ledger.under_way(), counted(3, 1));
    drop(guards);
    assert_eq!(ledger.under_way(), counted(0, 0));
}

#[test]
fn entries_leave_in_any_order_and_their_slots_are_reused() {
    let ledger = ActiveRequestLedger::new(1);
    let table = ledger.worker(0);
    let mut guards: Vec<_> = (0..8).map(|at| Some(enter(&table, at))).collect();
    for (gone, left) in [
        (3, &[0, 1, 2, 4, 5, 6, 7][..]),
        (0, &[1, 2, 4, 5, 6, 7]),
        (7, &[1, 2, 4, 5, 6]),
        (4, &[1, 2, 5, 6]),
    ] {
        guards[gone] = None;
        assert_eq!(starts(&ledger, 100), left);
    }
    for at in 8..12 {
        guards.push(Some(enter(&table, at)));
    }
    assert_eq!(starts(&ledger, 100), [1, 2, 5, 6, 8, 9, 10, 11]);
    assert_eq!(table.table().slots.len(), 8, "free slots are used first");
    guards.clear();
    assert_eq!(ledger.oldest(1).count, 0);
    drop(enter(&table, 12));
    assert_eq!(table.table().slots.len(), 8);
}

#[test]
fn an_empty_table_frees_the_memory_of_a_burst() {
    let table = Arc::<ActiveRequests>::default();
    let guards: Vec<_> = (0..1_000).map(|at| enter(&table, at)).collect();
    drop(guards);
    assert_eq!(table.table().slots.capacity(), 0);
    let guard = enter(&table, 1_000);
    assert_eq!(table.table().count, 1);
    drop(guard);
}

#[test]
fn a_handle_changes_its_own_entry_alone() {
    let ledger = ActiveRequestLedger::new(1);
    let table = ledger.worker(0);
    let state = || {
        let oldest = ledger.oldest(1).requests;
        let member = oldest[0].member.as_deref().map(str::to_owned);
        (oldest[0].phase.name(), member)
    };
    let guard = enter(&table, 1);
    let handle = guard.handle();
    assert_eq!(state(), ("handler", None));
    handle.wait_for_member();
    assert_eq!(state(), ("queue", None));
    let member = "http://192.0.2.1".to_owned();
    handle.set_member(&Arc::from(&*member));
    assert_eq!(state(), ("member", Some(member.clone())));
    guard.set_phase(RequestPhase::Response);
    assert_eq!(state(), ("response", Some(member.clone())));
    guard.set_phase(RequestPhase::Tunnel);
    assert_eq!(state(), ("tunnel", Some(member.clone())));
    drop(guard);
    // The next request takes the slot of the last.
    let _next = enter(&table, 2);
    handle.set_member(&Arc::from(&*member));
    handle.wait_for_member();
    assert_eq!(state(), ("handler", None));
    ActiveRequestHandle::default().wait_for_member();
    ActiveRequestHandle::default().set_member(&Arc::from(&*member));
}

#[test]
fn long_hosts_and_paths_are_cut() {
    let target = self::target(b"example.org", b"/a");
    assert_eq!(
        (target.host(), &*target.path()),
        (&b"example.org"[..], "/a")
    );
    let path = vec![b'p'; ACTIVE_REQUEST_PATH_BYTES_MAX];
    let target = self::target(b"", &path);
    assert_eq!((target.host().len(), target.path().len()), (0, path.len()));
    let target = self::target(&[b'h'; 300], &[b'p'; 9_000]);
    assert_eq!(target.host().len(), ACTIVE_REQUEST_HOST_BYTES_MAX);
    let expected = "p".repeat(ACTIVE_REQUEST_PATH_BYTES_MAX) + "…";
    assert_eq!(target.path(), expected);
    let target = self::target(b"h", b"/\xff");
    assert_eq!(target.path(), "/\u{fffd}");
}
