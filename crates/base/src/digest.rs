//! SHA-256, and encodings of digests and other bytes as text.
//!
//! Entity tags, fingerprints and names of stored files use the same digest.

use aws_lc_rs::digest;

/// Incremental SHA-256 computation.
pub struct Digest(digest::Context);

impl Digest {
    /// Starts a computation without input.
    pub fn new() -> Digest {
        Digest(digest::Context::new(&digest::SHA256))
    }

    /// Adds `bytes` to the input.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest, 32 bytes.
    pub fn finish(self) -> [u8; 32] {
        let mut out = [0; 32];
        out.copy_from_slice(self.0.finish().as_ref());
        out
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

/// Returns the SHA-256 digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = Digest::new();
    digest.update(bytes);
    digest.finish()
}

/// Returns `bytes` in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)] as char);
        out.push(DIGITS[usize::from(byte & 15)] as char);
    }
    out
}

/// Reads `N` bytes in lower-case hexadecimal; None for any other text.
pub fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Returns `bytes` as base64 in the standard alphabet with padding (RFC 4648 §4), as used in PEM.
pub fn base64(bytes: &[u8]) -> String {
    let mut out = base64_unpadded(bytes, *b"+/");
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}

/// Returns `bytes` as base64 in the URL-safe alphabet without padding (RFC 4648 §5).
pub fn base64url(bytes: &[u8]) -> String {
    base64_unpadded(bytes, *b"-_")
}

/// Encodes base64 without padding. The two alphabets differ in their last two digits.
fn base64_unpadded(bytes: &[u8], last_digits: [u8; 2]) -> String {
    const DIGITS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for digit in 0..=three.len() {
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            let digit = DIGITS.get(value).unwrap_or(&last_digits[value & 1]);
            out.push(*digit as char);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_known_values() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&sha256(b"abc")), abc);
        let mut pieces = Digest::new();
        pieces.update(b"a");
        pieces.update(b"bc");
        assert_eq!(hex(&pieces.finish()), abc);
    }

    #[test]
    fn hexadecimal_is_read_as_written() {
        let digest = sha256(b"abc");
        assert_eq!(from_hex(hex(&digest).as_bytes()), Some(digest));
        for wrong in ["", "0", "0g", "0A", "001", "00 "] {
            assert_eq!(from_hex::<1>(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn base64_matches_the_vectors_of_the_rfc() {
        // Test vectors of RFC 4648 §10.
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64url(plain.as_bytes()), coded);
            let padding = "=".repeat((4 - coded.len() % 4) % 4);
            assert_eq!(base64(plain.as_bytes()), format!("{coded}{padding}"));
        }
        assert_eq!(base64url(&[0xfb, 0xff]), "-_8");
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}
