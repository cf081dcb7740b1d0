//! Scan of the file system into a tree of folders, complete or limited to changes.
//!
//! Each folder is opened relative to the folder above, without following links. Targets of links are opened
//! by [`SiteRoot`], which refuses links out of the root. So concurrent changes of folders and links cannot
//! make the scan read files outside of the root.

use super::file::{SIDECARS, SidecarVersions, SiteFile};
use super::folder::{FolderNode, SiteFolder, SymlinkTarget};
use super::root::SiteRoot;
use crate::limits::{LINKED_FOLDERS_MAX, OPEN_FILE_QUIET_SECONDS};
use crate::site::file_version::{FileError, FileMeta, FileVersion};
use crate::site::rules::SiteRules;
use crate::site::secret_paths::ResolvedSecrets;
use base::job_end;
use base::sys::{self, OpenWriters};
use base::visible_text::shortened;
use release::limits::FOLDER_DEPTH_MAX;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, statat};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a file reported as closed is checked again for writers. The kernel reports a close before
/// the close is complete, and the closing process may be preempted in between.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// Largest number of repeated checks for writers in one scan. A file may have been opened again.
const CLOSING_CHECKS_MAX: usize = 50;

/// Period without changes after which a file of unknown writers counts as complete, 400 ms.
const UNKNOWN_WRITERS_QUIET: Duration = Duration::from_millis(400);

/// Size of the buffer for one getdents64(2) call, which lists the names of a folder.
const LISTED_BYTES: usize = 32 * 1024;

/// Returns true if the name is hidden from the site: the name starts with a dot and is not `.well-known`
/// (RFC 8615).
pub fn hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name != b".well-known"
}

/// Input of a scan: the root and the rules.
#[derive(Copy, Clone)]
pub(crate) struct ScanInput<'a> {
    /// Root of the site.
    pub root: &'a SiteRoot,
    /// Rules of the site.
    pub rules: &'a SiteRules,
    /// Files and folders to leave out.
    pub secrets: &'a ResolvedSecrets,
}

/// Reads the whole tree.
pub(crate) fn scan(root: &SiteRoot, rules: &SiteRules) -> Result<Arc<SiteFolder>, FileError> {
    let folder = root.open_folder(b"")?;
    let read = ScanInput {
        root,
        rules,
        secrets: &rules.secrets.resolve_for_build(),
    };
    Scanner::new(read).read(folder.as_fd(), None, &ChangeTree::default())
}

/// Reads the given paths (below the root, split into names) and the targets of links anew; the rest is
/// shared with the old tree. If the root is unreadable, the old tree stays.
///
/// Files changed after `settled_ns` (Unix time) stay as in the old tree while a process has the file open for writing;
/// if writers are unknown, recently changed files stay unless the change was reported as complete. A file without a
/// known content is refused meanwhile. Returns the new tree, and the paths of the unfinished files.
pub(crate) fn rescan<'p>(
    read: &ScanInput<'p>,
    old: &Arc<SiteFolder>,
    paths: impl Iterator<Item = (Vec<&'p [u8]>, WriteReport)>,
    settled_ns: i64,
) -> (Arc<SiteFolder>, Vec<Vec<u8>>) {
    let mut changes = ChangeTree::default();
    let mut behind_links = false;
    for (path, report) in paths {
        behind_links |= path.iter().any(|name| hidden(name));
        changes.add(&path, report);
    }
    // Paths that became secret since the last scan, because a link named in the configuration was switched.
    for path in read.secrets.below(read.root.path()) {
        let node = old.lookup(path.as_os_str().as_bytes(), b"");
        if matches!(node, Some(FolderNode::File(_) | FolderNode::Folder(_))) {
            let path = path.iter().map(OsStrExt::as_bytes);
            changes.add(&path.collect::<Vec<_>>(), WriteReport::Closed);
        }
    }
    if old.holds_links {
        let mut named = HashMap::new();
        behind_links |= collect_named(old, &changes, &mut named);
        let mut aliases = Vec::new();
        collect_aliases(old, &named, &mut Vec::new(), &mut aliases);
        for (path, report) in &aliases {
            changes.add(path, *report);
        }
    }
    let mut scan = Scanner::new(*read);
    // A hidden path or a whole folder may contain the target of any link.
    scan.behind_links = behind_links;
    scan.settled_ns = settled_ns;
    let folder = read.root.open_folder(b"");
    let updated = folder.and_then(|folder| scan.update(old, folder.as_fd(), &changes));
    (updated.unwrap_or_else(|_| Arc::clone(old)), scan.unsettled)
}

/// Changed names as a tree.
#[derive(Default)]
struct ChangeTree<'p> {
    /// Report on the file or folder itself.
    report: WriteReport,
    below: BTreeMap<&'p [u8], ChangeTree<'p>>,
}

impl<'p> ChangeTree<'p> {
    fn add(&mut self, path: &[&'p [u8]], report: WriteReport) {
        match path {
            [] => self.report = self.report.max(report),
            // Hidden names have no entry in the tree, but a link may lead through a hidden folder.
            [name, ..] if hidden(name) => {}
            [name, rest @ ..] => self.below.entry(name).or_default().add(rest, report),
        }
    }

    /// Returns true if the watch reported that the folder itself changed, or that the writer closed the file.
    fn is_whole(&self) -> bool {
        self.report == WriteReport::Closed
    }
}

/// Report of the watch on a file.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum WriteReport {
    /// The file changed, or was found while listing a folder, and writers may be active.
    #[default]
    Unsure,
    /// A process has been writing to the file for so long that the known content is outdated.
    Overdue,
    /// The writer closed the file, or a folder changed.
    Closed,
}

/// Device and inode numbers, which identify a folder under all paths.
type FileId = (u64, u64);

fn identity(meta: &FileMeta) -> FileId {
    (meta.dev, meta.ino)
}

/// Changed name in a folder, and the report on the file.
type NamedChange<'p> = (&'p [u8], WriteReport);

/// Collects the changed names by folder. Returns true if a whole folder is among the changes.
fn collect_named<'p>(
    folder: &SiteFolder,
    changes: &ChangeTree<'p>,
    named: &mut HashMap<FileId, Vec<NamedChange<'p>>>,
) -> bool {
    let mut whole_folder = false;
    for (name, change) in &changes.below {
        let below = match folder.find(name).map(|entry| &entry.node) {
            Some(FolderNode::Folder(below)) => Some(below),
            _ => None,
        };
        if change.is_whole() || below.is_none() {
            let names = named.entry(identity(&folder.meta)).or_default();
            names.push((name, change.report));
        }
        if let Some(below) = below {
            whole_folder |= change.is_whole() | collect_named(below, change, named);
        }
    }
    whole_folder
}

/// Collects the same changes under all other paths of the same folders, because a watch reports only one
/// path of a folder.
fn collect_aliases<'t: 'p, 'p>(
    folder: &'t SiteFolder,
    named: &HashMap<FileId, Vec<NamedChange<'p>>>,
    path: &mut Vec<&'p [u8]>,
    aliases: &mut Vec<(Vec<&'p [u8]>, WriteReport)>,
) {
    for (name, report) in named.get(&identity(&folder.meta)).into_iter().flatten() {
        let path = path.iter().chain([name]).copied().collect();
        aliases.push((path, *report));
    }
    for (name, entry) in folder.iter() {
        if let FolderNode::Folder(below) = &entry.node {
            path.push(name);
            collect_aliases(below, named, path, aliases);
            path.pop();
        }
    }
}

/// Result for a name, before the comparison with the old entry.
enum ScannedNode {
    /// A file, with the known file of the same name.
    File(FileMeta, Option<Arc<SiteFile>>),
    Folder(Arc<SiteFolder>),
    Refused(FileError),
}

struct ScannedEntry<'n> {
    name: Cow<'n, [u8]>,
    link: SymlinkTarget,
    node: ScannedNode,
}

struct Scanner<'a> {
    read: ScanInput<'a>,
    /// Current path below the root.
    path: Vec<u8>,
    /// Real path of the current folder: absolute, without links.
    real: PathBuf,
    /// The folders above and the current folder. A link to one of the folders is a loop.
    above: Vec<FileId>,
    linked_folders: usize,
    /// Files changed later than `settled_ns` may be unfinished. The paths of unfinished files are collected
    /// in `unsettled`.
    settled_ns: i64,
    unsettled: Vec<Vec<u8>>,
    /// Remaining repeated checks for writers.
    checks_left: usize,
    /// Whether folders behind links are read completely.
    behind_links: bool,
    /// Buffer for the kernel's list of names.
    listed: Vec<u8>,
}

impl<'a> Scanner<'a> {
    fn new(read: ScanInput<'a>) -> Scanner<'a> {
        let listed = Vec::with_capacity(LISTED_BYTES);
        Scanner {
            read,
            path: Vec::new(),
            real: read.root.path().to_owned(),
            above: Vec::new(),
            linked_folders: 0,
            settled_ns: i64::MAX,
            unsettled: Vec::new(),
            checks_left: CLOSING_CHECKS_MAX,
            behind_links: false,
            listed,
        }
    }

    /// Reads a folder recursively. Files in `changes` count as reported; other recently changed files count
    /// as unfinished.
    fn read(
        &mut self,
        folder: BorrowedFd<'_>,
        old: Option<&Arc<SiteFolder>>,
        changes: &ChangeTree<'_>,
    ) -> Result<Arc<SiteFolder>, FileError> {
        let meta = FileMeta::of(&fstat(folder)?);
        let mut names = names(folder, &mut self.listed)?;
        names.sort_unstable();
        self.above.push(identity(&meta));
        let mut found = Vec::with_capacity(names.len());
        let none = ChangeTree::default();
        for name in names {
            if job_end::is_over() {
                return Err(FileError::Unreadable);
            }
            let known = old.and_then(|old| old.find(&name)).map(|entry| &entry.node);
            let change = changes.below.get(&name[..]).unwrap_or(&none);
            let examined = self.examine(folder, &name, known, change, true);
            let examined = self.settled(folder, &name, examined, change.report);
            if let Some((link, node)) = examined {
                found.push(ScannedEntry {
                    name: Cow::Owned(name.into_vec()),
                    link,
                    node,
                });
            }
        }
        self.above.pop();
        Ok(self.assemble(meta, found, old))
    }

    /// Reads the changed names of a folder, in the order of names.
    fn update(
        &mut self,
        old: &Arc<SiteFolder>,
        folder: BorrowedFd<'_>,
        changes: &ChangeTree<'_>,
    ) -> Result<Arc<SiteFolder>, FileError> {
        if job_end::is_over() {
            return Err(FileError::Unreadable);
        }
        let meta = FileMeta::of(&fstat(folder)?);
        if changes.is_whole() || identity(&meta) != identity(&old.meta) {
            return self.read(folder, Some(old), changes);
        }
        self.above.push(identity(&meta));
        let mut found = Vec::with_capacity(old.len() + changes.below.len());
        let none = ChangeTree::default();
        for (name, entry) in old.iter() {
            let change = changes.below.get(name);
            let linked =
                entry.link || matches!(&entry.node, FolderNode::Folder(below) if below.holds_links);
            if change.is_none() && !linked {
                let node = ScannedNode::known(&entry.node);
                found.push(ScannedEntry {
                    name: Cow::Borrowed(name),
                    // A link is always examined anew.
                    link: SymlinkTarget::No,
                    node,
                });
                continue;
            }
            let change = change.unwrap_or(&none);
            let known = Some(&entry.node);
            found.extend(self.examine_change(folder, Cow::Borrowed(name), known, change));
        }
        let known = found.len();
        let new = changes
            .below
            .iter()
            .filter(|(name, _)| old.find(name).is_none());
        for (name, change) in new {
            found.extend(self.examine_change(folder, Cow::Owned(name.to_vec()), None, change));
        }
        if found.len() > known {
            found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        }
        self.above.pop();
        Ok(self.assemble(meta, found, Some(old)))
    }

    /// Examines a changed name of a folder. `None` if the name no longer exists, or has no known content
    /// yet.
    fn examine_change<'n>(
        &mut self,
        folder: BorrowedFd<'_>,
        name: Cow<'n, [u8]>,
        known: Option<&FolderNode>,
        change: &ChangeTree<'_>,
    ) -> Option<ScannedEntry<'n>> {
        let examined = self.examine(folder, &name, known, change, false);
        let (link, node) = self.settled(folder, &name, examined, change.report)?;
        Some(ScannedEntry { name, link, node })
    }

    /// Returns the examined node; the known node if the file changed recently and may still be written to; or, for a
    /// file without a known content, the refusal while a process writes to the file.
    fn settled(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        examined: Option<(SymlinkTarget, ScannedNode)>,
        report: WriteReport,
    ) -> Option<(SymlinkTarget, ScannedNode)> {
        let (link, node) = examined?;
        match node {
            // Changes of a link's target are reported under the target's own folder and name.
            ScannedNode::File(meta, known)
                if link == SymlinkTarget::No && meta.ctime_ns > self.settled_ns =>
            {
                if let (Some(known), WriteReport::Closed) = (&known, report) {
                    known.forget_failure();
                }
                if known
                    .as_ref()
                    .and_then(|known| known.version.disk())
                    .is_some_and(|known| known.same_content(&meta))
                {
                    return Some((link, ScannedNode::File(meta, known)));
                }
                let mut writers = writers_of(folder, name);
                while report == WriteReport::Closed
                    && matches!(writers, OpenWriters::Some)
                    && self.checks_left > 0
                {
                    self.checks_left -= 1;
                    std::thread::sleep(CLOSING_PAUSE);
                    writers = writers_of(folder, name);
                }
                let path = self.path_of(name);
                let is_growing = || self.read.rules.is_growing(&path);
                let taken = match &writers {
                    OpenWriters::None(stat) => FileMeta::of_file(stat),
                    OpenWriters::Unknown if report == WriteReport::Closed => Some(meta),
                    OpenWriters::Unknown if self.is_quiet_without_writers(&meta) => Some(meta),
                    _ => is_growing().then_some(meta),
                };
                if let Some(meta) = taken {
                    return Some((link, ScannedNode::File(meta, known)));
                }
                self.unsettled.push(path);
                let known = known.filter(|_| report != WriteReport::Overdue);
                let known_meta = known
                    .as_ref()
                    .and_then(|known| known.version.disk().copied());
                match known_meta {
                    Some(meta) => Some((link, ScannedNode::File(meta, known))),
                    None if matches!(writers, OpenWriters::Some) => {
                        Some((link, ScannedNode::Refused(FileError::Changing)))
                    }
                    None => None,
                }
            }
            node => Some((link, node)),
        }
    }

    /// Returns true if the file has not changed for [`UNKNOWN_WRITERS_QUIET`].
    fn is_quiet_without_writers(&self, meta: &FileMeta) -> bool {
        let margin = Duration::from_secs(OPEN_FILE_QUIET_SECONDS) - UNKNOWN_WRITERS_QUIET;
        let margin_ns = i64::try_from(margin.as_nanos()).unwrap_or(i64::MAX);
        meta.ctime_ns <= self.settled_ns.saturating_add(margin_ns)
    }

    /// Returns the current node of a name; None for a type that is not served. In a known folder, only the
    /// changes are read unless `whole` is set.
    fn examine(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        known: Option<&FolderNode>,
        changes: &ChangeTree<'_>,
        whole: bool,
    ) -> Option<(SymlinkTarget, ScannedNode)> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if self.is_secret(name, &stat) {
            return Some((SymlinkTarget::No, ScannedNode::Refused(FileError::Secret)));
        }
        let length = self.path.len();
        if length > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        // A name without an entry would be looked for on the disk at each request.
        if self.read.rules.hides(&self.path) {
            self.path.truncate(length);
            return Some((SymlinkTarget::No, ScannedNode::Refused(FileError::Hidden)));
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut link = SymlinkTarget::No;
        let node = match kind {
            FileType::RegularFile => {
                Some(ScannedNode::File(FileMeta::of(&stat), known_file(known)))
            }
            FileType::Directory => {
                self.real.push(OsStr::from_bytes(name));
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = openat(folder, name, flags, Mode::empty()).map_err(FileError::from);
                let entered = self.enter(opened, known, changes, whole);
                self.real.pop();
                entered
            }
            FileType::Symlink => {
                let (target, node) = self.follow(known, changes, whole);
                link = SymlinkTarget::To(target);
                Some(node)
            }
            _ => None,
        };
        self.path.truncate(length);
        node.map(|node| (link, node))
    }

    /// Returns true if a name of the current folder is one of the server's own files.
    fn is_secret(&self, name: &[u8], stat: &Stat) -> bool {
        let secrets = self.read.secrets;
        secrets.is(&FileMeta::of(stat)) || secrets.is_at(&self.real, name)
    }

    /// Returns the target of the link at the current path, and the real path of the target below the root.
    /// A dangling link is an entry as well, because the target may appear later.
    fn follow(
        &mut self,
        known: Option<&FolderNode>,
        changes: &ChangeTree<'_>,
        whole: bool,
    ) -> (Option<Box<[u8]>>, ScannedNode) {
        let (root, secrets) = (self.read.root, self.read.secrets);
        let seen = root
            .open_handle_and_path(&self.path)
            .and_then(|(fd, real)| Ok((fstat(&fd)?, fd, real)));
        let (stat, target, real): (Stat, OwnedFd, PathBuf) = match seen {
            Ok(seen) => seen,
            Err(why) => return (None, ScannedNode::Refused(why)),
        };
        if secrets.is(&FileMeta::of(&stat)) || secrets.covers(&real, root.path()) {
            return (None, ScannedNode::Refused(FileError::Secret));
        }
        let below = root.below(&real).map(Box::from);
        let before = std::mem::replace(&mut self.real, real);
        let node = self.target_node(target, &stat, known, changes, whole);
        self.real = before;
        (below, node)
    }

    /// Returns the node for the target of the link at the current path.
    fn target_node(
        &mut self,
        target: OwnedFd,
        stat: &Stat,
        known: Option<&FolderNode>,
        changes: &ChangeTree<'_>,
        whole: bool,
    ) -> ScannedNode {
        let nothing = ScannedNode::Refused(FileError::NotFound);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => ScannedNode::File(FileMeta::of(stat), known_file(known)),
            FileType::Directory => {
                if self.above.contains(&identity(&FileMeta::of(stat))) {
                    return ScannedNode::Refused(FileError::LeftOut);
                }
                if self.linked_folders >= LINKED_FOLDERS_MAX {
                    log::warn!(
                        "{}: folder left out, since too many folders lie behind links",
                        self.shown()
                    );
                    return ScannedNode::Refused(FileError::LeftOut);
                }
                self.linked_folders += 1;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = openat(target, ".", flags, Mode::empty()).map_err(FileError::from);
                let whole = whole || self.behind_links;
                self.enter(opened, known, changes, whole).unwrap_or(nothing)
            }
            _ => nothing,
        }
    }

    /// Reads the folder at the current path completely, or only the changes.
    fn enter(
        &mut self,
        opened: Result<OwnedFd, FileError>,
        known: Option<&FolderNode>,
        changes: &ChangeTree<'_>,
        whole: bool,
    ) -> Option<ScannedNode> {
        if self.above.len() >= FOLDER_DEPTH_MAX {
            log::warn!(
                "{}: folder left out, since it is nested too deeply",
                self.shown()
            );
            return None;
        }
        let known = match known {
            Some(FolderNode::Folder(folder)) => Some(folder),
            _ => None,
        };
        let read = opened.and_then(|folder| match known {
            Some(known) if !whole => self.update(known, folder.as_fd(), changes),
            _ => self.read(folder.as_fd(), known, changes),
        });
        match read {
            Ok(folder) => Some(ScannedNode::Folder(folder)),
            Err(FileError::NotFound) => None,
            Err(why) => Some(ScannedNode::Refused(why)),
        }
    }

    /// Builds the folder from the sorted results. Unchanged entries of the old folder are kept, or the old
    /// folder itself if all entries are unchanged.
    fn assemble(
        &self,
        meta: FileMeta,
        found: Vec<ScannedEntry<'_>>,
        old: Option<&Arc<SiteFolder>>,
    ) -> Arc<SiteFolder> {
        let rules = self.read.rules;
        let mut sidecars = sidecars(&found);
        sidecars.retain(|at, _| !rules.is_sent_as_stored(&self.path_of(&found[*at].name)));
        let entries = found.iter().enumerate().map(|(at, found)| {
            let node = match &found.node {
                ScannedNode::Folder(folder) => FolderNode::Folder(Arc::clone(folder)),
                ScannedNode::Refused(why) => FolderNode::Refused(*why),
                ScannedNode::File(meta, known) => {
                    let beside = sidecars.get(&at).copied().unwrap_or_default();
                    match known {
                        Some(file) if file.is(&(*meta).into(), &beside) => {
                            FolderNode::File(Arc::clone(file))
                        }
                        _ => FolderNode::File(Arc::new(SiteFile::new((*meta).into(), beside))),
                    }
                }
            };
            (&found.name[..], found.link.clone(), node)
        });
        let index = rules.index_names(&self.path);
        let folder = SiteFolder::new(meta, entries.collect(), index);
        match old {
            Some(old) if folder.same_entries(old) => Arc::clone(old),
            _ => Arc::new(folder),
        }
    }

    /// Returns the path below the root of a name in the current folder.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        [&self.path, slash, name].concat()
    }

    fn shown(&self) -> String {
        shortened(&self.path)
    }
}

/// Returns the names in a folder except hidden names, unsorted; `listed` is the buffer for the kernel's
/// list.
fn names(folder: BorrowedFd<'_>, listed: &mut Vec<u8>) -> Result<Vec<Box<[u8]>>, FileError> {
    let mut names = Vec::new();
    let mut entries = RawDir::new(folder, listed.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !hidden(name) {
            names.push(name.into());
        }
    }
    Ok(names)
}

/// Returns true if a folder lists exactly this name.
pub(crate) fn has_name(folder: BorrowedFd<'_>, name: &[u8]) -> bool {
    let names = names(folder, &mut Vec::with_capacity(LISTED_BYTES));
    names.is_ok_and(|names| names.iter().any(|other| **other == *name))
}

/// Returns whether a process has the file open for writing.
pub fn writers_of(folder: BorrowedFd<'_>, name: &[u8]) -> OpenWriters {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => sys::open_writers(file.as_fd()),
        Err(_) => OpenWriters::Unknown,
    }
}

fn known_file(known: Option<&FolderNode>) -> Option<Arc<SiteFile>> {
    match known {
        Some(FolderNode::File(file)) => Some(Arc::clone(file)),
        _ => None,
    }
}

impl ScannedNode {
    fn known(node: &FolderNode) -> ScannedNode {
        match node {
            FolderNode::File(file) => match file.version {
                FileVersion::Disk(meta) => ScannedNode::File(meta, Some(Arc::clone(file))),
                // A scanned tree has no files of releases.
                FileVersion::Blob(_) => ScannedNode::Refused(FileError::NotFound),
            },
            FolderNode::Folder(folder) => ScannedNode::Folder(Arc::clone(folder)),
            FolderNode::Refused(why) => ScannedNode::Refused(*why),
        }
    }
}

/// Returns the sidecars of each file, by the index of the file. A sidecar older than the file belongs to an
/// earlier version of the file and is ignored.
fn sidecars(found: &[ScannedEntry<'_>]) -> HashMap<usize, SidecarVersions> {
    let mut sidecars: HashMap<usize, SidecarVersions> = HashMap::new();
    for sidecar in found {
        let ScannedNode::File(sidecar_meta, _) = sidecar.node else {
            continue;
        };
        for (nth, (_, ending)) in SIDECARS.iter().enumerate() {
            let Some(base) = sidecar.name.strip_suffix(ending.as_bytes()) else {
                continue;
            };
            let Ok(at) = found.binary_search_by(|other| (*other.name).cmp(base)) else {
                continue;
            };
            if let ScannedNode::File(meta, _) = found[at].node
                && sidecar_meta.mtime_ns >= meta.mtime_ns
            {
                sidecars.entry(at).or_default()[nth] = Some(sidecar_meta.into());
            }
        }
    }
    sidecars
}
