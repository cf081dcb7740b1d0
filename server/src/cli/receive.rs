//! `anthill receive`: receives releases on standard input and output, and prints the line that lets an ssh key of a
//! publisher do so and nothing else.

use crate::cli::shared_options::CommandSpec;
use cli::output::print_message;
use cli::output::print_result;
use cli::{CommandOption, Operand, ValueKind};
use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use crate::receive::limits::RECEIVE_IDLE_SECONDS_MAX;
use crate::receive::{self, IdleInput, IdleOutput, ReceiveOptions, Rights};
use base::clock;
use base::digest::hex;
use release::release_pointer::{is_label, is_publisher};
use release::store::{
    ReleaseMark, ReleaseSupport, Retention, SiteRecords, SiteWriter, StoreFolder, StoreWriteError,
    StoreWriter, served_folder, sweep,
};

/// The command `receive`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "receive",
    about: "Receive releases of a site from a publisher",
    details: &[
        "The command speaks with `anthill publish` on standard input and output, mostly by ssh. SITE is the name of \
         `release` in the configuration. The publisher cannot run anything else if the line of the key in \
         authorized_keys has this command: --key-line prints the line, for KEY write the public key.",
    ],
    operands: &[Operand {
        name: "SITE",
        required: true,
        values: ValueKind::Any,
    }],
    options: &[
        CommandOption {
            long: "store",
            short: None,
            value: Some(("DIR", ValueKind::Folders)),
            about: "Folder of the store; required",
        },
        CommandOption {
            long: "rights",
            short: None,
            value: Some(("RIGHTS", ValueKind::Words(&Rights::WORDS))),
            about: "Rights of the publisher (default publish)",
        },
        CommandOption {
            long: "publisher",
            short: None,
            value: Some(("NAME", ValueKind::Any)),
            about: "Name of the publisher, the owner of its labels; needed with the rights preview",
        },
        CommandOption {
            long: "quota",
            short: None,
            value: Some(("BYTES", ValueKind::Any)),
            about: "Bytes of all releases in the store, beyond which none is accepted",
        },
        CommandOption {
            long: "key-line",
            short: None,
            value: None,
            about: "Print the line for authorized_keys",
        },
        CommandOption {
            long: "withdraw",
            short: None,
            value: Some(("ID", ValueKind::Any)),
            about: "Never serve the release again, on this machine",
        },
    ],
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let options = options(typed)?;
    if typed.has("key-line") {
        return Ok(print_result(&key_line(&options)?));
    }
    if let Some(id) = typed.text("withdraw")? {
        return withdraw(&options, &id);
    }
    let is_terminal = io::stdin().is_terminal();
    let mut input = io::BufReader::new(IdleInput::new(io::stdin(), RECEIVE_IDLE_SECONDS_MAX));
    if is_terminal || input.fill_buf().is_ok_and(<[u8]>::is_empty) {
        print_message(&format!(
            "this command receives releases of the site {} from `anthill publish`, and is no shell: run `anthill publish DIR \
             HOST` or `anthill releases HOST` on the own machine",
            options.site
        ));
        // A login without input shows that the key works.
        return Ok(match is_terminal {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        });
    }
    // The program that the publisher asked for (SSH_ORIGINAL_COMMAND) decides nothing: the account's own command does.
    let output = IdleOutput::new(io::stdout(), RECEIVE_IDLE_SECONDS_MAX);
    let done = receive::receive(&options, input, output);
    sweep_releases(&options);
    // The publisher has the reason of a refusal.
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Returns the support of releases, or the error of a build without releases.
pub(super) fn release_support() -> Result<ReleaseSupport, OperatorError> {
    ReleaseSupport::find().ok_or_else(|| {
        OperatorError::new("this build has no releases").help("install a build with releases")
    })
}

fn options(typed: &ParsedArguments) -> Result<ReceiveOptions, OperatorError> {
    let support = release_support()?;
    let site = typed.operand_at(0).and_then(|site| site.to_str());
    let site = site.unwrap_or_default().to_owned();
    if !is_label(&site) {
        return Err(OperatorError::new(format!(
            "`{site}` is not the name of a site in a store"
        ))
        .help("write the name of `release` in anthill.toml: letters, digits, dots, hyphens and underscores"));
    }
    let store = typed.path("store").ok_or_else(|| {
        OperatorError::new("`anthill receive` needs the folder of the store")
            .help("write anthill receive SITE --store /var/lib/anthill/releases")
    })?;
    let rights = typed.text("rights")?;
    let publisher = typed.text("publisher")?;
    if let Some(name) = publisher.as_ref().filter(|name| !is_publisher(name)) {
        return Err(
            OperatorError::new(format!("--publisher: `{name}` is no name of a publisher"))
                .help("write at most 63 visible ASCII characters without a space"),
        );
    }
    let rights = rights.as_deref().and_then(Rights::of);
    let rights = rights.unwrap_or(Rights::Publish);
    if rights == Rights::Preview && publisher.is_none() && typed.text("withdraw")?.is_none() {
        return Err(OperatorError::new(
            "--rights preview needs --publisher: the labels of previews belong to the publisher with the name",
        )
        .help("write --publisher NAME, with another name for each publisher"));
    }
    Ok(ReceiveOptions {
        site,
        served: served_folder(&store),
        store,
        rights,
        publisher,
        quota: quota(typed)?,
        support,
    })
}

/// Reads the bound of the bytes in a store.
pub(super) fn quota(typed: &ParsedArguments) -> Result<Option<u64>, OperatorError> {
    let Some(text) = typed.text("quota")? else {
        return Ok(None);
    };
    let quota = text.parse().map_err(|_| {
        OperatorError::new(format!("--quota: `{text}` is not a number of bytes"))
            .help("write digits alone, for example 1000000000")
    });
    quota.map(Some)
}

/// Returns the path of this program.
pub(super) fn own_program() -> Result<String, OperatorError> {
    let program = std::env::current_exe().map_err(|error| {
        OperatorError::failure(format!("the path of this program is unknown: {error}"))
    })?;
    Ok(program.display().to_string())
}

/// Returns the beginning of a line for `authorized_keys` (sshd(8)): the key that follows may run this command alone.
pub(super) fn key_line(options: &ReceiveOptions) -> Result<String, OperatorError> {
    let store = std::path::absolute(&options.store).unwrap_or_else(|_| options.store.clone());
    let mut words = vec![
        own_program()?,
        "receive".to_owned(),
        options.site.clone(),
        "--store".to_owned(),
        store.display().to_string(),
        "--rights".to_owned(),
        options.rights.word().to_owned(),
    ];
    if let Some(publisher) = &options.publisher {
        words.extend(["--publisher".to_owned(), publisher.clone()]);
    }
    if let Some(quota) = options.quota {
        words.extend(["--quota".to_owned(), quota.to_string()]);
    }
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let command = words.join(" ");
    // sshd knows one escape within the quotation marks.
    let command = command.replace('"', "\\\"");
    Ok(format!("restrict,command=\"{command}\" KEY"))
}

/// Quotes a word for the shell of the account.
fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Withdraws the release with an id, or with the beginning of an id.
fn withdraw(options: &ReceiveOptions, id: &str) -> Result<ExitCode, OperatorError> {
    let failed = |error: StoreWriteError| {
        OperatorError::failure(format!("{}: {error}", options.store.display()))
    };
    let store = StoreWriter::open(&options.store).map_err(failed)?;
    let site = SiteWriter::lock(&store, &options.site).map_err(failed)?;
    let records = SiteRecords::read(store.reader(), &options.site).map_err(failed)?;
    let releases = records.releases();
    let mut found = releases
        .iter()
        .filter(|release| hex(*release).starts_with(id));
    let (Some(release), None) = (found.next(), found.next()) else {
        return Err(OperatorError::new(format!(
            "`{id}` is not the beginning of the id of exactly one release of the site `{}`",
            options.site
        ))
        .help("`anthill releases` lists the ids"));
    };
    site.mark(ReleaseMark::Withdrawn, release).map_err(failed)?;
    Ok(print_result(&format!(
        "release {} is withdrawn: no answer comes from it any more",
        hex(release)
    )))
}

/// Removes releases beyond the retention. A busy store is swept after another publication, and an error of a sweep
/// does not concern the publisher.
fn sweep_releases(options: &ReceiveOptions) {
    if let Ok(store) = StoreFolder::open(&options.store) {
        let _ = sweep(&store, &Retention::default(), clock::unix_seconds_now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_a_key_runs_one_command() {
        let options = ReceiveOptions {
            site: "www".to_owned(),
            store: "/srv/my \"own\" site's".into(),
            served: "/srv/served".into(),
            rights: Rights::Preview,
            publisher: Some("ann@laptop".to_owned()),
            quota: Some(1_000),
            support: release_support().expect("the feature"),
        };
        let line = key_line(&options).expect("a line");
        assert!(line.starts_with("restrict,command=\""), "{line}");
        let end = " receive www --store '/srv/my \\\"own\\\" site'\\''s' --rights preview --publisher ann@laptop \
                   --quota 1000\" KEY";
        assert!(line.ends_with(end), "{line}");
    }
}
