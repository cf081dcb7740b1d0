//! Requests of git's smart protocol over HTTP (gitprotocol-http), told apart from the requests of browsers.

use crate::request_head::Method;

/// Query of the first request of a push.
const RECEIVE: &[u8] = b"service=git-receive-pack";

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

/// Returns true if a request of a git client belongs to a push.
pub fn is_push(path: &[u8], query: Option<&[u8]>) -> bool {
    path.ends_with(b"/git-receive-pack")
        || (path.ends_with(FIRST.as_bytes()) && query == Some(RECEIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_are_told_apart_from_fetches() {
        for (path, query, is) in [
            ("/a.git/git-receive-pack", None, true),
            ("/a.git/git-receive-pack", Some("x"), true),
            ("/a.git/info/refs", Some("service=git-receive-pack"), true),
            ("/a.git/info/refs", Some("service=git-upload-pack"), false),
            ("/a.git/info/refs", None, false),
            ("/a.git/git-upload-pack", None, false),
            (
                "/git-receive-pack/info/refs",
                Some("service=git-upload-pack"),
                false,
            ),
        ] {
            let query = query.map(str::as_bytes);
            assert_eq!(is_push(path.as_bytes(), query), is, "{path} {query:?}");
        }
    }
}
