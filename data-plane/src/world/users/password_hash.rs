//! Password hashes in the formats of htpasswd and crypt(3): bcrypt, SHA-512-crypt and MD5-crypt.
//!
//! MD5-crypt is supported because most files of the last thirty years use the format. New hashes use
//! bcrypt.

use std::fmt;
use std::iter::repeat_n;
use std::ops::RangeInclusive;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA512};
use md5::{Digest, Md5};

/// Parsed hash of a user's password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PasswordHash {
    /// `$2y$`, `$2a$` or `$2b$`, as the whole text.
    Bcrypt(String),
    /// `$6$`.
    Sha512 {
        rounds: u32,
        salt: String,
        sum: String,
    },
    /// `$apr1$` or `$1$`, formats with different magic and the same algorithm.
    Md5 {
        magic: &'static str,
        salt: String,
        sum: String,
    },
}

impl PasswordHash {
    /// Parses a hash. The error text continues a sentence that begins with "the hash …".
    pub(super) fn parse(text: &str) -> Result<PasswordHash, String> {
        if ["$2y$", "$2a$", "$2b$"]
            .iter()
            .any(|id| text.starts_with(id))
        {
            return bcrypt_of(text);
        }
        if let Some(rest) = text.strip_prefix("$6$") {
            return sha512_of(rest).ok_or_else(|| broken("SHA-512-crypt"));
        }
        for magic in ["$apr1$", "$1$"] {
            if let Some(rest) = text.strip_prefix(magic) {
                return md5_of(magic, rest).ok_or_else(|| broken("MD5-crypt"));
            }
        }
        Err(format!("is {}", name_of_unknown(text)))
    }

    /// Returns true if the password is right. The time depends on the cost in the hash.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match self {
            // The comparison in `bcrypt` takes constant time as well.
            PasswordHash::Bcrypt(text) => bcrypt::verify(password, text).unwrap_or(false),
            PasswordHash::Sha512 { rounds, salt, sum } => {
                let found = encode_sha512(&sha512_crypt(password, salt.as_bytes(), *rounds));
                verify_slices_are_equal(&found, sum.as_bytes()).is_ok()
            }
            PasswordHash::Md5 { magic, salt, sum } => {
                let found = md5_crypt(password, magic.as_bytes(), salt.as_bytes());
                verify_slices_are_equal(&encode_md5(&found), sum.as_bytes()).is_ok()
            }
        }
    }

    /// Returns the hash to check unknown users against if the file has no users.
    pub(super) fn stand_in() -> PasswordHash {
        PasswordHash::Bcrypt(STAND_IN.to_owned())
    }
}

/// Error for a password over 71 bytes: bcrypt hashes at most 72 bytes, the last of which is a NUL.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PasswordTooLong;

impl fmt::Display for PasswordTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a password may have at most 71 bytes")
    }
}

impl std::error::Error for PasswordTooLong {}

/// Computes a new hash for a users file (`$2y$`). The function is slow on purpose.
pub fn hash_password(password: &[u8]) -> Result<String, PasswordTooLong> {
    let parts = bcrypt::non_truncating_hash_with_result(password, BCRYPT_COST);
    let parts = parts.map_err(|_| PasswordTooLong)?;
    Ok(parts.format_for_version(bcrypt::Version::TwoY))
}

fn bcrypt_of(text: &str) -> Result<PasswordHash, String> {
    let parts: bcrypt::HashParts = text.parse().map_err(|_| broken("bcrypt"))?;
    match parts.get_cost() {
        4..=BCRYPT_COST_MAX => Ok(PasswordHash::Bcrypt(text.to_owned())),
        0..=3 => Err(broken("bcrypt")),
        cost => Err(format!(
            "has bcrypt's cost {cost}: each login would take minutes (at most {BCRYPT_COST_MAX})"
        )),
    }
}

fn sha512_of(rest: &str) -> Option<PasswordHash> {
    let (rounds, rest) = match rest.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$')?;
            (rounds.parse().ok()?, rest)
        }
        None => (SHA512_ROUNDS, rest),
    };
    let (salt, sum) = rest.split_once('$')?;
    (SHA512_ROUNDS_ALLOWED.contains(&rounds) && salt.len() <= 16 && is_sum(sum, 86)).then(|| {
        PasswordHash::Sha512 {
            rounds,
            salt: salt.to_owned(),
            sum: sum.to_owned(),
        }
    })
}

fn md5_of(magic: &'static str, rest: &str) -> Option<PasswordHash> {
    let (salt, sum) = rest.split_once('$')?;
    (salt.len() <= 8 && is_sum(sum, 22)).then(|| PasswordHash::Md5 {
        magic,
        salt: salt.to_owned(),
        sum: sum.to_owned(),
    })
}

fn is_sum(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| CRYPT_ALPHABET.contains(&byte))
}

fn broken(scheme: &str) -> String {
    format!("begins like a hash of {scheme}, but is malformed")
}

fn name_of_unknown(text: &str) -> &'static str {
    const NAMES: [(&str, &str); 9] = [
        ("{SHA}", "an unsalted SHA-1, which is too weak"),
        (
            "$2x$",
            "of bcrypt's faulty variant ($2x$), which is not supported",
        ),
        ("$5$", "of SHA-256-crypt ($5$), which is not supported"),
        ("$7$", "of scrypt ($7$), which is not supported"),
        ("$y$", "of yescrypt ($y$), which is not supported"),
        ("$gy$", "of gost-yescrypt ($gy$), which is not supported"),
        ("$argon2", "of Argon2, which is not supported"),
        ("$sha1$", "of SHA-1-crypt ($sha1$), which is not supported"),
        ("$", "of an unknown scheme"),
    ];
    match NAMES.iter().find(|(id, _)| text.starts_with(id)) {
        Some((_, name)) => name,
        None if is_sum(text, 13) => "of DES-crypt, which is too weak",
        None => "not a hash: a password in plain text is not accepted",
    }
}

/// Computes MD5-crypt by Poul-Henning Kamp, from FreeBSD 2 and later adopted by Apache.
fn md5_crypt(password: &[u8], magic: &[u8], salt: &[u8]) -> [u8; 16] {
    let mut inner = Md5::new();
    inner.update(password);
    inner.update(salt);
    inner.update(password);
    let inner: [u8; 16] = inner.finalize().into();

    let mut first = Md5::new();
    first.update(password);
    first.update(magic);
    first.update(salt);
    for part in password.chunks(16) {
        first.update(&inner[..part.len()]);
    }
    // The algorithm adds a byte for each bit of the length, an accident that became the standard.
    let mut bits = password.len();
    while bits != 0 {
        match bits & 1 {
            1 => first.update([0]),
            _ => first.update(&password[..1]),
        }
        bits >>= 1;
    }
    let mut sum: [u8; 16] = first.finalize().into();

    for round in 0..1_000 {
        let mut next = Md5::new();
        let is_odd = round % 2 == 1;
        next.update(if is_odd { password } else { &sum });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &sum } else { password });
        sum = next.finalize().into();
    }
    sum
}

/// Computes SHA-512-crypt after Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512" of 2008. The
/// numbers in comments are the steps of the specification.
fn sha512_crypt(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 64] {
    let inner = sha512([password, salt, password]); // 4 to 8

    let mut first = Vec::from([password, salt]); // 1 to 3
    first.extend(password.chunks(64).map(|part| &inner[..part.len()])); // 9, 10
    let mut bits = password.len(); // 11
    while bits != 0 {
        first.push(if bits & 1 == 1 { &inner } else { password });
        bits >>= 1;
    }
    let mut sum = sha512(first); // 12

    // The next steps replace the password (13 to 16) and the salt (17 to 20) by a digest of the same
    // length.
    let of_password = sha512(repeat_n(password, password.len()));
    let of_salt = sha512(repeat_n(salt, 16 + usize::from(sum[0])));
    let password = filled(&of_password, password.len());
    let salt = filled(&of_salt, salt.len());

    for round in 0..rounds {
        let is_odd = round % 2 == 1;
        sum = sha512([
            if is_odd { &password[..] } else { &sum },
            if round % 3 != 0 { &salt } else { &[] },
            if round % 7 != 0 { &password } else { &[] },
            if is_odd { &sum } else { &password },
        ]); // 21
    }
    sum
}

fn sha512<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 64] {
    let mut context = Context::new(&SHA512);
    for part in parts {
        context.update(part);
    }
    let mut sum = [0; 64];
    sum.copy_from_slice(context.finish().as_ref());
    sum
}

/// Repeats the digest up to `length` bytes.
fn filled(digest: &[u8; 64], length: usize) -> Vec<u8> {
    digest.iter().copied().cycle().take(length).collect()
}

fn encode_md5(sum: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(22);
    for [high, middle, low] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        push_crypt(&mut out, [sum[high], sum[middle], sum[low]], 4);
    }
    push_crypt(&mut out, [0, 0, sum[11]], 2);
    out
}

fn encode_sha512(sum: &[u8; 64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(86);
    let mut at = [0, 21, 42];
    for _ in 0..21 {
        push_crypt(&mut out, at.map(|index| sum[index]), 4);
        at = [at[1] + 1, at[2] + 1, at[0] + 1];
    }
    push_crypt(&mut out, [0, 0, sum[63]], 2);
    out
}

/// Writes 3 bytes as up to 4 characters of crypt(3)'s own base64, the lowest bits first.
fn push_crypt(out: &mut Vec<u8>, [high, middle, low]: [u8; 3], characters: usize) {
    let mut bits = u32::from_be_bytes([0, high, middle, low]);
    for _ in 0..characters {
        out.push(CRYPT_ALPHABET[(bits & 63) as usize]);
        bits >>= 6;
    }
}

const CRYPT_ALPHABET: &[u8; 64] =
    b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Number of rounds for a hash without a number.
const SHA512_ROUNDS: u32 = 5_000;
/// Allowed number of rounds. crypt(3) clamps a number to the range, so a hash never holds any other number.
const SHA512_ROUNDS_ALLOWED: RangeInclusive<u32> = 1_000..=999_999_999;
/// Cost of new hashes: 2^10 rounds take a tenth of a second on a small server.
const BCRYPT_COST: u32 = 10;
/// Maximum cost: 2^16 rounds take some seconds, and each further step doubles the time.
const BCRYPT_COST_MAX: u32 = 16;
const STAND_IN: &str = "$2y$10$xXCUa6TfQqRAsfmwLN2nqusiWb9ee/d7iX5lrjNIIv1JHV65NUIIK";

#[cfg(test)]
mod tests;
