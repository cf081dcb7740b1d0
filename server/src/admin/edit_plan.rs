//! Plan of an edit: the values that a command of the operator changes, or the reason for a refusal. Pure.

use crate::admin::command::EditAction;
use crate::admin::edit_ledger::{
    ABSENT, EditChange, EditLedger, EditTarget, MEMBERSHIP, PRESENT, is_present, place, shown,
};
use crate::admin::edit_value::{EditRule, EditScope, EditableValue, FormKind};
use crate::admin::edited_balancer::{ConfiguredBalancer, EditedBalancer};
use crate::admin::limits::EDIT_VALUES_MAX;
use crate::admin::member_name::{find_balancer, find_member};
use crate::config::{parse_member_url, shown_url};
use balancer::settings::{AdminState, CheckKind, MemberHost};
use balancer::{BalancerReport, MemberState};

/// Balancers of anthill.toml and the edits, as a command finds them.
pub(crate) struct EditView<'v> {
    /// Edits in force and history.
    pub ledger: &'v EditLedger,
    /// Balancers of anthill.toml.
    pub configured: &'v [ConfiguredBalancer],
}

/// Changes of one balancer.
#[derive(Clone, Debug)]
pub(crate) struct EditPlan {
    /// Index of the balancer in the view.
    pub at: usize,
    /// Changed values. A command for values that are in force already has none.
    pub changes: Vec<EditChange>,
    /// Balancer after the changes.
    pub after: EditedBalancer,
    /// URL of the member with the set values; None for other commands.
    pub url: Option<String>,
}

impl EditView<'_> {
    /// Returns the index of the balancer that commands change. The error is the answer for the operator.
    pub(crate) fn balancer_of(&self, actions: &[EditAction]) -> Result<usize, String> {
        let names = self.configured.iter().map(|it| &*it.settings.name);
        let names: Vec<&str> = names.collect();
        let first = actions.first();
        match first.ok_or("error: there is no edit\n")? {
            EditAction::Set { balancer, .. }
            | EditAction::Add { balancer, .. }
            | EditAction::Remove { balancer, .. } => find_balancer(balancer, &names),
            EditAction::Undo(id) => {
                let entry = self.ledger.entry_to_undo(*id)?;
                let balancer = &entry.change.target.balancer;
                let found = names.iter().position(|name| name == balancer);
                found.ok_or_else(|| {
                    format!("error: the balancer `{balancer}` has left anthill.toml\n")
                })
            }
        }
    }

    /// Plans commands for the balancer with the index `at`, which is `before` at the moment. The commands are planned
    /// together, so that the plan states the danger of all commands. The error is the answer for the operator.
    pub(crate) fn plan(
        &self,
        actions: &[EditAction],
        at: usize,
        before: &EditedBalancer,
    ) -> Result<EditPlan, String> {
        let mut all = Vec::new();
        let mut only_url = None;
        let mut after = before.clone();
        for action in actions {
            let (changes, url) = self.changes(action, at, before, &mut after)?;
            all.extend(changes);
            only_url = url;
        }
        // The values of hundreds of members are in `after` already, without a search for each.
        let is_of_member = |it: &EditAction| {
            matches!(
                it,
                EditAction::Set {
                    member: Some(_),
                    ..
                }
            )
        };
        if !actions.iter().all(is_of_member) {
            after = self.after(at, before, &all);
        }
        let url = only_url.filter(|_| actions.len() == 1);
        self.plan_of(at, all, after, url)
    }

    /// Refuses planned changes of values that another edit has changed meanwhile. A value with the new text already
    /// is no loss for any edit.
    pub(crate) fn refuse_newer(
        &self,
        planned: &[EditChange],
        before: &EditedBalancer,
    ) -> Result<(), String> {
        for change in planned {
            let target = &change.target;
            let present = self.ledger.current(before, target);
            let present = present.as_deref().unwrap_or(ABSENT);
            if present != change.old && present != change.new {
                let place = if target.member.is_empty() {
                    &target.balancer
                } else {
                    &target.member
                };
                return Err(format!(
                    "error: `{}` of {place} changed meanwhile to `{}`\n\
                     help: load the page again, and repeat the edit\n",
                    target.value,
                    shown(present)
                ));
            }
        }
        Ok(())
    }

    /// Returns the changes of a command, and the URL of the member with the set values. The values are set in `scratch`.
    fn changes(
        &self,
        action: &EditAction,
        at: usize,
        before: &EditedBalancer,
        scratch: &mut EditedBalancer,
    ) -> Result<(Vec<EditChange>, Option<String>), String> {
        Ok(match action {
            EditAction::Set { member, values, .. } => {
                self.set(before, scratch, member.as_deref(), values)?
            }
            EditAction::Add { url, .. } => (vec![self.add(at, before, url)?], None),
            EditAction::Remove { member, .. } => (vec![self.remove(at, before, member)?], None),
            EditAction::Undo(id) => {
                let entry = self.ledger.entry_to_undo(*id)?;
                (vec![self.ledger.undo(before, entry)?], None)
            }
        })
    }

    fn plan_of(
        &self,
        at: usize,
        changes: Vec<EditChange>,
        after: EditedBalancer,
        url: Option<String>,
    ) -> Result<EditPlan, String> {
        let plan = EditPlan {
            at,
            changes,
            after,
            url,
        };
        self.refuse(&plan)?;
        Ok(plan)
    }

    /// Returns the changes that set values of the balancer or of a member, and the URL of the member.
    fn set(
        &self,
        before: &EditedBalancer,
        scratch: &mut EditedBalancer,
        member: Option<&str>,
        values: &[(String, String)],
    ) -> Result<(Vec<EditChange>, Option<String>), String> {
        if values.len() > EDIT_VALUES_MAX {
            return Err(format!("error: more than {EDIT_VALUES_MAX} values\n"));
        }
        let at = member.map(|member| member_at(before, member)).transpose()?;
        let scope = match at {
            Some(_) => EditScope::Member,
            None => EditScope::Balancer,
        };
        let url = at.map(|at| before.urls[at].clone());
        let mut named: Vec<&'static EditableValue> = Vec::new();
        for (name, text) in values {
            let value = EditableValue::find(name, scope)?;
            if named.iter().any(|known| known.name == value.name) {
                return Err(format!("error: `{name}` occurs twice\n"));
            }
            named.push(value);
            if !value.set(scratch, at.unwrap_or(0), text) {
                return Err(value.refusal(text));
            }
            self.refuse_unknown_check(value, text)?;
        }
        let changes = named.into_iter().map(|value| EditChange {
            target: EditTarget {
                balancer: before.settings.name.to_string(),
                member: url.clone().unwrap_or_default(),
                value: value.name.to_owned(),
            },
            old: value.get(before, at.unwrap_or(0)),
            new: value.get(scratch, at.unwrap_or(0)),
            undoes: 0,
        });
        let changes = changes.filter(|change| change.old != change.new);
        Ok((changes.collect(), url))
    }

    /// Refuses a `check_expression` that is no balancer with checks by HTTP.
    fn refuse_unknown_check(&self, value: &EditableValue, text: &str) -> Result<(), String> {
        if !matches!(value.form, FormKind::Condition(_)) || matches!(text, "" | "-") {
            return Ok(());
        }
        let has_condition = |it: &&ConfiguredBalancer| {
            let check = it.settings.check.as_ref().map(|check| &check.kind);
            matches!(check, Some(CheckKind::Http { .. }))
        };
        let known = self.configured.iter().filter(has_condition);
        let known: Vec<&str> = known.map(|it| &*it.settings.name).collect();
        if known.contains(&text) {
            return Ok(());
        }
        let help = if known.is_empty() {
            "no balancer has `health` with a path".to_owned()
        } else {
            format!(
                "the balancers with `health` and a path are: {}",
                known.join(", ")
            )
        };
        Err(format!("error: `{text}` names no check\nhelp: {help}\n"))
    }

    fn add(&self, at: usize, before: &EditedBalancer, url: &str) -> Result<EditChange, String> {
        let name = &before.settings.name;
        self.refuse_own(at)?;
        let url = parse_member_url(url).map_err(|error| format!("error: {error}\n"))?;
        if let MemberHost::Unix(_) = url.host {
            return Err("error: a Unix socket can't be added at runtime\n\
                        help: add the member to `members` in anthill.toml, and reload\n"
                .to_owned());
        }
        let url = shown_url(&url);
        if before.member_at(&url).is_some() {
            return Err(format!("error: `{url}` is a member of `{name}` already\n"));
        }
        Ok(membership(
            before,
            url,
            ABSENT.to_owned(),
            PRESENT.to_owned(),
        ))
    }

    fn remove(
        &self,
        at: usize,
        before: &EditedBalancer,
        member: &str,
    ) -> Result<EditChange, String> {
        self.refuse_own(at)?;
        let member = member_at(before, member)?;
        let url = before.urls[member].clone();
        let change = membership(before, url, PRESENT.to_owned(), ABSENT.to_owned());
        let old = self.ledger.current(before, &change.target);
        Ok(EditChange {
            old: old.unwrap_or_else(|| PRESENT.to_owned()),
            ..change
        })
    }

    /// Refuses to change the members of a route's own balancer.
    fn refuse_own(&self, at: usize) -> Result<(), String> {
        let balancer = &self.configured[at];
        if balancer.is_own {
            Err(format!(
                "error: `{}` is the server of a route with `proxy`, and has a single member\n\
                 help: write a [[balancer]], and `balance` instead of `proxy` in the route\n",
                balancer.settings.name
            ))
        } else {
            Ok(())
        }
    }

    /// Returns the balancer after the changes. Results of checks stay as they are in `before`.
    fn after(&self, at: usize, before: &EditedBalancer, changes: &[EditChange]) -> EditedBalancer {
        let mut ledger = self.ledger.clone();
        ledger.record_all(&self.configured[at], changes, "", 0);
        let mut after = ledger.edited(&self.configured[at]);
        for (url, check) in after.urls.iter().zip(&mut after.checks) {
            check.is_failed = before
                .member_at(url)
                .is_some_and(|at| before.checks[at].is_failed);
        }
        for change in changes {
            if let Some((value, at)) = place(&after, &change.target)
                && value.rule == EditRule::Momentary
            {
                value.set(&mut after, at, &change.new);
            }
        }
        after
    }

    /// Refuses changes that leave no member, or a balancer that anthill.toml could not have.
    fn refuse(&self, plan: &EditPlan) -> Result<(), String> {
        let name = &plan.after.settings.name;
        if plan.after.settings.members.is_empty() {
            return Err(format!(
                "error: the last member of `{name}` can't be removed\n\
                 help: add another member first, or disable the member\n"
            ));
        }
        if plan.changes.is_empty() {
            return Ok(());
        }
        match self.configured[plan.at].refusal(&plan.after) {
            None => Ok(()),
            Some(error) => {
                let help = error.hint().map(|hint| format!("help: {hint}\n"));
                let help = help.unwrap_or_default();
                Err(format!(
                    "error: `{name}` would be invalid: {}\n{help}",
                    error.what()
                ))
            }
        }
    }
}

impl EditPlan {
    /// Returns the question for the operator before a dangerous change; `report` is the present state of the
    /// balancer.
    pub(crate) fn danger(&self, report: &BalancerReport) -> Option<String> {
        let name = &report.settings.name;
        if let Some(removal) = self.changes.iter().find(|change| change.is_removal()) {
            let url = &removal.target.member;
            return Some(format!("{url} leaves the balancer `{name}`."));
        }
        let takes_requests = |url: &str| {
            let after = self.after.member_at(url);
            after.is_some_and(|at| self.after.settings.members[at].admin == AdminState::Enabled)
        };
        let mut up = report
            .members
            .iter()
            .filter(|it| it.state == MemberState::Up);
        let is_lost = |url: &String| !takes_requests(url);
        let urls: Vec<String> = up.by_ref().map(|it| shown_url(&it.url)).collect();
        if !urls.iter().all(is_lost) {
            return None;
        }
        match &urls[..] {
            [] => None,
            [last] => Some(format!(
                "{last} is the last usable member of the balancer `{name}`: without a usable member, requests get 503."
            )),
            _ => Some(format!(
                "the {} members are the last usable members of the balancer `{name}`: without a usable member, requests get 503.",
                urls.len()
            )),
        }
    }

    /// Returns true if the plan adds or removes a member.
    pub(crate) fn changes_membership(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.target.value == MEMBERSHIP)
    }
}

impl EditChange {
    /// Returns true if the change removes a member.
    fn is_removal(&self) -> bool {
        self.target.value == MEMBERSHIP && !is_present(&self.new)
    }
}

/// Returns the index of a member by the operator's word. The error is the answer for the operator.
fn member_at(edited: &EditedBalancer, typed: &str) -> Result<usize, String> {
    if let Some(at) = edited.member_at(typed) {
        return Ok(at);
    }
    let members = edited.settings.members.iter();
    let members: Vec<_> = members
        .map(|it| (it.url.clone(), it.route.clone()))
        .collect();
    find_member(&edited.settings.name, typed, &members)
}

fn membership(edited: &EditedBalancer, url: String, old: String, new: String) -> EditChange {
    EditChange {
        target: EditTarget {
            balancer: edited.settings.name.to_string(),
            member: url,
            value: MEMBERSHIP.to_owned(),
        },
        old,
        new,
        undoes: 0,
    }
}

#[cfg(test)]
mod tests;
