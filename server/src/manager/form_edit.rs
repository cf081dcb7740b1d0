//! Edits that a form of the manager asks for.

use super::form::Form;
use super::selection::Selection;
use crate::admin::command::EditAction;
use crate::admin::edit_form::{added_url, form_text, read_form};
use crate::admin::edit_value::{EDITABLE_VALUES, EditKind, EditScope};

/// Refusal of a form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FormRefusal {
    /// Reason for the operator; the empty text for wrong fields alone.
    pub(super) error: String,
    /// Names of the wrong values, each with the reason.
    pub(super) values: Vec<(&'static str, String)>,
}

impl From<String> for FormRefusal {
    fn from(error: String) -> FormRefusal {
        FormRefusal {
            error,
            values: Vec::new(),
        }
    }
}

impl FormRefusal {
    /// Assigns the refusal of an edit to the value that the refusal names, if any.
    pub(super) fn of_edit(error: String, action: &EditAction) -> FormRefusal {
        let is_named = |text: &str| !text.is_empty() && error.contains(&format!("`{text}`"));
        let values = match action {
            EditAction::Set { values, .. } => values.as_slice(),
            _ => &[],
        };
        let mut values = values.iter();
        let named = values.find(|(name, text)| is_named(name) || is_named(text));
        let mut all = EDITABLE_VALUES.iter();
        let value = named.and_then(|(name, _)| all.find(|value| value.name == name));
        match value {
            Some(value) => FormRefusal {
                values: vec![(value.name, error)],
                error: String::new(),
            },
            None => error.into(),
        }
    }
}

/// Returns the edits of a form for the selected balancer or member. Fields with the present values are no edits.
pub(super) fn edits(
    form: &Form,
    selection: &Selection<'_>,
) -> Result<Vec<EditAction>, FormRefusal> {
    let balancer = selection.name().to_owned();
    let url = selection.url().map(str::to_owned);
    if let (Some("1"), Some(member)) = (form.value("remove"), &url) {
        let member = member.clone();
        return Ok(vec![EditAction::Remove { balancer, member }]);
    }
    let fields = form.fields();
    let mut edits = Vec::new();
    if let (Some(url), None) = (added_url(&fields), &url) {
        let url = url.to_owned();
        let balancer = balancer.clone();
        edits.push(EditAction::Add { balancer, url });
    }
    let values = changed_values(&fields, selection)?;
    if !values.is_empty() {
        edits.push(EditAction::Set {
            balancer,
            member: url,
            values,
        });
    }
    Ok(edits)
}

/// Returns the names and the texts of the changed values, or the values out of range.
fn changed_values(
    fields: &[(String, String)],
    selection: &Selection<'_>,
) -> Result<Vec<(String, String)>, FormRefusal> {
    let (edited, at) = (&selection.edited, selection.member.unwrap_or(0));
    let scope = match selection.member {
        Some(_) => EditScope::Member,
        None => EditScope::Balancer,
    };
    let in_scope = || EDITABLE_VALUES.iter().filter(|value| value.scope == scope);
    let is_changed = |(key, text): &&(String, String)| {
        let value = in_scope().find(|value| value.form_keys.contains(&key.as_str()));
        value.is_some_and(|value| form_text(value, key, edited, at) != *text)
    };
    let changed: Vec<_> = fields.iter().filter(is_changed).cloned().collect();
    let mut texts = read_form(&changed, edited, at)?;
    // Strictness is a part of the sessions, which are set first.
    let is_strict =
        |name: &str| in_scope().any(|it| it.kind == EditKind::Strict && it.name == name);
    texts.sort_by_key(|(name, _)| is_strict(name));
    let mut refusal = FormRefusal::default();
    let mut scratch = edited.clone();
    for (name, text) in &texts {
        let value = in_scope().find(|value| value.name == name);
        if let Some(value) = value.filter(|value| !value.set(&mut scratch, at, text)) {
            refusal.values.push((value.name, value.refusal(text)));
        }
    }
    match refusal.values.is_empty() {
        true => Ok(texts),
        false => Err(refusal),
    }
}
