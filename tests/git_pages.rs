//! Repository pages, made by the real git and read by curl and Chromium.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use wire::h2::frame;

use crate::git::{as_ant, command, commit, git, head, noise, try_git};
use crate::support::h2::H2;
use crate::support::wire::{Over, Wire, wait_until};
use crate::support::{Folder, Server, finish, lossy, run, server_table, site_table, tool};

const PATIENCE: Duration = Duration::from_secs(30);
const ROUTES: &str = "[[site.route]]\npath = \"/git/\"\ngit = \"repos\"\n\
    [[site.route]]\npath = \"/all/\"\ngit = \"repos\"\nexport = \"all\"\n\
    [[site.route]]\npath = \"/read/\"\ngit = \"repos\"\nexport = \"all\"\nusers = \"users\"\n\
    [[site.route]]\npath = \"/off/\"\ngit = \"repos\"\nexport = \"all\"\npages = false\n";
const README: &str = "# Hammer\n\nFor *nails*. See [the docs](docs/more.md), [a](https://example.org/),\n\
    [bad](javascript:alert(1)).\n\n![dot](dot.png)\n\n<script>alert(1)</script>\n";
/// A PNG image of one black pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82";

/// Returns a folder with `seed`, a work tree with branches, a merge, tags of all kinds and files of all
/// kinds, and two bare copies: `repos/a.git` with the export mark, and `repos/deep/er/b.git` without.
fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    git(&folder, &["init", "-q", "-b", "main", "seed"]);
    folder.write("seed/long.txt", "0123456789\n".repeat(100_000));
    commit(&folder, "seed", "wide.txt", "w".repeat(600_000).as_bytes());
    folder.write("seed/docs/use.md", "Hit it.\n");
    folder.write("seed/docs/more.md", "Harder.\n");
    folder.write("seed/dot.png", PNG);
    folder.write("seed/.hidden/x", "hidden\n");
    folder.write("seed/evil.html", "<script>alert(1)</script>\n");
    folder.write("seed/evil.svg", "<svg onload='alert(1)'/>\n");
    folder.write("seed/binary", noise(2_000));
    folder.write(
        "seed/b\u{fc}cher \u{2713}/a&b?c#d%e;+ \"q\" <b>.txt",
        "odd\n",
    );
    folder.write("seed/new\nline.txt", "a name of two lines\n");
    folder.write("seed/info/refs", "a file of this name\n");
    folder.write("seed/git-upload-pack", "and of this\n");
    folder.write("seed/latin1.txt", b"caf\xe9\n");
    folder.write("seed/empty", "");
    folder.write("seed/run.sh", "#!/bin/sh\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path("seed/run.sh"), mode).expect("a mode");
    symlink("README.md", folder.path("seed/link")).expect("a link");
    commit(&folder, "seed", "README.md", README.as_bytes());
    let first = head(&folder, "seed");
    git(&folder, &["-C", "seed", "tag", "v1.0"]);
    let annotated = [
        "-C",
        "seed",
        "tag",
        "-a",
        "-m",
        "the second\n\nall of it",
        "v2.0",
    ];
    git(&folder, &annotated);
    git(
        &folder,
        &["-C", "seed", "tag", "-a", "-m", "of a tag", "v3.0", "v2.0"],
    );
    let blob = git(&folder, &["-C", "seed", "rev-parse", "HEAD:README.md"]);
    git(&folder, &["-C", "seed", "tag", "blob", &blob]);
    let submodule = format!("160000,{first},other");
    git(
        &folder,
        &[
            "-C",
            "seed",
            "update-index",
            "--add",
            "--cacheinfo",
            &submodule,
        ],
    );
    git(
        &folder,
        &[
            "-C",
            "seed",
            "commit",
            "-q",
            "-m",
            "Add another <b>repository</b>",
        ],
    );
    git(
        &folder,
        &[
            "-C",
            "seed",
            "checkout",
            "-q",
            "-f",
            "-b",
            "feature/x",
            "v1.0",
        ],
    );
    git(
        &folder,
        &["-C", "seed", "mv", "docs/use.md", "docs/usage.md"],
    );
    commit(&folder, "seed", "only-here.txt", b"x\n");
    git(&folder, &["-C", "seed", "checkout", "-q", "-f", "main"]);
    git(
        &folder,
        &["-C", "seed", "merge", "-q", "-m", "Merge it", "feature/x"],
    );
    for name in ["repos/a.git", "repos/deep/er/b.git"] {
        fs::create_dir_all(folder.path("repos/deep/er")).expect("folders");
        git(&folder, &["clone", "-q", "--bare", "seed", name]);
    }
    folder.write("repos/a.git/git-daemon-export-ok", "");
    folder.write("repos/a.git/description", "A <hammer> of steel\nand more\n");
    folder
}

fn start_with(limits: &str) -> Server {
    start_site(limits, "")
}

fn start_site(limits: &str, more: &str) -> Server {
    let limits = format!("limits = {{ {limits} }}\n");
    let site = site_table(&format!("http = \"serve\"\n{more}"));
    Server::start_in(folder(), &(server_table(&limits) + &site + ROUTES))
}

fn start() -> Server {
    start_with("git_heavy_per_minute = 100000, git_pages_per_minute = 100000")
}

/// A response: status, head and content.
struct Page {
    status: u16,
    head: String,
    text: String,
}

impl Page {
    fn field(&self, name: &str) -> Option<&str> {
        let is_it = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}: "));
        let line = self.head.lines().find(is_it)?;
        line.split_once(": ").map(|(_, value)| value.trim_end())
    }

    #[track_caller]
    fn has(&self, parts: &[&str]) -> &Page {
        for part in parts {
            assert!(
                self.text.contains(part),
                "{part}\n{}\n{}",
                self.head,
                self.text
            );
        }
        self
    }
}

fn ask(server: &Server, url: &str, more: &[&str]) -> Page {
    let arguments = [&["-i", "--path-as-is", url][..], more].concat();
    let ran = server.curl(&arguments);
    let said = lossy(&ran.stdout);
    let (head, text) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    let status = head.split(' ').nth(1).and_then(|it| it.trim().parse().ok());
    Page {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        text: text.to_owned(),
    }
}

fn get(server: &Server, path: &str) -> Page {
    let page = ask(server, &server.http(path), &[]);
    assert_eq!(page.status, 200, "{path}\n{}\n{}", page.head, page.text);
    page
}

fn status(server: &Server, path: &str) -> u16 {
    ask(server, &server.http(path), &[]).status
}

#[test]
fn the_list_has_the_exported_repositories() {
    let server = start();
    let list = get(&server, "/git/");
    list.has(&["href=\"/git/a.git/\"", "A &lt;hammer&gt; of steel"]);
    assert!(!list.text.contains("deep") && !list.text.contains("and more"));
    get(&server, "/all/").has(&["/all/a.git/", "/all/deep/er/b.git/", ">deep/er/b<"]);
    get(&server, "/all/deep/").has(&["/all/deep/er/b.git/", ">er/b<"]);
    for path in [
        "/git/deep/",
        "/git/deep",
        "/git/deep/er/b.git/",
        "/git/deep/er/b/log/",
        "/git/x/",
    ] {
        assert_eq!(status(&server, path), 404, "{path}");
    }
    for (path, to) in [
        ("/git", "/git/"),
        ("/git/a", "/git/a/"),
        ("/git/a.git?x=y", "/git/a.git/?x=y"),
        ("/all/deep", "/all/deep/"),
    ] {
        let page = ask(&server, &server.http(path), &[]);
        assert_eq!(
            (page.status, page.field("location")),
            (301, Some(to)),
            "{path}"
        );
    }
    // A repository appears and disappears at once, and in the list a moment later.
    let is_listed = |is: bool| {
        wait_until(PATIENCE, "the list", || {
            (get(&server, "/git/").text.contains("deep/er/b") == is).then_some(())
        });
    };
    let mark = "repos/deep/er/b.git/git-daemon-export-ok";
    server.folder.write(mark, "");
    get(&server, "/git/deep/er/b/");
    is_listed(true);
    fs::remove_file(server.folder.path(mark)).expect("removed");
    assert_eq!(status(&server, "/git/deep/er/b/"), 404);
    is_listed(false);
    // A route without pages is unchanged.
    for path in ["/off/", "/off/a.git", "/off/a.git/", "/off/a.git/log/"] {
        assert_eq!(status(&server, path), 404, "{path}");
    }
    git(&server.folder, &["ls-remote", &server.http("/off/a")]);
}

#[test]
fn every_kind_of_page() {
    let server = start();
    let folder = &server.folder;
    let main = head(folder, "seed");
    let first = git(folder, &["-C", "seed", "rev-parse", "v1.0"]);
    let side = git(folder, &["-C", "seed", "rev-parse", "feature/x"]);
    let origin = server.http("");
    get(&server, "/git/a.git/").has(&[
        &format!("<code>{origin}/git/a.git</code>"),
        "Merge it",
        "Add another &lt;b&gt;repository&lt;/b&gt;",
        ">feature/x<",
        ">v2.0<",
        "<h1 id=\"hammer\">Hammer</h1>",
        &format!("href=\"/git/a.git/tree/docs/more.md?id={main}\""),
        &format!("src=\"/git/a.git/plain/dot.png?id={main}\""),
        "href=\"https://example.org/\"",
        "<a href=\"\">bad</a>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ]);
    get(&server, "/git/a/about/").has(&["<h1 id=\"hammer\">"]);
    get(&server, "/git/a/refs/").has(&[
        "feature/x",
        "v1.0",
        "v2.0",
        "v3.0",
        "the second",
        "default",
    ]);
    let log = get(&server, "/git/a/log/");
    log.has(&["Merge it", &main[..10], &first[..10], &side[..10]]);
    let side_log = get(&server, "/git/a/log/?h=feature/x");
    side_log.has(&[&side[..10], &first[..10]]);
    assert!(!side_log.text.contains(&main[..10]));
    for tag in ["v1.0", "v2.0", "v3.0"] {
        let log = get(&server, &format!("/git/a/log/?h={tag}"));
        log.has(&[&first[..10]]);
        assert!(!log.text.contains(&side[..10]));
    }
    let of_path = get(&server, "/git/a/log/docs/usage.md");
    of_path.has(&[&side[..10], "noindex"]);
    assert!(!of_path.text.contains(&first[..10]));
    get(&server, "/git/a/tree/").has(&[
        "docs/</a>",
        "README.md",
        "other <span",
        "link</span>",
        "program</span>",
        ".hidden/</a>",
        "b\u{fc}cher \u{2713}/</a>",
        "new\nline.txt",
    ]);
    get(&server, "/git/a/tree/other").has(&["Another repository", &first]);
    get(&server, "/git/a/tree/docs").has(&["/git/a/tree/docs/usage.md\""]);
    get(&server, "/git/a/tree/docs/use.md?h=v1.0")
        .has(&["<span id=n1><a href=\"#n1\">1</a>Hit it."]);
    get(&server, "/git/a/tree/run.sh")
        .has(&["<a href=\"#n1\">1</a><i class=c>#!/bin/sh</i>\n</span>"]);
    get(&server, "/git/a/tree/info/refs").has(&["a file of this name"]);
    get(&server, "/git/a/tree/git-upload-pack").has(&["and of this"]);
    assert_eq!(status(&server, "/git/a/tree/docs/use.md"), 404);
    let merge = get(&server, &format!("/git/a/commit/?id={main}"));
    merge.has(&[
        "<h1>Merge it</h1>",
        "was docs/use.md",
        "docs/usage.md",
        "only-here.txt",
        "Ant",
        ">diff<",
    ]);
    assert!(!merge.text.contains("other"), "{}", merge.text);
    get(&server, &format!("/git/a/commit/?id={first}")).has(&[
        "README.md",
        "+# Hammer",
        "&lt;script&gt;",
        "new\nline.txt",
        "Not a text.",
    ]);
    for (ending, page) in [("", "commit"), (".patch", "patch"), (".diff", "diff")] {
        let path = format!("/git/a/commit/{first}{ending}");
        let moved = ask(&server, &server.http(&path), &[]);
        let location = format!("/git/a/{page}/?id={first}");
        let led = (moved.status, moved.field("location"));
        assert_eq!(led, (302, Some(&*location)), "{path}");
    }
    get(&server, &format!("/git/a/diff/?id={main}&id2={first}")).has(&[
        "+Subproject commit",
        "was docs/use.md",
        &main,
        &first,
    ]);
    let narrow = get(
        &server,
        &format!("/git/a/diff/only-here.txt?id={main}&id2={first}"),
    );
    narrow.has(&["only-here.txt"]);
    assert!(!narrow.text.contains("usage.md"));
    get(&server, "/git/a/diff/?h=feature/x").has(&["was docs/use.md"]);
    let feed = get(&server, "/git/a/atom/?h=main");
    feed.has(&[
        "<feed xmlns",
        "<title>Merge it</title>",
        &format!("{origin}/git/a/commit/?id={main}"),
    ]);
    assert_eq!(
        feed.field("content-type"),
        Some("application/atom+xml; charset=utf-8")
    );
    let parsed = "import sys, xml.dom.minidom as m; print(len(m.parse(sys.stdin).getElementsByTagName('entry')))";
    let entries = run("python3", &["-c", parsed], feed.text.as_bytes());
    assert_eq!(entries.text().trim(), "5", "{}", entries.errors());
    for path in [
        "tree/none",
        "plain/docs",
        "plain/other",
        "plain/",
        "log/?h=none",
        "log/?h=blob",
        "log/?h=main:README.md",
        "log/?h=@%7B-1%7D",
        "log/?h=--all",
        "log/?id=--all",
        "commit/?id=HEAD",
        "commit/?id=0123456789012345678901234567890123456789",
        "commit/?id=0123",
        &format!("commit/?id={}", &first[..8]),
        &format!("commit/{}", &first[..8]),
        &format!("commit/{}.patch", &first[..8]),
        &format!("snapshot/a-{}.tar.gz", &first[..8]),
        &format!("log/{}", "a/".repeat(3_000)),
        "snapshot/b-main.tar.gz",
        "snapshot/a-none.tar.gz",
        "snapshot/a-main.zip",
        "snapshot/a-.tar.gz",
        "ls_cache/",
        "HEAD",
        "config",
        "refs/heads/main",
        "objects/info/packs",
        "log/?ofs=-1",
        "tree/docs/../../b",
        "tree/?id=0123456789012345678901234567890123456789012345678901234567890123",
    ] {
        assert_eq!(status(&server, &format!("/git/a/{path}")), 404, "{path}");
    }
    assert_eq!(status(&server, "/git/a/info/refs"), 403);
    let said = server.errors.all();
    assert!(!said.iter().any(|line| line.contains("fatal")), "{said:?}");
}

/// Set of the pages that [`every_link_resolves`] has visited.
///
/// A page depends on its kind, its path and its revision. Each path is visited with each form of a revision (none, a
/// branch or tag, a commit, both), and each kind of page with each revision, but not each path with each revision.
#[derive(Default)]
struct Visited {
    forms: BTreeSet<(String, Vec<String>)>,
    revisions: BTreeSet<(String, String)>,
}

impl Visited {
    /// Returns true if a page has a new path, a new form of its query or a new revision.
    fn is_new(&mut self, link: &str) -> bool {
        let (path, query) = link.split_once('?').unwrap_or((link, ""));
        let names = query.split('&').map(|part| part.split('=').next());
        let names = names.flatten().map(str::to_owned).collect();
        let has_new_form = self.forms.insert((path.to_owned(), names));
        let kind = path.split('/').take(4).collect::<Vec<_>>().join("/");
        let has_new_revision = self.revisions.insert((kind, query.to_owned()));
        has_new_form || has_new_revision
    }
}

#[test]
fn every_link_resolves() {
    let server = start();
    let mut client = Wire::plain(&server);
    client.patience(Duration::from_secs(120));
    let mut left = VecDeque::from(["/all/".to_owned()]);
    let mut seen = BTreeSet::new();
    let mut visited = Visited::default();
    while let Some(path) = left.pop_front() {
        // Most pages are visited in `a.git` only, to limit the number of requests.
        let is_elsewhere = !path.contains("/a.git/") && path.matches('/').count() > 5;
        if is_elsewhere || !visited.is_new(&path) {
            continue;
        }
        let page = client.get(&path, "");
        assert_eq!(page.status, 200, "{path}\n{page:?}");
        if page.closes() {
            client = Wire::plain(&server);
            client.patience(Duration::from_secs(120));
        }
        if page.field("content-type") != Some("text/html; charset=utf-8") {
            continue;
        }
        for (nth, part) in page.text().split("href=\"").enumerate() {
            let link = part
                .split('"')
                .next()
                .unwrap_or_default()
                .replace("&amp;", "&");
            let link = link.split('#').next().unwrap_or_default().to_owned();
            if nth > 0 && link.starts_with("/all/") && seen.insert(link.clone()) {
                left.push_back(link);
            }
        }
    }
    assert!(seen.len() > 100, "{}", seen.len());
    for part in [
        "/plain/",
        "/snapshot/",
        "%3Cb%3E",
        "new%0Aline",
        "/atom/",
        "/commit/",
        ".css",
    ] {
        assert!(seen.iter().any(|link| link.contains(part)), "{part}");
    }
}

#[test]
fn unusual_files() {
    let server = start();
    get(&server, "/git/a/tree/latin1.txt").has(&["caf\u{fffd}"]);
    get(&server, "/git/a/tree/binary").has(&["The file is not a text", "/git/a/plain/binary"]);
    get(&server, "/git/a/tree/empty").has(&["The file is empty"]);
    get(&server, "/git/a/tree/link").has(&["A link to <code>README.md</code>"]);
    get(&server, "/git/a/tree/dot.png")
        .has(&["<img class=shown alt=\"\" src=\"/git/a/plain/dot.png\">"]);
    get(&server, "/git/a/tree/evil.html").has(&["&lt;script&gt;alert(1)"]);
    get(&server, "/git/a/tree/new%0Aline.txt").has(&["a name of two lines"]);
    let odd = "b%C3%BCcher%20%E2%9C%93/a%26b%3Fc%23d%25e%3B%2B%20%22q%22%20%3Cb%3E.txt";
    get(&server, &format!("/git/a/tree/{odd}")).has(&["odd", "&lt;b&gt;.txt"]);
    let long = get(&server, "/git/a/tree/long.txt");
    long.has(&[
        "id=n20000>",
        "longer than this page",
        "/git/a/plain/long.txt",
    ]);
    assert!(!long.text.contains("id=n20001>"));
    let wide = get(&server, "/git/a/tree/wide.txt");
    assert!(wide.text.len() < 20_000, "{}", wide.text.len());
    for (path, kind) in [
        ("evil.html", "text/plain; charset=utf-8"),
        ("evil.svg", "text/plain; charset=utf-8"),
        ("binary", "application/octet-stream"),
        ("dot.png", "image/png"),
        ("README.md", "text/plain; charset=utf-8"),
        ("link", "text/plain; charset=utf-8"),
        ("empty", "text/plain; charset=utf-8"),
        (odd, "text/plain; charset=utf-8"),
    ] {
        let page = get(&server, &format!("/git/a/plain/{path}"));
        assert_eq!(page.field("content-type"), Some(kind), "{path}");
        let policy = page.field("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'; sandbox"), "{policy}");
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    }
    let policy = get(&server, "/git/a/log/");
    let policy = policy.field("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self'") && !policy.contains("script")
    );
    for name in ["wide.txt", "binary", "long.txt", "empty"] {
        let url = server.http(&format!("/git/a/plain/{name}"));
        let content = fs::read(server.folder.path(&format!("seed/{name}"))).expect("there");
        assert!(server.curl(&[&url]).stdout == content, "{name}");
    }
}

#[test]
fn a_snapshot_holds_the_files() {
    let server = start();
    let folder = &server.folder;
    let main = head(folder, "seed");
    for (name, reference) in [
        ("a-main", "main"),
        ("a-v1.0", "v1.0"),
        ("a-1.0", "v1.0"),
        ("a-feature/x", "feature/x"),
        (&format!("a-{main}"), "main"),
    ] {
        let url = server.http(&format!("/git/a.git/snapshot/{name}.tar.gz"));
        let file = folder.path("snapshot.tar.gz");
        let file = file.to_str().expect("plain");
        let ran = server.curl(&["-o", file, "-w", "%{http_code} %{content_type}", &url]);
        assert_eq!(ran.text(), "200 application/gzip", "{name}");
        let out = folder.path(&format!("out-{}", name.replace('/', "-")));
        fs::create_dir_all(&out).expect("a folder");
        let out = out.to_str().expect("plain");
        let done = run("tar", &["-xzf", file, "-C", out], b"");
        assert!(done.success, "{}", done.errors());
        let tree = format!("{out}/{}", name.replace('/', "-"));
        let made = git(
            folder,
            &["-C", "seed", "ls-tree", "-r", "--name-only", reference],
        );
        assert!(Path::new(&tree).join("README.md").is_file(), "{tree}");
        let readme = fs::read(Path::new(&tree).join("README.md")).expect("there");
        assert_eq!(readme, README.as_bytes());
        assert_eq!(
            Path::new(&tree).join("only-here.txt").exists(),
            made.contains("only-here.txt")
        );
    }
}

#[test]
fn clients_with_a_current_page_get_a_304() {
    let server = start();
    let folder = &server.folder;
    let main = head(folder, "seed");
    for url in [server.http("/git/a"), server.https("/git/a")] {
        let page = |path: &str, more: &[&str]| ask(&server, &format!("{url}{path}"), more);
        let for_ever = format!("/commit/?id={main}");
        let first = page(&for_ever, &[]);
        let keep = Some("public, max-age=31536000, immutable");
        assert_eq!(first.field("cache-control"), keep);
        let again = page(&for_ever, &[]);
        assert!(
            again.field("cache-status").expect("kept").contains("hit"),
            "{}",
            again.head
        );
        assert_eq!(again.text, first.text);
        for path in [
            "/",
            "/log/",
            "/tree/",
            "/refs/",
            "/atom/",
            "/plain/README.md",
            &for_ever,
        ] {
            let first = page(path, &[]);
            let tag = first.field("etag").expect("a tag").to_owned();
            let known = format!("If-None-Match: {tag}");
            let again = page(path, &["-H", &known]);
            assert_eq!(
                (again.status, again.text.as_str()),
                (304, ""),
                "{path}\n{}",
                again.head
            );
            assert_eq!(again.field("etag"), Some(tag.as_str()), "{path}");
            // A repeated request gets the stored page.
            let same = page(path, &[]);
            assert_eq!((same.status, &same.text), (200, &first.text), "{path}");
            let head = page(path, &["-I"]);
            assert_eq!(
                (head.status, head.field("etag")),
                (200, Some(tag.as_str())),
                "{path}"
            );
        }
    }
    // A push is visible at once, for clients with the old page too.
    let before = get(&server, "/git/a/log/");
    let tag = before.field("etag").expect("a tag").to_owned();
    commit(folder, "seed", "pushed.txt", b"pushed\n");
    git(
        folder,
        &["-C", "seed", "push", "-q", "../repos/a.git", "main"],
    );
    let now = head(folder, "seed");
    get(&server, "/git/a/log/").has(&[&now[..10]]);
    get(&server, "/git/a/").has(&[&now[..10]]);
    get(&server, "/git/a/tree/").has(&["pushed.txt"]);
    let known = format!("If-None-Match: {tag}");
    assert_eq!(
        ask(&server, &server.http("/git/a/log/"), &["-H", &known]).status,
        200
    );
    // Pages of a withdrawn repository disappear, immutable pages too.
    let for_ever = format!("/git/a/commit/?id={main}");
    get(&server, &for_ever);
    fs::remove_file(folder.path("repos/a.git/git-daemon-export-ok")).expect("removed");
    assert_eq!(status(&server, "/git/a/log/"), 404);
    wait_until(PATIENCE, "a page withdrawn", || {
        (status(&server, &for_ever) == 404).then_some(())
    });
}

#[test]
fn pages_behind_a_login_are_not_stored_by_shared_caches() {
    // The operator sets a public Cache-Control for all pages.
    let all =
        "headers = [{ files = \"**\", set = { \"Cache-Control\" = \"public, max-age=3600\" } }]";
    let server = start_site("git_pages_per_minute = 100000", all);
    let main = head(&server.folder, "seed");
    for path in [
        format!("/read/a/commit/?id={main}"),
        "/read/a/".to_owned(),
        "/read/".to_owned(),
    ] {
        assert_eq!(status(&server, &path), 401, "{path}");
        let url = as_ant(&server.http(&path));
        for _ in 0..2 {
            let page = ask(&server, &url, &[]);
            assert_eq!(page.status, 200, "{path}");
            let keep = page.field("cache-control").expect("a field");
            assert!(keep.starts_with("private"), "{path}: {keep}");
            let said = page.field("cache-status").expect("a field");
            assert!(
                !said.contains("hit") && !said.contains("stored"),
                "{path}: {said}"
            );
        }
    }
}

#[test]
fn pages_are_read_only() {
    let server = start();
    for path in ["/git/", "/git/a/", "/git/a/log/", "/git/a/plain/README.md"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let page = ask(&server, &server.http(path), &["-X", method, "-d", "x"]);
            assert_eq!(page.status, 405, "{method} {path}");
        }
    }
    // The git protocol bypasses the page cache.
    let said = server.curl(&[
        "-si",
        &server.http("/git/a.git/info/refs?service=git-upload-pack"),
    ]);
    assert!(!lossy(&said.stdout).contains("Cache-Status"));
    git(
        &server.folder,
        &["clone", "-q", &server.http("/git/a.git"), "cloned"],
    );
}

#[test]
fn clients_over_the_limit_get_a_429() {
    let server = start_with("git_heavy_per_minute = 3");
    let folder = &server.folder;
    let ids = git(folder, &["-C", "seed", "rev-list", "--all"]);
    let ids: Vec<&str> = ids.lines().collect();
    let page = |id: &str| {
        ask(
            &server,
            &server.http(&format!("/git/a/commit/?id={id}")),
            &[],
        )
    };
    for id in &ids[..3] {
        assert_eq!(page(id).status, 200);
    }
    let late = page(ids[3]);
    assert_eq!(late.status, 429, "{}", late.head);
    server.output.wait_for("the rule", |line| {
        line.contains(" 429 ") && line.contains("rule=R605")
    });
    let late = ask(
        &server,
        &server.https("/git/a/snapshot/a-main.tar.gz"),
        &["--http2"],
    );
    assert_eq!(late.status, 429, "{}", late.head);
    assert_eq!(status(&server, "/git/a/log/README.md"), 429);
    assert_eq!(status(&server, "/git/a/atom/"), 429);
    // Stored pages and cheap pages do not count against the limit, and git is not limited.
    assert_eq!(page(ids[0]).status, 200);
    for path in [
        "",
        "log/",
        "tree/",
        "tree/README.md",
        "plain/README.md",
        "refs/",
    ] {
        get(&server, &format!("/git/a/{path}"));
    }
    git(
        folder,
        &["clone", "-q", &server.http("/git/a.git"), "cloned"],
    );
}

/// With one page per minute, the Retry-After of the next request is most of the minute.
#[test]
fn a_429_has_a_retry_after() {
    for (limits, first, next) in [
        (
            "git_heavy_per_minute = 1",
            "atom/",
            "snapshot/a-main.tar.gz",
        ),
        ("git_pages_per_minute = 1", "log/", "tree/"),
        ("git_pages_per_minute = 1", "log/", "../"),
    ] {
        let server = start_with(limits);
        get(&server, &format!("/git/a/{first}"));
        let path = format!("/git/a/{next}").replace("/a/../", "/");
        let mut heads = vec![
            ask(&server, &server.http(&path), &[]).head,
            ask(&server, &server.https(&path), &["--http2"]).head,
            ask(&server, &server.http(&path), &["-I"]).head,
        ];
        #[cfg(feature = "http3")]
        heads.push(crate::h3::run_scenario(
            &server,
            &["ask", &format!("GET {path}")],
        ));
        for head in &heads {
            assert!(head.contains("429"), "{head}");
            let head = head.to_ascii_lowercase();
            assert_eq!(head.matches("retry-after").count(), 1, "{head}");
            let (_, said) = head.split_once("retry-after").expect("how long");
            let digits = said.trim_start_matches(|it: char| !it.is_ascii_digit());
            let digits = digits.split(|it: char| !it.is_ascii_digit()).next();
            let seconds: u32 = digits.unwrap_or_default().parse().expect("seconds");
            assert!((2..=60).contains(&seconds), "{head}");
        }
    }
}

#[test]
fn light_pages_have_a_limit_too() {
    let server = start_with("git_pages_per_minute = 2");
    let main = head(&server.folder, "seed");
    let for_ever = format!("/git/a/tree/README.md?id={main}");
    get(&server, &for_ever);
    get(&server, "/git/a/log/");
    for path in [
        "/git/a/log/",
        "/git/a/",
        "/git/",
        "/all/deep",
        "/git/a/tree/",
    ] {
        assert_eq!(status(&server, path), 429, "{path}");
    }
    // Stored immutable pages do not count, and git itself is not limited.
    get(&server, &for_ever);
    git(&server.folder, &["ls-remote", &server.http("/git/a.git")]);
}

#[test]
fn a_large_page_is_sent_whole_over_every_version_of_http() {
    let server = start();
    for path in ["/git/a/tree/long.txt", "/git/a/log/"] {
        let pages = [
            ask(&server, &server.http(path), &[]),
            ask(&server, &server.https(path), &["--http2"]),
            ask(&server, &server.http(path), &["--compressed"]),
        ];
        for page in &pages {
            assert_eq!(page.status, 200, "{path}");
            assert!(page.text.ends_with("</html>\n"), "{path}");
        }
    }
    let head = ask(&server, &server.http("/git/a/tree/long.txt"), &["-I"]);
    assert_eq!(head.status, 200);
}

#[test]
fn repositories_of_every_state() {
    let server = start();
    let folder = &server.folder;
    // A repository without a commit, bare and with a work tree.
    git(folder, &["init", "-q", "--bare", "repos/none.git"]);
    git(folder, &["init", "-q", "repos/tree"]);
    for name in ["none", "tree"] {
        get(&server, &format!("/all/{name}/")).has(&["The repository has no commits yet"]);
        for view in ["log/", "tree/", "refs/", "about/", "atom/"] {
            get(&server, &format!("/all/{name}/{view}"));
        }
        for view in ["commit/", "tree/x", "plain/x", "diff/"] {
            assert_eq!(
                status(&server, &format!("/all/{name}/{view}")),
                404,
                "{name} {view}"
            );
        }
    }
    // HEAD at a commit, and HEAD at an absent branch.
    git(folder, &["clone", "-q", "seed", "repos/detached"]);
    git(
        folder,
        &["-C", "repos/detached", "checkout", "-q", "--detach", "v1.0"],
    );
    let first = git(folder, &["-C", "seed", "rev-parse", "v1.0"]);
    get(&server, "/all/detached/log/").has(&[&first[..10]]);
    get(&server, "/all/detached/").has(&[&first[..10], "Hammer"]);
    git(
        folder,
        &[
            "-C",
            "repos/a.git",
            "symbolic-ref",
            "HEAD",
            "refs/heads/gone",
        ],
    );
    get(&server, "/all/a/log/").has(&["Merge it"]);
    get(&server, "/all/a/").has(&["Hammer"]);
    // Repositories with SHA-256 ids, shallow, partial, and with the objects of another repository.
    git(
        folder,
        &[
            "init",
            "-q",
            "-b",
            "main",
            "--object-format=sha256",
            "repos/wide",
        ],
    );
    commit(folder, "repos/wide", "a.txt", b"a\n");
    let id = head(folder, "repos/wide");
    assert_eq!(id.len(), 64);
    for path in [
        "/all/wide/",
        "/all/wide/log/",
        "/all/wide/tree/a.txt",
        &format!("/all/wide/commit/?id={id}"),
    ] {
        get(&server, path);
    }
    get(&server, &format!("/all/wide/snapshot/wide-{id}.tar.gz"));
    let url = format!("file://{}", folder.path("seed").display());
    git(
        folder,
        &[
            "clone",
            "-q",
            "--bare",
            "--depth",
            "1",
            &url,
            "repos/shallow.git",
        ],
    );
    get(&server, "/all/shallow/log/").has(&["Merge it"]);
    get(&server, "/all/shallow/commit/").has(&["Merge it"]);
    git(
        folder,
        &[
            "clone",
            "-q",
            "--bare",
            "--shared",
            "seed",
            "repos/shared.git",
        ],
    );
    get(&server, "/all/shared/").has(&["Hammer"]);
    git(
        folder,
        &["-C", "seed", "config", "uploadpack.allowFilter", "true"],
    );
    git(
        folder,
        &[
            "clone",
            "-q",
            "--bare",
            "--filter=blob:none",
            &url,
            "repos/partial.git",
        ],
    );
    get(&server, "/all/partial/log/");
    get(&server, "/all/partial/tree/");
    // Missing objects of a partial clone are not fetched for a client.
    assert_eq!(status(&server, "/all/partial/plain/evil.html"), 502);
    let missing = [
        "-C",
        "repos/partial.git",
        "rev-list",
        "--objects",
        "--missing=print",
        "--all",
    ];
    assert!(git(folder, &missing).contains("\n?"));
}

#[test]
fn a_corrupt_repository_is_an_error() {
    let server = start();
    let folder = &server.folder;
    folder.write("repos/a.git/packed-refs", "not a line of this file\n");
    for view in [
        "",
        "log/",
        "refs/",
        "tree/",
        "tree/README.md?h=main",
        "commit/",
    ] {
        let path = format!("/git/a/{view}");
        assert_eq!(status(&server, &path), 502, "{path}");
        server.output.wait_for(&path, |line| {
            line.contains(&format!(" {path} ")) && line.contains("rule=R721")
        });
    }
    server
        .errors
        .wait_for("the reason in the log", |line| line.contains("packed-refs"));
    // The objects of the repository.
    let objects = folder.path("repos/deep/er/b.git/objects");
    let found = run(
        "find",
        &[objects.to_str().expect("plain"), "-type", "f"],
        b"",
    );
    for object in found.text().lines().filter(|line| !line.ends_with(".idx")) {
        fs::set_permissions(object, fs::Permissions::from_mode(0o644)).expect("a mode");
        fs::write(object, noise(3_000)).expect("written");
    }
    for view in [
        "",
        "log/",
        "tree/",
        "snapshot/b-main.tar.gz",
        "plain/README.md",
    ] {
        let path = format!("/all/deep/er/b/{view}");
        let page = ask(&server, &server.http(&path), &[]);
        assert_eq!(page.status, 502, "{path}\n{}", page.text);
        assert!(
            !page.text.contains("fatal") && !page.text.contains("/repos"),
            "{}",
            page.text
        );
    }
    assert_eq!(server.body("/"), b"<p>hello</p>\n");
}

#[test]
fn a_repository_can_not_make_git_run_anything() {
    let server = start();
    let folder = &server.folder;
    let witness = folder.path("witness");
    let run_it = format!("touch {}; cat", witness.display());
    let attributes = "* diff=evil filter=evil merge=evil export-subst\n*.md diff=evil\n";
    commit(folder, "seed", ".gitattributes", attributes.as_bytes());
    git(
        folder,
        &["-C", "seed", "push", "-q", "../repos/a.git", "main"],
    );
    let script = folder.path("evil.sh");
    folder.write("evil.sh", format!("#!/bin/sh\n{run_it}\n"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
    let script = script.to_str().expect("plain");
    folder.write("more-config", format!("[core]\n\tpager = {script}\n"));
    let more = folder.path("more-config");
    for (key, value) in [
        ("diff.external", script),
        ("diff.evil.command", script),
        ("diff.evil.textconv", script),
        ("filter.evil.smudge", &run_it),
        ("filter.evil.clean", &run_it),
        ("filter.evil.process", script),
        ("filter.evil.required", "true"),
        ("merge.evil.driver", script),
        ("tar.tar.gz.command", &run_it),
        ("tar.tgz.command", &run_it),
        ("core.fsmonitor", script),
        ("core.pager", script),
        ("core.sshCommand", script),
        ("core.alternateRefsCommand", script),
        ("core.editor", script),
        ("core.askPass", script),
        ("credential.helper", script),
        ("log.showSignature", "true"),
        ("gpg.program", script),
        ("pager.log", script),
        ("alias.log", &format!("!{script}")),
        ("uploadpack.packObjectsHook", script),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", &format!("ext::{script}")),
        ("remote.origin.uploadpack", script),
        ("protocol.ext.allow", "always"),
        ("include.path", more.to_str().expect("plain")),
    ] {
        git(folder, &["-C", "repos/a.git", "config", key, value]);
    }
    folder.write("repos/a.git/info/attributes", "* diff=evil filter=evil\n");
    for hook in [
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
        "pre-auto-gc",
    ] {
        let file = format!("repos/a.git/hooks/{hook}");
        folder.write(&file, format!("#!/bin/sh\n{run_it}\n"));
        fs::set_permissions(folder.path(&file), fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let main = head(folder, "seed");
    let lost = "0123456789012345678901234567890123456789";
    for path in [
        "",
        "log/",
        "log/README.md",
        "refs/",
        "tree/",
        "tree/README.md",
        "plain/README.md",
        "about/",
        "atom/",
        "commit/",
        &format!("commit/?id={main}"),
        &format!("diff/?id={main}"),
        "diff/?h=feature/x",
        "snapshot/a-main.tar.gz",
        &format!("snapshot/a-{main}.tar.gz"),
        "log/?h=v3.0",
    ] {
        get(&server, &format!("/git/a/{path}"));
    }
    assert_eq!(status(&server, &format!("/git/a/commit/?id={lost}")), 404);
    assert!(!witness.exists());
    // git outside the server does run the program, which proves the test effective.
    let _ = try_git(
        folder,
        &[
            "-C",
            "repos/a.git",
            "archive",
            "--format=tar.gz",
            "-o",
            "x.tar.gz",
            "main",
        ],
    );
    assert!(witness.exists());
}

#[test]
fn a_bomb_of_folders_takes_no_memory() {
    let server = start();
    let folder = &server.folder;
    git(folder, &["init", "-q", "--bare", "repos/bomb.git"]);
    let made = |kind: &str, input: &str| {
        let mut command = command(folder, &["-C", "repos/bomb.git"]);
        match kind {
            "blob" => command.args(["hash-object", "-w", "--stdin"]),
            _ => command.arg("mktree"),
        };
        let done = finish(command, input.as_bytes());
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout.trim().to_owned()
    };
    let mut mode = "100644 blob";
    let mut id = made("blob", "boom\n");
    for _ in 0..12 {
        let line = |nth: usize| format!("{mode} {id}\td{nth}\n");
        id = made("tree", &(0..12).map(line).collect::<String>());
        mode = "040000 tree";
    }
    let commit = git(
        folder,
        &["-C", "repos/bomb.git", "commit-tree", "-m", "boom", &id],
    );
    git(
        folder,
        &[
            "-C",
            "repos/bomb.git",
            "update-ref",
            "refs/heads/main",
            &commit,
        ],
    );
    for path in ["log/", "tree/", "tree/d1/d2/d3"] {
        get(&server, &format!("/all/bomb/{path}"));
    }
    for path in ["commit/", "snapshot/bomb-main.tar.gz"] {
        assert_eq!(status(&server, &format!("/all/bomb/{path}")), 502, "{path}");
    }
    server
        .errors
        .wait_for("the reason in the log", |line| line.contains("emory"));
}

#[test]
fn refs_that_a_repository_hides() {
    let server = start();
    let folder = &server.folder;
    // A page seen before disappears, for clients with a stored copy too.
    let tags = ["", "refs/"].map(|path| {
        let page = get(&server, &format!("/git/a/{path}"));
        page.has(&["feature/x"]);
        (path, page.field("etag").expect("a tag").to_owned())
    });
    let config = [
        "-C",
        "repos/a.git",
        "config",
        "transfer.hideRefs",
        "refs/heads/feature",
    ];
    git(folder, &config);
    for (path, tag) in tags {
        let known = format!("If-None-Match: {tag}");
        let page = ask(
            &server,
            &server.http(&format!("/git/a/{path}")),
            &["-H", &known],
        );
        assert_eq!(page.status, 200, "{path}");
    }
    for path in ["", "refs/", "log/"] {
        let page = get(&server, &format!("/git/a/{path}"));
        assert!(!page.text.contains("feature"), "{path}: {}", page.text);
    }
    // An abbreviated id does not reveal a hidden commit either.
    let side = git(folder, &["-C", "seed", "rev-parse", "feature/x"]);
    for path in [
        format!("commit/?id={}", &side[..8]),
        format!("log/?id={}", &side[..12]),
        format!("diff/?id={side}&id2={}", &side[..8]),
        format!("snapshot/a-{}.tar.gz", &side[..8]),
    ] {
        assert_eq!(status(&server, &format!("/git/a/{path}")), 404, "{path}");
    }
    for path in [
        "log/?h=feature/x",
        "snapshot/a-feature/x.tar.gz",
        "?h=feature/x",
    ] {
        assert_eq!(status(&server, &format!("/git/a/{path}")), 404, "{path}");
    }
    get(&server, "/git/a/log/?h=main");
    let listed = git(folder, &["ls-remote", &server.http("/git/a")]);
    assert!(!listed.contains("feature"), "{listed}");
}

#[test]
fn a_repository_that_refuses_fetches_has_no_pages() {
    let server = start();
    let folder = &server.folder;
    let main = head(folder, "seed");
    let commit = format!("/git/a/commit/?id={main}");
    get(&server, &commit);
    let config = ["-C", "repos/a.git", "config", "http.uploadpack", "false"];
    git(folder, &config);
    for path in [
        "",
        "log/",
        "refs/",
        "tree/",
        "plain/README.md",
        "snapshot/a-main.tar.gz",
    ] {
        assert_eq!(status(&server, &format!("/git/a/{path}")), 404, "{path}");
    }
    wait_until(PATIENCE, "a page withdrawn", || {
        (status(&server, &commit) == 404).then_some(())
    });
    wait_until(PATIENCE, "the list", || {
        (!get(&server, "/git/").text.contains("/git/a.git/")).then_some(())
    });
    get(&server, "/all/").has(&["deep/er/b"]);
}

#[test]
fn signatures_of_commits_are_not_checked() {
    let folder = folder();
    let witness = folder.path("witness");
    for name in ["gpg", "gpgsm", "ssh-keygen"] {
        let file = format!("bin/{name}");
        folder.write(
            &file,
            format!("#!/bin/sh\ntouch {}\nexit 1\n", witness.display()),
        );
        fs::set_permissions(folder.path(&file), fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    commit(
        &folder,
        "seed",
        ".gitattributes",
        b"signed.txt export-subst\n",
    );
    commit(&folder, "seed", "signed.txt", b"$Format:%G? %GS$\n");
    let raw = git(&folder, &["-C", "seed", "cat-file", "commit", "HEAD"]);
    let (fields, text) = raw.split_once("\n\n").expect("a commit");
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQEz\n -----END PGP SIGNATURE-----";
    let mut hash = command(&folder, &["-C", "seed"]);
    hash.args(["hash-object", "-t", "commit", "-w", "--stdin"]);
    let made = finish(
        hash,
        format!("{fields}\n{signature}\n\n{text}\n").as_bytes(),
    );
    assert_eq!(made.code, Some(0), "{made:?}");
    let signed = made.stdout.trim();
    git(
        &folder,
        &[
            "-C",
            "seed",
            "push",
            "-q",
            "../repos/a.git",
            &format!("{signed}:refs/heads/signed"),
        ],
    );
    let path = format!("{}:/usr/bin:/bin", folder.path("bin").display());
    let limits = "limits = { git_heavy_per_minute = 1000 }\n";
    let text = server_table(limits) + &site_table("http = \"serve\"") + ROUTES;
    let mut start = Command::new(crate::support::program());
    start.env("PATH", &path);
    let server = Server::start_by(start, folder, &text);
    get(&server, "/git/a/snapshot/a-signed.tar.gz");
    get(&server, "/git/a/commit/?h=signed");
    assert!(!witness.exists());
    // git outside the server does find the programs, which proves the test effective.
    let mut archive = command(&server.folder, &["-C", "repos/a.git"]);
    archive.env("PATH", &path);
    archive.args(["archive", "--format=tar", "-o", "x.tar", "signed"]);
    finish(archive, b"");
    assert!(witness.exists());
}

#[test]
fn a_slow_reader_delays_no_other_client_and_leaves_no_process() {
    let server = start();
    let folder = &server.folder;
    folder.write("seed/large", noise(30_000_000));
    commit(folder, "seed", "large", &noise(30_000_000));
    git(
        folder,
        &["-C", "seed", "push", "-q", "../repos/a.git", "main"],
    );
    let programs = || {
        run(
            "ps",
            &[
                "--no-headers",
                "-o",
                "args",
                "--ppid",
                &server.pid().to_string(),
            ],
            b"",
        )
        .text()
    };
    let mut readers = Vec::new();
    // One address uses all its slots for downloads (three), and two further downloads wait.
    for path in [
        "plain/large",
        "snapshot/a-main.tar.gz",
        "plain/large",
        "snapshot/a-main.tar.gz",
        "plain/large",
    ] {
        let mut reader = server.connect();
        let request = format!("GET /git/a/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        reader.write_all(request.as_bytes()).expect("sent");
        readers.push(reader);
    }
    wait_until(PATIENCE, "three at work", || {
        (programs().lines().count() >= 3).then_some(())
    });
    // Pages and clones still work.
    for path in ["", "log/", "tree/", "commit/?h=v1.0"] {
        get(&server, &format!("/git/a/{path}"));
    }
    git(
        folder,
        &[
            "clone",
            "-q",
            "--depth",
            "1",
            &server.http("/git/a"),
            "cloned",
        ],
    );
    drop(readers);
    wait_until(PATIENCE, "the end of the programs", || {
        programs().trim().is_empty().then_some(())
    });
    let url = server.http("/git/a/plain/large");
    let content = fs::read(folder.path("seed/large")).expect("there");
    assert!(server.curl(&[&url]).stdout == content);
}

/// Commits `ands.txt`, a small file with a page of more than 3 MiB.
fn commit_large_page(folder: &Folder) {
    let large = "&&&&&&&&&&&&&&&&&&&&&&&\n".repeat(20_000);
    commit(folder, "seed", "ands.txt", large.as_bytes());
    git(
        folder,
        &["-C", "seed", "push", "-q", "../repos/a.git", "main"],
    );
}

/// Requests uncached pages on streams that the client does not read: more pages than the memory of all
/// clients together.
fn fill_memory_share(server: &Server) -> (H2, Vec<u32>) {
    let mut slow = H2::open(server, Over::Tls);
    slow.grants = false;
    let login = [("authorization", "Basic YW50OmNydW1i")];
    let asked: Vec<u32> = (0..40)
        .map(|_| slow.ask("GET", "/read/a/tree/ands.txt", &login, true))
        .collect();
    while !asked.iter().all(|id| slow.partial_response(*id).is_some()) {
        slow.until(frame::HEADERS);
    }
    (slow, asked)
}

#[test]
fn slow_readers_of_large_pages_leave_memory_to_other_clients() {
    let server = start();
    commit_large_page(&server.folder);
    let path = "/read/a/tree/ands.txt";
    let page = ask(&server, &as_ant(&server.https(path)), &[]);
    assert_eq!(page.status, 200, "{}", page.head);
    assert!(page.text.len() > 3 << 20, "{}", page.text.len());
    let (slow, asked) = fill_memory_share(&server);
    let status = |id: &u32| slow.partial_response(*id).map(|response| response.status);
    let statuses: Vec<_> = asked.iter().filter_map(status).collect();
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(statuses.contains(&503), "{statuses:?}");
    let from = |address: &str| {
        let more = ["--http1.1", "--interface", address];
        ask(&server, &as_ant(&server.https(path)), &more)
    };
    assert_eq!(from("127.0.0.1").status, 503);
    let other = from("127.0.0.2");
    assert_eq!(other.status, 200, "{}", other.head);
    assert_eq!(other.text.len(), page.text.len());
    // The memory is released with the connection.
    drop(slow);
    wait_until(PATIENCE, "room again", || {
        (from("127.0.0.1").status == 200).then_some(())
    });
}

/// A client waits for a page requested first by another address, and the first address may not get the
/// page.
#[test]
fn a_waiting_client_does_not_get_the_refusal_of_another_client() {
    let folder = folder();
    let script = format!(
        "#!/bin/sh\necho x >> '{0}/calls'\nwhile [ -e '{0}/hold' ]; do '{1}' 0.02; done\n\
         exec '{2}' \"$@\"\n",
        folder.path("").display(),
        tool("sleep").display(),
        tool("git").display(),
    );
    folder.program("bin/git", &script);
    commit_large_page(&folder);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = vec![folder.path("bin")];
    all.extend(std::env::split_paths(&path));
    let mut server = Command::new(crate::support::program());
    server.env("PATH", std::env::join_paths(all).expect("a path"));
    let config = server_table("") + &site_table("http = \"serve\"") + ROUTES;
    let server = Server::start_by(server, folder, &config);
    let folder = &server.folder;
    let calls = || {
        let text = fs::read_to_string(folder.path("calls")).unwrap_or_default();
        text.lines().count()
    };
    let (mut one, _) = fill_memory_share(&server);
    let before = calls();
    folder.write("hold", "");
    let path = "/git/a/tree/ands.txt";
    let first = one.ask("GET", path, &[], true);
    wait_until(PATIENCE, "git at work", || (calls() > before).then_some(()));
    let mut other = H2::open_from(&server, Ipv4Addr::new(127, 0, 0, 2));
    let second = other.ask("GET", path, &[], true);
    // Once both requests for `/` are answered, the server has read the request for the page too.
    for _ in 0..2 {
        assert_eq!(other.get("/").status, 200);
    }
    assert!(other.partial_response(second).is_none());
    fs::remove_file(folder.path("hold")).expect("removed");
    while one.partial_response(first).is_none() {
        one.until(frame::HEADERS);
    }
    assert_eq!(one.partial_response(first).map(|it| it.status), Some(503));
    let page = other.response(second);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(
        page.whole && page.body.len() > 3 << 20,
        "{}",
        page.body.len()
    );
    drop(one);
    server.output.wait_for("the rule", |line| {
        line.contains(" 503 ") && line.contains("rule=R606")
    });
}

#[test]
fn chromium_shows_the_pages() {
    let server = start();
    let profile = server.folder.path("profile");
    let read = |path: &str| {
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=5000",
            &format!("--user-data-dir={}", profile.display()),
            "--dump-dom",
            &server.http(path),
        ];
        let ran = run("chromium", &arguments, b"");
        assert!(
            ran.text().contains("</html>"),
            "{}{}",
            ran.text(),
            ran.errors()
        );
        ran.text()
    };
    let summary = read("/git/a.git/");
    assert!(
        summary.contains(">Hammer</h1>") && summary.contains("Merge it"),
        "{summary}"
    );
    assert!(
        summary.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{summary}"
    );
    let style = server
        .output
        .wait_for("its style", |line| line.contains(".style-"));
    assert!(style.contains("\" 200 "), "{style}");
    server.output.wait_for("its image", |line| {
        line.contains("/plain/dot.png?id=") && line.contains("\" 200 ")
    });
    let file = read("/git/a/tree/evil.html");
    assert!(
        file.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{file}"
    );
}
