//! Command `rollback`: an older release of a site is served again, under a new sequence.

use super::command::{CommandSpec, ParsedCommand, utf8};
use super::outcome::Outcome;
use super::print;
use super::publish::{SITE_ID, key, signed, warn_of_unsigned};
use super::publish_hosts::{next_pointer, open_lines, urls};
use super::signed_records::{check_sequence, find_signed, next_sequence, signed_before};
use super::site_of_store::{SiteOfStore, find_release, publisher, refuse_foreign_label, short};
use crate::contents::stored;
use crate::destination::Destination;
use crate::key::PublisherKey;
use crate::problem::Problem;
use crate::remote::Remote;
use crate::text;
use anthill_data_plane::site::SiteAddresses;
use anthill_data_plane::store::{Flip, Publication, SiteRecords, SiteWriter, release_contents};
use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Instant;

pub(super) const SPEC: CommandSpec = CommandSpec {
    name: "rollback",
    usage: "rollback [OPTIONS] HOST[:SITE]|STORE[:SITE] [ID]",
    about: "Serves the release before again, or the release with an id or a label. A second rollback\n\
            undoes the first. ID is a label, or at least 4 digits of the release id, and no sequence. The label of\n\
            another publisher is written with its owner: OWNER/LABEL.\n\
            A rollback takes one host or store.",
    options: &[
        ("key", "FILE", "sign with an Ed25519 key"),
        SITE_ID,
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
    let key = key(parsed)?;
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

/// Returns the publication of the pointer, and the release that takes its place: the release with a name for the
/// publisher `own`.
fn choice<'r>(
    site: &str,
    records: &'r SiteRecords,
    (name, own): (Option<&str>, Option<&str>),
    key: Option<&PublisherKey>,
) -> Result<(&'r Publication, [u8; 32]), Problem> {
    if let Some(name) = name {
        refuse_foreign_label(records, name, own)?;
    }
    let Some(served) = records.served() else {
        let what = format!("the site {site} has no release");
        return Err(Problem::usage(what).help("`anthill publish DIR STORE` publishes one"));
    };
    let before = match key {
        Some(key) => signed_before(key, records),
        None => records.before_served(),
    };
    let find = |name| match key {
        Some(key) => find_signed(key, records, name),
        None => find_release(records, name),
    };
    let release = match (name, before) {
        (Some(name), _) => find(name).map_err(|problem| {
            problem.help(
                "a rollback takes one host or store, and then a label or at least 4 digits of an id; `anthill releases` \
                 lists them",
            )
        })?,
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
    Ok((served, release))
}

fn in_store(
    place: &OsStr,
    name: Option<&str>,
    key: Option<&PublisherKey>,
) -> Result<ExitCode, Problem> {
    let start = Instant::now();
    let site = SiteOfStore::find_present(place)?;
    let writer = site.writer()?;
    let records = site.records()?;
    let (served, release) = choice(&site.site, &records, (name, None), key)?;
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
    warn_of_unsigned(served, key);
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
    drop(lock);
    let done = site.published(&pointer, start);
    let addresses = SiteAddresses::read(&site.acknowledgment());
    report(&site.site, served, &release, &done, &addresses)
}

fn on_host(
    mut remote: Remote,
    name: Option<&str>,
    key: Option<&PublisherKey>,
) -> Result<ExitCode, Problem> {
    let start = Instant::now();
    let records = remote.records.clone();
    let own = remote.publisher.as_deref();
    let (served, release) = choice(&remote.site, &records, (name, own), key)?;
    warn_of_unsigned(served, key);
    let pointer = next_pointer(&remote, release, key)?;
    let flip = remote.flip(&signed(key, &pointer))?;
    let (site, addresses) = (remote.site.clone(), remote.addresses.clone());
    remote.end();
    let done = Outcome::published(&site, flip.sequence, &flip.report, start);
    report(&site, served, &release, &done, &addresses)
}

/// Prints the outcome, with the address of a site that is served.
fn report(
    site: &str,
    before: &Publication,
    release: &[u8; 32],
    done: &Outcome,
    addresses: &SiteAddresses,
) -> Result<ExitCode, Problem> {
    let open = match done.is_unserved {
        true => String::new(),
        false => open_lines(urls(addresses, None, release)),
    };
    print(&format!(
        "release {} of {site}: {}\n  in place of {}\n{open}",
        short(release),
        done.clause,
        short(&before.pointer.release)
    ))?;
    Ok(Outcome::code(done.is_unserved))
}
