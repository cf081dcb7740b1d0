//! Trusted paths: a path resolved once into a descriptor, together with the users that could have led the
//! path elsewhere.
//!
//! A command run by root names files by path. A user that may write a folder on the way can put a link,
//! or another folder, in the place of the next name, and the kernel follows with the rights of root. So
//! root resolves a path here, name by name and without following links blindly, and keeps the last folder
//! open. Root refuses the path if the end belongs to another user than the users that could have chosen
//! the end. OpenSSH checks `authorized_keys` for the same reason (`StrictModes`).

use crate::heap_sort::sort;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fgetxattr_query, fstat, mkdirat, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Treatment of the last name of a path, if the name is a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastLink {
    /// Resolves the link, so the result names the target.
    Follow,
    /// Keeps the link itself.
    Keep,
}

/// Treatment of a missing folder above the last name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingFolder {
    /// Resolving fails with ENOENT.
    Fail,
    /// Makes the folder, with the permissions that the umask leaves.
    Make,
}

/// A path with an open folder: operations by the descriptor happen in the folder, even if the path
/// changes meanwhile.
#[derive(Debug)]
pub struct TrustedPath {
    /// The folder of the last name, opened with `O_PATH`.
    folder: OwnedFd,
    /// The last name.
    name: OsString,
    /// The path of the folder without links, for messages.
    shown: PathBuf,
    /// The users that can change the folders or links on the way.
    writers: Vec<PathController>,
}

/// A user that can change the way to a file, and the place of the change.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PathController {
    writer: Principal,
    /// The first folder that the user can change, or the user's own entry in a sticky folder.
    at: PathBuf,
    /// True if `at` is an entry in a sticky folder.
    is_entry: bool,
    /// The first symbolic link that the user could have made, and its target.
    link: Option<(PathBuf, PathBuf)>,
}

/// A user other than root, or several users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Principal {
    User(u32),
    /// A group with unknown members: the group is not in `/etc/group`.
    Group(u32),
    Everyone,
}

/// Error for a path that root must not use: another user could have led the path to a place of that
/// user's choice.
#[derive(Debug, PartialEq, Eq)]
pub struct UntrustedPath {
    /// The resolved path.
    pub path: PathBuf,
    /// The permitted owner of the path.
    owner: u32,
    lead: PathController,
}

impl fmt::Display for UntrustedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathController {
            writer,
            at,
            is_entry,
            link,
        } = &self.lead;
        match link {
            Some((link, target)) => {
                let (link, target) = (link.display(), target.display());
                write!(f, "{link} is a link to {target}, which root must not use: ")?;
            }
            None => write!(f, "root must not use {}: ", self.path.display())?,
        }
        let at = at.display();
        if *is_entry {
            write!(f, "{at} belongs to {writer}")
        } else {
            write!(
                f,
                "{at} can be changed by {writer}, so the path could be redirected"
            )
        }
    }
}

impl std::error::Error for UntrustedPath {}

impl UntrustedPath {
    /// Tells the operator how to run the command without root, as far as possible, or else how to avoid
    /// the refusal. No other mode for a folder on the way is proposed, because the folder may be a home
    /// folder, `/` or `/tmp`. `needs` names the rights that the owner needs.
    pub fn help(&self, needs: &str) -> String {
        let other = match (&self.lead.link, self.lead.is_entry) {
            (Some((link, _)), _) => {
                format!(
                    "remove {} or use the path of the link's target",
                    link.display()
                )
            }
            (None, true) => format!("remove {} or use another path", self.lead.at.display()),
            (None, false) => {
                "move the file to a place such as /srv, where only root and the owner can change \
                 the folders above"
                    .to_owned()
            }
        };
        match as_user(self.owner) {
            Some(command) if !self.lead.is_entry => {
                format!("run the command as the owner{needs}: {command}; or {other}")
            }
            _ => other,
        }
    }
}

/// Returns the command line of the process for a shell, to be run as user `uid`; `None` if the user is
/// root.
fn as_user(uid: u32) -> Option<String> {
    let user = match user_name(uid) {
        _ if uid == 0 => return None,
        Some(name) => name,
        None => format!("#{uid}"),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(&byte);
    let quoted = |word: &str| {
        if !word.is_empty() && word.bytes().all(is_plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    let mut command = format!("sudo -u {}", quoted(&user));
    for word in std::env::args_os() {
        command.push(' ');
        command.push_str(&quoted(&word.to_string_lossy()));
    }
    Some(command)
}

impl TrustedPath {
    /// Resolves a path as the kernel does, and records the users that can change the way.
    pub fn resolve(path: &Path, last: LastLink, missing: MissingFolder) -> io::Result<TrustedPath> {
        PathWalk::begin(path)?.finish(last, missing)
    }

    /// Fails if the process is root and a user other than root and `owner` could have chosen the end of
    /// the path. `owner` is the present or future owner of the file at the end. The owner gains nothing,
    /// since every operation at the end applies to the owner's own file.
    pub fn must_be_controlled_by(&self, owner: u32) -> Result<(), UntrustedPath> {
        let foreign = |lead: &&PathController| lead.writer != Principal::User(owner);
        match self.writers.iter().find(foreign) {
            Some(lead) if super::sys::is_root() => Err(UntrustedPath {
                path: self.path(),
                owner,
                lead: lead.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the folder of the last name.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Returns the last name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the whole path, with links resolved.
    pub fn path(&self) -> PathBuf {
        self.shown.join(&self.name)
    }

    /// Returns the path of another name in the folder.
    pub fn beside(&self, name: &OsStr) -> PathBuf {
        self.shown.join(name)
    }

    /// Returns the status of the file at the end, without following a link; `None` if no file exists.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks a file that root may have made in a folder of another user. Fails if a user other than root
    /// and the owner of the folder could have chosen the end of the path.
    pub fn must_stay_with_its_folder(&self) -> io::Result<Result<(), UntrustedPath>> {
        Ok(self.must_be_controlled_by(fstat(&self.folder)?.st_uid))
    }

    /// Returns true if users other than the owner of the folder may put names into it, as into `/tmp`.
    pub fn lies_in_shared_folder(&self) -> io::Result<bool> {
        Ok(is_shared(&fstat(&self.folder)?))
    }

    /// Returns true if a file opened by the path may be a hard link planted by another user.
    pub fn may_be_planted(&self, file: &Stat) -> io::Result<bool> {
        Ok(super::sys::is_root() && may_be_planted(&fstat(&self.folder)?, file))
    }

    /// Returns the owner and group of the file at the end, or of the folder if no file exists.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let stat = match self.stat()? {
            Some(stat) => stat,
            None => fstat(&self.folder)?,
        };
        Ok((stat.st_uid, stat.st_gid))
    }

    /// Opens the last name, which must be no link.
    pub fn open(&self, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, &self.name, flags, mode)?)
    }

    /// Writes the names of the folder to the disk; errors of file systems without support are ignored.
    pub fn sync(&self) {
        let folder = openat(&self.folder, ".", FOLDER, Mode::empty());
        let _ = folder.and_then(rustix::fs::fsync);
    }
}

/// Flags to open a folder for reading, without following a link.
pub const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Most links followed in one path, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// State of resolving a path.
struct PathWalk {
    folder: OwnedFd,
    shown: PathBuf,
    rest: VecDeque<OsString>,
    links: usize,
    writers: Vec<PathController>,
    accounts: Option<Accounts>,
}

impl PathWalk {
    fn begin(path: &Path) -> io::Result<PathWalk> {
        let mut walk = PathWalk {
            folder: root()?,
            shown: PathBuf::from("/"),
            rest: VecDeque::new(),
            links: 0,
            writers: Vec::new(),
            // Only root reads the files of accounts. With the rights of another user, a path leads
            // nowhere beyond the reach of that user.
            accounts: super::sys::is_root().then(Accounts::read),
        };
        walk.push(&std::path::absolute(path)?);
        let stat = fstat(&walk.folder)?;
        walk.note(&stat);
        Ok(walk)
    }

    /// Puts the names of a path before the remaining names.
    fn push(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.rest.push_front(name.to_owned()),
                Component::ParentDir => self.rest.push_front(OsString::from("..")),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn finish(mut self, last: LastLink, missing: MissingFolder) -> io::Result<TrustedPath> {
        while let Some(name) = self.rest.pop_front() {
            if name == ".." {
                let above = openat(&self.folder, "..", PLACE, Mode::empty())?;
                let stat = fstat(&above)?;
                self.enter(above, OsStr::new(".."), &stat);
                continue;
            }
            let is_last = self.rest.is_empty();
            let found = match openat(&self.folder, &name, ENTRY, Mode::empty()) {
                Ok(found) => found,
                Err(Errno::NOENT) if is_last => return Ok(self.end(name)),
                Err(Errno::NOENT) if missing == MissingFolder::Make => {
                    self.must_be_trusted(&name)?;
                    mkdirat(&self.folder, &name, Mode::from_raw_mode(0o777))?;
                    openat(&self.folder, &name, PLACE, Mode::empty())?
                }
                Err(error) => return Err(error.into()),
            };
            let stat = fstat(&found)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            // Only the owner of an entry in a sticky folder can replace the entry.
            let here = fstat(&self.folder)?;
            if is_shared(&here) && here.st_mode & STICKY != 0 {
                let entry = self.shown.join(&name);
                self.add(Principal::User(stat.st_uid), &entry, true);
            }
            match kind {
                FileType::Symlink if !is_last || last == LastLink::Follow => {
                    self.links += 1;
                    if self.links > LINKS_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    let target = readlinkat(&found, "", Vec::new())?.into_bytes();
                    let target = PathBuf::from(OsString::from_vec(target));
                    let link = (self.shown.join(&name), target.clone());
                    for lead in &mut self.writers {
                        lead.link.get_or_insert_with(|| link.clone());
                    }
                    if target.is_absolute() {
                        self.folder = root()?;
                        self.shown = PathBuf::from("/");
                    }
                    self.push(&target);
                }
                _ if is_last => return Ok(self.end(name)),
                FileType::Directory => self.enter(found, &name, &stat),
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        // A path that ends with `..` means the folder of the walk. `/` lies in no folder.
        let name = self.shown.file_name().map(OsStr::to_owned);
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        self.folder = openat(&self.folder, "..", PLACE, Mode::empty())?;
        self.shown.pop();
        Ok(self.end(name))
    }

    /// Fails if another user may have led root to the missing folder `name`: the owner of the end isn't
    /// known yet.
    fn must_be_trusted(&self, name: &OsStr) -> io::Result<()> {
        match self.writers.first() {
            Some(lead) if super::sys::is_root() => Err(io::Error::other(UntrustedPath {
                path: self.shown.join(name),
                owner: 0,
                lead: lead.clone(),
            })),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, folder: OwnedFd, name: &OsStr, stat: &Stat) {
        if name == ".." {
            self.shown.pop();
        } else {
            self.shown.push(name);
        }
        self.folder = folder;
        self.note(stat);
    }

    /// Records the users that may change the current folder of the walk.
    fn note(&mut self, stat: &Stat) {
        let here = self.shown.clone();
        self.add(Principal::User(stat.st_uid), &here, false);
        if stat.st_mode & STICKY != 0 || !is_shared(stat) {
            return;
        }
        // With an ACL the group bits are the mask (acl(5)): the ACL may name any user or group.
        if stat.st_mode & 0o002 != 0 || has_acl(&self.folder) {
            self.add(Principal::Everyone, &here, false);
        }
        if stat.st_mode & 0o020 != 0 {
            let accounts = self.accounts.as_ref();
            match accounts.and_then(|all| all.members(stat.st_gid)) {
                Some(members) => members
                    .into_iter()
                    .for_each(|uid| self.add(Principal::User(uid), &here, false)),
                None => self.add(Principal::Group(stat.st_gid), &here, false),
            }
        }
    }

    fn add(&mut self, writer: Principal, at: &Path, is_entry: bool) {
        let is_harmless = match writer {
            Principal::User(0) => true,
            Principal::User(uid) => self.accounts.as_ref().is_some_and(|all| all.is_beyond(uid)),
            Principal::Group(_) | Principal::Everyone => false,
        };
        if !is_harmless && !self.writers.iter().any(|known| known.writer == writer) {
            self.writers.push(PathController {
                writer,
                at: at.to_owned(),
                is_entry,
                link: None,
            });
        }
    }

    fn end(self, name: OsString) -> TrustedPath {
        TrustedPath {
            folder: self.folder,
            name,
            shown: self.shown,
            writers: self.writers,
        }
    }
}

const PLACE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const STICKY: u32 = 0o1000;

fn root() -> io::Result<OwnedFd> {
    Ok(openat(CWD, "/", PLACE, Mode::empty())?)
}

/// Returns true if users other than the owner may add and remove names in a folder.
pub(super) fn is_shared(stat: &Stat) -> bool {
    stat.st_mode & 0o022 != 0
}

/// Returns true if a folder has a POSIX ACL beyond the permission bits. A file system without extended attributes
/// has no ACLs.
pub(super) fn has_acl(folder: &OwnedFd) -> bool {
    // fgetxattr(2) refuses a descriptor with `O_PATH`.
    let open = openat(folder, ".", FOLDER, Mode::empty());
    match open.and_then(|open| fgetxattr_query(open, "system.posix_acl_access")) {
        Ok(length) => length > 0,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Err(_) => true,
    }
}

/// Returns true if a user other than root and the owner of the file may have put the name into the folder: a hard
/// link that leads root to a file of another user.
pub fn may_be_planted(folder: &Stat, file: &Stat) -> bool {
    let is_foreign = folder.st_uid != 0 && folder.st_uid != file.st_uid;
    file.st_nlink > 1 && (is_foreign || is_shared(folder))
}

/// Returns a user other than root and `user` that may write a file or a folder, by its owner, its permissions or its group,
/// as a noun; None if there is no such user. A group of `user` alone, as many systems make one for each user, is harmless.
/// POSIX ACLs show in the group's permissions (acl(5)).
pub fn other_writer(stat: &Stat, user: u32) -> Option<String> {
    let accounts = Accounts::read();
    let is_other = |uid: &u32| ![0, user].contains(uid) && !accounts.is_beyond(*uid);
    let writer = if is_other(&stat.st_uid) {
        Principal::User(stat.st_uid)
    } else if stat.st_mode & 0o002 != 0 {
        Principal::Everyone
    } else if stat.st_mode & 0o020 != 0 && stat.st_gid != 0 {
        match accounts.members(stat.st_gid) {
            Some(members) => Principal::User(members.into_iter().find(is_other)?),
            None => Principal::Group(stat.st_gid),
        }
    } else {
        return None;
    };
    Some(writer.to_string())
}

/// The accounts of the machine, as far as needed for the members of groups.
struct Accounts {
    passwd: String,
    group: String,
    /// The number that stands for users beyond the user namespace; `None` outside a user namespace.
    beyond: Option<u32>,
}

impl Accounts {
    fn read() -> Accounts {
        let read = |path| fs::read(path).unwrap_or_default();
        let text = |path| String::from_utf8_lossy(&read(path)).into_owned();
        Accounts {
            passwd: text("/etc/passwd"),
            group: text("/etc/group"),
            beyond: beyond(
                &text("/proc/self/uid_map"),
                &text("/proc/sys/kernel/overflowuid"),
            ),
        }
    }

    /// Returns true if `uid` stands for users beyond the user namespace. The root of a user namespace has no
    /// rights over files of users beyond the namespace, so an outside user cannot misuse the rights of
    /// root. The folders above a container's folders belong to outside users.
    fn is_beyond(&self, uid: u32) -> bool {
        self.beyond == Some(uid)
    }

    /// Returns the users of a group; `None` if the machine has no group `gid`.
    fn members(&self, gid: u32) -> Option<Vec<u32>> {
        // group(5): name:password:GID:members
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let group = self.group.lines().map(fields);
        let mut group = group.filter(|it| it.get(2).and_then(|it| it.parse().ok()) == Some(gid));
        let listed = group.next()?.get(3).cloned().unwrap_or_default();
        // passwd(5): name:password:UID:GID
        let users = self.passwd.lines().map(fields);
        let own = users.filter(|user| {
            let is_first = user.get(3).and_then(|it| it.parse().ok()) == Some(gid);
            is_first || listed.split(',').any(|name| user[0] == name)
        });
        Some(own.filter_map(|user| user.get(2)?.parse().ok()).collect())
    }
}

fn beyond(uid_map: &str, overflow: &str) -> Option<u32> {
    let overflow: u32 = overflow.trim().parse().ok()?;
    let mut ranges = uid_map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|it| it.parse::<u64>().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(first..first + count)
    });
    let is_mapped = ranges.any(|range| range.contains(&u64::from(overflow)));
    (!uid_map.is_empty() && !is_mapped).then_some(overflow)
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::User(uid) => match user_name(*uid) {
                Some(name) => write!(f, "user `{name}`"),
                None => write!(f, "user {uid}"),
            },
            Principal::Group(gid) => write!(f, "group {gid}"),
            Principal::Everyone => f.write_str("every user"),
        }
    }
}

/// Returns the name of a user, from `/etc/passwd`.
pub fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Makes a folder that only the process may enter, at a path where no file exists. Root gives the folder
/// to `owner` by descriptor, because the path could name another folder by the time of the change. Fails
/// with `AlreadyExists` if the path exists. Fails if a user other than root and the owner of the folder
/// above could have led the path elsewhere.
pub fn make_private_folder(path: &TrustedPath, owner: Option<(u32, u32)>) -> io::Result<()> {
    path.must_stay_with_its_folder()?
        .map_err(io::Error::other)?;
    mkdirat(path.folder(), path.name(), Mode::RWXU)?;
    if let Some((uid, gid)) = owner {
        let made = path.open(FOLDER, Mode::empty())?;
        must_be_new(made.as_fd())?;
        std::os::unix::fs::fchown(&made, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Fails unless a folder is new, empty and closed to other users: the owner of the folder above could
/// have replaced the folder meanwhile.
pub fn must_be_new(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    let stat = fstat(folder)?;
    // A new folder inherits the set-group-ID bit from the parent folder.
    let is_closed = stat.st_mode & 0o5777 == 0o700;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
    let is_empty = || names(folder).is_ok_and(|names| names.is_empty());
    if is_closed && is_ours && is_empty() {
        Ok(())
    } else {
        Err(Errno::EXIST)
    }
}

/// Removes all entries of a folder, without following a link. `folder` is open for reading.
pub fn remove_entries(folder: BorrowedFd<'_>) -> io::Result<()> {
    for name in names(folder)? {
        match rustix::fs::unlinkat(folder, &*name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => {
                let inner = open_to_empty(folder, &name)?;
                remove_entries(inner.as_fd())?;
                rustix::fs::unlinkat(folder, &*name, AtFlags::REMOVEDIR)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn open_to_empty(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let open = match openat(folder, name, FOLDER, Mode::empty()) {
        // Root is never refused; another user changes at most a folder of that user's own.
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            openat(folder, name, FOLDER, Mode::empty())?
        }
        other => other?,
    };
    // A folder without the write permission cannot be emptied. Only root can change the mode of another
    // user's folder.
    let _ = rustix::fs::fchmod(&open, Mode::RWXU);
    Ok(open)
}

/// Returns the names in a folder, sorted.
pub fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    sort(&mut names);
    Ok(names)
}

/// Opens a regular file for reading. `NONBLOCK` keeps a pipe from blocking: opening a pipe for reading
/// would otherwise wait until a program writes.
pub fn open_file(path: &TrustedPath) -> io::Result<(File, Stat)> {
    let file = path.open(OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((File::from(file), stat)),
        _ => Err(io::Error::other("not a regular file")),
    }
}
