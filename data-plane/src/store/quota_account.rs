//! Account of the bytes that the sessions of a store may write together.
//!
//! Each session has a file in the folder of drafts with the number of bytes that are reserved and not yet written. The file
//! is locked as long as the process lives (flock(2)), so a killed session gives its bytes back without a trace. A session
//! that reserves bytes counts the reservations of the others and the bytes of the store under one more lock.
//!
//! The reservations are read before the bytes of the store, and a session lowers its reservation after a write. A byte on
//! its way is therefore counted once or twice, and never left out.
//!
//! The lock also tells a sweep that the drafts with the name of the session are in use.

use super::StoreError;
use super::blob_folder::SESSION;
use super::folder_access::{LockKind, create_unique, each_name, is_locked, lock, open_file};
use super::write_error::StoreWriteError;
use super::writer::StoreWriter;
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
    /// session from now on.
    pub fn begin(
        store: &'s StoreWriter,
        quota: Option<u64>,
    ) -> Result<QuotaAccount<'s>, StoreWriteError> {
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
    /// drafts of the store and the reservations of all other sessions.
    pub fn reserve(&self, bytes: u64) -> Result<(), StoreWriteError> {
        let _counting = counting(self.store)?;
        if let Some(quota) = self.quota {
            let reserved = self.reserved_by_others()?;
            let used = self.store.used_bytes()?;
            let needed = bytes.saturating_add(reserved).saturating_add(used);
            if needed > quota {
                return Err(StoreWriteError::Quota { needed, quota });
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
                sum = sum.saturating_add(read_bytes(drafts, name));
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
        let written = self.file.write_all_at(&bytes.to_le_bytes(), 0);
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

/// Reads the reservation of a session. A session that ends meanwhile has no bytes.
fn read_bytes(drafts: &std::os::fd::OwnedFd, name: &str) -> u64 {
    let mut bytes = [0; 8];
    match open_file(drafts, name).map(|file| file.read_exact_at(&mut bytes, 0)) {
        Ok(Ok(())) => u64::from_le_bytes(bytes),
        _ => 0,
    }
}
