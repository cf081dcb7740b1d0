//! Requests of git's smart protocol over HTTP (gitprotocol-http), told apart from the requests of browsers.

use crate::wire::request_head::Method;

/// Path of the first request of a client, below the repository.
pub const FIRST: &str = "/info/refs";
/// Paths of all requests, below the repository.
pub const SERVICES: [&str; 3] = [FIRST, "/git-upload-pack", "/git-receive-pack"];

/// Returns true if a request for `path`, below the route, comes from a git client. All other requests come
/// from browsers.
pub fn is_smart_http(method: Method, path: &[u8], query: Option<&[u8]>) -> bool {
    let of_service = || query.is_some_and(|query| query.starts_with(b"service="));
    let is_any = |of: &[&str]| of.iter().any(|it| path.ends_with(it.as_bytes()));
    match method {
        Method::Post => is_any(&SERVICES),
        _ => path.ends_with(FIRST.as_bytes()) && of_service(),
    }
}
