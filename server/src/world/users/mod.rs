//! Who may come in, by password: an htpasswd file, and the logins checked against it.
//!
//! Hashes are slow on purpose, so they are computed off the workers and what came out is remembered
//! for a minute ([`Logins`]). Whether a user exists can't be told from how long a refusal takes.

mod basic_auth;
mod password_hash;
mod hash_queue;
mod login_limiter;
mod logins;

use std::collections::HashMap;
use std::hash::BuildHasher;

use aws_lc_rs::digest;

use crate::world::users::password_hash::PasswordHash;

pub use crate::world::users::password_hash::{PasswordTooLong, hash_password};
pub use logins::{LoginLookup, Logins, UnverifiedLogin};

/// The users of one file, with the hashes of their passwords.
#[derive(Debug)]
pub struct Users {
    /// By name, the index in `hashes`.
    names: HashMap<Box<str>, usize>,
    hashes: Vec<PasswordHash>,
    /// Stands for the file's content: a remembered login is worth nothing once that has changed.
    generation: [u8; 32],
}

/// A line that can't be understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsersError {
    /// Which, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub help: String,
}

impl Users {
    /// Reads a file's text: lines of `NAME:HASH`, what follows another colon ignored, as are empty
    /// lines and those that begin with `#`.
    pub fn parse(text: &[u8]) -> Result<Users, UsersError> {
        let mut users = Users {
            names: HashMap::new(),
            hashes: Vec::new(),
            generation: [0; 32],
        };
        let content = digest::digest(&digest::SHA256, text);
        users.generation.copy_from_slice(content.as_ref());
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
        let line = std::str::from_utf8(line).map_err(|_| error("this is no UTF-8", "UTF-8"))?;
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (name, rest) = line
            .split_once(':')
            .ok_or_else(|| error("there is no `:` in this line", "NAME:HASH"))?;
        if !is_name(name) {
            let help = "1 to 255 bytes without control characters";
            return Err(error("this is no user's name", help));
        }
        let text = rest.split(':').next().unwrap_or_default();
        let hash = PasswordHash::parse(text)
            .map_err(|what| (format!("the hash of `{name}` {what}"), help_for(name)))?;
        let index = self.hashes.len();
        if self.names.insert(name.into(), index).is_some() {
            let what = format!("`{name}` stands here a second time");
            return Err((what, "one line for each user".to_owned()));
        }
        self.hashes.push(hash);
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is a user of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Whether the password is right. Slow on purpose (a tenth of a second and more): never on a
    /// worker. Somebody unknown takes as long as one of the known: the name picks which.
    fn verify(&self, name: &str, password: &[u8]) -> bool {
        let known = self.names.get(name).copied();
        let index = known.unwrap_or_else(|| {
            let random = self.names.hasher().hash_one(name);
            (random % self.hashes.len().max(1) as u64) as usize
        });
        let right = match self.hashes.get(index) {
            Some(hash) => hash.verify(password),
            None => PasswordHash::stand_in().verify(password),
        };
        right && known.is_some()
    }
}

/// Whether this can be a user's name, in a file and in a request (RFC 7617 §2: no colon, no control
/// characters; a `#` would begin a comment).
pub fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && !name.starts_with('#')
        && !name.contains(|char: char| char == ':' || char.is_control())
}

fn help_for(name: &str) -> String {
    format!("`anthill passwd FILE {name}` sets a new password; $2y$, $6$, $apr1$ and $1$ are known")
}

#[cfg(test)]
mod tests;
