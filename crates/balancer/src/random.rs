//! Random numbers and hashes of the balancing methods. Neither is secret.

use base::client_network::ClientNetwork;

/// Generator of random numbers (SplitMix64) with a seed from the caller.
pub(crate) struct RandomSource(u64);

impl RandomSource {
    /// Creates a generator. Equal seeds give equal sequences.
    pub(crate) fn new(seed: u64) -> RandomSource {
        RandomSource(seed)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_RATIO);
        mix(self.0)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        scale(self.next(), bound)
    }
}

/// Maps a uniform number to a number below `bound`.
pub(crate) fn scale(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

/// Mixes the bits of a number (the finalizer of SplitMix64): equal numbers give equal results in every
/// process.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Combines two hashes.
pub(crate) fn combine(first: u64, second: u64) -> u64 {
    mix(first ^ mix(second.wrapping_add(GOLDEN_RATIO)))
}

/// Returns the hash of bytes (FNV-1a, then mixed), equal in every process.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv)
}

/// Returns the hash of a client for [`ChooseRequest::client_hash`], equal in every process. All addresses
/// of an IPv6 /64 network have one hash, since a host changes its address within the network.
///
/// [`ChooseRequest::client_hash`]: crate::ChooseRequest::client_hash
pub fn client_hash(client: ClientNetwork) -> u64 {
    let bytes = client.octets();
    let (words, _) = bytes.as_chunks::<8>();
    words
        .iter()
        .fold(0, |hash, word| combine(u64::from_be_bytes(*word), hash))
}

/// 2⁶⁴ divided by the golden ratio, the step of SplitMix64.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn numbers_below_a_bound_are_spread_evenly() {
        let mut random = RandomSource::new(7);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn hashes_of_neighbouring_clients_are_spread_evenly() {
        let mut counts = [0; 16];
        for last in 0..4_096_u32 {
            let client = IpAddr::from((0x0a00_0000 + last).to_be_bytes());
            counts[(client_hash(client.into()) % 16) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (190..330).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_hash_is_equal_in_every_process() {
        let client: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(client_hash(client.into()), 15_432_117_500_950_083_258);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(client_hash(client.into()), client_hash(mapped.into()));
        assert_eq!(
            hash_bytes(b"http://127.0.0.1:9000"),
            11_942_932_237_234_893_231
        );
    }
}
