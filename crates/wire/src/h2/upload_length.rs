//! Length of a request's body, for the choice of a connection to an HTTP/2 server.

use crate::h1::body_decoder::BodyLength;
use crate::limits::H2_MEMBER_SHORT_UPLOAD_BYTES;

/// Length of a request's body, as far as known at the beginning of the request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UploadLength {
    /// No body.
    None,
    /// At most [`H2_MEMBER_SHORT_UPLOAD_BYTES`].
    Short,
    /// Unknown, for example the messages of a gRPC call.
    Unknown,
    /// More than [`H2_MEMBER_SHORT_UPLOAD_BYTES`].
    Long,
}

impl UploadLength {
    /// Returns the class of a body with the framing `length`.
    pub fn of(length: BodyLength) -> UploadLength {
        match length {
            BodyLength::None | BodyLength::Length(0) => UploadLength::None,
            BodyLength::Length(..=H2_MEMBER_SHORT_UPLOAD_BYTES) => UploadLength::Short,
            BodyLength::Length(_) => UploadLength::Long,
            BodyLength::Chunked => UploadLength::Unknown,
        }
    }

    /// Returns true if uploads of both lengths on one connection may block each other: one that the application does
    /// not read, and one that needs more than the rest of the window.
    pub(super) fn conflicts_with(self, other: UploadLength) -> bool {
        match (self, other) {
            (UploadLength::Long, UploadLength::Long | UploadLength::Unknown) => true,
            (UploadLength::Unknown, UploadLength::Long) => true,
            // Calls of gRPC share a connection. Their servers have large windows.
            _ => false,
        }
    }
}
