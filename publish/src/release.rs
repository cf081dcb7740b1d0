//! Manifest of a release, and the changes between two releases.

use crate::content_target::{CodedContents, FileContents};
use crate::contents::is_text_path;
use crate::problem::Problem;
use crate::site_rules::SiteRules;
use crate::source::Source;
use base::visible_text::shortened;
use release::hashed_name::is_hashed;
use release::manifest::{
    BlobRef, ManifestError, ManifestLine, ManifestReader, ManifestWriter, RedirectLine,
};
pub(crate) use release::manifest::{Change, Changes};
use std::borrow::Cow;
use std::collections::HashMap;

/// Checks the bounds of a release before the files are read. Codings of the contents are not known yet.
pub(crate) fn check_bounds(source: &Source, rules: &SiteRules) -> Result<(), Problem> {
    let contents = source.files.iter().map(|file| FileContents {
        content: BlobRef {
            size: file.size,
            digest: [0; 32],
        },
        coded: Vec::new(),
    });
    let contents: Vec<FileContents> = contents.collect();
    manifest(source, rules, &contents).map(drop)
}

/// Returns the manifest of a release. A release beyond the bounds of the format is an error.
pub(crate) fn manifest(
    source: &Source,
    rules: &SiteRules,
    contents: &[FileContents],
) -> Result<String, Problem> {
    let mut writer = ManifestWriter::default();
    if let Some(page) = &rules.error_page {
        writer.push(&ManifestLine::ErrorPage {
            status: 404,
            path: Cow::Borrowed(page),
        });
    }
    for (files, fields) in &rules.fields {
        writer.push(&ManifestLine::Fields {
            files: Cow::Borrowed(files.as_bytes()),
        });
        for (name, value) in fields {
            writer.push(&ManifestLine::Field {
                name: Cow::Borrowed(name.as_bytes()),
                value: Cow::Borrowed(value.as_bytes()),
            });
        }
    }
    for rule in &rules.redirects {
        writer.push(&ManifestLine::Redirect(RedirectLine {
            status: rule.status,
            is_forced: rule.is_forced,
            from: Cow::Borrowed(&rule.from),
            to: Cow::Borrowed(rule.to.as_bytes()),
        }));
    }
    for (file, contents) in source.files.iter().zip(contents) {
        writer.push(&ManifestLine::File {
            path: Cow::Borrowed(&file.path),
            content: contents.content,
            is_hashed: is_hashed(&file.path),
        });
        for (coding, content) in &contents.coded {
            writer.push(&ManifestLine::Coded {
                coding: *coding,
                content: *content,
            });
        }
    }
    let text = writer.finish();
    // The reader of the server decides about the bounds.
    let lines = ManifestReader::new(text.as_bytes());
    match lines.and_then(|mut lines| lines.try_for_each(|line| line.map(drop))) {
        Ok(()) => Ok(text),
        Err(error) => Err(out_of_bounds(&text, rules, &error)),
    }
}

/// Returns the problem for a line of the manifest, with the file, or with the line of `_redirects`.
fn out_of_bounds(text: &str, rules: &SiteRules, error: &ManifestError) -> Problem {
    let what = error.what;
    let lines = || text.lines().take(error.line);
    let line = lines().last().unwrap_or_default();
    let is_redirect = |line: &&str| line.starts_with("redirect");
    let redirects = lines().filter(is_redirect).count();
    if is_redirect(&line)
        && let Some(rule) = rules.redirects.get(redirects.saturating_sub(1))
    {
        let what = format!("_redirects, line {}: {what}", rule.line);
        return Problem::usage(what).help("correct or remove the line");
    }
    let is_file = line.starts_with("file ") || line.starts_with("hashed ");
    let shown = if is_file {
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    } else {
        shortened(line)
    };
    let is_of_all = ["the release has", "the contents have", "the manifest"]
        .iter()
        .any(|start| what.starts_with(start));
    let what = format!("the folder is no valid release: {shown}: {what}");
    Problem::usage(what).help(if is_of_all {
        "divide the site into several sites"
    } else {
        "rename or remove the file"
    })
}

/// File of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReleaseFile {
    /// Path without initial slash.
    pub path: Vec<u8>,
    /// Contents of the file.
    pub contents: FileContents,
}

/// Returns the files of a manifest.
pub(crate) fn files(text: &[u8]) -> Result<Vec<ReleaseFile>, ManifestError> {
    let mut files: Vec<ReleaseFile> = Vec::new();
    for line in ManifestReader::new(text)? {
        match line? {
            ManifestLine::File { path, content, .. } => files.push(ReleaseFile {
                path: path.into_owned(),
                contents: FileContents {
                    content,
                    coded: Vec::new(),
                },
            }),
            ManifestLine::Coded { coding, content } => {
                if let Some(file) = files.last_mut() {
                    file.contents.coded.push((coding, content));
                }
            }
            _ => {}
        }
    }
    Ok(files)
}

/// Adds the codings of the texts of a release, by the digests of the texts. Codings that are known already stay.
pub(crate) fn note_codings(known: &mut HashMap<[u8; 32], CodedContents>, files: &[ReleaseFile]) {
    for file in files.iter().filter(|file| is_text_path(&file.path)) {
        let text = known.entry(file.contents.content.digest);
        text.or_insert_with(|| file.contents.coded.clone());
    }
}

/// Calls `see` for each difference between two releases in the order of the paths, and returns the numbers.
pub(crate) fn compare(
    old: &[ReleaseFile],
    new: &[ReleaseFile],
    see: impl FnMut(Change, &[u8]),
) -> Changes {
    fn files(files: &[ReleaseFile]) -> impl Iterator<Item = (&[u8], BlobRef)> {
        files.iter().map(|it| (&it.path[..], it.contents.content))
    }
    Changes::compare(files(old), files(new), see)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, digest: u8) -> ReleaseFile {
        let content = BlobRef {
            size: 1,
            digest: [digest; 32],
        };
        ReleaseFile {
            path: path.as_bytes().to_vec(),
            contents: FileContents {
                content,
                coded: Vec::new(),
            },
        }
    }

    #[test]
    fn releases_are_compared_path_by_path() {
        let old = [file("a", 1), file("b/c", 1), file("b-c", 1), file("d", 1)];
        let new = [
            file("a", 1),
            file("b-c", 2),
            file("c", 1),
            file("d", 1),
            file("e", 1),
        ];
        let mut seen = Vec::new();
        let changes = compare(&old, &new, |change, path| {
            seen.push((change, String::from_utf8_lossy(path).into_owned()));
        });
        assert_eq!(
            seen,
            [
                (Change::Removed, "b/c".to_owned()),
                (Change::Changed, "b-c".to_owned()),
                (Change::Added, "c".to_owned()),
                (Change::Added, "e".to_owned())
            ]
        );
        let expected = Changes {
            added: 2,
            changed: 1,
            removed: 1,
        };
        assert_eq!(changes, expected);
    }

    #[test]
    fn bounds_of_all_files_are_checked_before_the_files_are_read() {
        let file = |nth: usize| crate::source::SourceFile {
            content: None,
            path: format!("{nth:06}").into_bytes(),
            real: "missing".into(),
            size: 1,
        };
        let source = |count: usize| Source {
            folder: "site".into(),
            files: (0..count).map(file).collect(),
            headers: None,
            redirects: None,
        };
        let rules = SiteRules::default();
        let refused = check_bounds(&source(250_001), &rules).expect_err("a refusal");
        assert_eq!(
            refused.to_string(),
            "error: the folder is no valid release: 250000: the release has too many files, more than 250,000\n\
             help: divide the site into several sites"
        );
        assert!(check_bounds(&source(2), &rules).is_ok());
    }

    #[test]
    fn a_manifest_beyond_the_bounds_is_refused() {
        let path = vec![b'a'; 256];
        let source = Source {
            folder: "site".into(),
            files: vec![crate::source::SourceFile {
                content: None,
                path,
                real: "a".into(),
                size: 1,
            }],
            headers: None,
            redirects: None,
        };
        let contents = [file("a", 1).contents];
        let error = manifest(&source, &SiteRules::default(), &contents).expect_err("a refusal");
        assert!(
            error.to_string().contains("longer than 255 bytes"),
            "{error}"
        );
    }
}
