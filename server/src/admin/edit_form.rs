//! Forms of Apache's balancer-manager: conversion between the fields of a form and editable values. Pure.

use crate::admin::edit_value::{EDITABLE_VALUES, EditKind, EditableValue, STATES};
use crate::admin::edited_balancer::EditedBalancer;
use crate::config::parse_duration;
use balancer::settings::{AdminState, MemberRole};

/// Returns the names and texts of the values in the fields of a form, for a balancer or for the member with the
/// index `member`. Fields without a value, such as the token, are skipped. Absent fields change nothing.
///
/// # Errors
/// Fails if the form makes a member both a standby and a spare.
pub(crate) fn read_form(
    fields: &[(String, String)],
    edited: &EditedBalancer,
    member: usize,
) -> Result<Vec<(String, String)>, String> {
    let mut values = Vec::new();
    for value in &EDITABLE_VALUES {
        let posted = value.form_keys.iter().map(|key| field(fields, key));
        let posted: Vec<Option<&str>> = posted.collect();
        if posted.iter().all(Option::is_none) {
            continue;
        }
        let text = match value.kind {
            EditKind::State => state(&flags(value, &posted, edited, member))
                .name()
                .to_owned(),
            EditKind::Role => role(&flags(value, &posted, edited, member))?
                .name()
                .to_owned(),
            kind => text_of(kind, posted[0].unwrap_or_default()),
        };
        values.push((value.name.to_owned(), text));
    }
    Ok(values)
}

/// Returns the URL of a member that a form adds (`b_nwrkr`, confirmed by `b_wyes=1`).
pub(crate) fn added_url(fields: &[(String, String)]) -> Option<&str> {
    let is_confirmed = field(fields, "b_wyes").is_some_and(is_on);
    field(fields, "b_nwrkr").filter(|url| is_confirmed && !url.is_empty())
}

/// Returns the text of a form's field for a value of a balancer, or of the member with the index `member`.
pub(crate) fn form_text(
    value: &EditableValue,
    key: &str,
    edited: &EditedBalancer,
    member: usize,
) -> String {
    let text = value.get(edited, member);
    let flag = |is_on: bool| if is_on { "1" } else { "0" }.to_owned();
    let millis = || parse_duration(&text).map_or(0, |duration| duration.as_millis());
    match value.kind {
        EditKind::State | EditKind::Role => flag(flag_name(key) == Some(&*text)),
        EditKind::IgnoreErrors | EditKind::CheckFailed | EditKind::Strict => flag(text == "on"),
        EditKind::CheckInterval => millis().to_string(),
        EditKind::QueueTimeout => (millis() / 1_000).to_string(),
        EditKind::CheckMethod if text == "off" => "None".to_owned(),
        EditKind::CheckMethod => text.to_ascii_uppercase(),
        _ => text,
    }
}

fn field<'f>(fields: &'f [(String, String)], key: &str) -> Option<&'f str> {
    let mut fields = fields.iter();
    let found = fields.find(|(name, _)| name == key)?;
    Some(&found.1)
}

/// Returns true for the text of a set flag.
pub(crate) fn is_on(text: &str) -> bool {
    matches!(text, "1" | "on" | "On")
}

/// Returns true for the text of a cleared flag.
pub(crate) fn is_off(text: &str) -> bool {
    matches!(text, "0" | "off" | "Off")
}

/// Returns the name of the state or role that a flag of a form stands for.
fn flag_name(key: &str) -> Option<&'static str> {
    Some(match key {
        "w_status_N" => AdminState::Draining.name(),
        "w_status_D" => AdminState::Disabled.name(),
        "w_status_S" => AdminState::Stopped.name(),
        "w_status_H" => MemberRole::Standby.name(),
        "w_status_R" => MemberRole::Spare.name(),
        _ => return None,
    })
}

/// Returns the flags of a value: the posted flags, and the present flags of fields that were not posted.
fn flags(
    value: &EditableValue,
    posted: &[Option<&str>],
    edited: &EditedBalancer,
    member: usize,
) -> Vec<bool> {
    let present = value.get(edited, member);
    let flags = value.form_keys.iter().zip(posted);
    let flags = flags.map(|(key, posted)| match posted {
        Some(posted) => is_on(posted),
        None => flag_name(key) == Some(&*present),
    });
    flags.collect()
}

/// Returns the strongest state of the flags for draining, disabled and stopped.
fn state(flags: &[bool]) -> AdminState {
    let strongest = flags.iter().rposition(|is_set| *is_set);
    strongest.map_or(AdminState::Enabled, |at| STATES[at + 1])
}

/// Returns the role of the flags for standby and spare.
fn role(flags: &[bool]) -> Result<MemberRole, String> {
    match *flags {
        [true, true] => Err("error: a member is either a standby or a spare\n".to_owned()),
        [true, _] => Ok(MemberRole::Standby),
        [_, true] => Ok(MemberRole::Spare),
        _ => Ok(MemberRole::Regular),
    }
}

/// Converts the text of a field to the text of a value.
fn text_of(kind: EditKind, text: &str) -> String {
    match kind {
        EditKind::IgnoreErrors | EditKind::CheckFailed | EditKind::Strict => match text {
            "1" | "On" => "on".to_owned(),
            "0" | "Off" => "off".to_owned(),
            other => other.to_owned(),
        },
        EditKind::CheckInterval => format!("{text}ms"),
        // Apache's balancers do not wait by default.
        EditKind::QueueTimeout if text == "0" => "1ms".to_owned(),
        EditKind::QueueTimeout => format!("{text}s"),
        // Apache's page has no path for checks of the root.
        EditKind::CheckUri if text.is_empty() => "/".to_owned(),
        EditKind::CheckMethod => match text.trim_end_matches("11").to_ascii_lowercase() {
            none if none == "none" => "off".to_owned(),
            method => method,
        },
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
