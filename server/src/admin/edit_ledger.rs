//! Ledger of the operator's edits of balancers and members: the edits in force, and a bounded history. Pure.
//!
//! An edit in force remembers the value of anthill.toml at the time of the edit. When the file has another
//! value, the edit yields to the file.

use crate::admin::edit_value::{EDITABLE_VALUES, EditRule, EditScope, EditableValue};
use crate::admin::edited_balancer::{ConfiguredBalancer, EditedBalancer};
use crate::admin::limits::{EDIT_HISTORY_ENTRIES_MAX, EDIT_SUSPECTS_MAX, EDITS_IN_FORCE_MAX};
use crate::config::{parse_member_url, shown_url};
use balancer::settings::MemberUrl;
use std::collections::VecDeque;
use std::sync::Arc;

/// Name of the value that states the membership of a member.
pub(crate) const MEMBERSHIP: &str = "member";
/// Text of the membership of a member.
pub(crate) const PRESENT: &str = "present";
/// Text of the membership of a URL that is no member.
pub(crate) const ABSENT: &str = "absent";
/// User of the entries that record changes of anthill.toml.
pub(crate) const FILE_USER: &str = "anthill.toml";

/// Value of a balancer or of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditTarget {
    /// Name of the balancer.
    pub balancer: String,
    /// URL of the member; the empty text for a value of the balancer.
    pub member: String,
    /// Name of the value.
    pub value: String,
}

/// Change of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditChange {
    /// The changed value.
    pub target: EditTarget,
    /// Text before the change.
    pub old: String,
    /// Text after the change.
    pub new: String,
    /// Number of the entry that the change undoes; 0 for none.
    pub undoes: u64,
}

/// Entry of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditEntry {
    /// Number of the entry, counted from 1.
    pub id: u64,
    /// Unix time in seconds.
    pub at: u64,
    /// Name of the user.
    pub user: String,
    /// The change.
    pub change: EditChange,
    /// Number of the entry that undid the change; 0 for none.
    pub undone_by: u64,
}

/// Edit in force: a value that differs from anthill.toml.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditInForce {
    /// Number of the entry in the history.
    pub id: u64,
    /// Unix time in seconds.
    pub at: u64,
    /// Name of the user.
    pub user: String,
    /// The changed value.
    pub target: EditTarget,
    /// Text of the value in anthill.toml at the time of the edit.
    pub configured: String,
    /// Text in force.
    pub text: String,
}

/// All edits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EditLedger {
    /// Number of the last entry.
    pub last_id: u64,
    /// Edits in force, the oldest first.
    pub in_force: Vec<EditInForce>,
    /// History, the oldest first.
    pub history: VecDeque<EditEntry>,
}

/// Edits and the balancers of anthill.toml at one moment, without a copy.
#[derive(Clone, Debug, Default)]
pub struct EditState {
    /// Edits in force and history.
    pub ledger: Arc<EditLedger>,
    /// Balancers of anthill.toml.
    pub configured: Arc<Vec<ConfiguredBalancer>>,
}

impl EditLedger {
    /// Returns a balancer with its members in force, and without any other edit.
    pub(crate) fn unedited(&self, configured: &ConfiguredBalancer) -> EditedBalancer {
        let mut edited = configured.unedited();
        for edit in self.of_balancer(&configured.settings.name) {
            if edit.target.value != MEMBERSHIP {
                continue;
            }
            match (edited.member_at(&edit.target.member), &*edit.text) {
                (Some(at), ABSENT) => edited.remove_member(at),
                (None, PRESENT) => {
                    if let Ok(url) = parse_member_url(&edit.target.member) {
                        configured.add_member(&mut edited, url);
                    }
                }
                _ => {}
            }
        }
        edited
    }

    /// Returns a balancer with all edits in force.
    pub(crate) fn edited(&self, configured: &ConfiguredBalancer) -> EditedBalancer {
        let mut edited = self.unedited(configured);
        for is_part in [false, true] {
            for edit in self.of_balancer(&configured.settings.name) {
                if let Some((value, at)) = place(&edited, &edit.target)
                    && (value.rule == EditRule::PartOfOther) == is_part
                {
                    value.set(&mut edited, at, &edit.text);
                }
            }
        }
        edited
    }

    /// Returns the edits in force of a balancer.
    pub(crate) fn of_balancer(&self, name: &str) -> impl Iterator<Item = &EditInForce> {
        let edits = self.in_force.iter();
        edits.filter(move |edit| edit.target.balancer == name)
    }

    /// Returns the value in the balancer `edited` as text; None if the member is missing.
    pub(crate) fn current(&self, edited: &EditedBalancer, target: &EditTarget) -> Option<String> {
        if target.value == MEMBERSHIP {
            return Some(self.membership(edited, target));
        }
        let (value, at) = place(edited, target)?;
        Some(value.get(edited, at))
    }

    /// Returns the membership of a URL, with the edited values of a member.
    fn membership(&self, edited: &EditedBalancer, target: &EditTarget) -> String {
        if edited.member_at(&target.member).is_none() {
            return ABSENT.to_owned();
        }
        let mut text = PRESENT.to_owned();
        for edit in self.of_balancer(&target.balancer) {
            if edit.target.member == target.member && edit.target.value != MEMBERSHIP {
                text.push_str(&format!(" {}={}", edit.target.value, edit.text));
            }
        }
        text
    }

    /// Records changes of one balancer, each as an entry of the history, and puts the changes in force.
    pub(crate) fn record_all(
        &mut self,
        configured: &ConfiguredBalancer,
        changes: &[EditChange],
        user: &str,
        at: u64,
    ) {
        let mut base = self.unedited(configured);
        for change in changes {
            let id = self.last_id + 1;
            let target = change.target.clone();
            if target.value == MEMBERSHIP {
                self.set_membership(configured, change, id, user, at);
                base = self.unedited(configured);
            } else {
                let text = base_text(configured, &base, &target).unwrap_or_default();
                self.put_in_force(id, at, user, target, text, change.new.clone());
            }
            self.push_entry(change.clone(), user, at);
        }
    }

    fn set_membership(
        &mut self,
        configured: &ConfiguredBalancer,
        change: &EditChange,
        id: u64,
        user: &str,
        at: u64,
    ) {
        let target = &change.target;
        self.in_force.retain(|edit| {
            (&edit.target.balancer, &edit.target.member) != (&target.balancer, &target.member)
        });
        let base = file_membership(configured, &target.member);
        let mut words = change.new.split(' ');
        let text = words.next().unwrap_or_default().to_owned();
        self.put_in_force(id, at, user, target.clone(), base.to_owned(), text);
        for (value, text) in words.filter_map(|word| word.split_once('=')) {
            let target = EditTarget {
                value: value.to_owned(),
                ..target.clone()
            };
            let base = self.unedited(configured);
            let base = base_text(configured, &base, &target).unwrap_or_default();
            self.put_in_force(id, at, user, target, base, text.to_owned());
        }
    }

    /// Replaces the edit in force of a value. A text equal to the text of anthill.toml is no edit.
    fn put_in_force(
        &mut self,
        id: u64,
        at: u64,
        user: &str,
        target: EditTarget,
        configured: String,
        text: String,
    ) {
        self.in_force.retain(|edit| edit.target != target);
        let is_lasting = find_value(&target.value).is_none_or(|it| it.rule != EditRule::Momentary);
        if text != configured && is_lasting {
            self.in_force.push(EditInForce {
                id,
                at,
                user: user.to_owned(),
                target,
                configured,
                text,
            });
        }
    }

    /// Adds an entry to the history, and drops the oldest entry of a full history.
    fn push_entry(&mut self, change: EditChange, user: &str, at: u64) {
        self.last_id += 1;
        let id = self.last_id;
        if change.undoes != 0
            && let Some(undone) = self.history.iter_mut().find(|it| it.id == change.undoes)
        {
            undone.undone_by = id;
        }
        if self.history.len() == EDIT_HISTORY_ENTRIES_MAX {
            self.history.pop_front();
        }
        self.history.push_back(EditEntry {
            id,
            at,
            user: user.to_owned(),
            change,
            undone_by: 0,
        });
    }

    /// Returns true if the ledger has no room for further edits in force.
    pub(crate) fn is_full(&self) -> bool {
        self.in_force.len() > EDITS_IN_FORCE_MAX
    }

    /// Returns the entry with a number that can be undone. The error is the answer for the operator.
    pub(crate) fn entry_to_undo(&self, id: u64) -> Result<&EditEntry, String> {
        let Some(entry) = self.history.iter().find(|entry| entry.id == id) else {
            return Err(match (self.history.front(), self.history.back()) {
                (Some(first), Some(last)) => format!(
                    "error: the history has no entry {id}\nhelp: the entries are {} to {}\n",
                    first.id, last.id
                ),
                _ => "error: the history of edits is empty\n".to_owned(),
            });
        };
        match entry.undone_by {
            0 => Ok(entry),
            by => Err(format!(
                "error: entry {id} is undone by entry {by}\n\
                 help: `anthill balancer undo {by}` restores the value\n"
            )),
        }
    }

    /// Returns the change that undoes an entry in the balancer `before`. The error is the answer for the
    /// operator.
    pub(crate) fn undo(
        &self,
        before: &EditedBalancer,
        entry: &EditEntry,
    ) -> Result<EditChange, String> {
        let target = &entry.change.target;
        let Some(old) = self.current(before, target) else {
            let (member, balancer) = (&target.member, &target.balancer);
            return Err(format!(
                "error: {member} is no member of `{balancer}` any more\n"
            ));
        };
        let new = entry.change.old.clone();
        if new == old || (target.value == MEMBERSHIP && is_present(&new) == is_present(&old)) {
            return Err(format!(
                "error: `{}` is {} already\n",
                target.value,
                shown(&old)
            ));
        }
        Ok(EditChange {
            target: target.clone(),
            old,
            new,
            undoes: entry.id,
        })
    }

    /// Compares the edits in force with a configuration. An edit yields if the file has changed the value
    /// since, if the balancer or the member left the file, or if anthill.toml would refuse the edited
    /// balancer. Each edit that yields gets an entry. `is_refused` returns true for URLs that cannot be added.
    /// Returns the number of edits that yielded.
    pub(crate) fn reconcile(
        &mut self,
        configured: &[ConfiguredBalancer],
        is_refused: impl Fn(&MemberUrl) -> bool,
        at: u64,
    ) -> usize {
        let is_known = |edit: &EditInForce| {
            let mut names = configured.iter().map(|it| &*it.settings.name);
            names.any(|name| name == edit.target.balancer)
        };
        let (kept, gone) = std::mem::take(&mut self.in_force)
            .into_iter()
            .partition(is_known);
        self.in_force = kept;
        let gone: Vec<EditInForce> = gone;
        let gone = gone.into_iter().map(|edit| (edit, ABSENT.to_owned()));
        let mut yielded: Vec<(EditInForce, String)> = gone.collect();
        for balancer in configured {
            self.reconcile_balancer(balancer, &is_refused, &mut yielded);
        }
        let count = yielded.len();
        for (edit, base) in yielded {
            let change = EditChange {
                target: edit.target,
                old: edit.text,
                new: base,
                undoes: 0,
            };
            self.push_entry(change, FILE_USER, at);
        }
        count
    }

    /// Moves the edits of a balancer that yield to `yielded`, each with the text of anthill.toml.
    fn reconcile_balancer(
        &mut self,
        balancer: &ConfiguredBalancer,
        is_refused: &dyn Fn(&MemberUrl) -> bool,
        yielded: &mut Vec<(EditInForce, String)>,
    ) {
        let name = &balancer.settings.name;
        // The values of a member without membership yield too.
        for phase in 0..=2 {
            let base = self.unedited(balancer);
            let mut scratch = self.edited(balancer);
            let mut kept = Vec::with_capacity(self.in_force.len());
            for edit in std::mem::take(&mut self.in_force) {
                let is_due = edit.target.balancer == **name && phase_of(&edit.target) == phase;
                let text = if is_due {
                    base_text(balancer, &base, &edit.target)
                } else {
                    Some(edit.configured.clone())
                };
                let is_kept = !is_due
                    || text.as_ref() == Some(&edit.configured)
                        && is_possible(&mut scratch, &edit, is_refused);
                if is_kept {
                    kept.push(edit)
                } else {
                    yielded.push((edit, text.unwrap_or_else(|| ABSENT.to_owned())))
                }
            }
            self.in_force = kept;
        }
        while balancer.refusal(&self.edited(balancer)).is_some() {
            let Some(at) = self.refused_edit(balancer) else {
                return;
            };
            let edit = self.in_force.remove(at);
            let text = edit.configured.clone();
            yielded.push((edit, text));
        }
    }

    /// Returns the index of the newest edit without which anthill.toml accepts the balancer, else of the newest
    /// edit.
    fn refused_edit(&self, balancer: &ConfiguredBalancer) -> Option<usize> {
        let edits = self.in_force.iter().enumerate().rev();
        let own = edits.filter(|(_, edit)| edit.target.balancer == *balancer.settings.name);
        let own: Vec<usize> = own.map(|(at, _)| at).collect();
        let is_culprit = |at: &&usize| {
            let mut without = EditLedger {
                in_force: self.in_force.clone(),
                ..EditLedger::default()
            };
            without.in_force.remove(**at);
            balancer.refusal(&without.edited(balancer)).is_none()
        };
        let suspects = own.iter().take(EDIT_SUSPECTS_MAX);
        let culprit = suspects.clone().find(is_culprit);
        culprit.or(own.first()).copied()
    }
}

/// Returns the order in which edits are compared with anthill.toml: membership, values, parts of values.
fn phase_of(target: &EditTarget) -> u8 {
    match find_value(&target.value).map(|value| value.rule) {
        None => 0,
        Some(EditRule::PartOfOther) => 2,
        Some(_) => 1,
    }
}

/// Returns the text of a value in anthill.toml, or the default of a value of an added member.
fn base_text(
    configured: &ConfiguredBalancer,
    base: &EditedBalancer,
    target: &EditTarget,
) -> Option<String> {
    if target.value == MEMBERSHIP {
        return Some(file_membership(configured, &target.member).to_owned());
    }
    let (value, at) = place(base, target)?;
    Some(value.get(base, at))
}

/// Returns true if an edit can be in force.
fn is_possible(
    scratch: &mut EditedBalancer,
    edit: &EditInForce,
    is_refused: &dyn Fn(&MemberUrl) -> bool,
) -> bool {
    if edit.target.value == MEMBERSHIP {
        let url = parse_member_url(&edit.target.member);
        return edit.text == ABSENT || url.is_ok_and(|url| !is_refused(&url));
    }
    match place(scratch, &edit.target) {
        Some((value, at)) => value.set(scratch, at, &edit.text),
        None => false,
    }
}

/// Returns the value of the table and the index of the member; the index 0 for a value of the balancer.
pub(super) fn place(
    edited: &EditedBalancer,
    target: &EditTarget,
) -> Option<(&'static EditableValue, usize)> {
    let value = find_value(&target.value)?;
    match value.scope() {
        EditScope::Balancer => Some((value, 0)),
        EditScope::Member => Some((value, edited.member_at(&target.member)?)),
    }
}

/// Returns the value of the table with a name; None for the membership.
pub(super) fn find_value(name: &str) -> Option<&'static EditableValue> {
    EDITABLE_VALUES.iter().find(|value| value.name == name)
}

/// Returns the membership of a URL in anthill.toml.
fn file_membership(configured: &ConfiguredBalancer, url: &str) -> &'static str {
    let mut members = configured.settings.members.iter();
    if members.any(|member| shown_url(&member.url) == url) {
        PRESENT
    } else {
        ABSENT
    }
}

/// Returns true if a text of membership states a member.
pub(crate) fn is_present(text: &str) -> bool {
    text.starts_with(PRESENT)
}

/// Returns a text for the operator, where a hyphen stands for the empty text.
pub(crate) fn shown(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
