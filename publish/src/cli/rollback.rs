//! Command `rollback`: an older release of a site is served again, under a new sequence.

use super::command::{CommandSpec, ParsedCommand, utf8};
use super::print;
use super::publish::signed;
use super::publish_hosts::{next_pointer, published};
use super::signed_records::{check_sequence, find_signed, next_sequence, signed_before};
use super::site_of_store::{SiteOfStore, find_release, publisher, short};
use crate::contents::stored;
use crate::destination::Destination;
use crate::key::PublisherKey;
use crate::problem::Problem;
use crate::remote::Remote;
use crate::text;
use anthill_data_plane::store::{Flip, SiteRecords, SiteWriter, release_contents};
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

pub(super) const SPEC: CommandSpec = CommandSpec {
    name: "rollback",
    usage: "rollback [OPTIONS] HOST[:SITE]|STORE[:SITE] [ID]",
    about: "Serves the release before again, or the release with an id or a label. A second rollback\n\
            undoes the first.",
    options: &[
        ("key", "FILE", "sign with an Ed25519 key"),
        (
            "ssh",
            "CMD",
            "command of the shell in place of ssh, for example `ssh -p 2222`",
        ),
    ],
    run,
};

fn run(parsed: &ParsedCommand) -> Result<ExitCode, Problem> {
    let operands = parsed.operands(1..=2)?;
    let name = operands.get(1).map(|name| utf8(name)).transpose()?;
    let key = parsed
        .value("key")
        .map(|file| PublisherKey::read(Path::new(file)));
    let key = key.transpose()?;
    match Destination::parse(&operands[0])? {
        Destination::Folder(..) | Destination::Packed(_) => {
            in_store(&operands[0], name, key.as_ref())
        }
        Destination::Host(host, site) => {
            let ssh = parsed.text("ssh")?.unwrap_or("ssh");
            let remote = Remote::connect(ssh, &host, site.as_deref())?;
            on_host(remote, name, key.as_ref())
        }
    }
}

/// Returns the served release, and the release that takes its place.
fn choice(
    site: &str,
    records: &SiteRecords,
    name: Option<&str>,
    key: Option<&PublisherKey>,
) -> Result<([u8; 32], [u8; 32]), Problem> {
    let Some(served) = records.served() else {
        let what = format!("the site {site} has no release");
        return Err(Problem::usage(what).help("`anthill publish DIR STORE` publishes one"));
    };
    let before = match key {
        Some(key) => signed_before(key, records),
        None => records.before_served(),
    };
    let release = match (name, before) {
        (Some(name), _) => match key {
            Some(key) => find_signed(key, records, name)?,
            None => find_release(records, name)?,
        },
        (None, Some(before)) => before.pointer.release,
        (None, None) if records.before_served().is_some() => {
            let what =
                format!("the key signed no release of the site {site} before the served one");
            return Err(Problem::usage(what)
                .help("write all 64 digits of the id, from a source that you trust"));
        }
        (None, None) => {
            let what = format!("the site {site} has no release before");
            return Err(Problem::usage(what).help("`anthill releases` lists the releases"));
        }
    };
    Ok((served.pointer.release, release))
}

fn in_store(
    place: &OsStr,
    name: Option<&str>,
    key: Option<&PublisherKey>,
) -> Result<ExitCode, Problem> {
    let site = SiteOfStore::find_present(place)?;
    let writer = site.writer()?;
    let records = site.records()?;
    let (served, release) = choice(&site.site, &records, name, key)?;
    for content in release_contents(writer.reader(), &release).map_err(stored)? {
        if !writer.has(&content).map_err(stored)? {
            let what = format!(
                "the release {} is not complete in the store",
                short(&release)
            );
            return Err(
                Problem::failure(what).help("`anthill releases verify STORE` lists the damage")
            );
        }
    }
    check_sequence(key, &records, next_sequence(&records)?)?;
    let flip = Flip {
        release,
        seen: records.served,
        time: text::now(),
        publisher: publisher(),
    };
    let lock = SiteWriter::lock(&writer, &site.site).map_err(stored)?;
    let pointer = lock.flip(flip, |pointer| signed(key, pointer));
    let pointer = pointer.map_err(stored)?;
    print(&format!(
        "release {} of {}: published, sequence {}, in place of {}\n",
        short(&release),
        site.site,
        pointer.sequence,
        short(&served)
    ))
}

fn on_host(
    mut remote: Remote,
    name: Option<&str>,
    key: Option<&PublisherKey>,
) -> Result<ExitCode, Problem> {
    let start = Instant::now();
    let (served, release) = choice(&remote.site, &remote.records, name, key)?;
    let pointer = next_pointer(&remote, release, key)?;
    let flip = remote.flip(&signed(key, &pointer))?;
    let site = remote.site.clone();
    remote.end();
    print(&format!(
        "release {} of {site}: {}, in place of {}\n",
        short(&release),
        published(&flip, start),
        short(&served)
    ))
}
