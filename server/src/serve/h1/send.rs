//! Sending a response of HTTP/1.1: a writer that resumes where the socket stopped accepting bytes.
//!
//! The writer holds its own page variant and not the World, so a long download does not keep an old
//! configuration in memory. No more bytes are read or encrypted for a connection while
//! [`limits::UNSENT_BYTES_MAX`] wait for the client.

use crate::base::sys;
use crate::limits;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::site::{BodyPiece, BodySelection, DiskContent, Variant, VariantResponse};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The unsent part of one response.
pub struct ResponseWriter {
    /// Bytes before the source: the header section, or the current chunk with its framing.
    lead: Vec<u8>,
    lead_at: usize,
    source: H1BodySource,
    /// Index of the current piece of the source. `piece_at` is the offset in the piece.
    piece: usize,
    piece_at: u64,
    /// Number of content bytes passed on to the socket or to TLS.
    pub sent: u64,
    /// TLS only: bytes that a [`DiskRead`] returned, not yet encrypted.
    disk: Option<Vec<u8>>,
}

/// Source of a response's content.
pub enum H1BodySource {
    /// No content beyond the lead.
    Nothing,
    /// A stored page.
    Stored(VariantResponse),
    /// Chunks generated on demand: the framed bytes, and the number of content bytes among the framed
    /// bytes.
    Chunks(Box<dyn Iterator<Item = (Vec<u8>, usize)>>),
}

/// Result of an attempt to send.
pub enum SendProgress {
    /// The kernel has accepted all bytes.
    Done,
    /// The file's bytes are not in the page cache. The caller runs the read on the thread pool and passes
    /// the result to [`ResponseWriter::feed`].
    Disk(DiskRead),
}

/// A read that would have blocked the worker.
pub struct DiskRead {
    variant: Arc<Variant>,
    offset: u64,
    bytes: usize,
    keep: bool,
}

impl DiskRead {
    /// Creates a read of `bytes` bytes at `offset`; the bytes are returned to the writer.
    pub(in crate::serve) fn new(variant: Arc<Variant>, offset: u64, bytes: usize) -> DiskRead {
        DiskRead {
            variant,
            offset,
            bytes,
            keep: true,
        }
    }

    /// Reads the bytes and blocks meanwhile. The result is empty if the read only fills the page cache.
    pub fn run(self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; self.bytes];
        let Some(disk) = self.variant.disk() else {
            return Ok(Vec::new());
        };
        let read = sys::pread(disk.fd(), &mut buffer, self.offset)?;
        buffer.truncate(if self.keep { read } else { 0 });
        Ok(buffer)
    }
}

impl ResponseWriter {
    /// Creates a writer of `lead`, then of `source` from its beginning.
    pub fn new(lead: Vec<u8>, source: H1BodySource) -> ResponseWriter {
        ResponseWriter {
            lead,
            lead_at: 0,
            source,
            piece: 0,
            piece_at: 0,
            sent: 0,
            disk: None,
        }
    }

    /// Creates a writer of `lead`, then of `source` from byte `body_at` of its first piece.
    pub fn resume(lead: Vec<u8>, source: H1BodySource, body_at: u64) -> ResponseWriter {
        ResponseWriter {
            piece_at: body_at,
            sent: body_at,
            ..ResponseWriter::new(lead, source)
        }
    }

    /// Accepts the bytes that a [`DiskRead`] returned.
    pub fn feed(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.disk = Some(bytes);
        }
    }

    /// Sends as many bytes as the socket accepts. `now_us` is the worker's time in microseconds.
    pub fn poll_send(
        &mut self,
        stream: &mut MaybeTlsStream,
        scratch: &mut [u8],
        now_us: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<SendProgress>> {
        if stream.tls.is_some() {
            self.poll_send_tls(stream, scratch, cx)
        } else {
            self.poll_send_plain(stream, now_us, cx)
        }
    }

    fn poll_send_plain(
        &mut self,
        stream: &mut MaybeTlsStream,
        now_us: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<SendProgress>> {
        loop {
            if self.lead_at < self.lead.len() {
                let lead = &self.lead[self.lead_at..];
                let piece = match &self.source {
                    H1BodySource::Stored(stored) => stored.piece(self.piece),
                    H1BodySource::Chunks(_) | H1BodySource::Nothing => None,
                };
                let taken = match piece {
                    Some(BodyPiece::Bytes(bytes)) if !self.has_file(bytes.len()) => {
                        let bytes = &bytes[self.piece_at as usize..];
                        ready!(stream.poll_write(cx, &[IoSlice::new(lead), IoSlice::new(bytes)]))?
                    }
                    // The first bytes of the file share a packet with the lead.
                    Some(_) => ready!(stream.socket.poll_write_more(cx, lead))?,
                    None => ready!(stream.poll_write(cx, &[IoSlice::new(lead)]))?,
                };
                let of_lead = taken.min(lead.len());
                self.lead_at += of_lead;
                self.piece_at += (taken - of_lead) as u64;
                self.sent += (taken - of_lead) as u64;
                continue;
            }
            let piece = match &self.source {
                H1BodySource::Stored(stored) => {
                    by_file(stored, self.piece, self.piece_at > 0, now_us)?
                }
                H1BodySource::Chunks(_) | H1BodySource::Nothing => None,
            };
            match piece {
                None => {
                    if !self.next_chunk() {
                        return Poll::Ready(Ok(SendProgress::Done));
                    }
                }
                Some(BodyPiece::Bytes(bytes)) => {
                    let rest = &bytes[self.piece_at as usize..];
                    if rest.is_empty() {
                        self.next_piece();
                        continue;
                    }
                    let taken = ready!(stream.poll_write(cx, &[IoSlice::new(rest)]))?;
                    self.piece_at += taken as u64;
                    self.sent += taken as u64;
                }
                Some(BodyPiece::File {
                    content,
                    offset,
                    len,
                }) => {
                    let left = len - self.piece_at;
                    let from = offset + self.piece_at;
                    if let H1BodySource::Stored(stored) = &self.source
                        && let Some(read) = cold(&stored.variant, content, from, left)
                    {
                        return Poll::Ready(Ok(SendProgress::Disk(read)));
                    }
                    // The first part and the header section together are as large as a later part. A full
                    // first part leaves in whole packets; a small packet in the middle of a response would
                    // mislead the congestion control about the network.
                    let most = match self.piece_at {
                        0 => SENDFILE_BYTES_MAX - self.lead.len() as u64,
                        _ => SENDFILE_BYTES_MAX,
                    };
                    let want = left.min(most) as usize;
                    let taken =
                        ready!(stream.socket.poll_sendfile(cx, content.fd(), from, want))? as u64;
                    if taken == 0 {
                        // The file is shorter than the announced length, so the response can't be
                        // completed.
                        return Poll::Ready(Err(changed()));
                    }
                    self.piece_at += taken;
                    self.sent += taken;
                    if taken == left {
                        self.next_piece();
                    } else if taken == want as u64 && left - taken > SENDFILE_REST_BYTES {
                        // Other connections run first, and the kernel gets time to send the accepted bytes.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn poll_send_tls(
        &mut self,
        stream: &mut MaybeTlsStream,
        scratch: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<SendProgress>> {
        let mut turn = limits::TURN_BYTES_MAX;
        loop {
            ready!(stream.poll_flush(cx))?;
            if turn == 0 {
                // Other connections run first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            turn = turn.saturating_sub(limits::UNSENT_BYTES_MAX);
            let mut room = limits::UNSENT_BYTES_MAX - TLS_OVERHEAD;
            let mut idle = true;
            while room > 0 {
                if self.lead_at < self.lead.len() {
                    let lead = &self.lead[self.lead_at..];
                    // The header section and the content share a TLS record if both fit.
                    let body = match &self.source {
                        H1BodySource::Stored(stored) => match stored.piece(self.piece) {
                            Some(BodyPiece::Bytes(bytes)) => &bytes[self.piece_at as usize..],
                            _ => &[],
                        },
                        _ => &[],
                    };
                    let lead = &lead[..lead.len().min(room)];
                    let body = &body[..body.len().min(room - lead.len())];
                    let taken = stream.encrypt(&[IoSlice::new(lead), IoSlice::new(body)])?;
                    let of_lead = taken.min(lead.len());
                    self.lead_at += of_lead;
                    self.piece_at += (taken - of_lead) as u64;
                    self.sent += (taken - of_lead) as u64;
                    room -= taken;
                    idle = false;
                    continue;
                }
                let piece = match &self.source {
                    H1BodySource::Stored(stored) => stored.piece(self.piece),
                    H1BodySource::Chunks(_) | H1BodySource::Nothing => None,
                };
                match piece {
                    None => {
                        if self.next_chunk() {
                            continue;
                        }
                        if idle {
                            return Poll::Ready(Ok(SendProgress::Done));
                        }
                        break;
                    }
                    Some(BodyPiece::Bytes(bytes)) => {
                        let rest = &bytes[self.piece_at as usize..];
                        if rest.is_empty() {
                            self.next_piece();
                            continue;
                        }
                        let taken =
                            stream.encrypt(&[IoSlice::new(&rest[..rest.len().min(room)])])?;
                        self.piece_at += taken as u64;
                        self.sent += taken as u64;
                        room -= taken;
                        idle = false;
                    }
                    Some(BodyPiece::File {
                        content,
                        offset,
                        len,
                    }) => {
                        let left = len - self.piece_at;
                        if left == 0 {
                            self.next_piece();
                            continue;
                        }
                        let want = (left.min(room as u64) as usize).min(scratch.len());
                        let from = offset + self.piece_at;
                        let fed = self.disk.take();
                        let bytes = match &fed {
                            Some(bytes) => &bytes[..bytes.len().min(want)],
                            None => {
                                match sys::pread_nowait(content.fd(), &mut scratch[..want], from)? {
                                    Some(read) => &scratch[..read],
                                    None if !idle => break,
                                    None => {
                                        let H1BodySource::Stored(stored) = &self.source else {
                                            return Poll::Ready(Err(changed()));
                                        };
                                        let variant = stored.variant.clone();
                                        let read = DiskRead {
                                            variant,
                                            offset: from,
                                            bytes: want,
                                            keep: true,
                                        };
                                        return Poll::Ready(Ok(SendProgress::Disk(read)));
                                    }
                                }
                            }
                        };
                        // All bytes read belong to the announced file if the file is unchanged now. The
                        // check comes before the last bytes leave: without the last bytes no client takes
                        // the response for complete.
                        let is_last = bytes.len() as u64 == left;
                        if bytes.is_empty() || (is_last && !content.unchanged()) {
                            return Poll::Ready(Err(changed()));
                        }
                        let taken = stream.encrypt(&[IoSlice::new(bytes)])?;
                        self.piece_at += taken as u64;
                        self.sent += taken as u64;
                        room -= taken.min(room);
                        idle = false;
                    }
                }
            }
        }
    }

    /// Returns true if the content is also in an open file and is long enough for sendfile.
    fn has_file(&self, bytes: usize) -> bool {
        match &self.source {
            H1BodySource::Stored(stored) => {
                bytes as u64 >= limits::SENDFILE_BYTES_MIN && stored.variant.disk().is_some()
            }
            H1BodySource::Chunks(_) | H1BodySource::Nothing => false,
        }
    }

    fn next_piece(&mut self) {
        self.piece += 1;
        self.piece_at = 0;
    }

    /// Replaces the lead by the next chunk. Returns false at the end.
    fn next_chunk(&mut self) -> bool {
        let H1BodySource::Chunks(chunks) = &mut self.source else {
            return false;
        };
        match chunks.next() {
            Some((chunk, content_bytes)) => {
                self.sent += content_bytes as u64;
                self.lead = chunk;
                self.lead_at = 0;
                true
            }
            None => false,
        }
    }
}

/// Bytes reserved for record headers, authentication tags and a session ticket beside the plaintext.
const TLS_OVERHEAD: usize = 1024;
/// Maximum of bytes for one sendfile call, so that a fast client does not delay other clients.
const SENDFILE_BYTES_MAX: u64 = 256 * 1024;
/// Maximum remainder after a part that is sent at once instead of in a separate turn.
const SENDFILE_REST_BYTES: u64 = 32 * 1024;
/// Minimum length for the check whether a file is in the page cache: a blocking read of a shorter file
/// is brief.
const PROBE_BYTES_MIN: u64 = 1 << 20;

/// Returns piece `nth`, as a part of the open file instead of memory if the piece is large: sendfile copies
/// no bytes. Returns an error if the piece is only in the file and the file changed.
fn by_file(
    stored: &VariantResponse,
    nth: usize,
    is_begun: bool,
    now_us: u64,
) -> io::Result<Option<BodyPiece<'_>>> {
    let piece = stored.piece(nth);
    let bytes = match &piece {
        Some(BodyPiece::Bytes(bytes)) => bytes,
        // The check comes before each part, because bytes already sent can't be recalled.
        Some(BodyPiece::File { content, .. }) if !content.was_unchanged(now_us) => {
            return Err(changed());
        }
        _ => return Ok(piece),
    };
    let len = bytes.len() as u64;
    let offset = match stored.part {
        BodySelection::Whole => 0,
        BodySelection::One { start, .. } => start,
        BodySelection::Nothing | BodySelection::Several(_) => return Ok(piece),
    };
    // Only a fresh check detects a file truncated and rewritten during a response. The remaining bytes are
    // sent from memory after a change.
    let is_same = |content: &DiskContent| match is_begun {
        true => content.unchanged(),
        false => content.was_unchanged(now_us),
    };
    Ok(match stored.variant.disk() {
        Some(content) if len >= limits::SENDFILE_BYTES_MIN && is_same(content) => {
            Some(BodyPiece::File {
                content,
                offset,
                len,
            })
        }
        _ => piece,
    })
}

fn changed() -> io::Error {
    io::Error::other("the file changed while it was sent")
}

/// Returns a read that fills the page cache if sendfile would wait for the disk.
fn cold(variant: &Arc<Variant>, content: &DiskContent, offset: u64, left: u64) -> Option<DiskRead> {
    if left < PROBE_BYTES_MIN {
        return None;
    }
    let mut probe = [0];
    let bytes = left.min(SENDFILE_BYTES_MAX) as usize;
    let last = offset + bytes as u64 - 1;
    match sys::pread_nowait(content.fd(), &mut probe, last) {
        Ok(None) => Some(DiskRead {
            variant: variant.clone(),
            offset,
            bytes,
            keep: false,
        }),
        _ => None,
    }
}
