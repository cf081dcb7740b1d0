//! History of the edits, and the differences from anthill.toml, as text and as JSON. Pure.

use crate::admin::edit_ledger::{
    EditChange, EditEntry, EditInForce, EditLedger, EditTarget, find_value, shown,
};
use crate::admin::edit_value::EditableValue;
use crate::admin::edited_balancer::{CheckParts, CheckWord, ConfiguredBalancer, EditedBalancer};
use crate::admin::json_text::{joined, or_null};
use crate::admin::value_text::duration_text;
use balancer::settings::CheckKind;
use base::clock::format_utc;
use wire::json::quoted;

/// Edits in force as differences from anthill.toml.
pub(crate) struct EditDifferences<'l> {
    ledger: &'l EditLedger,
    configured: &'l [ConfiguredBalancer],
}

/// Returns the name of a balancer, and the URL of a member.
fn place_text(target: &EditTarget) -> String {
    if target.member.is_empty() {
        target.balancer.clone()
    } else {
        format!("{}: {}", target.balancer, target.member)
    }
}

fn place_json(target: &EditTarget) -> String {
    format!(
        "\"balancer\":{},\"member\":{},\"value\":{}",
        quoted(&target.balancer),
        or_null((!target.member.is_empty()).then(|| quoted(&target.member))),
        quoted(&target.value)
    )
}

impl EditChange {
    /// Returns a planned change as a line without its end: `app: http://10.0.0.5: weight from 1 to 2`.
    pub(crate) fn line(&self) -> String {
        format!(
            "{}: {} from {} to {}",
            place_text(&self.target),
            self.target.value,
            shown(&self.old),
            shown(&self.new)
        )
    }
}

impl EditEntry {
    /// Returns the change as a line without its end: `app: http://10.0.0.5: weight changed from 1 to 2`. An edit that
    /// yields because anthill.toml got its value leaves the value as before.
    pub(crate) fn line(&self) -> String {
        let change = &self.change;
        if change.old == change.new {
            let (target, value) = (&change.target, shown(&change.new));
            return format!("{}: {} stays {value}", place_text(target), target.value);
        }
        format!(
            "{}: {} changed from {} to {}",
            place_text(&change.target),
            change.target.value,
            shown(&change.old),
            shown(&change.new)
        )
    }

    fn text(&self) -> String {
        let (time, user) = (format_utc(self.at), self.user.escape_debug());
        let mut line = format!("{:>5}  {time}  {user}: {}", self.id, self.line());
        if self.change.undoes != 0 {
            line.push_str(&format!(" (undoes {})", self.change.undoes));
        }
        if self.undone_by != 0 {
            line.push_str(&format!(" (undone by {})", self.undone_by));
        }
        line + "\n"
    }

    fn json(&self) -> String {
        let entry = |id: u64| or_null((id != 0).then(|| id.to_string()));
        format!(
            "{{\"id\":{},\"time\":{},\"user\":{},{},\"old\":{},\"new\":{},\"undoes\":{},\"undone_by\":{}}}",
            self.id,
            self.at,
            quoted(&self.user),
            place_json(&self.change.target),
            quoted(&self.change.old),
            quoted(&self.change.new),
            entry(self.change.undoes),
            entry(self.undone_by)
        )
    }
}

impl EditLedger {
    /// Returns the entries of a balancer, or of all balancers, the newest first.
    fn entries(&self, only: Option<&str>) -> impl Iterator<Item = &EditEntry> {
        let entries = self.history.iter().rev();
        entries.filter(move |it| only.is_none_or(|only| it.change.target.balancer == only))
    }

    /// Renders the history as lines, the newest entry first.
    pub(crate) fn history_text(&self, only: Option<&str>) -> String {
        let lines: String = self.entries(only).map(EditEntry::text).collect();
        if lines.is_empty() {
            "the history of edits is empty\n".to_owned()
        } else {
            lines
        }
    }

    /// Renders the history as one JSON object and a line feed, the newest entry first.
    pub(crate) fn history_json(&self, only: Option<&str>) -> String {
        format!(
            "{{\"entries\":[{}]}}\n",
            joined(self.entries(only).map(EditEntry::json))
        )
    }
}

impl<'l> EditDifferences<'l> {
    /// Compares the edits in force with the balancers of anthill.toml.
    pub(crate) fn new(ledger: &'l EditLedger, configured: &'l [ConfiguredBalancer]) -> Self {
        EditDifferences { ledger, configured }
    }

    /// Renders the edits in force, and for each balancer the lines for anthill.toml.
    pub(crate) fn text(&self) -> String {
        if self.ledger.in_force.is_empty() {
            return "no edit is in force: the balancers are as in anthill.toml\n".to_owned();
        }
        let mut out = self.edits_text();
        for (heading, lines) in self.blocks() {
            out.push_str(&format!("\n{heading}:\n{lines}"));
        }
        out
    }

    /// Renders the edits in force, a line each.
    pub(crate) fn edits_text(&self) -> String {
        let mut out = String::new();
        for edit in &self.ledger.in_force {
            out.push_str(&format!(
                "{}: {} is {} instead of {}, by {} at {} (entry {})\n",
                place_text(&edit.target),
                edit.target.value,
                shown(&edit.text),
                shown(&edit.configured),
                edit.user.escape_debug(),
                format_utc(edit.at),
                edit.id
            ));
        }
        out
    }

    /// Returns the lines for anthill.toml of each balancer with edits, each with a heading.
    pub(crate) fn blocks(&self) -> Vec<(String, String)> {
        let mut blocks = Vec::new();
        for balancer in self.configured {
            let lines = self.lines(balancer);
            if lines.is_empty() {
                continue;
            }
            let name = &balancer.settings.name;
            let heading = if balancer.is_own {
                format!(
                    "lines for a [[balancer]] that replaces `proxy` of the route {name} (with \
                     `balance` in the route)"
                )
            } else {
                format!("lines for the [[balancer]] with the name \"{name}\"")
            };
            blocks.push((heading, lines.join("\n") + "\n"));
        }
        blocks
    }

    /// Renders the differences as one JSON object and a line feed.
    pub(crate) fn json(&self) -> String {
        let edits = self.ledger.in_force.iter().map(edit_json);
        let balancers = self.configured.iter().filter_map(|balancer| {
            let lines = self.lines(balancer);
            let toml = quoted(&(lines.join("\n") + "\n"));
            let name = quoted(&balancer.settings.name);
            (!lines.is_empty()).then(|| format!("{{\"balancer\":{name},\"toml\":{toml}}}"))
        });
        format!(
            "{{\"differences\":[{}],\"lines\":[{}]}}\n",
            joined(edits),
            joined(balancers)
        )
    }

    /// Returns the lines for the keys of a balancer with edits. The lines replace the lines of the same keys.
    fn lines(&self, balancer: &ConfiguredBalancer) -> Vec<String> {
        let mut keys: Vec<&str> = Vec::new();
        for edit in self.ledger.of_balancer(&balancer.settings.name) {
            keys.push(key_of(&edit.target));
        }
        if keys.is_empty() {
            return Vec::new();
        }
        let edited = self.ledger.edited(balancer);
        let mut lines = balancer.lines(&edited, |key| keys.contains(&key));
        if keys.contains(&"health") {
            lines.extend(health_lines(balancer, &edited));
        }
        lines
    }
}

/// Returns the key of `[[balancer]]` that states a value, or the membership of a member.
fn key_of(target: &EditTarget) -> &'static str {
    find_value(&target.value).map_or("members", EditableValue::file_key)
}

fn edit_json(edit: &EditInForce) -> String {
    format!(
        "{{{},\"configured\":{},\"in_force\":{},\"user\":{},\"time\":{},\"entry\":{}}}",
        place_json(&edit.target),
        quoted(&edit.configured),
        quoted(&edit.text),
        quoted(&edit.user),
        edit.at,
        edit.id
    )
}

/// Returns the line `health` if all members have the same checks. Otherwise the file can't state the checks,
/// and the lines are comments.
fn health_lines(balancer: &ConfiguredBalancer, edited: &EditedBalancer) -> Vec<String> {
    let mut checks = edited.checks.iter();
    let first = checks.next();
    match first.filter(|first| checks.all(|other| other == *first)) {
        Some(parts) if parts.expression.is_empty() => vec![health_line(balancer, parts)],
        _ => {
            let about = "# anthill.toml has the same `health` for all members of a balancer; for";
            let members = edited.urls.iter().zip(&edited.checks);
            let lines = members.map(|(url, parts)| {
                let health = health_line(balancer, parts);
                format!("{about} {url}: {}", health.trim_start_matches("# "))
            });
            lines.collect()
        }
    }
}

fn health_line(balancer: &ConfiguredBalancer, parts: &CheckParts) -> String {
    let mut keys = Vec::new();
    match parts.method {
        CheckWord::Off => return "# remove the line `health`".to_owned(),
        CheckWord::Tcp => keys.push("tcp = true".to_owned()),
        CheckWord::Get | CheckWord::Head => {
            keys.push(format!("path = {}", quoted(&parts.path)));
            let is_head = parts.method == CheckWord::Head;
            if is_head {
                keys.push("method = \"HEAD\"".to_owned());
            }
            let check = balancer.settings.check.as_ref().map(|check| &check.kind);
            if let Some(CheckKind::Http {
                host, status, text, ..
            }) = check
            {
                keys.extend(host.as_ref().map(|host| format!("host = {}", quoted(host))));
                keys.push(if status.0 == status.1 {
                    format!("status = {}", status.0)
                } else {
                    format!("status = \"{}-{}\"", status.0, status.1)
                });
                let text = text.as_ref().filter(|_| !is_head);
                keys.extend(text.map(|text| format!("text = {}", quoted(text))));
            }
        }
    }
    keys.push(format!("every = \"{}\"", duration_text(parts.every)));
    if let Some(check) = &balancer.settings.check {
        let timeout = check.timeout.min(parts.every);
        keys.push(format!("timeout = \"{}\"", duration_text(timeout)));
    }
    keys.push(format!("rise = {}, fall = {}", parts.rise, parts.fall));
    format!("health = {{ {} }}", keys.join(", "))
}
