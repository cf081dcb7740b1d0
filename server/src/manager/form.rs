//! Forms of the manager, with the keys of Apache's balancer-manager: `b` names the balancer, `w` the member,
//! `nonce` is the token, and `w_status_N`, `w_status_D` and `w_status_S` drain, disable and stop the member.

use crate::admin::command::{Command, MemberCommand};
use crate::limits::MANAGER_FORM_FIELDS_MAX;
use crate::upstream::settings::AdminState;
use crate::wire::reject::Reject;

/// Names and values of a form or a query, decoded.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

/// Keys that a GET may have: the selected balancer and member, and the token that Apache's links carry.
const SELECTORS: [&str; 3] = ["b", "w", "nonce"];
/// Keys of states in rising precedence: of several states, the last state holds.
const STATES: [(&str, AdminState); 3] = [
    ("w_status_N", AdminState::Draining),
    ("w_status_D", AdminState::Disabled),
    ("w_status_S", AdminState::Stopped),
];

impl Form {
    /// Parses `application/x-www-form-urlencoded` (WHATWG URL §5.1).
    pub(super) fn parse(text: &[u8]) -> Result<Form, Reject> {
        let parts = text.split(|byte| *byte == b'&');
        let parts = parts.filter(|part| !part.is_empty());
        let mut pairs = Vec::new();
        for part in parts {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (name, value) = part.split_at(equals.unwrap_or(part.len()));
            let value = value.get(1..).unwrap_or_default();
            pairs.push((decode(name)?, decode(value)?));
            if pairs.len() > MANAGER_FORM_FIELDS_MAX {
                return Err(Reject::MANAGER_FORM);
            }
        }
        Ok(Form(pairs))
    }

    /// Returns the last value with the name, as Apache does.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter().rev();
        let (_, value) = pairs.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// Returns true if the form only selects a balancer and a member.
    pub(super) fn is_selection(&self) -> bool {
        let mut pairs = self.0.iter();
        pairs.all(|(name, _)| SELECTORS.contains(&name.as_str()))
    }

    /// Returns the selected balancer and member.
    pub(super) fn selection(&self) -> Option<(&str, &str)> {
        Some((self.value("b")?, self.value("w")?))
    }

    /// Returns the command of an edit. `current` is the present state of the selected member.
    pub(super) fn command(&self, current: AdminState) -> Result<Command, Reject> {
        let (balancer, member) = self.selection().ok_or(Reject::MANAGER_FORM)?;
        let command = Command::member(MemberCommand {
            state: self.state(current)?,
            wait_seconds: None,
            balancer: balancer.to_owned(),
            member: member.to_owned(),
        });
        command.ok_or(Reject::MANAGER_FORM)
    }

    /// Returns the state of a member after the edit. A key with the value 1 sets a state, a key with the value 0
    /// clears the state, and a state without a key stays as in `current`.
    fn state(&self, current: AdminState) -> Result<AdminState, Reject> {
        let (mut state, mut has_key) = (AdminState::Enabled, false);
        for (key, of_key) in STATES {
            let is_set = match self.value(key) {
                None => current == of_key,
                Some("0") => false,
                Some("1") => true,
                Some(_) => return Err(Reject::MANAGER_FORM),
            };
            has_key |= self.value(key).is_some();
            if is_set {
                state = of_key;
            }
        }
        has_key.then_some(state).ok_or(Reject::MANAGER_FORM)
    }
}

/// Decodes `+` and percent-encoding. The result must be UTF-8.
fn decode(text: &[u8]) -> Result<String, Reject> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let high = bytes.next().and_then(digit);
                let low = bytes.next().and_then(digit);
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(Reject::MANAGER_FORM);
                };
                (high * 16 + low) as u8
            }
            byte => *byte,
        });
    }
    String::from_utf8(out).map_err(|_| Reject::MANAGER_FORM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use AdminState::{Disabled, Draining, Enabled, Stopped};

    fn state(current: AdminState, keys: &str) -> Result<AdminState, Reject> {
        Form::parse(keys.as_bytes())?.state(current)
    }

    #[test]
    fn values_are_decoded() {
        let form = Form::parse(b"a=1&&b=x+y%2Fz%C3%A9&c&=d&a=2&e=f=g").unwrap();
        for (name, value) in [
            ("a", Some("2")),
            ("b", Some("x y/z\u{e9}")),
            ("c", Some("")),
            ("", Some("d")),
            ("e", Some("f=g")),
            ("x", None),
        ] {
            assert_eq!(form.value(name), value, "{name}");
        }
        let many = "a&".repeat(MANAGER_FORM_FIELDS_MAX + 1);
        for bad in ["a=%", "a=%2", "a=%+1", "a=%zz", "a=%ff", "%ff=a", &many] {
            let refused = Form::parse(bad.as_bytes()).unwrap_err();
            assert_eq!(refused, Reject::MANAGER_FORM, "{bad}");
        }
    }

    #[test]
    fn keys_set_and_clear_states() {
        #[rustfmt::skip]
        let table = [
            (Enabled, "w_status_D=1", Disabled),
            (Enabled, "w_status_N=1", Draining),
            (Enabled, "w_status_S=1", Stopped),
            (Enabled, "w_status_D=0", Enabled),
            (Draining, "w_status_D=0", Draining),
            (Draining, "w_status_N=0", Enabled),
            (Draining, "w_status_D=1", Disabled),
            (Stopped, "w_status_D=1", Stopped),
            (Stopped, "w_status_S=0&w_status_D=1", Disabled),
            (Disabled, "w_status_N=0&w_status_D=0&w_status_S=0", Enabled),
            // The button of the page comes after the fields that clear all states.
            (Disabled, "w_status_N=0&w_status_D=0&w_status_S=0&w_status_N=1", Draining),
        ];
        for (current, keys, expected) in table {
            assert_eq!(state(current, keys), Ok(expected), "{current:?} {keys}");
        }
        for bad in [
            "",
            "b=a&w=b",
            "w_status_D=",
            "w_status_D=on",
            "w_status_N=1&w_status_D=2",
        ] {
            assert_eq!(state(Enabled, bad), Err(Reject::MANAGER_FORM), "{bad}");
        }
    }

    #[test]
    fn a_form_becomes_a_command() {
        let command = |text: &str| Form::parse(text.as_bytes()).unwrap().command(Enabled);
        let line = command("b=a.org%2Fapp+1&w=http%3A%2F%2Fb&w_status_D=1").unwrap();
        assert_eq!(line.to_string(), "member disabled -\ta.org/app 1\thttp://b");
        for bad in [
            "w=b&w_status_D=1",
            "b=a&w_status_D=1",
            "b=a%09&w=b&w_status_D=1",
        ] {
            assert_eq!(command(bad), Err(Reject::MANAGER_FORM), "{bad}");
        }
    }

    #[test]
    fn a_get_may_only_select() {
        for (query, is_selection) in [
            ("", true),
            ("b=a&w=b&nonce=c", true),
            ("b=a&w=b&w_status_D=1", false),
            ("w_status_D", false),
            ("x=1", false),
        ] {
            let form = Form::parse(query.as_bytes()).unwrap();
            assert_eq!(form.is_selection(), is_selection, "{query}");
        }
    }
}
