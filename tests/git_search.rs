//! Searches in the log of a repository, patches of commits, and addresses of cgit without a page.

use std::fs;

use crate::git::{command, commit, git, head, noise, try_git};
use crate::support::{Folder, Server, finish, lossy, run, server_table, site_table};

/// Returns a folder with `seed`, a work tree with commits of several authors, a merge and a binary file, and a bare copy
/// `repos/a.git`.
fn folder() -> Folder {
    let folder = Folder::new().with("public/index.html", "hello");
    git(&folder, &["init", "-q", "-b", "main", "seed"]);
    commit(&folder, "seed", "a.txt", b"one\n");
    for (author, message, name) in [
        (
            "Bee <bee@example.org>",
            "Fix the pump (a*b) [x]",
            "pump.txt",
        ),
        (
            "Ant <ant@example.org>",
            "Say \"hello\" & <b>bye</b>\n\nThe pump again.",
            "b.txt",
        ),
        ("Cy <cy@example.org>", "Add noise", "noise.bin"),
    ] {
        folder.write(&format!("seed/{name}"), noise(3_000));
        git(&folder, &["-C", "seed", "add", "-A"]);
        git(
            &folder,
            &[
                "-C", "seed", "commit", "-q", "-m", message, "--author", author,
            ],
        );
    }
    git(
        &folder,
        &["-C", "seed", "checkout", "-q", "-b", "side", "HEAD~1"],
    );
    commit(&folder, "seed", "side.txt", b"side\n");
    git(&folder, &["-C", "seed", "checkout", "-q", "main"]);
    git(
        &folder,
        &[
            "-C", "seed", "merge", "-q", "--no-ff", "-m", "Merge it", "side",
        ],
    );
    fs::create_dir_all(folder.path("repos")).expect("a folder");
    git(&folder, &["clone", "-q", "--bare", "seed", "repos/a.git"]);
    folder
}

fn start(folder: Folder) -> Server {
    let limits = "limits = { git_heavy_per_minute = 100000, git_pages_per_minute = 100000 }";
    let route = "[[site.route]]\npath = \"/git/\"\ngit = \"repos\"\nexport = \"all\"\n";
    let site = site_table("http = \"serve\"");
    Server::start_in(folder, &(server_table(limits) + &site + route))
}

/// Returns the status, the head and the content of a page.
fn get(server: &Server, path: &str) -> (u16, String, String) {
    let ran = server.curl(&["-i", "--path-as-is", &server.http(path)]);
    let said = lossy(&ran.stdout);
    let (head, text) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    let status = head.split(' ').nth(1).and_then(|it| it.trim().parse().ok());
    (status.unwrap_or(0), head.to_owned(), text.to_owned())
}

/// Returns the subjects on the page of a log.
fn subjects(text: &str) -> Vec<String> {
    let rows = text.split("<li>").skip(1);
    let subject = |row: &str| {
        let link = row.split("<a ").nth(1)?;
        Some(link.split_once('>')?.1.split("</a>").next()?.to_owned())
    };
    rows.filter_map(subject).collect()
}

#[test]
fn a_log_is_searched_by_message_author_and_committer() {
    let server = start(folder());
    let pump = "Fix the pump (a*b) [x]".to_owned();
    let bye = "Say &quot;hello&quot; &amp; &lt;b&gt;bye&lt;/b&gt;".to_owned();
    let (_, head, text) = get(&server, "/git/a/log/");
    assert!(head.contains("form-action 'self'"), "{head}");
    assert_eq!(subjects(&text).len(), 6, "{text}");
    for (query, expected) in [
        ("q=PUMP", vec![bye.clone(), pump.clone()]),
        ("q=PUMP&qt=grep", vec![bye.clone(), pump.clone()]),
        // The text is no pattern.
        ("q=%28a*b%29+%5Bx%5D", vec![pump.clone()]),
        ("q=p.mp", vec![]),
        ("q=%22hello%22+%26+%3Cb%3E", vec![bye.clone()]),
        ("q=bee&qt=author", vec![pump.clone()]),
        ("q=cy%40example.org&qt=author", vec!["Add noise".to_owned()]),
        ("q=bee&qt=committer", vec![]),
        ("q=bee", vec![]),
        ("q=--all", vec![]),
    ] {
        let (status, _, text) = get(&server, &format!("/git/a/log/?{query}"));
        assert_eq!(status, 200, "{query}: {text}");
        assert_eq!(subjects(&text), expected, "{query}: {text}");
        assert!(text.contains("noindex"), "{query}");
        let is_empty = text.contains("No commit was found.");
        assert_eq!(is_empty, expected.is_empty(), "{query}");
    }
    // A search is of one branch, commit and path, and the form keeps all of them.
    let (_, _, text) = get(&server, "/git/a/log/pump.txt?h=side&q=%3Cpump%3E&qt=author");
    for part in [
        "action=\"/git/a/log/pump.txt\"",
        "<input type=hidden name=h value=\"side\">",
        "value=\"&lt;pump&gt;\"",
        "<option value=author selected>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, _, text) = get(&server, "/git/a/log/pump.txt?q=pump");
    assert_eq!(subjects(&text), [pump], "{text}");
    for refused in ["q=a&qt=range", "q=a%0Ab", &format!("q={}", "x".repeat(300))] {
        assert_eq!(
            get(&server, &format!("/git/a/log/?{refused}")).0,
            404,
            "{refused}"
        );
    }
}

#[test]
fn a_long_search_has_pages() {
    let folder = folder();
    let mut import = command(&folder, &["-C", "repos/a.git", "fast-import", "--quiet"]);
    let mut stream = Vec::new();
    for number in 0..120 {
        let message = format!("{} & more {number}", ["even", "odd"][number % 2]);
        stream.extend_from_slice(b"commit refs/heads/long\n");
        stream.extend_from_slice(
            format!(
                "committer Ant <ant@example.org> {} +0000\ndata {}\n{message}\n",
                1_700_000_000 + number,
                message.len()
            )
            .as_bytes(),
        );
    }
    import.stdin(std::process::Stdio::piped());
    let done = finish(import, &stream);
    assert_eq!(done.code, Some(0), "{done:?}");
    let server = start(folder);
    let (_, _, first) = get(&server, "/git/a/log/?h=long&q=ODD+%26+more");
    assert_eq!(subjects(&first).len(), 50);
    let link = first.split("rel=\"next nofollow\" href=\"").nth(1);
    let link = link
        .and_then(|rest| rest.split('"').next())
        .expect("a link");
    assert!(!first.contains("Newer"), "{first}");
    let (status, _, second) = get(&server, &link.replace("&amp;", "&"));
    assert_eq!(status, 200, "{link}");
    let found = subjects(&second);
    assert_eq!(found.len(), 10, "{link}: {second}");
    assert_eq!(found.last().map(String::as_str), Some("odd &amp; more 1"));
    assert!(
        second.contains("Newer") && !second.contains("Older"),
        "{second}"
    );
}

#[test]
fn a_patch_makes_the_same_commit_again() {
    let server = start(folder());
    let folder = &server.folder;
    let of = |name: &str| git(folder, &["-C", "seed", "rev-parse", name]);
    let (merge, noise, first) = (head(folder, "seed"), of("main^1"), of("main~3"));
    let (status, head, _) = get(&server, &format!("/git/a/patch/?id={noise}"));
    assert_eq!(status, 200);
    for field in [
        "Content-Type: text/plain; charset=utf-8".to_owned(),
        format!(
            "Content-Disposition: inline; filename=\"{}.patch\"",
            &noise[..10]
        ),
        "immutable".to_owned(),
        "sandbox".to_owned(),
    ] {
        assert!(head.contains(&field), "{field}: {head}");
    }
    let (_, _, page) = get(&server, &format!("/git/a/commit/?id={noise}"));
    let link = format!("href=\"/git/a/patch/?id={noise}\">patch<");
    assert!(page.contains(&link), "{page}");
    git(folder, &["clone", "-q", "seed", "again"]);
    for (id, parent) in [(&noise, "^"), (&first, "^"), (&merge, "^1")] {
        let parent = of(&format!("{id}{parent}"));
        git(
            folder,
            &["-C", "again", "checkout", "-q", "--detach", &parent],
        );
        let url = server.http(&format!("/git/a/patch/?id={id}"));
        let patch = server.curl(&[&url]);
        folder.write("patch", &patch.stdout);
        let applied = try_git(folder, &["-C", "again", "am", "-q", "../patch"]);
        assert_eq!(applied.code, Some(0), "{applied:?}\n{}", patch.text());
        let tree = |repository: &str, name: &str| {
            let format = [
                "-C",
                repository,
                "log",
                "-1",
                "--format=%T %an %ae %s%n%b",
                name,
            ];
            git(folder, &format)
        };
        assert_eq!(tree("again", "HEAD"), tree("seed", id));
    }
    // A branch has the patch of its newest commit.
    let (_, _, text) = get(&server, "/git/a/patch/?h=side");
    assert!(text.contains("side.txt"), "{text}");
    assert_eq!(
        get(&server, &format!("/git/a/patch/?id={}", "0".repeat(40))).0,
        404
    );
}

#[test]
fn addresses_of_cgit_lead_to_the_pages_in_their_place() {
    let server = start(folder());
    let main = head(&server.folder, "seed");
    let first = git(&server.folder, &["-C", "seed", "rev-parse", "main~3"]);
    for (asked, location) in [
        (
            "blame/pump.txt?h=side".to_owned(),
            "tree/pump.txt?h=side".to_owned(),
        ),
        ("blob/pump.txt".to_owned(), "plain/pump.txt".to_owned()),
        ("stats/?period=q".to_owned(), "log/?period=q".to_owned()),
        ("tag/?h=side".to_owned(), "commit/?h=side".to_owned()),
        (format!("rawdiff/?id={main}"), format!("patch/?id={main}")),
        (
            format!("rawdiff/?id={main}&id2={first}"),
            format!("diff/?id={main}&id2={first}"),
        ),
        (
            format!("patch/?id={main}&id2={first}"),
            format!("diff/?id={main}&id2={first}"),
        ),
    ] {
        let (status, head, _) = get(&server, &format!("/git/a.git/{asked}"));
        assert_eq!(status, 302, "{asked}: {head}");
        let expected = format!("Location: /git/a.git/{location}");
        assert!(
            head.lines().any(|line| line == expected),
            "{expected}: {head}"
        );
        assert_eq!(
            get(&server, &format!("/git/a.git/{location}")).0,
            200,
            "{location}"
        );
    }
    for missing in ["blob/", "ls_cache/", "HEAD", "objects/info/packs"] {
        assert_eq!(
            get(&server, &format!("/git/a.git/{missing}")).0,
            404,
            "{missing}"
        );
    }
    assert_eq!(get(&server, "/git/none.git/blame/a").0, 404);
    let posted = run(
        "curl",
        &[
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-d",
            "x",
            &server.http("/git/a.git/blame/a"),
        ],
        b"",
    );
    assert_eq!(posted.text(), "404");
}
