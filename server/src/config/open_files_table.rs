//! Key of `[[site]]` about files that processes have open for writing: `growing`.

use toml::Spanned;

use crate::config::declared_table::declare_table;

declare_table! {
    /// Keys of `[[site]]` about files that processes have open for writing.
    pub(super) struct OpenFileKeys: "[[site]]: open files" {
        /// Files that processes append to, such as logs. While a process has such a file open for writing, a response
        /// has the length at the time of the request. See [open files](changes.md#files-that-stay-open).
        growing: Vec<Spanned<String>> = default(Vec::new()),
            also ["append", "logs", "tail"], example "[\"*.log\"]";
    }
}
