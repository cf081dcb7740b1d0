//! Balancers: active checks, heartbeats, names of members, and `anthill balancer`.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use crate::clients::Authority;
use crate::support::member::{Answer, Member, Received, ok};
use crate::support::nginx::Nginx;
use crate::support::wire::Wire;
use crate::support::{Done, Folder, Server, eventually, finish, run, server_table, site_table};

/// Returns a configuration with a route `/` to the balancer `app`, with further keys of the balancer.
fn config(members: &[String], keys: &str) -> String {
    let members: Vec<String> = members.iter().map(|url| format!("\"{url}\"")).collect();
    format!(
        "{}[[balancer]]\nname = \"app\"\nmembers = [{}]\n{keys}\n{}[[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
        server_table(""),
        members.join(", "),
        site_table("http = \"serve\"\n")
    )
}

/// Starts a server with a route `/` to the balancer `app`.
fn balance(members: &[&Member], keys: &str) -> Server {
    let urls: Vec<String> = members.iter().map(|member| member.url()).collect();
    Server::start(&config(&urls, keys))
}

/// Starts a member that answers with its name, and requests of `/health` by the switch.
fn checked_member(name: &'static str, is_well: &Arc<AtomicBool>) -> Member {
    let is_well = Arc::clone(is_well);
    Member::start(move |request| match is_check(request) {
        true if is_well.load(SeqCst) => ok("ready"),
        true => Answer::Keep(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec()),
        false => ok(name),
    })
}

fn is_check(request: &Received) -> bool {
    request.line().contains("/health")
}

fn switch() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

/// Checks that decide quickly.
const CHECKS: &str =
    "health = { path = \"/health\", every = \"500ms\", timeout = \"500ms\", rise = 2, fall = 2 }";

/// Waits for the log line about a member's change.
fn wait_for_change(server: &Server, member: &Member, change: &str) {
    let begin = format!("balancer app: {} changed from ", member.url());
    server.errors.wait_for(change, |line| {
        line.contains(&begin) && line.ends_with(change)
    });
}

/// Makes `count` requests, one after another, and returns the contents. All must succeed.
fn contents(server: &Server, count: usize) -> Vec<String> {
    let mut wire = Wire::plain(server);
    let get = |_| {
        let response = wire.get("/", "");
        assert_eq!(response.status, 200, "{response:?}");
        response.text()
    };
    (0..count).map(get).collect()
}

#[test]
fn a_member_that_fails_its_checks_gets_no_requests_until_its_checks_pass() {
    let wells = [switch(), switch()];
    let members = [
        checked_member("a", &wells[0]),
        checked_member("b", &wells[1]),
    ];
    let server = balance(&[&members[0], &members[1]], CHECKS);
    let both = contents(&server, 10);
    assert!(both.iter().any(|it| it == "a") && both.iter().any(|it| it == "b"));
    wells[0].store(false, SeqCst);
    wait_for_change(&server, &members[0], "up to check failed: status 503");
    assert_eq!(contents(&server, 10), ["b"; 10]);
    wells[0].store(true, SeqCst);
    wait_for_change(&server, &members[0], "check failed to up: checks passed");
    assert!(contents(&server, 10).iter().any(|it| it == "a"));
}

#[test]
fn each_kind_of_check_fails_for_its_reason() {
    // The first member passes all checks, so that the checks are not doubted.
    let well = checked_member("b", &switch());
    let expect = |member: &Member, keys: &str, reason: &str| {
        let health = format!("health = {{ every = \"1s\", rise = 1, fall = 1, {keys} }}");
        let server = balance(&[&well, member], &health);
        wait_for_change(&server, member, &format!("up to check failed: {reason}"));
    };
    let silent = Member::start(|_| Answer::Silence);
    expect(&silent, "path = \"/health\"", "timeout");
    expect(&silent, "method = \"HEAD\", path = \"/health\"", "timeout");
    let other = Member::start(|_| ok("not ready!"));
    let text = "path = \"/health\", text = \"ready\"";
    expect(
        &Member::start(|_| ok("rea dy")),
        text,
        "expected text missing",
    );
    expect(&other, "path = \"/health\", status = 404", "status 200");
    let hanging = Member::start(|_| Answer::Hang);
    expect(&hanging, "path = \"/health\"", "bad answer");
    hanging.stop();
    expect(&hanging, "path = \"/health\"", "no connection");
    expect(&hanging, "tcp = true", "no connection");
}

#[test]
fn a_check_is_a_request_with_the_configured_method_and_host() {
    let member = Member::start(|_| ok("are all ready?"));
    let _server = balance(
        &[&member],
        "health = { path = \"/health?a=b\", host = \"app.test\", every = \"50ms\", text = \"ready\" }",
    );
    let request = member.wait_for(1);
    assert_eq!(request.line(), "GET /health?a=b HTTP/1.1");
    assert_eq!(request.fields("host"), ["app.test"]);
    assert_eq!(request.fields("connection"), ["close"]);
    let _server = balance(
        &[&member],
        "health = { method = \"HEAD\", path = \"/head\", every = \"50ms\" }",
    );
    let request = eventually("a check by HEAD", || member.requests_with("/head").pop());
    assert_eq!(request.line(), "HEAD /head HTTP/1.1");
    assert_eq!(
        request.fields("host"),
        [format!("127.0.0.1:{}", member.port)]
    );
}

#[test]
fn a_stopped_member_loses_no_request_and_returns_with_its_checks() {
    let members = [Member::start(|_| ok("a")), Member::start(|_| ok("b"))];
    let server = balance(
        &[&members[0], &members[1]],
        "health = { tcp = true, every = \"500ms\", rise = 1, fall = 1 }",
    );
    contents(&server, 4);
    members[0].stop();
    assert_eq!(contents(&server, 20), ["b"; 20]);
    wait_for_change(&server, &members[0], " to check failed: no connection");
    members[0].restart();
    wait_for_change(&server, &members[0], "check failed to up: checks passed");
    assert!(contents(&server, 10).iter().any(|it| it == "a"));
}

#[test]
fn waiting_gets_move_to_another_member_when_their_member_fails_its_checks() {
    let is_well = switch();
    let shared = Arc::clone(&is_well);
    let silent = Member::start(move |request| {
        if is_check(request) && shared.load(SeqCst) {
            ok("ready")
        } else {
            Answer::Silence
        }
    });
    let other = checked_member("b", &switch());
    let keys = "health = { path = \"/health\", every = \"200ms\", timeout = \"200ms\", fall = 2 }\n\
                first_byte_timeout = \"5s\"";
    let server = balance(&[&silent, &other], keys);
    let mut gets: Vec<Wire> = (0..4).map(|_| Wire::plain(&server)).collect();
    for wire in &mut gets {
        wire.send("GET /get HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let mut posts: Vec<Wire> = (0..2).map(|_| Wire::plain(&server)).collect();
    for wire in &mut posts {
        wire.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    }
    eventually("requests that wait", || {
        let waiting = (
            silent.requests_with("/get").len(),
            silent.requests_with("/post").len(),
        );
        (waiting == (2, 1)).then_some(())
    });
    is_well.store(false, SeqCst);
    for wire in &mut gets {
        assert_eq!(wire.response("GET").text(), "b");
    }
    // The GETs have moved on, and the POST still waits.
    assert_eq!(other.requests_with("/post").len(), 1);
    let mut statuses: Vec<u16> = posts
        .iter_mut()
        .map(|wire| wire.response("POST").status)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 504]);
    assert_eq!(other.requests_with("/post").len(), 1);
}

#[test]
fn all_members_are_tried_when_most_fail_their_checks() {
    let wells = [switch(), switch()];
    let members = [
        checked_member("a", &wells[0]),
        checked_member("b", &wells[1]),
    ];
    let server = balance(&[&members[0], &members[1]], CHECKS);
    wells.iter().for_each(|well| well.store(false, SeqCst));
    server.errors.wait_for("the doubt", |line| {
        line.contains("balancer app: most members fail their checks")
    });
    let both = contents(&server, 10);
    assert!(both.iter().any(|it| it == "a") && both.iter().any(|it| it == "b"));
    wells.iter().for_each(|well| well.store(true, SeqCst));
    server.errors.wait_for("the end of the doubt", |line| {
        line.contains("balancer app: enough members pass their checks")
    });
}

#[test]
fn a_reload_changes_the_checks() {
    let member = Member::start(|_| ok("a"));
    let server = balance(&[&member], "");
    contents(&server, 1);
    assert_eq!(member.requests_with("/health").len(), 0);
    let urls = [member.url()];
    server.reload(&config(&urls, CHECKS));
    eventually("checks", || {
        (member.requests_with("/health").len() > 3).then_some(())
    });
    server.reload(&config(&urls, ""));
    let before = member.requests_with("/health").len();
    contents(&server, 10);
    // One check may have been under way during the reload.
    assert!(member.requests_with("/health").len() <= before + 1);
}

#[test]
fn members_have_host_names() {
    let member = Member::start(|_| ok("a"));
    let named = format!("http://localhost:{}", member.port);
    let server = Server::start(&config(std::slice::from_ref(&named), CHECKS));
    assert_eq!(contents(&server, 3), ["a"; 3]);
    let request = member.requests_with("/health").pop();
    let request = request.unwrap_or_else(|| member.wait_for(4));
    assert_eq!(request.fields("host"), [&named["http://".len()..]]);
}

#[test]
fn a_name_without_an_address_is_a_member_that_cannot_be_reached() {
    let member = Member::start(|_| ok("a"));
    let unknown = "http://nothing.invalid:9".to_owned();
    let server = Server::start(&config(std::slice::from_ref(&unknown), ""));
    assert_eq!(Wire::plain(&server).get("/", "").status, 502);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R742"));
    server.reload(&config(&[unknown, member.url()], ""));
    assert_eq!(contents(&server, 10), ["a"; 10]);
}

/// Keys of a balancer with the method `heartbeat`, at a port of the system's choice.
const HEARTBEATS: &str = "method = \"heartbeat\"\nheartbeat = \"127.0.0.1:0\"";

/// Returns the address at which the server receives heartbeats.
fn heartbeat_address(server: &Server) -> SocketAddr {
    let line = server.errors.wait_for("the address of heartbeats", |line| {
        line.contains("heartbeats of members are received at ")
    });
    let address = line.rsplit(' ').next().expect("an address");
    address.parse().expect("an address")
}

/// Sends a heartbeat of a member with idle workers.
fn send_heartbeat(to: SocketAddr, from: &str, member: &Member, ready: u32) {
    let socket = UdpSocket::bind((from, 0)).expect("a socket");
    let datagram = format!("v=1&ready={ready}&busy=1&port={}", member.port);
    socket.send_to(datagram.as_bytes(), to).expect("a datagram");
}

#[test]
fn heartbeats_of_members_steer_the_choice() {
    let members = [Member::start(|_| ok("a")), Member::start(|_| ok("b"))];
    let server = balance(&[&members[0], &members[1]], HEARTBEATS);
    let address = heartbeat_address(&server);
    // Without a heartbeat, both members get requests.
    assert_eq!(
        contents(&server, 4).iter().filter(|it| *it == "a").count(),
        2
    );
    // The heartbeats of another address do not count, and malformed heartbeats neither.
    send_heartbeat(address, "127.0.0.2", &members[0], 9);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for bad in ["", "v=2&ready=9&busy=0", "v=1&ready=9&busy=0&x=y"] {
        socket.send_to(bad.as_bytes(), address).expect("a datagram");
    }
    send_heartbeat(address, "127.0.0.1", &members[1], 9);
    eventually("requests for the member with a heartbeat", || {
        (contents(&server, 10) == ["b"; 10]).then_some(())
    });
    send_heartbeat(address, "127.0.0.1", &members[0], 9);
    send_heartbeat(address, "127.0.0.1", &members[1], 0);
    eventually("requests for the other member", || {
        (contents(&server, 10) == ["a"; 10]).then_some(())
    });
}

#[test]
fn a_reload_opens_and_closes_the_address_of_heartbeats() {
    let members = [Member::start(|_| ok("a")), Member::start(|_| ok("b"))];
    let urls = [members[0].url(), members[1].url()];
    let server = Server::start(&config(&urls, ""));
    server.reload(&config(&urls, HEARTBEATS));
    let address = heartbeat_address(&server);
    send_heartbeat(address, "127.0.0.1", &members[1], 9);
    eventually("requests for the member with a heartbeat", || {
        (contents(&server, 10) == ["b"; 10]).then_some(())
    });
    // A refused reload keeps the address.
    server
        .folder
        .write("anthill.toml", config(&urls, "method = \"unknown\""));
    assert_eq!(server.ask(&["reload"]).code, Some(1));
    assert!(UdpSocket::bind(address).is_err());
    server.reload(&config(&urls, ""));
    eventually("a closed port", || UdpSocket::bind(address).ok());
}

#[test]
fn the_list_shows_balancers_and_members() {
    let members = [Member::start(|_| ok("a")), Member::start(|_| Answer::Hang)];
    let own = Member::start(|_| ok("own"));
    let urls = [members[0].url(), members[1].url()];
    let route = format!(
        "[[site.route]]\npath = \"/own/\"\nproxy = \"{}\"\n",
        own.url()
    );
    let server = Server::start(&(config(&urls, "eject = { failures = 1 }") + &route));
    contents(&server, 6);
    let line = format!("balancer app: {} changed from", urls[1]);
    server
        .errors
        .wait_for("an ejection", |it| it.contains(&line));
    let text = server.ask(&["balancer", "list"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    let has = |begin: &str| text.stdout.lines().any(|line| line.starts_with(begin));
    assert!(
        has("app: byrequests") && has("*/own/: byrequests"),
        "{text:?}"
    );
    assert!(has("  MEMBER "), "{text:?}");
    assert!(has(&format!("  127.0.0.1:{} up ", members[0].port)));
    assert!(has(&format!("  127.0.0.1:{} ejected ", members[1].port)));
    assert!(has("    changed from up to ejected: "), "{text:?}");
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 100));
    let one = server.ask(&["balancer", "list", "*/own/"]).stdout;
    assert!(
        one.starts_with("*/own/: byrequests") && !one.contains("app: "),
        "{one}"
    );
    // Without an action, and by the configuration in the current folder.
    let mut command = Command::new(crate::support::program());
    command.args(["balancer", "--json"]);
    command.current_dir(server.folder.path("."));
    let json = finish(command, b"");
    assert_eq!(json.code, Some(0), "{json:?}");
    let read = "import json, sys\n\
                app, own = json.load(sys.stdin)['balancers']\n\
                a, b = app['members']\n\
                print(app['name'], a['state'], a['admin'], a['elected'], a['errors'], a['busy'])\n\
                print(b['state'], b['errors'] > 0, b['changes'][-1]['to'], b['weight'])\n\
                print(own['name'], own['members'][0]['elected'])\n";
    let ran = run("python3", &["-c", read], json.stdout.as_bytes());
    assert_eq!(
        ran.text(),
        "app up enabled 6 0 0\nejected True ejected 1\n*/own/ 0\n",
        "{}",
        ran.errors()
    );
}

/// Changes a member by the command line.
fn change(server: &Server, words: &[&str], member: &Member) -> Done {
    let url = member.url();
    server.ask(&[&["balancer"], words, &["app", &url]].concat())
}

#[test]
fn drain_waits_for_the_requests_of_the_member() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let slow = Member::start(move |request| {
        if request.line().contains("/slow") {
            let _ = gate.lock().expect("the gate").recv();
        }
        ok("a")
    });
    let other = Member::start(|_| ok("b"));
    let server = balance(&[&slow, &other], "");
    let mut wires = [Wire::plain(&server), Wire::plain(&server)];
    for wire in &mut wires {
        wire.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("a slow request", || slow.requests_with("/slow").pop());
    let impatient = change(&server, &["drain", "--wait=0"], &slow);
    assert_eq!(impatient.code, Some(1), "{impatient:?}");
    assert!(
        impatient
            .stderr
            .contains("draining, 1 request under way after 0 s"),
        "{impatient:?}"
    );
    wait_for_change(&server, &slow, "up to draining: operator");
    assert_eq!(contents(&server, 4), ["b"; 4]);
    thread::scope(|scope| {
        let drained = scope.spawn(|| change(&server, &["drain", "--wait", "60"], &slow));
        // The control plane answers other commands meanwhile.
        let list = server.ask(&["balancer", "list"]).stdout;
        assert!(list.contains(" draining "), "{list}");
        assert!(!drained.is_finished());
        release.send(()).expect("a waiting member");
        let drained = drained.join().expect("the command");
        assert_eq!(drained.code, Some(0), "{drained:?}");
        let said = format!("app: {}: draining, no request under way\n", slow.url());
        assert_eq!(drained.stdout, said);
    });
    let mut answers = wires.map(|mut wire| wire.response("GET").text());
    answers.sort_unstable();
    assert_eq!(answers, ["a", "b"]);
    let again = change(&server, &["drain", "--wait"], &slow);
    assert_eq!(again.code, Some(0), "{again:?}");
}

#[test]
fn changes_of_members_hold_over_reloads() {
    let members = [Member::start(|_| ok("a")), Member::start(|_| ok("b"))];
    let urls = [members[0].url(), members[1].url()];
    let server = Server::start(&config(&urls, CHECKS));
    for action in ["disable", "stop"] {
        let done = change(&server, &[action], &members[0]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(contents(&server, 6), ["b"; 6]);
        server.reload(&config(&urls, CHECKS));
        assert_eq!(contents(&server, 6), ["b"; 6]);
        let enabled = change(&server, &["enable"], &members[0]);
        let said = format!("app: {}: up, no request under way\n", urls[0]);
        assert_eq!(enabled.stdout, said, "{enabled:?}");
        assert!(contents(&server, 6).iter().any(|it| it == "a"));
    }
    change(&server, &["stop"], &members[0]);
    let checks = members[0].requests_with("/health").len();
    let others = members[1].requests_with("/health").len();
    eventually("further checks of the other member", || {
        (members[1].requests_with("/health").len() > others + 2).then_some(())
    });
    // One check may have been under way.
    assert!(members[0].requests_with("/health").len() <= checks + 1);
}

#[test]
fn mistyped_balancers_and_members_get_a_suggestion() {
    let member = Member::start(|_| ok("a"));
    let server = balance(&[&member], "");
    let address = format!("127.0.0.1:{}", member.port);
    let near = format!("127.0.0.2:{}", member.port);
    for (words, code, message) in [
        (
            &["drain", "ap", &address][..],
            1,
            "did you mean `app`?".to_owned(),
        ),
        (
            &["drain", "zzzzzz", &address],
            1,
            "the names are: app".to_owned(),
        ),
        (
            &["disable", "app", &near],
            1,
            format!("did you mean `{address}`? The names are: http://{address}"),
        ),
        (
            &["drian", "app", &address],
            2,
            "did you mean `drain`?".to_owned(),
        ),
        (&["drain"], 2, "needs BALANCER and MEMBER".to_owned()),
        (
            &["enable", "--wait", "app", &address],
            2,
            "`--wait`".to_owned(),
        ),
        (
            &["drain", "--wait=x", "app", &address],
            2,
            "can't be `x`".to_owned(),
        ),
        (
            &["drain", "--json", "app", &address],
            2,
            "`--json`".to_owned(),
        ),
        (&["list", "--wait"], 2, "`--wait`".to_owned()),
        (&["list", "ap"], 1, "did you mean `app`?".to_owned()),
    ] {
        let done = server.ask(&[&["balancer"], words].concat());
        assert_eq!(done.code, Some(code), "{words:?}: {done:?}");
        assert!(done.stderr.contains(&message), "{words:?}: {done:?}");
    }
    // The host and port name the member as well.
    let done = server.ask(&["balancer", "drain", "--wait", "app", &address]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = server.ask(&["balancer", "drain", "app", &address, "--wait", "1m30s"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Waits until checks have passed, without a failed check.
fn wait_for_passed_checks(server: &Server) {
    eventually("passed checks", || {
        let json = server.ask(&["balancer", "list", "--json"]).stdout;
        assert!(json.contains("\"checks_failed\":0,"), "{json}");
        (!json.contains("\"checks_passed\":0,")).then_some(())
    });
}

#[test]
fn members_are_checked_over_tls() {
    let authority = Authority::new("the members' CA");
    let leaf = authority.server(&["127.0.0.1"]);
    let folder = Folder::new().with("pair.pem", leaf.combined());
    let pair = "ssl_certificate pair.pem;\nssl_certificate_key pair.pem;\n";
    let nginx = Nginx::start_tls(folder, pair);
    let start = |authority: &Authority| {
        let folder = Folder::new()
            .with("public/index.html", "")
            .with("ca.pem", &authority.pem);
        let check = "{ path = \"/index.html\", text = \"hello\", every = \"1s\", fall = 1 }";
        let keys = format!("ca = \"ca.pem\"\nhealth = {check}");
        Server::start_in(folder, &config(&[nginx.url()], &keys))
    };
    wait_for_passed_checks(&start(&authority));
    let wary = start(&Authority::new("another CA"));
    wary.errors.wait_for("a failed check", |line| {
        line.ends_with("changed from up to check failed: no connection")
    });
}

#[test]
fn members_are_checked_over_unix_sockets() {
    let folder = Folder::new().with("public/index.html", "");
    let listener = UnixListener::bind(folder.path("member.sock")).expect("a socket");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let health = "health = { path = \"/\", status = 204, every = \"1s\" }";
    let urls = ["http://unix:member.sock".to_owned()];
    wait_for_passed_checks(&Server::start_in(folder, &config(&urls, health)));
}

#[test]
fn signed_sessions_stay_with_their_members_over_a_restart() {
    let members = ["a", "b", "c"].map(|name| Member::start(move |_| ok(name)));
    let urls: Vec<String> = members.iter().map(Member::url).collect();
    let config = config(&urls, "sticky = { cookie = \"ROUTE\", signed = true }");
    let cookie_of = |server: &Server| {
        let first = Wire::plain(server).get("/", "");
        let set = first.field("set-cookie").expect("a cookie").to_owned();
        let (cookie, _) = set.split_once(';').expect("attributes");
        (format!("Cookie: {cookie}\r\n"), first.text())
    };
    let assert_bound = |server: &Server, (cookie, member): &(String, String)| {
        let mut wire = Wire::plain(server);
        for _ in 0..4 {
            let response = wire.get("/", cookie);
            assert_eq!(&response.text(), member);
            assert_eq!(response.field("set-cookie"), None);
        }
    };
    let server = Server::start(&config);
    let sessions: Vec<(String, String)> = (0..3).map(|_| cookie_of(&server)).collect();
    let server = Server::start_in(server.into_folder(), &config);
    for session in &sessions {
        assert_bound(&server, session);
    }
    let key = server.folder.path("state/sessions.key");
    let mode = std::fs::metadata(&key).expect("the key").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    // A broken file costs the sessions, and no further restart does.
    let folder = server.into_folder();
    folder.write("state/sessions.key", "broken");
    let server = Server::start_in(folder, &config);
    server.errors.wait_for("the warning", |line| {
        line.contains("sessions.key: ") && line.contains("start anew")
    });
    let lost = Wire::plain(&server).get("/", &sessions[0].0);
    assert!(lost.field("set-cookie").is_some(), "{lost:?}");
    let session = cookie_of(&server);
    let server = Server::start_in(server.into_folder(), &config);
    assert_bound(&server, &session);
}
