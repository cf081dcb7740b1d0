//! Atomic replacement of files in the state folder. A reader finds either the old or the new content, even
//! after a power failure.

use crate::trusted_path::FOLDER;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

/// Writes `content` to a temporary file beside `path` with permissions `mode`, syncs the file to the disk
/// and renames it to `path`. Missing folders are created with mode 0700. The mode of the file does not depend on the
/// umask.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_for(path, content, mode, None)
}

/// Makes the folder of `path` with mode 0755, which does not depend on the umask, so that other accounts may read the
/// files. Missing folders above are created with mode 0700. A link in place of the folder is an error.
pub fn open_folder_to_all(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let folder = openat(CWD, folder, FOLDER, Mode::empty())?;
    Ok(fchmod(folder, Mode::from_raw_mode(0o755))?)
}

/// Replaces a file atomically with a file that belongs to `owner` (user and group). Ownership is set on the
/// open descriptor: the folder may belong to the same user, and by then the path could lead to another
/// file.
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
    // One descriptor of the folder for all steps: the temporary file and the final file are in the same
    // folder, even if the path changes meanwhile.
    let folder = openat(
        CWD,
        folder,
        FOLDER.difference(OFlags::NOFOLLOW),
        Mode::empty(),
    )?;
    // The thread id makes the name unique: a thread of any process may write the same file at the same
    // time.
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let draft = format!(".{}.{thread}", name.to_string_lossy());
    let draft = OsStr::new(&draft);
    let written = write_new(&folder, draft, content, mode, owner)
        .and_then(|()| Ok(renameat(&folder, draft, &folder, name)?));
    if written.is_err() {
        let _ = unlinkat(&folder, draft, AtFlags::empty()); // the first error is reported
        return written;
    }
    // Syncs the rename. File systems without sync for folders return an error, which is ignored.
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
    // A temporary file left over from a crash may have other permissions.
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let mut file = File::from(openat(folder, name, flags, mode)?);
    // The umask has limited the mode.
    fchmod(&file, mode)?;
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid))?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// Reads a file written by [`write`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_regular(path, OFlags::NOFOLLOW, u64::MAX)
}

/// Reads a text file of the operator, possibly by a link. A pipe or a device at the path is an error, so that the reader
/// neither waits for a writer nor reads without an end. A byte order mark, with which editors of Windows begin a text, is
/// left out.
///
/// # Errors
/// A file with more than `bytes_max` bytes has the error [`io::ErrorKind::FileTooLarge`].
pub fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut text = read_regular(path, OFlags::empty(), bytes_max)?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

/// UTF-8 of U+FEFF at the beginning of a text.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn read_regular(path: &Path, flags: OFlags, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    // Without NONBLOCK, the opening of a pipe waits for a writer.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    read_to_bound(file, bytes_max)
}

/// Reads an open file to its end.
///
/// # Errors
/// A file with more than `bytes_max` bytes has the error [`io::ErrorKind::FileTooLarge`].
pub fn read_to_bound(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let bytes = file
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut content)?;
    if bytes as u64 > bytes_max {
        let what = format!("the file is larger than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(content)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_write_replaces_the_file_and_leaves_no_temporary_file() {
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
    fn a_folder_is_opened_to_all_accounts_and_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("above/open/file");
        open_folder_to_all(&file).unwrap();
        let mode = |path: &str| {
            let metadata = fs::metadata(folder.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!([mode("above"), mode("above/open")], [0o700, 0o755]);
        std::os::unix::fs::symlink("above", folder.path().join("link")).unwrap();
        assert!(open_folder_to_all(&folder.path().join("link/file")).is_err());
        assert_eq!(mode("above"), 0o700);
    }

    #[test]
    fn the_reader_refuses_pipes_and_devices_and_files_that_are_too_large() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "12345").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mkfifo = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(mkfifo.unwrap().success());
        assert_eq!(read_bounded(&link, 5).unwrap(), b"12345");
        let marked = folder.path().join("marked");
        fs::write(&marked, b"\xef\xbb\xbfa\r\n\xef\xbb\xbf").unwrap();
        assert_eq!(read_bounded(&marked, 9).unwrap(), b"a\r\n\xef\xbb\xbf");
        let kind = |path: &Path| read_bounded(path, 4).map_err(|error| error.kind());
        assert_eq!(kind(&link), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(kind(folder.path()), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind(&pipe), Err(io::ErrorKind::Other));
        assert_eq!(kind(Path::new("/dev/zero")), Err(io::ErrorKind::Other));
        assert!(read(&link).is_err() && read(&file).is_ok());
    }

    #[test]
    fn concurrent_writers_leave_one_complete_content() {
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
    fn a_failed_write_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(write(&path, b"one", 0o600).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
