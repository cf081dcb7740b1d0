use super::*;
use crate::request_head::Method;
use crate::request_target::{EncodedSlash, encode_path, is_below, parse_target_with};
use proptest::prelude::*;

/// Returns all readings of a path with the normalised path in front; None for a refused path.
fn readings(raw: &str, slashes: Slashes) -> Option<Vec<String>> {
    let target = parse_target_with(Method::Get, raw.as_bytes(), EncodedSlash::Separator).ok()?;
    let others = PathReadings::of(target.raw_path, &target.path, slashes);
    let others = others.iter().flat_map(|others| others.iter());
    let all = [&*target.path].into_iter().chain(others);
    Some(
        all.map(|path| String::from_utf8_lossy(path).into_owned())
            .collect(),
    )
}

#[test]
fn spellings_that_name_one_page_have_one_path_in_the_page_cache() {
    for (raw, expected) in [
        ("/a/b", "/a/b"),
        ("/x/../a/./b", "/a/b"),
        ("/x/%2e%2E/a/b", "/a/b"),
        ("/%61/%62%7e%7E", "/a/b~~"),
        ("/a%2Bb%c3%A4%20%2Fc;d//e%", "/a%2Bb%c3%A4%20%2Fc;d//e%"),
        ("/a%2561", "/a%2561"),
        ("*", "*"),
    ] {
        assert_eq!(
            String::from_utf8_lossy(&page_path(raw.as_bytes())),
            expected
        );
    }
}

#[test]
#[rustfmt::skip]
fn a_path_has_a_reading_for_each_habit_of_applications() {
    for (raw, expected) in [
        ("/", &["/"][..]),
        ("/a/b", &["/a/b"]),
        ("/a%20b/../c", &["/c"]),
        ("/.well-known/a", &["/.well-known/a"]),
        // Parameters.
        ("/a;x=1/b", &["/a;x=1/b", "/a/b"]),
        ("/a%3bx/b;", &["/a;x/b;", "/a/b"]),
        ("/a;x/../b", &["/b"]),
        ("/a/..;x/b", &["/a/..;x/b", "/b", "/a/../b"]),
        ("/..;x/b", &["/..;x/b", "/b", "/../b"]),
        ("/a/;x/b", &["/a/;x/b", "/a/b", "/a//b"]),
        ("/a/;x", &["/a/;x", "/a/"]),
        // Doubled slashes.
        ("/a//b", &["/a/b", "/a//b"]),
        ("//a/", &["/a/", "//a/"]),
        ("/a//", &["/a/", "/a//"]),
        ("/a;x//b", &["/a;x/b", "/a/b", "/a;x//b", "/a//b"]),
        // The path is sent as the server reads it.
        ("/a//../b", &["/b"]),
        // Encoded slashes.
        ("/a%2Fb", &["/a/b", "/a%2Fb"]),
        ("/a%2f%2Fb", &["/a/b", "/a%2f%2Fb", "/a//b"]),
        ("/a%2F..%2Fb", &["/b", "/a%2F..%2Fb", "/a/../b"]),
        ("/a%252Fb", &["/a%2Fb"]),
        // The member gets `/c%2Fd`.
        ("/a%2Fb/../c%2Fd", &["/c/d", "/c%2Fd"]),
        // A member that keeps the doubled slash climbs by fewer names.
        ("/a/b%2F%2F..%2F..%2Fc", &["/c", "/a/c", "/a/b%2F%2F..%2F..%2Fc", "/a/b/../../c"]),
    ] {
        let found = readings(raw, Slashes::Keep).expect("a path");
        assert_eq!(found[0], expected[0], "{raw}");
        let sorted = |all: &[String]| {
            let mut all = all.to_vec();
            all.sort();
            all
        };
        let expected: Vec<String> = expected.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(sorted(&found), sorted(&expected), "{raw}");
    }
    assert_eq!(readings("/a//b", Slashes::Merge).as_deref(), Some(&["/a/b".to_owned()][..]));
}

#[test]
#[rustfmt::skip]
fn an_application_gets_the_path_without_dot_segments() {
    for (raw, kept, merged) in [
        ("/", "/", "/"),
        ("/a/b", "/a/b", "/a/b"),
        ("/a%2fb;x/%41", "/a%2fb;x/%41", "/a%2fb;x/%41"),
        ("/a/./b/%2e%2E/c", "/a/c", "/a/c"),
        ("/a/..", "/", "/"),
        ("/a//b", "/a//b", "/a/b"),
        ("//a//", "//a//", "/a/"),
        ("//", "//", "/"),
        ("/a//.", "/a//", "/a/"),
        ("/p/https://e.org/a/../b", "/p/https://e.org/b", "/p/https:/e.org/b"),
        // Recipients disagree about a dot segment behind a doubled slash.
        ("/a//../b", "/b", "/b"),
        ("/a/b//%2e%2e/c", "/a/c", "/a/c"),
        // Three dots are a name, and so are dots that are encoded twice.
        ("/a/.../%252e%252e/b", "/a/.../%252e%252e/b", "/a/.../%252e%252e/b"),
    ] {
        for (slashes, expected) in [(Slashes::Keep, kept), (Slashes::Merge, merged)] {
            let sent = sent_path(raw.as_bytes(), slashes);
            assert_eq!(String::from_utf8_lossy(&sent), expected, "{raw}");
        }
    }
}

#[test]
#[rustfmt::skip]
fn an_encoded_slash_has_two_readings() {
    type Reading = Result<&'static str, u16>;
    let table: &[(&str, Reading, Reading)] = &[
        ("/a%2Fb", Ok("/a/b"), Ok("/a%2Fb")),
        ("/a%2fb%20c", Ok("/a/b c"), Ok("/a%2fb c")),
        ("/%2F", Ok("/"), Ok("/%2F")),
        ("/a%2F%2F/b/", Ok("/a/b/"), Ok("/a%2F%2F/b/")),
        ("/a%2F..%2Fb", Ok("/b"), Ok("/a%2F..%2Fb")),
        ("/a/x%2F%2e%2e%2F%2e%2e%2Fb", Ok("/b"), Ok("/a/x%2F..%2F..%2Fb")),
        ("/a%2F..%2F..%2Fb", Err(111), Ok("/a%2F..%2F..%2Fb")),
        ("/a%2F../b", Ok("/b"), Ok("/a%2F../b")),
        ("/a/../%2F", Ok("/"), Ok("/%2F")),
        ("/a%2Fb/../c%2Fd", Ok("/c/d"), Ok("/c%2Fd")),
        ("/a%252Fb", Ok("/a%2Fb"), Ok("/a%2Fb")),
        ("/a%2Fb%5C", Err(115), Err(115)),
        ("/a%2Fb%00", Err(113), Err(113)),
        ("/a%2Fb%2", Err(112), Err(112)),
        ("/%2F/../..", Err(111), Err(111)),
    ];
    for (raw, separated, opaque) in table {
        let parsed = parse_target_with(Method::Get, raw.as_bytes(), EncodedSlash::Separator);
        let expected = |reading: &Reading| reading.map(|path| path.as_bytes().to_vec());
        let rules = |reading: Result<Vec<u8>, Reject>| reading.map_err(|reject| reject.rule);
        assert_eq!(rules(parsed.map(|target| target.path.into_owned())), expected(separated), "{raw}");
        assert_eq!(rules(opaque_path(raw.as_bytes())), expected(opaque), "{raw}");
        assert_eq!(has_encoded_slash(raw.as_bytes()), !raw.contains("%25"), "{raw}");
    }
}

#[test]
#[rustfmt::skip]
fn parameters_are_removed_from_segments() {
    for (path, expected) in [
        ("/", None),
        ("/a/b/", None),
        ("/a;x/b", Some("/a/b")),
        ("/a;x=1;y=2/b;z/", Some("/a/b/")),
        ("/a;", Some("/a")),
        ("/a/;x", Some("/a/")),
        ("/a;/", Some("/a/")),
        ("/;x/a", Some("/a")),
        ("/;x", Some("/")),
        ("/;x/;y/", Some("/")),
        ("/a/.;x/b", Some("/a/b")),
        ("/a/..;x/b", Some("/b")),
        ("/a/b/..;", Some("/a/")),
        ("/..;x/a", Some("/a")),
        // A rewritten path is decoded, and the application gets the percent sign encoded.
        ("/a%3Bx/b", None),
    ] {
        let readings = PathReadings::of_rewritten(path.as_bytes());
        let found = readings.as_ref().and_then(|readings| readings.merged().next());
        assert_eq!(found, expected.map(str::as_bytes), "{path}");
    }
}

#[test]
#[rustfmt::skip]
fn a_path_may_not_leave_the_path_of_its_route() {
    for (raw, depth, leaves) in [
        ("/shop/a%2Fb", 1, false),
        ("/shop/a%2F..%2Fb", 1, false),
        ("/shop/a/b%2F..%2F..%2Fc", 1, false),
        ("/shop/%2e%2e%2Fshop/secret", 1, true),
        ("/shop/..%2Fshop%2Fsecret", 1, true),
        ("/shop/a%2F..%2F..%2Fshop/b", 1, true),
        // The doubled slash counts as no name, as with members that merge slashes.
        ("/shop/a%2F%2F..%2F..%2Fshop", 1, true),
        ("/a%2F..%2Fb", 0, false),
        ("/..%2Fb", 0, true),
        ("/a/b/..%2Fb", 2, true),
        ("/a/b/c%2F..%2Fd", 2, false),
    ] {
        assert_eq!(leaves_route(raw.as_bytes(), depth), leaves, "{raw} {depth}");
    }
}

/// Habits of an application that looks a path up.
#[derive(Clone, Debug)]
struct Application {
    has_separators: bool,
    /// Whether the application removes parameters: before the decoding, or after.
    cuts: Option<bool>,
    merges: bool,
    /// Whether doubled slashes are merged before dot segments are resolved.
    merges_first: bool,
    resolves: bool,
}

impl Application {
    /// Returns the path that the application looks up for a path as sent.
    fn path(&self, sent: &[u8]) -> String {
        let cut = |text: String| {
            let segments = text.split('/');
            let plain = segments.map(|segment| segment.split(';').next().unwrap_or_default());
            plain.collect::<Vec<_>>().join("/")
        };
        let mut text = String::from_utf8_lossy(sent).into_owned();
        if self.cuts == Some(false) {
            text = cut(text);
        }
        if !self.has_separators {
            text = text.replace("%2F", "%252F").replace("%2f", "%252f");
        }
        let mut decoded = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find('%') {
            decoded.push_str(&rest[..at]);
            let byte = u8::from_str_radix(&rest[at + 1..at + 3], 16).expect("two digits");
            decoded.push(char::from(byte));
            rest = &rest[at + 3..];
        }
        text = decoded + rest;
        if self.cuts == Some(true) {
            text = cut(text);
        }
        let merged = |mut text: String| {
            while text.contains("//") {
                text = text.replace("//", "/");
            }
            text
        };
        if self.merges && self.merges_first {
            text = merged(text);
        }
        if self.resolves {
            let mut segments: Vec<&str> = Vec::new();
            let mut all = text[1..].split('/').peekable();
            while let Some(segment) = all.next() {
                match segment {
                    "." | ".." => {
                        if segment == ".." {
                            segments.pop();
                        }
                        if all.peek().is_none() {
                            segments.push("");
                        }
                    }
                    name => segments.push(name),
                }
            }
            text = format!("/{}", segments.join("/"));
        }
        if self.merges { merged(text) } else { text }
    }
}

fn application() -> impl Strategy<Value = Application> {
    let cuts = prop_oneof![Just(None), Just(Some(false)), Just(Some(true))];
    let habits = (
        any::<bool>(),
        cuts,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    habits.prop_map(
        |(has_separators, cuts, merges, merges_first, resolves)| Application {
            has_separators,
            cuts,
            merges,
            merges_first,
            resolves,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever an application finds below `/a/b`, a reading lies there too, unless the server refuses the path.
    #[test]
    fn no_application_finds_a_path_outside_of_the_readings(
        raw in "(/|//|a|b|\\.|\\.\\.|%2e|%2E%2e|%2F|%2f|;|;x|%3b|%61|%62|%25|/a/b|/a/b/|/%2e%2e){1,12}",
        application in application(),
        keeps in any::<bool>(),
    ) {
        let raw = format!("/{raw}");
        let slashes = if keeps { Slashes::Keep } else { Slashes::Merge };
        let Some(readings) = readings(&raw, slashes) else { return Ok(()) };
        let has_dots_with_parameter = readings[0]
            .split('/')
            .any(|it| it.starts_with(".;") || it.starts_with("..;"));
        let has_both = has_encoded_slash(raw.as_bytes()) && has_raw_parameters(raw.as_bytes());
        if has_dots_with_parameter || has_both {
            // Such paths reach no member.
            return Ok(());
        }
        let found = application.path(&sent_path(raw.as_bytes(), slashes));
        for prefix in ["/a", "/b", "/a/b", "/b/a", "/a/b/a"] {
            if is_below(found.as_bytes(), prefix.as_bytes()) {
                let mut readings = readings.iter();
                prop_assert!(
                    readings.any(|path| is_below(path.as_bytes(), prefix.as_bytes())),
                    "{raw}: {found}"
                );
            }
        }
    }

    /// A path without a further reading is sent as the server reads it.
    #[test]
    fn a_path_with_one_reading_is_the_normalised_path(
        raw in "(/|a|b|\\.|\\.\\.|%2e|%61|%20|//|;){0,12}",
    ) {
        let raw = format!("/{raw}");
        let Some(readings) = readings(&raw, Slashes::Keep) else { return Ok(()) };
        if let [path] = &readings[..] {
            let sent = sent_path(raw.as_bytes(), Slashes::Keep);
            let decoded = normalise(&sent).map(|it| String::from_utf8_lossy(&it).into_owned());
            prop_assert_eq!(decoded.as_ref(), Ok(path));
            let mut encoded = Vec::new();
            encode_path(path.as_bytes(), &mut encoded);
            prop_assert_eq!(PathReadings::of_rewritten(path.as_bytes()), None);
        }
    }
}
