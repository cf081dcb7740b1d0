//! Command `rollback`: an older release of a site is served again, under a new sequence.

use super::command::{CommandSpec, ParsedCommand, utf8};
use super::print;
use super::publish::signed;
use super::site_of_store::{SiteOfStore, find_release, publisher, short};
use crate::contents::stored;
use crate::key::PublisherKey;
use crate::problem::Problem;
use crate::text;
use anthill_data_plane::store::{Flip, SiteWriter, release_contents};
use std::path::Path;
use std::process::ExitCode;

pub(super) const SPEC: CommandSpec = CommandSpec {
    name: "rollback",
    usage: "rollback [OPTIONS] STORE[:SITE] [ID]",
    about: "Serves the release before again, or the release with an id or a label. A second rollback\n\
            undoes the first.",
    options: &[("key", "FILE", "sign with an Ed25519 key")],
    run,
};

fn run(parsed: &ParsedCommand) -> Result<ExitCode, Problem> {
    let operands = parsed.operands(1..=2)?;
    let site = SiteOfStore::find_present(&operands[0])?;
    let key = parsed
        .value("key")
        .map(|file| PublisherKey::read(Path::new(file)));
    let key = key.transpose()?;
    let writer = site.writer()?;
    let records = site.records()?;
    let Some(served) = records.served() else {
        let what = format!("the site {} has no release", site.site);
        return Err(Problem::usage(what).help("`anthill publish DIR STORE` publishes one"));
    };
    let release = match operands.get(1) {
        Some(name) => find_release(&records, utf8(name)?)?,
        None => match records.before_served() {
            Some(before) => before.pointer.release,
            None => {
                let what = format!("the site {} has no release before", site.site);
                return Err(
                    Problem::usage(what).help("`anthill releases STORE` lists the releases")
                );
            }
        },
    };
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
    let flip = Flip {
        release,
        seen: Some(served.pointer.sequence),
        time: text::now(),
        publisher: publisher(),
    };
    let lock = SiteWriter::lock(&writer, &site.site).map_err(stored)?;
    let pointer = lock.flip(flip, |pointer| signed(key.as_ref(), pointer));
    let pointer = pointer.map_err(stored)?;
    print(&format!(
        "release {} of {}: published, sequence {}, in place of {}\n",
        short(&release),
        site.site,
        pointer.sequence,
        short(&served.pointer.release)
    ))
}
