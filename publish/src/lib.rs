//! Publishing of a folder as a release of a site.
//!
//! The package turns a folder into contents and a manifest, and writes both to a store with the library of the server
//! for releases (`release::store`). Nothing of the package is linked into the server.

#![forbid(unsafe_code)]

mod problem;
mod text;
mod publish_file;
mod key;
mod source;
mod html;
mod netlify_headers;
mod site_rules;
mod links;
mod coding;
mod coding_plan;
mod progress;
mod all_cores;
mod content_stream;
mod content_target;
mod text_coder;
mod contents;
mod release;
mod packed_release;
mod remote;
mod destination;
pub mod cli;
