//! Server-sent events with the present state of the server (WHATWG HTML §9.2), one event a second.

use super::access::Visitor;
use super::channel::{ManagerContext, Snapshot, StreamPlace};
use crate::base::body_memory::BodyAccount;
use crate::handler::ResponseBody;
use crate::handler::pipe::{PipeWriter, counted_pipe};
use crate::limits::{MANAGER_SNAPSHOT_MILLISECONDS, PIPE_BYTES};
use crate::wire::reject::Reject;
use std::sync::Arc;
use std::time::Duration;

/// Stream of events for one client.
struct EventStream {
    context: Arc<ManagerContext>,
    visitor: Visitor,
    writer: PipeWriter,
    _place: StreamPlace,
}

/// Returns the body of a stream of events. `memory` is the account of the request.
pub(super) async fn events(
    context: &Arc<ManagerContext>,
    visitor: &Visitor,
    memory: &BodyAccount,
) -> Result<ResponseBody, Reject> {
    let place = context.stream_place().ok_or(Reject::CALLS_BUSY)?;
    let first = context.snapshot().await?;
    let (writer, reader) = counted_pipe(PIPE_BYTES, memory);
    let stream = EventStream {
        context: Arc::clone(context),
        visitor: visitor.clone(),
        writer,
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
            if self
                .writer
                .write_all(snapshot.event(self.visitor.has_login()).as_bytes())
                .await
                .is_err()
            {
                return;
            }
            drop(snapshot);
            tokio::time::sleep(Duration::from_millis(MANAGER_SNAPSHOT_MILLISECONDS)).await;
            next = self.context.snapshot().await;
        }
        self.writer.finish();
    }

    /// Returns false after the end of the client's session.
    fn may_read(&self) -> bool {
        match &self.visitor {
            Visitor::Session(id) => self.context.has_session(id),
            _ => true,
        }
    }
}
