//! Server-sent events with the present state of the server (WHATWG HTML §9.2): first all sections of the page, and
//! then the changes.
//!
//! The changes come once a second. On a large page, changed states and edits come once a second, and numbers every 5 s.
//! All streams send at the same moments of the clock, so that they share the snapshot and its rendering.

use super::access::Visitor;
use super::channel::ManagerContext;
use super::gzip::ContentEncoder;
use super::live_part::LivePart;
use super::places::Place;
use super::snapshot::Snapshot;
use crate::manager::limits::{
    MANAGER_LARGE_PAGE_BYTES, MANAGER_LARGE_PAGE_MILLISECONDS, MANAGER_SNAPSHOT_MILLISECONDS,
};
use data_plane::handler::pipe::{PipeWriter, counted_pipe};
use data_plane::handler::{Request, ResponseBody};
use data_plane::limits::PIPE_BYTES;
use std::sync::Arc;
use std::time::Duration;
use wire::reject::Reject;

/// Stream of events for one client.
struct EventStream {
    context: Arc<ManagerContext>,
    visitor: Visitor,
    writer: PipeWriter,
    encoder: ContentEncoder,
    /// Sections that the client has.
    shown: Option<Arc<LivePart>>,
    _place: Place,
}

/// Returns the body of a stream of events, plain or compressed.
pub(super) async fn events(
    context: &Arc<ManagerContext>,
    visitor: &Visitor,
    request: &Request,
    is_gzip: bool,
) -> Result<ResponseBody, Reject> {
    let place = context.streams.take(request.peer, visitor.has_login(), 1);
    let place = place.ok_or(Reject::CALLS_BUSY)?;
    let first = context.snapshot().await?;
    let (writer, reader) = counted_pipe(PIPE_BYTES, &request.memory);
    let stream = EventStream {
        context: Arc::clone(context),
        visitor: visitor.clone(),
        writer,
        encoder: ContentEncoder::new(is_gzip),
        shown: None,
        _place: place,
    };
    Ok(ResponseBody::Stream {
        length: None,
        reader,
        work: Box::pin(stream.run(first)),
    })
}

impl EventStream {
    /// Sends an event for each snapshot, as long as the client reads and its rights last. The rights end with the
    /// session and with the configuration. The control plane makes no snapshot during a drain, so a drain ends the
    /// stream.
    async fn run(mut self, first: Arc<Snapshot>) {
        let generation = first.status.generation;
        let mut next = Ok(first);
        while let Ok(snapshot) = next
            && snapshot.status.generation == generation
            && self.may_read()
        {
            let Some(event) = self.event(&snapshot) else {
                return;
            };
            let changes = snapshot.changes;
            drop(snapshot);
            if self.writer.write_all(&event).await.is_err() {
                return;
            }
            self.wait(changes).await;
            next = self.context.snapshot().await;
        }
        let mut end = Vec::new();
        self.encoder.finish(&mut end);
        if self.writer.write_all(&end).await.is_ok() {
            self.writer.finish();
        }
    }

    /// Returns the bytes of the event for a snapshot, perhaps compressed; None after a failed compression.
    fn event(&mut self, snapshot: &Snapshot) -> Option<Vec<u8>> {
        let now = Arc::clone(snapshot.live(self.visitor.rights()));
        let mut event = Vec::new();
        let is_coded = match self.shown.replace(Arc::clone(&now)) {
            None => self.encoder.push(now.whole(), &mut event),
            Some(shown) if Arc::ptr_eq(&shown, &now) => true,
            Some(shown) => self.encoder.push(&now.since(&shown), &mut event),
        };
        is_coded.then_some(event)
    }

    /// Waits until the next event is due. `changes` is the number of changes that the client knows
    /// ([`ManagerContext::changes`]).
    async fn wait(&self, changes: u64) {
        let mut shown = self.shown.iter();
        let is_large = shown.any(|it| it.html().as_str().len() >= MANAGER_LARGE_PAGE_BYTES);
        let mut now_ms = self.context.now_ms();
        let numbers_ms = if is_large {
            next_moment(now_ms, MANAGER_LARGE_PAGE_MILLISECONDS)
        } else {
            now_ms
        };
        loop {
            let until_ms = next_moment(now_ms, MANAGER_SNAPSHOT_MILLISECONDS);
            tokio::time::sleep(Duration::from_millis(until_ms - now_ms)).await;
            now_ms = self.context.now_ms();
            if now_ms >= numbers_ms || self.context.changes() != changes {
                return;
            }
        }
    }

    /// Returns false after the end of the client's session.
    fn may_read(&self) -> bool {
        match &self.visitor {
            Visitor::Session(id) => self.context.has_session(id),
            _ => true,
        }
    }
}

/// Returns the first multiple of the interval after a time.
fn next_moment(now_ms: u64, interval_ms: u64) -> u64 {
    (now_ms / interval_ms + 1) * interval_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_send_at_the_same_moments() {
        for (now_ms, expected) in [(0, 1_000), (1, 1_000), (999, 1_000), (1_000, 2_000)] {
            assert_eq!(next_moment(now_ms, 1_000), expected, "{now_ms}");
        }
        // Numbers come at the beginning of a second as well, with the snapshot of the other streams.
        const {
            assert!(MANAGER_LARGE_PAGE_MILLISECONDS.is_multiple_of(MANAGER_SNAPSHOT_MILLISECONDS));
        }
    }
}
