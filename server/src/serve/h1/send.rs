//! A response on its way: what is left to send, resumed wherever the socket stopped taking it.
//!
//! It holds its own variant, not the World, so a long download pins no old configuration. Nothing
//! more is read or encrypted for a connection while [`limits::UNSENT_BYTES_MAX`] wait for its peer.

use crate::base::sys;
use crate::limits;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::site::{BodyPiece, BodySelection, DiskContent, Variant, VariantResponse};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// What is left of one response.
pub struct ResponseWriter {
    /// Bytes that go first: the head, or the framed chunk that is due.
    lead: Vec<u8>,
    lead_at: usize,
    source: H1BodySource,
    /// Which piece of the source is due, and from where in it.
    piece: usize,
    piece_at: u64,
    /// Bytes of the body that were handed over.
    pub sent: u64,
    /// TLS: plaintext bytes given to rustls since its output was last empty.
    disk: Option<Vec<u8>>,
}

/// Where a body comes from.
pub enum H1BodySource {
    /// The lead was all.
    Nothing,
    /// A stored page.
    Stored(VariantResponse),
    /// Parts made on demand: the framed bytes, and the number of content bytes among them.
    Chunks(Box<dyn Iterator<Item = (Vec<u8>, usize)>>),
}

/// How far a try came.
pub enum SendProgress {
    /// All is with the kernel.
    Done,
    /// The disk must be read first, off the worker: run this on the pool, then hand it to
    /// [`ResponseWriter::feed`].
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
    /// Of `bytes` bytes from `offset` on, which are wanted.
    pub(in crate::serve) fn new(variant: Arc<Variant>, offset: u64, bytes: usize) -> DiskRead {
        DiskRead {
            variant,
            offset,
            bytes,
            keep: true,
        }
    }

    /// Blocks; the bytes, or nothing where only the page cache had to be warmed.
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
    /// `lead` goes first, then `source` from its beginning.
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

    /// Goes on `body_at` bytes into the first piece of `source`, after `lead`.
    pub fn resume(lead: Vec<u8>, source: H1BodySource, body_at: u64) -> ResponseWriter {
        ResponseWriter {
            piece_at: body_at,
            sent: body_at,
            ..ResponseWriter::new(lead, source)
        }
    }

    /// Takes what a [`DiskRead`] brought.
    pub fn feed(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.disk = Some(bytes);
        }
    }

    /// Sends as much as the socket takes. `now_us` is the worker's time, microseconds.
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
                    // The file's first bytes share its packet.
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
                    // With the head the first part is as large as the others: whole packets, and no small
                    // one in the midst by which a congestion control would judge the network.
                    let most = match self.piece_at {
                        0 => SENDFILE_BYTES_MAX - self.lead.len() as u64,
                        _ => SENDFILE_BYTES_MAX,
                    };
                    let want = left.min(most) as usize;
                    let taken =
                        ready!(stream.socket.poll_sendfile(cx, content.fd(), from, want))? as u64;
                    if taken == 0 {
                        // Shorter than it was: the rest can't be sent as promised.
                        return Poll::Ready(Err(changed()));
                    }
                    self.piece_at += taken;
                    self.sent += taken;
                    if taken == left {
                        self.next_piece();
                    } else if taken == want as u64 && left - taken > SENDFILE_REST_BYTES {
                        // The others first, and the kernel gets time to send what it has.
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
                // The other connections have their turns first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            turn = turn.saturating_sub(limits::UNSENT_BYTES_MAX);
            let mut room = limits::UNSENT_BYTES_MAX - TLS_OVERHEAD;
            let mut idle = true;
            while room > 0 {
                if self.lead_at < self.lead.len() {
                    let lead = &self.lead[self.lead_at..];
                    // Head and body in one record where they fit.
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
                        // All that was read is the file that was promised if it still is that now.
                        // Asked before the last bytes leave: without them nothing looks whole.
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

    /// Is the source's content in an open file too, and worth sending from there?
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

    /// Makes the next chunk the lead; false at the end.
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

/// Room that record headers, tags and a ticket take beside the plaintext.
const TLS_OVERHEAD: usize = 1024;
/// One sendfile call moves at most this much, so that one fast reader doesn't hold up the others.
const SENDFILE_BYTES_MAX: u64 = 256 * 1024;
/// What is left after a part, and no more than this, isn't worth a turn of its own.
const SENDFILE_REST_BYTES: u64 = 32 * 1024;
/// Files up to this size are not probed for coldness: one slow read of them is short.
const PROBE_BYTES_MIN: u64 = 1 << 20;

/// A piece, from its file rather than from memory where it is large and the file is open: plain
/// bytes need no copying then. An error where there is only the file, and it changed.
fn by_file(
    stored: &VariantResponse,
    nth: usize,
    is_begun: bool,
    now_us: u64,
) -> io::Result<Option<BodyPiece<'_>>> {
    let piece = stored.piece(nth);
    let bytes = match &piece {
        Some(BodyPiece::Bytes(bytes)) => bytes,
        // Asked before each part of it: what was sent already can't be called back.
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
    // A file that was cut and written anew in the midst of a response is noticed by a fresh look alone; the rest
    // then comes from memory.
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

/// A read that warms the page cache where sendfile would wait for the disk.
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
