//! The transfer of a request body from the received bytes to the handler.

use crate::handler::pipe::PipeWriter;
use crate::wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use crate::wire::reject::Reject;

/// The transfer of a request body to the handler.
pub(super) struct H1Upload {
    pub(super) writer: PipeWriter,
    decoder: BodyDecoder,
    /// Number of decoded bytes.
    pub(super) seen: u64,
}

/// Part of the input used by [`H1Upload::decode`].
pub(super) struct DecodedInput {
    pub(super) consumed: usize,
    /// True if the body ended.
    pub(super) is_end: bool,
}

impl H1Upload {
    /// Creates the transfer of a body with the framing `length`.
    pub(super) fn new(writer: PipeWriter, length: BodyLength) -> H1Upload {
        H1Upload {
            writer,
            decoder: BodyDecoder::new(length),
            seen: 0,
        }
    }

    /// Decodes `input`, at most as long as the room in the pipe, and passes the payload to the handler. A body
    /// beyond `bytes_max` bytes is refused.
    pub(super) fn decode(&mut self, input: &[u8], bytes_max: u64) -> Result<DecodedInput, Reject> {
        let mut at = 0;
        loop {
            let (consumed, is_end) = match self.decoder.step(&input[at..])? {
                BodyStep::Data { consumed, payload } => {
                    let payload = &input[at..][payload];
                    self.seen += payload.len() as u64;
                    if self.seen > bytes_max {
                        return Err(Reject::BODY_TOO_LARGE);
                    }
                    let _ = self.writer.write_some(payload);
                    at += consumed;
                    continue;
                }
                BodyStep::More { consumed } => (at + consumed, false),
                BodyStep::End { consumed } => (at + consumed, true),
            };
            return Ok(DecodedInput { consumed, is_end });
        }
    }
}
