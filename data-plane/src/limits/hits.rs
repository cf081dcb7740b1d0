//! Bounds of `hits`: counts of page views.

/// Pages of one site with counts of their own. Views of further pages count for the site alone.
pub(crate) const HITS_PATHS_MAX: usize = 10_000;
/// Days with counts remembered for one site: a year, and the same month of the year before. The oldest
/// day is dropped.
pub const HITS_DAYS_MAX: usize = 400;
/// Days with views remembered for one page. The oldest day is dropped.
pub(crate) const HITS_PAGE_DAYS_MAX: usize = 31;
/// Files with remaining counts of earlier processes that are added at once. A process writes one in 5 minutes for at most
/// `restart_seconds`, and few such processes live at the same time.
pub(crate) const HITS_REST_FILES_MAX: usize = 1_000;
/// Paths that a worker counts before the worker sends the counts to the ledger.
pub(crate) const HITS_TALLY_PATHS_MAX: usize = 1_024;
