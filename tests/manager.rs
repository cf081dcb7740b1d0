//! The manager: its listener, the guards against foreign requests, logins, edits and reloads.

use std::net::{IpAddr, UdpSocket};

use data_plane::limits;

use crate::support::member::{Member, ok};
use crate::support::wire::Wire;
use crate::support::{Folder, Server, eventually, finish, run, server_table, site_table};

/// Returns a configuration with the keys of `[manager]`, and a balancer with the members.
pub fn config(keys: &str, members: &[&str]) -> String {
    let members: Vec<String> = members.iter().map(|url| format!("\"{url}\"")).collect();
    let balancer = if members.is_empty() {
        String::new()
    } else {
        format!(
            "[[balancer]]\nname = \"app\"\nmembers = [{}]\n",
            members.join(", ")
        )
    };
    let route = if members.is_empty() {
        ""
    } else {
        "[[site.route]]\npath = \"/app/\"\nbalance = \"app\"\n"
    };
    format!(
        "{}[manager]\n{keys}\n{balancer}{}{route}",
        server_table("h2c = true"),
        site_table("http = \"serve\"\n")
    )
}

/// Keys of a manager for clients of the machine itself.
pub const LOCAL: &str = "listen = \"127.0.0.1:0\"";

fn folder() -> Folder {
    Folder::new().with("public/index.html", "<p>hello</p>\n")
}

/// Returns a folder with the editor `ann` in `managers` and the viewer `bob` in `viewers`.
pub fn folder_with_users() -> Folder {
    let folder = folder();
    for (file, user) in [("managers", "ann"), ("viewers", "bob")] {
        let mut command = std::process::Command::new(crate::support::program());
        command.args(["passwd"]).arg(folder.path(file)).arg(user);
        let done = finish(command, format!("secret of {user}\n").as_bytes());
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    folder
}

/// A client of the manager.
pub struct Manager {
    /// URL of the page.
    pub url: String,
    port: u16,
}

/// Response of the manager.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Manager {
    /// Finds the manager of a server by the URL in the start-up message.
    pub fn of(server: &Server) -> Manager {
        let line = server
            .errors
            .wait_for("the manager", |line| line.starts_with("manager: "));
        Manager::at(line.trim_start_matches("manager: "))
    }

    fn at(url: &str) -> Manager {
        let port = url.trim_end_matches('/').rsplit(':').next();
        Manager {
            url: url.trim_end_matches('/').to_owned(),
            port: port.and_then(|port| port.parse().ok()).expect("a port"),
        }
    }

    /// Returns the URLs of `anthill manager login`.
    fn login_urls(server: &Server) -> Vec<String> {
        let done = server.ask(&["manager", "login"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout.lines().map(str::to_owned).collect()
    }

    /// Returns the URL of `anthill manager login` for the only address.
    pub fn login_url(server: &Server) -> String {
        let urls = Manager::login_urls(server);
        assert_eq!(urls.len(), 1, "{urls:?}");
        urls[0].clone()
    }

    pub fn curl(&self, path: &str, options: &[&str]) -> Answer {
        curl(&format!("{}{path}", self.url), options)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.curl(path, &[])
    }

    /// Opens a session by the URL of `anthill manager login`, and returns the value of the Cookie field.
    pub fn session(&self, server: &Server) -> String {
        let answer = curl(&Manager::login_url(server), &[]);
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.field("set-cookie").expect("a cookie");
        cookie.split(';').next().expect("a pair").to_owned()
    }

    /// Returns the token of a login, with the options of the login.
    pub fn token(&self, login: &[&str]) -> String {
        let answer = self.curl("/nonce", login);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body.trim_end().to_owned()
    }
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let (_, value) = lines.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value.trim_end())
    }
}

pub fn curl(url: &str, options: &[&str]) -> Answer {
    let mut all = vec!["-s", "-k", "-i", "--max-time", "20"];
    all.extend(options);
    all.push(url);
    let text = run("curl", &all, b"").text();
    // A response to a body may be preceded by 100 (Continue).
    let text = text
        .rsplit_once("100 Continue\r\n\r\n")
        .map_or(&*text, |it| it.1);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.trim().parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Returns the state of the first member by the list for programs.
pub fn state(server: &Server) -> String {
    let list = server.ask(&["balancer", "--json"]).stdout;
    let state = list.split("\"admin\":\"").nth(1);
    let state = state.and_then(|rest| rest.split('"').next());
    state.expect("a member").to_owned()
}

/// Returns the body of a form that disables the only member, with the confirmation.
fn disable(member: &Member, token: &str) -> String {
    let url = member.url().replace(':', "%3A").replace('/', "%2F");
    format!("b=app&w={url}&w_status_D=1&confirmed=1&nonce={token}")
}

#[test]
fn the_page_and_its_twins_show_the_server() {
    let member = Member::start(|_| ok("a"));
    let server = Server::start(&config(LOCAL, &[&member.url()]));
    let manager = Manager::of(&server);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let page = manager.curl("/", &[version]);
        assert_eq!(page.status, 200, "{page:?}");
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        for part in [
            ">app</a></h2>",
            "<h2>Server</h2>",
            ">Member</th>",
            ">up<small>since ",
            "<dt>Latency, 99 %</dt><dd>-</dd>",
            "self-signed",
        ] {
            assert!(page.body.contains(part), "no {part}: {}", page.body);
        }
        // A client without a login gets no form.
        assert!(!page.body.contains("<form"), "{}", page.body);
        let policy = page.field("content-security-policy").expect("a policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self';"),
            "{policy}"
        );
        assert_eq!(page.field("cache-control"), Some("no-store"));
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.field("referrer-policy"), Some("same-origin"));
        let status = manager.curl("/status.json", &[version]);
        assert_eq!(status.field("content-type"), Some("application/json"));
        assert!(status.body.starts_with("{\"version\":"), "{}", status.body);
        let list = manager.curl("/balancers.json", &[version]);
        assert!(
            list.body.starts_with("{\"balancers\":[{\"name\":\"app\""),
            "{}",
            list.body
        );
        let style = manager.curl("/style.css", &[version]);
        assert_eq!(style.field("content-type"), Some("text/css; charset=utf-8"));
        let head = manager.curl("/", &["--head", version]);
        assert_eq!((head.status, head.body.as_str()), (200, ""));
    }
    assert_eq!(manager.get("/index.html").status, 404);
    assert_eq!(manager.curl("/", &["-X", "PUT"]).status, 405);
    assert_eq!(manager.curl("/status.json", &["-d", "a=b"]).status, 405);
}

#[test]
fn refusals_have_the_fields_of_the_pages() {
    let server = Server::start_in(
        folder_with_users(),
        &config(&format!("{LOCAL}\nusers = \"managers\""), &[]),
    );
    let manager = Manager::of(&server);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for (status, path, options) in [
            (400, "/?%", &[][..]),
            (401, "/login", &[]),
            (401, "/", &["-u", "ann:wrong"]),
            (403, "/", &["-H", "Origin: http://evil.example.com"]),
            (404, "/none", &[]),
            (405, "/", &["-X", "PUT"]),
            (421, "/", &["-H", "Host: evil.example.com"]),
            (400, "/", &["-H", "Content-Length: a"]),
        ] {
            let options = [options, &[version]].concat();
            let answer = manager.curl(path, &options);
            assert_eq!(answer.status, status, "{path} {options:?} {answer:?}");
            let policy = answer.field("content-security-policy").expect("a policy");
            assert!(
                policy.starts_with("default-src 'none'; style-src 'sha256-"),
                "{policy}"
            );
            assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
            for (name, value) in [
                ("x-frame-options", "DENY"),
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "same-origin"),
                ("cache-control", "no-store"),
            ] {
                assert_eq!(answer.field(name), Some(value), "{path} {options:?}");
            }
        }
    }
    // The sites have pages of their own.
    let site = curl(&server.http("/none"), &[]);
    assert_eq!((site.status, site.field("x-frame-options")), (404, None));
}

#[test]
fn requests_of_foreign_pages_change_nothing() {
    let member = Member::start(|_| ok("a"));
    let server = Server::start(&config(LOCAL, &[&member.url()]));
    let manager = Manager::of(&server);
    let cookie = manager.session(&server);
    let token = manager.token(&["-b", &cookie]);
    let form = disable(&member, &token);
    let query = format!("/?{form}");
    let foreign_port = format!("Origin: http://localhost:{}", manager.port ^ 1);
    let host = format!("Host: evil.example.com:{}", manager.port);
    let without_port = "Host: localhost";
    let wrong = disable(&member, "A");
    let none = disable(&member, "").replace("&nonce=", "");
    #[rustfmt::skip]
    let table: Vec<(u16, &str, Vec<&str>)> = vec![
        (421, "/", vec!["-d", &form, "-H", &host]),
        (421, "/", vec!["-d", &form, "-H", without_port]),
        (421, "/status.json", vec!["-H", &host]),
        (403, "/", vec!["-d", &form, "-H", "Origin: http://evil.example.com"]),
        (403, "/", vec!["-d", &form, "-H", &foreign_port]),
        (403, "/", vec!["-d", &form, "-H", "Origin: null"]),
        (403, "/", vec!["-d", &form, "-H", "Sec-Fetch-Site: cross-site"]),
        (403, "/", vec!["-d", &form, "-H", "Sec-Fetch-Site: same-site"]),
        (403, "/balancers.json", vec!["-H", "Sec-Fetch-Site: cross-site"]),
        (403, "/", vec!["-d", &wrong]),
        (403, "/", vec!["-d", &none]),
        (403, &query, vec![]),
        (405, &query, vec!["-d", &form]),
        (400, "/", vec!["-d", &form, "-H", "Content-Type: text/plain"]),
    ];
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for (status, path, options) in &table {
            let mut options = options.clone();
            options.extend(["-b", &cookie, version]);
            let answer = manager.curl(path, &options);
            assert_eq!(answer.status, *status, "{path} {options:?} {answer:?}");
            assert_eq!(state(&server), "enabled", "{options:?}");
        }
        // The token of a session is no login.
        let anonymous = manager.curl("/", &["-d", &form, version]);
        assert_eq!(anonymous.status, 403, "{anonymous:?}");
        assert_eq!(state(&server), "enabled");
    }
    let long = format!("{form}&a={}", "b".repeat(17_000));
    assert_eq!(manager.curl("/", &["-d", &long, "-b", &cookie]).status, 413);
    let changed = |line: &str| line.contains("changed from");
    assert!(!server.errors.all().iter().any(|line| changed(line)));
    let done = manager.curl("/", &["-d", &form, "-b", &cookie]);
    assert_eq!(done.status, 303, "{done:?}");
    assert_eq!(state(&server), "disabled");
}

#[test]
fn a_secret_opens_one_session_that_edits() {
    let member = Member::start(|_| ok("a"));
    let server = Server::start(&config(LOCAL, &[&member.url()]));
    let manager = Manager::of(&server);
    let url = Manager::login_url(&server);
    assert!(url.starts_with(&manager.url), "{url}");
    let unknown = manager.get("/login?secret=AAAA");
    assert_eq!(unknown.status, 403, "{unknown:?}");
    // A preview of the link by HEAD doesn't use the secret up.
    assert_eq!(curl(&url, &["--head"]).status, 405);
    let answer = curl(&url, &[]);
    assert_eq!((answer.status, answer.field("location")), (303, Some("/")));
    let cookie = answer.field("set-cookie").expect("a cookie").to_owned();
    for part in [
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/",
        "; Max-Age=28800",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    assert_eq!(curl(&url, &[]).status, 403, "the secret is used");
    let cookie = cookie.split(';').next().expect("a pair");

    let selected = format!("/?b=app&w={}", member.url());
    let page = manager.curl(&selected, &["-b", cookie]);
    assert!(
        page.body
            .contains("Logged in: <b>anthill manager login</b>"),
        "{}",
        page.body
    );
    let token = manager.token(&["-b", cookie]);
    let hidden = "<input type=hidden name=nonce value=\"";
    assert!(page.body.contains(hidden), "{}", page.body);
    // Another session has another token.
    let other = manager.session(&server);
    let other_token = manager.token(&["-b", &other]);
    assert_ne!(token, other_token);
    let foreign = manager.curl("/", &["-b", cookie, "-d", &disable(&member, &other_token)]);
    assert_eq!(foreign.status, 403, "{foreign:?}");
    assert_eq!(state(&server), "enabled");

    let done = manager.curl("/", &["-b", cookie, "-d", &disable(&member, &token)]);
    assert_eq!(done.status, 303, "{done:?}");
    let location = done.field("location").expect("a location");
    assert!(location.starts_with("/?b=app&w=http"), "{location}");
    let page = manager.curl(location, &["-b", cookie]);
    assert!(page.body.contains(">disabled<"), "{}", page.body);
    let enable = disable(&member, &token).replace("w_status_D=1", "w_status_D=0");
    assert_eq!(
        manager.curl("/", &["-b", cookie, "-d", &enable]).status,
        303
    );
    assert_eq!(state(&server), "enabled");
    server.errors.wait_for("a line with the user", |line| {
        line.contains(" by anthill manager login (manager): ")
    });

    let missing = format!("b=app&w=http%3A%2F%2F127.0.0.1%3A1&w_status_D=1&nonce={token}");
    let refused = manager.curl("/", &["-b", cookie, "-d", &missing]);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused.body.contains("<p class=error role=alert>error: "),
        "{}",
        refused.body
    );
    let out = manager.curl("/logout", &["-b", cookie, "-d", &format!("nonce={token}")]);
    assert_eq!(out.status, 303, "{out:?}");
    assert_eq!(manager.curl("/nonce", &["-b", cookie]).status, 403);
    assert_eq!(manager.curl("/nonce", &["-b", &other]).status, 200);
}

#[test]
fn users_edit_and_viewers_read() {
    let member = Member::start(|_| ok("a"));
    let keys = format!("{LOCAL}\nusers = \"managers\"\nviewers = \"viewers\"");
    let server = Server::start_in(folder_with_users(), &config(&keys, &[&member.url()]));
    let manager = Manager::of(&server);
    let (ann, bob) = (["-u", "ann:secret of ann"], ["-u", "bob:secret of bob"]);
    let token = manager.token(&ann);
    let form = disable(&member, &token);
    let page = manager.get("/");
    assert!(
        page.body.contains("<a href=\"/login\">Log in</a>"),
        "{}",
        page.body
    );
    let asked = manager.get("/login");
    assert_eq!(asked.status, 401);
    assert!(
        asked
            .field("www-authenticate")
            .is_some_and(|it| it.starts_with("Basic"))
    );
    assert_eq!(manager.curl("/login", &ann).status, 303);
    let page = manager.curl("/", &bob);
    assert!(page.body.contains("Logged in: <b>bob</b>"), "{}", page.body);
    assert_eq!(manager.curl("/nonce", &bob).status, 403);
    #[rustfmt::skip]
    let table: [(u16, &[&str]); 4] = [
        (401, &[]),
        (403, &bob),
        (401, &["-u", "ann:secret of bob"]),
        (401, &["-u", "eve:secret of eve"]),
    ];
    for (status, login) in table {
        let options = [&["-d", form.as_str()], login].concat();
        let answer = manager.curl("/", &options);
        assert_eq!(answer.status, status, "{login:?} {answer:?}");
        assert_eq!(state(&server), "enabled", "{login:?}");
    }
    let done = manager.curl("/", &[&["-d", form.as_str()][..], &ann].concat());
    assert_eq!(done.status, 303, "{done:?}");
    assert_eq!(state(&server), "disabled");
    server
        .errors
        .wait_for("the user", |line| line.contains(" by ann (manager): "));
}

#[test]
fn failed_logins_are_limited() {
    let keys = format!("{LOCAL}\nusers = \"managers\"");
    let server = Server::start_in(folder_with_users(), &config(&keys, &[]));
    let manager = Manager::of(&server);
    // All guesses are sent at once, since a client regains a failure every 6 s and a slow machine hashes few
    // passwords in that time.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..3 * limits::LOGIN_FAILURES_MAX)
            .map(|guess| {
                let login = format!("ann:{guess}");
                let manager = &manager;
                scope.spawn(move || manager.curl("/", &["-u", &login]).status)
            })
            .collect();
        guesses
            .into_iter()
            .map(|it| it.join().expect("a status"))
            .collect()
    });
    assert!(statuses.contains(&401), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[test]
fn a_listener_serves_its_audience_alone() {
    let member = Member::start(|_| ok("a"));
    let config =
        config(LOCAL, &[&member.url()]).replace("names = [\"*\"]", "names = [\"*\", \"a.org\"]");
    let server = Server::start(&config);
    let manager = Manager::of(&server);
    let host = format!("Host: localhost:{}", manager.port);
    let cookie = manager.session(&server);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for path in [
            "/status.json",
            "/balancers.json",
            "/nonce",
            "/login?secret=a",
            "/style.css",
        ] {
            let options = ["-H", &host, "-b", &cookie, version];
            let answer = curl(&server.http(path), &options);
            assert_eq!(answer.status, 404, "{path} {answer:?}");
        }
        let site = curl(&server.http("/"), &["-H", &host, version]);
        assert_eq!(site.body, "<p>hello</p>\n");
        for path in ["/", "/index.html", "/app/", "/.well-known/acme-challenge/a"] {
            let answer = manager.curl(path, &["-H", "Host: a.org", version]);
            assert_eq!(answer.status, 421, "{path} {answer:?}");
        }
        assert_eq!(manager.curl("/index.html", &[version]).status, 404);
    }
    for version in ["--http1.1", "--http2"] {
        let answer = curl(
            &server.https("/status.json"),
            &["-H", &host, "-b", &cookie, version],
        );
        assert_eq!(answer.status, 404, "{answer:?}");
    }
    assert!(
        member.requests().is_empty(),
        "no request reached the member"
    );
}

#[test]
fn trusted_proxies_have_no_effect() {
    let keys = format!("{LOCAL}\nallow = [\"127.0.0.1\"]");
    let config = config(&keys, &[]).replace("[manager]", "trust = [\"127.0.0.1\"]\n[manager]");
    let server = Server::start(&config);
    let manager = Manager::of(&server);
    let forged = [
        "-H",
        "X-Forwarded-For: 192.0.2.1",
        "-H",
        "X-Forwarded-Proto: https",
    ];
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let answer = manager.curl("/status.json?b=forged", &[&forged[..], &[version]].concat());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for version in ["1.1", "2.0"] {
        // The line has the version, and no query.
        let request = format!("\"GET /status.json HTTP/{version}\"");
        let is_logged = |line: &str| line.contains(&request);
        let line = server.output.wait_for("the request", is_logged);
        assert!(line.starts_with("127.0.0.1 "), "{line}");
    }
}

#[test]
fn other_networks_are_refused() {
    let keys = format!("{LOCAL}\nallow = [\"192.0.2.0/24\"]");
    let server = Server::start(&config(&keys, &[]));
    let manager = Manager::of(&server);
    for path in ["/", "/status.json", "/login", "/style.css"] {
        assert_eq!(manager.get(path).status, 403, "{path}");
    }
    server
        .output
        .wait_for("the rule", |line| line.contains("R403"));
}

/// Returns an address of the machine that is no loopback address, if the machine has one. No datagram is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn other_addresses_speak_tls_and_need_a_login() {
    let keys = "listen = \"0.0.0.0:0\"\nusers = \"managers\"\nviewers = \"viewers\"\n\
                allow = [\"0.0.0.0/0\"]\nnames = [\"manager.example.org\"]";
    let http_only = config(keys, &[]).replace("https = [\"127.0.0.1:0\"]", "https = \"off\"");
    for text in [config(keys, &[]), http_only] {
        let server = Server::start_in(folder_with_users(), &text);
        let manager = Manager::of(&server);
        assert!(
            manager.url.starts_with("https://localhost:"),
            "{}",
            manager.url
        );
        for version in ["--http1.1", "--http2"] {
            let page = manager.curl("/", &[version]);
            assert_eq!(page.status, 200, "{page:?}");
            assert_eq!(page.field("alt-svc"), None);
            let resolve = format!("manager.example.org:{}:127.0.0.1", manager.port);
            let url = format!("https://manager.example.org:{}/", manager.port);
            assert_eq!(curl(&url, &["--resolve", &resolve, version]).status, 200);
        }
        let session = curl(&Manager::login_url(&server), &[]);
        let cookie = session.field("set-cookie").expect("a cookie");
        assert!(cookie.ends_with("; Secure"), "{cookie}");
        let plain = format!("http://localhost:{}/", manager.port);
        assert_eq!(curl(&plain, &[]).status, 400, "plain HTTP gets no page");
        let Some(address) = own_address() else {
            continue;
        };
        let url = format!("https://{address}:{}/status.json", manager.port);
        assert_eq!(curl(&url, &[]).status, 401);
        assert_eq!(curl(&url, &["-u", "bob:secret of bob"]).status, 200);
        assert_eq!(curl(&url, &["-u", "ann:secret of ann"]).status, 200);
        assert_eq!(
            curl(&url, &["-H", &format!("Host: localhost:{}", manager.port)]).status,
            421
        );
    }
}

#[test]
fn a_reload_adds_moves_and_removes_the_manager() {
    let without = format!(
        "{}{}",
        server_table("h2c = true"),
        site_table("http = \"serve\"\n")
    );
    let server = Server::start(&without);
    let none = server.ask(&["manager", "login"]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stderr.contains("the configuration has no manager"),
        "{none:?}"
    );
    let mut public = server.keep_alive();
    public.get("/");
    server.reload(&config(LOCAL, &[]));
    let url = Manager::login_url(&server);
    let manager = Manager::at(url.split("/login").next().expect("a URL"));
    assert_eq!(manager.get("/").status, 200);
    let mut wire = open(&manager);
    let host = format!("Host: localhost:{}\r\n", manager.port);
    let get = format!("GET /status.json HTTP/1.1\r\n{host}\r\n");
    wire.send(&get);
    assert_eq!(wire.response("GET").status, 200);

    // A port can't become the manager's while the port belongs to the sites.
    let taken = config(&format!("listen = \"127.0.0.1:{}\"", server.http_port), &[]);
    server.folder.write(
        "anthill.toml",
        taken.replace("http = [\"127.0.0.1:0\"]", "http = \"off\""),
    );
    let refused = server.ask(&["reload"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let what = format!(
        "the running server uses port {} for another kind",
        server.http_port
    );
    assert!(refused.stderr.contains(&what), "{refused:?}");
    assert_eq!(manager.get("/").status, 200);

    let moved = crate::support::programs::free_port();
    server.reload(&config(&format!("listen = \"127.0.0.1:{moved}\""), &[]));
    let at = Manager::at(&format!("http://localhost:{moved}"));
    assert_eq!(at.get("/").status, 200);
    eventually("the end of the former address", || {
        (manager.get("/").status == 0).then_some(())
    });
    // A connection of the former address stays.
    wire.send(&get);
    assert_eq!(wire.response("GET").status, 200);

    server.reload(&without);
    eventually("the end of the manager", || {
        (at.get("/").status == 0).then_some(())
    });
    wire.send(&get);
    assert_eq!(wire.response("GET").status, 421, "no manager is left");
    public.get("/");
}

/// Connects to the manager.
pub fn open(manager: &Manager) -> Wire {
    let socket = std::net::TcpStream::connect(("127.0.0.1", manager.port)).expect("a connection");
    Wire::plain_on(socket)
}

#[test]
fn a_changed_user_file_counts_at_once() {
    let keys = format!("{LOCAL}\nusers = \"managers\"");
    let server = Server::start_in(folder_with_users(), &config(&keys, &[]));
    let manager = Manager::of(&server);
    let ann = ["-u", "ann:secret of ann"];
    assert_eq!(manager.curl("/", &ann).status, 200);
    server.folder.write("managers", "");
    eventually("the end of the login", || {
        (manager.curl("/", &ann).status == 401).then_some(())
    });
}

#[test]
fn names_with_markup_are_text() {
    let text = format!(
        "{}manager = \"127.0.0.1:0\"\n{}[[site.route]]\npath = \"/<b>\\u202e&amp;\\\"'\"\n\
         proxy = \"http://127.0.0.1:1\"\n",
        server_table(""),
        site_table("")
    );
    let server = Server::start(&text);
    let page = Manager::of(&server).get("/");
    assert_eq!(page.status, 200);
    let escaped = "/&lt;b&gt;[U+202E]&amp;amp;&quot;&#39;/</a></h2>";
    assert!(page.body.contains(escaped), "{}", page.body);
    assert!(!page.body.contains("/<b>"), "{}", page.body);
    assert!(page.body.contains("?b=%2A/%3Cb%3E"), "{}", page.body);
    // Terminals and monitoring programs get the mark of the direction as visible text.
    for (words, escaped) in [
        (&["balancer", "list"][..], "/<b>\\u202e&amp;"),
        (&["balancer", "--json"], "/<b>\\u202e&amp;"),
        (&["metrics"], "/<b>\\\\u202e&amp;"),
    ] {
        let shown = server.ask(words).stdout;
        assert!(shown.contains(escaped), "{words:?} {shown}");
        assert!(!shown.contains('\u{202e}'), "{words:?} {shown}");
    }
}

#[test]
fn a_refused_user_file_and_a_refused_reload_are_problems() {
    let keys = format!("{LOCAL}\nusers = \"managers\"");
    let text = config(&keys, &[]);
    let server = Server::start_in(folder_with_users(), &text);
    let manager = Manager::of(&server);
    let fine = "No problems found.";
    let shows = |part: &str| {
        eventually(part, || {
            let page = manager.get("/").body;
            let status = server.ask(&["status"]).stdout;
            let is_shown = part == fine || status.contains(part);
            (page.contains(part) && is_shown).then_some(())
        });
    };
    shows(fine);
    let users = std::fs::read_to_string(server.folder.path("managers")).expect("a user file");
    for broken in [Some("broken"), None] {
        match broken {
            Some(text) => server.folder.write("managers", text),
            None => std::fs::remove_file(server.folder.path("managers")).expect("a removal"),
        }
        shows("a changed file is not taken over");
        let ann = manager.curl("/", &["-u", "ann:secret of ann"]);
        assert_eq!(ann.status, 200, "the former users stay valid");
        let json = server.ask(&["status", "--json"]).stdout;
        assert!(json.contains("managers"), "{json}");
        server.folder.write("managers", &users);
        shows(fine);
    }
    let missing = text.replace("\"managers\"", "\"missing\"");
    server.folder.write("anthill.toml", &missing);
    assert_ne!(server.ask(&["reload"]).code, Some(0));
    shows("the last reload is refused");
    server.folder.write("anthill.toml", &text);
    assert_eq!(server.ask(&["reload"]).code, Some(0));
    shows(fine);
}

#[test]
fn passed_in_sockets_leave_the_manager_its_addresses() {
    const STARTER: &str = "
import os, socket, sys
binary, folder = sys.argv[1:]
sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(3)]
text = open(folder + '/anthill.toml').read()
for n, s in enumerate(sockets): text = text.replace('PORT%d' % n, str(s.getsockname()[1]))
open(folder + '/anthill.toml', 'w').write(text)
high = [os.dup2(s.fileno(), 20 + n) for n, s in enumerate(sockets)]
for n, fd in enumerate(high): os.dup2(fd, 3 + n, inheritable=True)
os.environ.update(LISTEN_FDS='3', LISTEN_PID=str(os.getpid()))
os.execv(binary, [binary, 'serve', folder + '/anthill.toml'])
";
    let text = config("listen = [\"127.0.0.1:PORT2\", \"127.0.0.1:0\"]", &[])
        .replace("https = [\"127.0.0.1:0\"]", "https = [\"127.0.0.1:PORT0\"]")
        .replace("http = [\"127.0.0.1:0\"]", "http = [\"127.0.0.1:PORT1\"]");
    let folder = folder().with("anthill.toml", text);
    let mut command = std::process::Command::new(crate::support::tool("python3"));
    command
        .args(["-c", STARTER, crate::support::program()])
        .arg(folder.path("."));
    let server = Server::launch(folder, command);
    let urls = Manager::login_urls(&server);
    assert_eq!(urls.len(), 2, "{urls:?}");
    let text = std::fs::read_to_string(server.folder.path("anthill.toml")).expect("the file");
    for url in urls {
        let manager = Manager::at(url.split("/login").next().expect("a URL"));
        assert_eq!(manager.get("/status.json").status, 200, "{url}");
    }
    assert_eq!(server.keep_alive().get("/").text(), "<p>hello</p>\n");
    assert_eq!(server.keep_alive_tls().get("/").text(), "<p>hello</p>\n");
    let passed = text
        .split("listen = [\"127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let passed = Manager::at(&format!("http://localhost:{}", passed.expect("a port")));
    assert_eq!(passed.get("/index.html").status, 404);
    // The passed-in socket stays bound, and serves no site after the end of the manager.
    let without = text.split("[manager]").next().expect("a part").to_owned() + &site_table("");
    server.reload(&without);
    assert_eq!(passed.get("/").status, 421);
}

#[test]
fn a_flood_of_the_sites_leaves_places_for_the_manager() {
    let member = Member::start(|_| crate::support::member::Answer::Silence);
    let text = config(LOCAL, &[&member.url()]);
    let text = text.replace("h2c = true", "limits = { connections = 2 }");
    let server = Server::start(&text);
    let manager = Manager::of(&server);
    let mut flood: Vec<Wire> = (0..2).map(|_| Wire::plain(&server)).collect();
    for wire in &mut flood {
        wire.send("GET /app/ HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    member.wait_for(2);
    for _ in 0..20 {
        assert_eq!(manager.get("/status.json").status, 200);
    }
}

#[test]
fn the_check_finds_mistakes_in_files_and_networks() {
    let folder = folder().with("broken", "no user\n").with("empty", "");
    for (keys, what) in [
        ("users = \"missing\"", "the user file"),
        ("users = \"broken\"", "broken:1: the line has no `:`"),
        ("viewers = \"broken\"", "broken:1: the line has no `:`"),
        ("allow = [\"nowhere\"]", "nowhere"),
        ("users = \"public/index.html\"", "is inside a served folder"),
    ] {
        folder.write("anthill.toml", config(&format!("{LOCAL}\n{keys}"), &[]));
        let file = folder.path("anthill.toml");
        let done = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
        assert_eq!(done.code, Some(2), "{keys} {done:?}");
        assert!(done.stderr.contains(what), "{keys} {done:?}");
        assert!(done.stderr.contains("anthill.toml:10:"), "{keys} {done:?}");
    }
    let keys = "users = \"empty\"\nviewers = \"empty\"\nallow = [\"127.0.0.1\"]";
    folder.write("anthill.toml", config(&format!("{LOCAL}\n{keys}"), &[]));
    let file = folder.path("anthill.toml");
    let done = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Starts a client of the events, and returns the client after the first event.
pub fn events(manager: &Manager, options: &[&str]) -> std::process::Child {
    let mut command = std::process::Command::new("curl");
    command.args(["-sN", "--max-time", "60"]).args(options);
    command.arg(format!("{}/events", manager.url));
    command.stdout(std::process::Stdio::piped());
    let mut client = crate::support::spawn(&mut command).expect("curl");
    let output = client.stdout.as_mut().expect("a pipe");
    let mut first = [0; 15];
    std::io::Read::read_exact(output, &mut first).expect("an event");
    assert_eq!(&first, b"data: <section ");
    client
}

/// Reads the rest of the events. The server must end the stream with its last chunk.
fn end_of_events(client: std::process::Child) {
    let done = client.wait_with_output().expect("the end of curl");
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(text.ends_with("\n\n"), "{text}");
}

#[test]
fn events_end_with_the_session_the_configuration_and_the_server() {
    let server = Server::start_in(folder(), &config(LOCAL, &[]));
    let manager = Manager::of(&server);
    assert_eq!(manager.curl("/events", &["--head"]).status, 404);
    let cookie = manager.session(&server);
    let token = manager.token(&["-b", &cookie]);
    let (editor, reader) = (events(&manager, &["-b", &cookie]), events(&manager, &[]));
    let out = manager.curl("/logout", &["-b", &cookie, "-d", &format!("nonce={token}")]);
    assert_eq!(out.status, 303, "{out:?}");
    end_of_events(editor);
    assert_eq!(server.ask(&["reload"]).code, Some(0));
    end_of_events(reader);
    let last = events(&manager, &["--http2-prior-knowledge"]);
    assert_eq!(server.ask(&["stop"]).code, Some(0));
    end_of_events(last);
}
