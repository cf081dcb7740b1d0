//! Responses without a line in the access log, by path and status (the key `skip`).

use release::glob::Glob;

/// Set of the statuses from 0 to 1023.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatusSet([u64; 16]);

impl StatusSet {
    /// Adds the statuses from `first` to `last`.
    pub fn add(&mut self, first: u16, last: u16) {
        for status in first..=last {
            if let Some(word) = self.0.get_mut(usize::from(status / 64)) {
                *word |= 1 << (status % 64);
            }
        }
    }

    /// Returns true if the set has the status.
    pub fn contains(&self, status: u16) -> bool {
        let word = self.0.get(usize::from(status / 64));
        word.is_some_and(|word| word >> (status % 64) & 1 != 0)
    }

    /// Returns true if the set has no status.
    pub(crate) fn is_empty(&self) -> bool {
        *self == StatusSet::default()
    }

    fn merge(&mut self, other: &StatusSet) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }
}

/// Responses that one rule leaves out of the access log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkipRule {
    /// Patterns of the decoded path, one of which must match; empty for all requests.
    pub paths: Vec<Glob>,
    /// Statuses of the responses.
    pub statuses: StatusSet,
}

impl SkipRule {
    /// Returns true if the rule applies to a request with the path in all of its readings. A request that the parser
    /// refused has no path.
    fn covers(&self, readings: &[&[u8]]) -> bool {
        let is_covered = |path: &&[u8]| self.paths.iter().any(|glob| glob.matches(path));
        self.paths.is_empty() || (!readings.is_empty() && readings.iter().all(is_covered))
    }
}

/// Returns true if a rule leaves the response out.
pub(super) fn skips(rules: &[SkipRule], readings: &[&[u8]], status: u16) -> bool {
    rules
        .iter()
        .any(|rule| rule.statuses.contains(status) && rule.covers(readings))
}

/// Returns the statuses for which a response to the request is left out; `None` for none.
pub(super) fn skipped_statuses(rules: &[SkipRule], readings: &[&[u8]]) -> Option<Box<StatusSet>> {
    let mut skipped = StatusSet::default();
    for rule in rules.iter().filter(|rule| rule.covers(readings)) {
        skipped.merge(&rule.statuses);
    }
    (!skipped.is_empty()).then(|| Box::new(skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(paths: &[&str], statuses: &[(u16, u16)]) -> SkipRule {
        let mut set = StatusSet::default();
        for (first, last) in statuses {
            set.add(*first, *last);
        }
        SkipRule {
            paths: paths.iter().map(|it| Glob::parse(it).unwrap()).collect(),
            statuses: set,
        }
    }

    #[test]
    fn a_rule_needs_both_the_path_and_the_status() {
        let rules = [
            rule(&["/health", "/static/**"], &[(200, 299), (304, 304)]),
            rule(&["*.png"], &[(0, 1023)]),
            rule(&[], &[(499, 499)]),
        ];
        for (path, status, is_skipped) in [
            (Some("/health"), 200, true),
            (Some("/health"), 304, true),
            (Some("/health"), 503, false),
            (Some("/healthy"), 200, false),
            (Some("/static/"), 200, true),
            (Some("/static/a/b.css"), 299, true),
            (Some("/static"), 200, false),
            (Some("/a/b.png"), 404, true),
            (Some("/a/b.png"), 999, true),
            (Some("/"), 499, true),
            (None, 499, true),
            (None, 400, false),
            (None, 200, false),
        ] {
            let path = path.map(str::as_bytes);
            assert_eq!(
                skips(&rules, path.as_slice(), status),
                is_skipped,
                "{path:?} {status}"
            );
            let kept = skipped_statuses(&rules, path.as_slice());
            assert!(kept.is_some(), "the last rule covers every request");
            assert_eq!(kept.unwrap().contains(status), is_skipped, "{path:?}");
        }
        assert_eq!(skipped_statuses(&rules[..2], &[b"/"]), None);
        assert_eq!(skipped_statuses(&[], &[b"/"]), None);
        // The set has no bit for a status of four digits.
        assert!(!skips(&rules, &[b"/a.png"], 1024));
    }
}
