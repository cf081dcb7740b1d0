//! Retention of releases, and removal of contents without a release.
//!
//! A sweep needs the exclusive lock of the store, so no publisher adds contents meanwhile. The set of needed digests is
//! in memory, 8 bytes for each content.

use super::blob_folder::{OF_SESSION, SESSION, STALLED, disk_bytes};
use super::content_list::{self, ListedContent, listed_contents, make_list};
use super::draft::KEPT;
use super::folder::StoreFolder;
use super::folder_access::{
    LockKind, StoreModes, each_name, is_locked, lock, open_folder, sync_folder,
};
use super::history::{SiteRecords, sites};
use super::leftover::remove_leftovers;
use super::received::{self, RECEIVED};
use super::served_release::ServedRelease;
use super::write_error::StoreWriteError;
use super::{ReleaseStore as _, StoreError};
use crate::limits::{
    RELEASES_KEPT_BYTES_MAX, RELEASES_KEPT_MAX, RELEASES_KEPT_SECONDS, SWEEP_PAUSE_MILLISECONDS,
    SWEEP_TRIALS_MAX,
};
use base::digest::{from_hex, hex};
use rustix::fs::{AtFlags, statat, syncfs, unlinkat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// Rule for the releases of a site that stay. The served, the labelled and the pinned releases always stay, and also the
/// release that the server acknowledged last: the server may have refused the pointer to the served release.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Number of the newest releases that stay.
    pub releases: usize,
    /// Seconds for which further releases stay after their replacement by the next publication. Open pages ask for their
    /// files. Parts and contents of ended sessions without a release stay for the same time after their last write.
    pub seconds: u64,
    /// Bytes of all releases that stay. Beyond the bound, older releases go.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            releases: RELEASES_KEPT_MAX,
            seconds: RELEASES_KEPT_SECONDS,
            bytes: RELEASES_KEPT_BYTES_MAX,
        }
    }
}

/// Result of a sweep.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SweepReport {
    /// Removed publications.
    pub publications: usize,
    /// Removed contents and drafts.
    pub contents: usize,
    /// Bytes of the removed contents and drafts.
    pub bytes: u64,
}

/// Removes the publications, contents and drafts without use. `now` is Unix time. Returns [`StoreWriteError::Busy`] if
/// a publisher uses the store.
pub fn sweep(
    store: &StoreFolder,
    retention: &Retention,
    now: u64,
) -> Result<SweepReport, StoreWriteError> {
    let recent = Recent {
        seconds: retention.seconds,
        now,
    };
    sweep_with(store, retention, now, recent)
}

/// Sweeps the store, and lets nothing of ended sessions stay, if the contents that they sent have some bytes together:
/// leftovers save their publisher time, and keep no other publisher out. Returns true after such a sweep.
pub fn sweep_received(store: &StoreFolder, bytes: u64, now: u64) -> Result<bool, StoreWriteError> {
    if received_bytes(store)? < bytes {
        return Ok(false);
    }
    let none = Recent {
        seconds: 0,
        now: u64::MAX,
    };
    sweep_with(store, &Retention::default(), now, none).map(|_| true)
}

/// Returns the bytes of the contents in the records of ended sessions. Some of them are perhaps in a release.
fn received_bytes(store: &StoreFolder) -> Result<u64, StoreWriteError> {
    let drafts = match open_folder(store.root(), "drafts") {
        Err(StoreError::Missing) => return Ok(0),
        drafts => drafts.map_err(StoreWriteError::at("drafts"))?,
    };
    let live = live_sessions(&drafts)?;
    let mut bytes: u64 = 0;
    each_name(&drafts, |name| {
        if name.starts_with(RECEIVED) && !is_of_session(name, &live) {
            for digest in received::read(&drafts, name) {
                let size = store
                    .open_blob(&digest)
                    .and_then(|it| Ok(it.metadata()?.len()));
                bytes = bytes.saturating_add(size.map_or(0, disk_bytes));
            }
        }
        Ok(())
    })
    .map_err(StoreWriteError::at::<StoreError>("drafts"))?;
    Ok(bytes)
}

/// Sweeps a store. The files of ended sessions stay within the time of `recent`.
fn sweep_with(
    store: &StoreFolder,
    retention: &Retention,
    now: u64,
    recent: Recent,
) -> Result<SweepReport, StoreWriteError> {
    // Publishers wait for the lock, so the long manifests are read before.
    for site in sites(store)? {
        let records = SiteRecords::read(store, &site)?;
        let releases = records.releases().into_iter();
        releases.for_each(|release| make_list(store, &release));
    }
    let _lock = lock_alone(store)?;
    // Every site is read before the first removal: an unreadable release of any site ends the sweep.
    let mut needed = ContentSet::default();
    let mut old = Vec::new();
    for site in sites(store)? {
        let records = SiteRecords::read(store, &site)?;
        let acknowledged = ServedRelease::beside(store, &site).map(|it| it.release);
        let kept = kept_releases(store, &records, acknowledged, retention, now, &mut needed)?;
        let publications = records.publications.iter();
        let gone = publications.filter(|(_, it)| !kept.contains(&it.pointer.release));
        old.push((
            site,
            gone.map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
        ));
    }
    let mut report = SweepReport::default();
    for (site, sequences) in old {
        report.publications += sequences.len();
        remove_publications(store, &site, &sequences)?;
    }
    remove_contents(store, needed, recent, &mut report)?;
    Ok(report)
}

/// Returns the releases of a site that stay, and adds their contents to `needed`. `acknowledged` is the release that the
/// server acknowledged last.
fn kept_releases(
    store: &StoreFolder,
    records: &SiteRecords,
    acknowledged: Option<[u8; 32]>,
    retention: &Retention,
    now: u64,
    needed: &mut ContentSet,
) -> Result<HashSet<[u8; 32]>, StoreWriteError> {
    let mut kept = HashSet::new();
    let mut bytes: u64 = 0;
    let mut own = ContentSet::default();
    let served = records.served().map(|served| served.pointer.release);
    let named = records.labels.values().chain(&records.pins).copied();
    // An acknowledgment of another store names no release of this store.
    let acknowledged = acknowledged.filter(|release| {
        !records.withdrawn.contains(release) && listed_contents(store, release).is_ok()
    });
    for release in served.into_iter().chain(acknowledged).chain(named) {
        if kept.insert(release) {
            for content in listed_contents(store, &release)? {
                if own.insert(content.key) {
                    bytes = bytes.saturating_add(content.size);
                }
            }
        }
    }
    let mut count = usize::from(served.is_some());
    let mut next = now;
    for publication in records.publications.values().rev() {
        let pointer = &publication.pointer;
        // The clock of a publisher may be wrong. A release was not replaced before its own publication.
        let replaced = std::mem::replace(&mut next, pointer.time);
        let replaced = replaced.max(pointer.time).min(now);
        if kept.contains(&pointer.release) || records.withdrawn.contains(&pointer.release) {
            continue;
        }
        let is_recent = replaced.saturating_add(retention.seconds) > now;
        if count >= retention.releases && !is_recent {
            continue;
        }
        // The contents of an unreadable old release are of no use.
        let Ok(contents) = listed_contents(store, &pointer.release) else {
            continue;
        };
        let new = contents.iter().filter(|it| !own.contains(it.key));
        let sum = new.fold(bytes, |sum, it| sum.saturating_add(it.size));
        if sum > retention.bytes {
            break;
        }
        bytes = sum;
        for content in &contents {
            own.insert(content.key);
        }
        kept.insert(pointer.release);
        count += 1;
    }
    // A store of one site has its contents in one table.
    if needed.0.is_empty() {
        *needed = own
    } else {
        needed.0.extend(own.0)
    }
    Ok(kept)
}

/// Set of contents by the first 8 bytes of their digests: a quarter of the memory of whole digests. Of two contents with
/// the same first bytes, a content without use stays.
#[derive(Default)]
struct ContentSet(HashSet<u64>);

impl ContentSet {
    /// Adds a content. Returns true if the set did not have the content.
    fn insert(&mut self, key: u64) -> bool {
        self.0.insert(key)
    }

    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }
}

fn remove_publications(
    store: &StoreFolder,
    site: &str,
    sequences: &[u64],
) -> Result<(), StoreWriteError> {
    if sequences.is_empty() {
        return Ok(());
    }
    let path = format!("sites/{site}/pointers");
    let folder = open_folder(store.root(), "sites")
        .and_then(|sites| open_folder(&sites, site))
        .and_then(|site| open_folder(&site, "pointers"))
        .map_err(StoreWriteError::at(path.clone()))?;
    for sequence in sequences {
        unlink(&folder, &sequence.to_string()).map_err(StoreWriteError::at(path.clone()))?;
    }
    // The records are gone before the contents.
    sync_folder(&folder).map_err(StoreWriteError::at(path))
}

fn remove_contents(
    store: &StoreFolder,
    mut needed: ContentSet,
    recent: Recent,
    report: &mut SweepReport,
) -> Result<(), StoreWriteError> {
    let open = |above: &OwnedFd, name: &str| match open_folder(above, name) {
        Err(StoreError::Missing) => Ok(None),
        folder => folder.map(Some),
    };
    let drafts = open(store.root(), "drafts").map_err(StoreWriteError::at("drafts"))?;
    if let Some(drafts) = &drafts {
        let removed = remove_leftovers(drafts, |it| it.is_recent(recent.seconds, recent.now));
        let (count, bytes) = removed.map_err(StoreWriteError::at("drafts"))?;
        report.contents += count;
        report.bytes += bytes;
    }
    let mut remove = |path: String, folder: &OwnedFd, is_needed: &dyn Fn(&str) -> bool| {
        each_name(folder, |name| {
            if !is_needed(name) {
                let size = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
                unlink(folder, name)?;
                report.contents += 1;
                report.bytes += size.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
            }
            Ok(())
        })
        .map_err(StoreWriteError::at::<StoreError>(path))
    };
    if let Some(drafts) = drafts {
        let mut is_empty = true;
        let live = live_sessions(&drafts)?;
        let is_needed = |name: &str| {
            // The parts without use are gone already.
            name.starts_with(KEPT)
                || is_record(name) && recent.has(&drafts, name)
                || is_of_session(name, &live)
        };
        // The contents of a broken connection stay as long as their record.
        each_name(&drafts, |name| {
            is_empty = false;
            if name.starts_with(RECEIVED) && is_needed(name) {
                let received = received::read(&drafts, name);
                for digest in &received {
                    needed.insert(ListedContent::key_of(digest));
                }
            }
            Ok(())
        })
        .map_err(StoreWriteError::at::<StoreError>("drafts"))?;
        // A killed publisher left renamed contents, perhaps without a sync, and a mark for the next publisher.
        if !is_empty {
            syncfs(&drafts).map_err(StoreWriteError::at("drafts"))?;
        }
        remove("drafts".to_owned(), &drafts, &is_needed)?;
    }
    let lists = content_list::FOLDER;
    if let Some(folder) = open(store.root(), lists).map_err(StoreWriteError::at(lists))? {
        let is_needed = |name: &str| {
            let release = from_hex(name.as_bytes());
            release.is_some_and(|it| needed.contains(ListedContent::key_of(&it)))
        };
        each_name(&folder, |name| match is_needed(name) {
            true => Ok(()),
            false => unlink(&folder, name),
        })
        .map_err(StoreWriteError::at::<StoreError>(lists))?;
    }
    let Some(blobs) = open(store.root(), "blobs").map_err(StoreWriteError::at("blobs"))? else {
        return Ok(());
    };
    for prefix in 0..=255_u8 {
        let prefix = format!("{prefix:02x}");
        let path = format!("blobs/{prefix}");
        let folder = open(&blobs, &prefix).map_err(StoreWriteError::at(path.clone()))?;
        if let Some(folder) = folder {
            // A file with another name is not of this program, and stays.
            remove(path, &folder, &|name| {
                from_hex(name.as_bytes())
                    .is_none_or(|digest| needed.contains(ListedContent::key_of(&digest)))
            })?;
        }
    }
    Ok(())
}

/// Returns the names of the sessions of running processes, without the prefix of the names of their files.
fn live_sessions(drafts: &OwnedFd) -> Result<Vec<String>, StoreWriteError> {
    let mut live = Vec::new();
    each_name(drafts, |name| {
        if let Some(session) = name.strip_prefix(SESSION)
            && is_locked(drafts, name)
        {
            live.push(session.to_owned());
        }
        Ok::<(), StoreError>(())
    })
    .map_err(StoreWriteError::at("drafts"))?;
    Ok(live)
}

/// Returns true for a record that stays behind its session.
fn is_record(name: &str) -> bool {
    name.starts_with(RECEIVED) || name.starts_with(STALLED)
}

/// Returns true for the file of a live session, and for its drafts and records.
fn is_of_session(name: &str, live: &[String]) -> bool {
    if let Some(session) = name.strip_prefix(SESSION) {
        return live.iter().any(|it| it == session);
    }
    let draft = match name.strip_prefix(RECEIVED) {
        // The name of the site stands before the name of the session.
        Some(record) => record.split_once('+').map(|(_, session)| session),
        None => name.strip_prefix(OF_SESSION),
    };
    let Some(draft) = draft else {
        return false;
    };
    let mut live = live.iter();
    live.any(|session| {
        let number = draft.strip_prefix(session.as_str());
        number.is_some_and(|number| number.starts_with('-'))
    })
}

/// Time within which a file of an ended session stays.
#[derive(Copy, Clone)]
struct Recent {
    seconds: u64,
    now: u64,
}

impl Recent {
    /// Returns true for a file that was written within the time.
    fn has(&self, drafts: &OwnedFd, name: &str) -> bool {
        let stat = statat(drafts, name, AtFlags::SYMLINK_NOFOLLOW);
        let written = stat.map_or(0, |stat| u64::try_from(stat.st_mtime).unwrap_or(0));
        written.saturating_add(self.seconds) >= self.now
    }
}

/// Removes a file. A missing file is no error.
fn unlink(folder: &OwnedFd, name: &str) -> Result<(), StoreError> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a content, so that the next publication writes the content anew. Returns [`StoreWriteError::Busy`] if a
/// publisher uses the store.
pub fn remove_content(store: &StoreFolder, digest: &[u8; 32]) -> Result<(), StoreWriteError> {
    let _lock = lock_alone(store)?;
    let name = hex(digest);
    let path = format!("blobs/{}/{name}", &name[..2]);
    open_folder(store.root(), "blobs")
        .and_then(|blobs| open_folder(&blobs, &name[..2]))
        .and_then(|folder| {
            unlink(&folder, &name)?;
            sync_folder(&folder)
        })
        // The next publication of the release makes the list anew.
        .and_then(|()| content_list::remove_list(store, digest))
        .or_else(|error| match error {
            StoreError::Missing => Ok(()),
            error => Err(StoreWriteError::at(path)(error)),
        })
}

/// Takes the exclusive lock of the store. A session leaves the lock between two requests, so the call waits for a moment.
fn lock_alone(store: &StoreFolder) -> Result<File, StoreWriteError> {
    let modes = StoreModes::of(store.root()).map_err(StoreWriteError::at("."))?;
    for _ in 0..SWEEP_TRIALS_MAX {
        let lock = lock(store.root(), "lock", LockKind::ExclusiveNow, modes);
        if let Some(lock) = lock.map_err(StoreWriteError::at("lock"))? {
            return Ok(lock);
        }
        thread::sleep(Duration::from_millis(SWEEP_PAUSE_MILLISECONDS));
    }
    Err(StoreWriteError::Busy)
}
