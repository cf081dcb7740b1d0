//! Account of the bytes that the sessions of a store may write together.
//!
//! Each session has a file in the folder of drafts with the number of bytes that are reserved and not yet written. The file
//! is locked as long as the process lives (flock(2)), so a killed session gives its bytes back without a trace. A session
//! that reserves bytes counts the reservations of the others and the bytes of the store under one more lock.
//!
//! The reservations are read before the bytes of the store, and a session lowers its reservation after a write. A byte on
//! its way is therefore counted once or twice, and never left out.
//!
//! The reservation of an upload lapses after [`RESERVATION_SECONDS_MAX`] without progress of
//! [`RESERVATION_PROGRESS_BYTES_MIN`], so that a session that asks and asks, and sends next to nothing, does not keep other
//! publishers out. The time goes on over the connections of a publisher ([`StallRecord`]). A session that goes on after more than half of the time reserves a small part at a time: no other session
//! has taken the bytes before the reservation lapses, and a slow upload holds little more than it sends.
//!
//! The lock also tells a sweep that the drafts with the name of the session are in use.

use super::StoreError;
use super::blob_folder::SESSION;
use super::draft::DraftOwner;
use super::folder_access::{LockKind, create_unique, each_name, is_locked, lock, open_file};
use super::leftover::{make_room, remove_leftovers};
use super::stall_record::StallRecord;
use super::write_error::StoreWriteError;
use super::writer::StoreWriter;
use crate::limits::{RESERVATION_PROGRESS_BYTES_MIN, RESERVATION_SECONDS_MAX};
use base::sys::monotonic_nanos;
use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Account of a session.
pub struct QuotaAccount<'s> {
    store: &'s StoreWriter,
    /// Publisher of the session.
    owner: DraftOwner<'s>,
    /// Bytes of all contents and drafts in the store together with all reservations; None without a bound.
    quota: Option<u64>,
    file: File,
    name: String,
    /// Clock of the machine, in seconds. All processes have the same.
    clock: fn() -> u64,
    /// Reserved bytes that are not written yet.
    left: Cell<u64>,
    /// Time of the reservation.
    since: Cell<u64>,
    /// Time of the first reservation of an upload, or of the last progress after it.
    progressed: Cell<Option<u64>>,
    /// Bytes that were written since the last progress.
    moved: Cell<u64>,
}

impl<'s> QuotaAccount<'s> {
    /// Begins the account of a session, the only one of the store value. All drafts of the store have the name of the
    /// session from now on. Leftovers of ended sessions beyond their bound are removed.
    pub fn begin(
        store: &'s StoreWriter,
        owner: DraftOwner<'s>,
        quota: Option<u64>,
    ) -> Result<QuotaAccount<'s>, StoreWriteError> {
        QuotaAccount::begin_with_clock(store, owner, quota, seconds)
    }

    /// Begins the account of a session with a clock in seconds.
    pub(super) fn begin_with_clock(
        store: &'s StoreWriter,
        owner: DraftOwner<'s>,
        quota: Option<u64>,
        clock: fn() -> u64,
    ) -> Result<QuotaAccount<'s>, StoreWriteError> {
        remove_leftovers(store.drafts(), |_| true).map_err(StoreWriteError::at("drafts"))?;
        // A session that counts must not find the new file without its lock.
        let _counting = counting(store)?;
        let (file, name) =
            create_unique(store.drafts(), SESSION.trim_end_matches('-'), store.modes())
                .map_err(StoreWriteError::at("drafts"))?;
        let account = QuotaAccount {
            store,
            owner,
            quota,
            file,
            name,
            clock,
            left: Cell::new(0),
            since: Cell::new(0),
            progressed: Cell::new(None),
            moved: Cell::new(0),
        };
        flock(&account.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(StoreWriteError::at(account.path()))?;
        account.note(0)?;
        store.name_drafts(&account.name[SESSION.len()..]);
        Ok(account)
    }

    /// Reserves the bytes of an upload in place of the earlier reservation, as [`QuotaAccount::reserve`] does. The time of the
    /// reservation begins at the first upload of the publisher, and anew with each progress: a publisher that asks for upload
    /// after upload, in one session or in many, holds its bytes no longer than one that asks once.
    pub fn reserve_upload(&self, bytes: u64) -> Result<(), StoreWriteError> {
        let since = match self.progressed.get() {
            Some(since) => since,
            None => self.earlier_progress(bytes)?,
        };
        self.reserve_since(bytes, since)?;
        if bytes > 0 {
            self.progressed.set(Some(since));
        }
        Ok(())
    }

    /// Returns the time of the last progress of the publisher in earlier sessions, or the current time. The time is recorded
    /// before the bytes are reserved, also for a session that is killed.
    fn earlier_progress(&self, bytes: u64) -> Result<u64, StoreWriteError> {
        let now = (self.clock)();
        if self.quota.is_none() || bytes == 0 {
            return Ok(now);
        }
        let _counting = counting(self.store)?;
        let record = StallRecord::read(self.store, &self.owner, now)?;
        record.write(self.store, &self.owner, now)?;
        self.moved
            .set(self.moved.get().saturating_add(record.moved));
        Ok(record.since)
    }

    /// Records the progress of the session for the next ones of the publisher.
    fn record_progress(&self) -> Result<(), StoreWriteError> {
        let Some(since) = self.progressed.get().filter(|_| self.quota.is_some()) else {
            return Ok(());
        };
        let record = StallRecord {
            since,
            moved: self.moved.get(),
            ..StallRecord::default()
        };
        let _counting = counting(self.store)?;
        record.write(self.store, &self.owner, (self.clock)())
    }

    /// Reserves bytes for the next write in place of the earlier reservation. Refuses bytes beyond the quota, together with
    /// all contents and drafts of the store and the reservations of all other sessions. Drafts of ended sessions give way, the
    /// oldest first.
    pub fn reserve(&self, bytes: u64) -> Result<(), StoreWriteError> {
        self.reserve_since(bytes, (self.clock)())
    }

    fn reserve_since(&self, bytes: u64, since: u64) -> Result<(), StoreWriteError> {
        let _counting = counting(self.store)?;
        if let Some(quota) = self.quota {
            let reserved = self.reserved_by_others()?;
            let used = self.store.used_bytes()?;
            let needed = bytes.saturating_add(reserved).saturating_add(used);
            if let Some(bytes) = needed.checked_sub(quota).filter(|it| *it > 0) {
                let freed = make_room(self.store.drafts(), bytes);
                if freed.map_err(StoreWriteError::at("drafts"))? < bytes {
                    return Err(StoreWriteError::Quota { needed, quota });
                }
            }
        }
        self.since.set(since);
        self.note(bytes)
    }

    /// Reserves bytes for the next write if they are not reserved yet, or if their reservation is about to lapse.
    pub fn before_write(&self, bytes: u64) -> Result<(), StoreWriteError> {
        let age = (self.clock)().saturating_sub(self.since.get());
        if self.left.get() >= bytes && age < RESERVATION_SECONDS_MAX / 2 {
            return Ok(());
        }
        // Each reservation counts the whole store, so a row of small writes reserves more at once, as long as there is room.
        let ahead = self.reserve(bytes.max(RESERVED_AHEAD_BYTES));
        ahead.or_else(|_| self.reserve(bytes))
    }

    /// Takes written bytes from the reservation. Enough of them are progress.
    pub fn after_write(&self, bytes: u64) -> Result<(), StoreWriteError> {
        self.moved.set(self.moved.get().saturating_add(bytes));
        if self.moved.get() >= RESERVATION_PROGRESS_BYTES_MIN {
            self.moved.set(0);
            self.since.set((self.clock)());
            self.progressed.set(Some(self.since.get()));
        }
        self.note(self.left.get().saturating_sub(bytes))
    }

    /// Lowers the reservation to the bytes that are still to be written.
    pub fn settle(&self, bytes: u64) -> Result<(), StoreWriteError> {
        if bytes < self.left.get() {
            self.note(bytes)
        } else {
            Ok(())
        }
    }

    /// Returns the reserved bytes of all other sessions, and removes the files of killed sessions.
    fn reserved_by_others(&self) -> Result<u64, StoreWriteError> {
        let mut sum: u64 = 0;
        let drafts = self.store.drafts();
        each_name(drafts, |name| {
            if !name.starts_with(SESSION) || name == self.name {
                return Ok(());
            }
            if is_locked(drafts, name) {
                sum = sum.saturating_add(reserved_bytes(drafts, name, (self.clock)()));
            } else {
                // The next sweep removes a file that stays.
                let _ = unlinkat(drafts, name, AtFlags::empty());
            }
            Ok::<(), StoreError>(())
        })
        .map_err(StoreWriteError::at("drafts"))?;
        Ok(sum)
    }

    /// Writes the reservation for the other sessions.
    fn note(&self, bytes: u64) -> Result<(), StoreWriteError> {
        let mut noted = [0; Noted::BYTES];
        noted[..8].copy_from_slice(&bytes.to_le_bytes());
        noted[8..].copy_from_slice(&self.since.get().to_le_bytes());
        let written = self.file.write_all_at(&noted, 0);
        written.map_err(|error| StoreWriteError::at(self.path())(error))?;
        self.left.set(bytes);
        Ok(())
    }

    fn path(&self) -> String {
        format!("drafts/{}", self.name)
    }
}

impl Drop for QuotaAccount<'_> {
    fn drop(&mut self) {
        // Without the record, the next session of the publisher begins where this one began.
        let _ = self.record_progress();
        // A file that stays has no lock any more, and is removed by the next session or sweep.
        let _ = unlinkat(self.store.drafts(), &self.name, AtFlags::empty());
    }
}

/// Bytes that a session reserves at once for writes without a reservation, 1 MiB.
const RESERVED_AHEAD_BYTES: u64 = 1 << 20;

/// Takes the lock of the sessions that count.
fn counting(store: &StoreWriter) -> Result<File, StoreWriteError> {
    let lock = lock(store.root(), "quota", LockKind::Exclusive, store.modes());
    let lock = lock.map_err(StoreWriteError::at("quota"))?;
    lock.ok_or(StoreWriteError::Busy)
}

/// Reads the reserved bytes of a session. A session that ends meanwhile has none.
fn reserved_bytes(drafts: &std::os::fd::OwnedFd, name: &str, now: u64) -> u64 {
    let noted = open_file(drafts, name).map(|file| Noted::read(&file));
    noted.map_or(0, |noted| noted.reserved_bytes(now))
}

/// Reservation in the file of a session.
struct Noted {
    bytes: u64,
    /// Time of the reservation or of its last progress, in seconds of the machine's monotonic clock; None for a session of an
    /// earlier program.
    seconds: Option<u64>,
}

impl Noted {
    const BYTES: usize = 16;

    fn read(file: &File) -> Noted {
        let number = |at| {
            let mut bytes = [0; 8];
            let read = file.read_exact_at(&mut bytes, at);
            read.ok().map(|()| u64::from_le_bytes(bytes))
        };
        Noted {
            bytes: number(0).unwrap_or(0),
            seconds: number(8),
        }
    }

    fn reserved_bytes(&self, now: u64) -> u64 {
        let age = self.seconds.map_or(0, |then| now.saturating_sub(then));
        if age < RESERVATION_SECONDS_MAX {
            self.bytes
        } else {
            0
        }
    }
}

/// Returns the time in seconds, the same in all processes of the machine.
fn seconds() -> u64 {
    monotonic_nanos() / 1_000_000_000
}
