//! Types of values in the file beyond the types of TOML: durations, sizes, addresses and names.

use std::time::Duration;

use crate::config::declared_table::ShownValue;
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::{
    ListenAddress, parse_bytes, parse_duration, parse_seconds, site_name, wrong,
};
use data_plane::world::allow_list::AllowList;
use toml::Spanned;

/// Duration: text such as `"30d"`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Seconds(pub(super) u64);

impl FromToml for Seconds {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            return whole_seconds(item).map(Seconds);
        }
        let Some(text) = item.text() else {
            return Err(item.mistyped("a duration", "\"30d\""));
        };
        match seconds_of(text) {
            Some(seconds) => Ok(Seconds(seconds)),
            None => {
                let usual =
                    "write a number with a unit (s, m, h, d, w): \"10m\", \"30d\", \"1h30m\"";
                let help = duration_help(&item.key, text);
                let help = help.unwrap_or_else(|| usual.to_owned());
                Err(item.refuse(format!("`{text}` is not a duration"), help))
            }
        }
    }
}

/// Reads a number of seconds, and doubts a number that is probably one of milliseconds.
fn whole_seconds(item: KeyedValue<'_, '_>) -> Result<u64, OperatorError> {
    let (source, span, key) = (item.source, item.value.span(), item.key.clone());
    let seconds = u64::read(item)?;
    let most = SHORT_TIMES.iter().find(|(short, _)| *short == key);
    if most.is_some_and(|(_, most)| seconds >= *most) && seconds.is_multiple_of(100) {
        let what = format!(
            "{key} = {seconds} is a number of seconds, {}",
            in_words(seconds)
        );
        let meant = Duration::from_millis(seconds).shown();
        let help = format!("write {key} = {meant} for milliseconds, or {key} = \"{seconds}s\"");
        source.doubt(span, what, help);
    }
    Ok(seconds)
}

/// Returns a long duration in hours and minutes.
fn in_words(seconds: u64) -> String {
    format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60)
}

/// Keys of short times, each with a number of seconds that is longer than any usual value.
static SHORT_TIMES: &[(&str, u64)] = &[
    ("connect_timeout", 1_000),
    ("queue_timeout", 5_000),
    ("slow_start", 10_000),
    ("idle_seconds", 10_000),
    ("head_seconds", 1_000),
    ("handshake_seconds", 1_000),
    ("write_stall_seconds", 10_000),
    ("drain_seconds", 10_000),
    ("first_byte_timeout", 100_000),
    ("silence_timeout", 100_000),
    ("timeout", 1_000),
];

/// Keys of sizes that are larger than 1 KiB in every use.
static SIZES: &[&str] = &["memory_max", "body_bytes"];

impl ShownValue for Seconds {
    fn shown(&self) -> String {
        Duration::from_secs(self.0).shown()
    }
}

impl FromToml for Duration {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            return whole_seconds(item).map(Duration::from_secs);
        }
        let key = item.key.clone();
        item.parse("a duration", "\"500ms\"", |text| {
            let help =
                "write a number with a unit (ms, s, m, h, d, w): \"500ms\", \"10s\", \"1h30m\"";
            match parse_duration(text).filter(|_| has_unit(text)) {
                Some(duration) => Ok(duration),
                None if ["off", "none", "never"].contains(&text) => wrong(
                    format!("`{text}` is not a duration"),
                    "no duration is unlimited: write a long one, such as \"365d\"",
                ),
                None => {
                    let own = duration_help(&key, text);
                    let help = own.unwrap_or_else(|| help.to_owned());
                    wrong(format!("`{text}` is not a duration"), help)
                }
            }
        })
    }
}

/// Returns the duration for a text in the format of another server: `30 s`, `1 minute`, `max-age=60`.
fn duration_help(key: &str, text: &str) -> Option<String> {
    let plain = text.trim().to_ascii_lowercase();
    if let Some(rest) = plain.strip_prefix("max-age=") {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let seconds: u64 = rest[..digits].parse().ok()?;
        return Some(format!("write {key} = {}", Seconds(seconds).shown()));
    }
    if matches!(plain.as_str(), "no-cache" | "no-store" | "never") && key == "max_age" {
        return Some("write max_age = \"0s\": browsers ask again each time".to_owned());
    }
    if let Some(days) = text
        .trim()
        .strip_suffix('M')
        .and_then(|it| it.parse::<u32>().ok())
    {
        // `M` is a month in the notation of ISO 8601 and of others.
        let month = u64::from(days) * 30;
        return Some(format!(
            "write {key} = \"{month}d\" for months, or \"{days}m\" for minutes"
        ));
    }
    let iso = plain
        .strip_prefix('p')
        .map(|it| it.strip_prefix('t').unwrap_or(it));
    let plain = iso
        .filter(|it| it.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(&plain);
    let digits = plain.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match plain[digits..].trim() {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        "month" | "months" => return Some(format!("write {key} = \"30d\" for a month")),
        "y" | "year" | "years" => return Some(format!("write {key} = \"365d\" for a year")),
        _ => return None,
    };
    (digits > 0).then(|| format!("write {key} = \"{}{unit}\"", &plain[..digits]))
}

/// Returns the seconds of a duration with a unit, such as `10m`.
pub(super) fn seconds_of(text: &str) -> Option<u64> {
    parse_seconds(text).filter(|_| has_unit(text))
}

/// Returns false for a text of digits alone, since a duration in quotes needs a unit.
fn has_unit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Size: text such as `"64MiB"`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct ByteSize(pub(super) u64);

impl FromToml for ByteSize {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            let (source, span, key) = (item.source, item.value.span(), item.key.clone());
            let bytes = u64::read(item)?;
            if SIZES.contains(&key.as_str()) && (1..1_024).contains(&bytes) {
                let what = format!("{key} = {bytes} is a size of {bytes} bytes");
                let help = format!(
                    "write a unit: {key} = \"{bytes}MiB\", or {key} = \"{bytes}B\" for bytes"
                );
                source.doubt(span, what, help);
            }
            return Ok(ByteSize(bytes));
        }
        item.parse("a size", "\"64MiB\"", |text| match parse_bytes(text) {
            Some(bytes) => Ok(ByteSize(bytes)),
            None if ["unlimited", "off", "none", "-1"].contains(&text) => wrong(
                format!("`{text}` is not a size"),
                "no size is unlimited: write a large one, such as \"1024GiB\"",
            ),
            None => {
                let usual = "write a whole number with a unit (KiB, MiB, GiB): \"64MiB\"";
                let help = fraction_help(text).unwrap_or_else(|| usual.to_owned());
                wrong(format!("`{text}` is not a size"), help)
            }
        })
    }
}

/// Returns the whole size for a text with a fraction, such as `1.5GiB`.
fn fraction_help(text: &str) -> Option<String> {
    let (whole, rest) = text.split_once(['.', ','])?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let unit = parse_bytes(&format!("1{}", &rest[digits..]))?;
    let number: f64 = format!("{whole}.{}", &rest[..digits]).parse().ok()?;
    let bytes = (number * unit as f64).round() as u64;
    Some(format!("write {}", ByteSize(bytes >> 20 << 20).shown())).filter(|_| bytes >= 1 << 20)
}

impl ShownValue for ByteSize {
    fn shown(&self) -> String {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter();
        let mut fitting = units.filter(|(_, bits)| self.0 > 0 && self.0.is_multiple_of(1 << bits));
        match fitting.next() {
            Some((unit, bits)) => format!("\"{}{unit}\"", self.0 >> bits),
            None => self.0.to_string(),
        }
    }

    fn is_largest(&self) -> bool {
        self.0 == u64::MAX
    }
}

/// Value that the server chooses: `"auto"`, or a value of the type.
#[derive(Clone, Debug)]
pub(super) struct OrAuto<T>(pub(super) Option<T>);

impl FromToml for OrAuto<usize> {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.text() {
            Some("auto") => Ok(OrAuto(None)),
            _ if !item.value.get_ref().is_integer() => {
                Err(item.mistyped("a number or \"auto\"", "4"))
            }
            _ => usize::read(item).map(|value| OrAuto(Some(value))),
        }
    }
}

impl FromToml for OrAuto<ByteSize> {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.text() {
            Some("auto") => Ok(OrAuto(None)),
            None if !item.value.get_ref().is_integer() => {
                Err(item.mistyped("a size or \"auto\"", "\"64MiB\""))
            }
            _ => ByteSize::read(item).map(|value| OrAuto(Some(value))),
        }
    }
}

/// Network of clients: an address, or an address with the length of its prefix.
#[derive(Clone, Debug)]
pub(super) struct Network(pub(super) String);

impl FromToml for Network {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let network =
            item.parse(
                "a network in quotes",
                "[\"192.0.2.0/24\"]",
                |text| match AllowList::default().add(text) {
                    Ok(()) => Ok(text.to_owned()),
                    Err(error) => wrong(error.what, network_help(text).unwrap_or(error.help)),
                },
            );
        network.map(Network)
    }
}

/// Returns the networks for a word of another server, or for an address with wildcards.
fn network_help(text: &str) -> Option<String> {
    match text {
        "localhost" => return Some("write \"127.0.0.1\" and \"::1\"".to_owned()),
        "private_ranges" => {
            let help = "write \"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"127.0.0.0/8\", \"fd00::/8\" and \"::1\"";
            return Some(help.to_owned());
        }
        "any" => return Some("write \"0.0.0.0/0\" and \"::/0\" for all addresses".to_owned()),
        _ => {}
    }
    let known = text.trim_end_matches(['*', '.', 'x']);
    let numbers: Option<Vec<u8>> = known.split('.').map(|part| part.parse().ok()).collect();
    let numbers = numbers.filter(|it| it.len() < 4 && known.len() < text.len())?;
    let zeros = ".0".repeat(4 - numbers.len());
    Some(format!("write \"{known}{zeros}/{}\"", numbers.len() * 8))
}

#[cfg(test)]
impl ShownValue for Network {
    fn shown(&self) -> String {
        self.0.shown()
    }
}

/// Returns the texts of networks.
pub(super) fn networks(networks: Vec<Spanned<Network>>) -> Vec<Spanned<String>> {
    let networks = networks.into_iter();
    let networks = networks.map(|it| Spanned::new(it.span(), it.into_inner().0));
    networks.collect()
}

impl FromToml for ListenAddress {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            return u16::read(item).map(ListenAddress::all);
        }
        let example = match item.key.as_str() {
            "manager" => "\"127.0.0.1:8800\"",
            _ => "[\":8443\"]",
        };
        item.parse("an address to listen on", example, ListenAddress::parse)
    }
}

/// Name of a site.
#[derive(Clone, Debug)]
pub(super) struct SiteName(pub(super) String);

impl FromToml for SiteName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let name = item.parse("a host name in quotes", "[\"example.org\"]", site_name);
        name.map(SiteName)
    }
}
