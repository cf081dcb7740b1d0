//! Request stream (RFC 9114 §4.1): the field section of a request, its body, and perhaps trailers.

use crate::h3::error::{H3ConnectionError, H3ErrorCode};
use crate::h3::frame;
use crate::h3::frame::{FrameHeaderReader, H3FrameHeader};
use crate::limits::{
    H3_SECTION_BYTES_MAX, LARGE_DATA_BYTES, SMALL_DATA_BYTES, SMALL_DATA_CREDITS_MAX,
};

/// Event on a request stream.
#[derive(PartialEq, Eq, Debug)]
pub enum RequestStreamEvent<'i> {
    /// The input is consumed, and more is needed.
    More,
    /// Complete field section of the request.
    Fields(&'i [u8]),
    /// Part of the body, never empty.
    Data(&'i [u8]),
    /// Complete field section of the trailers.
    Trailers(&'i [u8]),
}

/// Reader of the frames on a request stream, split at any byte.
#[derive(Default)]
pub struct RequestStreamReceiver {
    stage: RequestStreamStage,
    header: FrameHeaderReader,
    /// Rest of the current frame.
    left: FrameRemainder,
    /// Incomplete field section.
    section: Vec<u8>,
    /// Frames without use for the request since the last call of `take_idle_frames`.
    idle_frames: u32,
    /// Credits for small DATA frames, earned by large DATA frames.
    small_data_credits: u32,
    /// The stream is an open tunnel, and short DATA frames are messages.
    is_tunnel: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum RequestStreamStage {
    #[default]
    Before,
    Body,
    Trailed,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum FrameRemainder {
    #[default]
    Nothing,
    Data(u64),
    Section(usize),
    /// Rest of an ignored frame.
    Ignored(u64),
}

/// Error for a stream that ended too early.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RequestStreamEndError {
    /// The stream ended within a frame: a connection error.
    Fatal(H3ConnectionError),
    /// The stream ended before a complete request: an error of the stream alone.
    Stream(H3ErrorCode),
}

impl RequestStreamReceiver {
    /// Consumes the next event from the front of `input`.
    ///
    /// # Errors
    /// A frame at a position where it is not allowed, or a field section above the limit.
    pub fn receive<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<RequestStreamEvent<'s>, H3ConnectionError> {
        loop {
            match self.left {
                FrameRemainder::Nothing => match self.header.header(input) {
                    None => return Ok(RequestStreamEvent::More),
                    Some(header) => self.begin(header)?,
                },
                FrameRemainder::Ignored(left) => {
                    let left = left - take(input, left).len() as u64;
                    if left > 0 {
                        self.left = FrameRemainder::Ignored(left);
                        return Ok(RequestStreamEvent::More);
                    }
                    self.left = FrameRemainder::Nothing;
                }
                FrameRemainder::Data(left) => {
                    let taken = take(input, left);
                    let left = left - taken.len() as u64;
                    self.left = if left == 0 {
                        FrameRemainder::Nothing
                    } else {
                        FrameRemainder::Data(left)
                    };
                    return Ok(match taken {
                        [] => RequestStreamEvent::More,
                        bytes => RequestStreamEvent::Data(bytes),
                    });
                }
                FrameRemainder::Section(left) => return Ok(self.section(input, left)),
            }
        }
    }

    /// Handles a frame header, and checks that the frame is allowed at its position (RFC 9114 §4.1, §7).
    fn begin(&mut self, header: H3FrameHeader) -> Result<(), H3ConnectionError> {
        header.refuse_reserved()?;
        self.left = match (header.kind, self.stage) {
            (frame::DATA, RequestStreamStage::Body) => {
                if !self.is_tunnel || header.length == 0 {
                    self.price_data(header.length);
                }
                match header.length {
                    0 => FrameRemainder::Nothing,
                    length => FrameRemainder::Data(length),
                }
            }
            (frame::DATA, _) => {
                return Err(H3ConnectionError::unexpected("DATA outside of the body"));
            }
            (frame::HEADERS, RequestStreamStage::Trailed) => {
                return Err(H3ConnectionError::unexpected("HEADERS after the trailers"));
            }
            (frame::HEADERS, _) => match usize::try_from(header.length) {
                Ok(length) if length <= H3_SECTION_BYTES_MAX => {
                    self.section.clear();
                    FrameRemainder::Section(length)
                }
                _ => {
                    return Err(H3ConnectionError::excessive_load(
                        "a field section is too large",
                    ));
                }
            },
            (
                frame::SETTINGS
                | frame::GOAWAY
                | frame::CANCEL_PUSH
                | frame::MAX_PUSH_ID
                | frame::PRIORITY_UPDATE
                | frame::PRIORITY_UPDATE_OF_PUSH,
                _,
            ) => {
                return Err(H3ConnectionError::unexpected(
                    "a frame of the control stream on a request stream",
                ));
            }
            (frame::PUSH_PROMISE, _) => {
                return Err(H3ConnectionError::unexpected("PUSH_PROMISE from a client"));
            }
            (_, _) => {
                self.idle_frames += 1;
                match header.length {
                    0 => FrameRemainder::Nothing,
                    length => FrameRemainder::Ignored(length),
                }
            }
        };
        Ok(())
    }

    /// Counts a nearly empty DATA frame as idle. A short frame at the end of the client's buffer is
    /// legitimate, and each large frame therefore pays for one short frame. A large frame is counted before
    /// the next frame begins.
    fn price_data(&mut self, length: u64) {
        if length >= LARGE_DATA_BYTES as u64 {
            self.small_data_credits = (self.small_data_credits + 1).min(SMALL_DATA_CREDITS_MAX);
        } else if length < SMALL_DATA_BYTES as u64 {
            match self.small_data_credits.checked_sub(1) {
                Some(credits) => self.small_data_credits = credits,
                None => self.idle_frames += 1,
            }
        }
    }

    fn section<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
        length: usize,
    ) -> RequestStreamEvent<'s> {
        if self.section.is_empty() && input.len() >= length {
            return self.whole(take(input, length as u64));
        }
        let missing = length - self.section.len();
        self.section.extend_from_slice(take(input, missing as u64));
        if self.section.len() < length {
            return RequestStreamEvent::More;
        }
        self.left = FrameRemainder::Nothing;
        let is_trailer = self.stage != RequestStreamStage::Before;
        self.stage = self.stage.next();
        event(is_trailer, &self.section)
    }

    fn whole<'i>(&mut self, section: &'i [u8]) -> RequestStreamEvent<'i> {
        self.left = FrameRemainder::Nothing;
        let is_trailer = self.stage != RequestStreamStage::Before;
        self.stage = self.stage.next();
        event(is_trailer, section)
    }

    /// Returns true if the stream is an open tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.is_tunnel
    }

    /// Records that the stream is an open tunnel (RFC 9220): short DATA frames no longer count as idle.
    pub fn open_tunnel(&mut self) {
        self.is_tunnel = true;
    }

    /// Returns true after the trailers.
    pub fn is_trailed(&self) -> bool {
        self.stage == RequestStreamStage::Trailed
    }

    /// Returns the length of an incomplete field section in bytes.
    pub fn section_bytes(&self) -> usize {
        self.section.len()
    }

    /// Frees the buffer of the field section.
    pub fn forget_section(&mut self) {
        self.section = Vec::new();
    }

    /// Returns the number of idle frames since the last call: unknown frames, and DATA frames with a header
    /// that costs more than their content.
    pub fn take_idle_frames(&mut self) -> u32 {
        std::mem::take(&mut self.idle_frames)
    }

    /// Handles the end of the stream.
    ///
    /// # Errors
    /// The stream ended within a frame or before the request.
    pub fn end(&self) -> Result<(), RequestStreamEndError> {
        if self.left != FrameRemainder::Nothing || !self.header.is_empty() {
            return Err(RequestStreamEndError::Fatal(H3ConnectionError::frame(
                "a frame is truncated",
            )));
        }
        match self.stage {
            RequestStreamStage::Before => Err(RequestStreamEndError::Stream(
                H3ErrorCode::H3_REQUEST_INCOMPLETE,
            )),
            RequestStreamStage::Body | RequestStreamStage::Trailed => Ok(()),
        }
    }
}

impl RequestStreamStage {
    fn next(self) -> RequestStreamStage {
        match self {
            RequestStreamStage::Before => RequestStreamStage::Body,
            RequestStreamStage::Body | RequestStreamStage::Trailed => RequestStreamStage::Trailed,
        }
    }
}

fn event(is_trailer: bool, section: &[u8]) -> RequestStreamEvent<'_> {
    if is_trailer {
        RequestStreamEvent::Trailers(section)
    } else {
        RequestStreamEvent::Fields(section)
    }
}

/// Removes at most `bytes_max` bytes from the front of `input` and returns them.
fn take<'i>(input: &mut &'i [u8], bytes_max: u64) -> &'i [u8] {
    let bytes = (input.len() as u64).min(bytes_max) as usize;
    let (taken, rest) = input.split_at(bytes);
    *input = rest;
    taken
}
