//! The owned request of a handler, copied from the head of a client's request or of a subrequest.

use crate::handler::interim::InterimSender;
use crate::handler::pipe::PipeReader;
use crate::handler::{Endpoints, Forwarding, Request, Rewrite, Subrequests};
use crate::ledger::active_requests::ActiveRequestHandle;
use crate::ledger::body_memory::BodyAccount;
use crate::serve::dispatch_context::DispatchContext;
use std::rc::Rc;
use wire::effective_host;
use wire::request_head::RequestHead;

/// Creates the owned request for a handler.
pub(super) fn handler_request(
    head: &RequestHead<'_>,
    user: Option<String>,
    context: &DispatchContext,
    ends: Endpoints,
    body: PipeReader,
    subrequests: Rc<dyn Subrequests>,
) -> Request {
    let fields = if has_own_host(head) {
        with_host(head)
    } else {
        head.fields.0.to_vec()
    };
    Request {
        method: head.method,
        version: head.version,
        host: head.host.to_vec(),
        raw_path: head.raw_path.to_vec(),
        path: head.path.to_vec(),
        query: head.query.map(<[u8]>::to_vec),
        rewrite: Rewrite::default(),
        script: None,
        fields,
        identity: Vec::new(),
        peer: context.peer,
        ends,
        secure: context.secure,
        forwarding: context
            .forwarded_by
            .map(|proxy| Forwarding { proxy, host: None }),
        user,
        hides_login: context.hides_login,
        length: head.body,
        expects_continue: head.expect_continue,
        body,
        upgrade: None,
        interim: InterimSender::default(),
        subrequests: Some(subrequests),
        hops: 0,
        memory: BodyAccount::default(),
        active: ActiveRequestHandle::default(),
    }
}

/// Returns true if the Host field differs from the authority of an absolute target. The field is then ignored
/// (RFC 9112 §3.2.2) and hidden from handlers.
fn has_own_host(head: &RequestHead<'_>) -> bool {
    head.authority.is_some_and(|authority| {
        let field = head.fields.first("host");
        field.is_some_and(|field| field != authority)
    })
}

/// Returns the field lines with the effective host in the Host field.
fn with_host(head: &RequestHead<'_>) -> Vec<u8> {
    let host = effective_host(head);
    let mut lines = Vec::with_capacity(head.fields.0.len() + host.len());
    for (name, value) in head.fields {
        let value = if name.eq_ignore_ascii_case(b"host") {
            host
        } else {
            value
        };
        for part in [name, b": ", value, b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    lines
}
