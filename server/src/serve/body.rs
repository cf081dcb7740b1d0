//! The body of a response that doesn't come from a handler, taken part by part.

use super::outgoing::DiskRead;
use crate::base::sys;
use crate::site::{Listing, Piece, Stored};

/// What is left of a body.
pub(super) struct Body {
    source: Source,
    /// Which piece is due, and from where in it.
    piece: usize,
    at: u64,
    /// What was read for it off the worker.
    fed: Option<Vec<u8>>,
}

enum Source {
    Stored(Stored),
    Bytes(Vec<u8>),
    /// Made while it is sent.
    Listing(Box<Listing>),
}

/// How far a look for bytes came.
pub(super) enum Filled {
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

impl Body {
    pub(super) fn stored(stored: Stored) -> Body {
        Body::new(Source::Stored(stored))
    }

    pub(super) fn bytes(bytes: Vec<u8>) -> Body {
        Body::new(Source::Bytes(bytes))
    }

    pub(super) fn listing(listing: Box<Listing>) -> Body {
        Body::new(Source::Listing(listing))
    }

    fn new(source: Source) -> Body {
        Body {
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
            Source::Stored(_) => 0,
            Source::Bytes(bytes) => bytes.len(),
            Source::Listing(listing) => listing.held_bytes(),
        }
    }

    /// Takes what a [`DiskRead`] brought.
    pub(super) fn feed(&mut self, bytes: Vec<u8>) {
        self.fed = Some(bytes);
    }

    /// Appends at most `bytes_max` to `out`.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> Filled {
        let end = out.len() + bytes_max;
        match &mut self.source {
            Source::Bytes(bytes) => {
                self.at += copy(&bytes[self.at as usize..], out, end) as u64;
                match self.at == bytes.len() as u64 {
                    true => Filled::Last,
                    false => Filled::Some,
                }
            }
            Source::Listing(listing) => match listing.next_part(out, bytes_max) {
                true => Filled::Some,
                false => Filled::Last,
            },
            Source::Stored(_) => self.fill_stored(out, end),
        }
    }

    fn fill_stored(&mut self, out: &mut Vec<u8>, end: usize) -> Filled {
        let begin = out.len();
        while out.len() < end {
            let Source::Stored(stored) = &self.source else {
                return Filled::Broken;
            };
            let length = match stored.piece(self.piece) {
                None => return Filled::Last,
                Some(Piece::Bytes(bytes)) => {
                    self.at += copy(&bytes[self.at as usize..], out, end) as u64;
                    bytes.len() as u64
                }
                Some(Piece::File {
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
                                        return Filled::Some;
                                    }
                                    let variant = stored.variant.clone();
                                    return Filled::Disk(DiskRead::new(variant, from, want));
                                }
                                Err(_) => {
                                    out.truncate(start);
                                    return Filled::Broken;
                                }
                            }
                        }
                    }
                    let read = (out.len() - start) as u64;
                    // All that was read is the file that was promised if it still is that now.
                    // Asked before the last bytes leave: without them nothing looks whole.
                    if read == 0 || (read == left && !content.unchanged()) {
                        out.truncate(start);
                        return Filled::Broken;
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
            Source::Stored(stored) if stored.piece(self.piece).is_none() => Filled::Last,
            _ => Filled::Some,
        }
    }
}

/// Appends as much of `bytes` as fits until `out` ends at `end`; says how much.
fn copy(bytes: &[u8], out: &mut Vec<u8>, end: usize) -> usize {
    let taken = bytes.len().min(end - out.len());
    out.extend_from_slice(&bytes[..taken]);
    taken
}
