//! Byte search by machine words: finds the end of a token, a field value or a path.
//!
//! The parser passes every byte of a head through these functions once. Plain arithmetic tests a whole
//! word, without vector instructions or `unsafe`, and is fast on 32-bit ARM as well.

/// Number of bytes tested at once.
const WORD: usize = size_of::<usize>();
/// Mask of the top bit of each byte.
const TOP_BITS: usize = spread(0x80);

/// Returns the position of the first `byte` at or after `from`.
pub(super) fn find(bytes: &[u8], byte: u8, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(word) = word_at(bytes, at) {
        let hits = zero_bytes(word ^ spread(byte));
        if hits != 0 {
            return Some(at + first_hit(hits));
        }
        at += WORD;
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(|&b| b == byte).map(|n| at + n)
}

/// Returns the position of the last `byte` before `end`.
pub(super) fn rfind(bytes: &[u8], byte: u8, mut end: usize) -> Option<usize> {
    while let Some(word) = end.checked_sub(WORD).and_then(|at| word_at(bytes, at)) {
        let hits = exact_zero_bytes(word ^ spread(byte));
        if hits != 0 {
            return Some(end - 1 - hits.leading_zeros() as usize / 8);
        }
        end -= WORD;
    }
    bytes.get(..end)?.iter().rposition(|&b| b == byte)
}

/// Returns the first position at or after `from` without a field-value byte (RFC 9110 §5.5: visible
/// characters, space, tab, and 0x80 or above), or the length of `bytes`.
#[inline]
pub(super) fn value_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        while let Some(word) = word_at(bytes, at) {
            let hits = bytes_below(word, b' ') | zero_bytes(word ^ spread(0x7f));
            if hits != 0 {
                at += first_hit(hits);
                break;
            }
            at += WORD;
        }
        while let Some(&byte) = bytes.get(at) {
            if byte < b' ' || byte == 0x7f {
                break;
            }
            at += 1;
        }
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at += 1;
    }
}

/// Returns the first position at or after `from` with a space or a control character, or the length of
/// `bytes`.
#[inline]
pub(super) fn visible_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(word) = word_at(bytes, at) {
        let hits = bytes_below(word, b' ' + 1);
        if hits != 0 {
            return at + first_hit(hits);
        }
        at += WORD;
    }
    while bytes.get(at).is_some_and(|&byte| byte > b' ') {
        at += 1;
    }
    at
}

/// Returns the first position at or after `from` without a token byte, or the length of `bytes`.
#[inline]
pub(super) fn token_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while bytes.get(at).is_some_and(|&byte| is_token(byte)) {
        at += 1;
    }
    at
}

/// Returns true if `byte` may stand in a token (RFC 9110 §5.6.2).
#[inline]
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// Removes spaces and tabs at both ends (OWS, RFC 9110 §5.6.3).
#[inline]
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Compares `token` case-insensitively with a lower-case name of letters, digits and `-`.
///
/// Setting bit 0x20 folds letters. No other token byte becomes a letter or `-` by the fold.
#[inline]
pub(super) fn is_name<const N: usize>(token: &[u8], lower: &[u8; N]) -> bool {
    let Ok(token) = <&[u8; N]>::try_from(token) else {
        return false;
    };
    let mut difference = 0;
    for (byte, expected) in token.iter().zip(lower) {
        difference |= (byte | 0x20) ^ expected;
    }
    difference == 0
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\''
            | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

/// Reads a word in little-endian order on every machine, which makes the lowest hit the first byte.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<usize> {
    let chunk = bytes.get(at..)?.first_chunk::<WORD>()?;
    Some(usize::from_le_bytes(*chunk))
}

const fn spread(byte: u8) -> usize {
    usize::MAX / 255 * byte as usize
}

/// Sets the top bit of each zero byte. Above the first hit, a borrow may set further bits.
#[inline]
fn zero_bytes(word: usize) -> usize {
    word.wrapping_sub(spread(1)) & !word & TOP_BITS
}

/// Sets the top bit of each zero byte and no other bit.
#[inline]
fn exact_zero_bytes(word: usize) -> usize {
    const LOW_BITS: usize = spread(0x7f);
    !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
}

/// Sets the top bit of each byte below `bound` (at most 0x80). Exact up to the first hit.
#[inline]
fn bytes_below(word: usize, bound: u8) -> usize {
    word.wrapping_sub(spread(bound)) & !word & TOP_BITS
}

#[inline]
fn first_hit(hits: usize) -> usize {
    hits.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every byte at every position of buffers up to three words long with the plain definition.
    #[test]
    fn search_by_words_equals_search_by_bytes() {
        for length in 0..3 * WORD {
            for place in 0..length {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    let is_value = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
                    let expected = if is_value { length } else { place };
                    assert_eq!(value_end(&bytes, 0), expected, "value {byte:#x} {place}");
                    let expected = if byte > b' ' { length } else { place };
                    assert_eq!(visible_end(&bytes, 0), expected, "visible {byte:#x}");
                    let expected = bytes.iter().position(|&b| b == byte);
                    assert_eq!(find(&bytes, byte, 0), expected, "find {byte:#x}");
                    let expected = bytes.iter().rposition(|&b| b == byte);
                    assert_eq!(rfind(&bytes, byte, length), expected, "rfind {byte:#x}");
                    let expected = bytes[..place].iter().rposition(|&b| b == byte);
                    assert_eq!(rfind(&bytes, byte, place), expected, "rfind {byte:#x}");
                }
            }
        }
        assert_eq!(find(b"abc", b'a', 7), None);
        assert_eq!(rfind(b"abc", b'a', 4), None);
        assert_eq!(rfind(b"\x01\0\x01\0\x01\x01\x01\x01", 0, 8), Some(3));
        assert_eq!(value_end(b"a\tb\rc\n", 0), 3);
    }

    #[test]
    fn name_comparison_folds_letters_only() {
        assert!(is_name(b"If-Range", b"if-range"));
        assert!(is_name(b"IF-RANGE", b"if-range"));
        assert!(!is_name(b"If_Range", b"if-range"));
        assert!(!is_name(b"If-Rang", b"if-range"));
        for byte in (0..=255u8).filter(|&b| is_token(b)) {
            let same = byte.eq_ignore_ascii_case(&b'n');
            assert_eq!(is_name(&[byte], b"n"), same, "{byte:#x}");
            assert_eq!(is_name(&[byte], b"-"), byte == b'-', "{byte:#x}");
        }
    }

    #[test]
    fn trim_removes_spaces_and_tabs() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t "), b"");
    }
}
