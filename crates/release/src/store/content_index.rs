//! Numbers of contents by their digests.

use crate::manifest::BlobRef;

/// Index of a list of contents by their digests, with the first number of each digest.
///
/// The index holds numbers alone, 8 to 16 bytes for each content: a hash table with digests takes 40 to 80 bytes, and a
/// release may have 1,000,000 contents.
pub struct ContentIndex {
    /// Numbers plus 1, each at the slot of its digest or behind. 0 is an empty slot, and at least half of the slots are
    /// empty.
    slots: Vec<u32>,
}

impl ContentIndex {
    /// Returns the index of a list.
    pub fn new(contents: &[BlobRef]) -> ContentIndex {
        let slots = (contents.len() * 2).next_power_of_two();
        let mut index = ContentIndex {
            slots: vec![0; slots],
        };
        for (number, content) in (1..).zip(contents) {
            let slot = index.slot(contents, &content.digest);
            if index.slots[slot] == 0 {
                index.slots[slot] = number;
            }
        }
        index
    }

    /// Returns the first number of a digest in the list of the index.
    pub fn number(&self, contents: &[BlobRef], digest: &[u8; 32]) -> Option<u32> {
        self.slots[self.slot(contents, digest)].checked_sub(1)
    }

    /// Returns true if no content before the content with a number has its digest.
    pub fn is_first(&self, contents: &[BlobRef], number: u32) -> bool {
        let digest = &contents[number as usize].digest;
        self.number(contents, digest) == Some(number)
    }

    /// Returns the slot of a digest, or the empty slot where the digest belongs.
    fn slot(&self, contents: &[BlobRef], digest: &[u8; 32]) -> usize {
        let [a, b, c, d, ..] = *digest;
        let mut slot = u32::from_le_bytes([a, b, c, d]) as usize;
        loop {
            slot &= self.slots.len() - 1;
            match self.slots[slot].checked_sub(1) {
                Some(number) if contents[number as usize].digest != *digest => slot += 1,
                _ => return slot,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_each_digest_is_found() {
        // Digests with few first bytes collide, and each third content is equal to an earlier one.
        let contents: Vec<_> = (0..1_000_u32)
            .map(|number| {
                let mut digest = [0; 32];
                digest[0] = (number % 7) as u8;
                digest[28..].copy_from_slice(&(number - number % 3).to_be_bytes());
                BlobRef { size: 1, digest }
            })
            .collect();
        let index = ContentIndex::new(&contents);
        for (number, content) in (0..).zip(&contents) {
            let first = contents.iter().position(|it| it.digest == content.digest);
            let found = index.number(&contents, &content.digest);
            assert_eq!(found.map(|it| it as usize), first);
            assert_eq!(
                index.is_first(&contents, number),
                first == Some(number as usize)
            );
        }
        assert_eq!(index.number(&contents, &[0xff; 32]), None);
        assert_eq!(ContentIndex::new(&[]).number(&[], &[0; 32]), None);
    }
}
