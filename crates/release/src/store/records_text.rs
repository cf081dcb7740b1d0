//! Text of the records of a site, for a publisher on another machine. A line has a keyword and words divided by one
//! space: `served SEQUENCE`, `publication SEQUENCE RELEASE TIME PUBLISHER [KEY SIGNATURE [SITE_ID]]`,
//! `label NAME RELEASE [OWNER]`, `pin RELEASE` and `withdrawn RELEASE`.
//!
//! A publisher of an earlier version refuses a line with `SITE_ID` or `OWNER`, so a receiver leaves both out for a publisher
//! that does not ask for them ([`RecordsVersion`]).

use super::ReleaseLabel;
use super::history::{Publication, SiteRecords};
use crate::release_pointer::{ReleasePointer, is_label, is_publisher, is_site_id};
use base::digest::{from_hex, hex};

/// Version of the text of records.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecordsVersion {
    /// Without owners of labels and without identities of sites, for publishers of earlier versions.
    First,
    /// With owners of labels and identities of sites.
    WithOwners,
}

impl SiteRecords {
    /// Returns the records as text.
    pub fn text(&self, version: RecordsVersion) -> String {
        let has_owners = version == RecordsVersion::WithOwners;
        let mut text = String::new();
        let mut line = |words: &[&str]| {
            text.push_str(&words.join(" "));
            text.push('\n');
        };
        if let Some(served) = self.served {
            line(&["served", &served.to_string()]);
        }
        for (sequence, publication) in &self.publications {
            let pointer = &publication.pointer;
            let (sequence, time) = (sequence.to_string(), pointer.time.to_string());
            let (release, key) = (hex(&pointer.release), publication.key.map(|key| hex(&key)));
            let words = [
                "publication",
                &sequence,
                &release,
                &time,
                &pointer.publisher,
            ];
            match (&key, publication.signature.map(|it| hex(&it))) {
                (Some(key), Some(signature)) => {
                    let id = pointer.site_id.as_deref().filter(|_| has_owners);
                    let words = words.into_iter().chain([key.as_str(), &signature]);
                    line(&words.chain(id).collect::<Vec<_>>());
                }
                _ => line(&words),
            }
        }
        for (label, release) in &self.labels {
            let owner = self.label_owners.get(label).filter(|_| has_owners);
            let release = hex(release);
            let words = ["label", label.as_str(), release.as_str()].into_iter();
            line(&words.chain(owner.map(String::as_str)).collect::<Vec<_>>());
        }
        for (keyword, releases) in [("pin", &self.pins), ("withdrawn", &self.withdrawn)] {
            for release in releases {
                line(&[keyword, &hex(release)]);
            }
        }
        text
    }

    /// Reads the text of the records of `site`; None for another text.
    pub fn parse(site: &str, text: &str) -> Option<SiteRecords> {
        let mut records = SiteRecords::default();
        let release = |word: &str| from_hex(word.as_bytes());
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["served", sequence] => records.served = Some(sequence.parse().ok()?),
                [
                    "publication",
                    sequence,
                    digest,
                    time,
                    publisher,
                    ref key @ ..,
                ] => {
                    let site_id = match key {
                        [_, _, id] => Some(Some(*id).filter(|id| is_site_id(id))?.to_owned()),
                        _ => None,
                    };
                    let pointer = ReleasePointer {
                        site: site.to_owned(),
                        site_id,
                        release: release(digest)?,
                        sequence: sequence.parse().ok()?,
                        time: time.parse().ok()?,
                        publisher: Some(publisher).filter(|it| is_publisher(it))?.to_owned(),
                    };
                    let (key, signature) = match key {
                        [] => (None, None),
                        [key, signature] | [key, signature, _] => {
                            (Some(release(key)?), Some(from_hex(signature.as_bytes())?))
                        }
                        _ => return None,
                    };
                    let sequence = pointer.sequence;
                    let publication = Publication {
                        pointer,
                        key,
                        signature,
                    };
                    records.publications.insert(sequence, publication);
                }
                ["label", name, digest, ref owner @ ..] if is_label(name) => {
                    let owner = match owner {
                        [] => None,
                        [owner] => Some(Some(*owner).filter(|it| is_publisher(it))?.to_owned()),
                        _ => return None,
                    };
                    let release = release(digest)?;
                    records.set_label(name.to_owned(), ReleaseLabel { release, owner });
                }
                ["pin", digest] => records.pins.push(release(digest)?),
                ["withdrawn", digest] => records.withdrawn.push(release(digest)?),
                _ => return None,
            }
        }
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written() {
        let mut records = SiteRecords {
            served: Some(2),
            ..SiteRecords::default()
        };
        let id = || Some("9f0c5ad24e8b41d7a3c6".to_owned());
        for (sequence, key, site_id) in [
            (1, None, None),
            (2, Some([7; 32]), None),
            (3, Some([7; 32]), id()),
        ] {
            let pointer = ReleasePointer {
                site: "www".to_owned(),
                site_id,
                release: [sequence as u8; 32],
                sequence,
                time: 1_763_899_200,
                publisher: "ann@laptop".to_owned(),
            };
            let publication = Publication {
                pointer,
                key,
                signature: key.map(|_| [9; 64]),
            };
            records.publications.insert(sequence, publication);
        }
        records.labels.insert("next".to_owned(), [3; 32]);
        records.labels.insert("review".to_owned(), [3; 32]);
        let owner = "ann@laptop".to_owned();
        records.label_owners.insert("review".to_owned(), owner);
        records.pins.push([4; 32]);
        records.withdrawn.push([5; 32]);
        let text = records.text(RecordsVersion::WithOwners);
        assert_eq!(SiteRecords::parse("www", &text), Some(records.clone()));
        // A publisher of an earlier version reads the text without the new words.
        let first = records.text(RecordsVersion::First);
        assert!(!first.contains("9f0c5ad2") && first.contains("\nlabel review 0303"));
        records.label_owners.clear();
        for publication in records.publications.values_mut() {
            publication.pointer.site_id = None;
        }
        assert_eq!(SiteRecords::parse("www", &first), Some(records));
        for (part, other) in [
            ("served 2", "served two"),
            ("served 2", "serving 2"),
            ("label next", "label ../next"),
            ("9f0c5ad2", "9f0c/ad2"),
            ("ann@laptop\npin", "ann laptop\npin"),
            ("ann@laptop", "ann laptop x y"),
            ("pin 04", "pin 4"),
        ] {
            let text = text.replacen(part, other, 1);
            assert_eq!(SiteRecords::parse("www", &text), None, "{other}");
        }
    }
}
