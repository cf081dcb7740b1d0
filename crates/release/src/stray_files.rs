//! Names of files that editors, backups and exports leave beside the files of a site, and that few sites mean to send.

use crate::glob::Glob;

/// Globs of the files that a folder hides without a setting: no site has a page with such a name.
pub const HIDDEN_GLOBS: [&str; 4] = ["*~", "*.swp", "#*#", "*.orig"];
/// Endings of files that are sent, and that an operator is told of: a site may offer such files for download.
pub const DOUBTFUL_ENDINGS: [&str; 3] = [".bak", ".sql", ".old"];
/// Endings of files with a content coding.
const CODING_ENDINGS: [&str; 3] = [".gz", ".br", ".zst"];

/// Returns the globs of [`HIDDEN_GLOBS`].
pub fn hidden_globs() -> Vec<Glob> {
    let globs = HIDDEN_GLOBS.iter();
    globs.filter_map(|glob| Glob::parse(glob).ok()).collect()
}

/// Returns true if a folder hides the file or folder with the name, with or without the ending of a content coding.
pub fn is_hidden(name: &[u8]) -> bool {
    let is_hidden = |name: &[u8]| {
        matches!(name, [b'#', .., b'#'])
            || ["~", ".swp", ".orig"]
                .iter()
                .any(|ending| name.ends_with(ending.as_bytes()))
    };
    is_hidden(name) || without_coding(name).is_some_and(is_hidden)
}

/// Returns true if an operator is told of the file with the name: a backup, or an export of a database, perhaps with a
/// content coding.
pub fn is_doubtful(name: &[u8]) -> bool {
    let name = without_coding(name).unwrap_or(name);
    DOUBTFUL_ENDINGS.iter().any(|ending| {
        let start = name.len().checked_sub(ending.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(ending.as_bytes()))
    })
}

/// Returns a path without the ending of a content coding; `None` for a path without such an ending.
pub fn without_coding(path: &[u8]) -> Option<&[u8]> {
    let mut endings = CODING_ENDINGS.iter();
    endings.find_map(|ending| path.strip_suffix(ending.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hidden_as_by_the_globs() {
        let globs = hidden_globs();
        assert_eq!(globs.len(), HIDDEN_GLOBS.len());
        for (name, is_hidden_name) in [
            ("wp-config.php~", true),
            ("~", true),
            ("x.swp", true),
            ("#x#", true),
            ("##", true),
            ("#", false),
            ("x.orig", true),
            ("page.html~.gz", true),
            ("#x#.br", true),
            ("x.orig.zst", true),
            ("x~y", false),
            ("x.swp.html", false),
            ("x.SWP", false),
            ("x.original", false),
            ("page.html.gz", false),
            ("x.bak", false),
        ] {
            let bytes = name.as_bytes();
            let decoded = without_coding(bytes);
            let by_glob = globs
                .iter()
                .any(|glob| glob.matches(bytes) || decoded.is_some_and(|it| glob.matches(it)));
            assert_eq!(
                (is_hidden(bytes), by_glob),
                (is_hidden_name, is_hidden_name),
                "{name}"
            );
        }
    }

    #[test]
    fn backups_and_exports_are_doubtful() {
        for (name, is_doubtful_name) in [
            ("dump.sql", true),
            ("dump.sql.gz", true),
            ("DUMP.SQL", true),
            ("index.php.bak", true),
            ("a.old", true),
            ("a.old.html", false),
            ("sql", false),
            ("threshold", false),
            ("x.gz", false),
        ] {
            assert_eq!(is_doubtful(name.as_bytes()), is_doubtful_name, "{name}");
        }
    }
}
