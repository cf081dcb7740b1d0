//! The example site has the properties stated in the documentation: small, complete, and fit for
//! benchmarks.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::journal;

/// Returns every file below `folder`.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a folder entry").path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found
}

/// Returns the values of a page's `href` and `src` attributes that stay within the site.
fn links(page: &str) -> Vec<String> {
    let after = |mark: &'static str| page.split(mark).skip(1);
    let named = after(" href=\"")
        .chain(after(" src=\""))
        .filter_map(|tail| tail.split('"').next());
    named
        .filter(|link| link.starts_with('/'))
        .map(String::from)
        .collect()
}

/// The figures in docs/performance.md were measured with a page of 5,100 bytes.
#[test]
fn the_benchmark_page_weighs_5100_bytes() {
    assert_eq!(
        fs::metadata(journal().join("public").join("2026/04/05.html"))
            .expect("the page")
            .len(),
        5_100
    );
}

#[test]
fn the_first_page_weighs_about_70_kilobytes() {
    let index =
        fs::read_to_string(journal().join("public").join("index.html")).expect("the front page");
    let mut named: Vec<String> = links(&index)
        .into_iter()
        .filter(|link| !link.ends_with(".html") && !link.ends_with('/'))
        .collect();
    named.sort();
    named.dedup();
    let weight: u64 = named
        .iter()
        .map(|link| {
            fs::metadata(journal().join("public").join(&link[1..]))
                .expect(link)
                .len()
        })
        .sum();
    let weight = weight + index.len() as u64;
    assert!(
        (60_000..75_000).contains(&weight),
        "{weight} bytes: the page and {named:?}"
    );
}

#[test]
fn every_link_resolves() {
    for page in files(&journal().join("public"))
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "html"))
    {
        for link in links(&fs::read_to_string(page).expect("a page")) {
            let file = if link.ends_with('/') {
                format!("{link}index.html")
            } else {
                link.clone()
            };
            assert!(
                journal().join("public").join(&file[1..]).is_file(),
                "{} names {link}",
                page.display()
            );
        }
    }
}
