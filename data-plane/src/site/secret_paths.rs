//! Private files of the server that may lie below a root: the configuration, passwords, keys, state and logs. Such
//! secrets are never served, under any name or link.

use crate::site::file_version::{FileError, FileMeta};
use crate::site::root::SiteRoot;
use base::clock::monotonic_ms;
use base::heap_sort::{sort, sort_by};
use rustix::fs::fstat;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Paths to hide, as named in the configuration: files with their numbered copies, and folders with their whole
/// content. All sites of a World share the paths.
#[derive(Clone, Default, Debug)]
pub struct SecretPaths {
    paths: Arc<[PathBuf]>,
    /// Locations for the scans of a build. Without the reuse, a build of many sites with many files would resolve all
    /// paths for each site.
    recent: Arc<Mutex<Option<RecentSecrets>>>,
}

/// Time in milliseconds, and the locations at the time.
type RecentSecrets = (u64, Arc<ResolvedSecrets>);

impl PartialEq for SecretPaths {
    fn eq(&self, other: &SecretPaths) -> bool {
        self.paths == other.paths
    }
}

impl Eq for SecretPaths {}

impl SecretPaths {
    /// Makes the set from absolute paths; a path need not exist yet.
    pub fn new(mut paths: Vec<PathBuf>) -> SecretPaths {
        // Sorted, so that two configurations with equal paths in different orders hide equal sets.
        sort(&mut paths);
        paths.dedup();
        SecretPaths {
            paths: paths.into(),
            recent: Arc::default(),
        }
    }

    /// Returns the locations of the secrets, as of less than [`REUSE_MS`] ago, for the first scan of a site. Blocks.
    pub(super) fn resolve_for_build(&self) -> Arc<ResolvedSecrets> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = monotonic_ms();
        match &*recent {
            Some((at_ms, resolved)) if now_ms - at_ms < REUSE_MS => Arc::clone(resolved),
            _ => {
                let resolved = Arc::new(self.resolve());
                *recent = Some((now_ms, Arc::clone(&resolved)));
                resolved
            }
        }
    }

    /// Resolves the secrets to current paths and to the files' device and inode numbers. Blocks.
    pub fn resolve(&self) -> ResolvedSecrets {
        let mut resolved = ResolvedSecrets::default();
        // The paths are sorted, so most paths have the folder of the path before.
        let mut folder: (&Path, Option<PathBuf>) = (Path::new(""), None);
        for path in &*self.paths {
            let parent = path.parent().unwrap_or(path);
            if parent != folder.0 {
                folder = (parent, real_path(parent));
            }
            let named = path.file_name();
            resolved.add(folder.1.as_ref().zip(named).map(|(it, name)| it.join(name)));
            let Ok(is) = path.symlink_metadata() else {
                continue;
            };
            if !is.is_symlink() && named.is_some() {
                resolved.files.push((is.dev(), is.ino()));
                continue;
            }
            // If a name is a link, both the name and the target are hidden.
            resolved.add(path.canonicalize().ok());
            if let Ok(is) = path.metadata() {
                resolved.files.push((is.dev(), is.ino()));
            }
        }
        // Sorted by bytes, for the searches.
        sort_by(&mut resolved.paths, |one, other| {
            bytes(one).cmp(bytes(other))
        });
        sort(&mut resolved.files);
        resolved
    }

    /// Refuses a path below `root` that leads to a secret or into a secret folder; otherwise returns the
    /// real path. Blocks.
    pub fn check(&self, root: &SiteRoot, path: &[u8]) -> Result<PathBuf, FileError> {
        self.resolve().check(root, path)
    }
}

/// Time for which the scans of a build share the locations of the secrets.
const REUSE_MS: u64 = 100;

/// Returns the path without links, even if the last folders of the path do not exist yet.
fn real_path(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        let rest = path.strip_prefix(above).ok()?;
        // An empty rest would append a slash.
        Some(if rest == Path::new("") {
            real
        } else {
            real.join(rest)
        })
    })
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Locations of the secrets at a moment.
#[derive(Default, Debug)]
pub struct ResolvedSecrets {
    /// Absolute paths, without links in the folders above, sorted by bytes.
    paths: Vec<PathBuf>,
    /// Device and inode numbers, sorted: a file reached by another name, be it by a hard link or a mount.
    files: Vec<(u64, u64)>,
}

impl ResolvedSecrets {
    fn add(&mut self, path: Option<PathBuf>) {
        self.paths.extend(path);
    }

    /// Checks a path as [`SecretPaths::check`] does.
    pub fn check(&self, root: &SiteRoot, path: &[u8]) -> Result<PathBuf, FileError> {
        let (seen, real) = root.open_handle_and_path(path)?;
        let meta = FileMeta::of(&fstat(seen)?);
        if self.is(&meta) || self.covers(&real, root.path()) {
            Err(FileError::Secret)
        } else {
            Ok(real)
        }
    }

    /// Returns true if `name` in `folder` (absolute, without links) is a secret. A scan calls the function
    /// for every name, so bytes are compared and no path is assembled.
    pub(crate) fn is_at(&self, folder: &Path, name: &[u8]) -> bool {
        let folder = bytes(folder);
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let is_secret = |name: &[u8]| {
            let parts = [folder, b"/", name];
            let compared = |path: &PathBuf| bytes(path).iter().cmp(parts.iter().copied().flatten());
            self.paths.binary_search_by(compared).is_ok()
        };
        is_secret(name) || without_number(name).is_some_and(is_secret)
    }

    /// Returns true if `meta` belongs to a secret file or folder.
    pub(crate) fn is(&self, meta: &FileMeta) -> bool {
        self.files.binary_search(&(meta.dev, meta.ino)).is_ok()
    }

    /// Returns true if a path is a secret or lies in a secret folder. A secret folder around `root` does
    /// not count, since the operator has configured a folder inside as a root to serve.
    pub(crate) fn covers(&self, real: &Path, root: &Path) -> bool {
        let is_covered = |real: &Path| {
            let mut above = real.ancestors().filter(|path| !root.starts_with(path));
            above.any(|path| self.position(bytes(path)).is_ok())
        };
        let plain = without_number(real.as_os_str().as_bytes());
        is_covered(real)
            || plain.is_some_and(|plain| is_covered(Path::new(OsStr::from_bytes(plain))))
    }

    /// Returns the secrets below `root`, as paths relative to `root`.
    pub(crate) fn below<'s>(&'s self, root: &'s Path) -> impl Iterator<Item = &'s Path> {
        let start = self.position(bytes(root)).unwrap_or_else(|start| start);
        // Between the root and the paths below may stand paths such as `/srv-2` after `/srv`.
        let begins = |path: &&PathBuf| bytes(path).starts_with(bytes(root));
        self.paths[start..]
            .iter()
            .take_while(begins)
            .filter_map(move |path| path.strip_prefix(root).ok())
            .filter(|path| !path.as_os_str().is_empty())
    }

    fn position(&self, path: &[u8]) -> Result<usize, usize> {
        self.paths.binary_search_by(|known| bytes(known).cmp(path))
    }
}

/// Returns the name without the number of an earlier file: `access.log` for `access.log.1` and `access.log.1.gz`. A
/// rotation gives a private file such names. `None` for a name without a number.
fn without_number(name: &[u8]) -> Option<&[u8]> {
    let plain = name.strip_suffix(b".gz").unwrap_or(name);
    let digits = plain.iter().rev().take_while(|it| it.is_ascii_digit());
    let rest = &plain[..plain.len() - digits.count()];
    if rest.len() < plain.len() {
        rest.strip_suffix(b".")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::root::Symlinks;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn secrets_are_found_under_all_names() {
        let place = tempfile::tempdir().expect("a folder");
        let base = place.path().canonicalize().expect("there");
        fs::create_dir_all(base.join("root/state/deep")).expect("made");
        fs::create_dir_all(base.join("root/in/state")).expect("made");
        for name in [
            "root/users",
            "root/usersx",
            "root/state/deep/key",
            "root/page",
        ] {
            fs::write(base.join(name), name).expect("made");
        }
        symlink("users", base.join("root/link")).expect("made");
        fs::hard_link(base.join("root/users"), base.join("root/hard")).expect("made");
        symlink("root", base.join("alias")).expect("made");
        let by = |name: &str| base.join("alias").join(name);
        let secrets = vec![by("users"), by("state"), by("to-come"), by("new/er/key")];
        let secrets = SecretPaths::new(secrets);
        let resolved = secrets.resolve();
        let root = base.join("root");
        for (folder, name, is_secret) in [
            ("root", "users", true),
            ("root", "state", true),
            // A secret need not exist yet.
            ("root", "to-come", true),
            // The names of a rotation.
            ("root", "users.1", true),
            ("root", "users.27.gz", true),
            ("root", "users.gz", false),
            ("root", "users.", false),
            ("root", "users.1.", false),
            ("root", "users1", false),
            ("root", ".1", false),
            ("root", "usersx", false),
            ("root", "sers", false),
            ("root/in", "state", false),
            ("root", "page", false),
        ] {
            let at = resolved.is_at(&base.join(folder), name.as_bytes());
            assert_eq!(at, is_secret, "{folder} {name}");
        }
        // The folders above need not exist yet.
        assert!(resolved.is_at(&root.join("new/er"), b"key"));
        assert!(resolved.covers(&root.join("new/er/key"), &root));
        let below: Vec<_> = resolved.below(&root).collect();
        let expected = ["new/er/key", "state", "to-come", "users"].map(Path::new);
        assert_eq!(below, expected);
        assert_eq!(resolved.below(&base.join("roo")).count(), 0);
        assert!(resolved.covers(&root.join("state/deep/key"), &root));
        assert!(!resolved.covers(&root.join("statement"), &root));
        // A root inside a secret folder was named to be served.
        assert!(!resolved.covers(&root.join("state/deep/key"), &root.join("state/deep")));
        for links in [Symlinks::Inside, Symlinks::Follow] {
            let opened = SiteRoot::open(&root, links, None).expect("opens");
            for path in ["users", "link", "hard", "state", "state/deep/key"] {
                let refused = secrets.check(&opened, path.as_bytes());
                assert_eq!(refused, Err(FileError::Secret), "{links:?} {path}");
            }
            let page = secrets.check(&opened, b"page");
            assert_eq!(page, Ok(root.join("page")), "{links:?}");
        }
    }
}
