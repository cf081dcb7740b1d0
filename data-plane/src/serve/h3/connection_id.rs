//! Connection ids of the server, which name the process that chose them: the first byte is the *generation*
//! of the process. While a new program takes over, processes of several generations have connections over
//! one UDP socket, and the process that reads the socket tells by the id which process a packet is for.
//!
//! Ids have 7 bytes. A client chooses at least 8 bytes for the id in its first packets (RFC 9000 §7.2), so
//! an id of 7 bytes in a long header was chosen by a server, and a random id of a client is never mistaken for
//! the id of another generation.

use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Generator of connection ids: a byte with the generation, 3 unpredictable bytes, and 3 bytes that only the
/// generator can derive from the first 4. A packet with a foreign id gets no stateless reset.
pub(super) struct GenerationIds {
    generation: u8,
    secret: RandomState,
    made: u64,
}

/// Length of the server's connection ids.
const ID_BYTES: usize = 7;
/// Unpredictable bytes of an id, enough for 16 million ids.
const NONCE_BYTES: usize = 3;
/// Length of the id in a Retry packet. The next packets of the client carry the id together with a token
/// that every generation accepts. An id of another length than [`ID_BYTES`] has the packets stay with
/// the process that reads the socket, even if that process began to read after the Retry packet.
const RETRY_ID_BYTES: usize = 8;

thread_local! {
    static IS_FOR_RETRY: Cell<bool> = const { Cell::new(false) };
}

/// Calls `send`, which sends a Retry packet, and has the id for the packet made without a generation.
pub(super) fn for_retry<T>(send: impl FnOnce() -> T) -> T {
    IS_FOR_RETRY.set(true);
    let sent = send();
    IS_FOR_RETRY.set(false);
    sent
}

/// Returns the generation in the connection id of a datagram; None if no server can have chosen the id, or if
/// the datagram is too short. All packets of a datagram have one id (RFC 9000 §12.2). The positions are those
/// of every version of QUIC (RFC 8999 §5).
pub(super) fn generation_of(datagram: &[u8]) -> Option<u8> {
    let id = if datagram.first()? & LONG_HEADER == 0 {
        datagram.get(1..=ID_BYTES)?
    } else {
        // The version takes 4 bytes, the length of the id 1.
        let length = usize::from(*datagram.get(5)?);
        if length != ID_BYTES {
            return None;
        }
        datagram.get(6..6 + ID_BYTES)?
    };
    id.first().copied()
}

/// Bit of the first byte that tells long headers from short headers.
const LONG_HEADER: u8 = 0x80;

/// Draws a random generation.
pub(super) fn random_generation() -> u8 {
    RandomState::new().hash_one(0_u8) as u8
}

impl GenerationIds {
    /// Creates a generator with a secret of its own.
    pub(super) fn new(generation: u8) -> GenerationIds {
        GenerationIds {
            generation,
            secret: RandomState::new(),
            made: 0,
        }
    }

    fn check(&self, id: &[u8]) -> [u8; ID_BYTES - 1 - NONCE_BYTES] {
        let hash = self.secret.hash_one((true, id)).to_le_bytes();
        std::array::from_fn(|at| hash[at])
    }
}

impl ConnectionIdGenerator for GenerationIds {
    fn generate_cid(&mut self) -> ConnectionId {
        self.made += 1;
        // SipHash with a secret key: the hashes of a counter are unpredictable.
        let random = self.secret.hash_one((false, self.made)).to_le_bytes();
        if IS_FOR_RETRY.get() {
            return ConnectionId::new(&random[..RETRY_ID_BYTES]);
        }
        let mut id = [0; ID_BYTES];
        id[0] = self.generation;
        id[1..=NONCE_BYTES].copy_from_slice(&random[..NONCE_BYTES]);
        let check = self.check(&id[..=NONCE_BYTES]);
        id[1 + NONCE_BYTES..].copy_from_slice(&check);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        match id.split_at_checked(1 + NONCE_BYTES) {
            Some((id, check)) if check == self.check(id) => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{GenerationIds, ID_BYTES, for_retry, generation_of};
    use proptest::collection::vec;
    use proptest::prelude::any;
    use quinn::ConnectionIdGenerator;
    use std::collections::HashSet;

    fn long(first: u8, version: u32, id: &[u8]) -> Vec<u8> {
        let mut packet = vec![first];
        packet.extend(version.to_be_bytes());
        packet.push(id.len() as u8);
        packet.extend(id);
        packet.extend([0; 30]);
        packet
    }

    fn short(first: u8, id: &[u8]) -> Vec<u8> {
        [&[first], id, &[0; 30]].concat()
    }

    #[test]
    fn ids_name_their_generation_and_are_recognized_by_their_generator_alone() {
        let mut ids = GenerationIds::new(0xa7);
        let other = GenerationIds::new(0xa7);
        let mut seen = HashSet::new();
        for _ in 0..1_000 {
            let id = ids.generate_cid();
            assert_eq!((id.len(), id[0]), (ids.cid_len(), 0xa7));
            assert!(ids.validate(&id).is_ok());
            assert!(other.validate(&id).is_err());
            assert!(seen.insert(id));
            let changed: Vec<u8> = id.iter().map(|byte| byte ^ 1).collect();
            assert!(ids.validate(&quinn::ConnectionId::new(&changed)).is_err());
            assert_eq!(generation_of(&short(0x40, &id)), Some(0xa7));
            for first in [0xc0, 0xd0, 0xe0, 0xf0] {
                assert_eq!(generation_of(&long(first, 1, &id)), Some(0xa7));
            }
        }
    }

    #[test]
    fn ids_of_clients_and_of_retry_packets_have_no_generation() {
        let mut ids = GenerationIds::new(5);
        let retry = for_retry(|| ids.generate_cid());
        assert_eq!(generation_of(&long(0xc0, 1, &retry)), None);
        assert!(ids.validate(&retry).is_err());
        assert_eq!(ids.generate_cid().len(), ID_BYTES);
        for length in (0..ID_BYTES).chain(ID_BYTES + 1..=20) {
            let id = vec![5; length];
            for version in [0, 1, 0x6b33_43cf, 0x0a0a_0a0a] {
                assert_eq!(generation_of(&long(0xc0, version, &id)), None);
            }
        }
    }

    #[test]
    fn short_datagrams_have_no_generation() {
        let whole = [long(0xc0, 1, &[9; ID_BYTES]), short(0x40, &[9; ID_BYTES])];
        for (whole, least) in whole.iter().zip([6 + ID_BYTES, 1 + ID_BYTES]) {
            for length in 0..whole.len() {
                let expected = (length >= least).then_some(9);
                assert_eq!(generation_of(&whole[..length]), expected);
            }
        }
    }

    proptest::proptest! {
        /// Any bytes are classified without a panic, and exactly by the bytes at the fixed positions.
        #[test]
        fn nonsense_is_classified_by_its_fixed_positions(datagram in vec(any::<u8>(), 0..64)) {
            let generation = generation_of(&datagram);
            let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
            let expected = if is_long {
                let is_ours = datagram.len() > 12 && datagram[5] == 7;
                is_ours.then(|| datagram[6])
            } else {
                (datagram.len() > 7).then(|| datagram[1])
            };
            proptest::prop_assert_eq!(generation, expected);
        }
    }
}
