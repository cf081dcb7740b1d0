//! Reads a backup. All of it is unpacked beside where it belongs, in folders that nobody else may enter,
//! and verified; only then the folders change places. An archive that is wrong changes nothing.

use super::tar::{Kind, Reader, wrong};
use super::{ABOUT, Folder, HITS, MAGIC, SUMS, folders, sum_line};
use crate::base::digest::Digest;
use crate::config::{OperatorError, Site, reason};
use crate::limits::{BACKUP_ENTRIES_MAX, BACKUP_OWN_BYTES_MAX};
use flate2::bufread::GzDecoder;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What was restored.
#[derive(Debug, Default)]
pub struct Restored {
    /// Whose it was, by the first of its names.
    pub site: String,
    /// When it was saved, seconds since 1970.
    pub time: u64,
    /// Files.
    pub files: u64,
    /// The folders, as they are now.
    pub folders: Vec<PathBuf>,
    /// What was there before is kept here.
    pub kept: Vec<PathBuf>,
    /// The hit counts, as the state folder has them.
    pub hits: Option<Vec<u8>>,
}

/// Puts the archive's folders where `choose` says, by the name of its site, that this site has its own.
pub fn restore<'s>(
    archive: &Path,
    now: u64,
    choose: impl FnOnce(&str) -> Result<&'s Site, OperatorError>,
) -> Result<Restored, OperatorError> {
    let place = |about: &mut About| {
        let here = folders(choose(&about.site)?);
        for folder in &mut about.folders {
            let found = here.iter().find(|own| own.role == folder.role);
            let found = found.ok_or_else(|| {
                let what = format!("{} has a folder of `{}`", archive.display(), folder.role);
                OperatorError::failure(format!("{what}, for which the site here has no place"))
                    .help("give the site that route, or unpack the backup with --to FOLDER")
            })?;
            folder.place = found.place.clone();
        }
        Ok(())
    };
    let mut unpacked = read(archive, place)?;
    unpacked.swap(now)?;
    Ok(std::mem::take(&mut unpacked.restored))
}

/// Unpacks the archive's folders in `to`, which isn't there yet.
pub fn unpack(archive: &Path, to: &Path, now: u64) -> Result<Restored, OperatorError> {
    if to.symlink_metadata().is_ok() {
        let what = format!("{} is there already", to.display());
        return Err(OperatorError::failure(what).help("name a folder that isn't"));
    }
    let place = |about: &mut About| {
        fs::create_dir_all(to).map_err(|error| at(to, &error))?;
        for folder in &mut about.folders {
            folder.place = to.join(&folder.name);
        }
        Ok(())
    };
    let unpacked = read(archive, place).and_then(|mut unpacked| {
        unpacked.swap(now)?;
        Ok(std::mem::take(&mut unpacked.restored))
    });
    if unpacked.is_err() {
        let _ = fs::remove_dir(to); // only if we made it, and it is empty again
    }
    unpacked
}

fn at(place: &Path, error: &io::Error) -> OperatorError {
    OperatorError::failure(format!("{}: {}", place.display(), reason(error)))
}

/// What the first entry says.
struct About {
    site: String,
    time: u64,
    folders: Vec<Folder>,
}

fn about(text: &str) -> Option<About> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != MAGIC {
        return None;
    }
    lines.next()?.strip_prefix("version ")?;
    let site = lines.next()?.strip_prefix("site ")?.to_owned();
    let time = lines.next()?.strip_prefix("time ")?.parse().ok()?;
    let mut folders: Vec<Folder> = Vec::new();
    for line in lines {
        let (name, role) = line.strip_prefix("folder ")?.split_once(' ')?;
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty()
            || !name.bytes().all(is_plain)
            || name.as_bytes() == HITS
            || folders
                .iter()
                .any(|other| other.name == name || other.role == role)
        {
            return None;
        }
        folders.push(Folder {
            name: name.to_owned(),
            role: role.to_owned(),
            place: PathBuf::new(),
        });
    }
    (!folders.is_empty()).then_some(About {
        site,
        time,
        folders,
    })
}

type Input = Reader<GzDecoder<BufReader<File>>>;

fn read(
    archive: &Path,
    place: impl FnOnce(&mut About) -> Result<(), OperatorError>,
) -> Result<Unpacked, OperatorError> {
    let file = File::open(archive).map_err(|error| at(archive, &error))?;
    let mut input = Reader::new(GzDecoder::new(BufReader::new(file)));
    let (mut about, sum) = first(&mut input).map_err(|error| refused(archive, b"", &error))?;
    place(&mut about)?;
    let mut unpacked = Unpacked::begin(about, sum)?;
    let mut name = Vec::new();
    unpacked
        .all(&mut input, &mut name)
        .map_err(|error| match error {
            Failed::Archive(error) => refused(archive, &name, &error),
            Failed::Here(error) => error,
        })?;
    // What follows the compressed data isn't ours either.
    let mut rest = input.into_inner().into_inner();
    match rest.fill_buf() {
        Ok([]) => {}
        Ok(_) => return Err(refused(archive, b"", &wrong("something after its end"))),
        Err(error) => return Err(at(archive, &error)),
    }
    unpacked.settle()?;
    Ok(unpacked)
}

/// An archive that can't be used: why, and at which entry.
fn refused(archive: &Path, name: &[u8], error: &io::Error) -> OperatorError {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => match error.get_ref() {
            Some(error) => error.to_string(),
            None => "it is damaged".to_owned(),
        },
        _ => reason(error),
    };
    let name = match name {
        b"" => String::new(),
        name => format!(" at `{}`", name.escape_ascii()),
    };
    let what = format!(
        "{} is no backup that can be used: {why}{name}",
        archive.display()
    );
    OperatorError::failure(what).help("nothing was changed; take another one")
}

fn first(input: &mut Input) -> io::Result<(About, Vec<u8>)> {
    let foreign = || wrong("anthill didn't make it");
    match input.next_entry()? {
        Some(entry) if entry.name == ABOUT && entry.kind == Kind::File => {}
        _ => return Err(foreign()),
    }
    let text = short(input)?;
    let digest = crate::base::digest::sha256(&text);
    let about = String::from_utf8(text).ok().and_then(|text| about(&text));
    Ok((about.ok_or_else(foreign)?, sum_line(&digest, ABOUT)))
}

/// The content of an entry of our own.
fn short(input: &mut Input) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    input.take(BACKUP_OWN_BYTES_MAX).read_to_end(&mut content)?;
    match content.len() as u64 == BACKUP_OWN_BYTES_MAX {
        true => Err(wrong("an entry that is too long")),
        false => Ok(content),
    }
}

/// Whose fault it is.
enum Failed {
    Archive(io::Error),
    Here(OperatorError),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Archive(error)
    }
}

/// An archive on its way to its places. Dropping it takes away what isn't there yet.
struct Unpacked {
    about: About,
    /// Beside the place of each folder.
    drafts: Vec<PathBuf>,
    /// What the last entry must say.
    sums: Vec<u8>,
    /// By name, and whether it is a folder.
    made: HashMap<Vec<u8>, bool>,
    /// Folders with their mode and time, which they get at the end.
    folders: Vec<(PathBuf, u32, u64)>,
    restored: Restored,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        for draft in &self.drafts {
            // A folder that can't be written to can't be emptied either.
            for (folder, ..) in &self.folders {
                if folder.starts_with(draft) {
                    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
                }
            }
            let _ = fs::remove_dir_all(draft);
        }
    }
}

impl Unpacked {
    fn begin(about: About, sum: Vec<u8>) -> Result<Unpacked, OperatorError> {
        let mut drafts = Vec::new();
        for folder in &about.folders {
            let place = &folder.place;
            let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
                let what = format!("{} can't be replaced", place.display());
                return Err(OperatorError::failure(what));
            };
            fs::create_dir_all(parent).map_err(|error| at(parent, &error))?;
            let name = name.to_string_lossy();
            let draft = parent.join(format!(".{name}.restore-{}", std::process::id()));
            if draft.symlink_metadata().is_ok() {
                let what = format!("{} is in the way", draft.display());
                return Err(OperatorError::failure(what).help("remove it"));
            }
            drafts.push(draft);
        }
        let restored = Restored {
            site: about.site.clone(),
            time: about.time,
            ..Restored::default()
        };
        Ok(Unpacked {
            about,
            drafts,
            sums: sum,
            made: HashMap::new(),
            folders: Vec::new(),
            restored,
        })
    }

    /// All entries after the first; `name` is the one that is being read.
    fn all(&mut self, input: &mut Input, name: &mut Vec<u8>) -> Result<(), Failed> {
        let mut sums = None;
        while let Some(entry) = input.next_entry()? {
            name.clone_from(&entry.name);
            if sums.is_some() {
                return Err(wrong("something after the sums").into());
            }
            let is_folder = entry.kind == Kind::Folder;
            let is_new = self.made.insert(name.clone(), is_folder).is_none();
            if self.made.len() as u64 > BACKUP_ENTRIES_MAX || !is_new {
                return Err(wrong("an entry that is there twice, or one too many").into());
            }
            match (&name[..], entry.kind) {
                (SUMS, Kind::File) => sums = Some(short_of_any_length(input)?),
                (HITS, Kind::File) => {
                    let hits = short(input)?;
                    let digest = crate::base::digest::sha256(&hits);
                    self.sums.extend(sum_line(&digest, HITS));
                    self.restored.hits = Some(hits);
                }
                _ => self.entry(input, &entry)?,
            }
        }
        let roots = self.about.folders.iter();
        if let Some(folder) = roots
            .clone()
            .find(|it| !self.made.contains_key(it.name.as_bytes()))
        {
            *name = folder.name.clone().into_bytes();
            return Err(wrong("a folder isn't there").into());
        }
        name.clear();
        match sums {
            Some(sums) if sums == self.sums => Ok(()),
            Some(_) => Err(wrong("its files aren't those it was made of (SHA-256)").into()),
            None => Err(wrong("its sums aren't there").into()),
        }
    }

    /// Where an entry of the site's is written: its parent is a folder that we have made, so that no
    /// link is ever followed.
    fn place(&self, name: &[u8]) -> Option<PathBuf> {
        let slash = name.iter().position(|byte| *byte == b'/');
        let (first, rest) = name.split_at(slash.unwrap_or(name.len()));
        let mut all = self.about.folders.iter();
        let nth = all.position(|folder| folder.name.as_bytes() == first)?;
        let place = match rest.strip_prefix(b"/") {
            None => self.drafts[nth].clone(),
            Some(rest) => self.drafts[nth].join(OsStr::from_bytes(rest)),
        };
        let last = name.iter().rposition(|byte| *byte == b'/');
        let has_parent = last.is_none_or(|end| self.made.get(&name[..end]) == Some(&true));
        has_parent.then_some(place)
    }

    fn entry(&mut self, input: &mut Input, entry: &super::tar::Entry) -> Result<(), Failed> {
        let is_root = !entry.name.contains(&b'/');
        let place = self
            .place(&entry.name)
            .filter(|_| !is_root || entry.kind == Kind::Folder);
        let place = place.ok_or_else(|| wrong("an entry that belongs nowhere"))?;
        let failed = |error: io::Error| Failed::Here(at(&place, &error));
        match entry.kind {
            Kind::Folder => {
                DirBuilder::new()
                    .mode(0o700)
                    .create(&place)
                    .map_err(failed)?;
                self.folders.push((place, entry.mode, entry.modified));
            }
            Kind::Link => symlink(OsStr::from_bytes(&entry.link), &place).map_err(failed)?,
            Kind::File => {
                let digest = file(input, &place, entry.mode, entry.modified)?;
                self.sums.extend(sum_line(&digest, &entry.name));
                self.restored.files += 1;
            }
        }
        Ok(())
    }

    /// Owners, modes and times of the folders, and all of it to the disk.
    fn settle(&mut self) -> Result<(), OperatorError> {
        for (nth, folder) in self.about.folders.iter().enumerate() {
            let draft = &self.drafts[nth];
            let place = &folder.place;
            let likeness = place.metadata().or_else(|_| match place.parent() {
                Some(parent) => parent.metadata(),
                None => place.metadata(),
            });
            if let (true, Ok(like)) = (rustix::process::geteuid().is_root(), likeness) {
                give(draft, like.uid(), like.gid()).map_err(|error| at(draft, &error))?;
            }
        }
        for (folder, mode, modified) in self.folders.iter().rev() {
            let done = fs::set_permissions(folder, Permissions::from_mode(*mode));
            done.map_err(|error| at(folder, &error))?;
            // A time that the disk can't have is no reason to fail.
            let _ = File::open(folder).and_then(|open| open.set_modified(time(*modified)));
        }
        for draft in &self.drafts {
            let synced = File::open(draft).map(|open| rustix::fs::syncfs(&open));
            // One that we may not read ourselves is written when the system likes.
            if let Ok(Err(error)) = synced {
                return Err(at(draft, &error.into()));
            }
        }
        Ok(())
    }

    /// The folders change places: all, or if one can't, none.
    fn swap(&mut self, now: u64) -> Result<(), OperatorError> {
        let mut done: Vec<(PathBuf, Option<PathBuf>)> = Vec::new();
        for (folder, draft) in self.about.folders.iter().zip(&self.drafts) {
            match swap(&folder.place, draft, now) {
                Ok(kept) => done.push((folder.place.clone(), kept)),
                Err(error) => {
                    for (place, kept) in done.iter().rev() {
                        undo(place, kept.as_deref());
                    }
                    return Err(at(&folder.place, &error));
                }
            }
        }
        for (place, kept) in done {
            self.restored.folders.push(place);
            self.restored.kept.extend(kept);
        }
        Ok(())
    }
}

/// The sums grow with the site.
fn short_of_any_length(input: &mut Input) -> io::Result<Vec<u8>> {
    let most = BACKUP_ENTRIES_MAX * 256;
    let mut content = Vec::new();
    input.take(most).read_to_end(&mut content)?;
    Ok(content)
}

fn time(seconds: u64) -> SystemTime {
    let since = Duration::from_secs(seconds);
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn file(input: &mut Input, place: &Path, mode: u32, modified: u64) -> Result<[u8; 32], Failed> {
    let failed = |error: io::Error| Failed::Here(at(place, &error));
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(place).map_err(failed)?;
    let (mut digest, mut buffer) = (Digest::new(), vec![0; 64 * 1024]);
    loop {
        let length = input.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        digest.update(&buffer[..length]);
        file.write_all(&buffer[..length]).map_err(failed)?;
    }
    let permissions = Permissions::from_mode(mode);
    file.set_permissions(permissions).map_err(failed)?;
    let _ = file.set_modified(time(modified));
    Ok(digest.finish())
}

/// To the owner of what was there; links themselves, not what they lead to.
fn give(place: &Path, uid: u32, gid: u32) -> io::Result<()> {
    lchown(place, Some(uid), Some(gid))?;
    if place.symlink_metadata()?.is_dir() {
        for child in fs::read_dir(place)? {
            give(&child?.path(), uid, gid)?;
        }
    }
    Ok(())
}

/// Puts `draft` in the place of `place`, which is kept under the name that is returned.
fn swap(place: &Path, draft: &Path, now: u64) -> io::Result<Option<PathBuf>> {
    if place.symlink_metadata().is_err() {
        return fs::rename(draft, place).map(|()| None);
    }
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let names = (0..1_000).map(|nth| match nth {
        0 => place.with_file_name(format!(".{name}.before-restore-{now}")),
        nth => place.with_file_name(format!(".{name}.before-restore-{now}-{nth}")),
    });
    let mut names = names.filter(|name| name.symlink_metadata().is_err());
    let kept = names.next().ok_or(io::ErrorKind::AlreadyExists)?;
    match renameat_with(CWD, draft, CWD, place, RenameFlags::EXCHANGE) {
        // What was there is now the draft, and must not go with it.
        Ok(()) => {
            if let Err(error) = fs::rename(draft, &kept) {
                let _ = renameat_with(CWD, draft, CWD, place, RenameFlags::EXCHANGE);
                return Err(error);
            }
        }
        // File systems that can't exchange have a moment without either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::rename(place, &kept)?;
            if let Err(error) = fs::rename(draft, place) {
                let _ = fs::rename(&kept, place);
                return Err(error);
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Some(kept))
}

fn undo(place: &Path, kept: Option<&Path>) {
    match kept {
        None => drop(fs::remove_dir_all(place)),
        Some(kept) => {
            if renameat_with(CWD, kept, CWD, place, RenameFlags::EXCHANGE).is_ok() {
                let _ = fs::remove_dir_all(kept);
            }
        }
    }
}
