//! What a request asks, the same view for every version of HTTP.
//!
//! A `Head` borrows the worker's read buffer and never crosses an await.

use super::body::BodyLength;
use super::fields::{Fields, Values};
use std::borrow::Cow;

/// A known method (RFC 9110 §9, RFC 5789); any other is refused with 501 while parsing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Method { Get, Head, Options, Post, Put, Delete, Patch, Trace, Connect }

/// The version that the peer spoke.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Version { Http10, Http11 }

/// One request's head, parsed.
#[derive(Debug)]
pub struct Head<'a> {
    pub method: Method,
    pub version: Version,
    /// The request line as it came, without its line end (for the log).
    pub line: &'a [u8],
    /// Host without port, as sent; empty only in HTTP/1.0 without Host.
    pub host: &'a [u8],
    /// The target's path as it was sent, still percent-encoded (for redirects); `*` for `OPTIONS *`.
    pub raw_path: &'a [u8],
    /// Decoded and normalised: begins with `/`, no empty, `.` or `..` component. `*` for `OPTIONS *`.
    pub path: Cow<'a, [u8]>,
    /// Without the `?`.
    pub query: Option<&'a [u8]>,
    pub asks: Asks<'a>,
    /// Every field line, in order.
    pub fields: Fields<'a>,
    /// May the connection stay open after this exchange (RFC 9112 §9.3)?
    pub keep_alive: bool,
    pub body: BodyLength,
    /// `Expect: 100-continue` was sent.
    pub expect_continue: bool,
}

/// The fields that stored pages look at, picked out while parsing.
#[derive(Default, Debug)]
pub struct Asks<'a> {
    pub accept_encoding: Values<'a>,
    pub if_none_match: Values<'a>,
    pub if_match: Values<'a>,
    pub if_modified_since: Option<&'a [u8]>,
    pub if_unmodified_since: Option<&'a [u8]>,
    pub if_range: Option<&'a [u8]>,
    /// None if absent or sent twice.
    pub range: Option<&'a [u8]>,
    pub authorization: Option<&'a [u8]>,
    /// For the log.
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
}
