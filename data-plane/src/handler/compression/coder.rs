//! Compressors of responses. Each worker keeps some for the next responses: a new compressor costs the zeroed pages of its
//! tables, for a page of 60,000 bytes a quarter of the time with gzip, and half of it with zstd.

#[cfg(feature = "zstd")]
use crate::limits::ZSTD_CODER_BYTES;
use crate::limits::{CODERS_KEPT_MAX, GZIP_CODER_BYTES};
use base::clock::monotonic_ms;
use base::cpu_load::CpuLoad;
use flate2::{Compress, Compression, FlushCompress, Status as CoderStatus};
use std::cell::RefCell;
use wire::fields::ContentCoding;
#[cfg(feature = "zstd")]
use zstd_safe::{
    CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, zstd_sys::ZSTD_EndDirective,
};

/// Codings that responses may have, indexed by `ContentCoding as usize`.
pub(super) const CODINGS: [bool; 4] = {
    let mut codings = [false; 4];
    codings[ContentCoding::Identity as usize] = true;
    codings[ContentCoding::Gzip as usize] = true;
    codings[ContentCoding::Zstd as usize] = cfg!(feature = "zstd");
    codings
};

/// Treatment of the bytes that a compressor still holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Flush {
    /// The bytes wait for more content.
    No,
    /// The bytes go to the client.
    Yes,
    /// The bytes go to the client, and the content ends.
    End,
}

/// The compressor failed; the content can't be finished.
#[derive(Debug)]
pub(super) struct CoderFailed;

/// Returns the memory of a compressor, in bytes.
pub(super) fn coder_bytes(coding: ContentCoding) -> usize {
    match coding {
        #[cfg(feature = "zstd")]
        ContentCoding::Zstd => ZSTD_CODER_BYTES,
        _ => GZIP_CODER_BYTES,
    }
}

/// Compressor of one response. The worker keeps it afterwards.
pub(super) struct Coder {
    /// None once the worker has it back.
    tables: Option<CoderTables>,
}

/// Tables of a compressor, for a new content.
struct CoderTables {
    kind: CoderKind,
    effort: Effort,
    /// True if a response was compressed since the last sweep.
    is_fresh: bool,
}

enum CoderKind {
    Gzip(Compress),
    #[cfg(feature = "zstd")]
    Zstd(CCtx<'static>),
}

/// Work that is spent on a shorter content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Effort {
    Usual,
    /// While all processors are busy.
    Little,
}

impl Effort {
    /// Returns the level of gzip. Beyond 3, a text becomes 3 % shorter for 40 % more time. Level 1 is twice as fast, and a
    /// text is 40 % longer.
    fn gzip_level(self) -> u32 {
        match self {
            Effort::Usual => 3,
            Effort::Little => 1,
        }
    }

    /// Returns the level of zstd. Level 2 has half the time of gzip at level 3 for the same length.
    #[cfg(feature = "zstd")]
    fn zstd_level(self) -> i32 {
        match self {
            Effort::Usual => 2,
            Effort::Little => 1,
        }
    }
}

/// Binary logarithm of the window of gzip, 32 KiB: the largest.
const GZIP_WINDOW_BITS: u8 = 15;
/// Binary logarithm of the window of zstd, 64 KiB. A larger one makes texts 3 % shorter for twice the memory.
#[cfg(feature = "zstd")]
const ZSTD_WINDOW_BITS: u32 = 16;

thread_local! {
    /// Tables of the worker's last compressors, for reuse. The latest is at the end.
    static KEPT: RefCell<Vec<CoderTables>> = const { RefCell::new(Vec::new()) };
}

/// Frees the compressors of the worker that no response used since the last call. Called by the sweep of the worker.
pub(crate) fn release_unused_coders() {
    KEPT.with_borrow_mut(|kept| {
        kept.retain_mut(|tables| std::mem::take(&mut tables.is_fresh));
        if kept.is_empty() {
            *kept = Vec::new();
        }
    });
}

/// Frees the compressors that the worker keeps.
pub(crate) fn release_coders() {
    KEPT.with_borrow_mut(|kept| *kept = Vec::new());
}

impl Coder {
    /// Returns a compressor for a new content. While all processors are busy, the content is compressed with less effort.
    pub(super) fn new(coding: ContentCoding) -> Coder {
        static LOAD: CpuLoad = CpuLoad::new();
        let effort = if LOAD.is_busy(monotonic_ms()) {
            Effort::Little
        } else {
            Effort::Usual
        };
        let kept = KEPT.with_borrow_mut(|kept| {
            let fits = |it: &CoderTables| it.kind.coding() == coding && it.effort == effort;
            kept.iter().rposition(fits).map(|nth| kept.remove(nth))
        });
        let tables = match kept {
            Some(mut tables) => {
                tables.kind.reset();
                tables
            }
            None => CoderTables {
                kind: CoderKind::new(coding, effort),
                effort,
                is_fresh: true,
            },
        };
        Coder {
            tables: Some(tables),
        }
    }

    /// Appends the compressed form of `bytes` to `out`.
    pub(super) fn code(
        &mut self,
        bytes: &[u8],
        flush: Flush,
        out: &mut Vec<u8>,
    ) -> Result<(), CoderFailed> {
        match self.tables.as_mut().map(|tables| &mut tables.kind) {
            Some(CoderKind::Gzip(coder)) => code_gzip(coder, bytes, flush, out),
            #[cfg(feature = "zstd")]
            Some(CoderKind::Zstd(coder)) => code_zstd(coder, bytes, flush, out),
            None => Err(CoderFailed),
        }
    }
}

impl Drop for Coder {
    fn drop(&mut self) {
        let Some(mut tables) = self.tables.take() else {
            return;
        };
        tables.is_fresh = true;
        // At the end of a thread, the tables are freed.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let is_same = |it: &&CoderTables| it.kind.coding() == tables.kind.coding();
            if kept.iter().filter(is_same).count() < CODERS_KEPT_MAX {
                kept.push(tables);
            }
        });
    }
}

impl CoderKind {
    fn new(coding: ContentCoding, effort: Effort) -> CoderKind {
        match coding {
            #[cfg(feature = "zstd")]
            ContentCoding::Zstd => {
                let mut coder = CCtx::create();
                for parameter in [
                    CParameter::CompressionLevel(effort.zstd_level()),
                    CParameter::WindowLog(ZSTD_WINDOW_BITS),
                ] {
                    // Both are within the bounds of the library, which refuses nothing else.
                    let _ = coder.set_parameter(parameter);
                }
                CoderKind::Zstd(coder)
            }
            _ => {
                let level = Compression::new(effort.gzip_level());
                CoderKind::Gzip(Compress::new_gzip(level, GZIP_WINDOW_BITS))
            }
        }
    }

    fn coding(&self) -> ContentCoding {
        match self {
            CoderKind::Gzip(_) => ContentCoding::Gzip,
            #[cfg(feature = "zstd")]
            CoderKind::Zstd(_) => ContentCoding::Zstd,
        }
    }

    fn reset(&mut self) {
        match self {
            CoderKind::Gzip(coder) => coder.reset(),
            #[cfg(feature = "zstd")]
            CoderKind::Zstd(coder) => {
                // Forgets a content that was given up; the parameters stay.
                let _ = coder.reset(ResetDirective::SessionOnly);
            }
        }
    }
}

fn code_gzip(
    coder: &mut Compress,
    bytes: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), CoderFailed> {
    let flush = match flush {
        Flush::No => FlushCompress::None,
        Flush::Yes => FlushCompress::Sync,
        Flush::End => FlushCompress::Finish,
    };
    let begin = coder.total_in();
    loop {
        let taken = (coder.total_in() - begin) as usize;
        reserve(out, bytes.len() - taken);
        let room = out.capacity() - out.len();
        let length = out.len();
        let status = coder
            .compress_vec(&bytes[taken..], out, flush)
            .map_err(|_| CoderFailed)?;
        let is_all = (coder.total_in() - begin) as usize == bytes.len();
        let is_full = out.len() - length == room;
        match status {
            CoderStatus::StreamEnd => return Ok(()),
            _ if is_all && !is_full && !matches!(flush, FlushCompress::Finish) => return Ok(()),
            _ => {}
        }
    }
}

#[cfg(feature = "zstd")]
fn code_zstd(
    coder: &mut CCtx<'static>,
    bytes: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
) -> Result<(), CoderFailed> {
    let directive = match flush {
        Flush::No => ZSTD_EndDirective::ZSTD_e_continue,
        Flush::Yes => ZSTD_EndDirective::ZSTD_e_flush,
        Flush::End => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut input = InBuffer::around(bytes);
    loop {
        reserve(out, bytes.len() - input.pos());
        let length = out.len();
        let mut output = OutBuffer::around_pos(out, length);
        let held = coder
            .compress_stream2(&mut output, &mut input, directive)
            .map_err(|_| CoderFailed)?;
        if input.pos() == bytes.len() && (flush == Flush::No || held == 0) {
            return Ok(());
        }
    }
}

/// Makes room for the compressed form of `bytes` bytes. A flush needs some bytes of room to know that it is complete.
fn reserve(out: &mut Vec<u8>, bytes: usize) {
    out.reserve(bytes / 4 + 64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn plain(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            ContentCoding::Gzip => {
                let mut decoder = flate2::read::GzDecoder::new(coded);
                decoder.read_to_end(&mut plain).unwrap();
            }
            _ => plain = zstd::decode_all(coded).unwrap(),
        }
        plain
    }

    fn kept() -> usize {
        KEPT.with_borrow(Vec::len)
    }

    #[test]
    fn a_compressor_is_kept_until_two_sweeps_find_it_unused() {
        for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
            drop(Coder::new(coding));
        }
        assert_eq!(kept(), 2);
        release_unused_coders();
        assert_eq!(kept(), 2);
        drop(Coder::new(ContentCoding::Gzip));
        release_unused_coders();
        assert_eq!(kept(), 1);
        release_unused_coders();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn some_compressors_of_responses_at_the_same_time_are_kept() {
        let at_once: Vec<Coder> = (0..9).map(|_| Coder::new(ContentCoding::Gzip)).collect();
        drop(at_once);
        assert_eq!(kept(), CODERS_KEPT_MAX);
        release_coders();
    }

    #[test]
    fn a_content_that_was_given_up_leaves_nothing_behind() {
        for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
            let mut coded = Vec::new();
            let mut coder = Coder::new(coding);
            coder
                .code(b"a secret of another user", Flush::No, &mut coded)
                .unwrap();
            drop(coder);
            assert_eq!(kept(), 1);
            coded.clear();
            let mut coder = Coder::new(coding);
            assert_eq!(kept(), 0);
            for (part, flush) in [
                (&b"another "[..], Flush::Yes),
                (b"user", Flush::No),
                (b"", Flush::End),
            ] {
                coder.code(part, flush, &mut coded).unwrap();
            }
            assert_eq!(plain(coding, &coded), b"another user");
            drop(coder);
            release_unused_coders();
            release_unused_coders();
        }
    }

    #[test]
    fn a_flush_hands_out_everything_even_into_little_room() {
        let noise: Vec<u8> = (0..40_000u32)
            .map(|nth| (nth.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
            let mut coder = Coder::new(coding);
            let mut coded = Vec::with_capacity(1);
            coder.code(&noise, Flush::Yes, &mut coded).unwrap();
            let flushed = coded.len();
            // Nothing was left in the compressor.
            coder.code(b"", Flush::End, &mut coded).unwrap();
            assert!(coded.len() - flushed < 20, "{coding:?}");
            assert_eq!(plain(coding, &coded), noise, "{coding:?}");
        }
    }

    /// The compressors of the program take no more memory than the ledger of the bodies counts.
    #[test]
    fn the_memory_of_zstd_is_within_its_bound() {
        let mut coder = Coder::new(ContentCoding::Zstd);
        let mut coded = Vec::new();
        let slice = vec![b'x'; crate::limits::COMPRESSION_SLICE_BYTES];
        for _ in 0..40 {
            coder.code(&slice, Flush::No, &mut coded).unwrap();
        }
        let Some(CoderKind::Zstd(context)) = coder.tables.as_ref().map(|it| &it.kind) else {
            panic!("not zstd");
        };
        assert!(context.sizeof() <= ZSTD_CODER_BYTES, "{}", context.sizeof());
    }
}
