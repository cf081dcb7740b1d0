//! Table of a worker's connections: their phases and deadlines.
//!
//! Deadlines need no timer per connection. A sweep every 500 ms shuts down the sockets of connections past
//! their deadlines. The connection then reads end of file, looks up the expired phase, and answers the
//! client if an answer is still possible.

use crate::limits::{self, Limits};
use crate::serve::connection_entry::{Activity, ConnectionEntry};
use crate::serve::connection_ledger::ConnectionEntryGuard;
use crate::serve::ending_call::BusyConnection;
use crate::serve::socket::TcpSocket;
use base::sys;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Phase of a connection; the phase determines the deadline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionPhase {
    /// The TLS handshake is in progress.
    Handshake,
    /// The connection waits between two requests.
    Idle,
    /// The first bytes of a request head have arrived.
    Head,
    /// A request body is being received.
    Body,
    /// The server is working on the request, so no deadline applies to the peer.
    Busy,
    /// A response waits until the peer takes more bytes.
    Write,
    /// The connection is closing, and the worker discards input of the peer.
    Linger,
}

/// Rows of all open connections with a socket.
#[derive(Default)]
pub(super) struct ConnectionTable {
    rows: Vec<ConnectionRow>,
    free: Vec<usize>,
    open: usize,
}

struct ConnectionRow {
    socket: Option<Rc<TcpSocket>>,
    /// Entry in the ledger of connections.
    ledger_entry: Option<ConnectionEntryGuard>,
    phase: ConnectionPhase,
    expired: bool,
    deadline_ms: u64,
    /// Waker to call at the deadline, at a drain and at an eviction, instead of a shutdown of the socket.
    waker: Option<Waker>,
    /// Start of the phase, in milliseconds of the worker's clock.
    since_ms: u64,
    /// Count of bytes from which the progress of the client is measured: in the body phase, the bytes of
    /// the body received before the phase began; in the write phase, the bytes acknowledged by the client
    /// at the last check.
    progress_from: u64,
    /// Acknowledged bytes used up by pauses of the client.
    paused: u64,
    /// Bytes that the client had acknowledged when they last showed progress with a response that waits for the client,
    /// and the moment. Noted only while all connections are taken.
    acknowledged: u64,
    acknowledged_ms: u64,
    /// Rate of the client, measured while all connections are taken.
    rate: ClientRateSample,
}

/// Rate at which a client takes and sends bytes, by the last sweeps.
#[derive(Copy, Clone, Default)]
struct ClientRateSample {
    /// Moment of the last sample in milliseconds; 0 before the first.
    at_ms: u64,
    /// Bytes of the connection at the last sample.
    bytes: u64,
    /// Mean of the last rates in bytes a second, the last with a weight of a half.
    bytes_per_second: Option<u64>,
}

impl ClientRateSample {
    /// Records the bytes of the connection. After a pause without samples, the measurement begins anew.
    fn note(&mut self, bytes: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let is_next = self.at_ms > 0 && (1..=RATE_SAMPLE_MILLISECONDS_MAX).contains(&passed_ms);
        self.bytes_per_second = is_next.then(|| {
            let rate = bytes.saturating_sub(self.bytes).saturating_mul(1_000) / passed_ms;
            let mean = self.bytes_per_second;
            mean.map_or(rate, |mean| (mean + rate) / 2)
        });
        (self.at_ms, self.bytes) = (now_ms, bytes);
    }

    /// Returns the measured rate in bytes a second, unless the last sample is too old.
    fn recent(&self, now_ms: u64) -> Option<u64> {
        let is_recent = now_ms.saturating_sub(self.at_ms) <= RATE_SAMPLE_MILLISECONDS_MAX;
        self.bytes_per_second.filter(|_| is_recent)
    }
}

/// Longest time between two samples of one measurement of a rate. A sweep takes place every 500 ms.
const RATE_SAMPLE_MILLISECONDS_MAX: u64 = 2_000;

/// Value of [`ConnectionRow::progress_from`] before the kernel was asked for the bytes acknowledged by
/// the client.
const NOT_ASKED: u64 = u64::MAX;

impl ConnectionPhase {
    /// Returns the activity for the ledger: idle where a connection in the phase may be evicted in favour
    /// of another connection.
    fn standing(self, now_ms: u64) -> Activity {
        match self {
            ConnectionPhase::Handshake => {
                Activity::Idle(now_ms + limits::HANDSHAKE_LEAD_MILLISECONDS)
            }
            ConnectionPhase::Idle | ConnectionPhase::Head | ConnectionPhase::Linger => {
                Activity::Idle(now_ms)
            }
            ConnectionPhase::Busy => Activity::Busy(now_ms),
            ConnectionPhase::Body | ConnectionPhase::Write => Activity::AwaitsClient(now_ms),
        }
    }
}

impl ConnectionRow {
    fn stand(&self, standing: Activity) {
        if let Some(ledger_entry) = &self.ledger_entry {
            ledger_entry.set_activity(standing);
        }
    }

    /// Asks the kernel for the total number of bytes acknowledged by the client.
    fn acknowledged(&self) -> u64 {
        let socket = self.socket.as_ref();
        socket.map_or(0, |it| sys::peer_bytes(it.as_fd()).acknowledged)
    }

    /// Returns true if the client has acknowledged the minimum progress of a response since the response
    /// began to wait, or since the last call; or if the client has taken enough bytes before to be allowed
    /// a pause. The kernel's buffers are so large that the socket of a slow client becomes writable too
    /// rarely to show progress.
    fn is_taken(&mut self) -> bool {
        let now = self.acknowledged();
        let before = std::mem::replace(&mut self.progress_from, now);
        if now >= before.saturating_add(limits::RESPONSE_PROGRESS_BYTES_MIN) {
            return true;
        }
        let pauses_max = limits::RESPONSE_PAUSES_MAX * limits::RESPONSE_PAUSE_BYTES;
        let spent = self.paused.max(now.saturating_sub(pauses_max));
        self.paused = spent + limits::RESPONSE_PAUSE_BYTES;
        let may_pause = now >= self.paused;
        if !may_pause {
            self.paused = spent;
        }
        may_pause
    }
}

impl ConnectionTable {
    /// Returns the number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns the socket of the connection in the row.
    pub(super) fn socket(&self, index: usize) -> Option<&Rc<TcpSocket>> {
        self.rows.get(index)?.socket.as_ref()
    }

    /// Returns the index of the row for the next connection.
    pub(super) fn next_row(&self) -> usize {
        self.free.last().copied().unwrap_or(self.rows.len())
    }

    /// Puts a connection into [`ConnectionTable::next_row`].
    pub(super) fn fill(
        &mut self,
        index: usize,
        socket: Rc<TcpSocket>,
        ledger_entry: ConnectionEntryGuard,
    ) {
        self.free.pop();
        self.open += 1;
        let row = ConnectionRow {
            socket: Some(socket),
            ledger_entry: Some(ledger_entry),
            phase: ConnectionPhase::Busy,
            expired: false,
            deadline_ms: u64::MAX,
            waker: None,
            since_ms: 0,
            progress_from: 0,
            paused: 0,
            acknowledged: 0,
            acknowledged_ms: 0,
            rate: ClientRateSample::default(),
        };
        match self.rows.get_mut(index) {
            Some(free) => *free = row,
            None => self.rows.push(row),
        }
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, index: usize) {
        let Some(row) = self.rows.get_mut(index) else {
            return;
        };
        row.socket = None;
        row.ledger_entry = None;
        row.waker = None;
        self.free.push(index);
        self.open -= 1;
        if self.open == 0 {
            *self = ConnectionTable::default();
        }
    }

    /// Ends connections past their deadlines. Returns the number of late connections, idle connections not
    /// included.
    pub(super) fn expire(&mut self, now_ms: u64, stall_ms: u64) -> u64 {
        let mut ended = 0;
        for row in &mut self.rows {
            if row.socket.is_some()
                && row.phase == ConnectionPhase::Write
                && row.progress_from == NOT_ASKED
            {
                row.progress_from = row.acknowledged();
            }
            if row.deadline_ms > now_ms || row.expired {
                continue;
            }
            if row.phase == ConnectionPhase::Write && row.waker.is_none() && row.is_taken() {
                row.deadline_ms = now_ms + stall_ms;
                continue;
            }
            let Some(socket) = &row.socket else { continue };
            row.expired = true;
            // Silence between two requests is no fault of the client.
            ended += u64::from(row.phase != ConnectionPhase::Idle);
            if let Some(waker) = &row.waker {
                waker.wake_by_ref();
                continue;
            }
            // Where a response can still be sent, only the read side is shut down.
            let _ = match row.phase {
                ConnectionPhase::Idle | ConnectionPhase::Head | ConnectionPhase::Body => {
                    sys::shutdown_read(socket.as_fd())
                }
                _ => sys::shutdown_both(socket.as_fd()),
            };
        }
        ended
    }

    /// Measures the rates of the clients, and records in the ledger of connections that clients take their responses. The
    /// kernel's buffers are so large that the socket of a client with 50 KB/s becomes writable every 4 s.
    pub(super) fn note_rates(&mut self, now_ms: u64) {
        for row in &mut self.rows {
            let awaits_client = matches!(row.phase, ConnectionPhase::Body | ConnectionPhase::Write);
            let Some(socket) = row.socket.as_ref().filter(|_| awaits_client) else {
                continue;
            };
            let bytes = sys::peer_bytes(socket.as_fd());
            let acknowledged = bytes.acknowledged;
            row.rate.note(acknowledged + bytes.received, now_ms);
            if row.phase == ConnectionPhase::Write
                && acknowledged >= row.acknowledged + limits::CLIENT_PROGRESS_BYTES_MIN
            {
                row.acknowledged = acknowledged;
                row.acknowledged_ms = now_ms;
                row.stand(Activity::AwaitsClient(now_ms));
            }
        }
    }

    /// Returns true if the connection in the row is idle, with a deadline before `deadline_ms`.
    pub(super) fn is_idle_until(&self, index: usize, deadline_ms: u64) -> bool {
        let row = self.rows.get(index);
        row.is_some_and(|row| row.phase == ConnectionPhase::Idle && row.deadline_ms < deadline_ms)
    }

    /// Wakes the tasks of connections with a waker and a request under way.
    pub(super) fn wake_busy(&self) {
        for row in &self.rows {
            let entry = row.ledger_entry.as_ref().map(ConnectionEntryGuard::entry);
            let is_idle =
                |entry: &Arc<ConnectionEntry>| matches!(entry.standing(), Activity::Idle(_));
            if let Some(waker) = &row.waker
                && !entry.is_some_and(is_idle)
            {
                waker.wake_by_ref();
            }
        }
    }

    /// Shuts down idle connections, and wakes the tasks of connections with a waker.
    pub(super) fn end_idle(&mut self) {
        for row in &mut self.rows {
            if let Some(waker) = &row.waker {
                waker.wake_by_ref();
                continue;
            }
            if let (Some(socket), ConnectionPhase::Idle, false) =
                (&row.socket, row.phase, row.expired)
            {
                row.expired = true;
                let _ = sys::shutdown_read(socket.as_fd());
            }
        }
    }

    /// Returns true if the ledger has chosen `entry` for eviction, and the row still belongs to the entry.
    pub(super) fn is_chosen(&self, index: usize, entry: &Arc<ConnectionEntry>) -> bool {
        let ledger_entry = self
            .rows
            .get(index)
            .and_then(|row| row.ledger_entry.as_ref());
        ledger_entry.is_some_and(|own| Arc::ptr_eq(own.entry(), entry)) && entry.is_evicted()
    }

    /// Returns the rate of the client in the row, in bytes a second: measured by the last sweeps, or else the mean over
    /// `age_ms`, the age of the connection.
    pub(super) fn client_rate(&self, index: usize, age_ms: u64) -> u64 {
        let row = &self.rows[index];
        if let Some(rate) = row.rate.bytes_per_second {
            return rate;
        }
        let bytes = row.socket.as_ref().map(|it| sys::peer_bytes(it.as_fd()));
        let bytes = bytes.map_or(0, |bytes| bytes.acknowledged + bytes.received);
        bytes.saturating_mul(1_000) / age_ms.max(1)
    }

    /// Returns the connections of HTTP/1.1 with a request under way, by their rows. A trusted proxy is left out, since the
    /// client of its request is not known.
    pub(super) fn busy_h1(&self, now_ms: u64) -> impl Iterator<Item = BusyConnection<usize>> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(move |(index, row)| {
            let is_told = row.expired || row.waker.is_some();
            let entry = row.ledger_entry.as_ref().filter(|_| !is_told)?.entry();
            let activity = entry.standing();
            let is_busy = !matches!(activity, Activity::Idle(_)) && !entry.is_of_proxy;
            is_busy.then(|| BusyConnection {
                owner: index,
                client: entry.client,
                requests: 1,
                activity,
                rate: row.rate.recent(now_ms),
            })
        })
    }

    /// Makes the task of an evicted connection end the connection. Returns false if no connection is in the
    /// row.
    pub(super) fn end_evicted(&mut self, index: usize) -> bool {
        let row = &mut self.rows[index];
        match (&row.waker, &row.socket) {
            // The task looks up the reason for the wake-up and closes the connection in order.
            (Some(waker), _) => waker.wake_by_ref(),
            // The task of the connection reads end of file.
            (None, Some(socket)) => {
                row.expired = true;
                let _ = sys::shutdown_both(socket.as_fd());
            }
            (None, None) => return false,
        }
        true
    }

    /// Returns true if the connection in the row is to be evicted. For connections with a waker: other
    /// connections lose the socket instead.
    pub(super) fn is_evicted(&self, index: usize) -> bool {
        let ledger_entry = self.rows[index].ledger_entry.as_ref();
        ledger_entry.is_some_and(|ledger_entry| ledger_entry.entry().is_evicted())
    }

    /// Puts a connection into a phase, and sets the deadline of the phase. A head received in several parts
    /// keeps the deadline of the first byte.
    #[inline]
    pub(super) fn set_phase(
        &mut self,
        index: usize,
        phase: ConnectionPhase,
        limits: &Limits,
        now_ms: u64,
    ) {
        let row = &mut self.rows[index];
        let same = row.phase == phase;
        row.phase = phase;
        if !same || phase != ConnectionPhase::Head {
            row.stand(phase.standing(now_ms));
        }
        if let (false, ConnectionPhase::Write | ConnectionPhase::Linger) = (same, phase) {
            // After a late request, the client gets a new deadline for receiving the last response.
            row.expired = false;
        }
        let seconds = match phase {
            ConnectionPhase::Head if same => return,
            ConnectionPhase::Handshake => limits.handshake_seconds,
            ConnectionPhase::Idle => limits.idle_seconds,
            ConnectionPhase::Head => limits.head_seconds,
            ConnectionPhase::Write => {
                row.progress_from = NOT_ASKED;
                limits.write_stall_seconds
            }
            ConnectionPhase::Linger => limits::LINGER_SILENCE_SECONDS as u32,
            ConnectionPhase::Busy | ConnectionPhase::Body => {
                row.deadline_ms = u64::MAX;
                return;
            }
        };
        row.deadline_ms = now_ms + u64::from(seconds) * 1_000;
    }

    /// Sets the deadline of a request body after `seen` received bytes. The body must keep the minimum
    /// rate, with pauses of at most `patience` in all.
    pub(super) fn set_body_phase(
        &mut self,
        index: usize,
        seen: u64,
        patience: Duration,
        limits: &Limits,
        now_ms: u64,
    ) {
        let rate = u64::from(limits.body_rate_bytes_per_second.max(1));
        let row = &mut self.rows[index];
        if row.phase != ConnectionPhase::Body {
            // Time for which the body waited for the server doesn't count against the peer.
            row.phase = ConnectionPhase::Body;
            row.since_ms = now_ms;
            row.progress_from = seen;
        }
        row.stand(Activity::AwaitsClient(now_ms));
        row.deadline_ms =
            row.since_ms + patience.as_millis() as u64 + (seen - row.progress_from) * 1_000 / rate;
    }

    /// Records the activity of the connection in the ledger of connections.
    pub(super) fn set_activity(&self, index: usize, activity: Activity) {
        self.rows[index].stand(activity);
    }

    /// Sets the deadline of a lingering close. The client has been idle since the beginning of the close, whatever
    /// it sends, so that the connection gives way to other connections.
    pub(super) fn set_linger_deadline(&mut self, index: usize, deadline_ms: u64) {
        self.rows[index].deadline_ms = deadline_ms;
    }

    /// Marks the connection as busy before a task takes over. The task sets the phase when first polled;
    /// until then the connection must not count as idle, nor be evicted.
    pub(super) fn set_busy(&self, index: usize, now_ms: u64) {
        self.rows[index].stand(Activity::Busy(now_ms));
    }

    /// Sets the deadline of a connection with several deadlines to the earliest, `deadline_ms`. The
    /// deadline, a drain or an eviction wakes `waker` instead of shutting down the socket.
    pub(super) fn wake_at(
        &mut self,
        index: usize,
        phase: ConnectionPhase,
        deadline_ms: u64,
        standing: Activity,
        waker: &Waker,
    ) {
        let row = &mut self.rows[index];
        row.phase = phase;
        row.stand(match standing {
            Activity::AwaitsClient(since_ms) => {
                Activity::AwaitsClient(since_ms.max(row.acknowledged_ms))
            }
            standing => standing,
        });
        if row.deadline_ms != deadline_ms {
            row.progress_from = NOT_ASKED;
        }
        row.deadline_ms = deadline_ms;
        row.expired = false;
        let is_set = row.waker.as_ref().is_some_and(|set| set.will_wake(waker));
        if !is_set {
            row.waker = Some(waker.clone());
        }
    }

    /// Removes the waker, so that a deadline shuts down the socket again.
    pub(super) fn clear_waker(&mut self, index: usize) {
        self.rows[index].waker = None;
    }

    /// Returns true if the client makes progress with a response although the socket has no room for more:
    /// see `ConnectionRow::is_taken`.
    pub(super) fn is_client_progressing(&mut self, index: usize) -> bool {
        self.rows[index].is_taken()
    }

    /// Returns the phase with the deadline that ended the connection; `None` if no deadline has passed.
    pub(super) fn expired(&self, index: usize) -> Option<ConnectionPhase> {
        let row = &self.rows[index];
        row.expired.then_some(row.phase)
    }

    /// Prefetches a row into the processor's cache.
    pub(super) fn prefetch(&self, index: usize) {
        if let Some(row) = self.rows.get(index) {
            sys::prefetch(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::connection_entry::ConnectionOwner;
    use crate::serve::connection_entry::EvictionOrders;
    use crate::serve::connection_ledger::ConnectionLedger;
    use crate::serve::poller::Poller;
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    const STALL_MS: u64 = 30_000;
    const PAUSE_BYTES: usize = limits::RESPONSE_PAUSE_BYTES as usize;

    /// A response that waits for its client since the time 0. The kernel counts the bytes that the client acknowledges.
    struct WaitingResponse {
        table: ConnectionTable,
        server: TcpStream,
        client: TcpStream,
        taken: u64,
    }

    impl WaitingResponse {
        /// Begins a response, of which the client has taken `taken` bytes.
        fn after(taken: usize) -> WaitingResponse {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let poller = Rc::new(Poller::new().unwrap());
            let socket = TcpSocket::new(server.try_clone().unwrap().into(), poller, 0);
            let owner = ConnectionOwner::Row(Arc::<EvictionOrders>::default(), 0);
            let address = IpAddr::from(Ipv4Addr::LOCALHOST).into();
            let entry = Arc::<ConnectionLedger>::default().enter(address, 0, owner, 0);
            let mut table = ConnectionTable::default();
            table.fill(0, Rc::new(socket), entry.unwrap());
            let mut response = WaitingResponse {
                table,
                server,
                client,
                taken: 0,
            };
            response.take(taken);
            let limits = Limits {
                write_stall_seconds: (STALL_MS / 1_000) as u32,
                ..Limits::default()
            };
            response
                .table
                .set_phase(0, ConnectionPhase::Write, &limits, 0);
            // The first sweep asks the kernel for the bytes acknowledged so far.
            assert!(response.is_open_at(500));
            response
        }

        /// Makes the client take `count` bytes, and waits for the acknowledgment.
        fn take(&mut self, count: usize) {
            let mut part = vec![0; 4_096];
            for _ in 0..count.div_ceil(part.len()) {
                self.server.write_all(&part).unwrap();
                self.client.read_exact(&mut part).unwrap();
                self.taken += part.len() as u64;
            }
            while sys::peer_bytes(self.server.as_fd()).acknowledged < self.taken {
                std::thread::yield_now();
            }
        }

        /// Sweeps, and returns true if the connection goes on.
        fn is_open_at(&mut self, now_ms: u64) -> bool {
            let ended = self.table.expire(now_ms, STALL_MS);
            let expired = self.table.expired(0);
            assert_eq!(ended, u64::from(expired.is_some()));
            expired.is_none()
        }
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut_off_at_the_deadline() {
        let mut response = WaitingResponse::after(0);
        assert!(response.is_open_at(STALL_MS - 1));
        assert!(!response.is_open_at(STALL_MS));
    }

    #[test]
    fn acknowledged_bytes_are_progress_in_the_ledger() {
        let mut response = WaitingResponse::after(4_096);
        let standing = |response: &WaitingResponse| {
            let entry = response.table.rows[0].ledger_entry.as_ref();
            entry.unwrap().entry().standing()
        };
        response.table.note_rates(1_000);
        assert_eq!(standing(&response), Activity::AwaitsClient(1_000));
        response.table.note_rates(1_500);
        assert_eq!(standing(&response), Activity::AwaitsClient(1_000));
        response.take(4_096);
        response.table.note_rates(2_000);
        assert_eq!(standing(&response), Activity::AwaitsClient(2_000));
        // A connection with several requests knows only when it last wrote to the socket.
        let phase = ConnectionPhase::Write;
        let since = Activity::AwaitsClient(700);
        let table = &mut response.table;
        table.wake_at(0, phase, 60_000, since, Waker::noop());
        assert_eq!(standing(&response), Activity::AwaitsClient(2_000));
        // 0 and then 8,192 bytes a second. Without samples, the life of the connection counts.
        assert_eq!(response.table.client_rate(0, 1), 4_096);
        response.table.note_rates(9_000);
        assert_eq!(response.table.client_rate(0, 2_000), 4_096);
    }

    #[test]
    fn a_client_that_reads_slowly_is_not_cut_off() {
        let mut response = WaitingResponse::after(0);
        for nth in 1..10 {
            response.take(limits::RESPONSE_PROGRESS_BYTES_MIN as usize);
            assert!(response.is_open_at(nth * STALL_MS), "{nth}");
        }
        response.take(limits::RESPONSE_PROGRESS_BYTES_MIN as usize / 2);
        assert!(!response.is_open_at(10 * STALL_MS));
    }

    #[test]
    fn a_client_that_has_taken_much_may_pause() {
        for (taken, pauses) in [
            (PAUSE_BYTES / 2, 0),
            (PAUSE_BYTES, 1),
            (2 * PAUSE_BYTES, 2),
            (3 * PAUSE_BYTES, 3),
            (20 * PAUSE_BYTES, 3),
        ] {
            let mut response = WaitingResponse::after(taken);
            for nth in 1..=pauses {
                assert!(response.is_open_at(nth * STALL_MS), "{taken} {nth}");
            }
            assert!(!response.is_open_at((pauses + 1) * STALL_MS), "{taken}");
        }
    }

    #[test]
    fn progress_pays_for_the_next_pause() {
        let mut response = WaitingResponse::after(PAUSE_BYTES);
        let mut now_ms = 0;
        for _ in 0..5 {
            now_ms += STALL_MS;
            assert!(response.is_open_at(now_ms));
            response.take(PAUSE_BYTES);
            now_ms += STALL_MS;
            assert!(response.is_open_at(now_ms));
        }
    }
}
