//! Files of the folder to publish.
//!
//! Hidden names are left out, except `.well-known`. A link to a place inside of the folder counts as the file or folder
//! of its destination; a link to the outside is refused, as are pipes, sockets and devices.

use crate::problem::Problem;
use crate::text;
use release::limits::RELEASE_FILES_MAX;
use release::manifest::{BlobRef, compare_paths};
use release::stray_files;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// File of the folder to publish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceFile {
    /// Path below the folder, without initial slash.
    pub path: Vec<u8>,
    /// Absolute path without links.
    pub real: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Content, if the file has been read already.
    pub content: Option<BlobRef>,
}

/// Folder to publish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    /// Folder as named by the user.
    pub folder: PathBuf,
    /// Files of the release in the order of a manifest.
    pub files: Vec<SourceFile>,
    /// Text of `_headers`, if present.
    pub headers: Option<String>,
    /// Text of `_redirects`, if present.
    pub redirects: Option<String>,
}

impl Source {
    /// Returns a warning about files with names of backups, of editors and of exports. The release has the files, since a
    /// server sends a release as its publisher made it.
    pub(crate) fn stray_files(&self) -> Option<String> {
        let is_stray = |file: &&SourceFile| {
            let mut names = file.path.split(|byte| *byte == b'/');
            let name = file.path.rsplit(|byte| *byte == b'/').next();
            names.any(stray_files::is_hidden) || name.is_some_and(stray_files::is_doubtful)
        };
        let mut stray = self.files.iter().filter(is_stray);
        let first = text::path(&stray.next()?.path);
        let why =
            "by its name a backup or an export, is in the release, and every client can read it";
        Some(match stray.count() {
            0 => format!("{first}, {why}"),
            more => format!(
                "{first}, {why}; {} too",
                text::count(more, "further such file")
            ),
        })
    }

    /// Reads the names below a folder. All refused files are in the error.
    pub(crate) fn read(folder: &Path) -> Result<Source, Problem> {
        let failed = |error: io::Error| {
            Problem::usage(format!("{}: {}", text::file(folder), text::reason(&error)))
        };
        let root = folder.canonicalize().map_err(failed)?;
        if !root.is_dir() {
            let what = format!("{} is no folder", text::file(folder));
            return Err(Problem::usage(what).help("name the folder with the files of the site"));
        }
        let mut scan = Scan {
            root: &root,
            files: Vec::new(),
            refused: Vec::new(),
        };
        scan.folder(&root, &mut Vec::new(), &mut vec![root.clone()])?;
        if let Some(first) = scan.refused.first() {
            let more = match scan.refused.len() {
                1 => String::new(),
                count => format!("\n  and {}", text::count(count - 1, "further file")),
            };
            let listed = scan.refused.iter().take(20).skip(1);
            let listed: String = listed.map(|line| format!("\n  {line}")).collect();
            let help = "remove the files, or move them out of the folder";
            return Err(Problem::usage(format!("{first}{listed}{more}")).help(help));
        }
        let mut files = scan.files;
        files.sort_by(|one, other| compare_paths(&one.path, &other.path));
        let mut take = |name: &str| -> Result<Option<String>, Problem> {
            let Some(at) = files.iter().position(|file| file.path == name.as_bytes()) else {
                return Ok(None);
            };
            let file = files.remove(at);
            let failed = |error| Problem::usage(format!("{}: {error}", text::file(&file.real)));
            let text = String::from_utf8(fs::read(&file.real).map_err(failed)?);
            let text = text.map_err(|error| {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
                Problem::usage(format!("{name}, line {line}: the text is not UTF-8"))
                    .help("percent-encode the path, or save the file as UTF-8")
            })?;
            // Editors of Windows begin a text with a byte order mark.
            Ok(Some(text.trim_start_matches('\u{feff}').to_owned()))
        };
        let (headers, redirects) = (take("_headers")?, take("_redirects")?);
        Ok(Source {
            folder: folder.to_owned(),
            files,
            headers,
            redirects,
        })
    }

    /// Returns true if the release has a file with a path.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        let found = self
            .files
            .binary_search_by(|file| compare_paths(&file.path, path));
        found.is_ok()
    }

    /// Returns the number of the file that answers for a decoded path with initial slash: the file itself, `x.html`
    /// for `x`, or the index of a folder.
    pub(crate) fn resolve(&self, path: &[u8]) -> Option<usize> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let names: &[&[u8]] = match path.last() {
            None | Some(b'/') => &[b"index.html"],
            Some(_) => &[b"", b".html", b"/index.html"],
        };
        names.iter().find_map(|name| {
            let path = [path, *name].concat();
            let found = self
                .files
                .binary_search_by(|file| compare_paths(&file.path, &path));
            found.ok()
        })
    }
}

/// Scan of a folder.
struct Scan<'r> {
    root: &'r Path,
    files: Vec<SourceFile>,
    /// One line for each refused file.
    refused: Vec<String>,
}

impl Scan<'_> {
    /// Reads a folder. `path` is the path below the root, and `open` are the real paths of the folders above.
    fn folder(
        &mut self,
        real: &Path,
        path: &mut Vec<u8>,
        open: &mut Vec<PathBuf>,
    ) -> Result<(), Problem> {
        let failed = |error: io::Error| {
            Problem::failure(format!("{}: {}", text::file(real), text::reason(&error)))
        };
        for entry in fs::read_dir(real).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if is_hidden(name.as_bytes()) {
                continue;
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            let kind = entry.file_type().map_err(failed)?;
            self.entry(&entry.path(), kind, path, open)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        real: &Path,
        kind: FileType,
        path: &mut Vec<u8>,
        open: &mut Vec<PathBuf>,
    ) -> Result<(), Problem> {
        let failed = |error: io::Error| {
            Problem::failure(format!("{}: {}", text::file(real), text::reason(&error)))
        };
        let mut refuse = |why: String| {
            self.refused.push(format!("{}: {why}", text::path(path)));
            Ok(())
        };
        let mut target = None;
        if kind.is_symlink() {
            let end = match real.canonicalize() {
                Ok(end) => end,
                Err(error) => {
                    return refuse(format!(
                        "the destination of the link: {}",
                        text::reason(&error)
                    ));
                }
            };
            if !end.starts_with(self.root) {
                return refuse(format!(
                    "the link leads out of the folder, to {}",
                    text::file(&end)
                ));
            }
            if open.contains(&end) {
                return refuse("the link leads to a folder above".to_owned());
            }
            target = Some(end);
        }
        let real = target.as_deref().unwrap_or(real);
        let metadata = fs::symlink_metadata(real).map_err(failed)?;
        if metadata.is_dir() {
            open.push(real.to_owned());
            self.folder(real, path, open)?;
            open.pop();
            return Ok(());
        }
        if !metadata.is_file() {
            return refuse("this is a pipe, a socket or a device".to_owned());
        }
        if self.files.len() == RELEASE_FILES_MAX + 2 {
            let what = format!("the folder has more than {RELEASE_FILES_MAX} files");
            return Err(Problem::usage(what).help("divide the site into several sites"));
        }
        self.files.push(SourceFile {
            path: path.clone(),
            real: real.to_owned(),
            size: metadata.len(),
            content: None,
        });
        Ok(())
    }
}

fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != b".well-known"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn paths(source: &Source) -> Vec<String> {
        let paths = source.files.iter().map(|file| text::path(&file.path));
        paths.collect()
    }

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, name).expect("a file");
        }
        folder
    }

    #[test]
    fn a_release_has_stray_files_and_a_warning_names_them() {
        let kept = folder(&["a.html", "old/page.html"]);
        let source = Source::read(kept.path()).expect("a source");
        assert_eq!(source.stray_files(), None);
        let kept = folder(&["a.html", "a.html~", "b/dump.sql.gz", "c~/page.html"]);
        let source = Source::read(kept.path()).expect("a source");
        assert_eq!(source.files.len(), 4);
        let text = source.stray_files().expect("a warning");
        assert!(text.starts_with("a.html~, by its name a backup"), "{text}");
        assert!(text.ends_with("; 2 further such files too"), "{text}");
    }

    #[test]
    fn files_come_in_the_order_of_a_manifest_without_hidden_ones() {
        let folder = folder(&[
            "a-b",
            "a/b",
            "a/.git/x",
            ".htaccess",
            ".well-known/security.txt",
            "_headers",
            "a/_headers",
        ]);
        symlink("a", folder.path().join("link")).expect("a link");
        symlink("a-b", folder.path().join("file-link")).expect("a link");
        let source = Source::read(folder.path()).expect("a source");
        assert_eq!(
            paths(&source),
            [
                ".well-known/security.txt",
                "a/_headers",
                "a/b",
                "a-b",
                "file-link",
                "link/_headers",
                "link/b"
            ]
        );
        assert_eq!(source.headers.as_deref(), Some("_headers"));
        assert_eq!(source.redirects, None);
        assert!(source.has(b"a/b") && !source.has(b"a"));
    }

    #[test]
    fn paths_are_resolved_as_by_a_server() {
        let folder = folder(&["index.html", "a.html", "b/index.html", "c"]);
        let source = Source::read(folder.path()).expect("a source");
        let resolve = |path: &str| {
            let at = source.resolve(path.as_bytes())?;
            Some(text::path(&source.files[at].path))
        };
        for (path, file) in [
            ("/", Some("index.html")),
            ("/a", Some("a.html")),
            ("/a.html", Some("a.html")),
            ("/a/", None),
            ("/b", Some("b/index.html")),
            ("/b/", Some("b/index.html")),
            ("/c", Some("c")),
            ("/d", None),
        ] {
            assert_eq!(resolve(path).as_deref(), file, "{path}");
        }
    }

    #[test]
    fn links_to_the_outside_circles_and_special_files_are_refused() {
        let folder = folder(&["a/b"]);
        let here = folder.path();
        symlink("/etc/passwd", here.join("outside")).expect("a link");
        symlink("..", here.join("a/up")).expect("a link");
        symlink("nowhere", here.join("dangling")).expect("a link");
        let _socket =
            std::os::unix::net::UnixListener::bind(here.join("socket")).expect("a socket");
        let error = Source::read(here).expect_err("a refusal").to_string();
        for part in [
            "outside: the link leads out of the folder, to /etc/passwd",
            "a/up: the link leads to a folder above",
            "dangling: the destination of the link: ",
            "socket: this is a pipe, a socket or a device",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(Source::read(&here.join("a/b")).is_err());
        assert!(Source::read(&here.join("missing")).is_err());
    }
}
