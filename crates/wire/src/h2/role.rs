//! Roles of an endpoint of an HTTP/2 connection, with their differences. Both roles share the frames, the flow control
//! and the states of streams.

use crate::field_section::SectionKind;
use crate::limits::RESET_POINTS;
use crate::priority::Priority;

/// Role of an endpoint.
pub trait H2Role {
    /// Kind of the heads that the endpoint receives.
    const HEAD: SectionKind;
    /// Kind of the trailers that the endpoint receives.
    const TRAILERS: SectionKind;
    /// Largest value of SETTINGS_ENABLE_PUSH that the peer may send (RFC 9113 §6.5.2).
    const ENABLE_PUSH_MAX: u32;

    /// Returns the price of a received RST_STREAM in points of the abuse budget. `is_open` is true if the stream
    /// is in the table.
    fn reset_points(is_open: bool) -> u32;
}

/// State of a server.
#[derive(Default)]
pub struct ServerRole {
    /// Bit set of the identifiers used by the client, among the last 64 odd identifiers up to the last one.
    pub(super) begun: u64,
    /// Priorities received before the HEADERS of their streams.
    pub(super) ahead: Vec<(u32, Priority)>,
}

impl H2Role for ServerRole {
    const HEAD: SectionKind = SectionKind::Request;
    const TRAILERS: SectionKind = SectionKind::RequestTrailers;
    const ENABLE_PUSH_MAX: u32 = 1;

    fn reset_points(_: bool) -> u32 {
        RESET_POINTS
    }
}

/// State of a client.
#[derive(Default)]
pub struct ClientRole {
    /// Last stream that the server processes, after a GOAWAY of the server.
    pub(super) goaway_last: Option<u32>,
    /// Number of streams reset with NO_ERROR, because the complete response needs no further request.
    pub(super) needless_requests: usize,
    /// Largest size of the window for all uploads of the connection.
    pub(super) window_max: i64,
}

impl H2Role for ClientRole {
    const HEAD: SectionKind = SectionKind::Response;
    const TRAILERS: SectionKind = SectionKind::ResponseTrailers;
    const ENABLE_PUSH_MAX: u32 = 0;

    /// A server may reset each stream once, since the client opened the stream.
    fn reset_points(is_open: bool) -> u32 {
        if is_open { 0 } else { RESET_POINTS }
    }
}
