//! Store of releases, written by hand.

use std::fs;
use std::path::{Path, PathBuf};

use base::digest::{hex, sha256};
use release::hashed_name::is_hashed;
use release::release_pointer::ReleasePointer;

use crate::support::{Folder, Server, eventually};

/// Store of releases in a folder.
pub struct TestStore(pub PathBuf);

impl TestStore {
    /// Returns the store in the state folder.
    pub fn of(folder: &Folder) -> TestStore {
        TestStore(folder.path("state/releases"))
    }

    /// Returns the path of a content.
    pub fn blob(&self, digest: &[u8; 32]) -> PathBuf {
        let name = hex(digest);
        self.0.join("blobs").join(&name[..2]).join(name)
    }

    /// Stores a content.
    pub fn put(&self, content: &[u8]) -> [u8; 32] {
        let digest = sha256(content);
        write(&self.blob(&digest), content);
        digest
    }

    /// Stores a manifest with rules and files, the files in the order of their paths.
    pub fn manifest(&self, rules: &str, files: &[(&str, &str)]) -> [u8; 32] {
        let mut text = format!("anthill release 1\n{rules}");
        for (path, content) in files {
            let digest = hex(&self.put(content.as_bytes()));
            let keyword = if is_hashed(path.as_bytes()) {
                "hashed"
            } else {
                "file"
            };
            text += &format!("{keyword} {} {digest} {path}\n", content.len());
        }
        self.put(text.as_bytes())
    }

    /// Publishes a release with a page.
    pub fn publish_page(&self, sequence: u64, text: &str) -> [u8; 32] {
        let release = self.manifest("", &[("index.html", text)]);
        self.point(&pointer(release, sequence).text());
        release
    }

    /// Replaces the pointer, as publishers do.
    pub fn point(&self, text: &str) {
        let site = self.0.join("sites/www");
        write(&site.join(".draft"), text.as_bytes());
        fs::rename(site.join(".draft"), site.join("pointer")).expect("renamed");
    }

    /// Sets the label of a release.
    pub fn label(&self, label: &str, release: &[u8; 32]) {
        let labels = self.0.join("sites/www/labels");
        write(
            &labels.join(".draft"),
            format!("{}\n", hex(release)).as_bytes(),
        );
        fs::rename(labels.join(".draft"), labels.join(label)).expect("renamed");
    }

    /// Stores the record of a publication.
    pub fn record(&self, pointer: &ReleasePointer) {
        let name = pointer.sequence.to_string();
        write(
            &self.0.join("sites/www/pointers").join(name),
            pointer.text().as_bytes(),
        );
    }

    /// Marks a release as withdrawn.
    pub fn withdraw(&self, release: &[u8; 32]) {
        write(&self.0.join("sites/www/withdrawn").join(hex(release)), b"");
    }
}

/// Returns the path of the program that publishes. Cargo builds the program for its own tests.
pub fn publisher() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_anthill")).with_file_name("anthill-publish");
    assert!(
        program.is_file(),
        "{} is missing: `cargo build -p anthill-publish` builds it",
        program.display()
    );
    program
}

/// Writes a file, and makes missing folders.
pub fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, content).expect("written");
}

/// Returns a pointer of the site `www`.
pub fn pointer(release: [u8; 32], sequence: u64) -> ReleasePointer {
    ReleasePointer {
        site: "www".to_owned(),
        site_id: None,
        release,
        sequence,
        time: 1_763_899_200,
        publisher: "ann@laptop".to_owned(),
    }
}

/// Waits until all workers serve a release.
pub fn wait_until_served(server: &Server, release: [u8; 32], sequence: u64) {
    let expected = format!(
        "anthill served 1\nrelease {}\nsequence {sequence}\n",
        hex(&release)
    );
    let file = server.folder.path("state/served/www");
    eventually("the acknowledgment", || {
        fs::read_to_string(&file)
            .ok()?
            .starts_with(&expected)
            .then_some(())
    });
}
