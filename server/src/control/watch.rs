//! Watches of changed files: inotify watches of every served folder, and of the folders of the files named
//! in the configuration (certificates, keys, password files).
//!
//! Every component of the path to a root or to a file has a watch as well: a replaced folder above, or a
//! changed link on the path, changes the served content. Of a release, the pointer, the names of withdrawn
//! releases and the labels are watched.
//!
//! The watch only reports changes; the control plane acts on them. If the kernel has no watches left, or
//! has lost events, the watch reports that everything may have changed.

use base::sys::{self, Inotify, InotifyEvent, OpenWriters, WatchFlags};
use data_plane::limits::{LINK_HOPS_MAX, OPEN_FILES_WATCHED_MAX};
use data_plane::site::{Site, writers_of};
use rustix::fs::CWD;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::unix::AsyncFd;

/// Interval at which folders without a watch are scanned.
pub(crate) const RESCAN: Duration = Duration::from_secs(10);

/// Identity of a site in the World: its host, and its part of the host.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SiteId {
    /// Index among the hosts of the World.
    pub host: usize,
    /// Part of the host that the site serves.
    pub part: HostPart,
}

/// Part of a host with a site.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum HostPart {
    /// Files of the host itself.
    Files,
    /// Release that takes the place of the files with its first publication.
    AwaitedRelease,
    /// Folder of a route, by the index of the route.
    Route(usize),
}

/// Changes on disk, gathered for the next World.
#[derive(Default, Debug)]
pub(crate) struct Changes {
    /// Changed paths, relative to the root of their site.
    pub sites: HashMap<SiteId, BTreeSet<PathBuf>>,
    /// Removed files among the paths of `sites`. A file that has the same name now may be half written.
    pub gone: HashSet<(SiteId, PathBuf)>,
    /// Files among the paths of `sites` of which only a change of attributes is known. The process that
    /// changed the attributes may still be writing to the file.
    pub touched: HashSet<(SiteId, PathBuf)>,
    /// New files that a process has open for writing, without an event since their creation.
    pub begun: HashSet<(SiteId, PathBuf)>,
    /// Files among the paths of `sites` with an outdated known content, since a process has been writing to the file for a
    /// while.
    pub overdue: HashSet<(SiteId, PathBuf)>,
    /// Sites with changes in the last batch of events that was read.
    pub read: HashSet<SiteId>,
    /// Sites to be scanned from the beginning.
    pub rescan: HashSet<SiteId>,
    /// True if a file named in the configuration has changed.
    pub files: bool,
    /// True if a deployed branch has changed.
    pub branches: bool,
    /// True if all watches were created anew: with the next World, the workers listen to the new inotify
    /// descriptor.
    pub is_watched_anew: bool,
}

/// Inotify watches, with the purposes of each watch.
pub(crate) struct Watch {
    inotify: AsyncFd<Arc<Inotify>>,
    folders: HashMap<i32, WatchedFolder>,
    /// True if the kernel's limit of watches was reached. Sites are then scanned at intervals.
    pub exhausted: bool,
}

/// Folder or path component with a watch.
struct WatchedFolder {
    /// Path at the start of the watch.
    real: PathBuf,
    since: SystemTime,
    /// Purposes of the watch. Several sites may serve one folder.
    meanings: Vec<WatchPurpose>,
}

#[derive(PartialEq, Eq)]
enum WatchPurpose {
    /// Folder of a site, at `relative` below the site's root.
    Folder { place: SiteId, relative: PathBuf },
    /// Component of the path to a site's root: the watched entry itself, or the entry `name` in the watched
    /// folder.
    Root {
        place: SiteId,
        name: Option<OsString>,
    },
    /// Folder with names that decide about the release of a site.
    Names { place: SiteId },
    /// Component of the path to a file named in the configuration: the watched entry itself, or the entry
    /// `name` in the watched folder.
    File { name: Option<OsString> },
    /// Component of the path to a file that changes with a branch: the watched entry itself, or the entry
    /// `name` in the watched folder.
    Branch { name: Option<OsString> },
}

impl Watch {
    /// Returns a [`Watch`] without any watched folder.
    pub(crate) fn new() -> io::Result<Watch> {
        Ok(Watch {
            inotify: sys::async_inotify(Arc::new(Inotify::new()?))?,
            folders: HashMap::new(),
            exhausted: false,
        })
    }

    /// Returns the inotify descriptor.
    pub(crate) fn inotify(&self) -> Arc<Inotify> {
        Arc::clone(self.inotify.get_ref())
    }

    /// Waits until the kernel has events.
    pub(crate) async fn readable(&self) {
        if let Ok(mut ready) = self.inotify.readable().await {
            // The caller reads all events next. A later event makes the descriptor ready again.
            ready.clear_ready();
        }
    }

    /// Watches the source of a site's files. For a folder, watches the path to the root, including links and their
    /// targets: if any component is replaced, the root is another folder. For a release, watches the paths to the
    /// pointer, to the names of withdrawn releases and to the labels.
    pub(crate) fn source(&mut self, place: SiteId, site: &Site) {
        self.forget(|meaning| match meaning {
            WatchPurpose::Root { place: its, .. } | WatchPurpose::Names { place: its } => {
                *its == place
            }
            _ => false,
        });
        self.new_source(place, site);
    }

    /// Watches the source of the files of a site that has no watch yet, without a search for former watches.
    pub(crate) fn new_source(&mut self, place: SiteId, site: &Site) {
        let root = |name| WatchPurpose::Root { place, name };
        let rules = site.rules();
        let Some(release) = &rules.release else {
            return self.way(&rules.root, NAMES, root);
        };
        self.way(&release.pointer(), Inotify::FOLDER, root);
        for folder in [
            release.withdrawn(),
            release.labels(),
            release.history_folder(),
        ] {
            self.way(&folder, NAMES, root);
            self.part(&folder, Inotify::FOLDER, WatchPurpose::Names { place });
        }
    }

    /// Watches the files named in the configuration and the paths to them: operators replace a file by
    /// renaming another file or by changing a link, as Kubernetes does with secrets.
    pub(crate) fn files<'p>(&mut self, files: impl Iterator<Item = &'p Path>) {
        self.forget(|meaning| matches!(meaning, WatchPurpose::File { .. }));
        for file in files {
            self.way(file, Inotify::FOLDER, |name| WatchPurpose::File { name });
        }
    }

    /// Watches the files that hold branches. Git replaces such files by renaming.
    pub(crate) fn branches(&mut self, files: &[PathBuf]) {
        self.forget(|meaning| matches!(meaning, WatchPurpose::Branch { .. }));
        for file in files {
            self.way(file, Inotify::FOLDER, |name| WatchPurpose::Branch { name });
        }
    }

    /// Watches a path. For the last component, watches the parent folder for `events` of the component's
    /// name. For each earlier component, watches the component itself, since many unrelated entries may
    /// come and go beside the component.
    fn way(
        &mut self,
        path: &Path,
        events: WatchFlags,
        meaning: impl Fn(Option<OsString>) -> WatchPurpose,
    ) {
        let mut here = PathBuf::from("/");
        let mut left = Vec::new();
        push_names(&mut left, path);
        let mut hops = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            let part = here.join(&name);
            // The link is read after the component is watched, so no replacement is missed.
            let is_there = self.part(&part, PART, meaning(None));
            let target = part.read_link();
            if (left.is_empty() && target.is_err()) || !is_there {
                self.part(&here, events, meaning(Some(name)));
                if !part.exists() {
                    return;
                }
            }
            match target {
                Ok(target) if hops < LINK_HOPS_MAX => {
                    hops += 1;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    push_names(&mut left, &target);
                }
                _ => here = part,
            }
        }
    }

    /// Watches a component of a path. Returns false if the component is missing.
    fn part(&mut self, path: &Path, events: WatchFlags, meaning: WatchPurpose) -> bool {
        match self.add(path, events, meaning) {
            Ok(_) => true,
            Err(error) if is_passing(&error) => error.kind() == io::ErrorKind::PermissionDenied,
            Err(error) => {
                self.exhaust(path, &error);
                true
            }
        }
    }

    /// Watches the new folders of sites. Returns the sites that have new folders, with the folders.
    pub(crate) fn grow(&mut self, sites: &[(SiteId, Arc<Site>)]) -> Vec<(SiteId, Vec<PathBuf>)> {
        let mut known: HashMap<SiteId, HashSet<PathBuf>> = HashMap::new();
        for (place, _) in sites {
            known.entry(*place).or_default();
        }
        let meanings = self.folders.values().flat_map(|watched| &watched.meanings);
        for meaning in meanings {
            if let WatchPurpose::Folder { place, relative } = meaning
                && let Some(known) = known.get_mut(place)
            {
                known.insert(relative.clone());
            }
        }
        let none = HashSet::new();
        let mut grown = Vec::new();
        for (place, site) in sites {
            let new = self.watch_new_folders(*place, site, known.get(place).unwrap_or(&none));
            if !new.is_empty() {
                grown.push((*place, new));
            }
        }
        grown
    }

    /// Watches the folders of a site that have no watch yet, and returns them. `known` are the watched folders.
    fn watch_new_folders(
        &mut self,
        place: SiteId,
        site: &Site,
        known: &HashSet<PathBuf>,
    ) -> Vec<PathBuf> {
        let mut new = Vec::new();
        for (relative, real) in site.folders() {
            // A folder reached through a link has a known relative path, but its real path has no watch
            // yet.
            if known.contains(&relative) && real == site.root().join(&relative) {
                continue;
            }
            let meaning = WatchPurpose::Folder {
                place,
                relative: relative.clone(),
            };
            match self.add(&real, Inotify::FOLDER, meaning) {
                Ok(true) => new.push(relative),
                Err(error) if !is_passing(&error) => self.exhaust(&real, &error),
                _ => {}
            }
        }
        new
    }

    /// Removes the watches of all folders of a site, after the site's root has become another folder.
    pub(crate) fn leave(&mut self, place: SiteId) {
        self.leave_below(place, Path::new(""));
    }

    fn leave_below(&mut self, place: SiteId, path: &Path) {
        self.forget(|meaning| {
            matches!(meaning, WatchPurpose::Folder { place: its, relative }
                if *its == place && relative.starts_with(path))
        });
    }

    /// Removes purposes, and the watches without any purpose left.
    fn forget(&mut self, drop: impl Fn(&WatchPurpose) -> bool) {
        let inotify = self.inotify.get_ref();
        self.folders.retain(|id, watched| {
            watched.meanings.retain(|meaning| !drop(meaning));
            if watched.meanings.is_empty() {
                // The kernel may have ended the watch already, with its folder.
                let _ = inotify.remove(*id);
            }
            !watched.meanings.is_empty()
        });
    }

    /// Watches `folder`. Returns true if the purpose is new for the folder.
    fn add(
        &mut self,
        folder: &Path,
        events: WatchFlags,
        meaning: WatchPurpose,
    ) -> io::Result<bool> {
        let events = events.union(WatchFlags::MASK_ADD);
        let id = self.inotify.get_ref().watch(folder, events)?;
        let watched = self.folders.entry(id).or_insert_with(|| WatchedFolder {
            real: folder.to_owned(),
            since: SystemTime::now(),
            meanings: Vec::new(),
        });
        let is_new = !watched.meanings.contains(&meaning);
        if is_new {
            watched.meanings.push(meaning);
        }
        Ok(is_new)
    }

    fn exhaust(&mut self, folder: &Path, error: &io::Error) {
        if !std::mem::replace(&mut self.exhausted, true) {
            log::warn!(
                "{}: can't be watched ({error}); all folders are scanned for changes every {} s instead. \
                 `sysctl fs.inotify.max_user_watches` sets the maximum number of watched folders",
                folder.display(),
                RESCAN.as_secs()
            );
        }
    }

    /// Returns the start time of the watch of each folder of a site. The kernel reports every later change
    /// of the folder's files.
    pub(crate) fn since(&self) -> HashMap<(SiteId, &Path), SystemTime> {
        let mut since = HashMap::new();
        for watched in self.folders.values() {
            for meaning in &watched.meanings {
                if let WatchPurpose::Folder { place, relative } = meaning {
                    since.insert((*place, relative.as_path()), watched.since);
                }
            }
        }
        since
    }

    /// Reads the waiting events of the kernel into `changes`.
    pub(crate) fn read(&mut self, changes: &mut Changes) -> io::Result<()> {
        for event in self.inotify.get_ref().read()? {
            if event.is_overflow() {
                log::warn!("too many changes at once: all folders are scanned again");
                self.everything(changes);
                continue;
            }
            let Some(watched) = self.folders.get(&event.watch) else {
                continue;
            };
            if event.is_begun() && watched.may_be_written(&event) {
                // The kernel reports when the writer closes the file.
                changes.begin(watched, &event);
                continue;
            }
            let mut others = Vec::new();
            for meaning in &watched.meanings {
                match (meaning, &event.name) {
                    (WatchPurpose::Folder { place, relative }, name) => {
                        let path = match name {
                            Some(name) => relative.join(name),
                            None => relative.clone(),
                        };
                        if event.is_folder_replaced() {
                            others.push((*place, path.clone()));
                        }
                        changes.note(*place, path, &event);
                    }
                    // A change of attributes alone does not replace a folder. A replaced link, however,
                    // causes only an event of changed attributes, since its link count falls.
                    (WatchPurpose::Root { place, name }, changed) if name == changed => {
                        changes.rescan.insert(*place);
                    }
                    (WatchPurpose::Names { place }, _) => {
                        changes.rescan.insert(*place);
                    }
                    (WatchPurpose::File { name }, changed) if name == changed => {
                        changes.files = true;
                    }
                    (WatchPurpose::Branch { name }, changed) if name == changed => {
                        changes.branches = true;
                    }
                    _ => {}
                }
            }
            // The kernel still watches the folder that had the name, possibly under a new name.
            for (place, path) in others {
                self.leave_below(place, &path);
            }
            if event.is_gone() {
                self.folders.remove(&event.watch);
            }
        }
        Ok(())
    }

    /// Marks everything as changed, after the kernel has lost events.
    fn everything(&self, changes: &mut Changes) {
        changes.files = true;
        changes.branches = true;
        let meanings = self.folders.values().flat_map(|watched| &watched.meanings);
        changes
            .rescan
            .extend(meanings.filter_map(WatchPurpose::place));
    }
}

impl WatchedFolder {
    /// Returns true if a new name may belong to a file that is still being written.
    ///
    /// A new regular file is empty or half written, except if link(2) created the name: a file from link(2)
    /// may have lost its other name by now, or never had another name (O_TMPFILE), and has content and no
    /// writer. A second name of a file, a folder and a link are always complete. The server cannot
    /// determine whether an empty file, or a file of another user, is complete; a request for the file
    /// triggers another check.
    fn may_be_written(&self, event: &InotifyEvent) -> bool {
        let Some(name) = &event.name else {
            return false;
        };
        let path = self.real.join(name);
        let metadata = std::fs::symlink_metadata(&path);
        if !metadata.is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1) {
            return false;
        }
        let writers = writers_of(CWD, path.as_os_str().as_bytes());
        !matches!(writers, OpenWriters::None(stat) if stat.st_size > 0)
    }
}

impl WatchPurpose {
    fn place(&self) -> Option<SiteId> {
        match self {
            WatchPurpose::Folder { place, .. }
            | WatchPurpose::Root { place, .. }
            | WatchPurpose::Names { place } => Some(*place),
            WatchPurpose::File { .. } | WatchPurpose::Branch { .. } => None,
        }
    }
}

/// Returns true if the error concerns a single path: the path is missing, or the server may not read the
/// path. Watching goes on after such an error.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

/// Events of a path component itself, a folder or a link.
const PART: WatchFlags = WatchFlags::DELETE_SELF
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DONT_FOLLOW);

/// Events of names that appear, disappear or are replaced.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// Pushes the components of a path onto a stack, with the first component on top.
fn push_names(stack: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    stack.extend(names);
}

impl Changes {
    /// Records a new file that may still be open for writing. Beyond the bound, a request for the file finds the file.
    fn begin(&mut self, watched: &WatchedFolder, event: &InotifyEvent) {
        for meaning in &watched.meanings {
            if let (WatchPurpose::Folder { place, relative }, Some(name)) = (meaning, &event.name)
                && self.begun.len() < OPEN_FILES_WATCHED_MAX
            {
                self.begun.insert((*place, relative.join(name)));
            }
        }
    }

    /// Records an event at a path of a site.
    fn note(&mut self, place: SiteId, path: PathBuf, event: &InotifyEvent) {
        let at = (place, path.clone());
        self.begun.remove(&at);
        self.read.insert(place);
        let is_known = !self.sites.entry(place).or_default().insert(path);
        if event.is_file_name_removed() {
            self.gone.insert(at);
        } else if event.is_file_touched() {
            // A file known to be complete stays complete after a change of attributes.
            if !is_known || self.is_unsure(&at) {
                self.touched.insert(at);
            }
        } else {
            self.gone.remove(&at);
            self.touched.remove(&at);
        }
    }

    /// Records that a request found a path that differs from the site. The file at the path is known to be
    /// complete if the kernel reported that its writer closed it (`is_told`).
    pub(crate) fn found(&mut self, at: (SiteId, PathBuf), is_told: bool) {
        self.sites.entry(at.0).or_default().insert(at.1.clone());
        if !is_told {
            self.touched.insert(at);
        }
    }

    /// Returns true if the file at the path may be half written.
    pub(crate) fn is_unsure(&self, at: &(SiteId, PathBuf)) -> bool {
        self.gone.contains(at) || self.touched.contains(at)
    }

    /// Returns true if the kernel reported an event of the file that is at the path now.
    pub(crate) fn is_told(&self, at: &(SiteId, PathBuf)) -> bool {
        let (place, path) = at;
        let is_named = self.sites.get(place).is_some_and(|all| all.contains(path));
        self.touched.contains(at) || (is_named && !self.gone.contains(at))
    }

    /// Returns true if no change is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.rescan.is_empty() && !self.files && !self.branches
    }
}
