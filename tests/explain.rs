//! `anthill explain`: what a server would do with a request, beside what the server does.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::support::{Done, Folder, Server, finish, lossy, program, server_table};

/// Asks in the folder of a configuration.
fn explain(folder: &Folder, arguments: &[&str]) -> Done {
    let mut all = vec!["explain"];
    all.extend(arguments);
    anthill_in(folder, &all)
}

fn anthill_in(folder: &Folder, arguments: &[&str]) -> Done {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(folder.path(""));
    finish(command, b"")
}

fn folder() -> Folder {
    let folder = Folder::new()
        .with("public/index.html", "<h1>home</h1>")
        .with("public/about.html", "about")
        .with("public/404.html", "nothing here")
        .with("public/files/a.txt", "a")
        .with("public/private/x.html", "x")
        .with("public/intern/x.html", "x")
        .with("public/draft.html~", "draft")
        .with("public/app.php", "<?php")
        .with("other/o.txt", "o");
    let mut command = Command::new(program());
    command.arg("passwd").arg(folder.path("users")).arg("alice");
    assert_eq!(finish(command, b"secret\n").code, Some(0));
    folder
}

fn config(member: &str) -> String {
    let site = "[[site]]\nnames = [\"localhost\"]\nroot = \"public\"\nhttp = \"serve\"\ntry = [\"$path\", \"$path.html\"]\nerrors = { 404 = \"404.html\" }\nlisting = true\n\
                headers = [{ files = \"*\", set = { \"X-Kind\" = \"page\" } }]\n\
                cache = [{ files = \"*.txt\", max_age = \"1h\" }]\n\
                redirects = [{ from = \"/moved\", to = \"/about\" }]\n";
    format!(
        "{}{site}\
         [[site.route]]\npath = \"/private/\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/intern/\"\nallow = [\"192.0.2.0/24\"]\n\
         [[site.route]]\npath = \"/old/\"\nredirect = \"/new/\"\n\
         [[site.route]]\npath = \"/closed/\"\nstatus = 410\n\
         [[site.route]]\npath = \"/other/\"\nroot = \"other\"\nmethods = [\"GET\"]\n\
         [[site.route]]\npath = \"/guide/\"\nrewrite = \"/about.html\"\n\
         [[site.route]]\npath = \"/\"\nfastcgi = \"127.0.0.1:9\"\nfiles = \".php\"\n\
         [[site.route]]\npath = \"/api/\"\nproxy = \"{member}\"\ncache = {{ seconds = 10 }}\n\
         [[site.route]]\npath = \"/sso/\"\nproxy = \"{member}\"\nauth = \"http://127.0.0.1:9/verify\"\nallow = [\"192.0.2.0/24\"]\nany = true\n\
         [[site.route]]\npath = \"/sso/in\"\nauth = false\n",
        server_table("")
    )
}

/// Returns the lines of a head, apart from those that differ in each response or need the port of a running server.
fn lines(head: &str) -> BTreeSet<String> {
    let left_out = ["date:", "alt-svc:", "connection:", "transfer-encoding:"];
    head.lines()
        .filter(|line| {
            !left_out
                .iter()
                .any(|it| line.to_ascii_lowercase().starts_with(it))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn an_explanation_has_the_head_of_the_response() {
    let server = Server::start_in(folder(), &config("http://127.0.0.1:9"));
    let login = "Authorization: Basic YWxpY2U6c2VjcmV0";
    let table: &[(&str, &str, &[&str])] = &[
        ("GET", "/", &[]),
        ("HEAD", "/", &[]),
        ("GET", "/about", &[]),
        ("GET", "/missing", &[]),
        ("GET", "/files", &[]),
        ("GET", "/files/", &[]),
        ("GET", "/files/a.txt", &["Range: bytes=0-0"]),
        ("GET", "/moved", &[]),
        ("GET", "/private/x.html", &[]),
        ("GET", "/private/x.html", &[login]),
        (
            "GET",
            "/private/x.html",
            &["Authorization: Basic YWxpY2U6d3Jvbmc="],
        ),
        ("GET", "/intern/x", &[]),
        ("GET", "/%69ntern/x", &[]),
        ("GET", "/old/a?b", &[]),
        ("GET", "/closed/", &[]),
        ("GET", "/draft.html~", &[]),
        ("GET", "/other/o.txt", &[]),
        ("POST", "/other/o.txt", &[]),
        ("GET", "/guide/", &[]),
        ("OPTIONS", "/", &[]),
        ("PURGE", "/", &[]),
        ("GET", "/..%2f", &[]),
    ];
    for (method, path, fields) in table {
        let head = fields.iter().map(|field| format!("{field}\r\n"));
        let head: String = head.collect();
        let length = if *method == "POST" {
            "Content-Length: 0\r\n"
        } else {
            ""
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}{length}Connection: close\r\n\r\n"
        );
        let answer = lossy(&server.tls_raw("localhost", request.as_bytes()));
        let (answered, _) = answer.split_once("\r\n\r\n").expect("a head");
        let url = format!("https://localhost{path}");
        let mut arguments = vec!["explain", "--client", "127.0.0.1", "-X", method];
        arguments.extend(fields.iter().flat_map(|field| ["-H", *field]));
        arguments.push(&url);
        let done = server.ask(&arguments);
        assert_eq!(done.code, Some(0), "{done:?}");
        match done.stdout.split_once("\n\n") {
            Some((_, explained)) => {
                assert_eq!(
                    lines(explained),
                    lines(answered),
                    "{method} {path} {fields:?}"
                );
            }
            // A malformed request has no site, so the explanation has the rule alone.
            None => {
                let status = answered.split(' ').nth(1).expect("a status");
                let answer = format!("answer   {status}, rule R");
                assert!(
                    done.stdout.contains(&answer),
                    "{path}: {}{answered}",
                    done.stdout
                );
            }
        }
    }
}

#[test]
fn an_explanation_names_the_site_the_route_the_guards_and_what_answers() {
    let folder = folder();
    folder.write("anthill.toml", config("http://127.0.0.1:9/v1/"));
    let told = |arguments: &[&str], parts: &[&str]| {
        let done = explain(&folder, arguments);
        assert_eq!(done.code, Some(0), "{done:?}");
        for part in parts {
            assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
        }
    };
    let site = "site     localhost  (anthill.toml:";
    told(
        &["https://localhost/about"],
        &[
            site,
            "route    none; the files",
            "public/about.html\n",
            "from 203.0.113.1",
        ],
    );
    told(
        &["localhost/api/list?all"],
        &[
            "route    /api/  (anthill.toml:",
            "answer   proxy to http://127.0.0.1:9, as /v1/",
            "page cache of 10 s",
            "sends    GET http://127.0.0.1:9/v1/list?all\n",
            "cache    page https://localhost/api/list?all, stored 10 s unless",
            "adds     X-Kind: page\n",
        ],
    );
    told(
        &["localhost/api/", "-H", "Cookie: a=1"],
        &["; with Cookie only if the response has a lifetime or is public\n"],
    );
    told(
        &["localhost/api/", "-X", "POST"],
        &["cache    not asked: only GET and HEAD are stored"],
    );
    told(
        &["localhost/app.php/more"],
        &[
            "FastCGI at 127.0.0.1:9 for files with .php, with the script /app.php",
            "public/app.php\n         SCRIPT_NAME /app.php\n         PATH_INFO /more\n",
        ],
    );
    told(
        &["localhost/intern/"],
        &[
            "guard    /intern/: allow 192.0.2.0/24: refuses 203.0.113.1  (anthill.toml:",
            "answer   403, rule R403",
        ],
    );
    told(
        &["localhost/intern/x", "--client", "192.0.2.9"],
        &[
            "guard    /intern/: allow 192.0.2.0/24: admits 192.0.2.9",
            "intern/x.html\n",
        ],
    );
    told(
        &["localhost/sso/"],
        &[
            "any of them: the server decides about the request  (anthill.toml:",
            "members  `anthill balancer` has the state of the members\n",
        ],
    );
    told(
        &["localhost/sso/in"],
        &[
            "any of them: turned off by `auth = false`: admits 203.0.113.1  (",
            "guard    /sso/in: no auth: admits 203.0.113.1  (anthill.toml:",
        ],
    );
    told(
        &["localhost/private/"],
        &["/private/: users of ", ": needs a login", "401"],
    );
    told(
        &["https://other.test/"],
        &["site     none has the name", "rule R406"],
    );
    told(&["localhost/files/"], &["answer   the list of the folder"]);
    told(&["localhost/old/x"], &["answer   a redirect to /new/x"]);
    let refused = |arguments: &[&str], message: &str, help: &str| {
        let done = explain(&folder, arguments);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(
            done.stderr.contains(message) && done.stderr.contains(help),
            "{done:?}"
        );
    };
    refused(
        &["ftp://localhost/"],
        "`ftp` is not the scheme",
        "https://www.example.org/path",
    );
    refused(&["localhost/a b"], "has a blank", "%20");
    refused(
        &["localhost:7/"],
        "no address for https has port 7",
        "the addresses are https://",
    );
    refused(
        &["localhost/", "-X", "G T"],
        "is not a method",
        "GET or POST",
    );
    refused(
        &["localhost/", "-H", "nothing"],
        "not a field",
        "Name: value",
    );
    refused(
        &["localhost/", "--client", "home"],
        "not an IP address",
        "192.168.0.7",
    );
}

/// Ten routes of all kinds: the list and the explanations say what answers, and by which route.
#[test]
fn the_longest_path_with_a_target_is_told() {
    let folder = folder();
    let routes = "\
        [[site.route]]\npath = \"/app/\"\nproxy = \"http://127.0.0.1:9\"\n\
        [[site.route]]\npath = \"/app/admin/\"\nusers = \"users\"\n\
        [[site.route]]\npath = \"/media/\"\nroot = \"other\"\ntry = [\"$path\", \"/media/o.txt\"]\n\
        [[site.route]]\npath = \"/api/\"\nproxy = \"http://127.0.0.1:9\"\ntry = [\"$path\", \"proxy\"]\n\
        [[site.route]]\npath = \"/\"\nbalance = \"app\"\ncache = { seconds = 10 }\n";
    let balancer = "[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9\"]\n";
    let site = "[[site]]\nnames = [\"localhost\"]\nroot = \"public\"\n";
    folder.write(
        "anthill.toml",
        format!("{}{site}{routes}{balancer}", server_table("")),
    );
    let done = anthill_in(&folder, &["check", "--routes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "  /app/admin/  as /app/; users of ",
        "/other, by try $path, /media/o.txt  (anthill.toml:",
        "  /api/        a file of the site first, else proxy to",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    let told = |path: &str| explain(&folder, &[&format!("localhost{path}")]).stdout;
    let admin = told("/app/admin/x");
    assert!(admin.contains("route    /app/  (anthill.toml:"), "{admin}");
    assert!(
        admin.contains("\n         the longest path with a target answers; / fits too\n"),
        "{admin}"
    );
    assert!(admin.contains("(alice): needs a login"), "{admin}");
    // The page cache of a route is one of its own answers.
    assert!(!admin.contains("page cache"), "{admin}");
    let media = told("/media/o.txt");
    assert!(
        media.contains("rule     /media/: try $path, /media/o.txt"),
        "{media}"
    );
    assert!(!media.contains("page cache"), "{media}");
    let home = told("/");
    assert!(home.contains("rule     /: page cache of 10 s"), "{home}");
    assert!(!home.contains("fits too"), "{home}");
}

#[test]
fn a_check_prints_the_routes_of_each_site() {
    let folder = folder();
    folder.write("anthill.toml", config("http://127.0.0.1:9"));
    let done = anthill_in(&folder, &["check", "--routes"]);
    for line in [
        "\nlocalhost:\n",
        "  /          files of ",
        "/public; allow 192.0.2.0/24  (anthill.toml:",
        "/users (alice)  (anthill.toml:",
        "  /closed/   closed with 410  (anthill.toml:",
        "  /sso/in    as /sso/; no auth  (anthill.toml:",
        "\nthe order does not matter: of the paths that fit a request, the longest with a target answers",
        "  /other/    files of ",
        "; methods GET, HEAD  (anthill.toml:",
        "  /api/      proxy to http://127.0.0.1:9; page cache of 10 s",
    ] {
        assert!(done.stdout.contains(line), "{line}: {}", done.stdout);
    }
    let done = anthill_in(&folder, &["check"]);
    assert!(!done.stdout.contains("localhost:\n"), "{done:?}");
}

/// Answers one request, and returns its head.
fn answer_once(listener: &TcpListener) -> String {
    let (socket, _) = listener.accept().expect("a request");
    let mut reader = BufReader::new(&socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a line") > 0, "{head}");
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    (&socket).write_all(answer).expect("a response");
    head
}

#[test]
fn an_explanation_has_the_request_that_a_member_gets() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let member = format!("http://{}/v1/", listener.local_addr().expect("an address"));
    let server = Server::start_in(folder(), &config(&member));
    for (method, path) in [("GET", "/api/a%20b?x=1"), ("DELETE", "/api/list")] {
        let done = server.ask(&[
            "explain",
            "--client",
            "127.0.0.1",
            "-X",
            method,
            "-H",
            "Accept: text/plain",
            "-H",
            "Connection: close",
            &format!("https://localhost{path}"),
        ]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\
             Connection: close\r\n\r\n"
        );
        let (sent, answered) = thread::scope(|scope| {
            let sent = scope.spawn(|| answer_once(&listener));
            let answered = server.tls_raw("localhost", request.as_bytes());
            (sent.join().expect("a request"), lossy(&answered))
        });
        let (line, fields) = sent.split_once("\r\n").expect("a request line");
        let target = line.split(' ').nth(1).expect("a target");
        let place = format!("sends    {method} {}{target}\n", member.replace("/v1/", ""));
        assert!(done.stdout.contains(&place), "{place}{}", done.stdout);
        let told: Vec<&str> = done.stdout.lines().map(str::trim_start).collect();
        // Each process has a name of its own in Via.
        for field in fields
            .lines()
            .filter(|it| !it.is_empty() && !it.starts_with("Via"))
        {
            assert!(told.contains(&field), "{field}: {}", done.stdout);
        }
        let added = told.iter().skip_while(|line| !line.starts_with("adds"));
        let added: Vec<&str> = added
            .map(|line| line.strip_prefix("adds").unwrap_or(line).trim_start())
            .filter(|line| !line.is_empty())
            .collect();
        assert!(added.contains(&"X-Kind: page"), "{added:?}");
        for field in added {
            assert!(
                answered.contains(&format!("{field}\r\n")),
                "{field}: {answered}"
            );
        }
    }
}
