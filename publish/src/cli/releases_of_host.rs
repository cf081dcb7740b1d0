//! Releases of a site of another host: the list and the actions of `releases`.

use super::command::{ParsedCommand, utf8};
use super::output::print;
use super::release_list;
use super::site_of_store::{
    find_release, must_have_label, refuse_digits, refuse_foreign_label, short,
};
use crate::problem::Problem;
use crate::release;
use crate::remote::Remote;
use base::digest::hex;
use std::process::ExitCode;

/// Runs an action, or lists the releases without an action.
pub(super) fn run(
    mut remote: Remote,
    action: Option<&str>,
    parsed: &ParsedCommand,
) -> Result<ExitCode, Problem> {
    let (answer, code) = match action {
        None => {
            parsed.operands(1..=1)?;
            (list(&mut remote, parsed.has("json")), ExitCode::SUCCESS)
        }
        Some("label") => {
            let words = parsed.operands(4..=4)?;
            let label = utf8(&words[2])?;
            refuse_digits(label)?;
            let (name, own) = (utf8(&words[3])?, remote.publisher.as_deref());
            refuse_foreign_label(&remote.records, name, own)?;
            let release = find_release(&remote.records, name)?;
            remote.command(&format!("label {label} {}", hex(&release)))?;
            let answer = format!(
                "release {} of {}: labelled {label}\n",
                short(&release),
                remote.site
            );
            (answer, ExitCode::SUCCESS)
        }
        Some("unlabel") => {
            let words = parsed.operands(3..=3)?;
            let label = utf8(&words[2])?;
            must_have_label(&remote.records, label)?;
            remote.command(&format!("unlabel {label}"))?;
            let answer = format!("label {label} of {}: removed\n", remote.site);
            (answer, ExitCode::SUCCESS)
        }
        Some("verify") => verify(&mut remote, parsed)?,
        Some(action) => {
            let words = parsed.operands(3..=3)?;
            let release = find_release(&remote.records, utf8(&words[2])?)?;
            remote.command(&format!("{action} {}", hex(&release)))?;
            let done = match action {
                "pin" => "pinned",
                "unpin" => "not pinned",
                _ => "withdrawn",
            };
            let answer = format!("release {} of {}: {done}\n", short(&release), remote.site);
            (answer, ExitCode::SUCCESS)
        }
    };
    remote.end();
    print(&answer)?;
    Ok(code)
}

fn list(remote: &mut Remote, is_json: bool) -> String {
    let (records, report) = (remote.records.clone(), remote.report.clone());
    let files_of = &mut |release: &[u8; 32]| release::files(&remote.manifest(release).ok()?).ok();
    if is_json {
        release_list::json(&records, &report, files_of)
    } else {
        release_list::table(&records, &report, files_of)
    }
}

/// Has the host compare the contents of one release, or of all releases, with their digests.
fn verify(remote: &mut Remote, parsed: &ParsedCommand) -> Result<(String, ExitCode), Problem> {
    let words = parsed.operands(2..=3)?;
    let releases = match words.get(2) {
        Some(name) => vec![find_release(&remote.records, utf8(name)?)?],
        None => remote.records.releases(),
    };
    let mut report = String::new();
    let mut is_damaged = false;
    for release in releases {
        let answer = remote.command(&format!("verify {}", hex(&release)))?;
        is_damaged |= answer.lines().any(|line| line.starts_with("wrong "));
        report.push_str(&format!("release {}\n", short(&release)));
        for line in answer.lines() {
            report.push_str(&format!("  {}\n", line.escape_debug()));
        }
    }
    let code = if is_damaged {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    };
    Ok((report, code))
}
