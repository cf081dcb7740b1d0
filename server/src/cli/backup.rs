//! `anthill backup` and `anthill restore`. Content is read and written here, by the configuration, so
//! that no server needs to run; one that does is asked for its hit counts, and told to take what is new.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use super::control_client::ask_if_running;
use super::parse::Typed;
use crate::backup;
use crate::base::clock;
use crate::config::{Chosen, Config, OperatorError, Overrides, Site, reason};
use crate::hits::Hits;

pub(super) fn backup(typed: &Typed) -> Result<ExitCode, OperatorError> {
    let to = typed.path("output").ok_or_else(|| {
        OperatorError::new("`anthill backup` needs the file to write")
            .help("anthill backup SITE -o file.tar.gz")
    })?;
    let config = config(typed, 1)?;
    let site = site(&config, &word(typed, 0)?)?;
    let name = first_name(site);
    let state = config.server.state.get_ref();
    let hits = match ask_if_running(typed, 1, &format!("hits file {name}"))? {
        Some(text) => Some(text.into_bytes()).filter(|text| !text.is_empty()),
        None => counts(state)?.written(name),
    };
    let now = clock::unix_seconds_now();
    let saved = backup::save(site, hits.as_deref(), state, now, &to)?;
    for place in &saved.passed_over {
        let place = place.display();
        super::say(&format!("warning: {place} is no file, and isn't in it"));
    }
    for place in &saved.planted {
        let place = place.display();
        super::say(&format!(
            "warning: {place} is a hard link that another user may have made to a file which that user \
             may not read, and isn't in it"
        ));
    }
    let counts = if hits.is_some() { ", hit counts" } else { "" };
    let (files, bytes) = (saved.files, saved.bytes);
    let to = to.display();
    Ok(super::done(&format!(
        "{to}: {files} files, {bytes} bytes{counts}"
    )))
}

pub(super) fn restore(typed: &Typed) -> Result<ExitCode, OperatorError> {
    let archive = typed.path_at(0).unwrap_or(Path::new(""));
    let now = clock::unix_seconds_now();
    if let Some(to) = typed.path("to") {
        if typed.operand_at(1).is_some() {
            let what = "content goes to a site or to a folder, not to both";
            return Err(OperatorError::new(what).help("leave out SITE, or --to"));
        }
        let restored = backup::unpack(archive, &to, now)?;
        return Ok(super::done(&told(&restored)));
    }
    let config = config(typed, 2)?;
    let chosen = typed.operand_at(1).map(|_| word(typed, 1)).transpose()?;
    // Whether one runs, and which, is known before anything is changed.
    let is_running = ask_if_running(typed, 2, "status")?.is_some();
    let mut name = String::new();
    let restored = backup::restore(archive, now, |theirs| {
        let site = site(&config, chosen.as_deref().unwrap_or(theirs))?;
        name = first_name(site).to_owned();
        Ok(site)
    })?;
    let mut text = told(&restored);
    match (&restored.hits, is_running) {
        (_, true) => {
            ask_if_running(typed, 2, "reload")?;
            ask_if_running(typed, 2, &format!("purge {name} /*"))?;
            text.push_str("\nthe running server has it; its hit counts stay as they are");
        }
        (Some(hits), false) => {
            write_counts(config.server.state.get_ref(), &name, hits)?;
            text.push_str("\nthe hit counts are those of the backup");
        }
        (None, false) => {}
    }
    Ok(super::done(&text))
}

fn told(restored: &backup::Restored) -> String {
    let (files, site) = (restored.files, &restored.site);
    let mut text = format!("{files} files of {site}");
    for folder in &restored.folders {
        text.push_str(&format!("\nnow in {}", folder.display()));
    }
    for kept in &restored.kept {
        text.push_str(&format!("\nwhat was there is in {}", kept.display()));
    }
    text
}

fn config(typed: &Typed, nth: usize) -> Result<Config, OperatorError> {
    let overrides = Overrides {
        state: typed.path("state"),
        control: typed.path("control"),
        ..Overrides::default()
    };
    Chosen::of(typed.path_at(nth))?.read(&overrides)
}

fn word(typed: &Typed, nth: usize) -> Result<String, OperatorError> {
    let word = typed.operand_at(nth).and_then(|word| word.to_str());
    let word = word.filter(|word| !word.contains(['\n', '\r', ' ']));
    word.map(str::to_owned).ok_or_else(|| {
        OperatorError::new("SITE is no host name")
            .help("a name of the site as the configuration has it")
    })
}

fn first_name(site: &Site) -> &str {
    site.names.first().map_or("*", |name| name.get_ref())
}

fn site<'c>(config: &'c Config, name: &str) -> Result<&'c Site, OperatorError> {
    let is_it = |site: &&Site| site.names.iter().any(|own| own.get_ref() == name);
    config.sites.iter().find(is_it).ok_or_else(|| {
        let names: Vec<&str> = config.sites.iter().map(first_name).collect();
        let what = format!("there is no site `{name}` in {}", config.shown);
        OperatorError::new(what).help(format!("one of: {}", names.join(", ")))
    })
}

fn counts(state: &Path) -> Result<Hits, OperatorError> {
    let hits = Hits::default();
    let failed = |error| {
        let what = format!("the hit counts in {}: {}", state.display(), reason(&error));
        OperatorError::failure(what).help("run this as the server's user, or as root (sudo)")
    };
    hits.load(state).map_err(failed)?;
    Ok(hits)
}

fn write_counts(state: &Path, site: &str, text: &[u8]) -> Result<(), OperatorError> {
    let hits = counts(state)?;
    hits.replace(site, text);
    // The server has to be able to read them, whichever user restores.
    let owner = state.metadata().map(|owner| {
        let is_root = rustix::process::geteuid().is_root();
        is_root.then(|| (owner.uid(), owner.gid()))
    });
    let written = owner.and_then(|owner| hits.save_for(state, owner));
    written.map_err(|error| {
        let what = format!("the hit counts in {}: {}", state.display(), reason(&error));
        OperatorError::failure(format!("the content is restored, but not {what}"))
    })
}
