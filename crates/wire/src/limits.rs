//! Bounds of the crate: parsers and protocol states of HTTP, scripts and JSON.
//!
//! Bounds that an operator may change are fields of [`HeadLimits`].

/// Bounds of request heads that an operator may set under the names of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request line without CRLF: the size that browsers and proxies still send. A longer line
    /// is answered with 414.
    pub request_line_bytes: usize,
    /// Bytes of the whole request head. A longer head is answered with 431.
    pub head_bytes: usize,
    /// Field lines of one head. A head with more lines is answered with 431.
    pub fields: usize,
    /// True if the parser accepts encoded slashes in paths, because a route of any site has `encoded_slash`.
    /// Dispatch then refuses the paths of all other routes. The flag is no bound: it is set by the routes.
    pub has_encoded_slashes: bool,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            request_line_bytes: 8 * 1024,
            head_bytes: 16 * 1024,
            fields: 100,
            has_encoded_slashes: false,
        }
    }
}

// HTTP/1.1 messages and field sections

/// Bytes of one chunk extension in a chunk-size line. RFC 9112 §7.1.1 asks for a bound, and real
/// clients send no extensions. A longer extension is answered with 400.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
/// Bytes of the trailer section of one message, 4 KiB: the status of gRPC with a message, or checksums.
/// Trailers are kept in memory until the end of the message. A request with a larger trailer section is
/// answered with 431, and a response is broken off.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Ranges in one request. A request with more ranges is answered with the whole representation: RFC
/// 9110 §14.2 lets a server ignore the Range field.
pub const RANGES_MAX: usize = 8;
/// Bytes of the name of a method without a registration, 24. The longest registered name has 17 bytes, and the names in
/// use, such as PURGE, BAN and M-SEARCH, are shorter. The name is copied with each request. A longer name is answered
/// with 501.
pub const METHOD_BYTES_MAX: usize = 24;
/// Multiple of `head_bytes` at which a field section counts as a decompression bomb. The connection
/// ends, while a section that is merely too large is answered with 431.
pub const HEAD_BOMB_FACTOR: usize = 4;

/// Resources named by the tags of If in one request (RFC 4918 §10.4). WebDAV clients name 1 or 2, the source and the
/// destination. The guards of each resource are checked. A request with more is answered with 400.
pub const RESOURCE_TAGS_MAX: usize = 16;

/// Unusual fields listed in Connection, beside fields that a proxy always removes or never removes.
/// Clients list none or one. The fields are compared with each line of the head. A message to be
/// forwarded that lists more is refused.
pub const CONNECTION_OPTIONS_MAX: usize = 16;

// PROXY protocol

/// Bytes of a header of PROXY protocol version 2 with its extensions, 1 KiB. Addresses take at most 232
/// bytes, and the extensions of common load balancers 100 to 300 bytes. A connection with a longer
/// header is closed.
pub const PROXY_V2_HEADER_BYTES_MAX: usize = 1_024;

// Responses of scripts

/// Bytes of the head of a script's response, 64 KiB: cookies and policies of the largest applications
/// fit. A longer head is answered with 502.
pub const CGI_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Field lines in the head of a script's response. A head with more lines is answered with 502.
pub const CGI_FIELDS_MAX: usize = 200;
/// Bytes of a reason phrase chosen by a script: a sentence fits, and a stored head stays small. The
/// phrase of the IANA registry replaces a longer phrase.
pub const STATUS_REASON_BYTES_MAX: usize = 256;

// JSON

/// Nesting of values in JSON text. ACME needs 4 levels. Text with deeper nesting is rejected as
/// malformed.
pub const JSON_DEPTH_MAX: usize = 16;

// HTTP/2

/// Streams that a client may have open at the same time on one HTTP/2 connection. Browsers use a few
/// dozen at once, and RFC 9113 §6.5.2 recommends at least 100. Further streams are reset with
/// REFUSED_STREAM.
pub const H2_STREAMS_MAX: usize = 100;
/// Connection flow-control window for request bodies, 256 KiB received and not yet consumed on all
/// streams of one HTTP/2 connection. Each stream has at most the size of a pipe, so that a stalled
/// stream doesn't block other streams. Bodies of calls in the script queue don't count: `script_queue`
/// bounds these for all connections.
pub const H2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Window for the rest of a request body that is discarded behind its response, 1 GiB: half of the largest window
/// (RFC 9113 §6.9.1), so that further bytes always have room. The bytes take no memory.
pub const H2_REST_WINDOW_BYTES: u32 = 1 << 30;
/// Compressed bytes of one field block, 32 KiB. No ordinary head grows by compression. A larger block
/// ends the connection with ENHANCE_YOUR_CALM.
pub const H2_BLOCK_BYTES_MAX: usize = 32 * 1024;
/// Frames of one field block (HEADERS and CONTINUATION). A head of the largest size fits into 2 frames.
/// A block with more frames ends the connection with ENHANCE_YOUR_CALM, as a CONTINUATION flood.
pub const H2_BLOCK_FRAMES_MAX: usize = 16;
/// Streams reset by the server. The last frames of the streams may still be in flight and must be
/// ignored. Beyond the bound, the oldest stream is forgotten.
pub const H2_RESETS_REMEMBERED: usize = 256;
/// Priorities remembered for HTTP/2 streams that the client has not opened yet. Further priorities are
/// ignored.
pub const H2_PRIORITIES_AHEAD_MAX: usize = 16;
/// Largest response body in memory that is sent directly behind the head instead of being queued behind
/// other responses, 16 KiB.
pub const H2_SMALL_BODY_BYTES: usize = 16 * 1024;
/// Response bytes sent without interleaving, 4 MiB, for a response with non-incremental priority (RFC
/// 9218). Beyond the bound, the response takes turns with other responses, since an endless response
/// would starve these.
pub const H2_NON_INCREMENTAL_BYTES_MAX: u64 = 4 << 20;

/// Streams that a worker opens at the same time on one HTTP/2 connection to a member. Servers allow 100 to
/// 250, and the bodies of a connection are sent and received by a single thread of most members.
pub const H2_MEMBER_STREAMS_MAX: usize = 100;
/// Last bytes of the window that a member grants to all uploads of an HTTP/2 connection, 16 KiB. While the window
/// is shorter, no upload begins on the connection. Of these bytes, an upload gets at most half, less the bytes that
/// the member has not yet granted again to the upload. An upload that the application does not read would otherwise
/// hold up the uploads of other clients.
pub const H2_MEMBER_SHARED_WINDOW_BYTES: u32 = 16 * 1024;
/// Longest upload that shares a connection with any other upload, 8 KiB: half of [`H2_MEMBER_SHARED_WINDOW_BYTES`]. A
/// longer upload needs WINDOW_UPDATE frames of the member, and many members send one only after half of the window. An
/// upload that the application does not read may take the other half for ever.
pub const H2_MEMBER_SHORT_UPLOAD_BYTES: u64 = 8 * 1024;
/// Bytes that a member may send ahead on each stream over HTTP/2, 4 KiB: as much as the smallest pipe of a call. Each
/// call has reserved the memory, since SETTINGS_INITIAL_WINDOW_SIZE grants the bytes to every stream. A longer response
/// gets a wider window if the memory of the bodies under way has room.
pub const H2_MEMBER_STREAM_WINDOW_BYTES: u32 = 4 * 1024;
/// Points given back for each HEADERS or DATA frame sent to a member. gRPC servers answer a DATA frame with a
/// PING, to measure the bandwidth, and with 2 WINDOW_UPDATEs.
pub const H2_MEMBER_FRAME_POINTS: u32 = 40;
/// Points for an interim response of a member. 200 heads at once are a flood, since each may take 32 KiB until the
/// request reads the head.
pub const H2_MEMBER_INTERIM_POINTS: u32 = 50;

// HTTP/3

/// Bytes of a compressed field section in HTTP/3, 64 KiB. No client sends a longer section by mistake,
/// so a longer section ends the connection.
pub const H3_SECTION_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a frame on the HTTP/3 control stream that are buffered until the frame is complete, 4 KiB.
/// SETTINGS takes a few dozen bytes. A longer frame ends the connection.
pub const H3_CONTROL_FRAME_BYTES_MAX: usize = 4 * 1024;

// Abuse budget of an HTTP/2 or HTTP/3 connection

/// Points of a connection's abuse budget. Each frame that serves no response costs points. Time and
/// completed responses give points back. A burst is therefore free, a flood empties the budget within a
/// fraction of a second and ends the connection, and no client that loads pages comes near the bound.
pub const ABUSE_POINTS_MAX: u32 = 10_000;
/// Points of the abuse budget given back each second: 10 resets or 50 PINGs a second can go on for
/// ever.
pub const ABUSE_POINTS_PER_SECOND: u32 = 1_000;
/// Points for a stream that was reset by the client, or by the server because of a fault of the client:
/// the work for the stream was in vain. A browser that leaves a page resets up to 100 streams at once.
pub const RESET_POINTS: u32 = 50;
/// Points for a SETTINGS frame. The server acknowledges each frame and walks over all streams, and a
/// client sends 1 or 2 frames in all.
pub const H2_SETTINGS_POINTS: u32 = 100;
/// Points for a PING frame. The server answers each PING, and a client that measures the round trip
/// sends a few a second.
pub const H2_PING_POINTS: u32 = 20;
/// Points for a PRIORITY or PRIORITY_UPDATE frame. A browser sends one for an image that comes into
/// view.
pub const H2_PRIORITY_POINTS: u32 = 10;
/// Points for a WINDOW_UPDATE by less than [`WINDOW_UPDATE_BYTES_LARGE`], and over HTTP/3 for a part of
/// a body that was cut short by the client's windows. A sufficiently large DATA frame pays for 2 such
/// updates ([`DATA_POINT_BYTES`]).
pub const WINDOW_UPDATE_POINTS: u32 = 5;
/// Bytes from which a WINDOW_UPDATE costs only 1 point. Go's client sends an update for the stream and
/// an update for the connection for each 4 KiB read by its program, so 8 updates for each DATA frame of
/// 16 KiB.
pub const WINDOW_UPDATE_BYTES_LARGE: u32 = 1_024;
/// Points for a DATA frame with less than [`SMALL_DATA_BYTES`] that doesn't end its stream: the frame
/// header is more work than the content.
pub const EMPTY_DATA_POINTS: u32 = 20;
/// Bytes below which a DATA frame counts as nearly empty. Interactive streams send short messages, so
/// the bound is low.
pub const SMALL_DATA_BYTES: usize = 8;
/// Bytes of a DATA frame that pay for one nearly empty frame, 4 KiB. An upload leaves remainders of a
/// few bytes wherever the client's buffers and the server's windows end, and a window is 64 KiB.
pub const LARGE_DATA_BYTES: usize = 4 * 1024;
/// Nearly empty DATA frames that large frames can pay for in advance. Large frames beyond the bound add
/// no credit.
pub const SMALL_DATA_CREDITS_MAX: u32 = 64;
/// Points for a frame of an unknown type, which a server must ignore.
pub const UNKNOWN_FRAME_POINTS: u32 = 20;
/// Points given back for each response that was sent completely.
pub const RESPONSE_POINTS: u32 = 20;
/// Points given back at most for a DATA frame sent by the server, or for a part of a body over HTTP/3,
/// in addition to the points by [`DATA_POINT_BYTES_LARGE`].
pub const DATA_POINTS: usize = 10;
/// Bytes of a sent DATA frame for which one additional point is given back: a frame of 16 KiB pays for
/// 42 updates by 1 KiB.
pub const DATA_POINT_BYTES_LARGE: usize = 512;
/// Bytes of a sent DATA frame for which one point is given back. A client that opens the windows of a
/// stream and of the connection in steps of 320 bytes may do so for ever. A client that opens windows
/// byte by byte costs the server a frame and a walk over all streams for each byte: 100 connections
/// with 100 streams each took two thirds of a processor.
pub const DATA_POINT_BYTES: usize = 32;

// Refusals

/// Counters of refused requests by rule, for each worker: room for all rules, in 1.5 KiB.
pub const REFUSAL_RULES_MAX: usize = 192;

// Responses of members

/// Largest head of a member's response, 32 KiB. Other servers allow 4 to 16 KiB.
pub const PROXY_HEAD_BYTES_MAX: usize = 32 * 1024 - 1;
/// Largest number of field lines in a member's response.
pub const PROXY_FIELDS_MAX: usize = 256;
/// Interim responses of a member to one request. A member that sends more is faulty.
pub const PROXY_INTERIM_RESPONSES_MAX: u32 = 32;
