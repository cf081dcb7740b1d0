//! Built-in error page, for sites without an error page of the operator.

use crate::site::escape::escape;
use crate::site::page_style::PAGE_STYLE;
use wire::reject::Reject;
use wire::status::Status;

/// Returns a small HTML page (UTF-8) about a refusal, with a link to the front page of the site.
pub fn error_page(reject: Reject) -> Vec<u8> {
    // A request for an unknown site has no front page.
    let has_home = ![
        Reject::HOST_UNKNOWN,
        Reject::HOST_UNKNOWN_TLS,
        Reject::MISDIRECTED,
        Reject::CONNECTION_OUTDATED,
        Reject::MANAGER_HOST,
    ]
    .contains(&reject);
    let home = has_home.then_some((&b"/"[..], "Front page"));
    page(reject.status, public_reason(reject), home)
}

/// Returns a small HTML page (UTF-8) with a link to the target of a redirect.
pub fn redirect_page(status: Status, location: &[u8]) -> Vec<u8> {
    page(status, "", Some((location, "The page has moved here")))
}

/// Returns a page with an optional link, given by its address and its text.
fn page(status: Status, text: &str, link: Option<(&[u8], &str)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_500);
    let title = format!("{} {}", status.0, status.reason());
    out.extend_from_slice(b"<!doctype html><html lang=en><meta charset=utf-8><title>");
    escape(title.as_bytes(), &mut out);
    out.extend_from_slice(
        b"</title><meta name=viewport content=\"width=device-width,initial-scale=1\"><style>",
    );
    out.extend_from_slice(PAGE_STYLE.as_bytes());
    out.extend_from_slice(STYLE.as_bytes());
    out.extend_from_slice(b"</style><main><h1>");
    escape(title.as_bytes(), &mut out);
    out.extend_from_slice(b"</h1>");
    if !text.is_empty() {
        out.extend_from_slice(b"<p>");
        escape(text.as_bytes(), &mut out);
        out.extend_from_slice(b".</p>");
    }
    if let Some((address, text)) = link {
        out.extend_from_slice(b"<p><a href=\"");
        escape(address, &mut out);
        out.extend_from_slice(b"\">");
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"</a></p>");
    }
    out.extend_from_slice(b"</main>\n");
    out
}

/// Returns the reason of a refusal for a client. The log has the exact reason; clients learn neither which names exist on
/// disk nor the state of files.
fn public_reason(reject: Reject) -> &'static str {
    match reject {
        Reject::NOT_FOUND
        | Reject::DOTFILE
        | Reject::LINK_LEAVES
        | Reject::NO_INDEX
        | Reject::SERVERS_OWN
        | Reject::PREVIEW_UNKNOWN
        | Reject::HASHED_MISSING
        | Reject::HIDDEN
        | Reject::CLOSED => "no page has this address",
        Reject::UNREADABLE | Reject::SCRIPT_NOT_EXECUTABLE => "the page is not public",
        Reject::CHANGING => "the page is being changed; try again in a moment",
        Reject::CONTENT_WRONG
        | Reject::RELEASE_MISSING
        | Reject::RELEASE_WITHDRAWN
        | Reject::BACKEND_UNREACHABLE
        | Reject::UPSTREAM_NONE_USABLE
        | Reject::UPSTREAM_BUSY
        | Reject::UPSTREAM_UNREACHABLE
        | Reject::UPSTREAM_LOCAL => "the page can't be shown at the moment",
        Reject::MANAGER_SECRET => {
            "the login link is unknown, used or expired: run \u{201c}anthill manager login\u{201d} again"
        }
        Reject::BODY_NOT_KEPT => "no room for the request",
        closed if closed.rule == Reject::CLOSED.rule => match closed.status.0 {
            410 => Reject::GONE.reason,
            451 => "the page is not available for legal reasons",
            _ => "the page is not public",
        },
        _ => reject.reason,
    }
}

/// Content-Security-Policy that lets a browser apply the style of the page, and nothing else: the policy has the SHA-256
/// digest of the style (W3C Content Security Policy Level 3 §2.3.1).
pub const ERROR_PAGE_POLICY: &str = "default-src 'none'; \
    style-src 'sha256-Uj/XOJCCAc8jIoSQqch1wVtfF9QjfJkm8vojvC5FGQo='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Style of the error page after the common style.
const STYLE: &str = "main{max-width:34rem;margin:18vh auto;padding:0 1.5rem}\
    h1{font-weight:600}\
    p{margin:.4rem 0;color:var(--soft)}\
    p::first-letter{text-transform:uppercase}";

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::{base64, sha256};

    #[test]
    fn the_policy_has_the_digest_of_the_style() {
        let style = [PAGE_STYLE, STYLE].concat();
        let digest = format!("'sha256-{}'", base64(&sha256(style.as_bytes())));
        assert!(ERROR_PAGE_POLICY.contains(&digest), "{digest}");
    }

    #[test]
    fn the_page_has_status_reason_and_a_way_home() {
        let page = page(Status::NOT_FOUND, "no <resource>", None);
        let page = String::from_utf8(page).expect("text");
        assert!(page.contains("<h1>404 Not Found</h1><p>no &lt;resource&gt;.</p></main>"));
        let page = redirect_page(Status::FOUND, b"https://a.test/?b=\"<c>&d");
        let page = String::from_utf8(page).expect("text");
        let link =
            "<a href=\"https://a.test/?b=&quot;&lt;c&gt;&amp;d\">The page has moved here</a>";
        assert!(page.contains(link), "{page}");
        let text = |reject| String::from_utf8(error_page(reject)).expect("text");
        let home = "<a href=\"/\">Front page</a>";
        assert!(text(Reject::NOT_FOUND).contains(home));
        assert!(!text(Reject::HOST_UNKNOWN).contains(home));
    }

    /// A page for a name that exists on disk equals the page for any other name.
    #[test]
    fn the_page_tells_nothing_of_the_disk() {
        for reject in [
            Reject::DOTFILE,
            Reject::LINK_LEAVES,
            Reject::NO_INDEX,
            Reject::SERVERS_OWN,
            Reject::HIDDEN,
            Reject::CLOSED,
        ] {
            assert_eq!(
                error_page(reject),
                error_page(Reject::NOT_FOUND),
                "{reject:?}"
            );
        }
        for reject in Reject::ALL {
            let page = String::from_utf8(error_page(*reject)).expect("text");
            for word in ["file", "folder", "disk", "executable"] {
                assert!(
                    !page.contains(&format!(" {word}")),
                    "{}: {word}",
                    reject.rule
                );
            }
        }
    }
}
