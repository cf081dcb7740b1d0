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
mod tests {
    use super::*;
    use crate::invariants;
    use proptest::prelude::*;

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn range_sets_are_resolved() {
        /// Expected ranges: `None` = ignored, empty = unsatisfiable.
        type Expected = Option<&'static [(u64, u64)]>;
        let table: &[(&str, u64, Expected)] = &[
            ("bytes=0-0", 10, Some(&[(0, 0)])),
            ("bytes=0-9", 10, Some(&[(0, 9)])),
            ("bytes=0-", 10, Some(&[(0, 9)])),
            ("bytes=3-", 10, Some(&[(3, 9)])),
            ("bytes=9-", 10, Some(&[(9, 9)])),
            ("bytes=3-100", 10, Some(&[(3, 9)])),
            ("bytes=-1", 10, Some(&[(9, 9)])),
            ("bytes=-10", 10, Some(&[(0, 9)])),
            ("bytes=-11", 10, Some(&[(0, 9)])),
            ("BYTES=0-0", 10, Some(&[(0, 0)])),
            ("bytes= 0-0 ", 10, Some(&[(0, 0)])),
            ("bytes=0-1,5-6", 10, Some(&[(0, 1), (5, 6)])),
            ("bytes=5-6,0-1", 10, Some(&[(5, 6), (0, 1)])),
            ("bytes=0-1, 5-6 ,\t-1", 10, Some(&[(0, 1), (5, 6), (9, 9)])),
            ("bytes=,0-1,,5-6,", 10, Some(&[(0, 1), (5, 6)])),
            ("bytes=0-1,20-30", 10, Some(&[(0, 1)])),
            ("bytes=20-30,0-1", 10, Some(&[(0, 1)])),
            ("bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14", 20,
                Some(&[(0, 0), (2, 2), (4, 4), (6, 6), (8, 8), (10, 10), (12, 12), (14, 14)])),
            ("bytes=0-18446744073709551615", 10, Some(&[(0, 9)])),
            ("bytes=0-99999999999999999999999", 10, Some(&[(0, 9)])),
            ("bytes=-99999999999999999999999", 10, Some(&[(0, 9)])),
            ("bytes=0-1,2-3", 10, Some(&[(0, 1), (2, 3)])),
            ("bytes=18446744073709551614-", u64::MAX, Some(&[(u64::MAX - 1, u64::MAX - 1)])),
            // Ranges behind the end.
            ("bytes=10-", 10, Some(&[])),
            ("bytes=10-20", 10, Some(&[])),
            ("bytes=-0", 10, Some(&[])),
            ("bytes=10-,20-30,-0", 10, Some(&[])),
            ("bytes=99999999999999999999999-", 10, Some(&[])),
            // Empty representations.
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
            // Malformed values.
            ("", 10, None),
            ("bytes", 10, None),
            ("bytes=", 10, None),
            ("bytes=,", 10, None),
            ("bytes=-", 10, None),
            ("bytes=a-b", 10, None),
            ("bytes=1", 10, None),
            ("bytes=2-1", 10, None),
            ("bytes=--1", 10, None),
            ("bytes=1--2", 10, None),
            ("bytes=+1-2", 10, None),
            ("bytes=1-2-3", 10, None),
            ("bytes=1 - 2", 10, None),
            ("bytes=0x1-2", 10, None),
            ("bytes =0-1", 10, None),
            (" bytes=0-1", 10, None),
            ("bytes:0-1", 10, None),
            ("bytes=0-1;2-3", 10, None),
            ("bytes=0-1,x", 10, None),
            ("bytes=20-30,x", 10, None),
            ("lines=0-1", 10, None),
            ("octets=0-1", 10, None),
            // Too many or overlapping ranges.
            ("bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16", 20, None),
            ("bytes=30-,30-,30-,30-,30-,30-,30-,30-,30-", 20, None),
            ("bytes=0-5,5-6", 10, None),
            ("bytes=0-,0-", 10, None),
            ("bytes=5-6,0-", 10, None),
            ("bytes=0-1,-10", 10, None),
            ("bytes=2-20,9-30", 10, None),
        ];
        for (value, size, expected) in table {
            let found = match parse_ranges(value.as_bytes(), *size) {
                Ranges::Ignore => None,
                Ranges::Unsatisfiable => Some(Vec::new()),
                Ranges::Some(list) => Some(list.to_vec()),
            };
            assert_eq!(found.as_deref(), *expected, "{value} of {size}");
        }
    }

    proptest! {
        #[test]
        fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            invariants::range(&bytes);
        }

        #[test]
        fn invariants_of_near_ranges(
            size in any::<[u8; 8]>(), shift in 0..64u32,
            set in "bytes=([0-9]{0,4}-[0-9]{0,4}[, ]{0,2}){0,10}"
        ) {
            let size = u64::from_le_bytes(size) >> shift;
            invariants::range(&[&size.to_le_bytes()[..], set.as_bytes()].concat());
        }
    }
}
