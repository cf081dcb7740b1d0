//! Pieces of JSON that several renderers share.

/// Returns a JSON value, or `null`.
pub(super) fn or_null(value: Option<String>) -> String {
    value.unwrap_or_else(|| "null".to_owned())
}

/// Joins JSON values with commas.
pub(super) fn joined(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    values.join(",")
}
