//! What the field lines of a request say, noted one by one, and the head that comes of it: one
//! reading of every field, whichever version of HTTP brought it.

use crate::wire::byte_search;
use crate::wire::fields::{FieldValues, Fields, items};
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::request_head::{KnownFields, Method, RequestHead, Version};
use crate::wire::request_target::{RequestTarget, valid_host};

/// A request line, taken apart.
pub(super) struct RequestLine<'a> {
    /// Without its line end.
    pub(super) text: &'a [u8],
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) target: RequestTarget<'a>,
}

/// What the field lines have said so far.
#[derive(Default)]
pub(super) struct RequestHeadBuilder<'a> {
    asks: KnownFields<'a>,
    host: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    coding: TransferCoding,
    expectation: Expectation,
    close: bool,
    keep_alive: bool,
}

#[derive(Default, PartialEq)]
enum TransferCoding {
    #[default]
    Absent,
    /// `chunked` is the only coding.
    Chunked,
    /// Only codings that the server does not implement; no `chunked` so far.
    Unknown,
    /// Codings that the server does not implement, then `chunked`.
    UnknownChunked,
    /// Another coding follows `chunked`.
    BehindChunked,
}

#[derive(Default, PartialEq)]
enum Expectation {
    #[default]
    Absent,
    Continue,
    Other,
}

impl<'a> RequestHeadBuilder<'a> {
    /// Takes one field line.
    ///
    /// By length first: most names then meet at most two comparisons.
    #[inline]
    pub(super) fn add_field(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), Reject> {
        let asks = &mut self.asks;
        match name.len() {
            4 if byte_search::is_name(name, b"host") => {
                once(&mut self.host, value, Reject::HOST_DUPLICATE)?
            }
            5 if byte_search::is_name(name, b"range") => single(&mut asks.range, value),
            6 if byte_search::is_name(name, b"expect") => self.note_expect(value),
            6 if byte_search::is_name(name, b"cookie") => asks.cookie = true,
            7 if byte_search::is_name(name, b"referer") => first(&mut asks.referer, value),
            8 if byte_search::is_name(name, b"if-match") => {
                list(&mut asks.if_match, value, "if-match")
            }
            8 if byte_search::is_name(name, b"if-range") => single(&mut asks.if_range, value),
            10 if byte_search::is_name(name, b"connection") => self.note_connection(value),
            10 if byte_search::is_name(name, b"user-agent") => first(&mut asks.user_agent, value),
            13 if byte_search::is_name(name, b"if-none-match") => {
                list(&mut asks.if_none_match, value, "if-none-match");
            }
            13 if byte_search::is_name(name, b"authorization") => {
                once(
                    &mut asks.authorization,
                    value,
                    Reject::AUTHORIZATION_DUPLICATE,
                )?;
            }
            14 if byte_search::is_name(name, b"content-length") => {
                once(&mut self.length, value, Reject::LENGTH_DUPLICATE)?;
            }
            15 if byte_search::is_name(name, b"accept-encoding") => {
                list(&mut asks.accept_encoding, value, "accept-encoding");
            }
            17 if byte_search::is_name(name, b"if-modified-since") => {
                single(&mut asks.if_modified_since, value);
            }
            17 if byte_search::is_name(name, b"transfer-encoding") => self.note_coding(value),
            19 if byte_search::is_name(name, b"if-unmodified-since") => {
                single(&mut asks.if_unmodified_since, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in items(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Takes one line of Transfer-Encoding; all lines form one list (RFC 9110 §5.3). An empty list
    /// member and `chunked` with a parameter (RFC 9112 §7.1) count as unknown codings: request
    /// smuggling exploits parsers that disagree on such members.
    fn note_coding(&mut self, value: &[u8]) {
        use TransferCoding::*;
        for coding in value.split(|byte| *byte == b',') {
            let is_chunked = byte_search::trim(coding).eq_ignore_ascii_case(b"chunked");
            self.coding = match (&self.coding, is_chunked) {
                (Absent, true) => Chunked,
                (Unknown, true) => UnknownChunked,
                (Absent | Unknown, false) => Unknown,
                _ => BehindChunked,
            };
        }
    }

    fn note_expect(&mut self, value: &[u8]) {
        let is_first = self.expectation != Expectation::Other;
        self.expectation = if is_first && value.eq_ignore_ascii_case(b"100-continue") {
            Expectation::Continue
        } else {
            Expectation::Other
        };
    }

    /// Makes the head of the request line and all that was noted.
    pub(super) fn finish(
        mut self,
        line: RequestLine<'a>,
        fields: Fields<'a>,
    ) -> Result<RequestHead<'a>, Reject> {
        let host = self.host(&line)?;
        let body = self.body_length(line.version)?;
        if self.expectation == Expectation::Other {
            return Err(Reject::EXPECTATION_UNKNOWN);
        }
        let asks = &mut self.asks;
        for values in [
            &mut asks.accept_encoding,
            &mut asks.if_none_match,
            &mut asks.if_match,
        ] {
            if let FieldValues::Many(all, _) = values {
                *all = fields;
            }
        }
        asks.range = asks.range.filter(|value| !value.is_empty());
        let is_1_0 = line.version == Version::Http10;
        Ok(RequestHead {
            method: line.method,
            version: line.version,
            line: line.text,
            host,
            raw_path: line.target.raw_path,
            path: line.target.path,
            query: line.target.query,
            known_fields: self.asks,
            fields,
            keep_alive: !self.close && (!is_1_0 || self.keep_alive),
            body,
            expect_continue: !is_1_0 && self.expectation == Expectation::Continue,
        })
    }

    /// RFC 9112 §3.2: HTTP/1.1 must send one valid Host, even where the target's own host counts.
    fn host(&self, line: &RequestLine<'a>) -> Result<&'a [u8], Reject> {
        let sent = match self.host {
            Some(value) => valid_host(value).ok_or(Reject::HOST_MALFORMED)?.0,
            None if line.version == Version::Http10 => b"",
            None => return Err(Reject::HOST_MISSING),
        };
        let from_target = line.target.authority.and_then(valid_host);
        Ok(from_target.map_or(sent, |(name, _)| name))
    }

    /// Determines the length of the body by RFC 9112 §6.3, without the leniency that the RFC permits.
    /// If `chunked` is not the last coding or occurs twice, the length is unknown: the status is 400,
    /// and not the 501 of an unknown coding.
    fn body_length(&self, version: Version) -> Result<BodyLength, Reject> {
        match (&self.coding, self.length) {
            (TransferCoding::Absent, None) => Ok(BodyLength::None),
            (TransferCoding::Absent, Some(value)) => content_length(value).map(BodyLength::Length),
            (_, Some(_)) => Err(Reject::LENGTH_AND_CODING),
            _ if version == Version::Http10 => Err(Reject::CODING_IN_1_0),
            (TransferCoding::Chunked, None) => Ok(BodyLength::Chunked),
            (TransferCoding::UnknownChunked, None) => Err(Reject::CODING_UNKNOWN),
            _ => Err(Reject::CODING_NOT_CHUNKED),
        }
    }
}

/// Digits and nothing else, within a `u64`.
fn content_length(value: &[u8]) -> Result<u64, Reject> {
    let length = value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    length
        .filter(|_| !value.is_empty())
        .ok_or(Reject::LENGTH_MALFORMED)
}

/// A field that must not come twice.
fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8], twice: Reject) -> Result<(), Reject> {
    if slot.replace(value).is_some() {
        return Err(twice);
    }
    Ok(())
}

/// A field that means nothing if it comes twice: no field of this kind is valid with an empty value.
fn single<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) {
    *slot = Some(if slot.is_some() { b"" } else { value });
}

/// A field of which the first line counts.
fn first<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) {
    slot.get_or_insert(value);
}

/// A field whose lines are one list.
fn list<'a>(slot: &mut FieldValues<'a>, value: &'a [u8], name: &'static str) {
    *slot = match slot {
        FieldValues::None => FieldValues::One(value),
        // All the fields are put in when they are known.
        _ => FieldValues::Many(Fields(b""), name),
    };
}

/// The host that counts, with its port where the field Host has one: that field, unless the target
/// named another (RFC 9112 §3.2.2).
pub fn effective_host<'a>(fields: Fields<'a>, host: &'a [u8]) -> &'a [u8] {
    let is_same =
        |sent: &&[u8]| valid_host(sent).is_some_and(|(name, _)| name.eq_ignore_ascii_case(host));
    fields.first("host").filter(is_same).unwrap_or(host)
}
