//! Writer of a manifest. The caller adds the lines in the order of the format; [`super::ManifestReader`] refuses the
//! text otherwise.

use super::HEADER;
use super::line::{BlobRef, ManifestLine};
use base::digest::hex;
use std::fmt::Write as _;

/// Text of a manifest in the making.
pub struct ManifestWriter(String);

impl Default for ManifestWriter {
    fn default() -> ManifestWriter {
        ManifestWriter(format!("{HEADER}\n"))
    }
}

impl ManifestWriter {
    /// Appends a line.
    pub fn push(&mut self, line: &ManifestLine<'_>) {
        match line {
            ManifestLine::ErrorPage { status, path } => {
                self.number("error", u64::from(*status)).text(path)
            }
            ManifestLine::CacheAge { seconds, files } => self.number("cache", *seconds).text(files),
            ManifestLine::Fields { files } => self.word("fields").text(files),
            ManifestLine::Field { name, value } => self.word("field").text(name).text(value),
            ManifestLine::Redirect(redirect) => {
                let kind = if redirect.is_forced {
                    "redirect!"
                } else {
                    "redirect"
                };
                let line = self.number(kind, u64::from(redirect.status));
                let line = line.text(&redirect.from);
                if redirect.to.is_empty() {
                    line
                } else {
                    line.text(&redirect.to)
                }
            }
            ManifestLine::File {
                path,
                content,
                is_hashed,
            } => {
                let kind = if *is_hashed { "hashed" } else { "file" };
                self.content(kind, content).text(path)
            }
            ManifestLine::Coded { coding, content } => self.content(coding.token(), content),
        };
        self.0.push('\n');
    }

    /// Returns the manifest.
    pub fn finish(self) -> String {
        self.0
    }

    fn word(&mut self, word: &str) -> &mut ManifestWriter {
        self.0.push_str(word);
        self
    }

    fn number(&mut self, kind: &str, number: u64) -> &mut ManifestWriter {
        // A string accepts each write.
        let _ = write!(self.0, "{kind} {number}");
        self
    }

    fn content(&mut self, kind: &str, content: &BlobRef) -> &mut ManifestWriter {
        let line = self.number(kind, content.size);
        line.word(" ").word(&hex(&content.digest))
    }

    /// Appends a space and a text as one word.
    fn text(&mut self, text: &[u8]) -> &mut ManifestWriter {
        self.0.push(' ');
        for byte in text {
            match byte {
                b'!'..=b'~' if *byte != b'%' => self.0.push(char::from(*byte)),
                byte => {
                    // A string accepts each write.
                    let _ = write!(self.0, "%{byte:02X}");
                }
            }
        }
        self
    }
}
