//! Cookies and stored pages: which cookies of a request make its page one for a single client.
//!
//! An application gives every client a cookie of its session or for statistics, although its pages are the same for all.
//! Only the operator knows which cookies matter. The handler gets no cookie with a call that may fill the cache, so a
//! stored page can't depend on a cookie, even where the rule or a client is wrong about the cookies.

use release::glob::Glob;
use wire::fields::Fields;

/// The operator's rule about cookies for a route with the page cache.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CookieRule {
    /// A page may depend on any cookie.
    #[default]
    Personal,
    /// No page depends on a cookie.
    Ignored,
    /// A request with a cookie by one of the names passes the cache by. No page depends on another cookie.
    Bypassed(Vec<Glob>),
}

impl CookieRule {
    /// Returns true if a call that may fill the cache has no cookie.
    pub(super) fn hides_cookies(&self) -> bool {
        *self != CookieRule::Personal
    }

    /// Returns true if the request has a cookie that makes its page one for a single client.
    pub(super) fn bypasses(&self, fields: Fields<'_>) -> bool {
        let CookieRule::Bypassed(globs) = self else {
            return false;
        };
        let mut names = fields.all("cookie").flat_map(cookie_names);
        names.any(|name| globs.iter().any(|glob| glob.matches(name)))
    }
}

/// Returns the names of the cookies in a Cookie field (RFC 6265 §4.2.1). A cookie without `=` counts by its value, since
/// servers disagree about its name.
fn cookie_names(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b';').map(|cookie| {
        let name = cookie.split(|byte| *byte == b'=').next();
        name.unwrap_or(cookie).trim_ascii()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_cookies_pass_the_cache_by() {
        let globs = ["wordpress_logged_in_*", "comment_author_*", "cart"];
        let globs = globs.map(|glob| Glob::parse(glob).expect("a glob"));
        let rule = CookieRule::Bypassed(globs.into());
        for (lines, bypasses) in [
            (&b""[..], false),
            (b"Cookie: _ga=1; session=wordpress_logged_in_a\r\n", false),
            (b"Cookie: _ga=1; wordpress_logged_in_a=b\r\n", true),
            (b"Cookie: _ga=1;wordpress_logged_in_a=b\r\n", true),
            (b"Cookie:  wordpress_logged_in_ = b\r\n", true),
            (b"Cookie: wordpress_logged_in_a\r\n", true),
            (b"cookie: a=b\r\nCOOKIE: c=d\r\ncookie: cart=1\r\n", true),
            (b"Cookie: cart2=1; a_cart=1; Cart=1\r\n", false),
            (b"Cookie: ;;=cart; =;\r\n", false),
            (b"X-Cookie: cart=1\r\n", false),
        ] {
            let shown = lines.escape_ascii();
            assert_eq!(rule.bypasses(Fields(lines)), bypasses, "{shown}");
            assert!(!CookieRule::Ignored.bypasses(Fields(lines)), "{shown}");
            assert!(!CookieRule::Personal.bypasses(Fields(lines)), "{shown}");
        }
        assert!(rule.hides_cookies() && CookieRule::Ignored.hides_cookies());
        assert!(!CookieRule::Personal.hides_cookies());
    }
}
