//! Table of the values of balancers and members that the operator can change at runtime: the names, the keys
//! in the forms of Apache's balancer-manager, and the ranges. Pure.

use crate::admin::edited_balancer::{CheckWord, EditedBalancer};
use crate::admin::limits::{
    EDIT_CHECK_INTERVAL_SECONDS_MAX, EDIT_QUEUE_TIMEOUT_SECONDS_MAX, EDIT_TEXT_BYTES_MAX,
};
use crate::admin::value_text::{duration_text, weight_text};
use crate::config::limits::{CONFIG_IN_A_ROW_MAX, CONFIG_MEMBER_SET_MAX};
use crate::config::parse_duration;
use balancer::settings::{AdminState, BalancingMethod, MemberRole, StickySettings};
use cli::suggest;
use std::time::Duration;

/// Owner of a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum EditScope {
    /// A whole balancer.
    Balancer,
    /// A member of a balancer.
    Member,
}

/// Value that the operator can change at runtime.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct EditableValue {
    /// Kind of the value.
    pub kind: EditKind,
    /// Name for the command line, the history and JSON.
    pub name: &'static str,
    /// Owner of the value.
    pub scope: EditScope,
    /// Fields of the value in the forms of Apache's balancer-manager.
    pub form_keys: &'static [&'static str],
    /// Valid texts, in words for the operator.
    pub range: &'static str,
}

/// Kind of an editable value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum EditKind {
    /// Share of the load.
    Weight,
    /// Set of the member.
    Set,
    /// Route in sessions.
    Route,
    /// Route of the replacement.
    Redirect,
    /// Errors of the member do not count.
    IgnoreErrors,
    /// Administrative state.
    State,
    /// Role in the set.
    Role,
    /// Result of the checks, until the next check.
    CheckFailed,
    /// Method of the checks.
    CheckMethod,
    /// Balancer with the condition of successful checks.
    CheckExpression,
    /// Interval of the checks.
    CheckInterval,
    /// Successful checks in a row that make the member usable.
    CheckPasses,
    /// Failed checks in a row that make the member unusable.
    CheckFails,
    /// Path of the checks.
    CheckUri,
    /// Balancing method.
    Method,
    /// Longest wait for a busy member.
    QueueTimeout,
    /// Further members for one request.
    Attempts,
    /// Sessions never change their member.
    Strict,
    /// Cookie of the sessions.
    Sticky,
}

impl EditKind {
    /// Returns true if the fields of the value in a form are flags: 1 or 0.
    pub(crate) fn is_flag(self) -> bool {
        matches!(
            self,
            EditKind::State
                | EditKind::Role
                | EditKind::IgnoreErrors
                | EditKind::CheckFailed
                | EditKind::Strict
        )
    }
}

/// Declares a row of the table.
const fn value(
    kind: EditKind,
    name: &'static str,
    scope: EditScope,
    form_keys: &'static [&'static str],
    range: &'static str,
) -> EditableValue {
    EditableValue {
        kind,
        name,
        scope,
        form_keys,
        range,
    }
}

use EditScope::{Balancer, Member};

/// Values that the operator can change at runtime, in the order of the forms.
pub(crate) static EDITABLE_VALUES: [EditableValue; 19] = [
    value(
        EditKind::Weight,
        "weight",
        Member,
        &["w_lf"],
        "a number from 1 to 100 with at most 2 decimals",
    ),
    value(
        EditKind::Set,
        "set",
        Member,
        &["w_ls"],
        "a number from 0 to 99",
    ),
    value(
        EditKind::Route,
        "route",
        Member,
        &["w_wr"],
        "letters, digits, hyphens and underscores, or nothing",
    ),
    value(
        EditKind::Redirect,
        "redirect",
        Member,
        &["w_rr"],
        "the route of another member, or nothing",
    ),
    value(
        EditKind::IgnoreErrors,
        "ignore_errors",
        Member,
        &["w_status_I"],
        "on or off",
    ),
    value(
        EditKind::State,
        "state",
        Member,
        &["w_status_N", "w_status_D", "w_status_S"],
        "enabled, draining, disabled or stopped",
    ),
    value(
        EditKind::Role,
        "role",
        Member,
        &["w_status_H", "w_status_R"],
        "regular, standby or spare",
    ),
    value(
        EditKind::CheckFailed,
        "check_failed",
        Member,
        &["w_status_C"],
        "on or off",
    ),
    value(
        EditKind::CheckMethod,
        "check_method",
        Member,
        &["w_hm"],
        "off, tcp, get or head",
    ),
    value(
        EditKind::CheckExpression,
        "check_expression",
        Member,
        &["w_he"],
        "the name of a balancer with `health`, or nothing",
    ),
    value(
        EditKind::CheckInterval,
        "check_interval",
        Member,
        &["w_hi"],
        "a duration of at least 1ms, such as 5s",
    ),
    value(
        EditKind::CheckPasses,
        "check_passes",
        Member,
        &["w_hp"],
        "a number from 1 to 1000",
    ),
    value(
        EditKind::CheckFails,
        "check_fails",
        Member,
        &["w_hf"],
        "a number from 1 to 1000",
    ),
    value(
        EditKind::CheckUri,
        "check_uri",
        Member,
        &["w_hu"],
        "a path such as /health",
    ),
    value(
        EditKind::Method,
        "method",
        Balancer,
        &["b_lbm"],
        BalancingMethod::NAMES,
    ),
    value(
        EditKind::QueueTimeout,
        "queue_timeout",
        Balancer,
        &["b_tmo"],
        "a duration up to 2h, such as 10s",
    ),
    value(
        EditKind::Attempts,
        "attempts",
        Balancer,
        &["b_max"],
        "a number from 0 to 99",
    ),
    value(
        EditKind::Strict,
        "strict",
        Balancer,
        &["b_sforce"],
        "on or off",
    ),
    value(
        EditKind::Sticky,
        "sticky",
        Balancer,
        &["b_ss"],
        "COOKIE, COOKIE|PARAMETER or \"COOKIE signed\", or nothing for no sessions",
    ),
];

impl EditableValue {
    /// Returns the label of the value on the page, such as `Check interval`.
    pub(crate) fn label(&self) -> String {
        let (first, rest) = self.name.split_at(1);
        first.to_ascii_uppercase() + &rest.replace('_', " ")
    }

    /// Returns the value with a name. The error is the answer for the operator, with the names of the scope.
    pub(crate) fn find(name: &str, scope: EditScope) -> Result<&'static EditableValue, String> {
        let named = EDITABLE_VALUES.iter().find(|value| value.name == name);
        match named {
            Some(value) if value.scope == scope => return Ok(value),
            Some(_) if scope == Balancer => {
                return Err(format!(
                    "error: `{name}` is a value of a member\nhelp: write MEMBER after BALANCER\n"
                ));
            }
            Some(_) => {
                return Err(format!(
                    "error: `{name}` is a value of the balancer\nhelp: leave out MEMBER\n"
                ));
            }
            None => {}
        }
        let names = EDITABLE_VALUES.iter().filter(|value| value.scope == scope);
        let names: Vec<&str> = names.map(|value| value.name).collect();
        let help = match suggest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the values are: {}", names.join(", ")),
        };
        Err(format!("error: there is no value `{name}`\nhelp: {help}\n"))
    }

    /// Returns the present value of a balancer, or of the member with the index `member`, as canonical text.
    pub(crate) fn get(&self, edited: &EditedBalancer, member: usize) -> String {
        let settings = &edited.settings;
        let sticky = settings.sticky.as_ref();
        match self.kind {
            EditKind::Method => settings.method.name().to_owned(),
            EditKind::QueueTimeout => duration_text(settings.connection.queue_timeout),
            EditKind::Attempts => settings.retry.attempts_max.to_string(),
            EditKind::Strict => on_off(sticky.is_some_and(|sticky| sticky.is_strict)),
            EditKind::Sticky => sticky.map(sticky_text).unwrap_or_default(),
            _ => self.get_of_member(edited, member).unwrap_or_default(),
        }
    }

    fn get_of_member(&self, edited: &EditedBalancer, at: usize) -> Option<String> {
        let member = edited.settings.members.get(at)?;
        let check = edited.checks.get(at)?;
        Some(match self.kind {
            EditKind::Weight => weight_text(member.weight),
            EditKind::Set => member.set.to_string(),
            EditKind::Route => member.route.to_string(),
            EditKind::Redirect => member.redirect.to_string(),
            EditKind::IgnoreErrors => on_off(member.ignores_errors),
            EditKind::State => member.admin.name().to_owned(),
            EditKind::Role => member.role.name().to_owned(),
            EditKind::CheckFailed => on_off(check.is_failed),
            EditKind::CheckMethod => check.method.name().to_owned(),
            EditKind::CheckExpression => check.expression.to_string(),
            EditKind::CheckInterval => duration_text(check.every),
            EditKind::CheckPasses => check.rise.to_string(),
            EditKind::CheckFails => check.fall.to_string(),
            EditKind::CheckUri => check.path.to_string(),
            _ => return None,
        })
    }

    /// Sets the value of a balancer, or of the member with the index `member`. Returns false for a text out of
    /// range.
    pub(crate) fn set(&self, edited: &mut EditedBalancer, member: usize, text: &str) -> bool {
        text.len() <= EDIT_TEXT_BYTES_MAX && self.try_set(edited, member, text).is_some()
    }

    fn try_set(&self, edited: &mut EditedBalancer, at: usize, text: &str) -> Option<()> {
        let settings = &mut edited.settings;
        match self.kind {
            EditKind::Method => {
                settings.method = named(BalancingMethod::ALL, BalancingMethod::name, text)?
            }
            EditKind::QueueTimeout => {
                settings.connection.queue_timeout = duration(text, EDIT_QUEUE_TIMEOUT_SECONDS_MAX)?;
            }
            EditKind::Attempts => settings.retry.attempts_max = number(text, 0, 99)? as u8,
            EditKind::Strict => {
                let is_strict = parse_on_off(text)?;
                match &mut settings.sticky {
                    Some(sticky) => sticky.is_strict = is_strict,
                    None if is_strict => return None,
                    None => {}
                }
            }
            EditKind::Sticky => {
                let is_strict = settings.sticky.as_ref().is_some_and(|it| it.is_strict);
                settings.sticky = parse_sticky(text, is_strict)?;
            }
            _ => return self.set_of_member(edited, at, text),
        }
        Some(())
    }

    fn set_of_member(&self, edited: &mut EditedBalancer, at: usize, text: &str) -> Option<()> {
        let member = edited.settings.members.get_mut(at)?;
        let check = edited.checks.get_mut(at)?;
        match self.kind {
            EditKind::Weight => member.weight = parse_weight(text)?,
            EditKind::Set => member.set = number(text, 0, CONFIG_MEMBER_SET_MAX.into())? as u8,
            EditKind::Route => member.route = plain_word(text)?,
            EditKind::Redirect => member.redirect = plain_word(text)?,
            EditKind::IgnoreErrors => member.ignores_errors = parse_on_off(text)?,
            EditKind::State => member.admin = named(&STATES, AdminState::name, text)?,
            EditKind::Role => member.role = named(&ROLES, MemberRole::name, text)?,
            EditKind::CheckFailed => check.is_failed = parse_on_off(text)?,
            EditKind::CheckMethod => check.method = named(&CheckWord::ALL, CheckWord::name, text)?,
            EditKind::CheckExpression => check.expression = visible(text)?,
            EditKind::CheckInterval => {
                check.every = duration(text, EDIT_CHECK_INTERVAL_SECONDS_MAX)
                    .filter(|every| !every.is_zero())?;
            }
            EditKind::CheckPasses => check.rise = number(text, 1, CONFIG_IN_A_ROW_MAX)?,
            EditKind::CheckFails => check.fall = number(text, 1, CONFIG_IN_A_ROW_MAX)?,
            EditKind::CheckUri => {
                check.path = visible(text).filter(|path| path.starts_with('/'))?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the refusal of a text out of range, as the answer for the operator.
    pub(crate) fn refusal(&self, text: &str) -> String {
        let (name, range) = (self.name, self.range);
        let text = text.escape_debug();
        format!("error: `{name}` can't be `{text}`\nhelp: write {range}\n")
    }
}

pub(super) const STATES: [AdminState; 4] = [
    AdminState::Enabled,
    AdminState::Draining,
    AdminState::Disabled,
    AdminState::Stopped,
];
const ROLES: [MemberRole; 3] = [MemberRole::Regular, MemberRole::Standby, MemberRole::Spare];

/// Returns the item with a name.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Option<T> {
    all.iter().copied().find(|item| name(*item) == text)
}

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    let number = text.parse().ok()?;
    (min..=max).contains(&number).then_some(number)
}

fn on_off(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

fn parse_on_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Parses a weight with at most 2 decimals as hundredths.
fn parse_weight(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > 2 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let hundredths: u32 = format!("{decimals:0<2}").parse().ok()?;
    let weight = whole.parse::<u32>().ok()?.checked_mul(100)? + hundredths;
    (100..=10_000).contains(&weight).then_some(weight)
}

fn duration(text: &str, seconds_max: u64) -> Option<Duration> {
    parse_duration(text).filter(|duration| *duration <= Duration::from_secs(seconds_max))
}

/// Accepts a name of letters, digits, hyphens and underscores. A hyphen alone stands for no name.
fn plain_word(text: &str) -> Option<Box<str>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match text {
        "-" => Some(Box::default()),
        text => text.chars().all(is_plain).then(|| text.into()),
    }
}

/// Accepts visible ASCII characters without a fragment. A hyphen alone stands for no text.
fn visible(text: &str) -> Option<Box<str>> {
    let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    match text {
        "-" => Some(Box::default()),
        text => text.bytes().all(is_visible).then(|| text.into()),
    }
}

/// Returns sessions as `COOKIE`, `COOKIE|PARAMETER` or `COOKIE signed`.
fn sticky_text(sticky: &StickySettings) -> String {
    let mut text = sticky.cookie.to_string();
    if let Some(parameter) = &sticky.path_parameter {
        text.push('|');
        text.push_str(parameter);
    }
    if sticky.is_signed {
        text.push_str(" signed");
    }
    text
}

/// Parses the text of [`sticky_text`]. An empty text or a hyphen ends sessions.
fn parse_sticky(text: &str, is_strict: bool) -> Option<Option<StickySettings>> {
    if matches!(text, "" | "-") {
        return Some(None);
    }
    let (names, is_signed) = match text.strip_suffix(" signed") {
        Some(names) => (names, true),
        None => (text, false),
    };
    let (cookie, parameter) = match names.split_once('|') {
        Some((cookie, parameter)) => (cookie, Some(parameter)),
        None => (names, None),
    };
    let is_token = |name: &str| !name.is_empty() && name.bytes().all(is_token_byte);
    let is_valid = is_token(cookie) && parameter.is_none_or(is_token);
    is_valid.then(|| {
        Some(StickySettings {
            cookie: cookie.into(),
            path_parameter: parameter.map(Box::from),
            is_signed,
            is_strict,
        })
    })
}

/// Returns true for a byte of a token (RFC 9110 §5.6.2), apart from the bar that separates two names.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`~".contains(&byte)
}

#[cfg(test)]
mod tests;
