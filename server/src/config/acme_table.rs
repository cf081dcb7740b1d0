//! `acme` of `[tls]`: the directory that issues certificates, and the challenge that validates names.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::value_types::Seconds;
use crate::config::values::wrong;
use cli::suggest;

declare_table! {
    /// Keys of `acme`.
    pub(super) struct AcmeTable: "acme", such as "{ email = \"me@example.org\" }" {
        /// Address for messages of the certificate authority.
        email: EmailAddress = optional("none"), also ["mail", "contact"], example "\"me@example.org\"";
        /// `"letsencrypt"`, `"letsencrypt-staging"` or a URL.
        directory: DirectoryUrl = default(DirectoryUrl::default()), also ["server", "acme_ca"],
            example "\"letsencrypt-staging\"";
        /// `"http-01"`, `"tls-alpn-01"` or `"dns-01"`. With `hook`, the default is dns-01.
        challenge: ChallengeType = optional("http-01, else tls-alpn-01"), example "\"dns-01\"";
        /// Program for dns-01.
        hook: PathBuf = optional("none"), example "\"/usr/local/bin/dns-hook\"";
        /// Maximum running time of the program.
        hook_timeout: Seconds = default(HOOK_TIMEOUT), within(Seconds(1), Seconds(3_600)), example "\"10m\"";
        /// PEM file of the authority that signed the directory's own certificate.
        ca: PathBuf = optional("the system's list"), example "\"directory-ca.pem\"";
        /// External account binding: `{ kid = "…", key = "…" }`, as given by the authority.
        eab: EabTable = optional("none"),
            example "{ kid = \"kid-1\", key = \"c2VjcmV0LXNlY3JldC1zZWNyZXQ\" }";
        /// Certificate profile of the directory, such as `"shortlived"`.
        profile: String = optional("none"), example "\"shortlived\"";
    }
}

declare_table! {
    /// Keys of `eab`.
    pub(super) struct EabTable: "eab", such as "{ kid = \"…\", key = \"…\" }" {
        /// Identifier of the key.
        kid: String = required, also ["key_id"], example "\"kid-1\"";
        /// MAC key in base64url.
        key: MacKey = required, also ["hmac", "mac_key", "hmac_key"], example "\"c2VjcmV0LXNlY3JldC1zZWNyZXQ\"";
    }
}

/// Configuration in `[tls] acme`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// Position in the file.
    pub span: Range<usize>,
    /// E-mail address of the operator for messages from the directory.
    pub email: Option<String>,
    /// URL of the directory, https.
    pub directory: String,
    /// Challenge for validating names; `None` = http-01, else tls-alpn-01.
    pub challenge: Option<ChallengeType>,
    /// Program that publishes TXT records for dns-01.
    pub hook: Option<Spanned<PathBuf>>,
    /// Timeout of the hook in seconds.
    pub hook_seconds: u64,
    /// PEM file with the authorities for the directory's own certificate; `None` = the authorities of the
    /// system.
    pub ca: Option<Spanned<PathBuf>>,
    /// External account binding.
    pub eab: Option<EabConfig>,
    /// Certificate profile to request.
    pub profile: Option<String>,
}

/// Challenge that proves control of a name (RFC 8555 §8, RFC 8737).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeType {
    /// File over plain HTTP, port 80.
    Http01,
    /// Certificate in a TLS handshake, port 443.
    TlsAlpn01,
    /// TXT record, published by a hook.
    Dns01,
}

impl ChallengeType {
    /// Returns the name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        CHALLENGES[self as usize].0
    }
}

/// External account binding (RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct EabConfig {
    /// Identifier of the key.
    pub kid: String,
    /// MAC key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for EabConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Eab({})", self.kid) // the key is secret
    }
}

/// Challenges by name, in the order of [`ChallengeType`].
const CHALLENGES: [(&str, ChallengeType); 3] = [
    ("http-01", ChallengeType::Http01),
    ("tls-alpn-01", ChallengeType::TlsAlpn01),
    ("dns-01", ChallengeType::Dns01),
];
const DIRECTORIES: [(&str, &str); 2] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
];
/// Default timeout of the hook. With many providers, a record takes 1 to 2 minutes to be visible
/// everywhere.
const HOOK_TIMEOUT: Seconds = Seconds(300);

impl AcmeTable {
    /// Returns the settings. Fails for a challenge that contradicts `hook`. `span` is the position of the table.
    pub(super) fn settings(
        self,
        source: &SourceText<'_>,
        span: Range<usize>,
    ) -> Result<AcmeConfig, OperatorError> {
        let challenge = match (self.challenge.map(Spanned::into_inner), &self.hook) {
            (None, Some(_)) => Some(ChallengeType::Dns01),
            (Some(ChallengeType::Dns01), None) => {
                let help = "add hook = \"…\", the path of a program; the server calls it as `hook \
                            present NAME VALUE` and `hook cleanup NAME VALUE`";
                return Err(source.error(span, "dns-01 needs a `hook`", help));
            }
            (Some(other), Some(hook)) if other != ChallengeType::Dns01 => {
                let what = format!("`hook` is not used by the challenge {}", other.name());
                let help = "write challenge = \"dns-01\", or remove `hook`";
                return Err(source.error(hook.span(), what, help));
            }
            (challenge, _) => challenge,
        };
        let eab = self.eab.map(Spanned::into_inner);
        Ok(AcmeConfig {
            span,
            email: self.email.map(|email| email.into_inner().0),
            directory: self.directory.into_inner().0,
            challenge,
            hook: self.hook,
            hook_seconds: self.hook_timeout.get_ref().0,
            ca: self.ca,
            eab: eab.map(|eab| EabConfig {
                kid: eab.kid.into_inner(),
                key: eab.key.into_inner().0,
            }),
            profile: self.profile.map(Spanned::into_inner),
        })
    }
}

impl FromToml for ChallengeType {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&CHALLENGES)
    }
}

/// E-mail address.
#[derive(Clone, Debug)]
pub(super) struct EmailAddress(String);

impl FromToml for EmailAddress {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "\"me@example.org\"";
        let email = item.parse("an e-mail address in quotes", example, |text| {
            let parts = text.split_once('@');
            let fits = parts.is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
                && text.chars().all(|c| c.is_ascii_graphic());
            let address = text.strip_prefix("mailto:");
            match fits {
                true if address.is_some() => wrong(
                    format!("`{text}` is a URL, not an e-mail address"),
                    format!("write \"{}\"", address.unwrap_or_default()),
                ),
                true => Ok(text.to_owned()),
                false => wrong(
                    format!("`{text}` is not an e-mail address"),
                    "for example \"me@example.org\"",
                ),
            }
        });
        email.map(EmailAddress)
    }
}

/// URL of a directory.
#[derive(Clone, Debug)]
pub(super) struct DirectoryUrl(String);

impl Default for DirectoryUrl {
    fn default() -> DirectoryUrl {
        DirectoryUrl(DIRECTORIES[0].1.to_owned())
    }
}

impl ShownValue for DirectoryUrl {
    fn shown(&self) -> String {
        let word = DIRECTORIES.iter().find(|(_, url)| *url == self.0);
        format!("\"{}\"", word.map_or(self.0.as_str(), |(word, _)| word))
    }
}

impl FromToml for DirectoryUrl {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let Some(text) = item.text() else {
            return Err(item.mistyped("a URL in quotes", "\"letsencrypt\""));
        };
        if let Some((_, url)) = DIRECTORIES.iter().find(|(word, _)| *word == text) {
            return Ok(DirectoryUrl((*url).to_owned()));
        }
        let host = text.strip_prefix("https://").unwrap_or_default();
        if !host.is_empty() && !host.starts_with('/') && host.bytes().all(|b| b.is_ascii_graphic())
        {
            return Ok(DirectoryUrl(text.to_owned()));
        }
        let help = match suggest(text, DIRECTORIES.iter().map(|(word, _)| *word)) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => {
                "write \"letsencrypt\", \"letsencrypt-staging\" or a URL with https://".to_owned()
            }
        };
        Err(item.refuse(
            format!("`{text}` is not the URL of an ACME directory"),
            help,
        ))
    }
}

/// Key of an external account binding.
#[derive(Clone)]
pub(super) struct MacKey(Vec<u8>);

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacKey") // the key is secret
    }
}

impl FromToml for MacKey {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let key = item.parse("a key in quotes", "\"…\"", |text| {
            match base64url(text).filter(|bytes| bytes.len() >= EAB_KEY_BYTES_MIN) {
                Some(bytes) => Ok(bytes),
                None => wrong(
                    "`key` of `eab` is not a valid key",
                    "copy the whole key from the CA: base64url, at least 16 bytes",
                ),
            }
        });
        key.map(MacKey)
    }
}

/// Minimum length of a MAC key in bytes; a shorter key is probably copied in part.
const EAB_KEY_BYTES_MIN: usize = 16;

/// Decodes base64 of either alphabet, with or without padding: CAs show keys in all four forms.
fn base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    (count < 6).then_some(bytes)
}
