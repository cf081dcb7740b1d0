//! SCGI as the protocol of a call. The protocol has neither records nor request numbers, and each request
//! uses a connection of its own.

use crate::limits;
use wire::cgi::{MetaVariables, OverridingSink};
use wire::fastcgi::FastCgiStep;
use wire::scgi::ScgiRequestEncoder;

/// Returns the encoded request without its body.
pub(super) fn encode_head(meta: &MetaVariables<'_>, own: &[(String, String)]) -> Vec<u8> {
    let mut head = Vec::with_capacity(limits::BACKEND_REQUEST_BYTES_INITIAL);
    let mut all = ScgiRequestEncoder::begin(meta.length.unwrap_or("0"));
    OverridingSink { own, all: &mut all }.write_all(meta);
    all.end(&mut head);
    head
}

/// Decodes received bytes: all bytes belong to the script's output.
pub(super) fn decode(bytes: &[u8]) -> FastCgiStep {
    FastCgiStep::Stdout {
        consumed: bytes.len(),
        part: 0..bytes.len(),
    }
}
