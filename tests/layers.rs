//! Tests of the rooms, the folders of modules of a package: a room imports only rooms that the table of ARCHITECTURE.md
//! allows, the table has every room, and no files of a room import one another in a circle.
//!
//! The compiler holds the borders of the crates. The tests read the sources as text, as rustfmt writes them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::papers::paper;

/// Handlers, which don't import one another.
const HANDLERS: [&str; 3] = ["::handler::proxy", "::handler::script", "::handler::test"];

/// Returns the rooms from the bottom up, each with the rooms that it may import. A crate below `crates` is one room.
fn table() -> Vec<(String, String)> {
    let row = |line: &str| {
        let (room, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (_, named) = rest.strip_suffix(" |")?.rsplit_once(" | ")?;
        let room = room.replace("crates/", "").replace('-', "_");
        let named = format!(" {named}, limits, ledger,");
        Some((room.replace('/', "::"), named))
    };
    paper("ARCHITECTURE.md").lines().filter_map(row).collect()
}

/// Module with its package, such as `data_plane::site::scan`, and text of a file.
struct Source(String, String);

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = "data-plane/src server/src publish/src bench/src crates".split(' ');
    let mut folders: Vec<_> = folders.map(|it| root.join(it)).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir(folder).expect("a folder").flatten() {
            let path = file.path();
            let name = path.strip_prefix(&root).unwrap_or(&path).display();
            let name = name.to_string().replace("crates/", "").replace("/src", "");
            let name = name.replace('/', "::").replace('-', "_");
            let mut ends = ["::mod.rs", "::lib.rs", "::main.rs", ".rs"].into_iter();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(module) = ends.find_map(|it| name.strip_suffix(it)) {
                let text = fs::read_to_string(&path).expect("a text");
                sources.push(Source(module.to_owned(), text));
            }
        }
    }
    sources
}

/// Returns the files that a file imports, with true for a file of which an item is exported.
fn targets<'s>(source: &Source, sources: &'s [Source]) -> Vec<(&'s Source, bool)> {
    let lines = source.1.lines().map(|it| it.split("//").next());
    let code = lines.flatten().collect::<Vec<_>>().join("\n");
    let (mut module, mut targets) = (source.0.clone(), Vec::new());
    for statement in code.split(';') {
        if statement.contains("mod tests {") {
            module = format!("{}::tests", source.0);
        }
        let is_export = statement.contains("pub use ") || statement.contains(") use ");
        let code = absolute(statement, &module);
        for path in code.split(is_no_path).filter(|it| it.contains("::")) {
            let own = format!("{}::{path}", source.0);
            let is_child = |it: &Source| is_in(&own, &it.0) && it.0.len() > source.0.len();
            let fits = |it: &&Source| is_in(path, &it.0) || is_child(it);
            let target = sources.iter().filter(fits).max_by_key(|it| it.0.len());
            targets.extend(target.map(|it| (it, is_export)));
        }
    }
    targets
}

/// Returns code with absolute paths, and with `a::b,a::c::d,a::c::e` in place of `a::{b, c::{d, e}}`.
fn absolute(code: &str, module: &str) -> String {
    let names: Vec<&str> = module.split("::").collect();
    let mut code = code.replace("self::", &format!("{module}::"));
    for above in (1..names.len()).rev() {
        let path = names[..names.len() - above].join("::") + "::";
        code = code.replace(&"super::".repeat(above), &path);
    }
    code = code.replace("crate::", &format!("{}::", names[0]));
    while let Some(open) = code.rfind("::{") {
        let end = open + code[open..].find('}').unwrap_or(2);
        let from = code[..open].rfind(is_no_path).map_or(0, |it| it + 1);
        let items = code[open + 3..end].split(',').map(str::trim);
        let items = items.filter(|it| !it.is_empty());
        let items = items.map(|it| format!("{}{it},", &code[from..open + 2]));
        code.replace_range(from..=end, &items.collect::<String>());
    }
    code
}

fn is_no_path(letter: char) -> bool {
    !letter.is_alphanumeric() && !"_:".contains(letter)
}

fn is_in(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix(module);
    rest.is_some_and(|it| it.is_empty() || it.starts_with("::"))
}

/// Returns the imports that break a rule, also those above a circle of files, and the files outside of all rooms.
fn faults(sources: &[Source]) -> Vec<String> {
    let (table, mut faults, mut inside) = (table(), Vec::new(), Vec::new());
    let place = |source: &Source| table.iter().position(|it| is_in(&source.0, &it.0));
    let handler = |source: &Source| HANDLERS.iter().position(|it| source.0.contains(it));
    for source in sources {
        let names = source.0.trim_end_matches("::tests").matches("::").count();
        let has_rooms = table.iter().any(|it| is_in(&it.0, &source.0));
        if place(source).is_none() && names != 1 && !has_rooms {
            faults.push(source.0.clone());
        }
        for (target, is_export) in targets(source, sources) {
            let places = place(source).zip(place(target));
            let (own, other) = places.unwrap_or((0, 0));
            let named = table[other].0.split_once("::");
            let is_named = |it: (&str, &str)| table[own].1.contains(&format!(" {},", it.1));
            let is_allowed = own == other || other < own && named.is_none_or(is_named);
            let handlers = handler(source).zip(handler(target));
            if !is_allowed || handlers.is_some_and(|it| it.0 != it.1) {
                faults.push(format!("{} {}", source.0, target.0));
            } else if places.is_some() && own == other && source.0 != target.0 && !is_export {
                inside.push((&source.0, &target.0));
            }
        }
    }
    for _ in sources {
        let from: HashSet<&String> = inside.iter().map(|it| it.0).collect();
        inside.retain(|it| from.contains(it.1));
    }
    faults.extend(inside.iter().map(|it| format!("{} {}", it.0, it.1)));
    faults
}

#[test]
fn rooms_import_what_the_table_allows_and_no_file_is_on_a_circle() {
    assert_eq!(faults(&sources()), [""; 0]);
    let text = "tls=use super::site::Site;//crate::serve::h1\nsite=pub use scan::Scan;\nlimits=\n\
                site::scan=use crate::{tls,limits::{A,site::B}};\nserve=use crate::tls::T;\nnew::a=\n\
                hits=mod tests {use super::super::tls::Tls;\nworld=crate::serve::x();use self::a::A;\n\
                world::a=use super::World;\nhandler::proxy=use super::script::cgi;\nhandler::script=";
    let lines = text.lines().filter_map(|it| it.split_once('='));
    let file = |it: (&str, &str)| Source(format!("data_plane::{}", it.0), it.1.to_owned());
    let seen = faults(&lines.map(file).collect::<Vec<_>>()).join(", ");
    let expected = "tls site, site::scan tls, new::a, hits tls, world serve, handler::proxy \
                    handler::script, world world::a, world::a world";
    assert_eq!(seen.replace("data_plane::", ""), expected);
}
