//! Ed25519 keys of publishers, in PEM files (PKCS #8), as `openssl genpkey -algorithm ed25519` writes them.

use crate::problem::Problem;
use crate::text;
use anthill_data_plane::base::atomic_file::BYTE_ORDER_MARK;
use anthill_data_plane::base::digest::base64;
use anthill_data_plane::store::Publication;
use anthill_data_plane::wire::release_pointer::ReleasePointer;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Key of a publisher.
pub struct PublisherKey(Ed25519KeyPair);

impl PublisherKey {
    /// Reads a key from a file.
    pub fn read(path: &Path) -> Result<PublisherKey, Problem> {
        let help = "`anthill publish --new-key FILE` makes a key";
        let failed = |what: String| Problem::usage(format!("{}: {what}", text::file(path)));
        let pem = std::fs::read(path).map_err(|error| failed(error.to_string()).help(help))?;
        let pem = pem.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&pem);
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|_| failed("this is no PEM file with a private key".to_owned()).help(help))?;
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der())
            .map(PublisherKey)
            .map_err(|_| failed("this is no Ed25519 key".to_owned()).help(help))
    }

    /// Makes a key, and writes the key to a new file with the mode 0600.
    pub fn make(path: &Path) -> Result<PublisherKey, Problem> {
        let failed = |what: &str| Problem::failure(format!("{}: {what}", text::file(path)));
        let key = Ed25519KeyPair::generate().map_err(|_| failed("no key was made"))?;
        let der = key.to_pkcs8v1().map_err(|_| failed("no key was made"))?;
        let body = base64(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
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
        Ok(PublisherKey(key))
    }

    /// Returns the public key, 32 bytes.
    pub fn public(&self) -> [u8; 32] {
        let mut key = [0; 32];
        // An Ed25519 public key has 32 bytes (RFC 8032 §5.1.5).
        key.copy_from_slice(self.0.public_key().as_ref());
        key
    }

    /// Returns true if this key made the signature of a publication.
    pub fn has_signed(&self, publication: &Publication) -> bool {
        publication.key == Some(self.public()) && is_verified(publication)
    }

    /// Returns the signed text of a pointer.
    pub fn sign(&self, pointer: &ReleasePointer) -> String {
        let key = self.public();
        let signed = self.0.sign(pointer.to_be_signed(&key).as_bytes());
        let mut signature = [0; 64];
        // An Ed25519 signature has 64 bytes (RFC 8032 §5.1.6).
        signature.copy_from_slice(signed.as_ref());
        pointer.signed_text(&key, &signature)
    }
}

/// Returns true if the signature of a publication is right. The key is perhaps of another publisher.
pub fn is_verified(publication: &Publication) -> bool {
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
        let made = PublisherKey::make(&path).expect("a key");
        let read = PublisherKey::read(&path).expect("a key");
        assert_eq!(made.public(), read.public());
        assert!(PublisherKey::make(&path).is_err());
        let pointer = ReleasePointer {
            site: "www".to_owned(),
            release: [1; 32],
            sequence: 1,
            time: 1,
            publisher: "ann@laptop".to_owned(),
        };
        let text = read.sign(&pointer);
        let (parsed, signature) = ReleasePointer::parse(text.as_bytes()).expect("a pointer");
        let signature = signature.expect("a signature");
        assert_eq!(parsed, pointer);
        let key = UnparsedPublicKey::new(&ED25519, signature.key);
        assert!(key.verify(signature.signed, &signature.signature).is_ok());
        let mut publication = Publication {
            pointer: parsed,
            key: Some(signature.key),
            signature: Some(signature.signature),
        };
        assert!(is_verified(&publication) && read.has_signed(&publication));
        let other = PublisherKey::make(&folder.path().join("other.pem")).expect("a key");
        assert!(!other.has_signed(&publication));
        publication.pointer.release = [2; 32];
        assert!(!is_verified(&publication) && !read.has_signed(&publication));
        std::fs::write(&path, "x").expect("a write");
        assert!(PublisherKey::read(&path).is_err());
    }
}
