//! Debian's Apache is the oracle of the balancing methods: with equal members, equal requests and equal
//! changes at runtime, the balancer chooses the sequence of members that mod_proxy_balancer chooses.
//!
//! Apache runs as a single process, so that the sequence is deterministic. The members are threads of the
//! test that answer with their own letter.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use balancer::settings::{
    AdminState, BalancerSettings, BalancingMethod, EjectionSettings, MemberHost, MemberRole,
    MemberSettings, MemberUrl, StickySettings,
};
use balancer::{ChooseRequest, NoMember, SessionKey};
use data_plane::upstream::{Balancer, Lease};

use crate::support::pebble::free_port;
use crate::support::{Folder, eventually, lossy, spawn, tool};

#[test]
fn byrequests_follows_the_weights() {
    for weights in [
        vec![100; 4],
        vec![300, 100, 100],
        vec![100, 250, 125],
        vec![10_000, 100, 3_333],
        vec![100],
    ] {
        let members = weights
            .into_iter()
            .map(|weight| Member { weight, ..member() });
        Case::new(BalancingMethod::ByRequests, members.collect()).compare();
    }
}

#[test]
fn bybusyness_shares_sequential_requests_as_byrequests() {
    for weights in [vec![100; 4], vec![300, 100, 100]] {
        let members = weights
            .into_iter()
            .map(|weight| Member { weight, ..member() });
        Case::new(BalancingMethod::ByBusyness, members.collect()).compare();
    }
}

#[test]
fn bytraffic_shares_the_bytes() {
    for (weights, sizes) in [
        (vec![100; 4], vec![10, 1_000, 3_000, 20]),
        (vec![300, 100, 100], vec![5_000, 5_000, 700]),
        (vec![100, 250], vec![40_000, 1]),
    ] {
        let members = weights.into_iter().zip(sizes);
        let members = members.map(|(weight, size)| Member {
            weight,
            size,
            ..member()
        });
        Case::new(BalancingMethod::ByTraffic, members.collect()).compare();
    }
}

#[test]
fn a_recovered_member_catches_up_its_bytes() {
    let sizes = [1_000, 2_000, 3_000];
    let members = sizes.map(|size| Member { size, ..member() });
    Case::new(BalancingMethod::ByTraffic, members.into())
        .then(15, 0, Edit::Admin(AdminState::Disabled))
        .then(40, 0, Edit::Admin(AdminState::Enabled))
        .compare();
}

#[test]
fn the_lowest_set_serves() {
    let in_sets = [3, 1, 1, 0].map(|set| Member { set, ..member() });
    Case::new(BalancingMethod::ByRequests, in_sets.into())
        .then(10, 3, Edit::Admin(AdminState::Disabled))
        .then(20, 1, Edit::Admin(AdminState::Stopped))
        .then(25, 2, Edit::Admin(AdminState::Draining))
        .then(35, 1, Edit::Admin(AdminState::Enabled))
        .then(40, 0, Edit::Set(0))
        .then(50, 2, Edit::Admin(AdminState::Enabled))
        .compare();
}

#[test]
fn a_spare_replaces_an_unusable_member() {
    let role = |role| Member { role, ..member() };
    let members = vec![
        role(MemberRole::Spare),
        member(),
        member(),
        role(MemberRole::Spare),
    ];
    Case::new(BalancingMethod::ByRequests, members)
        .then(10, 1, Edit::Admin(AdminState::Disabled))
        .then(20, 2, Edit::Admin(AdminState::Draining))
        .then(30, 0, Edit::Admin(AdminState::Disabled))
        .then(40, 1, Edit::Admin(AdminState::Enabled))
        .then(50, 3, Edit::Role(MemberRole::Regular))
        .compare();
}

#[test]
fn a_standby_serves_a_set_without_another_member() {
    let members = vec![
        Member {
            role: MemberRole::Standby,
            ..member()
        },
        member(),
        Member {
            role: MemberRole::Standby,
            ..member()
        },
        Member { set: 1, ..member() },
    ];
    Case::new(BalancingMethod::ByRequests, members)
        .then(10, 1, Edit::Admin(AdminState::Disabled))
        .then(20, 0, Edit::Admin(AdminState::Disabled))
        .then(30, 2, Edit::Admin(AdminState::Disabled))
        .then(40, 3, Edit::Admin(AdminState::Disabled))
        .then(50, 2, Edit::Admin(AdminState::Enabled))
        .compare();
}

#[test]
fn members_drain_by_the_balancer_manager() {
    for method in [
        BalancingMethod::ByRequests,
        BalancingMethod::ByTraffic,
        BalancingMethod::ByBusyness,
    ] {
        let members = [400, 500, 600].map(|size| Member { size, ..member() });
        Case::new(method, members.into())
            .then(11, 1, Edit::Admin(AdminState::Draining))
            .then(31, 1, Edit::Admin(AdminState::Enabled))
            .compare();
    }
}

#[test]
fn weights_and_the_method_change_at_runtime() {
    Case::new(
        BalancingMethod::ByRequests,
        vec![member(), member(), member()],
    )
    .then(10, 0, Edit::Weight(350))
    .then(20, 2, Edit::Weight(200))
    .then(30, 0, Edit::Method(BalancingMethod::ByBusyness))
    .then(40, 0, Edit::Method(BalancingMethod::ByTraffic))
    .then(50, 0, Edit::Method(BalancingMethod::ByRequests))
    .compare();
}

#[test]
fn sessions_stay_at_their_member_and_count_for_the_shares() {
    let routes = ["r1", "r2", "x.r1", ""];
    let members = routes.map(|route| Member { route, ..member() });
    for session in ["s.r1", "s.x.r1", "s.r2", "s.unknown", "r1", "s.", "a.b.r1"] {
        let mut case = Case::new(BalancingMethod::ByRequests, members.clone().into());
        case.sessions = vec![Some(session), None];
        case.then(20, 0, Edit::Admin(AdminState::Draining))
            .then(40, 0, Edit::Admin(AdminState::Disabled))
            .compare();
    }
}

#[test]
fn strict_sessions_end_with_their_member() {
    let members = ["r1", "r2"].map(|route| Member { route, ..member() });
    let mut case = Case::new(BalancingMethod::ByRequests, members.into());
    case.is_strict = true;
    case.sessions = vec![Some("s.r1"), Some("s.r9"), None];
    case.then(20, 0, Edit::Admin(AdminState::Draining))
        .then(30, 0, Edit::Admin(AdminState::Disabled))
        .compare();
}

#[test]
fn redirects_replace_the_members_of_sessions() {
    let routed = |route, redirect| Member {
        route,
        redirect,
        ..member()
    };
    let members = vec![
        routed("r1", "r2"),
        routed("r2", "r3"),
        routed("r3", "r1"),
        member(),
    ];
    let mut case = Case::new(BalancingMethod::ByRequests, members);
    case.sessions = vec![Some("s.r1"), None, Some("s.r3")];
    case.then(15, 0, Edit::Admin(AdminState::Disabled))
        .then(30, 1, Edit::Admin(AdminState::Stopped))
        .then(45, 2, Edit::Admin(AdminState::Disabled))
        .compare();
}

#[test]
fn a_member_that_refuses_connections_is_out() {
    for method in [BalancingMethod::ByRequests, BalancingMethod::ByBusyness] {
        let members = vec![
            member(),
            Member {
                is_dead: true,
                ..member()
            },
            Member {
                weight: 200,
                ..member()
            },
            Member {
                role: MemberRole::Spare,
                ..member()
            },
        ];
        Case::new(method, members).compare();
    }
}

/// Scripts of pseudo-random changes and sessions.
#[test]
fn arbitrary_changes_lead_to_equal_sequences() {
    for seed in 1..=40 {
        Case::random(seed).compare();
    }
}

/// Number of requests of a sequence.
const REQUESTS: usize = 60;

/// Settings of a member.
#[derive(Clone, Debug)]
struct Member {
    /// Weight in hundredths.
    weight: u32,
    set: u8,
    role: MemberRole,
    route: &'static str,
    redirect: &'static str,
    /// Bytes of the member's page.
    size: usize,
    /// True for a member that refuses connections.
    is_dead: bool,
}

fn member() -> Member {
    Member {
        weight: 100,
        set: 0,
        role: MemberRole::Regular,
        route: "",
        redirect: "",
        size: 100,
        is_dead: false,
    }
}

/// Change at runtime.
#[derive(Clone, Debug)]
enum Edit {
    Admin(AdminState),
    Role(MemberRole),
    Set(u8),
    Weight(u32),
    Route(&'static str),
    Redirect(&'static str),
    Method(BalancingMethod),
}

/// A balancer and the changes during a sequence of requests.
#[derive(Clone, Debug)]
struct Case {
    method: BalancingMethod,
    members: Vec<Member>,
    is_strict: bool,
    /// Sessions of the requests, by turns.
    sessions: Vec<Option<&'static str>>,
    /// Number of the request after the change, number of the member, and the change.
    edits: Vec<(usize, usize, Edit)>,
}

/// One answer: the letter of the member (`!` for none), and the bytes sent to and received from the member
/// as Apache counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    letter: char,
    sent: u64,
    received: u64,
}

impl Case {
    fn new(method: BalancingMethod, members: Vec<Member>) -> Case {
        Case {
            method,
            members,
            is_strict: false,
            sessions: vec![None],
            edits: Vec::new(),
        }
    }

    fn then(mut self, request: usize, member: usize, edit: Edit) -> Case {
        self.edits.push((request, member, edit));
        self
    }

    fn random(seed: u64) -> Case {
        let mut random = Random(seed);
        let routes = ["r1", "r2", "r3", ""];
        let roles = [
            MemberRole::Regular,
            MemberRole::Regular,
            MemberRole::Spare,
            MemberRole::Standby,
        ];
        let states = [
            AdminState::Enabled,
            AdminState::Enabled,
            AdminState::Draining,
            AdminState::Disabled,
            AdminState::Stopped,
        ];
        let methods = [
            BalancingMethod::ByRequests,
            BalancingMethod::ByTraffic,
            BalancingMethod::ByBusyness,
        ];
        let members = (0..5).map(|_| Member {
            weight: 100 + 50 * random.below(5) as u32,
            set: random.below(2) as u8,
            role: random.of(&roles),
            route: random.of(&routes),
            redirect: random.of(&routes),
            size: 10 + random.below(3_000),
            is_dead: false,
        });
        let members = members.collect();
        let mut case = Case::new(random.of(&methods), members);
        case.is_strict = random.below(4) == 0;
        case.sessions = vec![Some("s.r1"), None, Some("s.r2"), None, None, Some("s.r3")];
        for request in (4..REQUESTS).step_by(4) {
            let edit = match random.below(14) {
                0..6 => Edit::Admin(random.of(&states)),
                6 | 7 => Edit::Role(random.of(&roles)),
                8 => Edit::Set(random.below(3) as u8),
                9 | 10 => Edit::Weight(100 + 50 * random.below(9) as u32),
                11 => Edit::Route(random.of(&routes)),
                12 => Edit::Redirect(random.of(&routes)),
                _ => Edit::Method(random.of(&methods)),
            };
            case.edits.push((request, random.below(5), edit));
        }
        case
    }

    fn session(&self, request: usize) -> Option<&'static str> {
        self.sessions[request % self.sessions.len()]
    }

    /// Asserts that the balancer chooses the members that Apache chooses.
    fn compare(&self) {
        let members = Members::start(&self.members);
        let expected = apache(self, &members);
        let found = ours(self, &members, &expected);
        let letters =
            |answers: &[Answer]| -> String { answers.iter().map(|answer| answer.letter).collect() };
        assert_eq!(
            letters(&found),
            letters(&expected),
            "ours, Apache's: {self:#?}"
        );
    }
}

/// Answers of the balancer's core. Each request moves as many bytes as the request to Apache did.
fn ours(case: &Case, members: &Members, oracle: &[Answer]) -> Vec<Answer> {
    let settings = BalancerSettings {
        name: "c".into(),
        method: case.method,
        members: case
            .members
            .iter()
            .zip(&members.0)
            .map(|(member, thread)| MemberSettings {
                url: url(thread.address),
                weight: member.weight,
                set: member.set,
                role: member.role,
                route: member.route.into(),
                redirect: member.redirect.into(),
                admin: AdminState::Enabled,
                ignores_errors: false,
                connections_max: None,
                check: Default::default(),
            })
            .collect(),
        sticky: Some(StickySettings {
            cookie: "S".into(),
            path_parameter: None,
            is_signed: false,
            is_strict: case.is_strict,
        }),
        check: None,
        ejection: EjectionSettings {
            pause: Duration::from_secs(60),
            ..EjectionSettings::default()
        },
        retry: Default::default(),
        slow_start: Duration::ZERO,
        connection: Default::default(),
    };
    let balancer = Balancer::new(settings, &SessionKey::new(&[0; 32]), 0, 0);
    let mut answers = Vec::new();
    for (request, known) in oracle.iter().enumerate() {
        for (_, member, edit) in case.edits.iter().filter(|edit| edit.0 == request) {
            edit_ours(&balancer, &members.0[*member], edit);
        }
        let letter = request_ours(&balancer, members, case.session(request), known);
        answers.push(Answer {
            letter: letter.unwrap_or('!'),
            ..*known
        });
    }
    answers
}

/// Makes one request, with further members after failed connections.
fn request_ours(
    balancer: &Balancer,
    members: &Members,
    session: Option<&str>,
    known: &Answer,
) -> Result<char, NoMember> {
    let mut tried = Vec::new();
    loop {
        let mut lease = balancer.choose(&ChooseRequest {
            client: std::net::IpAddr::from([192, 0, 2, 1]).into(),
            client_hash: 0,
            session,
            tried: &tried,
            is_gathered: true,
            is_tunnel: false,
            now_ms: 0,
        })?;
        let thread = members.find(&lease);
        if thread.is_dead {
            lease.record_connect_failure(0);
            tried.push(lease.member().id());
            continue;
        }
        lease.add_sent(known.sent);
        lease.add_received(known.received);
        lease.record_answer(200, 1_000, 0);
        return Ok(thread.letter);
    }
}

fn edit_ours(balancer: &Balancer, thread: &MemberThread, edit: &Edit) {
    let mut settings = BalancerSettings::clone(&balancer.settings());
    let url = url(thread.address);
    let mut members = settings.members.iter_mut();
    let member = members.find(|it| it.url == url).expect("a member");
    match *edit {
        Edit::Admin(admin) => member.admin = admin,
        Edit::Role(role) => member.role = role,
        Edit::Set(set) => member.set = set,
        Edit::Weight(weight) => {
            if member.weight == weight {
                // Apache starts the sequence anew for the former weight as well.
                member.weight += 1;
                balancer.edit(settings, 0);
                return edit_ours(balancer, thread, edit);
            }
            member.weight = weight;
        }
        Edit::Route(route) => member.route = route.into(),
        Edit::Redirect(route) => member.redirect = route.into(),
        Edit::Method(method) => settings.method = method,
    }
    balancer.edit(settings, 0);
}

fn url(address: SocketAddr) -> MemberUrl {
    MemberUrl {
        is_tls: false,
        host: MemberHost::Address(address),
    }
}

/// Answers of Apache in front of the members.
fn apache(case: &Case, members: &Members) -> Vec<Answer> {
    let apache = Apache::start(case, members);
    let answers = (0..REQUESTS).map(|request| {
        for (_, member, edit) in case.edits.iter().filter(|edit| edit.0 == request) {
            apache.edit(&members.0[*member], edit);
        }
        apache.request(members, case.session(request))
    });
    answers.collect()
}

/// A running Apache. Drop kills the process.
struct Apache {
    child: Child,
    folder: Folder,
    port: u16,
}

impl Apache {
    fn start(case: &Case, members: &Members) -> Apache {
        let folder = Folder::new();
        let port = free_port();
        folder.write("apache.conf", configuration(case, members, &folder, port));
        let mut command = Command::new(tool("apache2"));
        // One process without children. Its signals go to its own process group.
        command.arg("-X").arg("-f").arg(folder.path("apache.conf"));
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        let child = spawn(&mut command).expect("a running Apache");
        let apache = Apache {
            child,
            folder,
            port,
        };
        eventually("Apache's port", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        apache
    }

    /// Makes a request to the balancer.
    fn request(&self, members: &Members, session: Option<&str>) -> Answer {
        let cookie = session.map_or(String::new(), |session| format!("Cookie: S={session}\r\n"));
        let answer = self.exchange(&format!("GET / HTTP/1.1\r\n{cookie}"), "");
        if answer.starts_with("HTTP/1.1 503") {
            return Answer {
                letter: '!',
                sent: 0,
                received: 0,
            };
        }
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{answer}\n{}",
            self.errors()
        );
        let body = answer.split_once("\r\n\r\n").expect("a head").1;
        let letter = body.chars().next().expect("a letter");
        let (sent, received) = members.bytes_of_last_request(letter);
        Answer {
            letter,
            sent,
            received,
        }
    }

    /// Makes a change by the form of the balancer-manager.
    fn edit(&self, thread: &MemberThread, edit: &Edit) {
        let flag = |name: &str, is_set: bool| format!("&w_status_{name}={}", u8::from(is_set));
        let fields = match *edit {
            Edit::Admin(admin) => [
                flag("N", admin == AdminState::Draining),
                flag("D", admin == AdminState::Disabled),
                flag("S", admin == AdminState::Stopped),
            ]
            .concat(),
            Edit::Role(role) => [
                flag("R", role == MemberRole::Spare),
                flag("H", role == MemberRole::Standby),
            ]
            .concat(),
            Edit::Set(set) => format!("&w_ls={set}"),
            Edit::Weight(weight) => format!("&w_lf={}", hundredths(weight)),
            Edit::Route(route) => format!("&w_wr={route}"),
            Edit::Redirect(route) => format!("&w_rr={route}"),
            Edit::Method(method) => format!("&b_lbm={}", method_name(method)),
        };
        let target = match edit {
            Edit::Method(_) => String::new(),
            _ => format!("&w=http://{}", thread.address),
        };
        let form = format!("b=c&nonce=n{target}{fields}");
        let head = "POST /manager HTTP/1.1\r\nReferer: http://oracle/manager\r\n\
                    Content-Type: application/x-www-form-urlencoded\r\n";
        let answer = self.exchange(head, &form);
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{form}: {answer}\n{}",
            self.errors()
        );
    }

    /// Sends a request with a connection of its own, and returns the answer.
    fn exchange(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time-out");
        let length = body.len();
        let request = format!(
            "{head}Host: oracle\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream
            .write_all(request.as_bytes())
            .expect("a sent request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        lossy(&answer)
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.path("errors")).unwrap_or_default()
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(case: &Case, members: &Members, folder: &Folder, port: u16) -> String {
    let folder = folder.path("");
    let folder = folder.display();
    let mut config = String::new();
    for module in [
        "mpm_prefork",
        "authz_core",
        "proxy",
        "proxy_http",
        "proxy_balancer",
        "slotmem_shm",
        "lbmethod_byrequests",
        "lbmethod_bytraffic",
        "lbmethod_bybusyness",
    ] {
        let file = format!("/usr/lib/apache2/modules/mod_{module}.so");
        let _ = writeln!(config, "LoadModule {module}_module {file}");
    }
    let _ = writeln!(
        config,
        "ServerRoot {folder}\nDefaultRuntimeDir {folder}\nMutex file:{folder} default\n\
         PidFile {folder}/pid\nErrorLog {folder}/errors\nServerName oracle\n\
         Listen 127.0.0.1:{port}\nKeepAlive Off\n<Proxy balancer://c>"
    );
    for (member, thread) in case.members.iter().zip(&members.0) {
        let weight = hundredths(member.weight);
        let _ = write!(
            config,
            "BalancerMember http://{} loadfactor={weight} lbset={}",
            thread.address, member.set
        );
        for (key, route) in [("route", member.route), ("redirect", member.redirect)] {
            if !route.is_empty() {
                let _ = write!(config, " {key}={route}");
            }
        }
        config.push_str(match member.role {
            MemberRole::Regular => "\n",
            MemberRole::Spare => " status=+R\n",
            MemberRole::Standby => " status=+H\n",
        });
    }
    let strict = if case.is_strict { "On" } else { "Off" };
    let method = method_name(case.method);
    let _ = writeln!(
        config,
        "ProxySet lbmethod={method} stickysession=S nofailover={strict} nonce=n\n</Proxy>\n\
         <Location /manager>\nSetHandler balancer-manager\n</Location>\n\
         ProxyPass /manager !\nProxyPass / balancer://c/"
    );
    config
}

fn method_name(method: BalancingMethod) -> &'static str {
    match method {
        BalancingMethod::ByTraffic => "bytraffic",
        BalancingMethod::ByBusyness => "bybusyness",
        _ => "byrequests",
    }
}

/// Writes a number of hundredths with two decimals.
fn hundredths(number: u32) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// Members that answer with their letters.
struct Members(Vec<MemberThread>);

/// A member, answered by threads of the test.
struct MemberThread {
    letter: char,
    address: SocketAddr,
    is_dead: bool,
    /// Bytes sent to the member and received from the member by the last request.
    bytes: Arc<Mutex<(u64, u64)>>,
    is_ended: Arc<AtomicBool>,
}

impl Members {
    fn start(members: &[Member]) -> Members {
        let start = |(member, letter): (&Member, char)| MemberThread::start(member, letter);
        Members(members.iter().zip('a'..).map(start).collect())
    }

    fn find(&self, lease: &Lease) -> &MemberThread {
        let is_same = |thread: &&MemberThread| *lease.member().url() == url(thread.address);
        self.0.iter().find(is_same).expect("a member")
    }

    fn bytes_of_last_request(&self, letter: char) -> (u64, u64) {
        let thread = self.0.iter().find(|thread| thread.letter == letter);
        *thread.expect("a member").bytes.lock().expect("no panic")
    }
}

impl MemberThread {
    fn start(member: &Member, letter: char) -> MemberThread {
        let listener = if member.is_dead {
            // No socket receives the port by chance.
            None
        } else {
            Some(TcpListener::bind("127.0.0.1:0").expect("a port"))
        };
        let address = listener
            .as_ref()
            .map(|listener| listener.local_addr().expect("an address"));
        let thread = MemberThread {
            letter,
            address: address.unwrap_or_else(|| ([127, 0, 0, 1], free_port()).into()),
            is_dead: member.is_dead,
            bytes: Arc::default(),
            is_ended: Arc::default(),
        };
        if let Some(listener) = listener {
            let (bytes, is_ended) = (Arc::clone(&thread.bytes), Arc::clone(&thread.is_ended));
            let page = format!("{letter}{}", "x".repeat(member.size - 1));
            thread::spawn(move || {
                for stream in listener.incoming() {
                    if is_ended.load(Ordering::SeqCst) {
                        return;
                    }
                    let (bytes, page) = (Arc::clone(&bytes), page.clone());
                    thread::spawn(move || serve(&stream.expect("a connection"), &page, &bytes));
                }
            });
        }
        thread
    }
}

impl Drop for MemberThread {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::SeqCst);
        // The connection wakes the thread.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the requests of one connection with the page.
fn serve(stream: &TcpStream, page: &str, bytes: &Mutex<(u64, u64)>) {
    const STATUS_LINE: &str = "HTTP/1.1 200 OK";
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match reader.read_until(b'\n', &mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        // Apache counts the whole request, and of the response the status line and the content.
        let received = STATUS_LINE.len() + page.len();
        *bytes.lock().expect("no panic") = (head.len() as u64, received as u64);
        let length = page.len();
        let response = format!("{STATUS_LINE}\r\nContent-Length: {length}\r\n\r\n{page}");
        if writer.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}
