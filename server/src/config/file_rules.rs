//! Rules of a site or a route by file or by status: `cache`, `headers`, `mime`, `encodings`, `hide` and `errors`.

use toml::Spanned;

use crate::config::declared_table::{DeclaredTable, ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::field_variables::unknown_placeholder;
use crate::config::limits::CONFIG_HIDE_GLOBS_MAX;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText, TableReader, TableSchema};
use crate::config::value_types::Seconds;
use crate::config::values::{is_field_value, is_regular_expression, is_token, reserved_field};
use data_plane::site::CacheControlRule;
use release::glob::Glob;
use release::mime;
use release::stray_files::HIDDEN_GLOBS;
use wire::fields::ContentCoding;

declare_table! {
    /// Keys of a rule in `cache`.
    pub(super) struct CacheRuleTable: "a rule of `cache`" {
        /// [Glob](sites.md#files-by-glob) of the files.
        files: GlobText = required, also ["path", "match"], example "\"*.png\"";
        /// Lifetime of a copy in caches and browsers.
        max_age: Seconds = required, also ["expires", "seconds"], example "\"30d\"";
        /// `true`: the file never changes, so browsers never ask again.
        immutable: bool = default(false), example "true";
    }
}

declare_table! {
    /// Keys of a rule in `headers`.
    pub(super) struct HeaderRuleTable: "a rule of `headers`" {
        /// [Glob](sites.md#files-by-glob) of the files.
        files: GlobText = required, also ["path", "match"], example "\"*\"";
        /// Names and values of the fields.
        set: FieldValues = required, also ["add"], example "{ \"X-Content-Type-Options\" = \"nosniff\" }";
    }
}

declare_table! {
    /// Keys of a rule in `encodings`.
    pub(super) struct EncodingRuleTable: "a rule of `encodings`" {
        /// [Glob](sites.md#files-by-glob) of the files.
        files: GlobText = required, also ["path", "match"], example "\"*.js.gz\"";
        /// Coding of the content: `"gzip"`, `"br"` or `"zstd"`; `"identity"` sends a file without `Content-Encoding`.
        set: CodingName = required, also ["encoding", "coding"], example "\"gzip\"";
    }
}

/// Coding of a rule in `encodings`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodingName(ContentCoding);

impl FromToml for CodingName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&[
            ("gzip", ContentCoding::Gzip),
            ("br", ContentCoding::Br),
            ("zstd", ContentCoding::Zstd),
            ("identity", ContentCoding::Identity),
        ])
        .map(CodingName)
    }
}

/// Rule of `encodings` of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodingConfig {
    /// Glob pattern of the files.
    pub files: Spanned<String>,
    /// Coding of the content on disk.
    pub coding: ContentCoding,
}

/// Value of `encodings` of a site.
#[derive(Clone, Debug)]
pub(super) struct EncodingRules(pub(super) Vec<EncodingConfig>);

impl FromToml for EncodingRules {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "[{ files = \"*.js.gz\", set = \"gzip\" }]";
        let rules = rules::<EncodingRuleTable>(item, example)?.into_iter();
        let rules = rules.map(|rule| EncodingConfig {
            files: Spanned::new(rule.files.span(), rule.files.into_inner().0),
            coding: rule.set.get_ref().0,
        });
        Ok(EncodingRules(rules.collect()))
    }
}

/// Rule of `cache` of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheControlConfig {
    /// Glob pattern of the files.
    pub files: Spanned<String>,
    /// Age and further conditions.
    pub rule: CacheControlRule,
}

/// Rule of `headers` of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadersConfig {
    /// Glob pattern of the files.
    pub files: Spanned<String>,
    /// Names and values of response fields, valid on the wire.
    pub set: Vec<(String, String)>,
}

/// Text of a valid glob.
#[derive(Clone, Debug)]
pub(super) struct GlobText(String);

impl FromToml for GlobText {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let Some(text) = item.text() else {
            return String::read(item).map(GlobText);
        };
        if is_regular_expression(text) {
            let what = format!("`{text}` is a regular expression, not a pattern");
            let help = "write a pattern, such as \"*.png\", \"*.{js,css}\" or \"/static/**\"";
            return Err(item.refuse(what, help));
        }
        if let Some(ending) = text.strip_prefix('.').filter(|it| *it != "well-known") {
            let is_name = !ending.contains(['/', '*', '?', '[', '{', '\\', '.']);
            if is_name && mime::of(format!("x.{ending}").as_bytes(), &[]) != mime::UNKNOWN {
                let what = format!("`{text}` is the name of a hidden file, which no client gets");
                return Err(item.refuse(
                    what,
                    format!("write \"*{text}\" for all files with the ending"),
                ));
            }
        }
        match Glob::parse(text) {
            Ok(_) => Ok(GlobText(text.to_owned())),
            Err(error) => {
                let what = format!("the pattern `{text}` is invalid: {}", error.what);
                let help = "`*` stands for any part of a name, `?` for one character, `[a-z]` for one of several, \
                            `{a,b}` for a or b, `**` for folders";
                Err(item.source.error(item.span_from(error.at), what, help))
            }
        }
    }
}

/// Value of `hide`: globs of files and folders that no client gets.
#[derive(Clone, Debug)]
pub(super) struct HideGlobs(pub(super) Vec<String>);

impl Default for HideGlobs {
    fn default() -> HideGlobs {
        let globs = HIDDEN_GLOBS.iter();
        HideGlobs(globs.map(|glob| (*glob).to_owned()).collect())
    }
}

impl ShownValue for HideGlobs {
    fn shown(&self) -> String {
        self.0.shown()
    }
}

impl FromToml for HideGlobs {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let value = item.value.get_ref();
        if !value.is_array() && !value.is_str() {
            return Err(item.mistyped("a list of patterns", "[\"*~\", \"*.bak\"]"));
        }
        let (source, span) = (item.source, item.value.span());
        let globs = item.items().into_iter().map(|item| {
            let span = item.value.span();
            let is_hidden = |text: &str| {
                let is_name = !text.contains(['/', '*', '?', '[', '{', '\\']);
                text.starts_with('.') && text != ".well-known" && is_name
            };
            if let Some(text) = item.text().filter(|text| is_hidden(text)) {
                let what = format!("`{text}` is the name of a hidden file, which no client gets");
                let help = format!("write \"*{text}\" for all files with the ending");
                return Err(source.error(span, what, help));
            }
            GlobText::read(item).map(|glob| folder_glob(glob.0))
        });
        let globs = source.all(globs)?;
        if globs.len() > CONFIG_HIDE_GLOBS_MAX {
            let what = format!("`hide` has more than {CONFIG_HIDE_GLOBS_MAX} patterns");
            let help = "join patterns with braces: \"*.{bak,old,sql}\"";
            return Err(source.error(span, what, help));
        }
        Ok(HideGlobs(globs))
    }
}

/// Returns a pattern of `hide` that ends with a slash without the slash: a hidden folder hides all paths below, and
/// `name/` hides each folder with the name, as in `.gitignore`. Wildcards alone would hide all files, and keep the slash.
fn folder_glob(glob: String) -> String {
    match glob.trim_end_matches('/') {
        folder if folder.contains(|sign| !matches!(sign, '*' | '/')) => folder.to_owned(),
        _ => glob,
    }
}

/// Names and values of response fields.
#[derive(Clone, Debug)]
pub(super) struct FieldValues(Vec<(String, String)>);

impl FromToml for FieldValues {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let entries = item.table(&SET)?.rest().into_iter();
        let read = |entry: (Spanned<String>, KeyedValue<'_, '_>)| {
            let span = entry.1.value.span();
            let (name, value) = field(entry, reserved_field)?;
            match unknown_placeholder(&value, &[]) {
                Some(placeholder) => {
                    let what = format!(
                        "the placeholder `{placeholder}` in `{name}` would reach clients as text"
                    );
                    let help = "write a fixed text: fields of responses have no placeholders";
                    Err(source.error(span, what, help))
                }
                None => Ok((name, value)),
            }
        };
        source.all(entries.map(read)).map(FieldValues)
    }
}

static SET: TableSchema = TableSchema::of_data("set");
static ERRORS: TableSchema = TableSchema::of_data("errors");
static MIME: TableSchema = TableSchema::of_data("mime");

/// Reads a field with its value. `reserved` returns the reason why a field cannot be set.
pub(super) fn field(
    (name, item): (Spanned<String>, KeyedValue<'_, '_>),
    reserved: fn(&str) -> Option<&'static str>,
) -> Result<(String, String), OperatorError> {
    let source = item.source;
    if !is_token(name.get_ref()) {
        let what = format!("`{}` is not a field name", name.get_ref());
        let help = "write letters, digits and hyphens, such as \"X-Frame-Options\"";
        return Err(source.error(name.span(), what, help));
    }
    if let Some(help) = reserved(name.get_ref()) {
        let what = format!("the field `{}` cannot be set", name.get_ref());
        return Err(source.error(name.span(), what, help));
    }
    let value = <Spanned<String>>::read(item)?;
    if !is_field_value(value.get_ref()) {
        let what = format!("the value is not valid for the field `{}`", name.get_ref());
        let help = "write one line without control characters, and without spaces at either end";
        return Err(source.error(value.span(), what, help));
    }
    Ok((name.into_inner(), value.into_inner()))
}

/// Entry of `cache` for the files with a hash of the content in the name.
pub(super) const HASHED: &str = "hashed";

/// Value of `cache` of a site.
#[derive(Clone, Debug)]
pub(super) struct CacheRules(pub(super) Vec<CacheControlConfig>);

impl FromToml for CacheRules {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "[\"hashed\", { files = \"*.png\", max_age = \"30d\" }]";
        if !is_list_of_rules(&item) && item.text() != Some(HASHED) {
            return Err(item.mistyped("a list of rules", example));
        }
        let source = item.source;
        let rules = item.items().into_iter().map(|item| {
            if item.text() == Some(HASHED) {
                let files = Spanned::new(item.value.span(), "*".to_owned());
                let rule = CacheControlRule::HASHED;
                return Ok(CacheControlConfig { files, rule });
            }
            let rule = rule::<CacheRuleTable>(item, example)?;
            Ok(CacheControlConfig {
                files: Spanned::new(rule.files.span(), rule.files.into_inner().0),
                rule: CacheControlRule {
                    max_age_seconds: rule.max_age.get_ref().0,
                    immutable: rule.immutable.into_inner(),
                    only_hashed: false,
                },
            })
        });
        source.all(rules).map(CacheRules)
    }
}

/// Value of `headers` of a site.
#[derive(Clone, Debug)]
pub(super) struct HeaderRules(pub(super) Vec<HeadersConfig>);

impl FromToml for HeaderRules {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "[{ files = \"*\", set = { \"X-Frame-Options\" = \"DENY\" } }]";
        let rules = rules::<HeaderRuleTable>(item, example)?.into_iter();
        let rules = rules.map(|rule| HeadersConfig {
            files: Spanned::new(rule.files.span(), rule.files.into_inner().0),
            set: rule.set.into_inner().0,
        });
        Ok(HeaderRules(rules.collect()))
    }
}

/// Takes the value of Strict-Transport-Security out of the rules of `headers` of a site with `hsts`, so that a response has the
/// field once: the maximum age of a rule for all files replaces the age of `hsts`. Refuses any other value.
pub(super) fn hsts_of_rules(
    source: &SourceText<'_>,
    rules: &mut [HeadersConfig],
    hsts: &mut Option<u64>,
) {
    if hsts.is_none() {
        return;
    }
    for rule in rules {
        let is_hsts = |(name, _): &(String, String)| name.eq_ignore_ascii_case(HSTS);
        let Some(at) = rule.set.iter().position(is_hsts) else {
            continue;
        };
        let age = rule.set[at].1.strip_prefix("max-age=");
        let age = age.and_then(|age| age.parse().ok());
        let is_all = matches!(rule.files.get_ref().as_str(), "*" | "**" | "/**");
        if let (Some(age), true) = (age, is_all) {
            *hsts = Some(age);
            rule.set.remove(at);
            continue;
        }
        let what = format!("`hsts` and this rule of `headers` would both send {HSTS}");
        let help = "remove `hsts` of the site, or the field of the rule: a browser reads the first field alone";
        source.report(source.error(rule.files.span(), what, help));
    }
}

/// Field that tells browsers to use HTTPS alone (RFC 6797 §6.1).
const HSTS: &str = "Strict-Transport-Security";

/// Reads a list of rules, or a single rule without brackets.
fn rules<T: DeclaredTable>(
    item: KeyedValue<'_, '_>,
    example: &str,
) -> Result<Vec<T>, OperatorError> {
    if !is_list_of_rules(&item) {
        return Err(item.mistyped("a list of rules", example));
    }
    let source = item.source;
    let tables = item.items().into_iter().map(|item| rule(item, example));
    source.all(tables)
}

/// Returns true for a list, and for a single rule without brackets.
fn is_list_of_rules(item: &KeyedValue<'_, '_>) -> bool {
    let value = item.value.get_ref();
    value.is_array()
        || value
            .as_table()
            .is_some_and(|rule| rule.contains_key("files"))
}

fn rule<T: DeclaredTable>(item: KeyedValue<'_, '_>, example: &str) -> Result<T, OperatorError> {
    if !item.value.get_ref().is_table() {
        return Err(item.mistyped("a list of rules", example));
    }
    let table = item.table(T::SCHEMA)?;
    T::read_table(table).map(Spanned::into_inner)
}

/// Value of `errors` of a site: pages by status.
#[derive(Clone, Debug)]
pub(super) struct ErrorPages(pub(super) Vec<(u16, Spanned<String>)>);

impl FromToml for ErrorPages {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let table = item.table_like(&ERRORS, "{ 404 = \"not-found.html\" }")?;
        source.all(entries(table).map(error_page)).map(ErrorPages)
    }
}

fn entries<'s, 'i>(
    table: TableReader<'s, 'i>,
) -> impl Iterator<Item = (Spanned<String>, KeyedValue<'s, 'i>)> {
    table.rest().into_iter()
}

fn error_page(
    (key, item): (Spanned<String>, KeyedValue<'_, '_>),
) -> Result<(u16, Spanned<String>), OperatorError> {
    let source = item.source;
    let status = key.get_ref().parse::<u16>().ok();
    let Some(status) = status.filter(|status| (400..=599).contains(status)) else {
        let what = format!("`{}` is not the status of an error", key.get_ref());
        let help = "write a number from 400 to 599, such as 404";
        return Err(source.error(key.span(), what, help));
    };
    let page = <Spanned<String>>::read(item)?;
    let path = page.get_ref().trim_start_matches('/');
    let inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !inside || path.contains('\0') {
        let what = format!("`{}` is not a page of the site", page.get_ref());
        let help = "write a path below the root, such as \"404.html\"";
        return Err(source.error(page.span(), what, help));
    }
    Ok((status, Spanned::new(page.span(), path.to_owned())))
}

/// Value of `mime` of a site: media types by ending, name or glob.
#[derive(Clone, Debug)]
pub(super) struct MediaTypes(pub(super) Vec<(String, String)>);

impl FromToml for MediaTypes {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let table = item.table_like(&MIME, "{ \".wasm\" = \"application/wasm\" }")?;
        source.all(entries(table).map(media_type)).map(MediaTypes)
    }
}

fn media_type(
    (ending, item): (Spanned<String>, KeyedValue<'_, '_>),
) -> Result<(String, String), OperatorError> {
    let source = item.source;
    let name = ending.get_ref();
    if name.is_empty() || name == "." {
        let what = format!("`{name}` names no file");
        let help = "write an ending such as \".wasm\", a name, or a pattern such as \"/data/**\"";
        return Err(source.error(ending.span(), what, help));
    }
    if let Err(error) = Glob::parse(name) {
        let what = format!("the pattern `{name}` is invalid: {}", error.what);
        let help = "write an ending such as \".wasm\", a name, or a pattern such as \"/data/**\"";
        return Err(source.error(ending.span(), what, help));
    }
    // A word without a dot or a wildcard is a name, but most often an ending without its dot.
    let is_word = !name.contains(['.', '/', '*', '?', '[', '{', '\\']);
    if is_word && mime::of(format!("x.{name}").as_bytes(), &[]) != mime::UNKNOWN {
        let what = format!("`{name}` is not a file ending");
        let help = format!("begin the file ending with a dot: \".{name}\"");
        return Err(source.error(ending.span(), what, help));
    }
    let media = <Spanned<String>>::read(item)?;
    let essence = media.get_ref().split(';').next();
    let halves = essence.and_then(|it| it.trim_end().split_once('/'));
    if !halves.is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
        || !is_field_value(media.get_ref())
    {
        let what = format!("`{}` is not a media type", media.get_ref());
        let usual = "write a type such as \"text/html; charset=utf-8\"";
        let ending = media.get_ref().split_ascii_whitespace().next();
        let help = match ending {
            // The format of nginx, with the type in front of the endings.
            Some(ending) if name.contains('/') && !name.starts_with('/') => {
                let ending = ending.trim_start_matches('.');
                format!("write the ending first: \".{ending}\" = \"{name}\"")
            }
            _ => usual.to_owned(),
        };
        return Err(source.error(media.span(), what, help));
    }
    let name = if is_ending(name) {
        name.to_ascii_lowercase()
    } else {
        name.clone()
    };
    Ok((name, media.into_inner()))
}

/// Returns true if a key of `mime` is an ending: a dot, and no character of a glob.
pub fn is_ending(key: &str) -> bool {
    key.starts_with('.') && !key.contains(['/', '*', '?', '[', '{', '\\'])
}
