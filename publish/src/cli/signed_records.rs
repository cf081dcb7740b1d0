//! Records of a site that a key trusts before it signs. The owner of a store can invent records, labels and sequences,
//! but no signature of the key.

use super::site_of_store::find_release;
use crate::key::PublisherKey;
use crate::problem::Problem;
use base::digest::{from_hex, hex};
use release::acknowledgment::ServerReport;
use release::store::{Publication, SiteRecords};

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
    if sequence <= last.saturating_add(SEQUENCE_JUMP_MAX) {
        Ok(())
    } else {
        Err(Problem::failure(format!(
            "the next sequence would be {sequence}, and the key signed {last} last"
        ))
        .help(
            "the store has a wrong record: look at `anthill releases`, and remove the file of the record in `pointers`",
        ))
    }
}

/// Returns the sequence after all sequences of the records.
pub(super) fn next_sequence(records: &SiteRecords) -> Result<u64, Problem> {
    let last = records.publications.keys().next_back().copied();
    let next = last.unwrap_or(0).checked_add(1);
    next.ok_or_else(|| Problem::failure("the sequence of the site has no next number"))
}

/// Returns the publication that a rollback replaces: the one that the server serves, or the one of the pointer if no server
/// has acknowledged any. The pointer perhaps names a publication that the server refuses.
pub(super) fn current<'r>(
    records: &'r SiteRecords,
    report: &ServerReport,
) -> Option<&'r Publication> {
    let acknowledged = report.acknowledged;
    let served = acknowledged.and_then(|sequence| records.publications.get(&sequence));
    served.or_else(|| records.served())
}

/// Returns the newest publication before `current` of another release that may be served. With a key, the key signed it.
pub(super) fn previous<'r>(
    key: Option<&PublisherKey>,
    records: &'r SiteRecords,
    current: &Publication,
) -> Option<&'r Publication> {
    let mut older = records.publications.values().rev();
    older.find(|older| {
        older.pointer.sequence < current.pointer.sequence
            && older.pointer.release != current.pointer.release
            && !records.withdrawn.contains(&older.pointer.release)
            && key.is_none_or(|key| key.has_signed(older))
    })
}

/// Finds a release for a rollback, with advice about the arguments.
pub(super) fn find_named(records: &SiteRecords, name: &str) -> Result<[u8; 32], Problem> {
    find_release(records, name).map_err(|problem| {
        problem.help(
            "a rollback takes one host or store, and then a label or at least 4 digits of an id; `anthill releases` \
             lists them",
        )
    })
}

/// Finds a release for a signature: by all digits of the id, or as [`find_named`] if the key signed an earlier
/// publication of the release.
pub(super) fn find_signed(
    key: &PublisherKey,
    records: &SiteRecords,
    name: &str,
) -> Result<[u8; 32], Problem> {
    if let Some(release) = from_hex(name.as_bytes()) {
        return Ok(release);
    }
    let release = find_named(records, name)?;
    let mut publications = records.publications.values();
    if publications.any(|it| it.pointer.release == release && key.has_signed(it)) {
        Ok(release)
    } else {
        Err(Problem::usage(format!(
            "the key signed no publication of the release that the store names `{name}`"
        ))
        .help(format!(
            "write all 64 digits: {}; compare them first with the id that you published or looked at",
            hex(&release)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::super::site_of_store::refuse_foreign_label;
    use super::*;
    use release::release_pointer::ReleasePointer;

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
        let before = |key| {
            let current = current(&records, &ServerReport::default())?;
            Some(previous(key, &records, current)?.pointer.sequence)
        };
        assert_eq!((before(Some(&key)), before(None)), (Some(1), Some(3)));
        records.labels.insert("good".to_owned(), [1; 32]);
        records.labels.insert("evil".to_owned(), [0xee; 32]);
        assert!(matches!(find_signed(&key, &records, "good"), Ok(it) if it == [1; 32]));
        let error = find_signed(&key, &records, "evil").expect_err("an unsigned release");
        let help = format!("\nhelp: write all 64 digits: {};", "ee".repeat(32));
        assert!(error.to_string().contains(&help), "{error}");
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
