//! Differing files of two releases.

use super::{BlobRef, compare_paths};
use std::cmp::Ordering;

/// Numbers of differing files between two releases.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Files that only the newer release has.
    pub added: usize,
    /// Files with other contents.
    pub changed: usize,
    /// Files that only the older release has.
    pub removed: usize,
}

/// Kind of a difference between two releases.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only the newer release has the file.
    Added,
    /// The contents differ.
    Changed,
    /// Only the older release has the file.
    Removed,
}

impl Changes {
    /// Compares the files of two releases, both in the order of a manifest. Calls `see` for each difference, and returns
    /// the numbers.
    pub fn compare<P: AsRef<[u8]>>(
        old: impl Iterator<Item = (P, BlobRef)>,
        new: impl Iterator<Item = (P, BlobRef)>,
        mut see: impl FnMut(Change, &[u8]),
    ) -> Changes {
        let mut changes = Changes::default();
        let (mut old, mut new) = (old.peekable(), new.peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return changes,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(after)) => compare_paths(before.0.as_ref(), after.0.as_ref()),
            };
            let before = old.next_if(|_| order.is_le());
            let after = new.next_if(|_| order.is_ge());
            let (count, change, path) = match (&before, &after) {
                (Some(before), Some(after)) if before.1 == after.1 => continue,
                (Some(_), Some(after)) => (&mut changes.changed, Change::Changed, after),
                (Some(before), None) => (&mut changes.removed, Change::Removed, before),
                (None, Some(after)) => (&mut changes.added, Change::Added, after),
                (None, None) => return changes,
            };
            *count += 1;
            see(change, path.0.as_ref());
        }
    }
}
