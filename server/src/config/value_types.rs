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
            return u64::read(item).map(Seconds);
        }
        let Some(text) = item.text() else {
            return Err(item.mistyped("a duration", "\"30d\""));
        };
        match seconds_of(text) {
            Some(seconds) => Ok(Seconds(seconds)),
            None => Err(item.refuse(
                format!("`{text}` is not a duration"),
                "write a number with a unit (s, m, h, d, w): \"10m\", \"30d\", \"1h30m\"",
            )),
        }
    }
}

impl ShownValue for Seconds {
    fn shown(&self) -> String {
        Duration::from_secs(self.0).shown()
    }
}

impl FromToml for Duration {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            return u64::read(item).map(Duration::from_secs);
        }
        item.parse("a duration", "\"500ms\"", |text| {
            let help =
                "write a number with a unit (ms, s, m, h, d, w): \"500ms\", \"10s\", \"1h30m\"";
            match parse_duration(text).filter(|_| has_unit(text)) {
                Some(duration) => Ok(duration),
                None if ["off", "none", "never"].contains(&text) => wrong(
                    format!("`{text}` is not a duration"),
                    "no duration is unlimited: write a long one, such as \"365d\"",
                ),
                None => wrong(format!("`{text}` is not a duration"), help),
            }
        })
    }
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
            return u64::read(item).map(ByteSize);
        }
        item.parse("a size", "\"64MiB\"", |text| match parse_bytes(text) {
            Some(bytes) => Ok(ByteSize(bytes)),
            None => wrong(
                format!("`{text}` is not a size"),
                "write a number with a unit (KiB, MiB, GiB): \"64MiB\"",
            ),
        })
    }
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
                    Err(error) => wrong(error.what, error.help),
                },
            );
        network.map(Network)
    }
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
