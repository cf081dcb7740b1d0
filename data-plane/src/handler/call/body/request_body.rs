//! Body of a script's request: a first part in memory, and the rest from the client or from the spool.

use crate::handler::call::body::error::BodyError;
use crate::handler::call::body::rate::RatedPipe;
use crate::handler::call::body::spool::{BodySpool, SpooledBody};
use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader};
use crate::ledger::admission::CallSlot;
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{BODY_BUFFER_BYTES, BODY_BUFFER_PART_BYTES};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use wire::h1::body_decoder::BodyLength;

/// Body of a request, with a first part that may already be in memory.
pub struct RequestBody {
    /// First part of the body.
    pub first_part: Vec<u8>,
    /// Memory of the first part in the ledger; None for a body made by the server.
    pub reservation: Option<BodyReservation>,
    /// Rest of the body; None if the first part is the whole body.
    pub rest: Option<BodyRest>,
    /// Trailer section of a body without a rest: field lines with CRLF. Scripts get no trailers.
    pub trailers: Option<Box<[u8]>>,
}

/// Rest of a body after its first part.
pub enum BodyRest {
    /// Pipe from the client's connection.
    Streamed(PipeReader),
    /// Whole body on the disk.
    Spooled(SpooledBody),
}

/// Limit for bodies of unknown length that are spooled until their length is known.
#[derive(Clone)]
pub struct SpoolLimit {
    /// Spool on the disk.
    pub spool: Arc<BodySpool>,
    /// Maximum size of all spooled bodies together.
    pub bytes_max: u64,
}

impl RequestBody {
    /// Receives the whole of a short body or the first part of a long body from `reader`, and returns the
    /// body with its length, if known. A slow client does not occupy a script during that time.
    ///
    /// A short body without a Content-Length gets the length as counted, because most programs read exactly
    /// CONTENT_LENGTH bytes. A long body without a Content-Length is spooled to its end if `spool` allows
    /// spooling. If the memory is full, a body that needs no spooling is passed on unbuffered.
    pub(crate) async fn receive(
        reader: PipeReader,
        framing: BodyLength,
        peer: IpAddr,
        account: &BodyAccount,
        spool: Option<&SpoolLimit>,
    ) -> Result<(Option<RequestBody>, Option<u64>), BodyError> {
        let declared = match framing {
            BodyLength::None => return Ok((None, None)),
            BodyLength::Length(0) => return Ok((None, Some(0))),
            BodyLength::Length(length) => Some(length),
            BodyLength::Chunked => None,
        };
        // Most requests have no body, and their futures need no room for one.
        Box::pin(Self::receive_content(
            reader, declared, peer, account, spool,
        ))
        .await
    }

    /// Receives a body of the length `declared`; None for an unknown length.
    async fn receive_content(
        mut reader: PipeReader,
        declared: Option<u64>,
        peer: IpAddr,
        account: &BodyAccount,
        spool: Option<&SpoolLimit>,
    ) -> Result<(Option<RequestBody>, Option<u64>), BodyError> {
        let (mut first_part, mut reservation) = (Vec::new(), BodyReservation::new(account));
        let end = buffer(&mut reader, &mut first_part, &mut reservation).await?;
        let trailers = match end {
            BufferingEnd::Body => reader.take_trailers(),
            _ => None,
        };
        let (length, rest) = match (end, declared, spool) {
            (BufferingEnd::Body, None, _) => (Some(first_part.len() as u64), None),
            (BufferingEnd::Body, declared, _) => (declared, None),
            (BufferingEnd::MemoryFull, None, Some(_)) => return Err(BodyError::MemoryFull),
            (BufferingEnd::PartFull, None, Some(limit)) => {
                // The reservation covers the part on its way to the disk.
                let part = std::mem::take(&mut first_part);
                let spooled = limit
                    .spool
                    .store(peer, reader, part, limit.bytes_max)
                    .await?;
                (Some(spooled.length()), Some(BodyRest::Spooled(spooled)))
            }
            _ => (declared, Some(BodyRest::Streamed(reader))),
        };
        let body = RequestBody {
            reservation: (!first_part.is_empty()).then_some(reservation),
            first_part,
            rest,
            trailers,
        };
        Ok((Some(body), length))
    }

    /// Returns true if a part of the body has not arrived from the client.
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.rest, Some(BodyRest::Streamed(_)))
    }

    /// Waits for `slot`. Meanwhile the body is marked as queued, so that the pause does not delay other
    /// bodies of the client.
    pub(crate) async fn queued<T>(
        body: &mut Option<RequestBody>,
        slot: impl Future<Output = T>,
    ) -> T {
        let mut mark = |is_queued| {
            let rest = body.as_mut().and_then(|body| body.rest.as_mut());
            if let Some(BodyRest::Streamed(reader)) = rest {
                reader.queue(is_queued);
            }
        };
        mark(true);
        let slot = slot.await;
        mark(false);
        slot
    }
}

/// Reason for the end of buffering.
enum BufferingEnd {
    /// End of the body.
    Body,
    /// The first part has its maximum size.
    PartFull,
    /// The memory of all bodies is full.
    MemoryFull,
}

/// Buffers the first part of a body as data arrives. Bytes are counted on arrival, so a client that sends
/// no data takes no memory in the ledger.
async fn buffer(
    reader: &mut PipeReader,
    first_part: &mut Vec<u8>,
    reservation: &mut BodyReservation,
) -> Result<BufferingEnd, BodyError> {
    while first_part.len() < BODY_BUFFER_BYTES {
        let left = BODY_BUFFER_BYTES - first_part.len();
        match reader
            .take(first_part, left.min(BODY_BUFFER_PART_BYTES))
            .await
        {
            Ok(PipeRead::End) => return Ok(BufferingEnd::Body),
            Ok(PipeRead::Bytes(count)) if !reservation.try_grow(count, BodyPurpose::Gathering) => {
                return Ok(BufferingEnd::MemoryFull);
            }
            Ok(PipeRead::Bytes(_)) => {}
            Err(PipeBroken) => return Err(BodyError::Broken),
        }
    }
    Ok(BufferingEnd::PartFull)
}

/// Reader of the rest of a body for the call.
pub(crate) enum BodyReader {
    /// From the client, with the measured rate.
    Streamed(RatedPipe),
    /// From the disk, where the client's rate does not matter.
    Spooled(SpooledBody),
}

impl BodyReader {
    /// Creates the reader for a client that may pause for `patience`, or for the general grace period if
    /// longer.
    pub(crate) fn new(rest: BodyRest, patience: Duration) -> BodyReader {
        match rest {
            BodyRest::Streamed(reader) => BodyReader::Streamed(RatedPipe::new(reader, patience)),
            BodyRest::Spooled(spooled) => BodyReader::Spooled(spooled),
        }
    }

    /// Takes bytes of the body, as [`PipeReader::poll_take`] does.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        match self {
            BodyReader::Streamed(pipe) => pipe.poll_take(cx, out, max),
            BodyReader::Spooled(spooled) => spooled.poll_take(cx, out, max),
        }
    }

    /// Returns true if the whole body was spooled before the call began.
    pub(crate) fn is_spooled(&self) -> bool {
        matches!(self, BodyReader::Spooled(_))
    }

    /// Returns true if the call is waiting for the client.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, BodyReader::Streamed(pipe) if pipe.is_awaited())
    }

    /// Returns true if the call is waiting for a client so slow that the slot of the call is promised to a waiting call.
    pub(crate) fn is_slot_promised(&self, slot: Option<&mut CallSlot>) -> bool {
        match (self, slot) {
            (BodyReader::Streamed(pipe), Some(slot)) if pipe.is_awaited() => {
                pipe.is_too_slow() && slot.yield_to_any_client()
                    || slot.yield_to_other_clients(pipe.pace())
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::pipe::pipe;
    use crate::ledger::body_memory::{BodyMemory, WorkerBodyMemory};
    use crate::limits::CALL_RESERVED_BYTES;
    use std::path::Path;
    use std::rc::Rc;

    type Received = Result<(Option<RequestBody>, Option<u64>), BodyError>;

    fn receive(
        reader: PipeReader,
        framing: BodyLength,
        account: &BodyAccount,
        spool: Option<&SpoolLimit>,
    ) -> Received {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let peer = [127, 0, 0, 1].into();
        let received = RequestBody::receive(reader, framing, peer, account, spool);
        runtime.expect("a runtime").block_on(received)
    }

    const MIB: usize = 1 << 20;

    /// Returns a ledger of 1 MiB, and a worker without batches.
    fn ledger() -> (Arc<BodyMemory>, Rc<WorkerBodyMemory>) {
        let all = BodyMemory::new(MIB);
        let worker = WorkerBodyMemory::new(&all, usize::MAX);
        (all, worker)
    }

    #[test]
    fn the_first_part_of_a_body_is_counted_until_the_body_is_dropped() {
        let (all, worker) = ledger();
        let account = worker.admit([127, 0, 0, 1].into()).unwrap();
        let (mut writer, reader) = pipe(BODY_BUFFER_BYTES);
        writer.write_some(&[b'x'; 10_000]).unwrap();
        writer.finish();
        let (body, length) = receive(reader, BodyLength::Chunked, &account, None)
            .ok()
            .unwrap();
        let counted = CALL_RESERVED_BYTES + 10_000;
        assert_eq!((length, all.bytes()), (Some(10_000), counted));
        drop(body);
        assert_eq!(all.bytes(), CALL_RESERVED_BYTES);
    }

    #[test]
    fn full_memory_passes_bodies_that_need_no_spooling() {
        let (all, worker) = ledger();
        let account = worker.admit([127, 0, 0, 1].into()).unwrap();
        let bound = MIB - MIB / 4;
        account.reserve(bound - 5_000 - CALL_RESERVED_BYTES);
        let received = |framing, spool| {
            let (mut writer, reader) = pipe(BODY_BUFFER_BYTES);
            writer.write_some(&[b'x'; 60_000]).unwrap();
            receive(reader, framing, &account, spool)
        };
        let (body, length) = received(BodyLength::Length(90_000), None).ok().unwrap();
        let body = body.unwrap();
        assert_eq!(length, Some(90_000));
        assert!(body.rest.is_some());
        assert!(body.first_part.len() <= 5_000 + BODY_BUFFER_PART_BYTES);
        assert!(all.bytes() <= bound);
        drop(body);
        let (body, length) = received(BodyLength::Chunked, None).ok().unwrap();
        assert!(body.is_some_and(|body| body.rest.is_some()) && length.is_none());
        let limit = SpoolLimit {
            spool: Arc::new(BodySpool::new(Path::new("unused"), &Arc::default())),
            bytes_max: 1,
        };
        let error = received(BodyLength::Chunked, Some(&limit)).err();
        assert_eq!(error, Some(BodyError::MemoryFull));
        assert_eq!(all.bytes(), bound - 5_000);
    }
}
