//! Builder of a request head from its request line and field lines, shared by all versions of HTTP.

use crate::byte_search;
use crate::fields::{FieldValues, Fields, items};
use crate::framing_fields::{TransferCoding, content_length};
use crate::h1::body_decoder::BodyLength;
use crate::reject::Reject;
use crate::request_head::{KnownFields, Method, RequestHead, Version};
use crate::request_target::{RequestTarget, valid_host};
use crate::upgrade::{carries_requests, is_protocol};

/// Components of a request line.
pub(super) struct RequestLine<'a> {
    /// Text without the line end.
    pub(super) text: &'a [u8],
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) target: RequestTarget<'a>,
}

/// Field values collected from the field lines added so far.
#[derive(Default)]
pub(super) struct RequestHeadBuilder<'a> {
    known_fields: KnownFields<'a>,
    host: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    /// Value of Upgrade; empty for several lines.
    upgrade: Option<&'a [u8]>,
    coding: TransferCoding,
    expectation: Expectation,
    accepts_trailers: bool,
    close: bool,
    keep_alive: bool,
    /// True if Connection has the option `upgrade`.
    is_upgrade: bool,
}

#[derive(Default, PartialEq)]
enum Expectation {
    #[default]
    Absent,
    Continue,
    Other,
}

impl<'a> RequestHeadBuilder<'a> {
    /// Adds a field line.
    ///
    /// The length of the name is compared first, and most names then meet at most two comparisons.
    #[inline]
    pub(super) fn add_field(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), Reject> {
        let known = &mut self.known_fields;
        match name.len() {
            2 if byte_search::is_name(name, b"te") => self.add_te(value),
            2 if byte_search::is_name(name, b"if") => single(&mut known.webdav_if, value),
            4 if byte_search::is_name(name, b"host") => {
                once(&mut self.host, value, Reject::HOST_DUPLICATE)?
            }
            5 if byte_search::is_name(name, b"range") => single(&mut known.range, value),
            6 if byte_search::is_name(name, b"expect") => self.add_expect(value),
            6 if byte_search::is_name(name, b"cookie") => known.cookie = true,
            7 if byte_search::is_name(name, b"referer") => first(&mut known.referer, value),
            7 if byte_search::is_name(name, b"upgrade") => single(&mut self.upgrade, value),
            8 if byte_search::is_name(name, b"if-match") => {
                list(&mut known.if_match, value, "if-match")
            }
            8 if byte_search::is_name(name, b"if-range") => single(&mut known.if_range, value),
            10 if byte_search::is_name(name, b"connection") => self.add_connection(value),
            10 if byte_search::is_name(name, b"user-agent") => first(&mut known.user_agent, value),
            11 if byte_search::is_name(name, b"destination") => {
                single(&mut known.destination, value);
            }
            13 if byte_search::is_name(name, b"if-none-match") => {
                list(&mut known.if_none_match, value, "if-none-match");
            }
            13 if byte_search::is_name(name, b"authorization") => {
                once(
                    &mut known.authorization,
                    value,
                    Reject::AUTHORIZATION_DUPLICATE,
                )?;
            }
            14 if byte_search::is_name(name, b"content-length") => {
                once(&mut self.length, value, Reject::LENGTH_DUPLICATE)?;
            }
            15 if byte_search::is_name(name, b"accept-encoding") => {
                list(&mut known.accept_encoding, value, "accept-encoding");
            }
            17 if byte_search::is_name(name, b"if-modified-since") => {
                single(&mut known.if_modified_since, value);
            }
            17 if byte_search::is_name(name, b"transfer-encoding") => self.coding.add_line(value),
            19 if byte_search::is_name(name, b"if-unmodified-since") => {
                single(&mut known.if_unmodified_since, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in items(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.is_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn add_te(&mut self, value: &[u8]) {
        self.accepts_trailers |= items(value).any(|item| item.eq_ignore_ascii_case(b"trailers"));
    }

    fn add_expect(&mut self, value: &[u8]) {
        let is_first = self.expectation != Expectation::Other;
        self.expectation = if is_first && value.eq_ignore_ascii_case(b"100-continue") {
            Expectation::Continue
        } else {
            Expectation::Other
        };
    }

    /// Builds the head from the request line and the collected fields.
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
        let upgrade = self.upgrade.filter(|it| self.is_tunnel(&line, body, it));
        let known = &mut self.known_fields;
        for values in [
            &mut known.accept_encoding,
            &mut known.if_none_match,
            &mut known.if_match,
        ] {
            if let FieldValues::Many(all, _) = values {
                *all = fields;
            }
        }
        known.range = known.range.filter(|value| !value.is_empty());
        let is_1_0 = line.version == Version::Http10;
        Ok(RequestHead {
            method: line.method,
            version: line.version,
            line: line.text,
            host,
            authority: line.target.authority,
            raw_path: line.target.raw_path,
            path: line.target.path,
            query: line.target.query,
            known_fields: self.known_fields,
            fields,
            keep_alive: !self.close && (!is_1_0 || self.keep_alive),
            body,
            upgrade,
            accepts_trailers: self.accepts_trailers,
            expect_continue: !is_1_0 && self.expectation == Expectation::Continue,
        })
    }

    /// Returns the host of the request. HTTP/1.1 requires one valid Host, even if the host of the target
    /// takes precedence (RFC 9112 §3.2).
    fn host(&self, line: &RequestLine<'a>) -> Result<&'a [u8], Reject> {
        let sent = match self.host {
            Some(value) => valid_host(value).ok_or(Reject::HOST_MALFORMED)?.0,
            None if line.version == Version::Http10 => b"",
            None => return Err(Reject::HOST_MISSING),
        };
        let from_target = line.target.authority.and_then(valid_host);
        Ok(from_target.map_or(sent, |(name, _)| name))
    }

    /// Returns true if the request asks for a tunnel of `protocol`. Upgrade is ignored in HTTP/1.0 (RFC
    /// 9110 §7.8), and with a body, which would have to be read before the tunnel.
    #[cold]
    fn is_tunnel(&self, line: &RequestLine<'_>, body: BodyLength, protocol: &[u8]) -> bool {
        self.is_upgrade
            && (line.version, line.method) == (Version::Http11, Method::Get)
            && matches!(body, BodyLength::None | BodyLength::Length(0))
            && is_protocol(protocol)
            && !carries_requests(protocol)
    }

    /// Determines the length of the body by RFC 9112 §6.3, without the leniency that the RFC permits. If
    /// `chunked` is not the last coding or occurs twice, the length is unknown: the status is 400, and not
    /// the 501 of an unknown coding.
    fn body_length(&self, version: Version) -> Result<BodyLength, Reject> {
        match (&self.coding, self.length) {
            (TransferCoding::Absent, None) => Ok(BodyLength::None),
            (TransferCoding::Absent, Some(value)) => {
                let length = content_length(value).ok_or(Reject::LENGTH_MALFORMED)?;
                Ok(BodyLength::Length(length))
            }
            (_, Some(_)) => Err(Reject::LENGTH_AND_CODING),
            _ if version == Version::Http10 => Err(Reject::CODING_IN_1_0),
            (TransferCoding::Chunked, None) => Ok(BodyLength::Chunked),
            (TransferCoding::UnknownChunked, None) => Err(Reject::CODING_UNKNOWN),
            _ => Err(Reject::CODING_NOT_CHUNKED),
        }
    }
}

/// Stores a field that may occur once.
fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8], twice: Reject) -> Result<(), Reject> {
    if slot.replace(value).is_some() {
        return Err(twice);
    }
    Ok(())
}

/// Stores a field that is ignored if repeated: a second line sets the value empty, which is invalid for
/// each of these fields.
fn single<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) {
    *slot = Some(if slot.is_some() { b"" } else { value });
}

/// Stores a field of which the first line counts.
fn first<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) {
    slot.get_or_insert(value);
}

/// Stores a field with lines that form one list.
fn list<'a>(slot: &mut FieldValues<'a>, value: &'a [u8], name: &'static str) {
    *slot = match slot {
        FieldValues::None => FieldValues::One(value),
        // `finish` replaces the empty fields with all fields.
        _ => FieldValues::Many(Fields(b""), name),
    };
}

/// Returns the effective host with its port: the authority of a target in the absolute form, which replaces
/// the value of Host (RFC 9112 §3.2.2), otherwise the value of Host.
pub fn effective_host<'a>(head: &RequestHead<'a>) -> &'a [u8] {
    let field = || head.fields.first("host").unwrap_or(head.host);
    head.authority.unwrap_or_else(field)
}
