//! A response that waits for the socket or the disk.

use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h1::send::{ResponseWriter, SendProgress};
use crate::serve::response_record::ResponseRecord;
use crate::serve::stall::StallClock;
use std::future::poll_fn;

/// A response not yet completely written to the socket.
pub(in crate::serve) struct UnsentResponse {
    pub(super) outgoing: ResponseWriter,
    pub(super) record: ResponseRecord,
    pub(super) after: AfterResponse,
    pub(super) started_us: u64,
}

impl UnsentResponse {
    /// Sends the remaining bytes of a response, and waits for the socket and the disk. Unread content is discarded
    /// meanwhile, because many clients take no response before they have sent the whole content.
    pub(super) async fn send(mut self: Box<Self>, connection: &mut Connection) -> AfterResponse {
        let context = connection.context.clone();
        let mut stall = StallClock::default();
        loop {
            let progress = poll_fn(|cx| {
                // Time has passed during the wait.
                context.clock.tick();
                if self.after == AfterResponse::Linger {
                    connection.poll_discard(cx);
                }
                let now_us = context.clock.micros();
                let (stream, disk) = (&mut connection.stream, &mut context.disk.borrow_mut());
                let sent = self.outgoing.poll_send(stream, disk, now_us, cx);
                context.clock.tick();
                if stall.note(true, self.outgoing.sent, context.clock.millis()) {
                    connection.phase(ConnectionPhase::Write);
                }
                sent
            })
            .await;
            match progress {
                Ok(SendProgress::Done) => break,
                Ok(SendProgress::Disk(read)) => {
                    // The wait was for the disk and not for the client, so the stall time restarts.
                    stall = StallClock::default();
                    match context.pool.run(move || read.run()).await {
                        Ok(Ok(bytes)) => self.outgoing.feed(bytes),
                        _ => {
                            self.after = AfterResponse::Reset;
                            break;
                        }
                    }
                }
                Err(_) => {
                    self.after = AfterResponse::Reset;
                    break;
                }
            }
        }
        let micros = context.clock.micros() - self.started_us;
        let sent = self.outgoing.sent;
        self.record.count(sent, Some(micros), &context);
        self.record.log(sent, &context);
        self.after
    }
}
