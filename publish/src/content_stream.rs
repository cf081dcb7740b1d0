//! Streams of contents: readers and outputs that hash the bytes on their way.

use crate::coding::decode;
use crate::problem::Problem;
use crate::source::SourceFile;
use crate::text;
use base::digest::Digest;
use release::manifest::BlobRef;
use release::store::Draft;
use std::fs::File;
use std::io::{self, Read, Write};
use wire::content_coding::ContentCoding;

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

/// Returns the problem for a file that changed between two reads.
pub(crate) fn changed(file: &SourceFile) -> Problem {
    let what = format!("{} changed while it was read", text::path(&file.path));
    Problem::failure(what).help("publish again when the folder is complete")
}

/// Reader of a file, hashed while read.
pub(crate) struct Reader<'f> {
    file: &'f SourceFile,
    open: SummedRead,
}

impl<'f> Reader<'f> {
    pub(crate) fn open(file: &'f SourceFile) -> Result<Reader<'f>, Problem> {
        let failed = |error| {
            Problem::failure(format!(
                "{}: {}",
                text::path(&file.path),
                text::reason(&error)
            ))
        };
        let input = File::open(&file.real).map_err(failed)?;
        let sum = Sum::default();
        let open = SummedRead { input, sum };
        Ok(Reader { file, open })
    }

    /// Copies the whole file, without a sum.
    pub(crate) fn copy(&mut self, out: &mut impl Write, buffer: &mut [u8]) -> Result<(), Problem> {
        let failed = |error: io::Error, file: &SourceFile| {
            Problem::failure(format!(
                "{}: {}",
                text::path(&file.path),
                text::reason(&error)
            ))
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

    /// Returns the digest of the bytes that were read.
    pub(crate) fn digest(self) -> [u8; 32] {
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
pub(crate) enum Output<'s> {
    Draft(Draft<'s>),
    Sum(Sum),
}

impl Output<'_> {
    /// Returns the bytes that were written.
    pub(crate) fn size(&self) -> u64 {
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
pub(crate) struct Sum {
    digest: Digest,
    size: u64,
}

impl Sum {
    /// Returns the reference of the hashed content.
    pub(crate) fn finish(self) -> BlobRef {
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
