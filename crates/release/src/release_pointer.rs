//! Pointer to a release: the release that a site serves, with a sequence that only rises.
//!
//! A pointer is a canonical text of at most 4 KiB. Each line has a keyword and a value:
//!
//! ```text
//! anthill pointer 2
//! site NAME
//! site_id TEXT
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
//!
//! Two sites of one publisher may have the same name in the stores of their hosts. The identity of the site in the signed
//! text keeps the pointer of one of them from the other. A pointer without the line `site_id` has the version 1 in its
//! first line, and a pointer with the line has a signature.

use crate::limits::{RELEASE_LABEL_BYTES_MAX, RELEASE_POINTER_BYTES_MAX, SITE_ID_BYTES_MIN};
use base::digest::{from_hex, hex};
use wire::framing_fields::content_length;

/// First line of a pointer without the identity of the site.
const HEADER: &str = "anthill pointer 1";
/// First line of a pointer with the identity of the site.
const BOUND_HEADER: &str = "anthill pointer 2";

/// Pointer to a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleasePointer {
    /// Name of the site in the store.
    pub site: String,
    /// Identity of the site, for a signed pointer of one site alone.
    pub site_id: Option<String>,
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
        let (header, mut rest) = text.split_once('\n')?;
        let is_bound = match header {
            HEADER => false,
            BOUND_HEADER => true,
            _ => return None,
        };
        let pointer = ReleasePointer {
            site: value(&mut rest, "site")
                .filter(|name| is_label(name))?
                .to_owned(),
            site_id: if is_bound {
                let id = value(&mut rest, "site_id").filter(|id| is_site_id(id));
                Some(id?.to_owned())
            } else {
                None
            },
            release: from_hex(value(&mut rest, "release")?.as_bytes())?,
            sequence: number(value(&mut rest, "sequence")?).filter(|it| *it > 0)?,
            time: number(value(&mut rest, "time")?)?,
            publisher: value(&mut rest, "publisher")
                .filter(|name| is_publisher(name))?
                .to_owned(),
        };
        if rest.is_empty() {
            return (!is_bound).then_some((pointer, None));
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

    /// Returns the text of the pointer without a signature. A pointer with the identity of a site needs a signature.
    pub fn text(&self) -> String {
        let ReleasePointer {
            site,
            site_id,
            sequence,
            time,
            publisher,
            ..
        } = self;
        let release = hex(&self.release);
        let head = match site_id {
            None => format!("{HEADER}\nsite {site}\n"),
            Some(id) => format!("{BOUND_HEADER}\nsite {site}\nsite_id {id}\n"),
        };
        format!(
            "{head}release {release}\nsequence {sequence}\ntime {time}\npublisher {publisher}\n"
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

/// Returns true for the identity of a site: 16 to 63 letters, digits, hyphens and underscores. With fewer characters two
/// sites could have the same identity by chance.
pub fn is_site_id(id: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (SITE_ID_BYTES_MIN..=RELEASE_LABEL_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_inner)
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
            site_id: None,
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
    fn a_pointer_of_one_site_is_read_as_written_and_needs_a_signature() {
        let bound = ReleasePointer {
            site_id: Some("9f0c5ad24e8b41d7a3c6".to_owned()),
            ..pointer()
        };
        let text = bound.signed_text(&[1; 32], &[2; 64]);
        assert!(
            text.starts_with("anthill pointer 2\nsite www\nsite_id 9f0c5ad24e8b41d7a3c6\nrelease ")
        );
        let (parsed, signature) = ReleasePointer::parse(text.as_bytes()).expect("a pointer");
        assert_eq!(parsed, bound);
        let signed = signature.map(|it| it.signed);
        assert_eq!(signed, Some(bound.to_be_signed(&[1; 32]).as_bytes()));
        for end in 0..text.len() {
            assert_eq!(
                ReleasePointer::parse(&text.as_bytes()[..end]),
                None,
                "{end}"
            );
        }
        for (part, other) in [
            ("pointer 2", "pointer 1"),
            ("pointer 2", "pointer 3"),
            ("site_id 9f0c5ad24e8b41d7a3c6\n", ""),
            ("site_id 9f0c5ad24e8b41d7a3c6", "site_id 9f0c"),
            ("site_id 9f0c", "site_id 9f0 "),
            ("site_id 9f0c", "site_id /f0c"),
        ] {
            let text = text.replacen(part, other, 1);
            assert_eq!(ReleasePointer::parse(text.as_bytes()), None, "{other}");
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
