//! Status codes (RFC 9110 §15) and their reason phrases.

/// A final or interim status code, 100 to 599.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Status(pub u16);

impl Status {
    pub const OK: Status = Status(200);
    pub const PARTIAL_CONTENT: Status = Status(206);
    pub const MOVED_PERMANENTLY: Status = Status(301);
    pub const FOUND: Status = Status(302);
    pub const NOT_MODIFIED: Status = Status(304);
    pub const PERMANENT_REDIRECT: Status = Status(308);
    pub const BAD_REQUEST: Status = Status(400);
    pub const UNAUTHORIZED: Status = Status(401);
    pub const FORBIDDEN: Status = Status(403);
    pub const NOT_FOUND: Status = Status(404);
    pub const METHOD_NOT_ALLOWED: Status = Status(405);
    pub const REQUEST_TIMEOUT: Status = Status(408);
    pub const PRECONDITION_FAILED: Status = Status(412);
    pub const CONTENT_TOO_LARGE: Status = Status(413);
    pub const URI_TOO_LONG: Status = Status(414);
    pub const RANGE_NOT_SATISFIABLE: Status = Status(416);
    pub const EXPECTATION_FAILED: Status = Status(417);
    pub const MISDIRECTED_REQUEST: Status = Status(421);
    pub const REQUEST_HEADER_FIELDS_TOO_LARGE: Status = Status(431);
    pub const INTERNAL_SERVER_ERROR: Status = Status(500);
    pub const NOT_IMPLEMENTED: Status = Status(501);
    pub const BAD_GATEWAY: Status = Status(502);
    pub const SERVICE_UNAVAILABLE: Status = Status(503);
    pub const GATEWAY_TIMEOUT: Status = Status(504);
    pub const HTTP_VERSION_NOT_SUPPORTED: Status = Status(505);

    /// The reason phrase of the registry; empty for a code without one.
    pub fn reason(self) -> &'static str {
        match self.0 {
            100 => "Continue", 101 => "Switching Protocols", 103 => "Early Hints",
            200 => "OK", 201 => "Created", 202 => "Accepted", 203 => "Non-Authoritative Information",
            204 => "No Content", 205 => "Reset Content", 206 => "Partial Content", 207 => "Multi-Status",
            300 => "Multiple Choices", 301 => "Moved Permanently", 302 => "Found", 303 => "See Other",
            304 => "Not Modified", 307 => "Temporary Redirect", 308 => "Permanent Redirect",
            400 => "Bad Request", 401 => "Unauthorized", 402 => "Payment Required", 403 => "Forbidden",
            404 => "Not Found", 405 => "Method Not Allowed", 406 => "Not Acceptable",
            407 => "Proxy Authentication Required", 408 => "Request Timeout", 409 => "Conflict",
            410 => "Gone", 411 => "Length Required", 412 => "Precondition Failed",
            413 => "Content Too Large", 414 => "URI Too Long", 415 => "Unsupported Media Type",
            416 => "Range Not Satisfiable", 417 => "Expectation Failed", 421 => "Misdirected Request",
            422 => "Unprocessable Content", 423 => "Locked", 424 => "Failed Dependency", 425 => "Too Early",
            426 => "Upgrade Required", 428 => "Precondition Required", 429 => "Too Many Requests",
            431 => "Request Header Fields Too Large", 451 => "Unavailable For Legal Reasons",
            500 => "Internal Server Error", 501 => "Not Implemented", 502 => "Bad Gateway",
            503 => "Service Unavailable", 504 => "Gateway Timeout", 505 => "HTTP Version Not Supported",
            507 => "Insufficient Storage", 508 => "Loop Detected", 511 => "Network Authentication Required",
            _ => "",
        }
    }
}
