//! Incremental parser of one HTTP/1.1 response, in pieces of any size (RFC 9112).
//!
//! The parser keeps only the length of the content, and copies a header section only if the section arrives
//! in several pieces. Ambiguous input is rejected as [`Malformed`]: a lenient load generator would hide the
//! faults of a server.

use memchr::memchr;

use super::workload::Method;

/// A response, complete or in part.
#[derive(Debug)]
pub(super) struct Response {
    state: State,
    /// Incomplete header section.
    head: Vec<u8>,
    method: Method,
    /// Status of the response, valid once the header section is complete.
    pub status: u16,
    /// Bytes of content received.
    pub length: u64,
    /// Whether the content differs from the expected content.
    pub differs: bool,
    /// Whether the connection can be reused.
    pub keep_alive: bool,
}

/// Parser state: the next expected element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// Content with the given number of bytes left.
    Content(u64),
    Chunked(Chunk),
    /// Content until the connection closes.
    UntilClose,
    Complete,
}

/// Position in a chunked body (RFC 9112 §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the chunk size, after the given number of digits.
    Size { bytes: u64, digits: u8 },
    /// In the chunk extension, after the size.
    Extension { bytes: u64 },
    /// In the chunk data, with `bytes` left.
    Data { bytes: u64 },
    /// At the line end after the chunk data.
    DataEnd,
    /// In a line after the last chunk, after `bytes` bytes.
    Trailer { bytes: usize },
}

/// Syntax error of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub &'static str);

/// Framing fields of a header section.
#[derive(Debug, Default)]
struct Fields {
    content_length: Option<u64>,
    transfer_coding: bool,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Response {
    /// Creates an empty response to a request with the given method.
    pub(super) fn new(method: Method) -> Response {
        Response {
            state: State::Head,
            head: Vec::new(),
            method,
            status: 0,
            length: 0,
            differs: false,
            keep_alive: true,
        }
    }

    /// Resets the parser for the next response on the connection.
    pub(super) fn reset(&mut self) {
        self.state = State::Head;
        self.head.clear();
        self.status = 0;
        self.length = 0;
        self.differs = false;
        self.keep_alive = true;
    }

    /// Returns true if the response is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Returns true if the header section is complete.
    pub(super) fn has_head(&self) -> bool {
        self.state != State::Head
    }

    /// Returns true if any byte of the response was received.
    pub(super) fn has_begun(&self) -> bool {
        self.state != State::Head || !self.head.is_empty()
    }

    /// Parses `bytes` and returns the number of bytes that belong to the response. Content is compared with
    /// `expected`, if given.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<usize, Malformed> {
        let mut used = 0;
        while used < bytes.len() && self.state != State::Complete {
            let rest = &bytes[used..];
            used += match self.state {
                State::Head => self.feed_head(rest)?,
                State::Content(left) => {
                    let piece = take(rest, left);
                    self.content(piece, expected);
                    self.state = content_or_complete(left - piece.len() as u64);
                    piece.len()
                }
                State::UntilClose => {
                    self.content(rest, expected);
                    rest.len()
                }
                State::Chunked(chunk) => self.feed_chunk(chunk, rest, expected)?,
                State::Complete => 0,
            };
        }
        Ok(used)
    }

    /// Handles the end of the connection and returns true if the response is complete. `clean` is false for
    /// TLS without close_notify, where the end may be a truncation by an attacker.
    pub(super) fn end(&mut self, clean: bool) -> bool {
        if self.state == State::UntilClose && clean {
            self.state = State::Complete;
        }
        self.is_complete()
    }

    fn content(&mut self, piece: &[u8], expected: Option<&[u8]>) {
        if let Some(expected) = expected {
            let from = usize::try_from(self.length).unwrap_or(usize::MAX);
            let to = from.saturating_add(piece.len());
            self.differs |= expected.get(from..to) != Some(piece);
        }
        self.length += piece.len() as u64;
    }

    fn feed_head(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        if self.head.is_empty() {
            if let Some(length) = self.parse_head(bytes)? {
                return Ok(length);
            }
            self.head.extend_from_slice(bytes);
            return self.within_bounds(bytes.len());
        }
        let earlier = self.head.len();
        self.head.extend_from_slice(bytes);
        let head = std::mem::take(&mut self.head);
        let parsed = self.parse_head(&head);
        self.head = head;
        match parsed? {
            Some(length) => {
                self.head.clear();
                Ok(length - earlier)
            }
            None => self.within_bounds(bytes.len()),
        }
    }

    fn within_bounds(&self, used: usize) -> Result<usize, Malformed> {
        if self.head.len() > HEAD_BYTES_MAX {
            Err(Malformed("header section too long"))
        } else {
            Ok(used)
        }
    }

    /// Parses a complete header section and returns its length, or `None` if the section is incomplete.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some((line, mut at)) = line(bytes) else {
            let seen = bytes.len().min(STATUS_LINE.len());
            if bytes[..seen] != STATUS_LINE[..seen] {
                return Err(Malformed("invalid status line"));
            }
            return Ok(None);
        };
        let (status, minor) = parse_status_line(line)?;
        let mut fields = Fields::default();
        loop {
            let Some((line, length)) = self::line(&bytes[at..]) else {
                return Ok(None);
            };
            at += length;
            if line.is_empty() {
                break;
            }
            fields.take(line)?;
        }
        self.begin_content(status, minor, &fields)?;
        Ok(Some(at))
    }

    /// Determines the delimiter of the content (RFC 9112 §6.3).
    fn begin_content(&mut self, status: u16, minor: u8, fields: &Fields) -> Result<(), Malformed> {
        self.status = status;
        self.keep_alive = !fields.close && (minor > 0 || fields.keep_alive);
        if fields.transfer_coding && fields.content_length.is_some() {
            return Err(Malformed("both Transfer-Encoding and Content-Length"));
        }
        self.state = match status {
            101 => {
                return Err(Malformed(
                    "101 Switching Protocols without an Upgrade request",
                ));
            }
            // An interim response. The final response follows.
            100..=199 => State::Head,
            204 | 304 => State::Complete,
            _ if self.method == Method::Head => State::Complete,
            _ if fields.chunked => State::Chunked(Chunk::Size {
                bytes: 0,
                digits: 0,
            }),
            _ => match fields.content_length {
                Some(length) => content_or_complete(length),
                None => {
                    self.keep_alive = false;
                    State::UntilClose
                }
            },
        };
        Ok(())
    }

    fn feed_chunk(
        &mut self,
        chunk: Chunk,
        bytes: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<usize, Malformed> {
        if let Chunk::Data { bytes: left } = chunk {
            let piece = take(bytes, left);
            self.content(piece, expected);
            let left = left - piece.len() as u64;
            self.state = State::Chunked(if left == 0 {
                Chunk::DataEnd
            } else {
                Chunk::Data { bytes: left }
            });
            return Ok(piece.len());
        }
        self.state = match chunk_byte(chunk, bytes[0])? {
            Some(chunk) => State::Chunked(chunk),
            None => State::Complete,
        };
        Ok(1)
    }
}

impl Fields {
    fn take(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let colon = memchr(b':', line).ok_or(Malformed("field line without a colon"))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
            return Err(Malformed("invalid field name"));
        }
        // Compared by length first, since most fields are ignored.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= has_token(value, b"close");
                self.keep_alive |= has_token(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_decimal(value).ok_or(Malformed("invalid Content-Length"))?;
                if self.content_length.is_some_and(|earlier| earlier != length) {
                    return Err(Malformed("conflicting Content-Length fields"));
                }
                self.content_length = Some(length);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_coding = true;
                let last = value
                    .rsplit(|&byte| byte == b',')
                    .next()
                    .unwrap_or_default();
                self.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
        Ok(())
    }
}

fn chunk_byte(chunk: Chunk, byte: u8) -> Result<Option<Chunk>, Malformed> {
    Ok(Some(match (chunk, byte) {
        (Chunk::Size { digits: 0, .. }, b'\r' | b'\n' | b';') => {
            return Err(Malformed("chunk without a size"));
        }
        (Chunk::Size { bytes, .. } | Chunk::Extension { bytes }, b'\n') if bytes > 0 => {
            Chunk::Data { bytes }
        }
        (Chunk::Size { .. } | Chunk::Extension { .. }, b'\n') => Chunk::Trailer { bytes: 0 },
        (Chunk::Size { bytes, .. }, b'\r' | b';' | b' ' | b'\t') => Chunk::Extension { bytes },
        (Chunk::Size { bytes, digits }, digit) => {
            let value = char::from(digit)
                .to_digit(16)
                .ok_or(Malformed("invalid chunk size"))?;
            if digits == CHUNK_DIGITS_MAX {
                return Err(Malformed("chunk size too large"));
            }
            Chunk::Size {
                bytes: bytes << 4 | u64::from(value),
                digits: digits + 1,
            }
        }
        (Chunk::Extension { bytes }, _) => Chunk::Extension { bytes },
        (Chunk::DataEnd, b'\r') => Chunk::DataEnd,
        (Chunk::DataEnd, b'\n') => Chunk::Size {
            bytes: 0,
            digits: 0,
        },
        (Chunk::DataEnd, _) => return Err(Malformed("no line end after the chunk data")),
        (Chunk::Trailer { bytes: 0 }, b'\n') => return Ok(None),
        (Chunk::Trailer { bytes: 0 }, b'\r') => Chunk::Trailer { bytes: 0 },
        (Chunk::Trailer { .. }, b'\n') => Chunk::Trailer { bytes: 0 },
        (Chunk::Trailer { bytes }, _) if bytes < HEAD_BYTES_MAX => {
            Chunk::Trailer { bytes: bytes + 1 }
        }
        (Chunk::Trailer { .. }, _) => return Err(Malformed("trailer line too long")),
        (Chunk::Data { .. }, _) => return Err(Malformed("unexpected chunk data")),
    }))
}

/// Returns the first line without its line ending, and the length with the line ending.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// Parses `HTTP/1.x SSS …` into the status and the minor version.
fn parse_status_line(line: &[u8]) -> Result<(u16, u8), Malformed> {
    let rest = line
        .strip_prefix(STATUS_LINE)
        .ok_or(Malformed("invalid status line"))?;
    match rest {
        [
            minor @ b'0'..=b'9',
            b' ',
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            end @ ..,
        ] if matches!(end.first(), None | Some(b' ')) => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok((digit(a) * 100 + digit(b) * 10 + digit(c), minor - b'0'))
        }
        _ => Err(Malformed("invalid status code")),
    }
}

fn parse_decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    value.iter().try_fold(0u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn take(bytes: &[u8], at_most: u64) -> &[u8] {
    &bytes[..bytes
        .len()
        .min(usize::try_from(at_most).unwrap_or(usize::MAX))]
}

fn content_or_complete(left: u64) -> State {
    if left == 0 {
        State::Complete
    } else {
        State::Content(left)
    }
}

const STATUS_LINE: &[u8] = b"HTTP/1.";

/// Maximum length of a header section. The longest that servers send in practice are cookies of 8 KiB.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of hexadecimal digits of a chunk size, 60 bits.
const CHUNK_DIGITS_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, length, differing content, reusable connection, number of excess bytes.
    type Read = (u16, u64, bool, bool, usize);

    /// Parses a response in pieces. The result must not depend on the cuts.
    fn read(bytes: &[u8], pieces: &[usize], method: Method) -> Result<Read, Malformed> {
        let mut response = Response::new(method);
        let (mut at, mut used) = (0, 0);
        for cut in pieces.iter().copied().chain([bytes.len()]) {
            let piece = &bytes[at..cut];
            if !response.is_complete() {
                used += response.feed(piece, Some(b"hello world"))?;
            }
            at = cut;
        }
        response.end(true);
        Ok((
            response.status,
            response.length,
            response.differs,
            response.keep_alive && response.is_complete(),
            bytes.len() - used,
        ))
    }

    fn at_every_split(bytes: &[u8], method: Method) -> Result<Read, Malformed> {
        let whole = read(bytes, &[], method);
        for first in 0..=bytes.len() {
            assert_eq!(read(bytes, &[first], method), whole, "cut at {first}");
        }
        let single: Vec<usize> = (0..bytes.len()).collect();
        assert_eq!(read(bytes, &single, method), whole, "byte by byte");
        whole
    }

    #[test]
    fn all_body_framings_are_parsed_at_every_split() {
        let cases: [(&[u8], Read); 8] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world", (200, 11, false, true, 0)),
            (b"HTTP/1.1 200 OK\r\ncontent-LENGTH:11\r\nConnection: x, Close\r\n\r\nhello world", (200, 11, false, false, 0)),
            (b"HTTP/1.1 404\r\nContent-Length: 3\r\n\r\nno!", (404, 3, true, true, 0)),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", (200, 0, false, true, 0)),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6;a=b\r\nhello \r\n5\r\nworld\r\n0\r\nA: b\r\n\r\n", (200, 11, false, true, 0)),
            (b"HTTP/1.1 200 OK\r\n\r\nhello world", (200, 11, false, false, 0)),
            (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", (204, 0, false, true, 0)),
            (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nheHTTP", (200, 2, false, true, 4)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(
                at_every_split(bytes, Method::Get),
                Ok(expected),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
        let head: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n";
        assert_eq!(
            at_every_split(head, Method::Head),
            Ok((200, 0, false, true, 0))
        );
    }

    #[test]
    fn malformed_responses_are_rejected() {
        let cases: [&[u8]; 13] = [
            b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
            b"HTTP/2.0 200 OK\r\n\r\n",
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        ];
        for bytes in cases {
            assert!(
                at_every_split(bytes, Method::Get).is_err(),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
        let endless = [
            b"HTTP/1.1 200 OK\r\n".as_slice(),
            &[b'a'; 2 * HEAD_BYTES_MAX],
        ]
        .concat();
        assert_eq!(
            read(&endless, &[], Method::Get),
            Err(Malformed("header section too long"))
        );
    }

    #[test]
    fn truncated_content_is_incomplete() {
        let mut response = Response::new(Method::Get);
        response
            .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello", None)
            .expect("a well-formed response");
        assert!(!response.end(true));
        response.reset();
        response
            .feed(b"HTTP/1.1 200 OK\r\n\r\nhello", None)
            .expect("a well-formed response");
        assert!(!response.end(false));
        assert!(response.end(true));
    }

    proptest::proptest! {
        #[test]
        fn no_input_makes_the_parser_panic(bytes: Vec<u8>, cut: usize) {
            let start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            for prefix in [&b""[..], &b"HTTP/1.1 200 OK\r\n"[..], &start[..]] {
                let all = [prefix, &bytes].concat();
                let at = cut % (all.len() + 1);
                let _ = read(&all, &[at], Method::Get);
            }
        }
    }
}
