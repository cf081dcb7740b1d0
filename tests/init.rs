//! `anthill init` and `anthill proxy`: two commands to a site.

use std::path::Path;
use std::process::Command;

use crate::fastcgi::Backend;
use crate::support::member::{Answer, Member};
use crate::support::wire::Wire;
use crate::support::{Done, Folder, Server, anthill, finish, program};

/// Writes the configuration of a kind into a folder.
fn init(kind: &str, folder: &Folder) -> Done {
    let path = folder.path("");
    anthill(&["init".as_ref(), kind.as_ref(), path.as_os_str()])
}

/// Serves a folder at free ports.
fn serve(folder: Folder) -> Server {
    let mut command = Command::new(program());
    command.arg("serve").arg(folder.path(""));
    launch(folder, command)
}

/// Starts a command that serves, at free ports.
fn launch(folder: Folder, mut command: Command) -> Server {
    command.args([
        "--https",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--workers",
        "1",
    ]);
    command.arg("--state").arg(folder.path("state"));
    Server::launch(folder, command)
}

fn page(server: &Server, path: &str) -> (u16, String) {
    let response = Wire::tls(server).get(path, "");
    (response.status, response.text())
}

/// Points a configuration at another address than that of the example.
fn edit(folder: &Folder, from: &str, to: &str) {
    let text = std::fs::read_to_string(folder.path("anthill.toml")).expect("a configuration");
    assert!(text.contains(from), "{text}");
    folder.write("anthill.toml", text.replace(from, to));
}

#[test]
fn every_kind_writes_a_valid_configuration() {
    for kind in ["blog", "spa", "proxy", "wordpress", "php"] {
        let folder = Folder::new();
        let done = init(kind, &folder);
        assert_eq!(done.code, Some(0), "{kind}: {done:?}");
        let next = done.stdout.lines().last().expect("a line").to_owned();
        assert!(next.contains("anthill serve "), "{done:?}");
        let mut check = Command::new(program());
        check.arg("check").arg(folder.path(""));
        let done = finish(check, b"");
        assert_eq!(done.code, Some(0), "{kind}: {done:?}");
        assert!(done.stdout.contains("is valid"), "{done:?}");
        // Every warning is about a step that is left to the operator, and has its place.
        let to_do: &[&str] = match kind {
            "php" => &["there is no socket /run/php/php-fpm.sock"],
            "wordpress" => &[
                "/public has no file to serve",
                "there is no socket /run/php/php-fpm.sock",
            ],
            _ => &[],
        };
        let has_php = Path::new("/run/php/php-fpm.sock").exists();
        let to_do = to_do
            .iter()
            .filter(|it| !(has_php && it.contains("socket")));
        let to_do: Vec<&&str> = to_do.collect();
        let warnings: Vec<&str> = done
            .stderr
            .split("\n\n")
            .filter(|it| !it.is_empty())
            .collect();
        assert_eq!(warnings.len(), to_do.len(), "{kind}: {done:?}");
        for (warning, what) in warnings.iter().zip(&to_do) {
            assert!(warning.contains(**what), "{kind}: {done:?}");
            assert!(warning.contains("anthill.toml:"), "{kind}: {done:?}");
            let help = warning.split("\nhelp: ").nth(1).unwrap_or_default();
            let remedies = [
                "unpack the application into the folder",
                "install and start php-fpm",
                "the folder has",
            ];
            assert!(
                remedies.iter().any(|it| help.contains(it)),
                "{kind}: {done:?}"
            );
        }
        let says_so = next.starts_with("next: what the warnings name, then ");
        assert_eq!(says_so, !to_do.is_empty(), "{kind}: {next}");
        // The commented lines are valid too, where a machine has what they name.
        let text = std::fs::read_to_string(folder.path("anthill.toml")).expect("a configuration");
        assert!(text.lines().all(|line| line.len() <= 120), "{kind}");
        let again = init(kind, &folder);
        assert_eq!(again.code, Some(2), "{again:?}");
        assert!(again.stderr.contains("exists already"), "{again:?}");
    }
    let unknown = init("wiki", &Folder::new());
    assert!(
        unknown.stderr.contains("blog, spa, proxy, wordpress, php"),
        "{unknown:?}"
    );
}

#[test]
fn what_exists_is_not_changed() {
    let folder = Folder::new().with("public/mine.html", "mine");
    let done = init("blog", &folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!folder.path("public/index.html").exists());
    assert!(folder.path("public/404.html").exists());
    let server = serve(folder);
    assert_eq!(page(&server, "/mine"), (200, "mine".into()));
}

#[test]
fn a_blog_and_an_application_of_one_page_are_served() {
    let folder = Folder::new();
    assert_eq!(init("blog", &folder).code, Some(0));
    let server = serve(folder);
    assert!(page(&server, "/").1.contains("<h1>Hello</h1>"));
    let (status, text) = page(&server, "/absent");
    assert!(
        status == 404 && text.contains("<h1>Not found</h1>"),
        "{text}"
    );

    let member =
        Member::start(|_| Answer::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napi".into()));
    let folder = Folder::new();
    assert_eq!(init("spa", &folder).code, Some(0));
    edit(&folder, "http://127.0.0.1:3000", &member.url());
    let server = serve(folder);
    assert!(page(&server, "/a/deep/link").1.contains("<h1>Hello</h1>"));
    assert_eq!(page(&server, "/api/x"), (200, "api".into()));
}

#[test]
fn php_and_wordpress_run_their_scripts() {
    for kind in ["php", "wordpress"] {
        let folder = Folder::new();
        assert_eq!(init(kind, &folder).code, Some(0));
        let front = "<?php echo 'front ', $_SERVER['REQUEST_URI'];";
        folder.write("public/index.php", front);
        folder.write("public/wp-config.php", "<?php echo 'SECRET';");
        folder.write("public/wp-content/uploads/evil.php", "<?php echo 'EVIL';");
        let php = Backend::php(&folder, 1);
        let socket = folder.path("fpm.sock").display().to_string();
        edit(&folder, "/run/php/php-fpm.sock", &socket);
        let server = serve(folder);
        for path in ["/", "/2026/11/a-post/"] {
            assert_eq!(
                page(&server, path),
                (200, format!("front {path}")),
                "{kind}"
            );
        }
        if kind == "wordpress" {
            assert_eq!(page(&server, "/wp-config.php").0, 403);
            assert_eq!(page(&server, "/xmlrpc.php").0, 403);
            assert_eq!(page(&server, "/wp-content/uploads/evil.php").0, 403);
        }
        drop(php);
    }
}

#[test]
fn one_command_serves_an_application_over_https() {
    let member =
        Member::start(|_| Answer::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napp".into()));
    let port = member.url().rsplit(':').next().expect("a port").to_owned();
    let folder = Folder::new();
    let mut command = Command::new(program());
    command.current_dir(folder.path("")).args(["proxy", &port]);
    let server = launch(folder, command);
    let banner = server.errors.all().join("\n");
    let serves = format!("serves http://127.0.0.1:{port}");
    assert!(banner.contains(&serves), "{banner}");
    assert_eq!(page(&server, "/x"), (200, "app".into()));
    let redirect = Wire::plain(&server).get("/x", "");
    assert_eq!(redirect.status, 308);
    // A reload reads no file.
    server.signal("HUP");
    server
        .errors
        .wait_for("a reload", |line| line.contains("configuration"));
    assert_eq!(page(&server, "/y").0, 200);
    let wrong = anthill(&["proxy", "30000000"]);
    assert!(
        wrong.stderr.contains("write its port, such as 3000"),
        "{wrong:?}"
    );
}
