//! Rules that come with the content of a release: error pages, cache ages, response fields and redirects. A rule of the
//! operator for the same file, field or status wins.

use crate::limits::RELEASE_COMPARED_STEPS_MAX;
use crate::site::rules::{CacheControlRule, HeaderRules};
use crate::site::rules::{is, operator_fields};
use base::visible_text::shortened;
use release::glob::Glob;
use release::manifest::valid_value;
use release::manifest::{ManifestLine, RedirectLine};
use release::redirects::{RedirectRule, Redirects};
use std::cell::Cell;

/// Rules of a release. A folder has none.
#[derive(Default)]
pub(crate) struct PublishedRules {
    /// Error pages: the status, and the path of the page below the root, without initial slash.
    pub errors: Vec<(u16, Box<[u8]>)>,
    /// Cache ages. The first glob that matches decides.
    cache: Vec<(Glob, u64)>,
    /// Response fields. All globs that match apply; the last value for a name wins.
    headers: HeaderRules,
    /// Redirects.
    pub redirects: Redirects,
}

/// Collector of the rules of a manifest.
#[derive(Default)]
pub(crate) struct PublishedRulesBuilder<'m> {
    rules: PublishedRules,
    redirects: Vec<RedirectLine<'m>>,
}

impl<'m> PublishedRulesBuilder<'m> {
    /// Takes a line with a rule; a line with a file is ignored. The error is a clause with the reason that the rule is
    /// invalid.
    pub(crate) fn push(&mut self, line: ManifestLine<'m>) -> Result<(), String> {
        match line {
            ManifestLine::ErrorPage { status, path } => {
                self.rules.errors.push((status, path.into()));
            }
            ManifestLine::CacheAge { seconds, files } => {
                self.rules.cache.push((glob(&files)?, seconds));
            }
            ManifestLine::Fields { files } => {
                self.rules.headers.push((glob(&files)?, Vec::new()));
            }
            ManifestLine::Field { name, value } => {
                let field = field(&name, &value)?;
                let last = self.rules.headers.last_mut();
                last.ok_or("a field without files")?.1.push(field);
            }
            ManifestLine::Redirect(line) => self.redirects.push(line),
            ManifestLine::File { .. } | ManifestLine::Coded { .. } => {}
        }
        Ok(())
    }

    /// Returns the rules.
    pub(crate) fn finish(mut self) -> Result<PublishedRules, String> {
        let rules = self.redirects.iter().map(|line| RedirectRule {
            status: line.status,
            is_forced: line.is_forced,
            from: &line.from,
            to: &line.to,
        });
        let rules: Vec<_> = rules.collect();
        self.rules.redirects = Redirects::new(&rules).map_err(|(_, what)| what)?;
        Ok(self.rules)
    }
}

fn glob(text: &[u8]) -> Result<Glob, String> {
    Glob::parse_published(text)
        .map_err(|error| format!("the pattern `{}` is invalid: {error}", shortened(text)))
}

fn field(name: &[u8], value: &[u8]) -> Result<(String, String), String> {
    match (std::str::from_utf8(name), std::str::from_utf8(value)) {
        (Ok(name), Ok(value)) if valid_value(value) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!(
            "the field `{}` has no valid value",
            shortened(name)
        )),
    }
}

impl PublishedRules {
    /// Returns the path of the error page for a status, without the initial slash.
    pub(crate) fn error_page(&self, status: u16) -> Option<&[u8]> {
        let (_, page) = self.errors.iter().find(|(known, _)| *known == status)?;
        Some(page)
    }

    /// Returns the rule for Cache-Control of a file. A name with a hash of the content never gets another content.
    pub(crate) fn cache_control(&self, path: &[u8], is_hashed: bool) -> Option<CacheControlRule> {
        let published = self.cache.iter().find(|(glob, _)| glob.matches(path));
        let published = published.map(|(_, seconds)| CacheControlRule {
            max_age_seconds: *seconds,
            immutable: false,
            only_hashed: false,
        });
        published.or(is_hashed.then_some(CacheControlRule::HASHED))
    }

    /// Returns the response fields of a path, without Cache-Control if an operator's rule decides about caches.
    pub(crate) fn fields(&self, path: &[u8], has_operators_age: bool) -> Vec<(&str, &str)> {
        let mut fields = operator_fields(&self.headers, &[path]);
        fields.retain(|(name, _)| !(has_operators_age && is(name.as_bytes(), "Cache-Control")));
        fields
    }

    /// Returns a comparison that is true for each path that has the same heads under both sets of rules. After many steps
    /// the comparison is false for all further paths.
    pub(crate) fn compare_heads<'r>(
        &'r self,
        other: &'r PublishedRules,
    ) -> impl Fn(&[u8]) -> bool + 'r {
        let is_equal = self.cache == other.cache && self.headers == other.headers;
        let steps = Cell::new(0);
        move |path| {
            if is_equal {
                return true;
            }
            let mut taken = steps.get();
            if taken > RELEASE_COMPARED_STEPS_MAX {
                return false;
            }
            let heads = self.matching(path, &mut taken) == other.matching(path, &mut taken);
            steps.set(taken);
            heads
        }
    }

    /// Returns the published age and the fields of a path, and adds the steps of the matches to `steps`.
    fn matching(&self, path: &[u8], steps: &mut u64) -> (Option<u64>, Vec<&(String, String)>) {
        let mut cache = self.cache.iter();
        let age = cache.find(|(glob, _)| glob.matches_counted(path, steps));
        let age = age.map(|(_, seconds)| *seconds);
        let mut fields = Vec::new();
        for (glob, its) in &self.headers {
            if glob.matches_counted(path, steps) {
                fields.extend(its);
            }
        }
        (age, fields)
    }

    /// Returns the bytes of memory of the rules.
    pub(crate) fn memory_bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len();
        let fields = |fields: &[(String, String)]| {
            let fields = fields.iter();
            fields
                .map(|(name, value)| text(name) + text(value))
                .sum::<usize>()
        };
        let errors = self.errors.iter().map(|(_, page)| 32 + page.len());
        let globs = self.cache.iter().map(|(glob, _)| (glob, 0));
        let globs = globs.chain(self.headers.iter().map(|(glob, its)| (glob, fields(its))));
        let globs = globs.map(|(glob, its)| 2 * size_of::<Glob>() + glob.memory_bytes() + its);
        errors.sum::<usize>() + globs.sum::<usize>() + self.redirects.memory_bytes()
    }
}
