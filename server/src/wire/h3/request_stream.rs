//! The stream of one request (RFC 9114 §4.1): its field section, its body, perhaps trailers.

use crate::limits::{
    H3_SECTION_BYTES_MAX, LARGE_DATA_BYTES, SMALL_DATA_BYTES, SMALL_DATA_CREDITS_MAX,
};
use crate::wire::h3::error::{H3ConnectionError, H3ErrorCode};
use crate::wire::h3::frame;
use crate::wire::h3::frame::{FrameHeaderReader, H3FrameHeader};

/// What came on the stream.
#[derive(PartialEq, Eq, Debug)]
pub enum RequestStreamEvent<'i> {
    /// All that was given is used up.
    More,
    /// The whole field section of the request.
    Fields(&'i [u8]),
    /// A part of its body, never empty.
    Data(&'i [u8]),
    /// A whole field section behind the body.
    Trailers(&'i [u8]),
}

/// Reads the frames of a request, in whatever pieces they come.
#[derive(Default)]
pub struct RequestStreamReceiver {
    stage: RequestStreamStage,
    header: FrameHeaderReader,
    /// What is left of the frame that has begun.
    left: FrameRemainder,
    /// A field section that isn't whole yet.
    section: Vec<u8>,
    /// Frames that served nobody, since this was last asked.
    idle_frames: u32,
    /// So many small DATA frames are paid for.
    rests: u32,
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
    /// Of a frame that must be ignored.
    Ignored(u64),
}

/// How a stream ended that should not have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RequestStreamEndError {
    /// In the middle of a frame: the connection can't be trusted.
    Fatal(H3ConnectionError),
    /// Before there was a request: that concerns the stream alone.
    Stream(H3ErrorCode),
}

impl RequestStreamReceiver {
    /// Takes the next thing out of `input`.
    ///
    /// # Errors
    /// A frame that must not stand where it stands, or is larger than any request has.
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

    /// RFC 9114 §4.1, §7: which frames may stand here.
    fn begin(&mut self, header: H3FrameHeader) -> Result<(), H3ConnectionError> {
        header.refuse_reserved()?;
        self.left = match (header.kind, self.stage) {
            (frame::DATA, RequestStreamStage::Body) => {
                self.price_data(header.length);
                match header.length {
                    0 => FrameRemainder::Nothing,
                    length => FrameRemainder::Data(length),
                }
            }
            (frame::DATA, _) => {
                return Err(H3ConnectionError::unexpected("DATA without its HEADERS"));
            }
            (frame::HEADERS, RequestStreamStage::Trailed) => {
                return Err(H3ConnectionError::unexpected("HEADERS behind trailers"));
            }
            (frame::HEADERS, _) => match usize::try_from(header.length) {
                Ok(length) if length <= H3_SECTION_BYTES_MAX => {
                    self.section.clear();
                    FrameRemainder::Section(length)
                }
                _ => {
                    return Err(H3ConnectionError::excessive_load(
                        "a field section without end",
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
                    "a frame of the control stream",
                ));
            }
            (frame::PUSH_PROMISE, _) => {
                return Err(H3ConnectionError::unexpected("a push from a client"));
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

    /// A frame with next to nothing in it serves nobody. But where a buffer of the client's ends, a rest
    /// of a few bytes is no fault of its, so each frame that is worth its header pays for one: it is
    /// there before the next begins.
    fn price_data(&mut self, length: u64) {
        if length >= LARGE_DATA_BYTES as u64 {
            self.rests = (self.rests + 1).min(SMALL_DATA_CREDITS_MAX);
        } else if length < SMALL_DATA_BYTES as u64 {
            match self.rests.checked_sub(1) {
                Some(rests) => self.rests = rests,
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

    /// Bytes of a field section that isn't whole.
    pub fn section_bytes(&self) -> usize {
        self.section.len()
    }

    /// Lets go of the field section that was put together.
    pub fn forget_section(&mut self) {
        self.section = Vec::new();
    }

    /// Frames that served nobody, since this was last asked: unknown ones, and DATA whose header is
    /// more work than its content.
    pub fn take_idle_frames(&mut self) -> u32 {
        std::mem::take(&mut self.idle_frames)
    }

    /// The peer has ended the stream.
    ///
    /// # Errors
    /// Something is missing.
    pub fn end(&self) -> Result<(), RequestStreamEndError> {
        if self.left != FrameRemainder::Nothing || !self.header.is_empty() {
            return Err(RequestStreamEndError::Fatal(H3ConnectionError::frame(
                "a frame broke off",
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
    match is_trailer {
        true => RequestStreamEvent::Trailers(section),
        false => RequestStreamEvent::Fields(section),
    }
}

/// Takes at most `bytes_max` bytes off `input`.
fn take<'i>(input: &mut &'i [u8], bytes_max: u64) -> &'i [u8] {
    let bytes = (input.len() as u64).min(bytes_max) as usize;
    let (taken, rest) = input.split_at(bytes);
    *input = rest;
    taken
}
