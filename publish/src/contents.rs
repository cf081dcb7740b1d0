//! Contents of a release: each file is hashed, coded where worthwhile, and added to the store.
//!
//! Several threads share the files. No file is in memory as a whole.

use crate::coding::{CODED_SIZE_MAX, CODED_SIZE_MIN, CODINGS, code, decode, is_worthwhile};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::source::{Source, SourceFile};
use crate::text;
use base::digest::Digest;
use release::limits::STORE_BUFFER_BYTES;
use release::manifest::BlobRef;
use release::mime;
use release::store::{Draft, ReleaseStore as _, StoreWriteError, StoreWriter};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wire::content_coding::ContentCoding;

/// Most threads for one publication. Each thread takes up to 100 MB for Zstandard.
const THREADS_MAX: usize = 8;

/// Coded contents of a file.
pub(crate) type CodedContents = Vec<(ContentCoding, BlobRef)>;

/// Content of a file with its codings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileContents {
    /// Content without a coding.
    pub content: BlobRef,
    /// Coded contents in the order of a manifest.
    pub coded: CodedContents,
}

/// Place of the contents.
#[derive(Copy, Clone)]
pub(crate) enum Target<'s> {
    /// The contents are added to a store.
    Store(&'s StoreWriter),
    /// The contents are only counted, and compared with a store.
    Count(Option<&'s dyn Presence>),
}

/// Store for comparison without changes.
pub(crate) trait Presence: Sync {
    /// Returns true if the store has a content.
    fn has(&self, content: &BlobRef) -> bool;
    /// Opens a content; None for a content that the store lacks.
    fn open(&self, content: &BlobRef) -> Option<File>;
}

/// Codings of texts of earlier releases, by the digests of the texts.
#[derive(Default)]
pub(crate) struct KnownCodings {
    /// Codings of a release of this user.
    pub own: HashMap<[u8; 32], CodedContents>,
    /// Codings of a release that another publisher perhaps made. Each coding is decoded before its use.
    pub other: HashMap<[u8; 32], CodedContents>,
}

/// Adder of the contents of all files.
pub(crate) struct ContentAdder<'s> {
    source: &'s Source,
    target: Target<'s>,
    known: KnownCodings,
    /// Digests of the contents that were new to the store.
    new: Mutex<HashSet<BlobRef>>,
    next: AtomicUsize,
    is_failed: AtomicBool,
    progress: Progress,
}

impl<'s> ContentAdder<'s> {
    /// Returns an adder for the files of a source.
    pub(crate) fn new(
        source: &'s Source,
        target: Target<'s>,
        known: KnownCodings,
    ) -> ContentAdder<'s> {
        ContentAdder {
            source,
            target,
            known,
            new: Mutex::default(),
            next: AtomicUsize::new(0),
            is_failed: AtomicBool::new(false),
            progress: Progress::new(source.files.iter().map(|file| file.size).sum()),
        }
    }

    /// Adds the contents of all files, and returns them in the order of the files, with the bytes that were new to the
    /// store.
    pub(crate) fn run(self) -> Result<(Vec<FileContents>, u64), Problem> {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
        let threads = threads.min(THREADS_MAX).min(self.source.files.len().max(1));
        let parts: Vec<_> = self.progress.run(|| {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work())).collect();
                workers.into_iter().map(|worker| worker.join()).collect()
            })
        });
        let mut contents = Vec::with_capacity(self.source.files.len());
        for part in parts {
            let part = part.map_err(|_| Problem::failure("a thread ended by a panic"))?;
            contents.extend(part?);
        }
        contents.sort_by_key(|(number, _)| *number);
        let contents = contents.into_iter().map(|(_, contents)| contents).collect();
        let new = self.new.into_inner().unwrap_or_default();
        Ok((contents, new.iter().map(|content| content.size).sum()))
    }

    /// Adds files until none is left. Returns the numbers of the files with their contents.
    fn work(&self) -> Result<Vec<(usize, FileContents)>, Problem> {
        let mut buffer = vec![0; STORE_BUFFER_BYTES];
        let mut done = Vec::new();
        while !self.is_failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.source.files.get(number) else {
                break;
            };
            match self.add_file(file, &mut buffer) {
                Ok(contents) => done.push((number, contents)),
                Err(problem) => {
                    self.is_failed.store(true, Ordering::Relaxed);
                    return Err(problem);
                }
            }
            self.progress.add(file.size);
        }
        Ok(done)
    }

    fn add_file(&self, file: &SourceFile, buffer: &mut [u8]) -> Result<FileContents, Problem> {
        let content = match file.content {
            Some(content) => content,
            None => {
                let mut sum = Sum::default();
                let mut open = Reader::open(file)?;
                open.copy(&mut sum, buffer)?;
                sum.finish()
            }
        };
        if !self.has(&content)? {
            let mut out = self.begin()?;
            let mut open = Reader::open(file)?;
            open.copy(&mut out, buffer)?;
            if self.finish(out)? != content {
                return Err(changed(file));
            }
        }
        let coded = if is_text(file) {
            self.add_coded(file, &content)?
        } else {
            Vec::new()
        };
        Ok(FileContents { content, coded })
    }

    fn add_coded(&self, file: &SourceFile, content: &BlobRef) -> Result<CodedContents, Problem> {
        if !(CODED_SIZE_MIN..=CODED_SIZE_MAX).contains(&content.size) {
            return Ok(Vec::new());
        }
        if let Some(own) = self.known.own.get(&content.digest) {
            let mut is_whole = true;
            for (_, coded) in own {
                is_whole = is_whole && self.has(coded)?;
            }
            if is_whole {
                return Ok(own.clone());
            }
        }
        if let Some(other) = self.known.other.get(&content.digest)
            && self.are_of(other, content)
        {
            return Ok(other.clone());
        }
        let mut coded = Vec::new();
        let mut sizes = Vec::new();
        for coding in CODINGS {
            let mut out = self.begin()?;
            let mut open = Reader::open(file)?;
            let result = code(coding, &mut open, content.size, &mut out);
            if open.digest() != content.digest {
                return Err(changed(file));
            }
            result.map_err(|error| self.failed(file, &error))?;
            if is_worthwhile(out.size(), content.size, &sizes) {
                sizes.push(out.size());
                coded.push((coding, self.finish(out)?));
            }
        }
        Ok(coded)
    }

    /// Returns true if the store has all codings, and each decodes to the text.
    fn are_of(&self, codings: &CodedContents, text: &BlobRef) -> bool {
        codings.iter().all(|(coding, coded)| {
            let open = match self.target {
                Target::Store(store) => store.reader().open_blob(&coded.digest).ok(),
                Target::Count(present) => present.and_then(|present| present.open(coded)),
            };
            open.is_some_and(|open| is_coding_of(open, *coding, coded, text))
        })
    }

    fn failed(&self, file: &SourceFile, error: &io::Error) -> Problem {
        Problem::failure(format!("{}: {error}", text::path(&file.path)))
    }

    fn has(&self, content: &BlobRef) -> Result<bool, Problem> {
        match self.target {
            Target::Store(store) => store.has(content).map_err(stored),
            Target::Count(present) => Ok(present.is_some_and(|present| present.has(content))),
        }
    }

    fn begin(&self) -> Result<Output<'s>, Problem> {
        match self.target {
            Target::Store(store) => store.draft().map(Output::Draft).map_err(stored),
            Target::Count(_) => Ok(Output::Sum(Sum::default())),
        }
    }

    fn finish(&self, out: Output<'s>) -> Result<BlobRef, Problem> {
        let content = match out {
            Output::Draft(draft) => match draft.finish().map_err(stored)? {
                (content, true) => content,
                (content, false) => return Ok(content),
            },
            Output::Sum(sum) => {
                let content = sum.finish();
                if self.has(&content)? {
                    return Ok(content);
                }
                content
            }
        };
        if let Ok(mut new) = self.new.lock() {
            new.insert(content);
        }
        Ok(content)
    }
}

/// Returns true if a file has a media type with worthwhile codings.
pub(crate) fn is_text(file: &SourceFile) -> bool {
    is_text_path(&file.path)
}

/// Returns true if a path has a media type with worthwhile codings.
pub(crate) fn is_text_path(path: &[u8]) -> bool {
    mime::built_in_coding(path) == ContentCoding::Identity
        && mime::compressible(mime::of(path, &[]))
}

/// Returns the problem for an error of the store.
pub(crate) fn stored(error: StoreWriteError) -> Problem {
    Problem::failure(format!("the store: {error}"))
}

/// Returns true if a file has a coded content that decodes to a text. A coding of more bytes than the text ends early.
pub(crate) fn is_coding_of(
    file: File,
    coding: ContentCoding,
    coded: &BlobRef,
    text: &BlobRef,
) -> bool {
    let mut read = SummedRead {
        input: file,
        sum: Sum::default(),
    };
    let mut decoded = BoundedSum {
        sum: Sum::default(),
        left: text.size,
    };
    decode(coding, &mut read, &mut decoded).is_ok()
        && read.sum.finish() == *coded
        && decoded.sum.finish() == *text
}

fn changed(file: &SourceFile) -> Problem {
    let what = format!("{} changed while it was read", text::path(&file.path));
    Problem::failure(what).help("publish again when the folder is complete")
}

/// Reader of a file, hashed while read.
struct Reader<'f> {
    file: &'f SourceFile,
    open: SummedRead,
}

impl<'f> Reader<'f> {
    fn open(file: &'f SourceFile) -> Result<Reader<'f>, Problem> {
        let failed = |error| Problem::failure(format!("{}: {error}", text::path(&file.path)));
        let input = File::open(&file.real).map_err(failed)?;
        let sum = Sum::default();
        let open = SummedRead { input, sum };
        Ok(Reader { file, open })
    }

    /// Copies the whole file, without a sum.
    fn copy(&mut self, out: &mut impl Write, buffer: &mut [u8]) -> Result<(), Problem> {
        let failed = |error: io::Error, file: &SourceFile| {
            Problem::failure(format!("{}: {error}", text::path(&file.path)))
        };
        loop {
            let count = match self.open.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count.map_err(|error| failed(error, self.file))?,
            };
            if count == 0 {
                return Ok(());
            }
            out.write_all(&buffer[..count])
                .map_err(|error| failed(error, self.file))?;
        }
    }

    fn digest(self) -> [u8; 32] {
        self.open.sum.finish().digest
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.open.read(buffer)
    }
}

/// Reader that hashes the bytes.
struct SummedRead {
    input: File,
    sum: Sum,
}

impl Read for SummedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.sum.write_all(&buffer[..count])?;
        Ok(count)
    }
}

/// Sum of a bounded number of bytes. A further byte is an error.
struct BoundedSum {
    sum: Sum,
    left: u64,
}

impl Write for BoundedSum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(io::ErrorKind::InvalidData)?;
        self.sum.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Destination of a content.
enum Output<'s> {
    Draft(Draft<'s>),
    Sum(Sum),
}

impl Output<'_> {
    fn size(&self) -> u64 {
        match self {
            Output::Draft(draft) => draft.size(),
            Output::Sum(sum) => sum.size,
        }
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Draft(draft) => draft.write(bytes),
            Output::Sum(sum) => sum.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Digest and size of written bytes.
#[derive(Default)]
struct Sum {
    digest: Digest,
    size: u64,
}

impl Sum {
    fn finish(self) -> BlobRef {
        BlobRef {
            size: self.size,
            digest: self.digest.finish(),
        }
    }
}

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.digest.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
