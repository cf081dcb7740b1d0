//! Files of a configuration: the first file, and the files that `include` names.
//!
//! Included files are read before any table, so that the positions of all values are known. A pattern stands for its
//! files in the order of their names.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use crate::config::error::OperatorError;
use crate::config::limits::{CONFIG_ALL_FILES_BYTES_MAX, CONFIG_FILES_MAX};
use crate::config::paths::{self, reason};
use crate::config::source_files::SourceFiles;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::variables::{DocumentSettler, Environment};
use release::glob::Glob;

/// Files of a configuration, with the mistakes in `include`.
#[derive(Default)]
pub(super) struct IncludedFiles {
    /// Texts of all files.
    pub(super) files: SourceFiles,
    /// Positions of the texts, each with the end of the text.
    pub(super) starts: Vec<(usize, usize)>,
    /// Errors.
    pub(super) errors: Vec<OperatorError>,
    /// Warnings of patterns without a file.
    pub(super) doubts: Vec<OperatorError>,
}

/// Reads the files that a first file includes.
pub(super) struct FileCollector<'f> {
    /// Folder of the first file, for relative patterns.
    folder: &'f Path,
    /// Name of the folder in messages.
    shown: &'f Path,
    environment: Environment,
    found: IncludedFiles,
    /// Files that include the file that is being read, beginning with the first file.
    open: Vec<PathBuf>,
    known: HashSet<PathBuf>,
}

impl<'f> FileCollector<'f> {
    /// Reads the files included by `text`, the content of the file `path`, which messages call `shown`. With
    /// `opens_files` false, no file is opened.
    pub(super) fn read(
        text: &str,
        path: Option<&Path>,
        shown: &'f str,
        folder: &'f Path,
        environment: Environment,
        opens_files: bool,
    ) -> IncludedFiles {
        let mut collector = FileCollector {
            folder,
            shown: Path::new(shown).parent().unwrap_or(Path::new("")),
            environment,
            found: IncludedFiles::default(),
            open: Vec::new(),
            known: HashSet::new(),
        };
        if !opens_files {
            collector.add(text, path, shown.to_owned());
            return collector.found;
        }
        let real = path.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        collector.known.extend(real.clone());
        collector.open.extend(real);
        collector.file(text, path, shown.to_owned());
        collector.found
    }

    /// Adds a file, and returns the position of its text.
    fn add(&mut self, text: &str, path: Option<&Path>, shown: String) -> usize {
        let found = &mut self.found;
        let start = found.files.push(text, shown, path.map(Path::to_owned));
        found.starts.push((start, start + text.len()));
        start
    }

    /// Adds a file and the files included by the file.
    fn file(&mut self, text: &str, path: Option<&Path>, shown: String) {
        let start = self.add(text, path, shown);
        for pattern in self.patterns(text, start) {
            self.include(&pattern);
        }
    }

    /// Returns the patterns in `include`. A syntax error is reported when the tables are read.
    fn patterns(&mut self, text: &str, start: usize) -> Vec<Spanned<String>> {
        if !text.contains("include") {
            return Vec::new();
        }
        let document = DeTable::parse(text).ok();
        let value = document.and_then(|it| it.into_inner().remove("include"));
        let Some(value) = value else {
            return Vec::new();
        };
        let mut settler = DocumentSettler {
            files: &mut self.found.files,
            errors: &mut self.found.errors,
            environment: self.environment,
            start,
        };
        let value = settler.value(value);
        let source = SourceText::new(&self.found.files, self.folder, |_, _| None);
        let item = KeyedValue {
            source: &source,
            key: "include".to_owned(),
            value,
        };
        let patterns = source.keep(FromToml::read(item));
        let errors = source.into_errors();
        self.found.errors.extend(errors);
        patterns.unwrap_or_default()
    }

    /// Reads the files of a pattern. An error points at the pattern.
    fn include(&mut self, pattern: &Spanned<String>) {
        let mut included = self.matches(pattern);
        if let Ok(files) = &mut included
            && files.is_empty()
        {
            let doubt = self.without_file(pattern);
            self.found.doubts.push(doubt);
        }
        let result = included.and_then(|files| {
            files
                .into_iter()
                .try_for_each(|file| self.include_file(&file, pattern))
        });
        self.found.errors.extend(result.err());
    }

    /// Returns the warning of a pattern without a file, with what its folder has.
    fn without_file(&self, pattern: &Spanned<String>) -> OperatorError {
        let text = pattern.get_ref();
        let (folder, last) = text.rsplit_once('/').unwrap_or(("", text));
        let entries = paths::join(self.folder, folder).read_dir();
        let entries = entries.into_iter().flatten().flatten();
        let glob = Glob::parse(last).ok();
        let mut other = None;
        for entry in entries.take(CONFIG_FILES_MAX) {
            let (name, path) = (entry.file_name(), entry.path());
            let is_match = glob
                .as_ref()
                .is_some_and(|it| it.matches(name.as_encoded_bytes()));
            let shown = self.shown.join(folder).join(&name).display().to_string();
            if let (true, Ok(to)) = (is_match && !path.exists(), path.read_link()) {
                let what = format!(
                    "no file matches `{text}`: {shown} is a link to {}, which does not exist",
                    to.display()
                );
                let help = format!("make the file, or remove the link: rm {shown}");
                return self.found.files.error(pattern.span(), what, help);
            }
            if path.is_file() && path.extension().is_some_and(|it| it == "toml") {
                other = other.or(Some(name));
            }
        }
        let what = format!("no file matches `{text}`");
        let help = match other.as_ref().and_then(|it| it.to_str()) {
            Some(_) if last.contains(['*', '?']) => {
                let folder = if folder.is_empty() {
                    String::new()
                } else {
                    format!("{folder}/")
                };
                format!(
                    "the folder has files that end with .toml: write include = [\"{folder}*.toml\"]"
                )
            }
            _ => "the pattern may stay: files that appear later are read at the next reload"
                .to_owned(),
        };
        self.found.files.error(pattern.span(), what, help)
    }

    fn include_file(
        &mut self,
        file: &Path,
        pattern: &Spanned<String>,
    ) -> Result<(), OperatorError> {
        let path = paths::join(self.folder, file);
        let shown = self.shown.join(file).display().to_string();
        let refuse = |this: &Self, what: String, help: &str| {
            Err(this.found.files.error(pattern.span(), what, help))
        };
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = format!("the included file {shown} does not exist");
                return refuse(
                    self,
                    what,
                    "create the file, or remove the file from `include`",
                );
            }
            Err(error) => return refuse(self, format!("{shown}: {}", reason(&error)), ""),
        };
        if real.is_dir() {
            let what = format!("{shown} is a folder, not a file");
            let help = format!(
                "write include = [\"{}/*.toml\"]",
                pattern.get_ref().trim_end_matches('/')
            );
            return refuse(self, what, &help);
        }
        if self.open.contains(&real) {
            let what = format!("{shown} includes itself");
            let help =
                "keep included files in a folder of their own: include = [\"sites.d/*.toml\"]";
            return refuse(self, what, help);
        }
        if !self.known.insert(real.clone()) {
            // Another pattern has included the file already.
            return Ok(());
        }
        let text = paths::read_file_text(&path).map_err(|error| {
            let help = error.hint().unwrap_or_default();
            self.found.files.error(pattern.span(), error.what(), help)
        })?;
        let bytes = self.found.files.bytes() + text.len();
        if self.known.len() > CONFIG_FILES_MAX || bytes > CONFIG_ALL_FILES_BYTES_MAX {
            let what = format!(
                "the configuration has more than {CONFIG_FILES_MAX} files or {} MiB",
                CONFIG_ALL_FILES_BYTES_MAX >> 20
            );
            return refuse(self, what, "write a pattern that matches fewer files");
        }
        self.open.push(real);
        self.file(&text, Some(&path), shown);
        self.open.pop();
        Ok(())
    }

    /// Returns the paths that a pattern stands for: the path itself, or the matching files in the order of their
    /// names. Files with a dot at the beginning match only a pattern with the dot.
    fn matches(&self, pattern: &Spanned<String>) -> Result<Vec<PathBuf>, OperatorError> {
        let refuse =
            |what: String, help: String| Err(self.found.files.error(pattern.span(), what, help));
        let mut found = vec![PathBuf::new()];
        let mut is_pattern = false;
        for component in Path::new(pattern.get_ref()).components() {
            let part = component.as_os_str().to_string_lossy();
            if !matches!(component, Component::Normal(_)) || !part.contains(['*', '?', '[', '{']) {
                found.iter_mut().for_each(|path| path.push(component));
                continue;
            }
            let glob = match Glob::parse(&part) {
                Ok(glob) => glob,
                Err(error) => {
                    return refuse(
                        format!("`{part}` is not a pattern: {}", error.what),
                        String::new(),
                    );
                }
            };
            let mut next = Vec::new();
            for folder in found {
                let shown = self.shown.join(&folder);
                let shown = shown.display();
                let entries = match paths::join(self.folder, &folder).read_dir() {
                    Ok(entries) => entries,
                    Err(error) if is_pattern || error.kind() != ErrorKind::NotFound => {
                        if is_pattern {
                            continue;
                        }
                        return refuse(format!("{shown}: {}", reason(&error)), String::new());
                    }
                    Err(_) => {
                        return refuse(
                            format!("the folder {shown} does not exist"),
                            format!("mkdir {shown}"),
                        );
                    }
                };
                let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
                let names = names.filter(|name| {
                    let name = name.as_encoded_bytes();
                    glob.matches(name) && name.starts_with(b".") == part.starts_with('.')
                });
                let mut names: Vec<_> = names.collect();
                names.sort();
                next.extend(names.into_iter().map(|name| folder.join(name)));
            }
            found = next;
            is_pattern = true;
        }
        if is_pattern {
            found.retain(|file| paths::join(self.folder, file).is_file());
        }
        Ok(found)
    }
}
