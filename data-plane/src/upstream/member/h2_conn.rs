//! HTTP/2 connection to a member, shared by concurrent requests of one worker. A task of the connection moves
//! the bytes; see [`h2_driver`](crate::upstream::h2_driver).

use crate::ledger::body_memory::BodyAccount;
use crate::ledger::member_uses::{MemberUse, UseProgress};
use crate::limits::{
    H2_MEMBER_PROBE_AFTER_MILLISECONDS, H2_MEMBER_RESETS_MAX, H2_MEMBER_UNSENT_BYTES_MAX,
};
use crate::upstream::member::address::ConnOrigin;
use crate::upstream::member::h2_mailbox::{H2Failure, Mailbox, ResponsePart};
use crate::upstream::member::h2_window::{H2ResponseWindow, is_long};
use crate::upstream::member::pool::MemberPool;
use base::client_network::ClientNetwork;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::Instant;
use wire::field_section::FieldSection;
use wire::h2::{H2ClientConnection, UploadLength, hpack};
use wire::limits::PROXY_HEAD_BYTES_MAX;
use wire::request_head::Method;

/// Bytes of a member that does not speak HTTP/2.
#[derive(Debug)]
pub(crate) struct NotHttp2;

impl NotHttp2 {
    /// Returns true if the connection failed because the member does not speak HTTP/2.
    pub(crate) fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|it| it.is::<NotHttp2>())
    }
}

impl fmt::Display for NotHttp2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the member does not speak HTTP/2 (`http2 = true` requires HTTP/2 of every member; a port \
             with TLS needs https:// in the URL)",
        )
    }
}

impl std::error::Error for NotHttp2 {}

/// HTTP/2 connection to a member.
#[derive(Clone)]
pub(crate) struct H2MemberConn(pub(super) Rc<RefCell<H2ConnState>>);

/// State of a connection, shared by the connection's task and the requests.
pub(super) struct H2ConnState {
    pub(super) h2: H2ClientConnection<Rc<Mailbox>>,
    /// Task of the connection.
    pub(super) task: Option<Waker>,
    /// Requests that wait for room to send.
    pub(super) blocked: Vec<(u32, Rc<Mailbox>)>,
    /// True if no further request may begin on the connection.
    pub(super) is_retired: bool,
    /// True if the connection serves a single request.
    is_exclusive: bool,
    /// True while the first request waits for SETTINGS of the member.
    pub(super) awaits_greeting: bool,
    /// Requests that wait for bytes of the member before they begin.
    waiting: Vec<Waker>,
    /// Time of the last bytes of the member.
    heard: Instant,
    /// True after a PING that no bytes of the member have followed.
    is_probed: bool,
    /// Failure before SETTINGS of the member.
    pub(super) failure: Option<io::Error>,
    /// True after the end of the connection's task.
    pub(super) has_ended: bool,
    /// Number of responses that have begun.
    pub(super) answers: u64,
    /// True if the content of the last complete response was longer than the window that each stream begins with.
    has_long_responses: bool,
    opened: Instant,
    /// Address of the member.
    pub(super) origin: ConnOrigin,
    /// Use of the connection's descriptor; None in tests.
    pub(super) usage: Option<Arc<MemberUse>>,
}

impl H2ConnState {
    /// Wakes the task of the connection.
    pub(super) fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Records the arrival of bytes of the member.
    pub(super) fn record_arrival(&mut self) {
        self.heard = Instant::now();
        self.is_probed = false;
        self.wake_waiting();
    }

    /// Wakes the requests that wait for bytes of the member.
    pub(super) fn wake_waiting(&mut self) {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .for_each(Waker::wake);
    }

    /// Wakes the requests that may send again.
    pub(super) fn wake_unblocked(&mut self) {
        if self.h2.out.len() >= H2_MEMBER_UNSENT_BYTES_MAX {
            return;
        }
        let h2 = &self.h2;
        self.blocked.retain(|(id, mailbox)| {
            let is_blocked = h2.data_room(*id) == Some(0);
            if !is_blocked {
                mailbox.wake();
            }
            is_blocked
        });
        if self.blocked.is_empty() {
            self.blocked = Vec::new();
        }
    }
}

impl H2MemberConn {
    /// Returns a connection without requests, for a single request with `is_exclusive`.
    pub(super) fn new(
        is_exclusive: bool,
        origin: ConnOrigin,
        usage: Option<Arc<MemberUse>>,
    ) -> H2MemberConn {
        H2MemberConn(Rc::new(RefCell::new(H2ConnState {
            h2: H2ClientConnection::connect(PROXY_HEAD_BYTES_MAX),
            task: None,
            blocked: Vec::new(),
            is_retired: false,
            is_exclusive,
            awaits_greeting: false,
            waiting: Vec::new(),
            heard: Instant::now(),
            is_probed: false,
            failure: None,
            has_ended: false,
            answers: 0,
            has_long_responses: false,
            opened: Instant::now(),
            origin,
            usage,
        })))
    }

    /// Returns true after the end of the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.0.borrow().has_ended
    }

    /// Returns true if another request may begin. With `since`, only on a connection opened since. The body of
    /// the request needs room in the window of the connection.
    pub(super) fn is_usable(&self, since: Option<Instant>, upload: UploadLength) -> bool {
        let state = self.0.borrow();
        let is_new_enough = since.is_none_or(|since| state.opened >= since);
        let is_told = || state.usage.as_ref().is_some_and(|usage| usage.is_told());
        let is_open = !state.has_ended && !state.is_retired && state.h2.is_greeted() && !is_told();
        let has_room = state.h2.has_room_for(upload);
        is_new_enough && is_open && has_room && state.h2.can_open()
    }

    /// Lets no further request begin if the member has left the address of the connection.
    pub(super) fn retire_if_left(&self, pool: &MemberPool) {
        let mut state = self.0.borrow_mut();
        if !state.is_retired && !pool.leads_to(&mut state.origin) {
            state.is_retired = true;
            state.wake_task();
        }
    }

    /// Waits for SETTINGS of the member. Before, the number of requests that the member accepts is unknown.
    pub(super) fn poll_greeted(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.has_ended {
            let unknown = || io::ErrorKind::ConnectionAborted.into();
            return Poll::Ready(Err(state.failure.take().unwrap_or_else(unknown)));
        }
        if state.h2.is_greeted() {
            return Poll::Ready(Ok(()));
        }
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }

    /// Returns true if the connection is idle and was silent for a while. A member may have gone away without a
    /// trace, and a request that must not be sent twice could get no answer.
    pub(super) fn may_be_stale(&self) -> bool {
        let state = self.0.borrow();
        let silent = state.heard.elapsed();
        state.h2.open() == 0 && silent >= Duration::from_millis(H2_MEMBER_PROBE_AFTER_MILLISECONDS)
    }

    /// Waits for a sign of life after a PING. Ready as well after the end of the connection.
    pub(super) fn poll_alive(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.may_be_stale() || self.has_ended() {
            return Poll::Ready(());
        }
        let mut state = self.0.borrow_mut();
        if !std::mem::replace(&mut state.is_probed, true) {
            // One PING serves all waiting requests. gRPC servers close a connection with many PINGs.
            state.h2.send_ping();
            state.wake_task();
        }
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }

    /// Lets no further request begin. The connection ends after the requests under way.
    pub(super) fn retire(&self) {
        let mut state = self.0.borrow_mut();
        state.is_retired = true;
        state.wake_task();
    }

    /// Begins a request of `client` with its field block. `memory` is the account of the call.
    pub(crate) fn begin(
        &self,
        client: ClientNetwork,
        block: &[u8],
        method: Method,
        upload: UploadLength,
        memory: &BodyAccount,
    ) -> H2RequestStream {
        let mailbox = Rc::new(Mailbox::default());
        let mut window = H2ResponseWindow::new(memory);
        let mut state = self.0.borrow_mut();
        let id = if state.has_ended {
            // The connection ended since the caller got the connection.
            mailbox.fail(H2Failure::Refused);
            0
        } else {
            let work = Rc::clone(&mailbox);
            let id = state.h2.open_upload(block, method, upload, work);
            if state.has_long_responses
                && let Some(bytes) = window.begin_wide()
            {
                state.h2.widen_stream_window(id, bytes);
            }
            if let Some(usage) = &state.usage {
                usage.begin_stream(id, client);
            }
            id
        };
        state.is_retired |= state.is_exclusive;
        state.wake_task();
        H2RequestStream {
            conn: self.clone(),
            id,
            mailbox,
            window,
            sent_bytes: block.len() as u64,
        }
    }
}

/// A request on an HTTP/2 connection. Dropping the value before the end of the response resets the stream. The
/// connection takes no further request after [`H2_MEMBER_RESETS_MAX`] resets.
pub(crate) struct H2RequestStream {
    conn: H2MemberConn,
    id: u32,
    mailbox: Rc<Mailbox>,
    window: H2ResponseWindow,
    sent_bytes: u64,
}

impl H2RequestStream {
    /// Waits until bytes of the body can be sent. Returns the number of bytes; None if the member takes no
    /// more.
    pub(crate) fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Option<usize>> {
        let mut state = self.conn.0.borrow_mut();
        let room = match state.h2.data_room(self.id) {
            None => return Poll::Ready(None),
            Some(_) if state.h2.out.len() >= H2_MEMBER_UNSENT_BYTES_MAX => 0,
            Some(room) => room,
        };
        if room > 0 {
            return Poll::Ready(Some(room));
        }
        self.mailbox.register(cx);
        if !state.blocked.iter().any(|(id, _)| *id == self.id) {
            state.blocked.push((self.id, Rc::clone(&self.mailbox)));
        }
        Poll::Pending
    }

    /// Sends bytes of the body, at most as many as [`H2RequestStream::poll_room`] returned. With `ended` the
    /// bytes are the last.
    pub(crate) fn send(&mut self, bytes: &[u8], ended: bool) {
        let mut state = self.conn.0.borrow_mut();
        if state.h2.data_room(self.id).is_some() {
            self.sent_bytes += bytes.len() as u64;
            state.h2.send_data(self.id, bytes, ended);
            state.wake_task();
        }
    }

    /// Ends the body with the lines of a trailer section.
    pub(crate) fn send_trailers(&mut self, lines: &[u8]) {
        let mut block = Vec::new();
        hpack::push_lines(lines, &mut block);
        let mut state = self.conn.0.borrow_mut();
        if state.h2.data_room(self.id).is_some() {
            self.sent_bytes += block.len() as u64;
            state.h2.send_trailers(self.id, &block);
            state.wake_task();
        }
    }

    /// Waits for the head of the next response, interim or final.
    pub(crate) fn poll_head(&self, cx: &Context<'_>) -> Poll<Result<FieldSection, H2Failure>> {
        self.mailbox.poll_head(cx)
    }

    /// Prepares the window for content of `length` bytes, if known.
    pub(crate) fn expect_content(&mut self, length: Option<u64>) {
        if let Some(bytes) = length.and_then(|length| self.window.expect(length)) {
            self.change(|h2, id| h2.widen_stream_window(id, bytes));
        }
    }

    /// Passes at most `max` bytes of the content to `take`. The member may send as many further bytes.
    pub(crate) fn poll_content(
        &mut self,
        cx: &Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<Result<ResponsePart, H2Failure>> {
        let polled = self.mailbox.poll_content(cx, max, take);
        match &polled {
            Poll::Ready(Ok(ResponsePart::Bytes(taken))) => {
                let wider = self.window.take(*taken);
                self.change(|h2, id| {
                    h2.release_stream_capacity(id, *taken as u32);
                    if let Some(bytes) = wider {
                        h2.widen_stream_window(id, bytes);
                    }
                });
            }
            Poll::Ready(Ok(ResponsePart::End(_))) => self.record_length(self.window.taken()),
            _ => {}
        }
        polled
    }

    /// Takes the content of a response that is complete without trailers.
    pub(crate) fn take_whole(&mut self) -> Option<Vec<u8>> {
        let content = self.mailbox.take_whole()?;
        self.window.close();
        self.record_length(content.len() as u64);
        Some(content)
    }

    /// Changes the protocol state, and wakes the task of the connection if the change has output.
    fn change(&self, change: impl FnOnce(&mut H2ClientConnection<Rc<Mailbox>>, u32)) {
        let mut state = self.conn.0.borrow_mut();
        let before = state.h2.out.len();
        change(&mut state.h2, self.id);
        if state.h2.out.len() > before {
            state.wake_task();
        }
    }

    /// Records the length of a complete response for the windows of the next responses.
    fn record_length(&self, bytes: u64) {
        self.conn.0.borrow_mut().has_long_responses = is_long(bytes);
    }

    /// Lets no further request begin on the connection, because the member is silent.
    pub(crate) fn retire_connection(&self) {
        self.conn.retire();
    }

    /// Ready if the request has to end with all other requests on the connection, because another client needs the
    /// descriptor. Otherwise the progress is recorded, and the task is woken when the request has to end.
    pub(crate) fn poll_told(&self, cx: &Context<'_>, awaits_client: bool) -> Poll<()> {
        let progress = UseProgress {
            bytes: self.sent_bytes + self.received_bytes(),
            awaits_client,
        };
        let mut state = self.conn.0.borrow_mut();
        let Some(usage) = &state.usage else {
            return Poll::Pending;
        };
        ready!(usage.poll_stream_told(self.id, progress, cx));
        state.is_retired = true;
        Poll::Ready(())
    }

    /// Returns the number of bytes sent to the member.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns the number of bytes received from the member.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.mailbox.received_bytes()
    }
}

impl Drop for H2RequestStream {
    fn drop(&mut self) {
        let mut state = self.conn.0.borrow_mut();
        state.blocked.retain(|(id, _)| *id != self.id);
        state.h2.cancel(self.id);
        if let Some(usage) = &state.usage {
            usage.end_stream(self.id);
        }
        state.is_retired |= state.h2.resets() >= H2_MEMBER_RESETS_MAX;
        state.wake_task();
    }
}
