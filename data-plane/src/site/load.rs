//! Loading of variants, the only code of a site that reads files.
//!
//! Loads run on a blocking pool. A client must never receive a mix of two versions of a file, so a load
//! succeeds only if the metadata equals the known metadata both before and after the read.

use super::SiteShared;
use super::file::{FileError, FileMeta, SiteFile, VariantKind};
use super::mime;
use super::variant::{DiskContent, Variant, VariantContent};
use crate::base::digest::{Digest, base64url};
use crate::limits::{CONTENT_FILE_BYTES_MAX, DIGEST_FILE_BYTES_MAX, SENDFILE_BYTES_MIN};
use crate::site::prepared_heads::{HeadFacts, PreparedHeads};
use crate::wire::fields::ContentCoding;
use rustix::fs::fstat;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Load to run before the request can be answered.
pub struct FileLoad {
    pub(super) shared: Arc<SiteShared>,
    pub(super) file: Arc<SiteFile>,
    pub(super) which: VariantKind,
    /// Path of the file, not of the sidecar, below the root.
    pub(super) path: Box<[u8]>,
}

impl FileLoad {
    /// Reads the file; blocks. Afterwards the caller repeats the request to the site: the content is
    /// loaded, or the failure is recorded (for one second, or until the file changes). Under a small budget
    /// the content may already be evicted again, so a driver repeats the request a few times and then gives
    /// up.
    pub fn run(self) {
        let Some(slot) = self.file.slot(self.which) else {
            return;
        };
        if slot.load().is_some() {
            return;
        }
        let (coding, ending) = match self.which {
            VariantKind::Sidecar(ContentCoding::Gzip) => (ContentCoding::Gzip, ".gz"),
            VariantKind::Sidecar(ContentCoding::Br) => (ContentCoding::Br, ".br"),
            VariantKind::Sidecar(ContentCoding::Zstd) => (ContentCoding::Zstd, ".zst"),
            _ => (ContentCoding::Identity, ""),
        };
        let path = [&self.path, ending.as_bytes()].concat();
        match self.variant(&path, coding) {
            Ok(variant) => {
                self.shared.budget.keep(&self.file, self.which, variant);
                if self.which == VariantKind::Identity {
                    self.shared.want_gzip(&self.file, || path);
                }
            }
            Err(why) => {
                if let Some(failure) = self.file.failure(self.which) {
                    failure.set(why, self.shared.now());
                }
                if matches!(why, FileError::Changing | FileError::NotFound) {
                    self.shared.note_stale(&path);
                }
            }
        }
    }

    /// Reads the file at `path`, possibly a sidecar.
    fn variant(&self, path: &[u8], coding: ContentCoding) -> Result<Variant, FileError> {
        let known = *self.file.meta_of(self.which).ok_or(FileError::NotFound)?;
        wait_for_a_tick(&known);
        let file = self.shared.root.open_file(path, &known)?;
        let (content, tag) = read(&file, &known)?;
        if FileMeta::of(&fstat(&file)?) != known {
            return Err(FileError::Changing);
        }
        let tag = coded_tag(&tag, coding);
        let modified = modified(&self.file.meta);
        let heads = heads(
            &self.shared,
            &self.file,
            &self.path,
            known.size,
            modified,
            &tag,
            coding,
        );
        let disk = DiskContent::new(file, known);
        Ok(match content {
            Some(bytes) => {
                let kept = (known.size >= SENDFILE_BYTES_MIN).then_some(disk);
                Variant::new(heads, modified, coding, VariantContent::Memory(bytes), kept)
            }
            None => Variant::new(heads, modified, coding, VariantContent::Disk(disk), None),
        })
    }
}

/// Returns the entity tag with quotes and with the suffix of the coding.
fn coded_tag(tag: &str, coding: ContentCoding) -> String {
    match coding_mark(coding) {
        "" => format!("\"{tag}\""),
        mark => format!("\"{tag}-{mark}\""),
    }
}

/// Returns the suffix of a coding, which follows a dash in the entity tag.
pub(super) fn coding_mark(coding: ContentCoding) -> &'static str {
    match coding {
        ContentCoding::Identity => "",
        ContentCoding::Gzip => "gz",
        ContentCoding::Br => "br",
        ContentCoding::Zstd => "zst",
    }
}

/// Returns the value of Last-Modified, which is never in the future (RFC 9110 §8.8.2.1).
fn modified(meta: &FileMeta) -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    meta.mtime_seconds().min(now.as_secs())
}

/// Builds the response heads of a variant.
pub(super) fn heads(
    shared: &SiteShared,
    file: &SiteFile,
    path: &[u8],
    size: u64,
    modified: u64,
    tag: &str,
    coding: ContentCoding,
) -> PreparedHeads {
    let varies = file.sidecars.is_some() || mime::compressible(mime::of(path, &shared.rules.mime));
    PreparedHeads::new(
        &shared.rules,
        &HeadFacts {
            path,
            size,
            modified,
            tag,
            coding,
            varies,
        },
    )
}

/// Waits for the end of the current timestamp tick. File systems store timestamps in ticks of up to 10 ms,
/// so two writes in one tick yield equal timestamps. A read after the tick of the last change ensures that
/// every further change shows.
fn wait_for_a_tick(known: &FileMeta) {
    const TICK_NS: i64 = 12_000_000;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let age = i64::try_from(now.as_nanos())
        .unwrap_or(i64::MAX)
        .saturating_sub(known.ctime_ns);
    if (0..TICK_NS).contains(&age) {
        std::thread::sleep(Duration::from_nanos((TICK_NS - age).unsigned_abs()));
    }
}

/// Content, if small enough to be kept in memory, and the opaque part of the entity tag.
type ReadContent = (Option<Box<[u8]>>, String);

/// Reads a file. The entity tag is a digest of the content, or consists of size and modification time if
/// the file is too large for a digest.
fn read(file: &std::fs::File, known: &FileMeta) -> Result<ReadContent, FileError> {
    if known.size > DIGEST_FILE_BYTES_MAX {
        return Ok((None, format!("{:x}-{:x}", known.size, known.mtime_ns)));
    }
    let keep = known.size <= CONTENT_FILE_BYTES_MAX;
    let size = usize::try_from(known.size).map_err(|_| FileError::Unreadable)?;
    let mut buffer = vec![0; if keep { size } else { 64 * 1024 }];
    let mut digest = Digest::new();
    let mut at = 0;
    while at < size {
        let piece = buffer.len().min(size - at);
        let piece = &mut buffer[..piece];
        file.read_exact_at(piece, at as u64)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => FileError::Changing,
                _ => FileError::Unreadable,
            })?;
        digest.update(piece);
        at += piece.len();
    }
    // 120 bits in 20 characters make collisions between versions of a file negligible.
    let tag = base64url(&digest.finish()[..15]);
    Ok((keep.then(|| buffer.into_boxed_slice()), tag))
}
