//! The page cache, end to end: which responses are stored, for which clients, and requests during a fill.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use crate::support::h2::H2;
use crate::support::member::{Answer, Member, ok};
use crate::support::wire::{BOTH, Over, Response, Wire, wait_until};
use crate::support::{Folder, Server, eventually, run, server_table, site_table, tool};

const PATIENCE: Duration = Duration::from_secs(60);

/// A long lifetime for responses without an explicit lifetime.
const KEPT: &str = "{ seconds = 1000 }";

fn server(cache: &str) -> Server {
    server_with("", cache, "")
}

fn server_with(more: &str, cache: &str, route: &str) -> Server {
    Server::start(&config(more, cache, route))
}

fn config(more: &str, cache: &str, route: &str) -> String {
    server_table(&format!("h2c = true\n{more}"))
        + "[log]\naccess = \"off\"\n"
        + &site_table("http = \"serve\"")
        + &format!("[[site.route]]\npath = \"/page\"\ntest = \"page\"\ncache = {cache}\n{route}")
}

fn get(server: &Server, path: &str) -> Response {
    Wire::plain(server).get(path, "")
}

fn get_with(server: &Server, path: &str, fields: &str) -> Response {
    Wire::plain(server).get(path, fields)
}

/// Returns the number of the handler's call that made a page.
fn call_number(response: &Response) -> u64 {
    let text = response.text();
    let number = text.strip_prefix("call ").and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..end].parse().ok()
    });
    number.unwrap_or_else(|| panic!("no call in {response:?}"))
}

fn cache_status(response: &Response) -> &str {
    response.field("cache-status").unwrap_or("nothing")
}

#[test]
fn one_call_makes_a_page_for_all_versions_of_http() {
    let server = server(KEPT);
    for over in BOTH {
        let path = format!("/page/{over:?}?f=Content-Type:text/html&f=X-Own:%20yes&size=3000");
        let mut wire = Wire::over(&server, over);
        let first = wire.get(&path, "");
        assert_eq!((first.status, call_number(&first)), (200, 1), "{first:?}");
        assert_eq!(cache_status(&first), "anthill; fwd=uri-miss; stored");
        assert_eq!(first.field("age"), None);
        let second = wire.get(&path, "");
        assert_eq!((second.status, second.body.len()), (200, 3000));
        assert_eq!(second.body, first.body);
        assert_eq!(second.field("content-type"), Some("text/html"));
        assert_eq!(second.field("x-own"), Some("yes"));
        assert_eq!(second.field("server"), Some("anthill"));
        assert!(second.field("date").is_some(), "{second:?}");
        let age: u64 = second
            .field("age")
            .expect("an age")
            .parse()
            .expect("a number");
        assert_eq!(
            cache_status(&second),
            format!("anthill; hit; ttl={}", 1000 - age),
            "{second:?}"
        );
        let mut h2 = H2::open(&server, over);
        let third = h2.get(&path);
        assert_eq!((third.status, &third.body), (200, &first.body), "{third:?}");
        assert_eq!(third.field("x-own"), Some("yes"));
        assert!(cache_status(&third).starts_with("anthill; hit; ttl="));
        assert_eq!(third.field("date"), second.field("date"));
        assert_eq!(
            wire.ask("HEAD", &path, "").field("content-length"),
            Some("3000")
        );
    }
    assert_eq!(server.counter("cache_calls"), 2);
    assert_eq!(server.counter("cache_hits"), 6);
    assert_eq!(server.counter("kept_pages"), 2);
}

#[cfg(feature = "http3")]
#[test]
fn stored_pages_are_served_over_http_3() {
    let server = server(KEPT);
    let path = "/page?f=ETag:%22t%22&f=X-Own:yes";
    let questions = [
        format!("GET {path}"),
        format!("GET {path}"),
        format!("HEAD {path}"),
        format!("GET {path} if-none-match:\"t\""),
        format!("GET {path} range:bytes=0-3"),
        format!("POST {path}"),
        format!("GET {path}"),
    ];
    let mut scene = vec!["ask"];
    scene.extend(questions.iter().map(String::as_str));
    let said = crate::h3::run_scenario(&server, &scene);
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        (200, "fwd=uri-miss; stored", "call 1 GET"),
        (200, "hit; ttl=", "call 1 GET"),
        (200, "hit; ttl=", "\"body\": \"\""),
        (304, "hit; ttl=", "\"body\": \"\""),
        (206, "hit; ttl=", "\"body\": \"call\""),
        (200, "fwd=method", "call 2 POST"),
        (200, "fwd=uri-miss; stored", "call 3 GET"),
    ];
    for (line, (status, cache, body)) in lines.iter().zip(expected) {
        assert!(line.contains(&format!("\"status\": {status}")), "{line}");
        assert!(
            line.contains(&format!("[\"cache-status\", \"anthill; {cache}")),
            "{line}"
        );
        assert!(line.contains(body), "{line}");
        assert_eq!(line.matches("\"date\"").count(), 1, "{line}");
    }
    assert_eq!(lines.len(), 7, "{said}");
}

/// Twenty clients request an absent page over every transport, and the handler is called once.
#[test]
fn waiting_clients_share_a_call() {
    for (mode, status) in [
        ("", 200),
        ("&open", 200),
        ("&status=500", 500),
        ("&status=fault", 502),
    ] {
        let config = config("", KEPT, "").replace("workers = 1", "workers = 2");
        let server = Server::start(&config);
        let path = format!("/page?gate=go&size=40000{mode}");
        let threads: Vec<_> = (0..20)
            .map(|nth| {
                let path = path.clone();
                if nth % 2 == 0 {
                    let mut h2 = H2::open(&server, Over::Plain);
                    h2.wire.patience(PATIENCE);
                    thread::spawn(move || h2.get(&path))
                } else {
                    let mut wire = Wire::plain(&server);
                    wire.patience(PATIENCE);
                    thread::spawn(move || wire.get(&path, ""))
                }
            })
            .collect();
        wait_until(PATIENCE, "all waiting", || {
            (server.counter("cache_waits") == 19).then_some(())
        });
        assert_eq!(server.counter("cache_calls"), 1);
        Wire::plain(&server).ask("POST", "/page/other?open=go", "");
        for thread in threads {
            let response = thread.join().expect("a client");
            assert_eq!(response.status, status, "{mode}: {response:?}");
            assert!(response.whole);
            if status != 502 {
                assert_eq!(
                    (call_number(&response), response.body.len()),
                    (1, 40_000),
                    "{mode}"
                );
            }
        }
        assert_eq!(server.counter("cache_calls"), 1, "{mode}");
        // A failure is not stored.
        let kept = u64::from(status == 200);
        wait_until(PATIENCE, "the expected number of stored pages", || {
            (server.counter("kept_pages") == kept).then_some(())
        });
    }
}

/// The client that started a call may leave; the waiting clients get the call's response.
#[test]
fn a_call_outlives_its_client() {
    for over in BOTH {
        let server = server(KEPT);
        let path = "/page?gate=go";
        let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut first = Wire::over(&server, over);
        first.send(&ask);
        wait_until(PATIENCE, "the start of the call", || {
            (server.counter("cache_calls") == 1).then_some(())
        });
        let mut second = Wire::over(&server, over);
        second.send(&ask);
        wait_until(PATIENCE, "the waiting calls", || {
            (server.counter("cache_waits") == 1).then_some(())
        });
        let closed = server.counter("connections_closed");
        drop(first);
        wait_until(PATIENCE, "the end of the connection", || {
            (server.counter("connections_closed") > closed).then_some(())
        });
        Wire::plain(&server).ask("POST", "/page/other?open=go", "");
        assert_eq!(call_number(&second.response("GET")), 1);
        // A quick call is finished and stored even if no client waits any more.
        let mut third = Wire::over(&server, over);
        third.send("GET /page/3?gate=go3 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wait_until(PATIENCE, "the start of the call", || {
            (server.counter("cache_calls") == 2).then_some(())
        });
        drop(third);
        Wire::plain(&server).ask("POST", "/page/other?open=go3", "");
        wait_until(PATIENCE, "the stored page", || {
            (server.counter("kept_pages") == 2).then_some(())
        });
    }
}

/// A call without a waiting client keeps its script running only for a moment.
#[test]
fn a_call_without_waiting_clients_ends() {
    let server = with_scripts(&[("a", "echo $$ > $QUERY_STRING; exec sleep 1000")], "");
    for over in BOTH {
        let name = format!("pid-{over:?}");
        let file = server.folder.path("scripts").join(&name);
        let ask = format!("GET /run/a.sh?{name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut wire = Wire::over(&server, over);
        wire.send(&ask);
        let pid = wait_until(PATIENCE, "the start of the call", || {
            let text = fs::read_to_string(&file).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        });
        drop(wire);
        wait_until(PATIENCE, "the end of the script", || {
            (!fs::exists(format!("/proc/{pid}")).unwrap_or(true)).then_some(())
        });
    }
}

/// A stored page is compressed in the background like a file, and its fields say so.
#[test]
fn stored_text_is_compressed() {
    let server = server(KEPT);
    let path = "/page?f=Content-Type:text/html&f=ETag:%22t%22&f=Vary:X-A&size=30000";
    let plain = get(&server, path);
    assert_eq!(plain.body.len(), 30_000);
    let vary = |response: &Response| -> Vec<String> {
        let fields = response.fields.iter();
        let vary = fields.filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
        vary.map(|(_, value)| value.clone()).collect()
    };
    // The first response has the Vary field too, because caches downstream store the response.
    assert_eq!(vary(&plain), ["X-A", "Accept-Encoding"]);
    let gzip = "Accept-Encoding: gzip, br\r\n";
    let packed = wait_until(PATIENCE, "compressed", || {
        let response = get_with(&server, path, gzip);
        (response.field("content-encoding") == Some("gzip")).then_some(response)
    });
    assert!(packed.body.len() < 3_000, "{packed:?}");
    assert_eq!(packed.field("etag"), Some("W/\"t\""));
    assert_eq!(vary(&packed), ["X-A", "Accept-Encoding"]);
    assert!(cache_status(&packed).starts_with("anthill; hit; ttl="));
    for how in ["--http1.1", "--http2"] {
        let unpacked = server.curl(&[how, "--compressed", &server.https(path)]);
        // The other scheme has a page of its own, compressed after a while.
        assert_eq!(unpacked.stdout.len(), 30_000, "{how}");
    }
    let unpacked = server.curl(&["--compressed", "-H", "Host: localhost", &server.http(path)]);
    assert!(unpacked.stdout == plain.body, "{}", unpacked.errors());
    // A client without gzip gets the identity representation, with the Vary field.
    for fields in [
        "",
        "Accept-Encoding: gzip;q=0\r\n",
        "Accept-Encoding: br\r\n",
    ] {
        let response = get_with(&server, path, fields);
        assert!(response.body == plain.body, "{fields}: {response:?}");
        assert_eq!(response.field("etag"), Some("\"t\""), "{fields}");
        assert_eq!(vary(&response), ["X-A", "Accept-Encoding"], "{fields}");
    }
    // Both validators match, whichever representation is negotiated.
    for tag in ["\"t\"", "W/\"t\""] {
        for accepted in ["", gzip] {
            let fields = format!("If-None-Match: {tag}\r\n{accepted}");
            let response = get_with(&server, path, &fields);
            assert_eq!(response.status, 304, "{fields}: {response:?}");
            assert_eq!(vary(&response), ["X-A", "Accept-Encoding"], "{fields}");
        }
    }
    // A range applies to the identity representation. An If-Range with the gzip's tag gets the whole
    // content.
    let range = get_with(&server, path, &format!("Range: bytes=0-3\r\n{gzip}"));
    assert_eq!((range.status, range.text().as_str()), (206, "call"));
    let fields = format!("Range: bytes=0-3\r\nIf-Range: W/\"t\"\r\n{gzip}");
    assert_eq!(get_with(&server, path, &fields).status, 200);
    // A date in If-Range may mean either representation, so the whole content is sent.
    let date = "Sat, 01 Jan 2000 00:00:00 GMT";
    let fields = format!("Range: bytes=0-3\r\nIf-Range: {date}\r\n{gzip}");
    let whole = get_with(&server, path, &fields);
    assert_eq!((whole.status, &whole.body), (200, &packed.body));
    let head = Wire::plain(&server).ask("HEAD", path, gzip);
    let length = packed.body.len().to_string();
    assert_eq!(head.field("content-length"), Some(length.as_str()));
    // One call for each scheme. The request's X-A is the same throughout, so Vary adds no call.
    assert_eq!(server.counter("cache_calls"), 2);
}

#[test]
fn stored_binary_content_is_not_compressed() {
    let server = server(KEPT);
    for more in [
        "f=Content-Type:image/png&size=3000",
        "f=Content-Type:text/html&size=100",
        "f=Content-Type:text/html&size=3000&f=Cache-Control:max-age=60,%20no-transform",
        "f=Content-Type:text/html&size=3000&f=Content-Encoding:br",
    ] {
        let path = format!("/page?{more}");
        for _ in 0..2 {
            let response = get_with(&server, &path, "Accept-Encoding: gzip\r\n");
            assert_eq!(response.field("vary"), None, "{more}: {response:?}");
        }
        let kept = get(&server, &path);
        assert!(cache_status(&kept).starts_with("anthill; hit"), "{kept:?}");
    }
    // A page of another status is compressed for the client of the call, and stored as it is.
    let path = "/page?f=Content-Type:text/html&size=3000&status=404";
    let codings = [Some("gzip"), None, None];
    for coding in codings {
        let response = get_with(&server, path, "Accept-Encoding: gzip\r\n");
        assert_eq!(response.field("content-encoding"), coding, "{response:?}");
    }
    // The handler's own Vary is not repeated.
    let path = "/page?f=Content-Type:text/html&size=3000&f=Vary:accept-encoding";
    get(&server, path);
    assert_eq!(get(&server, path).field("vary"), Some("accept-encoding"));
}

/// A client that starts a call and does not read delays no other client.
#[test]
fn a_slow_reader_delays_no_other_client() {
    let server = server(KEPT);
    let path = "/page?size=900000&mid=go";
    let mut slow = Wire::plain(&server);
    slow.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(slow.take(12), b"HTTP/1.1 200");
    let mut other = Wire::plain(&server);
    other.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    // The page has a known length, so the server streams the content during the call.
    assert_eq!(other.take(12), b"HTTP/1.1 200");
    Wire::plain(&server).ask("POST", "/page/other?open=go", "");
    let rest = other.take(900_000);
    assert_eq!(rest.len(), 900_000);
    wait_until(PATIENCE, "the stored page", || {
        (server.counter("kept_pages") == 1).then_some(())
    });
    assert_eq!(get(&server, path).body.len(), 900_000);
    assert_eq!(slow.take(900_000).len(), 900_000);
    assert_eq!(server.counter("cache_calls"), 1);
}

#[test]
fn responses_that_forbid_storage_are_not_stored() {
    let server = server(KEPT);
    for more in [
        "f=Cache-Control:no-store",
        "f=Cache-Control:no-cache",
        "f=Cache-Control:private",
        "f=Cache-Control:max-age=0",
        "f=Set-Cookie:a=b",
        "f=Vary:*",
        "f=Expires:0",
        "status=206&f=Content-Range:bytes%200-1/2",
        "status=403",
        "status=500",
        "status=302&f=Location:/",
    ] {
        let path = format!("/page?{more}");
        let calls: Vec<u64> = (0..3).map(|_| call_number(&get(&server, &path))).collect();
        assert!(
            calls.windows(2).all(|two| two[0] < two[1]),
            "{more}: {calls:?}"
        );
    }
    // A response to a request with a login or a cookie is not stored, because the content may depend on
    // either.
    for fields in ["Authorization: Basic YTpi\r\n", "Cookie: a=b\r\n"] {
        let path = format!("/page/{}", fields.len());
        let calls: Vec<u64> = (0..3)
            .map(|_| call_number(&get_with(&server, &path, fields)))
            .collect();
        assert_eq!(calls, [1, 2, 3], "{fields}");
        assert_eq!(call_number(&get(&server, &path)), 4);
        assert_eq!(
            call_number(&get_with(&server, &path, fields)),
            5,
            "{fields}"
        );
        assert_eq!(call_number(&get(&server, &path)), 4, "{fields}");
    }
    // A response with `public` is stored despite the login or the cookie.
    for fields in ["Authorization: Basic YTpi\r\n", "Cookie: a=b\r\n"] {
        let path = format!("/page/all{}?f=Cache-Control:public", fields.len());
        assert_eq!(call_number(&get(&server, &path)), 1);
        assert_eq!(
            call_number(&get_with(&server, &path, fields)),
            1,
            "{fields}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let path = format!("/page/{method}");
        for nth in 1..3 {
            assert_eq!(
                call_number(&Wire::plain(&server).ask(method, &path, "")),
                nth,
                "{method}"
            );
        }
    }
    // A truncated body is never stored.
    let cut = get(&server, "/page/cut?cut&size=1000");
    assert!(!cut.whole, "{cut:?}");
    let cut = get(&server, "/page/cut?cut&size=1000&open");
    assert!(!cut.whole, "{cut:?}");
}

#[test]
fn without_a_default_lifetime_only_explicit_lifetimes_are_stored() {
    let server = server("true");
    for nth in 1..3 {
        assert_eq!(call_number(&get(&server, "/page/a")), nth);
    }
    for _ in 1..3 {
        assert_eq!(
            call_number(&get(&server, "/page/b?f=Cache-Control:max-age=1000")),
            1
        );
        let missing = get(&server, "/page/c?f=Cache-Control:max-age=1000&status=404");
        assert_eq!((missing.status, call_number(&missing)), (404, 1));
        let moved = get(
            &server,
            "/page/d?f=Cache-Control:max-age=9&status=302&f=Location:/x",
        );
        assert_eq!((moved.status, call_number(&moved)), (302, 1));
        assert_eq!(moved.field("location"), Some("/x"));
    }
    let nothing = "/page/e?f=Cache-Control:max-age=1000&status=204";
    assert_eq!(get(&server, nothing).status, 204);
    let again = get(&server, nothing);
    assert_eq!((again.status, again.field("content-length")), (204, None));
    assert!(cache_status(&again).starts_with("anthill; hit"));
    let mut h2 = H2::open(&server, Over::Plain);
    assert_eq!(h2.get(nothing).status, 204);
}

#[test]
fn conditions_and_ranges_apply_to_stored_pages() {
    let server = server(KEPT);
    let date = "Sun,%2006%20Nov%201994%2008:49:37%20GMT";
    let path = format!("/page?f=ETag:%22t%22&f=Last-Modified:{date}&size=1000");
    let modified = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    // The first request has a condition too, and the page is stored all the same.
    let first = get_with(&server, &path, "If-None-Match: \"t\"\r\n");
    assert_eq!((first.status, first.body.len()), (304, 0), "{first:?}");
    assert_eq!(first.field("etag"), Some("\"t\""));
    #[rustfmt::skip] // A table reads better in columns.
    let table: &[(&str, u16, usize)] = &[
        ("", 200, 1000),
        ("If-None-Match: \"t\"\r\n", 304, 0),
        ("If-None-Match: W/\"t\", \"x\"\r\n", 304, 0),
        ("If-None-Match: \"x\"\r\n", 200, 1000),
        (modified, 304, 0),
        ("If-Match: \"x\"\r\n", 412, 0),
        ("If-Match: \"t\"\r\n", 200, 1000),
        ("Range: bytes=10-19\r\n", 206, 10),
        ("Range: bytes=-5\r\n", 206, 5),
        ("Range: bytes=1000-\r\n", 416, 0),
        ("Range: bytes=0-1, 5-6\r\n", 200, 1000),
        ("Range: bytes=10-19\r\nIf-Range: \"t\"\r\n", 206, 10),
        ("Range: bytes=10-19\r\nIf-Range: \"x\"\r\n", 200, 1000),
    ];
    wait_until(PATIENCE, "the stored page", || {
        (server.counter("kept_pages") == 1).then_some(())
    });
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.get(&path, "");
        let mut h2 = H2::open(&server, over);
        for (fields, status, length) in table {
            let response = wire.get(&path, fields);
            assert_eq!(
                (response.status, response.body.len()),
                (*status, *length),
                "{fields}"
            );
            assert!(
                cache_status(&response).starts_with("anthill; hit"),
                "{response:?}"
            );
            assert_eq!(
                response.field("content-length").is_some(),
                *status != 304,
                "{fields}"
            );
            let lines: Vec<(String, String)> = fields
                .lines()
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            let lines: Vec<(&str, &str)> = lines.iter().map(|(n, v)| (&**n, &**v)).collect();
            let id = h2.ask("GET", &path, &lines, true);
            let response = h2.response(id);
            assert_eq!(
                (response.status, response.body.len()),
                (*status, *length),
                "{fields}"
            );
        }
        let head = wire.ask("HEAD", &path, "");
        assert_eq!(
            (head.status, head.field("content-length")),
            (200, Some("1000"))
        );
    }
}

#[test]
fn a_head_request_stores_the_page() {
    let server = server(KEPT);
    let head = Wire::plain(&server).ask("HEAD", "/page", "");
    assert_eq!(head.status, 200);
    wait_until(PATIENCE, "the stored page", || {
        (server.counter("kept_pages") == 1).then_some(())
    });
    assert_eq!(get(&server, "/page").text(), "call 1 GET -\n");
}

#[test]
fn variants_by_vary_are_stored_separately() {
    let server = server(KEPT);
    let path = "/page?f=Vary:Accept-Language,%20X-A";
    let ask = |fields: &str| call_number(&get_with(&server, path, fields));
    assert_eq!(ask("Accept-Language: en\r\n"), 1);
    assert_eq!(ask("Accept-Language: de\r\n"), 2);
    assert_eq!(ask("Accept-Language: en\r\n"), 1);
    assert_eq!(ask("Accept-Language: en\r\nX-A: 1\r\n"), 3);
    assert_eq!(ask(""), 4);
    assert_eq!(ask("accept-language:  de \r\n"), 2);
    assert_eq!(ask(""), 4);
    let missed = get_with(&server, path, "X-A: 2\r\n");
    assert_eq!(cache_status(&missed), "anthill; fwd=vary-miss; stored");
    assert_eq!(server.counter("kept_pages"), 5);
    // Waiting clients with different values of a Vary field call the handler themselves.
    let path = "/page/wait?gate=go&f=Vary:X-A";
    let threads: Vec<_> = (0..6)
        .map(|nth| {
            let mut wire = Wire::plain(&server);
            let field = format!("X-A: {}\r\n", nth % 3);
            thread::spawn(move || (nth % 3, wire.get(path, &field)))
        })
        .collect();
    wait_until(PATIENCE, "the waiting calls", || {
        (server.counter("cache_waits") == 5).then_some(())
    });
    get(&server, "/page/other?open=go");
    Wire::plain(&server).ask("POST", "/page/other?open=go", "");
    let mut calls = [0; 3];
    for thread in threads {
        let (kind, response) = thread.join().expect("a client");
        let number = call_number(&response);
        assert!(
            calls[kind] == 0 || calls[kind] == number,
            "{kind}: {response:?}"
        );
        calls[kind] = number;
    }
    calls.sort_unstable();
    assert_eq!(calls, [1, 2, 3]);
}

#[test]
fn pages_that_vary_by_the_client_are_not_stored() {
    let member = Member::start(|request| {
        let path = request.line().split(' ').nth(1).expect("a path");
        let vary = path.trim_start_matches('/');
        let seen = request.fields(vary).join(", ");
        let head = format!("Vary: {vary}\r\nContent-Length: {}", seen.len());
        Answer::Keep(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{seen}").into_bytes())
    });
    let route = format!(
        "[[site.route]]\npath = \"/\"\ncache = {KEPT}\nproxy = {{ url = \"{}\", request_headers = \
         {{ X-Visitor = \"{{client}}\" }} }}\n",
        member.url()
    );
    let server = server_with("", KEPT, &route);
    let of = |last: u8, path: &str| {
        let mut wire = Wire::of(&server, [127, 0, 0, last].into());
        wire.get(path, "").text().to_owned()
    };
    for field in ["X-Forwarded-For", "X-Visitor"] {
        let path = format!("/{field}");
        assert_eq!(of(2, &path), "127.0.0.2", "{field}");
        assert_eq!(of(3, &path), "127.0.0.3", "{field}");
    }
    let forwarded = of(2, "/Forwarded");
    assert!(forwarded.starts_with("for=127.0.0.2"), "{forwarded}");
    assert!(of(3, "/Forwarded").starts_with("for=127.0.0.3"));
    // The scheme is a part of the key.
    for last in [2, 3] {
        assert_eq!(of(last, "/X-Forwarded-Proto"), "http");
    }
    assert_eq!(member.requests().len(), 7);
}

#[test]
fn a_stale_page_is_served_during_its_revalidation() {
    let server = server("true");
    let path = "/page?f=Cache-Control:max-age=0,%20stale-while-revalidate=1000&gate=go";
    Wire::plain(&server).ask("POST", "/page/other?open=go", "");
    assert_eq!(call_number(&get(&server, path)), 1);
    // Each request gets the stale page at once and starts one call.
    let second = get(&server, path);
    assert_eq!(call_number(&second), 1);
    assert!(
        cache_status(&second).starts_with("anthill; hit; ttl=-"),
        "{second:?}"
    );
    eventually("the second call's page", || {
        (call_number(&get(&server, path)) > 1).then_some(())
    });
    // During the call no further call begins and no client waits.
    let path = "/page/b?f=Cache-Control:max-age=0,%20stale-while-revalidate=1000&later=b";
    let calls = server.counter("cache_calls");
    for _ in 0..10 {
        assert_eq!(call_number(&get(&server, path)), 1);
    }
    assert_eq!(server.counter("cache_calls"), calls + 2);
    Wire::plain(&server).ask("POST", "/page/other?open=b", "");
    eventually("the second call's page", || {
        (call_number(&get(&server, path)) > 1).then_some(())
    });
}

#[test]
fn a_stale_page_is_served_instead_of_a_failure() {
    let server = server("true");
    for (nth, failure) in ["500", "503", "fault"].iter().enumerate() {
        let path = format!(
            "/page/{nth}?f=Cache-Control:max-age=0,%20stale-if-error=1000&status=200,{failure},{failure}"
        );
        let first = get(&server, &path);
        assert_eq!((first.status, call_number(&first)), (200, 1));
        for over in [Over::Plain, Over::Plain] {
            let stale = Wire::over(&server, over).get(&path, "");
            assert_eq!((stale.status, call_number(&stale)), (200, 1), "{stale:?}");
            assert!(stale.field("age").is_some(), "{stale:?}");
        }
        let calls = server.counter("cache_calls");
        // After a failure the server does not call the handler for a while.
        assert_eq!(get(&server, &path).status, 200);
        assert_eq!(server.counter("cache_calls"), calls);
        // must-revalidate forbids a stale page.
        let path = format!(
            "/page/strict{nth}?f=Cache-Control:max-age=0,%20stale-if-error=9,must-revalidate&status=200,{failure}"
        );
        assert_eq!(get(&server, &path).status, 200);
        assert!(get(&server, &path).status >= 500);
    }
}

/// A handler called with the old page's tag may answer 304.
#[test]
fn a_304_of_the_handler_freshens_a_page() {
    let server = server("true");
    let path = "/page?f=Cache-Control:max-age=0,%20stale-if-error=1000&f=ETag:%22t%22&revalidates";
    assert_eq!(get(&server, path).text(), "call 1 GET -\n");
    for calls in 2..5 {
        let again = get(&server, path);
        assert_eq!(
            (again.status, again.text().as_str()),
            (200, "call 1 GET -\n")
        );
        assert_eq!(server.counter("cache_calls"), calls);
        assert_eq!(cache_status(&again), "anthill; fwd=stale; stored");
    }
    assert_eq!(server.counter("kept_pages"), 1);
}

#[test]
fn unsafe_requests_invalidate_a_page() {
    let server = server(KEPT);
    let path = "/page/a?f=X:y";
    assert_eq!(call_number(&get(&server, path)), 1);
    assert_eq!(call_number(&get(&server, path)), 1);
    assert_eq!(
        call_number(&Wire::plain(&server).ask("POST", path, "Content-Length: 0\r\n")),
        2
    );
    assert_eq!(call_number(&get(&server, path)), 3);
    // The transport of the change does not matter.
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("DELETE", path, &[], true);
    assert_eq!(call_number(&h2.response(id)), 4);
    assert_eq!(call_number(&get(&server, path)), 5);
    // A failed change and a safe method leave the page in place.
    let failing = "/page/b?status=200,500,200";
    assert_eq!(call_number(&get(&server, failing)), 1);
    assert_eq!(Wire::plain(&server).ask("PUT", failing, "").status, 500);
    assert_eq!(call_number(&get(&server, failing)), 1);
    Wire::plain(&server).ask("OPTIONS", path, "");
    assert_eq!(call_number(&get(&server, path)), 5);
    // In WebDAV, PROPFIND is safe and PROPPATCH is not.
    Wire::plain(&server).ask("PROPFIND", path, "");
    assert_eq!(call_number(&get(&server, path)), 5);
    Wire::plain(&server).ask("PROPPATCH", path, "");
    let before = call_number(&get(&server, path));
    assert!(before > 6);
    let moved = "Destination: http://localhost/page/a?f=X:y\r\n";
    Wire::plain(&server).ask("MOVE", "/page/elsewhere", moved);
    assert_eq!(call_number(&get(&server, path)), before + 1);
    // A Location field in a request invalidates nothing.
    Wire::plain(&server).ask("POST", "/page/elsewhere", moved);
    assert_eq!(call_number(&get(&server, path)), before + 1);
    // The target of a response's Location is invalidated.
    assert_eq!(call_number(&get(&server, "/page/c")), 1);
    for location in ["/page/c", "http://localhost/page/c"] {
        let post = format!("/page/other?f=Location:{location}&status=303");
        let before = call_number(&get(&server, "/page/c"));
        Wire::plain(&server).ask("POST", &post, "");
        assert_eq!(
            call_number(&get(&server, "/page/c")),
            before + 1,
            "{location}"
        );
    }
    // A call begun before the change is not stored.
    let calls = server.counter("cache_calls");
    let mut wire = Wire::plain(&server);
    let slow = "/page/d?gate=d";
    wire.send(format!("GET {slow} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    wait_until(PATIENCE, "the start of the call", || {
        (server.counter("cache_calls") > calls).then_some(())
    });
    let post = "/page/other?open=d&status=303&f=Location:/page/d%3Fgate=d";
    Wire::plain(&server).ask("POST", post, "");
    assert_eq!(call_number(&wire.response("GET")), 1);
    assert_eq!(call_number(&get(&server, slow)), 2);
}

/// Checks that a change removes a page, however the client of the change wrote the path, and that no page is stored for
/// a path with dot segments or an encoded letter, which would stay after a change of the page.
#[test]
fn other_spellings_of_a_path_name_the_page_of_the_path() {
    let member = Member::start(|request| match request.line() {
        line if line.contains("/made") => Answer::Keep(
            b"HTTP/1.1 201 Created\r\nLocation: /x/../k\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        line => ok(line),
    });
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\ncache = {KEPT}\n",
        member.url()
    );
    let server = Server::start(&(server_table("") + &site_table("http = \"serve\"") + &route));
    let is_hit = |path: &str| cache_status(&get(&server, path)).starts_with("anthill; hit");
    for over in BOTH {
        for spelling in ["/x/../k", "/./k", "/x/%2e%2E/k", "/%6B"] {
            for _ in 0..2 {
                let response = Wire::over(&server, over).get(spelling, "");
                assert_eq!(cache_status(&response), "anthill; fwd=bypass", "{spelling}");
            }
            get(&server, "/k");
            assert!(is_hit("/k"), "{spelling}");
            let post = Wire::over(&server, over).ask("POST", spelling, "Content-Length: 0\r\n");
            assert_eq!(post.status, 200, "{spelling}");
            assert!(!is_hit("/k"), "{spelling}");
        }
    }
    assert!(is_hit("/k"));
    Wire::plain(&server).ask("POST", "/made", "Content-Length: 0\r\n");
    assert!(!is_hit("/k"));
    // Members may answer these spellings with pages of their own.
    for path in ["/a%2Bb", "/a+b", "/%c3%A4", "/a;x", "/.well-known/a"] {
        assert!(!is_hit(path) && is_hit(path), "{path}");
    }
}

#[test]
fn pages_are_purged() {
    let server = server(KEPT);
    for path in [
        "/page/a",
        "/page/a?x=1",
        "/page/a/b",
        "/page/ab",
        "/page/%C3%A4",
    ] {
        assert_eq!(get(&server, path).status, 200);
        assert!(
            cache_status(&get(&server, path)).starts_with("anthill; hit"),
            "{path}"
        );
    }
    let purge = |path: &str| {
        let done = server.ask(&["purge", "*", path]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    assert_eq!(purge("/page"), "0 pages forgotten\n");
    assert_eq!(purge("/page/a"), "2 pages forgotten\n");
    assert_eq!(purge("/page/ä"), "1 page forgotten\n");
    assert!(cache_status(&get(&server, "/page/ab")).starts_with("anthill; hit"));
    assert_eq!(call_number(&get(&server, "/page/a")), 3);
    assert_eq!(purge("/page/a*"), "3 pages forgotten\n");
    assert_eq!(purge("/*"), "0 pages forgotten\n");
    assert_eq!(server.counter("kept_pages"), 0);
    assert_eq!(server.counter("kept_page_bytes"), 0);
    for (arguments, what) in [
        (["purge", "elsewhere", "/"], "no site `elsewhere`"),
        (["purge", "*", "page"], "begins with a slash"),
    ] {
        let done = server.ask(&arguments);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains(what), "{done:?}");
    }
    // A page under way during a purge is not stored either.
    let calls = server.counter("cache_calls");
    let mut wire = Wire::plain(&server);
    wire.send("GET /page/slow?gate=go HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_until(PATIENCE, "the start of the call", || {
        (server.counter("cache_calls") > calls).then_some(())
    });
    purge("/page/slow");
    Wire::plain(&server).ask("POST", "/page/other?open=go", "");
    assert_eq!(call_number(&wire.response("GET")), 1);
    assert_eq!(call_number(&get(&server, "/page/slow?gate=go")), 2);
}

/// Returns a password hash in the format of a user file.
fn hash(password: &str) -> String {
    let ran = run("openssl", &["passwd", "-6", "-stdin"], password.as_bytes());
    ran.text().trim().to_owned()
}

/// No user gets another user's page.
#[test]
fn users_share_no_pages() {
    let users = format!("ant:{}\nbee:{}\n", hash("a"), hash("b"));
    let folder = Folder::new()
        .with("users", users)
        .with("public/index.html", "x");
    let config = config("", KEPT, "users = \"users\"\n");
    let server = Server::start_in(folder, &config);
    let ask = |user: &str, path: &str| {
        let ran = server.curl(&["-u", user, &server.http(path)]);
        assert!(ran.success, "{}", ran.errors());
        ran.text()
    };
    let number = |text: String| text.split(' ').nth(1).map(str::to_owned).expect("a number");
    // Nothing marks the response as public.
    assert_eq!(number(ask("ant:a", "/page/a")), "1");
    assert_eq!(number(ask("ant:a", "/page/a")), "2");
    let public = "/page/b?f=Cache-Control:public";
    assert_eq!(number(ask("ant:a", public)), "1");
    assert_eq!(number(ask("ant:a", public)), "1");
    assert_eq!(number(ask("bee:b", public)), "2");
    assert_eq!(number(ask("ant:a", public)), "1");
    assert_eq!(number(ask("bee:b", public)), "2");
    assert_eq!(get(&server, public).status, 401);
    assert_eq!(
        get_with(&server, public, "Authorization: Basic YTpi\r\n").status,
        401
    );
}

#[test]
fn pages_are_stored_separately_by_host_and_port() {
    let server = server(KEPT);
    let ask = |host: &str| {
        let mut wire = Wire::plain(&server);
        wire.send(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        call_number(&wire.response("GET"))
    };
    assert_eq!(ask("a.example"), 1);
    assert_eq!(ask("a.example:81"), 2);
    assert_eq!(ask("b.example"), 3);
    assert_eq!(ask("a.example"), 1);
    // Pages are separate by the scheme and port of the connection too.
    let mut wire = Wire::tls(&server);
    wire.send("GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(call_number(&wire.response("GET")), 4);
}

#[test]
fn cookies_can_be_ignored_by_configuration() {
    let server = server("{ seconds = 1000, ignore_cookies = true }");
    assert_eq!(
        call_number(&get_with(&server, "/page", "Cookie: a=b\r\n")),
        1
    );
    assert_eq!(
        call_number(&get_with(&server, "/page", "Cookie: a=c\r\n")),
        1
    );
    assert_eq!(call_number(&get(&server, "/page")), 1);
}

/// Starts an application with sessions. Each visitor without a session gets one at `/session`, and every page names the
/// cookies of its request.
fn application_with_sessions() -> Member {
    Member::start(|request| {
        let cookies = request.fields("cookie").join("; ");
        let is_new = request.line().contains("/session") && !cookies.contains("sid=");
        let session = if is_new {
            "Set-Cookie: sid=new\r\n"
        } else {
            ""
        };
        let text = format!("cookies: {cookies}");
        let head = format!("Vary: Cookie\r\n{session}Content-Length: {}", text.len());
        Answer::Keep(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{text}").into_bytes())
    })
}

fn server_of_application(member: &Member, cache: &str) -> Server {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\ncache = {cache}\n",
        member.url()
    );
    Server::start(&(server_table("h2c = true\n") + &site_table("http = \"serve\"") + &route))
}

#[test]
fn cookies_of_a_login_pass_the_cache_by_and_others_reach_no_stored_page() {
    let member = application_with_sessions();
    let cache = "{ seconds = 1000, bypass_cookies = [\"logged_in_*\", \"cart\"] }";
    let server = server_of_application(&member, cache);
    for over in BOTH {
        let path = format!("/{over:?}");
        let ask = |fields: &str| {
            let response = Wire::over(&server, over).get(&path, fields);
            (
                response.text().to_owned(),
                cache_status(&response).to_owned(),
            )
        };
        // The first visitor has cookies, and even those of the first visitor are not in the page of the others.
        let (text, status) = ask("Cookie: _ga=1; evil=logged_in_a\r\n");
        assert_eq!(text, "cookies: ");
        assert_eq!(status, "anthill; fwd=uri-miss; stored");
        for cookies in ["", "Cookie: _ga=2\r\n", "Cookie: carts=1\r\n"] {
            let (text, status) = ask(cookies);
            assert_eq!(text, "cookies: ", "{cookies}");
            assert!(status.starts_with("anthill; hit"), "{cookies}: {status}");
        }
        for cookies in ["_ga=1; logged_in_7=b", "logged_in_7=b", "_ga=1;cart=c"] {
            for _ in 0..2 {
                let (text, status) = ask(&format!("Cookie: {cookies}\r\n"));
                assert_eq!(text, format!("cookies: {cookies}"));
                assert_eq!(status, "anthill; fwd=bypass");
            }
        }
        let (text, _) = ask("Cookie: _ga=1\r\nCookie: cart=c\r\n");
        assert!(text.ends_with("cart=c"), "{text}");
        let (text, status) = ask("");
        assert_eq!(text, "cookies: ");
        assert!(status.starts_with("anthill; hit"), "{status}");
    }
    let mut h2 = H2::open(&server, Over::Plain);
    let fields = [("cookie", "_ga=1"), ("cookie", "cart=c")];
    let id = h2.ask("GET", "/h2", &fields, true);
    let response = h2.response(id);
    assert_eq!(response.text(), "cookies: _ga=1; cart=c");
    assert_eq!(cache_status(&response), "anthill; fwd=bypass");
}

/// The handler does not get the cookies of the client with a call for the cache, so the handler takes each client for a new
/// one. A client with a session keeps its session all the same.
#[test]
fn a_hidden_cookie_costs_no_client_its_session() {
    let member = application_with_sessions();
    for cache in [
        "{ seconds = 1000, bypass_cookies = \"cart\" }",
        "{ seconds = 1000, ignore_cookies = true }",
    ] {
        let server = server_of_application(&member, cache);
        let first = get_with(&server, "/session", "Cookie: sid=7\r\n");
        assert_eq!(first.text(), "cookies: sid=7", "{cache}");
        assert_eq!(first.field("set-cookie"), None, "{cache}");
        let new = get(&server, "/session");
        assert_eq!(new.field("set-cookie"), Some("sid=new"), "{cache}");
        let known = get_with(&server, "/session", "Cookie: sid=8\r\n");
        assert_eq!(known.text(), "cookies: sid=8", "{cache}");
        assert_eq!(known.field("set-cookie"), None, "{cache}");
        assert_eq!(server.counter("kept_pages"), 0, "{cache}");
        // A page without a session is stored, although the application says `Vary: Cookie`.
        for cookies in ["Cookie: sid=7\r\n", "Cookie: sid=8\r\n", ""] {
            assert_eq!(get_with(&server, "/page", cookies).text(), "cookies: ");
        }
        assert_eq!(server.counter("kept_pages"), 1, "{cache}");
    }
}

#[test]
fn responses_over_the_size_limit_pass_through() {
    let server = server("{ seconds = 1000, page_bytes = 100000 }");
    for over in BOTH {
        for more in ["", "&mid=go", "&open", "&open&mid=go"] {
            let path = format!("/page/{over:?}{}?size=5000000{more}", more.len());
            Wire::plain(&server).ask("POST", "/page/other?open=go", "");
            for nth in 1..3 {
                let response = Wire::over(&server, over).get(&path, "");
                assert!(response.whole);
                assert_eq!(response.body.len(), 5_000_000, "{path}");
                assert_eq!(call_number(&response), nth, "{path}");
            }
            let path = path
                .replace("5000000", "100000")
                .replace("/page/", "/page/x");
            for _ in 1..3 {
                let response = Wire::over(&server, over).get(&path, "");
                assert_eq!(
                    (call_number(&response), response.body.len()),
                    (1, 100_000),
                    "{path}"
                );
            }
        }
    }
    assert_eq!(server.counter("kept_pages"), 8);
}

/// The pages together stay within their share of memory, and frequently used pages stay in the cache.
#[test]
fn memory_is_bounded() {
    let server = server_with("memory_max = \"4MiB\"", KEPT, "");
    let mut wire = Wire::plain(&server);
    let favourite = "/page/favourite?size=20000";
    for nth in 0..200 {
        wire.get(&format!("/page/{nth}?size=20000"), "");
        assert_eq!(call_number(&wire.get(favourite, "")), 1, "after {nth}");
    }
    let max = server.counter("kept_page_bytes_max");
    // Pages get 3/8 of the memory left by the heads of waiting requests, which may use 1/16, and by the bodies under
    // way, which may use 1/3.
    let memory: u64 = 4 << 20;
    assert_eq!(max, (memory - memory / 16 - memory / 3) / 8 * 3);
    let bytes = server.counter("kept_page_bytes");
    assert!(bytes <= max && bytes > max / 2, "{bytes} of {max}");
    // The cache does not collect an endless response of unknown length.
    let before = server.resident_kib();
    let large = wire.get("/page/large?size=30000000&open", "");
    assert_eq!(large.body.len(), 30_000_000);
    let more = server.resident_kib().saturating_sub(before);
    assert!(more < 35_000, "{more} KiB");
}

#[test]
fn pages_outlive_a_restart() {
    let cache = "{ seconds = 1000, disk = true }";
    let mut server = server(cache);
    let path = "/page?f=X-Own:yes&f=Vary:X-A&size=30000";
    let first = get(&server, path);
    assert_eq!(call_number(&first), 1);
    get_with(&server, path, "X-A: b\r\n");
    get(
        &server,
        "/page/short?f=Cache-Control:max-age=0,stale-if-error=1000",
    );
    let stop = |server: &mut Server| {
        assert_eq!(server.ask(&["stop"]).code, Some(0));
        assert_eq!(server.wait(PATIENCE), Some(0));
    };
    stop(&mut server);
    let folder = server.into_folder();
    let file = folder.path("state/pages");
    let written = std::fs::read(&file).expect("the pages");
    assert!(written.len() > 60_000);
    let config = config("", cache, "");
    let mut server = Server::start_in(folder, &config);
    assert!(!file.exists(), "it is there still");
    assert_eq!(server.counter("kept_pages"), 3);
    let again = get(&server, path);
    assert_eq!(again.body, first.body);
    assert_eq!(again.field("x-own"), Some("yes"));
    assert_eq!(again.field("date"), first.field("date"));
    assert!(
        cache_status(&again).starts_with("anthill; hit"),
        "{again:?}"
    );
    assert_eq!(call_number(&get_with(&server, path, "X-A: b\r\n")), 2);
    assert_eq!(server.counter("cache_calls"), 0);
    stop(&mut server);
    // A file with a damaged byte at any place is rejected.
    let mut folder = server.into_folder();
    for at in [0, 20, written.len() / 2, written.len() - 1] {
        let mut damaged = written.clone();
        damaged[at] ^= 1;
        folder.write("state/pages", &damaged);
        let mut server = Server::start_in(folder, &config);
        assert_eq!(server.counter("kept_pages"), 0, "{at}");
        assert_eq!(call_number(&get(&server, path)), 1);
        stop(&mut server);
        folder = server.into_folder();
    }
    for content in [&b""[..], b"x", &written[..written.len() - 1]] {
        folder.write("state/pages", content);
        let mut server = Server::start_in(folder, &config);
        assert_eq!(server.counter("kept_pages"), 0);
        stop(&mut server);
        folder = server.into_folder();
    }
    // The pages of another handler are not used.
    folder.write("state/pages", &written);
    let server = Server::start_in(folder, &config.replace("path = \"/page\"", "path = \"/\""));
    assert_eq!(call_number(&get(&server, path)), 1);
}

/// Pages survive a reload with the same handler, and are dropped with another handler.
#[test]
fn pages_outlive_a_reload() {
    let server = server(KEPT);
    assert_eq!(call_number(&get(&server, "/page")), 1);
    server.reload(&config("# moved down\n", KEPT, ""));
    let again = get(&server, "/page");
    assert!(
        cache_status(&again).starts_with("anthill; hit"),
        "{again:?}"
    );
    server.reload(&config("", KEPT, "").replace("test = \"page\"", "test = \"echo\""));
    assert_eq!(get(&server, "/page").text(), "");
}

/// A page stored under a path is not served after the path leads to another target.
#[test]
fn pages_end_with_the_rewrite_that_led_to_them() {
    let led = |to: &str| {
        let route = format!("[[site.route]]\npath = \"/old\"\nrewrite = \"{to}\"\n");
        config("", KEPT, &route)
    };
    let server = Server::start(&led("/page/a"));
    assert_eq!(get(&server, "/old").status, 200);
    assert!(cache_status(&get(&server, "/old")).starts_with("anthill; hit"));
    server.reload(&led("/page/b"));
    let other = get(&server, "/old");
    assert_eq!(
        cache_status(&other),
        "anthill; fwd=uri-miss; stored",
        "{other:?}"
    );

    let tries = |to: &str| {
        let own = format!("http = \"serve\"\ntry = [\"$path\", \"{to}\"]");
        config("", KEPT, "").replace("http = \"serve\"", &own)
    };
    server.reload(&tries("/page/c"));
    assert_eq!(get(&server, "/none").status, 200);
    assert!(cache_status(&get(&server, "/none")).starts_with("anthill; hit"));
    server.reload(&tries("/page/d"));
    let other = get(&server, "/none");
    assert_eq!(
        cache_status(&other),
        "anthill; fwd=uri-miss; stored",
        "{other:?}"
    );
}

#[test]
fn configuration_errors_are_explained() {
    let folder = Folder::new().with("public/index.html", "x");
    for (route, what) in [
        (
            "test = \"page\"\ncache = 10",
            "`cache` must be true, a table or a list of rules",
        ),
        (
            "test = \"page\"\ncache = \"10m\"",
            "for example cache = { seconds = \"10m\" }",
        ),
        (
            "test = \"page\"\ncache = { second = 1 }",
            "did you mean `seconds`?",
        ),
        (
            "test = \"page\"\ncache = { seconds = 0 }",
            "`seconds` is out of bounds",
        ),
        (
            "test = \"page\"\ncache = { seconds = \"soon\" }",
            "`soon` is not a duration",
        ),
        (
            "test = \"page\"\ncache = { page_bytes = \"big\" }",
            "`big` is not a size",
        ),
        (
            "root = \"public\"\ncache = true",
            "`cache` stores responses of a handler",
        ),
        ("cache = true", "`cache` stores responses of a handler"),
        (
            "test = \"page\"\ncache = { bypass_cookies = true }",
            "`bypass_cookies` must be a list of names or patterns",
        ),
        (
            "test = \"page\"\ncache = { bypass_cookies = [\"a\"], ignore_cookies = true }",
            "`bypass_cookies` has no effect, because `ignore_cookies` ignores every cookie",
        ),
        (
            "test = \"page\"\ncache = { bypass_cookies = [] }",
            "`bypass_cookies` has no name",
        ),
        (
            "test = \"page\"\ncache = { bypass_cookies = [\"sid=1\"] }",
            "write the name alone: \"sid\"",
        ),
        (
            "test = \"page\"\ncache = { bypass_cookies = \"comment_author|postpass\" }",
            "is a regular expression, not a pattern",
        ),
        (
            "test = \"page\"\ncache = { bypass_cookies = \"*\" }",
            "`*` stands for every cookie",
        ),
    ] {
        let config = server_table("")
            + &site_table("")
            + &format!("[[site.route]]\npath = \"/page\"\n{route}\n");
        folder.write("anthill.toml", config);
        let done =
            crate::support::anthill(&["check".as_ref(), folder.path("anthill.toml").as_os_str()]);
        assert_eq!(done.code, Some(2), "{route}: {done:?}");
        assert!(done.stderr.contains(what), "{route}: {done:?}");
    }
}

/// Starts a server that caches the responses of shell scripts: CGI scripts of a folder, and scripts among
/// the site's files.
fn with_scripts(scripts: &[(&str, &str)], more: &str) -> Server {
    let mut folder = Folder::new();
    for (name, text) in scripts {
        let text = format!("printf 'Content-Type: text/plain\\n\\n'\n{text}\n");
        folder = folder
            .with(&format!("public/{name}.sh"), &text)
            .with(&format!("scripts/{name}.sh"), &text);
    }
    let shell = tool("sh").display().to_string();
    let interpreter = format!("interpreter = {{ \".sh\" = \"{shell}\" }}\ncache = {KEPT}\n");
    let config = server_table("")
        + &site_table("http = \"serve\"")
        + &format!("[[site.route]]\npath = \"/\"\n{interpreter}")
        + &format!("[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n{interpreter}{more}");
    Server::start_in(folder, &config)
}

#[test]
fn responses_of_scripts_are_stored_separately() {
    let server = with_scripts(
        &[
            ("a", "echo a $QUERY_STRING $$"),
            ("b", "echo b $QUERY_STRING $$"),
        ],
        "",
    );
    for base in ["", "/run"] {
        let mut seen = Vec::new();
        for path in ["/a.sh", "/b.sh", "/a.sh?x", "/a.sh/more"] {
            let path = format!("{base}{path}");
            let first = get(&server, &path);
            assert_eq!(first.status, 200, "{first:?}");
            assert!(
                cache_status(&first).starts_with("anthill; fwd=uri-miss"),
                "{path}"
            );
            let again = get(&server, &path);
            assert!(
                cache_status(&again).starts_with("anthill; hit"),
                "{again:?}"
            );
            assert_eq!(again.text(), first.text());
            seen.push(first.text());
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4, "{seen:?}");
    }
}

/// Cache-Status says `stored` only if the response is known to be stored when the head is sent.
#[test]
fn cache_status_says_stored_only_for_stored_responses() {
    let server = with_scripts(
        &[
            ("large", "head -c 2000000 /dev/zero"),
            ("dies", "echo some; kill -9 $$"),
            ("left", "echo $$; sleep 1000 &"),
        ],
        "",
    );
    for path in ["/large.sh", "/run/large.sh"] {
        for _ in 0..2 {
            let large = get(&server, path);
            assert_eq!((large.status, large.body.len()), (200, 2_000_000));
            assert!(
                !cache_status(&large).contains("stored"),
                "{path}: {}",
                cache_status(&large)
            );
        }
    }
    // A script was ended while its output was still open.
    let left = [(); 2].map(|()| get(&server, "/left.sh"));
    for left in &left {
        assert!(
            left.whole && !cache_status(left).contains("stored"),
            "{left:?}"
        );
    }
    assert_ne!(left[0].body, left[1].body);
    let dies = get(&server, "/dies.sh");
    assert!(
        !dies.whole && !cache_status(&dies).contains("stored"),
        "{dies:?}"
    );
    let line = server
        .output
        .wait_for("its line", |line| line.contains("GET /dies.sh "));
    assert!(line.contains("rule=R721"), "{line}");
}

/// The response to a script's internal redirect is shared by all clients, so only a target readable by all
/// clients is stored.
#[test]
fn guarded_targets_of_internal_redirects_are_not_stored() {
    let go = |to: &str| format!("#!/bin/sh\nprintf 'Location: {to}\\n\\n'\n");
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/private/index.html", "<p>secret</p>\n")
        .with("scripts/open", go("/index.html"))
        .with("public/members/index.html", "<p>members</p>\n")
        .with("scripts/guarded", go("/private/"))
        .with("scripts/member", go("/members/"))
        .with("users", format!("alice:{}\n", hash("secret")))
        .with("scripts/there", go("/run/back"))
        .with("scripts/back", go("/run/there"));
    for name in ["open", "guarded", "member", "there", "back"] {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(&format!("scripts/{name}")), mode).expect("a mode");
    }
    let config = server_table("")
        + &site_table("http = \"serve\"")
        + &format!("[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\ncache = {KEPT}\n")
        + "[[site.route]]\npath = \"/private\"\nallow = [\"127.0.0.1\"]\n"
        + "[[site.route]]\npath = \"/members\"\nusers = \"users\"\n";
    let server = Server::start_in(folder, &config);
    assert_eq!(get(&server, "/private/").text(), "<p>secret</p>\n");
    assert_eq!(get(&server, "/run/open").text(), "<p>hello</p>\n");
    assert!(cache_status(&get(&server, "/run/open")).starts_with("anthill; hit"));
    let from = |address: &str, more: &[&str], path: &str| {
        let ran = server.curl(
            &[
                &["--interface", address, "-w", " %{http_code}", "-D-", "-o-"],
                more,
                &[&server.http(path)],
            ]
            .concat(),
        );
        assert!(ran.success, "{}", ran.errors());
        assert!(!ran.text().contains("anthill; hit"), "{}", ran.text());
        ran.text()
    };
    for _ in 0..3 {
        // An admitted client gets the page, and no other client.
        let stranger = from("127.0.0.2", &[], "/run/guarded");
        assert!(stranger.ends_with(" 403"), "{stranger}");
        assert!(!stranger.contains("secret"), "{stranger}");
        let friend = from("127.0.0.1", &[], "/run/guarded");
        assert!(friend.ends_with("<p>secret</p>\n 200"), "{friend}");
        let nobody = from("127.0.0.1", &[], "/run/member");
        assert!(nobody.ends_with(" 401"), "{nobody}");
        let member = from("127.0.0.1", &["-u", "alice:secret"], "/run/member");
        assert!(member.ends_with("<p>members</p>\n 200"), "{member}");
        // Two scripts with internal redirects to each other end with an error, and do not wait for each
        // other for ever.
        let endless = get(&server, "/run/there");
        assert!(endless.status >= 500, "{endless:?}");
    }
}

/// A guard added by a reload or a restart covers the pages stored before, by every path to them.
#[test]
fn a_new_guard_covers_pages_stored_before() {
    let go = "#!/bin/sh\nprintf 'Location: /members/\\n\\n'\n";
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/members/index.html", "<p>members</p>\n")
        .with("users", format!("alice:{}\n", hash("secret")))
        .with("scripts/member", go);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path("scripts/member"), mode).expect("a mode");
    let kept = KEPT.replace('}', ", disk = true }");
    let config = |guard: &str| {
        let site = "http = \"serve\"\ntry = [\"$path\", \"/page/none\"]";
        let route = |path: &str, what: &str| format!("[[site.route]]\npath = \"{path}\"\n{what}\n");
        server_table("")
            + &site_table(site)
            + &route("/run", &format!("cgi = \"scripts\"\ncache = {kept}"))
            + &route("/page", &format!("test = \"page\"\ncache = {kept}"))
            + &route("/led", "rewrite = \"/page/led\"")
            + guard
    };
    let guards = [
        "[[site.route]]\npath = \"/members\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/page/none\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/page/led\"\nusers = \"users\"\n",
        "[[site.route]]\npath = \"/members\"\nallow = [\"192.0.2.1\"]\n\
         [[site.route]]\npath = \"/page\"\nallow = [\"192.0.2.1\"]\n",
    ];
    let paths = ["/run/member", "/led", "/nothing"];
    let mut server = Server::start_in(folder, &config(""));
    for (guard, refused) in guards.iter().zip([401, 403]) {
        for path in paths {
            assert_eq!(get(&server, path).status, 200, "{path}");
            let again = get(&server, path);
            assert!(
                cache_status(&again).starts_with("anthill; hit"),
                "{path}: {again:?}"
            );
        }
        server.reload(&config(guard));
        for path in paths {
            let other = get(&server, path);
            assert_eq!(other.status, refused, "{path}: {other:?}");
            assert!(!other.text().contains("members"), "{path}");
        }
        server.reload(&config(""));
    }
    for path in paths {
        assert_eq!(get(&server, path).status, 200, "{path}");
    }
    server.signal("TERM");
    assert_eq!(server.wait(Duration::from_secs(30)), Some(0));
    let server = Server::start_in(server.into_folder(), &config(guards[0]));
    for path in paths {
        assert_eq!(get(&server, path).status, 401, "{path}");
    }
}

/// A response requested under a guard and made without the guard is not shared after the guard is back.
#[test]
fn a_page_made_while_guards_change_is_not_stored() {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/members/index.html", "<p>members</p>\n")
        .with("users", format!("alice:{}\n", hash("secret")));
    let go = format!(
        "#!/bin/sh\necho x >> '{0}/began'\nwhile [ -e '{0}/hold' ]; do '{1}' 0.02; done\n\
         printf 'Location: /members/\\n\\n'\n",
        folder.path("").display(),
        tool("sleep").display()
    );
    folder.write("scripts/member", go);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path("scripts/member"), mode).expect("a mode");
    let route = format!("[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\ncache = {KEPT}\n");
    let open = server_table("") + &site_table("http = \"serve\"") + &route;
    let guarded = format!("{open}[[site.route]]\npath = \"/members\"\nusers = \"users\"\n");
    let server = Server::start_in(folder, &guarded);
    server.folder.write("hold", "");
    thread::scope(|scope| {
        let slow = scope.spawn(|| get(&server, "/run/member"));
        wait_until(PATIENCE, "the script", || {
            server.folder.path("began").exists().then_some(())
        });
        server.reload(&open);
        fs::remove_file(server.folder.path("hold")).expect("removed");
        let slow = slow.join().expect("an answer");
        assert!(slow.status == 200 && slow.text().contains("members"));
    });
    server.reload(&guarded);
    assert_eq!(get(&server, "/run/member").status, 401);
}
