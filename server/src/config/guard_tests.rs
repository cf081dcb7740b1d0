//! Tests of the warnings about guards that guard nothing, and about files that bypass a guard.

use crate::config::{check, load};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// Returns the warnings of a configuration in a folder with the files; the path of the folder is written as DIR.
fn warnings(files: &[&str], text: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    // Other accounts may enter the folder.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    for file in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, "ant:$2y$05$abc\n").expect("a file");
    }
    let file = dir.path().join("anthill.toml");
    fs::write(&file, format!("[server]\nstate = \"state\"\n{text}")).expect("a file");
    let config = load(&file).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let found = check(&config).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let found: Vec<String> = found.iter().map(|it| it.as_warning()).collect();
    found
        .join("\n")
        .replace(&dir.path().display().to_string(), "DIR")
}

const FILES: &[&str] = &[
    "public/index.html",
    "public/private/s.txt",
    "public/docs/secret.pdf",
    "u",
];

#[test]
fn a_guard_of_a_missing_path_is_doubted() {
    for (path, help) in [
        ("/Private/", "did you mean \"/private/\"?"),
        ("/privat/", "did you mean \"/private/\"?"),
        ("/secret.pdf", "did you mean \"/docs/secret.pdf\"?"),
        (
            "/elsewhere/",
            "write the path of an existing file or folder, or remove the route",
        ),
    ] {
        let site = format!("[[site]]\n[[site.route]]\npath = \"{path}\"\nusers = \"u\"\n");
        let found = warnings(FILES, &site);
        assert!(
            found.contains(&format!("the route {path} guards nothing")),
            "{found}"
        );
        assert!(
            found.contains(help) && found.contains("anthill.toml:5:8"),
            "{found}"
        );
    }
    let found = warnings(
        FILES,
        "[[site]]\n[[site.route]]\npath = \"/private/ \"\nusers = \"u\"\n",
    );
    assert!(
        found.contains("the text ends with a space")
            && found.contains("write path = \"/private/\""),
        "{found}"
    );
    for right in [
        "[[site]]\n[[site.route]]\npath = \"/private/\"\nusers = \"u\"\n",
        "[[site]]\ntry = [\"$path\", \"/index.html\"]\n[[site.route]]\npath = \"/admin/\"\nusers = \"u\"\n",
        "[[site]]\ntry = [\"$path\", \"$path.txt\"]\n[[site.route]]\npath = \"/private/s\"\nusers = \"u\"\n",
        "[[site]]\n[[site.route]]\npath = \"/admin/\"\nusers = \"u\"\n[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:9000\"\n",
        "[[site]]\n[[site.route]]\npath = \"/admin/\"\nusers = \"u\"\n[[site.route]]\npath = \"/\"\nfastcgi = \"127.0.0.1:9000\"\nfiles = \".php\"\n",
    ] {
        assert_eq!(warnings(FILES, right), "", "{right}");
    }
}

#[test]
fn files_of_users_and_keys_are_doubted_by_content_and_mode() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::create_dir(dir.path().join("public")).expect("a folder");
    let users = dir.path().join("u");
    let file = dir.path().join("anthill.toml");
    let text =
        "[server]\nstate = \"state\"\n[[site]]\n[[site.route]]\npath = \"/\"\nusers = \"u\"\n";
    fs::write(&file, text).expect("a file");
    for (content, mode, what) in [
        ("", 0o640, "has no user, so every login gets 401"),
        ("# ant:x\n", 0o640, "has no user, so every login gets 401"),
        (
            "ant:$2y$05$abc\n",
            0o666,
            "every account of this machine can write to",
        ),
        ("ant:$2y$05$abc\n", 0o640, ""),
    ] {
        fs::write(&users, content).expect("a file");
        fs::set_permissions(&users, fs::Permissions::from_mode(mode)).expect("a mode");
        let found = check(&load(&file).expect("a configuration")).expect("no mistake");
        let found: Vec<String> = found.iter().map(|it| it.as_warning()).collect();
        let found: Vec<&String> = found
            .iter()
            .filter(|it| !it.contains("no file to serve"))
            .collect();
        assert_eq!(found.len(), usize::from(!what.is_empty()), "{found:?}");
        assert!(found.iter().all(|it| it.contains(what)), "{found:?}");
    }
}

#[test]
fn files_beside_a_guard_are_doubted() {
    let route = "[[site]]\n[[site.route]]\npath = \"/private/\"\nusers = \"u\"\n[[site.route]]\npath = \"/download/\"\nroot = \"public/private\"\n";
    let found = warnings(FILES, route);
    assert!(found.contains("the route /download/ serves DIR/public/private without the guard of the route /private/"), "{found}");
    assert_eq!(warnings(FILES, &format!("{route}users = \"u\"\n")), "");
    let files = ["sites/index.html", "sites/b/index.html", "u"];
    let sites = "[[site]]\nnames = [\"a.test\"]\nroot = \"sites\"\n[[site]]\nnames = [\"b.test\"]\nroot = \"sites/b\"\n[[site.route]]\npath = \"/\"\nusers = \"u\"\n";
    let found = warnings(&files, sites);
    assert!(
        found.contains("the site a.test serves the files of b.test as /b/"),
        "{found}"
    );
    let found = warnings(
        &files,
        &sites.replace("root = \"sites\"\n", "root = \"sites\"\nhide = [\"b\"]\n"),
    );
    assert_eq!(found, "");
}

#[test]
fn source_of_scripts_is_doubted() {
    let files = ["public/index.html", "public/index.php"];
    let found = warnings(&files, "[[site]]\n");
    assert!(
        found.contains("DIR/public/index.php is sent to clients as text with its source"),
        "{found}"
    );
    for right in [
        "[[site]]\nhide = [\"*.php\"]\n",
        "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = \"127.0.0.1:9000\"\nfiles = \".php\"\n",
    ] {
        assert_eq!(warnings(&files, right), "", "{right}");
    }
}

#[test]
fn networks_that_admit_all_or_none_are_doubted() {
    let guarded = |text: &str| format!("[[site]]\n[[site.route]]\npath = \"/private/\"\n{text}\n");
    for (text, what) in [
        (
            guarded("allow = [\"0.0.0.0/0\", \"::/0\"]"),
            "`allow` of the route /private/ permits every address",
        ),
        (
            guarded("deny = \"0.0.0.0/0\""),
            "`0.0.0.0/0` has no IPv6 address, so clients with IPv6 pass",
        ),
        (
            guarded(
                "allow = \"10.0.0.0/8\"\n[[site.route]]\npath = \"/private/s.txt\"\nallow = \"192.168.0.0/16\"",
            ),
            "no client reaches the route /private/s.txt",
        ),
        (
            guarded(
                "allow = []\n[[site.route]]\npath = \"/private/b/\"\nproxy = \"http://127.0.0.1:9000\"",
            ),
            "no client reaches the route /private/b/",
        ),
    ] {
        let found = warnings(FILES, &text);
        assert!(
            found.contains(what) && found.contains("help: "),
            "{text}\n{found}"
        );
    }
    for right in [
        guarded("allow = \"10.0.0.0/8\""),
        guarded("deny = [\"0.0.0.0/0\", \"::/0\"]"),
        guarded(
            "allow = \"10.0.0.0/8\"\n[[site.route]]\npath = \"/private/s.txt\"\nallow = \"10.1.0.0/16\"",
        ),
    ] {
        assert_eq!(warnings(FILES, &right), "", "{right}");
    }
}

#[test]
fn a_lifted_login_opens_a_route_with_any() {
    let outer = "[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n[[site.route]]\npath = \"/\"\nany = true\n\
                 allow = [\"10.0.0.0/8\"]\nauth = { url = \"http://127.0.0.1:9091/a\", login = \"/login/?rd={uri}\" }\n";
    for (route, is_doubted) in [
        ("path = \"/docs/\"\nauth = false\n", true),
        (
            "path = \"/docs/\"\nproxy = \"http://127.0.0.1:9092\"\nauth = false\n",
            true,
        ),
        (
            "path = \"/docs/\"\nauth = false\nallow = [\"10.0.0.0/8\"]\n",
            false,
        ),
        ("path = \"/login/\"\nauth = false\n", false),
        (
            "path = \"/docs/\"\nproxy = \"http://127.0.0.1:9091\"\nauth = false\n",
            false,
        ),
    ] {
        let login =
            "[[site.route]]\npath = \"/login/\"\nproxy = \"http://127.0.0.1:9091\"\nauth = false\n";
        let login = if route.contains("/login/") { "" } else { login };
        let found = warnings(FILES, &format!("{outer}[[site.route]]\n{route}{login}"));
        let is_found = found.contains("lifts `allow` of the route / with `any`");
        assert_eq!(is_found, is_doubted, "{route}: {found}");
    }
}
