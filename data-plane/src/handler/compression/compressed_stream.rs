//! Content of a response on its way through a compressor, in slices.

use crate::handler::compression::coder::{Coder, Flush};
use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader, PipeWriter, counted_pipe, pipe};
use crate::handler::{LocalBoxFuture, ResponseBody};
use crate::ledger::body_memory::BodyReservation;
use crate::limits::{
    COMPRESSED_AT_ONCE_BYTES, COMPRESSED_BYTES_MIN, COMPRESSION_FLUSH_MILLISECONDS,
    COMPRESSION_SLICE_BYTES, PIPE_BYTES, PIPE_BYTES_MIN,
};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wire::fields::ContentCoding;

/// Returns the body of a response, compressed with `coding`, and true; a body that stays as it is, and false. Waits for the
/// beginning of a content of unknown length. `memory` has the bytes of the compressor.
pub(super) async fn compressed(
    body: ResponseBody,
    coding: ContentCoding,
    memory: BodyReservation,
) -> (ResponseBody, bool) {
    match body {
        ResponseBody::Whole(bytes) => compressed_whole(bytes, coding, memory),
        ResponseBody::Empty => (body, false),
        ResponseBody::Stream {
            length,
            reader,
            work,
        } => {
            let work = Some(work);
            let mut content = PlainContent { reader, work };
            let mut beginning = Vec::new();
            if length.is_none() && content.read_beginning(&mut beginning).await {
                let length = Some(beginning.len() as u64);
                return (content.with_beginning(beginning, length), false);
            }
            let body = CompressedStream::body(content, beginning, coding, memory);
            (body, true)
        }
    }
}

/// Returns the compressed form of a whole content, and true; the content itself where that fails.
fn compressed_whole(
    bytes: Vec<u8>,
    coding: ContentCoding,
    memory: BodyReservation,
) -> (ResponseBody, bool) {
    if bytes.len() > COMPRESSED_AT_ONCE_BYTES {
        let (mut writer, reader) = pipe(PIPE_BYTES);
        let write = async move {
            if writer.write_all(&bytes).await.is_ok() {
                writer.finish();
            }
        };
        let work: LocalBoxFuture<()> = Box::pin(write);
        let content = PlainContent {
            reader,
            work: Some(work),
        };
        let body = CompressedStream::body(content, Vec::new(), coding, memory);
        return (body, true);
    }
    let mut coded = Vec::with_capacity(bytes.len() / 4 + 64);
    match Coder::new(coding).code(&bytes, Flush::End, &mut coded) {
        Ok(()) => (ResponseBody::Whole(coded), true),
        Err(_) => (ResponseBody::Whole(bytes), false),
    }
}

/// Content of a handler, with the future that makes it.
struct PlainContent {
    reader: PipeReader,
    work: Option<LocalBoxFuture<()>>,
}

impl PlainContent {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        plain: &mut Vec<u8>,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        self.poll_work(cx);
        self.reader.poll_take(cx, plain, COMPRESSION_SLICE_BYTES)
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
    }

    /// Reads a part of the content. Returns None if nothing comes until `deadline`.
    async fn read_until(
        &mut self,
        plain: &mut Vec<u8>,
        deadline: Instant,
    ) -> Option<Result<PipeRead, PipeBroken>> {
        // Without a timer where bytes wait already.
        match poll_fn(|cx| Poll::Ready(self.poll_read(cx, plain))).await {
            Poll::Ready(read) => Some(read),
            Poll::Pending => timeout_at(deadline, poll_fn(|cx| self.poll_read(cx, plain)))
                .await
                .ok(),
        }
    }

    /// Reads the beginning of the content, until it is long enough for compression, or for a few milliseconds. Returns
    /// true if the whole content is read and shorter.
    async fn read_beginning(&mut self, plain: &mut Vec<u8>) -> bool {
        let deadline = flush_deadline();
        while plain.len() < COMPRESSED_BYTES_MIN {
            match self.read_until(plain, deadline).await {
                Some(Ok(PipeRead::Bytes(_))) => {}
                Some(Ok(PipeRead::End)) => return true,
                Some(Err(_)) | None => return false,
            }
        }
        false
    }

    /// Returns the content unchanged behind the bytes that were read.
    fn with_beginning(self, beginning: Vec<u8>, length: Option<u64>) -> ResponseBody {
        let (mut to, reader) = pipe(PIPE_BYTES);
        let mut content = self;
        let work = async move {
            let mut plain = beginning;
            loop {
                if content.write(&mut to, &plain).await.is_err() {
                    return;
                }
                plain.clear();
                match poll_fn(|cx| content.poll_read(cx, &mut plain)).await {
                    Ok(PipeRead::Bytes(_)) => {}
                    read => return content.end(to, read),
                }
            }
        };
        ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(work),
        }
    }

    /// Writes bytes for the client. The handler goes on while the client takes nothing, as far as its own pipe has room.
    async fn write(&mut self, to: &mut PipeWriter, bytes: &[u8]) -> Result<(), PipeBroken> {
        let mut writing = pin!(to.write_all(bytes));
        poll_fn(|cx| {
            self.poll_work(cx);
            writing.as_mut().poll(cx)
        })
        .await
    }

    /// Ends the content for the client as `read` says: whole with its trailers, or broken.
    fn end(&mut self, mut to: PipeWriter, read: Result<PipeRead, PipeBroken>) {
        if read.is_err() {
            return to.break_off(self.reader.break_reason());
        }
        if self.reader.may_be_truncated() {
            to.mark_maybe_truncated();
        }
        if let Some(trailers) = self.reader.take_trailers() {
            to.set_trailers(trailers.into());
        }
        to.finish();
    }
}

/// Content on its way through the compressor.
struct CompressedStream {
    content: PlainContent,
    /// Bytes of the content that were read before the head of the response.
    beginning: Vec<u8>,
    coder: Coder,
    /// Time until which bytes may wait in the compressor; None while none waits.
    flush_at: Option<Instant>,
    /// Memory of the compressor.
    _memory: BodyReservation,
}

impl CompressedStream {
    /// Returns the body of the response.
    fn body(
        content: PlainContent,
        beginning: Vec<u8>,
        coding: ContentCoding,
        memory: BodyReservation,
    ) -> ResponseBody {
        let (writer, reader) = counted_pipe(PIPE_BYTES, memory.account());
        let stream = CompressedStream {
            content,
            beginning,
            coder: Coder::new(coding),
            flush_at: None,
            _memory: memory,
        };
        ResponseBody::Stream {
            length: None,
            reader,
            work: Box::pin(stream.run(writer)),
        }
    }

    /// Compresses the content in slices, so that other requests of the worker wait for at most one slice.
    async fn run(mut self, mut to: PipeWriter) {
        let (mut plain, mut coded) = (std::mem::take(&mut self.beginning), Vec::new());
        loop {
            let read = if plain.is_empty() {
                self.read(&mut plain).await
            } else {
                Some(Ok(PipeRead::Bytes(plain.len())))
            };
            let flush = match read {
                Some(Ok(PipeRead::Bytes(_))) => Flush::No,
                // The client gets now all bytes that the handler has sent.
                None => Flush::Yes,
                Some(Ok(PipeRead::End)) => Flush::End,
                Some(Err(broken)) => return self.content.end(to, Err(broken)),
            };
            let is_slice = !plain.is_empty();
            if is_slice && self.flush_at.is_none() {
                self.flush_at = Some(flush_deadline());
            }
            if self.coder.code(&plain, flush, &mut coded).is_err() {
                return to.break_off(None);
            }
            plain.clear();
            // The header of the coding, and other short pieces, wait for the next flush.
            if flush != Flush::No || coded.len() >= PIPE_BYTES_MIN {
                if self.content.write(&mut to, &coded).await.is_err() {
                    return;
                }
                coded.clear();
                // The bytes that remain in the compressor came after the bytes that were written.
                self.flush_at = (flush == Flush::No).then(flush_deadline);
            }
            if flush == Flush::End {
                return self.content.end(to, Ok(PipeRead::End));
            }
            if is_slice {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads a slice of the content. Returns None if bytes have waited in the compressor for long enough.
    async fn read(&mut self, plain: &mut Vec<u8>) -> Option<Result<PipeRead, PipeBroken>> {
        match self.flush_at {
            None => Some(poll_fn(|cx| self.content.poll_read(cx, plain)).await),
            Some(at) if at <= Instant::now() => None,
            Some(at) => self.content.read_until(plain, at).await,
        }
    }
}

/// Returns the time until which bytes that came now may wait in a compressor.
fn flush_deadline() -> Instant {
    Instant::now() + Duration::from_millis(COMPRESSION_FLUSH_MILLISECONDS)
}
