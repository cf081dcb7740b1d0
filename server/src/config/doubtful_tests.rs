//! Tests of the warnings about settings that contradict one another, and about missing or unreadable files.

use crate::config::{check, load};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Returns the warnings of a configuration in a folder that `prepare` fills. `DIR` in the text is the folder.
fn warnings_in(prepare: impl Fn(&Path), text: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    for file in ["public/index.html", "public/a/b.html"] {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, "ant").expect("a file");
    }
    prepare(dir.path());
    let text = text.replace("DIR", &dir.path().display().to_string());
    let text = if text.contains("[server]") {
        text.replace("[server]\n", "[server]\nstate = \"state\"\n")
    } else {
        format!("[server]\nstate = \"state\"\n{text}")
    };
    let file = dir.path().join("anthill.toml");
    fs::write(&file, &text).expect("a file");
    let config = load(&file).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let found = check(&config).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let found: Vec<String> = found.iter().map(|it| it.as_warning()).collect();
    found.join("\n")
}

fn warnings(text: &str) -> String {
    warnings_in(|_| (), text)
}

/// Asserts that each configuration has one warning, with the line and the help.
fn assert_doubted(cases: &[(&str, &str, &str)]) {
    for (text, what, help) in cases {
        let found = warnings(text);
        let is_there = found.contains(what) && found.contains(help);
        assert!(is_there, "{text}\n{found}");
        assert!(found.contains("anthill.toml:"), "{text}\n{found}");
    }
}

/// Asserts that none of the configurations has a warning with one of the words.
fn assert_fine(words: &[&str], cases: &[&str]) {
    for text in cases {
        let found = warnings(text);
        let is_there = words.iter().any(|word| found.contains(word));
        assert!(!is_there, "{text}\n{found}");
    }
}

const ROUTE: &str = "[[site.route]]\npath = \"/\"\n";

#[test]
fn redirects_in_a_circle_over_sites_are_doubted_once() {
    let site = |name: &str, to: &str| {
        format!("[[site]]\nnames = [\"{name}\"]\n{ROUTE}redirect = \"{to}\"\n")
    };
    let two = site("a.example.org", "https://b.example.org/")
        + &site("b.example.org", "http://a.example.org");
    let found = warnings(&two);
    let circle =
        "the redirects lead in a circle: a.example.org/ -> b.example.org/ -> a.example.org/";
    assert!(found.contains(circle), "{found}");
    assert!(found.contains("anthill.toml:7"), "{found}");
    assert!(
        found.contains("help: remove one of the redirects"),
        "{found}"
    );
    assert_eq!(found.matches("in a circle").count(), 1, "{found}");
    let three = site("a.example.org", "https://b.example.org/x")
        + &site("b.example.org", "https://c.example.org/x")
        + &site("c.example.org", "https://a.example.org/x");
    assert!(
        warnings(&three)
            .contains("a.example.org/ -> b.example.org/x -> c.example.org/x -> a.example.org/x")
    );
    assert_fine(
        &["in a circle"],
        &[
            // The last site has pages, another route answers, or the port is another server.
            &(site("a.example.org", "https://b.example.org/")
                + "[[site]]\nnames = [\"b.example.org\"]\n"),
            &(site("a.example.org", "https://b.example.org/x/")
                + &site("b.example.org", "https://a.example.org/")
                + "[[site.route]]\npath = \"/x/\"\nroot = \"public\"\n"),
            &(site("a.example.org", "https://b.example.org/")
                + &site("b.example.org", "https://a.example.org:8443/")),
        ],
    );
}

#[test]
fn members_that_are_this_server_or_one_server_are_doubted() {
    let proxy = |server: &str, url: &str| {
        format!(
            "[server]\n{server}\n[[site]]\nnames = [\"www.shop.test\"]\n{ROUTE}proxy = \"{url}\"\n"
        )
    };
    let https = "https = \"127.0.0.1:443\"";
    assert_doubted(&[
        (
            &proxy(https, "https://www.shop.test"),
            "the member www.shop.test is a name of this server, so a request perhaps comes back, and gets 508",
            "write the address of the application, which needs a port of its own",
        ),
        (
            &format!(
                "[[site]]\nroot = \"public\"\n{ROUTE}balance = \"app\"\n[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9001\", \"http://localhost:9001\"]\n"
            ),
            "127.0.0.1:9001 and localhost:9001 are one server, which gets the requests of two members",
            "remove one of the members",
        ),
    ]);
    assert_fine(
        &["this server", "one server"],
        &[
            &proxy(https, "https://www.shop.test:9443"),
            &proxy(https, "https://app.shop.test"),
            &proxy(
                "http = \":8080\"\nhttps = \"off\"",
                "http://192.0.2.77:8080",
            ),
            &format!(
                "[[site]]\nroot = \"public\"\n{ROUTE}balance = \"app\"\n[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9001\", \"http://localhost:9002\", \"http://192.0.2.1:9001\"]\n"
            ),
        ],
    );
}

#[test]
fn an_address_of_this_machine_as_member_is_this_server() {
    // The address of the route to another network, if the machine has one.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let own = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    let Some(own) = own.ok().map(|it| it.ip()).filter(|it| !it.is_loopback()) else {
        return;
    };
    let text = format!(
        "[server]\nhttp = \":8080\"\nhttps = \"off\"\n[[site]]\nhttp = \"serve\"\n{ROUTE}proxy = \"http://{own}:8080\"\n"
    );
    let found = warnings(&text);
    let what = format!("the member {own}:8080 is this server: {own} is an address of this machine");
    assert!(found.contains(&what), "{found}");
    assert!(
        !warnings(&text.replace("http = \":8080\"", "http = \":8081\"")).contains("is this server")
    );
}

#[test]
fn rules_for_caches_that_contradict_one_another_are_doubted() {
    let header = |files: &str| {
        format!(
            "headers = [{{ files = \"{files}\", set = {{ \"cache-control\" = \"no-store\" }} }}]\n"
        )
    };
    let cache = "[[site]]\ncache = [{ files = \"*.html\", max_age = \"1m\" }]\n";
    let immutable = "{ files = \"*\", max_age = \"365d\", immutable = true }";
    assert_doubted(&[
        (
            &format!("{cache}{}", header("*.html")),
            "the rule of `cache` for `*.html` has no effect, because `headers` in line 5 sets Cache-Control for the same files",
            "remove Cache-Control from `headers`, or the rule of `cache`",
        ),
        (
            &format!("[[site]]\ncache = \"hashed\"\n{}", header("*")),
            "\"hashed\" of `cache` has no effect",
            "remove Cache-Control from `headers`",
        ),
        (
            &format!("[[site]]\ncache = [{immutable}]\n"),
            "`immutable` holds for the page a/b.html: browsers keep the page",
            "{ files = \"*.html\", max_age = \"5m\" }",
        ),
    ]);
    assert_fine(
        &["has no effect", "`immutable` holds"],
        &[
            &format!("{cache}{}", header("*.css")),
            &format!(
                "[[site]]\ncache = [{{ files = \"*.html\", max_age = \"1m\" }}, {immutable}]\n"
            ),
            "[[site]]\ncache = [{ files = \"*.css\", max_age = \"365d\", immutable = true }]\n",
            "[[site]]\ncache = \"hashed\"\n",
        ],
    );
}

#[test]
fn keys_of_handlers_for_files_and_keys_of_files_beside_a_handler_are_doubted() {
    let route = "[[site]]\n[[site.route]]\npath = \"/a/\"\n";
    let proxy = "[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:9000\"\n";
    assert_doubted(&[
        (
            &format!("{route}methods = [\"POST\"]\n"),
            "every request below /a/ gets 405: `methods` lacks GET, and files have no other method",
            "add \"GET\" and \"HEAD\" to `methods`",
        ),
        (
            &format!("{route}body_bytes = \"1MiB\"\n"),
            "`body_bytes` of the route /a/ has no effect: the route has files, which take no content",
            "write the key in the route of the handler",
        ),
        (
            &format!("[[site]]\nlisting = true\n{proxy}"),
            "`listing` has no effect, because the route / answers every path",
            "a route with `root`",
        ),
        (
            &format!(
                "[[site]]\n{ROUTE}fastcgi = \"unix:/run/php/php8.2-fpm.sock\"\nfiles = \"*\"\n"
            ),
            "php-fpm gets every path below / by files = \"*\"",
            "write files = \".php\"",
        ),
    ]);
    assert_fine(
        &["405", "`body_bytes`", "`listing`", "php-fpm"],
        &[
            &format!("{route}methods = [\"GET\", \"HEAD\"]\n"),
            &format!("{route}methods = [\"POST\"]\n{proxy}"),
            &format!("{route}body_bytes = \"1MiB\"\nproxy = \"http://127.0.0.1:9000\"\n"),
            &format!(
                "{route}body_bytes = \"1MiB\"\n{ROUTE}fastcgi = \"127.0.0.1:9000\"\nfiles = \".php\"\n"
            ),
            &format!(
                "[[site]]\nlisting = true\n{proxy}[[site.route]]\npath = \"/files/\"\nroot = \"public\"\n"
            ),
            &format!(
                "[[site]]\nlisting = true\n{}",
                proxy.replace("\"/\"", "\"/app/\"")
            ),
            &format!("[[site]]\n{ROUTE}fastcgi = \"unix:/run/app.sock\"\nfiles = \"*\"\n"),
        ],
    );
}

#[test]
fn values_of_examples_and_bounds_of_heads_are_doubted() {
    let acme = |email: &str, directory: &str| {
        format!(
            "[tls]\nacme = {{ email = \"{email}\"{directory} }}\n[[site]]\nnames = [\"www.my-shop.de\"]\n"
        )
    };
    let limits = |limits: &str| format!("[server]\nlimits = {{ {limits} }}\n[[site]]\n");
    assert_doubted(&[
        (
            &acme("me@example.org", ""),
            "me@example.org is an address of an example: Let's Encrypt refuses example.org",
            "write your own e-mail address, or remove `email`",
        ),
        (
            &acme(
                "me@mail.example.com",
                ", directory = \"letsencrypt-staging\"",
            ),
            "me@mail.example.com is an address of an example",
            "write your own e-mail address",
        ),
        (
            "[server]\nhttps = \":443\"\nhttp = \":80\"\n[[site]]\nnames = [\"www.my-shop.de\"]\n",
            "www.my-shop.de at port 443 has a self-signed certificate, which browsers refuse",
            "write acme = { email = \"YOUR ADDRESS\" } in [tls]",
        ),
        (
            &limits("head_bytes = \"1KiB\""),
            "head_bytes = 1024 is less than the heads of browsers",
            "write head_bytes = \"8KiB\" or more",
        ),
        (
            &limits("head_bytes = \"4KiB\", request_line_bytes = \"6KiB\""),
            "head_bytes = 4096 is less than request_line_bytes = 6144",
            "raise head_bytes, or lower request_line_bytes",
        ),
    ]);
    assert_fine(
        &["of an example", "self-signed", "head_bytes"],
        &[
            &acme("me@my-shop.de", ""),
            &acme(
                "me@example.org",
                ", directory = \"https://ca.my-shop.de/directory\"",
            ),
            "[server]\nhttps = \":8443\"\n[[site]]\nnames = [\"www.my-shop.de\"]\n",
            "[server]\nhttps = \"127.0.0.1:443\"\n[[site]]\nnames = [\"www.my-shop.de\"]\n",
            "[server]\nhttps = \":443\"\n[[site]]\nnames = [\"shop.local\", \"www.example.org\"]\n",
            "[server]\nhttps = \":443\"\ntrust = [\"10.0.0.0/8\"]\n[[site]]\nnames = [\"www.my-shop.de\"]\n",
            &limits("head_bytes = \"4KiB\""),
        ],
    );
}

#[test]
fn missing_sockets_are_doubted_with_those_of_the_folder() {
    let socket = |name: &str| format!("[[site]]\n{ROUTE}proxy = \"http://unix:DIR/{name}\"\n");
    let prepare = |dir: &Path| {
        drop(UnixListener::bind(dir.join("other.sock")).expect("a socket"));
    };
    let found = warnings_in(prepare, &socket("app.sock"));
    assert!(found.contains("there is no socket /"), "{found}");
    assert!(
        found.contains("/app.sock at the moment: requests get 502"),
        "{found}"
    );
    assert!(
        found.contains("the folder has /") && found.contains("/other.sock"),
        "{found}"
    );
    let found = warnings_in(prepare, &socket("other.sock"));
    assert!(!found.contains("no socket"), "{found}");
    let found = warnings(
        "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = \"unix:DIR/fpm.sock\"\nfiles = \".php\"\n",
    );
    assert!(found.contains("/fpm.sock at the moment"), "{found}");
    assert!(
        found.contains("help: start the application, or write the path of its socket"),
        "{found}"
    );
}

#[test]
fn links_out_of_the_root_and_unreadable_files_are_doubted() {
    let links = |dir: &Path| {
        fs::write(dir.join("out.html"), "ant").expect("a file");
        symlink("../out.html", dir.join("public/x.html")).expect("a link");
        symlink("../out.html", dir.join("public/y.html")).expect("a link");
        symlink("index.html", dir.join("public/inside.html")).expect("a link");
        symlink("nowhere", dir.join("public/broken.html")).expect("a link");
    };
    let found = warnings_in(links, "[[site]]\nroot = \"public\"\n");
    assert!(found.contains("/public/x.html is a link to /"), "{found}");
    assert!(
        found.contains(", and gets 404, and 1 further file"),
        "{found}"
    );
    assert!(
        found.contains("help: write symlinks = \"follow\" in the site"),
        "{found}"
    );
    for text in [
        "[[site]]\nroot = \"public\"\nsymlinks = \"follow\"\n",
        "[[site]]\nroot = \"public\"\nhide = [\"x.html\", \"y.html\"]\n",
    ] {
        let found = warnings_in(links, text);
        assert!(!found.contains("is a link to"), "{found}");
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = "[server]\nuser = \"daemon\"\n[[site]]\nroot = \"public\"\n";
    let close = |dir: &Path| {
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(dir.join("public/index.html"), mode).expect("a mode");
    };
    let found = warnings_in(close, server);
    assert!(found.contains("user `daemon` cannot read /"), "{found}");
    assert!(
        found.contains("/public/index.html: a request gets 403"),
        "{found}"
    );
    assert!(found.contains("help: chmod o+r /"), "{found}");
    let found = warnings_in(close, &format!("{server}hide = [\"/index.html\"]\n"));
    assert!(!found.contains("cannot read"), "{found}");
}

#[test]
fn repositories_without_a_mark_are_doubted() {
    let repository = |dir: &Path| {
        for folder in ["git/one.git/objects", "git/one.git/refs", "git/two"] {
            fs::create_dir_all(dir.join(folder)).expect("a folder");
        }
        fs::write(dir.join("git/one.git/HEAD"), "ref: refs/heads/main\n").expect("a file");
    };
    let git = "[[site]]\nroot = \"public\"\n[[site.route]]\npath = \"/git/\"\ngit = \"git\"\n";
    let found = warnings_in(repository, git);
    assert!(
        found.contains("/git is marked for export, so every request below /git/ gets 404"),
        "{found}"
    );
    assert!(
        found.contains("/git/one.git/git-daemon-export-ok, or write export = \"all\""),
        "{found}"
    );
    let found = warnings_in(repository, &format!("{git}export = \"all\"\n"));
    assert!(!found.contains("for export"), "{found}");
    let marked = |dir: &Path| {
        repository(dir);
        fs::write(dir.join("git/one.git/git-daemon-export-ok"), "").expect("a mark");
    };
    let found = warnings_in(marked, git);
    assert!(!found.contains("for export"), "{found}");
}

#[test]
fn addresses_that_are_hardly_meant_are_doubted() {
    let proxy = |value: &str| format!("[[site]]\n{ROUTE}proxy = {value}\n");
    assert_doubted(&[
        (
            &proxy("\"http://127.0.0.1\""),
            "http://127.0.0.1 has no port, so requests go to port 80 of 127.0.0.1",
            "such as \"http://127.0.0.1:3000\", or \"http://127.0.0.1:80\"",
        ),
        (
            &proxy("{ url = \"http://[::1]/app/\" }"),
            "http://[::1] has no port",
            "\"http://[::1]:3000\"",
        ),
        (
            &proxy("\"http://localhost\""),
            "http://localhost has no port",
            "\"http://localhost:3000\"",
        ),
        (
            &proxy("\"https://127.0.0.1:8000\""),
            "no public authority issues one for 127.0.0.1",
            "write http://127.0.0.1:8000 if the application speaks plain HTTP there",
        ),
        (
            &proxy("\"https://192.168.1.5\""),
            "no public authority issues one for 192.168.1.5",
            "ca = \"FILE\"",
        ),
        (
            "[server]\nhttps = [\":80\"]\nhttp = [\":443\"]\n[[site]]\n",
            "port 443 without TLS",
            "http = [\":80\"]",
        ),
        (
            "[server]\nhttps = [\":80\"]\nhttp = [\":443\"]\n[[site]]\n",
            "port 80 with TLS",
            "https = [\":443\"]",
        ),
    ]);
    assert_fine(
        &["no port", "no public authority", "TLS"],
        &[
            &proxy("\"http://127.0.0.1:80\""),
            &proxy("\"http://10.0.0.5\""),
            &proxy("\"http://app.example.net\""),
            &proxy("\"https://192.0.2.5\""),
            &proxy("{ url = \"https://127.0.0.1:8000\", server_name = \"app.example.net\" }"),
        ],
    );
}

#[test]
fn settings_that_take_files_away_are_doubted() {
    let balancer = "[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9001\"]\n";
    let below = |keys: &str| {
        format!(
            "[[site]]\nroot = \"public\"\n{ROUTE}balance = \"app\"\n[[site.route]]\npath = \"/a/\"\n{keys}\n{balancer}"
        )
    };
    assert_doubted(&[
        (
            "[[site]]\ntry = [\"$path.html\"]\n",
            "`try` lacks \"$path\", so no file is found by its own path",
            "write try = [\"$path\", \"$path.html\"]",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a/\"\ntry = [\"$path.html\", \"/index.html\"]\n",
            "`try` lacks \"$path\"",
            "write try = [\"$path\", \"$path.html\", \"/index.html\"]",
        ),
        (
            &below("try = [\"$path\", \"/index.html\"]"),
            "`try` of the route /a/ has no effect, because the route / in line 6 answers all paths below /a/",
            "write root = \"FOLDER\" in the route /a/",
        ),
        (
            &below("listing = true"),
            "`listing` of the route /a/ has no effect",
            "or remove `listing`",
        ),
        (
            "[[site]]\nhide = [\"/A/\"]\n",
            "`hide` has /A, which the site lacks, and clients get a",
            "did you mean \"/a\"?",
        ),
    ]);
    assert_fine(
        &["has no effect", "lacks"],
        &[
            "[[site]]\ntry = [\"$path\", \"$path.html\"]\n",
            "[[site]]\ntry = [\"/index.html\"]\n",
            "[[site]]\nhide = [\"/a/\", \"/nothing/\", \"*.bak\"]\n",
            &below("root = \"public/a\"\nlisting = true"),
            "[[site]]\n[[site.route]]\npath = \"/a/\"\nlisting = true\n",
        ],
    );
}

#[test]
fn one_misplaced_secret_has_one_message() {
    let found = warnings("[log]\naccess = \"public/access.log\"\n[[site]]\n");
    assert_eq!(
        found.matches("inside the served folder").count(),
        1,
        "{found}"
    );
    assert!(
        found.contains("\nhelp: write another path for `access`"),
        "{found}"
    );
}
