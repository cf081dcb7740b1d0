//! Server-sent events with the present state of the server (WHATWG HTML §9.2), one event a second: first all
//! sections of the page, and then the changes.

use super::access::Visitor;
use super::channel::ManagerContext;
use super::gzip::ContentEncoder;
use super::live_part::LivePart;
use super::places::Place;
use super::snapshot::Snapshot;
use crate::handler::pipe::{PipeWriter, counted_pipe};
use crate::handler::{Request, ResponseBody};
use crate::limits::{
    MANAGER_LARGE_EVENT_BYTES, MANAGER_LARGE_EVENT_MILLISECONDS, MANAGER_SNAPSHOT_MILLISECONDS,
    PIPE_BYTES,
};
use crate::wire::reject::Reject;
use std::sync::Arc;
use std::time::Duration;

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
            drop(snapshot);
            if self.writer.write_all(&event.bytes).await.is_err() {
                return;
            }
            tokio::time::sleep(event.pause()).await;
            next = self.context.snapshot().await;
        }
        let mut end = Vec::new();
        self.encoder.finish(&mut end);
        if self.writer.write_all(&end).await.is_ok() {
            self.writer.finish();
        }
    }

    /// Returns the bytes of the event for a snapshot; None after a failed compression.
    fn event(&mut self, snapshot: &Snapshot) -> Option<Event> {
        let now = Arc::clone(snapshot.live(self.visitor.rights()));
        let mut event = Event::default();
        let is_coded = match self.shown.replace(Arc::clone(&now)) {
            None => self.encoder.push(now.whole(), &mut event.bytes),
            Some(shown) if Arc::ptr_eq(&shown, &now) => true,
            Some(shown) => {
                let changes = now.since(&shown);
                event.changed_bytes = changes.as_str().len();
                self.encoder.push(&changes, &mut event.bytes)
            }
        };
        is_coded.then_some(event)
    }

    /// Returns false after the end of the client's session.
    fn may_read(&self) -> bool {
        match &self.visitor {
            Visitor::Session(id) => self.context.has_session(id),
            _ => true,
        }
    }
}

/// Event on its way to the client.
#[derive(Default)]
struct Event {
    /// Bytes of the event, perhaps compressed.
    bytes: Vec<u8>,
    /// Plain bytes of the changes; 0 for the first event.
    changed_bytes: usize,
}

impl Event {
    /// Returns the time until the next event. Large changes follow one another more slowly, because a browser needs
    /// a part of a second to show thousands of changed rows.
    fn pause(&self) -> Duration {
        Duration::from_millis(match self.changed_bytes {
            ..MANAGER_LARGE_EVENT_BYTES => MANAGER_SNAPSHOT_MILLISECONDS,
            _ => MANAGER_LARGE_EVENT_MILLISECONDS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_changes_follow_one_another_more_slowly() {
        let pause = |changed_bytes| {
            let bytes = Vec::new();
            Event {
                bytes,
                changed_bytes,
            }
            .pause()
            .as_millis() as u64
        };
        assert_eq!(pause(0), MANAGER_SNAPSHOT_MILLISECONDS);
        assert_eq!(
            pause(MANAGER_LARGE_EVENT_BYTES),
            MANAGER_LARGE_EVENT_MILLISECONDS
        );
        // A snapshot is at most one interval old, so a failed member is shown within 3 s.
        const { assert!(MANAGER_LARGE_EVENT_MILLISECONDS + MANAGER_SNAPSHOT_MILLISECONDS <= 3_000) };
    }
}
