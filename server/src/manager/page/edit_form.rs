//! Form with the editable values of a balancer or of a member, under the keys of Apache's balancer-manager.

use super::parts::push_hidden;
use crate::admin::edit_form::form_text;
use crate::admin::edit_value::{EDITABLE_VALUES, EditRule, EditScope, EditableValue, FormKind};
use crate::git::browse::render::html::Html;
use crate::manager::form::Form;
use crate::manager::form_edit::{FORMER, FormRefusal};
use crate::manager::selection::Selection;

/// Form of a selection, with the fields of a refused form.
pub(super) struct EditForm<'f> {
    /// Selected balancer or member.
    pub(super) selection: &'f Selection<'f>,
    /// Token of the login.
    pub(super) token: &'f str,
    /// Names of balancers with a condition for checks.
    pub(super) conditions: &'f [&'f str],
    /// Refused form with the reasons.
    pub(super) refused: Option<(&'f Form, &'f FormRefusal)>,
}

impl EditForm<'_> {
    /// Appends the form.
    pub(super) fn push(&self, page: &mut Html) {
        let scope = match self.selection.member {
            Some(_) => EditScope::Member,
            None => EditScope::Balancer,
        };
        page.markup("<form method=post action=\"/\" class=fields>");
        self.push_selectors(page);
        for value in EDITABLE_VALUES.iter().filter(|it| it.scope() == scope) {
            if value.rule != EditRule::Buttons {
                self.push_value(page, value);
            }
        }
        if scope == EditScope::Balancer && !self.selection.configured.is_own {
            page.markup("<p class=field><label for=b_nwrkr>New member</label>")
                .markup("<input id=b_nwrkr name=b_nwrkr placeholder=\"http://10.0.0.5:8080\">")
                .markup("<label><input type=checkbox name=b_wyes value=1> add the member, disabled</label></p>");
        }
        page.markup("<p class=field><button>Change</button></p></form>");
    }

    /// Appends the hidden fields for the selection and the token.
    pub(super) fn push_selectors(&self, page: &mut Html) {
        push_hidden(page, "b", self.selection.name());
        if let Some(url) = self.selection.url() {
            push_hidden(page, "w", url);
        }
        push_hidden(page, "nonce", self.token);
    }

    /// Appends the fields of a value, with the reason of a refusal.
    fn push_value(&self, page: &mut Html, value: &EditableValue) {
        let refusal = self.refused.and_then(|(_, refusal)| {
            let mut values = refusal.values.iter();
            values.find(|(name, _)| *name == value.name)
        });
        page.markup("<p class=field>");
        for key in value.form_keys {
            self.push_field(page, value, key, refusal.is_some());
        }
        page.markup("<small id=").markup(value.name).markup(">");
        page.text(help(value)).markup("</small>");
        if let Some((_, reason)) = refusal {
            page.markup("<strong class=wrong role=alert id=")
                .markup(value.name);
            page.markup("_wrong>")
                .text(reason.trim_end())
                .markup("</strong>");
        }
        page.markup("</p>\n");
    }

    fn push_field(&self, page: &mut Html, value: &EditableValue, key: &str, is_wrong: bool) {
        let selection = self.selection;
        let present = form_text(value, key, &selection.edited, selection.member.unwrap_or(0));
        let posted = self.refused.and_then(|(form, _)| form.value(key));
        let text = posted.unwrap_or(&present);
        push_hidden(page, &format!("{FORMER}{key}"), &present);
        let options = self.options(&value.form);
        let name = field_label(value, key);
        if value.form.is_flag() {
            push_hidden(page, key, "0");
            page.markup("<label><input type=checkbox value=1");
            push_attributes(page, key, value.name, is_wrong);
            page.markup(if text == "1" { " checked> " } else { "> " });
            page.text(name).markup("</label>");
            return;
        }
        page.markup("<label for=")
            .markup(key)
            .markup(">")
            .text(name);
        page.markup("</label>");
        if options.is_empty() {
            page.markup("<input value=\"").text(text).markup("\"");
            push_attributes(page, key, value.name, is_wrong);
            page.markup(">");
            return;
        }
        page.markup("<select");
        push_attributes(page, key, value.name, is_wrong);
        page.markup(">");
        for option in options {
            page.markup("<option value=\"").text(option);
            page.markup(if option == text {
                "\" selected>"
            } else {
                "\">"
            });
            page.text(if option.is_empty() { "none" } else { option });
            page.markup("</option>");
        }
        page.markup("</select>");
    }

    /// Returns the valid texts of a value with a fixed choice.
    fn options(&self, form: &FormKind) -> Vec<&str> {
        match form {
            FormKind::Choice(words) => words(),
            FormKind::CheckMethod => vec!["None", "TCP", "GET", "HEAD"],
            FormKind::Condition(_) => {
                let conditions = self.conditions.iter().copied();
                std::iter::once("").chain(conditions).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Appends the attributes that all kinds of fields have.
fn push_attributes(page: &mut Html, key: &str, value: &str, is_wrong: bool) {
    page.markup(" id=").markup(key).markup(" name=").markup(key);
    page.markup(" aria-describedby=\"").markup(value);
    if is_wrong {
        page.markup(" ")
            .markup(value)
            .markup("_wrong\" aria-invalid=\"true");
    }
    page.markup("\"");
}

/// Returns the label of a field.
fn field_label(value: &EditableValue, key: &str) -> String {
    let at = value.form_keys.iter().position(|known| *known == key);
    let word = at.and_then(|at| value.form.words().get(at + 1));
    match (word, &value.form) {
        (Some((_, label)), _) | (None, FormKind::Path(label) | FormKind::Condition(label)) => {
            (*label).to_owned()
        }
        _ => value.label(),
    }
}

/// Returns the valid texts of a value in the units of the form.
fn help(value: &EditableValue) -> &'static str {
    match value.form {
        FormKind::Milliseconds => "milliseconds, at least 1",
        FormKind::Seconds => "seconds, from 0 to 7200",
        FormKind::ExclusiveFlags(_, rule) => rule,
        FormKind::Flag | FormKind::Flags(_) => "",
        FormKind::Choice(_) | FormKind::CheckMethod | FormKind::Condition(_) => "",
        FormKind::Text | FormKind::Path(_) => value.range,
    }
}
