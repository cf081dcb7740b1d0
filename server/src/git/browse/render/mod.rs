//! HTML of the repository browser's pages, and the types of raw files.

pub(in crate::git) mod highlight;
pub(crate) mod html;
pub(in crate::git) mod page;
#[cfg(feature = "markdown")]
pub(in crate::git) mod markdown;
pub(in crate::git) mod content_type;
pub(crate) mod readme;
pub(in crate::git) mod history;
pub(in crate::git) mod commit;
pub(in crate::git) mod repository_list;
pub(in crate::git) mod tree;
pub(in crate::git) mod frame;
pub(in crate::git) mod links;
