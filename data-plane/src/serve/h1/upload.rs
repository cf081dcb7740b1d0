//! The transfer of a request body from the received bytes to the handler.

use crate::handler::pipe::PipeWriter;
use crate::serve::request_ledger::{ConnectionAccount, RequestReservation};
use std::rc::Rc;
use wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use wire::reject::Reject;
use wire::trailers::allowed_request_trailers;

/// The transfer of a request body to the handler.
pub(super) struct H1Upload {
    pub(super) writer: PipeWriter,
    decoder: BodyDecoder,
    /// Number of decoded bytes.
    pub(super) seen: u64,
    /// Trailer section, as far as received.
    trailers: Vec<u8>,
    /// Entry in the ledger of requests for the memory of a long trailer section.
    reservation: Option<RequestReservation>,
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
            trailers: Vec::new(),
            reservation: None,
        }
    }

    /// Decodes `input`, at most as long as the room in the pipe, and passes the payload to the handler. A
    /// body beyond `bytes_max` bytes is refused.
    pub(super) fn decode(&mut self, input: &[u8], bytes_max: u64) -> Result<DecodedInput, Reject> {
        let mut at = 0;
        loop {
            let (consumed, is_end) = match self
                .decoder
                .step_with_trailers(&input[at..], &mut self.trailers)?
            {
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

    /// Records the memory of the trailer section in the ledger of requests. Returns false if the ledger has
    /// no room.
    pub(super) fn reserve_trailers(
        &mut self,
        account: impl FnOnce() -> Rc<ConnectionAccount>,
    ) -> bool {
        if self.trailers.is_empty() {
            return true;
        }
        let reservation = self
            .reservation
            .get_or_insert_with(|| account().unfinished());
        reservation.keep(self.trailers.len())
    }

    /// Passes the trailers and the end of the body to the handler. Returns the reservation of the trailers,
    /// to be held until the end of the call.
    pub(super) fn finish(mut self) -> Option<RequestReservation> {
        let trailers = allowed_request_trailers(&self.trailers);
        if !trailers.is_empty() {
            self.writer.set_trailers(trailers);
        }
        self.writer.finish();
        self.reservation
    }
}
