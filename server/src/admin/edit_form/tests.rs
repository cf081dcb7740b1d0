//! Tests of the forms of Apache's balancer-manager.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::admin::edit_value::EditScope;
use crate::admin::edited_balancer::fixture::app;
use balancer::settings::AdminState;

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect()
}

fn read(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let edited = app("sticky = \"S\"\n").unedited();
    read_form(&fields(pairs), &edited, 0).unwrap()
}

#[test]
fn the_fields_of_apaches_forms_are_read() {
    let member = read(&[
        ("b", "app"),
        ("nonce", "x"),
        ("w_lf", "2.5"),
        ("w_ls", "1"),
        ("w_wr", "a"),
        ("w_rr", ""),
        ("w_status_I", "1"),
        ("w_status_C", "0"),
        ("w_hm", "HEAD11"),
        ("w_hi", "2500"),
        ("w_hp", "1"),
        ("w_hf", "4"),
        ("w_hu", "/x"),
        ("w_he", ""),
    ]);
    let expected = [
        ("weight", "2.5"),
        ("set", "1"),
        ("route", "a"),
        ("redirect", ""),
        ("ignore_errors", "on"),
        ("check_failed", "off"),
        ("check_method", "head"),
        ("check_expression", ""),
        ("check_interval", "2500ms"),
        ("check_passes", "1"),
        ("check_fails", "4"),
        ("check_uri", "/x"),
    ];
    assert_eq!(member, fields(&expected));
    let balancer = read(&[
        ("b_lbm", "bybusyness"),
        ("b_tmo", "7"),
        ("b_max", "3"),
        ("b_sforce", "1"),
        ("b_ss", "-"),
    ]);
    let expected = [
        ("method", "bybusyness"),
        ("queue_timeout", "7s"),
        ("attempts", "3"),
        ("strict", "on"),
        ("sticky", "-"),
    ];
    assert_eq!(balancer, fields(&expected));
    assert_eq!(
        read(&[("w_hm", "None")]),
        fields(&[("check_method", "off")])
    );
}

#[test]
fn the_strongest_flag_is_the_state() {
    let state = |pairs: &[(&str, &str)]| read(pairs)[0].clone();
    let named = |name: &str| ("state".to_owned(), name.to_owned());
    assert_eq!(state(&[("w_status_N", "1")]), named("draining"));
    assert_eq!(
        state(&[("w_status_D", "On"), ("w_status_N", "1")]),
        named("disabled")
    );
    assert_eq!(
        state(&[("w_status_S", "1"), ("w_status_D", "0")]),
        named("stopped")
    );
    assert_eq!(state(&[("w_status_D", "0")]), named("enabled"));
    // A flag that is not posted keeps its value.
    let mut edited = app("").unedited();
    edited.settings.members[0].admin = AdminState::Disabled;
    let values = read_form(&fields(&[("w_status_N", "1")]), &edited, 0).unwrap();
    assert_eq!(values, [named("disabled")]);
}

#[test]
fn a_member_has_one_role() {
    let role = |name: &str| vec![("role".to_owned(), name.to_owned())];
    assert_eq!(read(&[("w_status_H", "1")]), role("standby"));
    assert_eq!(
        read(&[("w_status_R", "1"), ("w_status_H", "0")]),
        role("spare")
    );
    assert_eq!(read(&[("w_status_H", "0")]), role("regular"));
    let both = fields(&[("w_status_H", "1"), ("w_status_R", "1")]);
    assert!(read_form(&both, &app("").unedited(), 0).is_err());
}

#[test]
fn a_form_posted_unchanged_changes_nothing() {
    let more = "sticky = { cookie = \"S\", signed = true }\nhealth = { path = \"/\" }\n";
    let mut edited = app(more).unedited();
    edited.settings.members[0].admin = AdminState::Draining;
    for value in &EDITABLE_VALUES {
        let posted = value.form_keys.iter().map(|key| {
            let text = form_text(value, key, &edited, 0);
            ((*key).to_owned(), text)
        });
        let posted: Vec<_> = posted.collect();
        let values = read_form(&posted, &edited, 0).unwrap();
        let mut after = edited.clone();
        let scope = value.scope();
        assert!(matches!(scope, EditScope::Balancer | EditScope::Member));
        assert_eq!(values.len(), 1, "{}", value.name);
        assert!(value.set(&mut after, 0, &values[0].1), "{values:?}");
        assert_eq!(after, edited, "{values:?}");
    }
}

#[test]
fn a_member_is_added_after_confirmation() {
    let url = ("b_nwrkr", "http://10.0.0.5:8080");
    let confirmed = fields(&[url, ("b_wyes", "1")]);
    assert_eq!(added_url(&confirmed), Some("http://10.0.0.5:8080"));
    assert_eq!(added_url(&fields(&[url])), None);
    assert_eq!(added_url(&fields(&[url, ("b_wyes", "0")])), None);
    assert_eq!(
        added_url(&fields(&[("b_nwrkr", ""), ("b_wyes", "1")])),
        None
    );
}
