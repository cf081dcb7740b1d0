//! Members that fail: doubt about the checks, evidence of requests, shares of clients, and the log.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::member::{Answer, Member, ok};
use crate::support::programs::Program;
use crate::support::wire::Wire;
use crate::support::{Folder, Server, eventually, server_table, site_table};

/// Checks of a page that nginx answers, quick to decide.
const CHECKS: &str = "health = { path = \"/name\", every = \"200ms\", timeout = \"200ms\", fall = 2, rise = 1 }\n\
    first_byte_timeout = \"500ms\"\neject = { pause = \"10m\", pause_max = \"10m\" }\n";

/// Starts a server with a balancer `app`. `members` is the list of members in the configuration.
fn balance(members: &[String], keys: &str) -> Server {
    Server::start(&format!(
        "{}[[balancer]]\nname = \"app\"\nmembers = [{}]\n{keys}\n{}[[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
        server_table(""),
        members.join(", "),
        site_table("http = \"serve\"\n")
    ))
}

fn quoted(member: &Member) -> String {
    format!("\"{}\"", member.url())
}

/// Starts nginx with the page `/name`.
fn nginx(name: &str) -> Program {
    Program::nginx(Folder::new().with("public/name", name), "")
}

fn wait_for_failed_checks(server: &Server, members: &[Program]) {
    for member in members {
        server.errors.wait_for("failed checks", |line| {
            line.contains(&format!(":{} changed from up to check failed", member.port))
        });
    }
}

/// Makes GETs one after another, and returns their statuses.
fn statuses(server: &Server, path: &str, count: usize) -> Vec<u16> {
    let mut wire = Wire::plain(server);
    (0..count).map(|_| wire.get(path, "").status).collect()
}

fn list(server: &Server) -> String {
    server.ask(&["balancer", "list"]).stdout
}

#[test]
fn the_log_names_the_only_member() {
    let member = nginx("a");
    let server = balance(&[format!("\"{}\"", member.url())], CHECKS);
    member.signal("STOP");
    let doubt = "balancer app: the only member fails, and is tried in spite of its failed checks";
    server
        .errors
        .wait_for("the doubt", |line| line.contains(doubt));
    member.signal("CONT");
    let end = "balancer app: the only member passes its checks, so the checks count again";
    server
        .errors
        .wait_for("the end of the doubt", |line| line.contains(end));
}

#[test]
fn three_frozen_members_of_four_cost_one_request_each() {
    let members = ["a", "b", "c", "d"].map(nginx);
    let urls = members.each_ref().map(|it| format!("\"{}\"", it.url()));
    let server = balance(&urls, CHECKS);
    members[..3].iter().for_each(|member| member.signal("STOP"));
    wait_for_failed_checks(&server, &members[..3]);
    server.errors.wait_for("the doubt", |line| {
        line.contains("balancer app: most members fail their checks, so the checks are doubted")
    });
    assert!(list(&server).contains("\n  checks doubted: "));
    let mut all = statuses(&server, "/name", 40);
    all.sort_unstable();
    assert_eq!(all, [vec![200; 37], vec![504; 3]].concat());
    members[..3].iter().for_each(|member| member.signal("CONT"));
    server.errors.wait_for("the end of the doubt", |line| {
        line.contains("balancer app: enough members pass their checks")
    });
    eventually("all members", || {
        (statuses(&server, "/name", 8) == [200; 8] && !list(&server).contains("checks doubted"))
            .then_some(())
    });
}

#[test]
fn a_standby_serves_while_all_other_members_are_frozen() {
    let members = ["a", "b", "c"].map(nginx);
    let standby = nginx("standby");
    let mut list_of_members = members
        .each_ref()
        .map(|it| format!("\"{}\"", it.url()))
        .to_vec();
    list_of_members.push(format!("{{ url = \"{}\", standby = true }}", standby.url()));
    let server = balance(&list_of_members, CHECKS);
    members.iter().for_each(|member| member.signal("STOP"));
    wait_for_failed_checks(&server, &members);
    let mut wire = Wire::plain(&server);
    for _ in 0..20 {
        let response = wire.get("/name", "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "standby")
        );
    }
    let list = list(&server);
    assert!(!list.contains("checks doubted"), "{list}");
    assert!(list.contains("    standby: "), "{list}");
    members.iter().for_each(|member| member.signal("CONT"));
}

#[test]
fn a_standby_serves_while_all_other_members_report_a_fault() {
    let fault = |name: &'static str| {
        Member::start(move |request| {
            if request.line().contains("/name") {
                Answer::Keep(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec())
            } else {
                ok(name)
            }
        })
    };
    let (a, b) = (fault("a"), fault("b"));
    let standby = nginx("standby");
    let standby_url = format!("{{ url = \"{}\", standby = true }}", standby.url());
    let server = balance(&[quoted(&a), quoted(&b), standby_url], CHECKS);
    for member in [&a, &b] {
        let line = format!(
            "{} changed from up to check failed: status 503",
            member.url()
        );
        server
            .errors
            .wait_for("a failed check", |it| it.contains(&line));
    }
    assert_eq!(statuses(&server, "/name", 20), [200; 20]);
    assert!(
        a.requests()
            .iter()
            .chain(&b.requests())
            .all(|it| it.fields("x-forwarded-for").is_empty())
    );
}

/// Gate that a test opens.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// Starts a member with a gate for the answers to `/wait`, and with a switch for its checks.
fn gated_member(name: &'static str) -> (Member, Gate, Arc<AtomicBool>) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let is_well = Arc::new(AtomicBool::new(true));
    let (shared, well) = (Arc::clone(&gate), Arc::clone(&is_well));
    let member = Member::start(move |request| match request.line() {
        line if line.contains("/name") && !well.load(SeqCst) => {
            Answer::Keep(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec())
        }
        line if line.contains("/wait") => {
            let open = shared.0.lock().expect("the gate");
            drop(shared.1.wait_while(open, |open| !*open));
            ok(name)
        }
        _ => ok(name),
    });
    (member, gate, is_well)
}

#[test]
fn gets_beyond_the_budget_wait_on_for_a_member_that_went_down() {
    let (member, gate, is_well) = gated_member("a");
    let other = Member::start(|_| ok("b"));
    let keys = "health = { path = \"/name\", every = \"200ms\", timeout = \"200ms\", fall = 2 }\n\
        retries = { budget = 0 }\n";
    let server = balance(&[quoted(&member), quoted(&other)], keys);
    // Beside another client, one client may take 5 of the 10 retries that are always allowed.
    let mut another = Wire::of(&server, Ipv4Addr::new(127, 0, 0, 9).into());
    assert_eq!(another.get("/name", "").status, 200);
    let mut gets: Vec<Wire> = (0..24).map(|_| Wire::plain(&server)).collect();
    for wire in &mut gets {
        wire.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("requests that wait", || {
        (member.requests_with("/wait").len() == 12).then_some(())
    });
    is_well.store(false, SeqCst);
    eventually("requests that moved", || {
        (other.requests_with("/wait").len() == 12 + 5).then_some(())
    });
    *gate.0.lock().expect("the gate") = true;
    gate.1.notify_all();
    let mut names: Vec<String> = gets
        .iter_mut()
        .map(|wire| {
            let response = wire.response("GET");
            assert_eq!(response.status, 200, "{response:?}");
            response.text()
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names.concat(), "a".repeat(7) + &"b".repeat(17));
    let line = format!(
        "proxy: GET /wait: balancer app: {}: the checks took the member out while the request waited; \
         the request goes to another member",
        member.url()
    );
    server.errors.wait_for("the move", |it| it.ends_with(&line));
}

#[test]
fn a_get_with_a_part_of_an_answer_stays_at_its_member() {
    let is_well = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&is_well);
    let member = Member::start(move |request| match request.line().contains("/name") {
        true if shared.load(SeqCst) => ok("a"),
        true => Answer::Silence,
        false => Answer::Keep(b"HTTP/1.1 200 OK\r\n".to_vec()),
    });
    let other = Member::start(|_| ok("b"));
    let keys = "health = { path = \"/name\", every = \"200ms\", timeout = \"200ms\", fall = 2 }\n\
        first_byte_timeout = \"3s\"\n";
    let server = balance(&[quoted(&member), quoted(&other)], keys);
    let mut wires = [Wire::plain(&server), Wire::plain(&server)];
    for wire in &mut wires {
        wire.send("GET /part HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("a request", || {
        (!member.requests_with("/part").is_empty()).then_some(())
    });
    is_well.store(false, SeqCst);
    let line = format!("{} changed from up to check failed", member.url());
    server
        .errors
        .wait_for("a failed check", |it| it.contains(&line));
    let mut statuses = wires.map(|mut wire| wire.response("GET").status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 504]);
    assert_eq!(other.requests_with("/part").len(), 1);
}

#[test]
fn slow_requests_of_one_client_eject_no_member() {
    let member = Member::start(|request| {
        if request.line().contains("/slow") {
            Answer::Silence
        } else {
            ok("a")
        }
    });
    let keys = "first_byte_timeout = \"300ms\"\neject = { failures = 5, pause = \"10m\", pause_max = \"10m\" }\n";
    let server = balance(&[quoted(&member)], keys);
    let mut gets: Vec<Wire> = (0..20).map(|_| Wire::plain(&server)).collect();
    for wire in &mut gets {
        wire.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for wire in &mut gets {
        assert_eq!(wire.response("GET").status, 504);
    }
    let text = list(&server);
    assert!(
        text.contains(&format!("  127.0.0.1:{} up ", member.port)),
        "{text}"
    );
    // Failures of several clients eject the member.
    for last in 2..7 {
        let mut wire = Wire::of(&server, Ipv4Addr::new(127, 0, 0, last).into());
        assert_eq!(wire.get("/slow", "").status, 504);
    }
    server.errors.wait_for("an ejection", |line| {
        line.contains("changed from up to ejected: 5 requests in a row failed")
    });
}

#[test]
fn a_member_that_breaks_contents_off_is_ejected() {
    let cut = Member::start(|_| {
        Answer::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec())
    });
    let server = balance(&[quoted(&cut)], "");
    for last in 2..5 {
        // The row of failures has to last for a second.
        thread::sleep(Duration::from_millis(600));
        let mut wire = Wire::of(&server, Ipv4Addr::new(127, 0, 0, last).into());
        assert!(!wire.get("/", "").whole);
    }
    server.errors.wait_for("an ejection", |line| {
        line.contains("changed from up to ejected: 3 requests in a row failed")
    });
    // The line about each response names the balancer and the member.
    let place = format!(
        "balancer app: {}; the response was broken off (rule R746)",
        cut.url()
    );
    server
        .errors
        .wait_for("the member", |line| line.contains(&place));
}

#[test]
fn the_log_names_the_member_of_each_failed_attempt() {
    let hang = Member::start(|_| Answer::Hang);
    let silent = Member::start(|request| {
        if request.line().contains("/retry") {
            Answer::Hang
        } else {
            Answer::Silence
        }
    });
    let json = "[log]\nformat = \"json\"\n";
    let config = format!(
        "{}{json}[[balancer]]\nname = \"app\"\nmembers = [{}, {}]\nfirst_byte_timeout = \"300ms\"\n{}\
         [[site.route]]\npath = \"/\"\nbalance = \"app\"\n\n[[site.route]]\npath = \"/own/\"\nproxy = \"{}\"\n",
        server_table(""),
        quoted(&hang),
        quoted(&silent),
        site_table("http = \"serve\"\n"),
        hang.url(),
    );
    let server = Server::start(&config);
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/retry", "").status, 502);
    // The first attempt is a warning, the last one is the error.
    let first = server.errors.wait_for("the first attempt", |line| {
        line.contains("goes to another member")
    });
    assert!(
        first.contains("GET /retry: balancer app: http://") && first.contains("R740"),
        "{first}"
    );
    let last = server.errors.wait_for("the last attempt", |line| {
        line.contains("GET /retry: balancer app: http://")
            && !line.contains("goes to another member")
    });
    let ports = [hang.port, silent.port].map(|port| format!(":{port}"));
    assert!(
        ports
            .iter()
            .all(|port| first.contains(port) != last.contains(port)),
        "{first}\n{last}"
    );
    let line = server
        .output
        .wait_for("the request", |line| line.contains("GET /retry "));
    assert!(
        line.contains("\"tries\":2") && line.contains("\"member\":\"http://"),
        "{line}"
    );
    // A route with `proxy` has the name of the site and the path.
    assert_eq!(wire.get("/own/x", "").status, 502);
    let place = format!("GET /own/x: balancer */own/: {} (rule R740)", hang.url());
    server
        .errors
        .wait_for("the route", |line| line.contains(&place));
    let line = server
        .output
        .wait_for("the request", |line| line.contains("GET /own/x "));
    let member = format!("\"member\":\"{}\",\"tries\":1", hang.url());
    assert!(line.contains(&member), "{line}");
}

#[test]
fn a_slow_upload_is_no_trial_of_an_ejected_member() {
    let hangs = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&hangs);
    let ejected = Member::start(move |_| {
        if shared.load(SeqCst) {
            Answer::Hang
        } else {
            ok("a")
        }
    });
    let other = Member::start(|_| ok("b"));
    let keys = "eject = { failures = 1, pause = \"100ms\", pause_max = \"100ms\" }\n";
    let server = balance(&[quoted(&ejected), quoted(&other)], keys);
    let mut wire = Wire::plain(&server);
    let begin = format!("{} changed from up to ejected", ejected.url());
    wire.get("/", "");
    wire.get("/", "");
    server
        .errors
        .wait_for("an ejection", |line| line.contains(&begin));
    // Uploads longer than the gathered part, of which the rest never comes.
    let mut uploads: Vec<Wire> = (0..8).map(|_| Wire::plain(&server)).collect();
    for upload in &mut uploads {
        upload.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        upload.send([b'x'; 100_000]);
    }
    hangs.store(false, SeqCst);
    eventually("an answer of the ejected member", || {
        (wire.get("/", "").text() == "a").then_some(())
    });
}

#[test]
fn a_refusal_of_a_strict_session_names_its_member() {
    let members = [Member::start(|_| ok("a")), Member::start(|_| ok("b"))];
    let urls = members.each_ref().map(quoted);
    let keys = "sticky = { cookie = \"R\", signed = true, strict = true }";
    let server = balance(&urls, keys);
    let mut wire = Wire::plain(&server);
    let first = wire.get("/", "");
    let cookie = first.field("set-cookie").expect("a session").to_owned();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"),
        "{cookie}"
    );
    let own = members.iter().zip(["a", "b"]);
    let (own, _) = own
        .into_iter()
        .find(|(_, name)| first.text() == *name)
        .expect("its member");
    let host = own.url().replace("http://", "");
    server.ask(&["balancer", "disable", "app", &host]);
    let session = format!("Cookie: {}\r\n", cookie.split(';').next().expect("a value"));
    assert_eq!(wire.get("/lost", &session).status, 503);
    let line = format!(
        "no usable member: GET /lost: balancer app: `strict` binds the session to {} (rule R743)",
        own.url()
    );
    server
        .errors
        .wait_for("the session", |it| it.ends_with(&line));
}

/// A proxy in front of the server, or a NAT, gives all requests one address. Its requests leave the member that answers
/// none, long before other clients' requests could eject the member.
#[test]
fn a_member_that_closes_every_connection_costs_one_client_no_request() {
    let good = ["a", "b", "c", "d"].map(|name| Member::start(move |_| ok(name)));
    let closing = Member::start(|_| Answer::Hang);
    for count in [4, 2] {
        for method in ["byrequests", "bybusyness", "p2c"] {
            let mut members: Vec<String> = good[..count].iter().map(quoted).collect();
            members.insert(1, quoted(&closing));
            let server = balance(&members, &format!("method = \"{method}\""));
            let before = closing.requests().len();
            let failed: usize = thread::scope(|scope| {
                let clients = (0..4).map(|_| scope.spawn(|| statuses(&server, "/", 500)));
                let clients: Vec<_> = clients.collect();
                let all = clients
                    .into_iter()
                    .flat_map(|it| it.join().expect("a client"));
                all.filter(|status| *status != 200).count()
            });
            assert_eq!(failed, 0, "{method} of {count}");
            let tried = closing.requests().len() - before;
            assert!(
                (1..100).contains(&tried),
                "{method} of {count}: {tried} tried"
            );
        }
    }
}
