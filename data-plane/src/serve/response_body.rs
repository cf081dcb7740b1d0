//! Bodies of responses without a handler, read part by part.

use crate::ledger::body_memory::BodyAccount;
use crate::site::{BodyPiece, DiskContent, Listing, Variant, VariantResponse};
use base::sys;
use std::io;
use std::sync::Arc;

/// Reader of the rest of a body.
pub(super) struct BodyReader {
    source: BodyContent,
    /// Index of the current piece, and the offset within the piece.
    piece: usize,
    at: u64,
    /// Bytes read from disk by the thread pool for the next part.
    fed: Option<Vec<u8>>,
    /// Memory of the handler's call with the body.
    _memory: BodyAccount,
}

enum BodyContent {
    Stored(VariantResponse),
    Bytes(Vec<u8>),
    /// Directory listing, generated while the body is sent.
    Listing(Box<Listing>),
}

/// Result of a request for more bytes of a body.
pub(super) enum BodyFill {
    /// Bytes were added, and more may follow.
    Some,
    /// No bytes are available now.
    Nothing,
    /// The body is complete; the last bytes, if any, were added.
    Last,
    /// The bytes must be read from disk on the thread pool first.
    Disk(DiskRead),
    /// The body can't be completed as announced.
    Broken,
}

/// A read that would have blocked the worker.
pub(super) struct DiskRead {
    variant: Arc<Variant>,
    offset: u64,
    bytes: usize,
    keep: bool,
}

impl DiskRead {
    /// Creates a read of `bytes` bytes at `offset`; the bytes are returned.
    pub(super) fn new(variant: Arc<Variant>, offset: u64, bytes: usize) -> DiskRead {
        DiskRead {
            variant,
            offset,
            bytes,
            keep: true,
        }
    }

    /// Creates a read that only fills the kernel's file cache.
    pub(super) fn into_file_cache(variant: Arc<Variant>, offset: u64, bytes: usize) -> DiskRead {
        DiskRead {
            keep: false,
            ..DiskRead::new(variant, offset, bytes)
        }
    }

    /// Reads the bytes and blocks meanwhile. The result is empty if the read only fills the kernel's file cache.
    pub(super) fn run(self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; self.bytes];
        let Some(disk) = self.variant.disk() else {
            return Ok(Vec::new());
        };
        let read = sys::pread(disk.fd(), &mut buffer, self.offset)?;
        buffer.truncate(if self.keep { read } else { 0 });
        Ok(buffer)
    }
}

impl BodyReader {
    pub(super) fn stored(stored: VariantResponse) -> BodyReader {
        BodyReader::new(BodyContent::Stored(stored))
    }

    pub(super) fn bytes(bytes: Vec<u8>) -> BodyReader {
        BodyReader::new(BodyContent::Bytes(bytes))
    }

    pub(super) fn listing(listing: Box<Listing>) -> BodyReader {
        BodyReader::new(BodyContent::Listing(listing))
    }

    fn new(source: BodyContent) -> BodyReader {
        BodyReader {
            source,
            piece: 0,
            at: 0,
            fed: None,
            _memory: BodyAccount::default(),
        }
    }

    /// Keeps the memory of a handler's call reserved as long as the body.
    pub(super) fn with_memory(self, memory: BodyAccount) -> BodyReader {
        BodyReader {
            _memory: memory,
            ..self
        }
    }

    /// Returns the bytes of memory held while the body waits, beside memory shared with files and pages.
    #[cfg(feature = "http3")]
    pub(super) fn held_bytes(&self) -> usize {
        match &self.source {
            BodyContent::Stored(_) => 0,
            BodyContent::Bytes(bytes) => bytes.len(),
            BodyContent::Listing(listing) => listing.held_bytes(),
        }
    }

    /// Accepts the bytes read by a [`DiskRead`].
    pub(super) fn feed(&mut self, bytes: Vec<u8>) {
        self.fed = Some(bytes);
    }

    /// Appends at most `bytes_max` bytes of the body to `out`.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> BodyFill {
        let end = out.len() + bytes_max;
        match &mut self.source {
            BodyContent::Bytes(bytes) => {
                self.at += copy(&bytes[self.at as usize..], out, end) as u64;
                if self.at == bytes.len() as u64 {
                    BodyFill::Last
                } else {
                    BodyFill::Some
                }
            }
            BodyContent::Listing(listing) => {
                if listing.next_part(out, bytes_max) {
                    BodyFill::Some
                } else {
                    BodyFill::Last
                }
            }
            BodyContent::Stored(_) => self.fill_stored(out, end),
        }
    }

    fn fill_stored(&mut self, out: &mut Vec<u8>, end: usize) -> BodyFill {
        let begin = out.len();
        while out.len() < end {
            let BodyContent::Stored(stored) = &self.source else {
                return BodyFill::Broken;
            };
            let length = match stored.piece(self.piece) {
                None => return BodyFill::Last,
                Some(BodyPiece::Bytes(bytes)) => {
                    self.at += copy(&bytes[self.at as usize..], out, end) as u64;
                    bytes.len() as u64
                }
                Some(BodyPiece::File {
                    content,
                    offset,
                    len,
                }) => {
                    let left = len - self.at;
                    let want = left.min((end - out.len()) as u64) as usize;
                    let from = offset + self.at;
                    let start = out.len();
                    match read(content, self.fed.take(), from, want, out) {
                        Ok(true) => {}
                        Ok(false) if start > begin => return BodyFill::Some,
                        Ok(false) => {
                            let variant = stored.variant.clone();
                            return BodyFill::Disk(DiskRead::new(variant, from, want));
                        }
                        Err(_) => return BodyFill::Broken,
                    }
                    let read = (out.len() - start) as u64;
                    // The bytes read belong to the announced file only if the file is still unchanged. The
                    // check comes before the last bytes are sent: without the last bytes the client can't
                    // mistake the body for complete.
                    if read == 0 || (read == left && !content.unchanged()) {
                        out.truncate(start);
                        return BodyFill::Broken;
                    }
                    self.at += read;
                    len
                }
            };
            if self.at == length {
                self.piece += 1;
                self.at = 0;
            }
        }
        // Reports the end at once, so that no empty frame has to follow.
        match &self.source {
            BodyContent::Stored(stored) if stored.piece(self.piece).is_none() => BodyFill::Last,
            _ => BodyFill::Some,
        }
    }
}

/// Appends at most `want` bytes of a file at offset `from`, out of `fed` if the thread pool has read the
/// bytes. Returns false if the bytes must be read from disk first.
fn read(
    content: &DiskContent,
    fed: Option<Vec<u8>>,
    from: u64,
    want: usize,
    out: &mut Vec<u8>,
) -> io::Result<bool> {
    if let Some(bytes) = fed {
        // The window may have shrunk since the read; the surplus is read again later.
        out.extend_from_slice(&bytes[..bytes.len().min(want)]);
        return Ok(true);
    }
    let start = out.len();
    out.resize(start + want, 0);
    let read = sys::pread_nowait(content.fd(), &mut out[start..], from);
    let bytes = match &read {
        Ok(Some(bytes)) => *bytes,
        Ok(None) | Err(_) => 0,
    };
    out.truncate(start + bytes);
    Ok(read?.is_some())
}

/// Appends as much of `bytes` as fits until `out` ends at `end`. Returns the number of bytes appended.
fn copy(bytes: &[u8], out: &mut Vec<u8>, end: usize) -> usize {
    let taken = bytes.len().min(end - out.len());
    out.extend_from_slice(&bytes[..taken]);
    taken
}
