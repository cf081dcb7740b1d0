//! Record of the time for which the uploads of a publisher have made no progress. The record stays behind the sessions, so
//! a publisher that connects again and again holds a reservation no longer than one that stays connected.

use super::blob_folder::STALLED;
use super::draft::DraftOwner;
use super::folder_access::{Missing, open_locked};
use super::write_error::StoreWriteError;
use super::writer::StoreWriter;
use crate::limits::RESERVATION_RENEWAL_SECONDS;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Uploads of one publisher, as of its last session. The times are seconds of the machine's monotonic clock.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct StallRecord {
    /// Time of the last progress, or of the first reservation if no progress followed.
    pub(super) since: u64,
    /// Bytes that were written since then.
    pub(super) moved: u64,
    /// Time at which a session last had a reservation.
    pub(super) seen: u64,
}

impl StallRecord {
    const BYTES: usize = 24;

    /// Returns the record of an owner. A publisher without a reservation for [`RESERVATION_RENEWAL_SECONDS`] begins anew.
    pub(super) fn read(
        store: &StoreWriter,
        owner: &DraftOwner<'_>,
        now: u64,
    ) -> Result<StallRecord, StoreWriteError> {
        let new = StallRecord {
            since: now,
            moved: 0,
            seen: now,
        };
        let Some(file) = open(store, owner, Missing::Leave)? else {
            return Ok(new);
        };
        let mut bytes = [0; StallRecord::BYTES];
        if file.read_exact_at(&mut bytes, 0).is_err() {
            return Ok(new);
        }
        let (numbers, _) = bytes.as_chunks::<8>();
        let [since, moved, seen] = [0, 1, 2].map(|at| u64::from_le_bytes(numbers[at]));
        // The clock begins anew with the machine.
        let is_known = since <= seen && seen <= now && now - seen < RESERVATION_RENEWAL_SECONDS;
        Ok(if is_known {
            StallRecord { since, moved, seen }
        } else {
            new
        })
    }

    /// Writes the record for the next sessions of the owner.
    pub(super) fn write(
        mut self,
        store: &StoreWriter,
        owner: &DraftOwner<'_>,
        now: u64,
    ) -> Result<(), StoreWriteError> {
        self.seen = now;
        let Some(file) = open(store, owner, Missing::Make)? else {
            return Ok(());
        };
        let bytes = [self.since, self.moved, self.seen].map(u64::to_le_bytes);
        let written = file.write_all_at(bytes.as_flattened(), 0);
        written.map_err(|error| StoreWriteError::at("drafts")(error))
    }
}

/// Opens the record of an owner. Returns None without a record, and for one that another account holds.
fn open(
    store: &StoreWriter,
    owner: &DraftOwner<'_>,
    missing: Missing,
) -> Result<Option<File>, StoreWriteError> {
    let name = owner.record_name(STALLED);
    let opened = open_locked(store.drafts(), &name, missing, store.modes());
    opened.map_err(StoreWriteError::at(format!("drafts/{name}")))
}
