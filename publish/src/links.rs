//! Dead links of a release: local references of pages to files and fragments that the release lacks.

use crate::html::Page;
use crate::site_rules::SiteRules;
use crate::source::{Source, SourceFile};
use crate::text;
use base::digest::sha256;
use release::manifest::BlobRef;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::thread;
use wire::normal_path::normalise;
use wire::request_target::encode_path;

/// Largest page in bytes with a check of its links, 16 MiB. A page is in memory during the check.
const PAGE_SIZE_MAX: u64 = 16 << 20;

/// Reference that leads nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeadLink {
    /// Path of the page, or `_redirects`, with a line.
    pub place: String,
    /// Reference as written.
    pub target: String,
    /// Reason, as one clause.
    pub what: &'static str,
}

/// Result of a check of links.
pub(crate) struct CheckedLinks {
    /// Dead links.
    pub dead: Vec<DeadLink>,
    /// Contents of the pages by the numbers of their files, so that no page is read twice.
    pub contents: Vec<(usize, BlobRef)>,
}

/// Returns the dead links of all pages and redirects. Paths that begin with one of `elsewhere` are answered by routes.
pub(crate) fn dead_links(
    source: &Source,
    rules: &SiteRules,
    elsewhere: &[String],
) -> io::Result<CheckedLinks> {
    let mut check = LinkCheck {
        source,
        rules,
        elsewhere,
        dead: Vec::new(),
        identifiers: HashMap::new(),
        fragments: Vec::new(),
    };
    let files = source.files.iter().enumerate();
    let pages = files.filter(|(_, file)| is_page(&file.path) && file.size <= PAGE_SIZE_MAX);
    let pages: Vec<_> = pages.collect();
    let mut contents = Vec::with_capacity(pages.len());
    for part in pages.chunks(PAGES_AT_ONCE) {
        for (number, read) in read_pages(part) {
            let (page, content) = read?;
            check.page(number, &page);
            contents.push((number, content));
        }
    }
    check.redirects();
    check.fragments();
    Ok(CheckedLinks {
        dead: check.dead,
        contents,
    })
}

/// Pages that are read before their links are checked. The references of the pages are in memory.
const PAGES_AT_ONCE: usize = 512;
/// Most threads that read pages.
const THREADS_MAX: usize = 8;

/// Number of a file with its page and its content.
type NumberedPage = (usize, io::Result<(Page, BlobRef)>);

/// Reads pages in several threads, and returns the pages in their order.
fn read_pages(pages: &[(usize, &SourceFile)]) -> Vec<NumberedPage> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let part = pages.len().div_ceil(threads.min(THREADS_MAX)).max(1);
    let read = |(number, file): &(usize, &SourceFile)| (*number, read_page(file));
    thread::scope(|scope| {
        let parts = pages.chunks(part);
        let readers: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(read).collect::<Vec<_>>()))
            .collect();
        let failed = || vec![(0, Err(io::Error::other("a thread ended by a panic")))];
        let read = readers.into_iter();
        read.flat_map(|reader| reader.join().unwrap_or_else(|_| failed()))
            .collect()
    })
}

fn read_page(file: &SourceFile) -> io::Result<(Page, BlobRef)> {
    let text = fs::read(&file.real)?;
    let content = BlobRef {
        size: text.len() as u64,
        digest: sha256(&text),
    };
    Ok((Page::read(&text), content))
}

struct LinkCheck<'s> {
    source: &'s Source,
    rules: &'s SiteRules,
    elsewhere: &'s [String],
    dead: Vec<DeadLink>,
    /// Hashes of the identifiers of each page, by the number of the file.
    identifiers: HashMap<usize, HashSet<u64>>,
    fragments: Vec<FragmentReference>,
}

/// Reference of a page with a fragment.
struct FragmentReference {
    place: String,
    target: String,
    /// Number of the file that the reference leads to.
    file: usize,
    fragment: String,
}

impl LinkCheck<'_> {
    fn page(&mut self, number: usize, page: &Page) {
        let path = &self.source.files[number].path;
        let identifiers = page.identifiers.iter().map(|it| hash(it));
        self.identifiers.insert(number, identifiers.collect());
        let own = [b"/", &path[..]].concat();
        let mut url = Vec::new();
        encode_path(&own, &mut url);
        let mut url = String::from_utf8_lossy(&url).into_owned();
        if let Some(base) = &page.base {
            match join(&url, base) {
                Some(base) => url = base,
                // The references of the page lead to another host.
                None => return,
            }
        }
        for reference in &page.references {
            let place = format!("{}, line {}", text::path(path), reference.line);
            self.reference(number, page, &url, place, &reference.target);
        }
    }

    fn reference(&mut self, own: usize, page: &Page, url: &str, place: String, target: &str) {
        let (address, fragment) = match target.split_once('#') {
            Some((address, fragment)) => (address, fragment),
            None => (target, ""),
        };
        let file = match address {
            "" if page.base.is_none() => Some(own),
            address => {
                let Some(joined) = join(url, address) else {
                    return;
                };
                match self.find(&joined) {
                    Ok(file) => file,
                    Err(what) => {
                        let target = target.to_owned();
                        self.dead.push(DeadLink {
                            place,
                            target,
                            what,
                        });
                        return;
                    }
                }
            }
        };
        if let Some(file) = file
            && !fragment.is_empty()
            && !fragment.starts_with(":~:")
            && !fragment.eq_ignore_ascii_case("top")
        {
            let fragment = percent_decoded(fragment);
            self.fragments.push(FragmentReference {
                place,
                target: target.to_owned(),
                file,
                fragment,
            });
        }
    }

    /// Returns the number of the file that answers for a local URL; None if a redirect or a route answers.
    fn find(&self, url: &str) -> Result<Option<usize>, &'static str> {
        let path = url.split('?').next().unwrap_or(url);
        let path = normalise(path.as_bytes()).map_err(|_| "this is no valid path")?;
        let mut routes = self.elsewhere.iter();
        if routes.any(|route| path.starts_with(route.as_bytes())) {
            return Ok(None);
        }
        match self.source.resolve(&path) {
            Some(file) => Ok(Some(file)),
            None if self.rules.redirects(&path) => Ok(None),
            None => Err("the release has no such file"),
        }
    }

    fn redirects(&mut self) {
        for rule in &self.rules.redirects {
            let is_local = rule.to.starts_with('/') && !rule.to.starts_with("//");
            if !is_local || rule.to.contains(":splat") {
                continue;
            }
            let address = rule.to.split('#').next().unwrap_or_default();
            if let Err(what) = self.find(address) {
                self.dead.push(DeadLink {
                    place: format!("_redirects, line {}", rule.line),
                    target: rule.to.clone(),
                    what,
                });
            }
        }
    }

    fn fragments(&mut self) {
        for reference in std::mem::take(&mut self.fragments) {
            // A file without a check, such as an image, defines its fragments itself.
            let known = self.identifiers.get(&reference.file);
            if known.is_some_and(|known| !known.contains(&hash(&reference.fragment))) {
                let what = "the page has no such fragment";
                self.dead.push(DeadLink {
                    place: reference.place,
                    target: reference.target,
                    what,
                });
            }
        }
    }
}

fn is_page(path: &[u8]) -> bool {
    let ends = |end: &[u8]| path.to_ascii_lowercase().ends_with(end);
    ends(b".html") || ends(b".htm")
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns the local URL of a reference on a page with a URL; None for a reference to another host or scheme.
fn join(url: &str, reference: &str) -> Option<String> {
    let before_path = &reference[..reference.find(['/', '?', '#']).unwrap_or(reference.len())];
    if before_path.contains(':') || reference.starts_with("//") {
        return None;
    }
    let folder = &url[..=url.rfind('/').unwrap_or(0)];
    Some(match reference.as_bytes().first() {
        Some(b'/') => without_dots(reference),
        None | Some(b'?') => format!("{url}{reference}"),
        Some(_) => without_dots(&format!("{folder}{reference}")),
    })
}

/// Removes the segments `.` and `..` of a path. As in a browser, `..` of the root is the root (RFC 3986 §5.2.4).
fn without_dots(url: &str) -> String {
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

fn percent_decoded(text: &str) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1).zip(bytes.get(at + 2));
        let value = pair.and_then(|(high, low)| Some(digit(*high)? * 16 + digit(*low)?));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(value) if bytes[at] == b'%' => {
                decoded.push(value);
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)], elsewhere: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let source = Source::read(folder.path()).expect("a source");
        let rules = SiteRules::read(&source).expect("rules");
        let elsewhere: Vec<String> = elsewhere.iter().map(|it| (*it).to_owned()).collect();
        let dead = dead_links(&source, &rules, &elsewhere).expect("links").dead;
        let line = |it: &DeadLink| format!("{}: {}: {}", it.place, it.target, it.what);
        dead.iter().map(line).collect()
    }

    #[test]
    fn references_to_missing_files_and_fragments_are_dead() {
        let page = "<a href='/'></a><a href=b/></a><a href=b></a><a href='../x'></a><a href='#here' id=here></a>\n\
                    <a href='#missing'></a><a href='b/c.html#f%C3%BC'></a><a href='b/c#g'></a><a href=mailto:a@b></a>\n\
                    <a href='//other/'></a><a href='https://other/'></a><a href='/api/x'></a><a href='old?q#f'></a>\n\
                    <a href='?q'></a><a href='a%20b.png#x'></a><a href='#top'></a><a href=''></a><img src=no.png>";
        let files = [
            ("index.html", page),
            ("b/index.html", "<base href=/><a href=index.html></a>"),
            (
                "b/c.html",
                "<p id='f\u{fc}'><base href=//cdn/><a href=none>",
            ),
            ("a b.png", ""),
            ("_redirects", "/old /b/\n/older /none\n/other/* /b/:splat\n"),
        ];
        assert_eq!(
            dead(&files, &["/api/"]),
            [
                "index.html, line 1: ../x: the release has no such file",
                "index.html, line 4: no.png: the release has no such file",
                "_redirects, line 2: /none: the release has no such file",
                "index.html, line 2: #missing: the page has no such fragment",
                "index.html, line 2: b/c#g: the page has no such fragment",
            ]
        );
    }

    #[test]
    fn references_are_joined_as_in_a_browser() {
        for (reference, url) in [
            ("c", Some("/a/c")),
            ("./c/", Some("/a/c/")),
            ("..", Some("/")),
            (".", Some("/a/")),
            ("../../../c?x=../y", Some("/c?x=../y")),
            ("/c/../d", Some("/d")),
            ("", Some("/a/b.html")),
            ("?q", Some("/a/b.html?q")),
            ("a/b:c", Some("/a/a/b:c")),
            ("mailto:a", None),
            ("//host/", None),
        ] {
            assert_eq!(join("/a/b.html", reference).as_deref(), url, "{reference}");
        }
    }
}
