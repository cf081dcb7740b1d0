//! Which files changed: inotify over every folder that is served, and over the folders of the few
//! files that the configuration names (certificates, keys, password files).
//!
//! The way to a root or a file is watched too, name by name: whoever replaces a folder above it, or
//! turns a link on the way, changes what is served.
//!
//! It tells; what to do about it is the control plane's. If the kernel has no watches left, or lost
//! count of what happened, it says that everything may have changed.

use crate::base::sys::{self, Inotify, InotifyEvent, OpenWriters, WatchFlags};
use crate::limits::LINK_HOPS_MAX;
use crate::site::{Site, writers_of};
use rustix::fs::CWD;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::unix::AsyncFd;

/// Interval at which folders are scanned that cannot be watched.
pub const RESCAN: Duration = Duration::from_secs(10);

/// Which site of the World a folder belongs to: by host, and by route where that has a folder.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SiteId {
    /// Index among the hosts.
    pub host: usize,
    /// Index among its routes.
    pub route: Option<usize>,
}

/// What changed since it was asked last.
#[derive(Default, Debug)]
pub struct Changes {
    /// Paths relative to their site's root.
    pub sites: BTreeMap<SiteId, BTreeSet<PathBuf>>,
    /// Of those, files that went: what has their name now may be half written.
    pub gone: BTreeSet<(SiteId, PathBuf)>,
    /// Of those, files that nothing more is known of than that their attributes changed: whoever did
    /// that may be writing to them, or be done.
    pub touched: BTreeSet<(SiteId, PathBuf)>,
    /// Sites with changes in the last batch of events that was read.
    pub read: BTreeSet<SiteId>,
    /// Sites to be scanned from the beginning.
    pub rescan: BTreeSet<SiteId>,
    /// A file that the configuration names.
    pub files: bool,
    /// A branch that is deployed.
    pub branches: bool,
    /// All watches were made anew: the next World makes the workers listen to the new inotify
    /// descriptor.
    pub is_watched_anew: bool,
}

/// The watches.
pub struct Watch {
    inotify: AsyncFd<Arc<Inotify>>,
    folders: HashMap<i32, WatchedFolder>,
    /// The kernel's limit was met: sites are scanned from time to time instead.
    pub exhausted: bool,
}

/// A folder of the file system.
struct WatchedFolder {
    /// Where it lay when it was watched.
    real: PathBuf,
    since: SystemTime,
    /// What it is to us: several sites may serve one folder.
    meanings: Vec<WatchPurpose>,
}

#[derive(PartialEq, Eq)]
enum WatchPurpose {
    /// A folder of a site, at this path below its root.
    Folder { place: SiteId, relative: PathBuf },
    /// It, or this name in it, is a part of the way to a site's root.
    Root {
        place: SiteId,
        name: Option<OsString>,
    },
    /// It, or this name in it, is a part of the way to a file of the configuration.
    File { name: Option<OsString> },
    /// The same to a file that changes with a branch.
    Branch { name: Option<OsString> },
}

impl Watch {
    /// Nothing is watched yet.
    pub fn new() -> io::Result<Watch> {
        Ok(Watch {
            inotify: sys::async_inotify(Arc::new(Inotify::new()?))?,
            folders: HashMap::new(),
            exhausted: false,
        })
    }

    /// Where the kernel tells.
    pub fn inotify(&self) -> Arc<Inotify> {
        Arc::clone(self.inotify.get_ref())
    }

    /// Waits until the kernel has something to tell.
    pub async fn readable(&self) {
        if let Ok(mut ready) = self.inotify.readable().await {
            // All of it is read next; what comes later makes it ready again.
            ready.clear_ready();
        }
    }

    /// Watches the way to the root of a site, links and what they lead to included: any part of it
    /// may be replaced, and then the root is another folder.
    pub fn root(&mut self, place: SiteId, root: &Path) {
        self.forget(
            |meaning| matches!(meaning, WatchPurpose::Root { place: its, .. } if *its == place),
        );
        self.way(root, NAMES, |name| WatchPurpose::Root { place, name });
    }

    /// Watches the files of the configuration, and the ways to them, since files are replaced by
    /// renaming them or by turning a link (Kubernetes does so with secrets).
    pub fn files<'p>(&mut self, files: impl Iterator<Item = &'p Path>) {
        self.forget(|meaning| matches!(meaning, WatchPurpose::File { .. }));
        for file in files {
            self.way(file, Inotify::FOLDER, |name| WatchPurpose::File { name });
        }
    }

    /// Watches the files that branches are in, which git replaces by renaming others.
    pub fn branches(&mut self, files: &[PathBuf]) {
        self.forget(|meaning| matches!(meaning, WatchPurpose::Branch { .. }));
        for file in files {
            self.way(file, Inotify::FOLDER, |name| WatchPurpose::Branch { name });
        }
    }

    /// Of the last part of a way the folder above is watched for `events` of its name. Of all others
    /// they themselves are: there may be much coming and going beside them.
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
            // What it is, is asked after it is watched, so no replacement is missed.
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

    /// Watches a part of a way; whether it is there.
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

    /// Watches folders of `site` that are new; returns those.
    pub fn grow(&mut self, place: SiteId, site: &Site) -> Vec<PathBuf> {
        let known: HashSet<PathBuf> = self
            .folders
            .values()
            .flat_map(|watched| &watched.meanings)
            .filter_map(|meaning| match meaning {
                WatchPurpose::Folder {
                    place: its,
                    relative,
                } if *its == place => Some(relative.clone()),
                _ => None,
            })
            .collect();
        let mut new = Vec::new();
        for (relative, real) in site.folders() {
            // A folder beside a link's target stands under a path that is known: its own is not.
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

    /// The root of this site is another folder: those below the old one are watched no longer.
    pub fn leave(&mut self, place: SiteId) {
        self.leave_below(place, Path::new(""));
    }

    fn leave_below(&mut self, place: SiteId, path: &Path) {
        self.forget(|meaning| {
            matches!(meaning, WatchPurpose::Folder { place: its, relative }
                if *its == place && relative.starts_with(path))
        });
    }

    /// Drops meanings, and the watches that have none left.
    fn forget(&mut self, drop: impl Fn(&WatchPurpose) -> bool) {
        let inotify = self.inotify.get_ref();
        self.folders.retain(|id, watched| {
            watched.meanings.retain(|meaning| !drop(meaning));
            if watched.meanings.is_empty() {
                // The kernel may have ended it already, with its folder.
                let _ = inotify.remove(*id);
            }
            !watched.meanings.is_empty()
        });
    }

    /// Watches `folder`; whether that says anything new.
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
                "{}: can't be watched ({error}); changes are looked for every {} seconds instead. \
                 `sysctl fs.inotify.max_user_watches` is how many folders may be watched",
                folder.display(),
                RESCAN.as_secs()
            );
        }
    }

    /// Since when the folders of sites are watched: what happens to their files after that is told.
    pub fn since(&self) -> HashMap<(SiteId, &Path), SystemTime> {
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

    /// Reads what the kernel has to tell.
    pub fn read(&mut self, changes: &mut Changes) -> io::Result<()> {
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
                    // Attributes alone make no other folder, but a link that is replaced says no
                    // more than that it has one name less.
                    (WatchPurpose::Root { place, name }, changed) if name == changed => {
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
            // The kernel goes on watching the folder that had this name, perhaps under another one.
            for (place, path) in others {
                self.leave_below(place, &path);
            }
            if event.is_gone() {
                self.folders.remove(&event.watch);
            }
        }
        Ok(())
    }

    /// Events were lost.
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
    /// Returns true if a new name may belong to a file that is still being written. A new plain file is
    /// empty or half written, unless link(2) made the name: a file from link(2) may have lost its other
    /// name by now, or never had one (O_TMPFILE), and has content and no writer. A second name of a
    /// file, a folder and a link are always whole. The server cannot tell whether an empty file, or a
    /// file of another user, is whole; a request for the file looks again.
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
            WatchPurpose::Folder { place, .. } | WatchPurpose::Root { place, .. } => Some(*place),
            WatchPurpose::File { .. } | WatchPurpose::Branch { .. } => None,
        }
    }
}

/// It isn't there (any more), or isn't ours to read: no reason to give up watching.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

/// What happens to a part of a way itself, be it a folder or a link.
const PART: WatchFlags = WatchFlags::DELETE_SELF
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DONT_FOLLOW);

/// Names that come, go or become others.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR);

/// Puts the names of a path on a stack, the first one on top.
fn push_names(stack: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    stack.extend(names);
}

impl Changes {
    /// Something happened at this path of a site.
    fn note(&mut self, place: SiteId, path: PathBuf, event: &InotifyEvent) {
        let at = (place, path.clone());
        self.read.insert(place);
        let is_known = !self.sites.entry(place).or_default().insert(path);
        if event.is_file_name_removed() {
            self.gone.insert(at);
        } else if event.is_file_touched() {
            // What was told to be whole still is.
            if !is_known || self.is_unsure(&at) {
                self.touched.insert(at);
            }
        } else {
            self.gone.remove(&at);
            self.touched.remove(&at);
        }
    }

    /// Records that a request found a path that differs from the site. The file at the path is known to
    /// be whole if the kernel reported that its writer closed it (`is_told`).
    pub fn found(&mut self, at: (SiteId, PathBuf), is_told: bool) {
        self.sites.entry(at.0).or_default().insert(at.1.clone());
        if !is_told {
            self.touched.insert(at);
        }
    }

    /// May what is at this path be half written?
    pub fn is_unsure(&self, at: &(SiteId, PathBuf)) -> bool {
        self.gone.contains(at) || self.touched.contains(at)
    }

    /// Was something told of the file that is at this path now?
    pub fn is_told(&self, at: &(SiteId, PathBuf)) -> bool {
        let (place, path) = at;
        let is_named = self.sites.get(place).is_some_and(|all| all.contains(path));
        self.touched.contains(at) || (is_named && !self.gone.contains(at))
    }

    /// Nothing happened.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.rescan.is_empty() && !self.files && !self.branches
    }
}
