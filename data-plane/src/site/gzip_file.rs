//! Background compression of a file of a site with gzip, queued after the first load.

use crate::limits::{GZIP_FILE_BYTES_MAX, GZIP_FILE_BYTES_MIN};
use crate::site::file::{SiteFile, VariantKind};
use crate::site::gzip_queue::{encode, worth};
use crate::site::loaded_facts::{LoadedFacts, coding_mark};
use crate::site::shared::SiteShared;
use crate::site::variant::{DiskContent, Variant, VariantContent};
use std::io::{self, Write};
use std::sync::{Arc, Weak};
use wire::fields::ContentCoding;

/// File to compress.
pub(super) struct GzipFileJob {
    /// Weak, because the queue belongs to the budget, and the site holds the budget.
    shared: Weak<SiteShared>,
    file: Weak<SiteFile>,
    path: Box<[u8]>,
}

impl GzipFileJob {
    /// Queues a file for gzip compression, unless the media type is incompressible, the size is out of
    /// range, the file has a gzip sidecar, or the file is queued already.
    pub(super) fn queue(
        shared: &Arc<SiteShared>,
        file: &Arc<SiteFile>,
        path: impl FnOnce() -> Vec<u8>,
    ) {
        if !file.claim_gzip() {
            return;
        }
        let path = path();
        let in_range = (GZIP_FILE_BYTES_MIN..=GZIP_FILE_BYTES_MAX).contains(&file.version.size());
        let text = shared.rules.is_compressible(&path);
        if !in_range || !text || file.sidecar(ContentCoding::Gzip).is_some() {
            return file.give_up_gzip();
        }
        let job = GzipFileJob {
            shared: Arc::downgrade(shared),
            file: Arc::downgrade(file),
            path: path.into_boxed_slice(),
        };
        if !shared.budget.gzip().push(|| job.run()) {
            file.release_gzip();
        }
    }

    fn run(self) {
        let Some(file) = self.file.upgrade() else {
            return;
        };
        let Some(shared) = self.shared.upgrade() else {
            // The file belongs to another release by now. A request to the release may claim the compression again.
            return file.release_gzip();
        };
        let Some(plain) = file
            .slot(VariantKind::Identity)
            .and_then(|slot| slot.load_full())
            .filter(|plain| !plain.is_open())
        else {
            // The plain content was evicted meanwhile, or a process has opened the file for writing. The next load may claim the compression again.
            return file.release_gzip();
        };
        let size = usize::try_from(plain.size()).unwrap_or(usize::MAX);
        // The result must leave room in the budget for other content.
        let most = worth(size).min(shared.budget.bytes_max() / 4);
        match compress(&plain, most) {
            Ok(Some(bytes)) => {
                let variant = self.made(&shared, &file, &plain, bytes);
                shared
                    .budget
                    .keep(&file, VariantKind::GeneratedGzip, variant);
            }
            Ok(None) => file.give_up_gzip(),
            Err(_) => file.release_gzip(),
        }
    }

    fn made(
        &self,
        shared: &SiteShared,
        file: &SiteFile,
        plain: &Variant,
        bytes: Vec<u8>,
    ) -> Variant {
        let tag = String::from_utf8_lossy(&made_tag(plain)).into_owned();
        let size = bytes.len() as u64;
        let facts = LoadedFacts {
            size,
            modified: plain.modified,
            tag: &tag,
            coding: ContentCoding::Gzip,
            is_open: false,
        };
        let heads = facts.heads(shared, file, &self.path);
        let content = VariantContent::Memory(bytes.into_boxed_slice());
        Variant::new(heads, plain.modified, ContentCoding::Gzip, content, None)
    }
}

/// Returns the entity tag of the generated gzip variant, whether or not the variant exists.
fn made_tag(plain: &Variant) -> Vec<u8> {
    let tag = plain.tag();
    [
        &tag[..tag.len() - 1],
        b"-",
        coding_mark(ContentCoding::Gzip).as_bytes(),
        b"\"",
    ]
    .concat()
}

/// Compresses the content of a variant. Returns None if the result exceeds `most` bytes, and an error if
/// the file changed meanwhile.
fn compress(plain: &Variant, most: usize) -> io::Result<Option<Vec<u8>>> {
    encode(most, |encoder| match &plain.content {
        VariantContent::Memory(bytes) => encoder.write_all(bytes),
        VariantContent::Disk(disk) => copy_from(disk, encoder),
    })
}

fn copy_from(disk: &DiskContent, to: &mut impl Write) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; 64 * 1024];
    let mut at = 0;
    while at < disk.size() {
        let piece = usize::try_from(disk.size() - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        disk.file.read_exact_at(&mut buffer[..piece], at)?;
        to.write_all(&buffer[..piece])?;
        at += piece as u64;
    }
    if disk.unchanged() {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}
