//! Cookie and Set-Cookie (RFC 6265): reader of one cookie, and rewriter of the scope of a cookie that a member
//! sets.

use crate::byte_search;
use crate::fields::Fields;

/// Returns the value of the first cookie with this name.
pub fn cookie<'a>(fields: Fields<'a>, name: &str) -> Option<&'a [u8]> {
    cookies(fields, name).next()
}

/// Iterates over the values of all cookies with this name, in order and without quotation marks around a
/// value. Names of cookies are case-sensitive. A browser sends the cookie with the longest path first.
pub fn cookies<'a, 'n>(
    fields: Fields<'a>,
    name: &'n str,
) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
    let lines = fields.all("cookie");
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let (found, value) = split_pair(pair)?;
        (found == name.as_bytes()).then(|| unquoted(value))
    })
}

/// Splits `name=value` and removes whitespace around both.
fn split_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = byte_search::find(pair, b'=', 0)?;
    let (name, value) = (&pair[..equals], &pair[equals + 1..]);
    Some((byte_search::trim(name), byte_search::trim(value)))
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// Rewriting of the scope of cookies, for members under another path or host than the client sees.
#[derive(Copy, Clone, Default, Debug)]
pub struct CookieScope<'a> {
    /// Path at the member and path at this server, each with slashes at both ends.
    pub path: Option<(&'a [u8], &'a [u8])>,
    /// Domain at the member and domain at this server; an empty domain removes the attribute, so that the
    /// cookie belongs to the host of the request alone.
    pub domain: Option<(&'a [u8], &'a [u8])>,
}

impl CookieScope<'_> {
    /// Appends the value of a Set-Cookie line with its Path and Domain rewritten. Other attributes and other
    /// paths and domains stay as they are.
    ///
    /// A cookie with the prefix `__Host-` stays as it is: browsers accept the cookie only with `Path=/` and
    /// without Domain.
    pub fn push_set_cookie(&self, value: &[u8], out: &mut Vec<u8>) {
        let mut attributes = value.split(|byte| *byte == b';');
        let pair = attributes.next().unwrap_or_default();
        out.extend_from_slice(pair);
        let start = byte_search::trim(pair).get(..HOST_PREFIX.len());
        if start.is_some_and(|start| start.eq_ignore_ascii_case(HOST_PREFIX)) {
            out.extend_from_slice(&value[pair.len()..]);
            return;
        }
        for attribute in attributes {
            self.push_attribute(attribute, out);
        }
    }

    fn push_attribute(&self, attribute: &[u8], out: &mut Vec<u8>) {
        let (name, value) = split_pair(attribute).unwrap_or_default();
        let moved_path = self
            .moved_path(value)
            .filter(|_| name.eq_ignore_ascii_case(b"path"));
        let moved_domain = self
            .moved_domain(value)
            .filter(|_| name.eq_ignore_ascii_case(b"domain"));
        let parts: &[&[u8]] = match (moved_path, moved_domain) {
            (Some([start, end]), _) => &[b"; Path=", start, end],
            (None, Some(b"")) => &[],
            (None, Some(domain)) => &[b"; Domain=", domain],
            (None, None) => &[b";", attribute],
        };
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    /// Returns the two parts of the path at this server; `None` for a path outside of the member's path. The
    /// member's path without its last slash counts as well, since cookies are often set for `/app`.
    fn moved_path<'a>(&'a self, path: &'a [u8]) -> Option<[&'a [u8]; 2]> {
        let (from, to) = self.path?;
        if let Some(rest) = path.strip_prefix(from) {
            return Some([to, rest]);
        }
        let is_same = from.strip_suffix(b"/") == Some(path) && !path.is_empty();
        let without_slash = match to {
            b"/" => to,
            _ => to.strip_suffix(b"/").unwrap_or(to),
        };
        is_same.then_some([without_slash, b""])
    }

    /// Returns the domain at this server; `None` for another domain than the member's. A leading dot has no
    /// meaning (RFC 6265 §5.2.3).
    fn moved_domain(&self, domain: &[u8]) -> Option<&[u8]> {
        let (from, to) = self.domain?;
        let without_dot = domain.strip_prefix(b".").unwrap_or(domain);
        without_dot.eq_ignore_ascii_case(from).then_some(to)
    }
}

/// Prefix of the names of cookies for one host and all paths, in any case.
const HOST_PREFIX: &[u8] = b"__Host-";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn cookies_are_found_by_name() {
        let table: &[(&str, &[&str])] = &[
            ("Cookie: a=1\r\n", &["1"]),
            ("cookie: b=2; a=1; c=3\r\n", &["1"]),
            ("Cookie: b=2;a=1;c=3\r\n", &["1"]),
            ("Cookie: a=1; a=2\r\nX: a=3\r\nCookie: a=4\r\n", &["1", "2", "4"]),
            ("Cookie: a=\"x.route\"\r\n", &["x.route"]),
            ("Cookie: a=\"\r\n", &["\""]),
            ("Cookie: a=\r\n", &[""]),
            ("Cookie: a=b=c\r\n", &["b=c"]),
            ("Cookie: \ta = 1 ;\r\n", &["1"]),
            ("Cookie: A=1; aa=2; ba=3; a; =a; xa=a=1\r\n", &[]),
            ("Cookie: x=\"; a=1; y=\"\r\n", &["1"]),
            ("Set-Cookie: a=1\r\n", &[]),
            ("", &[]),
        ];
        for (fields, expected) in table {
            let fields = Fields(fields.as_bytes());
            let found: Vec<_> = cookies(fields, "a").map(String::from_utf8_lossy).collect();
            assert_eq!(found, *expected);
            assert_eq!(cookie(fields, "a"), expected.first().map(|value| value.as_bytes()));
        }
    }

    fn rewritten(scope: CookieScope<'_>, value: &str) -> String {
        let mut out = Vec::new();
        scope.push_set_cookie(value.as_bytes(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn paths_are_rewritten() {
        let table = [
            ("/app/", "/shop/", "a=1; Path=/app/; Secure", "a=1; Path=/shop/; Secure"),
            ("/app/", "/shop/", "a=1; Path=/app", "a=1; Path=/shop"),
            ("/app/", "/shop/", "a=1;path= /app/x/y ;HttpOnly", "a=1; Path=/shop/x/y;HttpOnly"),
            ("/app/", "/shop/", "a=1; Path=/application", "a=1; Path=/application"),
            ("/app/", "/shop/", "a=1; Path=/", "a=1; Path=/"),
            ("/app/", "/shop/", "a=1; Path=", "a=1; Path="),
            ("/app/", "/shop/", "a=1; Path=\"/app/\"", "a=1; Path=\"/app/\""),
            ("/app/", "/shop/", "a=1; Path=/app/; Path=/app/x", "a=1; Path=/shop/; Path=/shop/x"),
            ("/app/", "/shop/", "path=/app/; Max-Age=5", "path=/app/; Max-Age=5"),
            ("/app/", "/", "a=1; Path=/app", "a=1; Path=/"),
            ("/app/", "/", "a=1; Path=/app/x", "a=1; Path=/x"),
            ("/", "/shop/", "a=1; Path=/", "a=1; Path=/shop/"),
            ("/", "/shop/", "a=1; Path=/x", "a=1; Path=/shop/x"),
            ("/", "/shop/", "a=1; Path=", "a=1; Path="),
            ("/", "/shop/", "a=1; Path", "a=1; Path"),
            ("/", "/shop/", "a=1", "a=1"),
            ("/", "/shop/", "__Host-a=1; Path=/; Secure", "__Host-a=1; Path=/; Secure"),
            ("/", "/shop/", "__Secure-a=1; Path=/; Secure", "__Secure-a=1; Path=/shop/; Secure"),
            ("/", "/shop/", "a=1;; Path=/;", "a=1;; Path=/shop/;"),
            ("/", "/shop/", "", ""),
        ];
        for (from, to, value, expected) in table {
            let path = Some((from.as_bytes(), to.as_bytes()));
            let scope = CookieScope { path, domain: None };
            assert_eq!(rewritten(scope, value), expected, "{from} to {to}");
        }
    }

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn domains_are_rewritten() {
        let table = [
            ("a.test", "a=1; Domain=app.internal; Path=/", "a=1; Domain=a.test; Path=/"),
            ("a.test", "a=1; domain=.APP.internal", "a=1; Domain=a.test"),
            ("", "a=1; Domain=app.internal; Secure", "a=1; Secure"),
            ("a.test", "a=1; Domain=internal", "a=1; Domain=internal"),
            ("a.test", "a=1; Domain=x.app.internal", "a=1; Domain=x.app.internal"),
            ("a.test", "Domain=app.internal; Secure", "Domain=app.internal; Secure"),
        ];
        for (to, value, expected) in table {
            let domain = Some((&b"app.internal"[..], to.as_bytes()));
            assert_eq!(rewritten(CookieScope { path: None, domain }, value), expected);
        }
    }

    proptest! {
        #[test]
        fn a_scope_without_changes_keeps_every_byte(value in "[ -~\t]{0,60}") {
            prop_assert_eq!(rewritten(CookieScope::default(), &value), value);
        }

        #[test]
        fn cookies_are_found_behind_any_other(value in "[!-:<-~]{1,9}", before in "[ -:<-~]{0,20}") {
            let line = format!("Cookie: {before}; needle={value}\r\n");
            let found = cookies(Fields(line.as_bytes()), "needle").last();
            prop_assert_eq!(found, Some(unquoted(value.as_bytes())));
        }
    }
}
