//! Handler that answers each request with one text.

use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use std::sync::Arc;
use wire::status::Status;

/// Handler with a text.
pub struct FixedTextHandler(pub Arc<str>);

impl Handler for FixedTextHandler {
    fn handle(&self, _request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let fields = [(&b"Content-Type"[..], &b"text/plain; charset=utf-8"[..])];
        let fields = fields.into_iter().collect();
        let body = ResponseBody::Whole(self.0.as_bytes().to_vec());
        Box::pin(async move { Ok(Response::new(Status::OK, fields, body)) })
    }
}
