//! DATA: parts of bodies within the flow-control windows granted to the peer, with the price of short frames.

use super::*;

impl<T, R: H2Role> H2Connection<T, R> {
    /// Handles the header of a DATA frame and the available part of its payload. `refused` is the error of a
    /// stream that must not receive DATA.
    pub(super) fn data<'i>(
        &mut self,
        header: &H2FrameHeader,
        refused: Option<H2ErrorCode>,
        input: &mut &'i [u8],
        now_ms: u64,
    ) -> Result<H2Event<'i, T>, H2ConnectionError> {
        let id = header.stream;
        let is_padded = header.has(frame::PADDED);
        if is_padded && header.length == 0 {
            return Err(H2ConnectionError::protocol(
                "PADDED frame without a pad length",
            ));
        }
        let padding = match (is_padded, input.get(HEADER_BYTES)) {
            (false, _) => 0,
            (true, Some(padding)) => usize::from(*padding),
            (true, None) => return Ok(H2Event::More),
        };
        let overhead = usize::from(is_padded);
        let payload = (header.length - overhead).checked_sub(padding);
        let left = payload.ok_or(H2ConnectionError::protocol("more padding than payload"))?;
        *input = &input[HEADER_BYTES + overhead..];
        let mut data = DataFrame {
            id,
            left,
            padding,
            ended: header.has(frame::END_STREAM),
        };
        // The whole frame counts against the window, even if its stream is ignored (RFC 9113 §6.9).
        let window = self.receive_window.checked_sub(header.length as u32);
        let reason = "more DATA than the connection's window";
        self.receive_window = window.ok_or(H2ConnectionError::new(
            H2ErrorCode::FLOW_CONTROL_ERROR,
            reason,
        ))?;
        let place = self.place(id);
        let carries_messages = place.is_some_and(|at| self.streams[at].carries_messages);
        if !carries_messages || left == 0 {
            self.price_data(left, data.ended, now_ms)?;
        }
        let Some(at) = place else {
            self.check_ignored(id)?;
            data.id = 0;
            self.release_connection_capacity((overhead + padding) as u32);
            return Ok(self.data_goes_on(data, input));
        };
        let stream = &mut self.streams[at];
        let mut received = match refused {
            None => stream.receive(left, header.length),
            Some(code) => Err(code.into()),
        };
        if received.is_ok() && data.ended {
            received = stream.end();
        }
        self.release_capacity(id, overhead + padding);
        match received {
            Ok(()) => Ok(self.data_goes_on(data, input)),
            Err(cause) => {
                data.id = 0;
                self.expects = ExpectedInput::Data(data);
                self.stream_error(id, cause, now_ms)
            }
        }
    }

    /// Charges the abuse budget for a nearly empty DATA frame. A short frame at the end of the client's
    /// buffer or of the window is legitimate, and each large frame therefore pays for one short frame.
    pub(super) fn price_data(
        &mut self,
        length: usize,
        ended: bool,
        now_ms: u64,
    ) -> Result<(), H2ConnectionError> {
        if length >= limits::LARGE_DATA_BYTES {
            self.small_data_credits =
                (self.small_data_credits + 1).min(limits::SMALL_DATA_CREDITS_MAX);
        } else if length < limits::SMALL_DATA_BYTES && !ended {
            match self.small_data_credits.checked_sub(1) {
                Some(credits) => self.small_data_credits = credits,
                None => {
                    let points = limits::EMPTY_DATA_POINTS;
                    self.abuse_budget
                        .spend(points, now_ms, "a flood of empty DATA")?;
                }
            }
        }
        Ok(())
    }

    /// Checks DATA on a missing stream. DATA in flight during the server's reset is ignored; any other DATA
    /// is an error.
    fn check_ignored(&self, id: u32) -> Result<(), H2ConnectionError> {
        if id == 0 || id.is_multiple_of(2) || (id > self.last && id <= self.accepts_to) {
            return Err(H2ConnectionError::protocol("DATA on an idle stream"));
        }
        if id > self.accepts_to || self.was_reset(id) {
            return Ok(());
        }
        Err(closed("DATA on a closed stream"))
    }

    pub(super) fn data_goes_on<'i>(
        &mut self,
        mut data: DataFrame,
        input: &mut &'i [u8],
    ) -> H2Event<'i, T> {
        let (bytes, rest) = input.split_at(data.left.min(input.len()));
        data.left -= bytes.len();
        let skipped = match data.left {
            0 => data.padding.min(rest.len()),
            _ => 0,
        };
        data.padding -= skipped;
        *input = &rest[skipped..];
        let is_whole = data.left + data.padding == 0;
        self.expects = if is_whole {
            ExpectedInput::Frame
        } else {
            ExpectedInput::Data(data)
        };
        // The stream may have been reset since the frame began.
        if data.id == 0 || self.place(data.id).is_none() {
            self.release_connection_capacity(bytes.len() as u32);
        } else if !bytes.is_empty() || (is_whole && data.ended) {
            return H2Event::Data {
                id: data.id,
                bytes,
                ended: is_whole && data.ended,
            };
        }
        if is_whole {
            H2Event::Handled
        } else {
            H2Event::More
        }
    }
}
