//! Line of a manifest.

use std::borrow::Cow;
use wire::content_coding::ContentCoding;

/// Content of a file in one coding, by its size and digest.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlobRef {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub digest: [u8; 32],
}

/// Line of a manifest after the first. Texts are decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManifestLine<'m> {
    /// Page for a status.
    ErrorPage {
        /// Status from 400 to 599.
        status: u16,
        /// Path of the page, without initial slash.
        path: Cow<'m, [u8]>,
    },
    /// Age for caches.
    CacheAge {
        /// Value of max-age in seconds.
        seconds: u64,
        /// Glob that selects the files.
        files: Cow<'m, [u8]>,
    },
    /// Beginning of the response fields for some files.
    Fields {
        /// Glob that selects the files.
        files: Cow<'m, [u8]>,
    },
    /// Response field.
    Field {
        /// Name of the field.
        name: Cow<'m, [u8]>,
        /// Value of the field.
        value: Cow<'m, [u8]>,
    },
    /// Redirect.
    Redirect(RedirectLine<'m>),
    /// File.
    File {
        /// Path, without initial slash.
        path: Cow<'m, [u8]>,
        /// Content of the file.
        content: BlobRef,
        /// True if the name contains a hash of the content, so that the content never changes under the name.
        is_hashed: bool,
    },
    /// Content of the last file in a coding other than identity.
    Coded {
        /// The coding.
        coding: ContentCoding,
        /// Coded content.
        content: BlobRef,
    },
}

/// Redirect of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectLine<'m> {
    /// 301, 302, 303, 307, 308, or 410 for a page that is gone.
    pub status: u16,
    /// True if the redirect also applies where a file exists.
    pub is_forced: bool,
    /// Path that is redirected, with initial slash; perhaps with one `*` at the end.
    pub from: Cow<'m, [u8]>,
    /// Path or URL of the destination; empty with status 410.
    pub to: Cow<'m, [u8]>,
}
