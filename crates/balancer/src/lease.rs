//! Use of a member for one request: the lease, which counts the request and takes the reports of its outcome, and the
//! ticket of a request that waits for a lease.

use crate::down_watch::WatchKey;
use crate::ejection::{FailedRequest, RequestFailure};
use crate::member::{Member, PlaceHolder, Trial};
use crate::place_ledger::{HeldPlace, PlaceUse};
use crate::request::{NoMember, Requester, SessionUse};
use crate::slot_queue::{SlotQueue, WaitNumber, WaitOutcome, WaitingRequest};
use crate::state::StateChange;
use base::call_shares::ClientPace;
use base::client_network::ClientNetwork;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

/// Use of a member for one request. Dropping the lease ends the request, with or without a report.
pub struct Lease<C> {
    member: Arc<Member<C>>,
    holder: PlaceHolder,
    /// Number of ejections of the member at the time of the choice.
    ejections: u32,
    /// Number of times that the member went down, at the time of the choice.
    downs: u32,
    /// Trial of an ejected member by the request.
    trial: Option<Trial>,
    /// Client, and time since which the member has the request.
    requester: Requester,
    session: SessionUse,
    cookie: Option<Arc<str>>,
    watch: Option<WatchKey>,
}

/// A request that a member left without a byte of an answer.
pub struct LeftRequest<C> {
    member: Arc<Member<C>>,
    ejections: u32,
    client: u64,
}

impl<C> LeftRequest<C> {
    /// Records that another member answered the request.
    pub fn record_answer_elsewhere(&self, now_ms: u64) {
        self.member
            .record_answer_elsewhere(self.client, self.ejections, now_ms);
    }
}

impl<C> Lease<C> {
    /// Creates the lease of a request that the caller has counted by [`Member::try_enter`].
    pub(crate) fn of_counted(
        member: Arc<Member<C>>,
        holder: PlaceHolder,
        session: SessionUse,
        cookie: Option<Arc<str>>,
        trial: Option<Trial>,
        requester: Requester,
    ) -> Lease<C> {
        member.counters.elected.fetch_add(1, Relaxed);
        if requester.is_retry {
            member.counters.retries.fetch_add(1, Relaxed);
        }
        Lease {
            ejections: member.ejections(),
            downs: member.down_watch.downs(),
            member,
            holder,
            trial,
            requester,
            session,
            cookie,
            watch: None,
        }
    }

    pub fn member(&self) -> &Arc<Member<C>> {
        &self.member
    }

    /// Returns the request, to be reported again once another member has answered it.
    pub fn left_request(&self) -> LeftRequest<C> {
        LeftRequest {
            member: Arc::clone(&self.member),
            ejections: self.ejections,
            client: self.requester.client,
        }
    }

    /// Returns the relation between the session of the request and the member.
    pub fn session(&self) -> SessionUse {
        self.session
    }

    /// Returns the value of the session cookie that the response has to set.
    pub fn new_cookie(&self) -> Option<&str> {
        self.cookie.as_deref()
    }

    /// Counts bytes sent to the member.
    pub fn add_sent(&self, bytes: u64) {
        self.member.counters.sent_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes received from the member.
    pub fn add_received(&self, bytes: u64) {
        self.member
            .counters
            .received_bytes
            .fetch_add(bytes, Relaxed);
    }

    /// Records that the request left the queue at `now_ms`, so that the wait does not count as time of the member.
    pub fn leave_queue(&mut self, now_ms: u64) {
        self.requester.began_ms = now_ms;
    }

    /// Records that no connection to the member could be established.
    pub fn record_connect_failure(&mut self, now_ms: u64) -> Option<StateChange> {
        self.record(RequestFailure::Connection, now_ms)
    }

    /// Records that the handshake of TLS with the member failed.
    pub fn record_tls_failure(&mut self, now_ms: u64) -> Option<StateChange> {
        self.record(RequestFailure::Tls, now_ms)
    }

    /// Records that the member does not speak HTTP/2.
    pub fn record_http2_failure(&mut self, now_ms: u64) -> Option<StateChange> {
        self.record(RequestFailure::Http2, now_ms)
    }

    /// Records that the member did not answer in time, broke off, or sent a bad answer.
    pub fn record_failure(&mut self, now_ms: u64) -> Option<StateChange> {
        self.record(RequestFailure::Answer, now_ms)
    }

    /// Records that the member broke off the content of its answer.
    pub fn record_broken_content(&mut self, now_ms: u64) -> Option<StateChange> {
        self.record(RequestFailure::Content, now_ms)
    }

    /// Records that the content of the member's answer is complete.
    pub fn record_content(&mut self) {
        self.member.record_content(self.ejections);
    }

    fn record(&self, kind: RequestFailure, now_ms: u64) -> Option<StateChange> {
        let failed = FailedRequest {
            kind,
            client: self.requester.client,
            began_ms: self.requester.began_ms,
            now_ms,
        };
        self.member.record_failure(&failed, self.ejections)
    }

    /// Records the head of the member's answer with its latency, the time since the request was sent. A
    /// status that counts as a failure ([`EjectionSettings::statuses`]) is recorded as such.
    ///
    /// [`EjectionSettings::statuses`]: crate::member_settings::EjectionSettings::statuses
    pub fn record_answer(
        &mut self,
        status: u16,
        latency_micros: u64,
        now_ms: u64,
    ) -> Option<StateChange> {
        self.member.latency.record(latency_micros, now_ms);
        self.member.latencies.record(latency_micros);
        if self.member.counts_as_failure(status) {
            return self.record_failure(now_ms);
        }
        let change = self.member.record_success(self.ejections, now_ms);
        let was_trial = self.trial.is_some();
        self.end_trial();
        if change.is_some() || was_trial {
            // The recovered member may have places for several waiting requests.
            self.member.queue.wake_all();
        }
        change
    }

    /// Returns ready after the member went down since the choice. A request without any byte of an answer
    /// may then go on at another member.
    pub fn poll_member_down(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.member.down_watch.register(&mut self.watch, cx.waker());
        match self.member.down_watch.downs() == self.downs {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    /// Ends the watch of [`Lease::poll_member_down`], once the answer has begun.
    pub fn end_watch(&mut self) {
        if let Some(key) = self.watch.take() {
            self.member.down_watch.unregister(key);
        }
    }

    /// Returns true if the place of the request is accounted to the client, because the member has a bound.
    pub fn has_place(&self) -> bool {
        matches!(self.holder, PlaceHolder::Client(_))
    }

    /// Reports the pace of the client while the call waits for the client. Returns true if the place is promised to a
    /// request of another client, and the call has to end.
    pub fn gives_way(&mut self, pace: ClientPace, now_ms: u64) -> bool {
        let place = self.member.place_use();
        let PlaceHolder::Client(held) = &mut self.holder else {
            return false;
        };
        let queue = &self.member.queue;
        queue.set_pace(held, place.member, pace);
        held.is_promised
            || pace != ClientPace::Fast
                && queue.has_waiting()
                && self.member.may_hand_over()
                && queue.promises(held, place, now_ms)
    }

    /// Records that the call does not wait for the client.
    pub fn end_wait(&mut self) {
        if let PlaceHolder::Client(held) = &mut self.holder {
            let queue = &self.member.queue;
            queue.set_pace(held, self.member.id(), ClientPace::Fast);
        }
    }

    /// Records that bytes moved over a tunnel or an event stream.
    pub fn mark_moved(&self, now_ms: u64) {
        if let PlaceHolder::Client(held) = &self.holder {
            held.mark_moved(now_ms);
        }
    }

    /// Counts the request as a tunnel or an event stream. Returns false if the member has no place for another one.
    pub fn begin_tunnel(&mut self) -> bool {
        let place = self.member.place_use();
        match &mut self.holder {
            PlaceHolder::Client(held) => self.member.queue.begin_tunnel(held, place),
            PlaceHolder::Uncounted => true,
        }
    }

    /// Counts the request no longer as a tunnel, because the response is an ordinary one.
    pub fn end_tunnel(&mut self) {
        let PlaceHolder::Client(held) = &mut self.holder else {
            return;
        };
        if held.is_tunnel {
            self.member.queue.end_tunnel(held, self.member.id());
            offer_free(&self.member);
        }
    }

    /// Returns ready if the tunnel or the event stream has to end in favour of a request of another client.
    pub fn poll_told(&mut self, cx: &Context<'_>) -> Poll<()> {
        let PlaceHolder::Client(held) = &mut self.holder else {
            return Poll::Pending;
        };
        let queue = &self.member.queue;
        let since_ms = self.requester.began_ms;
        match queue.is_tunnel_told(held, self.member.id(), since_ms, cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn end_trial(&mut self) {
        if let Some(trial) = self.trial.take() {
            self.member.end_trial(trial);
        }
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        self.end_watch();
        self.end_trial();
        let holder = std::mem::replace(&mut self.holder, PlaceHolder::Uncounted);
        release_place(&self.member, holder);
    }
}

/// Hands the place of a request at a member to a waiting request, or frees the place.
fn release_place<C>(member: &Arc<Member<C>>, holder: PlaceHolder) {
    let queue = &member.queue;
    let mut is_promised = false;
    if let PlaceHolder::Client(mut held) = holder {
        queue.give_back(&mut held, member.id());
        is_promised = held.is_promised;
    }
    if !(queue.has_waiting() && member.may_hand_over() && hand_over(member)) {
        member.leave();
    }
    if is_promised {
        // The waiting request has the place now, so no second place is promised to the request.
        queue.clear_promise();
    }
    // A request joined the queue in the meantime, or a client may take a reserved place, because the client has fewer
    // places now.
    offer_free(member);
}

/// Offers the free places of a member to waiting requests.
fn offer_free<C>(member: &Arc<Member<C>>) {
    let queue = &member.queue;
    if !queue.has_waiting() {
        return;
    }
    match member.may_hand_over() {
        true => {
            let take = || member.try_count().then(|| Arc::clone(member));
            while queue.offer(member.place_use(), take) {}
        }
        // The choice knows whether the member may be used all the same.
        false => queue.wake_first(member.id()),
    }
}

/// Hands a place that stays counted to a waiting request. Returns false if no request may take the place.
fn hand_over<C>(member: &Arc<Member<C>>) -> bool {
    let without = member.place_use().without_one();
    member.queue.offer(without, || Some(Arc::clone(member)))
}

/// Future of a member for a request in the queue. Dropping the ticket leaves the queue. The caller bounds
/// the wait by the `queue_timeout` of the balancer.
pub struct QueueTicket<C> {
    queue: Arc<SlotQueue<Arc<Member<C>>>>,
    client: ClientNetwork,
    is_tunnel: bool,
    place: Place<C>,
    session: SessionUse,
    requester: Requester,
}

enum Place<C> {
    /// The request got a member while it joined the queue.
    Served(Box<Lease<C>>),
    Waiting(WaitNumber),
    Left,
}

/// Result of the wait for a member.
pub enum Waited<C> {
    /// A member for the request.
    Lease(Lease<C>),
    /// The members changed. The caller chooses again.
    ChooseAgain,
    /// The queue is full, and the request made room for a request of a client with fewer waiting requests.
    Dropped,
}

/// Reason for a request that may not wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WaitRefused {
    /// The queue is full.
    QueueFull,
    /// No member will be usable after a wait.
    NoMember(NoMember),
}

impl<C> QueueTicket<C> {
    /// Creates the ticket of a request that waits.
    pub(crate) fn waiting(
        queue: &Arc<SlotQueue<Arc<Member<C>>>>,
        request: &WaitingRequest<'_>,
        number: WaitNumber,
        session: SessionUse,
        requester: Requester,
    ) -> QueueTicket<C> {
        QueueTicket {
            queue: Arc::clone(queue),
            client: request.client,
            is_tunnel: request.is_tunnel,
            place: Place::Waiting(number),
            session,
            requester,
        }
    }

    /// Records that the request got a member in the meantime, and leaves the queue.
    pub(crate) fn serve(&mut self, lease: Lease<C>) {
        self.leave();
        self.place = Place::Served(Box::new(lease));
    }

    /// Returns true if the request waits for the place of a tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.is_tunnel
    }

    /// Tells a silent tunnel to end in favour of the request.
    pub(crate) fn claim_tunnel(&self, usable: &[PlaceUse], now_ms: u64) {
        if let Place::Waiting(number) = self.place {
            self.queue.claim_tunnel(number, usable, now_ms);
        }
    }

    fn lease(&self, member: Arc<Member<C>>) -> Lease<C> {
        let cookie = match self.session {
            SessionUse::Changed => member.read(|core| core.cookie.clone()),
            SessionUse::None | SessionUse::Kept => None,
        };
        let holder = self.holder();
        Lease::of_counted(member, holder, self.session, cookie, None, self.requester)
    }

    fn holder(&self) -> PlaceHolder {
        PlaceHolder::Client(HeldPlace::new(self.client, self.is_tunnel))
    }

    fn leave(&mut self) {
        let Place::Waiting(number) = std::mem::replace(&mut self.place, Place::Left) else {
            return;
        };
        match self.queue.leave(number) {
            Some(WaitOutcome::Slot(member)) => {
                release_place(&member, self.holder());
            }
            // The place that the request was told of is for the next request.
            Some(WaitOutcome::ChooseAgain) => self.queue.wake_all(),
            Some(WaitOutcome::Dropped) | None => {}
        }
    }
}

impl<C> Future for QueueTicket<C> {
    type Output = Waited<C>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited<C>> {
        match std::mem::replace(&mut self.place, Place::Left) {
            Place::Served(lease) => Poll::Ready(Waited::Lease(*lease)),
            Place::Left => Poll::Ready(Waited::ChooseAgain),
            Place::Waiting(number) => match self.queue.poll(number, cx) {
                Poll::Ready(WaitOutcome::Slot(member)) => {
                    Poll::Ready(Waited::Lease(self.lease(member)))
                }
                Poll::Ready(WaitOutcome::ChooseAgain) => Poll::Ready(Waited::ChooseAgain),
                Poll::Ready(WaitOutcome::Dropped) => Poll::Ready(Waited::Dropped),
                Poll::Pending => {
                    self.place = Place::Waiting(number);
                    Poll::Pending
                }
            },
        }
    }
}

impl<C> Drop for QueueTicket<C> {
    fn drop(&mut self) {
        self.leave();
    }
}
