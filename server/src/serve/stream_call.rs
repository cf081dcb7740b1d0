//! A live call on a stream: the request's body goes to the handler while its response comes back.
//!
//! The peer is granted as much as the handler has taken, so never more waits than a pipe holds; the
//! handler's pipe is emptied as the windows and the socket allow.

use crate::handler::pipe::{PipeRead, PipeReader, PipeWriter};
use crate::handler::{HandlerError, LocalBoxFuture, Response, ResponseBody};
use crate::serve::body::BodyFill;
use crate::site::Site;
use crate::wire::reject::Reject;
use crate::world::SecureFields;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A request that became a live call.
pub(super) struct StreamCall {
    /// Until there is a response.
    pub(super) answering: Option<LocalBoxFuture<Result<Response, HandlerError>>>,
    /// None where there is no body, or the handler wants no more of it.
    pub(super) upload: Option<PipeWriter>,
    /// Of the body, how much lies in the pipe.
    pub(super) held: usize,
    /// Of that, how much counts against the window of all bodies: none while its handler waits for a
    /// place, for a client that sends more than one is not to lock itself out by those.
    pub(super) counted: usize,
    /// How much has come.
    pub(super) seen: u64,
    /// When it was last our turn: the rate counts from there.
    pub(super) since_ms: u64,
    pub(super) seen_then: u64,
    pub(super) is_head: bool,
    pub(super) secure_fields: Option<Arc<SecureFields>>,
    /// Whose error pages are sent.
    pub(super) site: Option<Arc<Site>>,
    pub(super) download: Option<StreamedBody>,
}

/// What the peer may send again.
#[derive(Default)]
pub(super) struct WindowCredit {
    /// On the stream.
    pub(super) of_stream: usize,
    /// On all streams together.
    pub(super) of_all: usize,
}

/// A response's body on its way.
pub(super) struct StreamedBody {
    reader: PipeReader,
    work: Option<LocalBoxFuture<()>>,
    /// Bytes that are still owed, if that was said.
    left: Option<u64>,
}

impl StreamCall {
    /// What the peer has sent of the body; false where nobody wants it.
    pub(super) fn take(&mut self, bytes: &[u8], ended: bool) -> bool {
        let Some(upload) = &mut self.upload else {
            return false;
        };
        self.seen += bytes.len() as u64;
        // There is room for it all: the window was no larger.
        if upload.write_some(bytes).is_err() {
            self.upload = None;
            return false;
        }
        self.held += bytes.len();
        self.counted += bytes.len();
        if ended {
            upload.end();
        }
        true
    }

    /// What the handler has taken since this was last asked.
    pub(super) fn poll_taken(&mut self, cx: &mut Context<'_>) -> WindowCredit {
        if self.held == 0 {
            return WindowCredit::default();
        }
        let held = match self.upload.as_mut().map(|upload| upload.held(cx)) {
            Some(Ok(held)) => held.min(self.held),
            // Its reader has gone, and what it held with it.
            Some(Err(_)) | None => {
                self.upload = None;
                0
            }
        };
        let is_queued = self.upload.as_ref().is_some_and(PipeWriter::is_queued);
        let counted = if is_queued { 0 } else { self.counted.min(held) };
        let granted = WindowCredit {
            of_stream: self.held - held,
            of_all: self.counted - counted,
        };
        (self.held, self.counted) = (held, counted);
        granted
    }

    /// So long the peer may pause in its body.
    pub(super) fn patience(&self) -> Duration {
        let upload = self.upload.as_ref();
        upload.map_or(Duration::ZERO, PipeWriter::patience)
    }

    /// The handler's answer, once.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Response, HandlerError>>> {
        let Some(answering) = &mut self.answering else {
            return Poll::Ready(None);
        };
        match answering.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                self.answering = None;
                Poll::Ready(Some(answer))
            }
        }
    }

    /// Sets a streamed body going.
    pub(super) fn begin(&mut self, body: ResponseBody) {
        if let ResponseBody::Stream {
            length,
            reader,
            work,
        } = body
        {
            self.download = Some(StreamedBody {
                reader,
                work: Some(work),
                left: length,
            });
        }
    }

    /// Runs what fills the body; is there something of it to be sent?
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(download) = &mut self.download else {
            return false;
        };
        if let Some(work) = &mut download.work
            && work.as_mut().poll(cx).is_ready()
        {
            download.work = None;
        }
        download.reader.is_ready(cx)
    }

    /// By which rule the response was broken off, if it was and that is known.
    pub(super) fn break_reason(&self) -> Option<Reject> {
        self.download.as_ref()?.reader.break_reason()
    }

    /// Appends at most `bytes_max` of the body to `out`.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> BodyFill {
        let Some(StreamedBody { reader, left, .. }) = &mut self.download else {
            return BodyFill::Nothing;
        };
        if !reader.holds() {
            return BodyFill::Nothing;
        }
        // Nobody has to be woken for what is there.
        let mut nobody = Context::from_waker(Waker::noop());
        match reader.poll_take(&mut nobody, out, bytes_max) {
            Poll::Pending => BodyFill::Nothing,
            Poll::Ready(Err(_)) => BodyFill::Broken,
            Poll::Ready(Ok(PipeRead::End)) => match left {
                None | Some(0) => BodyFill::Last,
                Some(_) => BodyFill::Broken,
            },
            Poll::Ready(Ok(PipeRead::Bytes(count))) => match left {
                None => BodyFill::Some,
                Some(left) => match left.checked_sub(count as u64) {
                    Some(less) => {
                        *left = less;
                        BodyFill::Some
                    }
                    // More than was promised.
                    None => {
                        out.truncate(out.len() - count);
                        BodyFill::Broken
                    }
                },
            },
        }
    }
}
