//! Invariants of the decoders of a release, which hold for any input: for the fuzz targets and for property tests.

#![allow(clippy::unwrap_used)]

use crate::glob::Glob;
use crate::manifest::{ManifestReader, ManifestWriter};
use crate::release_pointer::ReleasePointer;

/// Checks the matcher of globs with a glob and a path, divided by a zero byte: the steps of a match grow with the path, with
/// a factor for the words of a set of states and for the braces.
pub fn glob(bytes: &[u8]) {
    let zero = bytes.iter().position(|byte| *byte == 0);
    let (text, path) = bytes.split_at(zero.unwrap_or(bytes.len()));
    let path = path.get(1..).unwrap_or_default();
    let count = |wanted: &[u8]| text.iter().filter(|byte| wanted.contains(byte)).count() as u64;
    // A final slash adds two wildcards.
    let words = match text.len() {
        0..=61 => 1,
        62..=317 => 5,
        _ => 17,
    };
    let published = Glob::parse_published(text).ok();
    let operators = std::str::from_utf8(text).ok().map(Glob::parse);
    let operators = operators.and_then(Result::ok);
    for (glob, alternatives_max) in [(published, 8), (operators, 64)] {
        let Some(glob) = glob else { continue };
        let mut steps = 0;
        let matches = glob.matches_counted(path, &mut steps);
        assert_eq!(matches, glob.matches(path));
        // A group of braces adds at least one alternative, and costs a position of the path at most two rounds.
        let groups = count(b"{").min(alternatives_max - 1);
        let of_position = (words + 2 * count(b"{,")) * (2 * groups + 3);
        assert!(steps <= 1 + (path.len() as u64 + 1) * of_position);
        let rows = 257 * 8 * words as usize;
        assert!(glob.memory_bytes() <= 1_024 + rows + 16 * text.len());
    }
}

/// Checks the readers of releases: a manifest or a pointer that is read is canonical, so the text is written as read.
pub fn release(bytes: &[u8]) {
    if let Ok(reader) = ManifestReader::new(bytes) {
        let lines: Result<Vec<_>, _> = reader.collect();
        if let Ok(lines) = lines {
            let mut writer = ManifestWriter::default();
            lines.iter().for_each(|line| writer.push(line));
            assert_eq!(writer.finish().as_bytes(), bytes);
        }
    }
    if let Some((pointer, signature)) = ReleasePointer::parse(bytes) {
        let text = match signature {
            None => pointer.text(),
            Some(signature) => pointer.signed_text(&signature.key, &signature.signature),
        };
        assert_eq!(text.as_bytes(), bytes);
    }
}
