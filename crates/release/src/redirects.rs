//! Table of redirects: exact paths, and paths with one `*`. Releases and the operator's redirects use one type.
//!
//! The first rule that matches a path decides. Exact paths are looked up by hash, and the beginnings of paths with a `*` by
//! binary search. The cost of a look-up therefore depends on the number of rules that match
//! the beginning of the path, and hardly on the number of all rules.

use base::heap_sort::sort;
use std::collections::HashMap;
use wire::reject::Reject;
use wire::request_target::{encode_path, push_encoded};
use wire::status::Status;

/// Redirect of a table.
#[derive(Clone, Copy, Debug)]
pub struct RedirectRule<'r> {
    /// 301, 302, 303, 307, 308, or 410 for a page that is gone.
    pub status: u16,
    /// True if the redirect also applies where a file exists.
    pub is_forced: bool,
    /// Decoded path with initial slash, and perhaps one `*` for any part of the path.
    pub from: &'r [u8],
    /// Path or URL of the destination. `:splat` stands for the match of `*`. A `?` at the end drops the query of the
    /// request. Empty with status 410.
    pub to: &'r [u8],
}

/// Redirects of a site.
#[derive(Default, Debug)]
pub struct Redirects {
    /// Redirects that also apply where a file exists.
    pub forced: RedirectTable,
    /// Redirects for paths without a file.
    pub unforced: RedirectTable,
}

impl Redirects {
    /// Builds both tables. The error is the index of an invalid rule, and a clause with the reason.
    pub fn new(rules: &[RedirectRule<'_>]) -> Result<Redirects, (usize, &'static str)> {
        let table = |is_forced| {
            let rules = rules.iter().enumerate();
            let rules = rules.filter(|(_, rule)| rule.is_forced == is_forced);
            RedirectTable::new(rules.map(|(nth, rule)| (nth, *rule)))
        };
        Ok(Redirects {
            forced: table(true)?,
            unforced: table(false)?,
        })
    }

    /// Returns the bytes of memory of both tables.
    pub fn memory_bytes(&self) -> usize {
        self.forced.memory_bytes() + self.unforced.memory_bytes()
    }
}

/// Answer of a table for a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redirected {
    /// Redirect to a location.
    To {
        /// Status of the redirect.
        status: Status,
        /// Value of Location.
        location: Vec<u8>,
    },
    /// The page is gone for good.
    Gone,
}

/// Rule that matches a path.
#[derive(Clone, Copy)]
pub struct RedirectMatch<'a> {
    rule: &'a TableRule,
    /// Part of the path that `*` matches.
    splat: &'a [u8],
}

/// Immutable table of redirects.
#[derive(Default, Debug)]
pub struct RedirectTable {
    rules: Box<[TableRule]>,
    /// Numbers of the rules without `*`, by path without a final slash.
    exact: HashMap<Box<[u8]>, u32>,
    /// Rules with `*`, sorted by the part before `*`.
    prefixes: Vec<PrefixRules>,
}

/// Rules with a common part before `*`.
#[derive(Debug)]
struct PrefixRules {
    /// Part before `*`.
    before: Box<[u8]>,
    /// Numbers of the rules in ascending order.
    numbers: Vec<u32>,
    /// Place of the longest other part that `before` begins with.
    shorter: Option<usize>,
}

#[derive(Debug)]
struct TableRule {
    status: Status,
    /// Part of the path after `*`.
    after: Box<[u8]>,
    /// Destination up to `:splat`, valid in a field line.
    to: Box<[u8]>,
    /// Destination after `:splat`; None without `:splat`.
    to_after: Option<Box<[u8]>>,
    /// True if the location gets the query of the request.
    keeps_query: bool,
}

/// Bytes of an entry of a hash table, with the free places of a table that has just grown.
const HASHED_BYTES: usize = 2 * size_of::<(Box<[u8]>, u32)>();

/// Placeholder of a destination for the match of `*`.
const SPLAT: &[u8] = b":splat";

impl RedirectTable {
    /// Builds a table of rules with their numbers. The error is the number of an invalid rule, and a clause with the
    /// reason.
    fn new<'r>(
        rules: impl Iterator<Item = (usize, RedirectRule<'r>)>,
    ) -> Result<RedirectTable, (usize, &'static str)> {
        let mut table = RedirectTable::default();
        let (mut built, mut prefixes) = (Vec::new(), Vec::new());
        for (nth, rule) in rules {
            let number = u32::try_from(built.len()).unwrap_or(u32::MAX);
            let from = rule.from.strip_prefix(b"/").unwrap_or(rule.from);
            let (before, after) = match cut(from, b"*") {
                Some((_, after)) if after.contains(&b'*') => {
                    return Err((nth, "the path of a redirect has more than one `*`"));
                }
                Some((before, after)) => (Some(before), after),
                None => (None, &b""[..]),
            };
            let table_rule = TableRule::new(&rule, after, before.is_some());
            built.push(table_rule.map_err(|what| (nth, what))?);
            match before {
                // The first of two rules for one path decides.
                None => {
                    let path = without_final_slash(from).into();
                    table.exact.entry(path).or_insert(number);
                }
                Some(before) => prefixes.push((before, number)),
            }
        }
        table.prefixes = PrefixRules::sorted(prefixes);
        table.rules = built.into_boxed_slice();
        Ok(table)
    }

    /// Returns the bytes of memory of the table.
    fn memory_bytes(&self) -> usize {
        let rule = |rule: &TableRule| {
            let to_after = rule.to_after.as_ref().map_or(0, |after| after.len());
            size_of::<TableRule>() + rule.after.len() + rule.to.len() + to_after
        };
        let prefix = |rules: &PrefixRules| {
            size_of::<PrefixRules>() + rules.before.len() + 4 * rules.numbers.capacity()
        };
        let exact = self.exact.keys().map(|path| HASHED_BYTES + path.len());
        self.rules.iter().map(rule).sum::<usize>()
            + self.prefixes.iter().map(prefix).sum::<usize>()
            + exact.sum::<usize>()
    }

    /// Returns true for a table without rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the first rule that matches a decoded path. The path has no initial slash.
    pub fn find<'a>(&'a self, path: &'a [u8]) -> Option<RedirectMatch<'a>> {
        let exact = self.exact.get(without_final_slash(path)).copied();
        let (number, splat) = match self.find_prefix(path, exact.unwrap_or(u32::MAX)) {
            Some((number, splat)) => (number, splat),
            None => (exact?, &b""[..]),
        };
        let rule = &self.rules[number as usize];
        Some(RedirectMatch { rule, splat })
    }

    /// Returns the first rule with `*` that matches, if its number is below `bound`, with the match of `*`.
    fn find_prefix<'p>(&self, path: &'p [u8], bound: u32) -> Option<(u32, &'p [u8])> {
        let mut found: Option<(u32, &[u8])> = None;
        let mut consider = |rules: &PrefixRules, splat: &'p [u8]| {
            let bound = found.map_or(bound, |(number, _)| number);
            let mut earlier = rules.numbers.iter().take_while(|number| **number < bound);
            let first = earlier.find_map(|number| {
                let splat = splat.strip_suffix(&*self.rules[*number as usize].after)?;
                Some((*number, splat))
            });
            found = first.or(found);
        };
        // `/old/*` also matches `/old`.
        let folder = self
            .prefixes
            .partition_point(|it| match it.before.strip_prefix(path) {
                Some(rest) => *rest < b"/"[..],
                None => *it.before < *path,
            });
        if let Some(rules) = self.prefixes.get(folder)
            && rules.before.strip_prefix(path) == Some(b"/")
        {
            consider(rules, b"");
        }
        // Each beginning of the path stands before the path, and all texts between the two have the beginning too. So the
        // last text before the path has all beginnings of the path.
        let after = self.prefixes.partition_point(|it| *it.before <= *path);
        let mut next = after.checked_sub(1);
        let last = next.map_or(&[][..], |last| &*self.prefixes[last].before);
        let pairs = last.iter().zip(path);
        let common = pairs.take_while(|(one, other)| one == other).count();
        while let Some(rules) = next.and_then(|nth| self.prefixes.get(nth)) {
            if rules.before.len() <= common {
                consider(rules, &path[rules.before.len()..]);
            }
            next = rules.shorter;
        }
        found
    }
}

impl PrefixRules {
    /// Groups rules with their numbers by the part before `*`.
    fn sorted(mut rules: Vec<(&[u8], u32)>) -> Vec<PrefixRules> {
        sort(&mut rules);
        let mut sorted: Vec<PrefixRules> = Vec::new();
        for (before, number) in rules {
            let mut shorter = sorted.len().checked_sub(1);
            while let Some(nth) = shorter
                && !before.starts_with(&sorted[nth].before)
            {
                shorter = sorted[nth].shorter;
            }
            match sorted.last_mut().filter(|last| *last.before == *before) {
                Some(same) => same.numbers.push(number),
                None => sorted.push(PrefixRules {
                    before: before.into(),
                    numbers: vec![number],
                    shorter,
                }),
            }
        }
        sorted
    }
}

impl TableRule {
    fn new(
        rule: &RedirectRule<'_>,
        after: &[u8],
        has_star: bool,
    ) -> Result<TableRule, &'static str> {
        if rule.status != Reject::GONE.status.0 {
            check_destination(rule.to)?;
        }
        let without_query = rule.to.strip_suffix(b"?");
        let (to, to_after) = match cut(without_query.unwrap_or(rule.to), SPLAT) {
            Some(_) if !has_star => return Err("`:splat` needs a `*` in the path of the redirect"),
            Some((to, to_after)) => (to, Some(field_value(to_after))),
            None => (without_query.unwrap_or(rule.to), None),
        };
        Ok(TableRule {
            status: Status(rule.status),
            after: after.into(),
            to: field_value(to),
            to_after,
            keeps_query: without_query.is_none(),
        })
    }
}

impl RedirectMatch<'_> {
    /// Returns the answer. A location without a query gets the query of the request, unless the rule drops the query.
    pub fn answer(&self, query: Option<&[u8]>) -> Redirected {
        let rule = self.rule;
        if rule.status == Reject::GONE.status {
            return Redirected::Gone;
        }
        let mut location = rule.to.to_vec();
        if let Some(after) = &rule.to_after {
            let mut encoded = Vec::new();
            encode_path(self.splat, &mut encoded);
            push_joined(&mut location, &encoded);
            push_joined(&mut location, after);
        }
        if let Some(query) = query.filter(|_| rule.keeps_query) {
            add_query(&mut location, query);
        }
        Redirected::To {
            status: rule.status,
            location,
        }
    }
}

/// Appends a part of a location, with one slash between two slashes. A location that begins with two slashes would lead
/// to another host.
fn push_joined(location: &mut Vec<u8>, part: &[u8]) {
    let is_double = location.ends_with(b"/") && part.starts_with(b"/");
    location.extend_from_slice(&part[usize::from(is_double)..]);
}

/// Adds a query to a location without a query, before the fragment.
fn add_query(location: &mut Vec<u8>, query: &[u8]) {
    let end = location.iter().position(|byte| *byte == b'#');
    let fragment = location.split_off(end.unwrap_or(location.len()));
    if !location.contains(&b'?') {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location.extend_from_slice(&fragment);
}

/// Checks that a destination is a path of the site or a URL of HTTP, and that the match of `*` cannot choose the host.
fn check_destination(to: &[u8]) -> Result<(), &'static str> {
    let url = [&b"https://"[..], b"http://"].into_iter();
    let host_and_path = url.filter_map(|scheme| to.strip_prefix(scheme)).next();
    match host_and_path {
        None if !to.starts_with(b"/") || to.starts_with(b"//") => {
            Err("the destination of a redirect is neither a path nor a URL of http or https")
        }
        None => Ok(()),
        Some(rest) => {
            let host = rest.split(|byte| b"/?#".contains(byte)).next();
            match host.unwrap_or_default() {
                b"" => Err("the destination of a redirect has no host"),
                host if cut(host, SPLAT).is_some() => Err("`:splat` stands in place of a host"),
                _ => Ok(()),
            }
        }
    }
}

/// Returns the parts before and after the first occurrence of `what`.
fn cut<'t>(text: &'t [u8], what: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = text.windows(what.len()).position(|part| part == what)?;
    Some((&text[..at], &text[at + what.len()..]))
}

/// Returns a path without the final slash, since `/old` and `/old/` have one redirect.
fn without_final_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Percent-encodes the bytes that a field line or a URL cannot contain.
fn field_value(text: &[u8]) -> Box<[u8]> {
    let mut value = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}".contains(byte) => value.push(*byte),
            _ => push_encoded(*byte, &mut value),
        }
    }
    value.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rules: &[(u16, &str, &str)]) -> Result<RedirectTable, (usize, &'static str)> {
        let rules = rules.iter().map(|(status, from, to)| RedirectRule {
            status: *status,
            is_forced: false,
            from: from.as_bytes(),
            to: to.as_bytes(),
        });
        let rules: Vec<_> = rules.collect();
        Redirects::new(&rules).map(|redirects| redirects.unforced)
    }

    /// Returns the status and the location for a target, or an empty text without a redirect.
    fn find(table: &RedirectTable, target: &str) -> String {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        let found = table.find(&path.as_bytes()[1..]);
        match found.map(|found| found.answer(query)) {
            None => String::new(),
            Some(Redirected::Gone) => "410".to_owned(),
            Some(Redirected::To { status, location }) => {
                format!("{} {}", status.0, String::from_utf8_lossy(&location))
            }
        }
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let table = table(&[
            (301, "/old", "/new"),
            (302, "/old", "/never"),
            (308, "/blog/2024", "/archive"),
            (303, "/blog/*", "/news/:splat"),
            (301, "/blog/x", "/never"),
            (
                307,
                "/shop/*/cart",
                "https://shop.example.org/c/:splat?from=old",
            ),
            (301, "/shop/*", "/s"),
            (410, "/gone/*", ""),
            (301, "/top/*", "/:splat"),
            (301, "/a b", "/\u{e9}\r\nx#top"),
            (301, "/wrap/*", "/:splat/more"),
            (301, "/plain", "/bare?"),
            (301, "/plain/*", "/bare/:splat?"),
        ])
        .expect("a table");
        for (target, expected) in [
            ("/old", "301 /new"),
            ("/old/", "301 /new"),
            ("/old/x", ""),
            ("/older", ""),
            ("/", ""),
            ("/blog/2024", "308 /archive"),
            ("/blog/2025/a b", "303 /news/2025/a%20b"),
            ("/blog/x", "303 /news/x"),
            ("/blog", "303 /news/"),
            ("/blo", ""),
            ("/blogs", ""),
            ("/shop/7/cart", "307 https://shop.example.org/c/7?from=old"),
            (
                "/shop/7/cart?a=b",
                "307 https://shop.example.org/c/7?from=old",
            ),
            ("/shop/7/cart/x", "301 /s"),
            ("/old?a=b", "301 /new?a=b"),
            ("/gone/x", "410"),
            // The location stays on the site.
            ("/top//evil.example", "301 /evil.example"),
            ("/wrap/", "301 /more"),
            ("/a b?x=1", "301 /%C3%A9%0D%0Ax?x=1#top"),
            ("/plain?x=1", "301 /bare"),
            ("/plain/a?x=1", "301 /bare/a"),
        ] {
            assert_eq!(find(&table, target), expected, "{target}");
        }
    }

    #[test]
    fn invalid_rules_are_refused() {
        for (from, to, reason) in [
            (
                "/a/*/*",
                "/b",
                "the path of a redirect has more than one `*`",
            ),
            (
                "/a",
                "/b/:splat",
                "`:splat` needs a `*` in the path of the redirect",
            ),
            (
                "/a",
                "//evil.example",
                "the destination of a redirect is neither a path nor a URL of http or https",
            ),
            (
                "/a",
                "javascript:x",
                "the destination of a redirect is neither a path nor a URL of http or https",
            ),
            (
                "/a",
                "https:///x",
                "the destination of a redirect has no host",
            ),
            (
                "/a/*",
                "https://:splat/x",
                "`:splat` stands in place of a host",
            ),
        ] {
            let rules = [(301, "/fine", "/b"), (301, from, to)];
            assert_eq!(table(&rules).err(), Some((1, reason)), "{from} {to}");
        }
    }

    #[test]
    fn a_table_of_many_rules_finds_each() {
        let rules: Vec<(u16, String, String)> = (0..2_000)
            .map(|nth| match nth % 2 {
                0 => (301, format!("/{nth}"), format!("/new/{nth}")),
                _ => (301, format!("/{nth}/*"), format!("/new/{nth}/:splat")),
            })
            .collect();
        let rules: Vec<(u16, &str, &str)> = rules
            .iter()
            .map(|(status, from, to)| (*status, &from[..], &to[..]))
            .collect();
        let table = table(&rules).expect("a table");
        for nth in (0..2_000).step_by(2) {
            assert_eq!(find(&table, &format!("/{nth}")), format!("301 /new/{nth}"));
            let other = nth + 1;
            let found = find(&table, &format!("/{other}/x"));
            assert_eq!(found, format!("301 /new/{other}/x"));
        }
        assert_eq!(find(&table, "/2000"), "");
    }

    proptest::proptest! {
        #[test]
        fn a_look_up_finds_the_first_of_all_matching_rules(
            patterns in proptest::collection::vec("[ab/]{0,4}(\\*[ab]?)?", 0..12),
            path in "[ab/]{0,6}",
        ) {
            let from: Vec<_> = patterns.iter().map(|pattern| format!("/{pattern}")).collect();
            let to: Vec<_> = (0..from.len()).map(|nth| format!("/{nth}")).collect();
            let rules = from.iter().zip(&to);
            let rules: Vec<_> = rules.map(|(from, to)| (301, &**from, &**to)).collect();
            let matches = |pattern: &String| match pattern.split_once('*') {
                None => pattern.strip_suffix('/').unwrap_or(pattern) == path.strip_suffix('/').unwrap_or(&path),
                Some((before, after)) => {
                    let rest = path.strip_prefix(before);
                    rest.is_some_and(|rest| rest.ends_with(after))
                        || (after.is_empty() && format!("{path}/") == before)
                }
            };
            let first = patterns.iter().position(matches);
            let expected = first.map_or(String::new(), |nth| format!("301 /{nth}"));
            let table = table(&rules).unwrap();
            proptest::prop_assert_eq!(find(&table, &format!("/{path}")), expected);
        }
    }

    #[test]
    fn a_look_up_in_a_table_of_nested_beginnings_is_fast() {
        let from: Vec<_> = (0..4_000)
            .map(|nth| format!("/{}*x", "a".repeat(nth)))
            .collect();
        let rules: Vec<_> = from.iter().map(|from| (301, &**from, "/b")).collect();
        let table = table(&rules).unwrap();
        let path = "/".to_owned() + &"a".repeat(4_000);
        let start = std::time::Instant::now();
        (0..1_000).for_each(|_| assert_eq!(find(&table, &path), ""));
        assert!(start.elapsed().as_secs() < 10);
    }
}
