//! Rules of a release as the files `_headers` and `_redirects`, from which `anthill publish` reads the same rules.

use crate::wire::manifest::{
    ManifestError, ManifestLine, ManifestReader, ManifestWriter, RedirectLine,
};
use crate::wire::request_target::encode_path;

/// Texts of the two files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RuleFiles {
    /// Text of `_headers`.
    pub(super) headers: String,
    /// Text of `_redirects`.
    pub(super) redirects: String,
    /// Lines of the manifest that neither file can express.
    pub(super) left_out: Vec<String>,
}

impl RuleFiles {
    /// Converts rules in the format of the manifest.
    pub(super) fn of(rules: &[u8]) -> Result<RuleFiles, ManifestError> {
        let manifest = [ManifestWriter::default().finish().as_bytes(), rules].concat();
        let lines = rules.split(|byte| *byte == b'\n');
        let mut files = RuleFiles::default();
        // True while the fields belong to files that a path of `_headers` cannot name.
        let mut is_left_out = false;
        for (line, text) in ManifestReader::new(&manifest)?.zip(lines) {
            let line = line?;
            if let ManifestLine::Fields { files: glob } = &line {
                is_left_out = files.add_section(glob).is_none();
            }
            let is_written = match line {
                ManifestLine::Fields { .. } => !is_left_out,
                ManifestLine::Field { .. } if is_left_out => false,
                ManifestLine::Field { name, value } => files.add_field(&name, &value).is_some(),
                ManifestLine::Redirect(redirect) => files.add_redirect(&redirect).is_some(),
                ManifestLine::CacheAge {
                    seconds,
                    files: glob,
                } => files.add_cache_age(&glob, seconds).is_some(),
                ManifestLine::ErrorPage { status, path } => {
                    files.add_error_page(status, &path).is_some()
                }
                ManifestLine::File { .. } | ManifestLine::Coded { .. } => true,
            };
            if !is_written {
                files
                    .left_out
                    .push(String::from_utf8_lossy(text).into_owned());
            }
        }
        Ok(files)
    }

    fn add_section(&mut self, glob: &[u8]) -> Option<()> {
        let path = path_of_glob(std::str::from_utf8(glob).ok()?)?;
        self.headers.push_str(&format!("{path}\n"));
        Some(())
    }

    fn add_field(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let (name, value) = (
            std::str::from_utf8(name).ok()?,
            std::str::from_utf8(value).ok()?,
        );
        self.headers.push_str(&format!("  {name}: {value}\n"));
        Some(())
    }

    /// The server sends the age of a release in the same field.
    fn add_cache_age(&mut self, glob: &[u8], seconds: u64) -> Option<()> {
        self.add_section(glob)?;
        self.add_field(b"Cache-Control", format!("max-age={seconds}").as_bytes())
    }

    fn add_redirect(&mut self, redirect: &RedirectLine<'_>) -> Option<()> {
        let to = std::str::from_utf8(&redirect.to).ok()?;
        let forced = if redirect.is_forced { "!" } else { "" };
        let (from, status) = (encoded(&redirect.from)?, redirect.status);
        let space = if to.is_empty() { "" } else { " " };
        self.redirects
            .push_str(&format!("{from}{space}{to} {status}{forced}\n"));
        Some(())
    }

    fn add_error_page(&mut self, status: u16, path: &[u8]) -> Option<()> {
        // `anthill publish` finds this page without a line.
        if (status, path) == (404, b"404.html") {
            return Some(());
        }
        // The line names the page as a file, so its path is not encoded, and a space would end the path.
        let path = std::str::from_utf8(path)
            .ok()
            .filter(|it| !it.contains(char::is_whitespace))?;
        if status != 404 || path.starts_with('#') {
            return None;
        }
        self.redirects.push_str(&format!("/* /{path} 404\n"));
        Some(())
    }
}

/// Returns the percent-encoded path of a redirect.
fn encoded(path: &[u8]) -> Option<String> {
    let mut text = Vec::new();
    encode_path(path, &mut text);
    String::from_utf8(text).ok()
}

/// Returns the path of `_headers` whose glob is `glob`: `*` stands for any text, and `:name` for one name. Returns
/// None if no path has the glob.
fn path_of_glob(glob: &str) -> Option<String> {
    let glob = if glob == "**" { "/**" } else { glob };
    let names = glob.strip_prefix('/')?.split('/');
    let names: Option<Vec<String>> = names.map(name_of_glob).collect();
    Some(format!("/{}", names?.join("/"))).filter(|path| path.trim() == path)
}

fn name_of_glob(glob: &str) -> Option<String> {
    if glob == "*" {
        return Some(":name".to_owned());
    }
    // Such a name would stand for each name.
    if glob.starts_with(':') && glob.len() > 1 {
        return None;
    }
    let mut name = String::new();
    let mut characters = glob.chars();
    while let Some(character) = characters.next() {
        match character {
            '*' if characters.next() == Some('*') => name.push('*'),
            '\\' => name.push(characters.next().filter(|literal| *literal != '*')?),
            '*' | '?' | '{' | '}' | '[' | ']' | '\n' => return None,
            literal => name.push(literal),
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_files() {
        let rules = b"error 404 lost.html\n\
            error 410 gone.html\n\
            cache 60 **.css\n\
            cache 5 /**.css\n\
            fields /**\n\
            field X-Frame-Options DENY\n\
            field Link </a.css>;%20rel=preload\n\
            fields /b/*/a\\[1\\].html\n\
            field X-A 1\n\
            fields *.html\n\
            field X-B 1\n\
            redirect 301 /old /new\n\
            redirect! 302 /a%20b/* /c/:splat\n\
            redirect 410 /gone\n";
        let files = RuleFiles::of(rules).expect("files");
        assert_eq!(
            files.headers,
            "/*.css\n  Cache-Control: max-age=5\n\
             /*\n  X-Frame-Options: DENY\n  Link: </a.css>; rel=preload\n\
             /b/:name/a[1].html\n  X-A: 1\n"
        );
        assert_eq!(
            files.redirects,
            "/* /lost.html 404\n/old /new 301\n/a%20b/* /c/:splat 302!\n/gone 410\n"
        );
        let left_out = [
            "error 410 gone.html",
            "cache 60 **.css",
            "fields *.html",
            "field X-B 1",
        ];
        assert_eq!(files.left_out, left_out);
    }

    #[test]
    fn globs_without_a_path_are_left_out() {
        for (glob, path) in [
            ("**", Some("/*")),
            ("/**", Some("/*")),
            ("/a/**", Some("/a/*")),
            ("/a/*/**", Some("/a/:name/*")),
            ("/**.css", Some("/*.css")),
            ("/a\\,b.html", Some("/a,b.html")),
            ("/*.css", None),
            ("/a\\*.html", None),
            ("/a?.html", None),
            ("/{a,b}.html", None),
            ("/:a/b.html", None),
            ("a.html", None),
        ] {
            assert_eq!(path_of_glob(glob).as_deref(), path, "{glob}");
        }
    }

    #[test]
    fn a_page_with_the_usual_name_needs_no_line() {
        let files = RuleFiles::of(b"error 404 404.html\n").expect("files");
        assert_eq!(files, RuleFiles::default());
        assert!(RuleFiles::of(b"nonsense\n").is_err());
    }
}
