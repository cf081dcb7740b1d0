//! Text of the records of a site, for a publisher on another machine. A line has a keyword and words divided by one
//! space: `served SEQUENCE`, `publication SEQUENCE RELEASE TIME PUBLISHER [KEY SIGNATURE]`, `label NAME RELEASE`,
//! `pin RELEASE` and `withdrawn RELEASE`.

use super::history::{Publication, SiteRecords};
use crate::base::digest::{from_hex, hex};
use crate::wire::release_pointer::{ReleasePointer, is_label, is_publisher};

impl SiteRecords {
    /// Returns the records as text.
    pub fn text(&self) -> String {
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
                (Some(key), Some(signature)) => line(&[&words[..], &[key, &signature]].concat()),
                _ => line(&words),
            }
        }
        for (label, release) in &self.labels {
            line(&["label", label, &hex(release)]);
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
                    let pointer = ReleasePointer {
                        site: site.to_owned(),
                        release: release(digest)?,
                        sequence: sequence.parse().ok()?,
                        time: time.parse().ok()?,
                        publisher: Some(publisher).filter(|it| is_publisher(it))?.to_owned(),
                    };
                    let (key, signature) = match key {
                        [] => (None, None),
                        [key, signature] => {
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
                ["label", name, digest] if is_label(name) => {
                    records.labels.insert(name.to_owned(), release(digest)?);
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
        for (sequence, key) in [(1, None), (2, Some([7; 32]))] {
            let pointer = ReleasePointer {
                site: "www".to_owned(),
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
        records.pins.push([4; 32]);
        records.withdrawn.push([5; 32]);
        let text = records.text();
        assert_eq!(SiteRecords::parse("www", &text), Some(records));
        for (part, other) in [
            ("served 2", "served two"),
            ("served 2", "serving 2"),
            ("label next", "label ../next"),
            ("ann@laptop", "ann laptop x y"),
            ("pin 04", "pin 4"),
        ] {
            let text = text.replacen(part, other, 1);
            assert_eq!(SiteRecords::parse("www", &text), None, "{other}");
        }
    }
}
