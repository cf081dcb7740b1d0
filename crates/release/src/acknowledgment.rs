//! Acknowledgment of a served release, as read by publishers: the wait for the file, the refusal of a publication, and the
//! addresses of the site.

use crate::limits::{
    RECEIVE_FIRST_SERVED_MILLISECONDS_MAX, RECEIVE_SERVED_MILLISECONDS_MAX,
    RECEIVE_SERVED_PAUSE_MILLISECONDS,
};
use crate::release_pointer::ReleasePointer;
use crate::store::ServedRelease;
use base::atomic_file;
use base::digest::hex;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Addresses of a site for browsers. A site without a plain host name, or an older server, states none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SiteAddresses {
    /// URL of the site.
    pub site: Option<String>,
    /// URL of the previews, with `*` for the label or the id of the release.
    pub preview: Option<String>,
}

impl SiteAddresses {
    /// Returns a line for each known address.
    pub fn text(&self) -> String {
        let lines = [("address", &self.site), ("preview", &self.preview)];
        let lines = lines
            .iter()
            .filter_map(|(keyword, url)| Some(format!("{keyword} {}\n", url.as_ref()?)));
        lines.collect()
    }

    /// Reads the addresses among the lines of a text. A URL with a character that a terminal may obey is left out.
    pub fn parse(text: &str) -> SiteAddresses {
        let find = |keyword: &str| {
            let url = text
                .lines()
                .find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '));
            let url = url.filter(|url| url.bytes().all(|byte| byte.is_ascii_graphic()));
            url.map(str::to_owned)
        };
        SiteAddresses {
            site: find("address"),
            preview: find("preview"),
        }
    }

    /// Reads the addresses of an acknowledgment. A file that cannot be read has no addresses.
    pub fn read(file: &Path) -> SiteAddresses {
        let text = fs::read(file).unwrap_or_default();
        SiteAddresses::parse(&String::from_utf8_lossy(&text))
    }
}

/// Report of the server beside a store on a publication.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerReport {
    /// Last acknowledged sequence, 0 before the first acknowledgment. None without a readable folder of acknowledgments:
    /// the store belongs to no server, or the folder is closed to the account.
    pub acknowledged: Option<u64>,
    /// Reason that the server refuses the publication.
    pub refusal: Option<String>,
}

impl ServerReport {
    /// Reads the report on a publication. `file` is the acknowledgment of the site.
    pub fn read(file: &Path, release: &[u8; 32], sequence: u64) -> ServerReport {
        if !file.parent().is_some_and(Path::is_dir) {
            return ServerReport::default();
        }
        let acknowledged = fs::read(file).ok();
        let acknowledged = acknowledged.and_then(|text| ServedRelease::parse(&text));
        // A server with another store may have acknowledged another release under the sequence.
        let is_other = |it: &ServedRelease| it.sequence == sequence && it.release != *release;
        let acknowledged = acknowledged.filter(|it| !is_other(it));
        let refused = fs::read_to_string(refusal_file(file)).unwrap_or_default();
        let refused = refused.strip_prefix(&refusal_head(release, sequence));
        ServerReport {
            acknowledged: Some(acknowledged.map_or(0, |it| it.sequence)),
            refusal: refused.and_then(|lines| ServerReport::parse(lines).refusal),
        }
    }

    /// Returns a line for each known part.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(sequence) = self.acknowledged {
            text.push_str(&format!("acknowledged {sequence}\n"));
        }
        if let Some(reason) = &self.refusal {
            text.push_str(&format!("refused {reason}\n"));
        }
        text
    }

    /// Reads the report among the lines of a text. Control characters of the reason are left out, since a terminal may obey
    /// them.
    pub fn parse(text: &str) -> ServerReport {
        let find = |keyword: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '))
        };
        let visible = |text: &str| text.chars().filter(|it| !it.is_control()).collect();
        ServerReport {
            acknowledged: find("acknowledged").and_then(|sequence| sequence.parse().ok()),
            refusal: find("refused").map(visible),
        }
    }

    /// Returns true if all workers of the server serve the publication with the sequence.
    pub fn is_served(&self, sequence: u64) -> bool {
        self.refusal.is_none() && self.acknowledged == Some(sequence)
    }
}

/// Returns the path of the file with the refused publication of a site. No site has such a name, since a name has no
/// colon.
fn refusal_file(acknowledgment: &Path) -> PathBuf {
    let mut file = acknowledgment.as_os_str().to_owned();
    file.push(":refused");
    PathBuf::from(file)
}

/// Returns the lines that name a refused publication.
fn refusal_head(release: &[u8; 32], sequence: u64) -> String {
    let release = hex(release);
    format!("anthill refused 1\nrelease {release}\nsequence {sequence}\n")
}

/// Records beside the acknowledgment that the server refuses a publication, or removes the record. The folder must be
/// present.
pub fn record_refusal(
    acknowledgment: &Path,
    refused: Option<(&[u8; 32], u64, &str)>,
) -> io::Result<()> {
    let file = refusal_file(acknowledgment);
    let Some((release, sequence, reason)) = refused else {
        return match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let reason: String = reason.chars().filter(|it| !it.is_control()).collect();
    let text = refusal_head(release, sequence) + &format!("refused {reason}\n");
    // The server looks at a refused pointer again and again.
    match fs::read(&file) {
        Ok(known) if known == text.as_bytes() => Ok(()),
        _ => atomic_file::write(&file, text.as_bytes(), ACKNOWLEDGMENT_MODE),
    }
}

/// Permissions of an acknowledgment and of a refusal: publishers have other accounts.
pub const ACKNOWLEDGMENT_MODE: u32 = 0o644;

/// Waits until all workers serve the release of a pointer, until the server refuses the pointer, or for some seconds
/// without either. Without a folder of acknowledgments there is no wait.
pub fn wait_until_served(file: &Path, pointer: &ReleasePointer) -> ServerReport {
    let begin = Instant::now();
    loop {
        let report = ServerReport::read(file, &pointer.release, pointer.sequence);
        let bound = match report.acknowledged {
            None => return report,
            Some(0) => RECEIVE_FIRST_SERVED_MILLISECONDS_MAX,
            Some(_) => RECEIVE_SERVED_MILLISECONDS_MAX,
        };
        if report.is_served(pointer.sequence)
            || report.refusal.is_some()
            || begin.elapsed() >= Duration::from_millis(bound)
        {
            return report;
        }
        thread::sleep(Duration::from_millis(RECEIVE_SERVED_PAUSE_MILLISECONDS));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_acknowledgment_ends_the_wait_and_has_the_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("www");
        let pointer = ReleasePointer {
            site: "www".to_owned(),
            site_id: None,
            release: [0xab; 32],
            sequence: 3,
            time: 0,
            publisher: "ann".to_owned(),
        };
        let report = wait_until_served(&file, &pointer);
        assert_eq!(report.acknowledged, Some(0), "no server");
        assert_eq!(SiteAddresses::read(&file), SiteAddresses::default());
        let served = ServedRelease {
            release: pointer.release,
            sequence: 3,
            time: 0,
        };
        fs::write(&file, served.text()).unwrap();
        assert!(wait_until_served(&file, &pointer).is_served(3));
        assert_eq!(SiteAddresses::read(&file), SiteAddresses::default());
        let addresses = SiteAddresses {
            site: Some("https://www.test/".to_owned()),
            preview: Some("https://*.preview.test/".to_owned()),
        };
        fs::write(&file, served.text() + &addresses.text()).unwrap();
        assert!(wait_until_served(&file, &pointer).is_served(3));
        assert_eq!(SiteAddresses::read(&file), addresses);
    }

    #[test]
    fn a_refusal_counts_for_its_publication_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("www");
        let served = ServedRelease {
            release: [0xab; 32],
            sequence: 3,
            time: 0,
        };
        fs::write(&file, served.text()).unwrap();
        let reason = "pointer: the pointer is\x1b unsigned\nsequence 9";
        record_refusal(&file, Some((&[0xcd; 32], 4, reason))).unwrap();
        let report = ServerReport::read(&file, &[0xcd; 32], 4);
        assert_eq!(report.acknowledged, Some(3));
        let expected = "pointer: the pointer is unsignedsequence 9";
        assert_eq!(report.refusal.as_deref(), Some(expected));
        assert!(!report.is_served(4));
        assert_eq!(ServerReport::parse(&report.text()), report);
        for (release, sequence) in [([0xcd; 32], 5), ([0xef; 32], 4), ([0xab; 32], 3)] {
            let report = ServerReport::read(&file, &release, sequence);
            assert_eq!(report.refusal, None, "{sequence}");
            assert_eq!(report.is_served(sequence), sequence == 3);
        }
        // Another store counts from 1 again.
        let report = ServerReport::read(&file, &[0xef; 32], 3);
        assert_eq!(report.acknowledged, Some(0));
        record_refusal(&file, None).unwrap();
        record_refusal(&file, None).unwrap();
        assert_eq!(ServerReport::read(&file, &[0xcd; 32], 4).refusal, None);
        let missing = folder.path().join("missing/www");
        let report = ServerReport::read(&missing, &[0xcd; 32], 4);
        assert_eq!(report, ServerReport::default());
    }

    #[test]
    fn an_address_has_visible_characters_alone() {
        for url in [
            "https://a.test/\x1b[2J",
            "https://a b/",
            "https://\u{202e}/",
        ] {
            let addresses = SiteAddresses::parse(&format!("address {url}\n"));
            assert_eq!(addresses, SiteAddresses::default(), "{url}");
        }
    }
}
