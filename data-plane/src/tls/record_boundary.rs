//! Boundaries of TLS records in a stream of bytes.

/// Bytes of a record's header: type, version, length (RFC 8446 §5.1).
const HEADER_BYTES: usize = 5;

/// Parser of record boundaries in a stream of bytes. The parser tells whether a record is incomplete.
#[derive(Default)]
pub(crate) struct RecordBoundaryFinder {
    header: [u8; HEADER_BYTES],
    of_header: u8,
    left: u16,
    passed: usize,
}

impl RecordBoundaryFinder {
    /// Follows `bytes` to the end of the current record, or to the end of `bytes`; returns the number
    /// of bytes followed.
    pub(crate) fn note_record(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.left == 0 {
                self.header[usize::from(self.of_header)] = bytes[at];
                self.of_header += 1;
                at += 1;
                if usize::from(self.of_header) < HEADER_BYTES {
                    continue;
                }
                let [.., high, low] = self.header;
                self.left = u16::from_be_bytes([high, low]);
                self.of_header = 0;
            }
            let passed = (bytes.len() - at).min(usize::from(self.left));
            self.left -= passed as u16;
            at += passed;
            if self.left == 0 {
                break;
            }
        }
        self.passed = self.passed.saturating_add(at);
        at
    }

    /// Returns the number of bytes followed.
    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    /// Returns true if the first record begins with the letters of a method and further visible characters, as a request of
    /// plain HTTP does. Meaningful after rustls has refused the first record.
    pub(crate) fn begins_like_request(&self) -> bool {
        let [first, rest @ ..] = self.header;
        let is_visible = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        first.is_ascii_alphabetic() && rest.iter().all(is_visible)
    }

    /// Returns true if every begun record is complete.
    pub(crate) fn is_between_records(&self) -> bool {
        self.left == 0 && self.of_header == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_plain_http_is_told_from_a_record() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1"[..], true),
            (b"DELETE /x", true),
            (b"PRI * HTTP/2.0", true),
            (b"\x16\x03\x01\x02\x00\x01", false),
            (b"GET", false),
            (b"SSH\x01\x02\x03", false),
            (b" GET /", false),
        ] {
            let mut boundary = RecordBoundaryFinder::default();
            boundary.note_record(bytes);
            assert_eq!(boundary.begins_like_request(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn record_boundaries_are_found_in_any_pieces() {
        let bytes = [
            &[22, 3, 1, 0, 3, 1, 2, 3][..],
            &[20, 3, 3, 0, 1, 1],
            &[23, 3, 3, 0, 0],
        ]
        .concat();
        for piece in 1..bytes.len() {
            let mut boundary = RecordBoundaryFinder::default();
            let mut passed = 0;
            for mut bytes in bytes.chunks(piece) {
                while !bytes.is_empty() {
                    let noted = boundary.note_record(bytes);
                    bytes = &bytes[noted..];
                    passed += noted;
                    let ends = [8, 14, 19].contains(&passed);
                    assert_eq!(boundary.is_between_records(), ends, "{passed} by {piece}");
                    assert!(ends || bytes.is_empty(), "no step goes past a record's end");
                }
            }
            assert_eq!(boundary.passed(), 19);
        }
    }
}
