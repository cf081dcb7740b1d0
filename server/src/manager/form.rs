//! Parser of the forms and queries of the manager, with the keys of Apache's balancer-manager: `b` names the balancer,
//! `w` the member, and `nonce` is the token.

use crate::manager::limits::MANAGER_FORM_FIELDS_MAX;
use wire::reject::Reject;

/// Names and values of a form or a query, decoded.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

/// Keys that a GET may have: the selected balancer and member, the token that Apache's links carry, and the choice of
/// XML.
const SELECTORS: [&str; 4] = ["b", "w", "nonce", "xml"];

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

    /// Returns all values with the name.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.0.iter().filter(move |(known, _)| known == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Returns true if the form is about the ticked members of a balancer, each named by a field `w`.
    pub(super) fn is_of_ticked(&self) -> bool {
        self.value("ticked").is_some()
    }

    /// Returns true if the form only selects a balancer and a member.
    pub(super) fn is_selection(&self) -> bool {
        self.has_only(&SELECTORS)
    }

    /// Returns true if the form has no other keys than these.
    pub(super) fn has_only(&self, keys: &[&str]) -> bool {
        let mut pairs = self.0.iter();
        pairs.all(|(name, _)| keys.contains(&name.as_str()))
    }

    /// Returns the selected balancer, and the selected member if any.
    pub(super) fn selection(&self) -> Option<(&str, Option<&str>)> {
        let member = self.value("w").filter(|member| !member.is_empty());
        let member = member.filter(|_| !self.is_of_ticked());
        Some((self.value("b")?, member))
    }

    /// Returns the names with their last values, as Apache takes them.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in &self.0 {
            match fields.iter_mut().find(|(known, _)| known == name) {
                Some((_, last)) => last.clone_from(value),
                None => fields.push((name.clone(), value.clone())),
            }
        }
        fields
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
        // The button of the page comes after the fields that clear all states.
        let form = Form::parse(b"w_status_N=0&w_status_D=0&w_status_N=1").unwrap();
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = [field("w_status_N", "1"), field("w_status_D", "0")];
        assert_eq!(form.fields(), fields);
        let many = "a&".repeat(MANAGER_FORM_FIELDS_MAX + 1);
        for bad in ["a=%", "a=%2", "a=%+1", "a=%zz", "a=%ff", "%ff=a", &many] {
            let refused = Form::parse(bad.as_bytes()).unwrap_err();
            assert_eq!(refused, Reject::MANAGER_FORM, "{bad}");
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
