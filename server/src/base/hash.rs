//! A quick hash with a secret seed, for the small tables that a worker looks into at each request:
//! SipHash, the standard library's, costs more than all else that is done there.
//!
//! It is no match for somebody who learns its values, and nobody is shown them. Use it where the
//! number of keys is bounded, so that the worst that could come of it is bounded too.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashes; each of them another seed.
#[derive(Copy, Clone)]
pub struct FastBuildHasher {
    seed: u64,
}

/// One hash being made.
pub struct FastHasher(u64);

impl Default for FastBuildHasher {
    fn default() -> FastBuildHasher {
        // Its keys are the process's randomness, and no two are the same.
        let seed = RandomState::new().build_hasher().finish();
        FastBuildHasher { seed }
    }
}

impl FastBuildHasher {
    /// The hash of these bytes.
    #[inline]
    pub fn of(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write_usize(bytes.len());
        hasher.write(bytes);
        hasher.finish()
    }
}

impl BuildHasher for FastBuildHasher {
    type Hasher = FastHasher;

    #[inline]
    fn build_hasher(&self) -> FastHasher {
        FastHasher(self.seed)
    }
}

impl Hasher for FastHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.0 = folded(self.0 ^ u64::from_le_bytes(*word), MIX);
        }
        if !rest.is_empty() {
            let last = rest
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.0 = folded(self.0 ^ last, MIX);
        }
    }

    /// The length that slices and strings say of themselves before their bytes.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.0 = self.0.wrapping_add(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        folded(self.0, LAST)
    }
}

/// Both halves of a product, so that each bit of either factor reaches every bit of the hash.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

// Odd, with about as many ones as zeros: the digits of pi.
const MIX: u64 = 0x243f_6a88_85a3_08d3;
const LAST: u64 = 0x1319_8a2e_0370_7345;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_seed_its_own() {
        assert_ne!(
            FastBuildHasher::default().of(b"/"),
            FastBuildHasher::default().of(b"/")
        );
    }

    #[test]
    fn as_a_map_asks_for_it() {
        let quick = FastBuildHasher::default();
        for text in ["", "/", "/index.html", "/a/rather/long/path.html"] {
            assert_eq!(quick.of(text.as_bytes()), quick.hash_one(text.as_bytes()));
        }
    }

    /// Paths as sites have them, of every length, fall into all places evenly, by the low bits and
    /// by the high ones.
    #[test]
    fn names_that_differ_by_little_are_spread() {
        let quick = FastBuildHasher::default();
        let names = (0..20_000).map(|nth| format!("/{}/page-{nth}.html", "x".repeat(nth % 19)));
        let hashes: Vec<u64> = names.map(|name| quick.of(name.as_bytes())).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len());
        for shift in [0, 28, 56] {
            let mut places = [0u32; 256];
            for hash in &hashes {
                places[(hash >> shift) as usize % 256] += 1;
            }
            // 78 in each on average; nine times the standard deviation would be 80 more.
            assert!(
                places.iter().all(|count| (1..160).contains(count)),
                "{places:?}"
            );
        }
    }
}
