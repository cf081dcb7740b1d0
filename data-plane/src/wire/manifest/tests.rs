//! Tests of the reader and the writer of manifests.

use super::*;
use crate::limits::RELEASE_RULES_MAX;
use crate::wire::content_coding::ContentCoding;
use proptest::prelude::*;
use std::borrow::Cow;

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
    for name in ["Link", "Cache-Control", "Content-Type", "X-Set-Cookie"] {
        assert_eq!(read_field(name), Ok(()), "{name}");
    }
    for (names, what) in [
        (
            &["Transfer-Encoding", "date", "a%20b", "%C3%A9"][..],
            "only the server sets this field, or the name is invalid",
        ),
        (
            &[
                "Set-Cookie",
                "strict-transport-security",
                "ALT-SVC",
                "Clear-Site-Data",
            ],
            "this field concerns the whole host, so only the operator sets the field",
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
        what: "the manifest has too many rules",
    };
    assert_eq!(read(&text), Err(expected));
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
        crate::wire::invariants::release(lines.as_bytes());
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
