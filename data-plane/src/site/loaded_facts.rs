//! Facts of a loaded variant from which its response heads are built, for loads and for the background compression.

use super::file::SiteFile;
use super::prepared_heads::{HeadFacts, PreparedHeads};
use super::shared::SiteShared;
use wire::fields::ContentCoding;

/// Facts of a loaded variant from which its heads are built.
pub(super) struct LoadedFacts<'a> {
    /// Bytes of the content.
    pub size: u64,
    /// Value of Last-Modified, seconds since 1970; None without the field.
    pub modified: Option<u64>,
    /// Entity tag with quotes.
    pub tag: &'a str,
    pub coding: ContentCoding,
    /// Whether a process has the file open for writing.
    pub is_open: bool,
}

impl LoadedFacts<'_> {
    /// Builds the response heads of a variant.
    pub(super) fn heads(&self, shared: &SiteShared, file: &SiteFile, path: &[u8]) -> PreparedHeads {
        let has_codings = file.sidecars.is_some() || shared.rules.is_compressible(path);
        let varies = has_codings && !self.is_open;
        PreparedHeads::new(
            &shared.rules,
            &shared.published,
            &HeadFacts {
                path,
                size: self.size,
                modified: self.modified,
                tag: self.tag,
                coding: self.coding,
                varies,
                is_hashed: file.version.is_hashed(),
                is_open: self.is_open,
            },
        )
    }
}

/// Returns the suffix of a coding, which follows a dash in the entity tag.
pub(super) fn coding_mark(coding: ContentCoding) -> &'static str {
    match coding {
        ContentCoding::Identity => "",
        ContentCoding::Gzip => "gz",
        ContentCoding::Br => "br",
        ContentCoding::Zstd => "zst",
    }
}
