//! Files of the server's own that may lie below a root: the configuration, passwords, keys, state and
//! logs. They are no part of what is served, by whatever name they are reached.

use super::file::{Meta, Why};
use super::root::Root;
use rustix::fs::fstat;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is hidden: files, and folders with all that is in them, as the configuration names them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Secrets(Vec<PathBuf>);

impl Secrets {
    /// These absolute paths; nothing need be there yet.
    pub fn new(mut paths: Vec<PathBuf>) -> Secrets {
        // In one order, so that a configuration that says the same in another order hides the same.
        paths.sort();
        paths.dedup();
        Secrets(paths)
    }

    /// Where they lie now, and which files they are. Blocks.
    pub fn resolve(&self) -> Resolved {
        let mut resolved = Resolved::default();
        for path in &self.0 {
            // A name that is a link is hidden, and so is the file that it leads to.
            resolved.add(named(path));
            resolved.add(path.canonicalize().ok());
            if let Ok(is) = std::fs::metadata(path) {
                resolved.files.push((is.dev(), is.ino()));
            }
        }
        resolved
    }

    /// Refuses a path below `root` that leads to one of them, or into one; gives where it really lies
    /// otherwise. Blocks.
    pub fn check(&self, root: &Root, path: &[u8]) -> Result<PathBuf, Why> {
        self.resolve().check(root, path)
    }
}

/// Where the secrets lie at one moment.
#[derive(Default, Debug)]
pub struct Resolved {
    /// Absolute, without links in the folders above.
    paths: Vec<PathBuf>,
    /// Device and inode: the same file by another name, be it a hard link or a mount.
    files: Vec<(u64, u64)>,
}

impl Resolved {
    fn add(&mut self, path: Option<PathBuf>) {
        self.paths
            .extend(path.filter(|path| !self.paths.contains(path)));
    }

    /// See [`Secrets::check`].
    pub fn check(&self, root: &Root, path: &[u8]) -> Result<PathBuf, Why> {
        let (seen, real) = root.look_at(path)?;
        let meta = Meta::of(&fstat(seen)?);
        match self.is(&meta) || self.covers(&real, root.path()) {
            true => Err(Why::Secret),
            false => Ok(real),
        }
    }

    /// Is one of them in this very folder?
    pub fn is_any_in(&self, folder: &Path) -> bool {
        self.paths.iter().any(|path| path.parent() == Some(folder))
    }

    /// Is this very path one of them?
    pub fn is_at(&self, real: &Path) -> bool {
        self.paths.iter().any(|path| path == real)
    }

    /// Is this one of these files or folders?
    pub fn is(&self, meta: &Meta) -> bool {
        self.files.contains(&(meta.dev, meta.ino))
    }

    /// Is this path one of them, or in one of them? A root that itself lies in such a folder was named
    /// by the operator to be served.
    pub fn covers(&self, real: &Path, root: &Path) -> bool {
        let covers = |path: &&PathBuf| real.starts_with(path) && !root.starts_with(path);
        self.paths.iter().any(|path| covers(&path))
    }

    /// Those below this folder, as paths below it.
    pub fn below<'s>(&'s self, root: &'s Path) -> impl Iterator<Item = &'s Path> {
        self.paths
            .iter()
            .filter_map(move |path| path.strip_prefix(root).ok())
            .filter(|path| !path.as_os_str().is_empty())
    }
}

/// The path with no links in the folders above its last name.
fn named(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?.canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}
