//! One attempt to get a response over HTTP/2: the request on one stream, up to the head of the final response.

use crate::handler::pipe::counted_pipe;
use crate::handler::proxy::body::{H2Upload, OutgoingBody};
use crate::handler::proxy::content::{H2ContentTransfer, Transfer};
use crate::handler::proxy::exchange::SendError;
use crate::handler::proxy::failure::{AttemptFailure, FailureStage};
use crate::handler::proxy::request_head::{self, MemberOrigin};
use crate::handler::proxy::response_head::{AttemptTimes, HeadReader, announced, with_member};
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::proxy::{failure, place};
use crate::handler::{Request, Response, ResponseBody};
use crate::ledger::shared_limit::SharedLimit;
use crate::limits::{PIPE_BYTES, PROXY_CONTINUE_SECONDS};
use crate::upstream::{H2MemberConn, H2RequestStream, MemberPool};
use base::coarse_timer::CoarseTimer;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use wire::field_section::FieldSection;
use wire::h1::response_head::{ResponseHead, ResponseLength};
use wire::h2::UploadLength;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::status::{Status, StatusLine};

/// A request on one stream of a connection.
pub(super) struct H2Attempt {
    /// The stream; None once the transfer of the content has taken over.
    running: Option<(H2RequestStream, H2Upload)>,
    pool: Arc<MemberPool>,
    times: AttemptTimes,
    /// True after an interim response.
    has_begun: bool,
    timer: Option<CoarseTimer>,
}

impl H2Attempt {
    /// Begins the request on `conn`.
    pub(super) fn new(
        conn: &H2MemberConn,
        pool: Arc<MemberPool>,
        connect_time: Option<Duration>,
        request: &Request,
        route: &Arc<ProxyRoute>,
        body: &mut OutgoingBody,
    ) -> Result<H2Attempt, AttemptFailure> {
        let expects = request.expects_continue && body.has_rest();
        let member = MemberOrigin::of(&pool);
        let encoded = request_head::encode_h2(request, route, member, body.length(), expects);
        let refused = |reject| AttemptFailure::new(FailureStage::Client, reject);
        let block = encoded.map_err(refused)?;
        let announced = body.upload_length();
        let passes_trailers = request_head::announces_trailers(request);
        let upload = body.take_for_h2(expects, route, &request.memory, passes_trailers);
        let length = match (upload.is_done(), announced) {
            (true, _) => UploadLength::None,
            // Trailers follow an empty body.
            (false, UploadLength::None) => UploadLength::Unknown,
            (false, length) => length,
        };
        let memory = &request.memory;
        let client = request.peer.into();
        let stream = conn.begin(client, &block, request.method, length, memory);
        Ok(H2Attempt {
            running: Some((stream, upload)),
            pool,
            times: AttemptTimes::new(connect_time),
            has_begun: false,
            timer: None,
        })
    }

    /// Sends the request and reads the head of the response.
    pub(super) fn poll(
        &mut self,
        call: &mut HeadReader<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response, AttemptFailure>> {
        let Some((stream, upload)) = &mut self.running else {
            return Poll::Pending;
        };
        let sent_before = stream.sent_bytes();
        let sent = upload.poll_send(stream, cx);
        if stream.sent_bytes() > sent_before {
            // The wait for the first byte begins at the end of the request.
            self.timer = None;
        }
        if let Poll::Ready(Err(SendError::Client)) = sent {
            let gone = AttemptFailure::new(FailureStage::Client, Reject::HANDLER_FAILED);
            return Poll::Ready(Err(gone));
        }
        let polled = self.poll_head(call, cx);
        if polled.is_pending() {
            if self.poll_told(cx).is_ready() {
                call.route.refusals.increment(SharedLimit::MemberPlaces);
                let told = AttemptFailure::new(FailureStage::Client, Reject::CALL_SHARE_TAKEN);
                return Poll::Ready(Err(told));
            }
            return self.poll_silence(cx).map(Err);
        }
        polled
    }

    /// Ready if another client needs the descriptor of the connection.
    fn poll_told(&self, cx: &Context<'_>) -> Poll<()> {
        match &self.running {
            Some((stream, upload)) => stream.poll_told(cx, upload.waits_for_client()),
            None => Poll::Pending,
        }
    }

    /// Returns true if the call waits for the client to send more of the request, and the bytes sent so far.
    pub(super) fn upload(&self) -> (bool, u64) {
        let running = self.running.as_ref();
        running.map_or((false, 0), |(stream, upload)| {
            (upload.waits_for_client(), stream.sent_bytes())
        })
    }

    /// Returns true if the member has sent a part of an answer.
    pub(super) fn has_answer(&self) -> bool {
        self.has_begun
    }

    /// Takes the body of the failed attempt back, for another attempt.
    pub(super) fn give_back(self, body: &mut OutgoingBody) {
        if let Some((_, upload)) = self.running {
            body.take_back(upload);
        }
    }

    /// Reads heads up to the head of the final response.
    fn poll_head(
        &mut self,
        call: &mut HeadReader<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response, AttemptFailure>> {
        loop {
            let Some((stream, upload)) = &mut self.running else {
                return Poll::Pending;
            };
            let section = match ready!(stream.poll_head(cx)) {
                Ok(section) => section,
                Err(failure) => {
                    let failure = AttemptFailure::of_h2(failure, self.has_begun);
                    return Poll::Ready(Err(failure));
                }
            };
            self.has_begun = true;
            upload.forget_replay();
            if let Some(lease) = call.lease.as_mut() {
                // The answer has begun, so the request no longer goes to another member.
                lease.end_watch();
            }
            let malformed = |reject| match reject {
                // The member is not at fault.
                Reject::UPSTREAM_BUSY => {
                    AttemptFailure::none(reject).because(failure::TUNNELS_FULL)
                }
                _ => AttemptFailure::new(FailureStage::InResponse, reject),
            };
            if let Some(response) = self.take_head(call, &section).map_err(malformed)? {
                return Poll::Ready(Ok(response));
            }
        }
    }

    /// Handles a head. Returns the final response.
    fn take_head(
        &mut self,
        call: &mut HeadReader<'_>,
        section: &FieldSection,
    ) -> Result<Option<Response>, Reject> {
        let head = section.response_head(call.request.method)?;
        match head.status {
            Status(100) => {
                if let Some((_, upload)) = &mut self.running {
                    upload.release();
                }
            }
            Status(101..200) => call.send_interim(&head, &self.pool.authority)?,
            _ => return self.take_response(call, &head).map(Some),
        }
        Ok(None)
    }

    /// Makes the response for the client.
    fn take_response(
        &mut self,
        call: &mut HeadReader<'_>,
        head: &ResponseHead<'_>,
    ) -> Result<Response, Reject> {
        let Some((mut stream, upload)) = self.running.take() else {
            return Err(Reject::HANDLER_FAILED);
        };
        let mut fields = call.fields(head, &self.pool.authority)?;
        let member = call.report_answer(head.status, &mut fields, &self.times);
        let status = StatusLine::new(head.status, head.reason);
        let body = match stream.take_whole() {
            Some(content) => {
                if let Some(mut lease) = call.lease.take() {
                    lease.record_content();
                    lease.add_sent(stream.sent_bytes());
                    lease.add_received(stream.received_bytes());
                }
                if call.request.method == Method::Head {
                    announced(head.content_length)
                } else if content.is_empty() {
                    ResponseBody::Empty
                } else {
                    ResponseBody::Whole(content)
                }
            }
            None => {
                let is_event_stream = place::begin_stream(call.lease.as_mut(), head)?;
                let body = self.stream(call, head, (stream, upload), is_event_stream);
                return Ok(with_member(Response::new(status, fields, body), member));
            }
        };
        Ok(with_member(Response::new(status, fields, body), member))
    }

    /// Returns a streamed body. The transfer takes over the stream and the lease.
    fn stream(
        &mut self,
        call: &mut HeadReader<'_>,
        head: &ResponseHead<'_>,
        (mut stream, upload): (H2RequestStream, H2Upload),
        is_event_stream: bool,
    ) -> ResponseBody {
        let (writer, reader) = counted_pipe(PIPE_BYTES, &call.request.memory);
        let length = match (head.body, call.request.method) {
            (ResponseLength::Length(length), _) => Some(length),
            (_, Method::Head) => head.content_length,
            _ => None,
        };
        let has_content = call.request.method != Method::Head && head.status != Status(304);
        stream.expect_content(length.filter(|_| has_content));
        let lease = call.lease.take();
        let mut transfer = Transfer::new(&self.pool, call.route, lease, writer, call.request);
        transfer.set_event_stream(is_event_stream);
        let transfer = H2ContentTransfer {
            transfer,
            stream,
            upload,
        };
        ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(transfer),
        }
    }

    /// Ready with the failure of a member that took too long for its response.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<AttemptFailure> {
        let Some((_, upload)) = &mut self.running else {
            return Poll::Pending;
        };
        if upload.waits_for_client() {
            // The client's connection has its own deadline.
            self.timer = None;
            return Poll::Pending;
        }
        if upload.is_held() {
            ready!(self.poll_timer(cx, Duration::from_secs(PROXY_CONTINUE_SECONDS)));
            self.timer = None;
            if let Some((_, upload)) = &mut self.running {
                upload.release();
            }
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let timeout = self.pool.settings.first_byte_timeout;
        ready!(self.poll_timer(cx, timeout));
        if let Some((stream, _)) = &self.running {
            // Further requests on the connection could meet the same silence.
            stream.retire_connection();
        }
        Poll::Ready(AttemptFailure::silent(timeout))
    }

    /// Ready if `timeout` has passed since the first call of the current wait.
    fn poll_timer(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        CoarseTimer::poll_timeout(&mut self.timer, timeout, cx)
    }
}
