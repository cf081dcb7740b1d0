//! Root of a site, and the only functions that open files below the root.
//!
//! No file outside of the root is ever opened, regardless of links and of concurrent changes of links. The
//! kernel resolves a path beneath the root's descriptor (`openat2`). Where the kernel cannot (before Linux
//! 5.6, or for an absolute link), the server walks the path name by name and resolves links by reading the
//! targets.

use crate::limits::LINK_HOPS_MAX;
use crate::site::file_version::{FileError, FileMeta};
use release::limits::FOLDER_DEPTH_MAX;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat,
    statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Open root of a site.
pub struct SiteRoot {
    folder: OwnedFd,
    /// Device and inode numbers of the root folder.
    identity: (u64, u64),
    /// Real path of the root.
    path: PathBuf,
    /// Absolute form of the configured path of the root. Absolute links may use either path.
    given: PathBuf,
    symlinks: Symlinks,
    resolver: PathResolver,
}

/// Permitted targets of symbolic links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symlinks {
    /// Targets below the root. An absolute target is relative to the root, unless the target begins with
    /// the root's own path.
    Inside,
    /// Any target.
    Follow,
}

/// Resolver of paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathResolver {
    /// `openat2`, and the walk for paths refused by `openat2`.
    Kernel,
    /// The walk name by name.
    Walk,
}

impl SiteRoot {
    /// Opens the root. Without `resolver`, which tests set, the function detects `openat2`.
    pub fn open(
        path: &Path,
        symlinks: Symlinks,
        resolver: Option<PathResolver>,
    ) -> io::Result<SiteRoot> {
        let real = path.canonicalize()?;
        let folder = openat(
            CWD,
            &real,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let resolver = resolver.unwrap_or_else(|| detect(folder.as_fd()));
        let meta = FileMeta::of(&fstat(&folder)?);
        Ok(SiteRoot {
            folder,
            identity: (meta.dev, meta.ino),
            path: real,
            given: std::path::absolute(path)?,
            symlinks,
            resolver,
        })
    }

    /// Returns the real path of the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if `path` no longer leads to the root's folder.
    pub(crate) fn moved(&self, path: &Path) -> bool {
        let now = statat(CWD, path, AtFlags::empty()).map(|now| FileMeta::of(&now));
        !now.is_ok_and(|now| (now.dev, now.ino) == self.identity)
    }

    /// Returns the metadata of the file that the path leads to, with one system call; None if the file is
    /// missing. The file may lie outside of the root, so the metadata may only be compared with the
    /// metadata of a scan.
    pub(crate) fn stat(&self, path: &[u8]) -> Option<Stat> {
        statat(&self.folder, path, AtFlags::empty()).ok()
    }

    /// Opens a path without read access (O_PATH), to inspect the type. Paths have no initial slash; the
    /// empty path is the root itself.
    pub fn open_handle(&self, path: &[u8]) -> Result<OwnedFd, FileError> {
        self.open_with(path, OFlags::PATH | OFlags::CLOEXEC)
    }

    /// Opens a path without read access, and returns the real path as well: absolute, without links.
    pub(crate) fn open_handle_and_path(
        &self,
        path: &[u8],
    ) -> Result<(OwnedFd, PathBuf), FileError> {
        let look = OFlags::PATH | OFlags::CLOEXEC;
        if self.symlinks == Symlinks::Inside {
            return self.walk(path, look);
        }
        let seen = self.open_with(path, look)?;
        let real = self.path.join(OsStr::from_bytes(path));
        let real = real.canonicalize().map_err(|_| FileError::Changing)?;
        let there = openat(CWD, &real, look | OFlags::NOFOLLOW, Mode::empty())?;
        let (there, met) = (FileMeta::of(&fstat(there)?), FileMeta::of(&fstat(&seen)?));
        // A link was switched between the two calls.
        if (there.dev, there.ino) != (met.dev, met.ino) {
            return Err(FileError::Changing);
        }
        Ok((seen, real))
    }

    /// Returns an absolute path without links relative to the root; None for a path outside.
    pub fn below<'p>(&self, real: &'p Path) -> Option<&'p [u8]> {
        let below = real.strip_prefix(&self.path).ok()?;
        Some(below.as_os_str().as_bytes())
    }

    /// Opens a folder for reading.
    pub fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, FileError> {
        let seen = self.open_handle(path)?;
        Ok(openat(
            seen,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    /// Opens a regular file if the metadata equals `known`.
    pub fn open_file(&self, path: &[u8], known: &FileMeta) -> Result<File, FileError> {
        self.open_file_if(path, &|meta| meta == known)
    }

    /// Opens a regular file if the file is the known one, regardless of the content.
    pub(crate) fn open_same_file(&self, path: &[u8], known: &FileMeta) -> Result<File, FileError> {
        self.open_file_if(path, &|meta| meta.same_file(known))
    }

    /// Opens a regular file if `is_right` accepts the metadata. The metadata is checked before the open, because
    /// opening a device can have effects.
    fn open_file_if(
        &self,
        path: &[u8],
        is_right: &dyn Fn(&FileMeta) -> bool,
    ) -> Result<File, FileError> {
        let same = |fd: BorrowedFd<'_>| match FileMeta::of_file(&fstat(fd)?) {
            None => Err(FileError::NotFound),
            Some(meta) if !is_right(&meta) => Err(FileError::Changing),
            Some(_) => Ok(()),
        };
        same(self.open_handle(path)?.as_fd())?;
        let file = self.open_with(path, READ)?;
        same(file.as_fd())?;
        Ok(File::from(file))
    }

    fn open_with(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, FileError> {
        let named = if path.is_empty() { b"." } else { path };
        if self.symlinks == Symlinks::Follow {
            return Ok(openat(&self.folder, named, flags, Mode::empty())?);
        }
        if self.resolver == PathResolver::Kernel {
            // EAGAIN: a concurrent rename interrupted the resolution.
            for _ in 0..8 {
                match openat2(&self.folder, named, flags, Mode::empty(), BENEATH) {
                    Err(Errno::AGAIN) => {}
                    // A link out of the root, or an absolute link that may lead inside.
                    Err(Errno::XDEV) => break,
                    other => return Ok(other?),
                }
            }
        }
        self.walk(path, flags).map(|(opened, _)| opened)
    }

    /// Opens a path name by name, and returns the real path as well.
    fn walk(&self, path: &[u8], flags: OFlags) -> Result<(OwnedFd, PathBuf), FileError> {
        // Open folders on the path, below the root. `..` returns to an open folder, so that a folder moved
        // meanwhile cannot lead outside.
        let mut folders: Vec<OwnedFd> = Vec::new();
        let mut real = self.path.clone();
        let mut left: Vec<Vec<u8>> = Vec::new();
        push_names(&mut left, path);
        let mut hops = 0;
        let mut outside = false;
        while let Some(name) = left.pop() {
            if name == b".." {
                if folders.pop().is_none() {
                    return Err(FileError::LinkLeaves);
                }
                real.pop();
                continue;
            }
            let here = folders
                .last()
                .map_or(self.folder.as_fd(), |folder| folder.as_fd());
            let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let node = match openat(here, &name[..], look, Mode::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR) if outside => return Err(FileError::LinkLeaves),
                other => other?,
            };
            match FileType::from_raw_mode(fstat(&node)?.st_mode) {
                FileType::Directory if folders.len() < 2 * FOLDER_DEPTH_MAX => {
                    folders.push(node);
                    real.push(OsStr::from_bytes(&name));
                }
                FileType::Symlink if hops < LINK_HOPS_MAX => {
                    hops += 1;
                    let target = readlinkat(&node, "", Vec::new())?.into_bytes();
                    if target.first() == Some(&b'/') {
                        folders.clear();
                        real.clone_from(&self.path);
                        let inside = self.strip(&target);
                        outside |= inside.is_none();
                        push_names(&mut left, inside.unwrap_or(&target));
                    } else {
                        push_names(&mut left, &target);
                    }
                }
                FileType::Directory | FileType::Symlink => return Err(FileError::NotFound),
                _ if !left.is_empty() => return Err(FileError::NotFound),
                _ => {
                    real.push(OsStr::from_bytes(&name));
                    if flags.contains(OFlags::PATH) {
                        return Ok((node, real));
                    }
                    let flags = flags | OFlags::NOFOLLOW;
                    return Ok((openat(here, &name[..], flags, Mode::empty())?, real));
                }
            }
        }
        let here = folders
            .last()
            .map_or(self.folder.as_fd(), |folder| folder.as_fd());
        Ok((openat(here, ".", flags, Mode::empty())?, real))
    }

    /// Returns an absolute path relative to the root, if the path begins with the root's path.
    fn strip<'a>(&self, target: &'a [u8]) -> Option<&'a [u8]> {
        [&self.path, &self.given].into_iter().find_map(|root| {
            let rest = target.strip_prefix(root.as_os_str().as_bytes())?;
            (rest.is_empty() || rest[0] == b'/' || root.as_os_str() == "/").then_some(rest)
        })
    }
}

/// Flags to open a file for reading. A FIFO or terminal swapped into the place of a file must not block the
/// server.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::LARGEFILE);

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Detects `openat2`. Old kernels fail with ENOSYS, old container filters with EPERM.
fn detect(folder: BorrowedFd<'_>) -> PathResolver {
    match openat2(
        folder,
        ".",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        BENEATH,
    ) {
        Ok(_) => PathResolver::Kernel,
        Err(_) => PathResolver::Walk,
    }
}

/// Pushes the names of a path on a stack, the first name on top.
fn push_names(stack: &mut Vec<Vec<u8>>, path: &[u8]) {
    let names = path.split(|byte| *byte == b'/').rev();
    stack.extend(
        names
            .filter(|name| !name.is_empty() && *name != b".")
            .map(<[u8]>::to_vec),
    );
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> FileError {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::INVAL => {
                FileError::NotFound
            }
            Errno::NXIO | Errno::NODEV => FileError::NotFound,
            Errno::XDEV => FileError::LinkLeaves,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => FileError::Overloaded,
            _ => FileError::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    const BOTH: [PathResolver; 2] = [PathResolver::Kernel, PathResolver::Walk];

    fn read(root: &SiteRoot, path: &str) -> Result<String, FileError> {
        let mut file = File::from(root.open_with(path.as_bytes(), READ)?);
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|_| FileError::Unreadable)?;
        Ok(text)
    }

    #[test]
    fn links_stay_inside() {
        let place = tempfile::tempdir().expect("a folder");
        let base = place.path().canonicalize().expect("there");
        let public = base.join("public");
        fs::create_dir_all(public.join("sub/deep")).expect("made");
        fs::create_dir(base.join("secret")).expect("made");
        fs::write(base.join("secret/key"), "SECRET").expect("made");
        fs::write(public.join("page"), "page").expect("made");
        fs::write(public.join("sub/leaf"), "leaf").expect("made");
        fs::create_dir(base.join("publicity")).expect("made");
        fs::write(base.join("publicity/key"), "SECRET").expect("made");
        symlink(&public, base.join("alias")).expect("made");
        let link = |target: &str, name: &str| symlink(target, public.join(name)).expect("made");
        link("page", "relative");
        link("../page", "sub/up");
        link("../../page", "sub/deep/up2");
        link("/sub/leaf", "rooted");
        link(&format!("{}/sub/leaf", public.display()), "absolute");
        link(&format!("{}/alias/page", base.display()), "by-alias");
        link(&public.display().to_string(), "sub/whole");
        link("sub", "folder");
        link("relative", "twice");
        link("../secret/key", "out");
        link(&format!("{}/secret/key", base.display()), "out-absolute");
        link(&format!("{}/publicity/key", base.display()), "out-prefix");
        link("sub/../../secret/key", "out-over");
        link("/etc/passwd", "passwd");
        link("..", "parent");
        link("loop", "loop");
        link("ping", "pong");
        link("pong", "ping");
        link("/proc/self/root/etc/passwd", "magic");
        for resolver in BOTH {
            let root = SiteRoot::open(&base.join("alias"), Symlinks::Inside, Some(resolver))
                .expect("opens");
            for (path, text) in [
                ("page", "page"),
                ("relative", "page"),
                ("twice", "page"),
                ("sub/up", "page"),
                ("sub/deep/up2", "page"),
                ("rooted", "leaf"),
                ("absolute", "leaf"),
                ("by-alias", "page"),
                ("folder/leaf", "leaf"),
                ("sub/whole/sub/whole/page", "page"),
            ] {
                assert_eq!(
                    read(&root, path).as_deref(),
                    Ok(text),
                    "{resolver:?} {path}"
                );
            }
            for (path, why) in [
                ("out", FileError::LinkLeaves),
                ("out-absolute", FileError::LinkLeaves),
                ("out-prefix", FileError::LinkLeaves),
                ("out-over", FileError::LinkLeaves),
                ("passwd", FileError::LinkLeaves),
                ("magic", FileError::LinkLeaves),
                ("parent/secret/key", FileError::LinkLeaves),
                ("../secret/key", FileError::LinkLeaves),
                ("loop", FileError::NotFound),
                ("ping", FileError::NotFound),
                ("page/x", FileError::NotFound),
                ("nothing", FileError::NotFound),
            ] {
                assert_eq!(read(&root, path), Err(why), "{resolver:?} {path}");
            }
        }
        let follow = SiteRoot::open(&public, Symlinks::Follow, None).expect("opens");
        assert_eq!(read(&follow, "out").as_deref(), Ok("SECRET"));
    }

    #[test]
    fn a_fifo_or_socket_is_not_opened() {
        let place = tempfile::tempdir().expect("a folder");
        let meta = FileMeta {
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            ino: 0,
            dev: 0,
        };
        let _socket =
            std::os::unix::net::UnixListener::bind(place.path().join("socket")).expect("bound");
        rustix::fs::mknodat(
            CWD,
            place.path().join("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .expect("made");
        for resolver in BOTH {
            let root =
                SiteRoot::open(place.path(), Symlinks::Inside, Some(resolver)).expect("opens");
            for name in ["socket", "fifo", ""] {
                let refused = root.open_file(name.as_bytes(), &meta).err();
                assert_eq!(refused, Some(FileError::NotFound), "{resolver:?} {name}");
            }
        }
    }

    /// A thread keeps swapping a folder with a link to the outside; no read returns content from outside.
    #[test]
    fn concurrent_link_swaps_never_lead_outside() {
        let place = tempfile::tempdir().expect("a folder");
        let public = place.path().join("public");
        fs::create_dir_all(public.join("a/b")).expect("made");
        fs::create_dir_all(place.path().join("secret/b")).expect("made");
        fs::write(public.join("a/b/file"), "open").expect("made");
        fs::write(place.path().join("secret/b/file"), "SECRET").expect("made");
        symlink("../secret", public.join("trap")).expect("made");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let swap = rustix::fs::RenameFlags::EXCHANGE;
                    let (one, other) = (public.join("a"), public.join("trap"));
                    if rustix::fs::renameat_with(CWD, one, CWD, other, swap).is_err() {
                        break;
                    }
                }
            });
            for resolver in BOTH {
                let root =
                    SiteRoot::open(&public, Symlinks::Inside, Some(resolver)).expect("opens");
                for _ in 0..10_000 {
                    if let Ok(text) = read(&root, "a/b/file") {
                        assert_eq!(text, "open", "{resolver:?}");
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
