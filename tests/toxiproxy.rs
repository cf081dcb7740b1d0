//! Disturbed networks between the server and its members, made by toxiproxy: delayed, sliced, throttled, cut
//! and reset connections, and silence.

use crate::support::h2::H2;
use crate::support::member::{Answer, Member, ok};
use crate::support::programs::Program;
use crate::support::toxiproxy::Stream::{Downstream, Upstream};
use crate::support::toxiproxy::{DisturbedLink, Stream, Toxiproxy};
use crate::support::wire::{Over, Response, Wire};
use crate::support::{Folder, Server, eventually, server_table, site_table};

/// Toxic that passes the bytes in slices of 2 to 12 bytes.
const SLICES: (&str, &str) = ("slicer", r#""average_size":7,"size_variation":5,"delay":0"#);

/// Starts a server with a route `/` to a balancer of the URLs, with further keys of the balancer. A failed
/// response ejects no member, so that each request shows the choice of the balancer alone.
fn balance(urls: &[String], keys: &str) -> Server {
    balance_members(&format!("{urls:?}"), keys)
}

/// Starts a server as [`balance`] does, with the list of members of the configuration.
fn balance_members(members: &str, keys: &str) -> Server {
    Server::start(&format!(
        "{}[[balancer]]\nname = \"app\"\nmembers = {members}\nretries = {{ budget = 100 }}\n\
         eject = {{ failures = 1000, pause = \"100ms\", pause_max = \"100ms\" }}\n{keys}\n{}[[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
        server_table(""),
        site_table("http = \"serve\"\n")
    ))
}

/// Starts a server in front of a single member behind a disturbed link.
fn single(link: &DisturbedLink<'_>, keys: &str) -> Server {
    balance(&[link.url()], keys)
}

/// A client's connection, over HTTP/1.1 or HTTP/2.
enum Client {
    H1(Wire),
    H2(H2),
}

impl Client {
    /// Returns a client of each version.
    fn of_each_version(server: &Server) -> [Client; 2] {
        let mut h2 = H2::open(server, Over::Tls);
        // A grant for each of thousands of tiny DATA frames would be a flood.
        h2.grant_step = 4_096;
        [Client::H1(Wire::plain(server)), Client::H2(h2)]
    }

    fn get(&mut self, path: &str) -> Response {
        match self {
            Client::H1(wire) => wire.get(path, ""),
            Client::H2(h2) => h2.get(path),
        }
    }

    /// Begins a GET and waits for the first bytes of the body.
    fn begin(&mut self, path: &str) -> u32 {
        match self {
            Client::H1(wire) => {
                wire.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                wire.begins();
                0
            }
            Client::H2(h2) => {
                let id = h2.ask("GET", path, &[], true);
                while h2.partial_response(id).is_none_or(|it| it.body.is_empty()) {
                    let frame = h2.next().expect("a frame");
                    h2.record_frame(&frame);
                }
                id
            }
        }
    }

    /// Returns the response to a GET begun before.
    fn end(&mut self, id: u32) -> Response {
        match self {
            Client::H1(wire) => wire.response("GET"),
            Client::H2(h2) => h2.response(id),
        }
    }

    fn post(&mut self, path: &str, body: &[u8]) -> Response {
        match self {
            Client::H1(wire) => {
                let length = body.len();
                wire.send(format!(
                    "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
                ));
                wire.send(body);
                wire.response("POST")
            }
            Client::H2(h2) => {
                let id = h2.ask("POST", path, &[], false);
                h2.data(id, body, true);
                h2.response(id)
            }
        }
    }
}

/// Bytes in which a missing, doubled or moved part shows.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

/// Starts a member that answers GET with the path, and other requests with their body.
fn echo() -> Member {
    Member::start(|request| {
        if request.line().starts_with("GET") {
            ok(request.line())
        } else {
            ok(&request.body)
        }
    })
}

/// Starts nginx with a file of 100,000 bytes, unchanged by name and with unknown length by another name.
fn nginx(content: &[u8]) -> Program {
    let folder = Folder::new().with("public/page.bin", content);
    folder.write("public/unknown/page.bin", content);
    // The filter changes nothing, and removes the Content-Length.
    let filter =
        "location /unknown/ { sub_filter_types *; sub_filter '<nothing of this kind>' ''; }";
    Program::nginx(folder, filter)
}

const NGINX_PAGES: [&str; 2] = ["/page.bin", "/unknown/page.bin"];

/// Asserts that a response is complete and has the content.
fn assert_whole(server: &Server, response: &Response, content: &[u8]) {
    assert!(
        response.status == 200 && response.whole && response.body == content,
        "{response:?}, log: {:#?}",
        server.output.all()
    );
}

/// Asserts that requests and responses pass a link whole and unchanged, over both versions.
fn assert_all_pass(disturb: impl Fn(&DisturbedLink<'_>)) {
    let toxiproxy = Toxiproxy::start();
    let content = noise(100_000);
    let nginx = nginx(&content);
    let member = echo();
    let [pages, echoes] = [nginx.port, member.port].map(|port| toxiproxy.link(port));
    disturb(&pages);
    disturb(&echoes);
    let server = single(&pages, "");
    for mut client in Client::of_each_version(&server) {
        for path in NGINX_PAGES {
            let response = client.get(path);
            assert_whole(&server, &response, &content);
        }
        assert_eq!(client.get("/nothing").status, 404);
    }
    let server = single(&echoes, "");
    for length in [0, 1, 60_000, 70_000, 200_000] {
        let body = noise(length);
        server.folder.write("body", &body);
        let file = format!("@{}", server.folder.path("body").display());
        for version in ["--http1.1", "--http2"] {
            let ran = server.curl(&[version, "--data-binary", &file, &server.https("/")]);
            assert!(
                ran.success && ran.stdout == body,
                "{version} {length}: {} bytes, {}",
                ran.stdout.len(),
                ran.errors()
            );
        }
    }
    assert!(member.requests().len() == 10);
}

#[test]
fn slices_of_a_few_bytes_arrive_whole() {
    assert_all_pass(|link| {
        link.add(Downstream, SLICES.0, SLICES.1);
        link.add(Upstream, SLICES.0, SLICES.1);
    });
}

#[test]
fn throttled_bodies_arrive_whole() {
    assert_all_pass(|link| {
        link.add(Downstream, "bandwidth", r#""rate":1000"#);
        link.add(Upstream, "bandwidth", r#""rate":1000"#);
    });
}

#[test]
fn delayed_answers_belong_to_their_requests() {
    let toxiproxy = Toxiproxy::start();
    let member = echo();
    let link = toxiproxy.link(member.port);
    for stream in [Downstream, Upstream] {
        link.add(stream, "latency", r#""latency":40,"jitter":40"#);
    }
    let server = single(&link, "");
    let mut h2 = H2::open(&server, Over::Tls);
    let mut wires: Vec<Wire> = (0..10).map(|_| Wire::plain(&server)).collect();
    for round in 0..3 {
        for (nth, wire) in wires.iter_mut().enumerate() {
            wire.send(format!("GET /h1/{round}/{nth} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        let path = |nth: usize| format!("/h2/{round}/{nth}");
        let ids: Vec<u32> = (0..10)
            .map(|nth| h2.ask("GET", &path(nth), &[], true))
            .collect();
        for (nth, wire) in wires.iter_mut().enumerate() {
            let expected = format!("GET /h1/{round}/{nth} HTTP/1.1");
            assert_eq!(wire.response("GET").text(), expected);
        }
        for (nth, id) in ids.into_iter().enumerate() {
            let expected = format!("GET {} HTTP/1.1", path(nth));
            assert_eq!(h2.response(id).text(), expected);
        }
    }
    assert_eq!(member.requests().len(), 60);
}

/// Asserts that GETs go on to the next member and POSTs are answered with 502, if the connections of the first
/// member end by a reset. `reaches_member` is true if the first member gets the requests.
fn assert_resets(stream: Stream, reaches_member: bool) {
    let toxiproxy = Toxiproxy::start();
    let members = [echo(), echo()];
    let link = toxiproxy.link(members[0].port);
    link.add(stream, "reset_peer", r#""timeout":0"#);
    // The client would otherwise stay away from the first member after the first GET.
    let urls = [link.url(), members[1].url()];
    let listed = urls.map(|url| format!("{{ url = {url:?}, ignore_errors = true }}"));
    let server = balance_members(&format!("[{}]", listed.join(", ")), "");
    let mut gets = 0;
    let mut posts = 0;
    for mut client in Client::of_each_version(&server) {
        for _ in 0..4 {
            gets += 1;
            let path = format!("/get/{gets}/");
            let response = client.get(&path);
            assert_eq!(response.text(), format!("GET {path} HTTP/1.1"));
            assert_eq!(members[1].requests_with(&path).len(), 1);
        }
        let mut failed = 0;
        for _ in 0..4 {
            posts += 1;
            let path = format!("/post/{posts}/");
            let status = client.post(&path, b"content").status;
            let seen = [0, 1].map(|nth: usize| members[nth].requests_with(&path).len());
            match status {
                200 => assert_eq!(seen, [0, 1]),
                502 => assert_eq!(seen, [usize::from(reaches_member), 0]),
                other => panic!("{path}: {other}"),
            }
            failed += usize::from(status == 502);
        }
        assert_eq!(failed, 2, "each member is the first choice of every second");
    }
    server.output.wait_for("the rule", |line| {
        line.contains("POST /post/") && line.contains("rule=R740")
    });
    let first = members[0].requests_with("/get/").len();
    assert_eq!(first, if reaches_member { 4 } else { 0 });
}

#[test]
fn a_reset_before_the_answer_repeats_gets_alone() {
    assert_resets(Downstream, true);
}

#[test]
fn a_reset_within_the_request_repeats_gets_alone() {
    assert_resets(Upstream, false);
}

#[test]
fn a_closed_port_leads_every_request_on() {
    let toxiproxy = Toxiproxy::start();
    let members = ["a", "b"].map(|name| Member::start(move |_| ok(name)));
    let link = toxiproxy.link(members[0].port);
    let server = balance(&[link.url(), members[1].url()], "");
    let mut clients = Client::of_each_version(&server);
    let both = |client: &mut Client| {
        let contents: Vec<String> = (0..4).map(|_| client.get("/").text()).collect();
        contents.contains(&"a".to_owned()).then_some(())
    };
    for client in &mut clients {
        both(client).expect("answers of both members");
    }
    link.set_open(false);
    for client in &mut clients {
        for _ in 0..10 {
            assert_eq!(client.post("/", b"content").text(), "b");
            assert_eq!(client.get("/").text(), "b");
        }
    }
    link.set_open(true);
    for client in &mut clients {
        eventually("answers of both members", || both(client));
    }
}

/// Asserts that responses cut by `disturb` are broken for the client, and whole again after `mend`.
fn assert_broken(disturb: impl Fn(&DisturbedLink<'_>), mend: impl Fn(&DisturbedLink<'_>)) {
    let toxiproxy = Toxiproxy::start();
    let content = noise(100_000);
    let nginx = nginx(&content);
    let link = toxiproxy.link(nginx.port);
    disturb(&link);
    let server = single(&link, "");
    for path in NGINX_PAGES {
        for mut client in Client::of_each_version(&server) {
            let response = client.get(path);
            assert!(!response.whole, "{path}: {response:?}");
            assert!(
                response.status == 200 && content.starts_with(&response.body),
                "{path}: {response:?}"
            );
        }
    }
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R746"));
    mend(&link);
    for mut client in Client::of_each_version(&server) {
        for path in NGINX_PAGES {
            let response = client.get(path);
            assert_whole(&server, &response, &content);
        }
    }
}

#[test]
fn an_orderly_end_within_the_body_breaks_the_response() {
    assert_broken(
        |link| link.add(Downstream, "limit_data", r#""bytes":70000"#),
        |link| link.remove(Downstream, "limit_data"),
    );
}

#[test]
fn a_reset_within_the_body_breaks_the_response() {
    assert_broken(
        |link| {
            link.add(Downstream, "limit_data", r#""bytes":70000"#);
            link.reset_at_end();
        },
        |link| {
            link.remove(Downstream, "limit_data");
            link.remove(Downstream, "reset_peer");
        },
    );
}

#[test]
fn a_response_without_framing_that_ends_by_a_reset_is_broken() {
    let toxiproxy = Toxiproxy::start();
    let content = noise(70_000);
    let answer = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), content.clone()].concat();
    let length = answer.len();
    let member = Member::start(move |_| Answer::Close(answer.clone()));
    let link = toxiproxy.link(member.port);
    let server = single(&link, "");
    for mut client in Client::of_each_version(&server) {
        let response = client.get("/");
        assert_whole(&server, &response, &content);
    }
    link.add(
        Downstream,
        "limit_data",
        &format!(r#""bytes":{}"#, length - 1),
    );
    link.reset_at_end();
    for mut client in Client::of_each_version(&server) {
        let response = client.get("/");
        assert!(!response.whole, "{response:?}");
    }
}

/// A response cut anywhere is a 502 or a broken response, and the next request gets a whole response.
#[test]
fn a_response_is_whole_only_with_its_last_byte() {
    let toxiproxy = Toxiproxy::start();
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n";
    let content = noise(100);
    let sized = [
        format!("{head}Content-Length: 100\r\n\r\n").as_bytes(),
        &content,
    ]
    .concat();
    let chunked = [
        format!("{head}Transfer-Encoding: chunked\r\n\r\n64\r\n").as_bytes(),
        &content,
        b"\r\n0\r\nA: b\r\n\r\n",
    ]
    .concat();
    for answer in [sized, chunked] {
        let length = answer.len();
        let member = Member::start(move |_| Answer::Keep(answer.clone()));
        let link = toxiproxy.link(member.port);
        let server = single(&link, "");
        let mut clients = Client::of_each_version(&server);
        for bytes in (0..length).step_by(9).chain([length - 1]) {
            link.add(Downstream, "limit_data", &format!(r#""bytes":{bytes}"#));
            for client in &mut clients {
                let response = client.get("/");
                let is_broken = response.status == 200 && !response.whole;
                assert!(
                    response.status == 502 || is_broken,
                    "{bytes} of {length} bytes: {response:?}"
                );
                if let Client::H1(wire) = client
                    && is_broken
                {
                    *wire = Wire::plain(&server);
                }
            }
            link.remove(Downstream, "limit_data");
            for client in &mut clients {
                let response = client.get("/");
                assert_whole(&server, &response, &content);
            }
        }
    }
}

#[test]
fn silence_before_the_answer_is_504_once() {
    let toxiproxy = Toxiproxy::start();
    let members = [echo(), echo()];
    let link = toxiproxy.link(members[0].port);
    link.add(Downstream, "timeout", r#""timeout":0"#);
    let server = balance(
        &[link.url(), members[1].url()],
        "first_byte_timeout = \"300ms\"",
    );
    for mut client in Client::of_each_version(&server) {
        let mut statuses: Vec<u16> = (0..4).map(|_| client.get("/").status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 504, 504]);
    }
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R741"));
    // Neither member got a request that the other member had got.
    assert_eq!(members.map(|member| member.requests().len()), [4, 4]);
}

#[test]
fn silence_within_the_answer_breaks_the_response() {
    let toxiproxy = Toxiproxy::start();
    let content = noise(100_000);
    let nginx = nginx(&content);
    for path in NGINX_PAGES {
        let link = toxiproxy.link(nginx.port);
        // The whole body takes 10 s.
        link.add(Downstream, "bandwidth", r#""rate":10"#);
        let server = single(&link, "silence_timeout = \"500ms\"");
        let mut clients = Client::of_each_version(&server);
        let ids = clients.each_mut().map(|client| client.begin(path));
        link.add(Downstream, "timeout", r#""timeout":0"#);
        for (client, id) in clients.iter_mut().zip(ids) {
            let response = client.end(id);
            assert!(!response.whole, "{path}: {response:?}");
            assert!(content.starts_with(&response.body), "{path}: {response:?}");
        }
        server
            .output
            .wait_for("the rule", |line| line.contains("rule=R741"));
    }
}

#[test]
fn checks_take_a_silent_member_out_and_back_in() {
    let toxiproxy = Toxiproxy::start();
    let members = ["a", "b"].map(|name| Member::start(move |_| ok(name)));
    let link = toxiproxy.link(members[0].port);
    let keys = "health = { path = \"/health\", every = \"500ms\", timeout = \"500ms\", rise = 2, \
                fall = 2 }";
    let server = balance(&[link.url(), members[1].url()], keys);
    let mut clients = Client::of_each_version(&server);
    let begin = format!("balancer app: {} changed from ", link.url());
    link.add(Downstream, "timeout", r#""timeout":0"#);
    server.errors.wait_for("failed checks", |line| {
        line.contains(&begin) && line.ends_with("up to check failed: timeout")
    });
    for client in &mut clients {
        for _ in 0..4 {
            assert_eq!(client.get("/").text(), "b");
        }
    }
    link.remove(Downstream, "timeout");
    server.errors.wait_for("passed checks", |line| {
        line.contains(&begin) && line.ends_with("check failed to up: checks passed")
    });
    for client in &mut clients {
        let both: Vec<String> = (0..4).map(|_| client.get("/").text()).collect();
        assert!(both.contains(&"a".to_owned()), "{both:?}");
    }
}
