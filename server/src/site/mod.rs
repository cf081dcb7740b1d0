//! One frozen site: a folder scanned into a tree, files loaded when they are first asked for, and
//! from the two an answer to a request's head.
//!
//! Answering is pure: it reads the tree and the head and returns a value. What blocks is a value
//! too: a [`FileLoad`] that the caller runs elsewhere. A change makes a new [`Site`] that shares with
//! the old one all that stayed.

mod site_response;
mod content_budget;
mod preconditions;
mod error_page;
mod file;
mod folder;
pub mod glob;
mod gzip_queue;
mod prepared_heads;
mod escape;
mod cached_response;
mod listing;
mod load;
pub mod mime;
mod resolve;
mod root;
pub mod rules;
mod scan;
mod secret_paths;
mod variant_response;
mod variant;

#[cfg(test)]
mod tests;

pub use crate::site::content_budget::ContentBudget;
pub use crate::site::escape::escape;
pub use crate::site::gzip_queue::{GzipJob, GzipQueue, gzip};
pub use crate::site::preconditions::{PreconditionResult, evaluate_with};
pub use crate::site::prepared_heads::{SERVER, is_content_field, operator_fields};
pub use crate::site::secret_paths::{ResolvedSecrets, SecretPaths};
pub use crate::site::site_response::{ALLOW, SiteResponse};
pub use crate::site::variant_response::{
    AgeAndLifetime, BodyPiece, BodySelection, Multipart, VariantResponse,
};
pub use error_page::plain_error;
pub use file::{FileError, FileMeta};
pub use glob::{Glob, GlobError};
pub use listing::Listing;
pub use load::FileLoad;
pub use resolve::ResolvedFile;
pub use root::SiteRoot;
pub use rules::{CacheControlRule, HeaderRules, SiteRules, Symlinks, TryPath};
pub use scan::{hidden, writers_of};
pub use variant::{DiskContent, Variant, VariantContent};

use crate::base::sys::OpenWriters;
use crate::limits::{GZIP_FILE_BYTES_MAX, GZIP_FILE_BYTES_MIN, STALE_PATHS_MAX};
use crate::site::gzip_queue::GzipFileJob;
use crate::wire::fields::ContentCoding;
use file::{SiteFile, TICKS_PER_SECOND};
use folder::{FolderNode, SiteFolder};
use root::PathResolver;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::hash::RandomState;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{fmt, io};

/// A site as it was when it was last scanned. Cloning it is cheap.
#[derive(Clone)]
pub struct Site {
    // Before `shared`, whose end counts which files are gone.
    tree: Arc<SiteFolder>,
    shared: Arc<SiteShared>,
}

/// What stays the same from one scan of a site to the next.
struct SiteShared {
    rules: SiteRules,
    tries: Vec<TryPath>,
    root: SiteRoot,
    budget: Arc<ContentBudget>,
    /// For the age of failures.
    started: Instant,
    /// Files that were found other than the tree says.
    stale: Mutex<Vec<PathBuf>>,
    /// For boundaries between ranges.
    seed: RandomState,
}

/// Why a site can't be opened.
#[derive(Debug)]
pub enum SiteError {
    /// The root isn't there, is no folder, or can't be read.
    Root(PathBuf, io::Error),
    /// One of the `try` paths, and what is wrong with it.
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
    /// Opens the root and scans all of it; blocks.
    pub fn open(rules: SiteRules, budget: Arc<ContentBudget>) -> Result<Site, SiteError> {
        Site::open_with(rules, budget, None)
    }

    fn open_with(
        rules: SiteRules,
        budget: Arc<ContentBudget>,
        resolver: Option<PathResolver>,
    ) -> Result<Site, SiteError> {
        let parse =
            |text: &String| TryPath::parse(text).map_err(|what| SiteError::Try(text.clone(), what));
        let tries = rules
            .try_paths
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()?;
        let wrong = |error| SiteError::Root(rules.root.clone(), error);
        let root = SiteRoot::open(&rules.root, rules.symlinks, resolver).map_err(wrong)?;
        let tree = scan::scan(&root, &rules.index, &rules.secrets).map_err(|why| {
            wrong(match why {
                FileError::Unreadable => io::ErrorKind::PermissionDenied.into(),
                why => io::Error::other(why.reject().reason),
            })
        })?;
        let shared = SiteShared {
            rules,
            tries,
            root,
            budget,
            started: Instant::now(),
            stale: Mutex::default(),
            seed: RandomState::new(),
        };
        Ok(Site {
            shared: Arc::new(shared),
            tree,
        })
    }

    /// The site after changes at these paths, relative to the root, each a file or folder that came,
    /// went or changed; the empty path is all of it. Blocks. Only what is named is read, folders
    /// whole, and what links lead to; the rest is shared, and files that are the same keep what is
    /// loaded of them.
    pub fn with_changes(&self, changes: &[PathBuf]) -> Site {
        self.with_settled_changes(changes, &[], i64::MAX).0
    }

    /// The same, but files that changed after `settled_ns` (Unix time) stay as they were, and so does
    /// their absence, while somebody writes to them: at the paths of `changes` too, for whoever was
    /// told to be done may have begun anew. Where nobody can tell, files that are met in a folder or
    /// at the `unsure` paths stay so as well. Paths come back too, to be named once they are whole;
    /// but not those of `unsure` files that somebody is writing to for certain: that these are closed
    /// will be told.
    pub fn with_settled_changes(
        &self,
        changes: &[PathBuf],
        unsure: &[PathBuf],
        settled_ns: i64,
    ) -> (Site, Vec<PathBuf>) {
        let changes = changes.iter().map(|path| (names(path), true));
        let unsure = unsure.iter().map(|path| (names(path), false));
        let shared = &self.shared;
        let rules = &shared.rules;
        let read = scan::ScanInput {
            root: &shared.root,
            index: &rules.index,
            secrets: &rules.secrets.resolve(),
        };
        let paths = changes.chain(unsure);
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

    /// Is it the very same tree, so that nothing need be published?
    pub fn same_tree(&self, other: &Site) -> bool {
        Arc::ptr_eq(&self.tree, &other.tree)
    }

    /// Does it come from the same [`Site::open`], so that both have one and the same root?
    pub fn same_root(&self, other: &Site) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The rules that it was opened with; with the same rules a new scan is
    /// `with_changes(&[PathBuf::new()])`.
    pub fn rules(&self) -> &SiteRules {
        &self.shared.rules
    }

    /// Where the root really lies, links resolved.
    pub fn root(&self) -> &Path {
        self.shared.root.path()
    }

    /// Does the root's name lead elsewhere by now (a link was turned, a folder replaced)? Then the
    /// site must be opened anew.
    pub fn root_moved(&self) -> bool {
        self.shared.root.moved(&self.shared.rules.root)
    }

    /// The folders to watch: path for [`Site::with_changes`], and where the folder lies. One real
    /// folder may stand under several paths (any of them will do when it changes). Also those in
    /// which the targets of linked files lie, under the path of the folder with the link.
    pub fn folders(&self) -> Vec<(PathBuf, PathBuf)> {
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

    /// Reports whether the tree has a file at this path.
    pub fn has_file(&self, path: &Path) -> bool {
        let node = self.tree.lookup(path.as_os_str().as_bytes(), b"");
        matches!(node, Some(FolderNode::File(_)))
    }

    /// Reports whether a process has the file at this path open for writing.
    pub fn writers(&self, path: &Path) -> OpenWriters {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return OpenWriters::Unknown;
        };
        match self.shared.root.open_folder(above.as_os_str().as_bytes()) {
            Ok(folder) => scan::writers_of(folder.as_fd(), name.as_bytes()),
            Err(_) => OpenWriters::Unknown,
        }
    }

    /// Returns the path to read anew after a request found that `path` differs from the tree: `path` up
    /// to the first name that the tree lacks. Returns None if the folder does not list that name: a
    /// case-insensitive file system finds a file under names that no folder lists, and guards do not
    /// know such names.
    pub fn first_unknown(&self, path: &Path) -> Option<PathBuf> {
        let mut folder = &self.tree;
        let mut known = PathBuf::new();
        for name in names(path) {
            let above = known.clone();
            known.push(OsStr::from_bytes(name));
            match folder.find(name).map(|entry| &entry.node) {
                Some(FolderNode::Folder(below)) => folder = below,
                Some(_) => return Some(known),
                None => {
                    let above = self.shared.root.open_folder(above.as_os_str().as_bytes());
                    let has_name = above.is_ok_and(|above| scan::has_name(above.as_fd(), name));
                    return has_name.then_some(known);
                }
            }
        }
        Some(known)
    }

    /// How many files there are, and how many bytes they have.
    pub fn count(&self) -> (usize, u64) {
        count(&self.tree)
    }

    /// Keeps a path for [`Site::take_stale`], again.
    pub fn note_stale(&self, path: &Path) {
        self.shared.note_stale(path.as_os_str().as_bytes());
    }

    /// Takes the paths of files that turned out to be other than the tree says: changed behind the
    /// watcher's back, or just before it tells. Rescan them when they have been quiet for a moment.
    pub fn take_stale(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.shared.stale())
    }
}

/// What a path is made of.
fn names(path: &Path) -> Vec<&[u8]> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    names.collect()
}

impl SiteShared {
    /// Ticks since the site was opened, for [`file::Failure`]; what is above 32 bits is lost.
    fn now(&self) -> u32 {
        (self.started.elapsed().as_millis() * TICKS_PER_SECOND / 1000) as u32
    }

    fn stale(&self) -> std::sync::MutexGuard<'_, Vec<PathBuf>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_stale(&self, path: &[u8]) {
        let path = Path::new(OsStr::from_bytes(path));
        let mut stale = self.stale();
        if stale.len() < STALE_PATHS_MAX && !stale.iter().any(|known| known == path) {
            stale.push(path.to_path_buf());
        }
    }

    /// Queues a text to be compressed, if it is one, has no gzip beside it and isn't queued yet.
    fn want_gzip(self: &Arc<Self>, file: &Arc<SiteFile>, path: impl FnOnce() -> Vec<u8>) {
        if !file.claim_gzip() {
            return;
        }
        let path = path();
        let in_range = (GZIP_FILE_BYTES_MIN..=GZIP_FILE_BYTES_MAX).contains(&file.meta.size);
        let text = mime::compressible(mime::of(&path, &self.rules.mime));
        if !in_range || !text || file.sidecar(ContentCoding::Gzip).is_some() {
            return file.give_up_gzip();
        }
        let job = GzipFileJob {
            shared: Arc::downgrade(self),
            file: Arc::downgrade(file),
            path: path.into_boxed_slice(),
        };
        if !self.budget.gzip().push(GzipJob::File(job)) {
            file.release_gzip();
        }
    }
}

impl Drop for SiteShared {
    fn drop(&mut self) {
        self.budget.sweep();
    }
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

fn count(folder: &SiteFolder) -> (usize, u64) {
    folder
        .iter()
        .fold((0, 0), |(files, bytes), (_, entry)| match &entry.node {
            FolderNode::File(file) => (files + 1, bytes + file.meta.size),
            FolderNode::Folder(below) => {
                let (more, size) = count(below);
                (files + more, bytes + size)
            }
            FolderNode::Refused(_) => (files, bytes),
        })
}
