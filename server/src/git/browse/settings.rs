//! Settings of the repository browser.

use crate::git::browse::limiter::BrowseLimiter;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of the web pages.
pub(crate) struct BrowseSettings {
    /// Limiter of git reads, per client and in total.
    pub limiter: Arc<BrowseLimiter>,
    /// The program `git`.
    pub git: PathBuf,
    /// Folder with the bare sandbox repositories of the server.
    pub sandbox: PathBuf,
    /// True if the repositories are not public.
    pub is_private: bool,
    /// Maximum number of heavy pages per client address and minute.
    pub heavy_per_minute: u32,
    /// Maximum number of pages per client address and minute.
    pub pages_per_minute: u32,
}
