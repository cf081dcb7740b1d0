//! Tests of idle connections to a member on the loopback address.

use super::*;
use std::net::TcpListener;
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
