//! Order of a publication: the folder, the destinations and the build, from the arguments or from `publish.toml`.

use super::command::ParsedCommand;
use super::signing_key::read_key;
use crate::key::PublisherKey;
use crate::problem::Problem;
use crate::publish_file::{NAME, PublishFile, remembered};
use crate::text;
use rustix::termios::isatty;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Most hosts of one publication.
const HOSTS_MAX: usize = 64;

/// Order of a publication.
pub(super) struct PublishOrder {
    /// Folder or packed release to publish.
    pub(super) source: PathBuf,
    /// Destinations as words of the command line.
    pub(super) destinations: Vec<OsString>,
    /// Command of the shell before the publication.
    pub(super) build: Option<String>,
    /// True if dead links refuse the publication.
    pub(super) is_strict: bool,
    /// Beginnings of the paths that routes answer.
    pub(super) elsewhere: Vec<String>,
    /// File with the key for signatures.
    key: Option<OsString>,
}

impl PublishOrder {
    /// Returns the order of the arguments, or of `publish.toml` in the current folder without arguments. A new or changed
    /// file is shown, and needs the consent of the user.
    pub(super) fn of(parsed: &ParsedCommand) -> Result<PublishOrder, Problem> {
        let mut order = PublishOrder {
            source: PathBuf::new(),
            destinations: Vec::new(),
            build: parsed.text("build")?.map(str::to_owned),
            is_strict: parsed.has("strict"),
            elsewhere: parsed.texts("elsewhere")?,
            key: parsed.value("key").map(OsStr::to_owned),
        };
        if let Some((source, destinations)) = parsed.all_operands().split_first() {
            if destinations.is_empty() {
                return Err(without_destination(source));
            }
            parsed.operands(2..=HOSTS_MAX + 1)?;
            order.source = PathBuf::from(source);
            order.destinations = destinations.to_vec();
            return Ok(order);
        }
        let Some(file) = PublishFile::read(Path::new("."))? else {
            let what = format!("there is nothing to publish: no arguments, and no {NAME} here");
            return Err(Problem::usage(what).help(format!(
                "write `anthill publish DIR HOST`, or a file {NAME} with the lines folder = \"public\" and hosts = [\"pi@zero\"]"
            )));
        };
        refuse_own_file(&file)?;
        must_be_confirmed(&file, parsed.has("yes"))?;
        if file.hosts.len() > HOSTS_MAX {
            let what = format!("{NAME} has more than {HOSTS_MAX} hosts");
            return Err(Problem::usage(what).help("publish to the hosts in several steps"));
        }
        order.source = file.folder;
        order.destinations = file.hosts.into_iter().map(OsString::from).collect();
        order.build = order.build.or(file.build);
        order.is_strict |= file.is_strict;
        order.elsewhere.extend(file.elsewhere);
        order.key = order.key.or(file.key.map(PathBuf::into_os_string));
        Ok(order)
    }

    /// Reads the key for signatures.
    pub(super) fn key(&self, parsed: &ParsedCommand) -> Result<Option<PublisherKey>, Problem> {
        read_key(self.key.as_deref(), parsed)
    }
}

fn without_destination(source: &OsStr) -> Problem {
    let source = source.to_string_lossy();
    let what = format!("`anthill publish {source}` has no destination");
    let help = if Path::new(NAME).exists() {
        format!("run `anthill publish` without arguments to publish as {NAME} says, or name a host")
    } else {
        format!(
            "name a host of your ssh or a store: anthill publish {source} pi@zero, or anthill publish {source} ./store"
        )
    };
    Problem::usage(what).help(help)
}

/// Refuses a `publish.toml` in the folder to publish: its hosts and its build would become a page of the site.
fn refuse_own_file(file: &PublishFile) -> Result<(), Problem> {
    let folder = file.folder.canonicalize();
    if folder.is_ok_and(|folder| file.path.starts_with(folder)) {
        let what = format!("{} lies in the folder to publish", text::file(&file.path));
        return Err(Problem::usage(what).help(format!(
            "move the site into a folder beside {NAME}, such as folder = \"public\""
        )));
    }
    Ok(())
}

/// Shows a file that is new or has changed, and asks the user. The answer is remembered by the path and the digest of the
/// file: a folder from another person has the user as its owner after a download, and may have any command as its build.
fn must_be_confirmed(file: &PublishFile, is_confirmed: bool) -> Result<(), Problem> {
    let place = remembered(&file.digest);
    if place.as_ref().is_some_and(|place| place.exists()) {
        return Ok(());
    }
    let shown = text::visible(&text::file(&file.path));
    let mut err = io::stderr().lock();
    // Without standard error the question reaches no user, and the answer below is no.
    let _ = write!(err, "{shown} is new or has changed:\n{}", file.summary());
    if !is_confirmed {
        let (input, output) = (io::stdin(), &err);
        if !isatty(&input) || !isatty(output) {
            let what =
                format!("{shown} needs your consent, and there is no terminal for the question");
            return Err(Problem::usage(what)
                .help("look at the lines above, and run `anthill publish --yes`"));
        }
        let _ = write!(err, "Publish so from now on? [y/N] ");
        let _ = err.flush();
        let mut answer = String::new();
        let read = input.lock().read_line(&mut answer);
        if read.is_err() || !["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) {
            return Err(Problem::usage("nothing is published").help(format!("correct {NAME}")));
        }
    }
    drop(err);
    // Without a memory, the next publication asks again.
    if let Some(place) = place
        && let Some(folder) = place.parent()
    {
        let mut folders = fs::DirBuilder::new();
        let made = folders.recursive(true).mode(0o700).create(folder);
        let _ = made.and_then(|()| fs::write(&place, format!("{shown}\n{}", file.summary())));
    }
    Ok(())
}
