//! Files of the state folder are written whole: whoever reads them, and whenever the power goes,
//! finds the old content or the new one.

use crate::base::trusted_path::FOLDER;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

/// Writes `content` beside `path` with permissions `mode`, brings it to the disk and renames it
/// into place. Folders that are missing are made, closed to others.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_for(path, content, mode, None)
}

/// Replaces a file whole, with a file that belongs to this user and group from its first moment. Root
/// gives the file away while the file is open: the folder may belong to that user, and by then the path
/// could lead to another file.
pub fn write_for(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // Opened once: the draft and the file are in the same folder, even if the path changes.
    let folder = openat(
        CWD,
        folder,
        FOLDER.difference(OFlags::NOFOLLOW),
        Mode::empty(),
    )?;
    // Another thread, of whichever process, may be writing the same.
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let draft = format!(".{}.{thread}", name.to_string_lossy());
    let draft = OsStr::new(&draft);
    let written = write_new(&folder, draft, content, mode, owner)
        .and_then(|()| Ok(renameat(&folder, draft, &folder, name)?));
    if written.is_err() {
        let _ = unlinkat(&folder, draft, AtFlags::empty()); // the first error is the one to tell
        return written;
    }
    // The rename itself; file systems that can't sync a folder do without.
    let _ = fsync(&folder);
    Ok(())
}

fn write_new(
    folder: &OwnedFd,
    name: &OsStr,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    // One left over from a crash may have other permissions.
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, name, flags, Mode::from_raw_mode(mode))?);
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid))?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// Reads a file that was written so. A pipe, which its folder's owner could have put there to hold up
/// the reader, is not waited for.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn replaces_whole_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file");
        write(&path, b"one", 0o600).unwrap();
        write(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn several_may_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            let path = &path;
            for nth in 0..8_u8 {
                scope.spawn(move || (0..50).for_each(|_| write(path, &[nth; 100], 0o600).unwrap()));
            }
        });
        let content = fs::read(&path).unwrap();
        assert!(content.len() == 100 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(write(&path, b"one", 0o600).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
