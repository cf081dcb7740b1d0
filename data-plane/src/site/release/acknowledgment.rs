//! Acknowledgment of a served release, as read by publishers: the wait for the file, and the addresses of the site.

use super::ServedRelease;
use crate::limits::{
    RECEIVE_FIRST_SERVED_MILLISECONDS_MAX, RECEIVE_SERVED_MILLISECONDS_MAX,
    RECEIVE_SERVED_PAUSE_MILLISECONDS,
};
use crate::wire::release_pointer::ReleasePointer;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

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

/// Waits until all workers serve the release of a pointer. Returns false if the server acknowledges no new release of
/// the site within some seconds.
pub fn wait_until_served(file: &Path, pointer: &ReleasePointer) -> bool {
    let begin = Instant::now();
    loop {
        let text = fs::read(file);
        let served = text
            .as_ref()
            .ok()
            .and_then(|text| ServedRelease::parse(text));
        if served.is_some_and(|it| (it.release, it.sequence) == (pointer.release, pointer.sequence))
        {
            return true;
        }
        let bound = match text {
            Ok(_) => RECEIVE_SERVED_MILLISECONDS_MAX,
            Err(_) => RECEIVE_FIRST_SERVED_MILLISECONDS_MAX,
        };
        if begin.elapsed() >= Duration::from_millis(bound) {
            return false;
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
            release: [0xab; 32],
            sequence: 3,
            time: 0,
            publisher: "ann".to_owned(),
        };
        assert!(!wait_until_served(&file, &pointer), "no server");
        assert_eq!(SiteAddresses::read(&file), SiteAddresses::default());
        let served = ServedRelease {
            release: pointer.release,
            sequence: 3,
            time: 0,
        };
        fs::write(&file, served.text()).unwrap();
        assert!(wait_until_served(&file, &pointer));
        assert_eq!(SiteAddresses::read(&file), SiteAddresses::default());
        let addresses = SiteAddresses {
            site: Some("https://www.test/".to_owned()),
            preview: Some("https://*.preview.test/".to_owned()),
        };
        fs::write(&file, served.text() + &addresses.text()).unwrap();
        assert!(wait_until_served(&file, &pointer));
        assert_eq!(SiteAddresses::read(&file), addresses);
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
