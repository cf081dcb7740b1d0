//! Frames without a message: PRIORITY, RST_STREAM, SETTINGS, PING and WINDOW_UPDATE.

use super::*;

impl<T, R: H2Role> H2Connection<T, R> {
    /// Checks a PRIORITY frame of RFC 7540 and ignores its content (RFC 9113 §5.3.2).
    pub(super) fn old_priority(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        if id == 0 {
            return Err(H2ConnectionError::protocol("PRIORITY on stream 0"));
        }
        let points = limits::H2_PRIORITY_POINTS;
        self.abuse_budget.spend(points, now_ms, "PRIORITY flood")?;
        if payload.len() != 5 {
            return self.stream_error(id, H2ErrorCode::FRAME_SIZE_ERROR.into(), now_ms);
        }
        if depends_on_itself(id, payload) {
            return self.stream_error(id, H2ErrorCode::PROTOCOL_ERROR.into(), now_ms);
        }
        Ok(H2Event::Handled)
    }

    pub(super) fn peer_resets(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        let Ok(code) = payload.try_into() else {
            let reason = "RST_STREAM is not 4 bytes long";
            return Err(H2ConnectionError::new(
                H2ErrorCode::FRAME_SIZE_ERROR,
                reason,
            ));
        };
        let code = H2ErrorCode(u32::from_be_bytes(code));
        if id == 0 || id > self.last {
            return Err(H2ConnectionError::protocol("RST_STREAM on an idle stream"));
        }
        let place = self.place(id);
        let points = R::reset_points(place.is_some());
        self.abuse_budget.spend(points, now_ms, "rapid reset")?;
        match place {
            None => Ok(H2Event::Handled),
            Some(at) => {
                let H2Stream { work, .. } = self.streams.remove(at);
                let cause = H2ResetCause::Peer(code);
                Ok(H2Event::Reset { id, cause, work })
            }
        }
    }

    pub(super) fn settings(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("SETTINGS on a stream"));
        }
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                let reason = "SETTINGS acknowledgement with a payload";
                return Err(H2ConnectionError::new(
                    H2ErrorCode::FRAME_SIZE_ERROR,
                    reason,
                ));
            }
            return self.price(limits::H2_PING_POINTS, now_ms, "SETTINGS flood");
        }
        let points = limits::H2_SETTINGS_POINTS;
        self.abuse_budget.spend(points, now_ms, "SETTINGS flood")?;
        let before = self.peer;
        self.peer.apply(payload, R::ENABLE_PUSH_MAX)?;
        self.must_signal_empty_table |= self.peer.table_bytes < before.table_bytes;
        let more = i64::from(self.peer.window_bytes) - i64::from(before.window_bytes);
        for stream in &mut self.streams {
            let reason = "SETTINGS makes a window too large";
            stream
                .widen(more)
                .map_err(|code| H2ConnectionError::new(code, reason))?;
        }
        frame::settings_ack(&mut self.out);
        self.expects = ExpectedInput::Frame;
        Ok(H2Event::Handled)
    }

    pub(super) fn ping(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("PING on a stream"));
        }
        let payload: &[u8; 8] = payload.try_into().map_err(|_| too_short())?;
        self.abuse_budget
            .spend(limits::H2_PING_POINTS, now_ms, "PING flood")?;
        if header.has(frame::ACK) {
            return Ok(if *payload == LAST_PING {
                H2Event::GoawayAcknowledged
            } else {
                H2Event::Handled
            });
        }
        frame::ping(&mut self.out, frame::ACK, payload);
        Ok(H2Event::Handled)
    }

    pub(super) fn window_update(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        let payload: &[u8; 4] = payload.try_into().map_err(|_| too_short())?;
        let more = u32::from_be_bytes(*payload) & WINDOW_BYTES_MAX;
        let points = match more {
            ..limits::WINDOW_UPDATE_BYTES_LARGE => limits::WINDOW_UPDATE_POINTS,
            _ => 1,
        };
        self.abuse_budget
            .spend(points, now_ms, "WINDOW_UPDATE flood")?;
        if id == 0 {
            self.send_window += i64::from(more);
            return match more {
                0 => Err(H2ConnectionError::protocol(
                    "WINDOW_UPDATE with an increment of 0",
                )),
                _ if self.send_window > i64::from(WINDOW_BYTES_MAX) => {
                    let reason = "the connection's window is too large";
                    Err(H2ConnectionError::new(
                        H2ErrorCode::FLOW_CONTROL_ERROR,
                        reason,
                    ))
                }
                _ => Ok(H2Event::Handled),
            };
        }
        if id > self.last {
            return Err(H2ConnectionError::protocol(
                "WINDOW_UPDATE on an idle stream",
            ));
        }
        let Some(at) = self.place(id) else {
            return Ok(H2Event::Handled);
        };
        let widened = match more {
            0 => Err(H2ErrorCode::PROTOCOL_ERROR),
            more => self.streams[at].widen(i64::from(more)),
        };
        match widened {
            Ok(()) => Ok(H2Event::Handled),
            Err(code) => self.stream_error(id, code.into(), now_ms),
        }
    }
}
