//! Frames of HTTP/2 (RFC 9113 §4, §6): parsing of frame headers, and encoding of the frames of both roles.

use super::error::H2ErrorCode;

/// Length of a frame header.
pub const HEADER_BYTES: usize = 9;
/// Highest stream identifier: 31 bits (RFC 9113 §5.1.1). As a mask, the constant removes the reserved bit
/// in front of an identifier.
pub const STREAM_ID_MAX: u32 = (1 << 31) - 1;
/// Connection preface of the client (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

macro_rules! bytes {
    ($( $name:ident = $value:literal; )*) => {
        $( #[doc = concat!("`", stringify!($name), "`")] pub const $name: u8 = $value; )*
    };
}

// Frame types.
bytes! {
    DATA = 0x0;
    HEADERS = 0x1;
    PRIORITY = 0x2;
    RST_STREAM = 0x3;
    SETTINGS = 0x4;
    PUSH_PROMISE = 0x5;
    PING = 0x6;
    GOAWAY = 0x7;
    WINDOW_UPDATE = 0x8;
    CONTINUATION = 0x9;
    PRIORITY_UPDATE = 0x10;
}
// Flags; each is defined for some frame types only.
bytes! {
    ACK = 0x1;
    END_STREAM = 0x1;
    END_HEADERS = 0x4;
    PADDED = 0x8;
    WITH_PRIORITY = 0x20;
}

/// Frame header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct H2FrameHeader {
    /// Length of the payload.
    pub length: usize,
    /// Frame type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Stream identifier; 0 = the connection.
    pub stream: u32,
}

impl H2FrameHeader {
    /// Parses a frame header; the reserved bit is ignored.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> H2FrameHeader {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        H2FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_ID_MAX,
        }
    }

    /// Returns true if `flag` is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame header.
pub fn header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
}

/// Completes the frame with its header at `at` and its payload up to the end of `out`: writes its
/// length and flags.
pub fn finish(out: &mut [u8], at: usize, flags: u8) {
    let length = (out.len() - at - HEADER_BYTES) as u32;
    let [_, a, b, c] = length.to_be_bytes();
    out[at..at + 3].copy_from_slice(&[a, b, c]);
    out[at + 4] = flags;
}

/// Appends RST_STREAM.
pub fn reset(out: &mut Vec<u8>, stream: u32, code: H2ErrorCode) {
    header(out, 4, RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends WINDOW_UPDATE.
pub fn window_update(out: &mut Vec<u8>, stream: u32, more_bytes: u32) {
    header(out, 4, WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&more_bytes.to_be_bytes());
}

/// Appends GOAWAY; `last` is the last stream that was or will be answered.
pub fn goaway(out: &mut Vec<u8>, last: u32, code: H2ErrorCode, reason: &str) {
    header(out, 8 + reason.len(), GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends a SETTINGS acknowledgement.
pub fn settings_ack(out: &mut Vec<u8>) {
    header(out, 0, SETTINGS, ACK, 0);
}

/// Appends PING, or with `ACK` the acknowledgement of a PING.
pub fn ping(out: &mut Vec<u8>, flags: u8, payload: &[u8; 8]) {
    header(out, 8, PING, flags, 0);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_header_is_parsed_back() {
        let mut out = Vec::new();
        header(&mut out, 0x01_02_03, HEADERS, END_STREAM | PADDED, 5);
        assert_eq!(out, b"\x01\x02\x03\x01\x09\0\0\0\x05");
        let parsed = H2FrameHeader::parse(out.as_slice().try_into().expect("nine bytes"));
        let expected = H2FrameHeader {
            length: 0x01_02_03,
            kind: HEADERS,
            flags: 9,
            stream: 5,
        };
        assert_eq!(parsed, expected);
        assert!(parsed.has(END_STREAM) && !parsed.has(END_HEADERS));
        let reserved = H2FrameHeader::parse(b"\0\0\0\0\0\x80\0\0\x01");
        assert_eq!(reserved.stream, 1);
    }

    #[test]
    fn frames_are_encoded() {
        let mut out = Vec::new();
        reset(&mut out, 3, H2ErrorCode::CANCEL);
        assert_eq!(out, b"\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08");
        out.clear();
        goaway(&mut out, 7, H2ErrorCode::ENHANCE_YOUR_CALM, "no");
        assert_eq!(out, b"\0\0\x0a\x07\0\0\0\0\0\0\0\0\x07\0\0\0\x0bno");
        out.clear();
        header(&mut out, 0, DATA, 0, 1);
        out.extend_from_slice(b"abc");
        finish(&mut out, 0, END_STREAM);
        assert_eq!(out, b"\0\0\x03\0\x01\0\0\0\x01abc");
    }
}
