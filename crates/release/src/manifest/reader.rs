//! Reader of a manifest. The reader refuses each text that is not canonical, and each path that has no place below one
//! folder.

use super::field_name::field_refusal;
use super::line::{BlobRef, ManifestLine, RedirectLine};
use super::rule_bounds::{Refusal, RuleBounds};
use super::{HEADER, ManifestError, compare_paths};
use crate::limits::{
    FOLDER_DEPTH_MAX, MANIFEST_BYTES_MAX, RELEASE_BYTES_MAX, RELEASE_CACHE_SECONDS_MAX,
    RELEASE_FILES_MAX, RELEASE_FOLDERS_MAX, RELEASE_NAME_BYTES_MAX, RELEASE_PATH_BYTES_MAX,
    RELEASE_RULES_MAX,
};
use base::digest::from_hex;
use std::borrow::Cow;
use std::cmp::Ordering;
use wire::content_coding::ContentCoding;
use wire::framing_fields::content_length;

/// Reader of the lines of a manifest, in their order. The reader ends after the first error.
pub struct ManifestReader<'m> {
    rest: &'m [u8],
    /// Number of the last line.
    line: usize,
    /// Kind of the last line.
    last: Rank,
    /// Status of the last error page.
    last_status: u16,
    /// Path of the last file.
    last_path: Vec<u8>,
    rules: usize,
    bounds: RuleBounds,
    files: usize,
    folders: usize,
    bytes: u64,
}

/// Place of a line in the order of a manifest.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Begin,
    ErrorPage,
    CacheAge,
    Fields,
    Redirect,
    File,
    Gzip,
    Br,
    Zstd,
    /// After an error.
    End,
}

impl<'m> ManifestReader<'m> {
    /// Returns a reader of the lines after the first line.
    pub fn new(text: &'m [u8]) -> Result<ManifestReader<'m>, ManifestError> {
        let refuse = |what| Err(ManifestError { line: 1, what });
        if text.len() > MANIFEST_BYTES_MAX {
            return refuse("the manifest is longer than 32 MiB");
        }
        let header = text.strip_prefix(HEADER.as_bytes());
        let Some(rest) = header.and_then(|rest| rest.strip_prefix(b"\n")) else {
            return refuse("this is no manifest of a version that this program reads");
        };
        Ok(ManifestReader {
            rest,
            line: 1,
            last: Rank::Begin,
            last_status: 0,
            last_path: Vec::new(),
            rules: 0,
            bounds: RuleBounds::default(),
            files: 0,
            folders: 0,
            bytes: 0,
        })
    }

    fn read(&mut self) -> Result<ManifestLine<'m>, Refusal> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = self.rest.split_at(end.ok_or("the line has no end")?);
        self.rest = &rest[1..];
        let mut words = Words(Some(line));
        let line = match words.raw()? {
            b"error" => self.error_page(&mut words),
            b"cache" => self.cache_age(&mut words),
            b"fields" => self.fields(&mut words),
            b"field" => self.field(&mut words),
            b"redirect" => self.redirect(&mut words, false),
            b"redirect!" => self.redirect(&mut words, true),
            b"file" => self.file(&mut words, false),
            b"hashed" => self.file(&mut words, true),
            b"gzip" => self.coded(&mut words, Rank::Gzip, ContentCoding::Gzip),
            b"br" => self.coded(&mut words, Rank::Br, ContentCoding::Br),
            b"zstd" => self.coded(&mut words, Rank::Zstd, ContentCoding::Zstd),
            _ => Err("the kind of the line is unknown"),
        }?;
        match words.0 {
            None => Ok(line),
            Some(_) => Err("the line has too many words"),
        }
    }

    /// Begins a line with a rule.
    fn begin_rule(&mut self, rank: Rank) -> Result<(), Refusal> {
        if self.last > rank {
            return Err("the line stands behind lines of a later kind");
        }
        self.last = rank;
        self.rules += 1;
        if self.rules <= RELEASE_RULES_MAX {
            Ok(())
        } else {
            Err("the manifest has too many rules, more than 20,000")
        }
    }

    fn error_page(&mut self, words: &mut Words<'m>) -> Result<ManifestLine<'m>, Refusal> {
        self.begin_rule(Rank::ErrorPage)?;
        let status = status(words)?;
        if !(400..=599).contains(&status) {
            return Err("an error page has a status from 400 to 599");
        }
        if status <= self.last_status {
            return Err("the error pages are not in the order of their statuses");
        }
        self.last_status = status;
        let path = words.text()?;
        check_path(&path)?;
        Ok(ManifestLine::ErrorPage { status, path })
    }

    fn cache_age(&mut self, words: &mut Words<'m>) -> Result<ManifestLine<'m>, Refusal> {
        self.begin_rule(Rank::CacheAge)?;
        let seconds = words.number()?;
        if seconds > RELEASE_CACHE_SECONDS_MAX {
            return Err("the cache age is longer than 10 years");
        }
        let files = words.text()?;
        self.bounds.add_cache_age(&files)?;
        Ok(ManifestLine::CacheAge { seconds, files })
    }

    fn fields(&mut self, words: &mut Words<'m>) -> Result<ManifestLine<'m>, Refusal> {
        self.begin_rule(Rank::Fields)?;
        let files = words.text()?;
        self.bounds.add_fields(&files)?;
        Ok(ManifestLine::Fields { files })
    }

    fn field(&mut self, words: &mut Words<'m>) -> Result<ManifestLine<'m>, Refusal> {
        if self.last != Rank::Fields {
            return Err("a field stands only behind `fields`");
        }
        self.begin_rule(Rank::Fields)?;
        let (name, value) = (words.text()?, words.text()?);
        if let Some(refusal) = field_refusal(&name) {
            return Err(refusal);
        }
        self.bounds.add_field(&name, &value)?;
        Ok(ManifestLine::Field { name, value })
    }

    fn redirect(
        &mut self,
        words: &mut Words<'m>,
        is_forced: bool,
    ) -> Result<ManifestLine<'m>, Refusal> {
        self.begin_rule(Rank::Redirect)?;
        let status = status(words)?;
        let from = words.text()?;
        if from.first() != Some(&b'/') {
            return Err("a redirect begins at a path with an initial slash");
        }
        let to = match status {
            301 | 302 | 303 | 307 | 308 => words.text()?,
            410 => Cow::Borrowed(&b""[..]),
            _ => return Err("a redirect has the status 301, 302, 303, 307, 308 or 410"),
        };
        self.bounds.add_redirect(&from, &to)?;
        Ok(ManifestLine::Redirect(RedirectLine {
            status,
            is_forced,
            from,
            to,
        }))
    }

    fn file(
        &mut self,
        words: &mut Words<'m>,
        is_hashed: bool,
    ) -> Result<ManifestLine<'m>, Refusal> {
        let content = self.content(words)?;
        let path = words.text()?;
        check_path(&path)?;
        if self.files > 0 {
            follows(&self.last_path, &path)?;
        }
        self.last = Rank::File;
        self.folders += new_folders(&self.last_path, &path);
        self.last_path.clear();
        self.last_path.extend_from_slice(&path);
        self.files += 1;
        if self.files > RELEASE_FILES_MAX {
            return Err("the release has too many files, more than 250,000");
        }
        if self.folders > RELEASE_FOLDERS_MAX {
            return Err("the release has too many folders, more than 250,000");
        }
        Ok(ManifestLine::File {
            path,
            content,
            is_hashed,
        })
    }

    fn coded(
        &mut self,
        words: &mut Words<'m>,
        rank: Rank,
        coding: ContentCoding,
    ) -> Result<ManifestLine<'m>, Refusal> {
        if self.last < Rank::File || self.last >= rank {
            return Err("a coded content stands behind its file, in the order gzip, br, zstd");
        }
        self.last = rank;
        let content = self.content(words)?;
        Ok(ManifestLine::Coded { coding, content })
    }

    /// Reads the size and the digest of a content.
    fn content(&mut self, words: &mut Words<'m>) -> Result<BlobRef, Refusal> {
        let size = words.number()?;
        let digest =
            from_hex(words.raw()?).ok_or("a digest has 64 lower-case hexadecimal digits")?;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes <= RELEASE_BYTES_MAX {
            Ok(BlobRef { size, digest })
        } else {
            Err("the contents have more than 1 TiB")
        }
    }
}

impl<'m> Iterator for ManifestReader<'m> {
    type Item = Result<ManifestLine<'m>, ManifestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.last == Rank::End {
            return None;
        }
        self.line += 1;
        let line = self.read();
        if line.is_err() {
            self.last = Rank::End;
        }
        let line = line.map_err(|what| ManifestError {
            line: self.line,
            what,
        });
        Some(line)
    }
}

/// Words of a line that are left; None after the last word.
struct Words<'m>(Option<&'m [u8]>);

impl<'m> Words<'m> {
    /// Takes a word as written.
    fn raw(&mut self) -> Result<&'m [u8], Refusal> {
        let line = self.0.ok_or("the line has too few words")?;
        let end = line.iter().position(|byte| *byte == b' ');
        let word = &line[..end.unwrap_or(line.len())];
        self.0 = end.map(|end| &line[end + 1..]);
        if word.is_empty() {
            Err("the line has an empty word")
        } else {
            Ok(word)
        }
    }

    /// Takes a word, and decodes it.
    fn text(&mut self) -> Result<Cow<'m, [u8]>, Refusal> {
        decode(self.raw()?).ok_or("a word is not encoded in the one permitted way")
    }

    /// Takes a decimal number without leading zeros.
    fn number(&mut self) -> Result<u64, Refusal> {
        let digits = self.raw()?;
        let number = content_length(digits).filter(|_| digits == b"0" || digits[0] != b'0');
        number.ok_or("a number is not written in the one permitted way")
    }
}

fn status(words: &mut Words<'_>) -> Result<u16, Refusal> {
    u16::try_from(words.number()?).map_err(|_| "the status is unknown")
}

/// Decodes percent-encoding; None if the word has another spelling.
fn decode(word: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_plain = |byte: &u8| (b'!'..=b'~').contains(byte) && *byte != b'%';
    if word.iter().all(is_plain) {
        return Some(Cow::Borrowed(word));
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let mut text = Vec::with_capacity(word.len());
    let mut rest = word.iter();
    while let Some(byte) = rest.next() {
        text.push(match byte {
            b'%' => {
                let (high, low) = (digit(*rest.next()?)?, digit(*rest.next()?)?);
                // A byte that needs no encoding has none.
                Some(high << 4 | low).filter(|byte| !is_plain(byte))?
            }
            byte => Some(*byte).filter(is_plain)?,
        });
    }
    Some(Cow::Owned(text))
}

/// Checks that a path names a visible file below the root.
fn check_path(path: &[u8]) -> Result<(), Refusal> {
    if path.len() > RELEASE_PATH_BYTES_MAX {
        return Err("a path is longer than 4,095 bytes");
    }
    for (depth, name) in path.split(|byte| *byte == b'/').enumerate() {
        match name {
            _ if depth >= FOLDER_DEPTH_MAX => return Err("a path lies below more than 64 folders"),
            b"" => return Err("a path is absolute, or has an empty name"),
            b"." | b".." => return Err("a path climbs, or has a dot for a name"),
            b".well-known" => {}
            [b'.', ..] => return Err("a path has a hidden name"),
            _ if name.contains(&0) => return Err("a path contains a zero byte"),
            _ if name.len() > RELEASE_NAME_BYTES_MAX => {
                return Err("a path has a name longer than 255 bytes");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the number of folders of `path` that `last`, the path before, does not have.
fn new_folders(last: &[u8], path: &[u8]) -> usize {
    let pairs = last.iter().zip(path);
    let common = pairs.take_while(|(one, other)| one == other).count();
    let rest = path[common..].iter();
    rest.filter(|byte| **byte == b'/').count()
}

/// Checks that `path` comes after `last`, and is no folder and no entry of `last`.
fn follows(last: &[u8], path: &[u8]) -> Result<(), Refusal> {
    match compare_paths(last, path) {
        Ordering::Less => {}
        Ordering::Equal => return Err("a path occurs twice"),
        Ordering::Greater => return Err("the files are not in the order of their names"),
    }
    match path.strip_prefix(last) {
        Some([b'/', ..]) => Err("a path is a file and a folder at once"),
        _ => Ok(()),
    }
}
