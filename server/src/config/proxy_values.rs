//! Types of single values in the tables of the proxy and the balancer.

use std::net::IpAddr;

use crate::config::declared_table::ShownValue;
use crate::config::error::OperatorError;
use crate::config::foreign_words::METHODS;
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::{InvalidValue, check_host, is_token, wrong};
use balancer::settings::{AdminState, BalancingMethod, ProxyHeaderVersion};
use data_plane::handler::proxy::route::ForwardedHost;
use wire::path_readings::Slashes;

/// Implements the reading of an enum from words of the file.
macro_rules! words {
    ($type:ty: $($word:expr => $meaning:expr),+) => {
        impl FromToml for $type {
            fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
                item.word_or_foreign(&[$(($word, $meaning)),+], &[])
            }
        }

        impl ShownValue for $type {
            fn shown(&self) -> String {
                let mut words = [$(($word, $meaning)),+].into_iter();
                let word = words.find(|(_, meaning)| meaning == self);
                format!("\"{}\"", word.map_or("", |(word, _)| word))
            }
        }
    };
}

words!(AdminState:
    AdminState::Enabled.name() => AdminState::Enabled,
    AdminState::Draining.name() => AdminState::Draining,
    AdminState::Disabled.name() => AdminState::Disabled,
    AdminState::Stopped.name() => AdminState::Stopped
);
words!(ProxyHeaderVersion: "v1" => ProxyHeaderVersion::V1, "v2" => ProxyHeaderVersion::V2);
words!(CheckMethod: "GET" => CheckMethod::Get, "HEAD" => CheckMethod::Head);
words!(Slashes: "keep" => Slashes::Keep, "merge" => Slashes::Merge);
words!(EncodedSlash: "pass" => EncodedSlash::Pass, "refuse" => EncodedSlash::Refuse);
words!(EarlyHints: "http1" => EarlyHints::Http1, "http2" => EarlyHints::Http2);

impl FromToml for BalancingMethod {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let methods = BalancingMethod::ALL.iter();
        let words: Vec<_> = methods.map(|method| (method.name(), *method)).collect();
        item.word_or_foreign(&words, METHODS)
    }
}

impl ShownValue for BalancingMethod {
    fn shown(&self) -> String {
        format!("\"{}\"", self.name())
    }
}

/// Method of the request of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckMethod {
    /// GET.
    Get,
    /// HEAD.
    Head,
}

/// Treatment of a path with an encoded slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncodedSlash {
    /// The request is refused.
    Refuse,
    /// The member gets the path unchanged.
    Pass,
}

/// First version of HTTP whose clients get 103 (Early Hints).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyHints {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Weight of a member in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) struct Weight(pub(super) u32);

impl FromToml for Weight {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let value = item.value.get_ref();
        let number = value.as_integer().map(|number| number.as_str());
        let number = number.or_else(|| value.as_float().map(|number| number.as_str()));
        let Some(text) = number else {
            return Err(item.mistyped("a number with at most two decimals", "1.5"));
        };
        match hundredths(text) {
            Some(0) => Err(item.refuse(
                format!("`{}` is out of bounds", item.key),
                "write a value between 1 and 100, or status = \"draining\" or \"disabled\"",
            )),
            Some(hundredths) => Ok(Weight(hundredths)),
            None => Err(item.refuse(
                format!("`{}` can't be {text}", item.key),
                "write a number from 1 to 100 with at most two decimals, such as 1.5",
            )),
        }
    }
}

/// Parses a decimal number such as `1.25` as hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let decimals = match decimals.trim_end_matches('0') {
        digits if digits.len() <= 2 && are_digits(digits) => format!("{digits:0<2}"),
        _ => return None,
    };
    let whole: u32 = whole.trim_start_matches('+').parse().ok()?;
    whole.checked_mul(100)?.checked_add(decimals.parse().ok()?)
}

impl ShownValue for Weight {
    fn shown(&self) -> String {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => whole.to_string(),
            (whole, rest) => format!("{whole}.{rest:02}")
                .trim_end_matches('0')
                .to_owned(),
        }
    }
}

/// Smallest and largest status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusRange(pub(super) u16, pub(super) u16);

impl FromToml for StatusRange {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        StatusRange::read_like(item, "\"200-399\"")
    }
}

impl StatusRange {
    /// Reads a status or a range. The error about another type shows `example`.
    fn read_like(item: KeyedValue<'_, '_>, example: &str) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            let (source, span) = (item.source, item.value.span());
            let status = u16::read(item)?.to_string();
            let range = status_range(&status);
            return range.map_err(|wrong| source.error(span, wrong.what, wrong.help));
        }
        item.parse("a status or a range", example, status_range)
    }
}

fn status_range(text: &str) -> Result<StatusRange, InvalidValue> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.trim().parse(), high.trim().parse()) {
        (Ok(low), Ok(high)) if 100 <= low && low <= high && high <= 599 => {
            Ok(StatusRange(low, high))
        }
        _ => wrong(
            format!("`{text}` is not a range of statuses"),
            "write a status from 100 to 599, or two with a hyphen: 200, \"200-399\"",
        ),
    }
}

impl ShownValue for StatusRange {
    fn shown(&self) -> String {
        format!("\"{}-{}\"", self.0, self.1)
    }
}

/// Smallest and largest status of responses that count as failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailureStatuses(pub(super) StatusRange);

impl FromToml for FailureStatuses {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let (source, span) = (item.source, item.value.span());
        match StatusRange::read_like(item, "[502, \"503-504\"]")? {
            range if range.0 >= 400 => Ok(FailureStatuses(range)),
            range => Err(source.error(
                span,
                format!("{} is not the status of an error", range.0),
                "write statuses from 400 to 599: [503], or [\"500-599\"]",
            )),
        }
    }
}

impl ShownValue for FailureStatuses {
    fn shown(&self) -> String {
        self.0.shown()
    }
}

/// Declares a type of text with its parser, its name and an example.
macro_rules! text_type {
    ($(#[$about:meta])+ $type:ident, $expected:literal, $example:literal, $parser:expr) => {
        $(#[$about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(super) struct $type(pub(super) Box<str>);

        impl FromToml for $type {
            fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
                item.parse($expected, $example, $parser).map($type)
            }
        }
    };
}

text_type!(
    /// Name of a balancer.
    BalancerName, "a name in quotes", "\"app\"", |text| plain_word(text, "a name of a balancer", ".")
);
text_type!(
    /// Route of a member in sticky sessions.
    RouteName, "a name in quotes", "\"a\"", |text| plain_word(text, "a route of a member", "")
);
text_type!(
    /// Name of a cookie or of a path parameter.
    TokenName, "a name in quotes", "\"JSESSIONID\"", token
);
text_type!(
    /// Host field: a host name or an address, and optionally a port.
    HostField, "a host in quotes", "\"app.example.org\"", host_field
);
text_type!(
    /// Name in a certificate: a host name or an address.
    CertificateName, "a host name in quotes", "\"app.example.org\"", certificate_name
);
text_type!(
    /// Path of a check with its query.
    CheckPath, "a path", "\"/health\"", check_path
);
text_type!(
    /// Text in the content of a response.
    ContentText, "text in quotes", "\"ready\"", content_text
);
text_type!(
    /// Path of members that replaces the path of a route.
    Prefix, "a path", "\"/base/\"", |text| crate::config::member_url::prefix(text, text)
);

impl FromToml for ForwardedHost {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let expected = "\"client\", \"member\" or a host";
        item.parse(expected, "\"member\"", |text| match text {
            "client" => Ok(ForwardedHost::Client),
            "member" => Ok(ForwardedHost::Member),
            host => host_field(host).map(ForwardedHost::Fixed),
        })
    }
}

impl ShownValue for ForwardedHost {
    fn shown(&self) -> String {
        match self {
            ForwardedHost::Client => "\"client\"".to_owned(),
            ForwardedHost::Member => "\"member\"".to_owned(),
            ForwardedHost::Fixed(host) => format!("\"{host}\""),
        }
    }
}

impl FromToml for IpAddr {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse("an IP address", "\"192.0.2.1\"", |text| {
            let what = format!("`{text}` is not an address to connect from");
            match text.parse::<IpAddr>() {
                Ok(address) if !address.is_unspecified() && !address.is_multicast() => Ok(address),
                _ => wrong(
                    what,
                    "write an address of this machine without port, such as \"192.0.2.1\"",
                ),
            }
        })
    }
}

/// Accepts letters, digits, `-`, `_` and the characters in `more`.
fn plain_word(text: &str, kind: &str, more: &str) -> Result<Box<str>, InvalidValue> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c) || more.contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Ok(text.into());
    }
    let help = match more {
        "" => "write letters, digits, hyphens and underscores".to_owned(),
        more => format!("write letters, digits, hyphens, underscores and `{more}`"),
    };
    wrong(format!("`{text}` is not {kind}"), help)
}

fn token(text: &str) -> Result<Box<str>, InvalidValue> {
    if is_token(text) {
        Ok(text.into())
    } else {
        wrong(
            format!("`{text}` is not a name of a cookie or a parameter"),
            "write letters, digits, hyphens and underscores, such as \"JSESSIONID\"",
        )
    }
}

fn host_field(text: &str) -> Result<Box<str>, InvalidValue> {
    let what = format!("`{text}` is not a host");
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').unwrap_or((rest, "?"));
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return match address.parse::<std::net::Ipv6Addr>() {
            Ok(_) if port_fits => Ok(text.into()),
            _ => wrong(what, "write \"[::1]\" or \"[::1]:8080\""),
        };
    }
    let host = match text.split_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => text,
    };
    let host_in_lower_case = host.to_ascii_lowercase();
    check_host(what, &host_in_lower_case)?;
    Ok(text.to_ascii_lowercase().into())
}

fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.parse::<u16>().is_ok_and(|port| port != 0)
}

fn certificate_name(text: &str) -> Result<Box<str>, InvalidValue> {
    let name = text.to_ascii_lowercase();
    if name.parse::<IpAddr>().is_err() {
        check_host(format!("`{text}` is not a name in a certificate"), &name)?;
    }
    Ok(name.into())
}

fn check_path(text: &str) -> Result<Box<str>, InvalidValue> {
    let is_visible = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.starts_with('/') && is_visible {
        Ok(text.into())
    } else {
        wrong(
            format!("`{text}` is not a path for a check"),
            "write a path as in a URL, with or without query: \"/health\", \"/status?full=1\"",
        )
    }
}

fn content_text(text: &str) -> Result<Box<str>, InvalidValue> {
    if text.is_empty() {
        wrong(
            "an empty text is in every content",
            "remove `text`, or write text of the page",
        )
    } else {
        Ok(text.into())
    }
}
