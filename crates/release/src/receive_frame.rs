//! Frames between a publisher and `anthill receive`, on one stream for each direction.
//!
//! A frame is a byte with its kind, the length of its payload in 3 bytes, the highest first, and the payload of at most
//! 64 KiB. A session is a row of requests of the publisher, each answered by the receiver before the next. Both sides
//! begin with [`FrameKind::Hello`].
//!
//! | request | frames of the publisher | answer |
//! |---|---|---|
//! | state of the site | `List`, perhaps with the version of the answer | `List` frames with text, the last one empty |
//! | manifest | `Manifest` or `Difference` frames, then `Release` with the digest | `Need` frames, the last one empty |
//! | content | `Blob` with the number of the content and the offset, then `Data` frames, the last one empty | none |
//! | gzip content with its text | `GzipAndText` with the numbers of both, then `Data` frames of the gzip content, the last one empty | none |
//! | publication | `Pointer` with the text of the pointer | `Done` with text |
//! | other changes | `Command` with text | `Done` with text |
//!
//! `Failed` answers each request that is refused, and ends the session. A payload of `Need` has 12 bytes for each missing
//! content: the number of the content in the manifest, from 0, in 4 bytes, and the number of bytes that the receiver has
//! already, in 8 bytes. A payload of `Blob` has the same form. A payload of `GzipAndText` has the number of the gzip content
//! and the number of the text, in 4 bytes each: the receiver has no byte of either, and decodes the text.

use crate::limits::RECEIVE_FRAME_BYTES_MAX;

/// Text of the first frame of both sides, with the version of the protocol.
pub const HELLO: &str = "anthill receive 1";

/// Payload of the request for the second version of the state of the site, and the first line of the answer. The state then
/// has the owners of labels and the identities of sites, and the receiver takes pointers with the identity of a site. An
/// earlier receiver does not read the payload, and answers with the first version.
pub const STATE_WITH_OWNERS: &str = "state 2";

/// Kind of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of both sides.
    Hello = b'H',
    /// Request for the state of the site, and its answer.
    List = b'L',
    /// Piece of a manifest.
    Manifest = b'M',
    /// Piece of the difference from the manifest of the served release.
    Difference = b'X',
    /// Digest of a manifest, 32 bytes, after its pieces.
    Release = b'R',
    /// Missing contents.
    Need = b'N',
    /// Beginning of a content.
    Blob = b'B',
    /// Beginning of a gzip content, from which the receiver decodes the text as well.
    GzipAndText = b'G',
    /// Piece of a content.
    Data = b'D',
    /// Pointer to a release with complete contents.
    Pointer = b'P',
    /// Command in words.
    Command = b'C',
    /// Success of a request.
    Done = b'O',
    /// Reason of a refusal.
    Failed = b'E',
}

impl FrameKind {
    const ALL: [FrameKind; 13] = [
        FrameKind::Hello,
        FrameKind::List,
        FrameKind::Manifest,
        FrameKind::Difference,
        FrameKind::Release,
        FrameKind::Need,
        FrameKind::Blob,
        FrameKind::GzipAndText,
        FrameKind::Data,
        FrameKind::Pointer,
        FrameKind::Command,
        FrameKind::Done,
        FrameKind::Failed,
    ];
}

/// Head of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Bytes of the payload.
    pub length: usize,
}

impl FrameHead {
    /// Bytes of a head.
    pub const BYTES: usize = 4;

    /// Parses a head; None for an unknown kind and for a payload of more than 64 KiB.
    pub fn parse(head: [u8; FrameHead::BYTES]) -> Option<FrameHead> {
        let [kind, high, middle, low] = head;
        let mut kinds = FrameKind::ALL.into_iter();
        let kind = kinds.find(|known| *known as u8 == kind)?;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        (length <= RECEIVE_FRAME_BYTES_MAX).then_some(FrameHead { kind, length })
    }

    /// Returns the bytes of the head. The payload has at most 64 KiB.
    pub fn bytes(self) -> [u8; FrameHead::BYTES] {
        let [_, high, middle, low] = (self.length as u32).to_be_bytes();
        [self.kind as u8, high, middle, low]
    }
}

/// Missing content, and content on its way: an entry of `Need`, and the payload of `Blob`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ContentPlace {
    /// Number of the content in the manifest, from 0.
    pub number: u32,
    /// Bytes that the receiver has already.
    pub offset: u64,
}

impl ContentPlace {
    /// Bytes of an entry.
    pub const BYTES: usize = 12;

    /// Parses an entry.
    pub fn parse(entry: &[u8; ContentPlace::BYTES]) -> ContentPlace {
        let (mut number, mut offset) = ([0; 4], [0; 8]);
        number.copy_from_slice(&entry[..4]);
        offset.copy_from_slice(&entry[4..]);
        ContentPlace {
            number: u32::from_be_bytes(number),
            offset: u64::from_be_bytes(offset),
        }
    }

    /// Returns the bytes of the entry.
    pub fn bytes(self) -> [u8; ContentPlace::BYTES] {
        let mut entry = [0; ContentPlace::BYTES];
        entry[..4].copy_from_slice(&self.number.to_be_bytes());
        entry[4..].copy_from_slice(&self.offset.to_be_bytes());
        entry
    }
}

/// Gzip content on its way, with the text that the receiver decodes: the payload of `GzipAndText`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GzipAndText {
    /// Number of the gzip content in the manifest, from 0.
    pub gzip: u32,
    /// Number of the text in the manifest, from 0.
    pub text: u32,
}

impl GzipAndText {
    /// Parses a payload; None for a payload with another length.
    pub fn parse(payload: &[u8]) -> Option<GzipAndText> {
        let payload = u64::from_be_bytes(payload.try_into().ok()?);
        Some(GzipAndText {
            gzip: (payload >> 32) as u32,
            text: payload as u32,
        })
    }

    /// Returns the bytes of the payload.
    pub fn bytes(self) -> [u8; 8] {
        (u64::from(self.gzip) << 32 | u64::from(self.text)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_written() {
        for kind in FrameKind::ALL {
            for length in [0, 1, 255, 256, RECEIVE_FRAME_BYTES_MAX] {
                let head = FrameHead { kind, length };
                assert_eq!(FrameHead::parse(head.bytes()), Some(head));
            }
        }
        assert_eq!(
            FrameHead::parse(*b"H\0\0\x07").map(|head| head.length),
            Some(7)
        );
        assert_eq!(FrameHead::parse(*b"?\0\0\0"), None);
        assert_eq!(FrameHead::parse([b'D', 1, 0, 1]), None);
    }

    #[test]
    fn places_are_read_as_written() {
        let place = ContentPlace {
            number: 0x0102_0304,
            offset: 0x0506_0708_090a_0b0c,
        };
        assert_eq!(place.bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(ContentPlace::parse(&place.bytes()), place);
        let both = GzipAndText {
            gzip: 0x0102_0304,
            text: 0x0506_0708,
        };
        assert_eq!(both.bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(GzipAndText::parse(&both.bytes()), Some(both));
        assert_eq!(GzipAndText::parse(&[0; 9]), None);
    }
}
