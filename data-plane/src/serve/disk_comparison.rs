//! Comparison of a site's answer with the disk, for a request that came after changes that the World does not show yet.
//!
//! A request that may wait is answered from the next World if the disk contradicts the present one.

use crate::serve::dispatch_context::DispatchContext;
use crate::serve::step::Step;
use crate::site::{Site, SiteResponse, VariantResponse};
use crate::world::Host;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::RequestHead;

/// Comparison for one request.
pub(super) struct DiskComparison<'a> {
    host: &'a Host,
    context: &'a DispatchContext,
    head: &'a RequestHead<'a>,
}

impl<'a> DiskComparison<'a> {
    #[inline]
    pub(super) fn new(
        host: &'a Host,
        context: &'a DispatchContext,
        head: &'a RequestHead<'a>,
    ) -> DiskComparison<'a> {
        DiskComparison {
            host,
            context,
            head,
        }
    }

    /// Returns true if the request may wait for the next World.
    pub(super) fn may_wait(&self) -> bool {
        let is_bodiless = matches!(self.head.body, BodyLength::None | BodyLength::Length(0));
        self.context.may_wait && is_bodiless
    }

    /// Returns true if the stored page must be compared with the disk. Without changes on disk the
    /// check costs a few loads.
    #[inline]
    pub(super) fn is_needed_for(&self, stored: &VariantResponse) -> bool {
        stored.variant.is_due(self.context.now_ms) || stored.is_fallback || self.may_be_stale()
    }

    /// Compares the answer of `site` for `path` with the disk, whether or not the kernel has reported a change. Returns
    /// the wait for the next World if the two differ.
    #[inline(never)]
    pub(super) fn of_path(&self, site: &Site, path: &[u8]) -> Option<Step> {
        if !self.may_wait() {
            return None;
        }
        let differing = site.first_stale_path(path)?;
        site.note_stale(&differing);
        self.host
            .change_tracker
            .request_recheck()
            .map(Step::catch_up)
    }

    /// Compares the site's error page for `reject` with the disk. Returns the wait for the next World
    /// if the two differ.
    pub(super) fn of_error_page(&self, reject: Reject) -> Option<Step> {
        let site = self.host.site.as_ref().filter(|_| self.may_be_stale())?;
        self.of_path(site, site.error_path(reject.status, &self.head.path)?)
    }

    /// Compares the answer of `site` for `path` with the disk. Returns the wait for the next World if the disk contradicts
    /// the answer.
    pub(super) fn of_answer(
        &self,
        site: &Site,
        path: &[u8],
        answer: &SiteResponse,
    ) -> Option<Step> {
        match answer {
            SiteResponse::Load(_) if !self.may_be_stale() => None,
            SiteResponse::Stored(_) | SiteResponse::Load(_) | SiteResponse::Redirect { .. } => {
                self.of_path(site, path)
            }
            SiteResponse::Refuse(reject) if is_nothing(*reject) || *reject == Reject::CHANGING => {
                self.of_path(site, path)
            }
            SiteResponse::Refuse(Reject::LINK_LEAVES | Reject::UNREADABLE)
            | SiteResponse::Listing(_) => self.reported_changes(),
            SiteResponse::Options | SiteResponse::Moved { .. } | SiteResponse::Refuse(_) => None,
        }
    }

    /// Returns the wait for all changes of the site that were reported before the request; None if no
    /// change is pending.
    fn reported_changes(&self) -> Option<Step> {
        if self.may_wait() {
            self.host
                .change_tracker
                .pending_catch_up()
                .map(Step::catch_up)
        } else {
            None
        }
    }

    /// Returns true if the disk may have changed before the request in a way that the current World
    /// does not show. Without changes on disk the check costs a flag and two loads.
    fn may_be_stale(&self) -> bool {
        self.context.has_disk_changes || !self.host.change_tracker.is_caught_up()
    }
}

/// Returns true if no file exists under the path. Other refusals concern an existing file that must not be
/// shown.
pub(super) fn is_nothing(reject: Reject) -> bool {
    [Reject::NOT_FOUND, Reject::NO_INDEX, Reject::HASHED_MISSING].contains(&reject)
}
