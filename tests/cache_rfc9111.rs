//! The page cache and RFC 9111: the age of pages, updates by a 304, the stored statuses, requests with
//! Authorization, and the clients that get a failure.

use std::thread;
use std::time::Duration;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Response, Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table, tool};

/// Starts a server with two routes behind a page cache: `/page` is the test handler, `/run` a folder of
/// CGI scripts.
fn server(cache: &str, site: &str, scripts: &[(&str, &str)]) -> Server {
    let mut folder = Folder::new()
        .with("public/index.html", "x")
        .with("scripts/none.sh", "");
    for (name, text) in scripts {
        folder = folder.with(&format!("scripts/{name}.sh"), text);
    }
    let shell = tool("sh").display().to_string();
    let config = server_table("h2c = true")
        + "[log]\naccess = \"off\"\n"
        + &site_table(&format!("http = \"serve\"\n{site}"))
        + &format!("[[site.route]]\npath = \"/page\"\ntest = \"page\"\ncache = {cache}\n")
        + &format!(
            "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n\
             interpreter = {{ \".sh\" = \"{shell}\" }}\ncache = {cache}\n"
        );
    Server::start_in(folder, &config)
}

const PATIENCE: Duration = Duration::from_secs(60);

fn get(server: &Server, path: &str, fields: &str) -> Response {
    Wire::plain(server).get(path, fields)
}

/// Returns the number of the call that made a response of the test handler.
fn call_number(response: &Response) -> u64 {
    let text = response.text();
    let number = text.strip_prefix("call ").and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..end].parse().ok()
    });
    number.unwrap_or_else(|| panic!("no call in {response:?}"))
}

fn values<'r>(response: &'r Response, name: &str) -> Vec<&'r str> {
    let fields = response.fields.iter();
    let named = fields.filter(|(its, _)| its.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

fn open(server: &Server, gate: &str) {
    Wire::plain(server).ask("POST", &format!("/page/other?open={gate}"), "");
}

/// A failure is for the clients that waited for the call. A client that has received the failure may
/// ask again before the cache knows that the call has ended; the second request makes a call of its
/// own.
#[test]
fn a_delivered_failure_is_not_shared() {
    let server = server("{ seconds = 1000 }", "", &[]);
    for (nth, status) in [500, 502, 503].into_iter().enumerate() {
        for over in BOTH {
            let before = server.counter("cache_calls");
            // The client gets the whole content while the handler goes on: the gate stays shut.
            let path = format!("/page/{nth}{over:?}?status={status}&size=100&end=shut");
            for calls in 1..4 {
                let failed = Wire::over(&server, over).get(&path, "");
                assert_eq!((failed.status, failed.body.len()), (status, 100));
                assert_eq!(call_number(&failed), calls, "{failed:?}");
            }
            assert_eq!(server.counter("cache_calls"), before + 3);
        }
    }
    assert_eq!(server.counter("cache_waits"), 0);
    // A successful response is shared before the call ends, and also afterwards.
    let path = "/page?size=100&end=go";
    assert_eq!(call_number(&get(&server, path, "")), 1);
    assert_eq!(call_number(&get(&server, path, "")), 1);
    open(&server, "go");
    wait_until(PATIENCE, "the stored page", || {
        (server.counter("kept_pages") == 1).then_some(())
    });
    assert_eq!(call_number(&get(&server, path, "")), 1);
}

/// Date and Age give the age of a response on receipt (RFC 9111 §4.2.3).
#[test]
fn a_response_may_be_too_old_to_be_stored() {
    let server = server("true", "", &[]);
    let old = "f=Date:Sun,%2006%20Nov%201994%2008:49:37%20GMT";
    let future = |name: &str, time: &str| format!("f={name}:Thu,%2001%20Jan%202099%20{time}%20GMT");
    let before_date = [future("Expires", "00:05:00"), future("Date", "00:06:40")].join("&");
    let behind_date = [future("Expires", "00:05:00"), future("Date", "00:00:00")].join("&");
    let table = [
        (&*format!("f=Cache-Control:max-age=3600&{old}"), false),
        // The lifetime is 63 years.
        (&*format!("f=Cache-Control:max-age=2000000000&{old}"), true),
        (&*before_date, false),
        (&*behind_date, true),
        (&*format!("{behind_date}&f=Age:299"), true),
        (&*format!("{behind_date}&f=Age:300"), false),
        ("f=Cache-Control:max-age=3600&f=Age:7200,%200", false),
        ("f=Cache-Control:max-age=3600&f=Age:7200&f=Age:0", false),
        ("f=Cache-Control:max-age=3600&f=Age:0,%207200", true),
        ("f=Cache-Control:max-age=3600&f=Age:nonsense", true),
        ("f=Expires:thu,%2001%20jan%202099%2000:00:00%20gmt", true),
    ];
    for (nth, (more, kept)) in table.into_iter().enumerate() {
        let path = format!("/page/{nth}?{more}");
        let calls = [(); 3].map(|()| call_number(&get(&server, &path, "")));
        let expected = if kept { [1, 1, 1] } else { [1, 2, 3] };
        assert_eq!(calls, expected, "{more}");
    }
}

/// Each response has one Date and one Age: the first response has the values of the script, and later
/// responses have the values of the stored page.
#[test]
fn date_and_age_are_those_of_the_response() {
    let when = "Mon, 01 Jan 2001 00:00:00 GMT";
    let script = format!(
        "printf 'Content-Type: text/plain\\nDate: {when}\\nAge: 30\\n'\n\
         printf 'Cache-Control: %s\\n\\nhello' \"$QUERY_STRING\"\n"
    );
    let server = server("true", "", &[("a", &script)]);
    for over in BOTH {
        // The first response is not stored, the second is stored for 63 years.
        for (control, kept) in [("no-store", false), ("max-age=2000000000", true)] {
            let path = format!("/run/a.sh?{control}");
            let mut h2 = H2::open(&server, over);
            let mut wire = Wire::over(&server, over);
            let responses = [
                wire.get(&path, ""),
                wire.get(&path, ""),
                h2.get(&path),
                wire.ask("HEAD", &path, ""),
            ];
            for (nth, response) in responses.iter().enumerate() {
                assert_eq!(values(response, "date"), [when], "{response:?}");
                let age = values(response, "age");
                assert_eq!(age.len(), 1, "{response:?}");
                let age: u64 = age[0].parse().expect("a number");
                // The Age is 30 as the script sends it, and more than 20 years for a stored page.
                assert_eq!(age == 30, !kept || nth == 0, "{response:?}");
                assert!(age == 30 || age > 630_000_000, "{response:?}");
            }
        }
    }
    // The server adds a Date to a response without one.
    let plain = get(&server, "/page?f=Cache-Control:no-store", "");
    assert_eq!(values(&plain, "date").len(), 1, "{plain:?}");
    assert_eq!(values(&plain, "server"), ["anthill"], "{plain:?}");
}

#[cfg(feature = "http3")]
#[test]
fn a_script_has_its_own_date_over_http_3() {
    let script = "printf 'Content-Type: text/plain\\nDate: Mon, 01 Jan 2001 00:00:00 GMT\\n\\n'\n";
    let server = server(
        "true",
        "",
        &[("a", script), ("b", "printf 'Status: 200\\n\\n'")],
    );
    let said = crate::h3::run_scenario(&server, &["ask", "GET /run/a.sh", "GET /run/b.sh"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (line, is_own) in lines.iter().zip([true, false]) {
        assert_eq!(line.matches("\"date\"").count(), 1, "{line}");
        assert_eq!(line.contains("\"Mon, 01 Jan 2001"), is_own, "{line}");
        assert_eq!(line.matches("\"server\"").count(), 1, "{line}");
    }
}

/// A 304 updates all fields of a page except the fields that describe the bytes of the content (RFC
/// 9111 §3.2).
#[test]
fn a_304_updates_the_stored_fields() {
    let script = "\
        printf 'ETag: \"t\"\\nCache-Control: max-age=0, stale-if-error=1000\\n'\n\
        if [ -n \"$HTTP_IF_NONE_MATCH\" ]; then new=2; printf 'Status: 304\\n'; else new=1; fi\n\
        printf 'Content-Type: text/x-%s\\nContent-Language: x-%s\\n' $new $new\n\
        printf 'Content-Digest: %s\\n' $new\n\
        printf 'X-Own: %s\\nContent-Security-Policy: %s\\nContent-Location: /%s\\n' $new $new $new\n\
        printf '\\ncontent %s' $new\n";
    let server = server("true", "", &[("a", script)]);
    for (expected, old) in [("1", "1"), ("2", "1"), ("2", "1")] {
        let page = get(&server, "/run/a.sh", "");
        assert_eq!((page.status, page.text().as_str()), (200, "content 1"));
        let text = format!("{page:?}");
        assert_eq!(values(&page, "x-own"), [expected], "{text}");
        assert_eq!(
            values(&page, "content-security-policy"),
            [expected],
            "{text}"
        );
        assert_eq!(values(&page, "content-location"), [format!("/{expected}")]);
        assert_eq!(values(&page, "content-type"), [format!("text/x-{old}")]);
        assert_eq!(values(&page, "content-language"), [format!("x-{old}")]);
        assert_eq!(values(&page, "content-digest"), [old], "{text}");
        assert_eq!(values(&page, "date").len(), 1, "{text}");
    }
    // A client that has the page gets the new fields in a 304.
    let known = get(&server, "/run/a.sh", "If-None-Match: \"t\"\r\n");
    assert_eq!(known.status, 304, "{known:?}");
    assert_eq!(values(&known, "content-security-policy"), ["2"]);
    assert_eq!(values(&known, "content-type"), [""; 0]);
    assert_eq!(server.counter("cache_calls"), 4);
}

/// A response is stored for its stated lifetime, with any final status except the statuses that forbid
/// storage.
#[test]
fn any_final_status_with_a_lifetime_is_stored() {
    let server = server("true", "", &[]);
    for status in [299, 400, 403, 405, 499, 500, 502, 503, 504, 599] {
        let path = format!("/page/{status}?status={status}&f=Cache-Control:max-age=1000");
        let calls = [(); 2].map(|()| call_number(&get(&server, &path, "")));
        assert_eq!(calls, [1, 1], "{status}");
        let path = format!("/page/silent{status}?status={status}");
        let calls = [(); 2].map(|()| call_number(&get(&server, &path, "")));
        assert_eq!(calls, [1, 2], "{status}");
    }
    for more in [
        "status=206",
        "status=428",
        "status=429",
        "status=431",
        "status=511",
        "status=503&f=Set-Cookie:a=b",
        "status=503&f=Vary:*",
    ] {
        let path = format!("/page/{more}?{more}&f=Cache-Control:max-age=1000");
        let calls = [(); 2].map(|()| call_number(&get(&server, &path, "")));
        assert_eq!(calls, [1, 2], "{more}");
    }
    // A stale page takes precedence over a failure with a lifetime of its own.
    let path = "/page/old?f=Cache-Control:max-age=0,%20stale-if-error=1000&status=200,503";
    let statuses = [(); 3].map(|()| get(&server, path, "").status);
    assert_eq!(statuses, [200, 200, 200]);
}

/// The operator's `headers` set the lifetime of pages, and not of a 401 or a failure.
#[test]
fn the_operators_cache_control_applies_to_pages_only() {
    let site =
        "headers = [{ files = \"*\", set = { \"Cache-Control\" = \"public, max-age=1000\" } }]";
    let server = server("true", site, &[]);
    for (status, is_page) in [
        (200, true),
        (302, true),
        (404, true),
        (410, true),
        (401, false),
        (403, false),
        (500, false),
        (503, false),
    ] {
        let path = format!("/page/{status}?status={status}");
        let first = get(&server, &path, "");
        assert_eq!(
            values(&first, "cache-control").len(),
            usize::from(is_page),
            "{first:?}"
        );
        let calls = [call_number(&first), call_number(&get(&server, &path, ""))];
        assert_eq!(calls, if is_page { [1, 1] } else { [1, 2] }, "{status}");
    }
}

const ANN: &str = "Authorization: Basic YW5uOmE=\r\n";
const BOB: &str = "Authorization: Basic Ym9iOmI=\r\n";

/// A response to a request with Authorization is stored only if the response is marked as shareable (RFC
/// 9111 §3.5).
#[test]
fn a_response_to_authorization_is_stored_only_if_marked_shareable() {
    let server = server("{ seconds = 1000 }", "", &[]);
    for (nth, control) in ["public", "s-maxage=1000", "max-age=1000,%20must-revalidate"]
        .iter()
        .enumerate()
    {
        let path = format!("/page/{nth}?f=Cache-Control:{control}");
        assert_eq!(call_number(&get(&server, &path, ANN)), 1);
        for fields in ["", ANN, BOB] {
            let page = get(&server, &path, fields);
            assert_eq!(call_number(&page), 1, "{control} {fields}: {page:?}");
        }
    }
    for (nth, more) in [
        "",
        "f=Cache-Control:max-age=1000",
        "f=Cache-Control:private,%20max-age=1000",
        "f=Cache-Control:public,%20max-age=1000&f=Set-Cookie:a=b",
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/page/own{nth}?{more}");
        let calls = [ANN, ANN, BOB, ""].map(|fields| call_number(&get(&server, &path, fields)));
        assert_eq!(calls, [1, 2, 3, 4], "{more}");
    }
}

/// A request with Authorization never waits for the call of another request, and the handler gets its
/// conditional fields.
#[test]
fn requests_with_authorization_are_not_collapsed() {
    let server = server("{ seconds = 1000 }", "", &[]);
    let path = "/page?gate=go&f=Cache-Control:public";
    let clients: Vec<_> = [ANN, BOB, ANN, ""]
        .into_iter()
        .map(|fields| {
            let mut wire = Wire::plain(&server);
            wire.patience(PATIENCE);
            thread::spawn(move || wire.get(path, fields))
        })
        .collect();
    // All four requests are under way before the first is answered.
    wait_until(PATIENCE, "four calls", || {
        (server.counter("cache_calls") == 4).then_some(())
    });
    assert_eq!(server.counter("cache_waits"), 0);
    open(&server, "go");
    let mut calls: Vec<u64> = clients
        .into_iter()
        .map(|client| call_number(&client.join().expect("a client")))
        .collect();
    calls.sort_unstable();
    assert_eq!(calls, [1, 2, 3, 4]);

    let path = "/page/b?f=ETag:%22t%22&revalidates&f=Cache-Control:private";
    let known = get(&server, path, &format!("{ANN}If-None-Match: \"t\"\r\n"));
    assert_eq!(known.status, 304, "{known:?}");
    let head = Wire::plain(&server).ask("HEAD", path, ANN);
    assert_eq!(
        head.field("content-length"),
        Some("14"),
        "a HEAD request reaches the handler as HEAD: {head:?}"
    );
}

/// A stale page for all clients stays in the cache when a request with a login gets another response.
#[test]
fn a_response_to_a_login_does_not_remove_a_stored_page() {
    let script = "\
        if [ -n \"$HTTP_AUTHORIZATION\" ]; then printf 'Status: 403\\n\\n'; exit; fi\n\
        if [ -f made ]; then printf 'Status: 503\\n\\n'; exit; fi\n\
        touch made\n\
        printf 'Cache-Control: public, max-age=0, stale-if-error=1000\\n'\n\
        printf 'Content-Type: text/plain\\n\\nhello'\n";
    let server = server("true", "", &[("a", script)]);
    assert_eq!(get(&server, "/run/a.sh", "").status, 200);
    wait_until(PATIENCE, "the stored page", || {
        (server.counter("kept_pages") == 1).then_some(())
    });
    assert_eq!(get(&server, "/run/a.sh", ANN).status, 403);
    let stale = get(&server, "/run/a.sh", "");
    assert_eq!(
        (stale.status, stale.text().as_str()),
        (200, "hello"),
        "{stale:?}"
    );
}

/// Without Last-Modified, If-Modified-Since is compared with the Date of the page (RFC 9111 §4.3.2).
#[test]
fn if_modified_since_is_compared_with_date_without_last_modified() {
    let server = server("true", "", &[]);
    let path =
        "/page?f=Cache-Control:max-age=2000000000&f=Date:Mon,%2001%20Jan%202001%2000:00:00%20GMT";
    assert_eq!(get(&server, path, "").status, 200);
    for (field, day, status) in [
        ("If-Modified-Since", "Mon, 01 Jan 2001 00:00:00 GMT", 304),
        ("If-Modified-Since", "Tue, 02 Jan 2001 00:00:00 GMT", 304),
        ("If-Modified-Since", "Sun, 31 Dec 2000 23:59:59 GMT", 200),
        // Date is no bound for the age of the content, which may be older than its response.
        ("If-Unmodified-Since", "Sun, 31 Dec 2000 23:59:59 GMT", 200),
        ("If-Range", "Mon, 01 Jan 2001 00:00:00 GMT", 200),
    ] {
        let fields = format!("{field}: {day}\r\nRange: bytes=0-1\r\n");
        let fields = match field {
            "If-Range" => fields,
            _ => format!("{field}: {day}\r\n"),
        };
        let response = get(&server, path, &fields);
        assert_eq!(response.status, status, "{field}: {day}: {response:?}");
    }
    assert_eq!(server.counter("cache_calls"), 1);
}

/// Fields named by Connection concern only the script's connection and are not forwarded.
#[test]
fn fields_named_by_connection_are_not_stored() {
    let script = "printf 'Content-Type: text/plain\\nConnection: X-A, Cache-Control\\nX-A: 1\\n'\n\
        printf 'X-B: 2\\nCache-Control: %s\\n\\n' $QUERY_STRING\n";
    let server = server("true", "", &[("a", script)]);
    for (control, calls) in [("max-age=1000", 1), ("private,max-age=1000", 3)] {
        for _ in 0..2 {
            let page = get(&server, &format!("/run/a.sh?{control}"), "");
            assert_eq!(values(&page, "x-a"), [""; 0], "{page:?}");
            assert_eq!(values(&page, "x-b"), ["2"], "{page:?}");
            assert_eq!(values(&page, "cache-control"), [control], "{page:?}");
        }
        assert!(server.counter("cache_calls") <= calls);
    }
    assert_eq!(server.counter("kept_pages"), 1);
}
