//! SETTINGS of HTTP/2, of the peer and of this side in either role (RFC 9113 §6.5).

use super::error::{H2ConnectionError, H2ErrorCode};
use super::frame;
use crate::limits::{H2_CONNECTION_WINDOW_BYTES, H2_MEMBER_STREAM_WINDOW_BYTES, H2_STREAMS_MAX};

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
/// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3).
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
/// SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 §2.1).
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// Initial size of each flow-control window (RFC 9113 §6.9.2).
pub const WINDOW_BYTES: u32 = 65_535;
/// Largest flow-control window (RFC 9113 §6.9.1).
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
/// Default of SETTINGS_MAX_FRAME_SIZE: the largest payload of a frame in bytes.
pub const FRAME_BYTES: u32 = 16_384;
/// Default of SETTINGS_HEADER_TABLE_SIZE: the size of HPACK's dynamic table in bytes.
pub const TABLE_BYTES: u32 = 4_096;

/// Settings of the peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct H2Settings {
    /// Initial send window of a new stream.
    pub window_bytes: u32,
    /// Largest payload of a frame that the peer accepts.
    pub frame_bytes: u32,
    /// Largest dynamic table that the encoder of this endpoint may use; the encoder uses none.
    pub table_bytes: u32,
    /// Largest number of streams that this endpoint may have open at once, as a client.
    pub streams_max: u32,
}

impl Default for H2Settings {
    fn default() -> H2Settings {
        H2Settings {
            window_bytes: WINDOW_BYTES,
            frame_bytes: FRAME_BYTES,
            table_bytes: TABLE_BYTES,
            streams_max: u32::MAX,
        }
    }
}

impl H2Settings {
    /// Applies the payload of a SETTINGS frame; unknown settings are ignored. `push_max` is the largest value of
    /// ENABLE_PUSH.
    pub fn apply(&mut self, payload: &[u8], push_max: u32) -> Result<(), H2ConnectionError> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            let reason = "the length of SETTINGS is not a multiple of 6";
            return Err(H2ConnectionError::new(
                H2ErrorCode::FRAME_SIZE_ERROR,
                reason,
            ));
        }
        for [id_high, id_low, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*id_high, *id_low]) {
                HEADER_TABLE_SIZE => self.table_bytes = value,
                MAX_CONCURRENT_STREAMS => self.streams_max = value,
                ENABLE_PUSH if value > push_max => {
                    return Err(H2ConnectionError::protocol("ENABLE_PUSH is too large"));
                }
                INITIAL_WINDOW_SIZE if value > WINDOW_BYTES_MAX => {
                    let reason = "INITIAL_WINDOW_SIZE is too large";
                    return Err(H2ConnectionError::new(
                        H2ErrorCode::FLOW_CONTROL_ERROR,
                        reason,
                    ));
                }
                INITIAL_WINDOW_SIZE => self.window_bytes = value,
                MAX_FRAME_SIZE if !(FRAME_BYTES..1 << 24).contains(&value) => {
                    return Err(H2ConnectionError::protocol(
                        "MAX_FRAME_SIZE is out of bounds",
                    ));
                }
                MAX_FRAME_SIZE => self.frame_bytes = value,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends the server's first frames: SETTINGS, and WINDOW_UPDATE for the connection.
pub fn greet(out: &mut Vec<u8>, head_bytes: u32) {
    let settings = [
        (MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX as u32),
        (MAX_HEADER_LIST_SIZE, head_bytes),
        (ENABLE_CONNECT_PROTOCOL, 1),
        (NO_RFC7540_PRIORITIES, 1),
    ];
    push_greeting(out, &settings);
}

/// Appends the client's first frames behind the preface: SETTINGS, and WINDOW_UPDATE for the connection.
pub fn greet_server(out: &mut Vec<u8>, head_bytes: u32) {
    let settings = [
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, H2_MEMBER_STREAM_WINDOW_BYTES),
        (MAX_HEADER_LIST_SIZE, head_bytes),
        (NO_RFC7540_PRIORITIES, 1),
    ];
    push_greeting(out, &settings);
}

fn push_greeting(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    frame::header(out, settings.len() * 6, frame::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    frame::window_update(out, 0, H2_CONNECTION_WINDOW_BYTES - WINDOW_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_peer_are_applied_or_refused() {
        let mut settings = H2Settings::default();
        let payload =
            b"\0\x01\0\0\0\0\0\x03\0\0\0\x03\0\x04\0\x10\0\0\0\x05\0\x01\0\0\0\x33\0\0\0\x07";
        assert_eq!(settings.apply(payload, 1), Ok(()));
        let expected = H2Settings {
            window_bytes: 1 << 20,
            frame_bytes: 1 << 16,
            table_bytes: 0,
            streams_max: 3,
        };
        assert_eq!(settings, expected);
        for (payload, code) in [
            (&b"\0\x02\0\0\0\x02"[..], H2ErrorCode::PROTOCOL_ERROR),
            (b"\0\x04\x80\0\0\0", H2ErrorCode::FLOW_CONTROL_ERROR),
            (b"\0\x05\0\0\x3f\xff", H2ErrorCode::PROTOCOL_ERROR),
            (b"\0\x05\x01\0\0\0", H2ErrorCode::PROTOCOL_ERROR),
            (b"\0\x05\x01\0\0", H2ErrorCode::FRAME_SIZE_ERROR),
        ] {
            let refused = H2Settings::default()
                .apply(payload, 1)
                .map_err(|error| error.code);
            assert_eq!(refused, Err(code), "{payload:?}");
        }
        let push = b"\0\x02\0\0\0\x01";
        assert_eq!(H2Settings::default().apply(push, 1), Ok(()));
        assert!(H2Settings::default().apply(push, 0).is_err());
    }
}
