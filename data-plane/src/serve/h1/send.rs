//! Sending a response of HTTP/1.1: a writer that resumes where the socket stopped accepting bytes.
//!
//! The writer holds its own page variant and not the World, so a long download does not keep an old
//! configuration in memory. No more bytes are read or encrypted for a connection while
//! [`limits::UNSENT_BYTES_MAX`] wait for the client.

use crate::limits;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::response_body::DiskRead;
use crate::site::{BodyPiece, BodySelection, DiskContent, Variant, VariantResponse};
use base::sys;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The unsent part of one response.
pub(crate) struct ResponseWriter {
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
pub(crate) enum H1BodySource {
    /// No content beyond the lead.
    Nothing,
    /// A stored page.
    Stored(VariantResponse),
    /// Chunks generated on demand: the framed bytes, and the number of content bytes among the framed
    /// bytes.
    Chunks(Box<dyn Iterator<Item = (Vec<u8>, usize)>>),
}

/// Result of an attempt to send.
pub(crate) enum SendProgress {
    /// The kernel has accepted all bytes.
    Done,
    /// The file's bytes are not in the kernel's file cache. The caller runs the read on the thread pool and passes
    /// the result to [`ResponseWriter::feed`].
    Disk(DiskRead),
}

/// Result of an attempt to encrypt a part of a file.
enum TlsFilePart {
    /// The number of encrypted bytes.
    Encrypted(usize),
    /// The bytes must be read from disk first.
    Disk(DiskRead),
}

impl ResponseWriter {
    /// Creates a writer of `lead`, then of `source` from its beginning.
    pub(crate) fn new(lead: Vec<u8>, source: H1BodySource) -> ResponseWriter {
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
    pub(crate) fn resume(lead: Vec<u8>, source: H1BodySource, body_at: u64) -> ResponseWriter {
        ResponseWriter {
            piece_at: body_at,
            sent: body_at,
            ..ResponseWriter::new(lead, source)
        }
    }

    /// Accepts the bytes that a [`DiskRead`] returned.
    pub(crate) fn feed(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.disk = Some(bytes);
        }
    }

    /// Sends as many bytes as the socket accepts. `now_us` is the worker's time in microseconds.
    pub(crate) fn poll_send(
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
                let taken = ready!(self.poll_send_lead(stream, cx))?;
                self.advance_lead(taken);
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
                    self.advance(taken);
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
                    let want = left.min(self.sendfile_bytes_max()) as usize;
                    let taken = ready!(stream.socket.poll_sendfile(cx, content.fd(), from, want))?;
                    if taken == 0 {
                        // The file is shorter than the announced length, so the response can't be
                        // completed.
                        return Poll::Ready(Err(changed()));
                    }
                    self.advance(taken);
                    let rest = left - taken as u64;
                    if rest == 0 {
                        self.next_piece();
                    } else if taken == want && rest > SENDFILE_REST_BYTES {
                        // Other connections run first, and the kernel gets time to send the accepted bytes.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Writes the lead to the socket, if possible together with content. Returns the number of bytes taken.
    fn poll_send_lead(
        &self,
        stream: &mut MaybeTlsStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let lead = &self.lead[self.lead_at..];
        match self.stored_piece() {
            Some(BodyPiece::Bytes(bytes)) if !self.has_file(bytes.len()) => {
                let bytes = &bytes[self.piece_at as usize..];
                stream.poll_write(cx, &[IoSlice::new(lead), IoSlice::new(bytes)])
            }
            // The first bytes of the file share a packet with the lead.
            Some(_) => stream.socket.poll_write_more(cx, lead),
            None => stream.poll_write(cx, &[IoSlice::new(lead)]),
        }
    }

    /// Returns the maximum of bytes for the next sendfile call. The first part and the header section
    /// together are as large as a later part. A full first part leaves in whole packets; a small packet in
    /// the middle of a response would mislead the congestion control about the network.
    fn sendfile_bytes_max(&self) -> u64 {
        match self.piece_at {
            0 => SENDFILE_BYTES_MAX - self.lead.len() as u64,
            _ => SENDFILE_BYTES_MAX,
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
            if let Some(progress) = self.encrypt(stream, scratch)? {
                return Poll::Ready(Ok(progress));
            }
        }
    }

    /// Encrypts as much as may wait for the client. Returns the progress where nothing is encrypted: the
    /// response is complete, or the next bytes must be read from disk.
    fn encrypt(
        &mut self,
        stream: &mut MaybeTlsStream,
        scratch: &mut [u8],
    ) -> io::Result<Option<SendProgress>> {
        let mut room = limits::UNSENT_BYTES_MAX - TLS_OVERHEAD;
        let mut idle = true;
        while room > 0 {
            let taken = if self.lead_at < self.lead.len() {
                self.encrypt_lead(stream, room)?
            } else {
                match self.stored_piece() {
                    None => {
                        if self.next_chunk() {
                            continue;
                        } else {
                            return Ok(idle.then_some(SendProgress::Done));
                        }
                    }
                    Some(BodyPiece::Bytes(bytes)) => {
                        let rest = &bytes[self.piece_at as usize..];
                        if rest.is_empty() {
                            self.next_piece();
                            continue;
                        }
                        let slice = IoSlice::new(&rest[..rest.len().min(room)]);
                        let taken = stream.encrypt(&[slice])?;
                        self.advance(taken);
                        taken
                    }
                    Some(BodyPiece::File { len, .. }) => {
                        if len == self.piece_at {
                            self.next_piece();
                            continue;
                        }
                        match self.encrypt_file(stream, scratch, room)? {
                            TlsFilePart::Encrypted(taken) => taken,
                            TlsFilePart::Disk(read) if idle => {
                                return Ok(Some(SendProgress::Disk(read)));
                            }
                            TlsFilePart::Disk(_) => return Ok(None),
                        }
                    }
                }
            };
            room -= taken.min(room);
            idle = false;
        }
        Ok(None)
    }

    /// Encrypts the lead and content in memory, which share a TLS record if both fit.
    fn encrypt_lead(&mut self, stream: &mut MaybeTlsStream, room: usize) -> io::Result<usize> {
        let lead = &self.lead[self.lead_at..];
        let body = match self.stored_piece() {
            Some(BodyPiece::Bytes(bytes)) => &bytes[self.piece_at as usize..],
            _ => &[],
        };
        let lead = &lead[..lead.len().min(room)];
        let body = &body[..body.len().min(room - lead.len())];
        let taken = stream.encrypt(&[IoSlice::new(lead), IoSlice::new(body)])?;
        self.advance_lead(taken);
        Ok(taken)
    }

    /// Encrypts the next part of a file.
    fn encrypt_file(
        &mut self,
        stream: &mut MaybeTlsStream,
        scratch: &mut [u8],
        room: usize,
    ) -> io::Result<TlsFilePart> {
        let fed = self.disk.take();
        let H1BodySource::Stored(stored) = &self.source else {
            return Err(changed());
        };
        let Some(BodyPiece::File {
            content,
            offset,
            len,
        }) = stored.piece(self.piece)
        else {
            return Err(changed());
        };
        let left = len - self.piece_at;
        let want = (left.min(room as u64) as usize).min(scratch.len());
        let from = offset + self.piece_at;
        let bytes = match &fed {
            Some(bytes) => &bytes[..bytes.len().min(want)],
            None => match sys::pread_nowait(content.fd(), &mut scratch[..want], from)? {
                Some(read) => &scratch[..read],
                None => {
                    let read = DiskRead::new(stored.variant.clone(), from, want);
                    return Ok(TlsFilePart::Disk(read));
                }
            },
        };
        // All bytes read belong to the announced file if the file is unchanged now. The check comes before
        // the last bytes leave: without the last bytes no client takes the response for complete.
        let is_last = bytes.len() as u64 == left;
        if bytes.is_empty() || (is_last && !content.unchanged()) {
            return Err(changed());
        }
        let taken = stream.encrypt(&[IoSlice::new(bytes)])?;
        self.advance(taken);
        Ok(TlsFilePart::Encrypted(taken))
    }

    /// Returns the current piece of a stored page.
    fn stored_piece(&self) -> Option<BodyPiece<'_>> {
        match &self.source {
            H1BodySource::Stored(stored) => stored.piece(self.piece),
            H1BodySource::Chunks(_) | H1BodySource::Nothing => None,
        }
    }

    /// Records `taken` bytes of the current piece.
    fn advance(&mut self, taken: usize) {
        self.piece_at += taken as u64;
        self.sent += taken as u64;
    }

    /// Records `taken` bytes of the lead, and of the current piece after the lead.
    fn advance_lead(&mut self, taken: usize) {
        let of_lead = taken.min(self.lead.len() - self.lead_at);
        self.lead_at += of_lead;
        self.advance(taken - of_lead);
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
/// Minimum length for the check whether a file is in the kernel's file cache: a blocking read of a shorter file
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
    let is_same = |content: &DiskContent| {
        if is_begun {
            content.unchanged()
        } else {
            content.was_unchanged(now_us)
        }
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
    io::Error::other("the file changed during the response")
}

/// Returns a read that fills the kernel's file cache if sendfile would wait for the disk.
fn cold(variant: &Arc<Variant>, content: &DiskContent, offset: u64, left: u64) -> Option<DiskRead> {
    if left < PROBE_BYTES_MIN {
        return None;
    }
    let mut probe = [0];
    let bytes = left.min(SENDFILE_BYTES_MAX) as usize;
    let last = offset + bytes as u64 - 1;
    match sys::pread_nowait(content.fd(), &mut probe, last) {
        Ok(None) => Some(DiskRead::into_file_cache(variant.clone(), offset, bytes)),
        _ => None,
    }
}
