//! Media types of raw files. Files come from untrusted sources, so a browser must not run any content.

/// Returns the media type of a file by its path and the beginning of its content.
pub(crate) fn content_type(path: &[u8], beginning: &[u8]) -> &'static str {
    match image(path) {
        Some(image) => image,
        None if is_binary(beginning) => "application/octet-stream",
        None => "text/plain; charset=utf-8",
    }
}

/// Returns the media type of an image without scripts, by the file name extension.
pub(crate) fn image(path: &[u8]) -> Option<&'static str> {
    let dot = path.iter().rposition(|byte| *byte == b'.')?;
    let ending = path[dot + 1..].to_ascii_lowercase();
    let all = IMAGES.iter();
    let mut all = all.filter(|(its, _)| its.as_bytes() == ending);
    all.next().map(|(_, kind)| *kind)
}

const IMAGES: [(&str, &str); 8] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("ico", "image/x-icon"),
];

/// Returns true if the content has a NUL near the beginning, the criterion of git for binary files.
pub(crate) fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(LOOKED_AT_BYTES)].contains(&0)
}

const LOOKED_AT_BYTES: usize = 8_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_type_lets_a_browser_run_a_file() {
        for name in [
            "a.html",
            "a.htm",
            "a.svg",
            "a.xml",
            "a.xhtml",
            "a.js",
            "a.pdf",
            "html",
            "a.PNG.html",
        ] {
            assert_eq!(
                content_type(name.as_bytes(), b"<script>"),
                "text/plain; charset=utf-8"
            );
            assert_eq!(
                content_type(name.as_bytes(), b"\0"),
                "application/octet-stream"
            );
        }
        assert_eq!(content_type(b"x/a.PNG", b""), "image/png");
    }
}
