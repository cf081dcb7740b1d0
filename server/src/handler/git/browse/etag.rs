//! What tells one state of a page from another, and who may keep it for how long: its ETag and
//! Cache-Control.

use crate::base::digest::{Digest, hex};
use crate::handler::git::browse::handler::BrowseSettings;
use crate::handler::git::browse::render::html::STYLE;
use crate::handler::{Request, Response, ResponseBody};
use crate::wire::fields::{Fields, items};
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::Status;

/// What tells one state of a page from another, under making.
pub struct EtagBuilder {
    digest: Digest,
    is_private: bool,
}

impl EtagBuilder {
    /// Of a request; what the page shows is to be added.
    pub fn new(own: &BrowseSettings, request: &Request) -> EtagBuilder {
        let mut tag = EtagBuilder {
            digest: Digest::new(),
            is_private: own.is_private || request.user.is_some(),
        };
        let host = Fields(&request.fields).first("host").unwrap_or_default();
        let query = request.query.as_deref().unwrap_or_default();
        for part in [
            VERSION.as_bytes(),
            STYLE.as_bytes(),
            host,
            &request.raw_path,
            query,
        ] {
            tag = tag.with(part);
        }
        tag
    }

    /// And of this.
    pub fn with(mut self, part: &[u8]) -> EtagBuilder {
        self.digest.update(&(part.len() as u64).to_le_bytes());
        self.digest.update(part);
        self
    }

    /// As it is sent.
    pub fn done(self) -> PageValidator {
        let digest = self.digest.finish();
        PageValidator {
            tag: format!("\"{}\"", &hex(&digest)[..20]),
            is_private: self.is_private,
            is_immutable: false,
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What tells one state of a page from another, and who may keep it for how long.
pub struct PageValidator {
    tag: String,
    is_private: bool,
    is_immutable: bool,
}

impl PageValidator {
    /// The page can never be another one.
    pub fn for_ever(self) -> PageValidator {
        PageValidator {
            is_immutable: true,
            ..self
        }
    }

    /// Has the client this very state?
    pub fn is_known(&self, asked: &[u8]) -> bool {
        let lines = Fields(asked).all("if-none-match");
        let mut tags = lines.flat_map(items);
        let is_it = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag) == self.tag.as_bytes();
        tags.any(|tag| tag == b"*" || is_it(tag))
    }

    fn fields(&self) -> ResponseFields {
        let keep = match (self.is_immutable, self.is_private) {
            (true, false) => "public, max-age=31536000, immutable",
            (true, true) => "private, max-age=31536000, immutable",
            // Asked for again each time; and if git fails, an old one is better than none.
            (false, false) => "public, max-age=0, stale-if-error=60",
            (false, true) => "private, max-age=0",
        };
        let mut fields = ResponseFields::new();
        fields.push(b"ETag", self.tag.as_bytes());
        fields.push(b"Cache-Control", keep.as_bytes());
        fields
    }

    /// For who has it already.
    pub fn not_modified(&self) -> Response {
        Response::new(Status::NOT_MODIFIED, self.fields(), ResponseBody::Empty)
    }

    /// A response with it.
    pub fn on(&self, mut response: Response) -> Response {
        response.fields.append(&self.fields());
        response
    }

    /// The response, unless the client has it.
    pub fn answer(&self, asked: &[u8], response: impl FnOnce() -> Response) -> Response {
        match self.is_known(asked) {
            true => self.not_modified(),
            false => self.on(response()),
        }
    }
}
