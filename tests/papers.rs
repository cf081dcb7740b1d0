//! The guide has what the program has.

use std::fs;
use std::path::Path;

use anthill::wire::reject::Reject;

fn paper(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_refusal_is_in_the_guide() {
    let guide = paper("docs/src/rejects.md");
    for reject in Reject::ALL {
        let row = format!(
            "| {} | {} | {} |",
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
    let source = paper("server/src/limits.rs");
    let fields = source
        .split_once("pub struct Limits {")
        .and_then(|(_, rest)| rest.split_once('}'));
    let (fields, _) = fields.expect("the struct Limits");
    let names = fields
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next());
    for name in names {
        assert!(
            guide.contains(&format!("| `{name}` |")),
            "docs/src/limits.md lacks `{name}`"
        );
    }
}

/// Whatever is linked from the papers is there.
#[test]
fn no_link_is_broken() {
    let pages =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src")).expect("docs/src");
    let pages = pages.map(|page| {
        format!(
            "docs/src/{}",
            page.expect("a page").file_name().to_string_lossy()
        )
    });
    let papers = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .map(String::from);
    for name in papers.into_iter().chain(pages) {
        for link in paper(&name)
            .split("](")
            .skip(1)
            .filter_map(|tail| tail.split(')').next())
        {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let folder = Path::new(&name).parent().unwrap_or(Path::new(""));
            let target = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("..")
                .join(folder)
                .join(file);
            assert!(target.exists(), "{name} links to {link}, which isn't there");
        }
    }
}
