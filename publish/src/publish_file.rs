//! `publish.toml`: the folder, the hosts and the build of `anthill publish` without arguments.
//!
//! The file names a command of the shell, and the hosts that get the folder. So the file of another user, and a file in a
//! folder that other users may change, is refused, as git refuses the settings of a foreign repository (safe.directory).

use crate::problem::Problem;
use crate::text;
use base::digest::Digest;
use base::trusted_path::other_writer;
use rustix::fs::{FileType, Stat, fstat, stat};
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Name of the file.
pub(crate) const NAME: &str = "publish.toml";
/// Bytes of the file, 64 KiB: hundreds of hosts.
const BYTES_MAX: u64 = 64 << 10;
/// Folders in which other users may only change entries of their own.
const STICKY: u32 = 0o1000;
/// Keys of the file.
const KEYS: &str = "the keys are folder, hosts, build, strict, elsewhere and key";

/// Settings of a publication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PublishFile {
    /// Path without links.
    pub path: PathBuf,
    /// SHA-256 of the path and the text.
    pub digest: [u8; 32],
    /// Folder to publish.
    pub folder: PathBuf,
    /// Hosts or a store.
    pub hosts: Vec<String>,
    /// Command of the shell that makes the folder.
    pub build: Option<String>,
    /// Whether dead links refuse the publication.
    pub is_strict: bool,
    /// Beginnings of the paths that routes answer.
    pub elsewhere: Vec<String>,
    /// File with the key for signatures.
    pub key: Option<PathBuf>,
}

impl PublishFile {
    /// Reads the file of a folder; None if there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<PublishFile>, Problem> {
        let failed = |error: &io::Error| Problem::usage(format!("{NAME}: {}", text::reason(error)));
        let path = match folder.join(NAME).canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        // A pipe would wait for its writer.
        let is_file = std::fs::metadata(&path).is_ok_and(|it| it.is_file());
        if !is_file {
            return Err(Problem::usage(format!("{NAME}: this is no regular file")));
        }
        let file = File::open(&path).map_err(|error| failed(&error))?;
        must_be_own(&path, &file)?;
        let mut text = String::new();
        file.take(BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| failed(&error))?;
        if text.len() as u64 > BYTES_MAX {
            let what = format!("{NAME}: the file has more than 64 KiB");
            return Err(Problem::usage(what).help(KEYS));
        }
        parse(&path, &text).map(Some)
    }

    /// Returns the settings for a question to the user.
    pub(crate) fn summary(&self) -> String {
        let mut lines = format!("  folder  {}\n", text::visible(&text::file(&self.folder)));
        for host in &self.hosts {
            lines.push_str(&format!("  host    {}\n", text::visible(host)));
        }
        if let Some(build) = &self.build {
            lines.push_str(&format!("  build   {}\n", text::visible(build)));
        }
        if let Some(key) = &self.key {
            lines.push_str(&format!("  key     {}\n", text::visible(&text::file(key))));
        }
        lines
    }
}

/// Refuses a file of another user, and a file that other users may replace or change.
fn must_be_own(path: &Path, file: &File) -> Result<(), Problem> {
    let user = geteuid().as_raw();
    let failed = |error: rustix::io::Errno| {
        let reason = text::reason(&io::Error::from(error));
        Problem::usage(format!("{}: {reason}", text::file(path)))
    };
    let refuse = |at: &Path, writer: &str| {
        let what = format!(
            "{} is not read, since {writer} may change {}",
            text::file(path),
            text::file(at)
        );
        Err(Problem::usage(what).help(
            "name the folder and the hosts as arguments, or take away the rights of other users",
        ))
    };
    let own = fstat(file).map_err(failed)?;
    if let Some(writer) = other_writer(&own, user) {
        return refuse(path, &writer);
    }
    for folder in path.ancestors().skip(1) {
        let folder_stat: Stat = stat(folder).map_err(failed)?;
        // In a sticky folder such as /tmp, other users can't replace an entry of this user.
        let is_sticky = folder_stat.st_mode & STICKY != 0
            && FileType::from_raw_mode(folder_stat.st_mode) == FileType::Directory;
        if !is_sticky && let Some(writer) = other_writer(&folder_stat, user) {
            return refuse(folder, &writer);
        }
    }
    Ok(())
}

fn parse(path: &Path, text: &str) -> Result<PublishFile, Problem> {
    let refuse = |at: usize, what: &str, help: &str| {
        let line = 1 + text[..at.min(text.len())].matches('\n').count();
        Problem::usage(format!("{NAME}, line {line}: {what}")).help(help.to_owned())
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        refuse(
            at,
            error.message(),
            "write lines such as folder = \"public\"",
        )
    })?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let (mut folder, mut hosts, mut key) = (None, Vec::new(), None);
    let (mut build, mut is_strict, mut elsewhere) = (None, false, Vec::new());
    for (name, value) in table.get_ref() {
        let (at, value) = (name.span().start, value.get_ref());
        let name = name.get_ref().as_ref();
        let wrong = |example: &str| {
            let what = format!("`{name}` has a wrong value");
            refuse(at, &what, &format!("for example {name} = {example}"))
        };
        match name {
            "folder" => {
                let value = single(value).ok_or_else(|| wrong("\"public\""))?;
                folder = Some(parent.join(value));
            }
            "hosts" => hosts = list(value).ok_or_else(|| wrong("[\"pi@zero\"]"))?,
            "build" => build = Some(single(value).ok_or_else(|| wrong("\"hugo\""))?),
            "elsewhere" => elsewhere = list(value).ok_or_else(|| wrong("[\"/api/\"]"))?,
            "key" => {
                let value = single(value).ok_or_else(|| wrong("\"publisher.pem\""))?;
                key = Some(parent.join(value));
            }
            "strict" => match value {
                DeValue::Boolean(value) => is_strict = *value,
                _ => return Err(wrong("true")),
            },
            _ => {
                return Err(refuse(
                    at,
                    &format!("unknown key `{}`", text::visible(name)),
                    KEYS,
                ));
            }
        }
    }
    let missing = |key: &str, example: &str| {
        Problem::usage(format!("{NAME} has no `{key}`")).help(format!("write {key} = {example}"))
    };
    let folder = folder.ok_or_else(|| missing("folder", "\"public\""))?;
    if hosts.is_empty() {
        return Err(missing("hosts", "[\"pi@zero\"]"));
    }
    let mut digest = Digest::new();
    for part in [path.as_os_str().as_encoded_bytes(), b"\0", text.as_bytes()] {
        digest.update(part);
    }
    Ok(PublishFile {
        path: path.to_owned(),
        digest: digest.finish(),
        folder,
        hosts,
        build,
        is_strict,
        elsewhere,
        key,
    })
}

/// Returns a text that is not empty; None for another value.
fn single(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
        _ => None,
    }
}

/// Returns a list of texts, or a text as a list of one; None for another value.
fn list(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(values) => values.iter().map(|it| single(it.get_ref())).collect(),
        value => Some(vec![single(value)?]),
    }
}

/// Returns the place in which a publication with this file is remembered: in the state of the user.
pub(crate) fn remembered(digest: &[u8; 32]) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|it| it.is_absolute());
    let state = absolute(std::env::var_os("XDG_STATE_HOME"));
    let home = || Some(absolute(std::env::var_os("HOME"))?.join(".local/state"));
    let state = state.or_else(home)?;
    Some(
        state
            .join("anthill/publish-files")
            .join(base::digest::hex(digest)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_read() {
        let path = Path::new("/home/ann/blog/publish.toml");
        let file = parse(
            path,
            "folder = \"public\"\nhosts = \"pi@zero\"\nbuild = \"hugo\"\nelsewhere = [\"/api/\"]\nstrict = true\n\
             key = \"/home/ann/key.pem\"\n",
        )
        .expect("a file");
        assert_eq!(file.folder, Path::new("/home/ann/blog/public"));
        assert_eq!(
            (file.hosts, file.elsewhere),
            (vec!["pi@zero".to_owned()], vec!["/api/".to_owned()])
        );
        assert_eq!(file.build.as_deref(), Some("hugo"));
        assert!(file.is_strict);
        assert_eq!(file.key.as_deref(), Some(Path::new("/home/ann/key.pem")));
        let other = |path: &str, text: &str| parse(Path::new(path), text).expect("a file").digest;
        let text = "folder = \"a\"\nhosts = [\"b\"]\n";
        assert_ne!(
            other("/a/publish.toml", text),
            other("/b/publish.toml", text)
        );
        assert_ne!(
            other("/a/publish.toml", text),
            other("/a/publish.toml", &format!("{text}build = \"c\"\n"))
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, what) in [
            ("folder = \"a\"\n", "publish.toml has no `hosts`"),
            ("hosts = [\"a\"]\n", "publish.toml has no `folder`"),
            (
                "folder = \"a\"\nhost = \"b\"\n",
                "publish.toml, line 2: unknown key `host`\nhelp: the keys are folder, hosts, ",
            ),
            (
                "folder = 7\n",
                "publish.toml, line 1: `folder` has a wrong value\nhelp: for example folder = \"public\"",
            ),
            (
                "folder = \"a\"\nhosts = [7]\n",
                "line 2: `hosts` has a wrong value",
            ),
            ("\nfolder\n", "publish.toml, line 2: "),
            (
                "strict = \"yes\"\n",
                "`strict` has a wrong value\nhelp: for example strict = true",
            ),
        ] {
            let problem = parse(Path::new("/a/publish.toml"), text).expect_err(text);
            assert!(problem.to_string().contains(what), "{problem}");
            assert_eq!(problem.code(), 2);
        }
    }

    #[test]
    fn a_command_writes_no_control_characters_to_the_terminal() {
        let text = "folder = \"a\"\nhosts = [\"b\"]\nbuild = \"make \\u001b[2K\\r\"\n";
        let file = parse(Path::new("/a/publish.toml"), text).expect("a file");
        assert!(
            file.summary().contains("  build   make \\u{1b}[2K\\r\n"),
            "{}",
            file.summary()
        );
    }
}
