//! Command `rollback`: an older release of a site is served again, under a new sequence.

use super::command::{CommandSpec, OptionSpec, ParsedCommand, utf8};
use super::outcome::Outcome;
use super::output::{open_lines, print, urls};
use super::publish_hosts::next_pointer;
use super::publish_run::{signed, warn_of_unsigned};
use super::signed_records::{
    check_sequence, current, find_named, find_signed, next_sequence, previous,
};
use super::signing_key::{SITE_ID, key};
use super::site_of_store::{SiteOfStore, publisher, refuse_foreign_label, short};
use crate::content_target::stored;
use crate::destination::Destination;
use crate::key::PublisherKey;
use crate::problem::Problem;
use crate::remote::Remote;
use crate::text;
use release::acknowledgment::{ServerReport, SiteAddresses};
use release::store::{Flip, Publication, SiteRecords, SiteWriter, release_contents};
use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Instant;

pub(super) const SPEC: CommandSpec = CommandSpec {
    name: "rollback",
    usage: "rollback [OPTIONS] HOST[:SITE]|STORE[:SITE] [ID]",
    about: "Serves the previous release again, or the release with an id or a label. A second rollback\n\
            undoes the first. ID is a label, or at least 4 digits of the release id, and no sequence. The label of\n\
            another publisher is written with its owner: OWNER/LABEL.\n\
            A rollback takes one host or store.",
    options: &[
        OptionSpec::with_value("key", "FILE", "sign with an Ed25519 key"),
        SITE_ID,
        OptionSpec::with_value(
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

/// State of a site before a rollback.
struct SiteState<'r> {
    site: &'r str,
    records: &'r SiteRecords,
    report: &'r ServerReport,
}

impl SiteState<'_> {
    /// Returns the outcome if the pointer names the release already, with a signature of the same kind.
    fn unchanged(&self, release: &[u8; 32], key: Option<&PublisherKey>) -> Option<Outcome> {
        let pointed = self.records.served()?;
        let is_same = pointed.pointer.release == *release
            && !self.records.withdrawn.contains(release)
            && key.is_none_or(|key| key.is_bound_alike(pointed));
        is_same.then(|| Outcome::unchanged(pointed.pointer.sequence, self.report))
    }
}

/// Returns the publication that is served, and the release that takes its place: the release with a name for the
/// publisher `own`, or the previous one.
fn choice<'r>(
    state: &SiteState<'r>,
    name: Option<&str>,
    own: Option<&str>,
    key: Option<&PublisherKey>,
) -> Result<(&'r Publication, [u8; 32]), Problem> {
    let SiteState {
        site,
        records,
        report,
    } = *state;
    if let Some(name) = name {
        refuse_foreign_label(records, name, own)?;
    }
    let Some(served) = current(records, report) else {
        let what = format!("the site {site} has no release");
        return Err(Problem::usage(what).help("`anthill publish DIR STORE` publishes one"));
    };
    let find = |name| match key {
        Some(key) => find_signed(key, records, name),
        None => find_named(records, name),
    };
    let release = match (name, previous(key, records, served)) {
        (Some(name), _) => find(name)?,
        (None, Some(previous)) => previous.pointer.release,
        (None, None) if previous(None, records, served).is_some() => {
            let what =
                format!("the key signed no release of the site {site} before the served one");
            return Err(Problem::usage(what)
                .help("write all 64 digits of the id, from a source that you trust"));
        }
        (None, None) => {
            let what = format!("the site {site} has no previous release");
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
    let report_before = site.report(&records);
    let state = SiteState {
        site: &site.site,
        records: &records,
        report: &report_before,
    };
    let (served, release) = choice(&state, name, None, key)?;
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
    if let Some(done) = state.unchanged(&release, key) {
        let addresses = SiteAddresses::read(&site.acknowledgment());
        return report(&site.site, served, &release, &done, &addresses);
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
    let (site, report_before) = (remote.site.clone(), remote.report.clone());
    let state = SiteState {
        site: &site,
        records: &records,
        report: &report_before,
    };
    let (served, release) = choice(&state, name, own, key)?;
    if let Some(done) = state.unchanged(&release, key) {
        let addresses = remote.addresses.clone();
        remote.end();
        return report(&site, served, &release, &done, &addresses);
    }
    warn_of_unsigned(served, key);
    let pointer = next_pointer(&remote, release, key)?;
    let flip = remote.flip(&signed(key, &pointer))?;
    let addresses = remote.addresses.clone();
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
    let open = if done.is_unserved {
        String::new()
    } else {
        open_lines(urls(addresses, None, release))
    };
    let replaced = if before.pointer.release == *release || done.is_unserved {
        String::new()
    } else {
        format!("  in place of {}\n", short(&before.pointer.release))
    };
    print(&format!(
        "release {} of {site}: {}\n{replaced}{open}",
        short(release),
        done.clause
    ))?;
    Ok(Outcome::code(done.is_unserved))
}

#[cfg(test)]
mod tests {
    use super::*;
    use release::release_pointer::ReleasePointer;

    #[test]
    fn a_rollback_counts_from_the_release_that_is_served() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = PublisherKey::make(&folder.path().join("key.pem"), None).expect("a key");
        let mut records = SiteRecords {
            served: Some(3),
            ..SiteRecords::default()
        };
        // The server refuses the unsigned publication of the first release, and serves the second one.
        for (sequence, release, key) in [(1, 1, Some(&key)), (2, 2, Some(&key)), (3, 1, None)] {
            let pointer = ReleasePointer {
                site: "www".to_owned(),
                site_id: None,
                release: [release; 32],
                sequence,
                time: 1,
                publisher: "ann@laptop".to_owned(),
            };
            let text = signed(key, &pointer);
            let (pointer, signature) = ReleasePointer::parse(text.as_bytes()).expect("a pointer");
            let publication = Publication {
                pointer,
                key: signature.map(|it| it.key),
                signature: signature.map(|it| it.signature),
            };
            records.publications.insert(sequence, publication);
        }
        let report = ServerReport {
            acknowledged: Some(2),
            refusal: Some("the pointer is not signed".to_owned()),
        };
        let state = SiteState {
            site: "www",
            records: &records,
            report: &report,
        };
        let chosen = |state: &SiteState<'_>, key| {
            let (served, release) = choice(state, None, None, key).expect("a release");
            (served.pointer.sequence, release)
        };
        assert_eq!(chosen(&state, Some(&key)), (2, [1; 32]));
        assert_eq!(chosen(&state, None), (2, [1; 32]));
        // Without a signature the pointer stays as it is, and the server still refuses it.
        let unchanged = state.unchanged(&[1; 32], None).expect("an outcome");
        assert!(unchanged.is_unserved && unchanged.clause.starts_with("unchanged, sequence 3"));
        assert!(state.unchanged(&[1; 32], Some(&key)).is_none());
        assert!(state.unchanged(&[2; 32], None).is_none());
        // Without a server the pointer counts.
        let report = ServerReport::default();
        let state = SiteState {
            report: &report,
            ..state
        };
        assert_eq!(chosen(&state, None), (3, [2; 32]));
    }
}
