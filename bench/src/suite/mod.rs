//! The suites: each describes the measurements of a source document as data. Starting, pinning, loading and
//! checking servers is common to all suites and is in `measurer.rs`. Each suite has a file, however short.

mod agreement;
mod dynamic;
mod growth;
mod handshake;
mod hello;
mod journal;
mod matrix;
mod options;
mod page;
mod plan;
mod protocols;
mod proxy;

pub(crate) use options::{Extent, Options};
pub(crate) use plan::{Case, Group, Plan, Setting, Suite};

/// All suites, in the order of the source documents.
pub(crate) static SUITES: &[Suite] = &[
    journal::SUITE,
    hello::SUITE,
    matrix::SUITE,
    growth::SUITE,
    dynamic::SUITE,
    handshake::SUITE,
    protocols::SUITE,
    proxy::SUITE,
    page::SUITE,
    agreement::SUITE,
];

#[cfg(test)]
mod tests;
