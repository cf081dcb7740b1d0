//! Buffers of a worker for HTTP/2 connections.

use crate::site::VariantResponse;
use std::cell::RefCell;
use wire::field_section::FieldSection;
use wire::h2::hpack::HpackScratch;

/// Buffers shared by all HTTP/2 connections of a worker, in use only while a connection is polled.
#[derive(Default)]
pub(crate) struct H2Buffers {
    pub(super) request: RefCell<FieldSection>,
    pub(super) strings: RefCell<HpackScratch>,
    /// Encoded frames to be sent.
    pub(super) frames: RefCell<Vec<u8>>,
    /// Bodies in memory, each with its position among the frames.
    pub(super) bodies: RefCell<Vec<(usize, VariantResponse)>>,
}
