//! Built-in error page, for sites without an error page of the operator.

use crate::site::escape::escape;
use crate::wire::status::Status;

/// Returns a small HTML page (UTF-8) with the status and an optional reason.
pub fn plain_error(status: Status, reason: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(700);
    let title = format!("{} {}", status.0, status.reason());
    out.extend_from_slice(b"<!doctype html><html lang=en><meta charset=utf-8><title>");
    escape(title.as_bytes(), &mut out);
    out.extend_from_slice(
        b"</title><meta name=viewport content=\"width=device-width,initial-scale=1\"><style>",
    );
    out.extend_from_slice(STYLE);
    out.extend_from_slice(b"</style><main><h1>");
    escape(title.as_bytes(), &mut out);
    out.extend_from_slice(b"</h1>");
    if !reason.is_empty() {
        out.extend_from_slice(b"<p>");
        escape(reason.as_bytes(), &mut out);
        out.extend_from_slice(b".</p>");
    }
    out.extend_from_slice(b"</main>\n");
    out
}

/// Content-Security-Policy that lets a browser apply the style of the page, and nothing else: the policy has the SHA-256
/// digest of the style (W3C Content Security Policy Level 3 §2.3.1).
pub const ERROR_PAGE_POLICY: &str = "default-src 'none'; \
    style-src 'sha256-8aWcPnKWoSoEv2fwOHr5BImBcM0XxrQm4zZdeW+rcFs='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &[u8] = b":root{color-scheme:light dark}\
    body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem}\
    h1{font-size:1.4rem;font-weight:600;margin:0}p{margin:.4rem 0;opacity:.7}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::digest::{base64, sha256};

    #[test]
    fn the_policy_has_the_digest_of_the_style() {
        let digest = format!("'sha256-{}'", base64(&sha256(STYLE)));
        assert!(ERROR_PAGE_POLICY.contains(&digest), "{digest}");
    }

    #[test]
    fn the_page_has_status_and_reason() {
        let page = plain_error(Status::NOT_FOUND, "no such <resource>");
        let page = String::from_utf8(page).expect("text");
        assert!(page.contains("<h1>404 Not Found</h1><p>no such &lt;resource&gt;.</p>"));
    }
}
