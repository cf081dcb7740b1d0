//! Bounds of the rules of a manifest. A publisher is trusted less than the server: all of the rules together may cost a
//! request, or the load of a file, only so much time and memory.

use crate::glob::Glob;
use crate::limits::{
    REDIRECT_DESTINATION_BYTES_MAX, RELEASE_CACHE_AGES_MAX, RELEASE_FIELD_NAME_BYTES_MAX,
    RELEASE_FIELD_VALUE_BYTES_MAX, RELEASE_FIELDS_BYTES_MAX, RELEASE_INNER_STARS_MAX,
    RELEASE_PATH_BYTES_MAX, RELEASE_PATTERNS_MAX,
};
use std::collections::HashMap;

/// Reason to refuse a line, as one clause.
pub(super) type Refusal = &'static str;

/// Rules of a manifest so far.
#[derive(Default)]
pub struct RuleBounds {
    cache_ages: usize,
    /// Globs with wildcards or braces.
    patterns: usize,
    /// Redirects with text behind the `*`.
    inner_stars: usize,
    /// Bytes of the fields for globs with wildcards or braces.
    pattern_field_bytes: usize,
    /// Bytes of the fields for each glob without wildcards.
    literal_field_bytes: HashMap<Literal, usize>,
    /// Glob of the last `fields`; None for a glob with wildcards or braces.
    last: Option<Literal>,
}

/// Glob without wildcards: true for a whole path, and the path or the name.
type Literal = (bool, Box<[u8]>);

impl RuleBounds {
    /// Checks the glob of a cache age.
    pub(super) fn add_cache_age(&mut self, files: &[u8]) -> Result<(), Refusal> {
        self.cache_ages += 1;
        if self.cache_ages > RELEASE_CACHE_AGES_MAX {
            return Err("the release has more than 1,000 cache ages");
        }
        self.add_glob(files).map(drop)
    }

    /// Checks a glob with its response fields. The error is a clause with the bound.
    pub fn add_section(
        &mut self,
        files: &[u8],
        fields: &[(String, String)],
    ) -> Result<(), &'static str> {
        self.add_fields(files)?;
        let mut fields = fields.iter();
        fields.try_for_each(|(name, value)| self.add_field(name.as_bytes(), value.as_bytes()))
    }

    /// Checks the glob of response fields.
    pub(super) fn add_fields(&mut self, files: &[u8]) -> Result<(), Refusal> {
        self.last = self.add_glob(files)?;
        Ok(())
    }

    fn add_glob(&mut self, files: &[u8]) -> Result<Option<Literal>, Refusal> {
        let glob = Glob::parse_published(files).map_err(|error| error.what)?;
        let literal = glob.literal();
        if literal.is_none() {
            self.patterns += 1;
            if self.patterns > RELEASE_PATTERNS_MAX {
                return Err("the release has more than 128 globs with wildcards or braces");
            }
        }
        Ok(literal.map(|(whole_path, text)| (whole_path, text.into())))
    }

    /// Checks a response field of the last glob.
    pub(super) fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if name.len() > RELEASE_FIELD_NAME_BYTES_MAX {
            return Err("the name of a field is longer than 128 bytes");
        }
        if value.len() > RELEASE_FIELD_VALUE_BYTES_MAX {
            return Err("the value of a field is longer than 8 KiB");
        }
        let (bytes, refusal) = match &self.last {
            None => (
                &mut self.pattern_field_bytes,
                "the fields for globs with wildcards have more than 16 KiB",
            ),
            Some(literal) => (
                self.literal_field_bytes.entry(literal.clone()).or_default(),
                "the fields for one path have more than 16 KiB",
            ),
        };
        *bytes += name.len() + value.len();
        if *bytes <= RELEASE_FIELDS_BYTES_MAX {
            Ok(())
        } else {
            Err(refusal)
        }
    }

    /// Checks the path and the destination of a redirect.
    pub(super) fn add_redirect(&mut self, from: &[u8], to: &[u8]) -> Result<(), Refusal> {
        if from.len() > RELEASE_PATH_BYTES_MAX {
            return Err("the path of a redirect is longer than 4,095 bytes");
        }
        if to.len() > REDIRECT_DESTINATION_BYTES_MAX {
            return Err("the destination of a redirect is longer than 2 KiB");
        }
        let star = from.iter().position(|byte| *byte == b'*');
        if star.is_some_and(|star| star + 1 < from.len()) {
            self.inner_stars += 1;
            if self.inner_stars > RELEASE_INNER_STARS_MAX {
                return Err("the release has more than 100 redirects with text behind the `*`");
            }
        }
        Ok(())
    }
}
