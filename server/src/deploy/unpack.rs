//! Unpacking of a commit's tree from git's tar archive into a private folder. No file is written through a
//! symbolic link, no link leads out of the tree, and the tree is synced before the root leads to the tree.

use crate::deploy::error::DeployError;
use crate::deploy::limits::{DEPLOY_FSYNC_FILES_MAX, DEPLOY_LINKS_MAX};
use base::tar::{TarEntry, TarEntryKind, TarReader, invalid_data};
use base::visible_text::shortened;
use data_plane::site::{FileError, SiteRoot, Symlinks};
use release::limits::FOLDER_DEPTH_MAX;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Size of an unpacked tree.
#[derive(Debug, Default)]
pub(super) struct UnpackedTree {
    /// Number of files.
    pub(super) files: u64,
    /// Total bytes of the files.
    pub(super) bytes: u64,
}

/// Unpacks the archive into `to`, an existing empty folder. A file identical to the file of the same name
/// in `before`, the tree served now, keeps the modification time. Without `before`, the tree is not served from
/// the folder, and is not synced.
pub(super) fn unpack(
    input: impl Read,
    to: &Path,
    before: Option<&Path>,
    bounds: TreeLimits,
) -> Result<UnpackedTree, DeployError> {
    let mut tree = TreeWriter {
        to,
        before,
        bounds,
        last: Vec::new(),
        links: Vec::new(),
        folders: vec![to.to_owned()],
        entries: 0,
        unpacked: UnpackedTree::default(),
        buffers: Default::default(),
    };
    let mut input = TarReader::of_git(BufReader::with_capacity(BUFFER_BYTES, input));
    while let Some(entry) = input.next_entry().map_err(|error| broken(&error))? {
        tree.add(&mut input, &entry)?;
    }
    tree.check_links()?;
    let at = |error: io::Error| DeployError::on_disk(TREE, to, &error);
    fs::set_permissions(to, Permissions::from_mode(FOLDER_MODE)).map_err(at)?;
    tree.sync().map_err(at)?;
    Ok(tree.unpacked)
}

/// Returns the error for a malformed or truncated archive.
fn broken(error: &io::Error) -> DeployError {
    DeployError::new(format!("git's archive: {error}"))
}

/// Largest deployable tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeLimits {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// Name of the tree's folder in messages to the client of the push.
const TREE: &str = "the folder of the new tree";
const BUFFER_BYTES: usize = 64 * 1024;
/// Mode of folders. The account that serves or runs the files may be another account.
const FOLDER_MODE: u32 = 0o755;

struct TreeWriter<'t> {
    to: &'t Path,
    before: Option<&'t Path>,
    bounds: TreeLimits,
    /// Path of the folder created last. The path contains no symbolic link, and each further entry belongs
    /// to a folder on the path, because git walks a tree folder by folder.
    last: Vec<u8>,
    links: Vec<Vec<u8>>,
    /// Paths of the created folders, recorded only in a small tree.
    folders: Vec<PathBuf>,
    entries: u64,
    unpacked: UnpackedTree,
    buffers: [Vec<u8>; 2],
}

impl TreeWriter<'_> {
    fn add(&mut self, input: &mut impl Read, entry: &TarEntry) -> Result<(), DeployError> {
        self.count(entry)?;
        if !self.is_made(parent(&entry.name)) {
            return Err(broken(&invalid_data("an entry outside of the folders")));
        }
        let place = self.to.join(OsStr::from_bytes(&entry.name));
        let shown = Path::new(OsStr::from_bytes(&entry.name));
        let at = |error: io::Error| DeployError::at(shown, &error);
        match entry.kind {
            TarEntryKind::Folder => {
                DirBuilder::new().mode(0o700).create(&place).map_err(at)?;
                let mode = Permissions::from_mode(FOLDER_MODE);
                fs::set_permissions(&place, mode).map_err(at)?;
                self.last.clone_from(&entry.name);
                if self.is_small() {
                    self.folders.push(place);
                }
            }
            TarEntryKind::Link => {
                if !stays_inside(&entry.name, &entry.link) {
                    return Err(leaves(&entry.name, &entry.link));
                }
                symlink(OsStr::from_bytes(&entry.link), &place).map_err(at)?;
                self.links.push(entry.name.clone());
            }
            TarEntryKind::File => {
                self.file(input, entry, &place)?;
                self.unpacked.files += 1;
                self.unpacked.bytes += entry.size;
            }
        }
        Ok(())
    }

    /// Returns true if the folder was created from the archive. The empty name is the tree itself.
    fn is_made(&self, folder: &[u8]) -> bool {
        let rest = self.last.strip_prefix(folder);
        folder.is_empty() || rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    }

    fn count(&mut self, entry: &TarEntry) -> Result<(), DeployError> {
        let TreeLimits { entries, bytes } = self.bounds;
        self.entries += 1;
        if self.entries > entries {
            let what = format!("the tree has more than {entries} files (the limit `deploy_files`)");
            return Err(DeployError::new(what));
        }
        let depth = entry.name.iter().filter(|byte| **byte == b'/').count();
        if depth > FOLDER_DEPTH_MAX {
            let what = format!("folders are nested more than {FOLDER_DEPTH_MAX} deep");
            return Err(DeployError::new(what));
        }
        if entry.kind == TarEntryKind::Link && self.links.len() == DEPLOY_LINKS_MAX {
            let what = format!("the tree has more than {DEPLOY_LINKS_MAX} links");
            return Err(DeployError::new(what));
        }
        if entry.size > bytes - self.unpacked.bytes {
            let what = format!("the tree has more than {bytes} bytes (the limit `deploy_bytes`)");
            return Err(DeployError::new(what));
        }
        Ok(())
    }

    fn file(
        &mut self,
        input: &mut impl Read,
        entry: &TarEntry,
        place: &Path,
    ) -> Result<(), DeployError> {
        let shown = Path::new(OsStr::from_bytes(&entry.name));
        let at = |error: io::Error| DeployError::at(shown, &error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(place).map_err(at)?;
        let mut before = match self.before {
            Some(before) => PreviousFile::open(&before.join(shown), entry.size),
            None => PreviousFile(None),
        };
        let [new, old] = &mut self.buffers;
        new.resize(BUFFER_BYTES, 0);
        old.resize(BUFFER_BYTES, 0);
        loop {
            let length = input.read(new).map_err(|error| broken(&error))?;
            if length == 0 {
                break;
            }
            file.write_all(&new[..length]).map_err(at)?;
            before = before.filter_same(&new[..length], &mut old[..length]);
        }
        let mode = if entry.mode & 0o100 == 0 {
            0o644
        } else {
            0o755
        };
        file.set_permissions(Permissions::from_mode(mode))
            .map_err(at)?;
        if let PreviousFile(Some((_, modified))) = before {
            // A time unsupported by the file system is no reason to fail.
            let _ = file.set_modified(modified);
        }
        if self.is_small() && self.before.is_some() {
            file.sync_all().map_err(at)?;
        }
        Ok(())
    }

    /// Returns true if the tree has few enough files to sync each file. syncfs(2) would also wait for the
    /// writes of other processes.
    fn is_small(&self) -> bool {
        self.entries <= DEPLOY_FSYNC_FILES_MAX
    }

    fn sync(&self) -> io::Result<()> {
        if self.before.is_none() {
            return Ok(());
        }
        if !self.is_small() {
            return Ok(rustix::fs::syncfs(File::open(self.to)?)?);
        }
        let mut folders = self.folders.iter();
        folders.try_for_each(|folder| File::open(folder)?.sync_all())
    }

    /// Checks the targets of all links as the kernel resolves the links: several links together may lead
    /// further up than each single link.
    fn check_links(&self) -> Result<(), DeployError> {
        let root = SiteRoot::open(self.to, Symlinks::Inside, None);
        let root = root.map_err(|error| DeployError::on_disk(TREE, self.to, &error))?;
        for link in &self.links {
            match root.open_handle(link) {
                Ok(_) | Err(FileError::NotFound) => {}
                Err(FileError::LinkLeaves) => return Err(leaves(link, b"")),
                Err(why) => {
                    let shown = shortened(link);
                    return Err(DeployError::new(format!(
                        "{shown}: {}",
                        why.reject().reason
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of the folder of an entry.
fn parent(name: &[u8]) -> &[u8] {
    let slash = name.iter().rposition(|byte| *byte == b'/');
    &name[..slash.unwrap_or(0)]
}

fn leaves(link: &[u8], to: &[u8]) -> DeployError {
    let (link, to) = (shortened(link), shortened(to));
    let to = if to.is_empty() {
        String::new()
    } else {
        format!(", to {to}")
    };
    DeployError::new(format!("the link {link} leads out of the tree{to}"))
}

/// Returns true if the link's target stays in the tree, judged by the text alone.
fn stays_inside(name: &[u8], target: &[u8]) -> bool {
    let above = name.iter().filter(|byte| **byte == b'/').count();
    let parts = target.split(|byte| *byte == b'/');
    let depth = parts.into_iter().try_fold(above, |depth, part| match part {
        b"" | b"." => Some(depth),
        b".." => depth.checked_sub(1),
        _ => Some(depth + 1),
    });
    !target.starts_with(b"/") && depth.is_some()
}

/// Open file of the same name in the current tree, and the modification time, while the content is equal so
/// far.
struct PreviousFile(Option<(File, SystemTime)>);

impl PreviousFile {
    fn open(place: &Path, size: u64) -> PreviousFile {
        let open = || {
            let metadata = fs::symlink_metadata(place).ok()?;
            if !metadata.is_file() || metadata.len() != size {
                return None;
            }
            Some((File::open(place).ok()?, metadata.modified().ok()?))
        };
        PreviousFile(open())
    }

    /// Compares the next bytes of the file with `new`. `old` is a buffer of the same length.
    fn filter_same(self, new: &[u8], old: &mut [u8]) -> PreviousFile {
        PreviousFile(self.0.filter(|(file, _)| {
            let mut file = file;
            file.read_exact(old).is_ok() && old == new
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use base::tar::{END, head, padding};

    const BOUNDS: TreeLimits = TreeLimits {
        entries: 10,
        bytes: 1_000,
    };

    fn entry(name: &str, kind: TarEntryKind, content: &[u8]) -> Vec<u8> {
        let is_link = kind == TarEntryKind::Link;
        let mut out = head(&TarEntry {
            name: name.as_bytes().to_vec(),
            kind,
            mode: 0o644,
            modified: 0,
            size: if is_link { 0 } else { content.len() as u64 },
            link: if is_link {
                content.to_vec()
            } else {
                Vec::new()
            },
        });
        if !is_link {
            out.extend_from_slice(content);
            out.resize(out.len() + padding(content.len() as u64), 0);
        }
        out
    }

    fn unpacked(entries: &[Vec<u8>]) -> Result<tempfile::TempDir, String> {
        let folder = tempfile::tempdir().unwrap();
        let bytes = [entries.concat(), END.to_vec()].concat();
        let unpacked = unpack(
            &bytes[..],
            folder.path(),
            Some(Path::new("/nowhere")),
            BOUNDS,
        );
        unpacked.map_err(|failure| failure.to_string())?;
        Ok(folder)
    }

    #[test]
    fn link_targets_outside_of_the_tree_are_detected() {
        for (name, target) in [
            ("a", "b"),
            ("a", "./b/../c"),
            ("d/a", "../b"),
            ("d/a", ".."),
        ] {
            assert!(
                stays_inside(name.as_bytes(), target.as_bytes()),
                "{name} {target}"
            );
        }
        for (name, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a", "../b"),
            ("d/a", "../../b"),
            ("a", "b/../../c"),
        ] {
            assert!(
                !stays_inside(name.as_bytes(), target.as_bytes()),
                "{name} {target}"
            );
        }
    }

    #[test]
    fn chained_links_cannot_leave_the_tree() {
        let link = |name, to: &str| entry(name, TarEntryKind::Link, to.as_bytes());
        let folder = |name| entry(name, TarEntryKind::Folder, b"");
        // Each link alone stays inside: `up` leads to the top, and `out` one folder higher.
        let all = [
            folder("a"),
            folder("a/b"),
            link("a/b/up", "../.."),
            link("out", "a/b/up/.."),
        ];
        let message = unpacked(&all).unwrap_err();
        assert!(message.contains("out leads out of the tree"), "{message}");
        assert!(unpacked(&all[..3]).is_ok());
        assert!(unpacked(&[link("dangling", "none")]).is_ok());
        assert!(unpacked(&[link("loop", "loop")]).is_ok());
    }

    #[test]
    fn nothing_is_written_through_a_link_or_twice() {
        let outside = tempfile::tempdir().unwrap();
        let folder = entry("d", TarEntryKind::Folder, b"");
        for bad in [
            vec![
                entry("d", TarEntryKind::Link, b"."),
                entry("d/f", TarEntryKind::File, b"x"),
            ],
            vec![
                entry("f", TarEntryKind::File, b"x"),
                entry("f", TarEntryKind::File, b"y"),
            ],
            vec![
                entry("f", TarEntryKind::Link, b"g"),
                entry("f", TarEntryKind::File, b"y"),
            ],
            vec![folder.clone(), folder.clone()],
            vec![entry("none/f", TarEntryKind::File, b"x")],
            vec![folder.clone(), entry("dd/f", TarEntryKind::File, b"x")],
            vec![folder.clone(), entry("d/e/f", TarEntryKind::File, b"x")],
            vec![
                folder.clone(),
                entry("e", TarEntryKind::Folder, b""),
                entry("d/f", TarEntryKind::File, b"x"),
            ],
        ] {
            assert!(unpacked(&bad).is_err());
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn trees_above_the_limits_are_refused() {
        let large = entry("f", TarEntryKind::File, &[7; 1_001]);
        assert!(unpacked(&[large]).unwrap_err().contains("deploy_bytes"));
        let half = |name| entry(name, TarEntryKind::File, &[7; 600]);
        assert!(
            unpacked(&[half("a"), half("b")])
                .unwrap_err()
                .contains("deploy_bytes")
        );
        let many: Vec<_> = (0..11)
            .map(|nth| entry(&format!("{nth}"), TarEntryKind::Folder, b""))
            .collect();
        assert!(unpacked(&many).unwrap_err().contains("deploy_files"));
        assert!(unpacked(&many[..10]).is_ok());
    }

    #[test]
    fn unchanged_files_keep_their_modification_time() {
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        for name in ["same", "other", "longer"] {
            fs::write(before.path().join(name), "one").unwrap();
            let file = File::options()
                .write(true)
                .open(before.path().join(name))
                .unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let bytes = [
            entry("same", TarEntryKind::File, b"one"),
            entry("other", TarEntryKind::File, b"two"),
            entry("longer", TarEntryKind::File, b"three"),
            END.to_vec(),
        ]
        .concat();
        unpack(&bytes[..], after.path(), Some(before.path()), BOUNDS).unwrap();
        let is_old = |name| {
            let modified = after
                .path()
                .join(name)
                .metadata()
                .unwrap()
                .modified()
                .unwrap();
            modified == long_ago
        };
        assert!(is_old("same") && !is_old("other") && !is_old("longer"));
    }
}
