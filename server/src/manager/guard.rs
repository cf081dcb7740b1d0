//! Guards against requests that a browser sends for a page of another site: the Host field (DNS rebinding), the
//! Origin field and the fetch metadata (W3C Fetch Metadata Request Headers).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::fields::Fields;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::request_target::valid_host;

/// Facts of a request for the guards.
pub(super) struct GuardedRequest<'r> {
    /// Method of the request.
    pub(super) method: Method,
    /// Field lines, with the effective host in the Host field.
    pub(super) fields: Fields<'r>,
    /// True if the connection uses TLS.
    pub(super) is_tls: bool,
    /// Address of the server on the connection.
    pub(super) server: Option<IpAddr>,
    /// Port of the server on the connection.
    pub(super) port: u16,
}

/// Host names of the configuration in lower case, each with its port; None = the port of the connection.
pub(super) type HostNames = [(String, Option<u16>)];

impl GuardedRequest<'_> {
    /// Checks the request against all guards.
    pub(super) fn check(&self, names: &HostNames) -> Result<(), Reject> {
        let host = self.fields.first("host").unwrap_or_default();
        if !self.is_own_host(host, names) {
            return Err(Reject::MANAGER_HOST);
        }
        if !self.has_own_origin(host) || !self.is_of_own_page() {
            return Err(Reject::MANAGER_ORIGIN);
        }
        Ok(())
    }

    /// Returns true for a host by which a browser can't have been led here by a foreign name server: an IP address
    /// of the connection, `localhost` on a loopback address, or a name of the configuration.
    fn is_own_host(&self, host: &[u8], names: &HostNames) -> bool {
        let Some((name, port)) = valid_host(host) else {
            return false;
        };
        let usual = if self.is_tls { 443 } else { 80 };
        let port = port.unwrap_or(usual);
        let named = names.iter().any(|(known, own)| {
            name.eq_ignore_ascii_case(known.as_bytes()) && port == own.unwrap_or(self.port)
        });
        let server = self.server.map(|server| server.to_canonical());
        named || port == self.port && server.is_some_and(|server| is_address(name, server))
    }

    /// Returns true if each Origin field names the manager itself. `null` is a foreign origin.
    fn has_own_origin(&self, host: &[u8]) -> bool {
        let scheme: &[u8] = if self.is_tls { b"https://" } else { b"http://" };
        let own = [scheme, host].concat();
        let mut origins = self.fields.all("origin");
        origins.all(|origin| origin.eq_ignore_ascii_case(&own))
    }

    /// Returns true if the fetch metadata allow the request: from a page of the manager, from the operator's
    /// address bar, or a link followed to a page. A client that is no browser sends no fetch metadata.
    fn is_of_own_page(&self) -> bool {
        let is = |name, value: &[u8]| self.fields.first(name) == Some(value);
        let is_read = matches!(self.method, Method::Get | Method::Head);
        let is_link =
            is_read && is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document");
        let mut sites = self.fields.all("sec-fetch-site");
        is_link || sites.all(|site| site == b"same-origin" || site == b"none")
    }
}

/// Returns true if `name` is an address of the server's end of the connection.
fn is_address(name: &[u8], server: IpAddr) -> bool {
    if name.eq_ignore_ascii_case(b"localhost") {
        return server.is_loopback();
    }
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let v6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let address: Option<IpAddr> = match v6 {
        Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => name.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    };
    let address = address.map(|address| address.to_canonical());
    address.is_some_and(|it| it == server || it.is_loopback() && server.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a request on a connection to `server`. Fields are separated by `|`.
    fn check(server: &str, is_tls: bool, method: Method, fields: &str) -> Result<(), Reject> {
        let lines = fields.replace('|', "\r\n") + "\r\n";
        let server: std::net::SocketAddr = server.parse().expect("an address");
        let request = GuardedRequest {
            method,
            fields: Fields(lines.as_bytes()),
            is_tls,
            server: Some(server.ip()),
            port: server.port(),
        };
        let names = [
            ("manager.example.org".to_owned(), None),
            ("tunnel".to_owned(), Some(9000)),
        ];
        request.check(&names)
    }

    #[test]
    fn hosts_of_the_manager_pass() {
        #[rustfmt::skip]
        let table: &[(&str, bool, &str)] = &[
            ("127.0.0.1:8800", false, "localhost:8800"),
            ("127.0.0.1:8800", false, "LocalHost:8800"),
            ("127.0.0.1:8800", false, "127.0.0.1:8800"),
            ("127.0.0.1:8800", false, "127.0.0.2:8800"),
            ("127.0.0.1:8800", false, "[::1]:8800"),
            ("[::1]:8800", false, "localhost:8800"),
            ("[::ffff:127.0.0.1]:8800", false, "localhost:8800"),
            ("127.0.0.1:80", false, "localhost"),
            ("127.0.0.1:8800", false, "manager.example.org:8800"),
            ("127.0.0.1:8800", false, "tunnel:9000"),
            ("192.0.2.1:443", true, "192.0.2.1"),
            ("192.0.2.1:443", true, "manager.example.org"),
            ("192.0.2.1:8800", true, "MANAGER.example.org:8800"),
            ("[2001:db8::1]:8800", true, "[2001:db8:0::1]:8800"),
        ];
        for (server, is_tls, host) in table {
            let fields = format!("Host: {host}");
            assert_eq!(
                check(server, *is_tls, Method::Get, &fields),
                Ok(()),
                "{host}"
            );
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        #[rustfmt::skip]
        let table: &[(&str, bool, &str)] = &[
            ("127.0.0.1:8800", false, ""),
            ("127.0.0.1:8800", false, "localhost"),
            ("127.0.0.1:8800", false, "localhost:80"),
            ("127.0.0.1:8800", false, "localhost.:8800"),
            ("127.0.0.1:8800", false, "0.0.0.0:8800"),
            ("127.0.0.1:8800", false, "evil.example.com:8800"),
            ("127.0.0.1:8800", false, "localhost.evil.example.com:8800"),
            ("127.0.0.1:8800", false, "127.0.0.1.nip.io:8800"),
            ("127.0.0.1:8800", false, "2130706433:8800"),
            ("127.0.0.1:8800", false, "192.0.2.1:8800"),
            ("127.0.0.1:8800", false, "tunnel:8800"),
            ("127.0.0.1:8800", false, "manager.example.org:9000"),
            ("192.0.2.1:8800", true, "localhost:8800"),
            ("192.0.2.1:8800", true, "127.0.0.1:8800"),
            ("192.0.2.1:8800", true, "192.0.2.2:8800"),
            ("192.0.2.1:8800", true, "192.0.2.1:443"),
        ];
        for (server, is_tls, host) in table {
            let fields = format!("Host: {host}");
            let checked = check(server, *is_tls, Method::Get, &fields);
            assert_eq!(checked, Err(Reject::MANAGER_HOST), "{host}");
        }
        let none = check("127.0.0.1:8800", false, Method::Get, "Accept: */*");
        assert_eq!(none, Err(Reject::MANAGER_HOST));
    }

    #[test]
    fn only_requests_of_own_pages_pass() {
        use Method::{Get, Post};
        #[rustfmt::skip]
        let table: &[(Method, &str, bool)] = &[
            (Post, "Accept: */*", true),
            (Post, "Origin: http://localhost:8800", true),
            (Post, "Origin: http://LOCALHOST:8800", true),
            (Post, "Origin: https://localhost:8800", false),
            (Post, "Origin: http://localhost", false),
            (Post, "Origin: http://localhost:9000", false),
            (Post, "Origin: http://127.0.0.1:8800", false),
            (Post, "Origin: http://evil.example.com", false),
            (Post, "Origin: null", false),
            (Get, "Origin: null", false),
            (Post, "Origin:", false),
            (Post, "Origin: http://localhost:8800|Origin: null", false),
            (Post, "Sec-Fetch-Site: same-origin", true),
            (Post, "Sec-Fetch-Site: none", true),
            (Post, "Sec-Fetch-Site: same-site", false),
            (Post, "Sec-Fetch-Site: cross-site", false),
            (Post, "Sec-Fetch-Site: same-origin|Sec-Fetch-Site: cross-site", false),
            (Post, "Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document", false),
            (Get, "Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document", true),
            (Get, "Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: iframe", false),
            (Get, "Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: no-cors|Sec-Fetch-Dest: script", false),
            (Get, "Sec-Fetch-Site: same-site|Sec-Fetch-Mode: cors|Sec-Fetch-Dest: empty", false),
            (Get, "Sec-Fetch-Site: elsewhere", false),
        ];
        for (method, fields, passes) in table {
            let all = format!("Host: localhost:8800|{fields}");
            let expected = if *passes {
                Ok(())
            } else {
                Err(Reject::MANAGER_ORIGIN)
            };
            let checked = check("127.0.0.1:8800", false, *method, &all);
            assert_eq!(checked, expected, "{method:?} {fields}");
        }
    }
}
