//! One HTTP/1.1 response as it comes in, in pieces of any size (RFC 9112).
//!
//! It keeps nothing of the content but its length, and copies a head only if it came in pieces. What
//! two readers could take for two different things is [`Malformed`]: a load generator that is lenient
//! hides the faults it should find.

use memchr::memchr;

use super::plan::Method;

/// A response, or the part of it that has come.
#[derive(Debug)]
pub(super) struct Response {
    state: State,
    /// The part of a head whose end hasn't come.
    head: Vec<u8>,
    method: Method,
    /// Its status; of use when the head has come.
    pub status: u16,
    /// Bytes of its content so far.
    pub length: u64,
    /// Whether its content differs from what was expected.
    pub differs: bool,
    /// Whether the connection can serve another request.
    pub keep_alive: bool,
}

/// What is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of content.
    Content(u64),
    Chunked(Chunk),
    /// Content until the connection closes.
    UntilClose,
    Complete,
}

/// Where in a chunked body (RFC 9112 §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the size, of which these digits were read.
    Size { bytes: u64, digits: u8 },
    /// In what follows the size on its line.
    Extension { bytes: u64 },
    /// In the data, of which so many bytes are to come.
    Data { bytes: u64 },
    /// At the line end behind the data.
    DataEnd,
    /// In a line behind the last chunk, of which so many bytes were read.
    Trailer { bytes: usize },
}

/// What came isn't HTTP/1.1, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub &'static str);

/// What a head says of the message behind it.
#[derive(Debug, Default)]
struct Fields {
    content_length: Option<u64>,
    transfer_coding: bool,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Response {
    /// The response to a request of this method, of which nothing has come.
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

    /// Makes it the next response on the connection.
    pub(super) fn reset(&mut self) {
        self.state = State::Head;
        self.head.clear();
        self.status = 0;
        self.length = 0;
        self.differs = false;
        self.keep_alive = true;
    }

    /// Whether all of it has come.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether its head has come.
    pub(super) fn has_head(&self) -> bool {
        self.state != State::Head
    }

    /// Whether any of it has come.
    pub(super) fn has_begun(&self) -> bool {
        self.state != State::Head || !self.head.is_empty()
    }

    /// Takes what came, and tells how much of it belongs to this response. Content is compared with
    /// `expected`, if that is given.
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

    /// The server closed the connection; tells whether the response is whole now. `clean` is false if
    /// the end could be an attacker's (TLS without close_notify).
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
            Err(Malformed("a head without end"))
        } else {
            Ok(used)
        }
    }

    /// Takes a whole head and tells its length; `None` if it isn't whole.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some((line, mut at)) = line(bytes) else {
            let seen = bytes.len().min(STATUS_LINE.len());
            if bytes[..seen] != STATUS_LINE[..seen] {
                return Err(Malformed("no status line"));
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

    /// How the content is delimited (RFC 9112 §6.3).
    fn begin_content(&mut self, status: u16, minor: u8, fields: &Fields) -> Result<(), Malformed> {
        self.status = status;
        self.keep_alive = !fields.close && (minor > 0 || fields.keep_alive);
        if fields.transfer_coding && fields.content_length.is_some() {
            return Err(Malformed("both Transfer-Encoding and Content-Length"));
        }
        self.state = match status {
            101 => return Err(Malformed("a switch of protocols that nobody asked for")),
            // An interim response: the final one follows.
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
        let colon = memchr(b':', line).ok_or(Malformed("a field without a colon"))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
            return Err(Malformed("a field without a name"));
        }
        // By length first: most fields are of no interest.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= has_token(value, b"close");
                self.keep_alive |= has_token(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length =
                    parse_decimal(value).ok_or(Malformed("a Content-Length that is no number"))?;
                if self.content_length.is_some_and(|earlier| earlier != length) {
                    return Err(Malformed("two different Content-Lengths"));
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
            return Err(Malformed("a chunk without a size"));
        }
        (Chunk::Size { bytes, .. } | Chunk::Extension { bytes }, b'\n') if bytes > 0 => {
            Chunk::Data { bytes }
        }
        (Chunk::Size { .. } | Chunk::Extension { .. }, b'\n') => Chunk::Trailer { bytes: 0 },
        (Chunk::Size { bytes, .. }, b'\r' | b';' | b' ' | b'\t') => Chunk::Extension { bytes },
        (Chunk::Size { bytes, digits }, digit) => {
            let value = char::from(digit)
                .to_digit(16)
                .ok_or(Malformed("a chunk size that is no number"))?;
            if digits == CHUNK_DIGITS_MAX {
                return Err(Malformed("a chunk size beyond all bounds"));
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
        (Chunk::DataEnd, _) => return Err(Malformed("a chunk longer than its size")),
        (Chunk::Trailer { bytes: 0 }, b'\n') => return Ok(None),
        (Chunk::Trailer { bytes: 0 }, b'\r') => Chunk::Trailer { bytes: 0 },
        (Chunk::Trailer { .. }, b'\n') => Chunk::Trailer { bytes: 0 },
        (Chunk::Trailer { bytes }, _) if bytes < HEAD_BYTES_MAX => {
            Chunk::Trailer { bytes: bytes + 1 }
        }
        (Chunk::Trailer { .. }, _) => return Err(Malformed("a trailer without end")),
        (Chunk::Data { .. }, _) => return Err(Malformed("a chunk out of place")),
    }))
}

/// The first line without its end, and its length with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// `HTTP/1.x SSS …`: the status, and x.
fn parse_status_line(line: &[u8]) -> Result<(u16, u8), Malformed> {
    let rest = line
        .strip_prefix(STATUS_LINE)
        .ok_or(Malformed("no status line"))?;
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
        _ => Err(Malformed("no status")),
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

/// A head that is longer is none: the longest that servers send are cookies of 8 KiB.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Hexadecimal digits of a chunk size that fit into 60 bits.
const CHUNK_DIGITS_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, length, whether it differs, whether the connection goes on, bytes of something else.
    type Read = (u16, u64, bool, bool, usize);

    /// What must come out the same however the bytes are cut.
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
    fn bodies_of_every_kind_are_read_at_every_split() {
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
    fn what_is_not_http_is_refused() {
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
            Err(Malformed("a head without end"))
        );
    }

    #[test]
    fn content_that_was_cut_off_is_not_whole() {
        let mut response = Response::new(Method::Get);
        response
            .feed(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello", None)
            .expect("it is HTTP");
        assert!(!response.end(true));
        response.reset();
        response
            .feed(b"HTTP/1.1 200 OK\r\n\r\nhello", None)
            .expect("it is HTTP");
        assert!(!response.end(false));
        assert!(response.end(true));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, cut: usize) {
            let start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            for prefix in [&b""[..], &b"HTTP/1.1 200 OK\r\n"[..], &start[..]] {
                let all = [prefix, &bytes].concat();
                let at = cut % (all.len() + 1);
                let _ = read(&all, &[at], Method::Get);
            }
        }
    }
}
