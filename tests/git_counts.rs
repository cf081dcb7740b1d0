//! Counts of changed lines on pages of commits and differences with a diff too long for one page.

use std::os::unix::fs::symlink;

use crate::git::{commit, git, head};
use crate::support::{Folder, Server, server_table, site_table};

const ROUTE: &str = "[[site.route]]\npath = \"/git/\"\ngit = \"repos\"\nexport = \"all\"\n";
const NOTE: &str = "More changed than a page can show.";
const END: &str = "The diff is cut here.";

/// Makes lines that differ for each `seed`.
fn lines(seed: &str, count: usize, bytes: usize) -> String {
    let line = |nth: usize| format!("{seed} {nth} {}\n", "x".repeat(bytes));
    (0..count).map(line).collect()
}

/// Makes a repository with a commit that changes files of all kinds. The names determine the order of the
/// diffs.
fn folder(count: usize, bytes: usize) -> Folder {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    git(&folder, &["init", "-q", "-b", "main", "repos/a"]);
    folder.write("repos/a/b-long.txt", lines("old", count, bytes));
    folder.write("repos/a/c-link", "a file\n");
    folder.write("repos/a/d-short.txt", lines("old", 3, 1));
    folder.write("repos/a/e-old.txt", lines("same", 40, 1));
    folder.write("repos/a/g-binary", b"a\0b");
    commit(&folder, "repos/a", "a-first.txt", b"one\n");
    folder.write("repos/a/b-long.txt", lines("new", count + 7, bytes));
    std::fs::remove_file(folder.path("repos/a/c-link")).expect("a file");
    symlink("a-first.txt", folder.path("repos/a/c-link")).expect("a link");
    folder.write("repos/a/d-short.txt", lines("new", 5, 1));
    let (from, to) = ("repos/a/e-old.txt", "repos/a/f-new.txt");
    std::fs::rename(folder.path(from), folder.path(to)).expect("a new name");
    let renamed = lines("same", 40, 1) + "more\n";
    folder.write("repos/a/f-new.txt", renamed);
    folder.write("repos/a/g-binary", b"a\0c");
    commit(&folder, "repos/a", "a-first.txt", b"two\n");
    folder
}

fn start(folder: Folder) -> Server {
    let config = server_table("") + &site_table("http = \"serve\"") + ROUTE;
    Server::start_in(folder, &config)
}

fn page(server: &Server, path: &str) -> String {
    let page = String::from_utf8_lossy(&server.body(path)).into_owned();
    assert!(page.contains("</html>"), "{path}: {page}");
    page
}

/// Returns the counts of `git diff --shortstat` as HTML: `<b>+2</b> <i>−1</i>`.
fn shortstat_html(folder: &Folder, range: &[&str]) -> (String, String) {
    let arguments = [&["-C", "repos/a", "diff", "-M", "--shortstat"][..], range].concat();
    let said = git(folder, &arguments);
    let number = |word: &str| {
        let part = said.split(", ").find(|part| part.contains(word));
        part.map_or("0", |part| part.trim().split(' ').next().unwrap_or("0"))
    };
    let lines = format!(
        "<b>+{}</b> <i>−{}</i>",
        number("insertion"),
        number("deletion")
    );
    (number("changed").to_owned(), lines)
}

/// Checks the heading with git's counts and, right below the heading, the note about the shortened diff.
#[track_caller]
fn assert_shortened_with_counts(page: &str, (files, lines): &(String, String)) {
    let word = if files == "1" { "file" } else { "files" };
    let heading = format!("<h2>{files} {word} changed <span class=stat>{lines}</span></h2>\n");
    let (_, below) = page.split_once(&heading).unwrap_or_else(|| {
        let at = page.find("<h2>").unwrap_or(0);
        panic!("{heading}\n{:?}", page[at..].get(..300))
    });
    assert!(
        below.starts_with(&format!("<p class=note>{NOTE}")),
        "{:?}",
        below.get(..300)
    );
    let (list, diffs) = below.split_once("</ul>").expect("a list");
    assert!(!list.contains(END) && diffs.contains(END));
}

#[test]
fn a_patch_of_too_many_bytes_or_lines() {
    for (count, bytes) in [(3_000, 400), (15_000, 1)] {
        let server = start(folder(count, bytes));
        let folder = &server.folder;
        let newest = head(folder, "repos/a");
        let first = git(folder, &["-C", "repos/a", "rev-parse", "main~1"]);
        let expected = shortstat_html(folder, &["main~1", "main"]);
        let commit = page(&server, &format!("/git/a/commit/?id={newest}"));
        assert_shortened_with_counts(&commit, &expected);
        // The list has all files, including the files without a diff on the page.
        let long = format!("<b>+{}</b> <i>−{count}</i>", count + 7);
        for (name, lines) in [
            ("a-first.txt", "<b>+1</b> <i>−1</i>"),
            ("b-long.txt", &long),
            ("c-link", "<b>+1</b> <i>−1</i>"),
            ("d-short.txt", "<b>+5</b> <i>−3</i>"),
            (
                "f-new.txt",
                "was e-old.txt<span class=stat><b>+1</b> <i>−0</i>",
            ),
            ("g-binary", ""),
        ] {
            let mut rows = commit.split("<li>").skip(1);
            let row = rows.find(|row| row.contains(name)).expect(name);
            let row = row.split_once('\n').map_or(row, |(row, _)| row);
            assert!(row.contains(lines), "{name}: {row}");
            // Only files with a diff on the page have a link.
            let is_shown = matches!(name, "a-first.txt" | "b-long.txt");
            assert_eq!(row.contains("href=\"#f"), is_shown, "{name}: {row}");
        }
        assert_eq!(commit.matches("<li>").count(), 6);
        let diff = page(&server, &format!("/git/a/diff/?id={newest}&id2={first}"));
        assert_shortened_with_counts(&diff, &expected);
        let one = page(
            &server,
            &format!("/git/a/diff/b-long.txt?id={newest}&id2={first}"),
        );
        let of_one = shortstat_html(folder, &["main~1", "main", "--", "b-long.txt"]);
        assert_shortened_with_counts(&one, &of_one);
    }
}

/// A commit without a parent is compared with the empty tree, and a merge with its first parent.
#[test]
fn a_first_commit_and_a_merge() {
    let folder = folder(22_000, 1);
    let repository = |arguments: &[&str]| git(&folder, &[&["-C", "repos/a"], arguments].concat());
    repository(&["checkout", "-q", "-b", "side", "main~1"]);
    commit(&folder, "repos/a", "h-side.txt", b"side\n");
    repository(&["checkout", "-q", "-b", "other", "main~1"]);
    commit(&folder, "repos/a", "i-other.txt", b"other\n");
    repository(&["merge", "-q", "-m", "both", "main"]);
    let (first, merge) = (
        repository(&["rev-parse", "main~1"]),
        repository(&["rev-parse", "other"]),
    );
    let empty = repository(&["hash-object", "-t", "tree", "/dev/null"]);
    let of_first = shortstat_html(&folder, &[&empty, "main~1"]);
    let of_merge = shortstat_html(&folder, &["other~1", "other"]);
    let server = start(folder);
    assert_shortened_with_counts(
        &page(&server, &format!("/git/a/commit/?id={first}")),
        &of_first,
    );
    assert_shortened_with_counts(
        &page(&server, &format!("/git/a/commit/?id={merge}")),
        &of_merge,
    );
}

/// A change of a file's type is two entries in a patch and one in git's counts.
#[test]
fn a_file_that_became_a_link_counts_once() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    git(&folder, &["init", "-q", "-b", "main", "repos/a"]);
    folder.write("repos/a/b-long.txt", lines("old", 22_000, 1));
    commit(&folder, "repos/a", "a-link", b"one\ntwo\n");
    std::fs::remove_file(folder.path("repos/a/a-link")).expect("a file");
    symlink("b-long.txt", folder.path("repos/a/a-link")).expect("a link");
    commit(&folder, "repos/a", "b-long.txt", b"");
    let newest = head(&folder, "repos/a");
    let (_, lines) = shortstat_html(&folder, &["main~1", "main"]);
    let server = start(folder);
    let page = page(&server, &format!("/git/a/commit/?id={newest}"));
    let expected = format!("changed <span class=stat>{lines}</span></h2>\n<p class=note>{NOTE}");
    assert!(page.contains(&expected), "{lines}");
}

/// The patch is within its bound, but its HTML is too long: every `"` takes 6 bytes as `&quot;`.
#[test]
fn a_patch_that_is_long_as_html_alone() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    git(&folder, &["init", "-q", "-b", "main", "repos/a"]);
    folder.write(
        "repos/a/a-quotes.txt",
        ("\"".repeat(48) + "\n").repeat(17_000),
    );
    commit(&folder, "repos/a", "b-last.txt", b"last\n");
    let newest = head(&folder, "repos/a");
    let server = start(folder);
    let page = page(&server, &format!("/git/a/commit/?id={newest}"));
    let lines = "<b>+17001</b> <i>−0</i>".to_owned();
    assert_shortened_with_counts(&page, &("2".to_owned(), lines));
}

#[test]
fn a_patch_that_is_whole_has_no_note() {
    let folder = folder(100, 1);
    let newest = head(&folder, "repos/a");
    let (_, lines) = shortstat_html(&folder, &["main~1", "main"]);
    let server = start(folder);
    let page = page(&server, &format!("/git/a/commit/?id={newest}"));
    assert!(!page.contains(NOTE) && !page.contains(END));
    assert!(page.contains(&format!("changed <span class=stat>{lines}")));
    assert!(page.contains("href=\"#f6\"") && page.contains("id=f6>"));
}
