//! Rules of tunnels for all versions of HTTP: the request of a client to switch protocols, and the response
//! that opens the tunnel.

use crate::handler::route_handler::HandlerCall;
use crate::handler::{Request, Response, ResponseBody, Upgrade};
use crate::limits::Limits;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};

/// Tunnel on a stream of HTTP/2 or HTTP/3: DATA frames are the bytes of the tunnel.
pub(super) struct StreamTunnel {
    upgrade: Upgrade,
    /// True after the response that opens the tunnel.
    is_open: bool,
    /// Time of the last byte in either direction, in milliseconds of the worker's clock.
    moved_ms: u64,
}

impl StreamTunnel {
    /// Creates the tunnel that a client has requested.
    pub(super) fn new(upgrade: Upgrade, now_ms: u64) -> StreamTunnel {
        StreamTunnel {
            upgrade,
            is_open: false,
            moved_ms: now_ms,
        }
    }

    /// Returns the requested switch of protocols.
    pub(super) fn upgrade(&self) -> &Upgrade {
        &self.upgrade
    }

    /// Opens the tunnel.
    pub(super) fn open(&mut self, now_ms: u64) {
        self.is_open = true;
        self.moved_ms = now_ms;
    }

    /// Returns true after the response that opens the tunnel.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Records bytes in either direction.
    pub(super) fn note_moved(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
    }

    /// Returns when a tunnel with only one direction left ends for its silence, in milliseconds of the
    /// worker's clock.
    pub(super) fn silence_due_ms(&self, limits: &Limits) -> u64 {
        self.moved_ms + u64::from(limits.idle_seconds) * 1_000
    }
}

/// Sets the switch of protocols in `request`, if the client asks for a tunnel and the handler accepts
/// tunnels. Returns the switch.
pub(super) fn request_tunnel(
    request: &mut Request,
    head: &RequestHead<'_>,
    call: &HandlerCall,
) -> Option<Upgrade> {
    let protocol = head.upgrade.filter(|_| call.handler.accepts_tunnels())?;
    request.upgrade = Some(Upgrade {
        protocol: protocol.into(),
        is_extended_connect: head.method == Method::Connect,
    });
    request.length = BodyLength::None;
    request.upgrade.clone()
}

/// Returns true if `response` opens the requested tunnel: status 101 with the requested protocol over
/// HTTP/1.1, or a successful status after an extended CONNECT (RFC 8441 §5). The content must be streamed.
///
/// # Errors
/// The handler switches to a protocol that the client has not requested, or returns another interim status
/// as the final status, or a successful response to an extended CONNECT without a tunnel.
pub(super) fn opens_tunnel(
    response: &Response,
    requested: Option<&Upgrade>,
) -> Result<bool, Reject> {
    let is_streamed = matches!(response.body, ResponseBody::Stream { .. });
    match (response.status.0, requested) {
        (101, Some(upgrade)) if !upgrade.is_extended_connect && is_streamed => {
            if switches_to(response, &upgrade.protocol) {
                Ok(true)
            } else {
                Err(Reject::UPSTREAM_UPGRADE_UNASKED)
            }
        }
        (101, _) => Err(Reject::UPSTREAM_UPGRADE_UNASKED),
        (100..=199, _) => Err(Reject::HANDLER_FAILED),
        (200..=299, Some(upgrade)) if upgrade.is_extended_connect => {
            if is_streamed {
                Ok(true)
            } else {
                Err(Reject::HANDLER_FAILED)
            }
        }
        _ => Ok(false),
    }
}

/// Returns true if the response names the protocol, or no protocol at all.
fn switches_to(response: &Response, protocol: &[u8]) -> bool {
    let named = response.fields.first("upgrade");
    named.is_none_or(|named| named.eq_ignore_ascii_case(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::pipe::pipe;
    use wire::response_fields::ResponseFields;
    use wire::status::Status;

    fn response(status: u16, upgrade: &str, is_streamed: bool) -> Response {
        let mut fields = ResponseFields::new();
        if !upgrade.is_empty() {
            fields.push(b"Upgrade", upgrade.as_bytes());
        }
        let body = if is_streamed {
            ResponseBody::Stream {
                length: None,
                reader: pipe(1).1,
                work: Box::pin(async {}),
            }
        } else {
            ResponseBody::Empty
        };
        Response::new(Status(status), fields, body)
    }

    #[test]
    fn a_tunnel_opens_only_as_requested() {
        let upgrade = |is_extended_connect| Upgrade {
            protocol: (*b"websocket").into(),
            is_extended_connect,
        };
        let (switch, connect) = (upgrade(false), upgrade(true));
        let (switch, connect) = (Some(&switch), Some(&connect));
        let unasked = Err(Reject::UPSTREAM_UPGRADE_UNASKED);
        let failed = Err(Reject::HANDLER_FAILED);
        for (status, named, is_streamed, requested, expected) in [
            (101, "WebSocket", true, switch, Ok(true)),
            (101, "", true, switch, Ok(true)),
            (101, "other", true, switch, unasked),
            (101, "websocket", false, switch, unasked),
            (101, "websocket", true, connect, unasked),
            (101, "websocket", true, None, unasked),
            (103, "", false, switch, failed),
            (100, "", true, None, failed),
            (200, "", true, switch, Ok(false)),
            (403, "", false, switch, Ok(false)),
            (200, "", true, connect, Ok(true)),
            (204, "", false, connect, failed),
            (404, "", true, connect, Ok(false)),
            (200, "", true, None, Ok(false)),
        ] {
            let response = response(status, named, is_streamed);
            let what = format!("{status} {named:?} {is_streamed} {requested:?}");
            assert_eq!(opens_tunnel(&response, requested), expected, "{what}");
        }
    }
}
