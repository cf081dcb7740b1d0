//! Content on its way to the store, never longer than in the manifest.

use super::error::ReceiveError;
use release::manifest::BlobRef;
use release::store::{Draft, QuotaAccount};
use std::io::{self, Write};

/// Missing content on its way to the store. The written bytes never exceed the size in the manifest, so a short gzip
/// content with a long text does not fill the disk.
pub(super) struct IncomingContent<'s> {
    /// Number of the content in the manifest.
    pub(super) number: u32,
    /// Size and digest of the manifest.
    pub(super) content: BlobRef,
    /// Written part.
    pub(super) draft: Draft<'s>,
    /// Account of the session.
    pub(super) account: &'s QuotaAccount<'s>,
    /// Bytes that are reserved for the content.
    pub(super) reserved: u64,
}

impl Write for IncomingContent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.draft.size().saturating_add(bytes.len() as u64) > self.content.size {
            let what = "the content is longer than in the manifest";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.account
            .before_write(bytes.len() as u64)
            .map_err(io::Error::other)?;
        let count = self.draft.write(bytes)?;
        self.account
            .after_write(count as u64)
            .map_err(io::Error::other)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writer of the same bytes to two destinations.
pub(super) struct Both<'w>(pub(super) &'w mut dyn Write, pub(super) &'w mut dyn Write);

impl Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        self.1.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the reason that a piece of a content was not written.
pub(super) fn not_written(error: io::Error) -> ReceiveError {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof, WriteZero};
    match error.kind() {
        InvalidData => ReceiveError::Protocol("the content is longer than in the manifest"),
        // Errors of the decoder: no gzip, a wrong checksum, a cut stream, bytes after the end.
        InvalidInput | UnexpectedEof | WriteZero => {
            ReceiveError::Protocol("the gzip content has no text")
        }
        _ => ReceiveError::Refused(format!("the disk refused a content: {error}")),
    }
}
