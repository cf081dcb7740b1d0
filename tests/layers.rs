//! Tests of the rooms, the folders of modules of each package: a room names only the rooms that the table of
//! ARCHITECTURE.md allows, and lib.rs lists the rooms of the server in the order of the table.
//!
//! The tests read the sources as words, without a parser for Rust. Words are sufficient to find every path
//! beginning with `crate`, `super` or the name of a crate, and the rules concern only paths.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::papers::paper;

/// A room of the table in ARCHITECTURE.md.
struct Room {
    /// Folder of the package.
    package: String,
    name: String,
    /// Rooms that the room may name.
    may_name: Vec<String>,
}

/// The rooms of all packages from the bottom to the top.
struct Rooms(Vec<Room>);

impl Rooms {
    /// Reads the table: `| `data-plane/site` | purpose | wire, store |`.
    fn read() -> Rooms {
        let text = paper("ARCHITECTURE.md");
        let rows = text.lines().filter_map(|line| {
            let (room, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let (package, name) = room.split_once('/')?;
            let (_, named) = rest.strip_suffix(" |")?.rsplit_once(" | ")?;
            let is_server = ["data-plane", "server"].contains(&package);
            let open = OPEN_ROOMS.iter().filter(|open| is_server && **open != name);
            let named = named.split(", ").filter(|named| *named != "–");
            Some(Room {
                package: package.to_owned(),
                name: name.to_owned(),
                may_name: named.chain(open.copied()).map(String::from).collect(),
            })
        });
        let rooms = Rooms(rows.collect());
        assert!(rooms.0.len() > 20, "the table of rooms in ARCHITECTURE.md");
        rooms
    }

    /// Returns the place of a room that `package` may name. The packages of the server and the publisher see the rooms
    /// of the data plane.
    fn place(&self, package: &str, name: &str) -> Option<usize> {
        let own = |room: &Room| room.package == package && room.name == name;
        let data_plane = |room: &Room| room.package == "data-plane" && room.name == name;
        let sees_data_plane = ["server", "publish"].contains(&package);
        let place = self.0.iter().position(own);
        place.or_else(|| {
            let place = self.0.iter().position(data_plane);
            place.filter(|_| sees_data_plane)
        })
    }

    /// Returns the rule that a path in the room `name` of `package` violates.
    fn breach(&self, package: &str, name: &str, path: &[String]) -> Option<String> {
        let is_ours = ["crate", "data_plane"].contains(&path[0].as_str());
        let named = path.get(1).filter(|named| is_ours && *named != name)?;
        let (own, other) = (self.place(package, name)?, self.place(package, named)?);
        let is_allowed = other < own && self.0[own].may_name.contains(named);
        (!is_allowed).then(|| {
            format!("the table of ARCHITECTURE.md doesn't let {package}/{name} import {named}")
        })
    }
}

/// Rooms that every room of the server may name, as far as they stand below.
const OPEN_ROOMS: [&str; 2] = ["limits", "ledger"];

/// Folders of the packages. A crate below `crates` is one room.
const PACKAGES: [&str; 7] = [
    "crates/base/src",
    "crates/wire/src",
    "crates/release/src",
    "data-plane/src",
    "server/src",
    "publish/src",
    "bench/src",
];

/// Files in which `unsafe` is allowed.
const UNSAFE_FILES: [&str; 6] = [
    "sys.rs",
    "sys/aead.rs",
    "sys/memcpy.rs",
    "sys/allocator.rs",
    "sys/segments.rs",
    "sys/spawn.rs",
];

/// Rooms that still have an import cycle among their files, over any number of files. `mod` declarations and
/// re-exports do not count as imports.
const ROOMS_WITH_CIRCLES: [(&str, &str); 4] = [
    ("crates/release/src", "release"),
    ("crates/wire/src", "wire"),
    ("data-plane/src", "site"),
    ("server/src", "cli"),
];

#[test]
fn no_room_has_a_circle_of_files() {
    let sources = Sources::read();
    for folder in PACKAGES {
        let of_package = |source: &&Source| source.folder == folder;
        let files: Vec<&Source> = sources.0.iter().filter(of_package).collect();
        let rooms: BTreeSet<&String> = files.iter().filter_map(|it| it.module.first()).collect();
        for room in rooms {
            let is_known = ROOMS_WITH_CIRCLES.contains(&(folder, room.as_str()));
            let circles = circles(&files, room);
            assert!(
                is_known || circles.is_empty(),
                "{folder}: files on circles: {circles:#?}"
            );
        }
    }
}

#[test]
fn a_circle_of_files_is_seen() {
    let seen = |files: &[(&str, &str)]| {
        let sources: Vec<Source> = files.iter().map(|it| Source::new("", it.0, it.1)).collect();
        circles(&sources.iter().collect::<Vec<_>>(), "a")
    };
    let parent = (
        "a/mod.rs",
        "mod b;\nmod c;\npub use b::B;\npub(crate) use c::{C};",
    );
    let child = ("a/b.rs", "use super::Item;\nmod tests { use super::*; }");
    let other = ("a/c.rs", "use super::Item;");
    assert_eq!(seen(&[parent, child, other]), [""; 0]);
    let circle = ["a", "a::b"];
    assert_eq!(seen(&[("a/mod.rs", "use b::B;"), child]), circle);
    assert_eq!(
        seen(&[
            ("a/mod.rs", ""),
            ("a/b.rs", "use super::c;\nuse crate::d::D;"),
            ("a/c.rs", "fn f() { super::e::E::new() }"),
            ("a/e.rs", "use crate::a::{b::B, Item};"),
            ("a/f.rs", "use super::b::B;"),
        ]),
        ["a::b", "a::c", "a::e"]
    );
}

/// Returns the modules of a folder that are part of an import cycle.
fn circles(sources: &[&Source], room: &str) -> Vec<String> {
    let of_room = |source: &&&Source| source.module.first().is_some_and(|it| it == room);
    let files: Vec<&Source> = sources.iter().filter(of_room).copied().collect();
    let module_of = |path: &[String]| {
        let fits = |at: &&usize| path.starts_with(&files[**at].module);
        let all: Vec<usize> = (0..files.len()).collect();
        all.iter()
            .filter(fits)
            .max_by_key(|at| files[**at].module.len())
            .copied()
    };
    let imports: Vec<Vec<usize>> = (0..files.len())
        .map(|from| {
            let paths = files[from].imports();
            let resolved = paths.iter().filter_map(|path| match path[0].as_str() {
                "crate" => module_of(&path[1..]),
                // The name of a child module or of another crate.
                _ => {
                    let path = [&files[from].module, path.as_slice()].concat();
                    module_of(&path).filter(|to| files[*to].module.len() > files[from].module.len())
                }
            });
            resolved.filter(|to| *to != from).collect()
        })
        .collect();
    let reaches_itself = |start: &usize| {
        let mut reached = imports[*start].clone();
        let mut next = 0;
        while let Some(at) = reached.get(next).copied() {
            next += 1;
            let new = imports[at].iter().filter(|to| !reached.contains(to));
            let new: Vec<usize> = new.copied().collect();
            reached.extend(new);
        }
        reached.contains(start)
    };
    let on_circles = (0..files.len()).filter(reaches_itself);
    let mut names: Vec<String> = on_circles.map(|at| files[at].module.join("::")).collect();
    names.sort();
    names
}

#[test]
fn every_room_names_only_rooms_that_the_table_allows() {
    let (rooms, sources) = (Rooms::read(), Sources::read());
    let mut broken = Vec::new();
    for source in &sources.0 {
        source.check(&rooms, &sources.handlers(), &mut broken);
    }
    assert!(broken.is_empty(), "\n{}", join(&broken));
}

/// Every folder of a package is a room of the table, and lib.rs lists the rooms of the server in the order of the table.
#[test]
fn the_table_has_every_room() {
    let (rooms, sources) = (Rooms::read(), Sources::read());
    for folder in PACKAGES.iter().filter(|it| !it.starts_with("crates/")) {
        let package = folder.trim_end_matches("/src");
        let of_package = rooms.0.iter().filter(|room| room.package == package);
        let table: Vec<&str> = of_package.map(|room| room.name.as_str()).collect();
        let is_lib = |source: &&Source| source.folder == *folder && source.file == "lib.rs";
        let lib = sources.0.iter().find(is_lib).expect("lib.rs");
        let words: Vec<&str> = lib.words.iter().map(|word| word.text.as_str()).collect();
        let modules = words
            .windows(3)
            .filter(|w| w[0] == "mod" && w[2] == ";")
            .map(|w| w[1]);
        if ["data-plane", "server"].contains(&package) {
            let listed: Vec<&str> = modules.collect();
            assert_eq!(
                listed, table,
                "{folder}/lib.rs has other modules, or another order, than the table of ARCHITECTURE.md \
                 (cargo fmt sorts modules where rustfmt.toml is not found)"
            );
        } else {
            let is_folder = |module: &&str| {
                let path = format!("{module}/");
                let inside = |source: &Source| {
                    source.file.starts_with(&path) && !source.file.ends_with("/tests.rs")
                };
                sources
                    .0
                    .iter()
                    .any(|it| it.folder == *folder && inside(it))
            };
            let mut listed: Vec<&str> = modules.filter(is_folder).collect();
            let mut table = table;
            listed.sort_unstable();
            table.sort_unstable();
            assert_eq!(
                listed, table,
                "folders of {folder}, and the table of ARCHITECTURE.md"
            );
        }
    }
}

#[test]
fn a_breach_is_seen_wherever_it_hides() {
    let rooms = Rooms::read();
    let seen = |file: &str, text: &str| -> Vec<String> {
        let (package, file) = file.split_once('#').unwrap_or(("data-plane/src", file));
        let folder = PACKAGES.iter().find(|folder| **folder == package);
        let source = Source::new(folder.expect("a package"), file, text);
        let mut broken = Vec::new();
        source.check(&rooms, &["cgi".into(), "git".into()], &mut broken);
        broken
            .iter()
            .map(|breach| format!("{}: {}", breach.line, breach.named))
            .collect()
    };
    assert_eq!(
        seen(
            "tls/client.rs",
            "use crate::limits::Limits;\nuse super::head::Head;"
        ),
        [""; 0]
    );
    assert_eq!(
        seen(
            "tls/client.rs",
            "\nuse crate::{limits, site::{Site, Entry}};"
        ),
        ["2: crate::site::Site", "2: crate::site::Entry"]
    );
    assert_eq!(
        seen("tls/client.rs", "fn f() { super::super::site::x() }"),
        ["1: crate::site::x"]
    );
    assert_eq!(seen("tls/mod.rs", "use super::site;"), ["1: crate::site"]);
    assert_eq!(
        seen(
            "limits.rs",
            "mod tests { use super::*; mod more { use super::super::*; } }"
        ),
        [""; 0]
    );
    assert_eq!(
        seen(
            "tls/client.rs",
            "// use crate::site::Site;\nlet s = \"crate::site\"; /* crate::cli */"
        ),
        [""; 0]
    );
    assert_eq!(
        seen("world/mod.rs", "use crate::{site::Site, serve};"),
        ["1: crate::serve"]
    );
    // A room below, which the table doesn't name.
    assert_eq!(
        seen("hits/mod.rs", "use crate::{site::Site, tls::Tls};"),
        ["1: crate::tls::Tls"]
    );
    // Rooms of other packages.
    assert_eq!(
        seen(
            "server/src#acme/mod.rs",
            "use crate::{tls::Tls, config::Config, serve};"
        ),
        ["1: crate::serve"]
    );
    assert_eq!(
        seen(
            "publish/src#cli/mod.rs",
            "use data_plane::{limits, serve::worker};\nuse crate::key;"
        ),
        ["1: data_plane::limits", "1: data_plane::serve::worker"]
    );
    assert_eq!(
        seen(
            "bench/src#driver/mod.rs",
            "use crate::{load, suite, result};"
        ),
        ["1: crate::suite"]
    );
    assert_eq!(
        seen("handler/cgi.rs", "use super::git::Push;\nuse super::pipe;"),
        ["1: crate::handler::git::Push"]
    );
    assert_eq!(seen("handler/mod.rs", "use self::git::Push;"), [""; 0]);
    assert_eq!(
        seen(
            "site/mod.rs",
            "fn a<'a>(b: &'a u8) -> char { unsafe { '\"' } }"
        ),
        ["1: unsafe"]
    );
    assert_eq!(seen("crates/base/src#sys.rs", "unsafe {}"), [""; 0]);
}

/// A violation of a rule, with the file and the line.
struct Breach {
    folder: &'static str,
    file: String,
    line: usize,
    named: String,
    rule: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}:{}: names {}: {}",
            self.folder, self.file, self.line, self.named, self.rule
        )
    }
}

fn join(broken: &[Breach]) -> String {
    broken
        .iter()
        .map(Breach::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

struct Sources(Vec<Source>);

impl Sources {
    fn read() -> Sources {
        let mut sources = Vec::new();
        for folder in PACKAGES {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("..")
                .join(folder);
            let mut files = Vec::new();
            collect(&root, &mut files);
            files.sort();
            sources.extend(files.iter().map(|path| {
                let name = path.strip_prefix(&root).expect("a file of the folder");
                let text = fs::read_to_string(path).expect("a readable source");
                Source::new(folder, &name.to_string_lossy(), &text)
            }));
        }
        Sources(sources)
    }

    /// Returns the modules of `handler` that implement a handler, without the modules shared by handlers.
    fn handlers(&self) -> Vec<String> {
        let is_handler = |source: &&Source| {
            source
                .words
                .windows(2)
                .any(|pair| pair[0].text == "Handler" && pair[1].text == "for")
        };
        let of_handler = self
            .0
            .iter()
            .filter(|source| source.module.len() > 1 && source.module[0] == "handler");
        of_handler
            .filter(is_handler)
            .map(|source| source.module[1].clone())
            .collect()
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a folder entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

struct Word {
    text: String,
    line: usize,
}

/// A source file, with the path of its module and its words.
struct Source {
    /// Folder of the package, one of [`PACKAGES`].
    folder: &'static str,
    /// Path relative to the folder, with slashes.
    file: String,
    /// Path of the module: `["wire", "h1"]` for wire/h1.rs, empty for lib.rs and main.rs.
    module: Vec<String>,
    words: Vec<Word>,
}

impl Source {
    fn new(folder: &'static str, file: &str, text: &str) -> Source {
        let mut module: Vec<String> = file
            .trim_end_matches(".rs")
            .split('/')
            .map(String::from)
            .collect();
        if module.last().is_some_and(|last| last == "mod") || ["lib.rs", "main.rs"].contains(&file)
        {
            module.pop();
        }
        if let Some(name) = crate_of(folder) {
            module.insert(0, name.to_owned());
        }
        Source {
            folder,
            file: file.to_owned(),
            module,
            words: words(text),
        }
    }

    fn check(&self, rooms: &Rooms, handlers: &[String], broken: &mut Vec<Breach>) {
        let mut breach = |line: usize, named: &str, rule: String| {
            broken.push(Breach {
                folder: self.folder,
                file: self.file.clone(),
                line,
                named: named.to_owned(),
                rule,
            });
        };
        for word in &self.words {
            if ["unsafe", "unsafe_code"].contains(&word.text.as_str())
                && !(self.folder == "crates/base/src" && UNSAFE_FILES.contains(&self.file.as_str()))
            {
                breach(
                    word.line,
                    &word.text,
                    format!("unsafe stands in {} alone", UNSAFE_FILES.join(", ")),
                );
            }
        }
        let Some(room) = self.module.first() else {
            return;
        };
        let package = self.folder.trim_end_matches("/src");
        for (line, path) in self.paths() {
            let named = path.join("::");
            let rule = rooms
                .breach(package, room, &path)
                .or_else(|| named_handler(&self.module, &path, handlers));
            if let Some(rule) = rule {
                breach(line, &named, rule);
            }
        }
    }

    /// Returns the paths of the file without re-exports.
    fn imports(&self) -> Vec<Vec<String>> {
        let text = |at: usize| self.words.get(at).map_or("", |word| word.text.as_str());
        let mut exports: Vec<(usize, usize)> = Vec::new();
        for at in (0..self.words.len()).filter(|at| text(*at) == "pub") {
            let is_use =
                text(at + 1) == "use" || (text(at + 2) == "crate" && text(at + 4) == "use");
            let end = (at..self.words.len()).find(|end| text(*end) == ";");
            if let (true, Some(end)) = (is_use, end) {
                exports.push((self.words[at].line, self.words[end].line));
            }
        }
        let paths = self.paths().into_iter();
        let is_import = |line: usize| {
            !exports
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&line))
        };
        let imports = paths.filter(|(line, _)| is_import(*line));
        imports.map(|(_, path)| path).collect()
    }

    /// Returns every path of the file with its line. Paths beginning with `crate`, `super` or `self` are
    /// absolute.
    fn paths(&self) -> Vec<(usize, Vec<String>)> {
        let mut paths = Vec::new();
        let mut module = self.module.clone();
        // Open braces: true for the brace of an inline module.
        let mut open: Vec<bool> = Vec::new();
        let text = |at: usize| self.words.get(at).map_or("", |word| word.text.as_str());
        let mut at = 0;
        while at < self.words.len() {
            match text(at) {
                "{" => {
                    let inline = at >= 2 && text(at - 2) == "mod";
                    if inline {
                        module.push(text(at - 1).to_owned());
                    }
                    open.push(inline);
                }
                "}" if open.pop() == Some(true) => {
                    module.pop();
                }
                _ if is_name(text(at)) && text(at + 1) == "::" => {
                    let line = self.words[at].line;
                    let mut found = Vec::new();
                    at = self.tree(at, &[], &mut found);
                    paths.extend(
                        found
                            .into_iter()
                            .map(|path| (line, self.absolute(&module, path))),
                    );
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        paths
    }

    /// Returns a path of the file from the root of the package; in a crate that is one room, the room comes first.
    fn absolute(&self, module: &[String], mut path: Vec<String>) -> Vec<String> {
        if let (true, Some(name)) = (path[0] == "crate", crate_of(self.folder)) {
            path.insert(1, name.to_owned());
        }
        absolute(module, path)
    }

    /// Reads a use tree such as `a::b::{c, d::e}` at `at`, and returns the index after the tree.
    fn tree(&self, mut at: usize, stem: &[String], found: &mut Vec<Vec<String>>) -> usize {
        let text = |at: usize| self.words.get(at).map_or("", |word| word.text.as_str());
        let mut path = stem.to_vec();
        loop {
            match text(at) {
                "{" => {
                    at += 1;
                    while !["}", ""].contains(&text(at)) {
                        at = self.tree(at, &path, found);
                        if text(at) == "as" {
                            at += 2;
                        }
                        if text(at) == "," {
                            at += 1;
                        } else if text(at) != "}" {
                            return at; // not a use tree after all
                        }
                    }
                    return at + 1;
                }
                name if is_name(name) || name == "*" => path.push(name.to_owned()),
                _ => break,
            }
            at += 1;
            if text(at) != "::" {
                break;
            }
            at += 1;
        }
        found.push(path);
        at
    }
}

/// Returns the rule that a path violates if the path names another handler than the handler of `module`.
fn named_handler(module: &[String], path: &[String], handlers: &[String]) -> Option<String> {
    let handler = |path: &[String]| path.get(1).filter(|name| handlers.contains(name)).cloned();
    let is_path = path.len() > 2 && path[0] == "crate" && path[1] == "handler";
    let (own, other) = (handler(module)?, handler(path.get(1..)?)?);
    (is_path && own != other).then(|| "handlers don't name each other".to_owned())
}

/// Returns the absolute path of a path in `module`: `super::x` in module `a::b` is `crate::a::x`. The path
/// of an item from another crate is returned unchanged.
fn absolute(module: &[String], path: Vec<String>) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    match rest.first().map(String::as_str) {
        Some("self") => rest = &rest[1..],
        Some("super") => {
            while rest.first().is_some_and(|name| name == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        _ => return path,
    }
    [&["crate".to_owned()], base.as_slice(), rest].concat()
}

/// Returns the name of a crate that is one room.
fn crate_of(folder: &str) -> Option<&str> {
    folder.strip_prefix("crates/")?.strip_suffix("/src")
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the words of a source text: names, `::` and single marks, without comments, strings and
/// characters.
fn words(text: &str) -> Vec<Word> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = match rest[0] {
            b'/' if rest.starts_with(b"//") => until(rest, b"\n", 0),
            b'/' if rest.starts_with(b"/*") => until(rest, b"*/", 2) + 2,
            b'"' => string(rest),
            b'r' | b'b' | b'c' if raw_string(rest).is_some() => raw_string(rest).unwrap_or(1),
            b'\'' => character(rest),
            b':' if rest.starts_with(b"::") => 2,
            c if c == b'_' || c.is_ascii_alphanumeric() => rest
                .iter()
                .take_while(|c| **c == b'_' || c.is_ascii_alphanumeric())
                .count(),
            _ => 1,
        };
        let length = length.min(rest.len());
        let word = &rest[..length];
        let is_word =
            word == b"::" || is_name(&String::from_utf8_lossy(&word[..1])) && !word.contains(&b'"');
        let is_mark = length == 1 && b"{},;*".contains(&word[0]);
        if is_word || is_mark {
            words.push(Word {
                text: String::from_utf8_lossy(word).into_owned(),
                line,
            });
        } else if !word[0].is_ascii_whitespace() && word[0] != b'/' {
            // A placeholder separates two words with any other mark between them.
            words.push(Word {
                text: "?".to_owned(),
                line,
            });
        }
        line += word.iter().filter(|c| **c == b'\n').count();
        at += length;
    }
    words
}

/// Returns the position of `end` in `text` at or after `from`.
fn until(text: &[u8], end: &[u8], from: usize) -> usize {
    let tail = text.get(from..).unwrap_or_default();
    tail.windows(end.len())
        .position(|window| window == end)
        .map_or(text.len(), |at| at + from)
}

/// Returns the length of a string literal, with regard to escapes.
fn string(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the length of a raw, byte or C string literal (r"…", br#"…"#) at the beginning of `text`, or
/// None.
fn raw_string(text: &[u8]) -> Option<usize> {
    let prefix = text
        .iter()
        .take(2)
        .take_while(|c| b"rbc".contains(c))
        .count();
    let raw = text[..prefix].contains(&b'r');
    let hashes = text[prefix..].iter().take_while(|c| **c == b'#').count();
    if text.get(prefix + hashes) != Some(&b'"') || (!raw && hashes > 0) {
        return None;
    }
    if !raw {
        return Some(prefix + string(&text[prefix..]));
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let from = prefix + hashes + 1;
    Some(until(text, &end, from) + end.len())
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn character(text: &[u8]) -> usize {
    let escaped = text.get(1) == Some(&b'\\');
    let from = if escaped { 3 } else { 2 };
    let limit = text.len().min(if escaped { 14 } else { 6 });
    let end = text
        .get(from..limit)
        .and_then(|tail| tail.iter().position(|c| *c == b'\''));
    match end {
        // 'a is a lifetime, 'a' a character literal. The literal holds a single character or an escape.
        Some(at) if escaped || at == 0 || !text[1].is_ascii() => from + at + 1,
        _ => 1,
    }
}
