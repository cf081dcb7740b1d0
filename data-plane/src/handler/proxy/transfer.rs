//! The parts of a transfer of content that HTTP/1.1 and HTTP/2 to members share: room in the pipe, silence of the
//! member, and the end of the client's response.

use crate::handler::Request;
use crate::handler::pipe::PipeWriter;
use crate::handler::proxy::log::{line, log_broken_off};
use crate::handler::proxy::place::PlacePace;
use crate::handler::proxy::route::ProxyRoute;
use crate::ledger::shared_limit::RefusalCounters;
use crate::ledger::shared_limit::SharedLimit;
use crate::upstream::balancer::Lease;
use crate::upstream::{self, MemberPool};
use base::clock::monotonic_ms;
use base::coarse_timer::CoarseTimer;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use wire::reject::Reject;

/// Way of a response's content from the member to the client.
pub(super) struct Transfer {
    pub(super) pool: Arc<MemberPool>,
    /// Name of the balancer for the log.
    pub(super) balancer: Box<str>,
    /// Use of the member until the end of the content.
    lease: Option<Lease>,
    pub(super) writer: PipeWriter,
    /// Start of the response's line for the log.
    pub(super) line: Box<str>,
    timer: Option<CoarseTimer>,
    /// True for an event stream over a place of the member.
    is_event_stream: bool,
    /// Rates of the client, of the response and of the rest of the request.
    download: PlacePace,
    upload: PlacePace,
    refusals: Arc<RefusalCounters>,
}

/// End of a transfer. `C` is the knowledge about complete content.
pub(super) enum TransferEnd<C> {
    /// The content is complete.
    Complete(C),
    /// The client needs no more of the content, or broke its request off.
    ClientGone,
    /// The member broke the content off.
    Broken(Reject),
    /// The place goes to a request of another client.
    GivenUp(Reject),
}

impl Transfer {
    pub(super) fn new(
        pool: &Arc<MemberPool>,
        route: &ProxyRoute,
        lease: Option<Lease>,
        writer: PipeWriter,
        request: &Request,
    ) -> Transfer {
        Transfer {
            pool: Arc::clone(pool),
            balancer: route.balancer.name().into(),
            is_event_stream: false,
            download: PlacePace::default(),
            upload: PlacePace::default(),
            refusals: Arc::clone(&route.refusals),
            lease,
            writer,
            line: line(request).into(),
            timer: None,
        }
    }

    /// Marks the transfer as an event stream, or as an ordinary one.
    pub(super) fn set_event_stream(&mut self, is_event_stream: bool) {
        self.is_event_stream = is_event_stream;
    }

    /// Returns the name of the member, until the end of the transfer.
    pub(super) fn member(&self) -> Option<Arc<str>> {
        let lease = self.lease.as_ref()?;
        Some(Arc::clone(lease.member().name()))
    }

    /// Returns the room in the pipe, or the end if the client is gone. The member has sent `received_bytes` so far. A
    /// client that takes the response too slowly loses the place of the member to a request of another client.
    pub(super) fn poll_room<C>(
        &mut self,
        cx: &mut Context<'_>,
        received_bytes: u64,
    ) -> Poll<Result<usize, TransferEnd<C>>> {
        let room = self.writer.poll_room(cx);
        let lease = self.lease.as_mut();
        if room.is_pending() {
            // The wait is for the client, and the client's connection has its own deadline.
            self.timer = None;
            if self
                .download
                .wait(lease, received_bytes, &self.refusals, cx)
            {
                return Poll::Ready(Err(TransferEnd::GivenUp(Reject::CALL_SHARE_TAKEN)));
            }
        } else {
            self.download.progress(lease, received_bytes);
        }
        let room = ready!(room);
        Poll::Ready(room.map_err(|_| TransferEnd::ClientGone))
    }

    /// Records bytes of the member, or a wait with a deadline elsewhere: the time of silence begins anew.
    pub(super) fn end_silence(&mut self) {
        self.timer = None;
        if self.is_event_stream
            && let Some(lease) = &self.lease
        {
            lease.mark_moved(monotonic_ms());
        }
    }

    /// Ends the transfer if the client sends the rest of the request so slowly that a request of another client gets the
    /// place of the member. `sent_bytes` of the request have been sent so far.
    pub(super) fn poll_upload<C>(
        &mut self,
        cx: &mut Context<'_>,
        waits_for_client: bool,
        sent_bytes: u64,
    ) -> Poll<TransferEnd<C>> {
        let lease = self.lease.as_mut();
        if waits_for_client {
            if self.upload.wait(lease, sent_bytes, &self.refusals, cx) {
                return Poll::Ready(TransferEnd::GivenUp(Reject::BODY_SLOW));
            }
        } else {
            self.upload.progress(lease, sent_bytes);
        }
        Poll::Pending
    }

    /// Ends the transfer if the member has been silent for too long, or an event stream in favour of a request of another
    /// client.
    pub(super) fn poll_silence<C>(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd<C>> {
        if self.is_event_stream
            && let Some(lease) = &mut self.lease
            && lease.poll_told(cx).is_ready()
        {
            self.refusals.increment(SharedLimit::MemberPlaces);
            return Poll::Ready(TransferEnd::GivenUp(Reject::CALL_SHARE_TAKEN));
        }
        let timeout = self.pool.settings.silence_timeout;
        CoarseTimer::poll_timeout(&mut self.timer, timeout, cx)
            .map(|()| TransferEnd::Broken(Reject::UPSTREAM_SLOW))
    }

    /// Reports the end to the balancer, with the sent and received bytes, and breaks an incomplete response
    /// off. Returns the completion of complete content.
    pub(super) fn finish<C>(&mut self, end: TransferEnd<C>, bytes: (u64, u64)) -> Option<C> {
        let mut lease = self.lease.take();
        if let Some(lease) = &mut lease {
            lease.add_sent(bytes.0);
            lease.add_received(bytes.1);
        }
        match end {
            TransferEnd::Complete(completion) => {
                if let Some(lease) = &mut lease {
                    lease.record_content();
                }
                Some(completion)
            }
            TransferEnd::ClientGone => None,
            TransferEnd::GivenUp(reject) => {
                drop(lease);
                if self.is_event_stream {
                    // An event stream has no end of its own, and the browser connects anew.
                    self.writer.end()
                } else {
                    self.writer.set_break_reason(reject)
                }
                None
            }
            TransferEnd::Broken(reject) => {
                self.break_off(lease, reject);
                None
            }
        }
    }

    fn break_off(&mut self, mut lease: Option<Lease>, reject: Reject) {
        if let Some(lease) = &mut lease {
            report_broken(lease, &self.balancer, reject);
        }
        let member = lease.as_ref().map(|lease| &**lease.member().name());
        log_broken_off(&self.line, &self.balancer, member, reject);
        self.writer.set_break_reason(reject);
    }
}

/// Reports content that broke off by the rule to the balancer.
fn report_broken(lease: &mut Lease, balancer: &str, reject: Reject) {
    let now_ms = monotonic_ms();
    let change = match reject {
        // Silence may be the nature of the content, such as an event stream without events.
        Reject::UPSTREAM_SLOW => lease.record_failure(now_ms),
        _ => lease.record_broken_content(now_ms),
    };
    if let Some(change) = change {
        upstream::log_change(balancer, lease.member().url(), change);
    }
}
