//! Tests of the table of values.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::admin::edited_balancer::fixture::app;

/// Sets a value of the first member or of the balancer, and returns the canonical text.
fn set(name: &str, text: &str) -> Option<String> {
    let mut edited = app("sticky = \"S\"\nconnections = 4\n").unedited();
    let value = EDITABLE_VALUES.iter().find(|it| it.name == name).unwrap();
    value
        .set(&mut edited, 0, text)
        .then(|| value.get(&edited, 0))
}

#[test]
fn each_value_takes_its_range_and_refuses_other_texts() {
    // Name, accepted texts with their canonical texts, refused texts.
    type Row = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
    );
    let table: [Row; 19] = [
        (
            "weight",
            &[
                ("1", "1"),
                ("100", "100"),
                ("1.50", "1.5"),
                ("1.05", "1.05"),
            ],
            &["0", "0.99", "100.01", "1.001", "", "x", "-1", "1.-1"],
        ),
        (
            "set",
            &[("0", "0"), ("99", "99")],
            &["100", "-1", "", "1.5"],
        ),
        (
            "route",
            &[("r-1_x", "r-1_x"), ("", ""), ("-", "")],
            &["a b", "a.b", "ä", "a;b"],
        ),
        ("redirect", &[("b", "b"), ("-", "")], &["a b"]),
        (
            "ignore_errors",
            &[("on", "on"), ("off", "off")],
            &["1", "yes", ""],
        ),
        (
            "state",
            &[("draining", "draining"), ("stopped", "stopped")],
            &["up", "", "Disabled"],
        ),
        (
            "role",
            &[("spare", "spare"), ("regular", "regular")],
            &["backup", ""],
        ),
        ("check_failed", &[("on", "on")], &["maybe"]),
        (
            "check_method",
            &[("off", "off"), ("head", "head")],
            &["post", "", "options"],
        ),
        (
            "check_expression",
            &[("app", "app"), ("-", "")],
            &["a b", "a\nb"],
        ),
        (
            "check_interval",
            &[
                ("1ms", "1ms"),
                ("5s", "5s"),
                ("1500ms", "1500ms"),
                ("3000ms", "3s"),
                ("1m", "60s"),
            ],
            &["0", "0ms", "2d", "", "x"],
        ),
        ("check_passes", &[("1", "1")], &["0", "1001", ""]),
        ("check_fails", &[("1000", "1000")], &["0", "-1"]),
        (
            "check_uri",
            &[("/a?b=c", "/a?b=c")],
            &["a", "", "/a b", "/a#b", "-"],
        ),
        ("method", &[("p2c", "p2c")], &["random", ""]),
        (
            "queue_timeout",
            &[("2h", "7200s"), ("250ms", "250ms")],
            &["7201s", "x"],
        ),
        ("attempts", &[("0", "0"), ("99", "99")], &["100", ""]),
        ("strict", &[("on", "on")], &["true"]),
        (
            "sticky",
            &[
                ("A", "A"),
                ("A|b", "A|b"),
                ("A signed", "A signed"),
                ("-", ""),
                ("", ""),
            ],
            &["A b", "A|", "|b", "A;b", "a=b", " signed"],
        ),
    ];
    for (value, (name, good, bad)) in EDITABLE_VALUES.iter().zip(table) {
        assert_eq!(value.name, name);
        for (text, canonical) in good {
            assert_eq!(
                set(name, text).as_deref(),
                Some(*canonical),
                "{name} {text}"
            );
        }
        for text in bad {
            assert_eq!(set(name, text), None, "{name} {text}");
        }
        let long = "9".repeat(EDIT_TEXT_BYTES_MAX + 1);
        assert_eq!(set(name, &long), None, "{name}");
    }
}

#[test]
fn strictness_needs_sessions() {
    let mut edited = app("").unedited();
    let strict = EditableValue::find("strict", EditScope::Balancer).unwrap();
    assert!(!strict.set(&mut edited, 0, "on"));
    assert!(strict.set(&mut edited, 0, "off"));
}

#[test]
fn unknown_names_and_names_of_another_scope_are_refused() {
    let find = |name, scope| EditableValue::find(name, scope).unwrap_err();
    assert_eq!(
        find("wieght", EditScope::Member),
        "error: there is no value `wieght`\nhelp: did you mean `weight`?\n"
    );
    assert!(find("weight", EditScope::Balancer).contains("help: write MEMBER after BALANCER"));
    assert!(find("method", EditScope::Member).contains("help: leave out MEMBER"));
    assert!(find("zzzz", EditScope::Balancer).contains("the values are: method, queue_timeout"));
}

#[test]
fn a_refusal_names_the_value_and_the_range() {
    let weight = EditableValue::find("weight", EditScope::Member).unwrap();
    assert_eq!(
        weight.refusal("0\u{1b}"),
        "error: `weight` can't be `0\\u{1b}`\n\
         help: write a number from 1 to 100 with at most 2 decimals\n"
    );
}
