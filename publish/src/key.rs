//! Ed25519 keys of publishers, in PEM files (PKCS #8), as `openssl genpkey -algorithm ed25519` writes them.
//!
//! A line before the PEM block, which readers of PEM skip (RFC 7468 §5.2), has the identity of the site: `site_id = "TEXT"`.

use crate::problem::Problem;
use crate::text;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base::atomic_file::BYTE_ORDER_MARK;
use base::digest::{base64, hex};
use release::release_pointer::{ReleasePointer, is_site_id};
use release::store::Publication;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Key of a publisher, with the identity of the site for which the key signs.
pub(crate) struct PublisherKey {
    pair: Ed25519KeyPair,
    /// Identity of the site; None for pointers that any site of the name accepts.
    site_id: Option<String>,
}

impl PublisherKey {
    /// Reads a key from a file. `site_id` takes the place of the identity in the file.
    pub(crate) fn read(path: &Path, site_id: Option<&str>) -> Result<PublisherKey, Problem> {
        let help = "`anthill publish --new-key FILE` makes a key";
        let failed = |what: String| Problem::usage(format!("{}: {what}", text::file(path)));
        let pem = std::fs::read(path).map_err(|error| failed(error.to_string()).help(help))?;
        let pem = pem.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&pem);
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|_| failed("this is no PEM file with a private key".to_owned()).help(help))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der())
            .map_err(|_| failed("this is no Ed25519 key".to_owned()).help(help))?;
        let site_id = match (site_id, id_line(pem)) {
            (Some(id), _) => Some(checked_id(id)?),
            (None, Some(id)) => {
                let id = checked_id(id);
                let help = "write site_id = \"…\" as in anthill.toml, or remove the line";
                Some(id.map_err(|_| failed("the site_id is malformed".to_owned()).help(help))?)
            }
            (None, None) => None,
        };
        Ok(PublisherKey { pair, site_id })
    }

    /// Makes a key, and writes the key with the identity of a site to a new file with the mode 0600. Without `site_id`, the
    /// identity is random.
    pub(crate) fn make(path: &Path, site_id: Option<&str>) -> Result<PublisherKey, Problem> {
        let failed = |what: &str| Problem::failure(format!("{}: {what}", text::file(path)));
        let id = match site_id {
            Some(id) => checked_id(id)?,
            None => {
                let mut random = [0; SITE_ID_RANDOM_BYTES];
                aws_lc_rs::rand::fill(&mut random).map_err(|_| failed("no key was made"))?;
                hex(&random)
            }
        };
        let key = Ed25519KeyPair::generate().map_err(|_| failed("no key was made"))?;
        let der = key.to_pkcs8v1().map_err(|_| failed("no key was made"))?;
        let body = base64(der.as_ref());
        let pem = format!(
            "site_id = \"{id}\"\n-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
        );
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(pem.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| {
            let problem = failed(&error.to_string());
            match error.kind() {
                ErrorKind::AlreadyExists => problem.help(
                    "sign with the present key: --key FILE; or name another file for a new key, since a key is never \
                     replaced",
                ),
                _ => problem,
            }
        })?;
        Ok(PublisherKey {
            pair: key,
            site_id: Some(id),
        })
    }

    /// Returns the identity of the site for which the key signs.
    pub(crate) fn site_id(&self) -> Option<&str> {
        self.site_id.as_deref()
    }

    /// Returns the public key, 32 bytes.
    pub(crate) fn public(&self) -> [u8; 32] {
        let mut key = [0; 32];
        // An Ed25519 public key has 32 bytes (RFC 8032 §5.1.5).
        key.copy_from_slice(self.pair.public_key().as_ref());
        key
    }

    /// Returns true if this key made the signature of a publication, and for the site of the key.
    pub(crate) fn has_signed(&self, publication: &Publication) -> bool {
        self.is_bound_alike(publication) && is_verified(publication)
    }

    /// Returns true if a publication names this key and the identity of its site. The signature is not verified.
    pub(crate) fn is_bound_alike(&self, publication: &Publication) -> bool {
        publication.key == Some(self.public()) && publication.pointer.site_id == self.site_id
    }

    /// Returns the signed text of a pointer for the site of the key.
    pub(crate) fn sign(&self, pointer: &ReleasePointer) -> String {
        let key = self.public();
        let pointer = ReleasePointer {
            site_id: self.site_id.clone(),
            ..pointer.clone()
        };
        let signed = self.pair.sign(pointer.to_be_signed(&key).as_bytes());
        let mut signature = [0; 64];
        // An Ed25519 signature has 64 bytes (RFC 8032 §5.1.6).
        signature.copy_from_slice(signed.as_ref());
        pointer.signed_text(&key, &signature)
    }
}

/// Bytes of a random identity of a site, 128 bits.
const SITE_ID_RANDOM_BYTES: usize = 16;

/// Returns the identity of a site if its form is right.
fn checked_id(id: &str) -> Result<String, Problem> {
    if is_site_id(id) {
        Ok(id.to_owned())
    } else {
        Err(Problem::usage("the site id has a wrong form")
            .help("a site id has 16 to 63 letters, digits, hyphens and underscores, as `site_id` in anthill.toml"))
    }
}

/// Returns the identity of a site in the lines before the PEM block.
fn id_line(pem: &[u8]) -> Option<&str> {
    let lines = pem.split(|byte| *byte == b'\n');
    let mut before = lines.take_while(|line| !line.starts_with(b"-----BEGIN"));
    before.find_map(|line| {
        let line = std::str::from_utf8(line).ok()?.trim();
        let value = line.strip_prefix("site_id")?.trim_start();
        let value = value.strip_prefix('=')?.trim_start();
        Some(value.trim_matches('"'))
    })
}

/// Returns true if the signature of a publication is right. The key is perhaps of another publisher.
pub(crate) fn is_verified(publication: &Publication) -> bool {
    let (Some(key), Some(signature)) = (publication.key, publication.signature) else {
        return false;
    };
    let signed = publication.pointer.to_be_signed(&key);
    let key = UnparsedPublicKey::new(&ED25519, key);
    key.verify(signed.as_bytes(), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_made_and_signs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        let made = PublisherKey::make(&path, None).expect("a key");
        let read = PublisherKey::read(&path, None).expect("a key");
        assert_eq!(made.public(), read.public());
        assert_eq!(made.site_id(), read.site_id());
        let id = read.site_id().expect("an identity").to_owned();
        assert_eq!(id.len(), 2 * SITE_ID_RANDOM_BYTES);
        assert!(PublisherKey::make(&path, None).is_err());
        let pointer = ReleasePointer {
            site: "www".to_owned(),
            site_id: None,
            release: [1; 32],
            sequence: 1,
            time: 1,
            publisher: "ann@laptop".to_owned(),
        };
        let text = read.sign(&pointer);
        let (parsed, signature) = ReleasePointer::parse(text.as_bytes()).expect("a pointer");
        let signature = signature.expect("a signature");
        let bound = ReleasePointer {
            site_id: Some(id),
            ..pointer
        };
        assert_eq!(parsed, bound);
        let key = UnparsedPublicKey::new(&ED25519, signature.key);
        assert!(key.verify(signature.signed, &signature.signature).is_ok());
        let mut publication = Publication {
            pointer: parsed,
            key: Some(signature.key),
            signature: Some(signature.signature),
        };
        assert!(is_verified(&publication) && read.has_signed(&publication));
        let other = PublisherKey::make(&folder.path().join("other.pem"), None).expect("a key");
        assert!(!other.has_signed(&publication));
        publication.pointer.release = [2; 32];
        assert!(!is_verified(&publication) && !read.has_signed(&publication));
        publication.pointer.release = [1; 32];
        publication.pointer.site_id = Some("0123456789abcdef".to_owned());
        assert!(!is_verified(&publication), "another site");
        std::fs::write(&path, "x").expect("a write");
        assert!(PublisherKey::read(&path, None).is_err());
    }

    #[test]
    fn the_identity_of_a_site_stands_beside_the_key_or_in_an_option() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        let made = PublisherKey::make(&path, Some("0123456789abcdef")).expect("a key");
        assert_eq!(made.site_id(), Some("0123456789abcdef"));
        let pem = std::fs::read_to_string(&path).expect("a file");
        let id = |text: &str, option: Option<&str>| {
            std::fs::write(&path, text).expect("a write");
            let key = PublisherKey::read(&path, option).ok()?;
            Some(key.site_id().map(str::to_owned))
        };
        let (_, plain) = pem.split_once('\n').expect("lines");
        assert_eq!(id(plain, None), Some(None), "a key of an earlier version");
        let other = "fedcba98-76543210";
        assert_eq!(id(&pem, Some(other)), Some(Some(other.to_owned())));
        assert_eq!(id(plain, Some(other)), Some(Some(other.to_owned())));
        let spaced = format!("a note\nsite_id=\"{other}\"\r\n{plain}");
        assert_eq!(id(&spaced, None), Some(Some(other.to_owned())));
        assert_eq!(id(plain, Some("short")), None);
        let malformed = pem.replacen("0123456789abcdef", "0123", 1);
        assert_eq!(id(&malformed, None), None);
        // A line behind the key is not of the key.
        let behind = format!("{plain}site_id = \"{other}\"\n");
        assert_eq!(id(&behind, None), Some(None));
    }
}
