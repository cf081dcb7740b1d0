//! Response head for the server's own requests (RFC 9112 §4), parsed as strictly as request heads.

use crate::wire::byte_search;
use crate::wire::h1::body_decoder::BodyLength;

/// Head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Fields with lower-case names and trimmed values.
    fields: Vec<(String, Vec<u8>)>,
}

impl ResponseHead {
    /// Parses the head at the start of `bytes` and returns the head and its length; `Ok(None)` for an
    /// incomplete head. The caller limits the length.
    ///
    /// # Errors
    /// The bytes are no HTTP/1.1 response.
    pub fn parse(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, MalformedResponse> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            let begins = bytes.iter().zip(VERSION).all(|(is, should)| is == should);
            return if begins {
                Ok(None)
            } else {
                Err(MalformedResponse)
            };
        };
        let mut lines = bytes[..end + 2].split_inclusive(|byte| *byte == b'\n');
        let status = lines.next().and_then(status).ok_or(MalformedResponse)?;
        let fields = lines
            .map(|line| field(line).ok_or(MalformedResponse))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Some((ResponseHead { status, fields }, end + 4)))
    }

    /// Returns the value of the first field with this lower-case name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// Returns the value of the first field with this lower-case name, if the value is ASCII.
    pub fn text(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(self.field(name)?).ok()?;
        text.is_ascii().then_some(text)
    }

    /// Returns the length of the body; `Ok(None)` if the body ends with the connection (RFC 9112 §6.3). The
    /// response to HEAD has no body regardless of the result.
    ///
    /// # Errors
    /// The lengths contradict each other.
    pub fn body_length(&self) -> Result<Option<BodyLength>, MalformedResponse> {
        if matches!(self.status, 100..200 | 204 | 304) {
            return Ok(Some(BodyLength::None));
        }
        let all = |name: &str| {
            let lines = self.fields.iter().filter(|(known, _)| known == name);
            lines.map(|(_, value)| value.as_slice()).collect::<Vec<_>>()
        };
        match (&*all("transfer-encoding"), &*all("content-length")) {
            ([], []) => Ok(None),
            ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Some(BodyLength::Chunked))
            }
            ([], [length]) if length.iter().all(u8::is_ascii_digit) => {
                let length = std::str::from_utf8(length).map_err(|_| MalformedResponse)?;
                let length = length.parse().map_err(|_| MalformedResponse)?;
                Ok(Some(BodyLength::Length(length)))
            }
            _ => Err(MalformedResponse),
        }
    }
}

/// Malformed HTTP/1.1 response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedResponse;

const VERSION: &[u8] = b"HTTP/1.";

/// Parses `HTTP/1.1 200 OK`. The reason may be empty, and some servers omit the space before an empty
/// reason.
fn status(line: &[u8]) -> Option<u16> {
    let line = line.strip_suffix(b"\r\n")?;
    let [b'0' | b'1', b' ', a, b, c, rest @ ..] = line.strip_prefix(VERSION)? else {
        return None;
    };
    let digits = [*a, *b, *c];
    let ends = matches!(rest, [] | [b' ', ..]);
    if !ends || !digits.iter().all(u8::is_ascii_digit) || *a == b'0' {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |status, digit| status * 10 + u16::from(digit - b'0')),
    )
}

fn field(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let line = line.strip_suffix(b"\r\n")?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let value = value.trim_ascii();
    if name.is_empty()
        || !name.iter().all(|byte| byte_search::is_token(*byte))
        || byte_search::value_end(value, 0) != value.len()
    {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    Some((name.to_ascii_lowercase(), value.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] =
        b"HTTP/1.1 201 Created\r\nLocation: https://a.test/1 \r\nReplay-Nonce:abc\r\n\
        Content-Length: 2\r\n\r\n{}";

    #[test]
    fn a_head_is_parsed_at_every_split_point() {
        for end in 0..GOOD.len() - 2 {
            assert_eq!(ResponseHead::parse(&GOOD[..end]), Ok(None), "{end}");
        }
        let Ok(Some((head, length))) = ResponseHead::parse(GOOD) else {
            panic!("refused");
        };
        assert_eq!((head.status, &GOOD[length..]), (201, &b"{}"[..]));
        assert_eq!(head.text("location"), Some("https://a.test/1"));
        assert_eq!(head.text("replay-nonce"), Some("abc"));
        assert_eq!(head.text("missing"), None);
        assert_eq!(head.body_length(), Ok(Some(BodyLength::Length(2))));
    }

    #[test]
    fn body_lengths_are_determined() {
        let length = |status: &str, fields: &str| {
            let text = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            let parsed = ResponseHead::parse(text.as_bytes());
            let Ok(Some((head, _))) = parsed else {
                panic!("{text}");
            };
            head.body_length()
        };
        let chunked = "Transfer-Encoding: Chunked\r\n";
        assert_eq!(length("200 OK", chunked), Ok(Some(BodyLength::Chunked)));
        assert_eq!(length("200", ""), Ok(None));
        assert_eq!(length("204 ", chunked), Ok(Some(BodyLength::None)));
        for fields in [
            "Transfer-Encoding: gzip, chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
        ] {
            assert_eq!(length("200 OK", fields), Err(MalformedResponse), "{fields}");
        }
    }

    #[test]
    fn malformed_responses_are_refused() {
        for text in [
            "SSH-2.0-x",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200OK\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\nB: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        ] {
            assert_eq!(
                ResponseHead::parse(text.as_bytes()),
                Err(MalformedResponse),
                "{text:?}"
            );
        }
    }
}
