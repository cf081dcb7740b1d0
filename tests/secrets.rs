//! The server's own files in a served folder: no client gets their content, by any name and from any
//! target.

use std::fs;
use std::os::unix::fs::symlink;

use crate::clients::Authority;
use crate::git::git;
use crate::support::wire::Wire;
use crate::support::{Folder, Server, run};

/// The folder of the configuration is the site's root, the root of a route, a folder of scripts and a
/// folder of repositories.
const CONFIG: &str = "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\n\
    state = \".state\"\ncontrol = \".control\"\nworkers = 1\n\
    [log]\nerrors = \"errors.log\"\n\
    [tls]\ntickets = \".kept/tickets\"\n\
    [[site]]\nnames = [\"*\"]\nroot = \".\"\nhttp = \"serve\"\nlisting = true\n\
    certificate = \".kept/pair.pem\"\ntry = [\"$path\", \"$path.toml\"]\n\
    errors = { 404 = \"lost.html\", 403 = \"conf\" }\n\
    [[site.route]]\npath = \"/asks\"\nusers = \".kept/users\"\n\
    [[site.route]]\npath = \"/denied\"\nallow = []\n\
    [[site.route]]\npath = \"/all/\"\nroot = \".\"\n\
    [[site.route]]\npath = \"/old/\"\nrewrite = \"/\"\n\
    [[site.route]]\npath = \"/run/\"\ncgi = \".\"\n\
    interpreter = { \".toml\" = \"/bin/cat\", \".sh\" = \"/bin/sh\", \".log\" = \"/bin/cat\", \".txt\" = \"/bin/cat\" }\n\
    [[site.route]]\npath = \"/\"\ninterpreter = { \".script\" = \"/bin/cat\" }\n\
    [[site.route]]\npath = \"/git/\"\ngit = \".\"\nexport = \"all\"\n";

/// Words from the protected files.
const SECRETS: [&str; 5] = [
    "[[site]]",
    "$1$",
    "PRIVATE KEY",
    "0123456789abcdef",
    "PAGE OF STATE",
];

fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let authority = Authority::new("a CA");
    let folder = Folder::new()
        .with("page.html", "a page")
        .with("lost.html", "lost")
        .with("visible.log", "notes")
        .with(
            "hello.sh",
            "printf 'Content-Type: text/plain\\n\\n'; echo hello",
        )
        .with(".kept/other.txt", "beside them")
        .with(".kept/users", format!("ant:{}\n", hash.text().trim()))
        .with(".kept/tickets", "0123456789abcdef".repeat(4))
        .with(".kept/pair.pem", authority.server(&["a.test"]).combined())
        .with(".state/page.html", "PAGE OF STATE");
    for (target, name) in [
        ("anthill.toml", "conf"),
        ("conf", "conf-of-conf.txt"),
        ("anthill.toml", "conf.script"),
        ("../anthill.toml", "sub/index.html"),
        ("../anthill.toml", "sub/page.html"),
        (".kept", "kept"),
        (".kept/users", "names.txt"),
        (".kept/users", "users"),
        (".state", "state"),
        (".state/page.html", "state-page.html"),
    ] {
        fs::create_dir_all(folder.path("sub")).expect("a folder");
        symlink(target, folder.path(name)).expect("a link");
    }
    let users = folder.path(".kept/users");
    fs::hard_link(users, folder.path("hard.txt")).expect("a second name");
    git(&folder, &["init", "-q", "-b", "main", "seed"]);
    folder.write("seed/README.md", "PAGE OF STATE");
    git(&folder, &["-C", "seed", "add", "-A"]);
    git(&folder, &["-C", "seed", "commit", "-q", "-m", "one"]);
    for to in [".state/of-state.git", "open.git"] {
        git(&folder, &["clone", "-q", "--bare", "seed", to]);
    }
    fs::remove_dir_all(folder.path("seed")).expect("removed");
    folder
}

/// Names of the server's own files, relative to the root.
const OWN: &[&str] = &[
    "anthill.toml",
    "anthill",
    "%61nthill.toml",
    "errors.log",
    "conf",
    "conf-of-conf.txt",
    "sub/page.html",
    "kept/users",
    "kept/tickets",
    "kept/pair.pem",
    "kept/../kept/users",
    "names.txt",
    "users",
    "hard.txt",
    "state",
    "state/",
    "state/page.html",
    "state/of-state.git/config",
    "state-page.html",
];

fn assert_hidden(wire: &mut Wire, path: &str) {
    for (method, fields) in [("GET", ""), ("GET", "Range: bytes=0-9\r\n"), ("HEAD", "")] {
        let got = wire.ask(method, path, fields);
        assert_eq!(got.status, 404, "{method} {path} {got:?}");
        for secret in SECRETS {
            assert!(!got.text().contains(secret), "{path} {got:?}");
        }
    }
}

#[test]
fn no_file_of_the_servers_own_is_served_by_any_name() {
    let server = Server::start_in(folder(), CONFIG);
    let mut wire = Wire::plain(&server);
    for own in OWN {
        for prefix in ["/", "/all/", "/old/"] {
            assert_hidden(&mut wire, &format!("{prefix}{own}"));
        }
    }
    // Requests for a script of the site, for a script of a folder, and for an error page of the site.
    for path in [
        "/conf.script",
        "/run/anthill.toml",
        "/run/errors.log",
        "/run/users",
        "/run/names.txt",
        "/run/hard.txt",
        "/run/kept/tickets",
        "/run/anthill.toml/more",
    ] {
        assert_hidden(&mut wire, path);
    }
    let denied = wire.get("/denied", "");
    assert_eq!(denied.status, 403);
    assert!(!denied.text().contains("[[site]]"), "{denied:?}");
    // Requests for an index page, and for listings.
    let sub = wire.get("/sub/", "");
    assert_eq!(sub.status, 200);
    assert!(
        !sub.text().contains("index.html") && !sub.text().contains("page.html"),
        "{sub:?}"
    );
    for path in [
        "/",
        "/?format=json",
        "/all/",
        "/kept/",
        "/all/kept/?format=json",
    ] {
        let list = wire.get(path, "");
        assert_eq!(list.status, 200, "{path}");
        for own in OWN
            .iter()
            .map(|own| own.rsplit('/').next().unwrap_or_default())
        {
            let is_there = [format!("\"./{own}\""), format!("\"./{own}/\"")];
            let is_there = !own.is_empty() && is_there.iter().any(|it| list.text().contains(it));
            // The root has an unprotected page with the same name.
            assert!(
                !is_there || own == "page.html",
                "{path} {own} {}",
                list.text()
            );
        }
    }
    // Requests for a repository.
    for path in [
        "/git/state/of-state/",
        "/git/state/of-state.git/plain/README.md",
    ] {
        assert_hidden(&mut wire, path);
    }
    let clone = "/git/state/of-state/info/refs?service=git-upload-pack";
    assert_eq!(wire.get(clone, "").status, 404);
    assert_eq!(wire.get("/git/state/", "").status, 404);
    assert!(!wire.get("/git/", "").text().contains("of-state"));

    for own in OWN {
        let line = server.output.wait_for(own, |line| {
            line.contains(&format!("\"GET /{own} ")) && line.contains(" 404 ")
        });
        assert!(line.contains("rule=R512"), "{line}");
    }

    // Other files in the same folders are served.
    for (path, text) in [
        ("/page.html", "a page"),
        ("/all/page.html", "a page"),
        ("/kept/other.txt", "beside them"),
        ("/visible.log", "notes"),
        ("/run/hello.sh", "hello"),
        ("/git/open/plain/README.md", "PAGE OF STATE"),
    ] {
        let got = wire.get(path, "");
        assert!(
            got.status == 200 && got.text().contains(text),
            "{path} {got:?}"
        );
    }
}

#[test]
fn protected_files_stay_protected_after_changes_and_reloads() {
    let server = Server::start_in(folder(), CONFIG);
    let folder = &server.folder;
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/kept/other.txt", "").status, 200);
    assert_eq!(wire.get("/visible.log", "").status, 200);
    // Files replaced by a rename, like the files written by editors and by `anthill passwd`.
    for (name, alias) in [
        (".kept/users", "/kept/users"),
        ("anthill.toml", "/anthill.toml"),
    ] {
        let text = fs::read(folder.path(name)).expect("there");
        folder.write("new", text);
        fs::rename(folder.path("new"), folder.path(name)).expect("in its place");
        assert_hidden(&mut wire, alias);
    }
    assert_hidden(&mut wire, "/names.txt");
    assert_hidden(&mut wire, "/conf");
    // New links to protected files.
    symlink("anthill.toml", folder.path("late.html")).expect("a link");
    fs::hard_link(folder.path("anthill.toml"), folder.path("late-hard.html")).expect("a name");
    symlink("../.state", folder.path("sub/late")).expect("a link");
    for path in ["/late.html", "/late-hard.html", "/sub/late/page.html"] {
        assert_hidden(&mut wire, path);
    }
    // A served file becomes a user file, and another becomes a log.
    let users = fs::read(folder.path(".kept/users")).expect("there");
    folder.write(".kept/other.txt", users);
    let more = "[[site.route]]\npath = \"/more\"\nusers = \".kept/other.txt\"\n";
    let logged = CONFIG.replace("listing = true", "listing = true\nlog = \"visible.log\"");
    server.reload(&(logged + more));
    assert_hidden(&mut wire, "/kept/other.txt");
    assert_hidden(&mut wire, "/visible.log");
    assert_eq!(wire.get("/page.html", "").text(), "a page");
    // A file without a reference in the configuration is an ordinary file again.
    server.reload(CONFIG);
    assert_eq!(wire.get("/visible.log", "").status, 200);
}

#[test]
fn check_warns_of_protected_files_in_a_served_folder() {
    let folder = folder();
    folder.write("anthill.toml", CONFIG);
    let file = folder.path("anthill.toml");
    let checked = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let other = format!(
        "move the pages to {} and write root = \"public\"",
        folder.path("public").display()
    );
    for (name, help) in [
        ("anthill.toml is inside", other.clone()),
        (
            "errors.log is inside",
            format!("write another path for `errors`, or {other}"),
        ),
    ] {
        let says = |warning: &str| {
            let mut lines = warning.lines();
            let first = lines.next().unwrap_or_default();
            first.starts_with("warning: ")
                && first.contains(name)
                && lines.next_back() == Some(&format!("help: {help}"))
        };
        assert!(checked.stderr.split("\n\n").any(says), "{name} {checked:?}");
    }
}
