//! Responses with pages and files: their fields and content security policies.

use crate::git::browse::limiter::BrowseLimiter;
use crate::git::browse::render::html::{style_name, style_sheet};
use crate::git::limits::GIT_PAGE_WHOLE_BYTES;
use data_plane::handler::pipe::pipe;
use data_plane::handler::{HandlerError, Request, Response, ResponseBody};
use data_plane::limits::PIPE_BYTES;
use std::net::IpAddr;
use wire::reject::Reject;
use wire::request_target::encode_path;
use wire::response_fields::ResponseFields;
use wire::status::Status;

pub(in crate::git) fn refused(reject: Reject) -> HandlerError {
    HandlerError::new("git page", reject)
}

/// Redirects to the request's address with a slash at the end of the path.
pub(in crate::git) fn with_slash(request: &Request) -> Response {
    let mut location = Vec::new();
    encode_path(request.target_path(), &mut location);
    location.push(b'/');
    if let Some(query) = &request.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Response::new(
        Status::MOVED_PERMANENTLY,
        [(&b"Location"[..], &location[..])].into_iter().collect(),
        ResponseBody::Empty,
    )
}

/// Redirects to another page with the query of the request. A later version may have a page at the address, so the
/// redirect is temporary.
pub(in crate::git) fn redirect(mut location: String, query: Option<&[u8]>) -> Response {
    if let Some(query) = query {
        location.push('?');
        location.push_str(&String::from_utf8_lossy(query));
    }
    Response::new(
        Status::FOUND,
        [(&b"Location"[..], location.as_bytes())]
            .into_iter()
            .collect(),
        ResponseBody::Empty,
    )
}

pub(in crate::git) fn style(path: &[u8]) -> Result<Response, HandlerError> {
    let is_name = path[1..].iter().all(|byte| *byte != b'/') && path.ends_with(b".css");
    if !is_name {
        return Err(refused(Reject::NOT_FOUND));
    }
    // A page stored before an update of the server requests the stylesheet of the old version, and gets the
    // current stylesheet for a short time.
    let keep = if path[1..] == *style_name().as_bytes() {
        &b"public, max-age=31536000, immutable"[..]
    } else {
        b"public, max-age=60"
    };
    let mut response = whole("text/css; charset=utf-8", style_sheet(), FILE_POLICY);
    response.fields.push(b"Cache-Control", keep);
    Ok(response)
}

pub(in crate::git) fn html(page: String, policy: &str) -> Response {
    whole("text/html; charset=utf-8", page.into_bytes(), policy)
}

pub(in crate::git) fn whole(kind: &str, body: Vec<u8>, policy: &str) -> Response {
    Response::new(Status::OK, fields(kind, policy), ResponseBody::Whole(body))
}

pub(in crate::git) fn fields(kind: &str, policy: &str) -> ResponseFields {
    let mut fields = ResponseFields::new();
    fields.push(b"Content-Type", kind.as_bytes());
    fields.push(b"Content-Security-Policy", policy.as_bytes());
    fields.push(b"X-Content-Type-Options", b"nosniff");
    fields.push(b"Referrer-Policy", b"same-origin");
    fields
}

/// Content security policy of a page: no scripts, and no requests to other servers.
pub(in crate::git) const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Content security policy of a log, with a form for searches in the log.
pub(in crate::git) const LOG_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

/// Content security policy of a README, with images from other servers allowed.
pub(in crate::git) const README_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' https: http:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Content security policy of a file: a sandbox with an opaque origin, so the file has no access to the
/// site.
pub(in crate::git) const FILE_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// Sends a large page from memory counted by `readers` until the client has taken the page, because the
/// client may be slow. A response without content is not counted.
pub(in crate::git) fn counted(
    mut response: Response,
    readers: &BrowseLimiter,
    peer: IpAddr,
) -> Result<Response, HandlerError> {
    let bytes = match response.body {
        ResponseBody::Whole(bytes) if bytes.len() > GIT_PAGE_WHOLE_BYTES => bytes,
        body => {
            response.body = body;
            return Ok(response);
        }
    };
    let held = readers.hold(peer, bytes.len())?;
    let (mut writer, reader) = pipe(PIPE_BYTES);
    response.body = ResponseBody::Stream {
        length: Some(bytes.len() as u64),
        reader,
        work: Box::pin(async move {
            if writer.write_all(&bytes).await.is_ok() {
                writer.finish();
            }
            drop((bytes, held));
        }),
    };
    Ok(response)
}
