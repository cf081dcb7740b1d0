//! Account of the bytes that the sessions of a store may write together.
//!
//! Each session has a file in the folder of drafts with the number of bytes that are reserved and not yet written. The file
//! is locked as long as the process lives (flock(2)), so a killed session gives its bytes back without a trace. A session
//! that reserves bytes counts the reservations of the others and the bytes of the store under one more lock.
//!
//! The reservations are read before the bytes of the store, and a session lowers its reservation after a write. A byte on
//! its way is therefore counted once or twice, and never left out.
//!
//! A reservation lapses after [`RESERVATION_SILENCE_SECONDS_MAX`] without a frame of the publisher, so that a silent session
//! does not keep other publishers out. A session that goes on after more than half of the time reserves its bytes anew, so
//! no other session has taken them before the reservation lapses.
//!
//! The lock also tells a sweep that the drafts with the name of the session are in use.

use super::StoreError;
use super::blob_folder::SESSION;
use super::folder_access::{LockKind, create_unique, each_name, is_locked, lock, open_file};
use super::leftover::{make_room, remove_leftovers};
use super::write_error::StoreWriteError;
use super::writer::StoreWriter;
use crate::limits::RESERVATION_SILENCE_SECONDS_MAX;
use base::sys::monotonic_nanos;
use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Account of a session.
pub struct QuotaAccount<'s> {
    store: &'s StoreWriter,
    /// Bytes of all contents and drafts in the store together with all reservations; None without a bound.
    quota: Option<u64>,
    file: File,
    name: String,
    /// Reserved bytes that are not written yet.
    left: Cell<u64>,
}

impl<'s> QuotaAccount<'s> {
    /// Begins the account of a session, the only one of the store value. All drafts of the store have the name of the
    /// session from now on. Leftovers of ended sessions beyond their bound are removed.
    pub fn begin(
        store: &'s StoreWriter,
        quota: Option<u64>,
    ) -> Result<QuotaAccount<'s>, StoreWriteError> {
        remove_leftovers(store.drafts(), |_| true).map_err(StoreWriteError::at("drafts"))?;
        // A session that counts must not find the new file without its lock.
        let _counting = counting(store)?;
        let (file, name) =
            create_unique(store.drafts(), SESSION.trim_end_matches('-'), store.modes())
                .map_err(StoreWriteError::at("drafts"))?;
        let account = QuotaAccount {
            store,
            quota,
            file,
            name,
            left: Cell::new(0),
        };
        flock(&account.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(StoreWriteError::at(account.path()))?;
        account.note(0)?;
        store.name_drafts(&account.name[SESSION.len()..]);
        Ok(account)
    }

    /// Reserves bytes in place of the earlier reservation. Refuses bytes beyond the quota, together with all contents and
    /// drafts of the store and the reservations of all other sessions. Drafts of ended sessions give way, the oldest first.
    pub fn reserve(&self, bytes: u64) -> Result<(), StoreWriteError> {
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
        self.note(bytes)
    }

    /// Reserves bytes for the next write if they are not reserved yet.
    pub fn before_write(&self, bytes: u64) -> Result<(), StoreWriteError> {
        if self.left.get() >= bytes {
            return Ok(());
        }
        // Each reservation counts the whole store, so a row of small writes reserves more at once, as long as there is room.
        let ahead = self.reserve(bytes.max(RESERVED_AHEAD_BYTES));
        ahead.or_else(|_| self.reserve(bytes))
    }

    /// Keeps the reservation at a sign of life of the publisher. After a long silence the bytes are reserved anew, or
    /// refused.
    pub fn renew(&self) -> Result<(), StoreWriteError> {
        let left = self.left.get();
        let silence = Noted::read(&self.file).silence_seconds();
        if left == 0 || silence == 0 {
            Ok(())
        } else if silence < RESERVATION_SILENCE_SECONDS_MAX / 2 {
            self.note(left)
        } else {
            self.reserve(left)
        }
    }

    /// Takes written bytes from the reservation.
    pub fn after_write(&self, bytes: u64) -> Result<(), StoreWriteError> {
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
                sum = sum.saturating_add(reserved_bytes(drafts, name));
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
        noted[8..].copy_from_slice(&seconds().to_le_bytes());
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
fn reserved_bytes(drafts: &std::os::fd::OwnedFd, name: &str) -> u64 {
    let noted = open_file(drafts, name).map(|file| Noted::read(&file));
    noted.map_or(0, |noted| noted.reserved_bytes())
}

/// Reservation in the file of a session.
struct Noted {
    bytes: u64,
    /// Time of the last sign of life, in seconds of the machine's monotonic clock; None for a session of an earlier program.
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

    fn silence_seconds(&self) -> u64 {
        self.seconds
            .map_or(0, |then| seconds().saturating_sub(then))
    }

    fn reserved_bytes(&self) -> u64 {
        if self.silence_seconds() < RESERVATION_SILENCE_SECONDS_MAX {
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
