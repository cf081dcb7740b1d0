//! Content of a member's response over HTTP/2 on its way to the client.

use crate::base::coarse_timer::CoarseTimer;
use crate::handler::pipe::PipeWriter;
use crate::handler::proxy::content::report_broken;
use crate::handler::proxy::h2_upload::H2Upload;
use crate::handler::proxy::log::log_broken_off;
use crate::handler::proxy::retry::AttemptFailure;
use crate::upstream::balancer::Lease;
use crate::upstream::{H2Failure, H2RequestStream, MemberPool, ResponsePart};
use crate::wire::reject::Reject;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Future that moves the content of a response from the member to the client, and the rest of the request's
/// body in the other direction.
pub(super) struct H2ContentTransfer {
    pub(super) pool: Arc<MemberPool>,
    /// Name of the balancer for the log.
    pub(super) balancer: Box<str>,
    pub(super) stream: H2RequestStream,
    pub(super) upload: H2Upload,
    /// Use of the member until the end of the content.
    pub(super) lease: Option<Lease>,
    pub(super) writer: PipeWriter,
    /// Start of the response's line for the log.
    pub(super) line: Box<str>,
    pub(super) timer: Option<CoarseTimer>,
}

/// End of a transfer.
enum TransferEnd {
    /// The content is complete, with the lines of the trailer section.
    Complete(Vec<u8>),
    /// The client needs no more of the content, or broke its request off.
    ClientGone,
    /// The member broke the content off.
    Broken(Reject),
}

impl Future for H2ContentTransfer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let end = std::task::ready!(self.poll_end(cx));
        self.finish(end);
        Poll::Ready(())
    }
}

impl H2ContentTransfer {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd> {
        if let Poll::Ready(Err(_)) = self.upload.poll_send(&mut self.stream, cx) {
            return Poll::Ready(TransferEnd::ClientGone);
        }
        loop {
            let room = match self.writer.poll_room(cx) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(_)) => return Poll::Ready(TransferEnd::ClientGone),
                Poll::Pending => {
                    // The wait is for the client, and the client's connection has its own deadline.
                    self.timer = None;
                    return Poll::Pending;
                }
            };
            let writer = &mut self.writer;
            let polled = self.stream.poll_content(cx, room, |bytes| {
                // The pipe has room for all bytes. The next call notices a client that is gone.
                let _ = writer.write_some(bytes);
            });
            match polled {
                Poll::Ready(Ok(ResponsePart::Bytes(_))) => self.timer = None,
                Poll::Ready(Ok(ResponsePart::End(trailers))) => {
                    return Poll::Ready(TransferEnd::Complete(trailers));
                }
                Poll::Ready(Err(failure)) => {
                    return Poll::Ready(TransferEnd::Broken(broken(failure)));
                }
                Poll::Pending => return self.poll_silence(cx),
            }
        }
    }

    /// Ends the transfer if the member has been silent for too long. A member may wait for the next message of
    /// the client.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd> {
        if self.upload.waits_for_client() {
            // The client's connection has its own deadline.
            self.timer = None;
            return Poll::Pending;
        }
        let timeout = self.pool.settings.silence_timeout;
        CoarseTimer::poll_timeout(&mut self.timer, timeout, cx)
            .map(|()| TransferEnd::Broken(Reject::UPSTREAM_SLOW))
    }

    /// Reports the end of the transfer to the balancer.
    fn report(&mut self, end: &TransferEnd) {
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        lease.add_sent(self.stream.sent_bytes());
        lease.add_received(self.stream.received_bytes());
        match end {
            TransferEnd::Complete(_) => lease.record_content(),
            TransferEnd::ClientGone => {}
            TransferEnd::Broken(reject) => report_broken(&mut lease, &self.balancer, *reject),
        }
    }

    /// Completes or breaks off the client's response.
    fn finish(&mut self, end: TransferEnd) {
        let lease = self.lease.as_ref();
        let member = lease.map(|lease| Arc::clone(lease.member().name()));
        self.report(&end);
        match end {
            TransferEnd::ClientGone => {}
            TransferEnd::Broken(reject) => {
                log_broken_off(&self.line, &self.balancer, member.as_deref(), reject);
                self.writer.set_break_reason(reject);
            }
            TransferEnd::Complete(trailers) => {
                if !trailers.is_empty() {
                    self.writer.set_trailers(trailers);
                }
                self.writer.end();
            }
        }
    }
}

/// Returns the rule for a response that failed within its content.
fn broken(failure: H2Failure) -> Reject {
    match failure {
        H2Failure::Left { .. } | H2Failure::Refused => Reject::UPSTREAM_BROKE_OFF,
        failure => AttemptFailure::of_h2(failure, true).reject,
    }
}
