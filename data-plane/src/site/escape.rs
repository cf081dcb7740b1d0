//! Escaping of text for HTML and JSON.

/// Appends text escaped for an element or a quoted attribute of HTML. Invalid UTF-8 becomes U+FFFD.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'&' => out.extend_from_slice(b"&amp;"),
                b'<' => out.extend_from_slice(b"&lt;"),
                b'>' => out.extend_from_slice(b"&gt;"),
                b'"' => out.extend_from_slice(b"&quot;"),
                b'\'' => out.extend_from_slice(b"&#39;"),
                // HTML forbids control characters.
                0..=8 | 11..=31 | 127 => out.extend_from_slice("\u{fffd}".as_bytes()),
                other => out.push(other),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// Appends a JSON string with quotes (RFC 8259 §7). Invalid UTF-8 becomes U+FFFD.
pub(crate) fn json_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0..=31 | 127 => {
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(base::digest::hex(&[byte]).as_bytes());
                }
                other => out.push(other),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}
