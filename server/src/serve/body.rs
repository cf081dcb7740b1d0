//! The body of a response that doesn't come from a handler, taken part by part.

use crate::base::sys;
use crate::serve::h1::send::DiskRead;
use crate::site::{BodyPiece, Listing, VariantResponse};

/// What is left of a body.
pub(super) struct BodyReader {
    source: BodyContent,
    /// Which piece is due, and from where in it.
    piece: usize,
    at: u64,
    /// What was read for it off the worker.
    fed: Option<Vec<u8>>,
}

enum BodyContent {
    Stored(VariantResponse),
    Bytes(Vec<u8>),
    /// Made while it is sent.
    Listing(Box<Listing>),
}

/// How far a look for bytes came.
pub(super) enum BodyFill {
    /// There may be more.
    Some,
    /// None now.
    Nothing,
    /// These were the last, if there were any.
    Last,
    /// The disk must be read first, off the worker.
    Disk(DiskRead),
    /// What was promised can't be kept.
    Broken,
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
        }
    }

    /// Bytes that it takes in memory while it waits, beside what files and pages share.
    #[cfg(feature = "http3")]
    pub(super) fn held_bytes(&self) -> usize {
        match &self.source {
            BodyContent::Stored(_) => 0,
            BodyContent::Bytes(bytes) => bytes.len(),
            BodyContent::Listing(listing) => listing.held_bytes(),
        }
    }

    /// Takes what a [`DiskRead`] brought.
    pub(super) fn feed(&mut self, bytes: Vec<u8>) {
        self.fed = Some(bytes);
    }

    /// Appends at most `bytes_max` to `out`.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> BodyFill {
        let end = out.len() + bytes_max;
        match &mut self.source {
            BodyContent::Bytes(bytes) => {
                self.at += copy(&bytes[self.at as usize..], out, end) as u64;
                match self.at == bytes.len() as u64 {
                    true => BodyFill::Last,
                    false => BodyFill::Some,
                }
            }
            BodyContent::Listing(listing) => match listing.next_part(out, bytes_max) {
                true => BodyFill::Some,
                false => BodyFill::Last,
            },
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
                    let start = out.len();
                    match self.fed.take() {
                        Some(bytes) => {
                            // The window may have shrunk since: what is left over is read again.
                            out.extend_from_slice(&bytes[..bytes.len().min(want)]);
                        }
                        None => {
                            out.resize(start + want, 0);
                            let from = offset + self.at;
                            match sys::pread_nowait(content.fd(), &mut out[start..], from) {
                                Ok(Some(read)) => out.truncate(start + read),
                                Ok(None) => {
                                    out.truncate(start);
                                    if start > begin {
                                        return BodyFill::Some;
                                    }
                                    let variant = stored.variant.clone();
                                    return BodyFill::Disk(DiskRead::new(variant, from, want));
                                }
                                Err(_) => {
                                    out.truncate(start);
                                    return BodyFill::Broken;
                                }
                            }
                        }
                    }
                    let read = (out.len() - start) as u64;
                    // All that was read is the file that was promised if it still is that now.
                    // Asked before the last bytes leave: without them nothing looks whole.
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
        // So that no empty frame has to follow.
        match &self.source {
            BodyContent::Stored(stored) if stored.piece(self.piece).is_none() => BodyFill::Last,
            _ => BodyFill::Some,
        }
    }
}

/// Appends as much of `bytes` as fits until `out` ends at `end`; says how much.
fn copy(bytes: &[u8], out: &mut Vec<u8>, end: usize) -> usize {
    let taken = bytes.len().min(end - out.len());
    out.extend_from_slice(&bytes[..taken]);
    taken
}
