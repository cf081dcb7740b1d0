//! Choice of a pair by server name: the exact name, else the wildcard of the parent, else the pair for any
//! name. A handshake looks up the name once, without allocation.

use std::collections::HashMap;

/// Table from names to indices of pairs.
#[derive(Debug, Default)]
pub(super) struct ServerNames {
    exact: HashMap<Box<str>, usize>,
    /// Wildcard names, keyed by the parent after `*.`.
    wildcard: HashMap<Box<str>, usize>,
    any: Option<usize>,
}

/// Result of the choice for a ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameMatch {
    /// Index of the pair.
    Pair(usize),
    /// The client sent no name, and no pair is for any name.
    SelfSigned,
    /// No pair is for the name.
    Unknown,
}

impl ServerNames {
    /// Adds a name (`*` means any name). Returns false if another pair has the name; the other pair keeps
    /// the name.
    pub(super) fn add(&mut self, name: &str, pair: usize) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name == "*" {
            return *self.any.get_or_insert(pair) == pair;
        }
        let (table, key) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wildcard, parent),
            None => (&mut self.exact, name.as_str()),
        };
        *table.entry(key.into()).or_insert(pair) == pair
    }

    /// Returns the pair for the client's server name. Case and the root's dot at the end have no effect.
    pub(super) fn choose(&self, name: Option<&str>) -> NameMatch {
        let Some(name) = name else {
            return self.any.map_or(NameMatch::SelfSigned, NameMatch::Pair);
        };
        let pair = self.named(name).or(self.any);
        pair.map_or(NameMatch::Unknown, NameMatch::Pair)
    }

    fn named(&self, name: &str) -> Option<usize> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        let name = std::str::from_utf8(lower).ok()?;
        self.exact.get(name).copied().or_else(|| {
            let (label, parent) = name.split_once('.')?;
            let pair = self.wildcard.get(parent)?;
            (!label.is_empty()).then_some(*pair)
        })
    }
}

/// Longest domain name as text (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_precede_wildcards_and_any() {
        let mut names = ServerNames::default();
        assert!(names.add("WWW.example.org", 0));
        assert!(names.add("*.example.org", 1));
        assert!(!names.add("www.EXAMPLE.org.", 2));
        for (name, chosen) in [
            (Some("www.example.org"), NameMatch::Pair(0)),
            (Some("wWw.Example.ORG."), NameMatch::Pair(0)),
            (Some("other.example.org"), NameMatch::Pair(1)),
            (Some("deep.other.example.org"), NameMatch::Unknown),
            (Some("example.org"), NameMatch::Unknown),
            (Some(".example.org"), NameMatch::Unknown),
            (Some("*"), NameMatch::Unknown),
            (Some(""), NameMatch::Unknown),
            (None, NameMatch::SelfSigned),
        ] {
            assert_eq!(names.choose(name), chosen, "{name:?}");
        }
        assert_eq!(names.choose(Some(&"a".repeat(5000))), NameMatch::Unknown);
        assert!(names.add("*", 3));
        assert!(!names.add("*", 4));
    }

    #[test]
    fn the_pair_for_any_name_takes_all_other_names() {
        let mut names = ServerNames::default();
        names.add("*", 0);
        assert_eq!(names.choose(None), NameMatch::Pair(0));
        assert_eq!(names.choose(Some("whatever.test")), NameMatch::Pair(0));
    }
}
