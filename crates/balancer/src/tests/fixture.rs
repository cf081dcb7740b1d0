//! A balancer under a virtual clock. Members are named by letters, the first is `a`.

use crate::balancer_settings::{BalancerSettings, RetrySettings, StickySettings};
use crate::member_settings::{
    AdminState, CheckKind, CheckSettings, EjectionSettings, MemberHost, MemberRole, MemberSettings,
    MemberUrl,
};
use crate::method::BalancingMethod;
use crate::{
    BalancerReport, CheckFailure, CheckOutcome, ChooseRequest, Connections, HealthReport, MemberId,
    MemberReport, MemberState, NextCheck, NoMember, SessionKey, StateChange,
};
use base::client_network::ClientNetwork;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Connections to members that no test opens.
pub(super) struct NoConnections;

impl Connections for NoConnections {
    fn close_idle(&self) {}
}

pub(super) type Balancer = crate::Balancer<NoConnections>;
pub(super) type Balancers = crate::Balancers<NoConnections>;
pub(super) type Lease = crate::Lease<NoConnections>;
pub(super) type Member = crate::Member<NoConnections>;
pub(super) type QueueTicket = crate::QueueTicket<NoConnections>;
pub(super) type Waited = crate::Waited<NoConnections>;

/// A balancer and its clock.
pub(super) struct Fixture {
    pub(super) balancer: Arc<Balancer>,
    pub(super) now_ms: u64,
    /// Number of the last client.
    clients: AtomicU64,
}

/// Returns the settings of the member with the letter `name`, changed by `change`.
pub(super) fn member(name: char, change: impl FnOnce(&mut MemberSettings)) -> MemberSettings {
    let mut settings = MemberSettings {
        url: url(name),
        weight: 100,
        set: 0,
        role: MemberRole::Regular,
        route: Box::default(),
        redirect: Box::default(),
        admin: AdminState::Enabled,
        ignores_errors: false,
        connections_max: None,
        check: Default::default(),
    };
    change(&mut settings);
    settings
}

/// Returns settings of the members with the letters in `names`.
pub(super) fn members(names: &str) -> Vec<MemberSettings> {
    names.chars().map(|name| member(name, |_| {})).collect()
}

/// Returns the URL of the member with the letter `name`.
pub(super) fn url(name: char) -> MemberUrl {
    let port = 9_000 + (name as u16 - 'a' as u16);
    MemberUrl {
        is_tls: false,
        host: MemberHost::Address(([127, 0, 0, 1], port).into()),
    }
}

fn name_of(url: &MemberUrl) -> char {
    let MemberHost::Address(address) = &url.host else {
        return '?';
    };
    char::from(b'a' + (address.port() - 9_000) as u8)
}

/// Returns settings of a balancer.
pub(super) fn settings(members: Vec<MemberSettings>) -> BalancerSettings {
    BalancerSettings {
        name: "test".into(),
        method: BalancingMethod::ByRequests,
        members,
        sticky: None,
        check: None,
        ejection: EjectionSettings {
            failures: 3,
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(8),
            statuses: vec![503],
        },
        retry: RetrySettings::default(),
        slow_start: Duration::ZERO,
        connection: Default::default(),
    }
}

/// Returns settings of checks each 500 ms that need 2 results in a row.
pub(super) fn checks() -> CheckSettings {
    CheckSettings {
        kind: CheckKind::Tcp,
        every: Duration::from_millis(500),
        timeout: Duration::from_millis(500),
        rise: 2,
        fall: 2,
    }
}

/// Returns the client with the address 192.0.2.`last`.
pub(super) fn client(last: u8) -> ClientNetwork {
    std::net::IpAddr::from([192, 0, 2, last]).into()
}

/// Returns settings of sessions by the members' own cookies.
pub(super) fn sticky() -> StickySettings {
    StickySettings {
        cookie: "S".into(),
        path_parameter: None,
        is_signed: false,
        is_strict: false,
    }
}

impl Fixture {
    /// Starts a balancer at 10,000 ms.
    pub(super) fn new(settings: BalancerSettings) -> Fixture {
        let now_ms = 10_000;
        let key = SessionKey::new(&[1; 32]);
        Fixture {
            balancer: Arc::new(Balancer::new(settings, &key, 1, now_ms)),
            now_ms,
            clients: AtomicU64::new(0),
        }
    }

    /// Starts a balancer with the members of the letters in `names`.
    pub(super) fn of(names: &str) -> Fixture {
        Fixture::new(settings(members(names)))
    }

    /// Returns a request of a new client.
    pub(super) fn request(&self) -> ChooseRequest<'static> {
        ChooseRequest {
            client: client(1),
            client_hash: self.clients.fetch_add(1, Ordering::Relaxed),
            is_gathered: true,
            is_tunnel: false,
            session: None,
            tried: &[],
            now_ms: self.now_ms,
        }
    }

    pub(super) fn choose(&self) -> Result<Lease, NoMember> {
        self.balancer.choose(&self.request())
    }

    pub(super) fn choose_after(&self, tried: &str) -> Result<Lease, NoMember> {
        let tried: Vec<MemberId> = tried.chars().map(|name| self.member(name).id()).collect();
        self.balancer.choose(&ChooseRequest {
            tried: &tried,
            ..self.request()
        })
    }

    pub(super) fn choose_session(&self, session: &str) -> Result<Lease, NoMember> {
        self.balancer.choose(&ChooseRequest {
            session: Some(session),
            ..self.request()
        })
    }

    /// Makes `count` successful requests one after another, and returns the letters of the members; `!` for
    /// no member.
    pub(super) fn sequence(&self, count: usize) -> String {
        (0..count).map(|_| self.answer(self.choose())).collect()
    }

    /// Makes `count` successful requests of a session.
    pub(super) fn session_sequence(&self, session: &str, count: usize) -> String {
        let answer = |_| self.answer(self.choose_session(session));
        (0..count).map(answer).collect()
    }

    /// Ends a request with success, and returns the letter of the member.
    pub(super) fn answer(&self, lease: Result<Lease, NoMember>) -> char {
        match lease {
            Ok(mut lease) => {
                lease.record_answer(200, 1_000, self.now_ms);
                letter(&lease)
            }
            Err(_) => '!',
        }
    }

    /// Returns the member with the letter `name`.
    pub(super) fn member(&self, name: char) -> Arc<Member> {
        self.balancer.member(&url(name)).expect("a member")
    }

    pub(super) fn state(&self, name: char) -> MemberState {
        self.member(name).state()
    }

    /// Changes the settings of the member with the letter `name` by order of the operator.
    pub(super) fn edit(
        &self,
        name: char,
        edit: impl FnOnce(&mut MemberSettings),
    ) -> Option<StateChange> {
        let url = url(name);
        let changes = self.edit_balancer(|settings| {
            let mut members = settings.members.iter_mut();
            edit(members.find(|member| member.url == url).expect("a member"));
        });
        changes.first().copied()
    }

    /// Changes the settings of the balancer by order of the operator.
    pub(super) fn edit_balancer(
        &self,
        edit: impl FnOnce(&mut BalancerSettings),
    ) -> Vec<StateChange> {
        let mut settings = BalancerSettings::clone(&self.balancer.settings());
        edit(&mut settings);
        let changes = self.balancer.edit(settings, self.now_ms).changes;
        changes.into_iter().map(|(_, change)| change).collect()
    }

    /// Sets the result of the checks of the member with the letter `name`.
    pub(super) fn force_checks(&self, name: char, is_failed: bool) {
        self.balancer
            .force_checks(&url(name), is_failed, self.now_ms);
    }

    pub(super) fn report(&self) -> BalancerReport {
        self.balancer.report(self.now_ms)
    }

    pub(super) fn report_of(&self, name: char) -> MemberReport {
        let members = self.report().members;
        let mut found = members.into_iter().filter(|member| member.url == url(name));
        found.next().expect("a member")
    }

    /// Makes requests until the member with the letter `name` is chosen.
    pub(super) fn lease_of(&self, name: char) -> Lease {
        (0..100)
            .find_map(|_| self.choose().ok().filter(|lease| letter(lease) == name))
            .expect("a lease of the member")
    }

    /// Lets the connection to a member fail.
    pub(super) fn fail_connection(&self, name: char) -> Option<StateChange> {
        self.lease_of(name).record_connect_failure(self.now_ms)
    }

    /// Makes all checks that are due. The members with the letters in `failing` fail.
    pub(super) fn run_due_checks(&self, failing: &str) -> Vec<(char, HealthReport)> {
        let mut reports = Vec::new();
        while let NextCheck::Run(run) = self.balancer.next_check(self.now_ms) {
            let name = name_of(run.member().url());
            let outcome = match failing.contains(name) {
                true => CheckOutcome::Failed(CheckFailure::Timeout),
                false => CheckOutcome::Passed,
            };
            reports.push((name, self.balancer.finish_check(run, outcome, self.now_ms)));
        }
        reports
    }

    /// Advances the clock in steps of 50 ms and makes all checks that are due.
    pub(super) fn run_checks(
        &mut self,
        failing: &str,
        duration_ms: u64,
    ) -> Vec<(char, HealthReport)> {
        let mut reports = Vec::new();
        let end_ms = self.now_ms + duration_ms;
        while self.now_ms < end_ms {
            self.now_ms += 50;
            reports.extend(self.run_due_checks(failing));
        }
        reports
    }
}

/// Returns the letter of a lease's member.
pub(super) fn letter(lease: &Lease) -> char {
    name_of(lease.member().url())
}
