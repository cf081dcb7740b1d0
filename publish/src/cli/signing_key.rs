//! Key for signatures, from the options of a command or from `publish.toml`.

use super::command::{OptionSpec, ParsedCommand};
use crate::key::PublisherKey;
use crate::problem::Problem;
use std::ffi::OsStr;
use std::path::Path;

/// Option for the identity of the site in the signature.
pub(super) const SITE_ID: OptionSpec = OptionSpec::with_value(
    "site-id",
    "TEXT",
    "sign for the site with this `site_id`, in place of the one in the key file",
);

/// Reads the key of `--key`, with the identity of the site.
pub(super) fn key(parsed: &ParsedCommand) -> Result<Option<PublisherKey>, Problem> {
    read_key(parsed.value("key"), parsed)
}

/// Reads a key from a file, with the identity of the site.
pub(super) fn read_key(
    file: Option<&OsStr>,
    parsed: &ParsedCommand,
) -> Result<Option<PublisherKey>, Problem> {
    let id = parsed.text("site-id")?;
    let key = match file {
        Some(file) => Some(PublisherKey::read(Path::new(file), id)?),
        None if id.is_some() && !parsed.has("new-key") => {
            let what = "--site-id is a part of the signature, and needs --key";
            return Err(Problem::usage(what).help("write --key FILE beside --site-id"));
        }
        None => None,
    };
    Ok(key)
}
