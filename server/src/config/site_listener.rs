//! `listen` of a site: addresses that serve the sites that name them, and no other site.

use crate::config::declared_table::ShownValue;
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::{InvalidValue, ListenAddress, wrong};

/// Address in `listen` of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteListener {
    /// Address to bind.
    pub address: ListenAddress,
    /// True for HTTPS, false for plain HTTP.
    pub secure: bool,
}

impl SiteListener {
    /// Reads `https://:8001`, `http://127.0.0.1:8002` or, for HTTPS, an address alone.
    fn parse(text: &str) -> Result<SiteListener, InvalidValue> {
        let (secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((scheme, rest)) => {
                let help = format!("write \"https://{rest}\" or \"http://{rest}\"");
                return wrong(format!("a site cannot listen for `{scheme}`"), help);
            }
        };
        let address = rest.strip_suffix('/').unwrap_or(rest);
        if let Some((address, path)) = address.split_once('/') {
            let what = format!("`{text}` has a path, `/{path}`");
            return wrong(
                what,
                format!(
                    "write \"{}\"; a [[site.route]] has the path",
                    shown(address, secure)
                ),
            );
        }
        let address = ListenAddress::parse(address)?;
        Ok(SiteListener { address, secure })
    }

    /// Returns the address without a scheme in its shortest form: `:8001`, `127.0.0.1:8002`.
    pub(crate) fn short(&self) -> String {
        if self.address.address == ListenAddress::all(self.address.address.port()).address {
            format!(":{}", self.address.address.port())
        } else {
            self.address.address.to_string()
        }
    }
}

fn shown(address: &str, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{address}")
}

impl std::fmt::Display for SiteListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.short(), self.secure))
    }
}

impl ShownValue for SiteListener {
    fn shown(&self) -> String {
        format!("\"{self}\"")
    }
}

impl FromToml for SiteListener {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.value.get_ref().is_integer() {
            let address = u16::read(item).map(ListenAddress::all)?;
            return Ok(SiteListener {
                address,
                secure: true,
            });
        }
        let example = "[\"https://:8001\"]";
        item.parse("an address to listen on", example, SiteListener::parse)
    }
}
