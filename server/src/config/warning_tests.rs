//! Tests of the messages about the files, the folders and the doubtful settings of a configuration.

use crate::config::parse;
use std::path::Path;

#[test]
fn paths_on_disk_of_other_servers_are_explained() {
    let files = ["public/index.html"];
    for (text, what, help) in [
        (
            "root = \"http://127.0.0.1:3000\"",
            "http:/127.0.0.1:3000 does not exist",
            "for another server write proxy = \"http://127.0.0.1:3000\" in a [[site.route]]",
        ),
        (
            "root = \"file:///srv/www\"",
            "does not exist",
            "write the path alone: \"/srv/www\"",
        ),
        (
            "root = \"public/*\"",
            "does not exist",
            "a folder has no wildcard: write \"/",
        ),
        (
            "root = \"~/public\"",
            "does not exist",
            "`~` is not expanded",
        ),
        (
            "root = \"public\"\ncertificate = \"auto\"",
            "/auto does not exist",
            "remove `certificate`; without the key the server makes a certificate",
        ),
        (
            "root = \"public\"\n[[site.route]]\npath = \"/\"\nusers = \"alice:secret\"",
            "/alice:secret does not exist",
            "write the path of a file: `anthill passwd users.htpasswd NAME` asks for the password",
        ),
        (
            "root = \"public\"\n[[site.route]]\npath = \"/users/:id\"\nredirect = \"/b/\"",
            "warning: the path /users/:id matches the text `:id` alone",
            "write path = \"/users/\" for everything below",
        ),
        (
            "root = \"public\"\n[[site.route]]\npath = \"/users/{id}/\"\nredirect = \"/b/\"",
            "warning: the path /users/{id}/ matches the text `{id}` alone",
            "write path = \"/users/\" for everything below",
        ),
    ] {
        let error = checked(&files, &format!("[[site]]\n{text}\n"));
        assert!(error.contains(what), "{text}: {error}");
        assert!(error.contains(help), "{text}: {error}");
        assert!(error.contains("anthill.toml:"), "{text}: {error}");
    }
}

/// Returns the error or the warnings of a configuration in a folder with the files. A path with a slash at the end is a
/// folder.
fn checked(files: &[&str], text: &str) -> String {
    let files: Vec<(&str, &[u8])> = files.iter().map(|file| (*file, &b"x"[..])).collect();
    checked_with(&files, text)
}

/// Returns the error or the warnings of a configuration in a folder with the files and their contents.
fn checked_with(files: &[(&str, &[u8])], text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, content) in files {
        let path = folder.path().join(file);
        if file.ends_with('/') {
            std::fs::create_dir_all(path).expect("a folder");
            continue;
        }
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, content).expect("a file");
    }
    let path = folder.path().join("anthill.toml");
    let config = parse(&format!("[server]\nstate = \"state\"\n{text}"), &path);
    match crate::config::check(&config.unwrap_or_else(|error| panic!("{error}"))) {
        Ok(warnings) => {
            let warnings = warnings.iter().map(|it| it.as_warning());
            warnings.collect::<Vec<_>>().join("\n")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_missing_file_is_corrected_by_its_kind() {
    let route = "[[site]]\nroot = \"public\"\n[[site.route]]\npath = \"/git/\"\n";
    let files = ["public/index.html", "git/a"];
    let error = checked(
        &files,
        &format!("{route}git = \"git\"\npush_users = \"git.htpasswd\"\n"),
    );
    assert!(
        error.contains("help: create the file: anthill passwd "),
        "{error}"
    );
    assert!(!error.contains("did you mean"), "{error}");
    let files = ["public/index.html", "users.htpasswd"];
    let error = checked(&files, &format!("{route}users = \"user.htpasswd\"\n"));
    let (first, second) = error.split_once(" NAME, or did you mean ").expect("both");
    assert!(first.contains("anthill passwd /"), "{error}");
    assert!(second.ends_with("/users.htpasswd?"), "{error}");
    let error = checked(&["public.txt"], "[[site]]\nroot = \"publi\"\n");
    assert!(
        error.contains("help: create the folder: mkdir -p /"),
        "{error}"
    );
    if rustix::process::geteuid().is_root() {
        let server = "user = \"daemon\"\n[log]\naccess = \"nowhere/access.log\"\n[[site]]\nroot = \"public\"\n";
        let error = checked(&["public/index.html"], server);
        assert!(
            error.contains("help: create the folder: install -d -o daemon -g daemon /"),
            "{error}"
        );
    }
}

#[test]
fn settings_that_leave_nothing_are_warned_of() {
    let site = "[[site]]\nroot = \"public\"\n";
    let files = ["public/index.html"];
    for (text, is_warned) in [
        (
            "allow = [\"192.0.2.0/24\"]\ndeny = [\"192.0.0.0/16\"]",
            true,
        ),
        (
            "allow = [\"192.0.2.0/24\", \"2001:db8::1\"]\ndeny = [\"192.0.0.0/16\", \"2001:db8::/32\"]",
            true,
        ),
        (
            "allow = [\"192.0.0.0/16\"]\ndeny = [\"192.0.2.0/24\"]",
            false,
        ),
        ("allow = []\ndeny = [\"192.0.2.0/24\"]", false),
    ] {
        let warnings = checked(
            &files,
            &format!("{site}[[site.route]]\npath = \"/a/\"\n{text}\n"),
        );
        let what = "`deny` covers all networks of `allow`";
        assert_eq!(warnings.contains(what), is_warned, "{text}: {warnings}");
    }
    for (text, is_warned) in [
        ("skip = [\"*\"]", true),
        ("skip = [\"/\"]", true),
        ("skip = [\"*.png\"]", false),
        ("skip = [{ path = \"*\", status = \"2xx\" }]", false),
    ] {
        let warnings = checked(&files, &format!("[log]\n{text}\n{site}"));
        let what = "`skip` leaves out every line without a refusal";
        assert_eq!(warnings.contains(what), is_warned, "{text}: {warnings}");
    }
}

#[test]
fn a_pipe_or_a_device_is_no_included_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("site.toml");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a pipe");
    let first = folder.path().join("anthill.toml");
    for (include, named) in [("/dev/zero", "/dev/zero"), ("site.toml", "site.toml")] {
        std::fs::write(&first, format!("include = [\"{include}\"]\n[[site]]\n")).expect("a file");
        let error = crate::config::load(&first).expect_err(include).to_string();
        let what = format!("{named} is a pipe or a device, not a file\n");
        assert!(error.contains(&what), "{error}");
        assert!(error.contains("anthill.toml:1:12\n"), "{error}");
        assert!(
            error.contains("\nhelp: write the path of a file"),
            "{error}"
        );
    }
    let error = crate::config::load(&pipe).expect_err("a pipe").to_string();
    assert!(error.contains("is a pipe or a device"), "{error}");
}

#[test]
fn trust_in_every_address_is_warned_of() {
    let files = ["public/index.html"];
    for (trust, families) in [
        ("[\"0.0.0.0/0\"]", Some("IPv4")),
        ("[\"127.0.0.1\", \"::/0\"]", Some("IPv6")),
        (
            "[\"0.0.0.0/1\", \"128.0.0.0/1\", \"2000::/3\"]",
            Some("IPv4 and IPv6"),
        ),
        ("[\"0.0.0.0/1\", \"10.0.0.0/8\", \"fd00::/8\"]", None),
    ] {
        // The keys follow `state` in [server].
        let warnings = checked(
            &files,
            &format!("trust = {trust}\n[[site]]\nroot = \"public\"\n"),
        );
        let Some(families) = families else {
            assert_eq!(warnings, "", "{trust}");
            continue;
        };
        let what = format!(
            "warning: `trust` has every address of {families}, so every client can forge its address for guards, rates and logs"
        );
        assert!(warnings.contains(&what), "{trust}: {warnings}");
        assert!(warnings.contains("anthill.toml:3:"), "{warnings}");
        assert!(
            warnings.contains("help: write the addresses of the proxies"),
            "{warnings}"
        );
    }
}

#[test]
fn a_field_that_clients_can_set_on_another_route_is_warned_of() {
    let site = "[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n";
    let users = "[[site.route]]\npath = \"/private/\"\nusers = \"users\"\n";
    let route =
        |path: &str, proxy: &str| format!("[[site.route]]\npath = \"{path}\"\nproxy = {proxy}\n");
    let set = |url: &str, fields: &str| {
        format!("{{ url = \"{url}\", request_headers = {{ {fields} }} }}")
    };
    let of_user = route(
        "/private/app/",
        &set("http://127.0.0.1:9000", "Remote-User = \"{user}\""),
    );
    let files = ["public/index.html", "users"];
    for (other, is_warned) in [
        (route("/app/", "\"http://127.0.0.1:9000\""), true),
        (route("/app/", "\"http://localhost:9000/base/\""), true),
        (
            route("/app/", &set("http://127.0.0.1:9000", "X-Site = \"a\"")),
            true,
        ),
        (
            route("/app/", &set("http://127.0.0.1:9000", "remote-user = \"\"")),
            false,
        ),
        (route("/app/", "\"http://127.0.0.1:9001\""), false),
        (
            route("/app/", "\"http://127.0.0.1:9000\"") + "allow = []\n",
            false,
        ),
    ] {
        let warnings = checked(&files, &format!("{site}{users}{of_user}{other}"));
        let what = "warning: clients can set the field Remote-User on the route /app/ of a.test: the route /private/app/ of \
                    a.test (line 10) sets the field for the same member, which may believe it";
        assert_eq!(warnings.contains(what), is_warned, "{other}: {warnings}");
        let help = "help: write request_headers = { \"Remote-User\" = \"\" } in the table";
        assert_eq!(warnings.contains(help), is_warned, "{other}: {warnings}");
    }
    // The server removes X-Remote-User of clients by itself, and a fixed field states nothing about a client.
    for field in ["X-Remote-User = \"{user}\"", "X-Site = \"a\""] {
        let setter = route("/private/app/", &set("http://127.0.0.1:9000", field));
        let other = route("/app/", "\"http://127.0.0.1:9000\"");
        let warnings = checked(&files, &format!("{site}{users}{setter}{other}"));
        assert!(!warnings.contains("clients can set"), "{field}: {warnings}");
    }
    let balancer = "[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9000\", \"http://127.0.0.1:9001\"]\n";
    let other = "[[site.route]]\npath = \"/app/\"\nbalance = \"app\"\n";
    let warnings = checked(&files, &format!("{site}{users}{of_user}{other}{balancer}"));
    assert!(
        warnings.contains("clients can set the field Remote-User"),
        "{warnings}"
    );
}

#[test]
fn a_folder_without_a_file_is_warned_of() {
    for (files, is_warned) in [
        (&["public/"][..], true),
        (&["public/empty/", "public/.git/config"], true),
        (&["public/a/b.txt"], false),
        (&["public/.well-known/security.txt"], false),
    ] {
        let warnings = checked(files, "[[site]]\nroot = \"public\"\n");
        let what = "/public has no file to serve\n --> /";
        assert_eq!(warnings.contains(what), is_warned, "{files:?}: {warnings}");
        let place = "anthill.toml:4:8\n";
        assert_eq!(warnings.contains(place), is_warned, "{files:?}: {warnings}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let warnings = |folder: &Path| {
        let config = crate::config::guess(folder).expect("a configuration");
        let warnings = crate::config::inspect(&config).1;
        let warnings = warnings.iter().map(|it| it.as_warning());
        warnings.collect::<Vec<_>>().join("\n")
    };
    let empty = warnings(folder.path());
    assert!(
        empty.contains(
            "has neither an anthill.toml nor a file to serve\nhelp: name a folder with files"
        ),
        "{empty}"
    );
    std::fs::write(folder.path().join("Anthill.toml"), "[[site]]\n").expect("a file");
    let misnamed = warnings(folder.path());
    assert!(
        misnamed.contains("/Anthill.toml is not read as a configuration, and clients can read the file\nhelp: give the file"),
        "{misnamed}"
    );
}

#[test]
fn a_route_below_the_wrong_site_is_warned_of() {
    let files = ["a/private/x.html", "a/new/x.html", "b/index.html", "users"];
    let sites = "[[site]]\nnames = [\"a.test\"]\nroot = \"a\"\n[[site]]\nnames = [\"b.test\"]\nroot = \"b\"\n";
    for (route, path, is_warned) in [
        ("path = \"/private/\"\nusers = \"users\"", "/private/", true),
        ("path = \"/old/\"\nredirect = \"/new/?a\"", "/new/", true),
        ("path = \"/old/\"\nrewrite = \"/new/\"", "/new/", true),
        (
            "path = \"/old/\"\nredirect = \"https://a.test/new/\"",
            "/new/",
            false,
        ),
        ("path = \"/none/\"\nusers = \"users\"", "/none/", false),
        ("path = \"/\"\nusers = \"users\"", "/", false),
        (
            "path = \"/private/\"\nusers = \"users\"\n[[site.route]]\npath = \"/\"\nproxy = \"http://c.test\"",
            "/private/",
            false,
        ),
    ] {
        let warnings = checked(&files, &format!("{sites}[[site.route]]\n{route}\n"));
        let what = format!("warning: the site b.test has no {path} for the route /");
        assert_eq!(warnings.contains(&what), is_warned, "{route}: {warnings}");
        let help = "help: if the route is meant for a.test, move the [[site.route]] below the [[site]] in line 3, above the \
                    next [[site]]";
        assert_eq!(warnings.contains(help), is_warned, "{route}: {warnings}");
    }
    let first = "[[site]]\nnames = [\"a.test\"]\nroot = \"a\"\n";
    let repeated = "[[site]]\n[[site.route]]\npath = \"/app/\"\nproxy = \"http://c.test\"\n";
    let warnings = checked(&["a/x.html", "public/x"], &format!("{first}{repeated}"));
    assert!(
        warnings.contains("this [[site]] has no `names`, so its routes answer for all names that no other site has, and not for a.test"),
        "{warnings}"
    );
    assert!(warnings.contains("anthill.toml:6:1\n"), "{warnings}");
    let route = "[[site.route]]\npath = \"/app/\"\nproxy = \"http://c.test\"\n";
    for meant in [
        "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"https://a.test/\"\n",
        &format!("[[site]]\nnames = [\"*\"]\n{route}"),
        &format!("[[site]]\nlisten = \"127.0.0.1:8001\"\n{route}"),
    ] {
        let warnings = checked(&["a/x.html", "public/x"], &format!("{first}{meant}"));
        assert_eq!(warnings, "", "{meant}");
    }
}

#[test]
fn a_file_without_the_coding_of_its_rule_is_warned_of() {
    let gzip = &b"\x1f\x8b\x08\0\0\0"[..];
    let zstd = &b"\x28\xb5\x2f\xfd\0"[..];
    for (set, content, found) in [
        ("gzip", gzip, None),
        ("gzip", &b"let a = 1;\n"[..], Some("plain text")),
        ("gzip", zstd, Some("compressed with Zstandard")),
        ("gzip", b"", Some("empty")),
        ("gzip", b"\0\x01\x02", Some("in another format")),
        ("zstd", zstd, None),
        ("zstd", gzip, Some("compressed with gzip")),
        ("br", b"\x0b\x02\x80abc\x03", None),
        ("br", b"let a = 1;\n", Some("plain text")),
        ("br", gzip, Some("compressed with gzip")),
        ("identity", b"let a = 1;\n", None),
    ] {
        let site = format!(
            "[[site]]\nroot = \"public\"\nencodings = [{{ files = \"*.js.x\", set = \"{set}\" }}]\n"
        );
        let warnings = checked_with(
            &[("public/a/b.js.x", content), ("public/c.txt", b"c")],
            &site,
        );
        let Some(found) = found else {
            assert_eq!(warnings, "", "{set} {content:?}");
            continue;
        };
        let what = format!("/public/a/b.js.x, which is {found}: browsers cannot decode the file\n");
        assert!(
            warnings.contains(&format!("warning: `set = \"{set}\"` holds for /")),
            "{warnings}"
        );
        assert!(warnings.contains(&what), "{warnings}");
        assert!(warnings.contains("anthill.toml:5:"), "{warnings}");
        assert!(
            warnings.contains("help: compress the file with "),
            "{warnings}"
        );
    }
    // The first rule with the file decides.
    let rules = "[[site]]\nroot = \"public\"\nencodings = [{ files = \"a.js.gz\", set = \"identity\" }, \
                 { files = \"*.gz\", set = \"gzip\" }]\n";
    let files = [
        ("public/a.js.gz", &b"a"[..]),
        ("public/b.gz", b"b"),
        ("public/c.gz", b"c"),
        ("public/d.gz", gzip),
    ];
    let warnings = checked_with(&files, rules);
    assert!(
        warnings.contains("/b.gz, which is plain text"),
        "{warnings}"
    );
    assert!(
        warnings.contains(", and 1 further file has another coding"),
        "{warnings}"
    );
}
