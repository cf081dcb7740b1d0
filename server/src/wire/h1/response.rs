//! The head of a response that was sent to us, where we are the client (RFC 9112 §4), as strictly
//! read as requests are.

use crate::wire::byte_search;
use crate::wire::h1::body_decoder::BodyLength;

/// A response's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    /// Names in lower case, and values without the space around them.
    fields: Vec<(String, Vec<u8>)>,
}

impl ResponseHead {
    /// Reads the head that begins `bytes`, and how long it is; `Ok(None)` while its end hasn't come.
    /// How much to wait for is the caller's to bound.
    ///
    /// # Errors
    /// This is no response of HTTP/1.1.
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

    /// The first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(its, _)| its == name)?;
        Some(value)
    }

    /// The same, if it is ASCII.
    pub fn text(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(self.field(name)?).ok()?;
        text.is_ascii().then_some(text)
    }

    /// How long the body is; `Ok(None)` if it ends with the connection (RFC 9112 §6.3). What a HEAD
    /// asked for has none, which this can't know.
    ///
    /// # Errors
    /// The lengths contradict each other.
    pub fn body_length(&self) -> Result<Option<BodyLength>, MalformedResponse> {
        if matches!(self.status, 100..200 | 204 | 304) {
            return Ok(Some(BodyLength::None));
        }
        let all = |name: &str| {
            let of_name = self.fields.iter().filter(|(its, _)| its == name);
            of_name
                .map(|(_, value)| value.as_slice())
                .collect::<Vec<_>>()
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

/// This is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedResponse;

const VERSION: &[u8] = b"HTTP/1.";

/// `HTTP/1.1 200 OK`; the reason may be empty, and some leave its space out.
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
    fn a_head_at_every_split_point() {
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
    fn lengths() {
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
    fn what_is_no_response_is_refused() {
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
