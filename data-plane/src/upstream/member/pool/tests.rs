//! Tests of idle connections to a member on the loopback address.

use super::*;
use crate::upstream::member::connecting::MemberConnecting;
use crate::upstream::member::h2_conn::H2MemberConn;
use crate::upstream::resolver::Resolver;
use balancer::settings::MemberHost;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr, TcpListener};
use tokio::task::LocalSet;

/// Pool of a member that accepts connections and never answers.
struct TestPool {
    pool: Arc<MemberPool>,
    address: BackendAddress,
    _member: TcpListener,
}

impl TestPool {
    fn new(idle_max: usize) -> TestPool {
        let member = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = BackendAddress::Tcp(member.local_addr().unwrap());
        let settings = ConnectionSettings {
            idle_max,
            ..ConnectionSettings::default()
        };
        let at = MemberAddress::Fixed(address.clone());
        TestPool {
            pool: Arc::new(MemberPool::new(
                b"127.0.0.1".as_slice().into(),
                at,
                settings,
                None,
            )),
            address,
            _member: member,
        }
    }

    /// Puts `count` new connections into the pool.
    fn put(&self, count: usize, now: Instant) {
        for _ in 0..count {
            let (conn, _) = self.pool.connect(&self.address, Vec::new(), None).unwrap();
            self.pool.put_idle(conn, now);
        }
    }

    fn idle(&self) -> usize {
        self.pool.idle_count.load(Ordering::Relaxed)
    }
}

/// Runs a test in the runtime of a worker.
fn in_worker(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async { test() });
}

#[test]
fn connections_beyond_the_bound_stay_for_a_moment() {
    in_worker(|| {
        let test = TestPool::new(2);
        let start = Instant::now();
        test.put(5, start);
        assert!(test.pool.close_unused(start + MEMBER_IDLE_SURPLUS / 2));
        assert_eq!(test.idle(), 5);
        assert!(test.pool.close_unused(start + MEMBER_IDLE_SURPLUS));
        assert_eq!(test.idle(), 2);
        assert!(
            !test
                .pool
                .close_unused(start + test.pool.settings.idle_timeout)
        );
        assert_eq!(test.idle(), 0);
    });
}

#[test]
fn the_longest_idle_connections_are_the_surplus() {
    in_worker(|| {
        let test = TestPool::new(2);
        let start = Instant::now();
        test.put(3, start);
        let later = start + MEMBER_IDLE_SURPLUS;
        test.put(2, later);
        assert!(test.pool.close_unused(later));
        let list = test.pool.list();
        let since: Vec<Instant> = list.connections.iter().map(|idle| idle.since).collect();
        assert_eq!(since, [later, later]);
    });
}

#[test]
fn a_pool_without_idle_connections_closes_each_connection_at_once() {
    in_worker(|| {
        let test = TestPool::new(0);
        test.put(3, Instant::now());
        assert_eq!(test.idle(), 0);
    });
}

/// Member with a host name, which a test moves between the addresses 127.0.0.1 to 127.0.0.9.
struct MovingMember {
    pool: Arc<MemberPool>,
    resolver: Resolver,
    /// Answer of the name server; None for a failure.
    answer: Arc<Mutex<Option<Vec<u8>>>>,
    now_ms: u64,
    looked_up: Arc<AtomicUsize>,
    _listeners: Vec<TcpListener>,
}

impl MovingMember {
    fn new(last: &[u8]) -> MovingMember {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let further = (2..10)
            .map(|last| TcpListener::bind(SocketAddr::from(([127, 0, 0, last], port))).unwrap());
        let listeners = std::iter::once(first).chain(further).collect();
        let answer = Arc::new(Mutex::new(Some(last.to_vec())));
        let looked_up = Arc::new(AtomicUsize::new(0));
        let (answers, counts) = (Arc::clone(&answer), Arc::clone(&looked_up));
        let resolver = Resolver::new(Arc::new(move |_: &str| {
            let answer = answers.lock().unwrap().clone();
            counts.fetch_add(1, Ordering::Relaxed);
            let last = answer.ok_or(io::ErrorKind::NotFound)?;
            Ok(last
                .iter()
                .map(|it| IpAddr::from([127, 0, 0, *it]))
                .collect())
        }));
        let address = MemberAddress::new(&MemberHost::Name("a.example".into(), port), &resolver);
        let settings = ConnectionSettings::default();
        let pool = Arc::new(MemberPool::new(Box::default(), address, settings, None));
        let mut moving = MovingMember {
            pool,
            resolver,
            answer,
            now_ms: 0,
            looked_up,
            _listeners: listeners,
        };
        moving.look_up();
        moving
    }

    /// Looks the name up again, and waits for the end of the look-up.
    fn look_up(&mut self) {
        let before = self.looked_up.load(Ordering::Relaxed);
        // The second look-up begins only after the end of the first.
        while self.looked_up.load(Ordering::Relaxed) < before + 2 {
            self.now_ms += 30_000;
            self.resolver.refresh(self.now_ms);
            std::thread::yield_now();
        }
    }

    fn answer(&mut self, last: Option<&[u8]>) {
        *self.answer.lock().unwrap() = last.map(<[u8]>::to_vec);
        self.look_up();
    }

    /// Connects to the next address of the member.
    async fn connect(&self) -> MemberConn {
        let pool = Arc::clone(&self.pool);
        let mut connecting = MemberConnecting::new(pool, Duration::from_secs(10), Vec::new());
        poll_fn(|cx| connecting.poll(cx)).await.unwrap()
    }

    fn put(&self, conn: MemberConn) {
        self.pool.put_idle(conn, Instant::now());
    }

    /// Takes the idle connections. Returns the last numbers of their addresses.
    fn take_all(&self) -> Vec<u8> {
        let taken = std::iter::from_fn(|| self.pool.take_idle(|_| true));
        let mut last: Vec<u8> = taken.map(|mut conn| last_number(&mut conn)).collect();
        last.sort_unstable();
        last
    }
}

fn last_number(conn: &mut MemberConn) -> u8 {
    match conn.origin().address {
        Some(IpAddr::V4(address)) => address.octets()[3],
        other => panic!("{other:?}"),
    }
}

/// Runs a test with connections in the runtime of a worker.
fn with_member(last: &[u8], test: impl AsyncFnOnce(MovingMember)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test(MovingMember::new(last)));
}

#[test]
fn idle_connections_follow_the_name_of_the_member() {
    with_member(&[1], async |mut member| {
        for _ in 0..3 {
            member.put(member.connect().await);
        }
        let in_use = member.pool.take_idle(|_| true).unwrap();
        member.answer(None);
        assert_eq!(
            member.take_all(),
            [1, 1],
            "a failed look-up changes nothing"
        );
        member.put(in_use);
        member.put(member.connect().await);
        let in_use = member.pool.take_idle(|_| true).unwrap();
        member.answer(Some(&[2]));
        assert_eq!(member.take_all(), []);
        // A connection that was in use meanwhile is not kept.
        member.put(in_use);
        assert_eq!(member.take_all(), []);
        assert_eq!(member.pool.idle_count.load(Ordering::Relaxed), 0);
        member.put(member.connect().await);
        assert_eq!(member.take_all(), [2]);
    });
}

#[test]
fn the_sweep_closes_idle_connections_to_addresses_that_left() {
    with_member(&[1, 2], async |mut member| {
        for _ in 0..4 {
            member.put(member.connect().await);
        }
        member.answer(Some(&[2, 3]));
        assert!(member.pool.close_unused(Instant::now()));
        assert_eq!(member.pool.idle_count.load(Ordering::Relaxed), 2);
        assert_eq!(member.take_all(), [2, 2]);
    });
}

#[test]
fn another_order_of_the_addresses_keeps_the_connections() {
    with_member(&[1, 2, 3], async |mut member| {
        for _ in 0..3 {
            member.put(member.connect().await);
        }
        for answer in [[3, 1, 2], [2, 3, 1], [1, 3, 2]] {
            member.answer(Some(&answer));
            assert!(member.pool.close_unused(Instant::now()));
        }
        assert_eq!(member.take_all(), [1, 2, 3]);
    });
}

#[test]
fn a_connection_of_http_2_takes_no_request_after_its_address_left() {
    with_member(&[1], async |mut member| {
        let mut conn = member.connect().await;
        let shared = H2MemberConn::new(false, *conn.origin(), conn.usage());
        let is_retired = |member: &MovingMember| {
            shared.retire_if_left(&member.pool);
            shared.0.borrow().is_retired
        };
        assert!(!is_retired(&member));
        member.answer(Some(&[2, 1]));
        assert!(!is_retired(&member));
        member.answer(Some(&[2]));
        assert!(is_retired(&member));
        let address: SocketAddr = ([127, 0, 0, 1], 1).into();
        let mut former = ConnOrigin::new(&BackendAddress::Tcp(address));
        assert!(!member.pool.leads_to(&mut former));
    });
}
