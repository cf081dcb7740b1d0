//! Command `publish`: a folder becomes a release of a site.

use super::command::{CommandSpec, OptionSpec, ParsedCommand};
use super::output::{print, warn};
use super::publish_hosts::{self, HostSite, HostsRun};
use super::publish_order::PublishOrder;
use super::publish_run::{Origin, PublishRun};
use super::signing_key::SITE_ID;
use super::site_of_store::{SiteOfStore, is_store, refuse_digits};
use crate::content_target::stored;
use crate::destination::{Destination, is_packed};
use crate::key::PublisherKey;
use crate::links::dead_links;
use crate::packed_release::PackedRelease;
use crate::problem::Problem;
use crate::release;
use crate::site_rules::SiteRules;
use crate::source::Source;
use crate::text;
use ::release::manifest::BlobRef;
use ::release::release_pointer::is_label;
use ::release::store::StoreWriteError;
use base::digest::hex;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

pub(super) const SPEC: CommandSpec = CommandSpec {
    name: "publish",
    usage: "publish [OPTIONS] [DIR|FILE HOST[:SITE]... | DIR|FILE STORE[:SITE] | DIR FILE]",
    about: "Publishes a folder as a release of a site. The site is served whole or not at all.\n\
            Without arguments, the file publish.toml of the current folder names the folder, the hosts and the build.\n\
            FILE is a packed release with a name that ends in .release, such as www.release. `publish DIR FILE` writes\n\
            the file, and `publish FILE HOST` publishes it.\n\
            HOST is a host of your ssh, with `anthill receive SITE` as the command of your key. With several hosts,\n\
            none serves the release before all have it.\n\
            STORE is a folder with a slash in its name, such as ./store.\n\
            Without SITE the site is the site of your key, the only site of the store, or `www`.\n\
            Exit status 3: the publication is in the store, and the server does not serve it.",
    options: &[
        OptionSpec::switch("dry-run", "show the changes, and write nothing"),
        OptionSpec::switch(
            "yes",
            "publish as a new or changed publish.toml says, without a question",
        ),
        OptionSpec::with_value(
            "preview",
            "LABEL",
            "give the release a label, and leave the served release",
        ),
        OptionSpec::with_value(
            "ssh",
            "CMD",
            "command of the shell in place of ssh, for example `ssh -p 2222`",
        ),
        OptionSpec::switch("strict", "refuse a release with dead links"),
        OptionSpec::with_value(
            "elsewhere",
            "PATH",
            "start of the paths that routes answer, without a check of links",
        ),
        OptionSpec::with_value("build", "CMD", "run a command of the shell first"),
        OptionSpec::with_value("key", "FILE", "sign with an Ed25519 key"),
        OptionSpec::with_value(
            "new-key",
            "FILE",
            "make a key, and print the public key and the lines for anthill.toml",
        ),
        SITE_ID,
    ],
    run,
};

/// Dead links in the output. Further ones are counted.
const DEAD_LINKS_SHOWN: usize = 20;
fn run(parsed: &ParsedCommand) -> Result<ExitCode, Problem> {
    let made = match parsed.value("new-key") {
        None => None,
        Some(file) => {
            let key = PublisherKey::make(Path::new(file), parsed.text("site-id")?)?;
            let public = hex(&key.public());
            let id = key.site_id().unwrap_or_default();
            print(&format!(
                "{public}\nsite_id = \"{id}\"\npublishers = [\"{public}\"]\n"
            ))?;
            Some(key)
        }
    };
    if made.is_some() && parsed.all_operands().is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let label = parsed.text("preview")?;
    if let Some(label) = label {
        if !is_label(label) {
            return Err(stored(StoreWriteError::Name(label.to_owned())));
        }
        refuse_digits(label)?;
    }
    let order = PublishOrder::of(parsed)?;
    let (source, operands) = (order.source.as_path(), &order.destinations);
    let key = order.key(parsed)?.or(made);
    let Destinations { hosts, file } = destinations(operands)?;
    if let Some(file) = &file {
        refuse_for_file(file, source, parsed)?;
    }
    if let Some(command) = &order.build {
        build(command)?;
    }
    must_be_present(source)?;
    refuse_store(source)?;
    let site = if hosts.is_empty() && file.is_none() {
        let site = SiteOfStore::find(&operands[0])?;
        site.refuse_foreign(source)?;
        site
    } else {
        publish_hosts::stage(source)?
    };
    let start = Instant::now();
    // Mistakes of the folder are named before ssh is started, which perhaps asks for a password or waits for a host.
    let mut origin = origin(source, parsed)?;
    let ssh = parsed.text("ssh")?.unwrap_or("ssh");
    let is_dry_run = parsed.has("dry-run");
    let connected = publish_hosts::connect(&hosts, ssh, || {
        check_links(&mut origin, &order)?;
        let publication = PublishRun {
            site,
            origin,
            key,
            start,
        };
        let is_made_early = !hosts.is_empty() && !is_dry_run && publication.has_own_release()?;
        let made = is_made_early.then(|| publication.make(&[])).transpose()?;
        Ok((publication, made))
    });
    let (remotes, (publication, made)) = connected?;
    if label.is_none() {
        publish_hosts::refuse_without_rights(&remotes)?;
    }
    if let Some(file) = file {
        return if is_dry_run {
            publication.dry_run()
        } else {
            publication.pack(&file)
        };
    }
    if !remotes.is_empty() {
        let run = HostsRun {
            run: &publication,
            label,
        };
        return if is_dry_run {
            run.dry_run(remotes)
        } else {
            run.publish(remotes, made)
        };
    }
    match (is_dry_run, label) {
        (true, _) => publication.dry_run(),
        (false, label) => publication.publish(label),
    }
}

/// Destinations of a publication: hosts, or a file for a packed release, or neither for a store.
struct Destinations {
    hosts: Vec<HostSite>,
    file: Option<PathBuf>,
}

/// Reads the destinations. A store or a file stands alone.
fn destinations(operands: &[OsString]) -> Result<Destinations, Problem> {
    let (mut hosts, mut file) = (Vec::new(), None);
    for operand in operands {
        let (what, path) = match Destination::parse(operand)? {
            Destination::Host(host, site) => {
                hosts.push(HostSite { host, site });
                continue;
            }
            Destination::Folder(path, _) => ("a store", path),
            Destination::Packed(path) => {
                file = Some(path.clone());
                ("a packed release", path)
            }
        };
        if operands.len() > 1 {
            let what = format!("{} is {what} among several destinations", text::file(&path));
            return Err(Problem::usage(what).help("name hosts alone, or one store, or one file"));
        }
    }
    Ok(Destinations { hosts, file })
}

/// Refuses a file for a packed release in the published folder, a packed release as the source, and options that belong
/// to the publication of the file.
fn refuse_for_file(file: &Path, source: &Path, parsed: &ParsedCommand) -> Result<(), Problem> {
    for option in ["preview", "key", "site-id"] {
        if parsed.has(option) {
            let what = format!("--{option} has no effect on a packed release");
            let help = format!(
                "write --{option} when you publish {} on a host",
                text::file(file)
            );
            return Err(Problem::usage(what).help(help));
        }
    }
    if is_packed(source) {
        let what = format!("{} is a packed release already", text::file(source));
        return Err(Problem::usage(what).help("copy the file, or name a host or a store"));
    }
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let real = folder
        .canonicalize()
        .map_err(|error| Problem::usage(format!("{}: {error}", text::file(folder))))?;
    match source.canonicalize() {
        Ok(source) if real.starts_with(&source) => {
            let what = format!("{} lies in the folder to publish", text::file(file));
            Err(Problem::usage(what).help("name a file outside of the folder"))
        }
        _ => Ok(()),
    }
}

/// Refuses a store in place of the folder to publish: its contents would become files of the site.
fn refuse_store(source: &Path) -> Result<(), Problem> {
    if !is_store(source) {
        return Ok(());
    }
    let what = format!("{} is a store of releases", text::file(source));
    Err(Problem::usage(what).help("name the folder with the site first, and then the store"))
}

/// Reads the names and the rules of the folder to publish, or a packed release. All bounds of a release are checked that do
/// not depend on the contents of the files.
fn origin(path: &Path, parsed: &ParsedCommand) -> Result<Origin, Problem> {
    if is_packed(path) {
        for option in ["build", "strict", "elsewhere"] {
            if parsed.has(option) {
                let what = format!(
                    "--{option} is for a folder, and {} is a packed release",
                    text::file(path)
                );
                return Err(Problem::usage(what).help("leave out the option, or name a folder"));
            }
        }
        return PackedRelease::open(path).map(Origin::Packed);
    }
    let source = Source::read(path)?;
    let rules = SiteRules::read(&source)?;
    if source.files.is_empty() && rules.redirects.is_empty() {
        let what = format!("{} has no files", text::file(&source.folder));
        return Err(Problem::usage(what).help("name the folder with the built site"));
    }
    release::check_bounds(&source, &rules)?;
    Ok(Origin::Folder(source, rules))
}

/// Refuses a missing folder or packed release, after the build that perhaps makes it.
fn must_be_present(source: &Path) -> Result<(), Problem> {
    let Err(error) = std::fs::metadata(source) else {
        return Ok(());
    };
    let what = format!("{}: {}", text::file(source), text::reason(&error));
    Err(Problem::usage(what).help("name the folder with the built site"))
}

/// Reads the pages of a folder, reports stray files and dead links, and keeps the digests of the pages.
fn check_links(origin: &mut Origin, order: &PublishOrder) -> Result<(), Problem> {
    let Origin::Folder(source, rules) = origin else {
        return Ok(());
    };
    if let Some(text) = source.stray_files() {
        warn(&text);
    }
    for (number, content) in report_links(source, rules, order)? {
        source.files[number].content = Some(content);
    }
    Ok(())
}

/// Runs a command of the shell.
fn build(command: &str) -> Result<(), Problem> {
    let status = Command::new("sh").arg("-c").arg(command).status();
    let status = status.map_err(|error| Problem::failure(format!("sh: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Problem::failure(format!("the build failed: {status}"))
            .help("nothing is published; correct the build, and publish again"))
    }
}

/// Prints the dead links and rules without effect. With `--strict` a dead link is an error. Returns the contents of the
/// pages by the numbers of their files.
fn report_links(
    source: &Source,
    rules: &SiteRules,
    order: &PublishOrder,
) -> Result<Vec<(usize, BlobRef)>, Problem> {
    let failed = |error| Problem::failure(format!("{}: {error}", text::file(&source.folder)));
    let checked = dead_links(source, rules, &order.elsewhere).map_err(failed)?;
    let dead = checked.dead;
    for remark in &rules.warnings {
        warn(remark);
    }
    for link in dead.iter().take(DEAD_LINKS_SHOWN) {
        warn(&format!("{}: {}: {}", link.place, link.target, link.what));
    }
    if let Some(more) = dead.len().checked_sub(DEAD_LINKS_SHOWN + 1) {
        warn(&text::count(more + 1, "further dead link"));
    }
    match dead.len() {
        count if count > 0 && order.is_strict => {
            let what = format!("the release has {}", text::count(count, "dead link"));
            Err(Problem::usage(what).help(
                "correct the pages, or name paths that a route answers with --elsewhere /path/",
            ))
        }
        _ => Ok(checked.contents),
    }
}
