//! Key of the signed session cookies, kept in a file of the state folder, so that sessions stay with their
//! members over a restart and an upgrade.
//!
//! The file is text with one line of 64 hex digits. Lines that begin with `#` are skipped.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use balancer::SessionKey;
use base::atomic_file;
use base::digest::hex;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Loads the key of the state folder. Makes and stores a new key if the file is missing or malformed. If the
/// file can't be read or stored, the function logs a warning and returns a key that is lost at the next
/// restart: clients then lose their members, but every request is served.
///
/// # Errors
/// Fails if the system has no randomness.
pub fn load_or_make(state: &Path) -> Result<SessionKey, Unspecified> {
    let path = state.join(FILE);
    match atomic_file::read(&path) {
        Ok(content) => match parse(&content) {
            Ok(key) => return Ok(SessionKey::new(&key)),
            Err(fault) => {
                let file = path.display();
                log::warn!("{file}: {fault}; the sessions of signed cookies start anew");
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            warn_of_loss(&path, &error);
            return make();
        }
    }
    let key = random()?;
    if let Err(error) = atomic_file::write(&path, text(&key).as_bytes(), 0o600) {
        warn_of_loss(&path, &error);
    }
    Ok(SessionKey::new(&key))
}

/// Makes a key that is lost at the end of the process.
///
/// # Errors
/// Fails if the system has no randomness.
pub fn make() -> Result<SessionKey, Unspecified> {
    Ok(SessionKey::new(&random()?))
}

fn warn_of_loss(path: &Path, error: &io::Error) {
    let file = path.display();
    log::warn!("{file}: {error}; the sessions of signed cookies end at the next restart");
}

fn random() -> Result<[u8; KEY_BYTES], Unspecified> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key)?;
    Ok(key)
}

/// Parses the content of the file. An error describes the fault.
fn parse(content: &[u8]) -> Result<[u8; KEY_BYTES], &'static str> {
    let text = str::from_utf8(content).map_err(|_| "the file is not text")?;
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let digits = lines.next().ok_or("the file has no key")?.as_bytes();
    if lines.next().is_some() || digits.len() != 2 * KEY_BYTES {
        return Err("the file is not one line of 64 hex digits");
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
            return Err("the key has a character other than hex digits");
        };
        *byte = (high << 4 | low) as u8;
    }
    if key.iter().all(|byte| *byte == key[0]) {
        Err("the key is easy to guess")
    } else {
        Ok(key)
    }
}

fn text(key: &[u8; KEY_BYTES]) -> String {
    format!(
        "# Key of the signed session cookies. A reader of this file can choose the member of a session.\n{}\n",
        hex(key)
    )
}

/// Name of the file in the state folder.
const FILE: &str = "sessions.key";
/// Bytes of a key: the length of the hash of HMAC-SHA256, as RFC 2104 §3 recommends.
const KEY_BYTES: usize = 32;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// Loads the key and returns the content of the file, or None without a file.
    fn load(state: &Path) -> Option<Vec<u8>> {
        load_or_make(state).unwrap();
        fs::read(state.join(FILE)).ok()
    }

    #[test]
    fn a_stored_key_is_loaded_again() {
        let state = tempfile::tempdir().unwrap();
        let first = load(state.path()).unwrap();
        assert_eq!(load(state.path()).unwrap(), first);
        let mode = fs::metadata(state.path().join(FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let key = parse(&first).unwrap();
        assert_eq!(parse(text(&key).as_bytes()), Ok(key));
        // Another folder has another key.
        let other = tempfile::tempdir().unwrap();
        assert_ne!(load(other.path()).unwrap(), first);
    }

    #[test]
    fn a_malformed_file_is_replaced() {
        let digits = "0123456789abcdef".repeat(4);
        assert!(parse(format!("# one\n\n {digits} \r\n").as_bytes()).is_ok());
        let bad: [&[u8]; 8] = [
            b"",
            b"# no key\n",
            &digits.as_bytes()[1..],
            &[digits.as_bytes(), b"0"].concat(),
            &[digits.as_bytes(), b"\n", digits.as_bytes()].concat(),
            &[b"g", &digits.as_bytes()[1..]].concat(),
            &[b'0'; 64],
            &[0xff; 64],
        ];
        for content in bad {
            let state = tempfile::tempdir().unwrap();
            fs::write(state.path().join(FILE), content).unwrap();
            let new = load(state.path()).unwrap();
            assert!(parse(&new).is_ok(), "{new:?}");
            assert_eq!(load(state.path()).unwrap(), new);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_or_stored_stays_as_it_is() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join(FILE)).unwrap();
        assert_eq!(load(state.path()), None);
        assert!(state.path().join(FILE).is_dir());
        // A file in the place of the folder.
        let file = state.path().join("file");
        fs::write(&file, "content").unwrap();
        assert_eq!(load(&file), None);
        assert_eq!(fs::read(&file).unwrap(), b"content");
    }
}
