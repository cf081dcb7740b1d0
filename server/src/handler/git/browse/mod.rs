//! The repository browser: pages about refs, commits, trees and files, for people.

#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub(crate) mod render;
pub(in crate::handler::git) mod locate;
pub(in crate::handler::git) mod rev_parse;
pub(crate) mod handler;
pub(in crate::handler::git) mod page_location;
pub mod limiter;
pub(in crate::handler::git) mod run;
pub(in crate::handler::git) mod parse;
pub(in crate::handler::git) mod response;
pub(in crate::handler::git) mod etag;
pub(in crate::handler::git) mod url;
pub(crate) mod settings;
