//! Fast hash with a secret seed, for small tables that a worker reads for each request. SipHash, the hash
//! of the standard library, costs more than the remaining work of the lookup.
//!
//! The hash gives no protection against an attacker that knows hash values, so hash values must not leave
//! the process. Only tables with a bounded number of keys may use the hash: the bound limits the cost of
//! collisions.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Builder of hashers. Each builder made by `default` has a random seed of its own.
#[derive(Copy, Clone)]
pub struct FastBuildHasher {
    seed: u64,
}

/// State of one hash computation.
pub struct FastHasher(u64);

impl Default for FastBuildHasher {
    fn default() -> FastBuildHasher {
        // `RandomState` takes its keys from the randomness of the process, and each instance has different
        // keys.
        let seed = RandomState::new().build_hasher().finish();
        FastBuildHasher { seed }
    }
}

impl FastBuildHasher {
    /// Returns the hash of `bytes`, equal to the hash of a slice in a map.
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

    /// Adds the length, which the `Hash` implementations of slices and strings write before their bytes.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.0 = self.0.wrapping_add(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        folded(self.0, LAST)
    }
}

/// Combines both halves of a product, so that each bit of either factor reaches every bit of the hash.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

// Odd constants with about as many ones as zeros: digits of pi.
const MIX: u64 = 0x243f_6a88_85a3_08d3;
const LAST: u64 = 0x1319_8a2e_0370_7345;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_builder_has_its_own_seed() {
        assert_ne!(
            FastBuildHasher::default().of(b"/"),
            FastBuildHasher::default().of(b"/")
        );
    }

    #[test]
    fn the_hash_of_bytes_equals_the_hash_in_a_map() {
        let quick = FastBuildHasher::default();
        for text in ["", "/", "/index.html", "/a/rather/long/path.html"] {
            assert_eq!(quick.of(text.as_bytes()), quick.hash_one(text.as_bytes()));
        }
    }

    /// Paths of every length, as sites have them, are spread evenly over the slots of a table, by the low
    /// bits and by the high bits of the hash.
    #[test]
    fn similar_names_are_spread_evenly() {
        let quick = FastBuildHasher::default();
        let names = (0..20_000).map(|nth| format!("/{}/page-{nth}.html", "x".repeat(nth % 19)));
        let hashes: Vec<u64> = names.map(|name| quick.of(name.as_bytes())).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len());
        for shift in [0, 28, 56] {
            let mut places = [0u32; 256];
            for hash in &hashes {
                places[(hash >> shift) as usize % 256] += 1;
            }
            // Each slot has 78 on average. Nine times the standard deviation would be 80 more.
            assert!(
                places.iter().all(|count| (1..160).contains(count)),
                "{places:?}"
            );
        }
    }
}
