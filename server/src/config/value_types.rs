//! Types of values in the file beyond the types of TOML: durations, sizes, addresses and names.

use std::time::Duration;

use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::{
    ListenAddress, parse_bytes, parse_duration, parse_seconds, site_name, wrong,
};

/// Duration: text such as `"30d"`, or a number of seconds.
#[derive(Clone, Copy)]
pub(super) struct Seconds(pub(super) u64);

impl FromToml for Seconds {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            return u64::read(item).map(Seconds);
        }
        let Some(text) = item.text() else {
            return Err(item.mistyped("a duration", "\"30d\""));
        };
        match parse_seconds(text) {
            Some(seconds) => Ok(Seconds(seconds)),
            None => Err(item.refuse(
                format!("`{text}` is not a duration"),
                "write a number with a unit (s, m, h, d, w): \"10m\", \"30d\", \"1h30m\"",
            )),
        }
    }
}

impl From<Seconds> for u64 {
    fn from(value: Seconds) -> u64 {
        value.0
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
            match parse_duration(text) {
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

/// Size: text such as `"64MiB"`, or a number of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteSize(pub(super) u64);

impl FromToml for ByteSize {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            return u64::read(item).map(ByteSize);
        }
        let Some(text) = item.text() else {
            return Err(item.mistyped("a size", "\"64MiB\""));
        };
        match parse_bytes(text) {
            Some(bytes) => Ok(ByteSize(bytes)),
            None => Err(item.refuse(
                format!("`{text}` is not a size"),
                "write a number with a unit (KiB, MiB, GiB): \"64MiB\"",
            )),
        }
    }
}

impl From<ByteSize> for u64 {
    fn from(value: ByteSize) -> u64 {
        value.0
    }
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
pub(super) struct SiteName(pub(super) String);

impl FromToml for SiteName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let name = item.parse("a host name in quotes", "[\"example.org\"]", site_name);
        name.map(SiteName)
    }
}
