//! `[tls]`: versions, cipher suites, ticket keys and automatic certificates.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::acme_table::{AcmeConfig, AcmeTable};
use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};

declare_table! {
    /// Keys of `[tls]`.
    pub(super) struct TlsTable: "[tls]" {
        /// Oldest accepted version.
        min_version: TlsVersion = default(TlsVersion::Tls12), also ["ssl_protocols", "protocols"],
            example "\"1.3\"";
        /// `"auto"`: order by processor; or a list of suites in the order of preference.
        ciphers: Ciphers = optional("`\"auto\"`"), also ["ssl_ciphers"], example "[\"TLS_AES_128_GCM_SHA256\"]";
        /// `"state"`: own ticket keys, kept in the state folder; or a file of keys for several nodes.
        tickets: Tickets = optional("`\"state\"`"), also ["ssl_session_ticket_key"], example "\"tickets.key\"";
        /// Table of [ACME](#tlsacme).
        acme: AcmeTable = optional("none"), example "{ email = \"me@example.org\" }";
    }
}

/// Settings of `[tls]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Oldest accepted version of TLS.
    pub min_version: TlsVersion,
    /// Names of the cipher suites in order of preference; `None` = chosen by the hardware.
    pub ciphers: Option<Vec<Spanned<String>>>,
    /// File with ticket keys shared with other nodes; `None` = own keys in the state folder.
    pub tickets: Option<Spanned<PathBuf>>,
    /// Automatic certificates (ACME); `None` = none.
    pub acme: Option<AcmeConfig>,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Versions by name.
const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];

impl TlsTable {
    /// Returns the settings. Errors of `acme` are recorded.
    pub(super) fn settings(self, source: &SourceText<'_>) -> TlsConfig {
        let acme = self.acme.and_then(|acme| {
            let span = acme.span();
            source.keep(acme.into_inner().settings(source, span))
        });
        let tickets = self.tickets.and_then(|file| {
            let span = file.span();
            file.into_inner().0.map(|file| Spanned::new(span, file))
        });
        TlsConfig {
            min_version: self.min_version.into_inner(),
            ciphers: self.ciphers.and_then(|ciphers| ciphers.into_inner().0),
            tickets,
            acme,
        }
    }
}

impl FromToml for TlsVersion {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&VERSIONS)
    }
}

impl ShownValue for TlsVersion {
    fn shown(&self) -> String {
        format!("\"{}\"", VERSIONS[*self as usize].0)
    }
}

/// Value of `ciphers`; `None` for `"auto"`.
#[derive(Clone, Debug)]
pub(super) struct Ciphers(Option<Vec<Spanned<String>>>);

impl FromToml for Ciphers {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.text() == Some("auto") {
            return Ok(Ciphers(None));
        }
        if !item.value.get_ref().is_array() {
            let example = "[\"TLS_AES_128_GCM_SHA256\"]";
            return Err(item.mistyped("\"auto\" or a list", example));
        }
        let (source, span) = (item.source, item.value.span());
        let list = <Vec<Spanned<String>>>::read(item)?;
        if list.is_empty() {
            let help = "write \"auto\", or at least one cipher suite";
            return Err(source.error(span, "`ciphers` is empty", help));
        }
        Ok(Ciphers(Some(list)))
    }
}

/// Value of `tickets`; `None` for `"state"`.
#[derive(Clone, Debug)]
pub(super) struct Tickets(Option<PathBuf>);

impl FromToml for Tickets {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.text() {
            Some("state") => Ok(Tickets(None)),
            _ => PathBuf::read(item).map(|file| Tickets(Some(file))),
        }
    }
}
