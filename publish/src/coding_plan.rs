//! Plan of the codings: the texts that get the best levels, and the estimated time of all codings.
//!
//! A first publication of many files must not take minutes, and a changed page deserves the best levels. The plan counts
//! estimated time and never measured time: the id of a release covers the coded bytes, so the same texts have the same
//! plan on each machine. The estimates also weigh the progress of the codings.

use crate::coding::{CODINGS, Effort};
use release::manifest::BlobRef;
use wire::content_coding::ContentCoding;

/// Estimated time for the best levels of one publication, 5 s of one processor core of the measurements below.
const BEST_NANOSECONDS_MAX: u64 = 5_000_000_000;

/// Estimated time of a coding of `size` bytes in nanoseconds, measured with the pages of the manual of Python on one core of
/// a server (AMD EPYC). A text also has a fixed time, since Brotli prepares its tables.
pub(crate) fn estimated_nanoseconds(coding: ContentCoding, effort: Effort, size: u64) -> u64 {
    let (fixed, each) = match (coding, effort) {
        (ContentCoding::Identity, _) => (0, 0),
        (ContentCoding::Gzip, _) => (20_000, 15),
        (ContentCoding::Br, Effort::Quick) => (1_000_000, 200),
        (ContentCoding::Br, Effort::Best) => (2_000_000, 1_200),
        (ContentCoding::Zstd, Effort::Quick) => (100_000, 80),
        (ContentCoding::Zstd, Effort::Best) => (300_000, 500),
    };
    size.saturating_mul(each).saturating_add(fixed)
}

/// Chooses the effort for each text. The shortest texts get the best levels as long as their estimated times fit into the
/// budget, since most requests are for short texts.
pub(crate) fn efforts(texts: &[BlobRef]) -> Vec<Effort> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|number| (texts[*number].size, texts[*number].digest));
    let mut efforts = vec![Effort::Quick; texts.len()];
    let mut left = BEST_NANOSECONDS_MAX;
    for number in order {
        let size = texts[number].size;
        let times = CODINGS.map(|coding| estimated_nanoseconds(coding, Effort::Best, size));
        match left.checked_sub(times.iter().sum()) {
            Some(rest) => left = rest,
            None => break,
        }
        efforts[number] = Effort::Best;
    }
    efforts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(size: u64, digest: u8) -> BlobRef {
        BlobRef {
            size,
            digest: [digest; 32],
        }
    }

    fn best_nanoseconds(size: u64) -> u64 {
        let times = CODINGS.map(|coding| estimated_nanoseconds(coding, Effort::Best, size));
        times.iter().sum()
    }

    #[test]
    fn changed_pages_get_the_best_levels() {
        let changed = [text(60_000, 1), text(300, 2), text(200_000, 3)];
        assert_eq!(efforts(&changed), [Effort::Best; 3]);
        assert_eq!(efforts(&[]), []);
    }

    #[test]
    fn many_files_get_the_best_levels_within_the_budget_alone() {
        let texts: Vec<BlobRef> = (0..1_000).map(|nth| text(60_000 + nth % 7, 1)).collect();
        let efforts = efforts(&texts);
        let best = texts.iter().zip(&efforts);
        let best = best.filter(|(_, effort)| **effort == Effort::Best);
        let used: u64 = best.map(|(text, _)| best_nanoseconds(text.size)).sum();
        assert!(used <= BEST_NANOSECONDS_MAX, "{used}");
        assert!(used + best_nanoseconds(60_006) > BEST_NANOSECONDS_MAX);
    }

    #[test]
    fn a_long_text_leaves_the_best_levels_to_the_short_ones() {
        let texts = [text(5_000_000, 1), text(40_000, 2), text(50_000, 3)];
        let expected = [Effort::Quick, Effort::Best, Effort::Best];
        assert_eq!(efforts(&texts), expected);
    }

    #[test]
    fn the_order_of_the_texts_does_not_matter() {
        let mut texts: Vec<BlobRef> = (0..200).map(|nth| text(70_000, nth)).collect();
        let best = |texts: &[BlobRef]| {
            let chosen = texts.iter().zip(efforts(texts));
            let chosen = chosen.filter(|(_, effort)| *effort == Effort::Best);
            let mut chosen: Vec<u8> = chosen.map(|(text, _)| text.digest[0]).collect();
            chosen.sort_unstable();
            chosen
        };
        let first = best(&texts);
        assert!(!first.is_empty() && first.len() < texts.len());
        texts.reverse();
        assert_eq!(best(&texts), first);
    }
}
