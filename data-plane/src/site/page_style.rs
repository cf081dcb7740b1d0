//! Common style of all generated pages: error pages, listings, pages of repositories, and the manager. The pages are light
//! or dark by the choice of the browser, and light in print.

/// Colours, fonts and links.
pub const PAGE_STYLE: &str = include_str!("page.css");

/// Header with the path, content, README and footer of a page.
pub const FRAME_STYLE: &str = include_str!("frame.css");
