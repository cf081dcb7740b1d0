//! Access control by password: an htpasswd file, and the logins checked against the file.
//!
//! Hashing is slow on purpose, so hashes are computed on threads of their own and the result is remembered
//! for a minute ([`Logins`]). The time of a refusal doesn't reveal whether a user exists.

mod basic_auth;
mod password_hash;
mod hash_queue;
mod login_limiter;
mod logins;

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::world::users::password_hash::PasswordHash;
use base::digest::sha256;

pub use crate::world::users::password_hash::hash_password;
pub use basic_auth::user_name;
pub use logins::LoginLookup;
pub use logins::Logins;
pub(crate) use logins::UnverifiedLogin;

/// Users of a file, with the hashes of the passwords.
#[derive(Debug)]
pub struct Users {
    /// Index in `hashes` by user name.
    names: HashMap<Box<str>, usize>,
    hashes: Vec<UserHash>,
    /// Digest of the file's content. A remembered login of an unknown user is valid only for the same content.
    generation: [u8; 32],
}

/// Hash of a user's password.
#[derive(Debug)]
struct UserHash {
    hash: PasswordHash,
    /// Digest of the hash's text. A remembered login is valid only for the same hash.
    generation: [u8; 32],
}

/// Error for an invalid line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsersError {
    /// Line number, starting at 1.
    pub line: usize,
    /// Description of the mistake.
    pub what: String,
    /// Suggested correction.
    pub help: String,
}

impl Users {
    /// Parses the text of a file: lines of `NAME:HASH`. Text after a further colon, empty lines, and lines
    /// beginning with `#` are ignored.
    pub fn parse(text: &[u8]) -> Result<Users, UsersError> {
        let mut users = Users {
            names: HashMap::new(),
            hashes: Vec::new(),
            generation: sha256(text),
        };
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            users.add_line(line).map_err(|(what, help)| UsersError {
                line: index + 1,
                what,
                help,
            })?;
        }
        Ok(users)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), (String, String)> {
        let error = |what: &str, help: &str| (what.to_owned(), help.to_owned());
        let line = std::str::from_utf8(line)
            .map_err(|_| error("the line is not UTF-8", "convert the file to UTF-8"))?;
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (name, rest) = line
            .split_once(':')
            .ok_or_else(|| error("the line has no `:`", "NAME:HASH"))?;
        if !is_name(name) {
            let help = "1 to 255 bytes without control characters";
            return Err(error("the name is not a valid user name", help));
        }
        let text = rest.split(':').next().unwrap_or_default();
        let hash = PasswordHash::parse(text)
            .map_err(|what| (format!("the hash of `{name}` {what}"), help_for(name)))?;
        let index = self.hashes.len();
        if self.names.insert(name.into(), index).is_some() {
            let what = format!("the file has a second line for `{name}`");
            return Err((what, "one line for each user".to_owned()));
        }
        self.hashes.push(UserHash {
            hash,
            generation: sha256(text.as_bytes()),
        });
        Ok(())
    }

    /// Returns true if the file has a user called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Returns the digest that a remembered login of the user depends on. Changes of other users' lines leave the digest
    /// as it is.
    fn generation_of(&self, name: &str) -> &[u8; 32] {
        let known = self.names.get(name).and_then(|at| self.hashes.get(*at));
        known.map_or(&self.generation, |user| &user.generation)
    }

    /// Returns true if the password is right. The check is slow on purpose (a tenth of a second and more)
    /// and must not run on a worker. For an unknown user, the password is checked against the hash of a
    /// user selected by the name, so the check takes as long as for a known user.
    fn verify(&self, name: &str, password: &[u8]) -> bool {
        let known = self.names.get(name).copied();
        let index = known.unwrap_or_else(|| {
            let random = self.names.hasher().hash_one(name);
            (random % self.hashes.len().max(1) as u64) as usize
        });
        let right = match self.hashes.get(index) {
            Some(user) => user.hash.verify(password),
            None => PasswordHash::stand_in().verify(password),
        };
        right && known.is_some()
    }
}

/// Returns true if a name is valid for a user, in a file and in a request (RFC 7617 §2: no colon, no
/// control characters; a `#` would begin a comment).
pub(crate) fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && !name.starts_with('#')
        && !name.contains(|char: char| char == ':' || char.is_control())
}

fn help_for(name: &str) -> String {
    format!(
        "`anthill passwd FILE {name}` sets a new password; $2y$, $6$, $apr1$ and $1$ are supported"
    )
}

#[cfg(test)]
mod tests;
