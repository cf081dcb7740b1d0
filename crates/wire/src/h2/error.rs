//! Errors of a peer in HTTP/2 and their codes (RFC 9113 §7).

use crate::abuse_budget::AbuseBudgetExhausted;
use crate::field_section::FieldSectionBomb;
use crate::reject::Reject;
use std::fmt;

/// Error code of GOAWAY and RST_STREAM.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct H2ErrorCode(pub u32);

macro_rules! codes {
    ($( $name:ident = $code:literal; )*) => {
        /// Each constant is the code of its name in RFC 9113 §7.
        impl H2ErrorCode {
            $( pub const $name: H2ErrorCode = H2ErrorCode($code); )*

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
    NO_ERROR = 0x0;
    PROTOCOL_ERROR = 0x1;
    INTERNAL_ERROR = 0x2;
    FLOW_CONTROL_ERROR = 0x3;
    SETTINGS_TIMEOUT = 0x4;
    STREAM_CLOSED = 0x5;
    FRAME_SIZE_ERROR = 0x6;
    REFUSED_STREAM = 0x7;
    CANCEL = 0x8;
    COMPRESSION_ERROR = 0x9;
    CONNECT_ERROR = 0xa;
    ENHANCE_YOUR_CALM = 0xb;
    INADEQUATE_SECURITY = 0xc;
    HTTP_1_1_REQUIRED = 0xd;
}

impl fmt::Debug for H2ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Connection error (RFC 9113 §5.4.1), which ends the connection with GOAWAY.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct H2ConnectionError {
    /// Error code in GOAWAY.
    pub code: H2ErrorCode,
    /// One clause, the debug data of GOAWAY.
    pub reason: &'static str,
}

impl H2ConnectionError {
    /// Creates an error PROTOCOL_ERROR.
    pub const fn protocol(reason: &'static str) -> H2ConnectionError {
        H2ConnectionError {
            code: H2ErrorCode::PROTOCOL_ERROR,
            reason,
        }
    }

    /// Creates an error ENHANCE_YOUR_CALM: the peer's behaviour causes excessive load.
    pub const fn enhance_your_calm(reason: &'static str) -> H2ConnectionError {
        H2ConnectionError {
            code: H2ErrorCode::ENHANCE_YOUR_CALM,
            reason,
        }
    }

    /// Creates an error with a code and a reason.
    pub const fn new(code: H2ErrorCode, reason: &'static str) -> H2ConnectionError {
        H2ConnectionError { code, reason }
    }
}

impl From<AbuseBudgetExhausted> for H2ConnectionError {
    fn from(exhausted: AbuseBudgetExhausted) -> H2ConnectionError {
        H2ConnectionError::enhance_your_calm(exhausted.0)
    }
}

impl From<FieldSectionBomb> for H2ConnectionError {
    fn from(_: FieldSectionBomb) -> H2ConnectionError {
        H2ConnectionError::enhance_your_calm("the decompressed fields are too large")
    }
}

/// Cause of a reset.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum H2ResetCause {
    /// The peer sent RST_STREAM.
    Peer(H2ErrorCode),
    /// The peer broke the protocol on the stream.
    Error(H2ErrorCode),
    /// The peer's message is malformed, by a rule (RFC 9113 §8.1.1).
    Malformed(Reject),
}

impl H2ResetCause {
    /// Returns the error code of RST_STREAM.
    pub(super) fn code(self) -> H2ErrorCode {
        match self {
            H2ResetCause::Peer(code) | H2ResetCause::Error(code) => code,
            H2ResetCause::Malformed(_) => H2ErrorCode::PROTOCOL_ERROR,
        }
    }
}

impl From<H2ErrorCode> for H2ResetCause {
    fn from(code: H2ErrorCode) -> H2ResetCause {
        H2ResetCause::Error(code)
    }
}
