//! A handler's call over HTTP/1.1, as started by a request.

use crate::handler::interim::InterimReceiver;
use crate::handler::pipe::{self, counted_pipe};
use crate::handler::route_handler::HandlerCall;
use crate::handler::{HandlerError, LocalBoxFuture, Response, Upgrade};
use crate::ledger::active_requests::RequestPhase;
use crate::ledger::body_memory::BodyAccount;
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::connection::Connection;
use crate::serve::h1::upload::H1Upload;
use crate::serve::refusal::ErrorPages;
use crate::serve::request_ledger::RequestReservation;
use crate::serve::response_record::ResponseRecord;
use crate::serve::subrequest::client_request;
use crate::serve::tunnel::request_tunnel;
use crate::world::{SecureFields, World};
use std::sync::Arc;
use wire::h1::body_decoder::BodyLength;
use wire::request_head::{Method, RequestHead, Version};
use wire::status::Status;

/// A call of a handler, with all data owned.
pub(in crate::serve) struct H1Call {
    pub(super) answering: LocalBoxFuture<Result<Response, HandlerError>>,
    pub(super) interim: InterimReceiver,
    pub(super) upload: Option<H1Upload>,
    /// Tunnel requested by the client, until the response.
    pub(super) tunnel: Option<Box<PendingTunnel>>,
    /// True while `100 Continue` is to be sent (RFC 9110 §10.1.1).
    pub(super) continue_owed: bool,
    pub(super) keep_alive: bool,
    pub(super) accepts_trailers: bool,
    pub(super) version: Version,
    pub(super) is_head: bool,
    pub(super) secure_fields: Option<Arc<SecureFields>>,
    pub(super) error_pages: Option<ErrorPages>,
    pub(super) record: ResponseRecord,
    pub(super) body_bytes_max: u64,
    pub(super) started_us: u64,
    /// Memory of the bodies.
    pub(super) memory: BodyAccount,
    /// The memory of a large head, counted against the bound of requests under way.
    _reservation: Option<RequestReservation>,
    /// The memory of the bytes received behind the head, counted likewise until the call has taken the bytes.
    pub(super) rest: Option<Box<RequestReservation>>,
    /// The memory of a long trailer section of the request, counted likewise.
    pub(super) _trailers: Option<RequestReservation>,
}

/// Tunnel requested by the client.
pub(super) struct PendingTunnel {
    /// Pipe to the handler. No byte of the client is written before the response.
    pub(super) writer: pipe::PipeWriter,
    pub(super) upgrade: Upgrade,
}

impl H1Call {
    pub(in crate::serve) fn new(
        handler: HandlerCall,
        head: &RequestHead<'_>,
        connection: &Connection,
        world: &World,
        line: &AccessLogEntry<'_>,
        memory: BodyAccount,
    ) -> H1Call {
        let (writer, reader) = counted_pipe(limits::PIPE_BYTES, &memory);
        let dispatch_context = connection.dispatch_context();
        let mut request = client_request(
            &connection.context,
            head,
            &dispatch_context,
            line.visitor(),
            reader,
            memory.clone(),
        );
        let (mut upload, mut tunnel) = (None, None);
        match (request_tunnel(&mut request, head, &handler), head.body) {
            (Some(upgrade), _) => tunnel = Some(Box::new(PendingTunnel { writer, upgrade })),
            (None, BodyLength::None | BodyLength::Length(0)) => writer.finish(),
            (None, length) => upload = Some(H1Upload::new(writer, length)),
        }
        let interim = InterimReceiver::default();
        // A client of HTTP/1.0 takes an interim response for the final one (RFC 9110 §15.2).
        if head.version != Version::Http10 {
            request.interim = interim.sender();
        }
        let who = connection.client_info();
        let record = line.keep(Status::OK, RequestPhase::Handler, &connection.context, who);
        request.active = record.active();
        H1Call {
            answering: handler.start(request),
            interim,
            upload,
            tunnel,
            continue_owed: head.expect_continue,
            keep_alive: head.keep_alive,
            accepts_trailers: head.accepts_trailers,
            version: head.version,
            is_head: head.method == Method::Head,
            secure_fields: line.secure_fields().cloned(),
            error_pages: line.error_pages(),
            record,
            body_bytes_max: line.body_bytes_max(world),
            started_us: line.started_us,
            memory,
            _reservation: None,
            rest: None,
            _trailers: None,
        }
    }

    /// Attaches the memory reservation of the head, held until the end of the call.
    pub(in crate::serve) fn hold_head(&mut self, reservation: Option<RequestReservation>) {
        self._reservation = reservation;
    }

    /// Attaches the memory reservation of the bytes received behind the head.
    pub(in crate::serve) fn hold_rest(&mut self, reservation: Option<Box<RequestReservation>>) {
        self.rest = reservation;
    }

    /// Returns true if the bytes behind the head are for the handler, as content or in a tunnel.
    pub(super) fn has_content(&self) -> bool {
        self.upload.is_some() || self.tunnel.is_some()
    }

    /// Ends the connection after the response, which announces the end.
    pub(super) fn close_afterwards(&mut self) {
        self.keep_alive = false;
    }
}
