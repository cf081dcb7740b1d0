//! Table of the values of balancers and members that the operator can change at runtime. A row is the one declaration of
//! a value: the name for the command line, JSON and the history, the fields in the forms of Apache's balancer-manager, the
//! range, and the place in the settings. Pure.

use crate::admin::edited_balancer::{CheckParts, CheckWord, EditedBalancer};
use crate::admin::limits::{
    EDIT_CHECK_INTERVAL_SECONDS_MAX, EDIT_QUEUE_TIMEOUT_SECONDS_MAX, EDIT_TEXT_BYTES_MAX,
};
use crate::admin::value_text::{duration_text, weight_text};
use crate::config::limits::{CONFIG_IN_A_ROW_MAX, CONFIG_MEMBER_SET_MAX};
use crate::config::parse_duration;
use balancer::settings::{
    AdminState, BalancerSettings, BalancingMethod, MemberRole, MemberSettings, StickySettings,
};
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
#[derive(Debug)]
pub(crate) struct EditableValue {
    /// Name for the command line, the history and JSON.
    pub name: &'static str,
    /// Valid texts, in words for the operator.
    pub range: &'static str,
    /// Fields of the value in the forms of Apache's balancer-manager.
    pub form_keys: &'static [&'static str],
    /// Texts of the fields.
    pub form: FormKind,
    /// Rule that only some values have.
    pub rule: EditRule,
    /// Place of the value in the settings.
    place: ValuePlace,
}

/// Texts of the fields of a value in a form.
#[derive(Debug)]
pub(crate) enum FormKind {
    /// The text of the value.
    Text,
    /// A path with a label. An empty field is the root, since Apache's page has no path for checks of the root.
    Path(&'static str),
    /// A duration in milliseconds.
    Milliseconds,
    /// A duration in seconds.
    Seconds,
    /// One of the words.
    Choice(fn() -> Vec<&'static str>),
    /// One of Apache's words for the method of checks.
    CheckMethod,
    /// The name of a balancer with a condition for checks, with a label.
    Condition(&'static str),
    /// 1 for on, and 0 for off.
    Flag,
    /// A flag for each word but the first. Without a set flag, the value is the first word; the last set flag counts.
    Flags(&'static [FlagWord]),
    /// Flags of which at most one may be set, with the rule in words.
    ExclusiveFlags(&'static [FlagWord], &'static str),
}

/// Word of a value with a flag in a form, and the label of the flag.
pub(crate) type FlagWord = (&'static str, &'static str);

/// Rule that only some values have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum EditRule {
    /// The value is a setting like most values.
    None,
    /// The value is a part of another value, which is set first.
    PartOfOther,
    /// The value holds until the server changes the value itself, so the edit is never in force.
    Momentary,
    /// Buttons of the page set the value.
    Buttons,
}

/// Place of a value in the settings, with the canonical text. `set` returns false for a text out of range.
#[derive(Debug)]
enum ValuePlace {
    /// A value of a member.
    Member {
        get: fn(&MemberSettings) -> String,
        set: fn(&mut MemberSettings, &str) -> bool,
    },
    /// A value of the checks of a member.
    Check {
        get: fn(&CheckParts) -> String,
        set: fn(&mut CheckParts, &str) -> bool,
    },
    /// A value of the balancer.
    Balancer {
        /// Key of `[[balancer]]` in anthill.toml.
        key: &'static str,
        get: fn(&BalancerSettings) -> String,
        set: fn(&mut BalancerSettings, &str) -> bool,
    },
}

impl FormKind {
    /// Returns true if the fields of a value are flags: 1 or 0.
    pub(crate) fn is_flag(&self) -> bool {
        matches!(
            self,
            FormKind::Flag | FormKind::Flags(_) | FormKind::ExclusiveFlags(..)
        )
    }

    /// Returns the words of a value with several flags.
    pub(crate) fn words(&self) -> &'static [FlagWord] {
        match self {
            FormKind::Flags(words) | FormKind::ExclusiveFlags(words, _) => words,
            _ => &[],
        }
    }
}

/// Values that the operator can change at runtime, in the order of the forms.
pub(crate) static EDITABLE_VALUES: [EditableValue; 19] = [
    EditableValue {
        name: "weight",
        range: "a number from 1 to 100 with at most 2 decimals",
        form_keys: &["w_lf"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Member {
            get: |member| weight_text(member.weight),
            set: |member, text| put(&mut member.weight, parse_weight(text)),
        },
    },
    EditableValue {
        name: "set",
        range: "a number from 0 to 99",
        form_keys: &["w_ls"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Member {
            get: |member| member.set.to_string(),
            set: |member, text| {
                put(
                    &mut member.set,
                    number(text, 0, CONFIG_MEMBER_SET_MAX.into()).map(|set| set as u8),
                )
            },
        },
    },
    EditableValue {
        name: "route",
        range: "letters, digits, hyphens and underscores, or nothing",
        form_keys: &["w_wr"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Member {
            get: |member| member.route.to_string(),
            set: |member, text| put(&mut member.route, plain_word(text)),
        },
    },
    EditableValue {
        name: "redirect",
        range: "the route of another member, or nothing",
        form_keys: &["w_rr"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Member {
            get: |member| member.redirect.to_string(),
            set: |member, text| put(&mut member.redirect, plain_word(text)),
        },
    },
    EditableValue {
        name: "ignore_errors",
        range: "on or off",
        form_keys: &["w_status_I"],
        form: FormKind::Flag,
        rule: EditRule::None,
        place: ValuePlace::Member {
            get: |member| on_off(member.ignores_errors),
            set: |member, text| put(&mut member.ignores_errors, parse_on_off(text)),
        },
    },
    EditableValue {
        name: "state",
        range: "enabled, draining, disabled or stopped",
        form_keys: &["w_status_N", "w_status_D", "w_status_S"],
        form: FormKind::Flags(&[
            ("enabled", ""),
            ("draining", "Draining"),
            ("disabled", "Disabled"),
            ("stopped", "Stopped"),
        ]),
        rule: EditRule::Buttons,
        place: ValuePlace::Member {
            get: |member| member.admin.name().to_owned(),
            set: |member, text| put(&mut member.admin, named(&STATES, AdminState::name, text)),
        },
    },
    EditableValue {
        name: "role",
        range: "regular, standby or spare",
        form_keys: &["w_status_H", "w_status_R"],
        form: FormKind::ExclusiveFlags(
            &[
                ("regular", ""),
                ("standby", "Hot standby"),
                ("spare", "Hot spare"),
            ],
            "a member is either a standby or a spare",
        ),
        rule: EditRule::None,
        place: ValuePlace::Member {
            get: |member| member.role.name().to_owned(),
            set: |member, text| put(&mut member.role, named(&ROLES, MemberRole::name, text)),
        },
    },
    EditableValue {
        name: "check_failed",
        range: "on or off",
        form_keys: &["w_status_C"],
        form: FormKind::Flag,
        rule: EditRule::Momentary,
        place: ValuePlace::Check {
            get: |check| on_off(check.is_failed),
            set: |check, text| put(&mut check.is_failed, parse_on_off(text)),
        },
    },
    EditableValue {
        name: "check_method",
        range: "off, tcp, get or head",
        form_keys: &["w_hm"],
        form: FormKind::CheckMethod,
        rule: EditRule::None,
        place: ValuePlace::Check {
            get: |check| check.method.name().to_owned(),
            set: |check, text| {
                put(
                    &mut check.method,
                    named(&CheckWord::ALL, CheckWord::name, text),
                )
            },
        },
    },
    EditableValue {
        name: "check_expression",
        range: "the name of a balancer with `health`, or nothing",
        form_keys: &["w_he"],
        form: FormKind::Condition("Condition of checks"),
        rule: EditRule::None,
        place: ValuePlace::Check {
            get: |check| check.expression.to_string(),
            set: |check, text| put(&mut check.expression, visible(text)),
        },
    },
    EditableValue {
        name: "check_interval",
        range: "a duration of at least 1ms, such as 5s",
        form_keys: &["w_hi"],
        form: FormKind::Milliseconds,
        rule: EditRule::None,
        place: ValuePlace::Check {
            get: |check| duration_text(check.every),
            set: |check, text| {
                let every = duration(text, EDIT_CHECK_INTERVAL_SECONDS_MAX);
                put(&mut check.every, every.filter(|every| !every.is_zero()))
            },
        },
    },
    EditableValue {
        name: "check_passes",
        range: "a number from 1 to 1000",
        form_keys: &["w_hp"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Check {
            get: |check| check.rise.to_string(),
            set: |check, text| put(&mut check.rise, number(text, 1, CONFIG_IN_A_ROW_MAX)),
        },
    },
    EditableValue {
        name: "check_fails",
        range: "a number from 1 to 1000",
        form_keys: &["w_hf"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Check {
            get: |check| check.fall.to_string(),
            set: |check, text| put(&mut check.fall, number(text, 1, CONFIG_IN_A_ROW_MAX)),
        },
    },
    EditableValue {
        name: "check_uri",
        range: "a path such as /health",
        form_keys: &["w_hu"],
        form: FormKind::Path("Path of checks"),
        rule: EditRule::None,
        place: ValuePlace::Check {
            get: |check| check.path.to_string(),
            set: |check, text| {
                let path = visible(text).filter(|path| path.starts_with('/'));
                put(&mut check.path, path)
            },
        },
    },
    EditableValue {
        name: "method",
        range: BalancingMethod::NAMES,
        form_keys: &["b_lbm"],
        form: FormKind::Choice(|| BalancingMethod::ALL.iter().map(|it| it.name()).collect()),
        rule: EditRule::None,
        place: ValuePlace::Balancer {
            key: "method",
            get: |balancer| balancer.method.name().to_owned(),
            set: |balancer, text| {
                let method = named(BalancingMethod::ALL, BalancingMethod::name, text);
                put(&mut balancer.method, method)
            },
        },
    },
    EditableValue {
        name: "queue_timeout",
        range: "a duration up to 2h, such as 10s",
        form_keys: &["b_tmo"],
        form: FormKind::Seconds,
        rule: EditRule::None,
        place: ValuePlace::Balancer {
            key: "queue_timeout",
            get: |balancer| duration_text(balancer.connection.queue_timeout),
            set: |balancer, text| {
                let timeout = duration(text, EDIT_QUEUE_TIMEOUT_SECONDS_MAX);
                put(&mut balancer.connection.queue_timeout, timeout)
            },
        },
    },
    EditableValue {
        name: "attempts",
        range: "a number from 0 to 99",
        form_keys: &["b_max"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Balancer {
            key: "retries",
            get: |balancer| balancer.retry.attempts_max.to_string(),
            set: |balancer, text| {
                let attempts = number(text, 0, 99).map(|attempts| attempts as u8);
                put(&mut balancer.retry.attempts_max, attempts)
            },
        },
    },
    EditableValue {
        name: "strict",
        range: "on or off",
        form_keys: &["b_sforce"],
        form: FormKind::Flag,
        rule: EditRule::PartOfOther,
        place: ValuePlace::Balancer {
            key: "sticky",
            get: |balancer| on_off(is_strict(balancer)),
            set: |balancer, text| set_strict(&mut balancer.sticky, text),
        },
    },
    EditableValue {
        name: "sticky",
        range: "COOKIE, COOKIE|PARAMETER or \"COOKIE signed\", or nothing for no sessions",
        form_keys: &["b_ss"],
        form: FormKind::Text,
        rule: EditRule::None,
        place: ValuePlace::Balancer {
            key: "sticky",
            get: |balancer| {
                balancer
                    .sticky
                    .as_ref()
                    .map(sticky_text)
                    .unwrap_or_default()
            },
            set: |balancer, text| {
                let sticky = parse_sticky(text, is_strict(balancer));
                put(&mut balancer.sticky, sticky)
            },
        },
    },
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
            Some(value) if value.scope() == scope => return Ok(value),
            Some(_) if scope == EditScope::Balancer => {
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
        let names = EDITABLE_VALUES
            .iter()
            .filter(|value| value.scope() == scope);
        let names: Vec<&str> = names.map(|value| value.name).collect();
        let help = match suggest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the values are: {}", names.join(", ")),
        };
        Err(format!("error: there is no value `{name}`\nhelp: {help}\n"))
    }

    /// Returns the owner of the value.
    pub(crate) fn scope(&self) -> EditScope {
        match self.place {
            ValuePlace::Member { .. } | ValuePlace::Check { .. } => EditScope::Member,
            ValuePlace::Balancer { .. } => EditScope::Balancer,
        }
    }

    /// Returns the key of `[[balancer]]` that states the value in anthill.toml.
    pub(crate) fn file_key(&self) -> &'static str {
        match self.place {
            ValuePlace::Member { .. } => "members",
            ValuePlace::Check { .. } => "health",
            ValuePlace::Balancer { key, .. } => key,
        }
    }

    /// Returns the present value of a balancer, or of the member with the index `member`, as canonical text.
    pub(crate) fn get(&self, edited: &EditedBalancer, member: usize) -> String {
        match self.place {
            ValuePlace::Member { get, .. } => edited
                .settings
                .members
                .get(member)
                .map(get)
                .unwrap_or_default(),
            ValuePlace::Check { get, .. } => edited.checks.get(member).map(get).unwrap_or_default(),
            ValuePlace::Balancer { get, .. } => get(&edited.settings),
        }
    }

    /// Sets the value of a balancer, or of the member with the index `member`. Returns false for a text out of
    /// range.
    pub(crate) fn set(&self, edited: &mut EditedBalancer, member: usize, text: &str) -> bool {
        if text.len() > EDIT_TEXT_BYTES_MAX {
            return false;
        }
        match self.place {
            ValuePlace::Member { set, .. } => {
                let mut members = edited.settings.members.iter_mut();
                members.nth(member).is_some_and(|member| set(member, text))
            }
            ValuePlace::Check { set, .. } => {
                let check = edited.checks.get_mut(member);
                check.is_some_and(|check| set(check, text))
            }
            ValuePlace::Balancer { set, .. } => set(&mut edited.settings, text),
        }
    }

    /// Returns the refusal of a text out of range, as the answer for the operator.
    pub(crate) fn refusal(&self, text: &str) -> String {
        let (name, range) = (self.name, self.range);
        let text = text.escape_debug();
        format!("error: `{name}` can't be `{text}`\nhelp: write {range}\n")
    }
}

const STATES: [AdminState; 4] = [
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

/// Stores a value in the settings. Returns false without a value.
fn put<T>(slot: &mut T, value: Option<T>) -> bool {
    let is_valid = value.is_some();
    if let Some(value) = value {
        *slot = value;
    }
    is_valid
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

/// Returns true if sessions never change their member.
fn is_strict(balancer: &BalancerSettings) -> bool {
    let sticky = balancer.sticky.as_ref();
    sticky.is_some_and(|sticky| sticky.is_strict)
}

/// Sets the strictness of sessions. Without sessions, the strictness is off.
fn set_strict(sticky: &mut Option<StickySettings>, text: &str) -> bool {
    match (sticky, parse_on_off(text)) {
        (Some(sticky), is_strict) => put(&mut sticky.is_strict, is_strict),
        (None, is_strict) => is_strict == Some(false),
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
