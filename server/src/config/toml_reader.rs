//! Reader of a parsed TOML document, table by table.
//!
//! Each key is taken out of a table with the expected type. A key left over at the end is unknown. The
//! reader is written by hand, because an operator needs more in an error (the table of the mistake, the
//! word probably meant, a correct example) than a derived deserializer provides.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::OperatorError;
use crate::config::foreign_words::{find, key_help};
use crate::config::suggestion::suggest;
use crate::config::values::InvalidValue;

/// Text of the file, with the folder for relative paths.
pub(super) struct SourceText<'s> {
    pub(super) text: &'s str,
    pub(super) shown: &'s str,
    pub(super) folder: &'s Path,
}

impl SourceText<'_> {
    /// Returns the number of the line at a position, beginning with 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    #[cold]
    #[inline(never)]
    pub(super) fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> OperatorError {
        OperatorError::new(what)
            .help(help)
            .at(self.shown, self.text, span)
    }
}

/// Keys of a kind of table.
pub(super) struct TableSchema {
    /// Name as written in the file: `[server]`.
    pub(super) name: &'static str,
    /// Supported keys.
    pub(super) keys: &'static [&'static str],
    /// Keys reserved for a later version.
    pub(super) later: &'static [&'static str],
    /// Words that other servers use for a key, with the help for each word.
    pub(super) foreign: &'static [(&'static str, &'static str)],
}

/// Table of the file, with the keys not yet taken out.
pub(super) struct TableReader<'s, 'i> {
    source: &'s SourceText<'s>,
    shape: &'static TableSchema,
    /// Position of the table's header (or braces).
    pub(super) span: Range<usize>,
    entries: DeTable<'i>,
    /// Key of the table, if the file has a single value instead of the table.
    short_for: Option<String>,
}

impl<'s, 'i> TableReader<'s, 'i> {
    pub(super) fn new(
        source: &'s SourceText<'s>,
        shape: &'static TableSchema,
        span: Range<usize>,
        entries: DeTable<'i>,
    ) -> TableReader<'s, 'i> {
        TableReader {
            source,
            shape,
            span,
            entries,
            short_for: None,
        }
    }

    /// Takes a key out and reads the value; `None` if the key is missing.
    pub(super) fn take<T: FromToml>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, OperatorError> {
        match self.item(key) {
            Some(item) => T::read(item).map(Some),
            None => Ok(None),
        }
    }

    /// Takes out a number, and fails if the number is outside of `range`.
    pub(super) fn within<T: FromToml + TryInto<u64> + Copy>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<T>, OperatorError> {
        let Some(value) = self.take::<Spanned<T>>(key)? else {
            return Ok(None);
        };
        let number: u64 = (*value.get_ref()).try_into().unwrap_or(u64::MAX);
        if range.contains(&number) {
            return Ok(Some(value.into_inner()));
        }
        let (low, high) = (range.start(), range.end());
        let help = match *high {
            u64::MAX => format!("write a number of at least {low}"),
            _ => format!("write a number between {low} and {high}"),
        };
        Err(self
            .source
            .error(value.span(), format!("`{key}` is out of bounds"), help))
    }

    /// Takes out a word from `words`, a list of pairs of a word and the word's meaning.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, OperatorError> {
        let word = self.spanned_word(key, words)?;
        Ok(word.map(Spanned::into_inner))
    }

    /// Takes out a word like [`TableReader::word`], with the position in the file.
    pub(super) fn spanned_word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<Spanned<T>>, OperatorError> {
        let Some(item) = self.item(key) else {
            return Ok(None);
        };
        let span = item.value.span();
        item.word(words).map(|word| Some(Spanned::new(span, word)))
    }

    /// Takes a value out together with the key, for keys that accept several types.
    pub(super) fn item(&mut self, key: &'static str) -> Option<KeyedValue<'s, 'i>> {
        debug_assert!(
            self.shape.keys.contains(&key),
            "{key} in {}",
            self.shape.name
        );
        let (_, value) = self.entries.remove_entry(key)?;
        let key = self.short_for.as_deref().unwrap_or(key).to_owned();
        Some(KeyedValue {
            source: self.source,
            key,
            value,
        })
    }

    /// Returns a key as written in the file: the name of the table, if the file has a single value instead of the table.
    pub(super) fn shown_key<'k>(&'k self, key: &'k str) -> &'k str {
        self.short_for.as_deref().unwrap_or(key)
    }

    /// Returns all remaining keys in the order of the file, for tables with data as keys.
    pub(super) fn rest(self) -> Vec<(Spanned<String>, KeyedValue<'s, 'i>)> {
        let mut rest: Vec<(Spanned<String>, KeyedValue<'s, 'i>)> = Vec::new();
        for (key, value) in self.entries {
            let span = key.span();
            let name = key.get_ref().to_string();
            let place = rest.partition_point(|(other, _)| other.span().start < span.start);
            let item = KeyedValue {
                source: self.source,
                key: name.clone(),
                value,
            };
            rest.insert(place, (Spanned::new(span, name), item));
        }
        rest
    }

    /// Returns an error at the header of the table.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&self, what: impl Into<String>, help: impl Into<String>) -> OperatorError {
        self.source.error(self.span.clone(), what, help)
    }

    pub(super) fn source(&self) -> &'s SourceText<'s> {
        self.source
    }

    /// Ends the reading of the table, and fails if an unknown key is left.
    pub(super) fn finish(self) -> Result<(), OperatorError> {
        self.refuse_unknown()?;
        debug_assert!(
            self.entries.is_empty(),
            "a key of {} is never read",
            self.shape.name
        );
        Ok(())
    }

    /// Returns an error at the header for missing keys. If the table has an unknown key, the error is about
    /// the unknown key, the more likely mistake.
    pub(super) fn lacks(&self, what: &str, help: &str) -> OperatorError {
        match self.refuse_unknown() {
            Err(unknown) => unknown,
            Ok(()) => self.refuse(what, help),
        }
    }

    /// Fails with the first unknown key in the order of the file.
    fn refuse_unknown(&self) -> Result<(), OperatorError> {
        let shape = self.shape;
        let unknown = self
            .entries
            .keys()
            .filter(|key| !shape.keys.contains(&key.get_ref().as_ref()));
        let first = unknown.min_by_key(|key| key.span().start);
        let Some(key) = first else { return Ok(()) };
        let word = key.get_ref().as_ref();
        if shape.later.contains(&word) {
            let what = format!("`{word}` is not yet supported");
            let help = "remove the key: a later version of anthill will support it";
            return Err(self.source.error(key.span(), what, help));
        }
        let known = shape.keys.iter().chain(shape.later).copied();
        let help = if let Some(help) = find(shape.foreign, word).or_else(|| key_help(word)) {
            help.to_owned()
        } else if let Some(meant) = suggest(word, known) {
            format!("did you mean `{meant}`?")
        } else if let Some(home) = crate::config::schema::home_of(word, shape) {
            format!("`{word}` belongs in {home}")
        } else {
            format!("{} knows {}", shape.name, shape.keys.join(", "))
        };
        let what = format!("unknown key `{word}` in {}", shape.name);
        Err(self.source.error(key.span(), what, help))
    }
}

/// Value of the file with the key.
pub(super) struct KeyedValue<'s, 'i> {
    pub(super) source: &'s SourceText<'s>,
    pub(super) key: String,
    pub(super) value: Spanned<DeValue<'i>>,
}

impl<'s, 'i> KeyedValue<'s, 'i> {
    /// Returns the error "`key` must be EXPECTED, not a TYPE".
    pub(super) fn mistyped(&self, expected: &str, example: &str) -> OperatorError {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let what = format!("`{}` must be {expected}, not {found}", self.key);
        self.refuse(what, format!("for example {} = {example}", self.key))
    }

    /// Returns an error at the value.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&self, what: impl Into<String>, help: impl Into<String>) -> OperatorError {
        self.source.error(self.value.span(), what, help)
    }

    fn wrong(&self, wrong: InvalidValue) -> OperatorError {
        self.refuse(wrong.what, wrong.help)
    }

    /// Returns the text of a string value; `None` for other types.
    pub(super) fn text(&self) -> Option<&str> {
        self.value.get_ref().as_str()
    }

    /// Reads text with a parser. `expected` names the type, and `example` is a value of the type.
    pub(super) fn parse<T>(
        &self,
        expected: &str,
        example: &str,
        parser: impl FnOnce(&str) -> Result<T, InvalidValue>,
    ) -> Result<T, OperatorError> {
        match self.text() {
            Some(text) => parser(text).map_err(|wrong| self.wrong(wrong)),
            None => Err(self.mistyped(expected, example)),
        }
    }

    fn into_text(self, expected: &str, example: &str) -> Result<String, OperatorError> {
        match self.text() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.mistyped(expected, example)),
        }
    }

    /// Returns the meaning of a word from `words`, a list of pairs of a word and the word's meaning.
    pub(super) fn word<T: Copy>(self, words: &[(&str, T)]) -> Result<T, OperatorError> {
        self.word_or_foreign(words, &[])
    }

    /// Reads a word like [`KeyedValue::word`]. `foreign` has words of other servers, in lower case and
    /// without `-` and `_`, each with the word that an error suggests.
    pub(super) fn word_or_foreign<T: Copy>(
        self,
        words: &[(&str, T)],
        foreign: &'static [(&'static str, &'static str)],
    ) -> Result<T, OperatorError> {
        let choice = words.iter().map(|(word, _)| format!("\"{word}\""));
        let choice = choice.collect::<Vec<_>>();
        let choice = match choice.split_last() {
            Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
            _ => choice.concat(),
        };
        let DeValue::String(typed) = self.value.get_ref() else {
            return Err(self.mistyped(&choice, &format!("\"{}\"", words[0].0)));
        };
        match words.iter().find(|(word, _)| word == typed) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let plain = typed.to_ascii_lowercase().replace(['-', '_'], "");
                let meant = find(foreign, &plain);
                let help =
                    match meant.or_else(|| suggest(typed, words.iter().map(|(word, _)| *word))) {
                        Some(meant) => format!("did you mean \"{meant}\"?"),
                        None => choice,
                    };
                Err(self.refuse(format!("`{}` can't be \"{typed}\"", self.key), help))
            }
        }
    }

    /// Opens a table. Any other value becomes a table with the value as its key `short`. An error names the
    /// key of the file. `kind` names the type of `short`, and `example` is a value of the type.
    pub(super) fn table_or(
        self,
        shape: &'static TableSchema,
        short: &'static str,
        kind: &str,
        example: &str,
    ) -> Result<TableReader<'s, 'i>, OperatorError> {
        match self.value.get_ref() {
            DeValue::Table(_) => self.table(shape),
            DeValue::String(_) | DeValue::Integer(_) => {
                let span = self.value.span();
                let key = Spanned::new(span.clone(), short.into());
                let entries = DeTable::from_iter([(key, self.value)]);
                let mut table = TableReader::new(self.source, shape, span, entries);
                table.short_for = Some(self.key);
                Ok(table)
            }
            _ => Err(self.mistyped(&format!("{kind} or a table"), example)),
        }
    }

    /// Opens a table.
    pub(super) fn table(
        self,
        shape: &'static TableSchema,
    ) -> Result<TableReader<'s, 'i>, OperatorError> {
        self.table_like(shape, "{ … }")
    }

    /// Opens a table. The error about another type shows `example`.
    pub(super) fn table_like(
        self,
        shape: &'static TableSchema,
        example: &str,
    ) -> Result<TableReader<'s, 'i>, OperatorError> {
        if !self.value.get_ref().is_table() {
            if self.value.get_ref().is_array() && shape.name.starts_with('[') {
                let what = format!("the file may have a single {} only", shape.name);
                return Err(
                    self.refuse(what, format!("write it in single brackets: {}", shape.name))
                );
            }
            return Err(self.mistyped("a table", example));
        }
        let span = self.value.span();
        match self.value.into_inner() {
            DeValue::Table(entries) => Ok(TableReader::new(self.source, shape, span, entries)),
            // Not reached: the type is checked above, while the value can still be borrowed for the
            // message.
            _ => Ok(TableReader::new(self.source, shape, span, DeTable::new())),
        }
    }

    /// Opens a list of tables.
    pub(super) fn tables(
        self,
        shape: &'static TableSchema,
    ) -> Result<Vec<TableReader<'s, 'i>>, OperatorError> {
        if self.value.get_ref().is_table() && shape.name.starts_with("[[") {
            let what = format!("the file may have several {}", shape.name);
            let is_list = |value: &Spanned<DeValue<'_>>| value.get_ref().is_array();
            let help = match self.value.get_ref().as_table() {
                // A list of tables such as [[site.route]] stands before the first [[site]].
                Some(table) if !table.is_empty() && table.values().all(is_list) => {
                    format!("write {} above its lists of tables", shape.name)
                }
                Some(table) if shape.keys.contains(&"name") => {
                    let tables = table.iter().filter(|(_, value)| value.get_ref().is_table());
                    let mut names = tables.map(|(key, _)| key.get_ref().as_ref());
                    match names.find(|name| !shape.keys.contains(name)) {
                        Some(name) => format!("write {} with name = \"{name}\"", shape.name),
                        None => format!("write it in double brackets: {}", shape.name),
                    }
                }
                _ => format!("write it in double brackets: {}", shape.name),
            };
            return Err(self.refuse(what, help));
        }
        if !self.value.get_ref().is_array() {
            return Err(self.mistyped("a list of tables", "[{ … }]"));
        }
        self.items()
            .into_iter()
            .map(|item| item.table(shape))
            .collect()
    }

    /// Returns the items of a list. Any other value counts as a list with a single item.
    pub(super) fn items(self) -> Vec<KeyedValue<'s, 'i>> {
        let KeyedValue { source, key, value } = self;
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(values) => values
                .into_iter()
                .map(|value| KeyedValue {
                    source,
                    key: key.clone(),
                    value,
                })
                .collect(),
            one => vec![KeyedValue {
                source,
                key,
                value: Spanned::new(span, one),
            }],
        }
    }
}

/// Type that a value of the file can be read as.
pub(super) trait FromToml: Sized {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError>;
}

impl<T: FromToml> FromToml for Spanned<T> {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let span = item.value.span();
        T::read(item).map(|value| Spanned::new(span, value))
    }
}

impl<T: FromToml> FromToml for Vec<T> {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.items().into_iter().map(T::read).collect()
    }
}

impl FromToml for bool {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(item.mistyped("true or false", "true")),
        }
    }
}

impl FromToml for String {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.into_text("text in quotes", "\"…\"")
    }
}

impl FromToml for PathBuf {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let folder = item.source.folder;
        match item.text() {
            Some("") => Err(item.refuse(
                format!("`{}` is empty", item.key),
                "write the path of a file or folder",
            )),
            Some(path) if path.contains('\0') => {
                Err(item.refuse("a path cannot contain a NUL", "remove the NUL"))
            }
            Some(path) => Ok(crate::config::paths::join(folder, path)),
            None => Err(item.mistyped("a path in quotes", "\"…\"")),
        }
    }
}

impl FromToml for u64 {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let DeValue::Integer(number) = item.value.get_ref() else {
            return Err(item.mistyped("a whole number", "8"));
        };
        match u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()) {
            Ok(number) => Ok(number),
            Err(_) if number.as_str().starts_with('-') => Err(item.refuse(
                format!("`{}` can't be negative", item.key),
                "write 0 or a larger number",
            )),
            Err(_) => Err(item.refuse(
                format!("`{}` is too large", item.key),
                "write a smaller number",
            )),
        }
    }
}

macro_rules! smaller_number {
    ($($number:ty),*) => {$(
        impl FromToml for $number {
            fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
                let (source, key, span) = (item.source, item.key.clone(), item.value.span());
                u64::read(item)?.try_into().map_err(|_| {
                    let help = format!("write a number of at most {}", <$number>::MAX);
                    source.error(span, format!("`{key}` is too large"), help)
                })
            }
        }
    )*};
}
smaller_number!(u8, u16, u32, usize);
