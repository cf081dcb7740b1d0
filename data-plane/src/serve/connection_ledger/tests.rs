use crate::serve::connection_entry::{
    Activity, ConnectionOwner, EvictionOrders, Newcomer, Shortage,
};
use crate::serve::connection_ledger::*;
use std::net::IpAddr;

/// Time of the choice in tests where time does not count: connections have been idle for more than a second, and requests
/// have moved less than a second ago.
const NOW_MS: u64 = 1_200;

/// Returns the activity of a connection with a request that moved lately. Smaller numbers moved earlier.
fn busy(nth: u64) -> Activity {
    Busy(NOW_MS - 900 + nth)
}

fn client(last: u8) -> ClientNetwork {
    IpAddr::from([127, 0, 0, last]).into()
}

/// Ledger for a test, with the orders to the only worker.
struct Scene {
    ledger: Arc<ConnectionLedger>,
    orders: Arc<EvictionOrders>,
    rows: usize,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            ledger: Arc::default(),
            orders: Arc::default(),
            rows: 0,
        }
    }

    /// Returns a ledger with requests of four clients that move, the last in 20 s, and the guards of their connections.
    fn with_others() -> (Scene, Vec<ConnectionEntryGuard>) {
        let mut scene = Scene::new();
        let open = (100..104).map(|nth| scene.open(nth, Busy(20_000)));
        let others = open.collect();
        (scene, others)
    }

    /// Opens a TCP connection of the client, with the given activity.
    fn open(&mut self, last: u8, standing: Activity) -> ConnectionEntryGuard {
        self.open_of(client(last), standing)
    }

    fn open_of(&mut self, client: ClientNetwork, standing: Activity) -> ConnectionEntryGuard {
        self.open_at(0, client, standing)
    }

    /// Opens a TCP connection of the client at `opened_ms`.
    fn open_at(
        &mut self,
        opened_ms: u64,
        client: ClientNetwork,
        standing: Activity,
    ) -> ConnectionEntryGuard {
        self.rows += 1;
        let owner = ConnectionOwner::Row(self.orders.clone(), self.rows);
        let entered = self.ledger.enter(client, 0, owner, opened_ms);
        let entered = entered.expect("no limit for each address");
        entered.set_activity(standing);
        entered
    }

    /// Returns the rows of the connections to give up when the client wants a connection.
    fn chosen_for(&self, last: u8) -> Vec<usize> {
        self.chosen_at(client(last), NOW_MS)
    }

    /// Returns the rows of the connections to give up for a connection of the client that arrives at `now_ms`.
    fn chosen_at(&self, client: ClientNetwork, now_ms: u64) -> Vec<usize> {
        rows(self.ledger.choose(newcomer(client, now_ms, now_ms)))
    }
}

fn newcomer(client: ClientNetwork, since_ms: u64, now_ms: u64) -> Shortage {
    Shortage::Connections(Newcomer {
        client,
        since_ms,
        now_ms,
        waiting: 0,
        needs_descriptor: false,
    })
}

fn rows(chosen: Vec<Arc<ConnectionEntry>>) -> Vec<usize> {
    let row = |entry: &Arc<ConnectionEntry>| match entry.owner() {
        ConnectionOwner::Row(_, row) => *row,
        ConnectionOwner::Task(_) => 0,
    };
    let mut rows: Vec<usize> = chosen.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

use Activity::{AwaitsClient, Busy, Idle};

#[test]
fn a_closed_connection_makes_room_for_its_client() {
    let ledger = Arc::new(ConnectionLedger::default());
    let enter = |last| {
        let owner = ConnectionOwner::Row(Arc::default(), 0);
        ledger.enter(client(last), 2, owner, 0)
    };
    let (first, second) = (enter(1), enter(1));
    assert!(first.is_some() && second.is_some());
    assert!(!ledger.may_enter(client(1), 2) && enter(1).is_none());
    assert!(ledger.may_enter(client(2), 2) && ledger.may_enter(client(1), 0));
    drop(first);
    let third = enter(1);
    assert!(third.is_some());
    drop((second, third));
    assert!(ledger.lock().by_client.is_empty());
}

#[test]
fn the_largest_holder_loses_its_longest_idle_connection() {
    let mut scene = Scene::new();
    let _small = scene.open(4, Idle(1));
    let _large = [Idle(30), Idle(20), busy(5)].map(|standing| scene.open(2, standing));
    assert_eq!(scene.chosen_for(3), [3]);
    // The third connection is about to end, so the second is next. After that only the small holder has an
    // idle connection not yet chosen.
    assert_eq!(scene.chosen_for(3), [2]);
    assert_eq!(scene.chosen_for(3), [1]);
    assert_eq!(scene.chosen_for(3), []);
}

#[test]
fn among_equal_holders_the_longest_idle_connection_is_chosen() {
    let mut scene = Scene::new();
    let _open = [(5, 30), (4, 10), (6, 20)].map(|(last, ms)| scene.open(last, Idle(ms)));
    assert_eq!(scene.chosen_for(3), [2]);
    assert_eq!(scene.chosen_for(3), [3]);
}

#[test]
fn a_connection_with_new_activity_is_not_evicted() {
    let mut scene = Scene::new();
    let open = scene.open(2, Idle(10));
    assert_eq!(scene.chosen_for(3), [1]);
    open.set_activity(busy(11));
    assert!(!open.entry().is_evicted());
    open.set_activity(Idle(12));
    assert!(!open.entry().is_evicted());
    assert_eq!(scene.chosen_for(3), [1]);
    assert!(open.entry().is_evicted());
}

#[test]
fn a_large_holder_loses_many_at_once() {
    let mut scene = Scene::new();
    let many = (0..64).map(|nth| scene.open(2, Idle(100 - nth)));
    let _many: Vec<ConnectionEntryGuard> = many.collect();
    // The last connections have been idle for longest.
    assert_eq!(scene.chosen_for(3), [61, 62, 63, 64]);
}

#[test]
fn a_client_with_nearly_all_connections_loses_requests_under_way() {
    let mut scene = Scene::new();
    let _large: Vec<ConnectionEntryGuard> =
        (0..8).map(|nth| scene.open(2, busy(20 - nth))).collect();
    let _small = [4, 5].map(|last| scene.open(last, busy(1)));
    // A client's own newcomer ends no request of the client.
    assert_eq!(scene.chosen_for(2), []);
    assert_eq!(scene.chosen_for(3), [8]);
    // Only one request ends at a time.
    assert_eq!(scene.chosen_for(3), []);
    // Two of eight connections belong to other clients. The large holder no longer has more than three
    // quarters of all connections, nor eight times as many as the newcomer will have.
    let mut scene = Scene::new();
    let _large: Vec<ConnectionEntryGuard> = (0..6).map(|_| scene.open(2, busy(20))).collect();
    let _small = [4, 5].map(|last| scene.open(last, busy(1)));
    assert_eq!(scene.chosen_for(3), []);
}

#[test]
fn a_client_loses_idle_connections_only_to_a_client_with_fewer() {
    let mut scene = Scene::new();
    let _busy: Vec<ConnectionEntryGuard> = (0..6).map(|_| scene.open(2, busy(20))).collect();
    let _idle = [(4, 10), (5, 11), (5, 12)].map(|(last, ms)| scene.open(last, Idle(ms)));
    // Client 2 is the largest holder. Client 6, opened below, holds as many connections as client 5, the
    // largest client with idle connections.
    assert_eq!(scene.chosen_for(2), []);
    let _as_many = [busy(1), busy(2)].map(|standing| scene.open(6, standing));
    assert_eq!(scene.chosen_for(6), []);
    // Client 2 now has an idle connection, and loses the idle connection to the newcomer of client 2.
    let _own = scene.open(2, Idle(30));
    assert_eq!(scene.chosen_for(2), [12]);
    // A client with one connection gains an idle connection of a client with two.
    assert_eq!(scene.chosen_for(4), [8]);
}

#[test]
fn a_large_holder_loses_requests_before_a_small_holder_loses_idle_connections() {
    // The large holder has half of all connections.
    let mut scene = Scene::new();
    let _large: Vec<ConnectionEntryGuard> =
        (0..16).map(|nth| scene.open(2, busy(50 - nth))).collect();
    let _small: Vec<ConnectionEntryGuard> =
        (0..16).map(|nth| scene.open(10 + nth, Idle(1))).collect();
    assert_eq!(scene.chosen_for(3), [16]);
    // The large holder already has the most requests ending that may end at once, so the newcomer waits.
    assert_eq!(scene.chosen_for(3), []);
    // The large holder has an eighth of all connections.
    let mut scene = Scene::new();
    let _large: Vec<ConnectionEntryGuard> = (0..16).map(|_| scene.open(2, busy(20))).collect();
    let _small: Vec<ConnectionEntryGuard> =
        (0..112).map(|nth| scene.open(10 + nth, Idle(1))).collect();
    let chosen = scene.chosen_for(3);
    assert!(chosen.len() == 1 && chosen[0] > 16, "{chosen:?}");
}

#[test]
fn chosen_connections_count_until_they_close() {
    let mut scene = Scene::new();
    let _large: Vec<ConnectionEntryGuard> = (0..16).map(|_| scene.open(2, Idle(50))).collect();
    let _small = [4, 5].map(|last| scene.open(last, Idle(1)));
    // All connections of the large holder are chosen, and none has ended yet. Other clients lose no
    // connection meanwhile.
    for _ in 0..16 {
        let chosen = scene.chosen_for(3);
        assert!(matches!(chosen[..], [1..=16]), "{chosen:?}");
    }
    assert_eq!(scene.chosen_for(3), []);
}

#[test]
fn two_clients_with_half_of_all_lose_requests_to_a_client_with_far_less() {
    let mut scene = Scene::new();
    let _first: Vec<ConnectionEntryGuard> =
        (0..16).map(|nth| scene.open(2, busy(50 - nth))).collect();
    let _second: Vec<ConnectionEntryGuard> = (0..15).map(|_| scene.open(3, busy(1))).collect();
    // The two large holders lose no requests to each other.
    assert_eq!(scene.chosen_for(3), []);
    assert_eq!(scene.chosen_for(4), [16]);
    let wait = |clients: &[u8]| {
        let clients = clients.iter().map(|last| client(*last));
        scene.ledger.last_in_line(clients)
    };
    // When too many connections wait, connections of the large holders are turned away. Connections of a
    // client for which room can be made stay.
    assert_eq!(wait(&[4, 2, 3, 2, 4]), Some(3));
    assert_eq!(wait(&[4, 3, 4]), Some(1));
    assert_eq!(wait(&[4, 5]), None);
    // A client with an eighth of the largest holder's connections waits for a connection to end without
    // eviction.
    let mut scene = Scene::new();
    let _large = [2, 3].map(|last| [20; 16].map(|ms| scene.open(last, busy(ms))));
    let _few = [busy(1), busy(1)].map(|standing| scene.open(4, standing));
    assert_eq!(scene.chosen_for(4), []);
}

#[test]
fn a_connection_without_a_descriptor_is_not_chosen_for_lack_of_descriptors() {
    let ledger = Arc::new(ConnectionLedger::default());
    let task = ConnectionOwner::Task(Box::default());
    let _quic = ledger.enter(client(2), 0, task, 0);
    assert_eq!(ledger.choose(Shortage::Descriptors).len(), 0);
    let mut wanted = Newcomer {
        client: client(3),
        since_ms: NOW_MS,
        now_ms: NOW_MS,
        waiting: 0,
        needs_descriptor: true,
    };
    assert_eq!(ledger.choose(Shortage::Connections(wanted)).len(), 0);
    wanted.needs_descriptor = false;
    assert_eq!(ledger.choose(Shortage::Connections(wanted)).len(), 1);
}

#[test]
fn entries_keep_their_places_in_the_ledger() {
    let mut scene = Scene::new();
    let mut open: Vec<ConnectionEntryGuard> = (0..5).map(|nth| scene.open(2, Idle(nth))).collect();
    drop(open.remove(1));
    drop(open.remove(3));
    drop(open.remove(0));
    let left = open.len();
    assert_eq!(scene.ledger.lock().by_client[&client(2)].len(), left);
    drop(open);
    assert!(scene.ledger.lock().by_client.is_empty());
}

#[test]
fn a_proxy_keeps_its_requests_and_may_open_any_number_of_connections() {
    let mut scene = Scene::new();
    let mut own = Vec::new();
    for row in 101..=120 {
        let owner = ConnectionOwner::Row(scene.orders.clone(), row);
        let entered = scene.ledger.enter_proxy(client(9), owner, 0);
        entered.set_activity(busy(0));
        own.push(entered);
    }
    // A client with all connections would lose a request.
    assert!(scene.chosen_for(1).is_empty());
    let direct: Vec<_> = (0..10).map(|_| scene.open(2, busy(0))).collect();
    let chosen = scene.chosen_for(1);
    assert!(
        matches!(chosen[..], [..=10]),
        "{chosen:?} of a client with fewer requests"
    );
    drop(direct);
    own[7].set_activity(Idle(5));
    assert_eq!(scene.chosen_for(1), [108]);
}

/// Returns a client in 2001:db8:A::/48, with B as the last 16 bits of its /64 prefix.
fn v6(a: u16, b: u16) -> ClientNetwork {
    IpAddr::from(std::net::Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, 0, 1)).into()
}

#[test]
fn many_networks_with_few_requests_leave_room_for_a_newcomer() {
    for (networks, per_network) in [(40, 5), (100, 2), (200, 1)] {
        let mut scene = Scene::new();
        let mut open = Vec::new();
        for nth in 0..networks {
            for part in 0..per_network {
                open.push(scene.open_of(v6(nth, 0), AwaitsClient(u64::from(nth + part))));
            }
        }
        // A request that has just moved stays, until the newcomer has waited.
        let moved = u64::from(networks + per_network);
        assert_eq!(scene.chosen_at(client(1), 999), [], "{networks}");
        assert_eq!(scene.chosen_at(client(1), 1_000), [1], "{networks}");
        open[0].set_activity(AwaitsClient(moved));
        let waited = |ms| scene.ledger.choose(newcomer(client(1), 0, ms)).len();
        for entry in &open {
            entry.set_activity(Busy(2_000));
        }
        assert_eq!((waited(1_999), waited(2_000)), (0, 1), "{networks}");
        // A client with a connection waits for a free place.
        assert_eq!(scene.chosen_at(v6(0, 0), 9_000), [], "{networks}");
    }
}

#[test]
fn a_wide_network_with_many_clients_is_one_client() {
    let mut scene = Scene::new();
    // 200 downloads that move, of 40 networks of one /56.
    let mut open: Vec<_> = (0..200)
        .map(|nth| scene.open_of(v6(0, 0x100 + nth % 40), Busy(990)))
        .collect();
    // Neighbours in the same /48, and clients elsewhere, are served at once.
    assert_eq!(scene.chosen_at(v6(0, 0xcc00), 1_000).len(), 1);
    assert_eq!(scene.chosen_at(client(1), 1_000).len(), 1);
    // Another /64 of the flood is no newcomer to clients outside.
    open.truncate(150);
    let others: Vec<_> = (0..50).map(|nth| scene.open(nth, Busy(990))).collect();
    assert_eq!(scene.chosen_at(v6(0, 0x1ff), 1_000), []);
    // Its turn comes last among waiting clients.
    let waiting = [v6(0, 0x1ff), v6(0, 0xcc00), v6(7, 0)];
    assert_eq!(scene.ledger.service_order(waiting.into_iter()), [2, 1, 0]);
    drop((open, others));
    let holders = scene.ledger.lock();
    assert!(holders.wide.is_empty() && holders.by_client.is_empty());
}

/// Ends the chosen connections, as workers do.
fn end(scene: &Scene, chosen: Vec<Arc<ConnectionEntry>>) {
    for entry in chosen {
        scene.ledger.record_eviction(&entry, 0);
    }
}

#[test]
fn a_client_that_was_too_slow_goes_last() {
    let (mut scene, _others) = Scene::with_others();
    let slow = scene.open(10, AwaitsClient(9_990));
    let _other = scene.open(11, AwaitsClient(9_991));
    // The slow client drips bytes, so the newcomer has to wait once.
    assert_eq!(scene.chosen_at(client(1), 10_000), []);
    end(
        &scene,
        scene.ledger.choose(newcomer(client(1), 8_000, 10_000)),
    );
    drop(slow);
    let ledger = scene.ledger.clone();
    ledger.record_grant(client(1), 10_000);
    let order = |clients: [u8; 3]| ledger.service_order(clients.into_iter().map(client));
    assert_eq!(order([10, 1, 2]), [2, 1, 0]);
    // A full queue drops the slow client first, and then the client that got a connection lately.
    let turned_away = |clients: &[u8]| ledger.last_in_line(clients.iter().copied().map(client));
    assert_eq!(turned_away(&[3, 10, 1, 2]), Some(1));
    assert_eq!(turned_away(&[3, 1, 2]), Some(1));
    assert_eq!(turned_away(&[3, 2]), None);
    // It takes no connection that moves, however long it waits.
    assert!(ledger.choose(newcomer(client(10), 0, 10_900)).is_empty());
    // Its request gives way at once, before a request that moved longer ago.
    let back = scene.open(10, AwaitsClient(10_995));
    assert_eq!(scene.chosen_at(client(2), 11_000), [7]);
    // Further newcomers wait for it to end.
    assert_eq!(scene.chosen_at(client(3), 30_000), []);
    drop(back);
    assert_eq!(scene.chosen_at(client(3), 30_000), [6]);
}

#[test]
fn a_slow_client_ends_no_request_that_waits_for_the_server() {
    let (mut scene, _others) = Scene::with_others();
    scene.ledger.lock().history.record_slow(client(10));
    let _long_poll = scene.open(11, Busy(0));
    assert_eq!(scene.chosen_at(client(10), 9_000), []);
    let _silent = scene.open(12, AwaitsClient(8_000));
    assert_eq!(scene.chosen_at(client(10), 9_000), [6]);
}

#[test]
fn only_a_wait_for_the_client_counts_as_slow() {
    let many: Vec<Activity> = (0..9).map(AwaitsClient).collect();
    for (held, is_slow) in [
        (&[AwaitsClient(0)][..], true),
        (&[Busy(0)], false),
        (&[Idle(0)], false),
        (&many, false),
    ] {
        let mut scene = Scene::new();
        let _open: Vec<_> = held.iter().map(|it| scene.open(10, *it)).collect();
        let chosen = scene.ledger.choose(newcomer(client(1), 0, 9_000));
        assert_eq!(chosen.len(), 1, "{held:?}");
        end(&scene, chosen);
        let holders = scene.ledger.lock();
        assert_eq!(holders.history.is_slow(client(10)), is_slow, "{held:?}");
    }
}

#[test]
fn a_page_load_keeps_its_connection_between_two_requests() {
    let (mut scene, others) = Scene::with_others();
    let page = scene.open_at(9_000, client(10), Idle(9_800));
    // A newcomer waits until the connection has been idle for 250 ms, or until the page should be loaded.
    assert_eq!(scene.chosen_at(client(1), 10_049), []);
    let endings = [(9_800, 10_050), (10_999, 11_000)];
    for (idle_ms, now_ms) in endings {
        page.set_activity(Idle(idle_ms));
        assert_eq!(scene.chosen_at(client(1), now_ms - 1), [], "{now_ms}");
        assert_eq!(scene.chosen_at(client(1), now_ms), [5], "{now_ms}");
        page.set_activity(Idle(idle_ms + 1));
        assert!(!page.entry().is_evicted());
    }
    page.set_activity(Idle(9_950));
    // A stalled request ends before the connection, also for a newcomer that has waited.
    let waited = newcomer(client(1), 8_000, 10_000);
    let stalled = scene.open(11, AwaitsClient(9_000));
    assert_eq!(rows(scene.ledger.choose(waited)), [6]);
    drop(stalled);
    // A handshake needs several round trips, so it ends after a request that moves.
    let moving = scene.open(11, AwaitsClient(9_990));
    page.set_activity(Idle(10_700));
    assert_eq!(rows(scene.ledger.choose(waited)), [7]);
    drop(moving);
    page.set_activity(Idle(9_950));
    // A request that moves ends after the connection, which loses no response.
    let moving = scene.open(11, AwaitsClient(9_990));
    assert_eq!(rows(scene.ledger.choose(waited)), [5]);
    page.set_activity(Idle(9_951));
    assert!(!page.entry().is_evicted());
    drop((others, moving));
    // A slow client waits for longer.
    scene.ledger.lock().history.record_slow(client(30));
    assert_eq!(scene.chosen_at(client(30), 10_950), []);
    assert_eq!(scene.chosen_at(client(30), 10_951).len(), 1);
}

#[test]
fn a_request_that_waits_for_the_server_has_ten_seconds() {
    let mut scene = Scene::new();
    let open = (100..104).map(|nth| scene.open_at(8_000, client(nth), Busy(20_000)));
    let _others: Vec<_> = open.collect();
    let script = scene.open_at(1_000, client(10), Busy(2_000));
    assert_eq!(scene.chosen_at(client(1), 11_999), []);
    // A client that got a connection lately waits for as long, and ends no request of a younger connection.
    let ledger = scene.ledger.clone();
    ledger.record_grant(client(2), 2_000);
    assert!(ledger.choose(newcomer(client(2), 0, 10_999)).is_empty());
    assert_eq!(ledger.choose(newcomer(client(2), 0, 11_000)).len(), 1);
    script.set_activity(Busy(2_001));
    assert!(!script.entry().is_evicted());
    assert!(ledger.choose(newcomer(client(2), 1_001, 11_000)).is_empty());
    // A newcomer waits for 2 s.
    assert!(ledger.choose(newcomer(client(1), 9_001, 11_000)).is_empty());
    assert_eq!(ledger.choose(newcomer(client(1), 9_000, 11_000)).len(), 1);
    script.set_activity(Busy(2_000));
    assert!(!script.entry().is_evicted());
    assert_eq!(scene.chosen_at(client(1), 12_000), [5]);
}

#[test]
fn a_client_that_used_its_connections_for_long_goes_after_others() {
    let mut scene = Scene::new();
    let _other = scene.open(5, Busy(0));
    let ledger = scene.ledger.clone();
    for (last, opened_ms, closed_ms) in [(1, 1_000, 2_000), (3, 2_000, 3_100), (2, 3_000, 9_000)] {
        ledger.record_grant(client(last), opened_ms);
        let open = scene.open_at(opened_ms, client(last), Busy(opened_ms));
        ledger.lock().history.advance(closed_ms);
        drop(open);
    }
    // The grants of 1 and 3 are older than that of 4, which has used nothing yet.
    ledger.record_grant(client(4), 9_500);
    let order = ledger.service_order([2, 3, 1, 4].into_iter().map(client));
    assert_eq!(order, [3, 2, 1, 0]);
    assert_eq!(
        ledger.last_in_line([3, 2, 1].into_iter().map(client)),
        Some(1)
    );
}

#[test]
fn a_client_that_moved_much_is_not_slow() {
    let scene = &mut Scene::new();
    let upload = scene.open_at(0, client(10), AwaitsClient(9_990));
    let ledger = &scene.ledger;
    for (rate, is_slow) in [(32 * 1_024, false), (32 * 1_024 - 1, true)] {
        upload.set_activity(AwaitsClient(9_990));
        assert_eq!(ledger.choose(newcomer(client(1), 8_000, 10_000)).len(), 1);
        ledger.record_eviction(upload.entry(), rate);
        assert_eq!(ledger.is_slow(client(10), 10_000), is_slow, "{rate}");
        upload.set_activity(AwaitsClient(9_991));
        assert!(!upload.entry().is_evicted());
    }
}

#[test]
fn stalled_requests_of_a_proxy_do_not_keep_newcomers_out() {
    let scene = Scene::new();
    let proxy = client(9);
    let owner = |row| ConnectionOwner::Row(scene.orders.clone(), row);
    let open: Vec<_> = (0..4)
        .map(|row| scene.ledger.enter_proxy(proxy, owner(row), 0))
        .collect();
    for entry in &open {
        entry.set_activity(AwaitsClient(500));
    }
    for newcomer in [client(1), proxy] {
        assert_eq!(scene.chosen_at(newcomer, 10_499), []);
        assert_eq!(scene.chosen_at(newcomer, 10_500).len(), 1);
        for entry in &open {
            entry.set_activity(Busy(501));
            assert!(!entry.entry().is_evicted());
            entry.set_activity(Busy(500));
        }
    }
    // A neighbour in the network of the proxy is no proxy.
    let mut scene = scene;
    let _neighbour = scene.open(9, AwaitsClient(8_000));
    assert_eq!(scene.chosen_at(client(1), 9_000), [1]);
}

#[test]
fn the_more_clients_wait_the_more_requests_end_at_once() {
    for (waiting, ended) in [(0, 1), (20, 1), (32, 2), (64, 4)] {
        let mut scene = Scene::new();
        let _open: Vec<_> = (0..8).map(|nth| scene.open(nth, Busy(0))).collect();
        let chosen = (0..8).map(|nth| {
            let newcomer = Newcomer {
                client: client(100 + nth),
                since_ms: 0,
                now_ms: 9_000,
                waiting,
                needs_descriptor: false,
            };
            scene.ledger.choose(Shortage::Connections(newcomer)).len()
        });
        assert_eq!(chosen.sum::<usize>(), ended, "{waiting}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// Clients of a test: some with IPv4, and some in wide networks.
    fn clients() -> impl Strategy<Value = ClientNetwork> {
        prop_oneof![
            (10..40_u8).prop_map(client),
            (1..4_u16, 0..600_u16).prop_map(|(a, b)| v6(a, b)),
        ]
    }

    proptest! {
        #[test]
        fn a_newcomer_is_always_served(
            held in prop::collection::vec((clients(), any::<bool>(), 0..5_000_u64), 1..200),
            from_flooded_prefix: bool,
        ) {
            let mut scene = Scene::new();
            let mut open = Vec::new();
            for (client, is_idle, ms) in held {
                let standing = if is_idle { Idle(ms) } else { Busy(ms) };
                open.push(scene.open_of(client, standing));
            }
            let client = if from_flooded_prefix { v6(1, 0xff00) } else { client(1) };
            let chosen = scene.ledger.choose(newcomer(client, 3_000, 5_000));
            prop_assert!(!chosen.is_empty());
        }

        #[test]
        fn a_client_with_few_requests_loses_none_beside_a_large_holder(
            few in prop::collection::vec((10..40_u8, 0..5_000_u64), 0..60),
            many in 130..200_u64,
            is_network: bool,
        ) {
            let mut scene = Scene::new();
            let mut open = Vec::new();
            for nth in 0..many {
                let holder = if is_network { v6(1, nth as u16) } else { client(2) };
                open.push(scene.open_of(holder, Busy(6_000 + nth)));
            }
            for (last, ms) in few {
                open.push(scene.open(last, Busy(ms)));
            }
            let chosen = scene.chosen_at(client(1), 9_000);
            prop_assert!(matches!(chosen[..], [row] if row <= many as usize), "{chosen:?}");
        }
    }
}
