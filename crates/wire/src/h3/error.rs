//! Errors of a peer in HTTP/3 and their codes (RFC 9114 §8.1, RFC 9204 §6).

use crate::abuse_budget::AbuseBudgetExhausted;
use crate::field_section::FieldSectionBomb;
use crate::hpack_primitives::MalformedPrimitive;
use std::fmt;

/// Error code of a QUIC stream or connection.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct H3ErrorCode(pub u32);

macro_rules! codes {
    ($( $name:ident = $code:literal; )*) => {
        /// Each constant is the code of its name in RFC 9114 §8.1 or RFC 9204 §6.
        impl H3ErrorCode {
            $( pub const $name: H3ErrorCode = H3ErrorCode($code); )*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $code => Some(stringify!($name)), )*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    H3_NO_ERROR = 0x100;
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    H3_INTERNAL_ERROR = 0x102;
    H3_STREAM_CREATION_ERROR = 0x103;
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    H3_FRAME_UNEXPECTED = 0x105;
    H3_FRAME_ERROR = 0x106;
    H3_EXCESSIVE_LOAD = 0x107;
    H3_ID_ERROR = 0x108;
    H3_SETTINGS_ERROR = 0x109;
    H3_MISSING_SETTINGS = 0x10a;
    H3_REQUEST_REJECTED = 0x10b;
    H3_REQUEST_CANCELLED = 0x10c;
    H3_REQUEST_INCOMPLETE = 0x10d;
    H3_MESSAGE_ERROR = 0x10e;
    H3_CONNECT_ERROR = 0x10f;
    H3_VERSION_FALLBACK = 0x110;
    QPACK_DECOMPRESSION_FAILED = 0x200;
    QPACK_ENCODER_STREAM_ERROR = 0x201;
    QPACK_DECODER_STREAM_ERROR = 0x202;
}

impl fmt::Debug for H3ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Connection error (RFC 9114 §8), which closes the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct H3ConnectionError {
    /// Error code in CONNECTION_CLOSE.
    pub code: H3ErrorCode,
    /// One clause, the reason phrase of CONNECTION_CLOSE.
    pub reason: &'static str,
}

impl H3ConnectionError {
    /// Creates an error with a code and a reason.
    pub const fn new(code: H3ErrorCode, reason: &'static str) -> H3ConnectionError {
        H3ConnectionError { code, reason }
    }

    /// Creates an error H3_FRAME_UNEXPECTED: a frame is not allowed at its position.
    pub(super) const fn unexpected(reason: &'static str) -> H3ConnectionError {
        H3ConnectionError::new(H3ErrorCode::H3_FRAME_UNEXPECTED, reason)
    }

    /// Creates an error H3_FRAME_ERROR: the length of a frame contradicts its content.
    pub(super) const fn frame(reason: &'static str) -> H3ConnectionError {
        H3ConnectionError::new(H3ErrorCode::H3_FRAME_ERROR, reason)
    }

    /// Creates an error H3_EXCESSIVE_LOAD: the peer's behaviour causes excessive load.
    pub const fn excessive_load(reason: &'static str) -> H3ConnectionError {
        H3ConnectionError::new(H3ErrorCode::H3_EXCESSIVE_LOAD, reason)
    }
}

impl From<MalformedPrimitive> for H3ConnectionError {
    fn from(_: MalformedPrimitive) -> H3ConnectionError {
        H3ConnectionError::new(
            H3ErrorCode::QPACK_DECOMPRESSION_FAILED,
            "malformed field section",
        )
    }
}

impl From<AbuseBudgetExhausted> for H3ConnectionError {
    fn from(exhausted: AbuseBudgetExhausted) -> H3ConnectionError {
        H3ConnectionError::excessive_load(exhausted.0)
    }
}

impl From<FieldSectionBomb> for H3ConnectionError {
    fn from(_: FieldSectionBomb) -> H3ConnectionError {
        H3ConnectionError::excessive_load("the decompressed fields are too large")
    }
}
