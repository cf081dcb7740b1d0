//! Reader of a parsed TOML document, table by table.
//!
//! Each key is taken out of a table with the expected type. A key left over at the end is unknown. An error is
//! recorded, and the reading goes on, so that all mistakes are reported at once. The
//! reader is written by hand, because an operator needs more in an error (the table of the mistake, the
//! word probably meant, a correct example) than a derived deserializer provides.

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::OperatorError;
use crate::config::foreign_values::{list_help, plain_help, value_help, valued_key_help};
use crate::config::foreign_words::{example, find, key_help};
use crate::config::odd_characters::odd_text;
use crate::config::source_files::SourceFiles;
use crate::config::values::InvalidValue;
use cli::suggest;

/// Function that returns the name of the table that a key belongs to, for a key in the wrong table.
pub(super) type HomeOf = fn(&str, &TableSchema) -> Option<&'static str>;

/// Texts of a configuration that is being read, with the errors found.
pub(super) struct SourceText<'s> {
    files: &'s SourceFiles,
    /// Folder of relative paths.
    pub(super) folder: &'s Path,
    home_of: HomeOf,
    errors: RefCell<Vec<OperatorError>>,
    /// Warnings of values that are probably not meant.
    doubts: RefCell<Vec<OperatorError>>,
}

impl<'s> SourceText<'s> {
    pub(super) fn new(files: &'s SourceFiles, folder: &'s Path, home_of: HomeOf) -> SourceText<'s> {
        SourceText {
            files,
            folder,
            home_of,
            errors: RefCell::default(),
            doubts: RefCell::default(),
        }
    }

    /// Records a warning of a value that is probably not meant.
    pub(super) fn doubt(&self, span: Range<usize>, what: String, help: String) {
        self.doubts.borrow_mut().push(self.error(span, what, help));
    }

    /// Returns the recorded warnings.
    pub(super) fn take_doubts(&self) -> Vec<OperatorError> {
        self.doubts.take()
    }

    /// Returns the place of `at` in words, for an error at `here`: `line 3`, or `line 3 of sites.d/a.toml`.
    pub(super) fn place(&self, at: usize, here: &Range<usize>) -> String {
        self.files.place(at, here.start)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> OperatorError {
        self.files.error(span, what, help)
    }

    /// Returns the help for addresses outside of `[server]`, with the value of the file.
    #[cold]
    pub(super) fn listen_help(&self, key: &str, value: &Spanned<DeValue<'_>>) -> String {
        let written = self.files.text().get(value.span()).unwrap_or_default();
        let shown = match value.get_ref() {
            DeValue::Array(_) | DeValue::String(_) | DeValue::Integer(_)
                if written.len() < LISTEN_BYTES_MAX && !written.contains('\n') =>
            {
                written
            }
            _ => "[\":443\"]",
        };
        format!("write {key} = {shown} in [server]")
    }

    /// Records an error, so that the rest of the configuration is read as well.
    pub(super) fn report(&self, error: OperatorError) {
        self.errors.borrow_mut().push(error);
    }

    /// Returns the value, or records the error.
    pub(super) fn keep<T>(&self, result: Result<T, OperatorError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.report(error);
                None
            }
        }
    }

    /// Returns the values, or records all errors and fails.
    pub(super) fn all<T>(
        &self,
        results: impl Iterator<Item = Result<T, OperatorError>>,
    ) -> Result<Vec<T>, OperatorError> {
        let mut values = Vec::new();
        let mut is_whole = true;
        for result in results {
            match self.keep(result) {
                Some(value) => values.push(value),
                None => is_whole = false,
            }
        }
        is_whole
            .then_some(values)
            .ok_or_else(OperatorError::reported)
    }

    /// Replaces the help of the last error, which a caller recorded at `span`.
    fn correct_last(&self, span: &Range<usize>, help: &str) {
        let mut errors = self.errors.borrow_mut();
        let last = errors.iter_mut().rev();
        if let Some(last) = last.into_iter().find(|error| error.is_at(span.start)) {
            *last = last.clone().help(help);
        }
    }

    /// Refuses each of the keys that the file has, with its position. An empty position stands for a missing key. `lacking`
    /// says what the keys need.
    pub(super) fn refuse_useless<'k>(
        &self,
        keys: impl IntoIterator<Item = (&'k str, Range<usize>)>,
        lacking: &str,
        help: &str,
    ) -> Result<(), OperatorError> {
        let present = keys.into_iter().filter(|(_, span)| !span.is_empty());
        let errors = present
            .map(|(key, span)| self.error(span, format!("`{key}` has no effect {lacking}"), help));
        OperatorError::all(errors.collect()).map_or(Ok(()), Err)
    }

    /// Returns the number of errors recorded so far.
    pub(super) fn error_count(&self) -> usize {
        self.errors.borrow().len()
    }

    /// Returns the recorded errors.
    pub(super) fn into_errors(self) -> Vec<OperatorError> {
        self.errors.into_inner()
    }
}

/// Length of a list of addresses that is repeated in a help.
const LISTEN_BYTES_MAX: usize = 80;

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

impl TableSchema {
    /// Returns the schema of a table with data as keys.
    pub(super) const fn of_data(name: &'static str) -> TableSchema {
        TableSchema {
            name,
            keys: &[],
            later: &[],
            foreign: &[],
        }
    }
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
    /// Number of errors recorded before the table was opened.
    errors_before: usize,
    /// Keys with a refused value.
    refused: Vec<&'static str>,
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
            errors_before: source.error_count(),
            refused: Vec::new(),
        }
    }

    /// Returns the value of a key, or records the error and returns `None`.
    pub(super) fn keep<T>(
        &mut self,
        key: &'static str,
        value: Result<Option<T>, OperatorError>,
    ) -> Option<T> {
        let value = self.source.keep(value);
        if value.is_none() {
            self.refused.push(key);
        }
        value.flatten()
    }

    /// Takes a key out, and puts the value into `slot`. Records an error. The keys with one type share the code, which is
    /// a function of its own.
    #[inline(never)]
    pub(super) fn fill<T: FromToml>(&mut self, key: &'static str, slot: &mut Option<Spanned<T>>) {
        let value = self.take(key);
        *slot = self.keep(key, value);
    }

    /// Returns true if no error was found in the table so far.
    pub(super) fn is_whole(&self) -> bool {
        self.source.error_count() == self.errors_before
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

    /// Ends the reading of the table, and records each unknown key. Fails if any error was found in the table.
    pub(super) fn finish(self) -> Result<(), OperatorError> {
        for (_, unknown) in self.unknown() {
            self.source.report(unknown);
        }
        if !self.is_whole() {
            return Err(OperatorError::reported());
        }
        debug_assert!(
            self.entries.is_empty(),
            "a key of {} is never read",
            self.shape.name
        );
        Ok(())
    }

    /// Records that the required `key` is missing, unless the value was refused, or an unknown key is probably
    /// meant.
    #[cold]
    #[inline(never)]
    pub(super) fn lacks(&self, key: &str, what: &str, help: &str) -> OperatorError {
        let quoted = format!("`{key}`");
        let is_meant = |error: &OperatorError| error.hint().is_some_and(|it| it.contains(&quoted));
        if !self.refused.contains(&key) && !self.unknown().any(|(_, error)| is_meant(&error)) {
            self.source.report(self.refuse(what, help));
        }
        OperatorError::reported()
    }

    /// Returns the unknown keys, each with its error.
    fn unknown(&self) -> impl Iterator<Item = (&str, OperatorError)> {
        let keys = self.entries.iter();
        let keys = keys.filter(|(key, _)| !self.shape.keys.contains(&key.get_ref().as_ref()));
        keys.map(|(key, value)| {
            let word = key.get_ref().as_ref();
            (word, self.unknown_key(word, key.span(), value))
        })
    }

    fn unknown_key(
        &self,
        word: &str,
        span: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> OperatorError {
        let shape = self.shape;
        if shape.later.contains(&word) {
            let what = format!("`{word}` is not yet supported");
            let help = "remove the key: a later version of anthill will support it";
            return self.source.error(span, what, help);
        }
        let known = shape.keys.iter().chain(shape.later).copied();
        let foreign = find(shape.foreign, word).or_else(|| key_help(shape.name, word));
        // The key `http` of a site has no address.
        let is_policy = matches!(value.get_ref().as_str(), Some("serve" | "redirect"));
        let help = if let Some(help) = valued_key_help(shape.name, word, value.get_ref()) {
            help
        } else if let Some(help) = foreign {
            match word {
                "http" | "https" if !is_policy => self.source.listen_help(word, value),
                _ => help.to_owned(),
            }
        } else if let Some(meant) = suggest(word, known) {
            format!("did you mean `{meant}`?")
        } else if let Some(home) = (self.source.home_of)(word, shape) {
            format!("`{word}` belongs in {home}")
        } else {
            format!("{} knows {}", shape.name, shape.keys.join(", "))
        };
        let what = format!("unknown key `{word}` in {}", shape.name);
        self.source.error(span, what, help)
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
    #[cold]
    #[inline(never)]
    pub(super) fn mistyped(&self, expected: &str, usual: &str) -> OperatorError {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let expected = match self.key.as_str() {
            "growing" => "a list of patterns",
            _ => expected,
        };
        let what = format!("`{}` must be {expected}, not {found}", self.key);
        let usual = match usual {
            ANY_TEXT | ANY_PATH => example(&self.key).unwrap_or(usual),
            _ => usual,
        };
        let help = self.text().and_then(|text| value_help(&self.key, text));
        let help = help.or_else(|| plain_help(&self.key, self.value.get_ref(), usual));
        let help = help.unwrap_or_else(|| format!("for example {} = {usual}", self.key));
        self.refuse(what, help)
    }

    /// Returns an error at the value. An evident mistake in the writing of a text replaces `what` and `help`.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&self, what: impl Into<String>, help: impl Into<String>) -> OperatorError {
        let span = self.value.span();
        match self.text().and_then(|text| self.miswritten(text)) {
            Some((what, help)) => self.source.error(span, what, help),
            None => self.source.error(span, what, help),
        }
    }

    /// Returns the mistake in the writing of a text, and the correction: an empty variable, an odd character, quotes around a
    /// whole list.
    fn miswritten(&self, text: &str) -> Option<(String, String)> {
        if let Some(name) = self.source.files.empty_variable(&self.value.span())
            && text.trim().is_empty()
        {
            let what = format!("the environment variable `{name}` is empty");
            let help = format!("set the variable, or write a default: ${{{name}:-…}}");
            return Some((what, help));
        }
        if let Some(odd) = odd_text(text) {
            return Some((odd.what, format!("write \"{}\"", odd.corrected)));
        }
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        (inside.contains(['"', '\'']) && self.key != "set").then(|| {
            let what = format!("quotes stand around the whole list of `{}`", self.key);
            (what, format!("write {} = {text}", self.key))
        })
    }

    /// Returns the position of a text from its byte `at` on, or of the whole value if the text has escapes.
    pub(super) fn span_from(&self, at: usize) -> Range<usize> {
        let span = self.value.span();
        let is_plain = self.text().is_some_and(|text| text.len() + 2 == span.len());
        if is_plain && at + 2 < span.len() {
            span.start + 1 + at..span.end - 1
        } else {
            span
        }
    }

    #[cold]
    #[inline(never)]
    fn wrong(&self, wrong: InvalidValue) -> OperatorError {
        let help = self.text().and_then(|text| value_help(&self.key, text));
        self.refuse(wrong.what, help.unwrap_or(wrong.help))
    }

    /// Returns the text of a string value; `None` for other types.
    pub(super) fn text(&self) -> Option<&str> {
        self.value.get_ref().as_str()
    }

    /// Returns the value as a list, for several words in one text.
    pub(super) fn list_help(&self) -> Option<String> {
        self.text().and_then(|text| list_help(&self.key, text))
    }

    /// Reads text with a parser. `expected` names the type, and `example` is a value of the type.
    pub(super) fn parse<T>(
        &self,
        expected: &str,
        example: &str,
        parser: impl FnOnce(&str) -> Result<T, InvalidValue>,
    ) -> Result<T, OperatorError> {
        let text = self.text_or_mistyped(expected, example)?;
        parser(text).map_err(|wrong| self.wrong(wrong))
    }

    #[inline(never)]
    fn text_or_mistyped(&self, expected: &str, example: &str) -> Result<&str, OperatorError> {
        self.text().ok_or_else(|| self.mistyped(expected, example))
    }

    /// Reads each item of a list with `read`, and records the errors. Fails if any item has an error.
    #[inline(never)]
    fn each_item(
        self,
        read: &mut dyn FnMut(KeyedValue<'_, '_>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let source = self.source;
        let mut is_whole = true;
        for item in self.items() {
            let (span, list) = (item.value.span(), item.list_help());
            let is_kept = source.keep(read(item)).is_some();
            if let Some(list) = list.filter(|_| !is_kept) {
                // The error of a value in place of a table is recorded within the table.
                source.correct_last(&span, &list);
            }
            is_whole &= is_kept;
        }
        is_whole.then_some(()).ok_or_else(OperatorError::reported)
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
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let number = self.word_number(&names, foreign)?;
        Ok(words[number].1)
    }

    /// Returns the number of the value among `words`. The callers' meanings have many types, and share this code.
    #[inline(never)]
    fn word_number(
        self,
        words: &[&str],
        foreign: &'static [(&'static str, &'static str)],
    ) -> Result<usize, OperatorError> {
        let choice = words.iter().map(|word| format!("\"{word}\""));
        let choice = choice.collect::<Vec<_>>();
        let choice = match choice.split_last() {
            Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
            _ => choice.concat(),
        };
        let DeValue::String(typed) = self.value.get_ref() else {
            let number = match self.value.get_ref() {
                DeValue::Float(number) => number.as_str(),
                _ => "",
            };
            let meant = words.iter().find(|word| **word == number);
            let example = meant.unwrap_or(&words[0]);
            return Err(self.mistyped(&choice, &format!("\"{example}\"")));
        };
        if let Some(number) = words.iter().position(|word| word == typed) {
            return Ok(number);
        }
        let plain = typed.to_ascii_lowercase().replace(['-', '_'], "");
        let meant = find(foreign, &plain).or_else(|| suggest(typed, words.iter().copied()));
        let help = match meant {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => choice,
        };
        Err(self.refuse(format!("`{}` can't be \"{typed}\"", self.key), help))
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
            let is_list = |value: &Spanned<DeValue<'_>>| {
                let items = value.get_ref().as_array();
                let first = items.and_then(|items| items.iter().next());
                first.is_some_and(|first| first.get_ref().is_table())
            };
            let help = match self.value.get_ref().as_table() {
                // A table such as [site.a], where Caddy and others have a name.
                Some(table) if shape.name == "[[site]]" => {
                    let tables = table.iter().filter(|(_, value)| value.get_ref().is_table());
                    let mut names = tables.map(|(key, _)| key.get_ref().as_ref());
                    let is_list = !table.is_empty() && table.values().all(is_list);
                    match names.find(|name| !shape.keys.contains(name)) {
                        Some(name) => format!("write [[site]] with names = [\"{name}\"]"),
                        None if is_list => {
                            format!("write {} above its lists of tables", shape.name)
                        }
                        None => format!("write it in double brackets: {}", shape.name),
                    }
                }
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
        let source = self.source;
        source.all(self.items().into_iter().map(|item| item.table(shape)))
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

/// Example of a text, for a key without an example of its own.
const ANY_TEXT: &str = "\"text\"";
/// Example of a path, for a key without an example of its own.
const ANY_PATH: &str = "\"/path/to/file\"";

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
        let mut values = Vec::new();
        item.each_item(&mut |item| {
            values.push(T::read(item)?);
            Ok(())
        })?;
        Ok(values)
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
        let text = item.text_or_mistyped("text in quotes", ANY_TEXT)?;
        Ok(text.to_owned())
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
            None => Err(item.mistyped("a path in quotes", ANY_PATH)),
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
