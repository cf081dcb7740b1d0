//! Frozen site: a folder scanned into a tree, or a release with a tree by its manifest. The content of files is loaded
//! at the first request, and a request head together with the tree yields a response.
//!
//! Answering is pure: the tree and the request head go in, and a value comes out. Blocking work is a value
//! as well: a [`FileLoad`] for the caller to run on another thread. A change of files makes a new [`Site`]
//! that shares all unchanged parts with the old site.

mod site_response;
mod content_budget;
mod preconditions;
mod error_page;
mod file;
mod file_version;
mod folder;
mod gzip_file;
mod gzip_queue;
mod prepared_heads;
mod escape;
mod cached_response;
mod listing;
mod page_style;
mod load;
mod loaded_facts;
mod published_rules;
mod release;
mod resolve;
mod root;
pub mod rules;
mod scan;
mod secret_paths;
mod shared;
mod variant_response;
mod variant;

#[cfg(test)]
mod tests;

pub use self::release::{FolderRelease, ReleaseError, ReleaseRules, ReleaseState, ReopenedSite};
pub use crate::site::content_budget::ContentBudget;
pub use crate::site::escape::escape;
pub use crate::site::gzip_queue::{GzipJob, GzipQueue, gzip};
pub use crate::site::preconditions::{PreconditionResult, RepresentationDate, evaluate_with};
pub use crate::site::prepared_heads::{SERVER, is_content_field};
pub use crate::site::secret_paths::{ResolvedSecrets, SecretPaths};
pub use crate::site::site_response::{ALLOW, SiteResponse};
pub use crate::site::variant_response::{
    AgeAndLifetime, BodyPiece, BodySelection, Multipart, VariantResponse,
};
pub use error_page::{ERROR_PAGE_POLICY, error_page, redirect_page};
pub use file_version::{FileError, FileMeta};
pub use listing::{Listing, README_NAMES};
pub use load::FileLoad;
pub use page_style::{FRAME_STYLE, PAGE_STYLE};
pub use resolve::Resolution;
pub use root::{SiteRoot, Symlinks};
pub use rules::{
    CacheControlRule, HeaderRules, PathRules, ReadmeRenderer, SiteRules, TryPath, operator_fields,
};
pub use scan::{WriteReport, hidden, writers_of};
pub use variant::{DiskContent, Variant, VariantContent};

pub(crate) use rules::is_of_cors;

use self::release::RetainedFiles;
use ::release::stray_files::is_doubtful;
use base::sys::OpenWriters;
use folder::{FolderNode, SiteFolder};
use published_rules::PublishedRules;
use root::PathResolver;
use rules::TryLists;
use shared::{SiteShared, SiteSource};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::hash::RandomState;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use std::{fmt, io};
use wire::request_target::is_below;

/// Site as of the last scan. A clone is cheap.
#[derive(Clone)]
pub struct Site {
    // Declared before `shared`: the drop of `shared` sweeps the budget, and the files of the tree must be
    // dropped first.
    tree: Arc<SiteFolder>,
    shared: Arc<SiteShared>,
}

/// Failure to open a site.
#[derive(Debug)]
pub enum SiteError {
    /// The root is missing, is not a folder, or is unreadable.
    Root(PathBuf, io::Error),
    /// An invalid `try` path, with the reason.
    Try(String, &'static str),
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SiteError::Root(root, error) => write!(f, "cannot read {}: {error}", root.display()),
            SiteError::Try(text, what) => write!(f, "`{text}` {what}"),
        }
    }
}

impl std::error::Error for SiteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SiteError::Root(_, error) => Some(error),
            SiteError::Try(..) => None,
        }
    }
}

impl Site {
    /// Opens the root and scans the whole tree, or opens the release; blocks.
    pub fn open(rules: SiteRules, budget: Arc<ContentBudget>) -> Result<Site, SiteError> {
        Site::open_after(rules, budget, None)
    }

    /// Opens a site in place of a site with other rules. If the published release cannot be served, the release of
    /// `former` stays.
    pub fn open_after(
        rules: SiteRules,
        budget: Arc<ContentBudget>,
        former: Option<&Site>,
    ) -> Result<Site, SiteError> {
        match rules.release.clone() {
            Some(release) => Site::open_release(rules, &release, budget, former),
            None => Site::open_with(rules, budget, None),
        }
    }

    fn open_with(
        rules: SiteRules,
        budget: Arc<ContentBudget>,
        resolver: Option<PathResolver>,
    ) -> Result<Site, SiteError> {
        let tries = tries(&rules)?;
        let wrong = |error| SiteError::Root(rules.root.clone(), error);
        let root = SiteRoot::open(&rules.root, rules.symlinks, resolver).map_err(wrong)?;
        let tree = scan::scan(&root, &rules).map_err(|why| {
            wrong(match why {
                FileError::Unreadable => io::ErrorKind::PermissionDenied.into(),
                why => io::Error::other(why.reject().reason),
            })
        })?;
        let shared = SiteShared {
            rules,
            published: PublishedRules::default(),
            tries,
            source: SiteSource::Folder(root),
            budget,
            started: Instant::now(),
            stale: Mutex::default(),
            seed: RandomState::new(),
            retained: RetainedFiles::default(),
        };
        Ok(Site {
            shared: Arc::new(shared),
            tree,
        })
    }

    /// Returns the site after changes at the given paths, relative to the root: each path is a file or
    /// folder that was added, removed or changed, and the empty path is the whole site. Blocks. Only the
    /// named paths are read, folders recursively, and the targets of links. The rest of the tree is shared,
    /// and unchanged files keep their loaded content.
    #[cfg(test)]
    pub(crate) fn with_changes(&self, changes: &[PathBuf]) -> Site {
        let changes = changes.iter().map(|path| (&**path, WriteReport::Closed));
        self.with_settled_changes(changes, i64::MAX).0
    }

    /// Returns the site after changes, as [`Site::with_changes`] does, but leaves unfinished files
    /// unchanged. A file counts as unfinished if the file changed after `settled_ns` (Unix time) and a
    /// process has the file open for writing, even at a path of a closed file, because a new writer may have
    /// opened the file. If the file system cannot report writers, recently changed files found in a folder
    /// or at unsure paths count as unfinished too. A growing file ([`SiteRules::growing`]) is never unfinished.
    /// A new file, or the file at an overdue path, is refused until the file is finished.
    ///
    /// Also returns the paths of unfinished files, to be passed again later.
    pub fn with_settled_changes<'p>(
        &self,
        changes: impl Iterator<Item = (&'p Path, WriteReport)>,
        settled_ns: i64,
    ) -> (Site, Vec<PathBuf>) {
        let paths = changes.map(|(path, report)| (names(path), report));
        let shared = &self.shared;
        let rules = &shared.rules;
        let Some(root) = shared.root() else {
            return (self.clone(), Vec::new());
        };
        let read = scan::ScanInput {
            root,
            rules,
            secrets: &rules.secrets.resolve(),
        };
        let (tree, unsettled) = scan::rescan(&read, &self.tree, paths, settled_ns);
        let site = Site {
            shared: Arc::clone(shared),
            tree,
        };
        if !site.same_tree(self) {
            shared.budget.sweep();
        }
        let path = |path| PathBuf::from(OsString::from_vec(path));
        (site, unsettled.into_iter().map(path).collect())
    }

    /// Returns true if both sites share one tree and the rules, so that nothing needs to be published.
    pub fn same_tree(&self, other: &Site) -> bool {
        Arc::ptr_eq(&self.tree, &other.tree) && Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns true if both sites come from one call of [`Site::open`], and so share the root or the store.
    pub fn same_root(&self, other: &Site) -> bool {
        let is_same_release = self.release_state().is_some() && self.rules() == other.rules();
        is_same_release || Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the rules passed to [`Site::open`]. Under equal rules, `with_changes(&[PathBuf::new()])` is
    /// a new scan.
    pub fn rules(&self) -> &SiteRules {
        &self.shared.rules
    }

    /// Returns the real path of the root, links resolved. For a release, returns the folder of the site in the store.
    pub fn root(&self) -> &Path {
        match self.shared.root() {
            Some(root) => root.path(),
            None => &self.shared.rules.root,
        }
    }

    /// Returns true if the root's path leads to another folder by now, because a link was switched or a
    /// folder replaced. The site must be opened anew.
    pub fn root_moved(&self) -> bool {
        let root = self.shared.root();
        root.is_some_and(|root| root.moved(&self.shared.rules.root))
    }

    /// Returns the folders to watch: the path for [`Site::with_changes`], and the real path of the folder.
    /// One real folder may have several paths, each valid for a change report. The folders with the targets
    /// of linked files are included, under the path of the folder with the link. A release has none.
    pub fn folders(&self) -> Vec<(PathBuf, PathBuf)> {
        if self.shared.root().is_none() {
            return Vec::new();
        }
        let mut watched = WatchedFolders::default();
        watched.collect(self.root(), &self.tree, &mut PathBuf::new());
        let plain: HashSet<&PathBuf> = watched.folders.iter().map(|(_, real)| real).collect();
        let targets: Vec<_> = watched
            .targets
            .iter()
            .filter(|(_, real)| !plain.contains(real))
            .cloned()
            .collect();
        watched.folders.extend(targets);
        watched.folders
    }

    /// Returns true if the tree has a file at this path.
    pub fn has_file(&self, path: &Path) -> bool {
        let node = self.tree.lookup(path.as_os_str().as_bytes(), b"");
        matches!(node, Some(FolderNode::File(_)))
    }

    /// Returns true if processes append to the file at this path, by the rules of the operator.
    pub fn is_growing(&self, path: &Path) -> bool {
        self.shared.rules.is_growing(path.as_os_str().as_bytes())
    }

    /// Returns true if the tree has the name, even of a file that is refused.
    pub fn has_name(&self, path: &Path) -> bool {
        self.tree.lookup(path.as_os_str().as_bytes(), b"").is_some()
    }

    /// Returns whether a process has the file at this path open for writing.
    pub fn writers(&self, path: &Path) -> OpenWriters {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return OpenWriters::Unknown;
        };
        let root = self.shared.root();
        let folder = root.map(|root| root.open_folder(above.as_os_str().as_bytes()));
        match folder {
            Some(Ok(folder)) => scan::writers_of(folder.as_fd(), name.as_bytes()),
            Some(Err(_)) | None => OpenWriters::Unknown,
        }
    }

    /// Returns the path to read anew after a request found that `path` differs from the tree: `path` up to
    /// the first name missing in the tree. Returns None if the folder does not list the name: a
    /// case-insensitive file system finds a file under names that no folder lists, and guards do not know
    /// these names.
    pub fn first_unknown(&self, path: &Path) -> Option<PathBuf> {
        let root = self.shared.root()?;
        let mut folder = &self.tree;
        let mut known = PathBuf::new();
        for name in names(path) {
            let above = known.clone();
            known.push(OsStr::from_bytes(name));
            match folder.find(name).map(|entry| &entry.node) {
                Some(FolderNode::Folder(below)) => folder = below,
                Some(_) => return Some(known),
                None => {
                    let above = root.open_folder(above.as_os_str().as_bytes());
                    let has_name = above.is_ok_and(|above| scan::has_name(above.as_fd(), name));
                    return has_name.then_some(known);
                }
            }
        }
        Some(known)
    }

    /// Returns the number of served files with a doubtful name ([`is_doubtful`](release::stray_files::is_doubtful)), and the
    /// path of the first one. The files below the paths of `left_out` are not counted; the paths have no slash at either
    /// end. The numbers come from the scan, so the call costs one pass over a few folders.
    pub fn doubtful_files(&self, left_out: &[&[u8]]) -> Option<(u32, PathBuf)> {
        let outer = |path: &&&[u8]| {
            let mut others = left_out.iter();
            !others.any(|other| other.len() < path.len() && is_below(path, other))
        };
        let mut left_out: Vec<&[u8]> = left_out.iter().filter(outer).copied().collect();
        left_out.sort_unstable();
        left_out.dedup();
        let counts = left_out
            .iter()
            .map(|path| match self.tree.lookup(path, b"") {
                _ if path.is_empty() => self.tree.doubtful,
                Some(FolderNode::Folder(folder)) => folder.doubtful,
                Some(FolderNode::File(_)) => is_doubtful(path).into(),
                Some(FolderNode::Refused(_)) | None => 0,
            });
        let count = self.tree.doubtful.checked_sub(counts.sum());
        let count = count.filter(|count| *count > 0)?;
        let first = self.tree.first_doubtful(b"", &left_out)?;
        Some((count, PathBuf::from(OsString::from_vec(first))))
    }

    /// Returns the number of files and the total of the file sizes.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, u64) {
        count(&self.tree)
    }

    /// Records a path again for [`Site::take_stale`].
    pub fn note_stale(&self, path: &Path) {
        self.shared.note_stale(path.as_os_str().as_bytes());
    }

    /// Takes the paths of files found to differ from the tree, because the watch missed a change or has not
    /// reported the change yet. The paths should be rescanned after a moment without further changes.
    pub fn take_stale(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.shared.stale())
    }
}

/// Parses the paths to try.
fn tries(rules: &SiteRules) -> Result<TryLists, SiteError> {
    TryLists::parse(rules).map_err(|(text, what)| SiteError::Try(text, what))
}

/// Splits a path into names.
fn names(path: &Path) -> Vec<&[u8]> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    names.collect()
}

#[derive(Default)]
struct WatchedFolders {
    folders: Vec<(PathBuf, PathBuf)>,
    targets: HashSet<(PathBuf, PathBuf)>,
}

impl WatchedFolders {
    fn collect(&mut self, root: &Path, folder: &SiteFolder, path: &mut PathBuf) {
        self.folders.push((path.clone(), root.join(&path)));
        for (name, entry) in folder.iter() {
            match &entry.node {
                FolderNode::Folder(below) => {
                    path.push(OsStr::from_bytes(name));
                    self.collect(root, below, path);
                    path.pop();
                }
                FolderNode::File(_) if entry.link => {
                    let real = root
                        .join(&path)
                        .join(OsStr::from_bytes(name))
                        .canonicalize();
                    if let Some(parent) = real.ok().as_deref().and_then(Path::parent) {
                        self.targets.insert((path.clone(), parent.to_path_buf()));
                    }
                }
                FolderNode::File(_) | FolderNode::Refused(_) => {}
            }
        }
    }
}

#[cfg(test)]
fn count(folder: &SiteFolder) -> (usize, u64) {
    folder
        .iter()
        .fold((0, 0), |(files, bytes), (_, entry)| match &entry.node {
            FolderNode::File(file) => (files + 1, bytes + file.version.size()),
            FolderNode::Folder(below) => {
                let (more, size) = count(below);
                (files + more, bytes + size)
            }
            FolderNode::Refused(_) => (files, bytes),
        })
}
