//! Contents of a release: each file is hashed and added to the store, and then the texts are coded where worthwhile.
//!
//! Several threads share the files. No file is in memory as a whole.

use crate::all_cores::on_all_cores;
use crate::coding::{CODED_SIZE_MAX, CODED_SIZE_MIN};
use crate::content_stream::{Reader, Sum, changed, is_coding_of};
use crate::content_target::{CodedContents, FileContents, NewContents, Target};
use crate::problem::Problem;
use crate::progress::{Progress, Work};
use crate::source::{Source, SourceFile};
use crate::text_coder::{TextCoder, TextToCode};
use release::limits::STORE_BUFFER_BYTES;
use release::manifest::BlobRef;
use release::mime;
use std::collections::HashMap;
use wire::content_coding::ContentCoding;

/// Codings of texts of earlier releases, by the digests of the texts.
#[derive(Default)]
pub(crate) struct KnownCodings {
    /// Codings of releases of this user.
    pub own: HashMap<[u8; 32], CodedContents>,
    /// Codings of releases that another publisher perhaps made. Each coding is decoded before its use.
    pub other: HashMap<[u8; 32], CodedContents>,
}

/// Contents of all files.
pub(crate) struct AddedContents {
    /// Contents in the order of the files.
    pub files: Vec<FileContents>,
    /// Bytes of the contents that were new to the store.
    pub new: u64,
    /// Texts that a publication would code; empty after a publication.
    pub uncoded: Vec<BlobRef>,
}

/// Adder of the contents of all files.
pub(crate) struct ContentAdder<'s> {
    source: &'s Source,
    target: Target<'s>,
    known: KnownCodings,
    new: NewContents,
    progress: Progress,
}

impl<'s> ContentAdder<'s> {
    /// Returns an adder for the files of a source.
    pub(crate) fn new(
        source: &'s Source,
        target: Target<'s>,
        known: KnownCodings,
    ) -> ContentAdder<'s> {
        let sizes = source.files.iter().map(|file| file.size);
        ContentAdder {
            source,
            target,
            known,
            new: NewContents::default(),
            progress: Progress::new(Work::Read, sizes.sum()),
        }
    }

    /// Adds the contents of all files.
    pub(crate) fn run(self) -> Result<AddedContents, Problem> {
        let files = &self.source.files;
        let read = self.progress.run(|| {
            let add = |number: usize, buffer: &mut Vec<u8>| {
                buffer.resize(STORE_BUFFER_BYTES, 0);
                self.add_file(&files[number], buffer)
            };
            on_all_cores(files.len(), add)
        })?;
        // Equal texts are coded once.
        let mut numbers: HashMap<[u8; 32], Vec<usize>> = HashMap::new();
        let mut texts = Vec::new();
        let mut contents = Vec::with_capacity(files.len());
        for (number, added) in read.into_iter().enumerate() {
            if added.coded.is_none() {
                let same = numbers.entry(added.content.digest).or_default();
                if same.is_empty() {
                    texts.push(TextToCode {
                        file: &files[number],
                        content: added.content,
                    });
                }
                same.push(number);
            }
            contents.push(FileContents {
                content: added.content,
                coded: added.coded.unwrap_or_default(),
            });
        }
        if let Target::Count(_) = self.target {
            return Ok(AddedContents {
                files: contents,
                new: self.new.bytes(),
                uncoded: texts.iter().map(|text| text.content).collect(),
            });
        }
        let coder = TextCoder::new(&texts, self.target, &self.new);
        for (text, coded) in texts.iter().zip(coder.run()?) {
            for number in numbers.get(&text.content.digest).into_iter().flatten() {
                contents[*number].coded.clone_from(&coded);
            }
        }
        Ok(AddedContents {
            files: contents,
            new: self.new.bytes(),
            uncoded: Vec::new(),
        })
    }

    fn add_file(&self, file: &SourceFile, buffer: &mut [u8]) -> Result<AddedFile, Problem> {
        let content = match file.content {
            Some(content) => content,
            None => {
                let mut sum = Sum::default();
                let mut open = Reader::open(file)?;
                open.copy(&mut sum, buffer)?;
                sum.finish()
            }
        };
        if !self.target.has(&content)? {
            let mut out = self.target.begin()?;
            let mut open = Reader::open(file)?;
            open.copy(&mut out, buffer)?;
            if self.new.finish(self.target, out)? != content {
                return Err(changed(file));
            }
        }
        let is_coded = is_text(file) && (CODED_SIZE_MIN..=CODED_SIZE_MAX).contains(&content.size);
        let coded = if is_coded {
            self.known_codings(&content)?
        } else {
            Some(Vec::new())
        };
        self.progress.add(file.size);
        Ok(AddedFile { content, coded })
    }

    /// Returns the codings of a text that an earlier release has; None for a text without them.
    fn known_codings(&self, content: &BlobRef) -> Result<Option<CodedContents>, Problem> {
        if let Some(own) = self.known.own.get(&content.digest) {
            let mut is_whole = true;
            for (_, coded) in own {
                is_whole = is_whole && self.target.has(coded)?;
            }
            if is_whole {
                return Ok(Some(own.clone()));
            }
        }
        let other = self.known.other.get(&content.digest);
        Ok(other.filter(|other| self.are_of(other, content)).cloned())
    }

    /// Returns true if the store has all codings, and each decodes to the text.
    fn are_of(&self, codings: &CodedContents, text: &BlobRef) -> bool {
        // A program without encoders published the text, such as a server after a push to git.
        let is_coded = !codings.is_empty();
        is_coded
            && codings.iter().all(|(coding, coded)| {
                let open = self.target.open(coded);
                open.is_some_and(|open| is_coding_of(open, *coding, coded, text))
            })
    }
}

/// File with its content in the store.
struct AddedFile {
    content: BlobRef,
    /// Codings of the file; None for a text that is still to be coded.
    coded: Option<CodedContents>,
}

/// Returns true if a file has a media type with worthwhile codings.
fn is_text(file: &SourceFile) -> bool {
    is_text_path(&file.path)
}

/// Returns true if a path has a media type with worthwhile codings.
pub(crate) fn is_text_path(path: &[u8]) -> bool {
    mime::built_in_coding(path) == ContentCoding::Identity
        && mime::compressible(mime::of(path, &[]))
}
