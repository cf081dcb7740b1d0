//! Which files changed: inotify over every folder that is served, and over the folders of the few
//! files that the configuration names (certificates, keys, password files).
//!
//! It tells; what to do about it is the control plane's. If the kernel has no watches left, or lost
//! count of what happened, it says that everything may have changed.

use crate::base::sys::{self, Event, Inotify};
use crate::limits::LINK_HOPS_MAX;
use crate::site::Site;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// Which site of the World a folder belongs to: by host, and by route where that has a folder.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Index among the hosts.
    pub host: usize,
    /// Index among its routes.
    pub route: Option<usize>,
}

/// What changed since it was asked last.
#[derive(Default, Debug)]
pub struct Changes {
    /// Paths relative to their site's root.
    pub sites: BTreeMap<Place, BTreeSet<PathBuf>>,
    /// Sites to be scanned from the beginning.
    pub whole: BTreeSet<Place>,
    /// A file that the configuration names.
    pub files: bool,
}

/// The watches.
pub struct Watch {
    inotify: AsyncFd<Inotify>,
    /// Several sites may serve one folder.
    folders: HashMap<i32, Vec<Watched>>,
    /// The kernel's limit was met: sites are scanned from time to time instead.
    pub exhausted: bool,
}

#[derive(PartialEq, Eq)]
enum Watched {
    Folder {
        place: Place,
        relative: PathBuf,
        real: PathBuf,
    },
    /// The link that a root is: its folder is watched for its name.
    Root {
        place: Place,
        name: PathBuf,
    },
    File {
        name: PathBuf,
    },
}

impl Watch {
    /// Nothing is watched yet.
    pub fn new() -> io::Result<Watch> {
        Ok(Watch {
            inotify: sys::watched(Inotify::new()?)?,
            folders: HashMap::new(),
            exhausted: false,
        })
    }

    /// Waits until the kernel has something to tell.
    pub async fn readable(&self) {
        if let Ok(mut ready) = self.inotify.readable().await {
            // All of it is read next; what comes later makes it ready again.
            ready.clear_ready();
        }
    }

    /// Watches every folder of `site`, and its root as a link if it is one.
    pub fn site(&mut self, place: Place, site: &Arc<Site>) {
        for (relative, real) in site.folders() {
            self.add(&real, || Watched::Folder {
                place,
                relative: relative.clone(),
                real: real.clone(),
            });
        }
        let root = &site.rules().root;
        let is_link = std::fs::symlink_metadata(root).is_ok_and(|metadata| metadata.is_symlink());
        if let (true, Some(parent), Some(name)) = (is_link, root.parent(), root.file_name()) {
            self.add(parent, || Watched::Root {
                place,
                name: name.into(),
            });
        }
    }

    /// Watches a file by its folder, since files are replaced by renaming; and every link on the way
    /// to it, since some are replaced by turning a link further up (Kubernetes does so with secrets).
    /// May be called again for the same file, when its links have been turned.
    pub fn file(&mut self, path: &Path) {
        for step in steps(path) {
            if let (Some(parent), Some(name)) = (step.parent(), step.file_name()) {
                self.add(parent, || Watched::File { name: name.into() });
            }
        }
    }

    /// Watches folders of `site` that are new; returns those.
    pub fn grow(&mut self, place: Place, site: &Arc<Site>) -> Vec<PathBuf> {
        let known: HashSet<&PathBuf> = self
            .folders
            .values()
            .flatten()
            .filter_map(|watched| match watched {
                Watched::Folder {
                    place: its,
                    relative,
                    ..
                } if *its == place => Some(relative),
                _ => None,
            })
            .collect();
        let new: Vec<_> = site
            .folders()
            .into_iter()
            .filter(|(relative, _)| !known.contains(relative))
            .collect();
        for (relative, real) in &new {
            self.add(real, || Watched::Folder {
                place,
                relative: relative.clone(),
                real: real.clone(),
            });
        }
        new.into_iter().map(|(relative, _)| relative).collect()
    }

    fn add(&mut self, folder: &Path, watched: impl Fn() -> Watched) {
        match self.inotify.get_ref().watch(folder, Inotify::FOLDER) {
            Ok(id) => {
                let (known, watched) = (self.folders.entry(id).or_default(), watched());
                if !known.contains(&watched) {
                    known.push(watched);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                if !self.exhausted {
                    log::warn!(
                        "{}: can't be watched ({error}); changes are looked for every {} seconds instead. \
                         `sysctl fs.inotify.max_user_watches` is how many folders may be watched",
                        folder.display(),
                        super::plane::RESCAN.as_secs()
                    );
                }
                self.exhausted = true;
            }
        }
    }

    /// Reads what the kernel has to tell.
    pub fn read(&mut self, changes: &mut Changes) -> io::Result<()> {
        for event in self.inotify.get_ref().read()? {
            if event.is_overflow() {
                log::warn!("too many changes at once: all folders are scanned again");
                changes.files = true;
                let places = self.folders.values().flatten().filter_map(Watched::place);
                changes.whole.extend(places);
                continue;
            }
            let Some(watched) = self.folders.get(&event.watch) else {
                continue;
            };
            if event.is_begun()
                && watched
                    .iter()
                    .any(|watched| watched.is_being_written(&event))
            {
                // Its writer tells us when it is whole.
                continue;
            }
            for watched in watched {
                match (watched, &event.name) {
                    (
                        Watched::Folder {
                            place, relative, ..
                        },
                        Some(name),
                    ) => {
                        changes
                            .sites
                            .entry(*place)
                            .or_default()
                            .insert(relative.join(name));
                    }
                    (
                        Watched::Folder {
                            place, relative, ..
                        },
                        None,
                    ) => {
                        changes
                            .sites
                            .entry(*place)
                            .or_default()
                            .insert(relative.clone());
                    }
                    (Watched::Root { place, name }, Some(changed))
                        if name.as_os_str() == changed =>
                    {
                        changes.whole.insert(*place);
                    }
                    (Watched::File { name }, Some(changed)) if name.as_os_str() == changed => {
                        changes.files = true
                    }
                    _ => {}
                }
            }
            if event.is_gone() {
                self.folders.remove(&event.watch);
            }
        }
        Ok(())
    }
}

/// The links that are followed on the way to a file, and the file at their end.
fn steps(path: &Path) -> Vec<PathBuf> {
    let mut steps = Vec::new();
    let mut at = PathBuf::new();
    let parts = |path: &Path| {
        let parts = path.components().rev();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut left: Vec<OsString> = parts(path);
    while let Some(part) = left.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        match std::fs::read_link(&next) {
            Ok(target) if steps.len() < LINK_HOPS_MAX => {
                left.append(&mut parts(&target));
                steps.push(next);
            }
            _ => at = next,
        }
    }
    steps.push(at);
    steps
}

impl Watched {
    /// A plain file that has just come into being is empty or half written. A second name of a file
    /// (a hard link) is whole already, and so are folders and links.
    fn is_being_written(&self, event: &Event) -> bool {
        let (Watched::Folder { real, .. }, Some(name)) = (self, &event.name) else {
            return false;
        };
        let metadata = std::fs::symlink_metadata(real.join(name));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1)
    }

    fn place(&self) -> Option<Place> {
        match self {
            Watched::Folder { place, .. } | Watched::Root { place, .. } => Some(*place),
            Watched::File { .. } => None,
        }
    }
}

impl Changes {
    /// Nothing happened.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.whole.is_empty() && !self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_on_the_way_is_a_step() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name));
        std::fs::create_dir(root.join("one")).expect("a folder");
        std::fs::write(root.join("one/key"), "").expect("a file");
        link("one", "data").expect("a link");
        link("./data/key", "key").expect("a link");
        link("../data/../one/key", "one/other").expect("a link");
        link("loop", "loop").expect("a link");
        let named = |path: &str| -> Vec<PathBuf> {
            let steps = steps(&root.join(path)).into_iter();
            steps
                .map(|step| step.strip_prefix(&root).unwrap_or(&step).to_owned())
                .collect()
        };
        let paths = |paths: &[&str]| -> Vec<PathBuf> { paths.iter().map(PathBuf::from).collect() };
        assert_eq!(named("one/key"), paths(&["one/key"]));
        assert_eq!(named("key"), paths(&["key", "data", "one/key"]));
        assert_eq!(named("one/other"), paths(&["one/other", "data", "one/key"]));
        assert_eq!(named("missing"), paths(&["missing"]));
        assert_eq!(named("loop").len(), LINK_HOPS_MAX + 1);
    }
}
