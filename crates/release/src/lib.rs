//! Releases of a site: the formats of a release and of its publication, for the server and for publishers.

pub mod limits;
pub mod glob;
pub mod hashed_name;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod manifest;
pub mod receive_frame;
pub mod redirect_map;
pub mod release_pointer;
