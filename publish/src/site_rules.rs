//! Rules of a release from `_headers`, `_redirects` and `404.html`.

use crate::netlify::headers::{self, PathFields};
use crate::problem::Problem;
use crate::source::Source;
use anthill_data_plane::base::visible_text::shortened;
use anthill_data_plane::limits::RELEASE_RULES_MAX;
use anthill_data_plane::wire::manifest::RuleBounds;
use anthill_data_plane::wire::redirect_map::{self, MappedRedirect};

/// Rules of a release.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SiteRules {
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
    /// Reads the rules of a source.
    pub fn read(source: &Source) -> Result<SiteRules, Problem> {
        let mut rules = SiteRules::default();
        if source.has(b"404.html") {
            rules.error_page = Some(b"404.html".to_vec());
        }
        let mut bounds = RuleBounds::default();
        for section in headers::read(source.headers.as_deref().unwrap_or_default())? {
            let Some(glob) = glob(&section, source) else {
                rules.warnings.push(format!(
                    "_headers, line {}: no file answers for {}",
                    section.line,
                    shortened(&section.path)
                ));
                continue;
            };
            // The bounds of the server, with the line of the file in place of the line of the manifest.
            bounds
                .add_section(glob.as_bytes(), &section.fields)
                .map_err(|what| {
                    let what = format!("_headers, line {}: {what}", section.line);
                    Problem::usage(what).help("shorten or remove rules")
                })?;
            rules.fields.push((glob, section.fields));
        }
        let redirects = redirect_map::read(source.redirects.as_deref().unwrap_or_default());
        let redirects = redirects.map_err(|mut errors| {
            let error = errors.swap_remove(0);
            let what = format!("_redirects, line {}: {}", error.line, error.what);
            Problem::usage(what).help(error.help)
        });
        let fields = rules.fields.iter().map(|(_, fields)| 1 + fields.len());
        let mut rules_count: usize = 1 + fields.sum::<usize>();
        for rule in redirects? {
            rules_count += 1;
            if rules_count > RELEASE_RULES_MAX {
                let what = format!(
                    "_redirects, line {}: the release has too many rules, more than 20,000",
                    rule.line
                );
                return Err(
                    Problem::usage(what).help("join redirects with `*`: `/old/* /new/:splat`")
                );
            }
            if rule.status != 404 {
                rules.redirects.push(rule);
                continue;
            }
            let page = source.resolve(rule.to.as_bytes()).ok_or_else(|| {
                let what = format!(
                    "_redirects, line {}: no file answers for {}",
                    rule.line,
                    shortened(&rule.to)
                );
                Problem::usage(what).help("name a page of the site")
            })?;
            rules.error_page = Some(source.files[page].path.clone());
        }
        Ok(rules)
    }

    /// Returns true if a redirect answers for a decoded path with initial slash.
    pub fn redirects(&self, path: &[u8]) -> bool {
        let mut rules = self.redirects.iter();
        rules.any(|rule| match rule.from.strip_suffix(b"*") {
            // `/blog/*` also answers for `/blog`.
            Some(stem) => path.starts_with(stem) || stem.strip_suffix(b"/") == Some(path),
            None => trimmed(&rule.from) == trimmed(path),
        })
    }
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
    use anthill_data_plane::wire::glob::Glob;

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
        source.headers = Some("/*\n  X-A: 1\n".to_owned());
        let redirects: String = (0..19_998).map(|nth| format!("/a{nth} /b\n")).collect();
        source.redirects = Some(redirects);
        assert_eq!(
            refusal(&source).as_deref(),
            Some("error: _redirects, line 19998: the release has too many rules, more than 20,000")
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
