//! URLs in the response of a server behind a proxy, rewritten for the client: Location, Content-Location and
//! Refresh.
//!
//! A rewritten URL never leads to another host. Browsers read `//name`, `/\name` and `/<TAB>/name` as the URL of
//! another host, so a rewritten path begins with a single slash, and a URL with a control character stays as sent.

use crate::byte_search;
use crate::request_target::valid_host;

/// Rewriting of the URLs of a server behind a proxy.
#[derive(Copy, Clone, Debug)]
pub struct LocationScope<'a> {
    /// Hosts of the client's request, each perhaps with a port: the Host field, and the host that a trusted proxy in
    /// front states, or an empty text.
    pub client_hosts: [&'a [u8]; 2],
    /// Other names under which the proxy addresses the server, each perhaps with a port. The first is the host of the
    /// server's URL.
    pub member_hosts: [&'a [u8]; 2],
    /// Path at the server and path at the proxy, each with slashes at both ends; None for equal paths.
    pub path: Option<(&'a [u8], &'a [u8])>,
    /// True if the client uses TLS.
    pub is_secure: bool,
}

/// Parts of a URL with a host of the proxied server.
struct OwnUrl<'v> {
    /// Scheme and authority that the rewritten URL keeps; empty for a rewritten URL without an authority.
    origin: &'v [u8],
    /// Path, query and fragment.
    rest: &'v [u8],
}

impl LocationScope<'_> {
    /// Returns the URL as seen by the client; None for a URL that stays as sent: a relative path, a URL of another
    /// host, or a path outside of the path at the server.
    pub fn rewritten(&self, url: &[u8]) -> Option<Vec<u8>> {
        if url.iter().any(u8::is_ascii_control) {
            return None;
        }
        let own = self.own_url(url)?;
        let mut path = Vec::with_capacity(url.len() + 1);
        path.push(b'/');
        path.extend_from_slice(without_slashes(own.rest));
        let mut out = own.origin.to_vec();
        match self.path {
            None => out.extend_from_slice(&path),
            Some((from, to)) => push_moved(&path, from, to, &mut out)?,
        }
        Some(out)
    }

    /// Returns the value of Refresh as seen by the client; None for a value that stays as sent.
    pub fn rewritten_refresh(&self, value: &[u8]) -> Option<Vec<u8>> {
        let is_key = |text: &[u8]| text.eq_ignore_ascii_case(URL_KEY);
        let start = value.windows(URL_KEY.len()).position(is_key)? + URL_KEY.len();
        let (before, url) = value.split_at(start);
        let (quote, url) = match url {
            [quote @ (b'"' | b'\''), url @ ..] => (std::slice::from_ref(quote), url),
            _ => (&b""[..], url),
        };
        let end = match quote {
            [quote] => byte_search::find(url, *quote, 0)?,
            _ => url.len(),
        };
        let rewritten = self.rewritten(&url[..end])?;
        Some([before, quote, &rewritten, &url[end..]].concat())
    }

    /// Splits a URL of the proxied server; None for a URL of another host and for a relative path.
    fn own_url<'v>(&self, url: &'v [u8]) -> Option<OwnUrl<'v>> {
        let (scheme, after_scheme) = split_scheme(url);
        match after_scheme {
            [b'/', b'/', rest @ ..] => {
                let (authority, rest) = split_authority(rest);
                let origin_bytes = url.len() - rest.len();
                let origin = self.kept_origin(scheme, authority, &url[..origin_bytes])?;
                Some(OwnUrl { origin, rest })
            }
            [b'/', b'\\', ..] => None,
            // Some frameworks write a path behind a scheme, `http:/path`.
            [b'/', ..] => (scheme.is_some() || self.path.is_some()).then_some(OwnUrl {
                origin: b"",
                rest: after_scheme,
            }),
            _ => None,
        }
    }

    /// Returns the scheme and the authority that a rewritten URL keeps, empty in most cases; None for a URL that
    /// stays as sent.
    fn kept_origin<'v>(
        &self,
        scheme: Option<Scheme>,
        authority: &[u8],
        origin: &'v [u8],
    ) -> Option<&'v [u8]> {
        let mut client_hosts = self.client_hosts.iter();
        if client_hosts.any(|host| is_same_host(authority, scheme, host)) {
            // A server without knowledge of TLS writes http for a client with https.
            let is_unaware = scheme == Some(Scheme::Http) && self.is_secure;
            // A redirect from http to https must not become a redirect to the requested URL.
            let is_to_https = scheme == Some(Scheme::Https) && !self.is_secure;
            if self.path.is_none() && !is_unaware {
                return None;
            }
            return Some(if is_to_https { origin } else { b"" });
        }
        let mut hosts = self.member_hosts.iter();
        let is_own = hosts.any(|host| is_same_host(authority, scheme, host));
        (is_own || self.has_port_of_member(authority, scheme)).then_some(b"")
    }

    /// Returns true for an authority of the client's host name with a port that a server takes for the port of the
    /// client: the port on which the server listens, and 443 after http.
    fn has_port_of_member(&self, authority: &[u8], scheme: Option<Scheme>) -> bool {
        let Some((name, Some(port))) = valid_host(authority) else {
            return false;
        };
        let member_port = valid_host(self.member_hosts[0]).and_then(|(_, port)| port);
        let is_of_tls = scheme == Some(Scheme::Http) && self.is_secure && port == 443;
        let mut client_hosts = self.client_hosts.iter().filter_map(|host| valid_host(host));
        client_hosts.any(|(known, known_port)| {
            let is_usual = known_port.is_none_or(|port| port == 443);
            name.eq_ignore_ascii_case(known)
                && (member_port == Some(port) || (is_of_tls && is_usual))
        })
    }
}

/// Scheme of a URL.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// Splits a scheme and its colon off; None for a URL without a scheme or with another scheme.
pub(super) fn split_scheme(url: &[u8]) -> (Option<Scheme>, &[u8]) {
    for (text, scheme) in [(&b"http:"[..], Scheme::Http), (b"https:", Scheme::Https)] {
        if let Some((start, rest)) = url.split_at_checked(text.len())
            && start.eq_ignore_ascii_case(text)
        {
            return (Some(scheme), rest);
        }
    }
    (None, url)
}

/// Splits an authority from the path, the query and the fragment. Browsers end an authority at a backslash too.
pub(super) fn split_authority(text: &[u8]) -> (&[u8], &[u8]) {
    let is_end = |byte: &u8| matches!(byte, b'/' | b'\\' | b'?' | b'#');
    text.split_at(text.iter().position(is_end).unwrap_or(text.len()))
}

/// Returns true if an authority of a URL equals a known host. The default port of the scheme equals no port.
pub(super) fn is_same_host(authority: &[u8], scheme: Option<Scheme>, known: &[u8]) -> bool {
    let (Some((name, port)), Some((known_name, known_port))) =
        (valid_host(authority), valid_host(known))
    else {
        return false;
    };
    let is_any_default = |port: &u16| {
        [Scheme::Http, Scheme::Https]
            .iter()
            .any(|it| it.default_port() == *port)
    };
    let is_default = |port: &u16| match scheme {
        Some(scheme) => scheme.default_port() == *port,
        None => is_any_default(port),
    };
    // The scheme of the known host is unknown.
    let known_port = known_port.filter(|port| !is_any_default(port));
    name.eq_ignore_ascii_case(known_name) && port.filter(|port| !is_default(port)) == known_port
}

/// Appends a path with the path at the server replaced; None for a path outside of the path at the server.
fn push_moved(path: &[u8], from: &[u8], to: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if let Some(rest) = path.strip_prefix(from) {
        out.extend_from_slice(to);
        out.extend_from_slice(match to {
            b"/" => without_slashes(rest),
            _ => rest,
        });
        return Some(());
    }
    // The path at the server without its last slash.
    let rest = path.strip_prefix(from.strip_suffix(b"/")?)?;
    if !matches!(rest, [] | [b'?' | b'#', ..]) {
        return None;
    }
    out.extend_from_slice(match to {
        b"/" => to,
        _ => to.strip_suffix(b"/").unwrap_or(to),
    });
    out.extend_from_slice(rest);
    Some(())
}

/// Removes slashes and backslashes at the start.
fn without_slashes(mut text: &[u8]) -> &[u8] {
    while let [b'/' | b'\\', rest @ ..] = text {
        text = rest;
    }
    text
}

const URL_KEY: &[u8] = b"url=";

#[cfg(test)]
mod tests;
