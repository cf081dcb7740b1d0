//! Comparison of the documents with the program: rules, limits, links.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wire::reject::Reject;

use crate::support::{Folder, anthill};

/// The text of a document of the repository.
pub fn paper(name: &str) -> String {
    let file = repository().join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_refusal_is_in_the_guide() {
    let guide = paper("docs/src/rejects.md");
    for reject in Reject::ALL {
        let row = format!(
            "| R{} | {} | {} |",
            reject.rule, reject.status.0, reject.reason
        );
        assert!(
            guide.contains(&row),
            "docs/src/rejects.md has no row that begins with {row}"
        );
    }
}

#[test]
fn every_limit_is_in_the_guide() {
    let guide = paper("docs/src/limits.md");
    let structs = [
        ("data-plane/src/limits/mod.rs", "pub struct Limits {"),
        ("crates/wire/src/limits.rs", "pub struct HeadLimits {"),
    ];
    for (file, name) in structs {
        let source = paper(file);
        let fields = source
            .split_once(name)
            .and_then(|(_, rest)| rest.split_once('}'));
        let (fields, _) = fields.expect("a struct of limits");
        let names = fields
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next());
        // A flag is no bound, and the bounds of heads are in the second struct.
        for name in names.filter(|name| !name.starts_with("has_") && *name != "head") {
            assert!(
                guide.contains(&format!("| `{name}` |")),
                "docs/src/limits.md lacks `{name}`"
            );
        }
    }
}

/// The tables of a configuration, each with an unknown key, and the sections of docs/src/configuration.md.
const TABLES: &[(&str, &str)] = &[
    ("[server]\nqqqq = 1", "`[server]`"),
    ("[log]\nqqqq = 1", "`[log]`"),
    ("[manager]\nqqqq = 1", "`[manager]`"),
    ("[tls]\nqqqq = 1", "`[tls]`"),
    ("[tls]\nacme = { qqqq = 1 }", "`[tls.acme]`"),
    ("[tls]\nacme = { eab = { qqqq = 1 } }", "`[tls.acme]`"),
    ("[[site]]\nqqqq = 1", "`[[site]]`"),
    ("[[site]]\ncache = [{ qqqq = 1 }]", "`[[site]]`"),
    ("[[site]]\nheaders = [{ qqqq = 1 }]", "`[[site]]`"),
    ("[[site]]\n[[site.route]]\nqqqq = 1", "`[[site.route]]`"),
    (
        "[[site]]\n[[site.route]]\npath = \"/\"\ngit = \"a\"\ndeploy = { qqqq = 1 }",
        "`deploy`",
    ),
    (
        "[[site]]\n[[site.route]]\npath = \"/\"\ncgi = \"a\"\ncache = { qqqq = 1 }",
        "`cache`",
    ),
];

/// The help of `anthill check` for an unknown key lists the known keys, and the reference has each of them.
#[test]
fn every_key_is_in_the_reference() {
    let reference = paper("docs/src/configuration.md");
    let folder = Folder::new().with("public/index.html", "");
    for (config, section) in TABLES {
        folder.write("anthill.toml", config);
        let file = folder.path("anthill.toml");
        let done = anthill(&["check".as_ref(), file.as_os_str()]);
        let (_, keys) = done.stderr.split_once(" knows ").expect("a list of keys");
        let text = reference
            .split("\n## ")
            .find(|text| text.starts_with(section));
        let text = text.unwrap_or_else(|| panic!("no section {section}"));
        for key in keys.trim().split(", ").filter(|key| *key != "test") {
            let is_there = text.contains(&format!("`{key}`")) || text.contains(&format!("{key} ="));
            assert!(is_there, "docs/src/configuration.md, {section}: no `{key}`");
        }
    }
}

/// Every relative link of a Markdown file leads to an existing file, and its anchor to a heading of the file.
#[test]
fn no_link_is_broken() {
    let documents = documents();
    assert!(documents.len() > 40, "{} documents", documents.len());
    for name in documents {
        let text = paper(&name);
        let has_reference = text
            .lines()
            .any(|line| line.starts_with('[') && line.contains("]: "));
        assert!(
            !has_reference,
            "{name}: a link by reference, which the test does not follow"
        );
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = Path::new(&name).parent().unwrap_or(Path::new(""));
            let target = match file {
                "" => Path::new(&name).to_owned(),
                file => folder.join(file),
            };
            let there = repository().join(&target);
            assert!(there.exists(), "{name}: no file for the link {link}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(there).expect("a document");
                assert!(
                    anchors(&text).any(|heading| heading == anchor),
                    "{name}: no heading for the link {link}"
                );
            }
        }
    }
}

/// The built guide consists of the files of docs/src: a link to another file of the repository would lead nowhere.
#[test]
fn links_of_the_guide_stay_in_the_guide() {
    for name in pages() {
        for link in links(&paper(&name)) {
            let (file, _) = link.split_once('#').unwrap_or((&link, ""));
            let is_of_guide = file.ends_with(".md") || file.ends_with(".png");
            let is_page = file.is_empty() || (is_of_guide && !file.contains('/'));
            assert!(
                link.contains("://") || is_page,
                "{name}: {link} is no page and no picture of the guide; name the file without a link"
            );
        }
    }
}

/// Each time and size in the README's section about performance is in docs/performance.md too.
#[test]
fn figures_of_the_readme_are_in_the_document_of_performance() {
    let (readme, document) = (paper("README.md"), paper("docs/performance.md"));
    let section = readme
        .split("\n## ")
        .find(|text| text.starts_with("Performance"));
    let words: Vec<&str> = section
        .expect("a section")
        .split([' ', '\n', ',', '(', ')'])
        .filter(|word| !word.is_empty())
        .collect();
    let mut count = 0;
    for pair in words.windows(2) {
        let is_figure = pair[0].parse::<f64>().is_ok();
        if is_figure && ["µs", "ms", "MB"].contains(&pair[1]) {
            let figure = pair.join(" ");
            assert!(
                document.contains(&figure),
                "docs/performance.md lacks {figure} of README.md"
            );
            count += 1;
        }
    }
    assert!(count > 20, "{count} figures");
}

/// ARCHITECTURE.md is short enough to be read whole.
#[test]
fn the_architecture_is_short() {
    let bytes = paper("ARCHITECTURE.md").len();
    assert!(
        bytes <= 25_000,
        "ARCHITECTURE.md has {bytes} bytes of at most 25,000: what concerns one file belongs in its `//!`"
    );
}

/// ARCHITECTURE.md has no table of files: `tools/map.sh` prints the first sentence of the `//!` of each file.
#[test]
fn every_file_of_the_map_has_a_sentence() {
    let mut command = Command::new("sh");
    let map = command.arg("tools/map.sh").current_dir(repository());
    let map = map.output().expect("tools/map.sh");
    let map = String::from_utf8(map.stdout).expect("text");
    let bare: Vec<&str> = map
        .lines()
        .filter(|line| line.ends_with("(no sentence)"))
        .collect();
    assert!(bare.is_empty(), "files without `//!`: {bare:#?}");
    assert!(map.lines().count() > 500, "{map}");
    assert!(map.contains("  request_head.rs "), "{map}");
}

/// The summary lists every page of the guide once.
#[test]
fn the_summary_has_every_page() {
    let summary = links(&paper("docs/src/SUMMARY.md"));
    for page in pages() {
        let file = page.trim_start_matches("docs/src/");
        let count = summary.iter().filter(|link| *link == file).count();
        let expected = usize::from(file != "SUMMARY.md");
        assert_eq!(count, expected, "{page} in docs/src/SUMMARY.md");
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages of the guide, relative to the repository.
pub fn pages() -> Vec<String> {
    let folder = fs::read_dir(repository().join("docs/src")).expect("docs/src");
    let names = folder.map(|page| page.expect("a page").file_name());
    let mut pages: Vec<String> = names
        .map(|name| format!("docs/src/{}", name.to_string_lossy()))
        .filter(|name| name.ends_with(".md"))
        .collect();
    pages.sort();
    pages
}

/// Every Markdown file of the repository, relative to the repository.
fn documents() -> Vec<String> {
    let mut documents = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(repository().join(&folder)).expect("a folder");
        for entry in entries.map(|entry| entry.expect("an entry")) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if entry.file_type().expect("a type").is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") {
                documents.push(path.to_string_lossy().into_owned());
            }
        }
    }
    documents.sort();
    documents
}

/// The targets of links outside of code.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut links = Vec::new();
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        if !in_code {
            let targets = line.split("](").skip(1);
            links.extend(targets.filter_map(|tail| tail.split(')').next().map(String::from)));
        }
    }
    links
}

/// The anchors of headings, by the rule of mdBook and GitHub.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut in_code = false;
    let headings = text.lines().filter(move |line| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('#')
    });
    headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|char| match char {
            ' ' => Some('-'),
            '-' | '_' => Some(char),
            char => char.is_alphanumeric().then_some(char),
        });
        kept.collect()
    })
}
