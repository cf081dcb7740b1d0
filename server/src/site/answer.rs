//! What a site answers: pure, from the tree and the request's head to a value that says it all.

use super::Site;
use super::conditions::{Verdict, any_tag, judge, range_applies};
use super::file::{File, Which};
use super::listing::Listing;
use super::load::{Load, coding_mark};
use super::resolve::{Place, Resource};
use super::stored::{Multipart, Part, Stored};
use super::variant::Variant;
use crate::wire::fields::{Accepted, Coding, ETag};
use crate::wire::head::{Asks, Head, Method};
use crate::wire::range::{Ranges, parse_ranges};
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use crate::wire::target::encode_path;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The value of `Allow` for all that a site serves.
pub const ALLOW: &str = "GET, HEAD, OPTIONS";

/// What to send.
pub enum Answer {
    /// A stored page.
    Stored(Stored),
    /// Run this on a blocking pool, then ask again.
    Load(Load),
    /// 301 to this path, encoded and with its slash; the query is the driver's.
    Redirect {
        /// Of the request's own path, not of the path below the site.
        path: Vec<u8>,
    },
    /// What a folder holds.
    Listing(Box<Listing>),
    /// 204 with [`ALLOW`].
    Options,
    /// A refusal; 405 goes with [`ALLOW`], 503 with Retry-After.
    Refuse(Reject),
}

impl Site {
    /// Answers a request for what is under `path`, decoded and below this site; the empty path is
    /// the site itself asked for without its slash. A warm page costs no allocation.
    pub fn answer(&self, head: &Head<'_>, path: &[u8]) -> Answer {
        let resource = self.resolve(path);
        if let Resource::Refused(reject) = resource {
            return Answer::Refuse(reject);
        }
        match head.method {
            Method::Get | Method::Head => {}
            Method::Options => return Answer::Options,
            _ => return Answer::Refuse(Reject::METHOD_NOT_ALLOWED),
        }
        match resource {
            Resource::Refused(reject) => Answer::Refuse(reject),
            Resource::Slash => {
                let mut path = Vec::new();
                encode_path(&head.path, &mut path);
                path.push(b'/');
                Answer::Redirect { path }
            }
            Resource::Listing(folder) => {
                Answer::Listing(Box::new(Listing::new(&self.shared, folder, head, path)))
            }
            Resource::File(file, place) => {
                let mut answer = self.answer_file(head, file, &place);
                if let (true, Answer::Stored(stored)) = (place.stands_in, &mut answer) {
                    stored.stands_in = true;
                }
                answer
            }
        }
    }

    /// The path of the operator's page for a status, if there is one.
    pub fn error_path(&self, status: Status) -> Option<&[u8]> {
        Some(self.shared.rules.error_page(status.0)?.as_bytes())
    }

    /// The operator's page for a status, to be sent instead of a plain one; None if there is none or
    /// it can't be read. It goes out whole (but for HEAD): conditions and ranges are not its own.
    pub fn error_page(&self, status: Status, method: Method) -> Option<Answer> {
        let path = self.error_path(status)?;
        let Some(super::folder::Node::File(file)) = self.tree.lookup(path, b"") else {
            return None;
        };
        match self.loaded(file, Which::Identity, || path.to_vec()) {
            Ok(variant) => {
                let part = if method == Method::Head {
                    Part::Nothing
                } else {
                    Part::Whole
                };
                Some(Answer::Stored(Stored::new(status, variant, part)))
            }
            Err(load @ Answer::Load(_)) => Some(load),
            Err(_) => None,
        }
    }

    fn answer_file(&self, head: &Head<'_>, file: &Arc<File>, place: &Place<'_>) -> Answer {
        let asks = &head.asks;
        let range = asks.range.filter(|_| head.method == Method::Get);
        let mut which = match range {
            Some(_) => self
                .named_by_if_range(file, asks)
                .unwrap_or(Which::Identity),
            None => self.negotiate(file, asks),
        };
        let mut loaded = self.loaded(file, which, || place.path());
        if which == Which::Made && loaded.is_err() {
            // Evicted since we saw it.
            which = Which::Identity;
            loaded = self.loaded(file, which, || place.path());
        }
        let variant = match loaded {
            Ok(variant) => variant,
            Err(answer) => return answer,
        };
        if which == Which::Identity && !asks.accept_encoding.is_none() {
            self.shared.want_gzip(file, || place.path());
        }
        let nothing = |status, variant| Answer::Stored(Stored::new(status, variant, Part::Nothing));
        match judge(asks, variant.tag(), variant.modified) {
            Verdict::Failed => return nothing(Status::PRECONDITION_FAILED, variant),
            Verdict::NotModified => return nothing(Status::NOT_MODIFIED, variant),
            Verdict::Proceed if asks.if_none_match.is_none() => {}
            Verdict::Proceed => {
                if let Some(stored) = known_in_other_coding(file, asks) {
                    return Answer::Stored(stored);
                }
            }
        }
        if head.method == Method::Head {
            return nothing(Status::OK, variant);
        }
        let range = range.filter(|_| range_applies(asks, variant.tag(), variant.modified));
        Answer::Stored(self.cut(variant, range))
    }

    /// The variant if it is loaded; else what is to be answered.
    fn loaded(
        &self,
        file: &Arc<File>,
        which: Which,
        path: impl FnOnce() -> Vec<u8>,
    ) -> Result<Arc<Variant>, Answer> {
        if let Some(variant) = file.slot(which).and_then(|slot| slot.load_full()) {
            variant.touch();
            return Ok(variant);
        }
        let failure = file
            .failure(which)
            .and_then(|failure| failure.recent(|| self.shared.now()));
        Err(match failure {
            Some(why) => Answer::Refuse(why.reject()),
            None => Answer::Load(Load {
                shared: Arc::clone(&self.shared),
                file: Arc::clone(file),
                which,
                path: path().into_boxed_slice(),
            }),
        })
    }

    /// The variant that Accept-Encoding likes best of those that are there.
    fn negotiate(&self, file: &File, asks: &Asks<'_>) -> Which {
        if asks.accept_encoding.is_none() {
            return Which::Identity;
        }
        let gzip = self.gzip_of(file);
        let br = self.usable(file, Coding::Br);
        let zstd = self.usable(file, Coding::Zstd);
        if gzip.is_none() && !br && !zstd {
            return Which::Identity;
        }
        let mut available = [true; 4];
        available[Coding::Gzip as usize] = gzip.is_some();
        available[Coding::Br as usize] = br;
        available[Coding::Zstd as usize] = zstd;
        match Accepted::from_values(&asks.accept_encoding).choose(&available) {
            Coding::Identity => Which::Identity,
            Coding::Gzip => gzip.unwrap_or(Which::Identity),
            coding => Which::Sidecar(coding),
        }
    }

    fn gzip_of(&self, file: &File) -> Option<Which> {
        if self.usable(file, Coding::Gzip) {
            return Some(Which::Sidecar(Coding::Gzip));
        }
        let made = file.slot(Which::Made)?;
        made.load().is_some().then_some(Which::Made)
    }

    /// Is there such a sidecar, and did it not fail just now?
    fn usable(&self, file: &File, coding: Coding) -> bool {
        file.sidecar(coding).is_some()
            && file
                .failure(Which::Sidecar(coding))
                .is_some_and(|failure| failure.recent(|| self.shared.now()).is_none())
    }

    /// A range is of the plain bytes, unless If-Range names the tag of a coding that is acceptable.
    fn named_by_if_range(&self, file: &File, asks: &Asks<'_>) -> Option<Which> {
        let tag = ETag::parse(asks.if_range?)?;
        let ending = |coding| [b"-", coding_mark(coding).as_bytes(), b"\""].concat();
        let coding = [Coding::Gzip, Coding::Br, Coding::Zstd]
            .into_iter()
            .find(|coding| tag.opaque.ends_with(&ending(*coding)))?;
        if Accepted::from_values(&asks.accept_encoding).q(coding) == 0 {
            return None;
        }
        match coding {
            Coding::Gzip => self.gzip_of(file),
            coding => self.usable(file, coding).then_some(Which::Sidecar(coding)),
        }
    }

    /// The whole, or what Range asks for.
    fn cut(&self, variant: Arc<Variant>, range: Option<&[u8]>) -> Stored {
        let size = variant.size();
        match range.map_or(Ranges::Ignore, |range| parse_ranges(range, size)) {
            Ranges::Ignore => Stored::new(Status::OK, variant, Part::Whole),
            Ranges::Unsatisfiable => {
                Stored::new(Status::RANGE_NOT_SATISFIABLE, variant, Part::Nothing)
            }
            Ranges::Some(ranges) => {
                let part = match ranges[..] {
                    [(start, last)] => Part::One {
                        start,
                        end: last + 1,
                    },
                    _ => {
                        // Nobody who writes content knows the seed, so none holds the boundary.
                        let asked: (&[u8], &[(u64, u64)]) = (variant.tag(), &ranges);
                        let boundary = format!("anthill-{:016x}", self.shared.seed.hash_one(asked));
                        let kind = variant.heads.value("Content-Type").unwrap_or_default();
                        Part::Several(Box::new(Multipart::new(&ranges, boundary, kind, size)))
                    }
                };
                Stored::new(Status::PARTIAL_CONTENT, variant, part)
            }
        }
    }
}

/// 304 for a client that has this file in another coding than the one we would choose now, if it
/// still accepts that one.
fn known_in_other_coding(file: &File, asks: &Asks<'_>) -> Option<Stored> {
    let accepted = Accepted::from_values(&asks.accept_encoding);
    let all = [
        Which::Identity,
        Which::Made,
        Which::Sidecar(Coding::Gzip),
        Which::Sidecar(Coding::Br),
        Which::Sidecar(Coding::Zstd),
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
            return Some(Stored::new(Status::NOT_MODIFIED, variant, Part::Nothing));
        }
    }
    // Our gzip may be gone (evicted, or we were started anew); it would be the same again.
    let plain = file.slot(Which::Identity)?.load_full()?;
    if accepted.q(Coding::Gzip) == 0 || file.sidecar(Coding::Gzip).is_some() {
        return None;
    }
    let opening = &plain.tag()[..plain.tag().len() - 1];
    let mark = coding_mark(Coding::Gzip).as_bytes();
    let is_made = any_tag(&asks.if_none_match, |asked| {
        let rest = asked
            .opaque
            .strip_prefix(opening)
            .and_then(|rest| rest.strip_prefix(b"-"));
        rest.and_then(|rest| rest.strip_suffix(b"\"")) == Some(mark)
    });
    let mut stored = Stored::new(Status::NOT_MODIFIED, plain, Part::Nothing);
    stored.of_made = true;
    is_made.then_some(stored)
}
