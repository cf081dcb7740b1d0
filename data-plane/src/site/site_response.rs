//! Responses of a site: a pure function from the tree and the request head to a value that describes the
//! response.

use crate::site::Site;
use crate::site::file::{SiteFile, VariantKind};
use crate::site::gzip_file::GzipFileJob;
use crate::site::listing::Listing;
use crate::site::load::FileLoad;
use crate::site::loaded_facts::coding_mark;
use crate::site::preconditions::{
    PreconditionResult, any_tag, evaluate, evaluate_with, range_applies, range_applies_by,
};
use crate::site::resolve::{LazyPath, Resolution, Resource};
use crate::site::variant::Variant;
use crate::site::variant_response::{BodySelection, Multipart, VariantResponse};
use release::redirects::Redirected;
use std::hash::BuildHasher;
use std::sync::Arc;
use wire::fields::{AcceptedCodings, ContentCoding, ETag};
use wire::range::{Ranges, parse_ranges};
use wire::reject::Reject;
use wire::request_head::{KnownFields, Method, RequestHead};
use wire::request_target::encode_path;
use wire::status::Status;

/// Value of the Allow field for all resources of a site.
pub const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Response of a site.
pub enum SiteResponse {
    /// A stored file or error page.
    Stored(VariantResponse),
    /// Run the load on a blocking pool, then ask the site again.
    Load(FileLoad),
    /// 301 to the path, which is percent-encoded and ends with a slash. The driver appends the query.
    Redirect {
        /// Path of the request itself, not the path below the site.
        path: Vec<u8>,
    },
    /// Redirect of a release, complete with the query.
    Moved {
        /// Status of the redirect.
        status: Status,
        /// Value of Location.
        location: Vec<u8>,
    },
    /// Listing of a folder.
    Listing(Box<Listing>),
    /// 204 with [`ALLOW`].
    Options,
    /// Refusal; 405 needs [`ALLOW`], 503 needs Retry-After.
    Refuse(Reject),
}

impl Site {
    /// Answers a request for a resource of the site. A response from loaded content needs no allocation.
    pub(crate) fn answer(
        &self,
        head: &RequestHead<'_>,
        resolution: &Resolution<'_>,
    ) -> SiteResponse {
        let resource = &resolution.resource;
        match resource {
            Resource::Refused(reject) => return SiteResponse::Refuse(*reject),
            // A redirect applies to all methods.
            Resource::Redirected(found) => return found.answer(head.query).into(),
            _ => {}
        }
        match head.method {
            Method::Get | Method::Head => {}
            Method::Options => return SiteResponse::Options,
            Method::Unregistered(_) => return SiteResponse::Refuse(Reject::METHOD_UNKNOWN),
            _ => return SiteResponse::Refuse(Reject::METHOD_NOT_ALLOWED),
        }
        match resource {
            Resource::Refused(reject) => SiteResponse::Refuse(*reject),
            Resource::Redirected(found) => found.answer(head.query).into(),
            Resource::Slash => {
                let mut path = Vec::new();
                encode_path(&head.path, &mut path);
                path.push(b'/');
                SiteResponse::Redirect { path }
            }
            Resource::Listing(folder) => {
                let path = resolution.path();
                self.listing(Listing::new(&self.shared, folder, head, path), path)
            }
            Resource::File(file, place) => {
                let mut answer = self.answer_file(head, file, place);
                if let (true, SiteResponse::Stored(stored)) = (place.is_fallback, &mut answer) {
                    stored.is_fallback = true;
                }
                // The store has removed the contents of an earlier release.
                if place.is_retained
                    && matches!(answer, SiteResponse::Refuse(Reject::CONTENT_WRONG))
                {
                    return SiteResponse::Refuse(Reject::HASHED_MISSING);
                }
                answer
            }
        }
    }

    /// Returns the listing of the folder at `path` with the README of the folder, or the load of the README.
    #[inline(never)]
    fn listing(&self, mut listing: Listing, path: &[u8]) -> SiteResponse {
        if let Some((name, file)) = listing.readme_file() {
            let folder = path.strip_prefix(b"/").unwrap_or(path);
            let place = || [folder, name.as_bytes()].concat();
            match self.loaded(&file, VariantKind::Identity, place) {
                Ok(content) if content.bytes().is_empty() => {}
                Ok(content) => listing.add_readme(name, content),
                Err(load @ SiteResponse::Load(_)) => return load,
                Err(_) => {}
            }
        }
        SiteResponse::Listing(Box::new(listing))
    }

    /// Returns the path of the error page for a status at the requested path `asked`: the operator's, else that of the
    /// release.
    pub(crate) fn error_path(&self, status: Status, asked: &[u8]) -> Option<&[u8]> {
        let own = self.shared.rules.error_page(status.0, asked);
        let own = own.map(str::as_bytes);
        own.or_else(|| self.shared.published.error_page(status.0))
    }

    /// Returns the operator's error page for a status at the requested path `asked`; None if the page is missing or
    /// unreadable. The page is sent whole (except for HEAD), because preconditions and ranges do not apply to error pages.
    pub(crate) fn error_page(
        &self,
        status: Status,
        asked: &[u8],
        method: Method,
    ) -> Option<SiteResponse> {
        let path = self.error_path(status, asked)?;
        let Some(crate::site::folder::FolderNode::File(file)) = self.tree.lookup(path, b"") else {
            return None;
        };
        match self.loaded(file, VariantKind::Identity, || path.to_vec()) {
            Ok(variant) => {
                let part = if method == Method::Head {
                    BodySelection::Nothing
                } else {
                    BodySelection::Whole
                };
                Some(SiteResponse::Stored(VariantResponse::new(
                    status, variant, part,
                )))
            }
            Err(load @ SiteResponse::Load(_)) => Some(load),
            Err(_) => None,
        }
    }

    fn answer_file(
        &self,
        head: &RequestHead<'_>,
        file: &Arc<SiteFile>,
        place: &LazyPath<'_>,
    ) -> SiteResponse {
        let asks = &head.known_fields;
        let range = asks.range.filter(|_| head.method == Method::Get);
        let mut which = match range {
            Some(_) => self
                .named_by_if_range(file, asks)
                .unwrap_or(VariantKind::Identity),
            None => self.negotiate(file, asks),
        };
        let mut loaded = self.loaded(file, which, || place.path());
        if which == VariantKind::GeneratedGzip && loaded.is_err() {
            // The gzip variant was evicted since the negotiation.
            which = VariantKind::Identity;
            loaded = self.loaded(file, which, || place.path());
        }
        let variant = match loaded {
            Ok(variant) => variant,
            Err(answer) => return answer,
        };
        if variant.is_open() {
            return self.answer_open_file(head, variant);
        }
        if which == VariantKind::Identity && !asks.accept_encoding.is_none() {
            GzipFileJob::queue(&self.shared, file, || place.path());
        }
        let nothing = |status, variant| {
            SiteResponse::Stored(VariantResponse::new(
                status,
                variant,
                BodySelection::Nothing,
            ))
        };
        match evaluate(asks, variant.tag(), variant.modified) {
            PreconditionResult::Failed => return nothing(Status::PRECONDITION_FAILED, variant),
            PreconditionResult::NotModified => return nothing(Status::NOT_MODIFIED, variant),
            PreconditionResult::Proceed if asks.if_none_match.is_none() => {}
            PreconditionResult::Proceed => {
                if let Some(stored) = known_in_other_coding(file, asks) {
                    return SiteResponse::Stored(stored);
                }
            }
        }
        if head.method == Method::Head {
            return nothing(Status::OK, variant);
        }
        let range = range.filter(|_| range_applies(asks, variant.tag(), variant.modified));
        SiteResponse::Stored(self.cut(variant, range))
    }

    /// Returns the response from a file that a process has open for writing. The content has no validator, so no tag
    /// and no date of a condition applies. Several ranges of one response need a boundary that depends on the content.
    #[inline(never)]
    fn answer_open_file(&self, head: &RequestHead<'_>, variant: Arc<Variant>) -> SiteResponse {
        let asks = &head.known_fields;
        let status = match evaluate_with(asks, None, || None) {
            PreconditionResult::Proceed => Status::OK,
            PreconditionResult::NotModified => Status::NOT_MODIFIED,
            PreconditionResult::Failed => Status::PRECONDITION_FAILED,
        };
        let part = BodySelection::Nothing;
        SiteResponse::Stored(match (status, head.method) {
            (Status::OK, Method::Get) => {
                let range = asks.range.filter(|range| !range.contains(&b','));
                self.cut(
                    variant,
                    range.filter(|_| range_applies_by(asks, None, None)),
                )
            }
            _ => VariantResponse::new(status, variant, part),
        })
    }

    /// Returns the variant if loaded; else the response to send instead.
    fn loaded(
        &self,
        file: &Arc<SiteFile>,
        which: VariantKind,
        path: impl FnOnce() -> Vec<u8>,
    ) -> Result<Arc<Variant>, SiteResponse> {
        if let Some(variant) = file.slot(which).and_then(|slot| slot.load_full())
            && variant.is_current()
        {
            variant.touch();
            return Ok(variant);
        }
        let failure = file
            .failure(which)
            .and_then(|failure| failure.recent(|| self.shared.now()));
        Err(match failure {
            Some(why) => SiteResponse::Refuse(why.reject()),
            None => SiteResponse::Load(FileLoad {
                shared: Arc::clone(&self.shared),
                file: Arc::clone(file),
                which,
                path: path().into_boxed_slice(),
            }),
        })
    }

    /// Returns the available variant that Accept-Encoding prefers.
    fn negotiate(&self, file: &SiteFile, asks: &KnownFields<'_>) -> VariantKind {
        if asks.accept_encoding.is_none() {
            return VariantKind::Identity;
        }
        let gzip = self.gzip_of(file);
        let br = self.usable(file, ContentCoding::Br);
        let zstd = self.usable(file, ContentCoding::Zstd);
        if gzip.is_none() && !br && !zstd {
            return VariantKind::Identity;
        }
        let mut available = [true; 4];
        available[ContentCoding::Gzip as usize] = gzip.is_some();
        available[ContentCoding::Br as usize] = br;
        available[ContentCoding::Zstd as usize] = zstd;
        match AcceptedCodings::from_values(&asks.accept_encoding).choose(&available) {
            ContentCoding::Identity => VariantKind::Identity,
            ContentCoding::Gzip => gzip.unwrap_or(VariantKind::Identity),
            coding => VariantKind::Sidecar(coding),
        }
    }

    fn gzip_of(&self, file: &SiteFile) -> Option<VariantKind> {
        if self.usable(file, ContentCoding::Gzip) {
            return Some(VariantKind::Sidecar(ContentCoding::Gzip));
        }
        let made = file.slot(VariantKind::GeneratedGzip)?;
        made.load().is_some().then_some(VariantKind::GeneratedGzip)
    }

    /// Returns true if a sidecar for the coding exists and has no recent load failure.
    fn usable(&self, file: &SiteFile, coding: ContentCoding) -> bool {
        file.sidecar(coding).is_some()
            && file
                .failure(VariantKind::Sidecar(coding))
                .is_some_and(|failure| failure.recent(|| self.shared.now()).is_none())
    }

    /// Returns the variant that If-Range names by entity tag, if the coding is acceptable. Ranges otherwise
    /// refer to the plain content.
    fn named_by_if_range(&self, file: &SiteFile, asks: &KnownFields<'_>) -> Option<VariantKind> {
        let tag = ETag::parse(asks.if_range?)?;
        let ending = |coding| [b"-", coding_mark(coding).as_bytes(), b"\""].concat();
        let coding = [ContentCoding::Gzip, ContentCoding::Br, ContentCoding::Zstd]
            .into_iter()
            .find(|coding| tag.opaque.ends_with(&ending(*coding)))?;
        if AcceptedCodings::from_values(&asks.accept_encoding).q(coding) == 0 {
            return None;
        }
        match coding {
            ContentCoding::Gzip => self.gzip_of(file),
            coding => self
                .usable(file, coding)
                .then_some(VariantKind::Sidecar(coding)),
        }
    }

    /// Returns the response with the whole content, or with the ranges of the Range field.
    fn cut(&self, variant: Arc<Variant>, range: Option<&[u8]>) -> VariantResponse {
        let size = variant.size();
        match range.map_or(Ranges::Ignore, |range| parse_ranges(range, size)) {
            Ranges::Ignore => VariantResponse::new(Status::OK, variant, BodySelection::Whole),
            Ranges::Unsatisfiable => VariantResponse::new(
                Status::RANGE_NOT_SATISFIABLE,
                variant,
                BodySelection::Nothing,
            ),
            Ranges::Some(ranges) => {
                let part = match ranges[..] {
                    [(start, last)] => BodySelection::One {
                        start,
                        end: last + 1,
                    },
                    _ => {
                        // The boundary depends on a secret seed, so no author of content can place the
                        // boundary into a file.
                        let asked: (&[u8], &[(u64, u64)]) = (variant.tag(), &ranges);
                        let boundary = format!("anthill-{:016x}", self.shared.seed.hash_one(asked));
                        let kind = variant.heads.value("Content-Type").unwrap_or_default();
                        BodySelection::Several(Box::new(Multipart::new(
                            &ranges, boundary, kind, size,
                        )))
                    }
                };
                VariantResponse::new(Status::PARTIAL_CONTENT, variant, part)
            }
        }
    }
}

impl From<Redirected> for SiteResponse {
    fn from(redirected: Redirected) -> SiteResponse {
        match redirected {
            Redirected::Gone => SiteResponse::Refuse(Reject::GONE),
            Redirected::To { status, location } => SiteResponse::Moved { status, location },
        }
    }
}

/// Returns a 304 if If-None-Match names another coding of the file than the negotiated coding, and the
/// client still accepts the other coding.
fn known_in_other_coding(file: &SiteFile, asks: &KnownFields<'_>) -> Option<VariantResponse> {
    let accepted = AcceptedCodings::from_values(&asks.accept_encoding);
    let all = [
        VariantKind::Identity,
        VariantKind::GeneratedGzip,
        VariantKind::Sidecar(ContentCoding::Gzip),
        VariantKind::Sidecar(ContentCoding::Br),
        VariantKind::Sidecar(ContentCoding::Zstd),
    ];
    for which in all {
        let Some(variant) = file.slot(which).and_then(|slot| slot.load_full()) else {
            continue;
        };
        let tag = ETag {
            weak: false,
            opaque: variant.tag(),
        };
        if accepted.q(variant.coding) > 0
            && any_tag(&asks.if_none_match, |asked| asked.weak_eq(&tag))
        {
            return Some(VariantResponse::new(
                Status::NOT_MODIFIED,
                variant,
                BodySelection::Nothing,
            ));
        }
    }
    // The generated gzip variant may be missing, after an eviction or a restart. A new compression yields
    // the same entity tag.
    let plain = file.slot(VariantKind::Identity)?.load_full()?;
    if accepted.q(ContentCoding::Gzip) == 0 || file.sidecar(ContentCoding::Gzip).is_some() {
        return None;
    }
    let opening = &plain.tag()[..plain.tag().len() - 1];
    let mark = coding_mark(ContentCoding::Gzip).as_bytes();
    let is_made = any_tag(&asks.if_none_match, |asked| {
        let rest = asked
            .opaque
            .strip_prefix(opening)
            .and_then(|rest| rest.strip_prefix(b"-"));
        rest.and_then(|rest| rest.strip_suffix(b"\"")) == Some(mark)
    });
    let mut stored = VariantResponse::new(Status::NOT_MODIFIED, plain, BodySelection::Nothing);
    stored.of_generated_gzip = true;
    is_made.then_some(stored)
}
