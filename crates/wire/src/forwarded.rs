//! Hops of a request by Forwarded (RFC 7239) or by X-Forwarded-For, -Proto and -Host.
//!
//! Each proxy appends its client to the list, so the list is read from the right: a client controls only the
//! left part. Even the members are split from the right, because an open quotation mark sent by the client
//! would otherwise hide the members appended by proxies. The first malformed member ends the list.

mod writer;

pub use crate::forwarded::writer::{ForwardedLists, OwnHop};

use crate::byte_search;
use crate::fields::Fields;
use crate::ip_endpoint::IpOctets;
use crate::request_target::valid_host;

/// Hop of a request: one connection from a client or proxy to the next proxy.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hop<'a> {
    /// Opener of the connection.
    pub node: HopNode<'a>,
    /// Scheme of the request on the connection, `http`, `https`, `ws` or `wss`, as sent.
    pub proto: Option<&'a [u8]>,
    /// Valid Host field of the request on the connection, with its port.
    pub host: Option<&'a [u8]>,
}

/// Identifier of a client or proxy (RFC 7239 §6).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HopNode<'a> {
    /// IP address, and the port if known.
    Address(IpOctets, Option<u16>),
    /// Hidden identifier, which begins with `_`, without its port.
    Obfuscated(&'a [u8]),
    /// `unknown`, or no identifier at all.
    Unknown,
}

/// Hops of a request, from the last to the first.
#[derive(Clone, Debug)]
pub struct Hops<'a> {
    nodes: ListFromRight<'a>,
    /// Lists that accompany X-Forwarded-For; `None` for Forwarded.
    companions: Option<[Companion<'a>; 2]>,
    /// Well-formed members visited so far.
    valid: ValidSuffix<'a>,
}

/// List of X-Forwarded-Proto or X-Forwarded-Host beside X-Forwarded-For.
#[derive(Clone, Debug)]
struct Companion<'a> {
    list: ListFromRight<'a>,
    /// Member for the current hop.
    member: Option<&'a [u8]>,
}

/// Well-formed members at the end of a list.
#[derive(Copy, Clone, Debug, Default)]
struct ValidSuffix<'a> {
    /// Members of the first line.
    first: &'a [u8],
    /// Lines behind the first line.
    rest: Fields<'a>,
}

impl<'a> Hops<'a> {
    /// Returns the hops by Forwarded.
    pub fn by_forwarded(fields: Fields<'a>) -> Hops<'a> {
        Hops {
            nodes: ListFromRight::new(fields, FORWARDED, true),
            companions: None,
            valid: ValidSuffix::default(),
        }
    }

    /// Returns the hops by X-Forwarded-For. The member of X-Forwarded-Proto and of X-Forwarded-Host for a hop
    /// has the same place from the right; the first member of a shorter list holds for all earlier hops, since
    /// many proxies replace these fields by a single value.
    pub fn by_x_forwarded(fields: Fields<'a>) -> Hops<'a> {
        let companion = |name| Companion {
            list: ListFromRight::new(fields, name, false),
            member: None,
        };
        Hops {
            nodes: ListFromRight::new(fields, X_FORWARDED_FOR, false),
            companions: Some([companion(X_FORWARDED_PROTO), companion(X_FORWARDED_HOST)]),
            valid: ValidSuffix::default(),
        }
    }

    /// Returns the scheme and the host of X-Forwarded-Proto and X-Forwarded-Host without a list of hops: those of
    /// the request to the proxy that wrote the fields.
    pub fn scheme_and_host(fields: Fields<'a>) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let last = |name| ListFromRight::new(fields, name, false).next();
        let [proto, host] = [X_FORWARDED_PROTO, X_FORWARDED_HOST].map(last);
        let proto = proto.map(|member| member.text);
        let host = host.map(|member| member.text);
        (
            proto.filter(|proto| is_scheme(proto)),
            host.filter(|host| valid_host(host).is_some()),
        )
    }

    /// Appends the well-formed members at the end of the list, joined by commas, in their order; returns
    /// false for none. A malformed member and the members before it are left out, so that the next recipient
    /// reads the list like this server.
    pub fn push_valid(mut self, out: &mut Vec<u8>) -> bool {
        let name = self.nodes.name;
        while self.next().is_some() {}
        let ValidSuffix { first, rest } = self.valid;
        let mut is_empty = true;
        for line in std::iter::once(first).chain(rest.all(name)) {
            let line = trim_list(line);
            if !line.is_empty() {
                if !is_empty {
                    out.extend_from_slice(b", ");
                }
                out.extend_from_slice(line);
                is_empty = false;
            }
        }
        !is_empty
    }
}

impl<'a> Iterator for Hops<'a> {
    type Item = Hop<'a>;

    fn next(&mut self) -> Option<Hop<'a>> {
        let member = self.nodes.next()?;
        let hop = match &mut self.companions {
            None => forwarded_element(member.text),
            Some([proto, host]) => x_forwarded_node(member.text).map(|node| Hop {
                node,
                proto: proto.next().filter(|proto| is_scheme(proto)),
                host: host.next().filter(|host| valid_host(host).is_some()),
            }),
        };
        match hop {
            Some(_) => self.valid = member.suffix,
            None => self.nodes.end(),
        }
        hop
    }
}

impl<'a> Companion<'a> {
    /// Advances to the next hop and returns its member.
    fn next(&mut self) -> Option<&'a [u8]> {
        let next = self.list.next().map(|member| member.text);
        self.member = next.or(self.member);
        self.member
    }
}

const FORWARDED: &str = "forwarded";
const X_FORWARDED_FOR: &str = "x-forwarded-for";
const X_FORWARDED_PROTO: &str = "x-forwarded-proto";
const X_FORWARDED_HOST: &str = "x-forwarded-host";

/// Members of a list from the last to the first; all lines of the field form one list. Empty members are
/// skipped (RFC 9110 §5.6.1.2).
#[derive(Clone, Debug)]
struct ListFromRight<'a> {
    all: &'a [u8],
    /// End of the lines that were not visited yet.
    end: usize,
    name: &'static str,
    /// Members may contain quoted strings.
    has_quotes: bool,
    /// Value of the current line.
    line: &'a [u8],
    /// End of the members of the current line that were not visited yet.
    line_end: usize,
    /// Lines behind the current line.
    rest: Fields<'a>,
}

/// Member of a list.
struct Member<'a> {
    text: &'a [u8],
    /// The member and all members behind it.
    suffix: ValidSuffix<'a>,
}

impl<'a> ListFromRight<'a> {
    fn new(fields: Fields<'a>, name: &'static str, has_quotes: bool) -> ListFromRight<'a> {
        ListFromRight {
            all: fields.0,
            end: fields.0.len(),
            name,
            has_quotes,
            line: b"",
            line_end: 0,
            rest: Fields(b""),
        }
    }

    /// Ends the list before the members that were not visited yet.
    fn end(&mut self) {
        (self.end, self.line_end) = (0, 0);
    }

    /// Moves to the previous line of the field; returns false at the start of the fields.
    fn previous_line(&mut self) -> bool {
        while self.end > 0 {
            let end = self.end;
            let start = byte_search::rfind(self.all, b'\n', end - 1).map_or(0, |at| at + 1);
            self.end = start;
            let (name, value) = match self.all[start..end].split_at_checked(self.name.len()) {
                Some((name, [b':', value @ ..])) => (name, value),
                _ => continue,
            };
            if name.eq_ignore_ascii_case(self.name.as_bytes()) {
                self.line = value.trim_ascii();
                self.line_end = self.line.len();
                self.rest = Fields(&self.all[end..]);
                return true;
            }
        }
        false
    }

    fn next(&mut self) -> Option<Member<'a>> {
        loop {
            if self.line_end == 0 && !self.previous_line() {
                return None;
            }
            let start = member_start(&self.line[..self.line_end], self.has_quotes);
            let text = byte_search::trim(&self.line[start..self.line_end]);
            // The comma before the member.
            self.line_end = start.saturating_sub(1);
            if !text.is_empty() {
                let suffix = ValidSuffix {
                    first: &self.line[start..],
                    rest: self.rest,
                };
                return Some(Member { text, suffix });
            }
        }
    }
}

/// Returns the start of the last member: behind the last comma outside of quoted strings.
fn member_start(list: &[u8], has_quotes: bool) -> usize {
    let mut at = list.len();
    while at > 0 {
        at -= 1;
        match list[at] {
            b',' => return at + 1,
            b'"' if has_quotes => at = quote_start(&list[..at]),
            _ => {}
        }
    }
    0
}

/// Returns the position of the quotation mark that opens a string with this text before its end; 0 if there
/// is none. A quotation mark behind an odd number of backslashes is part of the text.
fn quote_start(text: &[u8]) -> usize {
    let mut end = text.len();
    while let Some(at) = text[..end].iter().rposition(|byte| *byte == b'"') {
        let before = &text[..at];
        let escapes = before
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        if escapes % 2 == 0 {
            return at;
        }
        end = at;
    }
    0
}

/// Removes commas and whitespace at both ends.
fn trim_list(mut list: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b',', rest @ ..] | [rest @ .., b' ' | b'\t' | b','] = list {
        list = rest;
    }
    list
}

/// Parses a member of Forwarded: pairs of a name and a value, each name once. Whitespace is accepted around
/// semicolons, as written by some proxies. Returns `None` for a malformed member.
fn forwarded_element(mut text: &[u8]) -> Option<Hop<'_>> {
    let (mut node, mut proto, mut host, mut by) = (None, None, None, None);
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix(b";") {
            text = byte_search::trim(rest);
            continue;
        }
        let (name, value, rest) = forwarded_pair(text)?;
        text = rest;
        let slot = match name.len() {
            3 if byte_search::is_name(name, b"for") => &mut node,
            5 if byte_search::is_name(name, b"proto") => &mut proto,
            4 if byte_search::is_name(name, b"host") => &mut host,
            2 if byte_search::is_name(name, b"by") => &mut by,
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return None;
        }
    }
    let is_valid = proto.is_none_or(is_scheme) && host.is_none_or(|it| valid_host(it).is_some());
    let node = match node {
        Some(node) => forwarded_node(node)?,
        None => HopNode::Unknown,
    };
    is_valid.then_some(Hop { node, proto, host })
}

/// Splits the first pair off: name, value without quotation marks, and the text from the semicolon on. The
/// value of a quoted string keeps its escapes, which no valid identifier, scheme or host contains.
fn forwarded_pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let name_end = byte_search::token_end(text, 0);
    let (name, rest) = text.split_at(name_end);
    let rest = rest.strip_prefix(b"=").filter(|_| name_end > 0)?;
    let (value, rest) = match rest {
        [b'"', rest @ ..] => {
            let end = quoted_end(rest)?;
            (&rest[..end], &rest[end + 1..])
        }
        _ => rest.split_at(byte_search::token_end(rest, 0)),
    };
    let rest = byte_search::trim(rest);
    if value.is_empty() || !matches!(rest, [] | [b';', ..]) {
        return None;
    }
    Some((name, value, rest))
}

/// Returns the position of the quotation mark that ends a quoted string.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Parses an identifier of Forwarded (RFC 7239 §6): an address in brackets if IPv6, `unknown`, or a hidden
/// identifier, each with an optional port, which may be hidden as well.
fn forwarded_node(text: &[u8]) -> Option<HopNode<'_>> {
    let (name, port) = match text {
        [b'[', ..] => {
            let end = byte_search::find(text, b']', 0)? + 1;
            text.split_at(end)
        }
        _ => text.split_at(byte_search::find(text, b':', 0).unwrap_or(text.len())),
    };
    let port = match port {
        [] => None,
        [b':', hidden @ ..] if is_hidden(hidden) => None,
        [b':', digits @ ..] => Some(node_port(digits)?),
        _ => return None,
    };
    match name {
        [b'[', address @ .., b']'] => {
            let address = IpOctets::parse(address).filter(|_| address.contains(&b':'))?;
            Some(HopNode::Address(address, port))
        }
        _ if is_hidden(name) => Some(HopNode::Obfuscated(name)),
        _ if name.eq_ignore_ascii_case(b"unknown") => Some(HopNode::Unknown),
        _ => Some(HopNode::Address(IpOctets::parse(name)?, port)),
    }
}

/// Parses a member of X-Forwarded-For, which also permits an IPv6 address without brackets.
fn x_forwarded_node(text: &[u8]) -> Option<HopNode<'_>> {
    match IpOctets::parse(text) {
        Some(address) => Some(HopNode::Address(address, None)),
        None => forwarded_node(text),
    }
}

/// Returns true for an underscore and at least one letter, digit, `.`, `_` or `-` (RFC 7239 §6.3).
fn is_hidden(text: &[u8]) -> bool {
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    matches!(text, [b'_', rest @ ..] if !rest.is_empty() && rest.iter().all(is_known))
}

/// Parses a port of 1 to 5 digits (RFC 7239 §6).
fn node_port(digits: &[u8]) -> Option<u16> {
    let is_number = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok()?;
    is_number.then_some(digits)?.parse().ok()
}

/// Returns true for the scheme of a request over HTTP. Some proxies name the scheme of a WebSocket. Applications make
/// links with the scheme, so no other scheme is accepted, such as `javascript`.
fn is_scheme(text: &[u8]) -> bool {
    let known: [&[u8]; 4] = [b"http", b"https", b"ws", b"wss"];
    known.iter().any(|scheme| text.eq_ignore_ascii_case(scheme))
}

/// Client of a request behind trusted proxies.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ForwardedClient<'a> {
    /// Address of the client.
    pub address: IpOctets,
    /// Port of the client, if a proxy stated the port.
    pub port: Option<u16>,
    /// Scheme of the client's request, if a proxy stated the scheme.
    pub proto: Option<&'a [u8]>,
    /// Host of the client's request, if a proxy stated the host.
    pub host: Option<&'a [u8]>,
}

impl<'a> ForwardedClient<'a> {
    /// Finds the client: the first opener from the right that is no trusted proxy. `peer` is the trusted proxy
    /// that sent the request. Behind an unknown opener the client has the address of the proxy that hid the
    /// opener. A hop without scheme or host takes the value of the hop behind it.
    pub fn find(
        peer: IpOctets,
        hops: Hops<'a>,
        mut is_trusted: impl FnMut(IpOctets) -> bool,
    ) -> ForwardedClient<'a> {
        let mut client = ForwardedClient {
            address: peer,
            port: None,
            proto: None,
            host: None,
        };
        for hop in hops {
            client.proto = hop.proto.or(client.proto);
            client.host = hop.host.or(client.host);
            let HopNode::Address(address, port) = hop.node else {
                break;
            };
            (client.address, client.port) = (address, port);
            if !is_trusted(address) {
                break;
            }
        }
        client
    }
}

#[cfg(test)]
mod tests;
