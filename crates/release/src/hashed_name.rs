//! Names that contain a hash of the content, as bundlers write them: `app-3f2a91c8.css`, `app.3f2a91c8.js`.
//!
//! Browsers keep a file with such a name for a year. A name is therefore recognised only if the hash looks like no word
//! and no number.

/// Least number of digits of a hash.
const HASH_DIGITS_MIN: usize = 8;

/// Extensions of files that bundlers name by mixed letters and digits. Names of photos look alike (`iPhone15Pro`).
const BUNDLED: [&str; 9] = [
    "css", "js", "mjs", "cjs", "map", "json", "wasm", "woff", "woff2",
];

/// Returns true if the name of a path contains a hash of the content.
pub fn is_hashed(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let Ok(name) = str::from_utf8(name) else {
        return false;
    };
    let Some((stem, extension)) = name.rsplit_once('.') else {
        return false;
    };
    let extension = extension.to_ascii_lowercase();
    if ["html", "htm", "xhtml"].contains(&extension.as_str()) {
        return false;
    }
    let is_bundled = BUNDLED.contains(&extension.as_str());
    let mut parts = stem.split('.');
    // The first part is a name, perhaps with a hash behind a hyphen. Further parts are hashes, or extensions as in
    // `app.3f2a91c8.js.map`.
    let first = parts.next().unwrap_or_default();
    let behind_hyphen = |part: &str| {
        let hash = part.rsplit_once('-').filter(|(name, _)| !name.is_empty());
        hash.is_some_and(|(_, hash)| is_hash(hash, is_bundled))
    };
    behind_hyphen(first) || parts.any(|part| is_hash(part, is_bundled) || behind_hyphen(part))
}

/// Returns true for a hash in hexadecimal, base32 or, for files of bundlers, base62. The hash has digits and letters.
fn is_hash(text: &str, is_bundled: bool) -> bool {
    let has = |fits: fn(&u8) -> bool| text.as_bytes().iter().any(fits);
    let is_all = |fits: fn(&u8) -> bool| text.as_bytes().iter().all(fits);
    if text.len() < HASH_DIGITS_MIN || !has(u8::is_ascii_digit) || !has(u8::is_ascii_alphabetic) {
        return false;
    }
    let is_hexadecimal = is_all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_base32 = is_all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
    let is_base62 = is_all(u8::is_ascii_alphanumeric)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase);
    is_hexadecimal || is_base32 || is_bundled && is_base62
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_bundlers_are_recognised() {
        for name in [
            "name-3f2a91c8.css",
            "name.3f2a91c8.js",
            "assets/index-BdT9ax1Q.js",
            "chunk-5WXVJ6QK.js",
            "main.3f2a91c8.chunk.js",
            "main.3f2a91c8.js.map",
            "photo-0c5b7a1d9e44.avif",
            "a.b-3f2a91c8.css",
        ] {
            assert!(is_hashed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn other_names_are_not() {
        for name in [
            "style.css",
            "name-3f2a91c.css",
            "name-12345678.css",
            "name-abcdefab.css",
            "report-20260301.pdf",
            "photo-iPhone15Pro.jpg",
            "-3f2a91c8.css",
            "3f2a91c8.css",
            "name-3f2a91c8",
            "commit-3f2a91c8.html",
            "jquery-3.7.1.min.js",
            "component-library.js",
        ] {
            assert!(!is_hashed(name.as_bytes()), "{name}");
        }
        assert!(!is_hashed(b"name-3f2a91c8\xff.css"));
    }
}
