//! gzip content joined from pieces (RFC 1952), so that the parts that all clients share are compressed once.
//!
//! A piece is compressed without reference to bytes before it, and ends at a whole byte (deflate's empty stored
//! block, RFC 1951 §3.2.4). Pieces therefore follow one another in any order within one deflate stream.

use crate::manager::limits::MANAGER_GZIP_LEVEL;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use std::io::{self, Write};
use std::mem::take;
use std::sync::OnceLock;

/// Compressed piece of a content, with the checksum of the plain bytes.
pub(super) struct GzipPiece {
    deflated: Vec<u8>,
    checksum: Crc,
}

impl GzipPiece {
    /// Compresses a text.
    fn new(text: &str) -> io::Result<GzipPiece> {
        let level = Compression::new(MANAGER_GZIP_LEVEL);
        let mut encoder = DeflateEncoder::new(Vec::with_capacity(text.len() / 8), level);
        encoder.write_all(text.as_bytes())?;
        encoder.flush()?;
        let mut checksum = Crc::new();
        checksum.update(text.as_bytes());
        Ok(GzipPiece {
            deflated: take(encoder.get_mut()),
            checksum,
        })
    }
}

/// Text that several clients get, compressed at the first use.
pub(super) struct SharedText {
    text: String,
    piece: OnceLock<Option<GzipPiece>>,
}

impl From<String> for SharedText {
    fn from(text: String) -> SharedText {
        SharedText {
            text,
            piece: OnceLock::new(),
        }
    }
}

impl SharedText {
    /// Returns the text.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the compressed text. A compression in memory does not fail; None stands for a fault of the library.
    fn piece(&self) -> Option<&GzipPiece> {
        let piece = || GzipPiece::new(&self.text).ok();
        self.piece.get_or_init(piece).as_ref()
    }
}

/// Encoder of one response: plain, or gzip.
pub(super) enum ContentEncoder {
    /// Leaves the content plain.
    Plain,
    /// Compresses the content, with the checksum of the content so far; None before the first piece.
    Gzip(Option<Crc>),
}

impl ContentEncoder {
    /// Returns an encoder for gzip or for plain content.
    pub(super) fn new(is_gzip: bool) -> ContentEncoder {
        if is_gzip {
            ContentEncoder::Gzip(None)
        } else {
            ContentEncoder::Plain
        }
    }

    /// Appends a piece of the content to `out`. Returns false if the piece cannot be compressed.
    pub(super) fn push(&mut self, text: &SharedText, out: &mut Vec<u8>) -> bool {
        let ContentEncoder::Gzip(checksum) = self else {
            out.extend_from_slice(text.as_str().as_bytes());
            return true;
        };
        let Some(piece) = text.piece() else {
            return false;
        };
        if checksum.is_none() {
            out.extend_from_slice(&HEADER);
        }
        let checksum = checksum.get_or_insert_with(Crc::new);
        checksum.combine(&piece.checksum);
        out.extend_from_slice(&piece.deflated);
        true
    }

    /// Appends the end of the content.
    pub(super) fn finish(self, out: &mut Vec<u8>) {
        if let ContentEncoder::Gzip(Some(checksum)) = self {
            out.extend_from_slice(&LAST_BLOCK);
            out.extend_from_slice(&checksum.sum().to_le_bytes());
            out.extend_from_slice(&checksum.amount().to_le_bytes());
        }
    }
}

/// Returns the pieces as one gzip content; None if a piece cannot be compressed.
pub(super) fn gzip(pieces: &[&SharedText]) -> Option<Vec<u8>> {
    let mut encoder = ContentEncoder::new(true);
    let mut out = Vec::new();
    let is_whole = pieces.iter().all(|piece| encoder.push(piece, &mut out));
    encoder.finish(&mut out);
    is_whole.then_some(out)
}

/// Header of a gzip member (RFC 1952 §2.3): deflate, no flags, no time, no extra flags, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// Empty last block with fixed codes (RFC 1951 §3.2.6).
const LAST_BLOCK: [u8; 2] = [3, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn plain(gzip: &[u8]) -> String {
        let mut text = String::new();
        let read = flate2::read::GzDecoder::new(gzip).read_to_string(&mut text);
        assert_eq!(read.expect("gzip"), text.len());
        text
    }

    #[test]
    fn pieces_join_in_any_order() {
        let texts = ["", "a", &"<td>1</td>".repeat(20_000), "\u{e9}nd\n"];
        let pieces: Vec<SharedText> = texts.map(|text| text.to_owned().into()).into();
        for order in [&[0, 1, 2, 3][..], &[3, 2, 2, 0, 1], &[2], &[0]] {
            let chosen: Vec<&SharedText> = order.iter().map(|nth| &pieces[*nth]).collect();
            let expected: String = order.iter().map(|nth| texts[*nth]).collect();
            let joined = gzip(&chosen).expect("compressed");
            assert_eq!(plain(&joined), expected, "{order:?}");
        }
        let large = gzip(&[&pieces[2]]).expect("compressed");
        assert!(large.len() < 10_000, "{} bytes", large.len());
    }

    #[test]
    fn each_piece_is_readable_when_it_arrives() {
        let mut encoder = ContentEncoder::new(true);
        let mut out = Vec::new();
        let mut expected = String::new();
        for text in ["data: 1\n\n", "data: 2\n\n"] {
            assert!(encoder.push(&text.to_owned().into(), &mut out));
            expected += text;
            let mut decoder = flate2::read::GzDecoder::new(&out[..]);
            let mut read = vec![0; expected.len()];
            decoder.read_exact(&mut read).expect("the events so far");
            assert_eq!(read, expected.as_bytes());
        }
        encoder.finish(&mut out);
        assert_eq!(plain(&out), expected);
    }

    #[test]
    fn plain_content_stays_plain() {
        let mut encoder = ContentEncoder::new(false);
        let mut out = Vec::new();
        assert!(encoder.push(&"a".to_owned().into(), &mut out));
        encoder.finish(&mut out);
        assert_eq!(out, b"a");
    }
}
