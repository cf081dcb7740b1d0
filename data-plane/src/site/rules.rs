//! Rules of one site, derived from the configuration.

use crate::limits::HASHED_SECONDS;
use crate::site::release::ReleaseRules;
use crate::site::root::Symlinks;
use crate::site::secret_paths::SecretPaths;
use release::glob::Glob;
use release::hashed_name::is_hashed;
use release::manifest::{is_settable, valid_value};
use release::mime::{self, MediaRules};
use release::stray_files::without_coding;
use std::path::PathBuf;
use wire::fields::ContentCoding;
use wire::request_target::is_below;

/// Rules of one site; [`SiteRules::new`] has the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteRules {
    /// Folder to serve, possibly a symbolic link. For a release, the folder of the site in the store.
    pub root: PathBuf,
    /// Release to serve; None for a folder.
    pub release: Option<ReleaseRules>,
    /// Names of index files, in order of precedence.
    pub index: Vec<String>,
    /// Paths to look up for a request, in order; see [`TryPath::parse`].
    pub try_paths: Vec<String>,
    /// Error pages: the status, and the path of the page below the root.
    pub errors: Vec<(u16, String)>,
    /// Whether a folder without index file is served as a listing.
    pub listing: bool,
    /// Files and folders of a folder that count as missing. A release has all of its files.
    pub hide: Vec<Glob>,
    /// Whether the operator is told of backups and exports among the files.
    pub tells_doubtful: bool,
    /// Renderer of the README below a listing; None for no README.
    pub readme: Option<ReadmeRenderer>,
    /// Permitted targets of symbolic links.
    pub symlinks: Symlinks,
    /// Media types by ending and by glob.
    pub mime: MediaRules,
    /// Codings of files that are compressed on disk. The first matching glob decides.
    pub encodings: Vec<(Glob, ContentCoding)>,
    /// Rules for Cache-Control. The first matching glob decides.
    pub cache: Vec<(Glob, CacheControlRule)>,
    /// Files that processes append to. Such a file is served up to its length at the time of opening while a process
    /// has the file open for writing.
    pub growing: Vec<Glob>,
    /// Rules for further fields. All matching globs apply; the last rule for a name wins.
    pub headers: HeaderRules,
    /// Whether `Server: anthill` is sent.
    pub server_field: bool,
    /// Files of the server itself, which are never served.
    pub secrets: SecretPaths,
    /// Whether no cache may keep the files, because the release is a preview.
    pub is_preview: bool,
    /// Whether some paths of the site have `cors`. Responses there lack the fields of a release for cross-origin access.
    pub has_cors: bool,
    /// Rules for the paths below a prefix, the longest prefix first.
    pub below: Vec<PathRules>,
}

/// Rules for the paths below a prefix. A rule that is `None` is the rule of the next shorter prefix, or of the site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathRules {
    /// Prefix below the root in whole components, without a slash at either end.
    pub below: Box<[u8]>,
    /// Names of index files, in order of precedence.
    pub index: Option<Vec<String>>,
    /// Paths to look up for a request, in order; see [`TryPath::parse`].
    pub try_paths: Option<Vec<String>>,
    /// Error pages, before those of shorter prefixes: the status, and the path of the page below the root.
    pub errors: Vec<(u16, String)>,
    /// Whether a folder without index file is served as a listing.
    pub listing: Option<bool>,
    /// Files and folders that count as missing.
    pub hide: Option<Vec<Glob>>,
}

/// Field names and values for the paths that a glob matches.
pub type HeaderRules = Vec<(Glob, Vec<(String, String)>)>;

impl SiteRules {
    /// Returns the default rules for a root.
    pub fn new(root: impl Into<PathBuf>) -> SiteRules {
        SiteRules {
            root: root.into(),
            release: None,
            index: vec!["index.html".into()],
            try_paths: vec!["$path".into()],
            errors: Vec::new(),
            listing: false,
            hide: Vec::new(),
            tells_doubtful: false,
            readme: None,
            symlinks: Symlinks::Inside,
            mime: Vec::new(),
            encodings: Vec::new(),
            cache: Vec::new(),
            growing: Vec::new(),
            headers: Vec::new(),
            server_field: true,
            secrets: SecretPaths::default(),
            is_preview: false,
            has_cors: false,
            below: Vec::new(),
        }
    }

    /// Returns the default rules for a release.
    pub fn of_release(release: ReleaseRules) -> SiteRules {
        SiteRules {
            release: Some(release.clone()),
            ..SiteRules::new(release.folder())
        }
    }

    /// Returns the rules for a path below the root, the longest prefix first.
    fn nearest(&self, path: &[u8]) -> impl Iterator<Item = &PathRules> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let rules = self.below.iter();
        rules.filter(move |rules| is_below(path, &rules.below))
    }

    /// Returns the names of index files for a folder below the root.
    pub(super) fn index_names(&self, folder: &[u8]) -> &[String] {
        let index = self.nearest(folder).find_map(|it| it.index.as_ref());
        index.unwrap_or(&self.index)
    }

    /// Returns true if a folder below the root is served as a listing, unless the folder has an index file.
    pub(super) fn has_listing(&self, folder: &[u8]) -> bool {
        let listing = self.nearest(folder).find_map(|it| it.listing);
        listing.unwrap_or(self.listing)
    }

    /// Returns true if some paths have error pages of their own.
    pub(crate) fn has_error_pages_by_path(&self) -> bool {
        self.below.iter().any(|rules| !rules.errors.is_empty())
    }

    /// Returns true if a file or folder below the root counts as missing. A file with a content coding
    /// (`page.html~.gz`) shows the file of its name without the ending, and is hidden with that file.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        let hide = self.nearest(path).find_map(|rules| rules.hide.as_ref());
        let hide = hide.unwrap_or(&self.hide);
        let decoded = without_coding(path);
        hide.iter()
            .any(|glob| glob.matches(path) || decoded.is_some_and(|path| glob.matches(path)))
    }

    /// Returns the operator's rule for Cache-Control of a path below the root.
    pub(super) fn cache_control(&self, path: &[u8]) -> Option<CacheControlRule> {
        let mut rules = self.cache.iter();
        let (_, rule) = rules
            .find(|(glob, rule)| glob.matches(path) && (!rule.only_hashed || is_hashed(path)))?;
        Some(*rule)
    }

    /// Returns the coding of the content of a file as the file lies on disk.
    pub(super) fn coding(&self, path: &[u8]) -> ContentCoding {
        let rule = self.encoding_rule(path);
        rule.unwrap_or_else(|| mime::built_in_coding(path))
    }

    /// Returns true if every client gets the content as the file lies on disk: the content has a coding already, or a
    /// rule of `encodings` gives the file none.
    pub(super) fn is_sent_as_stored(&self, path: &[u8]) -> bool {
        self.encoding_rule(path).is_some() || mime::built_in_coding(path) != ContentCoding::Identity
    }

    fn encoding_rule(&self, path: &[u8]) -> Option<ContentCoding> {
        let mut rules = self.encodings.iter();
        let (_, coding) = rules.find(|(glob, _)| glob.matches(path))?;
        Some(*coding)
    }

    /// Returns the media type of a file.
    pub(super) fn media_type(&self, path: &[u8]) -> &str {
        mime::of_coded(path, self.coding(path), &self.mime)
    }

    /// Returns true if a file is worth compressing.
    pub(super) fn is_compressible(&self, path: &[u8]) -> bool {
        !self.is_sent_as_stored(path) && mime::compressible(self.media_type(path))
    }

    /// Returns true if processes append to the file at a path below the root.
    pub(super) fn is_growing(&self, path: &[u8]) -> bool {
        self.growing.iter().any(|glob| glob.matches(path))
    }

    /// Returns the path of the error page for a status at a requested path, without the initial slash.
    pub(super) fn error_page(&self, status: u16, path: &[u8]) -> Option<&str> {
        let of_paths = self.nearest(path).flat_map(|rules| &rules.errors);
        let mut pages = of_paths.chain(&self.errors);
        let (_, page) = pages.find(|(known, _)| *known == status)?;
        Some(page.trim_start_matches('/'))
    }
}

/// Renderer of a README as HTML, by the file name and the content. The data plane has no Markdown.
#[derive(Clone, Copy, Debug)]
pub struct ReadmeRenderer(pub fn(name: &str, content: &[u8]) -> String);

impl PartialEq for ReadmeRenderer {
    /// The process has a single renderer.
    fn eq(&self, _: &ReadmeRenderer) -> bool {
        true
    }
}

impl Eq for ReadmeRenderer {}

/// Rule for Cache-Control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheControlRule {
    /// Value of max-age in seconds.
    pub max_age_seconds: u64,
    /// Whether the file never changes under the same name (RFC 8246).
    pub immutable: bool,
    /// Whether the rule is for names with a [hash](release::hashed_name) of the content alone.
    pub only_hashed: bool,
}

impl CacheControlRule {
    /// Rule for names with a hash of the content, which never get another content.
    pub const HASHED: CacheControlRule = CacheControlRule {
        max_age_seconds: HASHED_SECONDS,
        immutable: true,
        only_hashed: true,
    };
}

/// Entry of `try`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TryPath {
    /// `$path`: the path itself.
    Path,
    /// `$path.html`: the path with a suffix to the last name.
    Suffix(String),
    /// Any other text with `$path`: `/prefix$path/suffix`.
    Around(String, String),
    /// `/index.html`: a fixed file.
    Fixed(String),
    /// Redirects of a release that apply before all files.
    ForcedRedirects,
    /// Redirects of a release for paths without a file.
    Redirects,
    /// Files with a hash in the name of releases that were served within the last day.
    Retained,
}

impl TryPath {
    /// Parses an entry. The error is a clause with the reason.
    pub(crate) fn parse(text: &str) -> Result<TryPath, &'static str> {
        let Some((before, after)) = text.split_once("$path") else {
            return match text.trim_matches('/') {
                "" => Err("is empty"),
                fixed if fixed.contains('$') => {
                    Err("has an unknown variable; only `$path` is supported")
                }
                fixed => Ok(TryPath::Fixed(fixed.into())),
            };
        };
        if before.contains('$') || after.contains('$') {
            return Err("has more than one `$path`");
        }
        let before = before.trim_matches('/');
        Ok(match (before, after) {
            ("", "") => TryPath::Path,
            ("", after) if !after.contains('/') => TryPath::Suffix(after.into()),
            (before, after) => TryPath::Around(before.into(), after.trim_end_matches('/').into()),
        })
    }
}

/// Paths to look up for a request: of the site, and of the paths below a prefix.
pub(super) struct TryLists {
    usual: Vec<TryPath>,
    /// Lists for the paths below a prefix, the longest prefix first.
    below: Vec<(Box<[u8]>, Vec<TryPath>)>,
}

impl TryLists {
    /// Parses the lists of the rules. The error is an invalid entry, with the reason.
    pub(super) fn parse(rules: &SiteRules) -> Result<TryLists, (String, &'static str)> {
        let parse = |text: &String| TryPath::parse(text).map_err(|what| (text.clone(), what));
        let list = |paths: &Vec<String>| paths.iter().map(parse).collect::<Result<Vec<_>, _>>();
        let below = rules.below.iter().filter_map(|rules| {
            let tries = list(rules.try_paths.as_ref()?);
            Some(tries.map(|tries| (rules.below.clone(), tries)))
        });
        Ok(TryLists {
            usual: list(&rules.try_paths)?,
            below: below.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the list for a requested path.
    #[inline]
    pub(super) fn of(&self, path: &[u8]) -> &[TryPath] {
        if self.below.is_empty() {
            &self.usual
        } else {
            self.nearest(path)
        }
    }

    #[inline(never)]
    fn nearest(&self, path: &[u8]) -> &[TryPath] {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let mut below = self.below.iter();
        let nearest = below.find(|(prefix, _)| is_below(path, prefix));
        nearest.map_or(&self.usual, |(_, tries)| tries)
    }

    /// Changes each list.
    pub(super) fn change(&mut self, change: impl Fn(&mut Vec<TryPath>)) {
        change(&mut self.usual);
        self.below.iter_mut().for_each(|(_, tries)| change(tries));
    }
}

/// Returns true if the names are equal, ignoring case.
pub(crate) fn is(name: &[u8], field: &str) -> bool {
    name.eq_ignore_ascii_case(field.as_bytes())
}

/// Returns true for a response field of cross-origin access (Fetch §3.2.3).
pub(crate) fn is_of_cors(name: &[u8]) -> bool {
    let prefix = name.first_chunk::<15>();
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"access-control-"))
}

/// Returns the fields that the operator's rules set for any of the paths below the root. The last rule for a name
/// wins.
pub fn operator_fields<'r>(headers: &'r HeaderRules, paths: &[&[u8]]) -> Vec<(&'r str, &'r str)> {
    let mut fields: Vec<(&str, &str)> = Vec::new();
    let applies = headers
        .iter()
        .filter(|(glob, _)| paths.iter().any(|path| glob.matches(path)));
    for (_, set) in applies {
        for (name, value) in set {
            if is_settable(name) && valid_value(value) {
                fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                fields.push((name, value));
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_for_hashed_names_leaves_other_names_to_the_next_rule() {
        let any = Glob::parse("*").expect("a glob");
        let day = CacheControlRule {
            max_age_seconds: 86_400,
            immutable: false,
            only_hashed: false,
        };
        let rules = SiteRules {
            cache: vec![(any.clone(), CacheControlRule::HASHED), (any, day)],
            ..SiteRules::new("/srv")
        };
        for (path, rule) in [
            ("assets/main.3f2a91c8.css", CacheControlRule::HASHED),
            ("index-BdT9ax1Q.js", CacheControlRule::HASHED),
            ("assets/main.css", day),
            ("main.3f2a91c8.html", day),
        ] {
            assert_eq!(rules.cache_control(path.as_bytes()), Some(rule), "{path}");
        }
    }

    #[test]
    fn the_nearest_prefix_decides_which_files_are_hidden() {
        let globs = |globs: &[&str]| {
            let globs = globs.iter();
            globs.map(|it| Glob::parse(it).expect("a glob")).collect()
        };
        let below = |below: &str, hide: Option<&[&str]>| PathRules {
            below: below.as_bytes().into(),
            hide: hide.map(globs),
            ..PathRules::default()
        };
        let rules = SiteRules {
            hide: globs(&["*~", "/x/**/y"]),
            below: vec![
                below("a/b/c", None),
                below("a/b", Some(&[])),
                below("a", Some(&["*.bak"])),
            ],
            ..SiteRules::new("/srv")
        };
        for (path, hidden) in [
            ("p~", true),
            ("/p~", true),
            ("p~.gz", true),
            ("p~.br", true),
            ("x/a/y", true),
            ("x/a/y.zst", true),
            ("p.bak", false),
            ("ab/p~", true),
            ("a/p~", false),
            ("a/p.bak", true),
            ("a/p.bak.gz", true),
            ("a/b/p.bak", false),
            ("a/b/c/p~", false),
            ("a/bc/p.bak", true),
        ] {
            assert_eq!(rules.hides(path.as_bytes()), hidden, "{path}");
        }
    }

    #[test]
    fn try_paths_are_parsed() {
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
}
