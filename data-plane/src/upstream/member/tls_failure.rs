//! Failures of TLS to a member, in words for the operator.

use crate::tls::UnlistedSelfSigned;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use wire::date::civil;

/// Failure of TLS to a member: the reason and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MemberTlsFailure {
    what: String,
    /// Remedy, possibly empty.
    help: String,
}

impl fmt::Display for MemberTlsFailure {
    /// Writes `TLS: WHAT (HELP)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.what)?;
        if self.help.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.help)
        }
    }
}

impl StdError for MemberTlsFailure {}

impl MemberTlsFailure {
    fn new(what: impl Into<String>, help: impl Into<String>) -> MemberTlsFailure {
        MemberTlsFailure {
            what: what.into(),
            help: help.into(),
        }
    }

    /// Returns true if the connection failed by TLS.
    pub(crate) fn is_in(error: &io::Error) -> bool {
        error
            .get_ref()
            .is_some_and(|it| it.is::<MemberTlsFailure>())
    }

    /// Returns the error of a member that chose no protocol although HTTP/2 is required.
    pub(super) fn without_h2() -> io::Error {
        let failure = MemberTlsFailure::new(NO_HTTP, HTTP_VERSION);
        io::Error::new(io::ErrorKind::InvalidData, failure)
    }

    /// Words the error of a handshake.
    pub(super) fn in_handshake(error: io::Error) -> io::Error {
        let error = MemberTlsFailure::from_rustls(error);
        if MemberTlsFailure::is_in(&error) {
            return error;
        }
        let failure = match error.kind() {
            io::ErrorKind::UnexpectedEof => MemberTlsFailure::new(
                "the member closed the connection in the handshake",
                PLAIN_PORT,
            ),
            _ => MemberTlsFailure::new(format!("the handshake broke off: {error}"), ""),
        };
        io::Error::new(error.kind(), failure)
    }

    /// Words an error of rustls. Other errors stay unchanged.
    pub(super) fn from_rustls(error: io::Error) -> io::Error {
        let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        match inner.map(MemberTlsFailure::of) {
            Some(failure) => io::Error::new(error.kind(), failure),
            None => error,
        }
    }

    fn of(error: &Error) -> MemberTlsFailure {
        match error {
            Error::InvalidCertificate(error) => MemberTlsFailure::of_certificate(error),
            Error::AlertReceived(alert) => MemberTlsFailure::of_alert(*alert),
            Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
                MemberTlsFailure::new("the member does not speak TLS", PLAIN_PORT)
            }
            Error::NoApplicationProtocol => MemberTlsFailure::new(NO_HTTP, HTTP_VERSION),
            Error::PeerIncompatible(reason) => {
                let what = format!("the member has no common version or cipher: {reason:?}");
                MemberTlsFailure::new(what, "the member must support TLS 1.2 or TLS 1.3")
            }
            error => MemberTlsFailure::new(error.to_string(), ""),
        }
    }

    fn of_certificate(error: &CertificateError) -> MemberTlsFailure {
        use CertificateError as Bad;
        match error {
            Bad::ExpiredContext { not_after, .. } => MemberTlsFailure::new(
                format!("the member's certificate expired on {}", date(*not_after)),
                "renew the certificate of the member",
            ),
            Bad::NotValidYetContext { not_before, .. } => MemberTlsFailure::new(
                format!(
                    "the member's certificate is not valid before {}",
                    date(*not_before)
                ),
                "check the clocks of both machines",
            ),
            Bad::UnknownIssuer => MemberTlsFailure::new(
                "no trusted authority signed the member's certificate",
                "name the authority with `ca = \"FILE\"`; the member must also send the \
                 certificates between its own and the authority's",
            ),
            Bad::Other(error) if error.0.is::<UnlistedSelfSigned>() => MemberTlsFailure::new(
                "the member's certificate is self-signed",
                "trust the certificate with `ca = \"FILE\"`",
            ),
            Bad::NotValidForNameContext {
                expected,
                presented,
            } => wrong_name(&expected.to_str(), presented),
            Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => MemberTlsFailure::new(
                "the member's certificate is not for servers",
                "the extended key usage must contain serverAuth",
            ),
            error => {
                let what = format!("the member's certificate was refused: {error}");
                MemberTlsFailure::new(what, "")
            }
        }
    }

    fn of_alert(alert: AlertDescription) -> MemberTlsFailure {
        use AlertDescription as Alert;
        match alert {
            Alert::CertificateRequired => {
                let what = "the member requires a client certificate";
                MemberTlsFailure::new(what, CLIENT_CERTIFICATE)
            }
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied => MemberTlsFailure::new(
                format!("the member accepted no client certificate (alert {alert:?})"),
                CLIENT_CERTIFICATE,
            ),
            Alert::HandshakeFailure => MemberTlsFailure::new(
                "the member refused the handshake: it requires a client certificate, or supports \
                 no common cipher",
                CLIENT_CERTIFICATE,
            ),
            Alert::ProtocolVersion => {
                let what = "the member supports neither TLS 1.2 nor TLS 1.3";
                MemberTlsFailure::new(what, "")
            }
            Alert::UnrecognisedName => MemberTlsFailure::new(
                "the member has no certificate for the requested name",
                "set the requested name with `server_name = \"NAME\"`",
            ),
            Alert::NoApplicationProtocol => MemberTlsFailure::new(NO_HTTP, HTTP_VERSION),
            alert => MemberTlsFailure::new(format!("the member sent the alert {alert:?}"), ""),
        }
    }
}

/// Words a certificate that lacks the expected name. `presented` holds names in webpki's notation:
/// `DnsName("a.test")` and `IpAddress(192.0.2.1)`.
fn wrong_name(expected: &str, presented: &[String]) -> MemberTlsFailure {
    let kinds = ["DnsName(", "IpAddress("];
    let names = presented.iter().filter_map(|name| {
        let inner = kinds.iter().find_map(|kind| name.strip_prefix(kind))?;
        Some(inner.strip_suffix(')')?.trim_matches('"'))
    });
    // Control characters of a foreign certificate must not reach the log.
    let names = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()));
    let names: Vec<&str> = names.take(NAMES_SHOWN_MAX).collect();
    let Some(first) = names.first() else {
        return MemberTlsFailure::new(
            "the member's certificate contains no name (subjectAltName)",
            "issue a certificate with the name of the member",
        );
    };
    let example = first.replacen("*.", "any-label.", 1);
    let names = names.join(", ");
    MemberTlsFailure::new(
        format!("the member's certificate is for {names}, and not for {expected}"),
        format!("set the name of the certificate with `server_name = \"{example}\"`"),
    )
}

/// Names of a certificate in a message.
const NAMES_SHOWN_MAX: usize = 8;

const PLAIN_PORT: &str = "for a port without TLS, write http:// in the URL";
const CLIENT_CERTIFICATE: &str =
    "set `client_certificate = \"FILE\"` to a certificate from an authority that the member trusts";
const NO_HTTP: &str = "the member does not offer the required version of HTTP by ALPN";
const HTTP_VERSION: &str =
    "`http2 = true` requires HTTP/2 of every member; without the key, HTTP/1.1 is required";

/// Returns the day as in RFC 3339.
fn date(time: UnixTime) -> String {
    let date = civil(time.as_secs());
    format!("{}-{:02}-{:02}", date.year, date.month, date.day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;
    use rustls::pki_types::ServerName;
    use std::time::Duration;

    fn worded(error: Error) -> String {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        let error = MemberTlsFailure::in_handshake(error);
        assert!(MemberTlsFailure::is_in(&error));
        error.to_string()
    }

    fn wrong_name_of(presented: &[&str]) -> Error {
        let expected = ServerName::try_from("b.test").unwrap();
        let presented = presented.iter().map(|name| (*name).to_owned());
        CertificateError::NotValidForNameContext {
            expected,
            presented: presented.collect(),
        }
        .into()
    }

    #[test]
    fn reasons_and_remedies_are_named() {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let cases: [(Error, &str, &str); 12] = [
            (
                CertificateError::ExpiredContext {
                    time: at,
                    not_after: at,
                }
                .into(),
                "expired on 2027-01-15",
                "renew",
            ),
            (
                CertificateError::NotValidYetContext {
                    time: at,
                    not_before: at,
                }
                .into(),
                "not valid before 2027-01-15",
                "clocks",
            ),
            (
                CertificateError::UnknownIssuer.into(),
                "no trusted authority",
                "`ca = \"FILE\"`",
            ),
            (
                CertificateError::InvalidPurpose.into(),
                "not for servers",
                "serverAuth",
            ),
            (CertificateError::Revoked.into(), "refused: Revoked", ""),
            (
                wrong_name_of(&["DnsName(\"a.test\")", "IpAddress(192.0.2.1)"]),
                "is for a.test, 192.0.2.1, and not for b.test",
                "`server_name = \"a.test\"`",
            ),
            (
                wrong_name_of(&["DnsName(\"x\ny\")", "DnsName(\"*.a.test\")"]),
                "is for *.a.test, and",
                "`server_name = \"any-label.a.test\"`",
            ),
            (
                wrong_name_of(&["Unsupported(0x01)"]),
                "no name",
                "with the name of the member",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "requires a client certificate",
                "`client_certificate = \"FILE\"`",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "accepted no client certificate (alert UnknownCA)",
                "`client_certificate = \"FILE\"`",
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "does not speak TLS",
                "http://",
            ),
            (Error::DecryptError, "cannot decrypt", ""),
        ];
        for (error, what, help) in cases {
            let shown = format!("{error:?}");
            let text = worded(error);
            assert!(text.starts_with("TLS: "), "{text}");
            assert!(text.contains(what), "{shown}: {text}");
            assert!(text.contains(help), "{shown}: {text}");
            assert_eq!(
                text.contains('('),
                !help.is_empty() || text.contains("(alert")
            );
        }
    }

    #[test]
    fn a_broken_connection_counts_in_the_handshake_alone() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        let in_handshake = MemberTlsFailure::in_handshake(reset());
        assert!(MemberTlsFailure::is_in(&in_handshake));
        assert_eq!(in_handshake.kind(), io::ErrorKind::ConnectionReset);
        assert!(!MemberTlsFailure::is_in(&MemberTlsFailure::from_rustls(
            reset()
        )));
        let closed = MemberTlsFailure::in_handshake(io::ErrorKind::UnexpectedEof.into());
        assert!(closed.to_string().contains("closed the connection"));
    }
}
