//! Doubtful contents of served folders: no file, files that lack the coding of their rule, and routes that fit the folder of
//! another site.
//!
//! A check looks at a bounded number of entries, since a folder may have millions.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use toml::Spanned;

use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::file_rules::EncodingConfig;
use crate::config::limits::{CONFIG_CHECKED_ENTRIES_MAX, CONFIG_CHECKED_FILES_MAX};
use crate::config::paths::FILE_NAME;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::site_table::SiteConfig;
use release::glob::Glob;
use wire::fields::ContentCoding;

/// Files of a served folder that clients may see, by their paths below the folder, as far as the bound allows.
pub(super) struct VisibleFiles {
    root: PathBuf,
    /// Folders to read, and files, by their paths below the root. The first one is last.
    waiting: Vec<(PathBuf, bool)>,
    entries_left: usize,
}

impl VisibleFiles {
    pub(super) fn new(root: &Path) -> VisibleFiles {
        VisibleFiles {
            root: root.to_owned(),
            waiting: vec![(PathBuf::new(), true)],
            entries_left: CONFIG_CHECKED_ENTRIES_MAX,
        }
    }

    /// Adds the entries of a folder in the order of their names.
    fn open(&mut self, folder: &Path) {
        let entries = std::fs::read_dir(self.root.join(folder));
        let entries = entries.into_iter().flatten().flatten();
        let mut found: Vec<(PathBuf, bool)> = entries
            .take(self.entries_left)
            .filter(|entry| {
                let name = entry.file_name();
                name == ".well-known" || !name.as_bytes().starts_with(b".")
            })
            .map(|entry| {
                // A link counts as a file, and is not followed.
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                (folder.join(entry.file_name()), is_folder)
            })
            .collect();
        self.entries_left -= found.len();
        found.sort_by(|one, other| other.cmp(one));
        self.waiting.append(&mut found);
    }
}

impl Iterator for VisibleFiles {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        while let Some((path, is_folder)) = self.waiting.pop() {
            if !is_folder {
                return Some(path);
            }
            if self.entries_left == 0 {
                continue;
            }
            self.open(&path);
        }
        None
    }
}

/// Returns a warning if a folder has no file to serve. A folder with more entries than the bound has one.
pub(super) fn without_files(
    config: &Config,
    site: &SiteConfig,
    root: &Spanned<PathBuf>,
) -> Option<OperatorError> {
    let mut files = VisibleFiles::new(root.get_ref());
    if !root.get_ref().is_dir() || files.next().is_some() || files.entries_left == 0 {
        return None;
    }
    let shown = root.get_ref().display();
    Some(match &config.path {
        Some(_) => {
            let what = format!("the folder {shown} has no file to serve");
            let mut scripts = site.index.iter().filter(|name| name.ends_with(".php"));
            let help = match scripts.next() {
                Some(script) => format!(
                    "unpack the application into the folder, so that the folder has its {script}, or name another folder"
                ),
                None => "put an index.html into the folder, or name another folder".to_owned(),
            };
            config.point(root.span(), what, help)
        }
        None => {
            let what = format!("the folder {shown} has neither an {FILE_NAME} nor a file to serve");
            let help = format!(
                "name a folder with files, or a configuration file such as FOLDER/{FILE_NAME}"
            );
            OperatorError::new(what).help(help)
        }
    })
}

/// Returns a warning if a folder without a configuration has a file that is probably meant as the configuration.
pub(super) fn misnamed_configuration(config: &Config) -> Option<OperatorError> {
    if config.path.is_some() {
        return None;
    }
    let entries = std::fs::read_dir(&config.folder).ok()?.flatten();
    let mut names = entries
        .take(CONFIG_CHECKED_ENTRIES_MAX)
        .filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| name.to_ascii_lowercase().starts_with("anthill."))?;
    let path = config.folder.join(&name);
    path.is_file().then(|| {
        let path = path.display();
        let what = format!("{path} is not read as a configuration, and clients can read the file");
        let help =
            format!("give the file the name {FILE_NAME}, or name the file: anthill check {path}");
        OperatorError::new(what).help(help)
    })
}

/// Returns a warning for each rule of `encodings` with a file that has another coding.
pub(super) fn wrong_codings(config: &Config, site: &SiteConfig) -> Vec<OperatorError> {
    let Some(root) = site.root.as_ref().filter(|_| !site.encodings.is_empty()) else {
        return Vec::new();
    };
    let root = root.get_ref();
    let globs: Vec<Option<Glob>> = site
        .encodings
        .iter()
        .map(|rule| Glob::parse(rule.files.get_ref()).ok())
        .collect();
    // The first file of each rule, with what the file is, and the number of files.
    let mut wrong: Vec<Option<(PathBuf, &str, usize)>> = vec![None; globs.len()];
    let mut files_left = CONFIG_CHECKED_FILES_MAX;
    for file in VisibleFiles::new(root) {
        let path = file.as_os_str().as_bytes();
        let is_match = |glob: &Option<Glob>| glob.as_ref().is_some_and(|it| it.matches(path));
        let Some(nth) = globs.iter().position(is_match) else {
            continue;
        };
        if files_left == 0 {
            break;
        }
        files_left -= 1;
        let Some(found) = mismatch(&root.join(&file), site.encodings[nth].coding) else {
            continue;
        };
        match &mut wrong[nth] {
            Some((.., count)) => *count += 1,
            first => *first = Some((root.join(&file), found, 1)),
        }
    }
    let rules = site.encodings.iter().zip(wrong);
    rules
        .filter_map(|(rule, wrong)| Some(wrong_coding(config, rule, wrong?)))
        .collect()
}

fn wrong_coding(
    config: &Config,
    rule: &EncodingConfig,
    (file, found, count): (PathBuf, &str, usize),
) -> OperatorError {
    let coding = match rule.coding {
        ContentCoding::Gzip => "gzip",
        ContentCoding::Br => "br",
        ContentCoding::Zstd => "zstd",
        ContentCoding::Identity => "identity",
    };
    let more = match count {
        1 => String::new(),
        2 => ", and 1 further file has another coding".to_owned(),
        _ => format!(", and {} further files have another coding", count - 1),
    };
    let what = format!(
        "`set = \"{coding}\"` holds for {}, which is {found}: browsers cannot decode the file{more}",
        file.display()
    );
    let help = format!(
        "compress the file with {coding}, choose another pattern, or put a rule with set = \"identity\" for the file above"
    );
    config.point(rule.files.span(), what, help)
}

/// Returns what a file is, if its first bytes do not belong to the coding.
fn mismatch(path: &Path, coding: ContentCoding) -> Option<&'static str> {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
    if coding == ContentCoding::Identity || !is_file {
        return None;
    }
    let mut head = [0; HEAD_BYTES];
    let mut file = File::open(path).ok()?;
    let mut length = 0;
    while length < head.len() {
        match file.read(&mut head[length..]).ok()? {
            0 => break,
            more => length += more,
        }
    }
    let (found, shown) = coding_of(&head[..length]);
    match (coding, found) {
        // A Brotli stream has no mark of its own.
        (ContentCoding::Br, None) => (!shown.is_empty()).then_some(shown),
        (_, None) if shown.is_empty() => Some("in another format"),
        (_, None) => Some(shown),
        (_, Some(found)) => (found != coding).then_some(shown),
    }
}

/// Bytes of a file that are read: enough to tell a text from compressed bytes.
const HEAD_BYTES: usize = 64;

/// Returns the coding that the first bytes of a file belong to, and the description of the file; both are empty for a file
/// in an unknown format.
fn coding_of(head: &[u8]) -> (Option<ContentCoding>, &'static str) {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || b" \t\r\n".contains(byte);
    match head {
        [] => (None, "empty"),
        [0x1f, 0x8b, ..] => (Some(ContentCoding::Gzip), "compressed with gzip"),
        // RFC 8878 §3.1.1, and §3.1.2 for the skippable frames.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            (Some(ContentCoding::Zstd), "compressed with Zstandard")
        }
        text if text.iter().all(is_text) => (None, "plain text"),
        _ => (None, ""),
    }
}

/// Returns a warning for a route that has no file in the folder of its site, although the folder of another site has the
/// path: the route probably stands below the wrong [[site]].
pub(super) fn misplaced_route(
    config: &Config,
    site: &SiteConfig,
    route: &RouteConfig,
) -> Option<OperatorError> {
    let path = named_path(route)?;
    let own = site.root.as_ref()?.get_ref();
    let inside = path.trim_matches('/');
    let covers = |other: &&RouteConfig| {
        let prefix = other.path.get_ref().trim_end_matches('/');
        let rest = path.strip_prefix(prefix);
        other.target.is_some() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut routes = site.routes.iter();
    let is_answered = routes.any(|other| other.span != route.span && covers(&other));
    if inside.is_empty() || !own.is_dir() || own.join(inside).exists() || is_answered {
        return None;
    }
    let has_path = |other: &&SiteConfig| {
        let root = other.root.as_ref().map(Spanned::get_ref);
        let mut routes = other.routes.iter();
        root.is_some_and(|root| root != own && root.join(inside).exists())
            && !routes.any(|other| other.path.get_ref() == route.path.get_ref())
    };
    let other = config.sites.iter().find(has_path)?;
    let (name, other_name) = (site.names[0].get_ref(), other.names[0].get_ref());
    let place = config
        .source
        .place(other.span.start, route.path.span().start);
    let what = format!(
        "the site {name} has no {path} for the route {}, and the site {other_name} has one",
        route.path.get_ref()
    );
    let help = format!(
        "if the route is meant for {other_name}, move the [[site.route]] below the [[site]] in {place}, above the next \
         [[site]]"
    );
    Some(config.point(route.path.span(), what, help))
}

/// Returns the path that a route expects in the folder of its site: the guarded path, or the path of the site to which the
/// route leads.
fn named_path(route: &RouteConfig) -> Option<&str> {
    let to = match &route.target {
        None => return Some(route.path.get_ref()),
        Some(TargetConfig::Redirect(redirect)) => redirect.to.get_ref(),
        Some(TargetConfig::Rewrite(to)) => to.get_ref(),
        Some(_) => return None,
    };
    let end = to.find(['?', '#']).unwrap_or(to.len());
    to.starts_with('/').then(|| &to[..end])
}

/// Returns a warning for a `[[site]]` that has routes alone, below a site with names: the routes are probably meant for the
/// site above.
pub(super) fn nameless_site(config: &Config, nth: usize) -> Option<OperatorError> {
    let site = &config.sites[nth];
    let above = &config.sites[nth.checked_sub(1)?];
    let is_bare =
        site.names[0].span().is_empty() && site.listen.is_empty() && !site.routes.is_empty();
    let default_root = site.root.as_ref().map(Spanned::span);
    let has_content = site.release.is_some() || default_root.is_some_and(|it| it != site.span);
    let has_names = !above.names[0].span().is_empty();
    let answers_all = |route: &RouteConfig| {
        let target = route.target.as_ref();
        route.path.get_ref() == "/" && matches!(target, Some(TargetConfig::Redirect(_)))
    };
    if !is_bare || has_content || !has_names || site.routes.iter().any(answers_all) {
        return None;
    }
    let name = above.names[0].get_ref();
    let what = format!(
        "this [[site]] has no `names`, so its routes answer for all names that no other site has, and not for {name}"
    );
    let help = format!(
        "remove this [[site]] if the routes are meant for {name}, or write names = [\"*\"] for all other names"
    );
    Some(config.point(site.span.clone(), what, help))
}
