//! Sessions bound to a member: Apache's route, and the signed cookie of the balancer.
//!
//! Members that set the cookie themselves append a dot and their route to the value, as for Apache's
//! `stickysession`. The signed cookie is `ROUTE.SIGNATURE`. The signature covers the balancer, the member's
//! URL and the route, so a client can neither choose a member nor keep a cookie for another balancer.

use crate::balancer_settings::StickySettings;
use crate::member_settings::MemberUrl;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base::digest::base64url;
use std::sync::Arc;

/// Key of the signed session cookies.
#[derive(Clone)]
pub struct SessionKey(hmac::Key);

impl SessionKey {
    /// Creates a key from random bytes. Balancers with equal keys accept each other's cookies.
    pub fn new(bytes: &[u8; 32]) -> SessionKey {
        SessionKey(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the value of the signed cookie of a member.
    pub(crate) fn cookie(&self, balancer: &str, url: &MemberUrl, route: &str) -> Arc<str> {
        let url = url.to_string();
        let has_route = !route.is_empty() && route.bytes().all(is_cookie_byte);
        let name = match has_route {
            true => route.to_owned(),
            // The name must not show the URL to clients.
            false => self.sign("name", balancer, &url, route, NAME_BYTES),
        };
        let signature = self.sign("session", balancer, &url, route, SIGNATURE_BYTES);
        format!("{name}.{signature}").into()
    }

    /// Returns the first bytes of an HMAC-SHA256 as base64url.
    fn sign(&self, purpose: &str, balancer: &str, url: &str, route: &str, bytes: usize) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [purpose, balancer, url, route] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        base64url(&context.sign().as_ref()[..bytes])
    }
}

/// Returns true if a client sent the cookie `value`. The comparison takes equally long for all forged
/// values of the right length.
pub(crate) fn is_signed(value: &str, cookie: &str) -> bool {
    verify_slices_are_equal(value.as_bytes(), cookie.as_bytes()).is_ok()
}

/// Returns the route in the value of a session: the text after the first dot, as in Apache.
pub(crate) fn route_in(value: &str) -> Option<&str> {
    let (_, route) = value.split_once('.')?;
    (!route.is_empty()).then_some(route)
}

/// Finds the value of the session in a request: the path parameter, else the cookie. `target` is the path
/// with the query as received, and `cookies` are the values of the Cookie fields.
pub fn session_value<'a>(
    sticky: &StickySettings,
    target: &'a str,
    cookies: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let parameter = sticky.path_parameter.as_deref();
    let parameter = parameter.and_then(|name| path_parameter(target, name));
    parameter.or_else(|| {
        let mut cookies = cookies.into_iter();
        cookies.find_map(|field| cookie_value(field, &sticky.cookie))
    })
}

/// Finds a parameter of the path (`;name=value`, RFC 3986 §3.3) or of the query.
fn path_parameter<'a>(target: &'a str, name: &str) -> Option<&'a str> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let of_segment = |segment: &'a str| segment.split(';').skip(1);
    let in_path = path.split('/').flat_map(of_segment);
    let parameters = in_path.chain(query.split(['&', ';']));
    values_of(parameters, name)
}

/// Finds a cookie in the value of a Cookie field. Some clients separate cookies by commas.
fn cookie_value<'a>(field: &'a str, name: &str) -> Option<&'a str> {
    values_of(field.split([';', ',']), name)
}

/// Returns the first value of a name that is not empty.
fn values_of<'a>(mut pairs: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    pairs.find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = value.trim_ascii();
        (key.trim_ascii() == name && !value.is_empty()).then_some(value)
    })
}

/// Returns true for bytes allowed in the value of a cookie (RFC 6265 §4.1.1), apart from the comma.
fn is_cookie_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\')
}

/// Bytes of the name of a member without a route.
const NAME_BYTES: usize = 6;
/// Bytes of a signature: 128 bits, beyond the reach of guesses.
const SIGNATURE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member_settings::MemberHost;

    fn sticky() -> StickySettings {
        StickySettings {
            cookie: "ROUTE".into(),
            path_parameter: Some("sid".into()),
            is_signed: false,
            is_strict: false,
        }
    }

    fn url(port: u16) -> MemberUrl {
        MemberUrl {
            is_tls: false,
            host: MemberHost::Name("a.example".into(), port),
        }
    }

    #[test]
    fn the_route_follows_the_first_dot() {
        assert_eq!(route_in("abc.r1"), Some("r1"));
        assert_eq!(route_in("abc.web1.example"), Some("web1.example"));
        assert_eq!(route_in(".r1"), Some("r1"));
        assert_eq!([route_in("abc"), route_in("abc."), route_in("")], [None; 3]);
    }

    #[test]
    fn sessions_are_found_in_the_path_and_in_cookies() {
        let find = |target, cookies: &[&'static str]| {
            session_value(&sticky(), target, cookies.iter().copied())
        };
        assert_eq!(find("/a;sid=x.r1/b?c", &["ROUTE=y.r2"]), Some("x.r1"));
        assert_eq!(find("/a;b=1;sid=x.r1?c", &[]), Some("x.r1"));
        assert_eq!(find("/a?b=1&sid=x.r1&c", &[]), Some("x.r1"));
        assert_eq!(find("/sid=x.r1", &["ROUTE=y.r2"]), Some("y.r2"));
        assert_eq!(
            find("/a;sid=?sid=", &["a=b; ROUTE=y.r2; c=d"]),
            Some("y.r2")
        );
        assert_eq!(find("/", &["a=b", "ROUTE = y.r2 "]), Some("y.r2"));
        assert_eq!(find("/", &["a=b,ROUTE=y.r2,c=d"]), Some("y.r2"));
        assert_eq!(
            find("/", &["XROUTE=y.r2; ROUTEX=y.r3; ROUTE=; ROUTE"]),
            None
        );
    }

    #[test]
    fn a_signed_cookie_names_one_member_of_one_balancer() {
        let key = SessionKey::new(&[7; 32]);
        let cookie = key.cookie("b", &url(1), "r1");
        assert!(cookie.starts_with("r1."), "{cookie}");
        assert_eq!(cookie.len(), "r1.".len() + 22);
        assert!(is_signed(&cookie, &key.cookie("b", &url(1), "r1")));
        for other in [
            key.cookie("b", &url(2), "r1"),
            key.cookie("c", &url(1), "r1"),
            key.cookie("b", &url(1), "r2"),
            SessionKey::new(&[8; 32]).cookie("b", &url(1), "r1"),
        ] {
            assert!(!is_signed(&cookie, &other), "{other}");
        }
        assert!(!is_signed("r1.", &cookie) && !is_signed("", &cookie));
    }

    #[test]
    fn a_member_without_a_usable_route_gets_a_name_that_hides_the_url() {
        let key = SessionKey::new(&[7; 32]);
        for route in ["", "a b", "a;b", "ä"] {
            let cookie = key.cookie("b", &url(1), route);
            assert_eq!(cookie.len(), 8 + 1 + 22, "{cookie}");
            assert!(cookie.bytes().all(is_cookie_byte));
            assert!(!cookie.contains("example"));
        }
    }
}
