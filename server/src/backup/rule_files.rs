//! Rules of a release as the files `_headers` and `_redirects`, from which `anthill publish` reads the same rules.

use base::visible_text::shortened;
use release::manifest::valid_value;
use release::manifest::{
    ManifestError, ManifestLine, ManifestReader, ManifestWriter, RedirectLine,
};
use release::redirect_map::{self, MappedRedirect};
use wire::request_target::encode_path;

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

/// Beginning of a section of `_headers`.
#[derive(Default)]
enum Section {
    /// The path is written with the first field: `anthill publish` refuses a path without fields.
    Pending(String),
    Written,
    /// No path of `_headers` names the files.
    #[default]
    LeftOut,
}

impl RuleFiles {
    /// Converts rules in the format of the manifest.
    pub(super) fn of(rules: &[u8]) -> Result<RuleFiles, ManifestError> {
        let manifest = [ManifestWriter::default().finish().as_bytes(), rules].concat();
        let lines = rules.split(|byte| *byte == b'\n');
        let mut files = RuleFiles::default();
        let mut section = Section::default();
        for (line, text) in ManifestReader::new(&manifest)?.zip(lines) {
            let is_written = match line? {
                ManifestLine::Fields { files: glob } => {
                    section = path_of_glob(&glob).map_or(Section::LeftOut, Section::Pending);
                    !matches!(section, Section::LeftOut)
                }
                ManifestLine::Field { name, value } => {
                    files.add_field(&mut section, &name, &value).is_some()
                }
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
                files.left_out.push(shortened(text));
            }
        }
        Ok(files)
    }

    fn add_field(&mut self, section: &mut Section, name: &[u8], value: &[u8]) -> Option<()> {
        let name = std::str::from_utf8(name).ok()?;
        let value = std::str::from_utf8(value).ok()?;
        let is_comment = name.starts_with('#');
        let is_readable = !value.is_empty() && value.trim() == value && valid_value(value);
        if is_comment || name.eq_ignore_ascii_case("basic-auth") || !is_readable {
            return None;
        }
        match std::mem::replace(section, Section::Written) {
            Section::Pending(path) => self.headers.push_str(&format!("{path}\n")),
            Section::Written => {}
            Section::LeftOut => {
                *section = Section::LeftOut;
                return None;
            }
        }
        self.headers.push_str(&format!("  {name}: {value}\n"));
        Some(())
    }

    /// The server sends the age of a release in the same field. The first age of a file counts, and the last value of
    /// a field, so each age is written before the ages so far. All ages come before the fields of a manifest.
    fn add_cache_age(&mut self, glob: &[u8], seconds: u64) -> Option<()> {
        let path = path_of_glob(glob)?;
        let section = format!("{path}\n  Cache-Control: max-age={seconds}\n");
        self.headers.insert_str(0, &section);
        Some(())
    }

    fn add_redirect(&mut self, redirect: &RedirectLine<'_>) -> Option<()> {
        let to = std::str::from_utf8(&redirect.to).ok()?;
        let forced = if redirect.is_forced { "!" } else { "" };
        let from = encoded(&redirect.from)?;
        let space = if to.is_empty() { "" } else { " " };
        let line = format!("{from}{space}{to} {}{forced}\n", redirect.status);
        self.add_line(&line, |read| {
            read.from == *redirect.from
                && read.to.as_bytes() == &*redirect.to
                && (read.status, read.is_forced) == (redirect.status, redirect.is_forced)
        })
    }

    fn add_error_page(&mut self, status: u16, path: &[u8]) -> Option<()> {
        // `anthill publish` finds this page without a line.
        if (status, path) == (404, b"404.html") {
            return Some(());
        }
        let path = std::str::from_utf8(path).ok()?;
        self.add_line(&format!("/* /{path} {status}\n"), |read| {
            (read.status, read.to.strip_prefix('/')) == (404, Some(path))
        })
    }

    /// Appends a line of `_redirects`, if the reader of the file finds the same rule and no other.
    fn add_line(&mut self, line: &str, is_same: impl Fn(&MappedRedirect) -> bool) -> Option<()> {
        match &redirect_map::read(line).ok()?[..] {
            [read] if is_same(read) => self.redirects.push_str(line),
            _ => return None,
        }
        Some(())
    }
}

/// Returns the percent-encoded path of a redirect. Only a `*` at the end stands for any text.
fn encoded(path: &[u8]) -> Option<String> {
    let (path, star) = match path.strip_suffix(b"*") {
        Some(stem) => (stem, "*"),
        None => (path, ""),
    };
    let mut text = Vec::new();
    encode_path(path, &mut text);
    let mut encoded = String::new();
    for character in String::from_utf8(text).ok()?.chars() {
        match character {
            '*' | '$' | '(' | ')' | ':' => encoded.push_str(&format!("%{:02X}", character as u32)),
            character => encoded.push(character),
        }
    }
    Some(encoded + star)
}

/// Returns the path of `_headers` that means the files of `glob`: `*` stands for any text, and `:name` for one name. Returns
/// None if no path has the glob.
fn path_of_glob(glob: &[u8]) -> Option<String> {
    let glob = std::str::from_utf8(glob).ok()?;
    let glob = if glob == "**" { "/**" } else { glob };
    let names = glob.strip_prefix('/')?.split('/');
    let names: Option<Vec<String>> = names.map(name_of_glob).collect();
    Some(format!("/{}", names?.join("/")))
        .filter(|path| path.trim() == path && !path.contains(char::is_control))
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
            '*' | '?' | '{' | '}' | '[' | ']' => return None,
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
            assert_eq!(path_of_glob(glob.as_bytes()).as_deref(), path, "{glob}");
        }
    }

    #[test]
    fn rules_that_would_be_read_otherwise_are_left_out() {
        let left_out = [
            "error 404 a%20b.html",
            "fields /d/**",
            "field #X 1",
            "field X-A a%0Ab",
            "fields /a\\%0A/**",
            "field X-B 1",
            "redirect 301 /o /n%20301%0A/q%20/z%20302!",
            "redirect 301 /p /p",
        ];
        let rules = left_out.join("\n") + "\n";
        let files = RuleFiles::of(rules.as_bytes()).expect("files");
        assert_eq!((&*files.headers, &*files.redirects), ("", ""));
        let fields: Vec<&str> = left_out
            .into_iter()
            .filter(|line| *line != "fields /d/**")
            .collect();
        assert_eq!(files.left_out, fields);
    }

    #[test]
    fn redirects_of_odd_paths_keep_their_paths() {
        let rules = b"redirect 301 /a*b /c\nredirect 301 /price$ /x\nredirect 301 /:id/(.)/* /y\n";
        let files = RuleFiles::of(rules).expect("files");
        let redirects = "/a%2Ab /c 301\n/price%24 /x 301\n/%3Aid/%28.%29/* /y 301\n";
        assert_eq!(files.redirects, redirects);
        assert_eq!(files.left_out, [""; 0]);
    }

    #[test]
    fn the_first_age_of_a_file_counts() {
        let files = RuleFiles::of(b"cache 60 /**.css\ncache 5 /**\n").expect("files");
        let headers = "/*\n  Cache-Control: max-age=5\n/*.css\n  Cache-Control: max-age=60\n";
        assert_eq!(files.headers, headers);
    }

    #[test]
    fn a_page_with_the_usual_name_needs_no_line() {
        let files = RuleFiles::of(b"error 404 404.html\n").expect("files");
        assert_eq!(files, RuleFiles::default());
        assert!(RuleFiles::of(b"nonsense\n").is_err());
    }
}
