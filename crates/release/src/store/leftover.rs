//! Parts of contents that ended sessions left for the next session of their publisher. A part in use is locked (flock(2)),
//! so a part without a lock is a leftover: its session has ended, even if the process was killed.
//!
//! Leftovers save a publisher time, and never keep another publisher out: each publisher has a few, and before an
//! upload is refused for the quota, the oldest ones are removed.

use super::StoreError;
use super::blob_folder::disk_bytes;
use super::draft::{KEPT, owner_of};
use super::folder_access::{each_name, is_locked, remove_unlocked};
use crate::limits::KEPT_DRAFTS_MAX;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Part of a content without a session.
pub(super) struct Leftover {
    name: String,
    /// Site and publisher, as in the name.
    owner: String,
    /// Unix time of the last write, in seconds.
    written: u64,
    /// Bytes on the disk.
    bytes: u64,
}

impl Leftover {
    fn new(name: &str, stat: &Stat) -> Leftover {
        let size = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0),
            _ => 0,
        };
        Leftover {
            owner: owner_of(name),
            name: name.to_owned(),
            written: u64::try_from(stat.st_mtime).unwrap_or(0),
            bytes: disk_bytes(size),
        }
    }

    /// Returns true if the part was written within some seconds before `now`, in Unix time.
    pub(super) fn is_recent(&self, seconds: u64, now: u64) -> bool {
        self.written.saturating_add(seconds) >= now
    }
}

/// Returns the leftovers and the parts in use, the oldest first.
fn parts(drafts: &OwnedFd) -> Result<Vec<Leftover>, StoreError> {
    let mut parts = Vec::new();
    each_name(drafts, |name| {
        // A part that went meanwhile is none.
        if name.starts_with(KEPT)
            && let Ok(stat) = statat(drafts, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            parts.push(Leftover::new(name, &stat));
        }
        Ok::<(), StoreError>(())
    })?;
    parts.sort_unstable_by(|one, two| (one.written, &one.name).cmp(&(two.written, &two.name)));
    Ok(parts)
}

/// Removes the leftovers for which `stays` is false, and the oldest ones of a publisher with more than
/// [`KEPT_DRAFTS_MAX`]. Returns the number and the bytes of the removed files.
pub(super) fn remove_leftovers(
    drafts: &OwnedFd,
    stays: impl Fn(&Leftover) -> bool,
) -> Result<(usize, u64), StoreError> {
    let parts = parts(drafts)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut removed, mut bytes) = (0, 0_u64);
    for part in parts.iter().rev() {
        let count = counts.entry(&part.owner).or_default();
        let stays = *count < KEPT_DRAFTS_MAX && stays(part);
        if stays || !remove_unlocked(drafts, &part.name)? {
            *count += 1;
        } else {
            removed += 1;
            bytes = bytes.saturating_add(part.bytes);
        }
    }
    Ok((removed, bytes))
}

/// Removes the oldest leftovers until some bytes are free, and returns the bytes of the removed files. Leftovers that are
/// too few for the bytes stay.
pub(super) fn make_room(drafts: &OwnedFd, bytes: u64) -> Result<u64, StoreError> {
    let mut parts = parts(drafts)?;
    parts.retain(|part| !is_locked(drafts, &part.name));
    let all = parts.iter().map(|part| part.bytes);
    if all.fold(0, u64::saturating_add) < bytes {
        return Ok(0);
    }
    let mut freed: u64 = 0;
    for part in &parts {
        if freed >= bytes {
            break;
        }
        if remove_unlocked(drafts, &part.name)? {
            freed = freed.saturating_add(part.bytes);
        }
    }
    Ok(freed)
}
