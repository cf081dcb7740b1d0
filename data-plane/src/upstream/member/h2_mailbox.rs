//! Parts of one response over HTTP/2 on their way from the connection's task to the request.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};
use wire::field_section::FieldSection;
use wire::h2::{H2ConnectionError, H2ErrorCode, H2StreamFailure};
use wire::reject::Reject;

/// Received parts of one response, shared by the connection's task and the request. The flow-control window of
/// the stream bounds the content.
#[derive(Default)]
pub(super) struct Mailbox(RefCell<MailboxState>);

#[derive(Default)]
struct MailboxState {
    /// Heads of interim responses and of the final response.
    heads: VecDeque<FieldSection>,
    /// Content that the request has not taken, from `taken`.
    content: Vec<u8>,
    taken: usize,
    /// True after the first bytes of the content were taken.
    has_begun: bool,
    /// Lines of the trailer section.
    trailers: Vec<u8>,
    has_ended: bool,
    failure: Option<H2Failure>,
    received_bytes: u64,
    waker: Option<Waker>,
}

/// Failure of a request over HTTP/2.
#[derive(Debug)]
pub(crate) enum H2Failure {
    /// The member has not processed the request, which may be sent again.
    Refused,
    /// The member reset the stream.
    Reset(H2ErrorCode),
    /// The response breaks the rule.
    Malformed(Reject),
    /// The member broke the protocol of the connection.
    Protocol(H2ConnectionError),
    /// The connection ended.
    Left {
        /// Cause, for one of the streams.
        source: Option<io::Error>,
        /// True if the connection has answered a request before.
        is_reused: bool,
    },
}

impl From<H2StreamFailure> for H2Failure {
    fn from(failure: H2StreamFailure) -> H2Failure {
        match failure {
            H2StreamFailure::Refused => H2Failure::Refused,
            H2StreamFailure::Reset(code) => H2Failure::Reset(code),
            H2StreamFailure::Malformed(reject) => H2Failure::Malformed(reject),
        }
    }
}

/// Next part of a response's content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResponsePart {
    /// Number of bytes taken.
    Bytes(usize),
    /// End of the complete response, with the lines of the trailer section.
    End(Vec<u8>),
}

impl MailboxState {
    /// Removes the taken bytes once they are half of the buffer: a client slower than the member would otherwise
    /// hold the whole response so far. Each byte is moved at most once on average.
    fn free_taken(&mut self) {
        if self.taken >= self.content.len() - self.taken {
            self.content.drain(..self.taken);
            self.taken = 0;
        }
    }
}

impl Mailbox {
    fn change(&self, change: impl FnOnce(&mut MailboxState)) {
        let mut state = self.0.borrow_mut();
        change(&mut state);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Adds a head, which with `ended` is the whole response.
    pub(super) fn push_head(&self, head: FieldSection, ended: bool) {
        self.change(|state| {
            state.received_bytes += head.held_bytes() as u64;
            state.heads.push_back(head);
            state.has_ended = ended;
        });
    }

    /// Adds a part of the content, the last one with `ended`.
    pub(super) fn push_content(&self, bytes: &[u8], ended: bool) {
        self.change(|state| {
            state.received_bytes += bytes.len() as u64;
            state.free_taken();
            state.content.extend_from_slice(bytes);
            state.has_ended = ended;
        });
    }

    /// Ends the response with the lines of the trailer section.
    pub(super) fn end(&self, trailers: Vec<u8>) {
        self.change(|state| {
            state.trailers = trailers;
            state.has_ended = true;
        });
    }

    /// Records a failure. A complete response stays complete.
    pub(super) fn fail(&self, failure: H2Failure) {
        self.change(|state| state.failure = Some(failure));
    }

    /// Wakes the request.
    pub(super) fn wake(&self) {
        self.change(|_| ());
    }

    /// Registers the task of the request.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.0.borrow_mut().waker = Some(cx.waker().clone());
    }

    /// Waits for the next head.
    pub(super) fn poll_head(&self, cx: &Context<'_>) -> Poll<Result<FieldSection, H2Failure>> {
        let mut state = self.0.borrow_mut();
        if let Some(head) = state.heads.pop_front() {
            return Poll::Ready(Ok(head));
        }
        match state.failure.take() {
            Some(failure) => Poll::Ready(Err(failure)),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Passes at most `max` bytes of the content to `take`.
    pub(super) fn poll_content(
        &self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<Result<ResponsePart, H2Failure>> {
        let mut state = self.0.borrow_mut();
        let left = &state.content[state.taken..];
        if !left.is_empty() {
            let taken = left.len().min(max);
            take(&left[..taken]);
            state.taken += taken;
            state.has_begun = true;
            if state.taken == state.content.len() {
                // A waiting response holds no buffer.
                state.content = Vec::new();
                state.taken = 0;
            }
            return Poll::Ready(Ok(ResponsePart::Bytes(taken)));
        }
        if state.has_ended {
            let trailers = std::mem::take(&mut state.trailers);
            return Poll::Ready(Ok(ResponsePart::End(trailers)));
        }
        match state.failure.take() {
            Some(failure) => Poll::Ready(Err(failure)),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes the content of a complete response without trailers.
    pub(super) fn take_whole(&self) -> Option<Vec<u8>> {
        let mut state = self.0.borrow_mut();
        let is_whole = state.has_ended && state.trailers.is_empty() && !state.has_begun;
        is_whole.then(|| std::mem::take(&mut state.content))
    }

    /// Returns the number of bytes received.
    pub(super) fn received_bytes(&self) -> u64 {
        self.0.borrow().received_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_holds_no_more_than_the_window() {
        const WINDOW: usize = 64 * 1024;
        let mailbox = Mailbox::default();
        let cx = Context::from_waker(Waker::noop());
        mailbox.push_content(&[b'a'; WINDOW], false);
        for _ in 0..10_000 {
            let part = mailbox.poll_content(&cx, 1_000, |bytes| assert_eq!(bytes, [b'a'; 1_000]));
            assert!(matches!(part, Poll::Ready(Ok(ResponsePart::Bytes(1_000)))));
            mailbox.push_content(&[b'a'; 1_000], false);
        }
        assert!(mailbox.0.borrow().content.capacity() <= 4 * WINDOW);
        mailbox.end(Vec::new());
        assert_eq!(
            mailbox.take_whole(),
            None,
            "a part of the content was taken"
        );
    }
}
