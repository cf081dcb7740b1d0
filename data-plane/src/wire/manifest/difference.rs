//! Difference between two manifests, for a receiver that has the earlier one.
//!
//! A difference is a text with one step for each line: `=N` copies the next N lines of the earlier manifest, `-N` leaves
//! out the next N lines, and `+LINE` adds a line. The receiver compares the digest of the result with the digest of the
//! release, so that a wrong difference does no harm.

use crate::limits::MANIFEST_BYTES_MAX;
use std::collections::HashMap;

/// Returns the difference that makes `new` out of `old`. Lines of a manifest are unique and sorted, so one pass finds a
/// short difference.
pub fn difference(old: &str, new: &str) -> String {
    let lines: Vec<&str> = old.lines().collect();
    let places: HashMap<&str, usize> = lines
        .iter()
        .enumerate()
        .map(|(at, line)| (*line, at))
        .collect();
    let mut steps = Steps::default();
    let mut next = 0;
    for line in new.lines() {
        match places.get(line) {
            Some(at) if *at >= next => {
                steps.push('-', at - next);
                steps.push('=', 1);
                next = at + 1;
            }
            _ => steps.add(line),
        }
    }
    steps.finish()
}

/// Steps of a difference, with equal steps joined.
#[derive(Default)]
struct Steps {
    text: String,
    /// Kind and number of the last step, not yet in the text.
    last: Option<(char, usize)>,
}

impl Steps {
    fn push(&mut self, kind: char, count: usize) {
        if count == 0 {
            return;
        }
        match &mut self.last {
            Some((known, sum)) if *known == kind => *sum += count,
            _ => {
                self.write_last();
                self.last = Some((kind, count));
            }
        }
    }

    fn add(&mut self, line: &str) {
        self.write_last();
        for part in ["+", line, "\n"] {
            self.text.push_str(part);
        }
    }

    fn write_last(&mut self) {
        if let Some((kind, count)) = self.last.take() {
            self.text.push(kind);
            self.text.push_str(&count.to_string());
            self.text.push('\n');
        }
    }

    fn finish(mut self) -> String {
        self.write_last();
        self.text
    }
}

/// Returns the manifest that a difference makes out of `old`; None for a malformed difference, and for a result of more
/// than 32 MiB.
pub fn apply_difference(old: &[u8], steps: &[u8]) -> Option<Vec<u8>> {
    let mut lines = old.split_inclusive(|byte| *byte == b'\n');
    // A growing list would take up to three times the memory of the manifest.
    let mut new = Vec::with_capacity(old.len() + steps.len());
    for step in steps.split_inclusive(|byte| *byte == b'\n') {
        let (kind, rest) = step.split_first()?;
        if *kind == b'+' {
            new.extend_from_slice(rest);
        } else {
            let count = std::str::from_utf8(rest.strip_suffix(b"\n")?).ok()?;
            for _ in 0..count.parse::<usize>().ok()? {
                let line = lines.next()?;
                if *kind == b'=' {
                    new.extend_from_slice(line);
                }
            }
        }
        if !matches!(kind, b'+' | b'-' | b'=') || new.len() > MANIFEST_BYTES_MAX {
            return None;
        }
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_changed_file_is_a_short_difference() {
        let old = "h\na 1\nb 1\nc 1\nd 1\n";
        let new = "h\na 1\nb 2\nc 1\nd 1\ne 1\n";
        let steps = difference(old, new);
        assert_eq!(steps, "=2\n+b 2\n-1\n=2\n+e 1\n");
        let made = apply_difference(old.as_bytes(), steps.as_bytes());
        assert_eq!(made.as_deref(), Some(new.as_bytes()));
    }

    #[test]
    fn malformed_differences_are_refused() {
        for steps in [
            "=6\n",
            "=x\n",
            "=1",
            "*1\n",
            "\n",
            "= 1\n",
            "=-1\n",
            "=99999999999999999999\n",
        ] {
            assert_eq!(
                apply_difference(b"a\nb\n", steps.as_bytes()),
                None,
                "{steps:?}"
            );
        }
        // A difference that copies one part many times cannot grow beyond the earlier manifest: each line is read once.
        assert_eq!(apply_difference(b"a\n", b"=1\n=1\n"), None);
    }

    proptest! {
        #[test]
        fn each_difference_makes_the_new_text(old in "([a-d]\n){0,9}", new in "([a-d]\n){0,9}") {
            let made = apply_difference(old.as_bytes(), difference(&old, &new).as_bytes());
            prop_assert_eq!(made, Some(new.into_bytes()));
        }
    }
}
