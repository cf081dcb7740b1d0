//! Publishing of a folder as a release of a site.
//!
//! The package turns a folder into contents and a manifest, and writes both to a store with the library of the server
//! (`anthill_data_plane::store`). Nothing of the package is linked into the server.

pub mod problem;
pub mod text;
pub mod key;
pub mod source;
pub mod html;
pub mod netlify;
pub mod site_rules;
pub mod links;
pub mod coding;
pub mod progress;
pub mod contents;
pub mod release;
pub mod packed_release;
pub mod remote;
pub mod destination;
pub mod cli;
