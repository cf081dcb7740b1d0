//! Manifest or difference on its way to the store. A publisher may send two texts of 32 MiB before anything about them
//! is checked, so all but short texts go to drafts, and a difference is applied line by line.

use super::error::ReceiveError;
use super::incoming::not_written;
use crate::receive::limits::RECEIVE_MANIFEST_MEMORY_BYTES_MAX;
use base::digest::Digest;
use release::limits::MANIFEST_BYTES_MAX;
use release::manifest::apply_difference;
use release::store::{Draft, QuotaAccount, StoreWriter};
use std::io::{BufRead, BufReader, Read as _, Write as _};

/// Text on its way: in memory, or in a draft once it is long.
pub(super) struct IncomingText<'s> {
    store: &'s StoreWriter,
    account: &'s QuotaAccount<'s>,
    memory: Vec<u8>,
    draft: Option<Draft<'s>>,
    digest: Digest,
    size: usize,
}

impl<'s> IncomingText<'s> {
    /// Returns an empty text.
    pub(super) fn new(store: &'s StoreWriter, account: &'s QuotaAccount<'s>) -> IncomingText<'s> {
        IncomingText {
            store,
            account,
            memory: Vec::new(),
            draft: None,
            digest: Digest::new(),
            size: 0,
        }
    }

    /// Returns true without any byte.
    pub(super) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Returns the bytes of the text that are in memory.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Appends a piece.
    pub(super) fn append(&mut self, piece: &[u8]) -> Result<(), ReceiveError> {
        self.size = self.size.saturating_add(piece.len());
        if self.size > MANIFEST_BYTES_MAX {
            return Err(ReceiveError::Refused(
                "the manifest is longer than 32 MiB".to_owned(),
            ));
        }
        self.digest.update(piece);
        if self.draft.is_none() && self.size <= RECEIVE_MANIFEST_MEMORY_BYTES_MAX {
            self.memory.extend_from_slice(piece);
            return Ok(());
        }
        if self.draft.is_none() {
            self.draft = Some(self.store.draft()?);
            let memory = std::mem::take(&mut self.memory);
            self.write(&memory)?;
        }
        self.write(piece)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ReceiveError> {
        if let Some(draft) = &mut self.draft {
            self.account.before_write(bytes.len() as u64)?;
            draft.write_all(bytes).map_err(not_written)?;
            self.account.after_write(bytes.len() as u64)?;
        }
        Ok(())
    }

    /// Returns a reader of the text.
    fn reader(&self) -> Result<Box<dyn BufRead + '_>, ReceiveError> {
        Ok(match &self.draft {
            None => Box::new(&self.memory[..]),
            Some(draft) => Box::new(BufReader::new(draft.read_back()?)),
        })
    }

    /// Returns the manifest that a text with a difference makes. The text begins with the digest of the earlier manifest,
    /// and `open` opens that manifest.
    pub(super) fn apply<B: BufRead>(
        &self,
        open: impl FnOnce(&[u8; 32]) -> Result<B, ReceiveError>,
    ) -> Result<IncomingText<'s>, ReceiveError> {
        let malformed = || ReceiveError::Protocol("the difference of the manifests is malformed");
        let mut steps = self.reader()?;
        let mut base = [0; 32];
        steps.read_exact(&mut base).map_err(|_| malformed())?;
        let mut made = IncomingText::new(self.store, self.account);
        if apply_difference(open(&base)?, steps, |part| made.append(part))? {
            Ok(made)
        } else {
            Err(malformed())
        }
    }

    /// Returns the whole text if it has a digest. Only then the text is in memory.
    pub(super) fn into_manifest(self, release: &[u8; 32]) -> Result<Vec<u8>, ReceiveError> {
        if self.digest.finish() != *release {
            return Err(ReceiveError::Protocol(
                "the manifest differs from its digest",
            ));
        }
        let Some(draft) = self.draft else {
            return Ok(self.memory);
        };
        let mut text = Vec::with_capacity(self.size);
        let file = draft.read_back()?;
        file.take(self.size as u64).read_to_end(&mut text)?;
        Ok(text)
    }
}
