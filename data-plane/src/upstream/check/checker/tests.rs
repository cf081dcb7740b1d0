//! Checks of members on loopback addresses, under a virtual clock.

use super::Checker;
use crate::limits::CHECKS_MAX;
use crate::upstream::BalancerPlan;
use crate::upstream::resolver::Resolver;
use crate::upstream::{Balancer, Balancers};
use balancer::settings::{
    AdminState, BalancerSettings, BalancingMethod, CheckKind, CheckSettings, MemberHost,
    MemberSettings, MemberUrl,
};
use balancer::{MemberState, SessionKey};
use base::task;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// A server that the test makes silent.
struct TestMember {
    address: SocketAddr,
    is_silent: AtomicBool,
    /// Number of accepted connections.
    connections: AtomicUsize,
}

impl TestMember {
    async fn start(host: &str) -> Arc<TestMember> {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let member = Arc::new(TestMember {
            address: listener.local_addr().unwrap(),
            is_silent: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&member);
        task::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, SeqCst);
                let shared = Arc::clone(&shared);
                task::spawn(async move { shared.serve(stream).await });
            }
        });
        member
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut received = Vec::new();
        let mut part = [0; 1_024];
        while let Ok(read @ 1..) = stream.read(&mut part).await {
            received.extend_from_slice(&part[..read]);
            let is_answered = received.ends_with(b"\r\n\r\n") && !self.is_silent.load(SeqCst);
            if is_answered {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready";
                let _ = stream.write_all(answer).await;
            }
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Returns the number of connections that clients have open, by the table of the system. The member itself sees on a
    /// busy machine the end of a connection later than the connection that follows it. The table may show a connection
    /// twice while other programs open and close connections, so the addresses are counted.
    fn open_connections(&self) -> usize {
        const ESTABLISHED: &str = "01";
        const CONNECTING: &str = "02";
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let peer = format!(":{:04X}", self.address.port());
        let open = sockets.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (client, member, state) = (fields.next()?, fields.next()?, fields.next()?);
            let is_open = matches!(state, ESTABLISHED | CONNECTING);
            (member.ends_with(&peer) && is_open).then_some(client)
        });
        open.collect::<HashSet<_>>().len()
    }
}

/// Returns milliseconds of the virtual clock.
fn now_ms() -> u64 {
    thread_local! {
        static ORIGIN: OnceLock<Instant> = const { OnceLock::new() };
    }
    let origin = ORIGIN.with(|origin| *origin.get_or_init(Instant::now));
    1_000 + origin.elapsed().as_millis() as u64
}

async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn on_paused_clock(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build();
    runtime.unwrap().block_on(test);
}

/// Returns a balancer with checks every 500 ms.
fn balancer(addresses: impl IntoIterator<Item = SocketAddr>, kind: CheckKind) -> Arc<Balancer> {
    let members = addresses.into_iter().map(|address| MemberSettings {
        url: url(address),
        weight: 100,
        set: 0,
        role: Default::default(),
        route: Box::default(),
        redirect: Box::default(),
        admin: AdminState::Enabled,
        ignores_errors: false,
        connections_max: None,
        check: Default::default(),
    });
    let settings = BalancerSettings {
        name: "test".into(),
        method: BalancingMethod::ByRequests,
        members: members.collect(),
        sticky: None,
        check: Some(CheckSettings {
            kind,
            every: Duration::from_millis(500),
            timeout: Duration::from_millis(500),
            rise: 2,
            fall: 2,
        }),
        ejection: Default::default(),
        retry: Default::default(),
        slow_start: Duration::ZERO,
        connection: Default::default(),
    };
    let registry = Balancers::new(SessionKey::new(&[1; 32]), 1);
    let tls = settings.members.iter().map(|_| None).collect();
    let plan = BalancerPlan::new(&registry, &Resolver::system(), &settings, tls, now_ms());
    plan.put_in_force(&registry, now_ms());
    Arc::clone(plan.balancer())
}

fn url(address: SocketAddr) -> MemberUrl {
    MemberUrl {
        is_tls: false,
        host: MemberHost::Address(address),
    }
}

fn get(text: Option<&str>) -> CheckKind {
    CheckKind::Http {
        is_head: false,
        path: "/health".into(),
        host: None,
        status: (200, 299),
        text: text.map(Box::from),
    }
}

/// Starts the checks of a balancer.
fn start(balancer: &Arc<Balancer>) -> Arc<Checker> {
    let checker = Arc::new(Checker::with_clock(now_ms));
    task::spawn(Arc::clone(&checker).run());
    checker.follow(vec![Arc::clone(balancer)]);
    checker
}

fn states(balancer: &Balancer) -> Vec<MemberState> {
    balancer.members().iter().map(|it| it.state()).collect()
}

#[test]
fn a_silent_member_falls_and_a_recovered_member_rises() {
    on_paused_clock(async {
        let members = [
            TestMember::start("127.0.0.1").await,
            TestMember::start("127.0.0.1").await,
        ];
        let balancer = balancer(members.iter().map(|it| it.address), get(Some("ready")));
        start(&balancer);
        pass(5_000).await;
        assert_eq!(states(&balancer), [MemberState::Up; 2]);
        // The interval counts from start to start.
        let connections = members[0].connections();
        assert!((10..=11).contains(&connections), "{connections}");
        members[1].is_silent.store(true, SeqCst);
        pass(1_600).await;
        assert_eq!(
            states(&balancer),
            [MemberState::Up, MemberState::CheckFailed]
        );
        members[1].is_silent.store(false, SeqCst);
        pass(1_600).await;
        assert_eq!(states(&balancer), [MemberState::Up; 2]);
    });
}

#[test]
fn a_check_by_tcp_needs_a_connection_alone() {
    on_paused_clock(async {
        let member = TestMember::start("127.0.0.1").await;
        member.is_silent.store(true, SeqCst);
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let balancer = balancer([member.address, closed], CheckKind::Tcp);
        start(&balancer);
        pass(2_000).await;
        assert_eq!(
            states(&balancer),
            [MemberState::Up, MemberState::CheckFailed]
        );
    });
}

#[test]
fn the_number_of_simultaneous_checks_is_bounded_and_all_members_are_checked() {
    on_paused_clock(async {
        let member = TestMember::start("0.0.0.0").await;
        member.is_silent.store(true, SeqCst);
        let port = member.address.port();
        let addresses =
            (1..=200).map(|last| SocketAddr::new(IpAddr::from([127, 0, 1, last]), port));
        let balancer = balancer(addresses, get(None));
        start(&balancer);
        let mut open_max = 0;
        // A check of the silent member lasts for 500 ms. Between the ends of checks, no connection is about to change.
        pass(250).await;
        for _ in 0..20 {
            open_max = open_max.max(member.open_connections());
            pass(500).await;
        }
        assert_eq!(open_max, CHECKS_MAX);
        assert_eq!(states(&balancer), [MemberState::CheckFailed; 200]);
        assert!(balancer.report(now_ms()).are_checks_doubted);
    });
}

#[test]
fn changes_of_the_list_and_of_a_member_take_effect_at_once() {
    on_paused_clock(async {
        let member = TestMember::start("127.0.0.1").await;
        let balancer = balancer([member.address], get(None));
        let checker = start(&balancer);
        let set = |state| {
            let mut settings = BalancerSettings::clone(&balancer.settings());
            settings.members[0].admin = state;
            balancer.edit(settings, now_ms());
            checker.wake();
        };
        pass(100).await;
        assert_eq!(member.connections(), 1);
        set(AdminState::Stopped);
        pass(10_000).await;
        assert_eq!(member.connections(), 1);
        set(AdminState::Enabled);
        pass(100).await;
        assert_eq!(member.connections(), 2);
        checker.follow(Vec::new());
        pass(10_000).await;
        assert_eq!(member.connections(), 2);
        checker.follow(vec![Arc::clone(&balancer)]);
        pass(100).await;
        assert_eq!(member.connections(), 3);
    });
}
