//! Accounts of the machine, and the rights of an account to files.
//!
//! `/etc/passwd` and `/etc/group` are read directly: a static binary has no name service, and the
//! accounts that servers run under are local.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use base::sys::{self, UserIds};

/// Account to drop to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixAccount {
    /// Name as configured: a name or a number.
    pub name: String,
    /// User ID.
    pub uid: u32,
    /// ID of the primary group.
    pub gid: u32,
    /// Name of the primary group, or the ID of a group without a name.
    pub group: String,
    /// IDs of all groups, the primary group included.
    pub groups: Vec<u32>,
}

impl UnixAccount {
    /// Looks up a name, a uid or `uid:gid`; `None` if the account doesn't exist.
    pub(crate) fn find(name: &str) -> Option<UnixAccount> {
        let read = |path| std::fs::read(path).unwrap_or_default();
        let passwd = String::from_utf8_lossy(&read("/etc/passwd")).into_owned();
        let group = String::from_utf8_lossy(&read("/etc/group")).into_owned();
        UnixAccount::find_in(name, &passwd, &group)
    }

    /// Returns the name of the account with a uid, or the uid as text for an account without a name.
    pub(crate) fn name_of(uid: u32) -> String {
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        name_in(uid, &String::from_utf8_lossy(&passwd)).unwrap_or_else(|| uid.to_string())
    }

    pub(super) fn find_in(name: &str, passwd: &str, group: &str) -> Option<UnixAccount> {
        let numbers = match name.split_once(':') {
            Some((uid, gid)) => Some((uid.parse::<u32>().ok()?, Some(gid.parse::<u32>().ok()?))),
            None => name.parse::<u32>().ok().map(|uid| (uid, None)),
        };
        // passwd(5): name:password:UID:GID:GECOS:directory:shell
        let line = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| {
                let uid = fields.get(2).and_then(|uid| uid.parse::<u32>().ok());
                match numbers {
                    Some((number, _)) => uid == Some(number),
                    None => fields[0] == name && uid.is_some(),
                }
            });
        let (login, uid, gid) = match (line, numbers) {
            (Some(line), numbers) => {
                let gid = numbers.and_then(|(_, gid)| gid);
                let own = line.get(3).and_then(|gid| gid.parse().ok());
                (line[0].to_owned(), line.get(2)?.parse().ok()?, gid.or(own)?)
            }
            // A container may have no passwd file at all: numeric IDs are enough.
            (None, Some((uid, gid))) => (String::new(), uid, gid.unwrap_or(uid)),
            (None, None) => return None,
        };
        let mut groups = vec![gid];
        let mut group_name = gid.to_string();
        // group(5): name:password:GID:members
        for fields in group
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
        {
            let [name, _, number, members, ..] = fields.as_slice() else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            if number == gid {
                group_name = (*name).to_owned();
            }
            if !login.is_empty()
                && members.split(',').any(|member| member == login)
                && !groups.contains(&number)
            {
                groups.push(number);
            }
        }
        Some(UnixAccount {
            name: name.to_owned(),
            uid,
            gid,
            group: group_name,
            groups,
        })
    }

    /// Returns true if owner, group and mode give the account the rights in `bits` (4 read, 2 write, 1
    /// enter).
    fn may(&self, metadata: &std::fs::Metadata, bits: u32) -> bool {
        if self.uid == 0 {
            return true;
        }
        let shift = if metadata.uid() == self.uid {
            6
        } else if self.groups.contains(&metadata.gid()) {
            3
        } else {
            0
        };
        (metadata.mode() >> shift) & bits == bits
    }

    /// Returns the first part of a path where the account lacks the rights, if any: a folder above that
    /// the account can't enter, or the file itself without `bits` (4 read, 2 write, 1 enter or run). Root asks the
    /// kernel with the ids of the account, so access control lists count too. Other users compare the mode bits.
    pub(crate) fn stopped_at(&self, path: &Path, bits: u32) -> Option<PathBuf> {
        // Links are resolved as by the kernel, unless the process may not enter the path.
        let real = match path.canonicalize() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => path.to_owned(),
            real => real.ok()?,
        };
        let first = |may: &dyn Fn(&Path, u32) -> Option<bool>| {
            let mut above: Vec<&Path> = real.ancestors().skip(1).collect();
            above.reverse();
            for folder in above {
                if !may(folder, 1)? {
                    return Some(folder.to_owned());
                }
            }
            (!may(&real, bits)?).then(|| path.to_owned())
        };
        let ids = UserIds {
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
        };
        let by_kernel = || first(&|path, bits| Some(is_granted(path, bits)));
        if sys::is_root()
            && self.uid != 0
            && let Ok(stop) = sys::with_user(&ids, by_kernel)
        {
            return stop;
        }
        first(&|path, bits| Some(self.may(&std::fs::metadata(path).ok()?, bits)))
    }
}

/// Returns false if the kernel refuses the calling thread the rights in `bits` (4 read, 2 write, 1 enter or run) for
/// want of permissions.
fn is_granted(path: &Path, bits: u32) -> bool {
    let asked = accessed(path, bits, AtFlags::empty());
    !matches!(asked, Err(Errno::ACCESS))
}

/// Asks the kernel for the rights in `bits` (4 read, 2 write, 1 enter or run).
pub(super) fn accessed(path: &Path, bits: u32, flags: AtFlags) -> Result<(), Errno> {
    let mut access = Access::EXISTS;
    for (bit, flag) in [
        (4, Access::READ_OK),
        (2, Access::WRITE_OK),
        (1, Access::EXEC_OK),
    ] {
        if bits & bit != 0 {
            access |= flag;
        }
    }
    accessat(CWD, path, access, flags)
}

/// Returns the name of a uid in the text of passwd(5).
fn name_in(uid: u32, passwd: &str) -> Option<String> {
    let mut accounts = passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name, fields.nth(1)?.parse::<u32>().ok()?))
    });
    let found = accounts.find(|(name, number)| *number == uid && !name.is_empty());
    found.map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_uid_is_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:33::/:\n";
        assert_eq!(name_in(33, passwd).as_deref(), Some("web"));
        assert_eq!(name_in(0, passwd).as_deref(), Some("root"));
        assert_eq!(name_in(1, passwd), None);
    }
}
