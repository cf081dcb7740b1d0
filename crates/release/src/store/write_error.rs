//! Failure of a change of a store.

use super::StoreError;
use crate::limits::STORE_MARKS_MAX;
use base::visible_text::shortened;
use std::fmt;

/// Failure of a change of a store.
#[derive(Debug)]
pub enum StoreWriteError {
    /// A step on a file or folder of the store failed.
    File {
        /// Path below the store, or `.`.
        file: String,
        /// Reason.
        error: StoreError,
    },
    /// The pointer of the site changed since the publisher read the pointer.
    Overtaken {
        /// Sequence of the pointer in the store.
        sequence: u64,
        /// Publisher of the pointer in the store.
        publisher: String,
    },
    /// The release is withdrawn.
    Withdrawn,
    /// Another publisher adds contents, or another sweep is under way.
    Busy,
    /// The name of a site or label is not valid.
    Name(String),
    /// The label could be the beginning of a release id.
    Digits(String),
    /// The site has the largest number of files in one of its folders.
    TooMany(String),
    /// The bytes of the release do not fit into the quota.
    Quota {
        /// Bytes of the release, of the store and of all sessions.
        needed: u64,
        /// Bytes of the quota.
        quota: u64,
    },
    /// The owner has the largest number of labels of the site.
    TooManyLabels(String),
    /// The label belongs to another owner, or to nobody.
    ForeignLabel {
        /// The label.
        label: String,
        /// Owner of the label; None for a label that belongs to nobody.
        owner: Option<String>,
    },
    /// The sequence has no next number.
    SequenceEnd,
}

impl StoreWriteError {
    /// Returns a function that adds the path of a file to an error.
    pub(super) fn at<E: Into<StoreError>>(
        file: impl Into<String>,
    ) -> impl FnOnce(E) -> StoreWriteError {
        move |error| StoreWriteError::File {
            file: file.into(),
            error: error.into(),
        }
    }
}

impl fmt::Display for StoreWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreWriteError::File { file, error } if file == "." => error.fmt(f),
            StoreWriteError::File { file, error } => write!(f, "{file}: {error}"),
            StoreWriteError::Overtaken {
                sequence,
                publisher,
            } => write!(
                f,
                "{publisher} published sequence {sequence} meanwhile; compare, and publish again"
            ),
            StoreWriteError::Withdrawn => {
                f.write_str("the release is withdrawn, and is never served again")
            }
            StoreWriteError::Busy => {
                f.write_str("a publisher uses the store; run the command again later")
            }
            StoreWriteError::Name(name) => write!(
                f,
                "`{}` is no name: 1 to 63 letters, digits, dots, hyphens and underscores, with a letter or a \
                 digit first",
                shortened(name)
            ),
            StoreWriteError::Digits(label) => write!(
                f,
                "the label `{}` could be the beginning of a release id; take a label with another character",
                shortened(label)
            ),
            StoreWriteError::TooMany(folder) => write!(
                f,
                "the site has {STORE_MARKS_MAX} {folder} already; remove one first"
            ),
            StoreWriteError::Quota { needed, quota } => write!(
                f,
                "the release needs {needed} bytes together with the older releases and the uploads under way, and the quota \
                 is {quota} bytes"
            ),
            StoreWriteError::TooManyLabels(owner) => write!(
                f,
                "{STORE_MARKS_MAX} labels of the site belong to {owner} already; remove one first"
            ),
            StoreWriteError::ForeignLabel { label, owner } => write!(
                f,
                "the label `{label}` belongs to {}, and only the rights `publish` change labels of others; take \
                 another label",
                owner.as_deref().unwrap_or("nobody")
            ),
            StoreWriteError::SequenceEnd => f.write_str("the sequence has no next number"),
        }
    }
}

impl std::error::Error for StoreWriteError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_quotes_at_most_80_characters_of_a_name() {
        for error in [
            StoreWriteError::Name("k".repeat(60_000)),
            StoreWriteError::Digits("a".repeat(300)),
        ] {
            assert!(error.to_string().chars().count() < 250, "{error}");
        }
    }
}
