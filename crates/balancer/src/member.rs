//! A member of a balancer: counters, health and settings. A member outlives configurations.
//!
//! A choice and a successful request read and write atomics alone. Changes of state take the lock of the
//! member, and publish the [`Standing`] anew.

use crate::check::{CheckOutcome, first_check_offset_ms};
use crate::counters::{LastHeartbeat, LatencyAverage, LatencyHistogram, MemberCounters};
use crate::down_watch::DownWatch;
use crate::ejection::{FailedRequest, RequestFailure};
use crate::limits::{RETRY_LINE_SECONDS, UPLOAD_TRIAL_SECONDS};
use crate::member_core::{MemberCore, SharedSettings};
use crate::member_settings::{CheckSettings, MemberSettings, MemberUrl};
use crate::place_ledger::{HeldPlace, PlaceUse};
use crate::request::MemberId;
use crate::slot_queue::SlotQueue;
use crate::state::{ChangeReason, MemberState, Standing, StateChange, WeightShare};
use arc_swap::ArcSwapOption;
use base::client_network::ClientNetwork;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections to a member. The user of the balancer makes and takes the connections; the balancer says when the member
/// gets no further requests.
pub trait Connections {
    /// Closes the idle connections, and lets no connection become idle from now on.
    fn close_idle(&self);
}

/// A member of a balancer, shared by all workers.
pub struct Member<C> {
    id: MemberId,
    url: MemberUrl,
    /// URL as text, for the log.
    name: Arc<str>,
    /// Packed [`Standing`].
    standing: AtomicU64,
    /// End of the pause of an ejected member in milliseconds.
    ejected_until_ms: AtomicU64,
    /// End of the time for the verdict of the trial under way, in milliseconds; 0 without a trial.
    trial_until_ms: AtomicU64,
    /// Requests under way.
    busy: AtomicUsize,
    /// Largest number of requests under way.
    busy_max: AtomicUsize,
    /// Largest number of tunnels and event streams among them.
    tunnels_max: AtomicUsize,
    /// Time of the last success in milliseconds; 0 before the first success.
    answered_at_ms: AtomicU64,
    /// Time of the last recovery in milliseconds; 0 without a recovery.
    recovered_at_ms: AtomicU64,
    /// Number of ejections. Reports of requests from before the last ejection are stale.
    ejections: AtomicU32,
    /// True if the next success changes the ejection, or refutes failed checks.
    has_failures: AtomicBool,
    /// True if some statuses of answers count as failures.
    has_failure_statuses: AtomicBool,
    /// True if the member has active checks.
    has_checks: AtomicBool,
    /// Counters for the operator.
    pub(crate) counters: MemberCounters,
    /// Time from which a line about a retry may be logged again, in milliseconds.
    retry_line_from_ms: AtomicU64,
    /// Average latency for the method `p2c`.
    pub(crate) latency: LatencyAverage,
    /// Latencies for the operator.
    pub(crate) latencies: LatencyHistogram,
    /// Last heartbeat for the method `heartbeat`.
    pub(crate) heartbeat: LastHeartbeat,
    /// Connections to the member; None before the first World with the member is served.
    pool: ArcSwapOption<C>,
    /// Requests that wait for an answer.
    pub(crate) down_watch: DownWatch,
    /// Requests that wait for a slot of any member of the balancer.
    pub(crate) queue: Arc<SlotQueue<Arc<Member<C>>>>,
    core: Mutex<MemberCore>,
}

/// Account of a request's place at a member.
pub(crate) enum PlaceHolder {
    /// The member had no bound, so the place is not accounted to a client.
    Uncounted,
    /// The place is accounted to its client.
    Client(HeldPlace),
}

/// Trial of a member, identified by the end of the time for its verdict.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trial(u64);

impl<C> Member<C> {
    /// Creates a member without history.
    pub(crate) fn new(
        id: MemberId,
        settings: &MemberSettings,
        shared: &SharedSettings,
        queue: &Arc<SlotQueue<Arc<Member<C>>>>,
    ) -> Member<C> {
        let core = MemberCore::new(settings, shared);
        Member {
            id,
            url: settings.url.clone(),
            name: settings.url.to_string().into(),
            standing: AtomicU64::new(core.standing().pack()),
            ejected_until_ms: AtomicU64::new(0),
            trial_until_ms: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            busy_max: AtomicUsize::new(settings.connections_max.unwrap_or(usize::MAX)),
            tunnels_max: AtomicUsize::new(shared.tunnels_max(settings)),
            answered_at_ms: AtomicU64::new(0),
            recovered_at_ms: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            has_failures: AtomicBool::new(false),
            has_failure_statuses: AtomicBool::new(!shared.ejection.statuses.is_empty()),
            has_checks: AtomicBool::new(core.check_settings().is_some()),
            counters: MemberCounters::default(),
            retry_line_from_ms: AtomicU64::new(0),
            latency: LatencyAverage::default(),
            latencies: LatencyHistogram::default(),
            heartbeat: LastHeartbeat::default(),
            pool: ArcSwapOption::empty(),
            down_watch: DownWatch::default(),
            queue: Arc::clone(queue),
            core: Mutex::new(core),
        }
    }

    /// Returns the number of the member.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Returns the location of the member.
    pub fn url(&self) -> &MemberUrl {
        &self.url
    }

    /// Returns the URL of the member as text.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the connections to the member.
    pub fn pool(&self) -> Option<Arc<C>> {
        self.pool.load_full()
    }

    /// Replaces the connections to the member. Idle connections of the former pool are closed.
    pub fn set_pool(&self, pool: Arc<C>)
    where
        C: Connections,
    {
        let former = self.pool.swap(Some(Arc::clone(&pool)));
        if let Some(former) = former.filter(|former| !Arc::ptr_eq(former, &pool)) {
            former.close_idle();
        }
    }

    /// Closes the idle connections to the member, which left the configuration.
    pub(crate) fn close_pool(&self)
    where
        C: Connections,
    {
        if let Some(pool) = self.pool() {
            pool.close_idle();
        }
    }

    /// Returns true if a failed request that goes on at another member is to be logged: at most once in
    /// [`RETRY_LINE_SECONDS`].
    pub fn takes_retry_line(&self, now_ms: u64) -> bool {
        let next_ms = now_ms.saturating_add(RETRY_LINE_SECONDS * 1_000);
        let step = |from_ms| (now_ms >= from_ms).then_some(next_ms);
        let taken =
            self.retry_line_from_ms
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        taken.is_ok()
    }

    /// Returns the number of requests under way. A drained member with 0 requests may be updated.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Returns true if the member has active checks.
    pub fn has_checks(&self) -> bool {
        self.has_checks.load(Ordering::Relaxed)
    }

    /// Returns the state of the member.
    pub fn state(&self) -> MemberState {
        self.standing().state()
    }

    /// Reads the standing.
    pub(crate) fn standing(&self) -> Standing {
        Standing::unpack(self.standing.load(Ordering::Acquire))
    }

    /// Returns true if the number of requests under way has a bound.
    pub(crate) fn is_bounded(&self) -> bool {
        self.busy_max.load(Ordering::Relaxed) != usize::MAX
    }

    /// Returns the use of the member's places.
    pub(crate) fn place_use(&self) -> PlaceUse {
        PlaceUse {
            member: self.id,
            busy: self.busy.load(Ordering::SeqCst),
            busy_max: self.busy_max.load(Ordering::Relaxed),
            tunnels_max: self.tunnels_max.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the number of requests under way has reached its bound, or if the remaining places are
    /// reserved for clients other than `client`. For a tunnel, also if the number of tunnels has reached its bound.
    pub(crate) fn is_full_for(&self, client: ClientNetwork, is_tunnel: bool) -> bool {
        let place = self.place_use();
        place.busy_max != usize::MAX
            && (place.busy >= place.busy_max || !self.queue.may_take(client, place, is_tunnel))
    }

    /// Counts a request of `client` under way unless the bound is reached. Places of a member without a bound
    /// are not accounted to clients.
    pub(crate) fn try_enter(
        &self,
        client: ClientNetwork,
        is_tunnel: bool,
        now_ms: u64,
    ) -> Option<PlaceHolder> {
        if !self.is_bounded() {
            return self.try_count().then_some(PlaceHolder::Uncounted);
        }
        let place = self.place_use();
        let is_taken = self
            .queue
            .take(client, place, is_tunnel, now_ms, || self.try_count());
        is_taken.then(|| PlaceHolder::Client(HeldPlace::new(client, is_tunnel)))
    }

    /// Counts a request under way unless the bound is reached, without a change of the clients' accounts.
    pub(crate) fn try_count(&self) -> bool {
        let max = self.busy_max.load(Ordering::Relaxed);
        let step = |busy| (busy < max).then_some(busy + 1);
        let updated = self
            .busy
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
        updated.is_ok()
    }

    /// Returns true if the place of a request that ends may be given to another request.
    pub(crate) fn may_hand_over(&self) -> bool {
        let max = self.busy_max.load(Ordering::Relaxed);
        self.state() == MemberState::Up && self.busy.load(Ordering::SeqCst) <= max
    }

    /// Counts the end of a request.
    pub(crate) fn leave(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the number of requests given to the member, and the number of failed requests.
    pub fn request_counts(&self) -> (u64, u64) {
        let counters = &self.counters;
        (
            counters.elected.load(Ordering::Relaxed),
            counters.errors.load(Ordering::Relaxed),
        )
    }

    /// Returns the number of ejections.
    pub(crate) fn ejections(&self) -> u32 {
        self.ejections.load(Ordering::Acquire)
    }

    /// Returns true if an ejected member may get a request of a client on trial. A slow upload would leave the verdict
    /// to its client, so a request without a gathered body is the trial only if no other request came for a while.
    pub(crate) fn is_due_for_trial(&self, client: u64, now_ms: u64, is_gathered: bool) -> bool {
        let wait_ms = match is_gathered {
            true => 0,
            false => UPLOAD_TRIAL_SECONDS * 1_000,
        };
        let until_ms = self.ejected_until_ms.load(Ordering::Relaxed);
        now_ms >= until_ms.saturating_add(wait_ms)
            && !self.is_on_trial(now_ms)
            && !self.lock().ejection.is_paused_for(client, now_ms)
    }

    /// Returns true if the requests of a client stay away from the member.
    #[cold]
    pub(crate) fn is_paused_for(&self, client: u64, now_ms: u64) -> bool {
        self.lock().ejection.is_paused_for(client, now_ms)
    }

    /// Returns true while a request is under way on trial, and its time for a verdict is not over.
    pub(crate) fn is_on_trial(&self, now_ms: u64) -> bool {
        now_ms < self.trial_until_ms.load(Ordering::Acquire)
    }

    /// Begins the trial of a request. After `until_ms` the next request may be a trial as well.
    pub(crate) fn begin_trial(&self, until_ms: u64) -> Trial {
        self.trial_until_ms.store(until_ms, Ordering::Release);
        Trial(until_ms)
    }

    /// Ends a trial, unless another one has begun.
    pub(crate) fn end_trial(&self, Trial(until_ms): Trial) {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self
            .trial_until_ms
            .compare_exchange(until_ms, 0, acquire, relaxed);
    }

    /// Returns the share of the weight under a slow start of `slow_start_ms`.
    pub(crate) fn weight_share(&self, now_ms: u64, slow_start_ms: u64) -> WeightShare {
        let recovered_at_ms = self.recovered_at_ms.load(Ordering::Relaxed);
        WeightShare::at(now_ms, recovered_at_ms, slow_start_ms)
    }

    /// Returns the time of the last recovery in milliseconds; 0 without a recovery.
    pub(crate) fn recovered_at_ms(&self) -> u64 {
        self.recovered_at_ms.load(Ordering::Relaxed)
    }

    /// Records a failed request that was sent after the last ejection.
    pub(crate) fn record_failure(
        &self,
        failed: &FailedRequest,
        ejections: u32,
    ) -> Option<StateChange> {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        let mut core = self.lock();
        if core.settings.ignores_errors || self.ejections() != ejections {
            return None;
        }
        let answered_at_ms = self.answered_at_ms.load(Ordering::Relaxed);
        let settings = Arc::clone(&core.ejection_settings);
        if !core.ejection.counts(failed, answered_at_ms, &settings) {
            return None;
        }
        // A failed request confirms the failed checks of the member.
        let failures_max = match core.streak.is_failed() {
            true => 1,
            false => settings.failures,
        };
        core.streak.set_refuted(false);
        if core
            .ejection
            .record_failure(failed, answered_at_ms, failures_max, &settings)
        {
            self.ejections.fetch_add(1, Ordering::AcqRel);
        }
        let reason = match failed.kind {
            RequestFailure::Connection => ChangeReason::ConnectionFailed,
            RequestFailure::Tls => ChangeReason::TlsFailed,
            RequestFailure::Http2 => ChangeReason::Http2Failed,
            RequestFailure::Answer | RequestFailure::Content => {
                ChangeReason::RequestsFailed(core.ejection.failures())
            }
        };
        self.publish(&mut core, reason, failed.now_ms)
    }

    /// Records that another member answered a request of a client that this member left without a byte of an answer,
    /// after the last ejection.
    pub(crate) fn record_answer_elsewhere(&self, client: u64, ejections: u32, now_ms: u64) {
        let mut core = self.lock();
        if core.settings.ignores_errors || self.ejections() != ejections {
            return;
        }
        let settings = Arc::clone(&core.ejection_settings);
        core.ejection.pause_for(client, now_ms, &settings);
        self.store(&core);
    }

    /// Records the head of an answer to a request that was sent after the last ejection.
    pub(crate) fn record_success(&self, ejections: u32, now_ms: u64) -> Option<StateChange> {
        if self.answered_at_ms.load(Ordering::Relaxed) != now_ms {
            self.answered_at_ms.store(now_ms, Ordering::Relaxed);
        }
        if !self.has_failures.load(Ordering::Relaxed) {
            return None;
        }
        let mut core = self.lock();
        if self.ejections() != ejections {
            return None;
        }
        core.ejection.record_answer(now_ms);
        core.streak.set_refuted(true);
        self.publish(&mut core, ChangeReason::RequestSucceeded, now_ms)
    }

    /// Records a complete content of an answer to a request that was sent after the last ejection.
    pub(crate) fn record_content(&self, ejections: u32) {
        if !self.has_failures.load(Ordering::Relaxed) {
            return;
        }
        let mut core = self.lock();
        if self.ejections() == ejections {
            core.ejection.record_content();
            self.store(&core);
        }
    }

    /// Returns true if an answer with the status counts as a failure.
    pub(crate) fn counts_as_failure(&self, status: u16) -> bool {
        self.has_failure_statuses.load(Ordering::Relaxed)
            && self.lock().ejection_settings.statuses.contains(&status)
    }

    /// Starts a check if a check is due, and returns its settings.
    pub(crate) fn begin_check(&self, now_ms: u64) -> Option<Arc<CheckSettings>> {
        let mut core = self.lock();
        let settings = core.check_settings()?;
        let is_due = core.plan.begin(milliseconds(settings.every), now_ms);
        is_due.then_some(settings)
    }

    /// Records the end of a check.
    pub(crate) fn end_check(&self) {
        self.lock().plan.end();
    }

    /// Adapts the plan of the checks to the settings. The first check of a new plan waits for the part
    /// `index / count` of the interval.
    pub(crate) fn plan_checks(&self, index: usize, count: usize, now_ms: u64) {
        let mut core = self.lock();
        let settings = core.check_settings();
        let every_ms = settings.map(|settings| milliseconds(settings.every));
        let offset_ms = first_check_offset_ms(every_ms.unwrap_or(0), index, count);
        core.plan.configure(every_ms, offset_ms, now_ms);
    }

    /// Replaces the value of the signed session cookie.
    pub(crate) fn set_cookie(&self, cookie: Option<Arc<str>>) {
        self.lock().cookie = cookie;
    }

    /// Records the result of a check.
    pub(crate) fn record_check(&self, outcome: CheckOutcome, now_ms: u64) -> Option<StateChange> {
        let mut core = self.lock();
        let check = core.check_settings()?;
        let was_failed = core.streak.is_failed();
        core.streak.record(outcome, check.rise, check.fall);
        core.last_check = Some((outcome, now_ms));
        let reason = match outcome {
            CheckOutcome::Passed => ChangeReason::ChecksPassed,
            CheckOutcome::Failed(failure) => ChangeReason::ChecksFailed(failure),
        };
        if was_failed && !core.streak.is_failed() {
            // Requests failed while the member was down. The checks prove the recovery.
            core.ejection.clear();
        }
        self.publish(&mut core, reason, now_ms)
    }

    /// Forgets that requests succeeded in spite of failed checks. Requests from before the doubt about the checks
    /// prove nothing.
    pub(crate) fn require_proof(&self) {
        let mut core = self.lock();
        core.streak.set_refuted(false);
        self.store(&core);
    }

    /// Changes the member under the lock.
    pub(crate) fn change(
        &self,
        reason: ChangeReason,
        now_ms: u64,
        change: impl FnOnce(&mut MemberCore),
    ) -> Option<StateChange> {
        let mut core = self.lock();
        change(&mut core);
        self.publish(&mut core, reason, now_ms)
    }

    /// Adopts new settings. `reason` is the reason of a changed state.
    pub(crate) fn configure(
        &self,
        settings: &MemberSettings,
        shared: &SharedSettings,
        reason: ChangeReason,
        now_ms: u64,
    ) -> Option<StateChange> {
        let busy_max = settings.connections_max.unwrap_or(usize::MAX);
        self.busy_max.store(busy_max, Ordering::Relaxed);
        self.tunnels_max
            .store(shared.tunnels_max(settings), Ordering::Relaxed);
        let has_failure_statuses = !shared.ejection.statuses.is_empty();
        self.has_failure_statuses
            .store(has_failure_statuses, Ordering::Relaxed);
        self.change(reason, now_ms, |core| {
            core.configure(settings, shared);
            core.state_since_ms.get_or_insert(now_ms);
        })
    }

    /// Reads the state under the lock.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&MemberCore) -> T) -> T {
        read(&self.lock())
    }

    /// Publishes the standing, and records a change of the state.
    fn publish(
        &self,
        core: &mut MemberCore,
        reason: ChangeReason,
        now_ms: u64,
    ) -> Option<StateChange> {
        let old = self.standing().state();
        let new = core.standing().state();
        if !old.is_usable() && new.is_usable() {
            self.recovered_at_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        self.store(core);
        let change = StateChange {
            old,
            new,
            reason,
            at_ms: now_ms,
        };
        (old != new).then(|| {
            core.history.push(change);
            core.state_since_ms = Some(now_ms);
            change
        })
    }

    /// Stores the state for choices and for successful requests, which take no lock.
    fn store(&self, core: &MemberCore) {
        let until_ms = core.ejection.until_ms().unwrap_or(0);
        self.ejected_until_ms.store(until_ms, Ordering::Relaxed);
        let has_failures = core.ejection.has_failures() || core.streak.is_unrefuted_failure();
        self.has_failures.store(has_failures, Ordering::Relaxed);
        let has_checks = core.check_settings().is_some();
        self.has_checks.store(has_checks, Ordering::Relaxed);
        self.standing
            .store(core.standing().pack(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, MemberCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
