//! Releases of a site, for the server and for publishers.
//!
//! - [`manifest`], [`release_pointer`] and [`receive_frame`]: the formats of a release and of its publication.
//! - [`store`]: contents by their digests, and the pointer, labels and records of each site.
//! - [`acknowledgment`]: what the server beside a store reports to publishers.
//! - [`glob`], [`mime`], [`hashed_name`], [`redirect_map`], [`redirects`] and [`stray_files`]: the rules for the files of
//!   a site.

#![forbid(unsafe_code)]
// Without releases, a value of `ReleaseSupport` is impossible, and the compiler sees that code with a value never runs.
#![cfg_attr(not(feature = "releases"), allow(unreachable_code, unused_variables))]

pub mod limits;
pub mod glob;
pub mod hashed_name;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod manifest;
pub mod mime;
pub mod receive_frame;
pub mod redirect_map;
pub mod redirects;
pub mod release_pointer;
pub mod stray_files;
pub mod store;
pub mod acknowledgment;
