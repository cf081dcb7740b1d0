//! Edits that a form of the manager asks for.

use super::form::Form;
use super::selection::Selection;
use super::snapshot::Snapshot;
use crate::admin::command::EditAction;
use crate::admin::edit_form::{added_url, form_text, is_off, is_on, read_form};
use crate::admin::edit_ledger::EditChange;
use crate::admin::edit_plan::EditView;
use crate::admin::edit_value::{EDITABLE_VALUES, EditRule, EditScope, EditableValue};
use crate::admin::edited_balancer::EditedBalancer;

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
    /// Assigns the refusal of edits to the value that the refusal names, if any. A form with several members has no
    /// fields of their values.
    pub(super) fn of_edits(error: String, actions: &[EditAction]) -> FormRefusal {
        let is_named = |text: &str| !text.is_empty() && error.contains(&format!("`{text}`"));
        let values = match actions {
            [EditAction::Set { values, .. }] => values.as_slice(),
            [EditAction::Set { values, .. }, EditAction::Add { .. }] => values.as_slice(),
            _ => &[],
        };
        let mut values = values.iter();
        let named = values.find(|(name, text)| is_named(name) || is_named(text));
        let mut all = EDITABLE_VALUES.iter();
        let value = named.and_then(|(name, _)| all.find(|value| value.name == name));
        let mut refusal = FormRefusal::default();
        match value {
            Some(value) => refusal.add(value, error),
            None => refusal.error = error,
        }
        refusal
    }

    /// Adds the reason for the refusal of a value. The state of a member has buttons, and no field for the reason.
    fn add(&mut self, value: &'static EditableValue, reason: String) {
        if value.rule == EditRule::Buttons {
            self.error = reason;
        } else {
            self.values.push((value.name, reason));
        }
    }

    /// Returns true without a refusal.
    fn is_empty(&self) -> bool {
        self.error.is_empty() && self.values.is_empty()
    }
}

/// Returns the edits of a form for the selected balancer or member, or for each ticked member of the selected balancer.
/// After a refusal, the member with the refused value is selected.
pub(super) fn edits(
    form: &Form,
    selection: &mut Selection<'_>,
) -> Result<Vec<EditAction>, FormRefusal> {
    let scope = if selection.member.is_some() || form.is_of_ticked() {
        EditScope::Member
    } else {
        EditScope::Balancer
    };
    check_fields(form, scope)?;
    let mut scratch = selection.edited.clone();
    if !form.is_of_ticked() {
        return edits_of_one(form, selection, &mut scratch);
    }
    let mut ticked = Vec::new();
    for url in form.values("w") {
        match selection.edited.member_at(url) {
            Some(at) if ticked.contains(&at) => {}
            Some(at) => ticked.push(at),
            None => {
                let error = format!("error: `{url}` is no member of `{}`\n", selection.name());
                return Err(error.into());
            }
        }
    }
    if ticked.is_empty() {
        let error = format!(
            "error: no member is ticked\nhelp: tick members in the table of `{}` first\n",
            selection.name()
        );
        return Err(error.into());
    }
    let mut actions = Vec::new();
    for at in ticked {
        selection.member = Some(at);
        actions.extend(edits_of_one(form, selection, &mut scratch)?);
    }
    selection.member = None;
    Ok(actions)
}

/// Refuses a form with a field that the form can't have, or with a value that the field can't have. Without the check, a
/// misspelt key or state would be answered like an edit that was made.
fn check_fields(form: &Form, scope: EditScope) -> Result<(), FormRefusal> {
    for (key, text) in form.fields() {
        if let Err((what, help)) = check_field(form, &key, &text, scope) {
            return Err(format!("error: {what}\nhelp: {help}\n").into());
        }
    }
    // Without the confirmation, the URL adds no member, as in Apache's form.
    let has_url = form.value("b_nwrkr").is_some_and(|url| !url.is_empty());
    if form.value("b_wyes").is_some_and(is_on) && !has_url {
        let what =
            "error: the new member has no URL\nhelp: write a URL such as http://10.0.0.5:8080\n";
        return Err(what.to_owned().into());
    }
    Ok(())
}

/// Checks one field with its last value. The error is the reason, and a help.
fn check_field(
    form: &Form,
    key: &str,
    text: &str,
    scope: EditScope,
) -> Result<(), (String, &'static str)> {
    let plain = key.strip_prefix(FORMER).unwrap_or(key);
    let mut all = EDITABLE_VALUES.iter();
    let value = all.find(|value| value.form_keys.contains(&plain));
    let is_own = value.is_none_or(|value| value.scope() == scope);
    if !is_own && key == plain {
        let (what, help) = match scope {
            EditScope::Balancer => ("a member", "name the member in `w`"),
            EditScope::Member => ("a balancer", "leave `w` out"),
        };
        return Err((format!("`{key}` is a value of {what}"), help));
    }
    let is_flag = match value {
        Some(value) => key == plain && value.form.is_flag(),
        None => match (key, scope) {
            ("b" | "nonce" | "xml" | "confirmed", _) | ("b_nwrkr", EditScope::Balancer) => false,
            ("w", _) => return Ok(()),
            ("b_wyes", EditScope::Balancer) => true,
            ("remove" | "ticked", EditScope::Member) if text == "1" => return Ok(()),
            ("remove" | "ticked", EditScope::Member) => {
                return Err((
                    format!("`{key}` has the value `{text}`"),
                    "write 1, or leave the field out",
                ));
            }
            _ => {
                let help = "the guide lists the keys of the manager's forms";
                return Err((format!("the form has the unknown key `{key}`"), help));
            }
        },
    };
    if is_flag && !is_on(text) && !is_off(text) {
        return Err((format!("`{key}` has the value `{text}`"), "write 1 or 0"));
    }
    // A checkbox comes after a hidden field that clears the flag, and the last value counts.
    if !is_flag && form.values(key).any(|other| other != text) {
        let help = "write each key once";
        return Err((format!("`{key}` has two values"), help));
    }
    Ok(())
}

/// Effects of edits as far as a snapshot tells.
#[derive(Default)]
pub(super) struct EditPreview {
    /// Question before dangerous edits.
    pub(super) danger: Option<String>,
    /// Changes of the values.
    pub(super) changes: Vec<EditChange>,
}

impl EditPreview {
    /// Returns the effects of edits of one balancer, or the reason for which the control plane will refuse an edit.
    pub(super) fn new(snapshot: &Snapshot, actions: &[EditAction]) -> Result<EditPreview, String> {
        if actions.is_empty() {
            return Ok(EditPreview::default());
        }
        let edits = &snapshot.edits;
        let view = EditView {
            ledger: &edits.ledger,
            configured: &edits.configured,
        };
        let at = view.balancer_of(actions)?;
        let configured = &edits.configured[at];
        let mut reports = snapshot.balancers.balancers.iter();
        let report = reports.find(|it| it.settings.name == configured.settings.name);
        let Some(report) = report else {
            return Ok(EditPreview::default());
        };
        let before = snapshot.edited(configured, report);
        let plan = view.plan(actions, at, &before)?;
        Ok(EditPreview {
            danger: plan.danger(report),
            changes: plan.changes,
        })
    }
}

/// Returns the edits of a form for the selected balancer or member, and makes the edits in `scratch`. Fields with the
/// present values are no edits.
fn edits_of_one(
    form: &Form,
    selection: &Selection<'_>,
    scratch: &mut EditedBalancer,
) -> Result<Vec<EditAction>, FormRefusal> {
    let balancer = selection.name().to_owned();
    let url = selection.url().map(str::to_owned);
    if let (Some("1"), Some(member)) = (form.value("remove"), &url) {
        let member = member.clone();
        return Ok(vec![EditAction::Remove { balancer, member }]);
    }
    let fields = form.fields();
    let values = changed_values(&fields, selection, scratch)?;
    let added = added_url(&fields).filter(|_| url.is_none());
    let added = added.map(|url| EditAction::Add {
        balancer: balancer.clone(),
        url: url.to_owned(),
    });
    let set = (!values.is_empty()).then_some(EditAction::Set {
        balancer,
        member: url,
        values,
    });
    Ok(set.into_iter().chain(added).collect())
}

/// Returns the names and the texts of the changed values, or the values out of range.
fn changed_values(
    fields: &[(String, String)],
    selection: &Selection<'_>,
    scratch: &mut EditedBalancer,
) -> Result<Vec<(String, String)>, FormRefusal> {
    let (edited, at) = (&selection.edited, selection.member.unwrap_or(0));
    let scope = match selection.member {
        Some(_) => EditScope::Member,
        None => EditScope::Balancer,
    };
    let in_scope = || {
        EDITABLE_VALUES
            .iter()
            .filter(|value| value.scope() == scope)
    };
    let mut refusal = FormRefusal::default();
    let mut changed = Vec::new();
    for (key, text) in fields {
        let value = in_scope().find(|value| value.form_keys.contains(&key.as_str()));
        let Some(value) = value else {
            continue;
        };
        let present = form_text(value, key, edited, at);
        match change(fields, key, text, &present) {
            Change::None => {}
            Change::Made => changed.push((key.clone(), text.clone())),
            Change::Stale => {
                let reason = format!("error: changed meanwhile to `{present}`\n");
                refusal.add(value, reason);
            }
        }
    }
    if !refusal.is_empty() {
        return Err(refusal);
    }
    let mut texts = read_form(&changed, edited, at)?;
    let is_part =
        |name: &str| in_scope().any(|it| it.rule == EditRule::PartOfOther && it.name == name);
    texts.sort_by_key(|(name, _)| is_part(name));
    for (name, text) in &texts {
        let value = in_scope().find(|value| value.name == name);
        if let Some(value) = value.filter(|value| !value.set(scratch, at, text)) {
            refusal.add(value, value.refusal(text));
        }
    }
    if refusal.is_empty() {
        Ok(texts)
    } else {
        Err(refusal)
    }
}

/// Prefix of the hidden fields with the values that the form showed at first.
pub(super) const FORMER: &str = "was_";

/// Change of a field by the user.
#[derive(PartialEq, Eq, Debug)]
enum Change {
    /// The user left the field, or the value is in force already.
    None,
    /// The user changed the field.
    Made,
    /// The user changed the field, and after the form was shown, another edit changed the value.
    Stale,
}

/// Compares a posted text with the text in force, and with the text that the form showed at first. Forms of Apache lack
/// the first text, so each of their fields that differs from the text in force counts as changed.
fn change(fields: &[(String, String)], key: &str, text: &str, present: &str) -> Change {
    let mut fields = fields.iter();
    let former = fields.find(|(name, _)| name.strip_prefix(FORMER) == Some(key));
    match former {
        _ if text == present => Change::None,
        Some((_, former)) if former == text => Change::None,
        Some((_, former)) if former != present => Change::Stale,
        _ => Change::Made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_changed_by_the_user_are_changes() {
        let field = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        for (former, text, present, expected) in [
            (None, "1", "1", Change::None),
            (None, "2", "1", Change::Made),
            (Some("1"), "1", "1", Change::None),
            (Some("1"), "2", "1", Change::Made),
            (Some("1"), "1", "3", Change::None),
            (Some("1"), "2", "3", Change::Stale),
            (Some("1"), "3", "3", Change::None),
        ] {
            let mut fields = vec![field("w_ls", "9"), field("w_lf", text)];
            fields.extend(former.map(|former| field("was_w_lf", former)));
            let found = change(&fields, "w_lf", text, present);
            assert_eq!(found, expected, "{former:?} {text} {present}");
        }
    }

    #[test]
    fn a_refusal_belongs_to_the_value_that_the_reason_names() {
        let set = |name: &str, text: &str| EditAction::Set {
            balancer: "app".to_owned(),
            member: None,
            values: vec![(name.to_owned(), text.to_owned())],
        };
        let name = EDITABLE_VALUES[0].name;
        let reason = format!("error: `{name}` is too high\n");
        let refusal = FormRefusal::of_edits(reason.clone(), &[set(name, "7")]);
        assert_eq!(
            (refusal.error.as_str(), refusal.values),
            ("", vec![(name, reason)])
        );
        for action in [set(name, ""), EditAction::Undo(1)] {
            let refusal = FormRefusal::of_edits("error: no".to_owned(), &[action]);
            assert_eq!(
                (refusal.error.as_str(), refusal.values.len()),
                ("error: no", 0)
            );
        }
    }
}
