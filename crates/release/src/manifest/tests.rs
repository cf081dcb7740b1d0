//! Tests of the reader and the writer of manifests.

use super::*;
use crate::limits::{
    RELEASE_CACHE_AGES_MAX, RELEASE_FOLDERS_MAX, RELEASE_INNER_STARS_MAX, RELEASE_PATTERNS_MAX,
    RELEASE_RULES_MAX,
};
use proptest::prelude::*;
use std::borrow::Cow;
use wire::content_coding::ContentCoding;

/// Digest of 64 digits `3`.
const DIGEST: &str = "3333333333333333333333333333333333333333333333333333333333333333";

fn read(text: &str) -> Result<Vec<ManifestLine<'_>>, ManifestError> {
    ManifestReader::new(text.as_bytes())?.collect()
}

fn write(lines: &[ManifestLine<'_>]) -> String {
    let mut writer = ManifestWriter::default();
    lines.iter().for_each(|line| writer.push(line));
    writer.finish()
}

fn file(path: &[u8]) -> ManifestLine<'_> {
    ManifestLine::File {
        path: Cow::Borrowed(path),
        content: BlobRef {
            size: 7,
            digest: [0x33; 32],
        },
        is_hashed: false,
    }
}

#[test]
fn a_manifest_is_read_and_written() {
    let text = format!(
        "anthill release 1\n\
         error 404 not%20found.html\n\
         error 500 oops.html\n\
         cache 31536000 assets/**\n\
         cache 0 **\n\
         fields **\n\
         field X-Frame-Options DENY\n\
         field Link </a.css>;%20rel=preload\n\
         fields *.js\n\
         redirect 301 /old /new\n\
         redirect! 302 /blog/* https://example.org/:splat\n\
         redirect 410 /gone\n\
         file 7 {DIGEST} a\n\
         hashed 0 {DIGEST} a-3f2a91.css\n\
         gzip 3 {DIGEST}\n\
         zstd 2 {DIGEST}\n\
         file 7 {DIGEST} a.d/%C3%A9%25\n\
         file 7 {DIGEST} .well-known/x\n"
    );
    // `.well-known` comes before `a` in the order of names.
    let (head, last) = text
        .rsplit_once(&format!("file 7 {DIGEST} .well"))
        .expect("the file");
    let at = head.find(&format!("file 7 {DIGEST} a\n")).expect("a file");
    let sorted = format!("{}file 7 {DIGEST} .well{last}{}", &head[..at], &head[at..]);
    assert!(read(&text).is_err());
    let lines = read(&sorted).expect("a manifest");
    assert_eq!(lines.len(), 17);
    assert_eq!(write(&lines), sorted);
    assert!(lines.contains(&file("a.d/\u{e9}%".as_bytes())));
    let redirect = lines.iter().find_map(|line| match line {
        ManifestLine::Redirect(line) if line.is_forced => Some(line),
        _ => None,
    });
    assert_eq!(
        redirect,
        Some(&RedirectLine {
            status: 302,
            is_forced: true,
            from: Cow::Borrowed(b"/blog/*"),
            to: Cow::Borrowed(b"https://example.org/:splat"),
        })
    );
    assert_eq!(read("anthill release 1\n"), Ok(Vec::new()));
}

#[test]
fn wrong_lines_are_refused() {
    for (line, what) in [
        ("file 7 D ../a", "a path climbs, or has a dot for a name"),
        ("file 7 D a/./b", "a path climbs, or has a dot for a name"),
        ("file 7 D /a", "a path is absolute, or has an empty name"),
        ("file 7 D a//b", "a path is absolute, or has an empty name"),
        ("file 7 D a/", "a path is absolute, or has an empty name"),
        ("file 7 D .git/config", "a path has a hidden name"),
        ("file 7 D a/.htaccess", "a path has a hidden name"),
        ("file 7 D a%00b", "a path contains a zero byte"),
        (
            "file 7 D %2E%2E/a",
            "a word is not encoded in the one permitted way",
        ),
        (
            "file 7 D %c3%a9",
            "a word is not encoded in the one permitted way",
        ),
        (
            "file 7 D %C",
            "a word is not encoded in the one permitted way",
        ),
        (
            "file 7 D \u{e9}",
            "a word is not encoded in the one permitted way",
        ),
        ("file 7 D a b", "the line has too many words"),
        ("file 7 D a ", "the line has too many words"),
        ("file 7 D", "the line has too few words"),
        ("file  7 D a", "the line has an empty word"),
        (
            "file 07 D a",
            "a number is not written in the one permitted way",
        ),
        (
            "file +7 D a",
            "a number is not written in the one permitted way",
        ),
        (
            "file 18446744073709551616 D a",
            "a number is not written in the one permitted way",
        ),
        (
            "file 1099511627777 D a",
            "the contents have more than 1 TiB",
        ),
        (
            "file 7 d41d8cd9 a",
            "a digest has 64 lower-case hexadecimal digits",
        ),
        (
            "file 7 DD a",
            "a digest has 64 lower-case hexadecimal digits",
        ),
        ("files 7 D a", "the kind of the line is unknown"),
        (
            "gzip 7 D",
            "a coded content stands behind its file, in the order gzip, br, zstd",
        ),
        ("error 200 a", "an error page has a status from 400 to 599"),
        ("error 404 ../a", "a path climbs, or has a dot for a name"),
        (
            "cache 999999999999 **",
            "the cache age is longer than 10 years",
        ),
        ("field A b", "a field stands only behind `fields`"),
        (
            "redirect 304 /a /b",
            "a redirect has the status 301, 302, 303, 307, 308 or 410",
        ),
        (
            "redirect 301 a /b",
            "a redirect begins at a path with an initial slash",
        ),
        ("redirect 301 /a", "the line has too few words"),
        ("redirect 410 /a /b", "the line has too many words"),
        ("", "the line has an empty word"),
    ] {
        let text = format!("anthill release 1\n{line}\n").replace('D', DIGEST);
        let expected = ManifestError { line: 2, what };
        assert_eq!(read(&text), Err(expected), "{line}");
    }
    let long = format!("anthill release 1\nfile 7 {DIGEST} {}\n", "a".repeat(256));
    assert_eq!(
        read(&long).map_err(|error| error.what),
        Err("a path has a name longer than 255 bytes")
    );
    for text in [
        "",
        "anthill release 2\n",
        "anthill release 1",
        "anthill release 1\r\n",
    ] {
        assert_eq!(read(text).map_err(|error| error.line), Err(1), "{text:?}");
    }
    let cut = format!("anthill release 1\nfile 7 {DIGEST} a");
    let expected = ManifestError {
        line: 2,
        what: "the line has no end",
    };
    assert_eq!(read(&cut), Err(expected));
}

#[test]
fn fields_of_the_server_and_of_the_host_are_refused() {
    let read_field = |name: &str| {
        let text = format!("anthill release 1\nfields **\nfield {name} x\n");
        read(&text)
            .map(|_| ())
            .map_err(|error| (error.line, error.what))
    };
    for name in [
        "Link",
        "Cache-Control",
        "Content-Type",
        "X-Set-Cookie",
        "Origin-Trial",
    ] {
        assert_eq!(read_field(name), Ok(()), "{name}");
    }
    for (names, what) in [
        (
            &["Transfer-Encoding", "date"][..],
            "only the server sets this field",
        ),
        (&["a%20b", "%C3%A9"], "the name of the field is invalid"),
        (
            &[
                "Set-Cookie",
                "strict-transport-security",
                "ALT-SVC",
                "Clear-Site-Data",
                "NEL",
                "Report-To",
                "Public-Key-Pins",
                "Set-Cookie2",
                "Accept-CH",
                "Origin-Agent-Cluster",
            ],
            "this field concerns the whole host, so only the operator sets the field",
        ),
        (
            &["Age", "Cache-Status", "via", "X-Accel-Redirect"],
            "this field is for caches and proxies, so only the operator sets the field",
        ),
    ] {
        for name in names {
            assert_eq!(read_field(name), Err((3, what)), "{name}");
        }
    }
}

#[test]
fn wrong_orders_are_refused() {
    for (lines, what) in [
        (
            "file 1 D b|file 1 D a",
            "the files are not in the order of their names",
        ),
        ("file 1 D a|file 1 D a", "a path occurs twice"),
        ("file 1 D a|hashed 2 D a", "a path occurs twice"),
        (
            "file 1 D a|file 1 D a/b",
            "a path is a file and a folder at once",
        ),
        (
            "file 1 D a/b|file 1 D a",
            "the files are not in the order of their names",
        ),
        (
            "file 1 D a|br 1 D|gzip 1 D",
            "a coded content stands behind its file, in the order gzip, br, zstd",
        ),
        (
            "file 1 D a|br 1 D|br 1 D",
            "a coded content stands behind its file, in the order gzip, br, zstd",
        ),
        (
            "file 1 D a|cache 1 **",
            "the line stands behind lines of a later kind",
        ),
        (
            "redirect 410 /a|fields **",
            "the line stands behind lines of a later kind",
        ),
        (
            "error 404 a|error 404 b",
            "the error pages are not in the order of their statuses",
        ),
        (
            "redirect 410 /a|field A b",
            "a field stands only behind `fields`",
        ),
    ] {
        let text = format!("anthill release 1\n{}\n", lines.replace('|', "\n"));
        let text = text.replace('D', DIGEST);
        let refused = read(&text).map_err(|error| error.what);
        assert_eq!(refused, Err(what), "{lines}");
    }
    // A folder and files with similar names stand in the order of the names, not of the bytes of the paths.
    let text = format!("anthill release 1\nfile 1 {DIGEST} a/b\nfile 1 {DIGEST} a-b\n");
    assert!(read(&text).is_ok());
    let many = "redirect 410 /a\n".repeat(RELEASE_RULES_MAX + 1);
    let text = format!("anthill release 1\n{many}");
    let expected = ManifestError {
        line: RELEASE_RULES_MAX + 2,
        what: "the manifest has too many rules, more than 20,000",
    };
    assert_eq!(read(&text), Err(expected));
}

/// Returns the place and the reason of the refusal of a manifest with the given lines.
fn refusal(lines: &str) -> Option<(usize, &'static str)> {
    let text = format!("anthill release 1\n{lines}").replace('D', DIGEST);
    let error = read(&text).err()?;
    Some((error.line, error.what))
}

#[test]
fn globs_and_fields_of_a_manifest_are_bounded() {
    let a = |count| "a".repeat(count);
    assert_eq!(refusal(&format!("cache 1 {}\n", a(256))), None);
    for (lines, line, what) in [
        (
            format!("cache 1 {}\n", a(257)),
            2,
            "the glob is longer than 256 bytes",
        ),
        (
            format!("cache 1 a\nfields {}x\n", "{,a}".repeat(4)),
            3,
            "the braces of the glob expand to more than 8 alternatives",
        ),
        (
            "fields a{b\n".to_owned(),
            2,
            "an opening brace without a closing brace",
        ),
        ("cache 1 a%FF\n".to_owned(), 2, "the glob is no UTF-8"),
        (
            format!("fields a\nfield {} b\n", a(129)),
            3,
            "the name of a field is longer than 128 bytes",
        ),
        (
            format!("fields a\nfield X {}\n", a(8 * 1024 + 1)),
            3,
            "the value of a field is longer than 8 KiB",
        ),
    ] {
        assert_eq!(refusal(&lines), Some((line, what)), "{what}");
    }
    // The fields of a file come from the globs with wildcards, and from the globs for its path and its name.
    let field = |bytes: usize| format!("field X {}\n", a(bytes - 1));
    let half = field(8 * 1024);
    for (globs, what) in [
        (
            ["*", "*.{a,b}", "a/**"],
            "the fields for globs with wildcards have more than 16 KiB",
        ),
        (
            ["/a", "/a", "/a"],
            "the fields for one path have more than 16 KiB",
        ),
    ] {
        let [one, two, three] = globs;
        let most = format!("fields {one}\n{half}fields {two}\n{half}");
        assert_eq!(refusal(&most), None);
        let more = format!("{most}fields {three}\n{}", field(2));
        assert_eq!(refusal(&more), Some((7, what)));
    }
    let apart = format!("fields *\n{half}{half}fields /a\n{half}{half}fields a\n{half}{half}");
    assert_eq!(refusal(&apart), None);
}

#[test]
fn the_number_of_rules_of_each_kind_is_bounded() {
    let many =
        |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    for (most, line, what) in [
        (
            RELEASE_CACHE_AGES_MAX,
            &(|nth| format!("cache 1 /a{nth}\n")) as &dyn Fn(usize) -> String,
            "the release has more than 1,000 cache ages",
        ),
        (
            RELEASE_PATTERNS_MAX,
            &|nth| format!("fields /a{nth}/*\n"),
            "the release has more than 128 globs with wildcards or braces",
        ),
        (
            RELEASE_INNER_STARS_MAX,
            &|nth| format!("redirect! 301 /*-{nth}x /n{nth}\n"),
            "the release has more than 100 redirects with text behind the `*`",
        ),
    ] {
        assert_eq!(refusal(&many(most, line)), None, "{what}");
        assert_eq!(refusal(&many(most + 1, line)), Some((most + 2, what)));
    }
    assert_eq!(
        refusal(&many(5_000, &|nth| format!("fields /a{nth}\n"))),
        None
    );
    let to = format!("redirect 301 /a /{}\n", "b".repeat(2_047));
    assert_eq!(refusal(&to), None);
    assert_eq!(
        refusal(&to.replace("/b", "/bb")),
        Some((2, "the destination of a redirect is longer than 2 KiB"))
    );
    let from = format!("redirect 410 /{}\n", "b".repeat(4_095));
    assert_eq!(
        refusal(&from),
        Some((2, "the path of a redirect is longer than 4,095 bytes"))
    );
}

#[test]
fn the_folders_of_a_manifest_are_bounded() {
    // Each file brings 50 folders.
    let below = "/x".repeat(49);
    let file = |nth: usize| format!("file 1 D {nth:06}{below}/f\n");
    let most: String = (0..RELEASE_FOLDERS_MAX / 50).map(file).collect();
    assert_eq!(refusal(&most), None);
    let more = format!("{most}file 1 D 9/f\n");
    let what = "the release has too many folders, more than 250,000";
    assert_eq!(refusal(&more), Some((RELEASE_FOLDERS_MAX / 50 + 2, what)));
    // Entries of one folder bring no folder.
    let shared = format!("{most}file 1 D 9\n");
    assert_eq!(refusal(&shared), None);
    let deep = format!("file 1 D {}f\n", "a/".repeat(63));
    assert_eq!(refusal(&deep), None);
    let what = "a path lies below more than 64 folders";
    assert_eq!(
        refusal(&format!("file 1 D {}f\n", "a/".repeat(64))),
        Some((2, what))
    );
}

#[test]
fn a_reader_ends_after_an_error() {
    let text = format!("anthill release 1\nx\nfile 1 {DIGEST} a\n");
    let mut reader = ManifestReader::new(text.as_bytes()).expect("a header");
    assert!(reader.next().is_some_and(|line| line.is_err()));
    assert!(reader.next().is_none());
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_texts(lines in "(anthill (release|pointer) [12]\n)?([a-z!]{1,8} [0-9a-f./ %]{0,80}\n){0,5}") {
        crate::invariants::release(lines.as_bytes());
    }

    #[test]
    fn all_names_survive(mut names in prop::collection::btree_set(prop::collection::vec(1u8.., 1..9), 1..9)) {
        names.retain(|name| name[0] != b'.' && !name.contains(&b'/'));
        let lines: Vec<ManifestLine<'_>> = names.iter().map(|name| file(name)).collect();
        let text = write(&lines);
        prop_assert_eq!(read(&text), Ok(lines));
    }

    #[test]
    fn a_text_that_is_read_is_canonical(words in "((file|hashed|gzip|br|error|cache|redirect!?) [0-9]{1,3} ?[a-c/.%2E]{0,4}\n){0,3}") {
        let text = format!("anthill release 1\n{words}");
        if let Ok(lines) = read(&text) {
            prop_assert_eq!(write(&lines), text);
        }
    }
}

#[test]
fn codings_have_the_names_of_the_field() {
    // The words of the format are the tokens of Content-Encoding.
    let tokens = [ContentCoding::Gzip, ContentCoding::Br, ContentCoding::Zstd];
    assert_eq!(tokens.map(ContentCoding::token), ["gzip", "br", "zstd"]);
}
