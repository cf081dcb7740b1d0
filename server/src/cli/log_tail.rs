//! Last lines of log files, and the lines that follow.
//!
//! A file that another file replaces, as at a rotation, is read to its end before the new file. The files belong to the
//! account of the server, so root follows no link of the account.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::trusted_path::{LastLink, MissingFolder, TrustedPath, open_file};
use base::visible_text::visible_lines;

/// Bytes read at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Maximum length in bytes of a line that is printed as a whole. A line of the access log has at most two fields of the
/// largest header section.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Pause between two looks for new lines. The server writes lines about once in a second.
const PAUSE: Duration = Duration::from_millis(200);

/// Prints the last lines of files, each with its path before if there are several.
pub(super) fn print_last(
    files: &[PathBuf],
    lines: u64,
    out: &mut impl Write,
) -> Result<Vec<FollowedFile>, (PathBuf, io::Error)> {
    let mut followed = Vec::new();
    for path in files {
        let failed = |error| (path.clone(), error);
        let mut file = FollowedFile::open(path).map_err(failed)?;
        if files.len() > 1 {
            let gap = if followed.is_empty() { "" } else { "\n" };
            let title = visible_lines(&format!("{gap}==> {} <==\n", path.display()));
            out.write_all(title.as_bytes()).map_err(failed)?;
        }
        file.skip_to_last(lines).map_err(failed)?;
        file.print_new(out).map_err(failed)?;
        followed.push(file);
    }
    Ok(followed)
}

/// Prints new lines of files until the output fails.
pub(super) fn follow(mut files: Vec<FollowedFile>, out: &mut impl Write) -> io::Result<()> {
    loop {
        for file in &mut files {
            file.look(out)?;
        }
        out.flush()?;
        std::thread::sleep(PAUSE);
    }
}

/// A log file that is read line by line.
pub(super) struct FollowedFile {
    path: PathBuf,
    file: File,
    /// Number of bytes that were read.
    position: u64,
    /// Beginning of an incomplete line: the program has not written its end yet.
    part: Vec<u8>,
}

impl FollowedFile {
    fn open(path: &Path) -> io::Result<FollowedFile> {
        let way = TrustedPath::resolve(path, LastLink::Follow, MissingFolder::Fail)?;
        let (file, stat) = open_file(&way)?;
        if let Err(error) = way.must_be_controlled_by(stat.st_uid)
            && way.must_stay_with_its_folder()?.is_err()
        {
            return Err(io::Error::other(error));
        }
        Ok(FollowedFile {
            path: path.to_owned(),
            file,
            position: 0,
            part: Vec::new(),
        })
    }

    /// Sets the position to the beginning of the last lines.
    fn skip_to_last(&mut self, lines: u64) -> io::Result<()> {
        let mut end = self.file.metadata()?.len();
        self.position = end;
        let mut block = vec![0; BLOCK_BYTES];
        let mut left = lines;
        let mut is_last_byte = true;
        while end > 0 && left > 0 {
            let begin = end.saturating_sub(BLOCK_BYTES as u64);
            let part = &mut block[..(end - begin) as usize];
            self.file.read_exact_at(part, begin)?;
            for (at, byte) in part.iter().enumerate().rev() {
                // The line feed at the end of the file ends the last line.
                let is_end_of_file = std::mem::take(&mut is_last_byte);
                if *byte == b'\n' && !is_end_of_file {
                    left -= 1;
                    if left == 0 {
                        self.position = begin + at as u64 + 1;
                        return Ok(());
                    }
                }
            }
            end = begin;
            self.position = begin;
        }
        Ok(())
    }

    /// Prints the new lines, of a new file too if a file replaced the file.
    fn look(&mut self, out: &mut impl Write) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        if metadata.len() < self.position {
            // The file was cut, and begins anew.
            self.position = 0;
            self.part.clear();
        }
        self.print_complete(out)?;
        let is_same =
            |now: &std::fs::Metadata| now.ino() == metadata.ino() && now.dev() == metadata.dev();
        // Between two files of a rotation, the name is missing.
        if std::fs::metadata(&self.path).is_ok_and(|now| !is_same(&now))
            && let Ok(new) = FollowedFile::open(&self.path)
        {
            // Lines that came before the new file are read from the old file.
            self.print_new(out)?;
            *self = new;
            self.print_complete(out)?;
        }
        Ok(())
    }

    /// Prints all new lines, and the beginning of an incomplete last line.
    fn print_new(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.print_complete(out)?;
        if !self.part.is_empty() {
            let part = std::mem::take(&mut self.part);
            print_visibly(&part, out)?;
        }
        Ok(())
    }

    /// Prints the new complete lines.
    fn print_complete(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.position))?;
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let read = match self.file.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.position += read as u64;
            self.part.extend_from_slice(&block[..read]);
            let complete = self.part.iter().rposition(|byte| *byte == b'\n');
            let complete = complete.map(|end| end + 1);
            let is_long = self.part.len() > LINE_BYTES_MAX;
            if let Some(end) = complete.or(is_long.then_some(self.part.len())) {
                let rest = self.part.split_off(end);
                print_visibly(&self.part, out)?;
                self.part = rest;
            }
        }
    }
}

/// Prints lines without characters that a terminal obeys. The server writes none, but the account of the server may.
fn print_visibly(lines: &[u8], out: &mut impl Write) -> io::Result<()> {
    let text = String::from_utf8_lossy(lines);
    out.write_all(visible_lines(&text).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn last(text: &str, lines: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, text).unwrap();
        let mut out = Vec::new();
        print_last(&[path], lines, &mut out)
            .map_err(|(_, error)| error)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_last_lines_are_printed() {
        let text = "a\nbb\n\nccc\n";
        let expected = ["", "ccc\n", "\nccc\n", "bb\n\nccc\n", text, text];
        for (lines, expected) in expected.into_iter().enumerate() {
            assert_eq!(last(text, lines as u64), expected, "{lines}");
        }
        assert_eq!(last("a\nb", 1), "b");
        assert_eq!(last("", 3), "");
        assert_eq!(last("\u{1b}[2Ja\n", 3), "\\u001b[2Ja\n");
        // Longer than a block, in lines and in one line.
        let long: String = (0..40_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(last(&long, 2), "39998\n39999\n");
        assert_eq!(last(&long, 39_999), long["0\n".len()..]);
        assert_eq!(last(&long, 50_000), long);
        let line = format!("x\n{}\n", "y".repeat(3 * BLOCK_BYTES));
        assert_eq!(last(&line, 1), line["x\n".len()..]);
    }

    #[test]
    fn a_replaced_or_cut_file_is_read_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let append = |path: &Path, text: &str| {
            let mut open = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .unwrap();
            open.write_all(text.as_bytes()).unwrap();
        };
        append(&path, "1\n2\n");
        let mut out = Vec::new();
        let files = print_last(std::slice::from_ref(&path), 1, &mut out);
        let mut file = files.map_err(|(_, error)| error).unwrap().remove(0);
        let mut look = || {
            file.look(&mut out).unwrap();
            String::from_utf8(std::mem::take(&mut out)).unwrap()
        };
        assert_eq!(look(), "2\n");
        append(&path, "3\nhalf");
        assert_eq!(look(), "3\n");
        append(&path, " a line\n");
        assert_eq!(look(), "half a line\n");
        let old = folder.path().join("log.1");
        fs::rename(&path, &old).unwrap();
        append(&old, "4\n");
        assert_eq!(look(), "4\n");
        append(&old, "5\n");
        append(&path, "6\n");
        assert_eq!(look(), "5\n6\n");
        fs::write(&path, "7\n").unwrap();
        append(&path, "");
        assert_eq!(look(), "");
        fs::write(&path, "").unwrap();
        assert_eq!(look(), "");
        append(&path, "8\n");
        assert_eq!(look(), "8\n");
    }

    #[test]
    fn several_files_have_titles_and_a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        fs::write(&a, "1\n").unwrap();
        fs::write(&b, "2\n").unwrap();
        let mut out = Vec::new();
        let files = [a.clone(), b.clone()];
        assert!(print_last(&files, 5, &mut out).is_ok());
        let (a, b) = (a.display(), b.display());
        let expected = format!("==> {a} <==\n1\n\n==> {b} <==\n2\n");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let missing = folder.path().join("c");
        let failed = print_last(std::slice::from_ref(&missing), 5, &mut Vec::new());
        let (path, error) = failed.err().unwrap();
        assert_eq!((path, error.kind()), (missing, io::ErrorKind::NotFound));
    }

    #[test]
    fn root_follows_no_link_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "of root\n").unwrap();
        let logs = folder.path().join("logs");
        fs::create_dir(&logs).unwrap();
        let link = logs.join("access.log");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert!(FollowedFile::open(&link).is_ok());
        std::os::unix::fs::chown(&logs, Some(64_321), None).unwrap();
        assert!(FollowedFile::open(&link).is_err());
    }
}
