//! The repository browser: pages about refs, commits, trees and files, for people.

#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub(crate) mod render;
pub(in crate::git) mod locate;
pub(in crate::git) mod rev_parse;
pub(crate) mod handler;
pub(in crate::git) mod page_location;
pub mod limiter;
pub(in crate::git) mod run;
pub(in crate::git) mod parse;
pub(in crate::git) mod response;
pub(in crate::git) mod etag;
pub(in crate::git) mod url;
pub(crate) mod settings;
