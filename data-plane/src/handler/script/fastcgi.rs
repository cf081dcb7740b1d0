//! FastCGI as the protocol of a call: request numbers, records of the request, and decoding of the response.

use crate::limits;
use wire::cgi::{MetaVariables, OverridingSink};
use wire::fastcgi::{
    self, FIRST_REQUEST, FastCgiDecoder, FastCgiRequestEncoder, FastCgiStep, MalformedRecord,
};

/// Returns the encoded request without its body. With `keep`, the backend leaves the connection open after
/// the request.
pub(super) fn encode_head(
    meta: &MetaVariables<'_>,
    own: &[(String, String)],
    keep: bool,
) -> Vec<u8> {
    let mut head = Vec::with_capacity(limits::BACKEND_REQUEST_BYTES_INITIAL);
    let mut all = FastCgiRequestEncoder::begin(keep, &mut head);
    OverridingSink { own, all: &mut all }.write_all(meta);
    all.end();
    head
}

/// State of one request on a FastCGI connection.
pub(super) struct FastCgiCodec {
    /// Number of the request on the connection (the FastCGI request ID).
    request_id: u16,
    decoder: FastCgiDecoder,
}

impl Default for FastCgiCodec {
    fn default() -> FastCgiCodec {
        FastCgiCodec {
            request_id: FIRST_REQUEST,
            decoder: FastCgiDecoder::default(),
        }
    }
}

impl FastCgiCodec {
    /// Sets the number of the request for a connection with `answers` answered requests, in the complete
    /// records `out` as well.
    pub(crate) fn set_request_id(&mut self, answers: u32, out: &mut [u8]) {
        let id = FIRST_REQUEST + (answers % u32::from(u16::MAX)) as u16;
        if std::mem::replace(&mut self.request_id, id) != id {
            fastcgi::renumber(out, id);
        }
        self.decoder = FastCgiDecoder::new(id, answers > 0);
    }

    /// Appends a part of the body to `out`. An empty part ends the body.
    pub(super) fn push_input(&self, part: &[u8], out: &mut Vec<u8>) {
        fastcgi::push_input(self.request_id, part, out);
    }

    /// Decodes the next step of the response.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<FastCgiStep, MalformedRecord> {
        self.decoder.step(bytes)
    }
}
