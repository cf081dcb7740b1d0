//! Records of a site that a key trusts before it signs. The owner of a store can invent records, labels and sequences,
//! but no signature of the key.

use super::site_of_store::find_release;
use crate::key::PublisherKey;
use crate::problem::Problem;
use anthill_data_plane::base::digest::from_hex;
use anthill_data_plane::store::{Publication, SiteRecords};

/// Largest distance of a signed sequence from the last one that the key signed, 1,000,000. After the signature of the
/// highest sequence of all, a server with `publishers` would accept no further publication.
const SEQUENCE_JUMP_MAX: u64 = 1_000_000;

/// Refuses a sequence far beyond the sequences that the key signed.
pub(super) fn check_sequence(
    key: Option<&PublisherKey>,
    records: &SiteRecords,
    sequence: u64,
) -> Result<(), Problem> {
    let Some(key) = key else {
        return Ok(());
    };
    let mut newest = records.publications.values().rev();
    let last = newest.find(|it| key.has_signed(it));
    let last = last.map_or(0, |it| it.pointer.sequence);
    match sequence <= last.saturating_add(SEQUENCE_JUMP_MAX) {
        true => Ok(()),
        false => Err(Problem::failure(format!(
            "the next sequence would be {sequence}, and the key signed {last} last"
        ))
        .help(
            "the store has a wrong record: look at `anthill releases`, and remove the file of the record in `pointers`",
        )),
    }
}

/// Returns the sequence after all sequences of the records.
pub(super) fn next_sequence(records: &SiteRecords) -> Result<u64, Problem> {
    let last = records.publications.keys().next_back().copied();
    let next = last.unwrap_or(0).checked_add(1);
    next.ok_or_else(|| Problem::failure("the sequence of the site has no next number"))
}

/// Returns the newest publication before the served one that the key signed, of another release that may be served.
pub(super) fn signed_before<'r>(
    key: &PublisherKey,
    records: &'r SiteRecords,
) -> Option<&'r Publication> {
    let served = records.served()?;
    let mut older = records.publications.values().rev();
    older.find(|older| {
        older.pointer.sequence < served.pointer.sequence
            && older.pointer.release != served.pointer.release
            && !records.withdrawn.contains(&older.pointer.release)
            && key.has_signed(older)
    })
}

/// Finds a release for a signature: by all digits of the id, or as [`find_release`] if the key signed a publication of
/// the release before.
pub(super) fn find_signed(
    key: &PublisherKey,
    records: &SiteRecords,
    name: &str,
) -> Result<[u8; 32], Problem> {
    if let Some(release) = from_hex(name.as_bytes()) {
        return Ok(release);
    }
    let release = find_release(records, name)?;
    let mut publications = records.publications.values();
    match publications.any(|it| it.pointer.release == release && key.has_signed(it)) {
        true => Ok(release),
        false => Err(Problem::usage(format!(
            "the key signed no publication of the release that the store names `{name}`"
        ))
        .help("write all 64 digits of the id, from a source that you trust")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::site_of_store::refuse_foreign_label;
    use super::*;
    use anthill_data_plane::wire::release_pointer::ReleasePointer;

    fn publication(sequence: u64, key: Option<&PublisherKey>) -> Publication {
        let pointer = ReleasePointer {
            site: "www".to_owned(),
            site_id: None,
            release: [sequence as u8; 32],
            sequence,
            time: 1,
            publisher: "ann@laptop".to_owned(),
        };
        let text = match key {
            Some(key) => key.sign(&pointer),
            None => pointer.text(),
        };
        let (pointer, signature) = ReleasePointer::parse(text.as_bytes()).expect("a pointer");
        Publication {
            pointer,
            key: signature.map(|it| it.key),
            signature: signature.map(|it| it.signature),
        }
    }

    #[test]
    fn a_key_signs_nothing_that_the_store_invents() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = PublisherKey::make(&folder.path().join("key.pem"), None).expect("a key");
        let mut records = SiteRecords {
            served: Some(4),
            ..SiteRecords::default()
        };
        let mut forged = publication(3, Some(&key));
        forged.pointer.release = [0xee; 32];
        let signed = [publication(1, Some(&key)), publication(4, Some(&key))];
        for publication in [publication(2, None), forged].into_iter().chain(signed) {
            let sequence = publication.pointer.sequence;
            records.publications.insert(sequence, publication);
        }
        // The next older records are unsigned, and have the signature of another pointer.
        let before = signed_before(&key, &records).map(|it| it.pointer.sequence);
        assert_eq!(before, Some(1));
        records.labels.insert("good".to_owned(), [1; 32]);
        records.labels.insert("evil".to_owned(), [0xee; 32]);
        assert!(matches!(find_signed(&key, &records, "good"), Ok(it) if it == [1; 32]));
        assert!(find_signed(&key, &records, "evil").is_err());
        assert!(find_signed(&key, &records, "eeee").is_err());
        let whole = "ee".repeat(32);
        assert!(matches!(find_signed(&key, &records, &whole), Ok(it) if it == [0xee; 32]));
        // A label in place of an id is refused.
        records.labels.insert("0101".to_owned(), [0xee; 32]);
        assert!(find_release(&records, "0101").is_err());
        records
            .label_owners
            .insert("good".to_owned(), "ann".to_owned());
        assert!(matches!(find_release(&records, "ann/good"), Ok(it) if it == [1; 32]));
        assert!(
            find_release(&records, "bob/good").is_err()
                && find_release(&records, "ann/evil").is_err()
        );
        // The owner may move the label after the user has looked at the release.
        let foreign = |name, own| refuse_foreign_label(&records, name, own).is_err();
        assert!(foreign("good", None) && foreign("good", Some("bob")));
        assert!(!foreign("good", Some("ann")) && !foreign("evil", None));
        assert!(!foreign("ann/good", None) && !foreign("0101", None));
        assert!(check_sequence(Some(&key), &records, 5).is_ok());
        assert!(check_sequence(Some(&key), &records, 1_000_005).is_err());
        assert!(check_sequence(None, &records, 1_000_005).is_ok());
        assert!(matches!(next_sequence(&records), Ok(5)));
        let last = publication(u64::MAX, None);
        records.publications.insert(u64::MAX, last);
        assert!(next_sequence(&records).is_err());
    }
}
