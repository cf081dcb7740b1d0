//! Difference between two manifests, for a receiver that has the earlier one.
//!
//! A difference is a text with one step for each line: `=N` copies the next N lines of the earlier manifest, `-N` leaves
//! out the next N lines, and `+LINE` adds a line. The receiver compares the digest of the result with the digest of the
//! release, so that a wrong difference does no harm.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};

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

/// Passes the manifest that the difference `steps` makes out of `old` to `append`, in parts. Returns false for a malformed
/// difference. Neither text nor any line of them is in memory as a whole. `append` bounds the length of the manifest: each
/// line of `old` is read once, so a difference makes at most the bytes of both texts.
pub fn apply_difference<E: From<io::Error>>(
    mut old: impl BufRead,
    mut steps: impl BufRead,
    mut append: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let mut kind = [0];
    while steps.read(&mut kind)? > 0 {
        let is_copied = match kind {
            [b'+'] => {
                each_part(&mut steps, &mut append)?;
                continue;
            }
            [b'='] => true,
            [b'-'] => false,
            _ => return Ok(false),
        };
        let Some(lines) = count(&mut steps)? else {
            return Ok(false);
        };
        for _ in 0..lines {
            let has_line = if is_copied {
                each_part(&mut old, &mut append)?
            } else {
                each_part(&mut old, &mut |_| Ok::<(), E>(()))?
            };
            if !has_line {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Calls `see` for the parts of the next line, with the line feed. Returns false at the end of the text.
fn each_part<E: From<io::Error>>(
    text: &mut impl BufRead,
    see: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let mut has_bytes = false;
    loop {
        let buffered = text.fill_buf()?;
        let end = buffered.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffered.len(), |at| at + 1);
        see(&buffered[..length])?;
        has_bytes |= length > 0;
        let is_last = length == 0 || end.is_some();
        text.consume(length);
        if is_last {
            return Ok(has_bytes);
        }
    }
}

/// Reads a number of lines up to the line feed; None for another text.
fn count(steps: &mut impl BufRead) -> io::Result<Option<usize>> {
    let mut digits = Vec::new();
    steps.take(COUNT_BYTES_MAX).read_until(b'\n', &mut digits)?;
    let digits = digits.strip_suffix(b"\n");
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    Ok(digits.and_then(|digits| digits.parse().ok()))
}

/// Bytes of a number of lines with its line feed.
const COUNT_BYTES_MAX: u64 = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the text that a difference makes out of `old`; None for a malformed difference.
    fn made(old: &str, steps: &str) -> Option<String> {
        let mut text = Vec::new();
        let append = |part: &[u8]| {
            text.extend_from_slice(part);
            Ok::<(), io::Error>(())
        };
        let is_right = apply_difference(old.as_bytes(), steps.as_bytes(), append).ok()?;
        is_right.then(|| String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn a_changed_file_is_a_short_difference() {
        let old = "h\na 1\nb 1\nc 1\nd 1\n";
        let new = "h\na 1\nb 2\nc 1\nd 1\ne 1\n";
        let steps = difference(old, new);
        assert_eq!(steps, "=2\n+b 2\n-1\n=2\n+e 1\n");
        assert_eq!(made(old, &steps).as_deref(), Some(new));
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
            assert_eq!(made("a\nb\n", steps), None, "{steps:?}");
        }
        // A difference that copies one part many times cannot grow beyond the earlier manifest: each line is read once.
        assert_eq!(made("a\n", "=1\n=1\n"), None);
    }

    proptest! {
        #[test]
        fn each_difference_makes_the_new_text(old in "([a-d]\n){0,9}", new in "([a-d]\n){0,9}") {
            prop_assert_eq!(made(&old, &difference(&old, &new)), Some(new));
        }
    }
}
