//! `[tls] acme`: the directory that issues certificates, the challenge that validates names, and the sites
//! with a managed certificate.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::error::OperatorError;
use super::{Config, ServerConfig, SiteConfig};
use crate::config::suggestion::suggest;
use crate::config::toml_reader::{KeyedValue, SourceText, TableSchema};
use crate::config::value_types::Seconds;

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
    pub fn name(self) -> &'static str {
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

/// Certificate requested for a site through ACME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCertificate {
    /// Names in the certificate; never empty.
    pub names: Vec<String>,
    /// File with the key and the chain.
    pub file: PathBuf,
}

impl Config {
    /// Returns the certificates to request: a certificate for each site without a configured certificate
    /// and with at least one name that the directory can validate.
    pub fn managed_certificates(&self) -> Vec<ManagedCertificate> {
        let wanted = self.sites.iter().filter_map(|site| {
            let file = self.acme_file(site)?;
            let names = certified(site).map(str::to_owned).collect();
            Some(ManagedCertificate { names, file })
        });
        wanted.collect()
    }

    /// Returns the names without a requested certificate, each with the reason.
    pub fn unmanaged_names(&self) -> Vec<(String, &'static str)> {
        let mut skipped = Vec::new();
        if self.tls.acme.is_none() {
            return skipped;
        }
        for site in self.sites.iter().filter(|site| site.certificate.is_none()) {
            for name in site.all_names() {
                if let Some(why) = unfit(name.get_ref()) {
                    skipped.push((name.get_ref().clone(), why));
                }
            }
        }
        skipped
    }

    /// Returns the file of the managed certificate of a site; `None` for a site without a managed
    /// certificate.
    pub fn acme_file(&self, site: &SiteConfig) -> Option<PathBuf> {
        if self.tls.acme.is_none() || site.certificate.is_some() || self.server.https.is_empty() {
            return None;
        }
        let first = certified(site).next()?;
        let mut file = self.server.state.get_ref().join("acme/certificates");
        // `*` in a file name would be expanded by shells.
        file.push(first.replace('*', "_"));
        file.push("certificate.pem");
        Some(file)
    }
}

/// Returns the names of a site that a directory can validate.
fn certified(site: &SiteConfig) -> impl Iterator<Item = &str> {
    let names = site.all_names().map(|name| name.get_ref().as_str());
    names.filter(|name| unfit(name).is_none())
}

/// Returns the reason why no directory validates a name, or `None` for a valid name.
fn unfit(name: &str) -> Option<&'static str> {
    if name == "*" {
        return Some("a certificate cannot name every host");
    }
    if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Some("certificates for IP addresses are not requested");
    }
    let host = name.strip_prefix("*.").unwrap_or(name);
    let Some((_, last)) = host.rsplit_once('.') else {
        return Some("no public authority certifies a local name");
    };
    let local = LOCAL.contains(&last) || host.ends_with(".home.arpa");
    local.then_some("no public authority certifies a local name")
}

/// Top-level names reserved for local use (RFC 6761, 6762, 7686, 8375, 9476, and the name that ICANN
/// reserves for private networks), and names that home routers assign without a reservation.
const LOCAL: [&str; 12] = [
    "local",
    "localhost",
    "internal",
    "lan",
    "test",
    "invalid",
    "onion",
    "alt",
    "home",
    "localdomain",
    "intranet",
    "private",
];

pub(super) static ACME: TableSchema = TableSchema {
    name: "acme",
    keys: &[
        "email",
        "directory",
        "challenge",
        "hook",
        "hook_timeout",
        "ca",
        "eab",
        "profile",
    ],
    later: &[],
    foreign: &[],
};
static EAB: TableSchema = TableSchema {
    name: "eab",
    keys: &["kid", "key"],
    later: &[],
    foreign: &[],
};

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
/// Default timeout of the hook in seconds. With many providers, a record takes 1 to 2 minutes to be visible
/// everywhere.
const HOOK_SECONDS: u64 = 300;

/// Reads `acme = { … }`.
pub(super) fn acme(item: KeyedValue<'_, '_>) -> Result<AcmeConfig, OperatorError> {
    let mut table = item.table(&ACME)?;
    let span = table.span.clone();
    let email = table.take::<Spanned<String>>("email")?;
    if let Some(email) = &email
        && !is_address(email.get_ref())
    {
        let what = format!("`{}` is not an e-mail address", email.get_ref());
        let help = "for example \"me@example.org\"";
        return Err(table.source().error(email.span(), what, help));
    }
    let directory = match table.item("directory") {
        Some(item) => directory(&item)?,
        None => DIRECTORIES[0].1.to_owned(),
    };
    let challenge = table.word("challenge", &CHALLENGES)?;
    let hook = table.take::<Spanned<PathBuf>>("hook")?;
    let hook_seconds = table.within::<Seconds>("hook_timeout", 1..=3_600)?;
    let ca = table.take("ca")?;
    let eab = table.item("eab").map(eab).transpose()?;
    let profile = table.take("profile")?;
    let challenge = match (challenge, &hook) {
        (None, Some(_)) => Some(ChallengeType::Dns01),
        (Some(ChallengeType::Dns01), None) => {
            let help = "add hook = \"…\", the path of a program; the server calls it as `hook \
                        present NAME VALUE` and `hook cleanup NAME VALUE`";
            return Err(table.lacks("dns-01 needs a `hook`", help));
        }
        (Some(other), Some(hook)) if other != ChallengeType::Dns01 => {
            let what = format!("`hook` is not used by the challenge {}", other.name());
            let help = "write challenge = \"dns-01\", or remove `hook`";
            return Err(table.source().error(hook.span(), what, help));
        }
        (challenge, _) => challenge,
    };
    table.finish()?;
    Ok(AcmeConfig {
        span,
        email: email.map(Spanned::into_inner),
        directory,
        challenge,
        hook,
        hook_seconds: hook_seconds.map_or(HOOK_SECONDS, |seconds| seconds.0),
        ca,
        eab,
        profile,
    })
}

fn is_address(email: &str) -> bool {
    let parts = email.split_once('@');
    parts.is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
        && email.chars().all(|c| c.is_ascii_graphic())
}

fn directory(item: &KeyedValue<'_, '_>) -> Result<String, OperatorError> {
    let Some(text) = item.text() else {
        return Err(item.mistyped("a URL in quotes", "\"letsencrypt\""));
    };
    if let Some((_, url)) = DIRECTORIES.iter().find(|(word, _)| *word == text) {
        return Ok((*url).to_owned());
    }
    let host = text.strip_prefix("https://").unwrap_or_default();
    if !host.is_empty() && !host.starts_with('/') && host.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    let help = match suggest(text, DIRECTORIES.iter().map(|(word, _)| *word)) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => "write \"letsencrypt\", \"letsencrypt-staging\" or a URL with https://".to_owned(),
    };
    Err(item.refuse(
        format!("`{text}` is not the URL of an ACME directory"),
        help,
    ))
}

fn eab(item: KeyedValue<'_, '_>) -> Result<EabConfig, OperatorError> {
    let mut table = item.table(&EAB)?;
    let kid = table.take::<String>("kid")?;
    let key = table.take::<Spanned<String>>("key")?;
    let (Some(kid), Some(key)) = (kid, key) else {
        return Err(table.lacks(
            "external account binding needs both `kid` and `key`",
            "write eab = { kid = \"…\", key = \"…\" } with the values from your CA",
        ));
    };
    let Some(bytes) = base64url(key.get_ref()).filter(|bytes| bytes.len() >= EAB_KEY_BYTES_MIN)
    else {
        let help = "copy the whole key from the CA: base64url, at least 16 bytes";
        return Err(table
            .source()
            .error(key.span(), "`key` of `eab` is not a valid key", help));
    };
    table.finish()?;
    Ok(EabConfig { kid, key: bytes })
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

/// Refuses settings of `acme` that other tables make impossible.
pub(super) fn refuse_impossible(
    source: &SourceText<'_>,
    acme: &AcmeConfig,
    server: &ServerConfig,
    sites: &[SiteConfig],
) -> Result<(), OperatorError> {
    let at_acme = |what: &str, help: &str| Err(source.error(acme.span.clone(), what, help));
    if server.https.is_empty() {
        return at_acme(
            "`acme` requests certificates, but the server has no https address",
            "give `https` in [server] an address, or remove `acme`",
        );
    }
    if acme.challenge == Some(ChallengeType::Http01) && server.http.is_empty() {
        return at_acme(
            "the challenge http-01 needs plain HTTP",
            "give `http` in [server] an address, or choose another challenge",
        );
    }
    if acme.challenge == Some(ChallengeType::Dns01) {
        return Ok(());
    }
    for site in sites.iter().filter(|site| site.certificate.is_none()) {
        let wildcard = |name: &&Spanned<String>| name.get_ref().starts_with("*.");
        if let Some(name) = site.all_names().find(wildcard) {
            let what = format!(
                "only the challenge dns-01 can validate `{}`",
                name.get_ref()
            );
            let help = "write acme = { challenge = \"dns-01\", hook = \"…\" }, use names without \
                        `*`, or give the site its own `certificate`";
            return Err(source.error(name.span(), what, help));
        }
    }
    Ok(())
}
