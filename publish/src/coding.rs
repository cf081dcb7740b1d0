//! Content codings of texts: gzip, Brotli and Zstandard, with two levels of effort.
//!
//! A text has equal coded bytes each time with the same effort. The id of a release covers the coded bytes, so no coding
//! depends on the speed of the machine.

use std::io::{self, BufRead, BufReader, Read, Write};
use wire::content_coding::ContentCoding;

/// Codings of a release, in the order of a manifest.
pub(crate) const CODINGS: [ContentCoding; 3] =
    [ContentCoding::Gzip, ContentCoding::Br, ContentCoding::Zstd];

/// Least size of a coded text in bytes. The fields of a response are longer than the savings of a shorter text.
pub(crate) const CODED_SIZE_MIN: u64 = 256;
/// Largest size of a coded text, 64 MiB. Brotli takes seconds for such a text with the least effort.
pub(crate) const CODED_SIZE_MAX: u64 = 64 << 20;
/// Window of Brotli as an exponent of 2: 4 MiB.
const BROTLI_WINDOW_LOG_MAX: u32 = 22;
/// Least window of Brotli as an exponent of 2: 256 KiB. Brotli reserves memory for the whole window, so a short text has a
/// smaller one.
const BROTLI_WINDOW_LOG_MIN: u32 = 18;
/// Window of Zstandard as an exponent of 2: 8 MiB, the most that browsers accept (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;

/// Effort of the codings of a text.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Brotli 9 and Zstandard 12.
    Quick,
    /// Brotli 11 and Zstandard 19: texts are 5 to 10 % smaller, and take six times as long. Level 19 is the highest one of
    /// Zstandard with a window of 8 MiB.
    Best,
}

impl Effort {
    fn brotli_level(self) -> i32 {
        match self {
            Effort::Quick => 9,
            Effort::Best => 11,
        }
    }

    fn zstd_level(self) -> i32 {
        match self {
            Effort::Quick => 12,
            Effort::Best => 19,
        }
    }
}

/// Returns true if a coded content is small enough to be kept: at most 95 % of a text of `size` bytes, and smaller than
/// the codings before, since a client with a later coding mostly has the earlier ones too.
pub(crate) fn is_worthwhile(coded: u64, size: u64, before: &[u64]) -> bool {
    coded * 20 <= size * 19 && before.iter().all(|before| coded < *before)
}

/// Codes a text of `size` bytes. gzip has its highest level with every effort.
pub(crate) fn code(
    coding: ContentCoding,
    effort: Effort,
    text: &mut dyn Read,
    size: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    match coding {
        ContentCoding::Identity => io::copy(text, out).map(drop),
        ContentCoding::Gzip => {
            let mut coder = flate2::write::GzEncoder::new(out, flate2::Compression::best());
            io::copy(text, &mut coder)?;
            coder.finish().map(drop)
        }
        ContentCoding::Br => {
            let parameters = brotli::enc::BrotliEncoderParams {
                quality: effort.brotli_level(),
                lgwin: brotli_window_log(size),
                size_hint: usize::try_from(size).unwrap_or(0),
                ..Default::default()
            };
            let (mut text, mut out) = (text, out);
            brotli::BrotliCompress(&mut text, &mut out, &parameters).map(drop)
        }
        ContentCoding::Zstd => {
            let mut coder = zstd::stream::write::Encoder::new(out, effort.zstd_level())?;
            coder.set_pledged_src_size(Some(size))?;
            coder.window_log(ZSTD_WINDOW_LOG)?;
            io::copy(text, &mut coder)?;
            coder.finish().map(drop)
        }
    }
}

/// Returns the least window that covers a text of `size` bytes, within the bounds.
fn brotli_window_log(size: u64) -> i32 {
    let logs = BROTLI_WINDOW_LOG_MIN..=BROTLI_WINDOW_LOG_MAX;
    // A window has 16 bytes less than the power of 2 (RFC 7932 §9.1).
    let covers = |log: &u32| (1_u64 << log) - 16 >= size;
    let log = logs.into_iter().find(covers);
    log.unwrap_or(BROTLI_WINDOW_LOG_MAX).cast_signed()
}

/// Decodes a coded text of another publisher. Bytes behind the end of the coding are an error, since a browser perhaps
/// decodes them, and so is a window that browsers refuse (RFC 9659).
pub(crate) fn decode(
    coding: ContentCoding,
    coded: &mut dyn Read,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut coded = BufReader::new(coded);
    match coding {
        ContentCoding::Identity => io::copy(&mut coded, out).map(drop)?,
        ContentCoding::Gzip => {
            let mut decoder = flate2::bufread::GzDecoder::new(&mut coded);
            io::copy(&mut decoder, out)?;
        }
        ContentCoding::Br => {
            let mut out = out;
            brotli::BrotliDecompress(&mut coded, &mut out)?;
        }
        ContentCoding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut coded)?.single_frame();
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            io::copy(&mut decoder, out)?;
        }
    }
    if coded.fill_buf()?.is_empty() {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coded_texts_are_smaller_and_equal_each_time() {
        let text = b"a text with a repetition, ".repeat(100);
        let efforts = [Effort::Quick, Effort::Best];
        for (coding, effort) in CODINGS
            .into_iter()
            .flat_map(|coding| efforts.map(|effort| (coding, effort)))
        {
            let coded = || {
                let (mut text, mut coded) = (text.as_slice(), Vec::new());
                let size = text.len() as u64;
                code(coding, effort, &mut text, size, &mut coded).expect("a coding");
                coded
            };
            let first = coded();
            assert!(is_worthwhile(first.len() as u64, text.len() as u64, &[]));
            assert_eq!(first, coded(), "{coding:?}");
            let mut decoded = Vec::new();
            decode(coding, &mut first.as_slice(), &mut decoded).expect("a decoding");
            assert_eq!(decoded, text, "{coding:?}");
            let cut = &first[..first.len() - 1];
            assert!(decode(coding, &mut &cut[..], &mut io::sink()).is_err());
            if coding != ContentCoding::Br {
                let twice = first.repeat(2);
                assert!(decode(coding, &mut twice.as_slice(), &mut io::sink()).is_err());
            }
        }
        assert!(is_worthwhile(95, 100, &[]) && !is_worthwhile(96, 100, &[]));
        assert!(is_worthwhile(50, 100, &[60]) && !is_worthwhile(50, 100, &[60, 50]));
    }

    #[test]
    fn an_error_of_the_last_write_is_reported() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for coding in CODINGS {
            let mut text = b"text".as_slice();
            let done = code(coding, Effort::Quick, &mut text, 4, &mut Full);
            assert!(done.is_err(), "{coding:?}");
        }
    }

    #[test]
    fn the_window_of_brotli_covers_the_text() {
        for (size, log) in [
            (0, 18),
            ((1 << 18) - 16, 18),
            ((1 << 18) - 15, 19),
            (3 << 20, 22),
            (64 << 20, 22),
        ] {
            assert_eq!(brotli_window_log(size), log, "{size}");
        }
    }
}
