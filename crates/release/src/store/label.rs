//! Label of a release, and the rule about the publishers that may change a label.
//!
//! The file of a label has the digest of the release in its first line, and the owner in a second line: `owner NAME`. A
//! label without the second line belongs to nobody, as all labels of earlier versions do.

use crate::release_pointer::is_publisher;
use base::digest::{from_hex, hex};

/// Label of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseLabel {
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Name of the publisher that the label belongs to; None for a label that belongs to nobody.
    pub owner: Option<String>,
}

impl ReleaseLabel {
    /// Parses the text of a label; None without a digest. An owner that cannot be read is no owner, so only a publisher
    /// with the right to change all labels changes the label.
    pub fn parse(text: &[u8]) -> Option<ReleaseLabel> {
        let mut lines = text.trim_ascii_end().split(|byte| *byte == b'\n');
        let release = from_hex(lines.next()?)?;
        let owner = lines.find_map(|line| std::str::from_utf8(line.strip_prefix(b"owner ")?).ok());
        let owner = owner.filter(|owner| is_publisher(owner));
        Some(ReleaseLabel {
            release,
            owner: owner.map(str::to_owned),
        })
    }

    /// Returns the text of the label.
    pub fn text(&self) -> String {
        let release = hex(&self.release);
        match &self.owner {
            None => format!("{release}\n"),
            Some(owner) => format!("{release}\nowner {owner}\n"),
        }
    }
}

/// Publisher that changes labels.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LabelEditor<'p> {
    /// Name of the publisher, the owner of the labels that the publisher sets. None for labels that belong to nobody.
    pub name: Option<&'p str>,
    /// Whether the publisher may change the labels of other owners, and the labels that belong to nobody.
    pub may_change_all: bool,
}

impl LabelEditor<'_> {
    /// Account that has the files of the store, and may therefore change all labels.
    pub const LOCAL: LabelEditor<'static> = LabelEditor {
        name: None,
        may_change_all: true,
    };

    /// Returns true if the publisher may move or remove a label of an owner.
    pub fn may_change(&self, owner: Option<&str>) -> bool {
        self.may_change_all || (owner.is_some() && owner == self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_written_with_and_without_an_owner() {
        for owner in [None, Some("ann@laptop".to_owned())] {
            let label = ReleaseLabel {
                release: [0xab; 32],
                owner,
            };
            assert_eq!(ReleaseLabel::parse(label.text().as_bytes()), Some(label));
        }
        let digest = hex(&[0xab; 32]);
        for rest in ["", "\n", "\nowner \n", "\nowner a b\n", "\nother line\n"] {
            let label = ReleaseLabel::parse(format!("{digest}{rest}").as_bytes());
            let label = label.expect(rest);
            assert_eq!((label.release, label.owner), ([0xab; 32], None), "{rest:?}");
        }
        for text in ["", "\n", "owner ann\n", &digest[1..]] {
            assert_eq!(ReleaseLabel::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_publisher_changes_the_own_labels_and_with_the_right_all_labels() {
        let ann = LabelEditor {
            name: Some("ann"),
            may_change_all: false,
        };
        assert!(ann.may_change(Some("ann")));
        assert!(!ann.may_change(Some("bob")) && !ann.may_change(None));
        let nobody = LabelEditor { name: None, ..ann };
        assert!(!nobody.may_change(None) && !nobody.may_change(Some("ann")));
        assert!(LabelEditor::LOCAL.may_change(Some("ann")) && LabelEditor::LOCAL.may_change(None));
    }
}
