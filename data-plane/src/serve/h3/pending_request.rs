//! A waiting request of HTTP/3 in the view of the connection: when the client began to hold the response,
//! and how the request is ended when the place is needed for another client.

use base::client_network::ClientNetwork;
use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::task::Wake;
use tokio::sync::Notify;

/// State of one waiting request.
pub(super) struct PendingRequest {
    /// Start of the stall, in milliseconds of the worker's clock; the largest number while the client
    /// doesn't hold the response.
    stalled_ms: Cell<u64>,
    /// Bytes of the request head in memory.
    head_bytes: Cell<usize>,
    /// Client of the request.
    client: Cell<Option<ClientNetwork>>,
    /// True if the request was ordered to end.
    is_told: Cell<bool>,
    end: Notify,
}

/// Error of a request that ended because another client needed the place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct ShedError;

impl PendingRequest {
    pub(super) fn new() -> PendingRequest {
        PendingRequest {
            stalled_ms: Cell::new(u64::MAX),
            head_bytes: Cell::new(0),
            client: Cell::new(None),
            is_told: Cell::new(false),
            end: Notify::new(),
        }
    }

    pub(super) fn stalled_ms(&self) -> u64 {
        self.stalled_ms.get()
    }

    pub(super) fn head_bytes(&self) -> usize {
        self.head_bytes.get()
    }

    pub(super) fn set_head_bytes(&self, bytes: usize) {
        self.head_bytes.set(bytes);
    }

    pub(super) fn set_client(&self, client: ClientNetwork) {
        self.client.set(Some(client));
    }

    /// Returns true if the request is of `client` and was not ordered to end.
    pub(super) fn may_be_shed_for(&self, client: ClientNetwork) -> bool {
        self.client.get() == Some(client) && !self.is_told.get()
    }

    /// Records when the client began to hold the response; the largest number where the client doesn't
    /// hold the response.
    pub(super) fn stalled_since(&self, at_ms: u64) {
        self.stalled_ms.set(at_ms);
    }

    /// Ends the request at the next poll.
    pub(super) fn shed(&self) {
        self.is_told.set(true);
        self.end.notify_one();
    }

    /// Resolves when the request is to end.
    pub(super) async fn is_shed(&self) {
        self.end.notified().await;
    }

    /// Waits for `work`, unless the request is to end earlier.
    pub(super) async fn unless_shed<F: Future>(&self, work: F) -> Result<F::Output, ShedError> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.is_shed() => Err(ShedError),
        }
    }
}

/// Waker of a connection with requests to end.
#[derive(Default)]
pub(super) struct ShedWaker(Notify);

impl ShedWaker {
    /// Resolves once after each wake.
    pub(super) async fn woken(&self) {
        self.0.notified().await;
    }
}

impl Wake for ShedWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
