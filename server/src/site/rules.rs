//! What the operator decided about one site, as the site needs it.

use super::glob::Glob;
use crate::site::secret_paths::SecretPaths;
use std::path::PathBuf;

/// The rules of one site; [`SiteRules::new`] has the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteRules {
    /// The folder that is served; may be a link.
    pub root: PathBuf,
    /// Names tried in a folder, in this order.
    pub index: Vec<String>,
    /// What is looked up for a path, in this order; see [`TryPath::parse`].
    pub try_paths: Vec<String>,
    /// Status and the page for it, a path below the root.
    pub errors: Vec<(u16, String)>,
    /// Does a folder without index show what it holds?
    pub listing: bool,
    /// Where symbolic links may lead.
    pub symlinks: Symlinks,
    /// Extension with its dot, and its type.
    pub mime: Vec<(String, String)>,
    /// The first glob that matches decides.
    pub cache: Vec<(Glob, CacheControlRule)>,
    /// All globs that match add their fields; of the same name the later wins.
    pub headers: HeaderRules,
    /// Is `Server: anthill` sent?
    pub server_field: bool,
    /// Files of the server's own, which are never served.
    pub secrets: SecretPaths,
}

/// Fields, names and values, for the paths that a glob matches.
pub type HeaderRules = Vec<(Glob, Vec<(String, String)>)>;

impl SiteRules {
    /// The defaults for a root.
    pub fn new(root: impl Into<PathBuf>) -> SiteRules {
        SiteRules {
            root: root.into(),
            index: vec!["index.html".into()],
            try_paths: vec!["$path".into()],
            errors: Vec::new(),
            listing: false,
            symlinks: Symlinks::Inside,
            mime: Vec::new(),
            cache: Vec::new(),
            headers: Vec::new(),
            server_field: true,
            secrets: SecretPaths::default(),
        }
    }

    /// The page for a status, without its first slash.
    pub(super) fn error_page(&self, status: u16) -> Option<&str> {
        let (_, page) = self.errors.iter().find(|(its, _)| *its == status)?;
        Some(page.trim_start_matches('/'))
    }
}

/// Where symbolic links may lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symlinks {
    /// To what lies below the root; an absolute one is read as from the root, unless it names the
    /// root's own place in the file system.
    Inside,
    /// Anywhere.
    Follow,
}

/// How long a copy may be used without asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheControlRule {
    /// Seconds.
    pub max_age_seconds: u64,
    /// The file never changes under this name (RFC 8246).
    pub immutable: bool,
}

/// One thing to look up for a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TryPath {
    /// `$path`: the path itself.
    Path,
    /// `$path.html`: the path with something behind its last name.
    Suffix(String),
    /// Anything else with `$path` in it: `/prefix$path/suffix`.
    Around(String, String),
    /// `/index.html`: always the same file.
    Fixed(String),
}

impl TryPath {
    /// Reads one; the error is a clause that says what is wrong.
    pub fn parse(text: &str) -> Result<TryPath, &'static str> {
        let Some((before, after)) = text.split_once("$path") else {
            return match text.trim_matches('/') {
                "" => Err("names nothing"),
                fixed if fixed.contains('$') => Err("only `$path` is known"),
                fixed => Ok(TryPath::Fixed(fixed.into())),
            };
        };
        if before.contains('$') || after.contains('$') {
            return Err("only one `$path` is understood");
        }
        let before = before.trim_matches('/');
        Ok(match (before, after) {
            ("", "") => TryPath::Path,
            ("", after) if !after.contains('/') => TryPath::Suffix(after.into()),
            (before, after) => TryPath::Around(before.into(), after.trim_end_matches('/').into()),
        })
    }
}

/// May an operator's rule set this field? Not those that frame the message or that the site's own
/// answers depend on.
pub fn settable(name: &str) -> bool {
    const OURS: [&str; 13] = [
        "accept-ranges",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "date",
        "etag",
        "keep-alive",
        "last-modified",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name.bytes().all(token)
        && !OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

/// May this be a field's value (RFC 9110 §5.5)?
pub fn valid_value(value: &str) -> bool {
    !value
        .bytes()
        .any(|byte| (byte < 32 && byte != b'\t') || byte == 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried() {
        for (text, parsed) in [
            ("$path", Ok(TryPath::Path)),
            ("/$path", Ok(TryPath::Path)),
            ("$path.html", Ok(TryPath::Suffix(".html".into()))),
            (
                "$path/index.htm",
                Ok(TryPath::Around("".into(), "/index.htm".into())),
            ),
            ("/en/$path", Ok(TryPath::Around("en".into(), "".into()))),
            ("/index.html", Ok(TryPath::Fixed("index.html".into()))),
        ] {
            assert_eq!(TryPath::parse(text), parsed, "{text}");
        }
        for wrong in ["", "/", "$uri", "$path$path"] {
            assert!(TryPath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fields_of_the_operator() {
        assert!(settable("X-Frame-Options") && settable("Cache-Control"));
        assert!(!settable("content-length") && !settable("a b") && !settable(""));
        assert!(valid_value("a\tb \u{e9}") && !valid_value("a\r\nb"));
    }
}
