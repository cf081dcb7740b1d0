//! The content to serve: one folder, byte for byte the same for every contender.
//!
//! The site has pages of the requested sizes, the hello page of the nine-server comparison, the example
//! journal for the browser, CGI scripts, and a certificate with its authority. The site is created anew for
//! every run, so a result does not depend on existing files.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

mod text;

/// A folder to serve, with a certificate.
#[derive(Debug, Clone)]
pub struct Site {
    /// Folder with the files.
    pub root: PathBuf,
    /// Folder with `cgi-bin`, outside of [`Site::root`].
    pub cgi_root: PathBuf,
    /// The hello page, followed by the pages in order of size.
    pub pages: Vec<Page>,
    /// All files below [`Site::root`], including the pages.
    pub files: Vec<Page>,
    /// The certificate.
    pub certificate: Certificate,
}

/// A file of the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Request path: `/16k.html`.
    pub path: String,
    /// Path of the file on disk.
    pub file: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
}

/// A P-256 certificate for `localhost` and the loopback addresses, with the signing authority.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// PEM file with the certificate.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// PEM file with the certificate and the private key.
    pub combined: PathBuf,
    /// PEM file with the certificate of the authority.
    pub authority: PathBuf,
    /// Content of [`Certificate::authority`].
    pub authority_pem: String,
}

impl Site {
    /// Creates the site below `folder`, with pages of the given sizes in bytes in addition to the hello
    /// page.
    pub fn create(folder: &Path, sizes: &[u64]) -> io::Result<Site> {
        let root = folder.join("site");
        let cgi_root = folder.join("scripts");
        create_open(folder)?;
        write(&root.join("index.html"), text::HELLO.as_bytes())?;
        for (name, bytes) in JOURNAL {
            write(&root.join("journal").join(name), bytes)?;
        }
        write(&root.join("not-found.html"), text::NOT_FOUND.as_bytes())?;
        let mut pages = vec![Page::create(&root, Site::HELLO, text::HELLO)?];
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            pages.push(Page::create(
                &root,
                &Site::path_of(size),
                &text::page(size),
            )?);
        }
        create_scripts(&cgi_root)?;
        write(&root.join("cached.html"), text::complex_page().as_bytes())?;
        let certificate = Certificate::create(&folder.join("tls"))?;
        let mut files = Vec::new();
        list(&root, "", &mut files)?;
        Ok(Site {
            root,
            cgi_root,
            pages,
            files,
            certificate,
        })
    }

    /// Creates a copy of the site for a member of a balancer, by hard links below `folder`, with a page
    /// that names the member.
    pub fn for_member(&self, folder: &Path, number: usize) -> io::Result<Site> {
        let root = folder.join("site");
        create_open(folder)?;
        for page in &self.files {
            let link = root.join(page.path.trim_start_matches('/'));
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent)?;
                open_to_all(parent)?;
            }
            fs::hard_link(&page.file, &link)?;
        }
        let mut site = self.clone();
        for page in site.pages.iter_mut().chain(&mut site.files) {
            page.file = root.join(page.path.trim_start_matches('/'));
        }
        let name = Page::create(&root, Site::MEMBER, &member_page(number))?;
        site.files.push(name);
        site.root = root;
        Ok(site)
    }

    /// Returns the number of the member with the given page at [`Site::MEMBER`].
    pub fn member_of(page: &[u8]) -> Option<usize> {
        let text = std::str::from_utf8(page).ok()?;
        let number = text.strip_prefix(MEMBER_PAGE)?.strip_suffix('\n')?;
        number.parse().ok()
    }

    /// Returns the path of a page of the given size: `/5100.html`, `/16k.html`.
    pub fn path_of(bytes: u64) -> String {
        if bytes >= 1024 && bytes.is_multiple_of(1024) {
            format!("/{}k.html", bytes / 1024)
        } else {
            format!("/{bytes}.html")
        }
    }

    /// Returns the hello page, with the same content for all contenders.
    pub fn hello(&self) -> &Page {
        &self.pages[0]
    }

    /// Returns the page of the given size, if the site has one.
    pub fn page(&self, bytes: u64) -> Option<&Page> {
        let path = Site::path_of(bytes);
        self.pages.iter().find(|page| page.path == path)
    }

    /// Path of the hello page.
    pub const HELLO: &str = "/hello.html";
    /// Path of the page that names a member ([`Site::for_member`]).
    pub const MEMBER: &str = "/member.html";
    /// Path of a Python CGI script that prints one line, as the simple script of the source document did.
    pub const SIMPLE_SCRIPT: &str = "/cgi-bin/simple.py";
    /// Path of a shell CGI script that prints one line: the minimum cost of a script.
    pub const SHELL_SCRIPT: &str = "/cgi-bin/simple.sh";
    /// Output of the simple scripts.
    pub const SIMPLE: &str = "<html><body><h1>Hello World!</h1></body></html>\n";
    /// Path of a CGI script that builds a page from two XML files and several HTML fragments.
    pub const COMPLEX_SCRIPT: &str = "/cgi-bin/complex.py";
    /// Path of the complex script behind the server's page cache.
    pub const KEPT_SCRIPT: &str = "/kept/complex.py";
    /// Path of a file with the output of [`Site::COMPLEX_SCRIPT`].
    pub const CACHED_PAGE: &str = "/cached.html";
    /// Size of the page measured by the journal's documents.
    pub const JOURNAL_BYTES: u64 = 5100;
    /// Path of the front page of the example journal, for browsers.
    pub const JOURNAL: &str = "/journal/";
}

impl Page {
    fn create(root: &Path, path: &str, text: &str) -> io::Result<Page> {
        let file = root.join(path.trim_start_matches('/'));
        write(&file, text.as_bytes())?;
        Ok(Page {
            path: path.to_owned(),
            file,
            bytes: text.len() as u64,
        })
    }

    /// Reads the file.
    pub fn content(&self) -> io::Result<Vec<u8>> {
        fs::read(&self.file)
    }
}

impl Certificate {
    fn create(folder: &Path) -> io::Result<Certificate> {
        let authority_key = KeyPair::generate().map_err(io::Error::other)?;
        let mut authority = CertificateParams::default();
        authority
            .distinguished_name
            .push(DnType::CommonName, "anthill bench's test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_pem = authority
            .self_signed(&authority_key)
            .map_err(io::Error::other)?
            .pem();
        let issuer = Issuer::new(authority, authority_key);

        // P-256 is the default of rcgen.
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut own = CertificateParams::new(names).map_err(io::Error::other)?;
        own.distinguished_name.push(DnType::CommonName, "localhost");
        own.use_authority_key_identifier_extension = true;
        let own = own
            .signed_by(&key, &issuer)
            .map_err(io::Error::other)?
            .pem();

        let made = Certificate {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
            combined: folder.join("combined.pem"),
            authority: folder.join("authority.pem"),
            authority_pem,
        };
        write(&made.certificate, own.as_bytes())?;
        write(&made.key, key.serialize_pem().as_bytes())?;
        write(
            &made.combined,
            format!("{own}{}", key.serialize_pem()).as_bytes(),
        )?;
        write(&made.authority, made.authority_pem.as_bytes())?;
        for secret in [&made.key, &made.combined] {
            fs::set_permissions(secret, fs::Permissions::from_mode(0o600))?;
        }
        Ok(made)
    }
}

/// Returns the page that names a member.
fn member_page(number: usize) -> String {
    format!("{MEMBER_PAGE}{number}\n")
}

fn create_scripts(cgi_root: &Path) -> io::Result<()> {
    for (name, text) in SCRIPTS {
        let file = cgi_root.join("cgi-bin").join(name);
        write(&file, text.as_bytes())?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    }
    for (name, text) in text::CONTENT {
        write(&cgi_root.join("content").join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Lists all files below a folder with their request paths.
fn list(folder: &Path, prefix: &str, files: &mut Vec<Page>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            list(&entry.path(), &path, files)?
        } else {
            files.push(Page {
                path,
                file: entry.path(),
                bytes: metadata.len(),
            })
        }
    }
    // The order of directory entries is random.
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
        open_to_all(folder)?;
    }
    fs::write(file, bytes)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))
}

/// Creates a folder that every user can enter and read, because some servers drop root privileges before
/// reading any file. Parent folders below the temporary folder, created for one user only, are opened too.
pub fn create_open(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let temporary = std::env::temp_dir();
    let above = folder.ancestors().skip(1);
    for parent in above.take_while(|parent| parent.starts_with(&temporary) && *parent != temporary)
    {
        // Fails for a folder of another user, left unchanged.
        let _ = open_to_all(parent);
    }
    open_to_all(folder)
}

/// Creates a folder that every user can write to, for servers that have dropped root privileges.
pub fn create_writable(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))
}

/// Sets the mode explicitly, independent of the umask.
fn open_to_all(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// Beginning of the page that names a member; the member's number and a line feed follow.
const MEMBER_PAGE: &str = "member ";

const SCRIPTS: [(&str, &str); 3] = [
    ("simple.sh", include_str!("../programs/cgi/simple.sh")),
    ("simple.py", include_str!("../programs/cgi/simple.py")),
    ("complex.py", include_str!("../programs/cgi/complex.py")),
];

macro_rules! journal {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../examples/journal/public/", $name)) as &[u8])),*]
    };
}

/// Files of the example site, compiled in so that page loads can be measured on any machine.
const JOURNAL: &[(&str, &[u8])] = journal![
    "2026/01/11.html"
    "2026/01/25.html"
    "2026/02/08.html"
    "2026/03/01.html"
    "2026/03/15.html"
    "2026/04/05.html"
    "2026/04/26.html"
    "2026/06/14.html"
    "2026/07/12.html"
    "2026/index.html"
    "about.html"
    "colophon.html"
    "cupboard.svg"
    "favicon.ico"
    "favicon.svg"
    "fonts/vollkorn-OFL.txt"
    "fonts/vollkorn.woff2"
    "index.html"
    "journal.css"
    "journal.js"
    "not-found.html"
    "robots.txt"
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn site(sizes: &[u64]) -> (tempfile::TempDir, Site) {
        let folder = tempfile::tempdir().expect("a folder");
        let site = Site::create(folder.path(), sizes).expect("a site");
        (folder, site)
    }

    #[test]
    fn each_member_has_the_pages_and_a_page_with_its_number() {
        let (folder, site) = site(&[5100]);
        for number in [0, 3] {
            let member = site
                .for_member(&folder.path().join(format!("member-{number}")), number)
                .expect("a site");
            for page in &site.files {
                let own = member.root.join(page.path.trim_start_matches('/'));
                assert_eq!(
                    fs::read(own).expect("a file"),
                    page.content().expect("a file"),
                    "{}",
                    page.path
                );
            }
            let page = fs::read(member.root.join("member.html")).expect("a file");
            assert_eq!(Site::member_of(&page), Some(number));
            let own = |page: &Page| page.file.starts_with(&member.root);
            assert!(member.pages.iter().chain(&member.files).all(own));
        }
        assert_eq!(Site::member_of(b"member one\n"), None);
    }

    #[test]
    fn pages_have_the_requested_sizes() {
        let sizes = [1, 228, 1000, 5100, 1024, 16 * 1024, 512 * 1024, 5100];
        let (_folder, site) = site(&sizes);
        for size in sizes {
            let page = site.page(size).expect("a page of that size");
            assert_eq!(page.content().expect("a file").len() as u64, size);
            assert_eq!(page.bytes, size);
        }
        assert_eq!(site.pages.len(), sizes.len());
        assert_eq!(site.page(16 * 1024).expect("a page").path, "/16k.html");
        assert_eq!(site.page(7), None);
        let hello = site.hello().content().expect("the hello page");
        assert_eq!(hello.len(), 228, "the source document's page had 228 bytes");
        assert!(String::from_utf8_lossy(&hello).contains("Hello World"));
    }

    #[test]
    fn the_journal_is_complete() {
        let public = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/journal/public");
        let mut there = BTreeSet::new();
        let mut folders = vec![public.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path)
                } else {
                    let name = path.strip_prefix(&public).expect("below").to_owned();
                    there.insert(name.to_string_lossy().into_owned());
                }
            }
        }
        let (_folder, site) = site(&[]);
        let served = |name: &String| {
            site.files
                .iter()
                .any(|file| file.path == format!("/journal/{name}"))
        };
        assert!(there.iter().all(served));
        let built_in: BTreeSet<String> =
            JOURNAL.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(built_in, there);
    }

    #[test]
    fn the_cached_page_equals_the_output_of_the_script() {
        let (_folder, site) = site(&[]);
        let run = |path: &str| {
            let output = std::process::Command::new(site.cgi_root.join(&path[1..]))
                .env("PATH_INFO", "/")
                .output()
                .expect("python3 and a shell");
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let text = String::from_utf8(output.stdout)
                .expect("text")
                .replace("\r\n", "\n");
            let (head, body) = text.split_once("\n\n").expect("a head");
            assert!(head.contains("Content-Type: text/html"), "{head}");
            body.to_owned()
        };
        let cached = fs::read_to_string(site.root.join("cached.html")).expect("the cached page");
        assert_eq!(run(Site::COMPLEX_SCRIPT), cached);
        assert_eq!(run(Site::SIMPLE_SCRIPT), Site::SIMPLE);
        assert_eq!(run(Site::SHELL_SCRIPT), Site::SIMPLE);
    }

    #[test]
    fn private_keys_are_readable_by_the_owner_only() {
        let (_folder, site) = site(&[]);
        let mode = |file: &Path| fs::metadata(file).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode(&site.certificate.key), 0o600);
        assert_eq!(mode(&site.certificate.combined), 0o600);
        assert_eq!(mode(&site.certificate.certificate), 0o644);
        assert_eq!(mode(&site.root), 0o755);
    }
}
