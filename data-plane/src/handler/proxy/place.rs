//! Place of a call at a member: the pace of its client, and the requests and responses that may be silent for any time.
//!
//! Places of members have the shares of scripts. While a request of another client waits, a call ends if its client takes
//! the response or sends the request too slowly. Tunnels and event streams are silent by nature, so they end only where
//! their client has more than an equal part of the places, or after a long silence.

use crate::handler::Request;
use crate::handler::call::body::rate::TransferRate;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::upstream::balancer::Lease;
use base::clock::monotonic_ms;
use std::task::Context;
use wire::fields::Fields;
use wire::h1::response_head::ResponseHead;
use wire::reject::Reject;

/// Media type of an event stream (HTML, server-sent events).
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Rate at which a client takes a response, or sends a request, over a place of a member.
#[derive(Default)]
pub(super) struct PlacePace {
    /// The rate; None until the call waits for the client.
    rate: Option<Box<TransferRate>>,
    /// Bytes transferred so far.
    bytes: u64,
}

impl PlacePace {
    /// Records a wait for the client, after `bytes` transferred so far. Returns true if the place goes to a request of
    /// another client, and the call has to end. Wakes the task for the next check.
    pub(super) fn wait(
        &mut self,
        lease: Option<&mut Lease>,
        bytes: u64,
        refusals: &RefusalCounters,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(lease) = lease.filter(|lease| lease.has_place()) else {
            return false;
        };
        self.advance(bytes);
        let new = || Box::new(TransferRate::new());
        let pace = self.rate.get_or_insert_with(new).wait(cx);
        let gives_way = lease.gives_way(pace, monotonic_ms());
        if gives_way {
            refusals.increment(SharedLimit::MemberPlaces);
        }
        gives_way
    }

    /// Records that the call does not wait for the client, with a transfer of `bytes` so far. Nothing is measured before
    /// the first wait.
    pub(super) fn progress(&mut self, lease: Option<&mut Lease>, bytes: u64) {
        if self.rate.is_some()
            && self.advance(bytes)
            && let Some(lease) = lease
        {
            lease.end_wait();
        }
    }

    /// Counts the bytes since the last call. Returns true if the call has waited for the client until now.
    fn advance(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(std::mem::replace(&mut self.bytes, bytes));
        self.rate.as_mut().is_some_and(|rate| {
            let was_awaited = rate.is_awaited();
            rate.take(usize::try_from(more).unwrap_or(usize::MAX));
            was_awaited
        })
    }
}

/// Returns true for a request for a tunnel or an event stream.
pub(super) fn wants_tunnel(request: &Request) -> bool {
    request.upgrade.is_some()
        || Fields(&request.fields)
            .all("accept")
            .any(|accept| accept.windows(EVENT_STREAM.len()).any(is_event_stream))
}

fn is_event_stream(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(EVENT_STREAM)
}

/// Adapts the place of a call to the head of a streamed response: an event stream takes one of the places of tunnels,
/// and another response none. Returns true for an event stream with a place.
///
/// # Errors
/// The member has no place for another tunnel.
pub(super) fn begin_stream(
    lease: Option<&mut Lease>,
    head: &ResponseHead<'_>,
) -> Result<bool, Reject> {
    let Some(lease) = lease.filter(|lease| lease.has_place()) else {
        return Ok(false);
    };
    let media_type = head.fields.first("content-type");
    let start = media_type.and_then(|it| it.get(..EVENT_STREAM.len()));
    if !start.is_some_and(is_event_stream) {
        lease.end_tunnel();
        return Ok(false);
    }
    if lease.begin_tunnel() {
        Ok(true)
    } else {
        Err(Reject::UPSTREAM_BUSY)
    }
}
