//! Byte ranges (RFC 9110 §14).
//!
//! A server may ignore any Range field. An unusual field is ignored and answered with the whole
//! representation; 416 answers only a well-formed request for ranges that all lie behind the end.

use crate::byte_search;
use crate::limits::RANGES_MAX;
use std::ops::Deref;

/// Result of a Range field for a representation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ranges {
    /// Another unit than bytes, malformed, too many or overlapping ranges, or an empty representation: the
    /// whole representation is sent.
    Ignore,
    /// No requested range exists: 416.
    Unsatisfiable,
    /// One or more ranges inside the representation, in the order of the request.
    Some(RangeList),
}

/// Up to `RANGES_MAX` ranges as (first, last) byte, both included.
#[derive(Copy, Clone)]
pub struct RangeList {
    ranges: [(u64, u64); RANGES_MAX],
    length: usize,
}

impl RangeList {
    const EMPTY: RangeList = RangeList {
        ranges: [(0, 0); RANGES_MAX],
        length: 0,
    };

    /// Adds a range. Returns false if the list is full or the range overlaps another.
    fn add(&mut self, first: u64, last: u64) -> bool {
        let overlaps = self.iter().any(|&(f, l)| first <= l && f <= last);
        if overlaps || self.length == RANGES_MAX {
            return false;
        }
        self.ranges[self.length] = (first, last);
        self.length += 1;
        true
    }
}

impl Deref for RangeList {
    type Target = [(u64, u64)];

    fn deref(&self) -> &[(u64, u64)] {
        &self.ranges[..self.length]
    }
}

impl PartialEq for RangeList {
    fn eq(&self, other: &RangeList) -> bool {
        self[..] == other[..]
    }
}

impl Eq for RangeList {}

impl std::fmt::Debug for RangeList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Reads the value of a Range field for a representation of `size` bytes.
pub fn parse_ranges(value: &[u8], size: u64) -> Ranges {
    let Some((unit, set)) = value.split_at_checked(6) else {
        return Ranges::Ignore;
    };
    // A client that always asks for a range gets an empty file whole instead of an error.
    if !unit.eq_ignore_ascii_case(b"bytes=") || size == 0 {
        return Ranges::Ignore;
    }
    let mut found = RangeList::EMPTY;
    let mut asked = 0;
    for item in set.split(|&byte| byte == b',').map(byte_search::trim) {
        if item.is_empty() {
            continue;
        }
        asked += 1;
        if asked > RANGES_MAX {
            return Ranges::Ignore;
        }
        match resolve(item, size) {
            None => return Ranges::Ignore,
            Some(ResolvedRange::Outside) => {}
            // Overlapping ranges multiply the size of the response (RFC 9110 §17.15).
            Some(ResolvedRange::Inside(first, last)) if !found.add(first, last) => {
                return Ranges::Ignore;
            }
            Some(ResolvedRange::Inside(..)) => {}
        }
    }
    match (asked, found.is_empty()) {
        (0, _) => Ranges::Ignore,
        (_, true) => Ranges::Unsatisfiable,
        _ => Ranges::Some(found),
    }
}

enum ResolvedRange {
    Inside(u64, u64),
    Outside,
}

/// Resolves `first-last`, `first-` or `-suffix`; `None` if malformed.
fn resolve(item: &[u8], size: u64) -> Option<ResolvedRange> {
    let dash = item.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&item[..dash], &item[dash + 1..]);
    if first.is_empty() {
        let suffix = number(last)?;
        return Some(match suffix {
            0 => ResolvedRange::Outside,
            _ => ResolvedRange::Inside(size.saturating_sub(suffix), size - 1),
        });
    }
    let first = number(first)?;
    let last = if last.is_empty() {
        u64::MAX
    } else {
        number(last)?
    };
    if last < first {
        return None;
    }
    Some(if first < size {
        ResolvedRange::Inside(first, last.min(size - 1))
    } else {
        ResolvedRange::Outside
    })
}

/// Reads digits. A number above the largest `u64` counts as the largest.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

#[cfg(test)]
mod tests;
