//! How pages and files are sent: their fields, and what a browser may do with them.

use super::html::{STYLE, style_name};
use crate::handler::slots::Slot;
use crate::handler::{Body, Fault, Request, Response};
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use crate::wire::target::encode_path;
use std::borrow::Cow;

pub(super) fn refused(reject: Reject) -> Fault {
    Fault::new("git page", reject)
}

/// The same address with a slash at its end.
pub(super) fn with_slash(request: &Request) -> Response {
    let mut location = Vec::new();
    encode_path(&request.path, &mut location);
    location.push(b'/');
    if let Some(query) = &request.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Response {
        status: Status::MOVED_PERMANENTLY,
        fields: vec![(Cow::Borrowed("Location"), location)],
        body: Body::Empty,
    }
}

pub(super) fn style(path: &[u8]) -> Result<Response, Fault> {
    if path != format!("/{}", style_name()).as_bytes() {
        return Err(refused(Reject::NOT_FOUND));
    }
    let mut response = whole("text/css; charset=utf-8", STYLE.into(), FILE_POLICY);
    let keep = b"public, max-age=31536000, immutable".to_vec();
    response.fields.push((Cow::Borrowed("Cache-Control"), keep));
    Ok(response)
}

pub(super) fn html(page: String, policy: &str) -> Response {
    whole("text/html; charset=utf-8", page.into_bytes(), policy)
}

pub(super) fn whole(kind: &str, body: Vec<u8>, policy: &str) -> Response {
    Response {
        status: Status::OK,
        fields: fields(kind, policy),
        body: Body::Whole(body),
    }
}

pub(super) fn fields(kind: &str, policy: &str) -> Vec<(Cow<'static, str>, Vec<u8>)> {
    let field = |name, value: &str| (Cow::Borrowed(name), value.as_bytes().to_vec());
    vec![
        field("Content-Type", kind),
        field("Content-Security-Policy", policy),
        field("X-Content-Type-Options", "nosniff"),
        field("Referrer-Policy", "same-origin"),
    ]
}

/// A page runs nothing and asks nobody but this server.
pub(super) const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// A README may have images of others.
pub(super) const README_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' https: http:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a file is when somebody opens it: nobody's.
pub(super) const FILE_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

pub(super) fn owned(fields: Vec<(Cow<'static, str>, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let name = |(name, value): (Cow<'static, str>, _)| (name.into_owned(), value);
    fields.into_iter().map(name).collect()
}

/// The place is taken for as long as something is sent.
pub(super) fn holding(mut response: Response, slot: Slot) -> Response {
    if let Body::Stream { work, .. } = &mut response.body {
        let sending = std::mem::replace(work, Box::pin(async {}));
        *work = Box::pin(async move {
            sending.await;
            drop(slot);
        });
    }
    response
}
