//! Validation of pages: ETag and Cache-Control fields, and responses to conditional requests.

use crate::git::browse::render::html::style_sheet;
use crate::git::browse::settings::BrowseSettings;
use base::digest::{Digest, hex};
use data_plane::handler::{Request, Response, ResponseBody};
use wire::fields::{Fields, items};
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Digest of a page's state, for the ETag.
pub(crate) struct EtagBuilder {
    digest: Digest,
    is_private: bool,
}

impl EtagBuilder {
    /// Creates the digest of a request. The caller adds the data shown on the page.
    pub(crate) fn new(own: &BrowseSettings, request: &Request) -> EtagBuilder {
        let mut tag = EtagBuilder {
            digest: Digest::new(),
            is_private: own.is_private || request.user.is_some(),
        };
        let host = Fields(&request.fields).first("host").unwrap_or_default();
        let query = request.query.as_deref().unwrap_or_default();
        for part in [
            VERSION.as_bytes(),
            &style_sheet(),
            host,
            &request.raw_path,
            query,
        ] {
            tag = tag.with(part);
        }
        tag
    }

    /// Adds `part` to the digest.
    pub(crate) fn with(mut self, part: &[u8]) -> EtagBuilder {
        self.digest.update(&(part.len() as u64).to_le_bytes());
        self.digest.update(part);
        self
    }

    /// Finishes the digest and returns the page's validator.
    pub(crate) fn done(self) -> PageValidator {
        let digest = self.digest.finish();
        PageValidator {
            tag: format!("\"{}\"", &hex(&digest)[..20]),
            is_private: self.is_private,
            is_immutable: false,
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// ETag of a page, with the conditions for caching the page.
pub(crate) struct PageValidator {
    tag: String,
    is_private: bool,
    is_immutable: bool,
}

impl PageValidator {
    /// Marks the page as immutable.
    pub(crate) fn for_ever(self) -> PageValidator {
        PageValidator {
            is_immutable: true,
            ..self
        }
    }

    /// Returns true if If-None-Match in the field lines `request_fields` contains the page's ETag or `*`.
    pub(crate) fn is_known(&self, request_fields: &[u8]) -> bool {
        let lines = Fields(request_fields).all("if-none-match");
        let mut tags = lines.flat_map(items);
        let is_it = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag) == self.tag.as_bytes();
        tags.any(|tag| tag == b"*" || is_it(tag))
    }

    fn fields(&self) -> ResponseFields {
        let keep = match (self.is_immutable, self.is_private) {
            (true, false) => "public, max-age=31536000, immutable",
            (true, true) => "private, max-age=31536000, immutable",
            // A cache revalidates the page for every request, but may serve a stale page if git fails.
            (false, false) => "public, max-age=0, stale-if-error=60",
            (false, true) => "private, max-age=0",
        };
        let mut fields = ResponseFields::new();
        fields.push(b"ETag", self.tag.as_bytes());
        fields.push(b"Cache-Control", keep.as_bytes());
        fields
    }

    /// Returns the 304 response for a client with the present page.
    pub(crate) fn not_modified(&self) -> Response {
        Response::new(Status::NOT_MODIFIED, self.fields(), ResponseBody::Empty)
    }

    /// Adds the fields ETag and Cache-Control to a response.
    pub(crate) fn on(&self, mut response: Response) -> Response {
        response.fields.append(&self.fields());
        response
    }

    /// Returns the response, or a 304 response if the client has the present page.
    pub(crate) fn answer(
        &self,
        request_fields: &[u8],
        response: impl FnOnce() -> Response,
    ) -> Response {
        if self.is_known(request_fields) {
            self.not_modified()
        } else {
            self.on(response())
        }
    }
}
