//! Guard of a counted HTTP/3 connection.

use crate::serve::connection_ledger::ConnectionEntryGuard;
use crate::serve::context::WorkerContext;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Guard of a counted connection. Dropping the guard counts the connection as closed.
pub(super) struct H3ConnectionGuard {
    pub(super) context: Rc<WorkerContext>,
    /// Entry in the ledger of connections; `None` once removed.
    entered: Option<ConnectionEntryGuard>,
    /// True while the client's address is not validated and may be spoofed.
    is_unproven: bool,
}

impl H3ConnectionGuard {
    /// Counts a connection that begins. `is_unproven` is true while the client's address is not validated.
    pub(super) fn new(
        context: &Rc<WorkerContext>,
        entered: ConnectionEntryGuard,
        is_unproven: bool,
    ) -> H3ConnectionGuard {
        let quic = &context.shared.quic;
        if is_unproven {
            quic.unproven.fetch_add(1, Ordering::Relaxed);
        }
        context.count_opened();
        context.h3.taken.fetch_add(1, Ordering::Relaxed);
        quic.open.fetch_add(1, Ordering::Relaxed);
        H3ConnectionGuard {
            context: context.clone(),
            entered: Some(entered),
            is_unproven,
        }
    }

    /// Records that the client's address is validated.
    pub(super) fn prove(&mut self) {
        if std::mem::take(&mut self.is_unproven) {
            self.context
                .shared
                .quic
                .unproven
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for H3ConnectionGuard {
    fn drop(&mut self) {
        self.prove();
        self.entered = None;
        if std::thread::panicking() {
            self.context.stats.panics.increment();
        }
        self.context.h3.taken.fetch_sub(1, Ordering::Relaxed);
        self.context
            .shared
            .quic
            .open
            .fetch_sub(1, Ordering::Relaxed);
        self.context.count_closed();
    }
}
