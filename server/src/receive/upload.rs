//! Release on its way to the store: the manifest, and the contents that the publisher has to send.
//!
//! A content counts as present only if the store has the content and a release of the same site too, or if a publisher of
//! the site has sent the content before. Otherwise a publisher with a digest of another site could read the content
//! by a preview.

use super::error::ReceiveError;
use base::digest::{hex, sha256};
use release::manifest::{BlobRef, ManifestLine, ManifestReader};
use release::receive_frame::ContentPlace;
use release::store::{
    ContentIndex, DraftOwner, SiteRecords, StoreWriteError, StoreWriter, disk_bytes, line_count,
    read_manifest, received_contents,
};

/// Release on its way to the store.
pub(super) struct Upload {
    /// Text of the manifest.
    pub(super) manifest: Vec<u8>,
    /// Digest of the manifest.
    pub(super) release: [u8; 32],
    /// Contents of the manifest, in its order.
    contents: Vec<BlobRef>,
    /// Numbers of the contents that the publisher has to send, rising.
    missing: Vec<u32>,
    /// Bytes of the manifest and of the missing contents that are reserved and not yet complete.
    pub(super) unreceived: u64,
}

impl Upload {
    /// Checks a manifest against its digest and the rules of manifests, and finds the missing contents.
    pub(super) fn new(
        manifest: Vec<u8>,
        release: [u8; 32],
        store: &StoreWriter,
        site: &str,
    ) -> Result<Upload, ReceiveError> {
        if sha256(&manifest) != release {
            return Err(ReceiveError::Protocol(
                "the manifest differs from its digest",
            ));
        }
        let refused = |error| ReceiveError::Refused(format!("the release is refused: {error}"));
        let reader = ManifestReader::new(&manifest).map_err(refused)?;
        let mut upload = Upload {
            contents: Vec::with_capacity(line_count(&manifest)),
            missing: Vec::new(),
            unreceived: 0,
            release,
            manifest: Vec::new(),
        };
        for line in reader {
            let (ManifestLine::File { content, .. } | ManifestLine::Coded { content, .. }) =
                line.map_err(refused)?
            else {
                continue;
            };
            upload.contents.push(content);
        }
        let contents = &upload.contents;
        let index = ContentIndex::new(contents);
        let has_other_size = |content: &BlobRef| {
            let first = index.number(contents, &content.digest);
            first.is_some_and(|first| contents[first as usize].size != content.size)
        };
        if contents.iter().any(has_other_size) {
            return Err(ReceiveError::Protocol(
                "the manifest has one digest with two sizes",
            ));
        }
        upload.missing = missing(contents, &index, store, site)?;
        upload.manifest = manifest;
        Ok(upload)
    }

    /// Returns the missing contents in the order of the manifest, each with the bytes that the store has already.
    pub(super) fn needs(&self, store: &StoreWriter, owner: &DraftOwner<'_>) -> Vec<ContentPlace> {
        let place = |number: &u32| ContentPlace {
            number: *number,
            offset: store.resumable_bytes(owner, &self.contents[*number as usize]),
        };
        self.missing.iter().map(place).collect()
    }

    /// Returns the bytes of the manifest and of the missing parts of contents on the disk.
    pub(super) fn missing_bytes(&self, needs: &[ContentPlace]) -> u64 {
        let sizes = needs.iter().map(|place| {
            let content = &self.contents[place.number as usize];
            disk_bytes(content.size.saturating_sub(place.offset))
        });
        sizes.fold(disk_bytes(self.manifest.len() as u64), u64::saturating_add)
    }

    /// Returns a missing content; None for another number.
    pub(super) fn content(&self, number: u32) -> Option<&BlobRef> {
        let found = self.missing.binary_search(&number).is_ok();
        found.then(|| &self.contents[number as usize])
    }

    /// Records that a content is in the store.
    pub(super) fn complete(&mut self, number: u32) {
        if let Ok(at) = self.missing.binary_search(&number) {
            self.missing.remove(at);
        }
    }

    /// Refuses the upload if the store lacks a content. A sweep perhaps removed one that the store had when the upload began.
    pub(super) fn must_be_whole(&self, store: &StoreWriter) -> Result<(), ReceiveError> {
        for content in &self.contents {
            if !store.has(content)? {
                return Err(ReceiveError::Refused(format!(
                    "the content {} was swept from the store during the upload; publish again",
                    hex(&content.digest)
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of missing contents.
    pub(super) fn missing_count(&self) -> usize {
        self.missing.len()
    }
}

/// Returns the contents of a manifest up to the first malformed line. The contents are never in memory as a whole.
fn contents_of(manifest: &[u8]) -> impl Iterator<Item = BlobRef> {
    let lines = ManifestReader::new(manifest).into_iter().flatten();
    let lines = lines.map_while(Result::ok);
    lines.filter_map(|line| match line {
        ManifestLine::File { content, .. } | ManifestLine::Coded { content, .. } => Some(content),
        _ => None,
    })
}

/// Returns the numbers of the contents that the publisher has to send, rising. Equal contents are sent once.
fn missing(
    contents: &[BlobRef],
    index: &ContentIndex,
    store: &StoreWriter,
    site: &str,
) -> Result<Vec<u32>, StoreWriteError> {
    let numbers = 0..u32::try_from(contents.len()).unwrap_or(u32::MAX);
    let mut is_needed: Vec<bool> = numbers
        .clone()
        .map(|number| index.is_first(contents, number))
        .collect();
    // Contents of the store that the site has not proven to have.
    let mut is_unproven = vec![false; contents.len()];
    let mut unproven: u32 = 0;
    for number in numbers.clone() {
        let number = number as usize;
        is_unproven[number] = is_needed[number] && store.has(&contents[number])?;
        unproven += u32::from(is_unproven[number]);
    }
    let mut prove = |digest: &[u8; 32]| {
        if let Some(number) = index.number(contents, digest)
            && std::mem::take(&mut is_unproven[number as usize])
        {
            is_needed[number as usize] = false;
            unproven -= 1;
        }
        unproven
    };
    for digest in received_contents(store.reader(), site) {
        prove(&digest);
    }
    // The newest releases come first, since most contents of a release are in the release before.
    for release in SiteRecords::read(store.reader(), site)?.releases() {
        // An unreadable release proves nothing.
        let Ok(text) = read_manifest(store.reader(), &release) else {
            continue;
        };
        if prove(&release) == 0 || contents_of(&text).any(|content| prove(&content.digest) == 0) {
            break;
        }
    }
    Ok(numbers
        .filter(|number| is_needed[*number as usize])
        .collect())
}
