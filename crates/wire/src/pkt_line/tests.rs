//! Tests of responses to a push, split at every point, and invariants of arbitrary ones.

use super::*;

/// Returns the bytes passed on before the end, the bytes returned at the end, and whether a message can
/// be inserted.
fn through(parts: &[&[u8]], words: &[&str]) -> (Vec<u8>, Vec<u8>, bool) {
    let (mut answer, mut out) = (PushResponse::default(), Vec::new());
    for part in parts {
        answer.take(part, &mut out);
    }
    let can_speak = answer.can_insert_message();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    (out, answer.end(&words), can_speak)
}

const WITH_BANDS: &[u8] = b"0013\x01000eunpack ok\n0005\x010009\x02hook0009\x0100000000";
const WITHOUT: &[u8] = b"000eunpack ok\n0019ok refs/heads/main\n0000";

#[test]
fn a_message_stands_before_the_final_flush_at_every_split_point() {
    let before = &WITH_BANDS[..WITH_BANDS.len() - 4];
    for at in 0..=WITH_BANDS.len() {
        let (first, second) = WITH_BANDS.split_at(at);
        let (out, end, can_speak) = through(&[first, second], &["deployed"]);
        assert_eq!((out.as_slice(), can_speak), (before, true), "split at {at}");
        assert_eq!(end, b"000e\x02deployed\n0000");
    }
    let single: Vec<&[u8]> = WITH_BANDS.chunks(1).collect();
    assert_eq!(through(&single, &[]).1, b"0000");
}

#[test]
fn a_client_without_side_band_gets_no_message() {
    for at in 0..=WITHOUT.len() {
        let (first, second) = WITHOUT.split_at(at);
        let (out, end, can_speak) = through(&[first, second], &["deployed"]);
        assert_eq!([out, end].concat(), WITHOUT);
        assert!(!can_speak);
    }
    // Neither an empty response nor a response with data behind the flush takes a message.
    assert_eq!(through(&[], &["x"]).1, b"");
    let (out, end, can_speak) = through(&[b"0000", WITHOUT], &["x"]);
    assert_eq!([out, end].concat(), [b"0000", WITHOUT].concat());
    assert!(!can_speak);
}

#[test]
fn malformed_lines_pass_unchanged() {
    for bytes in [
        &b"<html>no such thing</html>"[..],
        b"0001",
        b"fff1\x01too long",
        b"+004abc0000",
        b"0009\x01cut",
        b"00",
        b"0000\xff",
    ] {
        for at in 0..=bytes.len() {
            let (out, end, can_speak) = through(&[&bytes[..at], &bytes[at..]], &["x"]);
            assert_eq!([out, end].concat(), bytes);
            assert!(!can_speak);
        }
    }
}

#[test]
fn changing_one_byte_loses_no_other_byte() {
    for at in 0..WITH_BANDS.len() {
        for to in 0..=255 {
            let mut bytes = WITH_BANDS.to_vec();
            bytes[at] = to;
            crate::invariants::push_answer(&bytes);
        }
    }
}

#[test]
fn a_long_message_is_cut_to_the_longest_line() {
    let long = "x".repeat(100_000);
    let end = through(&[WITH_BANDS], &[&long]).1;
    assert!(end.starts_with(b"fff0\x02xxx"));
    assert_eq!(end.len(), LINE_BYTES_MAX + 4);
}
