//! Access log line in the combined format, with or without the host, or as JSON.
//!
//! The formatting machinery of the standard library would cost more than finding the page. Numbers and
//! escapes are therefore written directly: spans without special characters are copied whole, and a table
//! finds the end of each span. For any input of a peer, one request is one line, and no byte can control a
//! terminal.

use std::net::IpAddr;
use std::sync::Arc;

use base::clock::rfc3339_ms;
use base::log::{hex_digit, push_hex_escape, push_spans};
use wire::number_text::{push_address, push_number};

/// Format of access log lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AccessLogFormat {
    /// Apache's `combined`.
    Combined,
    /// Apache's `vhost_combined`: the host and the port before the line of `combined`.
    VhostCombined,
    /// One JSON object (RFC 8259) on each line.
    Json,
}

/// Contents of the access log for one request. Fields missing in the request are `None`.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AccessLogLine<'a> {
    /// The client's address.
    pub peer: IpAddr,
    /// The user after a successful login.
    pub user: Option<&'a str>,
    /// Time of the request, milliseconds since 1970.
    pub unix_ms: u64,
    /// The request line without CRLF, as received.
    pub request: &'a [u8],
    /// Status code of the response.
    pub status: u16,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// The Referer field.
    pub referer: Option<&'a [u8]>,
    /// The User-Agent field.
    pub agent: Option<&'a [u8]>,
    /// The Host field, or the authority of the target.
    pub host: Option<&'a [u8]>,
    /// Port of the server for the host.
    pub port: u16,
    /// The number of the rule that refused the request, or 0.
    pub rule: u16,
    /// The version of TLS, for example `TLSv1.3`; `None` on a connection without TLS.
    pub tls: Option<&'static str>,
    /// Duration of the request in microseconds.
    pub micros: u64,
    /// Member that answered a proxied request, or that failed last.
    pub member: Option<&'a MemberCall>,
}

/// Call of a member of a balancer, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberCall {
    /// URL of the member.
    pub url: Arc<str>,
    /// Number of members and connections tried, from 1.
    pub tries: u32,
    /// Time to establish the connection in microseconds; `None` for a kept connection.
    pub connect_micros: Option<u64>,
    /// Time from the beginning of the request to the first byte of the response in microseconds; `None`
    /// without a response.
    pub first_byte_micros: Option<u64>,
}

impl AccessLogLine<'_> {
    /// Appends the line in `format` with a newline. `log_time` is the time in the combined format with
    /// brackets, which the worker's clock keeps ready.
    pub(crate) fn append(&self, format: AccessLogFormat, log_time: &[u8], out: &mut Vec<u8>) {
        match format {
            AccessLogFormat::Combined => self.combined(out, log_time),
            AccessLogFormat::VhostCombined => {
                self.push_host(out);
                self.combined(out, log_time);
            }
            AccessLogFormat::Json => self.json(out),
        }
    }

    /// Appends `HOST:PORT ` as Apache's `%v:%p `, with the host in lower case, or `-` without a host. The parser of
    /// requests accepts only hosts without spaces and quotes.
    fn push_host(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        push_escaped(
            out,
            self.host.filter(|host| !host.is_empty()).unwrap_or(b"-"),
        );
        out[begin..].make_ascii_lowercase();
        out.push(b':');
        push_number(out, self.port.into());
        out.push(b' ');
    }

    /// Appends a line in Apache's format `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`. A
    /// refused request has ` rule=RNUMBER` at the end. Control characters and bytes that are not UTF-8
    /// become `\xHH`. Quotes and backslashes get a backslash.
    pub(crate) fn combined(&self, out: &mut Vec<u8>, log_time: &[u8]) {
        push_address(out, self.peer);
        out.extend_from_slice(b" - ");
        match self.user {
            Some("") => out.extend_from_slice(b"\"\""),
            Some(user) => push_word(out, user),
            None => out.push(b'-'),
        }
        out.push(b' ');
        out.extend_from_slice(log_time);
        out.extend_from_slice(b" \"");
        push_escaped(out, self.request);
        out.extend_from_slice(b"\" ");
        push_number(out, self.status.into());
        out.push(b' ');
        match self.bytes {
            0 => out.push(b'-'),
            bytes => push_number(out, bytes),
        }
        for field in [self.referer, self.agent] {
            out.extend_from_slice(b" \"");
            push_escaped(out, field.unwrap_or(b"-"));
            out.push(b'"');
        }
        if self.rule != 0 {
            out.extend_from_slice(b" rule=R");
            push_number(out, self.rule.into());
        }
        out.push(b'\n');
    }

    /// Appends an object with `time` (RFC 3339, UTC), `remote`, `user`, `host`, `request`, `status`,
    /// `bytes`, `referer`, `agent`, `rule`, `tls` and `us` (microseconds), and of a proxied request [`MemberCall`], in this order. Missing values
    /// are left out. Bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&rfc3339_ms(self.unix_ms));
        out.extend_from_slice(b"\",\"remote\":\"");
        push_address(out, self.peer);
        out.push(b'"');
        push_member(out, b",\"user\":\"", self.user.map(str::as_bytes));
        push_member(out, b",\"host\":\"", self.host);
        push_member(out, b",\"request\":\"", Some(self.request));
        out.extend_from_slice(b",\"status\":");
        push_number(out, self.status.into());
        out.extend_from_slice(b",\"bytes\":");
        push_number(out, self.bytes);
        push_member(out, b",\"referer\":\"", self.referer);
        push_member(out, b",\"agent\":\"", self.agent);
        if self.rule != 0 {
            out.extend_from_slice(b",\"rule\":");
            push_number(out, self.rule.into());
        }
        push_member(out, b",\"tls\":\"", self.tls.map(str::as_bytes));
        out.extend_from_slice(b",\"us\":");
        push_number(out, self.micros);
        if let Some(member) = self.member {
            push_call(out, member);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Appends `member`, `tries`, `connect_us` and `first_byte_us`. Missing values are left out.
fn push_call(out: &mut Vec<u8>, member: &MemberCall) {
    push_member(out, b",\"member\":\"", Some(member.url.as_bytes()));
    out.extend_from_slice(b",\"tries\":");
    push_number(out, member.tries.into());
    let times = [
        (&b",\"connect_us\":"[..], member.connect_micros),
        (b",\"first_byte_us\":", member.first_byte_micros),
    ];
    for (name, micros) in times {
        if let Some(micros) = micros {
            out.extend_from_slice(name);
            push_number(out, micros);
        }
    }
}

/// Appends `text` for use between quotes: quotes and backslashes get a backslash, control characters and
/// bytes that are not UTF-8 become `\xHH`.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    push_spans(out, text, |out, odd| match odd {
        [byte @ (b'"' | b'\\')] => out.extend_from_slice(&[b'\\', *byte]),
        bytes => bytes.iter().for_each(|&byte| push_hex_escape(out, byte)),
    });
}

/// Appends `text` for a field without quotes, with escapes as in [`push_escaped`]. Spaces are escaped, too,
/// since a space ends the field.
fn push_word(out: &mut Vec<u8>, text: &str) {
    for (nth, word) in text.as_bytes().split(|&byte| byte == b' ').enumerate() {
        if nth > 0 {
            push_hex_escape(out, b' ');
        }
        push_escaped(out, word);
    }
}

fn push_member(out: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    let Some(value) = value else { return };
    out.extend_from_slice(name);
    push_spans(out, value, |out, odd| match odd {
        [byte @ (b'"' | b'\\')] => out.extend_from_slice(&[b'\\', *byte]),
        bytes => match std::str::from_utf8(bytes) {
            Ok(hidden) => hidden.chars().for_each(|it| push_unicode_escape(out, it)),
            Err(_) => out.extend_from_slice("\u{fffd}".as_bytes()),
        },
    });
    out.push(b'"');
}

/// Appends a character, which is a surrogate pair above U+FFFF (RFC 8259 §7).
fn push_unicode_escape(out: &mut Vec<u8>, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.extend_from_slice(b"\\u");
        let nibbles = [12, 8, 4, 0].map(|shift| hex_digit((*unit >> shift & 15) as u8));
        out.extend_from_slice(&nibbles);
    }
}

#[cfg(test)]
mod tests;
