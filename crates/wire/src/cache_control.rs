//! Cache-Control of a response (RFC 9111 §5.2.2, RFC 5861).
//!
//! Every doubt is resolved towards less caching: a malformed number counts as 0, the smaller of two numbers
//! counts, and a directive limited to some fields (`private="…"`) applies to the whole response.

use super::fields::items;
use crate::byte_search;

/// Directives with a meaning for a shared cache.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct CacheControl {
    /// `no-store`: no cache may store the response.
    pub no_store: bool,
    /// `no-cache`: a stored response needs validation before each use.
    pub no_cache: bool,
    /// `private`: for a single user; a shared cache may not store the response.
    pub private: bool,
    /// `must-understand`: a cache with knowledge of the status may store the response despite `no-store`;
    /// no other cache may.
    pub must_understand: bool,
    /// `public`: may be stored and sent to every client, even if the request had Authorization.
    pub public: bool,
    /// `must-revalidate`: never sent once stale.
    pub must_revalidate: bool,
    /// `proxy-revalidate`: never sent by a shared cache once stale.
    pub proxy_revalidate: bool,
    /// `max-age` in seconds.
    pub max_age: Option<u64>,
    /// `s-maxage` in seconds; overrides `max-age` in shared caches.
    pub s_maxage: Option<u64>,
    /// `stale-while-revalidate` in seconds.
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` in seconds.
    pub stale_if_error: Option<u64>,
}

impl CacheControl {
    /// Reads the values of all Cache-Control lines of a response.
    pub fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> CacheControl {
        let mut control = CacheControl::default();
        for directive in lines.flat_map(items) {
            let (name, value) = match byte_search::find(directive, b'=', 0) {
                Some(at) => (&directive[..at], &directive[at + 1..]),
                None => (directive, &[][..]),
            };
            control.note(byte_search::trim(name), byte_search::trim(value));
        }
        control
    }

    fn note(&mut self, name: &[u8], value: &[u8]) {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        let flags = [
            ("no-store", &mut self.no_store),
            ("no-cache", &mut self.no_cache),
            ("private", &mut self.private),
            ("must-understand", &mut self.must_understand),
            ("public", &mut self.public),
            ("must-revalidate", &mut self.must_revalidate),
            ("proxy-revalidate", &mut self.proxy_revalidate),
        ];
        for (word, flag) in flags {
            *flag |= is(word);
        }
        let times = [
            ("max-age", &mut self.max_age),
            ("s-maxage", &mut self.s_maxage),
            ("stale-while-revalidate", &mut self.stale_while_revalidate),
            ("stale-if-error", &mut self.stale_if_error),
        ];
        for (word, time) in times {
            if is(word) {
                let seconds = seconds(value);
                *time = Some(time.map_or(seconds, |before| before.min(seconds)));
            }
        }
    }
}

/// Reads delta-seconds (RFC 9111 §1.2.2), quoted or not. A malformed number is 0; a larger number than
/// `SECONDS_MAX` becomes `SECONDS_MAX`.
pub fn seconds(value: &[u8]) -> u64 {
    let quoted = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let digits = quoted.unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    digits.iter().fold(0, |number, digit| {
        (number * 10 + u64::from(digit - b'0')).min(SECONDS_MAX)
    })
}

/// Value that stands for infinity in RFC 9111 §1.2.2.
pub const SECONDS_MAX: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read() {
        let none = CacheControl::default();
        #[rustfmt::skip] // Keeps the columns of the table.
        let table: &[(&[&str], CacheControl)] = &[
            (&[], none),
            (&["max-age=60"], CacheControl { max_age: Some(60), ..none }),
            (&["Max-Age = 60 , PUBLIC"], CacheControl { max_age: Some(60), public: true, ..none }),
            (&["max-age=\"60\""], CacheControl { max_age: Some(60), ..none }),
            (&["max-age"], CacheControl { max_age: Some(0), ..none }),
            (&["max-age=-1"], CacheControl { max_age: Some(0), ..none }),
            (&["max-age=1x"], CacheControl { max_age: Some(0), ..none }),
            (&["max-age=99999999999999999999"], CacheControl { max_age: Some(SECONDS_MAX), ..none }),
            (&["max-age=60", "max-age=5, max-age=7"], CacheControl { max_age: Some(5), ..none }),
            (&["s-maxage=1, stale-while-revalidate=2, stale-if-error=3"], CacheControl {
                s_maxage: Some(1), stale_while_revalidate: Some(2), stale_if_error: Some(3), ..none
            }),
            (&["private=\"x-a, x-b\", no-cache=\"set-cookie\""], CacheControl {
                private: true, no_cache: true, ..none
            }),
            (&["no-store, must-revalidate", "proxy-revalidate"], CacheControl {
                no_store: true, must_revalidate: true, proxy_revalidate: true, ..none
            }),
            (&["No-Store, Must-Understand"], CacheControl {
                no_store: true, must_understand: true, ..none
            }),
            (&["xno-store, no-storex, a=\"no-store\""], none),
        ];
        for (lines, expected) in table {
            let read = CacheControl::read(lines.iter().map(|line| line.as_bytes()));
            assert_eq!(read, *expected, "{lines:?}");
        }
    }
}
