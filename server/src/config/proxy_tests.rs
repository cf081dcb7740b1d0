//! Tests of proxies and balancers in a whole configuration.

// A failed set-up is a failed test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use ::balancer::settings::*;
use data_plane::handler::proxy::route::{ForwardSettings, ForwardedHost};
use wire::path_readings::Slashes;

fn read(text: &str) -> Result<Config, OperatorError> {
    parse(text, Path::new("/srv/anthill.toml"))
}

fn good(text: &str) -> Config {
    match read(text) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// Returns a configuration with a balancer of two members and a line of the balancer.
fn balancer(line: &str) -> String {
    format!(
        "[[balancer]]\nname = \"app\"\n{line}\nmembers = [\n\
         {{ url = \"http://10.0.0.1:9001\", route = \"a\" }},\n\
         {{ url = \"http://10.0.0.2:9002\", route = \"b\" }},\n]\n{ROUTE}balance = \"app\"\n"
    )
}

/// Returns a configuration with a balancer of the members.
fn members(members: &str) -> String {
    format!("[[balancer]]\nname = \"app\"\nmembers = {members}\n{ROUTE}balance = \"app\"\n")
}

/// Returns a configuration with a route with the lines.
fn route(lines: &str) -> String {
    format!("{ROUTE}{lines}\n")
}

const ROUTE: &str = "[[site]]\n[[site.route]]\npath = \"/app/\"\n";

fn address(text: &str) -> MemberUrl {
    MemberUrl {
        is_tls: false,
        host: MemberHost::Address(text.parse().unwrap()),
    }
}

fn proxy_of(config: &Config) -> &ProxyConfig {
    match &config.sites[0].routes[0].target {
        Some(TargetConfig::Proxy(proxy)) => proxy,
        other => panic!("{other:?}"),
    }
}

fn own_of(config: &Config) -> &BalancerConfig {
    match &proxy_of(config).balancer {
        BalancerRef::Own(balancer) => balancer,
        other => panic!("{other:?}"),
    }
}

/// Balancer with every key, each with a value other than the default.
pub(super) const FULL: &str = r#"
[server]
trust = ["10.0.0.0/8", "::1"]
https = [{ listen = "127.0.0.1:8443", proxy_protocol = true }, ":9443"]
http = 8080

[[balancer]]
name = "app"
method = "heartbeat"
heartbeat = "0.0.0.0:27999"
health = { path = "/ok?full", method = "GET", host = "App.Test:81", status = 204, text = "ready", every = "500ms", timeout = "400ms", rise = 5, fall = 6 }
sticky = { cookie = "SID", path_parameter = "sid", strict = true }
slow_start = "1m30s"
retries = { attempts = 1, budget = 50 }
eject = { failures = 7, pause = "2s", pause_max = "30s", statuses = [500, 503] }
connect_timeout = "100ms"
first_byte_timeout = 120
silence_timeout = "2m"
idle = 8
idle_timeout = "15s"
queue = 9
tunnels = 5
queue_timeout = "3s"
connections = 10
ca = "ca.pem"
server_name = "App.Test"
client_certificate = "client.pem"
client_key = "client.key"
from = "10.0.0.9"
send_proxy_header = "v2"
http2 = true
members = [
    "http://10.0.0.1:9001",
    { url = "https://App.Test", weight = 2.25, set = 3, standby = true, route = "b", redirect = "c", status = "draining", ignore_errors = true, connections = 4 },
    { url = "https://[::1]:9003", spare = true, route = "c", status = "stopped" },
]

[[site]]
[[site.route]]
path = "/app/"
balance = { name = "app", host = "member", prefix = "/base", request_headers = { "X-A" = "1", Cookie = "" }, response_headers = { Server = "" }, pass_login = true }
encoded_slash = "pass"
slashes = "merge"
upgrade = true
early_hints = "http1"
allow = ["10.0.0.0/8"]
cache = { seconds = 5 }
"#;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn every_key_of_a_balancer_is_read() {
    // The members need routes for sticky sessions, and an IPv6 member is out of reach for `from`.
    let text = FULL
        .replace(
            "\"http://10.0.0.1:9001\",",
            "{ url = \"http://10.0.0.1:9001\", route = \"a\" },",
        )
        .replace("https://[::1]:9003", "https://10.0.0.3:9003");
    let config = good(&text);
    let [balancer] = config.balancers.as_slice() else {
        panic!("{:?}", config.balancers)
    };
    assert_eq!(&text[balancer.span.clone()], "\"app\"");
    assert_eq!(
        &text[balancer.member_spans[1].clone()],
        "\"https://App.Test\""
    );
    let heartbeat = balancer.heartbeat.as_ref().unwrap();
    assert_eq!(heartbeat.get_ref().to_string(), "0.0.0.0:27999");
    let file = |file: &Option<Spanned<PathBuf>>| file.as_ref().unwrap().get_ref().clone();
    assert_eq!(file(&balancer.ca), Path::new("/srv/ca.pem"));
    let settings = &balancer.settings;
    assert_eq!(
        (&*settings.name, settings.method),
        ("app", BalancingMethod::Heartbeat)
    );
    assert_eq!(
        settings.sticky,
        Some(StickySettings {
            cookie: "SID".into(),
            path_parameter: Some("sid".into()),
            is_signed: false,
            is_strict: true,
        })
    );
    assert_eq!(
        settings.check,
        Some(CheckSettings {
            kind: CheckKind::Http {
                is_head: false,
                path: "/ok?full".into(),
                host: Some("app.test:81".into()),
                status: (204, 204),
                text: Some("ready".into()),
            },
            every: Duration::from_millis(500),
            timeout: Duration::from_millis(400),
            rise: 5,
            fall: 6,
        })
    );
    assert_eq!(
        settings.ejection,
        EjectionSettings {
            failures: 7,
            pause: seconds(2),
            pause_max: seconds(30),
            statuses: vec![500, 503],
        }
    );
    let retry = RetrySettings {
        attempts_max: 1,
        budget_percent: 50,
    };
    assert_eq!(settings.retry, retry);
    assert_eq!(settings.slow_start, seconds(90));
    assert_eq!(
        settings.connection,
        ConnectionSettings {
            connect_timeout: Duration::from_millis(100),
            first_byte_timeout: seconds(120),
            silence_timeout: seconds(120),
            idle_max: 8,
            idle_timeout: seconds(15),
            queue: 9,
            queue_timeout: seconds(3),
            tunnels: Some(5),
            tls: MemberTlsSettings {
                authorities: Some("/srv/ca.pem".into()),
                server_name: Some("app.test".into()),
                client_certificate: Some(("/srv/client.pem".into(), "/srv/client.key".into())),
            },
            from: Some("10.0.0.9".parse::<IpAddr>().unwrap()),
            send_proxy_header: Some(ProxyHeaderVersion::V2),
            is_http2: true,
        }
    );
    let [first, second, third] = settings.members.as_slice() else {
        panic!("{:?}", settings.members)
    };
    assert_eq!(
        *first,
        MemberSettings {
            url: address("10.0.0.1:9001"),
            weight: 100,
            set: 0,
            role: MemberRole::Regular,
            route: "a".into(),
            redirect: "".into(),
            admin: AdminState::Enabled,
            ignores_errors: false,
            connections_max: Some(10),
            check: Default::default(),
        }
    );
    assert_eq!(
        *second,
        MemberSettings {
            url: MemberUrl {
                is_tls: true,
                host: MemberHost::Name("app.test".into(), 443),
            },
            weight: 225,
            set: 3,
            role: MemberRole::Standby,
            route: "b".into(),
            redirect: "c".into(),
            admin: AdminState::Draining,
            ignores_errors: true,
            connections_max: Some(4),
            check: Default::default(),
        }
    );
    assert_eq!(
        (third.role, third.admin),
        (MemberRole::Spare, AdminState::Stopped)
    );
}

#[test]
fn every_key_of_a_proxied_route_is_read() {
    let text = route(
        "proxy = { url = \"http://unix:run/app.sock\", host = \"App.Test\", prefix = \"/\", idle = 3, \
         request_headers = { X-A = \"1\" }, connections = 5 }",
    );
    let config = good(&text);
    let proxy = proxy_of(&config);
    assert_eq!(
        proxy.forward,
        ForwardSettings {
            host: ForwardedHost::Fixed("app.test".into()),
            prefix: Some("/".into()),
            slashes: Slashes::Keep,
            request_fields: vec![("X-A".into(), "1".into())],
            response_fields: Vec::new(),
            passes_login: false,
            keeps_urls: false,
            has_h1_hints: false,
        }
    );
    let own = own_of(&config);
    assert_eq!(&*own.settings.name, "http://unix:/srv/run/app.sock");
    let [member] = own.settings.members.as_slice() else {
        panic!("{own:?}")
    };
    assert_eq!(
        member.url.host,
        MemberHost::Unix("/srv/run/app.sock".into())
    );
    assert_eq!(member.connections_max, Some(5));
    assert_eq!(own.settings.connection.idle_max, 3);
    assert_eq!(own.settings.check, None);
    let route = &config.sites[0].routes[0];
    assert!(!route.encoded_slash && !route.upgrade);

    let text = FULL
        .replace("sticky =", "# ")
        .replace("from =", "# ")
        .replace(", redirect = \"c\"", "");
    let config = good(&text);
    let proxy = proxy_of(&config);
    let BalancerRef::Named(name) = &proxy.balancer else {
        panic!("{proxy:?}")
    };
    assert_eq!(
        (name.get_ref().as_str(), &text[name.span()]),
        ("app", "\"app\"")
    );
    assert_eq!(
        proxy.forward,
        ForwardSettings {
            host: ForwardedHost::Member,
            prefix: Some("/base/".into()),
            slashes: Slashes::Merge,
            request_fields: vec![("X-A".into(), "1".into()), ("Cookie".into(), "".into())],
            response_fields: vec![("Server".into(), "".into())],
            passes_login: true,
            keeps_urls: false,
            has_h1_hints: true,
        }
    );
    let route = &config.sites[0].routes[0];
    assert!(route.encoded_slash && route.upgrade);
    assert!(route.allow.is_some() && route.cache.is_some());
    let trust: Vec<&str> = config
        .server
        .trust
        .iter()
        .map(|it| it.get_ref().as_str())
        .collect();
    assert_eq!(trust, ["10.0.0.0/8", "::1"]);
    let flags = config
        .server
        .https
        .iter()
        .map(|it| it.get_ref().proxy_protocol);
    assert_eq!(flags.collect::<Vec<_>>(), [true, false]);
    assert!(!config.server.http[0].get_ref().proxy_protocol);
}

#[test]
fn short_tables_have_the_defaults_of_the_core() {
    let config = good(&format!(
        "[[balancer]]\nname = \"app\"\nmembers = \"http://10.0.0.1\"\nhealth = {{ path = \"/\" }}\n\
         {ROUTE}balance = \"app\"\n[[site.route]]\npath = \"/x\"\nproxy = \"http://10.0.0.1/\"\n"
    ));
    let settings = &config.balancers[0].settings;
    assert_eq!(settings.method, BalancingMethod::ByRequests);
    assert_eq!(settings.ejection, EjectionSettings::default());
    assert_eq!(settings.retry, RetrySettings::default());
    assert_eq!(settings.connection, ConnectionSettings::default());
    assert_eq!(settings.slow_start, Duration::ZERO);
    assert_eq!(
        (settings.sticky.as_ref(), settings.members.len()),
        (None, 1)
    );
    let check = settings.check.as_ref().unwrap();
    let (every, timeout) = (check.every, check.timeout);
    assert_eq!(
        (every, timeout, check.rise, check.fall),
        (seconds(2), seconds(1), 2, 3)
    );
    let kind = CheckKind::Http {
        is_head: false,
        path: "/".into(),
        host: None,
        status: (200, 399),
        text: None,
    };
    assert_eq!(check.kind, kind);
    assert_eq!(proxy_of(&config).forward, ForwardSettings::default());
    let Some(TargetConfig::Proxy(proxy)) = &config.sites[0].routes[1].target else {
        panic!("{config:?}")
    };
    // A path in the URL is the prefix.
    assert_eq!(proxy.forward.prefix.as_deref(), Some("/"));
    let BalancerRef::Own(own) = &proxy.balancer else {
        panic!("{proxy:?}")
    };
    assert_eq!(own.settings.members, settings.members);
    assert_eq!(own.settings.connection, settings.connection);
    assert_eq!(config.all_balancers().count(), 2);

    let tcp = good(&balancer("health = { tcp = true, every = \"250ms\" }"));
    let check = tcp.balancers[0].settings.check.as_ref().unwrap();
    assert_eq!(check.kind, CheckKind::Tcp);
    assert_eq!(check.timeout, Duration::from_millis(250));
}

#[test]
fn the_queue_of_a_unix_socket_has_a_timeout() {
    let config = good(&members("\"http://unix:/a\"\nqueue_timeout = \"2s\""));
    let settings = &config.balancers[0].settings;
    assert_eq!(settings.connection.queue_timeout, seconds(2));
}

#[test]
fn ranges_of_failure_statuses_are_read() {
    let config = good(&balancer(
        "eject = { statuses = [\"502-504\", 500, \"503-505\"] }",
    ));
    let statuses = &config.balancers[0].settings.ejection.statuses;
    assert_eq!(statuses, &[500, 502, 503, 504, 505]);
}

/// A row holds a key of another server, and a part of the help.
#[test]
fn keys_of_other_servers_lead_to_a_key() {
    let table = [
        ("max_fails", "eject = {"),
        ("fail_timeout", "eject = {"),
        ("check", "health = {"),
        ("health_uri", "health = {"),
        ("ip_hash", "method = \"ip-hash\""),
        ("least_conn", "method = \"bybusyness\""),
        ("insecure", "ca = "),
        ("ssl_verify", "ca = "),
        ("verify", "ca = "),
        ("websocket", "remove the key"),
        ("proxy_buffering", "remove the key"),
        ("proxy_redirect", "remove the key: with `prefix`"),
        ("client_max_body_size", "limits = { body_bytes ="),
        ("strip_prefix", "prefix"),
        ("proxy_read_timeout", "`first_byte_timeout`"),
        ("proxy_read_timeout", "`silence_timeout`"),
        ("read_timeout", "`first_byte_timeout`"),
        ("down", "status = \"disabled\""),
        ("proxy_set_header", "request_headers"),
        ("header_down", "response_headers"),
        ("sticky_cookie", "sticky"),
        ("sticky_session", "sticky"),
    ];
    for (key, help) in table {
        let line = format!("{key} = true");
        let member = members(&format!("[{{ url = \"http://a\", {line} }}]"));
        let table = route(&format!("proxy = {{ url = \"http://a\", {line} }}"));
        let mut texts = vec![route(&line), table, member];
        // In [[balancer]], `check` means the table `health`.
        if key != "check" {
            texts.push(balancer(&line));
        }
        for text in texts {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains(&format!("unknown key `{key}`")), "{error}");
            let helped = error.split_once("\nhelp: ").expect("a help").1;
            assert!(helped.contains(help), "{text}\n{error}");
        }
    }
    let error = read("[server]\nproxy_protocol = true\n").expect_err("a listener's key");
    assert!(error.to_string().contains("https = [{ listen ="), "{error}");
}

/// A row holds the configuration, the marked text, a part of the message and a part of the help.
#[test]
fn each_mistake_is_marked_with_a_correction() {
    let table = [
        // Balancers.
        (members("[\"http://unix:/run/a\\u001b.sock\"]"), "\"http://unix:/run/a\\u001b.sock\"", "has a control character", "without control characters"),
        (members("[\"http://unix:/run/a\\u202e.sock\"]"), "\"http://unix:/run/a\\u202e.sock\"", "an invisible character (U+202E) stands before `sock`", "write \"http://unix:/run/a.sock\""),
        (members("[]"), "[]", "the balancer has no member", "\"http://127.0.0.1:9001\""),
        (
            members("[\"http://10.0.0.1:80\", { url = \"HTTP://10.0.0.1\" }]"),
            "\"HTTP://10.0.0.1\"",
            "`http://10.0.0.1` is a member twice",
            "the first is in line 3",
        ),
        (
            members("[{ url = \"http://a\", standby = true }, { url = \"http://b\", spare = true }]"),
            "[{ url = \"http://a\", standby = true }, { url = \"http://b\", spare = true }]",
            "every member is a standby or a spare",
            "remove `standby`",
        ),
        (
            members("[{ url = \"http://a\", standby = true, spare = true }]"),
            "true",
            "either a standby or a spare",
            "remove",
        ),
        (
            members("[\"http://a\", { url = \"http://b\", wieght = 2 }]"),
            "wieght",
            "unknown key `wieght` in a member",
            "`weight`",
        ),
        (members("[{ weight = 2 }]"), "{ weight = 2 }", "a member needs `url`", "url = \"http"),
        (
            members("[{ url = \"http://a\", weight = 0.5 }]"),
            "0.5",
            "`weight` is out of bounds",
            "between 1 and 100",
        ),
        (
            members("[{ url = \"http://a\", weight = 0 }]"),
            "0",
            "`weight` is out of bounds",
            "status = \"draining\" or \"disabled\"",
        ),
        (
            balancer("silence_timeout = \"off\""),
            "\"off\"",
            "`off` is not a duration",
            "\"365d\"",
        ),
        (
            balancer("eject = false"),
            "false",
            "`eject` must be a table",
            "ignore_errors = true",
        ),
        (
            route("upstream = \"b\""),
            "upstream",
            "unknown key `upstream`",
            "`balance` (the name of a [[balancer]])",
        ),
        (
            "[balancer.app]\nmembers = \"http://a\"\n".to_owned(),
            "balancer",
            "the file may have several [[balancer]]",
            "write [[balancer]] with name = \"app\"",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/api/*\"\nproxy = \"http://a\"\n".to_owned(),
            "\"/api/*\"",
            "`/api/*` has a wildcard",
            "a path is a prefix: write \"/api/\"",
        ),
        (
            "[[site]]\n[[site.route]]\npath = '~ \\.html$'\nproxy = \"http://a\"\n".to_owned(),
            "'~ \\.html$'",
            "is not a path of a site",
            "a path is a prefix, without modifiers or regular expressions",
        ),
        (
            members("[{ url = \"http://a\", weight = 1.255 }]"),
            "1.255",
            "`weight` can't be 1.255",
            "two decimals",
        ),
        (
            members("[{ url = \"http://a\", route = \"x.y\" }]"),
            "\"x.y\"",
            "not a route of a member",
            "letters, digits",
        ),
        (
            members("[{ url = \"http://a\", route = \"x\" }, { url = \"http://b\", route = \"x\" }]"),
            "\"x\"",
            "two members have the route `x`",
            "its own route",
        ),
        (
            members("[{ url = \"http://a\", route = \"one\" }, { url = \"http://b\", redirect = \"onne\" }]"),
            "\"onne\"",
            "`redirect` has no effect without `sticky`",
            "sticky = {",
        ),
        (
            members(
                "[{ url = \"http://a\", route = \"one\" }, { url = \"http://b\", route = \"two\", \
                 redirect = \"onne\" }]\nsticky = \"SID\"",
            ),
            "\"onne\"",
            "`onne` is not the route of another member",
            "did you mean \"one\"?",
        ),
        (
            members("[{ url = \"http://a\", route = \"one\", redirect = \"one\" }]\nsticky = \"SID\""),
            "\"one\"",
            "not the route of another member",
            "the `route` of the member",
        ),
        (
            members("[\"http://a/path\"]"),
            "\"http://a/path\"",
            "of a member has a path",
            "prefix = ",
        ),
        (
            members("[\"http://a:81/\"]"),
            "\"http://a:81/\"",
            "of a member has a path",
            "write \"http://a:81\", without the slash",
        ),
        (
            members("[\"http://ant:secret@a\"]"),
            "\"http://ant:secret@a\"",
            "a URL of a member has no user",
            "\"http://a\"",
        ),
        (members("5"), "5", "must be a URL, not a number", "members = \"http"),
        (members("[true]"), "true", "must be a URL or a table", "\"http://127.0.0.1:9000\""),
        (
            balancer("method = \"round-robin\""),
            "\"round-robin\"",
            "`method` can't be \"round-robin\"",
            "did you mean \"byrequests\"?",
        ),
        (
            balancer("method = \"roundrobin\""),
            "\"roundrobin\"",
            "`method` can't be \"roundrobin\"",
            "did you mean \"byrequests\"?",
        ),
        (
            balancer("method = \"least_conn\""),
            "\"least_conn\"",
            "`method` can't be",
            "did you mean \"bybusyness\"?",
        ),
        (
            balancer("method = \"leastconn\""),
            "\"leastconn\"",
            "`method` can't be",
            "did you mean \"bybusyness\"?",
        ),
        (
            balancer("method = \"random\""),
            "\"random\"",
            "`method` can't be",
            "did you mean \"p2c\"?",
        ),
        (
            balancer("method = \"ip_hash\""),
            "\"ip_hash\"",
            "`method` can't be",
            "did you mean \"ip-hash\"?",
        ),
        (
            balancer("method = \"swarm\""),
            "\"swarm\"",
            "`method` can't be \"swarm\"",
            "\"byrequests\", \"bytraffic\"",
        ),
        (balancer("method = \"p2\""), "\"p2\"", "can't be \"p2\"", "\"p2c\"?"),
        (
            balancer("method = \"heartbeat\""),
            "\"heartbeat\"",
            "needs an address that receives the datagrams",
            "0.0.0.0:27999",
        ),
        (
            balancer("heartbeat = \":27999\""),
            "\":27999\"",
            "no effect with another method",
            "method = \"heartbeat\"",
        ),
        (
            members("[\"http://unix:/a\"]\nmethod = \"heartbeat\"\nheartbeat = \":27999\""),
            "\"http://unix:/a\"",
            "sends no heartbeats",
            "an IP address",
        ),
        (balancer("health = {}"), "{}", "needs `path` or `tcp`", "path = \"/\""),
        (
            balancer("health = { tcp = true, status = 200 }"),
            "200",
            "`status` has no effect",
            "remove `tcp`",
        ),
        (
            balancer("health = { tcp = true, path = \"/x\" }"),
            "\"/x\"",
            "`path` has no effect",
            "remove `path`",
        ),
        (
            balancer("health = { path = \"/\", method = \"HEAD\", text = \"x\" }"),
            "\"x\"",
            "no content",
            "remove `method` or `text`",
        ),
        (
            balancer("health = { path = \"/\", every = \"1s\", timeout = \"2s\" }"),
            "\"2s\"",
            "would overlap",
            "shorter timeout",
        ),
        (
            balancer("health = { path = \"/\", rise = 0 }"),
            "0",
            "`rise` is out of bounds",
            "between 1 and 1000",
        ),
        (
            balancer("health = { path = \"/\", fall = 0 }"),
            "0",
            "`fall` is out of bounds",
            "between 1 and 1000",
        ),
        (
            balancer("health = { path = \"ok\" }"),
            "\"ok\"",
            "not a path for a check",
            "\"/health\"",
        ),
        (
            balancer("health = { path = \"/\", status = \"2xx\" }"),
            "\"2xx\"",
            "not a range of statuses",
            "\"200-399\"",
        ),
        (
            balancer("health = { path = \"/\", status = 999 }"),
            "999",
            "not a range of statuses",
            "from 100 to 599",
        ),
        (
            balancer("health = { path = \"/\", every = \"1.5s\" }"),
            "\"1.5s\"",
            "`1.5s` is not a duration",
            "\"500ms\"",
        ),
        (
            balancer("health = { interval = \"2s\" }"),
            "interval",
            "unknown key `interval` in the table `health`",
            "did you mean `every`?",
        ),
        (
            balancer("every = \"2s\""),
            "every",
            "unknown key `every` in [[balancer]]",
            "`every` belongs in the table `health`",
        ),
        (
            balancer("health = \"/ok\""),
            "\"/ok\"",
            "`health` must be a table",
            "health = { path = \"/health\" }",
        ),
        (
            balancer("retries = 3"),
            "3",
            "`retries` must be a table",
            "retries = { attempts = 3 }",
        ),
        (balancer("eject = 3"), "3", "`eject` must be a table", "eject = { failures = 5 }"),
        (
            balancer("sticky = true"),
            "true",
            "must be a cookie or a table",
            "sticky = { cookie = \"ROUTE\", signed = true }",
        ),
        (
            balancer("queue = 9"),
            "9",
            "`queue` has no effect without `connections`",
            "connections = 64",
        ),
        (
            balancer("tunnels = 9"),
            "9",
            "`tunnels` has no effect without `connections`",
            "connections = 64",
        ),
        (
            balancer("connections = 8\ntunnels = 9"),
            "9",
            "`tunnels` is more than `connections` (8)",
            "write fewer tunnels",
        ),
        (
            route("proxy = { url = \"http://a\", queue_timeout = \"1s\" }"),
            "\"1s\"",
            "`queue_timeout` has no effect without `connections` or a Unix socket",
            "remove `queue_timeout`",
        ),
        (
            balancer("sticky = \"a b\""),
            "\"a b\"",
            "not a name of a cookie",
            "JSESSIONID",
        ),
        (balancer("sticky = {}"), "{}", "the table `sticky` needs `cookie`", "JSESSIONID"),
        (
            members("[{ url = \"http://a\", route = \"a\" }, \"http://b\"]\nsticky = \"SID\""),
            "\"http://b\"",
            "sticky sessions need a `route` for the member http://b",
            "signed = true",
        ),
        (
            balancer("sticky = { cookie = \"a\", signed = true, path_parameter = \"b\" }"),
            "\"b\"",
            "`path_parameter` has no effect with `signed`",
            "remove",
        ),
        (
            balancer("eject = { pause = \"5m\" }"),
            "\"5m\"",
            "`pause` is longer than `pause_max`",
            "shorter pause",
        ),
        (
            balancer("eject = { pause_max = \"10ms\" }"),
            "\"10ms\"",
            "`pause` is longer than `pause_max`",
            "longer time",
        ),
        (
            balancer("eject = { statuses = [200] }"),
            "200",
            "200 is not the status of an error",
            "503",
        ),
        (
            balancer("eject = { statuses = [\"300-599\"] }"),
            "\"300-599\"",
            "300 is not the status of an error",
            "\"500-599\"",
        ),
        (
            balancer("eject = { statuses = [true] }"),
            "true",
            "must be a status or a range",
            "statuses = [502, \"503-504\"]",
        ),
        (
            balancer("retries = { budget = 101 }"),
            "101",
            "`budget` is out of bounds",
            "between 0 and 100",
        ),
        (
            balancer("ca = \"ca.pem\""),
            "\"ca.pem\"",
            "`ca` has no effect: no member has a URL with https://",
            "https://",
        ),
        (
            balancer("server_name = \"app.test\""),
            "\"app.test\"",
            "`server_name` has no effect",
            "https://",
        ),
        (
            balancer("client_key = \"k.pem\""),
            "\"k.pem\"",
            "no effect without `client_certificate`",
            "client_certificate = ",
        ),
        (
            balancer("from = \"::1\""),
            "\"::1\"",
            "no connection leads from ::1 to http://10.0.0.1:9001",
            "same kind",
        ),
        (
            "[[balancer]]\nname = \"a\"\nfrom = \"10.0.0.9\"\nmembers = [\"http://10.0.0.1\", \
             \"http://[fd00::1]\"]\n"
                .to_owned(),
            "\"10.0.0.9\"",
            "no connection leads from 10.0.0.9 to http://[fd00::1]",
            "same kind",
        ),
        (
            "[[balancer]]\nname = \"a\"\nfrom = \"10.0.0.9\"\nmembers = \"http://unix:/run/a\"\n"
                .to_owned(),
            "\"10.0.0.9\"",
            "no connection leads from 10.0.0.9 to",
            "a Unix socket has no addresses",
        ),
        (balancer("from = \"eth0\""), "\"eth0\"", "not an address to connect from", "192.0.2.1"),
        (
            balancer("send_proxy_header = \"v3\""),
            "\"v3\"",
            "can't be \"v3\"",
            "\"v",
        ),
        (
            balancer("servers = []"),
            "servers",
            "unknown key `servers` in [[balancer]]",
            "did you mean `members`?",
        ),
        (
            balancer("server = \"a\""),
            "server",
            "unknown key `server`",
            "did you mean `members`?",
        ),
        (balancer("name2 = \"a\""), "name2", "unknown key `name2`", "`name`?"),
        (
            "[[balancer]]\nmembers = [\"http://a\"]\n".to_owned(),
            "[[balancer]]",
            "[[balancer]] needs `name`",
            "name = \"app\"",
        ),
        (
            "[[balancer]]\nname = \"a b\"\nmembers = [\"http://a\"]\n".to_owned(),
            "\"a b\"",
            "`a b` is not a name of a balancer",
            "letters, digits",
        ),
        (
            "[[balancer]]\nname = \"a\"\n".to_owned(),
            "[[balancer]]",
            "[[balancer]] needs `members`",
            "members = [",
        ),
        (
            "[[balancer]]\nname = \"a\"\nmembers = \"http://a\"\n[[balancer]]\nname = \"a\"\nmembers = \
             \"http://b\"\n"
                .to_owned(),
            "\"a\"",
            "two balancers have the name `a`",
            "line 2",
        ),
        // Tables of other servers.
        (
            "[upstream]\n".to_owned(),
            "upstream",
            "unknown key `upstream` in the file",
            "write [[balancer]]",
        ),
        ("[[backend]]\n".to_owned(), "backend", "unknown key", "write [[balancer]]"),
        (
            "[[site]]\nproxy_pass = \"http://a\"\n".to_owned(),
            "proxy_pass",
            "unknown key `proxy_pass` in [[site]]",
            "[[site.route]]",
        ),
        (
            "[[site]]\n[[site.balancer]]\n".to_owned(),
            "balancer",
            "unknown key `balancer` in [[site]]",
            "write [[balancer]]",
        ),
        (
            "[[site]]\nreverse_proxy = \"a\"\n".to_owned(),
            "reverse_proxy",
            "unknown key",
            "`proxy = \"http",
        ),
        // Routes.
        (
            route("proxy_pass = \"http://a\""),
            "proxy_pass",
            "unknown key `proxy_pass`",
            "did you mean `proxy`?",
        ),
        (
            route("backend = \"a\""),
            "backend",
            "unknown key `backend`",
            "did you mean `balance`?",
        ),
        (
            route("connect_timeout = \"1s\""),
            "connect_timeout",
            "unknown key `connect_timeout`",
            "belongs in `proxy = { url = … }`, or with `balance` in [[balancer]]",
        ),
        (
            route("balance = { name = \"app\", connect_timeout = \"1s\" }"),
            "connect_timeout",
            "unknown key `connect_timeout` in the table `balance`",
            "`connect_timeout` belongs in [[balancer]]",
        ),
        (
            balancer("request_headers = {}"),
            "request_headers",
            "unknown key `request_headers` in [[balancer]]",
            "belongs in the route: `balance = { name = … }`",
        ),
        (
            route("host = \"member\""),
            "host",
            "unknown key `host`",
            "belongs in `proxy = { url = … }` or `balance = { name = … }`",
        ),
        (
            route("proxy = \"http://a\"\nbalance = \"app\""),
            "\"app\"",
            "a route has one target, not both `proxy` and `balance`",
            "remove one",
        ),
        (
            route("fastcgi = \"127.0.0.1:9000\"\nproxy = \"http://a\""),
            "\"http://a\"",
            "not both `fastcgi` and `proxy`",
            "remove one",
        ),
        (
            route("proxy = { url = \"http://a\" }\nroot = \"x\""),
            "\"x\"",
            "not both `proxy` and `root`",
            "remove one",
        ),
        (
            route("balance = \"srv\""),
            "\"srv\"",
            "there is no balancer `srv`",
            "add [[balancer]] with name = \"srv\"",
        ),
        (
            balancer("").replace("balance = \"app\"", "balance = \"ap\""),
            "\"ap\"",
            "there is no balancer `ap`",
            "did you mean \"app\"?",
        ),
        (
            balancer("").replace("balance = \"app\"", "balance = \"zebra\""),
            "\"zebra\"",
            "there is no balancer `zebra`",
            "the balancers are app",
        ),
        (
            route("proxy = \"http://a/b/?c=d\""),
            "\"http://a/b/?c=d\"",
            "has a query",
            "\"http://a/b/\"",
        ),
        (
            route("proxy = { url = \"http://a/b/\", prefix = \"/c/\" }"),
            "\"/c/\"",
            "the URL has a path, and `prefix` is set as well",
            "remove",
        ),
        (
            route("proxy = { url = \"http://a\", prefix = \"c\" }"),
            "\"c\"",
            "`c` is not a path",
            "begin the path with a slash: \"/c\"",
        ),
        (
            route("proxy = \":9000\""),
            "\":9000\"",
            "`:9000` is not the URL of an HTTP server",
            "\"http://127.0.0.1:9000\"",
        ),
        (
            route("proxy = { url = \"http://a\", host = \"a b\" }"),
            "\"a b\"",
            "`a b` is not a host",
            "letters, digits",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = { Host = \"b\" } }"),
            "Host",
            "the field `Host` cannot be set",
            "use `host`",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = { via = \"b\" } }"),
            "via",
            "the field `via` cannot be set",
            "remove the field",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = { Content-Length = \"1\" } }"),
            "Content-Length",
            "the field `Content-Length` cannot be set",
            "remove the field",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = { X-Real-IP = \"$remote_addr\" } }"),
            "\"$remote_addr\"",
            "the variable `$remote_addr` in `X-Real-IP` would reach members as text",
            "\"{client}\"",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = { X-User = \"{name}\" } }"),
            "\"{name}\"",
            "the placeholder `{name}` in `X-User` would reach members as text",
            "{client}, the client's address, and {user}",
        ),
        (
            route("proxy = { url = \"http://a\", response_headers = { X-User = \"{user}\" } }"),
            "\"{user}\"",
            "the placeholder `{user}` in `X-User` would reach clients as text",
            "fixed text",
        ),
        (
            route("root = \"x\"\nearly_hints = \"http1\""),
            "\"http1\"",
            "`early_hints` has no effect without `proxy` or `balance`",
            "",
        ),
        (
            route("proxy = { url = \"http://a\", response_headers = { Upgrade = \"\" } }"),
            "Upgrade",
            "the field `Upgrade` cannot be set",
            "remove the field",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = { X-A = \"b\", x-a = \"\" } }"),
            "x-a",
            "the field `x-a` is set twice",
            "remove one",
        ),
        (
            route("proxy = { url = \"http://a\", request_headers = [\"X: y\"] }"),
            "[\"X: y\"]",
            "must be a table of fields, not a list",
            "request_headers = {",
        ),
        (
            route("proxy = { url = \"http://a\", client_key = \"k\" }"),
            "\"k\"",
            "no effect without `client_certificate`",
            "",
        ),
        (
            route("proxy = { host = \"member\" }"),
            "{ host = \"member\" }",
            "the table `proxy` needs `url`",
            "url = ",
        ),
        (
            route("proxy = [\"http://a\", \"http://b\"]"),
            "[\"http://a\", \"http://b\"]",
            "must be a URL or a table, not a list",
            "write [[balancer]] with name = \"app\"",
        ),
        (
            route("root = \"x\"\nencoded_slash = \"pass\""),
            "\"pass\"",
            "no effect without `proxy` or `balance`",
            "add `proxy`",
        ),
        (
            route("proxy = \"http://a\"\nencoded_slash = true"),
            "true",
            "must be \"pass\" or \"refuse\"",
            "encoded_slash = \"pass\"",
        ),
        (
            route("root = \"x\"\nslashes = \"keep\""),
            "\"keep\"",
            "no effect without `proxy` or `balance`",
            "files and scripts",
        ),
        (
            route("proxy = \"http://a\"\nslashes = \"drop\""),
            "\"drop\"",
            "can't be \"drop\"",
            "\"keep\" or \"merge\"",
        ),
        (
            route("proxy = \"http://a\"\nupgrade = true"),
            "true",
            "no effect without `cache`",
            "remove the key",
        ),
        (
            route("fastcgi = \"127.0.0.1:9\"\ncache = true\nupgrade = true"),
            "true",
            "no effect without `proxy` or `balance`",
            "add `proxy`",
        ),
        (
            route("proxy = \"http://a\"\nenv = { A = \"b\" }"),
            "{ A = \"b\" }",
            "`env` has no effect",
            "",
        ),
        (
            route("proxy = \"http://a\"\ninterpreter = { \".php\" = \"php\" }"),
            "\"http://a\"",
            "`proxy` handles all requests of the route",
            "",
        ),
        // Listeners.
        (
            "[server]\nhttps = [{ listen = \":443\", proxy_protocol = true }]\n".to_owned(),
            "\":443\"",
            "`proxy_protocol` needs the addresses of the proxies in `trust`",
            "trust = [",
        ),
        (
            "[server]\nhttp = { address = \":80\" }\n".to_owned(),
            "address",
            "unknown key `address` in a listener",
            "did you mean `listen`?",
        ),
        (
            "[server]\nhttp = { listen = \"localhost:80\" }\n".to_owned(),
            "\"localhost:80\"",
            "not an address to listen on",
            "127.0.0.1:80",
        ),
        (
            "[server]\nset_real_ip_from = []\n".to_owned(),
            "set_real_ip_from",
            "unknown key",
            "did you mean `trust`?",
        ),
        ("[server]\ntrust = [5]\n".to_owned(), "5", "must be a network in quotes", ""),
    ];
    let mut failures = Vec::new();
    for (text, marked, what, help) in table {
        let message = match read(&text) {
            Ok(_) => panic!("this was accepted:\n{text}"),
            Err(error) => error.to_string(),
        };
        let (said, helped) = message.split_once("\nhelp: ").unwrap_or((&message, ""));
        if !said.contains(what) || !helped.contains(help) {
            failures.push(format!("{text}\n{message}\nlacks {what} or {help}"));
        }
        let lines: Vec<&str> = message.lines().collect();
        let carets = lines.iter().position(|line| line.trim_end().ends_with('^'));
        let at = carets.unwrap_or_else(|| panic!("{message}"));
        let start = lines[at].find('^').unwrap();
        let shown: String = lines[at - 1]
            .chars()
            .skip(start)
            .take(lines[at].len() - start)
            .collect();
        if shown != marked {
            failures.push(format!("{text}\n{message}\ndoes not mark {marked}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn listeners_of_the_server_are_no_members() {
    let table = [
        ("[\":8443\"]", "http://127.0.0.1:8443", true),
        ("[\":8443\"]", "http://[::1]:8443", true),
        ("[\":8443\"]", "http://localhost:8443", true),
        ("[\":8443\"]", "http://0.0.0.0:8443", true),
        ("[\"127.0.0.1:8443\"]", "http://[::ffff:0.0.0.0]:8443", true),
        ("[\"127.0.0.1:8443\"]", "http://[::]:8443", false),
        ("[\":8443\"]", "http://127.3.2.1:8443", true),
        ("[\":8443\"]", "http://[::ffff:127.0.0.1]:8443", true),
        ("[\":8443\"]", "http://127.0.0.1:8444", false),
        ("[\":8443\"]", "http://192.0.2.1:8443", false),
        ("[\":8443\"]", "http://unix:/run/8443", false),
        ("[\":8443\"]", "http://app.test:8443", false),
        ("[\"0.0.0.0:8443\"]", "http://127.0.0.1:8443", true),
        ("[\"0.0.0.0:8443\"]", "http://[::1]:8443", false),
        (
            "[\"[::]:8443\", \"0.0.0.0:8443\"]",
            "http://127.0.0.1:8443",
            true,
        ),
        ("[\"192.0.2.1:8443\"]", "http://192.0.2.1:8443", true),
        ("[\"192.0.2.1:8443\"]", "http://127.0.0.1:8443", false),
        ("[\"127.0.0.1:8443\"]", "http://127.0.0.2:8443", false),
        ("[\"127.0.0.1:443\"]", "https://127.0.0.1", true),
        ("[\"127.0.0.1:0\"]", "http://127.0.0.1:9000", false),
    ];
    for (https, url, is_own) in table {
        let server = format!("[server]\nhttps = {https}\nhttp = \"off\"\nstate = \"state\"\n");
        for rest in [
            members(&format!("[\"{url}\"]")),
            route(&format!("proxy = \"{url}\"")),
        ] {
            let (_folder, config) = laid_out(&format!("{server}{rest}"));
            let checked = check(&config);
            match (is_own, checked) {
                // A socket that is not there is doubted.
                (false, checked) if url.contains("unix:") => assert!(checked.is_ok(), "{url}"),
                (false, checked) => assert_eq!(checked, Ok(Vec::new()), "{https} {url}"),
                (true, checked) => {
                    let message = checked.expect_err(url).to_string();
                    assert!(message.contains("the member is this server"), "{message}");
                    assert!(message.contains(&format!("\"{url}\"")), "{message}");
                }
            }
        }
    }
}

/// Creates a folder with the files named in a configuration, and loads the configuration.
fn laid_out(text: &str) -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("public")).unwrap();
    for file in ["ca.pem", "client.pem", "client.key", "public/client.pem"] {
        fs::write(folder.path().join(file), "x").unwrap();
    }
    let file = folder.path().join(FILE_NAME);
    fs::write(&file, text).unwrap();
    let config = load(&file).unwrap_or_else(|error| panic!("{error}"));
    (folder, config)
}

#[test]
fn files_of_connections_are_checked_and_secret() {
    let files = |files: &str| {
        format!("server.state = \"state\"\n{ROUTE}proxy = {{ url = \"https://a\", {files} }}\n")
    };
    let (folder, config) = laid_out(&files(
        "ca = \"ca.pem\", client_certificate = \"client.pem\", client_key = \"client.key\"",
    ));
    let warnings = check(&config).expect("no mistake");
    let warnings: Vec<String> = warnings.iter().map(|it| it.as_warning()).collect();
    let is_open = |warning: &String| warning.contains("every account of this machine can read");
    assert!(warnings.iter().all(is_open), "{warnings:?}");
    let secrets = config.secret_paths();
    assert!(secrets.contains(&folder.path().join("client.key")));
    assert!(!secrets.contains(&folder.path().join("client.pem")));
    // Without a file of its own, the key is in the file of the certificate.
    let (folder, config) = laid_out(&files("client_certificate = \"client.pem\""));
    assert!(
        config
            .secret_paths()
            .contains(&folder.path().join("client.pem"))
    );

    for (keys, what) in [
        ("ca = \"caa.pem\"", "did you mean"),
        ("client_certificate = \"none.crt\"", "the certificate "),
        (
            "client_certificate = \"client.pem\", client_key = \"none\"",
            "the key ",
        ),
        (
            "client_certificate = \"public/client.pem\"",
            "is inside a served folder",
        ),
    ] {
        let (_folder, config) = laid_out(&files(keys));
        let message = check(&config).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
    let named = balancer("ca = \"gone.pem\"").replace("http://", "https://");
    let (_folder, config) = laid_out(&format!("server.state = \"state\"\n{named}"));
    let message = check(&config).unwrap_err().to_string();
    assert!(message.contains("gone.pem does not exist"), "{message}");
}

#[test]
fn a_balancer_without_a_route_causes_a_warning() {
    let unused = "server.state = \"state\"\n[[balancer]]\nname = \"app\"\nmembers = \"http://a\"\n";
    let (_folder, config) = laid_out(unused);
    let warnings = check(&config).unwrap();
    let warnings: Vec<&str> = warnings.iter().map(OperatorError::what).collect();
    assert_eq!(
        warnings,
        ["no route uses the balancer `app`: write balance = \"app\" in a [[site.route]]"]
    );
    let used = format!("{unused}{ROUTE}balance = \"app\"\n");
    let (_folder, config) = laid_out(&used);
    assert_eq!(check(&config), Ok(Vec::new()));
}

#[test]
fn a_cookie_of_two_balancers_of_a_site_causes_a_warning() {
    let file = |keys: [&str; 2]| {
        let [a, b] = keys;
        format!(
            "server.state = \"state\"\n\
             [[balancer]]\nname = \"a\"\nmembers = [{{ url = \"http://a\", route = \"a\" }}]\n{a}\n\
             [[balancer]]\nname = \"b\"\nmembers = [{{ url = \"http://b\", route = \"b\" }}]\n{b}\n\
             [[site]]\nroot = \"public\"\n\
             [[site.route]]\npath = \"/a/\"\nbalance = \"a\"\n\
             [[site.route]]\npath = \"/b/\"\nbalance = \"b\"\n\
             [[site.route]]\npath = \"/c/\"\nbalance = \"a\"\n"
        )
    };
    let signed = "sticky = { cookie = \"R\", signed = true }";
    let plain = "sticky = \"R\"";
    for keys in [[signed, signed], [signed, plain], [plain, signed]] {
        let (_folder, config) = laid_out(&file(keys));
        let warnings = check(&config).unwrap();
        let expected = "the balancers `a` and `b` share the cookie `R` in ";
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].what().starts_with(expected), "{warnings:?}");
    }
    // Applications may set cookies of one name for different paths.
    for keys in [[plain, plain], [signed, &signed.replace('R', "S")]] {
        let (_folder, config) = laid_out(&file(keys));
        assert_eq!(check(&config), Ok(Vec::new()));
    }
}
