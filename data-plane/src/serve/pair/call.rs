//! Calls of a handler in the hands of a test.

use crate::handler::pipe::{PipeRead, PipeWriter, pipe};
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::limits::PIPE_BYTES;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;
use wire::reject::Reject;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// A call of a handler, in the hands of the test.
pub(in crate::serve) struct PairCall {
    pub(in crate::serve) request: Request,
    answer: Option<oneshot::Sender<Result<Response, HandlerError>>>,
    is_dropped: Rc<Cell<bool>>,
}

/// Bytes of a request's content.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::serve) enum PairRead {
    /// More may follow.
    Part(Vec<u8>),
    /// The content is complete.
    End(Vec<u8>),
    /// The client will not send the rest.
    Broken(Vec<u8>),
}

/// Handler with calls that the test answers.
pub(super) struct PairHandler {
    accepts_tunnels: bool,
}

/// Flag that is set when the work of a call is dropped.
struct DropFlag(Rc<Cell<bool>>);

thread_local! {
    /// Calls that the test has not taken yet. A handler is shared by threads, and each test has its own thread.
    static CALLS: RefCell<VecDeque<PairCall>> = RefCell::default();
}

/// Takes the next call of a handler on this thread.
pub(super) fn next_call() -> Option<PairCall> {
    CALLS.with_borrow_mut(VecDeque::pop_front)
}

/// Drops the calls of an earlier worker.
pub(super) fn forget_calls() {
    CALLS.take();
}

impl PairHandler {
    /// Creates a handler, for requests to switch protocols as well if `accepts_tunnels`.
    pub(super) fn new(accepts_tunnels: bool) -> PairHandler {
        PairHandler { accepts_tunnels }
    }
}

impl Handler for PairHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let (sender, receiver) = oneshot::channel();
        let is_dropped = Rc::<Cell<bool>>::default();
        let flag = DropFlag(is_dropped.clone());
        let call = PairCall {
            request,
            answer: Some(sender),
            is_dropped,
        };
        CALLS.with_borrow_mut(|calls| calls.push_back(call));
        Box::pin(async move {
            let answer = receiver.await;
            let failed = HandlerError::new("the test's handler", Reject::HANDLER_FAILED);
            let mut response = answer.unwrap_or(Err(failed))?;
            if let ResponseBody::Stream { work, .. } = &mut response.body {
                let before = std::mem::replace(work, Box::pin(std::future::ready(())));
                *work = Box::pin(async move {
                    let _flag = flag;
                    before.await;
                });
            }
            Ok(response)
        })
    }

    fn accepts_tunnels(&self) -> bool {
        self.accepts_tunnels
    }
}

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl PairCall {
    /// Returns true once the server has dropped the work of the call.
    pub(in crate::serve) fn is_dropped(&self) -> bool {
        self.is_dropped.get()
    }

    /// Answers with status 200 and the whole content.
    pub(in crate::serve) fn answer(&mut self, content: &[u8]) {
        self.respond(Status::OK, ResponseBody::Whole(content.to_vec()));
    }

    /// Begins a response with status 200 and a streamed content. Returns the writing end of its pipe.
    pub(in crate::serve) fn stream(&mut self, length: Option<u64>) -> PipeWriter {
        self.stream_with(Status::OK, length)
    }

    /// Begins a response with a streamed content. Returns the writing end of its pipe.
    pub(in crate::serve) fn stream_with(
        &mut self,
        status: Status,
        length: Option<u64>,
    ) -> PipeWriter {
        let (writer, reader) = pipe(PIPE_BYTES);
        let body = ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(std::future::pending()),
        };
        self.respond(status, body);
        writer
    }

    /// Answers with the whole content.
    pub(in crate::serve) fn respond_whole(&mut self, status: Status, content: &[u8]) {
        let body = match content {
            [] => ResponseBody::Empty,
            content => ResponseBody::Whole(content.to_vec()),
        };
        self.respond(status, body);
    }

    fn respond(&mut self, status: Status, body: ResponseBody) {
        let response = Response::new(status, ResponseFields::default(), body);
        let answer = self.answer.take().expect("one answer");
        // The server may have dropped the call.
        let _ = answer.send(Ok(response));
    }

    /// Reads at most `max` bytes of the request's content from the pipe.
    pub(in crate::serve) fn read(&mut self, max: usize) -> PairRead {
        let mut bytes = Vec::new();
        let mut noop = Context::from_waker(Waker::noop());
        while bytes.len() < max {
            let left = max - bytes.len();
            match self.request.body.poll_take(&mut noop, &mut bytes, left) {
                Poll::Ready(Ok(PipeRead::Bytes(_))) => {}
                Poll::Ready(Ok(PipeRead::End)) => return PairRead::End(bytes),
                Poll::Ready(Err(_)) => return PairRead::Broken(bytes),
                Poll::Pending => break,
            }
        }
        PairRead::Part(bytes)
    }
}

/// Writes as many of `bytes` as the pipe has room for. Returns their number.
pub(in crate::serve) fn write_some(writer: &mut PipeWriter, bytes: &[u8]) -> usize {
    let mut noop = Context::from_waker(Waker::noop());
    let mut written = 0;
    while written < bytes.len()
        && let Poll::Ready(Ok(room)) = writer.poll_room(&mut noop)
    {
        let left = &bytes[written..];
        let part = &left[..left.len().min(room)];
        written += writer.write_some(part).unwrap_or(0);
    }
    written
}
