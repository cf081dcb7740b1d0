//! Change of the owner of a folder with all files of root, for a server that gives its state folder to the account of the
//! service.
//!
//! Another account that can write to a folder may put a hard link to a file of root there, and a change of the owner would
//! then give that file away. Therefore only folders of root alone are changed, and folders inside that other accounts can
//! write to keep their files.

use super::trusted_path::{FOLDER, has_acl, is_shared, names};
use crate::limits::OWNED_FOLDER_DEPTH_MAX;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Uid, chownat, fchown, fstat, openat, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Account and group that become the owners of a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolderOwner {
    /// Id of the user.
    pub uid: u32,
    /// Id of the group, for files whose group is root's.
    pub gid: u32,
}

impl FolderOwner {
    /// Gives a folder of root, and all files of root inside, to the owner. The folder itself comes last, so the new owner
    /// has no access before, and an interrupted change is repeated. Files and groups of other accounts stay.
    pub fn take_over(self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.take_entries(folder, OWNED_FOLDER_DEPTH_MAX)?;
        let stat = fstat(folder)?;
        Ok(fchown(folder, Some(self.user()), self.group(&stat))?)
    }

    fn take_entries(self, folder: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for name in names(folder)? {
            let stat = match statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            if stat.st_uid != 0 {
                continue;
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let inner = openat(folder, &*name, FOLDER, Mode::empty())?;
                if depth > 0 && belongs_to_root_alone(&inner)? {
                    self.take_entries(inner.as_fd(), depth - 1)?;
                }
                fchown(&inner, Some(self.user()), self.group(&stat))?;
            } else {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                chownat(folder, &*name, Some(self.user()), self.group(&stat), flags)?;
            }
        }
        Ok(())
    }

    fn user(self) -> Uid {
        Uid::from_raw(self.uid)
    }

    /// Returns the new group of a file. A group other than root's was chosen by the operator, and stays.
    fn group(self, stat: &Stat) -> Option<Gid> {
        (stat.st_gid == 0).then(|| Gid::from_raw(self.gid))
    }
}

/// Returns true if a folder belongs to root and no other account can write to the folder.
pub fn belongs_to_root_alone(folder: &OwnedFd) -> io::Result<bool> {
    let stat = fstat(folder)?;
    Ok(stat.st_uid == 0 && !is_shared(&stat) && !has_acl(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    const OWNER: FolderOwner = FolderOwner {
        uid: 65_534,
        gid: 65_533,
    };

    #[test]
    fn files_of_root_get_the_owner_and_files_of_others_stay() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("acme/inner")).expect("folders");
        fs::create_dir(path("shared")).expect("a folder");
        for name in [
            "keys",
            "acme/inner/key",
            "shared/of-root",
            "foreign",
            "grouped",
        ] {
            fs::write(path(name), name).expect("a file");
        }
        fs::set_permissions(path("shared"), Permissions::from_mode(0o2770)).expect("a mode");
        chown(path("foreign"), Some(12_345), Some(12_345)).expect("an owner");
        chown(path("grouped"), None, Some(12_345)).expect("a group");
        let outside = tempfile::NamedTempFile::new().expect("a file");
        symlink(outside.path(), path("link")).expect("a link");

        let open = OwnedFd::from(File::open(folder.path()).expect("a folder"));
        assert!(belongs_to_root_alone(&open).expect("the metadata"));
        OWNER.take_over(open.as_fd()).expect("a new owner");

        let owners = |name: &str| {
            let stat = fs::symlink_metadata(path(name)).expect("metadata");
            (stat.uid(), stat.gid())
        };
        let new = (OWNER.uid, OWNER.gid);
        for name in [
            "",
            "keys",
            "acme",
            "acme/inner",
            "acme/inner/key",
            "shared",
            "link",
        ] {
            assert_eq!(owners(name), new, "{name}");
        }
        assert_eq!(owners("shared/of-root"), (0, 0));
        assert_eq!(owners("foreign"), (12_345, 12_345));
        assert_eq!(owners("grouped"), (OWNER.uid, 12_345));
        assert_eq!(outside.path().metadata().expect("metadata").uid(), 0);
        assert!(!belongs_to_root_alone(&open).expect("the metadata"));
    }
}
