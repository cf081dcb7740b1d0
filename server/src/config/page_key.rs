//! Key of the pages of a route in the page cache, as an encoding of settings. The file that declares a table of the
//! configuration also adds the settings of the table to the key, so that a new key of the table is not forgotten there.

use base::digest::sha256;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Unambiguous encoding of the fields of a key: a number is 8 bytes, a text has its length in front, a
/// list its count, an enum the number of its variant.
pub(crate) struct PageKey(Vec<u8>);

impl PageKey {
    /// Begins a key.
    pub(crate) fn new() -> PageKey {
        PageKey(Vec::new())
    }

    /// Returns the digest of the encoding.
    pub(crate) fn digest(&self) -> u64 {
        let digest = sha256(&self.0);
        let first = digest.iter().take(8);
        first.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut PageKey, T)) {
        self.number(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut PageKey, T),
    ) {
        self.number(items.len() as u64);
        items.for_each(|item| write(self, item));
    }

    pub(crate) fn pairs(&mut self, pairs: &[(String, String)]) {
        self.list(pairs.iter(), |key, (name, value)| {
            key.text(name);
            key.text(value);
        });
    }
}
