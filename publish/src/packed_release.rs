//! Packed release: one file with the manifest and all contents of a release, for transport without a network.
//!
//! ```text
//! anthill packed release 1
//! manifest SIZE DIGEST
//! ```
//!
//! The manifest follows the two lines, and then each content once, in the order of the manifest, without anything
//! between. A packed release has no names besides those of the manifest, and no times, so the same release is always the
//! same file.

use crate::content_target::{Presence, stored};
use crate::problem::Problem;
use crate::progress::{Progress, Work};
use crate::text;
use base::digest::{Digest, from_hex, hex, sha256};
use release::limits::MANIFEST_BYTES_MAX;
use release::limits::STORE_BUFFER_BYTES;
use release::manifest::{BlobRef, ManifestLine, ManifestReader};
use release::store::{
    ReleaseStore as _, StoreFolder, StoreWriter, read_manifest, release_contents,
};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Start of the file, up to the size of the manifest.
const BEGIN: &str = "anthill packed release 1\nmanifest ";
/// Bytes in which the two lines end.
const HEAD_BYTES_MAX: u64 = 256;

/// Packed release with verified contents.
pub(crate) struct PackedRelease {
    path: PathBuf,
    /// Text of the manifest.
    pub manifest: String,
    contents: Vec<BlobRef>,
    /// Position of the first content in the file.
    start: u64,
}

impl PackedRelease {
    /// Opens a file, and compares all contents with their digests.
    pub(crate) fn open(path: &Path) -> Result<PackedRelease, Problem> {
        let failed = |error: io::Error| refusal(path, &text::reason(&error));
        // A pipe would wait for its writer.
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(refusal(path, "this is no regular file"));
        }
        let file = File::open(path).map_err(failed)?;
        let mut head = Vec::new();
        (&file)
            .take(HEAD_BYTES_MAX)
            .read_to_end(&mut head)
            .map_err(failed)?;
        let head = parse_head(&head).ok_or_else(|| refusal(path, "this is no packed release"))?;
        let manifest = read_exactly(&file, head.bytes, head.manifest_bytes)
            .map_err(failed)?
            .ok_or_else(|| refusal(path, "the file ends within the manifest"))?;
        if sha256(&manifest) != head.release {
            return Err(refusal(path, "the manifest differs from its digest"));
        }
        let contents = contents(&manifest).map_err(|what| refusal(path, &what))?;
        let start = head.bytes + head.manifest_bytes;
        let sizes = contents.iter().map(|content| content.size);
        let expected = sizes.fold(start, u64::saturating_add);
        if metadata.len() != expected {
            let what = format!(
                "the file has {} bytes, and the release {expected}",
                metadata.len()
            );
            return Err(refusal(path, &what));
        }
        let manifest =
            String::from_utf8(manifest).map_err(|_| refusal(path, "the manifest is no text"))?;
        let packed = PackedRelease {
            path: path.to_owned(),
            manifest,
            contents,
            start,
        };
        packed.each(&file, |_| Ok(Some(io::sink())), |_, _| Ok(()))?;
        Ok(packed)
    }

    /// Adds the contents to a store, and returns the bytes that were new to the store.
    pub(crate) fn add_to(&self, store: &StoreWriter) -> Result<u64, Problem> {
        let failed = |error: io::Error| refusal(&self.path, &text::reason(&error));
        let file = File::open(&self.path).map_err(failed)?;
        let mut new = 0;
        let begin = |content: &BlobRef| {
            if store.has(content).map_err(stored)? {
                Ok(None)
            } else {
                store.draft().map(Some).map_err(stored)
            }
        };
        self.each(&file, begin, |content, draft| {
            new += content.size;
            draft.finish().map(drop).map_err(stored)
        })?;
        Ok(new)
    }

    /// Returns the bytes of the contents that a store lacks.
    pub(crate) fn missing_bytes(&self, store: Option<&dyn Presence>) -> u64 {
        let is_missing = |content: &&BlobRef| store.is_none_or(|store| !store.has(content));
        let missing = self.contents.iter().filter(is_missing);
        missing.map(|content| content.size).sum()
    }

    /// Copies each content to the output that `begin` returns, and compares the content with its digest before `end`.
    /// Without an output, the content is skipped.
    fn each<W: Write>(
        &self,
        mut file: &File,
        mut begin: impl FnMut(&BlobRef) -> Result<Option<W>, Problem>,
        mut end: impl FnMut(&BlobRef, W) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut position = self.start;
        let sizes = self.contents.iter().map(|content| content.size);
        let progress = Progress::new(Work::Copy, sizes.sum());
        progress.run(|| {
            for content in &self.contents {
                let Some(mut out) = begin(content)? else {
                    position += content.size;
                    continue;
                };
                let copied = file
                    .seek(SeekFrom::Start(position))
                    .and_then(|_| copy(file.take(content.size), &mut out, &progress));
                match copied.map_err(|error| refusal(&self.path, &text::reason(&error)))? {
                    found if found == *content => end(content, out)?,
                    _ => {
                        let digest = hex(&content.digest);
                        let what = format!("the content {digest} differs from its digest");
                        return Err(refusal(&self.path, &what));
                    }
                }
                position += content.size;
            }
            Ok(())
        })
    }
}

/// Writes a release of a store to a file, and returns the size of the file. The file is replaced as a whole.
pub(crate) fn pack(store: &StoreFolder, release: &[u8; 32], path: &Path) -> Result<u64, Problem> {
    let failed =
        |error: &dyn std::fmt::Display| Problem::failure(format!("{}: {error}", text::file(path)));
    let name = path
        .file_name()
        .ok_or_else(|| failed(&"this is no name of a file"))?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}", std::process::id()));
    let draft = path.with_file_name(draft);
    let written = write_all(store, release, &draft).and_then(|size| {
        fs::rename(&draft, path).map_err(|error| failed(&error))?;
        Ok(size)
    });
    if written.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(&draft);
        return written;
    }
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed(&error))?;
    written
}

/// Writes a release to a new file, and syncs the file.
fn write_all(store: &StoreFolder, release: &[u8; 32], path: &Path) -> Result<u64, Problem> {
    let failed = |error: io::Error| Problem::failure(format!("{}: {error}", text::file(path)));
    let manifest = read_manifest(store, release)
        .map_err(|error| Problem::failure(format!("the release {}: {error}", hex(release))))?;
    // The first content is the manifest.
    let contents = release_contents(store, release).map_err(stored)?;
    let contents = contents.get(1..).unwrap_or_default();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut out = BufWriter::new(file.map_err(failed)?);
    let head = head(manifest.len() as u64, release);
    out.write_all(head.as_bytes())
        .and_then(|()| out.write_all(&manifest))
        .map_err(failed)?;
    let sizes = contents.iter().map(|content| content.size);
    let progress = Progress::new(Work::Copy, sizes.sum());
    progress.run(|| {
        for content in contents {
            let blob = store.open_blob(&content.digest).map_err(|error| {
                Problem::failure(format!("the content {}: {error}", hex(&content.digest)))
            })?;
            if copy(blob, &mut out, &progress).map_err(failed)? != *content {
                let what = format!(
                    "the store {}: the content {} differs from its digest",
                    text::file(store.path()),
                    hex(&content.digest)
                );
                return Err(Problem::failure(what)
                    .help("remove the content from the store, and publish again"));
            }
        }
        Ok(())
    })?;
    let file = out
        .into_inner()
        .map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    file.metadata()
        .map(|metadata| metadata.len())
        .map_err(failed)
}

/// Returns the two lines before the manifest.
fn head(size: u64, release: &[u8; 32]) -> String {
    format!("{BEGIN}{size} {}\n", hex(release))
}

/// The two lines before the manifest.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    /// Length of the lines.
    bytes: u64,
    manifest_bytes: u64,
    /// Digest of the manifest.
    release: [u8; 32],
}

fn parse_head(text: &[u8]) -> Option<Head> {
    let rest = text.strip_prefix(BEGIN.as_bytes())?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let (size, release) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let size = size.parse().ok()?;
    let release = from_hex(release.as_bytes())?;
    // A number has one spelling.
    let head = head(size, &release);
    let is_canonical = text.starts_with(head.as_bytes());
    (is_canonical && size <= MANIFEST_BYTES_MAX as u64).then_some(Head {
        bytes: head.len() as u64,
        manifest_bytes: size,
        release,
    })
}

/// Reads bytes of a file from a position; None if the file has fewer bytes.
fn read_exactly(mut file: &File, position: u64, size: u64) -> io::Result<Option<Vec<u8>>> {
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 == size).then_some(bytes))
}

/// Returns the contents of a manifest, each once. The error is a clause.
fn contents(manifest: &[u8]) -> Result<Vec<BlobRef>, String> {
    let mut sizes = HashMap::new();
    let mut contents = Vec::new();
    for line in ManifestReader::new(manifest).map_err(|error| error.to_string())? {
        let (ManifestLine::File { content, .. } | ManifestLine::Coded { content, .. }) =
            line.map_err(|error| error.to_string())?
        else {
            continue;
        };
        match sizes.insert(content.digest, content.size) {
            None => contents.push(content),
            Some(size) if size == content.size => {}
            Some(_) => {
                let digest = hex(&content.digest);
                return Err(format!(
                    "the manifest has two sizes for the content {digest}"
                ));
            }
        }
    }
    Ok(contents)
}

/// Copies a content, and returns its size and digest.
fn copy(mut from: impl Read, to: &mut impl Write, progress: &Progress) -> io::Result<BlobRef> {
    let (mut digest, mut size) = (Digest::new(), 0);
    let mut buffer = vec![0; STORE_BUFFER_BYTES];
    loop {
        let count = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        if count == 0 {
            let digest = digest.finish();
            return Ok(BlobRef { size, digest });
        }
        to.write_all(&buffer[..count])?;
        digest.update(&buffer[..count]);
        size += count as u64;
        progress.add(count as u64);
    }
}

fn refusal(path: &Path, what: &str) -> Problem {
    Problem::usage(format!("{}: {what}", text::file(path)))
        .help("nothing is published; `anthill publish DIR FILE.release` writes the file anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_has_one_spelling() {
        let text = head(42, &[0xab; 32]);
        assert_eq!(
            parse_head(format!("{text}rest").as_bytes()),
            Some(Head {
                bytes: text.len() as u64,
                manifest_bytes: 42,
                release: [0xab; 32],
            })
        );
        for (part, other) in [
            ("release 1", "release 2"),
            ("manifest 42", "manifest 042"),
            ("manifest 42", "manifest +42"),
            ("manifest 42", "manifest 99999999999"),
            (" ab", " AB"),
            ("\n", "\r\n"),
        ] {
            let text = text.replacen(part, other, 1);
            assert_eq!(parse_head(text.as_bytes()), None, "{text}");
        }
        for end in 0..text.len() {
            assert_eq!(parse_head(&text.as_bytes()[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_digest_with_two_sizes_is_refused() {
        let digest = "ab".repeat(32);
        let text = format!("anthill release 1\nfile 1 {digest} a\nfile 2 {digest} b\n");
        let error = contents(text.as_bytes()).expect_err("a refusal");
        assert!(error.contains("two sizes"), "{error}");
    }
}
