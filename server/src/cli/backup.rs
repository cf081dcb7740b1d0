//! The commands `anthill backup` and `anthill restore`. Both read and write the content directly, by the
//! configuration, and need no running server. A running server supplies its hit counts for a backup, and is
//! told to serve the restored content.

use crate::cli::shared_options::{CONTROL, CommandSpec, STATE, WHAT};
use cli::output::print_message;
use cli::output::print_result;
use cli::{CommandOption, Operand, ValueKind};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::control_client::{ControlResponse, ask_if_running};
use crate::admin::command::{Command, HitsFormat, StatusFormat};
use crate::backup;
use crate::cli::arguments::ParsedArguments;
use crate::config::{Config, ConfigSource, OperatorError, Overrides, SiteConfig, reason};
use base::clock;
use base::trusted_path::user_name;
use data_plane::hits::Hits;

/// The command `backup`.
pub(super) const BACKUP: CommandSpec = CommandSpec {
    name: "backup",
    about: "Save a site's content and hit counts into a file",
    details: &[
        "SITE is a name of the site as written in the configuration. The archive contains the \
         site's root, the folders of its routes (root, cgi) and its hit counts, but no \
         configuration, keys or certificates. The server may be running or stopped.",
    ],
    operands: &[
        Operand {
            name: "SITE",
            required: true,
            values: ValueKind::Any,
        },
        WHAT,
    ],
    options: &[
        CommandOption {
            long: "output",
            short: Some('o'),
            value: Some(("FILE", ValueKind::Paths)),
            about: "Archive to write (tar.gz); required",
        },
        STATE,
        CONTROL,
    ],
    run: backup,
};

/// The command `restore`.
pub(super) const RESTORE: CommandSpec = CommandSpec {
    name: "restore",
    about: "Restore a site's content from a backup",
    details: &[
        "The archive is unpacked beside the site's folders and verified before the folders \
         are exchanged. The old folders are kept beside the new folders as \
         .NAME.before-restore-TIME. SITE is the site to restore, by default the site of the \
         backup. With --to no site is changed.",
        "A running server applies the new content at once and keeps its hit counts; the hit \
         counts of the backup are restored only if the server is stopped.",
    ],
    operands: &[
        Operand {
            name: "FILE",
            required: true,
            values: ValueKind::Paths,
        },
        Operand {
            name: "SITE",
            required: false,
            values: ValueKind::Any,
        },
        WHAT,
    ],
    options: &[
        CommandOption {
            long: "to",
            short: None,
            value: Some(("FOLDER", ValueKind::Folders)),
            about: "Unpack into a new folder instead of the site, without the rules of a release",
        },
        STATE,
        CONTROL,
    ],
    run: restore,
};

pub(super) fn backup(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    must_be_built()?;
    let to = typed.path("output").ok_or_else(|| {
        OperatorError::new("`anthill backup` needs the path of the archive")
            .help("write anthill backup SITE -o file.tar.gz")
    })?;
    let config = config(typed, 1)?;
    let site = site(&config, &word(typed, 0)?)?;
    let name = site.name.as_str();
    let state = config.server.state.get_ref();
    let (hits, closed) = hit_counts(typed, state, name)?;
    let hits = hits.filter(|text| !text.is_empty());
    if let Some(closed) = closed {
        warn_of_closed(&closed, hits.is_none().then_some("saved"));
    }
    let now = clock::unix_seconds_now();
    let saved = backup::save(site, hits.as_deref(), &config.server, now, &to)?;
    for place in &saved.passed_over {
        let place = place.display();
        print_message(&format!(
            "warning: {place} is not a regular file, folder or link, and is left out of the \
             backup"
        ));
    }
    for place in &saved.planted {
        let place = place.display();
        print_message(&format!(
            "warning: {place} is left out of the backup: it is a hard link, and another user may \
             have linked a file that the user cannot read"
        ));
    }
    let counts = if hits.is_some() { ", hit counts" } else { "" };
    let (files, bytes) = (saved.files, saved.bytes);
    let to = to.display();
    Ok(print_result(&format!(
        "{to}: {files} files, {bytes} bytes{counts}"
    )))
}

/// Refuses the commands in a build without them.
fn must_be_built() -> Result<(), OperatorError> {
    match cfg!(feature = "backup") {
        true => Ok(()),
        false => Err(OperatorError::new("this build has no backups")
            .help("install a build with backups, or save the files and the state folder by tar")),
    }
}

pub(super) fn restore(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    must_be_built()?;
    let archive = typed.path_at(0).unwrap_or(Path::new(""));
    let now = clock::unix_seconds_now();
    if let Some(to) = typed.path("to") {
        if typed.operand_at(1).is_some() {
            let what = "SITE and --to exclude each other";
            return Err(OperatorError::new(what).help("remove SITE or --to"));
        }
        let restored = backup::unpack(archive, &to, now)?;
        return Ok(print_result(&told(&restored)));
    }
    let config = config(typed, 2)?;
    let chosen = typed.operand_at(1).map(|_| word(typed, 1)).transpose()?;
    // The server is looked up before any file changes.
    let running = ask_if_running(typed, 2, &Command::Status(StatusFormat::Text))?;
    let mut name = String::new();
    let restored = backup::restore(archive, now, &config.server, |theirs| {
        let site = site(&config, chosen.as_deref().unwrap_or(theirs))?;
        name = site.name.clone();
        Ok(site)
    })?;
    let mut text = told(&restored);
    let closed = serve_restored(
        typed,
        running,
        &restored,
        config.server.state.get_ref(),
        name,
        &mut text,
    )?;
    if let Some(closed) = closed {
        warn_of_closed(&closed, restored.hits.is_some().then_some("restored"));
        let place = config.path.as_ref().unwrap_or(&config.folder).display();
        text.push_str(&format!(
            "\nif a server is running, run: sudo anthill reload {place}"
        ));
    }
    Ok(print_result(&text))
}

/// Returns the hit counts of a site from the running server, or from the state folder if no server runs.
/// The second value is a path closed to the user, which may hide a running server or the hit counts.
fn hit_counts(
    typed: &ParsedArguments,
    state: &Path,
    name: &str,
) -> Result<(Option<Vec<u8>>, Option<PathBuf>), OperatorError> {
    let command = Command::Hits {
        format: HitsFormat::File,
        site: Some(name.to_owned()),
        days: None,
    };
    Ok(match ask_if_running(typed, 1, &command)? {
        ControlResponse::Answer(text) => (Some(text.into_bytes()), None),
        ControlResponse::NoServer => match load(state) {
            Ok(hits) => (hits.written(name), None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (None, Some(state.join("hits")))
            }
            Err(error) => {
                let what = format!(
                    "cannot read the hit counts in {}: {}",
                    state.display(),
                    reason(&error)
                );
                return Err(OperatorError::failure(what));
            }
        },
        // Hit counts of a server that the user has run, if any.
        ControlResponse::Closed(socket) => (
            load(state).ok().and_then(|hits| hits.written(name)),
            Some(socket),
        ),
    })
}

/// Warns of a path closed to the user, which may hide a running server. `lost` tells in a participle why
/// the hit counts are missing.
fn warn_of_closed(closed: &Path, lost: Option<&str>) {
    let lost = lost.map_or_else(String::new, |lost| {
        format!("the hit counts are not {lost}, and ")
    });
    let owner = owner_above(closed);
    print_message(&format!(
        "warning: {lost}a running server cannot be reached: {owner}"
    ));
}

/// Lets the running server serve the restored content, or restores the hit counts if no server runs.
/// Returns a path closed to the user, which may hide a running server or the hit counts.
fn serve_restored(
    typed: &ParsedArguments,
    running: ControlResponse,
    restored: &backup::RestoreSummary,
    state: &Path,
    name: String,
    text: &mut String,
) -> Result<Option<PathBuf>, OperatorError> {
    Ok(match (running, &restored.hits) {
        (ControlResponse::Answer(_), _) => {
            ask_if_running(typed, 2, &Command::Reload)?;
            let purge = Command::Purge {
                site: name,
                path: "/*".to_owned(),
            };
            ask_if_running(typed, 2, &purge)?;
            text.push_str("\nthe running server serves the content and keeps its hit counts");
            None
        }
        (ControlResponse::NoServer, Some(hits)) => match write_counts(state, &name, hits) {
            Ok(()) => {
                text.push_str("\nthe hit counts of the backup are restored");
                None
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Some(state.join("hits"))
            }
            Err(error) => {
                let what = format!("{}: {}", state.display(), reason(&error));
                let what =
                    format!("the content is restored, but writing the hit counts failed: {what}");
                return Err(OperatorError::failure(what));
            }
        },
        (ControlResponse::NoServer, None) => None,
        (ControlResponse::Closed(socket), _) => Some(socket),
    })
}

fn told(restored: &backup::RestoreSummary) -> String {
    let (files, site) = (restored.files, &restored.site);
    let mut text = format!("{files} files of {site}");
    for folder in &restored.folders {
        text.push_str(&format!("\nnow in {}", folder.display()));
    }
    for line in restored.release.iter().flat_map(|it| it.report("")) {
        text.push_str(&format!("\n{line}"));
    }
    if restored.has_unused_rules {
        text.push_str("\nthe rules of the release (redirects, fields, error pages) are left out: a folder has none");
    }
    for file in &restored.rule_files {
        text.push_str(&format!("\nrules of the release in {}", file.display()));
    }
    for rule in &restored.left_out_rules {
        text.push_str(&format!("\nleft out: {rule}"));
    }
    for kept in &restored.kept {
        text.push_str(&format!("\nthe old content is in {}", kept.display()));
    }
    text
}

fn config(typed: &ParsedArguments, nth: usize) -> Result<Config, OperatorError> {
    let overrides = Overrides {
        state: typed.path("state"),
        control: typed.path("control"),
        ..Overrides::default()
    };
    ConfigSource::of(typed.path_at(nth))?.read(&overrides)
}

fn word(typed: &ParsedArguments, nth: usize) -> Result<String, OperatorError> {
    let word = typed.operand_at(nth).and_then(|word| word.to_str());
    let word = word.filter(|word| !word.contains(['\n', '\r', ' ']));
    word.map(str::to_owned).ok_or_else(|| {
        OperatorError::new("SITE is not a host name")
            .help("write a name of the site as in the configuration")
    })
}

fn site<'c>(config: &'c Config, name: &str) -> Result<&'c SiteConfig, OperatorError> {
    let is_it = |site: &&SiteConfig| site.is_called(name);
    config.sites.iter().find(is_it).ok_or_else(|| {
        let names: Vec<&str> = config.sites.iter().map(|site| site.name.as_str()).collect();
        let what = format!("there is no site `{name}` in {}", config.shown);
        OperatorError::new(what).help(format!("the sites are {}", names.join(", ")))
    })
}

fn load(state: &Path) -> io::Result<Hits> {
    let hits = Hits::default();
    hits.load(state).map(|()| hits)
}

/// Returns the nearest visible ancestor of a path closed to the user, with its owner.
fn owner_above(closed: &Path) -> String {
    let mut parts = closed.ancestors();
    let seen = parts.find_map(|part| Some((part, part.symlink_metadata().ok()?.uid())));
    let (part, uid) = seen.unwrap_or((closed, 0));
    let owner = user_name(uid).unwrap_or_else(|| uid.to_string());
    format!("{} belongs to `{owner}`", part.display())
}

fn write_counts(state: &Path, site: &str, text: &[u8]) -> io::Result<()> {
    let hits = load(state)?;
    hits.replace(site, text);
    // The server must be able to read the hit counts, regardless of the user of the restore.
    let owner = state.metadata().map(|owner| {
        let is_root = rustix::process::geteuid().is_root();
        is_root.then(|| (owner.uid(), owner.gid()))
    });
    owner.and_then(|owner| hits.save_for(state, owner))
}
