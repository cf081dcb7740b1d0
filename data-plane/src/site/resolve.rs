//! Resolution of a path to a resource: index files, clean URLs, slashes.

use super::Site;
use super::file::{SIDECARS, SiteFile};
use super::folder::{FolderNode, SiteFolder};
use super::listing::find_readme;
use super::root::SiteRoot;
use super::rules::TryPath;
use super::scan::hidden;
use crate::site::file_version::{FileError, FileMeta, FileVersion};
use crate::site::shared::SiteSource;
use base::clock::unix_seconds_now;
use release::hashed_name::is_hashed;
use release::limits::FOLDER_DEPTH_MAX;
use release::redirects::{RedirectMatch, RedirectTable};
use rustix::fs::FileType;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use wire::reject::Reject;

/// Resource behind a path.
pub(crate) enum Resource<'a> {
    /// A file.
    File(&'a Arc<SiteFile>, LazyPath<'a>),
    /// A folder requested without the final slash.
    Slash,
    /// A folder to be shown as a listing.
    Listing(&'a Arc<SiteFolder>),
    /// A redirect of the release.
    Redirected(RedirectMatch<'a>),
    /// No served resource.
    Refused(Reject),
}

/// Result of the look-up of a path in a site.
pub struct Resolution<'a> {
    site: &'a Site,
    path: &'a [u8],
    pub(super) resource: Resource<'a>,
    /// Number of the entry of `try` that found the resource.
    nth: usize,
}

impl<'a> Resolution<'a> {
    /// Returns the path that was looked up.
    pub(crate) fn path(&self) -> &'a [u8] {
        self.path
    }

    /// Returns the path below the root, with the first slash, of the file that answers. Guards must check the returned
    /// path in addition to the requested path.
    pub(crate) fn file_path(&self) -> Option<Vec<u8>> {
        match &self.resource {
            Resource::File(_, place) => Some([b"/", place.path().as_slice()].concat()),
            _ => None,
        }
    }

    /// Returns true if the last entry of `try` found the resource.
    pub(crate) fn is_by_last_try(&self) -> bool {
        self.nth + 1 == self.site.shared.tries.of(self.path).len()
    }

    /// Returns true if the response is the file that `try` names for every missing path.
    pub(crate) fn is_fallback(&self) -> bool {
        matches!(&self.resource, Resource::File(_, place) if place.is_fallback)
    }

    /// Returns true if the path has a file of its own.
    pub fn has_own_file(&self) -> bool {
        matches!(self.resource, Resource::File(..)) && !self.is_fallback()
    }

    /// Returns further paths below the root, with their first slashes, of the file or folder that answers: guards of the
    /// returned paths protect the file as well. Where links lead to the file, the real path is included. Where the file
    /// is a variant sent for another file (`page.html.gz`), the path of the other file is included.
    pub(crate) fn aliases(&self) -> Vec<Vec<u8>> {
        let (tree, path) = (&self.site.tree, self.path);
        let mut all = Vec::new();
        let opened = match &self.resource {
            Resource::File(_, place) => place.path(),
            Resource::Slash | Resource::Listing(_) => {
                let inner = path.strip_prefix(b"/").unwrap_or(path);
                inner.strip_suffix(b"/").unwrap_or(inner).to_vec()
            }
            Resource::Redirected(_) | Resource::Refused(_) => return all,
        };
        // The listing shows the README.
        if let Resource::Listing(folder) = &self.resource
            && self.site.rules().readme.is_some()
            && let Some((name, _)) = find_readme(folder)
        {
            all.push([path, name.as_bytes()].concat());
        }
        if opened.is_empty() {
            return all;
        }
        let real = if tree.holds_links {
            tree.real_path(&opened)
        } else {
            None
        };
        let real = real.filter(|real| *real != opened);
        for path in [Some(opened), real.clone()].into_iter().flatten() {
            let endings = SIDECARS.iter().map(|(_, ending)| ending.as_bytes());
            let coded = endings.filter_map(|ending| path.strip_suffix(ending));
            for base in coded {
                if matches!(tree.lookup(base, b""), Some(FolderNode::File(_))) {
                    all.push([b"/", base].concat());
                }
            }
        }
        all.extend(real.map(|real| [b"/", real.as_slice()].concat()));
        all
    }
}

/// Location of a file, assembled into a path only when the file has to be loaded.
pub(crate) struct LazyPath<'a> {
    base: Cow<'a, [u8]>,
    rest: [&'a [u8]; 2],
    /// Whether the file stands in for a missing file, independent of the requested path.
    pub is_fallback: bool,
    /// Whether the file belongs to an earlier release.
    pub is_retained: bool,
}

impl<'a> LazyPath<'a> {
    fn new(base: impl Into<Cow<'a, [u8]>>, rest: [&'a [u8]; 2]) -> LazyPath<'a> {
        LazyPath {
            base: base.into(),
            rest,
            is_fallback: false,
            is_retained: false,
        }
    }

    /// Returns the path below the root, without a first slash.
    pub(crate) fn path(&self) -> Vec<u8> {
        [&self.base, self.rest[0], self.rest[1]].concat()
    }
}

/// Builds the candidate path of a `try` entry from the requested path.
fn around(before: &str, bare: &[u8], after: &str) -> Vec<u8> {
    let mut path = [before.as_bytes(), b"/", bare, after.as_bytes()].concat();
    let extra = path.iter().take_while(|byte| **byte == b'/').count();
    path.drain(..extra);
    path
}

fn redirect<'a>(table: &'a RedirectTable, path: &'a [u8]) -> Result<Resource<'a>, Option<Reject>> {
    table.find(path).map(Resource::Redirected).ok_or(None)
}

fn is_hidden(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(hidden)
}

impl Site {
    /// Looks up a path. The path is decoded and normalised, and begins with a slash; an empty path is the
    /// site itself, requested without the slash.
    #[inline]
    pub fn resolve<'a>(&'a self, path: &'a [u8]) -> Resolution<'a> {
        let (resource, nth) = self.look_up(path);
        Resolution {
            site: self,
            path,
            resource,
            nth,
        }
    }

    /// Looks up a path, and returns the number of the `try` entry that found the resource.
    fn look_up<'a>(&'a self, path: &'a [u8]) -> (Resource<'a>, usize) {
        let inner = path.strip_prefix(b"/").unwrap_or(path);
        let (bare, wants_folder) = match inner.strip_suffix(b"/") {
            Some(bare) => (bare, true),
            None => (inner, path == b"/"),
        };
        let mut refusal = Reject::NOT_FOUND;
        let tries = self.shared.tries.of(inner);
        for (nth, try_path) in tries.iter().enumerate() {
            match self.attempt(try_path, inner, bare, wants_folder) {
                Ok(resource) => return (resource, nth),
                // No other page replaces a hidden or forbidden file.
                Err(Some(found)) if found != Reject::NO_INDEX => {
                    return (Resource::Refused(found), nth);
                }
                Err(Some(found)) => refusal = found,
                Err(None) if is_hidden(bare) => return (Resource::Refused(Reject::DOTFILE), nth),
                Err(None) => {}
            }
        }
        if let SiteSource::Release(state) = &self.shared.source
            && let Some(refusal) = state.refusal()
        {
            return (Resource::Refused(refusal), tries.len());
        }
        if refusal == Reject::NOT_FOUND && self.is_missing_asset(bare) {
            refusal = Reject::HASHED_MISSING;
        }
        // Without any `try`, a fallback that is asked instead must not see hidden names either.
        if refusal == Reject::NOT_FOUND && is_hidden(bare) {
            refusal = Reject::DOTFILE;
        }
        (Resource::Refused(refusal), tries.len())
    }

    /// Compares the tree's answer for `path` with the disk. Returns the first path that differs: a file
    /// that was replaced, added or removed, named relative to the root without a first slash. The empty
    /// path stands for the root itself. Blocks for as long as stat(2) does.
    pub(crate) fn first_stale_path(&self, path: &[u8]) -> Option<PathBuf> {
        // A release never changes.
        let root = self.shared.root()?;
        let inner = path.strip_prefix(b"/").unwrap_or(path);
        let bare = inner.strip_suffix(b"/").unwrap_or(inner);
        if is_hidden(bare) || bare.split(|byte| *byte == b'/').count() > FOLDER_DEPTH_MAX {
            return None;
        }
        if self.root_moved() {
            return Some(PathBuf::new());
        }
        let tried = self.look_up(path).1 + 1;
        let tries = self.shared.tries.of(inner).iter();
        let differing = tries.take(tried).find_map(|try_path| {
            let candidate = match try_path {
                TryPath::Path => Cow::Borrowed(bare),
                TryPath::Suffix(_) if bare.is_empty() => return None,
                TryPath::Suffix(suffix) => [bare, suffix.as_bytes()].concat().into(),
                TryPath::Around(before, after) => around(before, bare, after).into(),
                TryPath::Fixed(fixed) => fixed.as_bytes().into(),
                TryPath::ForcedRedirects | TryPath::Redirects | TryPath::Retained => return None,
            };
            self.differs_at(root, &candidate)
        });
        differing.map(|path| PathBuf::from(OsString::from_vec(path)))
    }

    fn differs_at(&self, root: &SiteRoot, path: &[u8]) -> Option<Vec<u8>> {
        let folder = match self.tree.lookup(path, b"") {
            _ if path.is_empty() => &self.tree,
            Some(FolderNode::File(file)) => {
                let sidecars = SIDECARS.iter().filter_map(|(coding, ending)| {
                    let sidecar = file.sidecar(*coding)?;
                    Some((sidecar.version, *ending))
                });
                let differs = |(version, ending): (FileVersion, &str)| {
                    let path = [path, ending.as_bytes()].concat();
                    let is = root.stat(&path).and_then(|is| FileMeta::of_file(&is));
                    let is_same = is.is_some()
                        && (is.as_ref() == version.disk()
                            || is.is_some_and(|is| ending.is_empty() && file.is_open_at(&is)));
                    (!is_same).then_some(path)
                };
                return [(file.version, "")]
                    .into_iter()
                    .chain(sidecars)
                    .find_map(differs);
            }
            Some(FolderNode::Folder(folder)) => folder,
            // A dangling symbolic link counts as a missing file. A file that a process was writing may be complete by
            // now.
            known @ (Some(FolderNode::Refused(FileError::NotFound | FileError::Changing))
            | None) => {
                let was_changing = matches!(known, Some(FolderNode::Refused(FileError::Changing)));
                let Some(is) = root.stat(path) else {
                    return was_changing.then(|| path.to_vec());
                };
                let kind = FileType::from_raw_mode(is.st_mode);
                let is_served = matches!(kind, FileType::RegularFile | FileType::Directory);
                return is_served.then(|| path.to_vec());
            }
            Some(FolderNode::Refused(_)) => return None,
        };
        // A folder is compared by its index file and by the index names that would take precedence over
        // that file.
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        for name in self.shared.rules.index_names(path) {
            let inside = [path, slash, name.as_bytes()].concat();
            match folder.find(name.as_bytes()).map(|entry| &entry.node) {
                Some(FolderNode::File(_) | FolderNode::Refused(FileError::Changing)) => {
                    return self.differs_at(root, &inside);
                }
                Some(FolderNode::Folder(_) | FolderNode::Refused(_)) => {}
                None => {
                    if let Some(path) = self.differs_at(root, &inside) {
                        return Some(path);
                    }
                }
            }
        }
        None
    }

    /// Tries an entry of `try`. The error is the answer if no later entry finds a resource.
    fn attempt<'a>(
        &'a self,
        try_path: &'a TryPath,
        inner: &'a [u8],
        bare: &'a [u8],
        wants_folder: bool,
    ) -> Result<Resource<'a>, Option<Reject>> {
        let file = |node: Option<&'a FolderNode>, place: LazyPath<'a>| match node {
            Some(FolderNode::File(file)) => Ok(Resource::File(file, place)),
            // A link to a missing file counts as missing.
            Some(
                FolderNode::Refused(FileError::NotFound | FileError::LeftOut)
                | FolderNode::Folder(_),
            )
            | None => Err(None),
            Some(FolderNode::Refused(why)) => Err(Some(why.reject())),
        };
        match try_path {
            TryPath::Path if bare.is_empty() => self.folder(&self.tree, bare, wants_folder),
            TryPath::Path => match self.tree.lookup(bare, b"") {
                Some(FolderNode::Folder(folder)) => self.folder(folder, bare, wants_folder),
                Some(FolderNode::File(_)) if wants_folder => Err(None),
                node => file(node, LazyPath::new(bare, [b"", b""])),
            },
            TryPath::Suffix(_) if wants_folder || bare.is_empty() => Err(None),
            TryPath::Suffix(suffix) => {
                let suffix = suffix.as_bytes();
                file(
                    self.tree.lookup(bare, suffix),
                    LazyPath::new(bare, [suffix, b""]),
                )
            }
            TryPath::Around(before, after) => {
                let path = around(before, bare, after);
                file(
                    self.tree.lookup(&path, b""),
                    LazyPath::new(path, [b"", b""]),
                )
            }
            TryPath::Fixed(_) if self.is_missing_asset(bare) => Err(Some(Reject::HASHED_MISSING)),
            TryPath::Retained if wants_folder => Err(None),
            TryPath::Retained => {
                let place = LazyPath {
                    is_retained: true,
                    ..LazyPath::new(bare, [b"", b""])
                };
                let file = self.shared.retained.find(bare, unix_seconds_now);
                file.map(|file| Resource::File(file, place)).ok_or(None)
            }
            TryPath::Fixed(fixed) => {
                let fixed = fixed.as_bytes();
                let place = LazyPath {
                    is_fallback: true,
                    ..LazyPath::new(fixed, [b"", b""])
                };
                file(self.tree.lookup(fixed, b""), place)
            }
            TryPath::ForcedRedirects => redirect(&self.shared.published.redirects.forced, inner),
            TryPath::Redirects => redirect(&self.shared.published.redirects.unforced, inner),
        }
    }

    /// Returns true if a path names a content by its hash, and the release has no such content. Another content, such as
    /// the index of an application, would break a page, and caches would keep the wrong content.
    fn is_missing_asset(&self, path: &[u8]) -> bool {
        matches!(self.shared.source, SiteSource::Release(_)) && is_hashed(path)
    }

    fn folder<'a>(
        &'a self,
        folder: &'a Arc<SiteFolder>,
        bare: &'a [u8],
        wants_folder: bool,
    ) -> Result<Resource<'a>, Option<Reject>> {
        match folder.index() {
            None if folder.has_changing_index() => Err(Some(Reject::CHANGING)),
            None if !self.shared.rules.has_listing(bare) => Err(Some(Reject::NO_INDEX)),
            _ if !wants_folder => Ok(Resource::Slash),
            None => Ok(Resource::Listing(folder)),
            Some((name, file)) => {
                let slash: &[u8] = if bare.is_empty() { b"" } else { b"/" };
                Ok(Resource::File(file, LazyPath::new(bare, [slash, name])))
            }
        }
    }
}
