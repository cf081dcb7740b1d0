//! Sending of a response without a handler. The part that is equal for all versions of HTTP is here: refusals and their
//! pages, the page cache, and the entry of the access log. A driver implements [`Responder`].
//!
//! Differences between the versions of HTTP:
//!
//! | | HTTP/1.1 | HTTP/2 | HTTP/3 |
//! |---|---|---|---|
//! | fields of a stored page | lines (RFC 9112 §5) | block of HPACK (RFC 9113 §8.2) | section of QPACK (RFC 9114 §4.2) |
//! | fields of the connection | Connection (RFC 9112 §9.6) | none (RFC 9113 §8.2.2) | none (RFC 9114 §4.2) |
//! | end of a listing | last chunk, or the end of the connection for HTTP/1.0 (RFC 9112 §6.3) | END_STREAM (RFC 9113 §8.1) | end of the stream (RFC 9114 §4.1) |
//! | refusal of a malformed head | response, then close (RFC 9112 §2.2) | PROTOCOL_ERROR (RFC 9113 §8.1.1) | H3_MESSAGE_ERROR (RFC 9114 §4.1.2) |
//! | refusal that ends the connection | `Connection: close` (RFC 9112 §9.6) | GOAWAY (RFC 9113 §6.8) | GOAWAY (RFC 9114 §5.2) |
//! | rest of the content behind the response | read, then close (RFC 9112 §9.6) | read, then NO_ERROR (RFC 9113 §8.1) | read, then STOP_SENDING (RFC 9114 §4.1) |

use crate::serve::access_log::AccessLogEntry;
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::step::ReadyResponse;
use crate::serve::synthetic_response::{SyntheticResponse, lines_beside};
use crate::site::{Listing, VariantResponse};
use wire::reject::Reject;

/// A request that gets its response by one version of HTTP.
pub(super) trait Responder<'l>: Sized {
    /// State of the request after the response, or after the first part of the response.
    type Sent;

    fn context(&self) -> &WorkerContext;

    /// Returns the entry of the request for the access log.
    fn line(&mut self) -> &mut AccessLogEntry<'l>;

    fn audience(&self) -> Audience;

    /// Ends the use of the connection for further requests, if the refusal demands the end.
    fn end_use(&mut self, reject: Reject);

    /// Sends a stored page with the field lines `fields` beside the fields of the page. The vector goes back to
    /// [`WorkerContext::lead`].
    fn send_stored(self, page: VariantResponse, fields: Vec<u8>) -> Self::Sent;

    /// Sends a response of the server itself.
    fn send_small(self, small: SyntheticResponse) -> Self::Sent;

    /// Sends a directory listing, generated while being sent.
    fn send_listing(self, listing: Box<Listing>) -> Self::Sent;

    /// Sends a response.
    #[inline(always)]
    fn send(mut self, response: ReadyResponse) -> Self::Sent {
        match response {
            ReadyResponse::Stored(page) => {
                let mut fields = self.context().lead.take();
                fields.clear();
                if page.is_from_cache() {
                    self.context().stats.cache_hits.increment();
                    self.line().cache = page.cache_outcome();
                    page.push_changing(&mut fields);
                }
                self.line().reject = page.reject();
                self.send_stored(page, fields)
            }
            ReadyResponse::Refuse { reject, page } => self.refuse(reject, page),
            ReadyResponse::Synthetic(small) => self.send_small(small),
            ReadyResponse::Listing(listing) => self.send_listing(listing),
        }
    }

    /// Sends a refusal, with the site's page for the status if the site has one.
    fn refuse(mut self, reject: Reject, page: Option<VariantResponse>) -> Self::Sent {
        self.end_use(reject);
        let audience = self.audience();
        let line = self.line();
        line.reject = Some(reject);
        let required = line.refusal_fields(reject);
        match page {
            Some(page) => {
                let fields = lines_beside(&page, required).to_vec();
                self.send_stored(page, fields)
            }
            None => {
                let small = SyntheticResponse::refusal_with(required, reject, audience);
                self.send_small(small)
            }
        }
    }
}
