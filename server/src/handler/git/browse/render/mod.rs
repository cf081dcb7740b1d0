//! HTML of the repository browser's pages, and the types of raw files.

pub(crate) mod html;
pub(in crate::handler::git) mod page;
#[cfg(feature = "markdown")]
pub(in crate::handler::git) mod markdown;
pub(in crate::handler::git) mod content_type;
pub(in crate::handler::git) mod readme;
pub(in crate::handler::git) mod history;
pub(in crate::handler::git) mod commit;
pub(in crate::handler::git) mod repository_list;
pub(in crate::handler::git) mod tree;
pub(in crate::handler::git) mod frame;
#[cfg(feature = "markdown")]
pub(in crate::handler::git) mod links;
