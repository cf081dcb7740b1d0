//! Escapes of log lines: any text of a peer or of an operator is one line, and no byte can control a terminal.
//!
//! Spans without special characters are copied whole, and a table finds the end of each span.

use crate::visible_text::is_hidden;

/// Appends `text` as one line of visible characters, with quotes and backslashes unchanged.
pub fn push_message(out: &mut Vec<u8>, text: &[u8]) {
    push_spans(out, text, |out, odd| match odd {
        [byte @ (b'"' | b'\\')] => out.push(*byte),
        bytes => bytes.iter().for_each(|&byte| push_hex_escape(out, byte)),
    });
}

/// Copies spans without special characters and passes the remaining pieces to `escape`: one special ASCII
/// character, one hidden character beyond ASCII (2 to 4 bytes), or one sequence that is not UTF-8.
pub fn push_spans(out: &mut Vec<u8>, text: &[u8], escape: impl Fn(&mut Vec<u8>, &[u8])) {
    let mut rest = text;
    while !rest.is_empty() {
        let clean = clean_bytes(rest);
        out.extend_from_slice(&rest[..clean]);
        rest = &rest[clean..];
        let Some(&first) = rest.first() else { return };
        let (len, is_clean) = if first.is_ascii() {
            (1, false)
        } else {
            character(rest)
        };
        let (piece, after) = rest.split_at(len);
        if is_clean {
            out.extend_from_slice(piece);
        } else {
            escape(out, piece);
        }
        rest = after;
    }
}

/// Returns the number of bytes at the start that are visible ASCII without `"` and `\`.
fn clean_bytes(text: &[u8]) -> usize {
    text.iter()
        .position(|&byte| !CLEAN[usize::from(byte)])
        .unwrap_or(text.len())
}

const CLEAN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        table[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        byte += 1;
    }
    table
};

/// Returns the length of the first character beyond ASCII, and true if the character may be copied. Control
/// characters, which terminals obey, marks of the direction of text, and sequences that are not UTF-8 are not copied. The length of a
/// malformed sequence is the length that a decoder would replace.
fn character(text: &[u8]) -> (usize, bool) {
    let longest = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(longest) {
        Ok(valid) => valid,
        Err(error) if error.valid_up_to() == 0 => {
            return (error.error_len().unwrap_or(longest.len()), false);
        }
        Err(error) => std::str::from_utf8(&longest[..error.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(first) => (first.len_utf8(), !is_hidden(first)),
        None => (1, false),
    }
}

/// Appends a byte as `\xHH`.
pub fn push_hex_escape(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(&[b'\\', b'x', hex_digit(byte >> 4), hex_digit(byte & 15)]);
}

/// Returns the lower-case digit of a number below 16.
pub fn hex_digit(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble & 15)]
}
