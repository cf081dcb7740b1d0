//! Rules for storage by a shared cache (RFC 9111 §3, §4.2; RFC 5861), as pure functions of request and
//! response without clock or I/O.
//!
//! Where the standard leaves a choice, less is stored: `no-cache` and qualified `private` count as
//! `no-store`, and a heuristic lifetime applies only if the operator configured a lifetime.

use super::cookie_rule::CookieRule;
use wire::cache_control::{CacheControl, seconds};
use wire::date::parse_http_date;
use wire::fields::items;
use wire::origin_fields::states_origin;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// The operator's cache rule for a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageCacheRule {
    /// The lifetime of a response without explicit lifetime, in seconds; None disables storage of such
    /// responses.
    pub seconds: Option<u64>,
    /// The seconds of stale use during revalidation, unless the response sets stale-while-revalidate.
    pub stale_while_revalidate: u64,
    /// The seconds of stale use while the handler fails, unless the response sets stale-if-error.
    pub stale_if_error: u64,
    /// The largest content stored, in bytes.
    pub page_bytes: usize,
    /// Which cookies make a page one for a single client.
    pub cookies: CookieRule,
    /// True if pages are saved across restarts.
    pub disk: bool,
    /// The upper bound of a response's lifetime in seconds, also for explicit lifetimes.
    pub seconds_max: u64,
    /// True if this server compresses no response.
    pub is_plain: bool,
    /// Names of request fields to which the handler writes the client's address.
    pub client_fields: Vec<Box<str>>,
}

/// Properties of a GET request relevant for storage.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct RequestFacts {
    /// True if the request has an Authorization field.
    pub authorized: bool,
    /// True if the request has a Cookie field relevant for the response.
    pub personal: bool,
}

/// The times from which the age of a received response is computed (RFC 9111 §4.2.3).
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ResponseTimes {
    /// The Unix time at which the response was received, in seconds.
    pub now: u64,
    /// The time that the handler took to answer, in seconds.
    pub call_seconds: u64,
}

/// A decision about storage of a response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum StoreDecision {
    /// The response may be stored.
    Keep(StorageTerms),
    /// Clients waiting for the call may share the response, but the response is not stored.
    Share,
    /// The response is for the requesting client alone.
    Pass,
}

/// The conditions for use of a stored response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct StorageTerms {
    /// The periods of use.
    pub lifetime: Lifetime,
    /// The age of the response on receipt, in seconds.
    pub age: u64,
    /// True if the response has an explicit lifetime or `public`, and so may also answer requests with
    /// Cookie.
    pub explicit: bool,
    /// True if the response may answer requests with Authorization (RFC 9111 §3.5).
    pub for_authorized: bool,
    /// True if this server does not compress the page.
    pub is_plain: bool,
}

/// The periods of use of a stored response, in seconds. Both stale periods begin at the end of the fresh
/// period.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lifetime {
    /// The length of the fresh period, from age 0.
    pub fresh: u64,
    /// The length of stale use during revalidation.
    pub while_revalidate: u64,
    /// The length of stale use while the handler fails.
    pub if_error: u64,
}

/// The freshness of a stored response at a given age.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Usable without revalidation.
    Fresh,
    /// Stale, usable during a revalidation, to be started now.
    WhileRevalidate,
    /// Stale, usable only while the handler fails.
    IfError,
    /// Not usable.
    Dead,
}

impl Lifetime {
    /// Returns the freshness at an age in seconds.
    pub(crate) fn at(&self, age: u64) -> Freshness {
        match age.checked_sub(self.fresh) {
            None => Freshness::Fresh,
            Some(stale) if stale < self.while_revalidate => Freshness::WhileRevalidate,
            Some(stale) if stale < self.if_error => Freshness::IfError,
            Some(_) => Freshness::Dead,
        }
    }

    /// Returns the age from which the response is no longer usable.
    pub(crate) fn end(&self) -> u64 {
        self.fresh + self.while_revalidate.max(self.if_error)
    }
}

/// Decides whether this response to a GET may be stored; `times` says when the response was received.
pub(crate) fn judge(
    rule: &PageCacheRule,
    asked: RequestFacts,
    status: Status,
    fields: &ResponseFields,
    times: ResponseTimes,
) -> StoreDecision {
    let mut control = CacheControl::read(values(fields, "Cache-Control"));
    if control.must_understand {
        // must-understand overrides no-store if the cache knows the status (RFC 9111 §5.2.2.3).
        control.no_store = !UNDERSTOOD_STATUSES.contains(&status.0);
    }
    if is_for_one(rule, &control, asked, fields) {
        return StoreDecision::Pass;
    }
    let unkept = if status.0 >= 500 && asked == RequestFacts::default() {
        StoreDecision::Share
    } else {
        StoreDecision::Pass
    };
    let said = said_lifetime(&control, fields, times.now);
    let explicit = said.is_some() || control.public;
    let fresh = match (said, rule.seconds) {
        (Some(fresh), _) if !UNSTORED_STATUSES.contains(&status.0) => fresh,
        (None, Some(guess)) if GUESSED_STATUSES.contains(&status.0) => guess,
        _ => return unkept,
    };
    if asked.personal && !explicit {
        return StoreDecision::Pass;
    }
    let age = age(fields, times);
    let lifetime = lifetime(rule, &control, fresh.min(rule.seconds_max), status);
    if lifetime.end() <= age {
        return unkept;
    }
    StoreDecision::Keep(StorageTerms {
        lifetime,
        age,
        explicit,
        for_authorized: allows_authorized(&control),
        is_plain: rule.is_plain,
    })
}

/// Computes the age of a response on receipt, in seconds (RFC 9111 §4.2.3). The first member of an Age
/// list counts, and an invalid Age is 0 (§5.1). The duration of the call is added only to an Age field,
/// because the origin may have computed the Age when the request arrived. Without an Age field the
/// duration does not count: a script that runs longer than its page stays fresh would else run anew for
/// each client.
pub(crate) fn age(fields: &ResponseFields, times: ResponseTimes) -> u64 {
    let said = values(fields, "Age").flat_map(items).next();
    let said = said.map_or(0, |age| seconds(age) + times.call_seconds);
    said.max(times.now.saturating_sub(made(fields, times.now)))
}

/// Returns the Unix time in the first Date field of a response; `now` if the field is missing or
/// invalid.
fn made(fields: &ResponseFields, now: u64) -> u64 {
    let made = values(fields, "Date").next().and_then(parse_http_date);
    made.unwrap_or(now)
}

/// Returns true if the response must not be shared (RFC 9111 §3). A response with Set-Cookie is included
/// because an operator never means to share a cookie.
fn is_for_one(
    rule: &PageCacheRule,
    control: &CacheControl,
    asked: RequestFacts,
    fields: &ResponseFields,
) -> bool {
    control.no_store
        || control.no_cache
        || control.private
        || (asked.authorized && !allows_authorized(control))
        || values(fields, "Set-Cookie").next().is_some()
        || varied(fields).any(|name| is_unknown(rule, name))
}

/// Returns true if the response may answer requests with Authorization (RFC 9111 §3.5).
fn allows_authorized(control: &CacheControl) -> bool {
    control.public || control.must_revalidate || control.s_maxage.is_some()
}

/// Returns true for a member of Vary that stands for request fields unknown to the cache: `*` (RFC 9111 §4.1), and
/// fields that a proxy writes after the cache. Pages are stored separately for HTTP and HTTPS, which
/// X-Forwarded-Proto states.
fn is_unknown(rule: &PageCacheRule, name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    name == b"*"
        || is("Via")
        || (states_origin(name) && !is("X-Forwarded-Proto"))
        || rule.client_fields.iter().any(|known| is(known))
}

/// Returns the names of request fields in Vary.
pub(crate) fn varied(fields: &ResponseFields) -> impl Iterator<Item = &[u8]> {
    values(fields, "Vary").flat_map(items)
}

/// Returns the explicit lifetime of a response in seconds (RFC 9111 §4.2.1).
fn said_lifetime(control: &CacheControl, fields: &ResponseFields, now: u64) -> Option<u64> {
    if let Some(seconds) = control.s_maxage.or(control.max_age) {
        return Some(seconds);
    }
    let mut expires = values(fields, "Expires");
    let first = expires.next()?;
    // An invalid or repeated Expires field counts as a time in the past (RFC 9111 §5.3).
    let until = parse_http_date(first).filter(|_| expires.next().is_none());
    Some(until.unwrap_or(0).saturating_sub(made(fields, now)))
}

/// Returns the periods of use (RFC 9111 §4.2.4, RFC 5861). Directives of the response override the
/// operator's rule, and a prohibition of stale use by the response is absolute.
fn lifetime(rule: &PageCacheRule, control: &CacheControl, fresh: u64, status: Status) -> Lifetime {
    let never = control.must_revalidate || control.proxy_revalidate;
    // s-maxage also forbids stale use (RFC 9111 §5.2.2.10), except for the stale-* directives of the
    // response itself. A response that is stale at once is not meant to be used stale. An error
    // response is not used longer than the response says, because the handler may have recovered.
    let unsaid = control.s_maxage.is_none() && fresh > 0 && status.0 < 500;
    let grace = |said: Option<u64>, rule: u64| match said {
        _ if never => 0,
        Some(seconds) => seconds,
        None if unsaid => rule,
        None => 0,
    };
    Lifetime {
        fresh,
        while_revalidate: grace(control.stale_while_revalidate, rule.stale_while_revalidate),
        if_error: grace(control.stale_if_error, rule.stale_if_error),
    }
}

/// Returns the values of all fields with the given name.
pub(crate) fn values<'f>(
    fields: &'f ResponseFields,
    name: &'f str,
) -> impl Iterator<Item = &'f [u8]> {
    fields.all(name)
}

/// Statuses that are never stored: 206 and 304 are not whole responses, and RFC 6585 forbids storage of
/// 428, 429, 431 and 511. A response with any other final status is stored if the response says for how
/// long (RFC 9111 §3).
const UNSTORED_STATUSES: [u16; 6] = [206, 304, 428, 429, 431, 511];
/// Final statuses for which this cache implements all caching rules of RFC 9110.
const UNDERSTOOD_STATUSES: [u16; 14] = [
    200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501,
];
/// Statuses that are stored for the operator's time if the response gives none: a script means these
/// statuses as pages.
const GUESSED_STATUSES: [u16; 6] = [200, 203, 301, 308, 404, 410];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 784_111_777;
    /// The time 60 s after `NOW`.
    const LATER: &str = "Sun, 06 Nov 1994 08:50:37 GMT";

    fn obeying() -> PageCacheRule {
        PageCacheRule {
            seconds: None,
            stale_while_revalidate: 0,
            stale_if_error: 0,
            page_bytes: 1 << 20,
            cookies: CookieRule::Personal,
            disk: false,
            seconds_max: u64::MAX,
            is_plain: false,
            client_fields: vec!["X-Visitor".into()],
        }
    }

    fn keeping() -> PageCacheRule {
        PageCacheRule {
            seconds: Some(10),
            stale_while_revalidate: 20,
            stale_if_error: 30,
            ..obeying()
        }
    }

    /// Judges a response with the given `Name: value` lines. The result has the form
    /// `fresh+while_revalidate+if_error`, followed by the other terms.
    fn told(rule: &PageCacheRule, asked: RequestFacts, status: u16, lines: &[&str]) -> String {
        let mut fields = ResponseFields::new();
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a field");
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let times = ResponseTimes {
            now: NOW,
            call_seconds: 5,
        };
        match judge(rule, asked, Status(status), &fields, times) {
            StoreDecision::Pass => "pass".into(),
            StoreDecision::Share => "share".into(),
            StoreDecision::Keep(terms) => {
                let Lifetime {
                    fresh,
                    while_revalidate,
                    if_error,
                } = terms.lifetime;
                let explicit = if terms.explicit { " explicit" } else { "" };
                let all = if terms.for_authorized { " all" } else { "" };
                let age = match terms.age {
                    0 => String::new(),
                    age => format!(" age {age}"),
                };
                format!("{fresh}+{while_revalidate}+{if_error}{explicit}{all}{age}")
            }
        }
    }

    #[test]
    fn the_lifetime_follows_the_response() {
        let expires = format!("Expires: {LATER}");
        let dated = |time| format!("Date: {}", LATER.replace("50:37", time));
        let made = dated("49:47");
        #[rustfmt::skip] // A table reads better in columns.
        let table: &[(u16, &[&str], &str)] = &[
            (200, &[], "pass"),
            (200, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (200, &["cache-control: MAX-AGE=60"], "60+0+0 explicit"),
            (200, &["Cache-Control: max-age=60, s-maxage=5"], "5+0+0 explicit all"),
            (200, &["Cache-Control: s-maxage=0, max-age=60"], "pass"),
            (200, &["Cache-Control: max-age=0"], "pass"),
            (200, &["Cache-Control: max-age=0, stale-while-revalidate=9"], "0+9+0 explicit"),
            (200, &["Cache-Control: max-age=5, stale-if-error=9"], "5+0+9 explicit"),
            (200, &["Cache-Control: s-maxage=5, stale-while-revalidate=9"], "5+9+0 explicit all"),
            (200, &["Cache-Control: max-age=5, stale-if-error=9, must-revalidate"], "5+0+0 explicit all"),
            (200, &["Cache-Control: max-age=5, stale-if-error=9, proxy-revalidate"], "5+0+0 explicit"),
            (200, &["Cache-Control: no-store, max-age=60"], "pass"),
            (200, &["Cache-Control: no-cache, max-age=60"], "pass"),
            (200, &["Cache-Control: private, max-age=60"], "pass"),
            (200, &["Cache-Control: private=\"x\"", "Cache-Control: max-age=60"], "pass"),
            (200, &["Cache-Control: max-age=60", "Set-Cookie: a=b"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: *"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: Accept, *"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: Accept"], "60+0+0 explicit"),
            // Fields that a proxy writes after the cache.
            (200, &["Cache-Control: max-age=60", "Vary: X-Forwarded-For"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: Accept, forwarded"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: X-Real-IP"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: via"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: x-visitor"], "pass"),
            (200, &["Cache-Control: max-age=60", "Vary: X-Forwarded-Proto"], "60+0+0 explicit"),
            (200, &["Cache-Control: max-age=60", "Content-Range: bytes 0-1/2"], "60+0+0 explicit"),
            (206, &["Cache-Control: max-age=60"], "pass"),
            (304, &["Cache-Control: max-age=60"], "pass"),
            (200, &["Cache-Control: public"], "pass"),
            (200, &[&expires], "60+0+0 explicit"),
            (200, &[&expires, &made], "50+0+0 explicit"),
            (200, &["Expires: 0"], "pass"),
            (200, &[&expires, &expires], "pass"),
            (200, &["Cache-Control: max-age=0", &expires], "pass"),
            (200, &["Cache-Control: max-age=7", &expires], "7+0+0 explicit"),
            (200, &["Expires: sun, 06 nov 1994 08:50:37 gmt"], "60+0+0 explicit"),
            // These cases assume a call of 5 seconds.
            (200, &["Cache-Control: max-age=60", "Age: 9"], "60+0+0 explicit age 14"),
            (200, &["Cache-Control: max-age=60", "Age: 54"], "60+0+0 explicit age 59"),
            (200, &["Cache-Control: max-age=60", "Age: 55"], "pass"),
            (200, &["Cache-Control: max-age=60", "Age: 7200, 0"], "pass"),
            (200, &["Cache-Control: max-age=60", "Age: 7200", "Age: 0"], "pass"),
            (200, &["Cache-Control: max-age=60", "Age: 1, 7200"], "60+0+0 explicit age 6"),
            (200, &["Cache-Control: max-age=60", "Age: x"], "60+0+0 explicit age 5"),
            (200, &["Cache-Control: max-age=60", "Age: -7200"], "60+0+0 explicit age 5"),
            // Date fields: a minute before now, 20 seconds before now, and later than now.
            (200, &["Cache-Control: max-age=60", &dated("48:37")], "pass"),
            (200, &["Cache-Control: max-age=60", &dated("49:17")], "60+0+0 explicit age 20"),
            (200, &["Cache-Control: max-age=60", &dated("49:17"), "Age: 4"], "60+0+0 explicit age 20"),
            (200, &["Cache-Control: max-age=60", &dated("49:17"), "Age: 30"], "60+0+0 explicit age 35"),
            (200, &["Cache-Control: max-age=60", &dated("59:59")], "60+0+0 explicit"),
            (200, &["Cache-Control: max-age=60", "Date: yesterday"], "60+0+0 explicit"),
            (200, &[&expires, &dated("51:37")], "pass"),
            (200, &[&expires, &dated("49:57"), "Age: 34"], "40+0+0 explicit age 39"),
            (200, &[&expires, &dated("49:57"), "Age: 35"], "pass"),
            (200, &["Cache-Control: no-store, must-understand, max-age=60"], "60+0+0 explicit"),
            (200, &["Cache-Control: must-understand, max-age=60"], "60+0+0 explicit"),
            (299, &["Cache-Control: must-understand, max-age=60"], "pass"),
            (299, &["Cache-Control: no-store, must-understand, max-age=60"], "pass"),
            (200, &["Cache-Control: private, must-understand, max-age=60"], "pass"),
            (302, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (404, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (299, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (400, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (429, &["Cache-Control: max-age=60"], "pass"),
            (511, &["Cache-Control: max-age=60"], "share"),
            (501, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (501, &[], "share"),
            (500, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (500, &["Cache-Control: max-age=0"], "share"),
            (500, &["Cache-Control: max-age=60, private"], "pass"),
            (503, &[], "share"),
            (503, &["Set-Cookie: a=b"], "pass"),
            (500, &["Cache-Control: no-store"], "pass"),
        ];
        for (status, lines, expected) in table {
            let told = told(&obeying(), RequestFacts::default(), *status, lines);
            assert_eq!(told, *expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn the_lifetime_follows_the_route() {
        #[rustfmt::skip] // A table reads better in columns.
        let table: &[(u16, &[&str], &str)] = &[
            (200, &[], "10+20+30"),
            (200, &["Cache-Control: public"], "10+20+30 explicit all"),
            (200, &["Cache-Control: must-revalidate"], "10+0+0 all"),
            (200, &["Cache-Control: max-age=60"], "60+20+30 explicit"),
            (200, &["Cache-Control: s-maxage=60"], "60+0+0 explicit all"),
            (200, &["Cache-Control: max-age=60, stale-if-error=0"], "60+20+0 explicit"),
            (200, &["Cache-Control: no-store"], "pass"),
            (200, &["Cache-Control: private"], "pass"),
            (200, &["Expires: 0"], "pass"),
            (200, &["Cache-Control: max-age=0"], "pass"),
            (200, &["Set-Cookie: a=b"], "pass"),
            (301, &[], "10+20+30"),
            (302, &[], "pass"),
            (404, &[], "10+20+30"),
            (403, &[], "pass"),
            (500, &[], "share"),
            (500, &["Cache-Control: max-age=60"], "60+0+0 explicit"),
            (500, &["Cache-Control: max-age=60, stale-if-error=9"], "60+0+9 explicit"),
        ];
        for (status, lines, expected) in table {
            let told = told(&keeping(), RequestFacts::default(), *status, lines);
            assert_eq!(told, *expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn a_request_with_credentials_needs_a_shared_response() {
        let authorized = RequestFacts {
            authorized: true,
            personal: false,
        };
        let personal = RequestFacts {
            authorized: false,
            personal: true,
        };
        #[rustfmt::skip] // A table reads better in columns.
        let table: &[(RequestFacts, &[&str], &str)] = &[
            (authorized, &[], "pass"),
            (authorized, &["Cache-Control: max-age=60"], "pass"),
            (authorized, &["Cache-Control: max-age=60, public"], "60+20+30 explicit all"),
            (authorized, &["Cache-Control: s-maxage=60"], "60+0+0 explicit all"),
            (authorized, &["Cache-Control: max-age=60, must-revalidate"], "60+0+0 explicit all"),
            (authorized, &["Cache-Control: max-age=60, public, private"], "pass"),
            (personal, &[], "pass"),
            (personal, &["Cache-Control: max-age=60"], "60+20+30 explicit"),
            (personal, &["Cache-Control: public"], "10+20+30 explicit all"),
            (personal, &["Cache-Control: must-revalidate"], "pass"),
        ];
        for (asked, lines, expected) in table {
            let told = told(&keeping(), *asked, 200, lines);
            assert_eq!(told, *expected, "{asked:?} {lines:?}");
        }
        // An error response may concern the requesting client alone.
        assert_eq!(told(&keeping(), personal, 500, &[]), "pass");
        let public = ["Cache-Control: public"];
        assert_eq!(told(&keeping(), authorized, 500, &public), "pass");
    }

    #[test]
    fn the_freshness_of_a_page_depends_on_its_age() {
        let lifetime = Lifetime {
            fresh: 10,
            while_revalidate: 5,
            if_error: 20,
        };
        for (age, expected) in [
            (0, Freshness::Fresh),
            (9, Freshness::Fresh),
            (10, Freshness::WhileRevalidate),
            (14, Freshness::WhileRevalidate),
            (15, Freshness::IfError),
            (29, Freshness::IfError),
            (30, Freshness::Dead),
        ] {
            assert_eq!(lifetime.at(age), expected, "{age}");
        }
        assert_eq!(lifetime.end(), 30);
    }
}
