//! Table of range sets, and invariants of arbitrary ones.

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
