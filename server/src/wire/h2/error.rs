//! What a peer did wrong in HTTP/2, and the code that tells it (RFC 9113 §7).

use crate::wire::calm::Exhausted;
use crate::wire::request::Bomb;
use std::fmt;

/// An error code, as GOAWAY and RST_STREAM carry it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Code(pub u32);

macro_rules! codes {
    ($( $name:ident = $code:literal; )*) => {
        #[expect(missing_docs, reason = "each is the code of its name in RFC 9113 §7")]
        impl Code {
            $( pub const $name: Code = Code($code); )*

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

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// The connection can't go on (RFC 9113 §5.4.1): it ends with GOAWAY.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fatal {
    /// What GOAWAY says.
    pub code: Code,
    /// One clause: the debug data of GOAWAY.
    pub reason: &'static str,
}

impl Fatal {
    /// A rule of the protocol was broken.
    pub const fn protocol(reason: &'static str) -> Fatal {
        Fatal {
            code: Code::PROTOCOL_ERROR,
            reason,
        }
    }

    /// The peer does what costs us more than it serves anybody.
    pub const fn calm(reason: &'static str) -> Fatal {
        Fatal {
            code: Code::ENHANCE_YOUR_CALM,
            reason,
        }
    }

    /// With this code.
    pub const fn new(code: Code, reason: &'static str) -> Fatal {
        Fatal { code, reason }
    }
}

impl From<Exhausted> for Fatal {
    fn from(exhausted: Exhausted) -> Fatal {
        Fatal::calm(exhausted.0)
    }
}

impl From<Bomb> for Fatal {
    fn from(_: Bomb) -> Fatal {
        Fatal::calm("a header bomb")
    }
}
