//! Frames of `wire::receive_frame` on blocking streams, for the publisher and the receiver.

use crate::limits::RECEIVE_FRAME_BYTES_MAX;
use crate::receive_frame::{FrameHead, FrameKind};
use std::io::{self, Read, Write};

/// Reader of frames.
pub struct FrameReader<R> {
    input: R,
    payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Returns a reader. A payload is read in one piece, so the stream needs no further buffer.
    pub fn new(input: R) -> FrameReader<R> {
        let payload = Vec::new();
        FrameReader { input, payload }
    }

    /// Reads a frame; None at the end of the stream between two frames. A stream that ends within a frame is an
    /// error of the kind `UnexpectedEof`, and an unknown frame an error of the kind `InvalidData`.
    pub fn read(&mut self) -> io::Result<Option<(FrameKind, &[u8])>> {
        let mut head = [0; FrameHead::BYTES];
        loop {
            match self.input.read(&mut head[..1]) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.input.read_exact(&mut head[1..])?;
        let head = FrameHead::parse(head).ok_or(io::ErrorKind::InvalidData)?;
        self.payload.resize(head.length, 0);
        self.input.read_exact(&mut self.payload)?;
        Ok(Some((head.kind, &self.payload)))
    }
}

/// Writer of frames.
pub struct FrameWriter<W: Write>(W);

impl<W: Write> FrameWriter<W> {
    /// Returns a writer. Small frames are joined if the stream has a buffer.
    pub fn new(output: W) -> FrameWriter<W> {
        FrameWriter(output)
    }

    /// Writes a payload in as many frames as needed, at least one.
    pub fn write(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        if payload.is_empty() {
            return self.write_one(kind, payload);
        }
        let mut pieces = payload.chunks(RECEIVE_FRAME_BYTES_MAX);
        pieces.try_for_each(|piece| self.write_one(kind, piece))
    }

    /// Writes a text in frames, with an empty frame at the end.
    pub fn write_text(&mut self, kind: FrameKind, text: &[u8]) -> io::Result<()> {
        if !text.is_empty() {
            self.write(kind, text)?;
        }
        self.write_one(kind, b"")
    }

    /// Sends all written frames to the other side.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    /// Returns the stream.
    pub fn into_inner(self) -> W {
        self.0
    }

    fn write_one(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let length = payload.len();
        self.0.write_all(&FrameHead { kind, length }.bytes())?;
        self.0.write_all(payload)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        let large: Vec<u8> = (0..=255)
            .cycle()
            .take(2 * RECEIVE_FRAME_BYTES_MAX + 1)
            .collect();
        let mut writer = FrameWriter::new(Vec::new());
        writer.write(FrameKind::Hello, b"x").unwrap();
        writer.write_text(FrameKind::List, &large).unwrap();
        writer.write(FrameKind::Data, b"").unwrap();
        let bytes = writer.into_inner();
        let mut reader = FrameReader::new(&bytes[..]);
        let mut read = Vec::new();
        while let Some((kind, payload)) = reader.read().unwrap() {
            read.push((kind, payload.to_vec()));
        }
        let pieces: Vec<usize> = read.iter().map(|(_, payload)| payload.len()).collect();
        let max = RECEIVE_FRAME_BYTES_MAX;
        assert_eq!(pieces, [1, max, max, 1, 0, 0]);
        let text: Vec<u8> = read[1..4].iter().flat_map(|(_, it)| it.clone()).collect();
        assert_eq!(text, large);
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        let mut writer = FrameWriter::new(Vec::new());
        writer.write(FrameKind::Hello, b"abc").unwrap();
        let bytes = writer.into_inner();
        for end in 1..bytes.len() {
            let error = FrameReader::new(&bytes[..end]).read().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        }
        let error = FrameReader::new(&b"GET / HTTP/1.1"[..]).read().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
