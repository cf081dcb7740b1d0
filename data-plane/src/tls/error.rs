//! Errors about an unusable certificate, key file or cipher list, for the operator: part of the pair, file,
//! fault and remedy.

use std::fmt;
use std::path::PathBuf;

/// Part of the configuration with the error, so that a caller can point at the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPart {
    /// `names` of a pair.
    Names,
    /// `certificate` of a pair.
    Certificate,
    /// `key` of a pair, or the private key inside a combined file.
    Key,
    /// `client_ca` of a pair.
    ClientCa,
    /// `ca` of a client: the authorities that certify servers.
    Authorities,
    /// `client_certificate` of a client.
    ClientCertificate,
    /// `client_key` of a client, or the private key inside a combined file.
    ClientKey,
    /// `server_name` of a client, or the host of a URL.
    ServerName,
    /// `ciphers` of `[tls]`.
    Ciphers,
    /// `tickets` of `[tls]`, or the ticket keys in the state folder.
    Tickets,
    /// The self-signed certificate in the state folder.
    SelfSigned,
}

/// TLS error that the operator has to correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// Index into the pairs given to [`super::Tls::build`], for an error of a pair.
    pub pair: Option<usize>,
    /// Part of the configuration with the error.
    pub part: TlsPart,
    /// The faulty file, if any.
    pub file: Option<PathBuf>,
    /// Description of the fault, without a capital letter and a full stop.
    pub what: String,
    /// Remedy, possibly empty.
    pub hint: String,
    /// True if certificate and key are valid but don't match: only one of the two was replaced.
    pub(super) mismatch: bool,
}

impl TlsError {
    pub(super) fn new(part: TlsPart, what: impl Into<String>, hint: impl Into<String>) -> TlsError {
        TlsError {
            pair: None,
            part,
            file: None,
            what: what.into(),
            hint: hint.into(),
            mismatch: false,
        }
    }

    pub(super) fn in_file(mut self, file: impl Into<PathBuf>) -> TlsError {
        self.file = Some(file.into());
        self
    }

    pub(super) fn of_pair(mut self, index: usize) -> TlsError {
        self.pair = Some(index);
        self
    }

    /// Converts the error of a server's pair to the error of a client's pair, with the names of the client's
    /// keys.
    pub(super) fn of_client(mut self) -> TlsError {
        self.part = match self.part {
            TlsPart::Certificate => TlsPart::ClientCertificate,
            TlsPart::Key => TlsPart::ClientKey,
            other => other,
        };
        let renamed = [
            ("`certificate`", "`client_certificate`"),
            ("`key`", "`client_key`"),
            ("server's certificate", "client's certificate"),
        ];
        for (server, client) in renamed {
            self.hint = self.hint.replace(server, client);
        }
        self
    }
}

impl fmt::Display for TlsError {
    /// Writes `FILE: WHAT (HINT)` on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        f.write_str(&self.what)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for TlsError {}
