//! `anthill passwd`: adds, changes or removes a user's line in a file of users and password hashes, in the
//! format of Apache's htpasswd.

use crate::cli::shared_options::CommandSpec;
use cli::output::print_message;
use cli::output::print_result;
use cli::{CommandOption, Operand, ValueKind};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, renameat, unlinkat};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::cli::arguments::ParsedArguments;
use crate::config::{FILE_NAME, OperatorError, UnixAccount, configured_user, reason};
use base::trusted_path::{self, LastLink, MissingFolder, TrustedPath};
use data_plane::world::users;

/// The command `passwd`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "passwd",
    about: "Set a user's password in a user file",
    details: &[
        "On a terminal, the command asks twice for the password; otherwise it reads a line of \
         standard input. A missing FILE is created. The key `users` of a route names the \
         file.",
    ],
    operands: &[
        Operand {
            name: "FILE",
            required: true,
            values: ValueKind::Paths,
        },
        Operand {
            name: "USER",
            required: true,
            values: ValueKind::Any,
        },
    ],
    options: &[CommandOption {
        long: "delete",
        short: None,
        value: None,
        about: "Remove the user instead",
    }],
    run,
};

/// Maximum length of a password. bcrypt ignores all bytes after the 72nd (the 73rd is a NUL).
const PASSWORD_BYTES_MAX: usize = 72;
/// Maximum length of a file of users, far more than any real file needs.
const FILE_BYTES_MAX: u64 = 16 << 20;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let file = typed.path_at(0).unwrap_or(Path::new(""));
    let user = typed
        .operand_at(1)
        .and_then(|user| user.to_str())
        .unwrap_or("");
    check_user(user)?;
    let users = UserFile::open(file)?;
    let before = users.text()?;
    if typed.has("delete") {
        let Some(after) = without(&before, user) else {
            let what = format!("there is no user `{user}` in {}", file.display());
            return Err(OperatorError::failure(what));
        };
        users
            .replace(&after)
            .map_err(|error| failed(file, &error))?;
        return Ok(print_result(&format!(
            "removed `{user}` from {}",
            file.display()
        )));
    }
    let password = ask()?;
    check_password(&password)?;
    let after = with(&before, &line(user, &password)?, user);
    let made = users
        .replace(&after)
        .map_err(|error| failed(file, &error))?;
    if users.old.is_none() && made.st_uid == 0 {
        print_message(&match &users.reader {
            Some(reader) => format!(
                "the new file belongs to root:{} with mode 0640, so that the server of `{}` can read it",
                reader.group, reader.name
            ),
            None => format!(
                "the new file belongs to root:root with mode 0640; so that a server with user = \
                 \"anthill\" can read it, run: chgrp anthill {}",
                file.display()
            ),
        });
    }
    let verb = if after.lines().count() > before.lines().count() {
        "added"
    } else {
        "changed"
    };
    Ok(print_result(&format!(
        "{verb} `{user}` in {}",
        file.display()
    )))
}

fn failed(file: &Path, error: &io::Error) -> OperatorError {
    OperatorError::failure(format!("{}: {}", file.display(), reason(error)))
}

fn check_user(user: &str) -> Result<(), OperatorError> {
    // RFC 7617 §2: a user-id contains no colon and no control characters.
    let fits = !user.is_empty() && user.len() <= 255 && !user.starts_with('#');
    if fits && !user.chars().any(|c| c == ':' || c.is_control()) && user.trim() == user {
        return Ok(());
    }
    Err(
        OperatorError::new(format!("`{}` is not a user name", user.escape_debug())).help(
            "choose a name without colon and control characters, and without spaces at either end",
        ),
    )
}

fn check_password(password: &str) -> Result<(), OperatorError> {
    if password.is_empty() {
        return Err(OperatorError::failure("the password is empty"));
    }
    if password.len() > PASSWORD_BYTES_MAX {
        let what = format!("the password is longer than {PASSWORD_BYTES_MAX} bytes");
        return Err(OperatorError::failure(what)
            .help("choose a shorter password, since bcrypt ignores further bytes"));
    }
    // RFC 7617 §2 forbids control characters, and clients can't send them.
    if password.chars().any(char::is_control) {
        return Err(OperatorError::failure(
            "the password contains control characters",
        ));
    }
    Ok(())
}

/// Returns the line of a user, `user:$2y$10$…`.
pub(super) fn line(user: &str, password: &str) -> Result<String, OperatorError> {
    let hash = users::hash_password(password.as_bytes());
    let hash = hash.map_err(|_| OperatorError::failure("the password cannot be hashed"))?;
    Ok(format!("{user}:{hash}"))
}

/// Returns the file's text with the user's line replaced in place, or appended if the user is new.
pub(super) fn with(before: &str, line: &str, user: &str) -> String {
    let mut after = String::with_capacity(before.len() + line.len() + 2);
    let mut written = false;
    for old in before.lines() {
        if !is_of(old, user) {
            after.push_str(old);
        } else if written {
            // Only the first line of a user counts, so further lines are removed.
            continue;
        } else {
            after.push_str(line);
            written = true;
        }
        after.push('\n');
    }
    if !written {
        after.push_str(line);
        after.push('\n');
    }
    after
}

/// Returns the file's text without the user, or `None` if the user isn't in the file.
pub(super) fn without(before: &str, user: &str) -> Option<String> {
    let kept: Vec<&str> = before.lines().filter(|line| !is_of(line, user)).collect();
    (kept.len() < before.lines().count())
        .then(|| kept.iter().flat_map(|line| [*line, "\n"]).collect())
}

fn is_of(line: &str, user: &str) -> bool {
    line.strip_prefix(user)
        .is_some_and(|rest| rest.starts_with(':'))
}

/// A file of users, with open descriptors of the file and its folder. Reading and replacing use the same
/// folder, even if the path changes while the password is typed.
struct UserFile<'p> {
    path: &'p Path,
    way: TrustedPath,
    /// The existing file and its metadata. `None` for a new file.
    old: Option<(File, Stat)>,
    /// Account of the server that reads the file, if a configuration beside the file names the account.
    reader: Option<UnixAccount>,
}

impl UserFile<'_> {
    /// Opens a file of users. A symbolic link is followed, so that a replacement doesn't overwrite the
    /// link.
    ///
    /// For root, refuses two cases: a path that a user other than the folder's owner could redirect, and a
    /// hard link that a user other than root and the file's owner may have made.
    fn open(path: &Path) -> Result<UserFile<'_>, OperatorError> {
        let at = |error: io::Error| failed(path, &error);
        let way = TrustedPath::resolve(path, LastLink::Follow, MissingFolder::Fail).map_err(at)?;
        way.must_stay_with_its_folder()
            .map_err(at)?
            .map_err(|error| OperatorError::failure(error.to_string()).help(error.help("")))?;
        let old = match trusted_path::open_file(&way) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(at(error)),
        };
        if let Some((_, stat)) = &old
            && way.may_be_planted(stat).map_err(at)?
        {
            let what = format!(
                "{} is a hard link, and another user may have linked a file of root",
                path.display()
            );
            let help = "remove the link, and create a new user file";
            return Err(OperatorError::failure(what).help(help));
        }
        let beside = path.parent().unwrap_or(Path::new(""));
        let reader = [beside.join(FILE_NAME), PathBuf::from(FILE_NAME)];
        let reader = reader.iter().find_map(|file| configured_user(file));
        Ok(UserFile {
            path,
            way,
            old,
            reader: reader.and_then(|user| UnixAccount::find(&user)),
        })
    }

    fn text(&self) -> Result<String, OperatorError> {
        let Some((file, _)) = &self.old else {
            return Ok(String::new());
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| failed(self.path, &error))?;
        let broken = |why: &str| OperatorError::failure(format!("{}: {why}", self.path.display()));
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(broken("the file is too large for a user file"));
        }
        let text = String::from_utf8(bytes).map_err(|_| broken("the file is not UTF-8 text"))?;
        // An editor of Windows has begun the text with a byte order mark.
        Ok(text.trim_start_matches('\u{feff}').to_owned())
    }

    /// Replaces the file atomically. A server that reads the file meanwhile sees the old or the new text.
    fn replace(&self, text: &str) -> io::Result<Stat> {
        let folder = self.way.folder();
        let mut draft = OsString::from(".");
        draft.push(self.way.name());
        draft.push(format!(".{}", std::process::id()));
        let written = self
            .write(&draft, text)
            .and_then(|made| Ok(renameat(folder, &draft, folder, self.way.name()).map(|()| made)?));
        if written.is_err() {
            // The draft may not exist. The function returns the first error.
            let _ = unlinkat(folder, &draft, AtFlags::empty());
        }
        written
    }

    /// Writes the draft. An existing file passes its owner, group and mode on to the draft. A new file made
    /// by root in another user's folder gets the owner and group of the folder: a server with the folder's
    /// account couldn't read a file of root, and the owner of a folder can replace any file in the folder
    /// anyway. A new file in a folder of root gets the group of the server's account.
    fn write(&self, draft: &OsStr, text: &str) -> io::Result<Stat> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let closed = Mode::RUSR | Mode::WUSR;
        let file = openat(self.way.folder(), draft, flags | OFlags::CLOEXEC, closed)?;
        let (made, folder) = (fstat(&file)?, fstat(self.way.folder())?);
        let (owner, mode) = match &self.old {
            Some((_, old)) => ((old.st_uid, old.st_gid), old.st_mode & 0o777),
            // The server's group needs read permission.
            None if made.st_uid == 0 && folder.st_uid != 0 => {
                ((folder.st_uid, folder.st_gid), 0o640)
            }
            None if made.st_uid == 0 => {
                let reader = self.reader.as_ref();
                ((0, reader.map_or(made.st_gid, |reader| reader.gid)), 0o640)
            }
            None => ((made.st_uid, made.st_gid), 0o640),
        };
        if owner != (made.st_uid, made.st_gid) {
            std::os::unix::fs::fchown(&file, Some(owner.0), Some(owner.1))?;
        }
        // The mode is set after the owner, because chown clears mode bits. fchmod ignores the umask.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(fstat(&file)?)
    }
}

/// Asks for the password: twice on a terminal, otherwise as a line of standard input.
fn ask() -> Result<String, OperatorError> {
    let stdin = io::stdin();
    let no_input = |error: io::Error| {
        OperatorError::failure(format!("cannot read the password: {}", reason(&error)))
    };
    if !stdin.is_terminal() {
        let mut password = String::new();
        stdin
            .lock()
            .take(4096)
            .read_line(&mut password)
            .map_err(no_input)?;
        let length = password.trim_end_matches(['\r', '\n']).len();
        password.truncate(length);
        return Ok(password);
    }
    let first = typed_unseen("New password: ").map_err(no_input)?;
    let second = typed_unseen("Repeat the password: ").map_err(no_input)?;
    if first == second {
        Ok(first)
    } else {
        Err(OperatorError::failure("the two passwords differ")
            .help("nothing was changed; run the command again"))
    }
}

/// Reads a line from the terminal without echo. Signals from keys are disabled meanwhile, so Ctrl-C can't
/// leave the terminal without echo: Ctrl-C arrives as a byte and causes an error.
fn typed_unseen(prompt: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let seen = tcgetattr(&stdin)?;
    let mut unseen = seen.clone();
    unseen.local_modes -= LocalModes::ECHO | LocalModes::ISIG | LocalModes::ICANON;
    let _restored = TerminalRestorer(seen);
    tcsetattr(&stdin, OptionalActions::Flush, &unseen)?;
    write!(io::stderr(), "{prompt}")?;
    let line = read_keys(&mut stdin.lock());
    writeln!(io::stderr())?;
    line
}

struct TerminalRestorer(Termios);

impl Drop for TerminalRestorer {
    fn drop(&mut self) {
        // The error is ignored: without a terminal, no settings need to be restored.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads a line key by key. Backspace deletes a character, Ctrl-U the line; Ctrl-C and Ctrl-D cancel.
pub(super) fn read_keys(input: &mut impl Read) -> io::Result<String> {
    let mut line: Vec<u8> = Vec::new();
    let mut key = [0];
    loop {
        if input.read(&mut key)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match key[0] {
            b'\n' | b'\r' => break,
            0x03 | 0x04 => return Err(io::Error::other("cancelled")),
            0x15 => line.clear(),
            0x08 | 0x7f => {
                // Removes a whole UTF-8 character, including continuation bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            byte if line.len() < 4096 => line.push(byte),
            _ => {}
        }
    }
    String::from_utf8(line).map_err(|_| io::Error::other("the password is not UTF-8"))
}
