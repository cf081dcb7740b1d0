//! Coder of the texts of a release: each coding of each text is a step, and all processor cores share the steps.
//!
//! The longest texts come first, so that no long text is left for one core at the end. The codings of a text are chosen when
//! the last of them is complete.

use crate::all_cores::on_all_cores;
use crate::coding::{CODINGS, Effort, code, is_worthwhile};
use crate::coding_plan::{efforts, estimated_nanoseconds};
use crate::content_stream::{Output, Reader, changed};
use crate::content_target::{CodedContents, NewContents, Target};
use crate::problem::Problem;
use crate::progress::{Progress, Work};
use crate::source::SourceFile;
use crate::text;
use base::sys::memory_limit_bytes;
use release::manifest::BlobRef;
use std::cmp::Reverse;
use std::io::{self, Read};
use std::sync::{Condvar, Mutex, PoisonError};
use wire::content_coding::ContentCoding;

/// Memory of all codings under way, 1 GiB, or a quarter of the machine's memory if that is less.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Memory of a coding beside the memory that grows with the text, 36 MiB: the tables of Brotli 9.
const CODING_BYTES: u64 = 36 << 20;
/// Bytes of memory for each byte of a text within the window, by the match finders of Brotli 11 and Zstandard 19.
const CODING_BYTES_EACH: u64 = 12;
/// Bytes of a text beyond which a coding takes no further memory, 8 MiB: the largest window.
const CODING_WINDOW_BYTES: u64 = 8 << 20;

/// Text without codings.
pub(crate) struct TextToCode<'s> {
    /// File with the text.
    pub file: &'s SourceFile,
    /// Content of the file.
    pub content: BlobRef,
}

/// Coder of texts.
pub(crate) struct TextCoder<'t, 's> {
    texts: &'t [TextToCode<'s>],
    target: Target<'s>,
    new: &'t NewContents,
    efforts: Vec<Effort>,
    /// Numbers of the texts, the longest first.
    order: Vec<usize>,
    /// Complete codings of each text, until all codings of the text are complete.
    waiting: Vec<Mutex<Vec<(ContentCoding, Output<'s>)>>>,
    memory: MemoryGate,
    progress: Progress,
}

impl<'t, 's> TextCoder<'t, 's> {
    /// Returns a coder for texts that differ from each other.
    pub(crate) fn new(
        texts: &'t [TextToCode<'s>],
        target: Target<'s>,
        new: &'t NewContents,
    ) -> TextCoder<'t, 's> {
        let contents: Vec<BlobRef> = texts.iter().map(|text| text.content).collect();
        let efforts = efforts(&contents);
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|number| {
            (
                efforts[*number] == Effort::Quick,
                Reverse(contents[*number].size),
            )
        });
        let times = contents.iter().zip(&efforts).flat_map(|(content, effort)| {
            CODINGS.map(|coding| estimated_nanoseconds(coding, *effort, content.size))
        });
        let total = times.sum();
        let bytes = contents.iter().map(|content| content.size).sum();
        let memory = memory_limit_bytes().map_or(MEMORY_BYTES_MAX, |all| all / 4);
        TextCoder {
            texts,
            target,
            new,
            efforts,
            order,
            waiting: texts.iter().map(|_| Mutex::default()).collect(),
            memory: MemoryGate::new(memory.min(MEMORY_BYTES_MAX)),
            progress: Progress::weighted(Work::Code, bytes, total),
        }
    }

    /// Codes all texts, and returns the worthwhile codings of each.
    pub(crate) fn run(&self) -> Result<Vec<CodedContents>, Problem> {
        let steps = self.texts.len() * CODINGS.len();
        let done = self
            .progress
            .run(|| on_all_cores(steps, |step, (): &mut ()| self.step(step)))?;
        let mut coded: Vec<CodedContents> = self.texts.iter().map(|_| Vec::new()).collect();
        for (number, codings) in done.into_iter().flatten() {
            coded[number] = codings;
        }
        Ok(coded)
    }

    /// Makes one coding of a text. The last coding of a text returns the number of the text and its worthwhile codings.
    fn step(&self, step: usize) -> Result<Option<(usize, CodedContents)>, Problem> {
        let number = self.order[step / CODINGS.len()];
        // The longest coding comes first.
        let coding =
            [ContentCoding::Br, ContentCoding::Zstd, ContentCoding::Gzip][step % CODINGS.len()];
        let out = self.coding(&self.texts[number], self.efforts[number], coding)?;
        let mut waiting = self.waiting[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.push((coding, out));
        if waiting.len() < CODINGS.len() {
            return Ok(None);
        }
        let mut outputs = std::mem::take(&mut *waiting);
        drop(waiting);
        let place = |coding: ContentCoding| CODINGS.iter().position(|it| *it == coding);
        outputs.sort_by_key(|(coding, _)| place(*coding));
        let size = self.texts[number].content.size;
        let (mut coded, mut sizes) = (Vec::new(), Vec::new());
        for (coding, out) in outputs {
            if is_worthwhile(out.size(), size, &sizes) {
                sizes.push(out.size());
                coded.push((coding, self.new.finish(self.target, out)?));
            }
        }
        Ok(Some((number, coded)))
    }

    fn coding(
        &self,
        text: &TextToCode<'_>,
        effort: Effort,
        coding: ContentCoding,
    ) -> Result<Output<'s>, Problem> {
        let size = text.content.size;
        let _memory = self.memory.enter(coding_bytes(coding, size));
        let mut out = self.target.begin()?;
        let mut open = CountedReader {
            reader: Reader::open(text.file)?,
            progress: &self.progress,
            size,
            weight: estimated_nanoseconds(coding, effort, size),
            read: 0,
        };
        let result = code(coding, effort, &mut open, size, &mut out);
        if open.reader.digest() != text.content.digest {
            return Err(changed(text.file));
        }
        let path = text::path(&text.file.path);
        result.map_err(|error| Problem::failure(format!("{path}: {error}")))?;
        Ok(out)
    }
}

/// Returns the most memory that a coding of a text takes.
fn coding_bytes(coding: ContentCoding, size: u64) -> u64 {
    match coding {
        ContentCoding::Identity | ContentCoding::Gzip => 1 << 20,
        ContentCoding::Br | ContentCoding::Zstd => {
            CODING_BYTES + CODING_BYTES_EACH * size.min(CODING_WINDOW_BYTES)
        }
    }
}

/// Reader of a text that adds the read part to the progress.
struct CountedReader<'r> {
    reader: Reader<'r>,
    progress: &'r Progress,
    /// Bytes of the text.
    size: u64,
    /// Weight of the whole text.
    weight: u64,
    read: u64,
}

impl CountedReader<'_> {
    /// Returns the weight of the first `read` bytes.
    fn weight_of(&self, read: u64) -> u64 {
        let part = u128::from(self.weight) * u128::from(read.min(self.size));
        u64::try_from(part / u128::from(self.size.max(1))).unwrap_or(self.weight)
    }
}

impl Read for CountedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        let read = self.read + count as u64;
        self.progress
            .add(self.weight_of(read) - self.weight_of(self.read));
        self.read = read;
        Ok(count)
    }
}

/// Bound of the memory of codings. A coding that does not fit waits until running codings have ended.
struct MemoryGate {
    free: Mutex<u64>,
    freed: Condvar,
    all: u64,
}

impl MemoryGate {
    fn new(all: u64) -> MemoryGate {
        MemoryGate {
            free: Mutex::new(all),
            freed: Condvar::new(),
            all,
        }
    }

    /// Waits until `bytes` are free, and takes them. A coding of more bytes than all takes all, and so runs alone.
    fn enter(&self, bytes: u64) -> MemoryShare<'_> {
        let bytes = bytes.min(self.all);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free < bytes);
        *free.unwrap_or_else(PoisonError::into_inner) -= bytes;
        MemoryShare { gate: self, bytes }
    }
}

/// Memory of one coding, free again at the end of the coding.
struct MemoryShare<'g> {
    gate: &'g MemoryGate,
    bytes: u64,
}

impl Drop for MemoryShare<'_> {
    fn drop(&mut self) {
        let free = self.gate.free.lock();
        *free.unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn codings_under_way_stay_within_the_memory() {
        let gate = MemoryGate::new(100);
        let (used, most) = (AtomicU64::new(0), AtomicU64::new(0));
        // 1,000 bytes count as all the memory.
        let shares = [40, 70, 1_000, 30, 100, 10, 60, 50];
        std::thread::scope(|scope| {
            for bytes in shares {
                let (gate, used, most) = (&gate, &used, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let share = gate.enter(bytes);
                        let now = used.fetch_add(share.bytes, Ordering::SeqCst) + share.bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        used.fetch_sub(share.bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 100);
        assert_eq!(*gate.free.lock().expect("a lock"), 100);
    }

    #[test]
    fn the_memory_of_a_coding_is_bounded() {
        assert_eq!(coding_bytes(ContentCoding::Br, 64 << 20), 132 << 20);
        assert!(coding_bytes(ContentCoding::Zstd, 60_000) < 40 << 20);
        assert!(coding_bytes(ContentCoding::Br, 64 << 20) <= MEMORY_BYTES_MAX / 4);
    }
}
