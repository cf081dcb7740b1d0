//! Command `releases`: lists, marks, verifies and sweeps the releases of a site.

use super::command::{CommandSpec, OptionSpec, ParsedCommand, utf8};
use super::output::print;
use super::signed_records::{current, previous};
use super::site_of_store::{
    SiteOfStore, find_release, must_have_label, refuse_digits, refuse_foreign_label, short,
};
use super::{release_list, releases_of_host};
use crate::content_stream::is_coding_of;
use crate::content_target::stored;
use crate::destination::Destination;
use crate::problem::Problem;
use crate::release;
use crate::remote::Remote;
use crate::text;
use ::release::store::{
    LabelEditor, ReleaseMark, ReleaseStore as _, Retention, SiteWriter, StoreFolder, read_manifest,
    release_contents, remove_content, sweep, verify_content,
};
use base::digest::hex;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

pub(super) const SPEC: CommandSpec = CommandSpec {
    name: "releases",
    usage: "releases [ACTION] HOST[:SITE]|STORE[:SITE] [LABEL] [ID]",
    about: "Lists the releases of a site, the newest first. ID is a label, or the first digits of an id.\n\
            In place of STORE, each action but sweep takes a host of your ssh.\n\
            The label of another publisher is written with its owner: OWNER/LABEL.\n\
            \n\
            pin STORE ID           the release is never swept\n\
            unpin STORE ID         the release may be swept again\n\
            withdraw STORE ID      the release is never served again\n\
            label STORE LABEL ID   the release gets a label for previews\n\
            unlabel STORE LABEL    the label is removed\n\
            verify STORE [ID]      all contents are compared with their digests\n\
            sweep STORE            releases and contents without use are removed",
    options: &[
        OptionSpec::switch("json", "list as JSON"),
        OptionSpec::with_value(
            "ssh",
            "CMD",
            "command of the shell in place of ssh, for example `ssh -p 2222`",
        ),
        OptionSpec::switch(
            "remove",
            "verify: remove wrong contents, so that the next publication writes them anew",
        ),
        OptionSpec::with_value("keep", "NUMBER", "sweep: releases that stay (10)"),
        OptionSpec::with_value(
            "seconds",
            "NUMBER",
            "sweep: seconds for which further releases and parts of ended uploads stay (86400)",
        ),
        OptionSpec::with_value(
            "bytes",
            "NUMBER",
            "sweep: bytes of the releases of a site that stay (4294967296)",
        ),
    ],
    run,
};

fn run(parsed: &ParsedCommand) -> Result<ExitCode, Problem> {
    let words = parsed.all_operands();
    let action = words.first().and_then(|word| word.to_str());
    let actions = ["pin", "unpin", "withdraw", "label", "unlabel", "verify"];
    let action_of_host = action.filter(|word| actions.contains(word));
    let place = words.get(usize::from(action_of_host.is_some()));
    refuse_unknown_action(match action_of_host {
        Some(_) => &[],
        None => words,
    })?;
    if let Some(place) = place
        && let Destination::Host(host, site) = Destination::parse(place)?
        && action != Some("sweep")
    {
        let ssh = parsed.text("ssh")?.unwrap_or("ssh");
        let remote = Remote::connect(ssh, &host, site.as_deref())?;
        return releases_of_host::run(remote, action_of_host, parsed);
    }
    match action {
        Some(action @ ("pin" | "unpin" | "withdraw")) => {
            let words = parsed.operands(3..=3)?;
            mark(action, &words[1], utf8(&words[2])?)
        }
        Some("label") => {
            let words = parsed.operands(4..=4)?;
            label(&words[1], utf8(&words[2])?, Some(utf8(&words[3])?))
        }
        Some("unlabel") => {
            let words = parsed.operands(3..=3)?;
            label(&words[1], utf8(&words[2])?, None)
        }
        Some("verify") => {
            let words = parsed.operands(2..=3)?;
            let name = words.get(2).map(|word| utf8(word)).transpose()?;
            verify(&words[1], name, parsed.has("remove"))
        }
        Some("sweep") => {
            let words = parsed.operands(2..=2)?;
            sweep_store(&words[1], &retention(parsed)?)
        }
        _ => {
            let words = parsed.operands(1..=1)?;
            let site = SiteOfStore::find_present(&words[0])?;
            let records = site.records()?;
            let report = site.report(&records);
            let files_of = &mut |release: &[u8; 32]| site.files(release);
            if parsed.has("json") {
                print(&release_list::json(&records, &report, files_of))
            } else {
                print(&release_list::table(&records, &report, files_of))
            }
        }
    }
}

/// Refuses a word before further words that is no action.
fn refuse_unknown_action(words: &[OsString]) -> Result<(), Problem> {
    let action = words.first().and_then(|word| word.to_str());
    match action {
        Some(action) if words.len() > 1 && action != "sweep" => Err(Problem::usage(format!(
            "`{action}` is no action of `anthill releases`"
        ))
        .help("pin, unpin, withdraw, label, unlabel, verify and sweep are the actions")),
        _ => Ok(()),
    }
}

fn mark(action: &str, place: &OsStr, name: &str) -> Result<ExitCode, Problem> {
    let site = SiteOfStore::find_present(place)?;
    let writer = site.writer()?;
    let records = site.records()?;
    let release = find_release(&records, name)?;
    let lock = SiteWriter::lock(&writer, &site.site).map_err(stored)?;
    let done = match action {
        "pin" => lock.mark(ReleaseMark::Pinned, &release),
        "unpin" => lock.unpin(&release),
        _ => lock.mark(ReleaseMark::Withdrawn, &release),
    };
    done.map_err(stored)?;
    let current = current(&records, &site.report(&records));
    let current = current.filter(|it| it.pointer.release == release);
    let done = match action {
        "pin" => "pinned",
        "unpin" => "not pinned",
        _ => match current.map(|current| previous(None, &records, current).is_some()) {
            Some(true) => {
                "withdrawn; the site has no release now, and `anthill rollback` serves the previous release"
            }
            Some(false) => "withdrawn; the site has no release until the next publication",
            None => "withdrawn",
        },
    };
    print(&format!(
        "release {} of {}: {done}\n",
        short(&release),
        site.site
    ))
}

fn label(place: &OsStr, label: &str, name: Option<&str>) -> Result<ExitCode, Problem> {
    let site = SiteOfStore::find_present(place)?;
    let writer = site.writer()?;
    let lock = SiteWriter::lock(&writer, &site.site).map_err(stored)?;
    let Some(name) = name else {
        must_have_label(&site.records()?, label)?;
        let removed = lock.remove_label(label, LabelEditor::LOCAL);
        removed.map_err(stored)?;
        return print(&format!("label {label} of {}: removed\n", site.site));
    };
    refuse_digits(label)?;
    let records = site.records()?;
    refuse_foreign_label(&records, name, None)?;
    let release = find_release(&records, name)?;
    let labelled = lock.set_label(label, &release, LabelEditor::LOCAL);
    labelled.map_err(stored)?;
    print(&format!(
        "release {} of {}: labelled {label}\n",
        short(&release),
        site.site
    ))
}

fn open(site: &SiteOfStore) -> Result<StoreFolder, Problem> {
    let failed = |error| Problem::failure(format!("the store {}: {error}", text::file(&site.path)));
    StoreFolder::open(&site.path).map_err(failed)
}

/// Compares all contents of one release, or of all releases, with their digests.
fn verify(place: &OsStr, name: Option<&str>, is_removing: bool) -> Result<ExitCode, Problem> {
    let site = SiteOfStore::find_present(place)?;
    let store = open(&site)?;
    let records = site.records()?;
    let releases = match name {
        Some(name) => vec![find_release(&records, name)?],
        None => records.releases(),
    };
    let (mut seen, mut checked) = (HashSet::new(), HashSet::new());
    let mut wrong = 0_usize;
    let mut report = String::new();
    for release in &releases {
        wrong += report_wrong_codings(&store, release, &mut checked, &mut report);
        let contents = match release_contents(&store, release) {
            Ok(contents) => contents,
            Err(error) => {
                wrong += 1;
                report.push_str(&format!("{error}\n"));
                continue;
            }
        };
        for content in contents {
            if !seen.insert(content.digest) {
                continue;
            }
            if let Err(error) = verify_content(&store, &content) {
                wrong += 1;
                report.push_str(&format!("content {}: {error}\n", hex(&content.digest)));
                if is_removing {
                    remove_content(&store, &content.digest).map_err(stored)?;
                }
            }
        }
    }
    report.push_str(&format!(
        "{}, {}: {wrong} wrong\n",
        text::count(releases.len(), "release"),
        text::count(seen.len(), "content")
    ));
    print(&report)?;
    match wrong {
        0 => Ok(ExitCode::SUCCESS),
        _ if is_removing => Err(Problem::failure("the wrong contents are removed").help(
            "publish the folder again, which writes the missing contents anew",
        )),
        _ => Err(Problem::failure("the store is damaged").help(
            "remove wrong contents with `anthill releases verify --remove`, and publish the folder again",
        )),
    }
}

/// Reports the coded contents of a release that do not decode to their texts, and returns their number. A present content
/// may be the coding of another text. A damaged content is reported with its digest elsewhere.
fn report_wrong_codings(
    store: &StoreFolder,
    release: &[u8; 32],
    checked: &mut HashSet<([u8; 32], [u8; 32])>,
    report: &mut String,
) -> usize {
    let text = read_manifest(store, release).unwrap_or_default();
    let mut wrong = 0;
    for file in release::files(&text).unwrap_or_default() {
        let content = &file.contents.content;
        for (coding, coded) in &file.contents.coded {
            if !checked.insert((content.digest, coded.digest))
                || verify_content(store, coded).is_err()
            {
                continue;
            }
            let open = store.open_blob(&coded.digest);
            if !open.is_ok_and(|open| is_coding_of(open, *coding, coded, content)) {
                wrong += 1;
                let (file, digest) = (text::path(&file.path), hex(&coded.digest));
                report.push_str(&format!(
                    "release {}: {file}: the content {digest} is no coding of the file\n",
                    short(release)
                ));
            }
        }
    }
    wrong
}

fn retention(parsed: &ParsedCommand) -> Result<Retention, Problem> {
    let default = Retention::default();
    let releases = parsed.number("keep")?;
    let releases = releases.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    Ok(Retention {
        releases: releases.unwrap_or(default.releases),
        seconds: parsed.number("seconds")?.unwrap_or(default.seconds),
        bytes: parsed.number("bytes")?.unwrap_or(default.bytes),
    })
}

fn sweep_store(place: &OsStr, retention: &Retention) -> Result<ExitCode, Problem> {
    let (path, _) = crate::destination::Destination::folder(place)?;
    let failed = |error| Problem::failure(format!("the store {}: {error}", text::file(&path)));
    let store = StoreFolder::open(&path).map_err(failed)?;
    let report = sweep(&store, retention, text::now()).map_err(stored)?;
    print(&format!(
        "removed {}, {}, {}\n",
        text::count(report.publications, "publication"),
        text::count(report.contents, "content"),
        text::bytes(report.bytes)
    ))
}
