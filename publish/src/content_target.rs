//! Target of the contents of a release: a store that takes them, or a store that they are compared with.

use crate::content_stream::{Output, Sum};
use crate::problem::Problem;
use release::manifest::BlobRef;
use release::store::{ReleaseStore as _, StoreWriteError, StoreWriter};
use std::collections::HashSet;
use std::fs::File;
use std::sync::Mutex;
use wire::content_coding::ContentCoding;

/// Coded contents of a file.
pub(crate) type CodedContents = Vec<(ContentCoding, BlobRef)>;

/// Content of a file with its codings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileContents {
    /// Content without a coding.
    pub content: BlobRef,
    /// Coded contents in the order of a manifest.
    pub coded: CodedContents,
}

/// Place of the contents.
#[derive(Copy, Clone)]
pub(crate) enum Target<'s> {
    /// The contents are added to a store.
    Store(&'s StoreWriter),
    /// The contents are only counted, and compared with a store. New texts are not coded.
    Count(Option<&'s dyn Presence>),
}

/// Store for comparison without changes.
pub(crate) trait Presence: Sync {
    /// Returns true if the store has a content.
    fn has(&self, content: &BlobRef) -> bool;
    /// Opens a content; None for a content that the store lacks.
    fn open(&self, content: &BlobRef) -> Option<File>;
}

impl<'s> Target<'s> {
    /// Returns true if the store has a content.
    pub(crate) fn has(&self, content: &BlobRef) -> Result<bool, Problem> {
        match self {
            Target::Store(store) => store.has(content).map_err(stored),
            Target::Count(present) => Ok(present.is_some_and(|present| present.has(content))),
        }
    }

    /// Opens a content; None for a content that the store lacks.
    pub(crate) fn open(&self, content: &BlobRef) -> Option<File> {
        match self {
            Target::Store(store) => store.reader().open_blob(&content.digest).ok(),
            Target::Count(present) => present.and_then(|present| present.open(content)),
        }
    }

    /// Begins a content.
    pub(crate) fn begin(&self) -> Result<Output<'s>, Problem> {
        match self {
            Target::Store(store) => store.draft().map(Output::Draft).map_err(stored),
            Target::Count(_) => Ok(Output::Sum(Sum::default())),
        }
    }
}

/// New contents of a store, each once.
#[derive(Default)]
pub(crate) struct NewContents(Mutex<HashSet<BlobRef>>);

impl NewContents {
    /// Completes a content in its place, and notes a content that was new there.
    pub(crate) fn finish(&self, target: Target<'_>, out: Output<'_>) -> Result<BlobRef, Problem> {
        let (content, is_new) = match out {
            Output::Draft(draft) => draft.finish().map_err(stored)?,
            Output::Sum(sum) => {
                let content = sum.finish();
                (content, !target.has(&content)?)
            }
        };
        if is_new && let Ok(mut new) = self.0.lock() {
            new.insert(content);
        }
        Ok(content)
    }

    /// Returns the bytes of all new contents.
    pub(crate) fn bytes(self) -> u64 {
        let new = self.0.into_inner().unwrap_or_default();
        new.iter().map(|content| content.size).sum()
    }
}

/// Returns the problem for an error of the store.
pub(crate) fn stored(error: StoreWriteError) -> Problem {
    Problem::failure(format!("the store: {error}"))
}
