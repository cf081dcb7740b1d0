//! Pointer to a release: the release that a site serves, with a sequence that only rises.
//!
//! A pointer is a canonical text of at most 4 KiB. Each line has a keyword and a value:
//!
//! ```text
//! anthill pointer 1
//! site NAME
//! release DIGEST
//! sequence NUMBER
//! time SECONDS
//! publisher NAME
//! key KEY
//! signature SIGNATURE
//! ```
//!
//! The digest is the SHA-256 of the manifest, and the time is Unix time. The last two lines are there or absent
//! together: an Ed25519 key (RFC 8032) of 32 bytes, and the signature of all lines before `signature`, 64 bytes, both
//! in lower-case hexadecimal. A signature of a pointer also signs the manifest and all contents, by their digests.

use crate::base::digest::{from_hex, hex};
use crate::limits::{RELEASE_LABEL_BYTES_MAX, RELEASE_POINTER_BYTES_MAX};
use crate::wire::framing_fields::content_length;

/// First line of a pointer, with the version of the format.
const HEADER: &str = "anthill pointer 1";

/// Pointer to a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleasePointer {
    /// Name of the site in the store.
    pub site: String,
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Number of the publication, from 1.
    pub sequence: u64,
    /// Time of the publication in seconds since 1970.
    pub time: u64,
    /// Name of the publisher: the user and the machine, or the name of a repository.
    pub publisher: String,
}

/// Signature of a pointer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PointerSignature<'p> {
    /// Ed25519 public key.
    pub key: [u8; 32],
    /// Ed25519 signature.
    pub signature: [u8; 64],
    /// Signed bytes.
    pub signed: &'p [u8],
}

impl ReleasePointer {
    /// Parses a pointer, with its signature; None for another text. The signature is not verified.
    pub fn parse(text: &[u8]) -> Option<(ReleasePointer, Option<PointerSignature<'_>>)> {
        if text.len() > RELEASE_POINTER_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let mut rest = text.strip_prefix(HEADER)?.strip_prefix('\n')?;
        let pointer = ReleasePointer {
            site: value(&mut rest, "site")
                .filter(|name| is_label(name))?
                .to_owned(),
            release: from_hex(value(&mut rest, "release")?.as_bytes())?,
            sequence: number(value(&mut rest, "sequence")?).filter(|it| *it > 0)?,
            time: number(value(&mut rest, "time")?)?,
            publisher: value(&mut rest, "publisher")
                .filter(|name| is_publisher(name))?
                .to_owned(),
        };
        if rest.is_empty() {
            return Some((pointer, None));
        }
        let key = from_hex(value(&mut rest, "key")?.as_bytes())?;
        let signed = &text.as_bytes()[..text.len() - rest.len()];
        let signature = from_hex(value(&mut rest, "signature")?.as_bytes())?;
        let signature = PointerSignature {
            key,
            signature,
            signed,
        };
        rest.is_empty().then_some((pointer, Some(signature)))
    }

    /// Returns the text of the pointer without a signature.
    pub fn text(&self) -> String {
        let ReleasePointer {
            site,
            sequence,
            time,
            publisher,
            ..
        } = self;
        let release = hex(&self.release);
        format!(
            "{HEADER}\nsite {site}\nrelease {release}\nsequence {sequence}\ntime {time}\npublisher {publisher}\n"
        )
    }

    /// Returns the bytes to sign with a key.
    pub fn to_be_signed(&self, key: &[u8; 32]) -> String {
        format!("{}key {}\n", self.text(), hex(key))
    }

    /// Returns the text with a signature of [`ReleasePointer::to_be_signed`].
    pub fn signed_text(&self, key: &[u8; 32], signature: &[u8; 64]) -> String {
        format!("{}signature {}\n", self.to_be_signed(key), hex(signature))
    }
}

/// Returns true for the name of a site or of a label: 1 to 63 letters, digits, dots, hyphens and underscores, with a
/// letter or a digit first. The name is a file name in the store.
pub fn is_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=RELEASE_LABEL_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_inner)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Returns true for the name of a publisher: visible ASCII characters without a space.
pub fn is_publisher(name: &str) -> bool {
    (1..=RELEASE_LABEL_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Takes a line with a keyword, and returns the value.
fn value<'t>(rest: &mut &'t str, keyword: &str) -> Option<&'t str> {
    let (line, after) = rest.split_once('\n')?;
    *rest = after;
    line.strip_prefix(keyword)?.strip_prefix(' ')
}

fn number(digits: &str) -> Option<u64> {
    let number = content_length(digits.as_bytes())?;
    (digits == "0" || !digits.starts_with('0')).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer() -> ReleasePointer {
        ReleasePointer {
            site: "www".to_owned(),
            release: [0xab; 32],
            sequence: 17,
            time: 1_763_899_200,
            publisher: "ann@laptop".to_owned(),
        }
    }

    #[test]
    fn a_pointer_is_read_as_written() {
        let text = pointer().text();
        assert_eq!(
            ReleasePointer::parse(text.as_bytes()),
            Some((pointer(), None))
        );
        let signed = pointer().to_be_signed(&[1; 32]);
        let text = pointer().signed_text(&[1; 32], &[2; 64]);
        let (parsed, signature) = ReleasePointer::parse(text.as_bytes()).expect("a pointer");
        assert_eq!(parsed, pointer());
        let expected = PointerSignature {
            key: [1; 32],
            signature: [2; 64],
            signed: signed.as_bytes(),
        };
        assert_eq!(signature, Some(expected));
        for end in 0..text.len() {
            let is_unsigned = text[..end] == pointer().text();
            let parsed = ReleasePointer::parse(&text.as_bytes()[..end]);
            assert_eq!(parsed.is_some(), is_unsigned, "{end}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let text = pointer().signed_text(&[1; 32], &[2; 64]);
        for (part, other) in [
            ("pointer 1", "pointer 2"),
            ("site www", "site ../www"),
            ("site www", "site .www"),
            ("site www", "site "),
            ("release ab", "release AB"),
            ("release ab", "release "),
            ("sequence 17", "sequence 0"),
            ("sequence 17", "sequence 017"),
            ("sequence 17", "sequence 18446744073709551616"),
            ("time 1763899200", "time -1"),
            ("ann@laptop", "ann laptop"),
            ("ann@laptop", "ann\tlaptop"),
            ("ann@laptop", ""),
            ("\nkey ", "\nkeys "),
            ("\nsequence", "\r\nsequence"),
        ] {
            let text = text.replacen(part, other, 1);
            assert_eq!(ReleasePointer::parse(text.as_bytes()), None, "{other}");
        }
        let trailing = format!("{text}\n");
        assert_eq!(ReleasePointer::parse(trailing.as_bytes()), None);
        assert!(!is_label(&"a".repeat(64)) && is_label(&"a".repeat(63)));
    }
}
