//! Restore of a backup. The archive is unpacked beside the destinations, into folders closed to all other
//! users, and verified. Only then the folders are exchanged. An invalid archive changes nothing.

use super::{ABOUT, BackupFolder, HITS, MAGIC, RULES, SUMS, at, folders, sum_line};
use crate::backup::limits::{BACKUP_ENTRIES_MAX, BACKUP_METADATA_BYTES_MAX};
use crate::backup::restore_draft::RestoreDraft;
use crate::backup::rule_files::RuleFiles;
use crate::config::{OperatorError, ServerConfig, SiteConfig, reason};
use base::digest::Digest;
use base::tar::{TarEntry, TarEntryKind, TarReader, invalid_data};
use base::trusted_path::{LastLink, MissingFolder, TrustedPath, user_name};
use data_plane::site::{FolderRelease, ReleaseRules};
use flate2::bufread::GzDecoder;
use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Summary of a restore.
#[derive(Debug, Default)]
pub struct RestoreSummary {
    /// First name of the saved site.
    pub site: String,
    /// Time of the backup, seconds since 1970.
    pub time: u64,
    /// Number of files.
    pub files: u64,
    /// Paths of the restored folders.
    pub folders: Vec<PathBuf>,
    /// Paths at which the former folders are kept.
    pub kept: Vec<PathBuf>,
    /// Hit counts in the format of the state file.
    pub hits: Option<Vec<u8>>,
    /// Release made of the files, for a site with `release`.
    pub release: Option<FolderRelease>,
    /// True if rules of a release are left out, since a folder has none.
    pub has_unused_rules: bool,
    /// Files that have the rules of a release.
    pub rule_files: Vec<PathBuf>,
    /// Rules in neither file, each a clause with the reason.
    pub left_out_rules: Vec<String>,
}

/// Restores the archive into the folders of the site that `choose` returns for the site name in the
/// archive.
pub fn restore<'s>(
    archive: &Path,
    now: u64,
    server: &ServerConfig,
    choose: impl FnOnce(&str) -> Result<&'s SiteConfig, OperatorError>,
) -> Result<RestoreSummary, OperatorError> {
    let place = |manifest: &mut BackupManifest| {
        let here = folders(choose(&manifest.site)?, server);
        for folder in &mut manifest.folders {
            let found = here.iter().find(|own| own.role == folder.role);
            let found = found.ok_or_else(|| {
                let what = format!("{} has a folder of `{}`", archive.display(), folder.role);
                OperatorError::failure(format!("{what}, and the site has no route for it"))
                    .help("give the site that route, or unpack the backup with --to FOLDER")
            })?;
            folder.place = found.place.clone();
            if let Some(release) = &found.release {
                must_be_publishable(release, server)?;
                let state = server.state.get_ref();
                let made = DirBuilder::new().recursive(true).mode(0o700).create(state);
                made.map_err(|error| at(state, error))?;
                folder.place = state.join("restored");
                folder.release = Some(release.clone());
            }
        }
        Ok(())
    };
    let mut unpacked = read(archive, place)?;
    unpacked.swap(now)?;
    Ok(std::mem::take(&mut unpacked.restored))
}

/// Unpacks the archive's folders in `to`, which must not exist.
pub fn unpack(archive: &Path, to: &Path, now: u64) -> Result<RestoreSummary, OperatorError> {
    let failed = |error: io::Error| at(to, error);
    let destination =
        TrustedPath::resolve(to, LastLink::Keep, MissingFolder::Make).map_err(failed)?;
    if destination.stat().map_err(failed)?.is_some() {
        let what = format!("{} already exists", to.display());
        return Err(OperatorError::failure(what).help("name a folder that does not exist"));
    }
    let us = rustix::process::geteuid().as_raw();
    destination.must_be_controlled_by(us).map_err(|error| {
        let help = "name a folder that root alone can change, in /root or /var/backups for example";
        OperatorError::failure(error.to_string()).help(help)
    })?;
    let place = |manifest: &mut BackupManifest| {
        let made = mkdirat(
            destination.folder(),
            destination.name(),
            Mode::from_raw_mode(0o777),
        );
        made.map_err(|error| failed(error.into()))?;
        for folder in &mut manifest.folders {
            folder.place = destination.path().join(&folder.name);
        }
        manifest.has_rule_files = true;
        Ok(())
    };
    let unpacked = read(archive, place).and_then(|mut unpacked| {
        unpacked.swap(now)?;
        Ok(std::mem::take(&mut unpacked.restored))
    });
    if unpacked.is_err() {
        // The folder is removed only if the call above created the folder and the folder is empty again.
        let _ = unlinkat(destination.folder(), destination.name(), AtFlags::REMOVEDIR);
    }
    unpacked
}

/// Content of the manifest.
struct BackupManifest {
    site: String,
    time: u64,
    folders: Vec<BackupFolder>,
    /// True if the rules of a release are written into its folder.
    has_rule_files: bool,
}

fn parse_manifest(text: &str) -> Option<BackupManifest> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != MAGIC {
        return None;
    }
    lines.next()?.strip_prefix("version ")?;
    let site = lines.next()?.strip_prefix("site ")?.to_owned();
    let time = lines.next()?.strip_prefix("time ")?.parse().ok()?;
    let mut folders: Vec<BackupFolder> = Vec::new();
    for line in lines {
        let (name, role) = line.strip_prefix("folder ")?.split_once(' ')?;
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty()
            || !name.bytes().all(is_plain)
            || name.as_bytes() == HITS
            || name.as_bytes() == RULES
            || folders
                .iter()
                .any(|other| other.name == name || other.role == role)
        {
            return None;
        }
        folders.push(BackupFolder {
            name: name.to_owned(),
            role: role.to_owned(),
            place: PathBuf::new(),
            release: None,
        });
    }
    (!folders.is_empty()).then_some(BackupManifest {
        site,
        time,
        folders,
        has_rule_files: false,
    })
}

type BackupReader = TarReader<GzDecoder<BufReader<File>>>;

fn read(
    archive: &Path,
    place: impl FnOnce(&mut BackupManifest) -> Result<(), OperatorError>,
) -> Result<UnpackedBackup, OperatorError> {
    let file = File::open(archive).map_err(|error| at(archive, error))?;
    let mut input = TarReader::new(GzDecoder::new(BufReader::new(file)));
    let (mut manifest, sum) =
        read_manifest(&mut input).map_err(|error| refused(archive, b"", &error))?;
    place(&mut manifest)?;
    let mut unpacked = UnpackedBackup::begin(manifest, sum)?;
    let mut name = Vec::new();
    unpacked
        .entries(&mut input, &mut name)
        .map_err(|error| match error {
            RestoreError::Archive(error) => refused(archive, &name, &error),
            RestoreError::Here(error) => error,
        })?;
    // Bytes after the end of the compressed data make the archive invalid as well.
    let mut rest = input.into_inner().into_inner();
    match rest.fill_buf() {
        Ok([]) => {}
        Ok(_) => {
            return Err(refused(
                archive,
                b"",
                &invalid_data("data follows the end of the archive"),
            ));
        }
        Err(error) => return Err(at(archive, error)),
    }
    if unpacked.manifest.has_rule_files {
        unpacked.write_rule_files()?;
    }
    unpacked.settle()?;
    Ok(unpacked)
}

/// Returns the error for an unusable archive, with the reason and the entry.
fn refused(archive: &Path, name: &[u8], error: &io::Error) -> OperatorError {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it is truncated".to_owned(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => match error.get_ref() {
            Some(error) => error.to_string(),
            None => "it is corrupt".to_owned(),
        },
        _ => reason(error),
    };
    let name = match name {
        b"" => String::new(),
        name => format!(" at `{}`", name.escape_ascii()),
    };
    let what = format!("{} is not a usable backup: {why}{name}", archive.display());
    OperatorError::failure(what).help("nothing was changed; use another backup")
}

fn read_manifest(input: &mut BackupReader) -> io::Result<(BackupManifest, Vec<u8>)> {
    let foreign = || invalid_data("it has no header of an anthill backup");
    match input.next_entry()? {
        Some(entry) if entry.name == ABOUT && entry.kind == TarEntryKind::File => {}
        _ => return Err(foreign()),
    }
    let text = read_metadata(input)?;
    let digest = base::digest::sha256(&text);
    let manifest = String::from_utf8(text)
        .ok()
        .and_then(|text| parse_manifest(&text));
    Ok((manifest.ok_or_else(foreign)?, sum_line(&digest, ABOUT)))
}

/// Reads an entry of the backup itself, with bounded length.
fn read_metadata(input: &mut BackupReader) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    input
        .take(BACKUP_METADATA_BYTES_MAX)
        .read_to_end(&mut content)?;
    if content.len() as u64 == BACKUP_METADATA_BYTES_MAX {
        Err(invalid_data("an entry is too long"))
    } else {
        Ok(content)
    }
}

/// Cause of a failed restore: the archive, or the local file system.
enum RestoreError {
    Archive(io::Error),
    Here(OperatorError),
}

impl From<io::Error> for RestoreError {
    fn from(error: io::Error) -> RestoreError {
        RestoreError::Archive(error)
    }
}

/// Backup in the process of restoration. Dropping the value removes folders not yet in place.
struct UnpackedBackup {
    manifest: BackupManifest,
    /// One draft for each folder of the manifest.
    drafts: Vec<RestoreDraft>,
    /// Expected content of the last entry.
    sums: Vec<u8>,
    /// Rules of a release.
    rules: Option<Vec<u8>>,
    /// Names of the entries so far, and whether the entry is a folder.
    made: HashMap<Vec<u8>, bool>,
    restored: RestoreSummary,
}

impl UnpackedBackup {
    fn begin(manifest: BackupManifest, sum: Vec<u8>) -> Result<UnpackedBackup, OperatorError> {
        let folders = manifest.folders.iter();
        let drafts = folders.map(|folder| RestoreDraft::begin(&folder.place));
        let restored = RestoreSummary {
            site: manifest.site.clone(),
            time: manifest.time,
            ..RestoreSummary::default()
        };
        Ok(UnpackedBackup {
            drafts: drafts.collect::<Result<_, _>>()?,
            manifest,
            sums: sum,
            rules: None,
            made: HashMap::new(),
            restored,
        })
    }

    /// Reads all entries after the manifest. `name` is the name of the current entry, for error messages.
    fn entries(
        &mut self,
        input: &mut BackupReader,
        name: &mut Vec<u8>,
    ) -> Result<(), RestoreError> {
        let mut sums = None;
        while let Some(entry) = input.next_entry()? {
            name.clone_from(&entry.name);
            if sums.is_some() {
                return Err(invalid_data("an entry follows the checksums").into());
            }
            let is_folder = entry.kind == TarEntryKind::Folder;
            let is_new = self.made.insert(name.clone(), is_folder).is_none();
            if self.made.len() as u64 > BACKUP_ENTRIES_MAX || !is_new {
                return Err(invalid_data("a duplicate entry, or too many entries").into());
            }
            match (&name[..], entry.kind) {
                (SUMS, TarEntryKind::File) => sums = Some(read_digests(input)?),
                (HITS, TarEntryKind::File) => {
                    let hits = read_metadata(input)?;
                    let digest = base::digest::sha256(&hits);
                    self.sums.extend(sum_line(&digest, HITS));
                    self.restored.hits = Some(hits);
                }
                (RULES, TarEntryKind::File) => {
                    let rules = read_metadata(input)?;
                    let digest = base::digest::sha256(&rules);
                    self.sums.extend(sum_line(&digest, RULES));
                    self.rules = Some(rules);
                }
                _ => self.entry(input, &entry)?,
            }
        }
        let roots = self.manifest.folders.iter();
        if let Some(folder) = roots
            .clone()
            .find(|it| !self.made.contains_key(it.name.as_bytes()))
        {
            *name = folder.name.clone().into_bytes();
            return Err(invalid_data("a folder is missing").into());
        }
        name.clear();
        match sums {
            Some(sums) if sums == self.sums => Ok(()),
            Some(_) => Err(invalid_data("the SHA-256 checksums do not match").into()),
            None => Err(invalid_data("the checksums are missing").into()),
        }
    }

    /// Returns the index of the draft for an entry and the entry's name in the draft, empty for the folder
    /// itself. The parent of the entry must be a folder from the archive.
    fn place<'n>(&self, name: &'n [u8]) -> Option<(usize, &'n [u8])> {
        let slash = name.iter().position(|byte| *byte == b'/');
        let (first, rest) = name.split_at(slash.unwrap_or(name.len()));
        let mut folders = self.manifest.folders.iter();
        let nth = folders.position(|folder| folder.name.as_bytes() == first)?;
        let last = name.iter().rposition(|byte| *byte == b'/');
        let has_parent = last.is_none_or(|end| self.made.get(&name[..end]) == Some(&true));
        has_parent.then_some((nth, rest.strip_prefix(b"/").unwrap_or(rest)))
    }

    fn entry(&mut self, input: &mut BackupReader, entry: &TarEntry) -> Result<(), RestoreError> {
        let place = self
            .place(&entry.name)
            .filter(|(_, name)| !name.is_empty() || entry.kind == TarEntryKind::Folder);
        let (nth, name) = place.ok_or_else(|| invalid_data("an entry outside of the folders"))?;
        let draft = &mut self.drafts[nth];
        let shown = draft.shown(name);
        let failed = |error: Errno| RestoreError::Here(at(&shown, error));
        match entry.kind {
            TarEntryKind::Folder => draft.folder(name, entry).map_err(failed)?,
            TarEntryKind::Link => draft.link(name, &entry.link).map_err(failed)?,
            TarEntryKind::File => {
                let file = draft.file(name).map_err(failed)?;
                let digest = content(input, &file, &shown)?;
                draft
                    .settle(&file, entry.mode, entry.modified)
                    .map_err(failed)?;
                self.sums.extend(sum_line(&digest, &entry.name));
                self.restored.files += 1;
            }
        }
        Ok(())
    }

    /// Writes the rules of a release into the draft of the release's folder, for the next publication of the folder.
    fn write_rule_files(&mut self) -> Result<(), OperatorError> {
        let mut folders = self.manifest.folders.iter().zip(&mut self.drafts);
        let root = folders.find(|(folder, _)| folder.role == "root /");
        let (Some(rules), Some((_, draft))) = (self.rules.take(), root) else {
            return Ok(());
        };
        let files = RuleFiles::of(&rules).map_err(|error| {
            OperatorError::failure(format!("the rules of the backup: {error}"))
                .help("nothing was unpacked; use another backup")
        })?;
        let cannot = "_headers and _redirects cannot express the rule";
        let left_out = files
            .left_out
            .iter()
            .map(|rule| format!("`{rule}`: {cannot}"));
        self.restored.left_out_rules = left_out.collect();
        for (name, text) in [("_headers", files.headers), ("_redirects", files.redirects)] {
            if text.is_empty() {
                continue;
            }
            let path = draft.destination.path().join(name);
            let failed = |error: io::Error| at(&path, error);
            let mut file = match draft.file(name.as_bytes()) {
                Err(Errno::EXIST) => {
                    let what = format!("the rules of {name}: the release has a file of this name");
                    self.restored.left_out_rules.push(what);
                    continue;
                }
                opened => opened.map_err(|error| failed(error.into()))?,
            };
            file.write_all(text.as_bytes()).map_err(failed)?;
            let settled = draft.settle(&file, 0o644, self.manifest.time);
            settled.map_err(|error| failed(error.into()))?;
            self.restored.rule_files.push(path);
        }
        Ok(())
    }

    /// Sets owners, modes and times of the folders, and syncs the file systems.
    fn settle(&mut self) -> Result<(), OperatorError> {
        for draft in &mut self.drafts {
            draft.settle_folders()?;
        }
        for draft in &self.drafts {
            let synced = draft.top.as_ref().map(rustix::fs::syncfs);
            if let Some(Err(error)) = synced {
                return Err(at(&draft.shown(b""), error));
            }
        }
        Ok(())
    }

    /// Puts all folders into place and publishes the release, or none if one fails.
    fn swap(&mut self, now: u64) -> Result<(), OperatorError> {
        let mut done = Vec::new();
        for nth in 0..self.drafts.len() {
            if self.manifest.folders[nth].release.is_some() {
                continue;
            }
            match self.drafts[nth].swap(now) {
                Ok(kept) => done.push((nth, kept)),
                Err(error) => {
                    self.undo(&done);
                    return Err(at(&self.drafts[nth].destination.path(), error));
                }
            }
        }
        // A publication cannot be undone, and comes last.
        if let Err(error) = self.publish(now) {
            self.undo(&done);
            return Err(error);
        }
        for (nth, kept) in done {
            let destination = &self.drafts[nth].destination;
            self.restored.folders.push(destination.path());
            let kept = kept.map(|name| destination.beside(&name));
            self.restored.kept.extend(kept);
        }
        Ok(())
    }

    /// Takes folders out of place again.
    fn undo(&mut self, done: &[(usize, Option<OsString>)]) {
        for (nth, kept) in done.iter().rev() {
            self.drafts[*nth].undo(kept.as_deref());
        }
    }

    /// Publishes the draft of a release. The draft is removed with this value.
    fn publish(&mut self, now: u64) -> Result<(), OperatorError> {
        let mut folders = self.manifest.folders.iter().zip(&self.drafts);
        let found = folders.find_map(|(folder, draft)| Some((folder.release.as_ref()?, draft)));
        let Some((ReleaseRules { store, site, .. }, draft)) = found else {
            self.restored.has_unused_rules = self.rules.is_some();
            return Ok(());
        };
        let (draft, rules) = (draft.shown(b""), self.rules.as_deref());
        let published = FolderRelease::publish(&draft, store, site, rules, PUBLISHER, now);
        let published = published.map_err(|error| {
            let what = format!("{}: {error}", store.display());
            OperatorError::failure(what).help("nothing was published; the previous release stays")
        })?;
        self.restored.release = Some(published);
        Ok(())
    }
}

/// Publisher of a restored release.
const PUBLISHER: &str = "restore";

/// Refuses a site with `publishers`, and a store of another account as root: files of root would
/// lock the account out.
fn must_be_publishable(release: &ReleaseRules, server: &ServerConfig) -> Result<(), OperatorError> {
    if !release.publishers.is_empty() {
        let what = format!(
            "the site {} has `publishers`, and a backup has no signature",
            release.site
        );
        let help = "unpack the backup with --to FOLDER, and publish FOLDER/root with `anthill publish --key`";
        return Err(OperatorError::failure(what).help(help));
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = match release.store.metadata() {
        Ok(store) if store.uid() == 0 => return Ok(()),
        Ok(store) => user_name(store.uid()).unwrap_or_else(|| store.uid().to_string()),
        Err(_) => match &server.user {
            Some(user) => user.get_ref().clone(),
            None => return Ok(()),
        },
    };
    let what = format!(
        "the store {} belongs to `{owner}`, and files of root would lock the account out",
        release.store.display()
    );
    let help = format!(
        "run the command as the account, to which the archive must be open: sudo -u {owner} anthill restore …"
    );
    Err(OperatorError::failure(what).help(help))
}

/// Reads the entry with the digests, bounded by the number of entries, because the length grows with the
/// site.
fn read_digests(input: &mut BackupReader) -> io::Result<Vec<u8>> {
    let most = BACKUP_ENTRIES_MAX * 256;
    let mut content = Vec::new();
    input.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// Writes the content of an entry, and returns the SHA-256 digest.
fn content(
    input: &mut BackupReader,
    mut file: &File,
    shown: &Path,
) -> Result<[u8; 32], RestoreError> {
    let (mut digest, mut buffer) = (Digest::new(), vec![0; 64 * 1024]);
    loop {
        let length = input.read(&mut buffer)?;
        if length == 0 {
            return Ok(digest.finish());
        }
        digest.update(&buffer[..length]);
        let written = file.write_all(&buffer[..length]);
        written.map_err(|error| RestoreError::Here(at(shown, error)))?;
    }
}
