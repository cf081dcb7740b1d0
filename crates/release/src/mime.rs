//! Media types by file name, the types worth compressing, and files that are compressed already.
//!
//! The types follow the IANA registry, else the expectations of browsers. Text types carry the charset
//! UTF-8. JSON has no charset parameter (RFC 8259 §11).

use crate::glob::Glob;
use wire::fields::ContentCoding;

/// Files to which the operator gives a media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaPattern {
    /// Names with an ending, given with its dot.
    Ending(String),
    /// Names or paths by a glob.
    Files(Glob),
}

/// Media types of the operator. Of several globs that match, the first one decides.
pub type MediaRules = Vec<(MediaPattern, String)>;

/// Media type of files with an unknown extension.
pub const UNKNOWN: &str = "application/octet-stream";

/// Returns the media type of the file at a path. The operator's types in `own` take precedence: first the globs, then
/// the endings, of which the longest wins, so that `.tar.gz` may differ from `.gz`.
pub fn of<'a>(path: &[u8], own: &'a [(MediaPattern, String)]) -> &'a str {
    of_coded(path, ContentCoding::Identity, own)
}

/// Returns the media type of the file at a path whose content has a coding. The ending of the coding does not count:
/// the content of `a.js.gz` with the coding gzip is a script.
pub fn of_coded<'a>(
    path: &[u8],
    coding: ContentCoding,
    own: &'a [(MediaPattern, String)],
) -> &'a str {
    let by_glob = own
        .iter()
        .find(|(pattern, _)| matches!(pattern, MediaPattern::Files(glob) if glob.matches(path)));
    if let Some((_, kind)) = by_glob {
        return kind;
    }
    let path = without_ending_of(coding, path);
    let by_ending = own.iter().filter_map(|(pattern, kind)| match pattern {
        MediaPattern::Ending(ending) => ends_with(path, ending).then_some((ending.len(), kind)),
        MediaPattern::Files(_) => None,
    });
    if let Some((_, kind)) = by_ending.max_by_key(|(length, _)| *length) {
        return kind;
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => known(&name[dot + 1..]).unwrap_or(UNKNOWN),
        None if name == b"apple-app-site-association" => "application/json",
        None => UNKNOWN,
    }
}

/// Returns the coding of the content of a file as the file lies on disk: gzip for compressed SVG, whose media type is
/// that of plain SVG.
pub fn built_in_coding(path: &[u8]) -> ContentCoding {
    if ends_with(path, ".svgz") {
        ContentCoding::Gzip
    } else {
        ContentCoding::Identity
    }
}

fn without_ending_of(coding: ContentCoding, path: &[u8]) -> &[u8] {
    let endings: &[&str] = match coding {
        ContentCoding::Identity => &[],
        ContentCoding::Gzip => &[".gz"],
        ContentCoding::Br => &[".br"],
        ContentCoding::Zstd => &[".zst"],
    };
    let ending = endings.iter().find(|ending| ends_with(path, ending));
    &path[..path.len() - ending.map_or(0, |ending| ending.len())]
}

fn ends_with(name: &[u8], ending: &str) -> bool {
    name.len() >= ending.len()
        && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending.as_bytes())
}

/// Returns true if content of the media type is worth compressing. Parameters are ignored.
pub fn compressible(kind: &str) -> bool {
    let bare = kind.split(';').next().unwrap_or(kind).trim().as_bytes();
    let is_text = bare.first_chunk::<5>();
    is_text.is_some_and(|begin| begin.eq_ignore_ascii_case(b"text/"))
        || ends_with(bare, "+xml")
        || ends_with(bare, "+json")
        || COMPRESSIBLE
            .iter()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(bare))
}

fn known(extension: &[u8]) -> Option<&'static str> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    let at = TYPES
        .binary_search_by(|(known, _)| known.as_bytes().cmp(lower))
        .ok()?;
    Some(TYPES[at].1)
}

/// Compressible types besides `text/*`, `*+xml` and `*+json`.
const COMPRESSIBLE: &[&str] = &[
    "application/json",
    "application/javascript",
    "application/xml",
    "application/xml-dtd",
    "application/wasm",
    "application/rtf",
    "application/postscript",
    "application/sql",
    "application/toml",
    "application/yaml",
    "application/x-sh",
    "application/x-ndjson",
    "application/jsonl",
    "application/vnd.ms-fontobject",
    "application/x-subrip",
    "font/ttf",
    "font/otf",
    "font/collection",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-portable-anymap",
    "model/gltf-binary",
    "model/stl",
];

/// Media types, sorted by extension.
#[rustfmt::skip]
const TYPES: &[(&str, &str)] = &[
    ("3g2", "video/3gpp2"),
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("ai", "application/postscript"),
    ("aif", "audio/aiff"),
    ("aiff", "audio/aiff"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("asc", "text/plain; charset=utf-8"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cbor", "application/cbor"),
    ("cbz", "application/vnd.comicbook+zip"),
    ("cer", "application/pkix-cert"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("cpp", "text/plain; charset=utf-8"),
    ("crl", "application/pkix-crl"),
    ("crt", "application/x-x509-ca-cert"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("der", "application/x-x509-ca-cert"),
    ("diff", "text/plain; charset=utf-8"),
    ("djvu", "image/vnd.djvu"),
    ("dmg", "application/octet-stream"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dtd", "application/xml-dtd"),
    ("eml", "message/rfc822"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("exe", "application/octet-stream"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("go", "text/plain; charset=utf-8"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("ini", "text/plain; charset=utf-8"),
    ("iso", "application/octet-stream"),
    ("jar", "application/java-archive"),
    ("java", "text/plain; charset=utf-8"),
    ("jfif", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("key", "application/vnd.apple.keynote"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("log", "text/plain; charset=utf-8"),
    ("lz4", "application/x-lz4"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("markdown", "text/markdown; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mka", "audio/matroska"),
    ("mkv", "video/matroska"),
    ("mml", "application/mathml+xml"),
    ("mobi", "application/x-mobipocket-ebook"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/octet-stream"),
    ("ndjson", "application/x-ndjson"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opml", "text/x-opml; charset=utf-8"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("p7b", "application/x-pkcs7-certificates"),
    ("parquet", "application/vnd.apache.parquet"),
    ("patch", "text/plain; charset=utf-8"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/plain; charset=utf-8"),
    ("rar", "application/vnd.rar"),
    ("rdf", "application/rdf+xml"),
    ("rpm", "application/x-rpm"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("rtf", "application/rtf"),
    ("sh", "application/x-sh"),
    ("sig", "application/pgp-signature"),
    ("sql", "application/sql"),
    ("sqlite", "application/vnd.sqlite3"),
    ("srt", "application/x-subrip"),
    ("stl", "model/stl"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("svgz", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vcard", "text/vcard; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xht", "application/xhtml+xml; charset=utf-8"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml; charset=utf-8"),
    ("xsd", "application/xml; charset=utf-8"),
    ("xsl", "application/xslt+xml; charset=utf-8"),
    ("xslt", "application/xslt+xml; charset=utf-8"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_entry_is_found() {
        for pair in TYPES.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} before {}", pair[0].0, pair[1].0);
        }
        for (extension, kind) in TYPES {
            assert_eq!(
                of(format!("a.{}", extension.to_uppercase()).as_bytes(), &[]),
                *kind
            );
        }
    }

    #[test]
    fn types_of_the_operator_take_precedence() {
        let ending = |text: &str| MediaPattern::Ending(text.into());
        let files = |text: &str| MediaPattern::Files(Glob::parse(text).expect("valid"));
        let own = [
            (files("/.well-known/**"), "a/known".into()),
            (files("client"), "a/client".into()),
            (files("*.x.gz"), "a/x".into()),
            (ending(".gz"), "a/gz".into()),
            (ending(".tar.gz"), "a/tar".into()),
        ];
        for (name, kind) in [
            ("x/index.html", "text/html; charset=utf-8"),
            ("data.json", "application/json"),
            ("a.tar.gz", "a/tar"),
            ("a.GZ", "a/gz"),
            ("dir/a.x.gz", "a/x"),
            ("dir/client", "a/client"),
            (".well-known/matrix/client", "a/known"),
            (".well-known/apple-app-site-association", "a/known"),
            ("apple-app-site-association", "application/json"),
            ("dir.css/README", UNKNOWN),
            ("README", UNKNOWN),
            ("a.", UNKNOWN),
            ("a.averyveryverylongextension", UNKNOWN),
        ] {
            assert_eq!(of(name.as_bytes(), &own), kind, "{name}");
        }
    }

    #[test]
    fn the_ending_of_a_coding_does_not_count() {
        let own = [
            (MediaPattern::Ending(".gz".into()), "a/gz".to_owned()),
            (MediaPattern::Ending(".js".into()), "a/js".to_owned()),
        ];
        for (name, coding, kind) in [
            ("a.js.gz", ContentCoding::Gzip, "a/js"),
            ("a.js.GZ", ContentCoding::Gzip, "a/js"),
            ("a.js.gz", ContentCoding::Identity, "a/gz"),
            ("a.wasm.br", ContentCoding::Br, "application/wasm"),
            ("a.data.zst", ContentCoding::Zstd, UNKNOWN),
            ("a.js", ContentCoding::Gzip, "a/js"),
            ("a.svgz", ContentCoding::Gzip, "image/svg+xml"),
        ] {
            assert_eq!(of_coded(name.as_bytes(), coding, &own), kind, "{name}");
        }
        assert_eq!(built_in_coding(b"a/b.SVGZ"), ContentCoding::Gzip);
        assert_eq!(built_in_coding(b"a/b.svg.gz"), ContentCoding::Identity);
    }

    #[test]
    fn text_types_are_compressible() {
        for kind in [
            "text/html; charset=utf-8",
            "application/json",
            "image/svg+xml",
            "application/wasm",
        ] {
            assert!(compressible(kind), "{kind}");
        }
        for kind in [
            "image/png",
            "font/woff2",
            "video/mp4",
            "application/gzip",
            UNKNOWN,
        ] {
            assert!(!compressible(kind), "{kind}");
        }
    }
}
