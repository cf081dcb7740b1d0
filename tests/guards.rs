//! Every alias of a guarded resource, for every kind of target: no alias gives the content without the
//! login, and unguarded neighbours stay reachable.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::fastcgi::Backend;
use crate::git::{as_ant, commit, git, try_git};
use crate::support::h2::H2;
use crate::support::wire::{Over, Response, Wire};
use crate::support::{Folder, Server, run, server_table, site_table};

/// Credentials of `ant:crumb`.
const LOGIN: &str = "Basic YW50OmNydW1i";

/// A word in the content of every guarded resource and of no other page.
const SECRET: &str = "SECRET";

fn script(text: &str) -> String {
    format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\necho {text} \"$PATH_INFO\"\n")
}

/// Returns a folder with each kind of resource: guarded ones named `secret`, unguarded neighbours named
/// `open`, and links from unguarded names to guarded ones.
fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let hash = hash.text().trim().to_owned();
    let folder = Folder::new()
        .with("users", format!("ant:{hash}\n"))
        .with("team", format!("ant:{hash}\nbee:{hash}\n"))
        .with("public/index.html", "front")
        .with("public/private/index.html", "SECRET index")
        .with("public/private/page.html", "SECRET page")
        .with("public/alone.html", "SECRET alone")
        .with("public/alone.html.br", "SECRET alone, coded")
        .with("public/neighbour/page.html", "open page")
        .with("public/listed/a.txt", "SECRET a")
        .with("other/secret/page.html", "SECRET other")
        .with("other/open.html", "open other")
        .with("public/bin/secret.sh", script("SECRET script"))
        .with("public/bin/open.sh", script("open script"))
        .with("public/php/secret.php", "<?php echo 'SECRET php';")
        .with("public/php/open.php", "<?php echo 'open php';");
    for (name, text) in [
        ("scripts/secret.cgi", "SECRET cgi"),
        ("scripts/sub/deep.cgi", "SECRET deep cgi"),
        ("scripts/open.cgi", "open cgi"),
        ("scripts/parts.cgi", "parts"),
    ] {
        folder.program(name, &script(text));
    }
    for (target, name) in [
        ("private", "public/door"),
        ("private/page.html", "public/leaf.html"),
        ("door", "public/door-of-door"),
        ("/private/page.html", "public/rooted.html"),
        ("../private/page.html", "public/neighbour/up.html"),
        ("listed", "public/list"),
        ("alone.html.br", "public/coded.br"),
        ("secret", "other/door"),
        ("bin/secret.sh", "public/run.sh"),
        ("bin", "public/tools"),
        ("php/secret.php", "public/page.php"),
        ("secret.cgi", "scripts/alias.cgi"),
        ("sub", "scripts/door"),
        ("parts.cgi", "scripts/pieces.cgi"),
    ] {
        symlink(target, folder.path(name)).expect("a link");
    }
    git(&folder, &["init", "-q", "-b", "main", "seed"]);
    commit(&folder, "seed", "README.md", b"SECRET readme\n");
    git(&folder, &["init", "-q", "-b", "main", "fair"]);
    commit(&folder, "fair", "README.md", b"open readme\n");
    for (from, name) in [
        ("seed", "repos/secret.git"),
        ("seed", "repos/inner/deep.git"),
        ("seed", "repos/short.git"),
        ("seed", "repos/bare"),
        ("fair", "repos/open.git"),
        ("fair", "repos/box.git"),
        ("seed", "repos/box/within.git"),
    ] {
        fs::create_dir_all(folder.path(name)).expect("a folder");
        git(&folder, &["clone", "-q", "--bare", from, name]);
        folder.write(&format!("{name}/description"), format!("about {from}\n"));
    }
    git(&folder, &["clone", "-q", "seed", "repos/desk"]);
    for (target, name) in [
        ("secret.git", "repos/alias.git"),
        ("secret.git", "repos/plainalias"),
        ("inner", "repos/door"),
        ("bare", "repos/likebare"),
    ] {
        symlink(target, folder.path(name)).expect("a link");
    }
    folder
}

const GUARDED: &[&str] = &[
    "/private",
    "/alone.html",
    "/listed",
    "/files/secret",
    "/bin/secret.sh",
    "/php/secret.php",
    "/run/secret.cgi",
    "/run/sub",
    "/run/parts.cgi/admin",
    "/kept/secret.cgi",
    "/app/secret",
    "/team/secret.git",
    "/git/secret.git",
    "/git/inner",
    "/git/short",
    "/git/bare",
    "/git/desk",
    "/git/box",
];

const TARGETS: &str = "[[site.route]]\npath = \"/files/\"\nroot = \"other\"\n\
    [[site.route]]\npath = \"/run/\"\ncgi = \"scripts\"\n\
    [[site.route]]\npath = \"/kept/\"\ncgi = \"scripts\"\ncache = { seconds = 1000 }\n\
    [[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n\
    [[site.route]]\npath = \"/php\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\n\
    [[site.route]]\npath = \"/page.php\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\n\
    [[site.route]]\npath = \"/app/\"\nscgi = \"unix:app.sock\"\n\
    [[site.route]]\npath = \"/git/\"\ngit = \"repos\"\nexport = \"all\"\n\
    [[site.route]]\npath = \"/team/\"\ngit = \"repos\"\nexport = \"all\"\npush = true\nusers = \"team\"\n\
    [[site.route]]\npath = \"/old/\"\nrewrite = \"/private/\"\n\
    [[site.route]]\npath = \"/oldrun\"\nrewrite = \"/run/secret.cgi\"\n\
    [[site.route]]\npath = \"/oldkept\"\nrewrite = \"/kept/secret.cgi\"\n\
    [[site.route]]\npath = \"/oldlink\"\nrewrite = \"/run/alias.cgi\"\n\
    [[site.route]]\npath = \"/olddoor/\"\nrewrite = \"/door/\"\n\
    [[site.route]]\npath = \"/gone/\"\nredirect = \"/private/\"\n";

fn config(guard: &str) -> String {
    let guards = GUARDED
        .iter()
        .map(|path| format!("[[site.route]]\npath = \"{path}\"\n{guard}\n"));
    let limits = "limits = { git_heavy_per_minute = 100000, git_pages_per_minute = 100000 }";
    let site = "http = \"serve\"\nlisting = true\ntry = [\"$path\", \"$path.html\"]";
    server_table(limits) + &site_table(site) + TARGETS + &guards.collect::<String>()
}

/// Names of guarded resources, with the content for a client with the login. A third of them are the
/// guard's own names.
const ALIASES: &[(&str, &str)] = &[
    // Files of the site.
    ("/private/", "SECRET index"),
    ("/private/index.html", "SECRET index"),
    ("/private/page", "SECRET page"),
    ("/private/page.html", "SECRET page"),
    ("//private///page.html", "SECRET page"),
    ("/%70rivate/p%61ge.html", "SECRET page"),
    ("/neighbour/../private/page.html", "SECRET page"),
    ("/neighbour/%2e%2e/private/page.html", "SECRET page"),
    ("/door/", "SECRET index"),
    ("/door/page.html", "SECRET page"),
    ("/door//page", "SECRET page"),
    ("/%64oor/page.html", "SECRET page"),
    ("/door-of-door/page.html", "SECRET page"),
    ("/leaf.html", "SECRET page"),
    ("/leaf", "SECRET page"),
    ("/rooted.html", "SECRET page"),
    ("/neighbour/up.html", "SECRET page"),
    ("/old/page.html", "SECRET page"),
    ("/old/", "SECRET index"),
    ("/olddoor/page.html", "SECRET page"),
    ("/alone", "SECRET alone"),
    ("/alone.html", "SECRET alone"),
    ("/alone.html.br", "SECRET alone, coded"),
    ("/coded.br", "SECRET alone, coded"),
    // Listings of a folder.
    ("/listed/", "a.txt"),
    ("/list/", "a.txt"),
    ("/list/?format=json", "a.txt"),
    // Another root.
    ("/files/secret/page.html", "SECRET other"),
    ("/files/secret/page", "SECRET other"),
    ("/files/door/page.html", "SECRET other"),
    ("/files//door/page", "SECRET other"),
    // Scripts of the site, run by an interpreter and by a backend.
    ("/bin/secret.sh", "SECRET script"),
    ("/bin/secret.sh/more", "SECRET script /more"),
    ("/run.sh", "SECRET script"),
    ("/run.sh/more", "SECRET script /more"),
    ("/tools/secret.sh", "SECRET script"),
    ("/tools/secret%2Esh/more/more", "SECRET script /more/more"),
    ("/php/secret.php", "SECRET php"),
    ("/php/secret.php/more", "SECRET php"),
    ("/page.php", "SECRET php"),
    ("/page.php/more?x", "SECRET php"),
    // A folder of scripts.
    ("/run/secret.cgi", "SECRET cgi"),
    ("/run/secret.cgi/more", "SECRET cgi /more"),
    ("/run//secret.cgi", "SECRET cgi"),
    ("/run/alias.cgi", "SECRET cgi"),
    ("/run/alias.cgi/more", "SECRET cgi /more"),
    ("/run/%61lias.cgi", "SECRET cgi"),
    ("/run/sub/deep.cgi", "SECRET deep cgi"),
    ("/run/door/deep.cgi", "SECRET deep cgi"),
    ("/run/parts.cgi/admin", "parts /admin"),
    ("/run/parts.cgi//admin/x", "parts /admin/x"),
    ("/run/pieces.cgi/admin", "parts /admin"),
    ("/oldrun", "SECRET cgi"),
    ("/oldlink", "SECRET cgi"),
    // A folder of scripts behind the page cache.
    ("/kept/secret.cgi", "SECRET cgi"),
    ("/kept/alias.cgi", "SECRET cgi"),
    ("/kept/alias.cgi?1", "SECRET cgi"),
    ("/oldkept", "SECRET cgi"),
    // A backend.
    ("/app/secret", "/secret"),
    ("/app//secret/x", "/secret/x"),
    ("/app/x/../secret/", "/secret/"),
    ("/app/%73ecret", "/secret"),
    // Pages of repositories.
    ("/git/secret.git/", SECRET),
    ("/git/secret/", SECRET),
    ("/git//secret/", SECRET),
    ("/git/secre%74/", SECRET),
    ("/git/secret/about/", SECRET),
    ("/git/secret/summary/", SECRET),
    ("/git/secret/log/", "more"),
    ("/git/secret/tree/", "README.md"),
    ("/git/secret/tree/README.md", SECRET),
    ("/git/secret/plain/README.md", SECRET),
    ("/git/secret/commit/", SECRET),
    ("/git/secret/diff/", SECRET),
    ("/git/secret/refs/", "main"),
    ("/git/secret/atom/", "more"),
    ("/git/alias.git/", SECRET),
    ("/git/alias/plain/README.md", SECRET),
    ("/git/plainalias/plain/README.md", SECRET),
    ("/git/inner/deep.git/", SECRET),
    ("/git/inner/deep/", SECRET),
    ("/git/door/deep/plain/README.md", SECRET),
    ("/git/short/", SECRET),
    ("/git/short.git/", SECRET),
    ("/git/short.git/plain/README.md", SECRET),
    ("/git/bare/plain/README.md", SECRET),
    ("/git/likebare/plain/README.md", SECRET),
    ("/git/desk/plain/README.md", SECRET),
    ("/git/box/within/plain/README.md", SECRET),
    // git's first request.
    (
        "/git/secret.git/info/refs?service=git-upload-pack",
        "git-upload-pack",
    ),
    (
        "/git/secret/info/refs?service=git-upload-pack",
        "git-upload-pack",
    ),
    (
        "/git/alias/info/refs?service=git-upload-pack",
        "git-upload-pack",
    ),
    (
        "/git/short.git/info/refs?service=git-upload-pack",
        "git-upload-pack",
    ),
    (
        "/git/door/deep/info/refs?service=git-upload-pack",
        "git-upload-pack",
    ),
];

/// Unguarded resources next to guarded ones, some with almost the same name.
const NEIGHBOURS: &[(&str, u16, &str)] = &[
    ("/", 200, "front"),
    ("/neighbour/page.html", 200, "open page"),
    ("/files/open.html", 200, "open other"),
    ("/bin/open.sh", 200, "open script"),
    ("/tools/open.sh", 200, "open script"),
    ("/php/open.php", 200, "open php"),
    ("/run/open.cgi/x", 200, "open cgi /x"),
    ("/run/parts.cgi", 200, "parts"),
    ("/run/pieces.cgi/other", 200, "parts /other"),
    ("/kept/open.cgi", 200, "open cgi"),
    ("/app/open", 200, "/open"),
    ("/git/open/", 200, "open readme"),
    ("/git/open.git/plain/README.md", 200, "open readme"),
    (
        "/git/open/info/refs?service=git-upload-pack",
        200,
        "git-upload-pack",
    ),
    // The folder above has a guard, and the shorter name would have a guard, if the name led to the
    // repository.
    ("/git/box.git/plain/README.md", 200, "open readme"),
    // A redirect reveals its target, and the target has its own guard.
    ("/gone/page.html", 308, ""),
    // The file systems of the tests distinguish upper and lower case.
    ("/PRIVATE/page.html", 404, ""),
    ("/Door/page.html", 404, ""),
    ("/run/SECRET.CGI", 404, ""),
    ("/git/SECRET/", 404, ""),
    ("/git/secret.git.git/", 404, ""),
];

/// A client connection of one version of HTTP.
enum Client {
    Http1(Wire),
    Http2(H2),
}

impl Client {
    fn over(server: &Server, is_h2: bool) -> Client {
        if is_h2 {
            Client::Http2(H2::open(server, Over::Tls))
        } else {
            Client::Http1(Wire::plain(server))
        }
    }

    fn get(&mut self, path: &str, login: Option<&str>) -> Response {
        match self {
            Client::Http1(wire) => {
                let line = login.map(|login| format!("Authorization: {login}\r\n"));
                wire.get(path, &line.unwrap_or_default())
            }
            Client::Http2(h2) => {
                let field = login.map(|login| ("authorization", login));
                let fields: Vec<_> = field.into_iter().collect();
                let id = h2.ask("GET", path, &fields, true);
                h2.response(id)
            }
        }
    }
}

/// Starts the server and returns it with its backends, which have to live as long as the server.
fn start(guard: &str) -> (Server, Backend, Backend) {
    let folder = folder();
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(""), everybody).expect("a mode");
    let (php, app) = (Backend::php(&folder, 1), Backend::python(&folder, "scgi"));
    (Server::start_in(folder, &config(guard)), php, app)
}

#[test]
fn every_alias_of_a_guarded_resource_needs_the_login() {
    let (server, _php, _app) = start("users = \"users\"");
    for is_h2 in [false, true] {
        let mut client = Client::over(&server, is_h2);
        // The first and the third pass run without the login, to show that the second pass leaves no stored
        // page behind.
        for login in [None, Some(LOGIN), None] {
            for (path, content) in ALIASES {
                let got = client.get(path, login);
                match login {
                    Some(_) => {
                        assert_eq!(got.status, 200, "{path} {got:?}");
                        assert!(got.text().contains(content), "{path} {got:?}");
                    }
                    None => {
                        assert_eq!(got.status, 401, "{path} {got:?}");
                        assert!(got.field("www-authenticate").is_some(), "{path} {got:?}");
                        assert!(!got.text().contains(SECRET), "{path} {got:?}");
                    }
                }
            }
        }
        for (path, status, content) in NEIGHBOURS {
            let got = client.get(path, None);
            assert_eq!(got.status, *status, "{path} {got:?}");
            assert!(got.text().contains(content), "{path} {got:?}");
        }
    }
}

#[test]
fn every_alias_of_a_guarded_resource_refuses_other_addresses() {
    let (server, _php, _app) = start("allow = [\"127.0.0.9\"]");
    // The response for an allowed client is not stored for other clients.
    let mut allowed = Wire::of(&server, [127, 0, 0, 9].into());
    for (path, content) in ALIASES {
        let got = allowed.get(path, "");
        assert!(got.text().contains(content), "{path} {got:?}");
    }
    let list = allowed.get("/git/", "").text();
    assert!(list.contains("about seed"), "{list}");
    for is_h2 in [false, true] {
        let mut client = Client::over(&server, is_h2);
        for (path, _) in ALIASES {
            let got = client.get(path, Some(LOGIN));
            assert_eq!(got.status, 403, "{path} {got:?}");
            assert!(!got.text().contains(SECRET), "{path} {got:?}");
        }
        for (path, status, _) in NEIGHBOURS {
            let got = client.get(path, None);
            assert_eq!(got.status, *status, "{path} {got:?}");
        }
        let list = client.get("/git/", None).text();
        assert!(!list.contains("about seed"), "{list}");
    }
}

#[test]
fn lists_of_repositories_show_only_readable_repositories() {
    let (server, _php, _app) = start("users = \"users\"");
    let guarded = [
        "secret",
        "alias",
        "plainalias",
        "short",
        "bare",
        "likebare",
        "desk",
        "within",
    ];
    for is_h2 in [false, true] {
        let mut client = Client::over(&server, is_h2);
        for login in [None, Some(LOGIN), None] {
            let list = client.get("/git/", login).text();
            for name in guarded {
                assert_eq!(
                    list.contains(&format!(">{name}<")) || list.contains(&format!("/{name}<")),
                    login.is_some(),
                    "{name} {list}"
                );
            }
            assert_eq!(list.contains("about seed"), login.is_some(), "{list}");
            assert!(list.contains(">open<") && list.contains(">box<"), "{list}");
            // A folder without entries visible to the client is not found, with and without a slash.
            let status = if login.is_some() {
                (200, 301)
            } else {
                (404, 404)
            };
            let door = client.get("/git/door/", login).status;
            assert_eq!((door, client.get("/git/door", login).status), status);
        }
        let wrong = client.get("/git/", Some("Basic YW50Ondyb25n"));
        assert_eq!(wrong.status, 200, "{wrong:?}");
        assert!(!wrong.text().contains("about seed"), "{wrong:?}");
    }
}

#[test]
fn git_needs_the_login_under_every_alias_of_a_repository() {
    let (server, _php, _app) = start("users = \"users\"");
    let folder = &server.folder;
    let names = [
        "secret.git",
        "secret",
        "alias",
        "plainalias",
        "door/deep",
        "short.git",
        "likebare",
    ];
    for (nth, name) in names.iter().enumerate() {
        for url in [
            server.http(&format!("/git/{name}")),
            server.https(&format!("/git/{name}")),
        ] {
            let to = format!("clone{nth}");
            let refused = try_git(folder, &["clone", "-q", &url, &to]);
            assert_ne!(refused.code, Some(0), "{url}");
            assert!(!folder.path(&to).exists(), "{url}");
        }
        let url = as_ant(&server.http(&format!("/git/{name}")));
        let to = format!("mine{nth}");
        git(folder, &["clone", "-q", &url, &to]);
        // The git service itself, without the preceding info/refs request.
        let service = server.http(&format!("/git/{name}/git-upload-pack"));
        let asked = server.curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-d",
            "0000",
            &service,
        ]);
        assert_eq!(asked.text(), "401", "{service}");
        git(folder, &["-C", &to, "fetch", "-q", &url]);
    }
}

/// A push needs both logins, of the route and of the repository.
#[test]
fn a_push_needs_the_login_of_the_repository_under_every_alias() {
    let (server, _php, _app) = start("users = \"users\"");
    let folder = &server.folder;
    let as_bee = |url: &str| url.replacen("://", "://bee:crumb@", 1);
    for name in ["secret.git", "secret", "alias.git", "plainalias"] {
        let url = server.http(&format!("/team/{name}"));
        let push = |url: &str| try_git(folder, &["-C", "seed", "push", "-q", url, "main:pushed"]);
        for url in [url.clone(), as_bee(&url)] {
            let refused = push(&url);
            assert_ne!(refused.code, Some(0), "{url}");
        }
        let refs = git(folder, &["-C", "repos/secret.git", "for-each-ref"]);
        assert!(!refs.contains("refs/heads/pushed"), "{name}: {refs}");
        let done = push(&as_ant(&url));
        assert_eq!(done.code, Some(0), "{done:?}");
        git(
            folder,
            &["-C", "repos/secret.git", "branch", "-D", "pushed"],
        );
    }
    let open = as_bee(&server.http("/team/open"));
    git(folder, &["-C", "fair", "push", "-q", &open, "main:pushed"]);
    // Without a login, no response reveals the existing repositories.
    for path in [
        "/team/secret/git-receive-pack",
        "/team/none/git-receive-pack",
    ] {
        let service = server.http(path);
        let asked = server.curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-d",
            "0000",
            &service,
        ]);
        assert_eq!(asked.text(), "401", "{path}");
    }
}

/// A link created or changed while the server runs.
#[test]
fn a_link_made_later_does_not_bypass_a_guard() {
    let folder = folder();
    let server = Server::start_in(folder, &{
        let limits = "limits = {}";
        server_table(limits)
            + &site_table("http = \"serve\"")
            + "[[site.route]]\npath = \"/private\"\nusers = \"users\"\n"
    });
    let mut wire = Wire::plain(&server);
    symlink("neighbour", server.folder.path("public/turned")).expect("a link");
    assert_eq!(wire.get("/turned/page.html", "").status, 200);
    symlink("private", server.folder.path("public/new")).expect("a link");
    let turned = server.folder.path("public/next");
    symlink("private", &turned).expect("a link");
    fs::rename(turned, server.folder.path("public/turned")).expect("a turned link");
    assert_eq!(wire.get("/new/page.html", "").status, 401);
    assert_eq!(wire.get("/turned/page.html", "").status, 401);
    let login = format!("Authorization: {LOGIN}\r\n");
    assert!(
        wire.get("/turned/page.html", &login)
            .text()
            .contains(SECRET)
    );
}
