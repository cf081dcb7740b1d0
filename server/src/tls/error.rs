//! What an operator reads when a certificate, a key file or a cipher list can't be used: which
//! part of which pair, which file, what is wrong and what would be right.

use std::fmt;
use std::path::PathBuf;

/// The part of the configuration that an error is about, so that a caller can point at its key.
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
    /// `ciphers` of `[tls]`.
    Ciphers,
    /// `tickets` of `[tls]`, or the ticket keys in the state folder.
    Tickets,
    /// The self-signed certificate in the state folder.
    SelfSigned,
}

/// Something of TLS that the operator has to put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// Index into the pairs given to [`super::Tls::build`], if it is about one of them.
    pub pair: Option<usize>,
    /// What it is about.
    pub part: TlsPart,
    /// The file at fault, if it is one.
    pub file: Option<PathBuf>,
    /// What is wrong, as half a sentence.
    pub what: String,
    /// What would be right; may be empty.
    pub hint: String,
    /// Certificate and key are each fine but don't belong together: half of them was replaced.
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
}

impl fmt::Display for TlsError {
    /// `FILE: WHAT (HINT)`, on one line.
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
