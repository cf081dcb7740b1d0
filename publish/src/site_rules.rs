//! Rules of a release from `_headers`, `_redirects` and `404.html`.

use crate::netlify_headers::{self, PathFields};
use crate::problem::Problem;
use crate::source::Source;
use base::visible_text::shortened;
use release::limits::RELEASE_RULES_MAX;
use release::manifest::RuleBounds;
use release::redirect_map::{self, MISTAKES_MAX, MappedRedirect};
use release::redirects::{RedirectRule, Redirected, Redirects};
use std::collections::{BTreeSet, HashSet};
use wire::normal_path::normalise;

/// Rules of a release.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SiteRules {
    /// Path of the page for status 404, without initial slash.
    pub error_page: Option<Vec<u8>>,
    /// Globs with response fields.
    pub fields: Vec<(String, Vec<(String, String)>)>,
    /// Redirects.
    pub redirects: Vec<MappedRedirect>,
    /// Remarks on rules without effect.
    pub warnings: Vec<String>,
}

impl SiteRules {
    /// Reads the rules of a source. An error has the mistakes of both files.
    pub(crate) fn read(source: &Source) -> Result<SiteRules, Problem> {
        let mut rules = SiteRules::default();
        if source.has(b"404.html") {
            rules.error_page = Some(b"404.html".to_vec());
        }
        // The page for status 404 is a rule too.
        let mut rules_count = 1;
        let mut mistakes = Vec::new();
        match netlify_headers::read(source.headers.as_deref().unwrap_or_default()) {
            Ok(sections) => {
                let read = rules.add_fields(sections, source, &mut rules_count);
                mistakes.extend(read.err());
            }
            Err(errors) => mistakes.extend(errors),
        }
        let redirects = redirect_map::read(source.redirects.as_deref().unwrap_or_default());
        match redirects {
            Ok(redirects) => rules.add_redirects(redirects, source, rules_count, &mut mistakes),
            Err(errors) => mistakes.extend(errors.into_iter().map(|error| {
                let what = format!("_redirects, line {}: {}", error.line, error.what);
                Problem::usage(what).help(error.help)
            })),
        }
        if mistakes.is_empty() {
            mistakes = circles(&rules.redirects, source)?;
        }
        Problem::list(mistakes).map_or(Ok(rules), Err)
    }

    /// Adds the sections of `_headers`. The first section beyond a bound of the server is refused, with the line of the file
    /// in place of the line of the manifest.
    fn add_fields(
        &mut self,
        sections: Vec<PathFields>,
        source: &Source,
        rules_count: &mut usize,
    ) -> Result<(), Problem> {
        let mut bounds = RuleBounds::default();
        for section in sections {
            let Some(glob) = glob(&section, source) else {
                self.warnings.push(format!(
                    "_headers, line {}: no file answers for {}",
                    section.line,
                    shortened(&section.path)
                ));
                continue;
            };
            bounds
                .add_section(glob.as_bytes(), &section.fields)
                .map_err(|what| {
                    let what = format!("_headers, line {}: {what}", section.line);
                    Problem::usage(what).help("shorten or remove rules")
                })?;
            *rules_count += 1 + section.fields.len();
            if *rules_count > RELEASE_RULES_MAX {
                return Err(too_many_rules("_headers", section.line)
                    .help("join paths with `*`, or remove fields"));
            }
            self.fields.push((glob, section.fields));
        }
        Ok(())
    }

    /// Adds the lines of `_redirects`.
    fn add_redirects(
        &mut self,
        redirects: Vec<MappedRedirect>,
        source: &Source,
        mut rules_count: usize,
        mistakes: &mut Vec<Problem>,
    ) {
        for rule in redirects {
            rules_count += 1;
            if rules_count > RELEASE_RULES_MAX {
                let mistake = too_many_rules("_redirects", rule.line);
                mistakes.push(mistake.help("join redirects with `*`: `/old/* /new/:splat`"));
                return;
            }
            if rule.status != 404 {
                self.redirects.push(rule);
                continue;
            }
            match source.resolve(rule.to.as_bytes()) {
                Some(page) => self.error_page = Some(source.files[page].path.clone()),
                None => {
                    let what = format!(
                        "_redirects, line {}: no file answers for {}",
                        rule.line,
                        shortened(&rule.to)
                    );
                    mistakes.push(Problem::usage(what).help("name a page of the site"));
                }
            }
        }
    }

    /// Returns true if a redirect answers for a decoded path with initial slash.
    pub(crate) fn redirects(&self, path: &[u8]) -> bool {
        let mut rules = self.redirects.iter();
        rules.any(|rule| match rule.from.strip_suffix(b"*") {
            // `/blog/*` also answers for `/blog`.
            Some(stem) => path.starts_with(stem) || stem.strip_suffix(b"/") == Some(path),
            None => trimmed(&rule.from) == trimmed(path),
        })
    }
}

fn too_many_rules(file: &str, line: usize) -> Problem {
    Problem::usage(format!(
        "{file}, line {line}: the release has too many rules, more than 20,000"
    ))
}

/// Returns the mistakes of redirects that lead back to a path from which they came, each circle once, with the line of its
/// first redirect. A browser would show an error in place of the page.
fn circles(redirects: &[MappedRedirect], source: &Source) -> Result<Vec<Problem>, Problem> {
    let table = redirects.iter().map(|rule| RedirectRule {
        status: rule.status,
        is_forced: rule.is_forced,
        from: &rule.from,
        to: rule.to.as_bytes(),
    });
    let table = Redirects::new(&table.collect::<Vec<_>>()).map_err(|(nth, what)| {
        let line = redirects.get(nth).map_or(0, |rule| rule.line);
        Problem::usage(format!("_redirects, line {line}: {what}")).help("correct the destination")
    })?;
    let (mut mistakes, mut known) = (Vec::new(), HashSet::new());
    for rule in redirects {
        // The shortest path of a redirect with `*` stands for all of its paths.
        let mut path = rule.from.strip_suffix(b"*").unwrap_or(&rule.from).to_vec();
        let mut passed = vec![path.clone()];
        while passed.len() <= REDIRECT_HOPS_MAX {
            let Some(next) = next_path(&table, source, &path) else {
                break;
            };
            let first = passed
                .iter()
                .position(|path| trimmed(path) == trimmed(&next));
            passed.push(next.clone());
            let Some(first) = first else {
                path = next;
                continue;
            };
            let circle: BTreeSet<Vec<u8>> = passed[first..]
                .iter()
                .map(|path| trimmed(path).to_vec())
                .collect();
            if known.insert(circle) {
                let shown: Vec<String> = passed.iter().map(shortened).collect();
                let what = format!(
                    "_redirects, line {}: the redirects lead in a circle: {}",
                    rule.line,
                    shown.join(", ")
                );
                mistakes.push(Problem::usage(what).help(
                    "write a destination that no redirect matches, such as the path of a file",
                ));
            }
            break;
        }
        if mistakes.len() == MISTAKES_MAX {
            break;
        }
    }
    Ok(mistakes)
}

/// Redirects that are followed from one path, 10. Browsers follow 20.
const REDIRECT_HOPS_MAX: usize = 10;

/// Returns the path of the site to which a redirect leads from a path.
fn next_path(table: &Redirects, source: &Source, path: &[u8]) -> Option<Vec<u8>> {
    let inner = path.strip_prefix(b"/")?;
    let found = match table.forced.find(inner) {
        Some(found) => found,
        None if source.resolve(path).is_some() => return None,
        None => table.unforced.find(inner)?,
    };
    let Redirected::To { location, .. } = found.answer(None) else {
        return None;
    };
    let end = location.iter().position(|byte| b"?#".contains(byte));
    let path = &location[..end.unwrap_or(location.len())];
    Some(normalise(path).ok()?.into_owned())
}

/// Returns a path without a final slash: a redirect answers for both spellings.
fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Returns the glob of the files for a path of `_headers`; None if no file answers for a path without `*` and `:name`.
fn glob(section: &PathFields, source: &Source) -> Option<String> {
    let is_pattern = |name: &str| name.contains('*') || is_placeholder(name);
    if !section.path.split('/').any(is_pattern) {
        let file = source.resolve(section.path.as_bytes())?;
        let path = String::from_utf8(source.files[file].path.clone()).ok()?;
        return Some(format!("/{}", escaped(&path)));
    }
    let names = section.path.split('/').map(|name| match name {
        name if is_placeholder(name) => "*".to_owned(),
        name => {
            let parts = name.split('*').map(escaped);
            parts.collect::<Vec<_>>().join("**")
        }
    });
    Some(names.collect::<Vec<_>>().join("/"))
}

fn is_placeholder(name: &str) -> bool {
    name.len() > 1 && name.starts_with(':')
}

/// Escapes the characters of globs.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "*?{}[]\\,".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFile;
    use release::glob::Glob;

    fn source(paths: &[&str]) -> Source {
        let file = |path: &&str| SourceFile {
            content: None,
            path: path.as_bytes().to_vec(),
            real: path.into(),
            size: 0,
        };
        Source {
            folder: "site".into(),
            files: paths.iter().map(file).collect(),
            headers: None,
            redirects: None,
        }
    }

    #[test]
    fn paths_of_headers_become_globs() {
        let mut source = source(&["a[1].html", "b/c/d.css", "b/index.html", "index.html"]);
        let field = "\n  X-A: 1\n";
        let text = [
            "/*",
            "/b/*",
            "/b/:name/*",
            "/a[1]",
            "/",
            "/b",
            "/*.css",
            "/none",
        ]
        .join(field);
        source.headers = Some(text + field);
        let rules = SiteRules::read(&source).expect("rules");
        let globs: Vec<&str> = rules.fields.iter().map(|(glob, _)| glob.as_str()).collect();
        assert_eq!(
            globs,
            [
                "/**",
                "/b/**",
                "/b/*/**",
                "/a\\[1\\].html",
                "/index.html",
                "/b/index.html",
                "/**.css"
            ]
        );
        assert_eq!(
            rules.warnings,
            ["_headers, line 15: no file answers for /none"]
        );
        let matched = |glob: &str, path: &str| {
            let glob = Glob::parse(glob).expect("a glob");
            glob.matches(path.as_bytes())
        };
        assert!(matched("/**", "b/c/d.css") && matched("/**", "index.html"));
        assert!(matched("/b/**", "b/index.html") && !matched("/b/**", "bb/index.html"));
        assert!(matched("/b/*/**", "b/c/d.css") && !matched("/b/*/**", "b/index.html"));
        assert!(matched("/a\\[1\\].html", "a[1].html") && !matched("/index.html", "b/index.html"));
        assert!(matched("/**.css", "b/c/d.css"));
    }

    #[test]
    fn rules_beyond_the_bounds_of_the_server_name_their_line() {
        let mut source = source(&["index.html"]);
        let refusal = |source: &Source| {
            let refused = SiteRules::read(source).expect_err("a refusal");
            refused.to_string().lines().next().map(str::to_owned)
        };
        source.headers = Some(format!("/*\n  X-A: 1\n/{}*\n  X-A: 1\n", "a".repeat(254)));
        assert_eq!(
            refusal(&source).as_deref(),
            Some("error: _headers, line 3: the glob is longer than 256 bytes")
        );
        let sections: String = (0..129)
            .map(|nth| format!("/{nth}/*\n  X-A: 1\n"))
            .collect();
        source.headers = Some(sections);
        assert_eq!(
            refusal(&source).as_deref(),
            Some(
                "error: _headers, line 257: the release has more than 128 globs with wildcards or braces"
            )
        );
        let paths: Vec<String> = (0..9_999).map(|nth| format!("a{nth}")).collect();
        let mut large = self::source(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        large.files.sort_by(|one, other| one.path.cmp(&other.path));
        large.headers = Some(
            paths
                .iter()
                .map(|it| format!("/{it}\n  X-A: 1\n  X-B: 1\n"))
                .collect(),
        );
        assert_eq!(
            refusal(&large).as_deref(),
            Some("error: _headers, line 19999: the release has too many rules, more than 20,000")
        );
        source.headers = Some("/*\n  X-A: 1\n".to_owned());
        let redirects: String = (0..19_998).map(|nth| format!("/a{nth} /b\n")).collect();
        source.redirects = Some(redirects);
        assert_eq!(
            refusal(&source).as_deref(),
            Some("error: _redirects, line 19998: the release has too many rules, more than 20,000")
        );
    }

    #[test]
    fn the_mistakes_of_both_files_are_shown_up_to_a_bound() {
        let mut source = source(&["index.html"]);
        source.headers = Some("/*\n  X-A\n  Set-Cookie: a=b\n".to_owned());
        source.redirects = Some("/a b\n/c /d\n/e /f 200\n".to_owned());
        let text = SiteRules::read(&source).expect_err("refusals").to_string();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        for (line, place) in lines.iter().zip([
            "_headers, line 2: ",
            "_headers, line 3: ",
            "_redirects, line 1: ",
            "_redirects, line 3: ",
        ]) {
            assert!(line.starts_with(&format!("error: {place}")), "{text}");
        }
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(text.matches("\nhelp: ").count(), 4, "{text}");
        source.headers = None;
        source.redirects = Some("/a b\n".repeat(30));
        let text = SiteRules::read(&source).expect_err("refusals").to_string();
        assert_eq!(text.matches("error: ").count(), 20, "{text}");
        assert!(text.ends_with("\n\nand further mistakes"), "{text}");
        // Each circle is told once.
        source.redirects = Some("/a /b\n/b /a\n/c /a\n/d /e\n/e /d\n".to_owned());
        let text = SiteRules::read(&source).expect_err("refusals").to_string();
        assert_eq!(text.matches("lead in a circle").count(), 2, "{text}");
    }

    #[test]
    fn redirects_in_a_circle_are_refused() {
        let refusal = |paths: &[&str], text: &str| {
            let mut source = source(paths);
            source.redirects = Some(text.to_owned());
            SiteRules::read(&source).err().map(|it| it.to_string())
        };
        let circle =
            "error: _redirects, line 2: the redirects lead in a circle: /a, /b, /a\nhelp: ";
        let text = "/c /d\n/a /b\n/b /a\n";
        assert!(refusal(&["index.html"], text).is_some_and(|it| it.starts_with(circle)));
        // A file ends the circle, unless the redirect is forced.
        assert_eq!(refusal(&["b.html"], text), None);
        assert!(refusal(&["b.html"], "/a /b\n/b /a 301!\n").is_some());
        assert!(refusal(&["index.html"], "/old/* /old/new\n").is_some());
        assert_eq!(refusal(&["old/new.html"], "/old/* /old/new\n"), None);
        assert_eq!(
            refusal(&["index.html"], "/a https://a.test/a\n/b /a\n"),
            None
        );
    }

    #[test]
    fn error_pages_and_redirects_are_found() {
        let mut source = source(&["404.html", "lost.html"]);
        let rules = SiteRules::read(&source).expect("rules");
        assert_eq!(rules.error_page.as_deref(), Some(&b"404.html"[..]));
        source.redirects = Some("/* /lost 404\n/a /lost\n/b/* /lost".to_owned());
        let rules = SiteRules::read(&source).expect("rules");
        assert_eq!(rules.error_page.as_deref(), Some(&b"lost.html"[..]));
        assert!(rules.redirects(b"/a") && rules.redirects(b"/b") && rules.redirects(b"/b/c"));
        assert!(!rules.redirects(b"/c") && !rules.redirects(b"/bc"));
        source.redirects = Some("/* /missing 404".to_owned());
        assert!(SiteRules::read(&source).is_err());
    }
}
