//! Forms of Apache's balancer-manager: conversion between the fields of a form and editable values. Pure.

use crate::admin::edit_value::{EDITABLE_VALUES, EditableValue, FormKind};
use crate::admin::edited_balancer::EditedBalancer;
use crate::config::parse_duration;

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
        let text = match value.form {
            FormKind::Flags(_) | FormKind::ExclusiveFlags(..) => {
                word_of(value, &posted, edited, member)?.to_owned()
            }
            _ => text_of(&value.form, posted[0].unwrap_or_default()),
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
    match value.form {
        FormKind::Flags(_) | FormKind::ExclusiveFlags(..) => {
            flag(flag_word(value, key) == Some(&*text))
        }
        FormKind::Flag => flag(text == "on"),
        FormKind::Milliseconds => millis().to_string(),
        FormKind::Seconds => (millis() / 1_000).to_string(),
        FormKind::CheckMethod if text == "off" => "None".to_owned(),
        FormKind::CheckMethod => text.to_ascii_uppercase(),
        FormKind::Text | FormKind::Path(_) | FormKind::Choice(_) | FormKind::Condition(_) => text,
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

/// Returns the word that a flag of a form stands for.
fn flag_word(value: &EditableValue, key: &str) -> Option<&'static str> {
    let at = value.form_keys.iter().position(|known| *known == key)?;
    let (word, _) = value.form.words().get(at + 1)?;
    Some(word)
}

/// Returns the word of the flags: the posted flags, and the present flags of fields that were not posted.
fn word_of(
    value: &EditableValue,
    posted: &[Option<&str>],
    edited: &EditedBalancer,
    member: usize,
) -> Result<&'static str, String> {
    let present = value.get(edited, member);
    let words = value.form.words().iter().map(|(word, _)| *word);
    let flags = words.clone().skip(1).zip(posted);
    let set = flags.filter(|(word, posted)| posted.map_or(**word == present, is_on));
    let set: Vec<&str> = set.map(|(word, _)| word).collect();
    match value.form {
        FormKind::ExclusiveFlags(_, rule) if set.len() > 1 => Err(format!("error: {rule}\n")),
        _ => Ok(set
            .last()
            .copied()
            .or(words.clone().next())
            .unwrap_or_default()),
    }
}

/// Converts the text of a field to the text of a value.
fn text_of(form: &FormKind, text: &str) -> String {
    match form {
        FormKind::Flag => match text {
            "1" | "On" => "on".to_owned(),
            "0" | "Off" => "off".to_owned(),
            other => other.to_owned(),
        },
        FormKind::Milliseconds => format!("{text}ms"),
        // Apache's balancers do not wait by default.
        FormKind::Seconds if text == "0" => "1ms".to_owned(),
        FormKind::Seconds => format!("{text}s"),
        FormKind::Path(_) if text.is_empty() => "/".to_owned(),
        FormKind::CheckMethod => match text.trim_end_matches("11").to_ascii_lowercase() {
            none if none == "none" => "off".to_owned(),
            method => method,
        },
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
