//! Response fields of a site as a whole, encoded for every version of HTTP when the World is built.

use wire::h2::hpack;
use wire::h3::qpack;

/// Response fields of a site over TLS, encoded for every version of HTTP. Empty for most sites.
#[derive(Debug, Default)]
pub struct SecureFields {
    /// Fields over plain HTTP; `None` for a site with fields over TLS only.
    pub plain: Option<Box<SecureFields>>,
    /// Field lines of HTTP/1.1, each with its CRLF.
    pub lines: Box<[u8]>,
    /// Field lines encoded with HPACK, as part of a field block of HTTP/2.
    pub block: Box<[u8]>,
    /// Field lines encoded with QPACK, as part of a field section of HTTP/3, without the prefix of the
    /// section and without Alt-Svc.
    pub section: Box<[u8]>,
}

impl SecureFields {
    /// Encodes Strict-Transport-Security with `hsts` as max-age in seconds (RFC 6797 §7.2), and Alt-Svc
    /// with the port of HTTP/3 (RFC 7838 §3).
    pub fn new(hsts: Option<u64>, h3_port: Option<u16>) -> SecureFields {
        let hsts = hsts.map(|age| format!("Strict-Transport-Security: max-age={age}\r\n"));
        let hsts = hsts.unwrap_or_default();
        let alt_svc =
            h3_port.map(|port| format!("Alt-Svc: h3=\":{port}\"; ma={ALT_SVC_SECONDS}\r\n"));
        let lines = format!("{hsts}{}", alt_svc.unwrap_or_default());
        SecureFields::encode(lines.as_bytes(), hsts.as_bytes())
    }

    /// Encodes field lines for HTTP/1.1 and HTTP/2, and field lines for HTTP/3.
    fn encode(lines: &[u8], quic_lines: &[u8]) -> SecureFields {
        let (mut block, mut section) = (Vec::new(), Vec::new());
        hpack::push_lines(lines, &mut block);
        qpack::push_lines(quic_lines, &mut section);
        SecureFields {
            plain: None,
            lines: lines.into(),
            block: block.into(),
            section: section.into(),
        }
    }

    /// Returns the fields together with fields that are also sent over plain HTTP.
    pub(crate) fn with_plain(&self, lines: &[u8]) -> SecureFields {
        let (mut all, mut section) = (self.lines.to_vec(), self.section.to_vec());
        all.extend_from_slice(lines);
        qpack::push_lines(lines, &mut section);
        let earlier = self.plain.as_ref().map_or(&[][..], |plain| &plain.lines);
        let plain = [earlier, lines].concat();
        SecureFields {
            plain: Some(Box::new(SecureFields::encode(&plain, &plain))),
            section: section.into(),
            ..SecureFields::encode(&all, &[])
        }
    }

    /// Returns the fields for a connection with or without TLS.
    #[inline]
    pub(crate) fn over(&self, is_secure: bool) -> Option<&SecureFields> {
        if is_secure {
            Some(self)
        } else {
            self.plain.as_deref()
        }
    }
}

/// Seconds for which a client may remember HTTP/3 (`ma` of Alt-Svc). A client that can't connect to the
/// port falls back to TCP.
const ALT_SVC_SECONDS: u32 = 86_400;
