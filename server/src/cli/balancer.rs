//! `anthill balancer`: lists the balancers, and drains, disables, enables or stops a member.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::control_client::ask;
use super::parse::ParsedArguments;
use crate::admin::command::{Command, MemberCommand, StatusFormat};
use crate::config::{OperatorError, parse_seconds};
use crate::limits::{MEMBER_WAIT_SECONDS, MEMBER_WAIT_SECONDS_MAX};
use crate::upstream::settings::AdminState;

/// Time for an answer that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Actions of the command. The first action is the default, also before a folder or file.
pub(super) const ACTIONS: &[&str] = &["list", "drain", "disable", "enable", "stop"];

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let action = typed.operand_at(0).and_then(OsStr::to_str);
    let state = match action {
        Some("drain") => AdminState::Draining,
        Some("disable") => AdminState::Disabled,
        Some("enable") => AdminState::Enabled,
        Some("stop") => AdminState::Stopped,
        _ => return list(typed),
    };
    if typed.has("json") {
        return Err(refuse("`--json` is for the list"));
    }
    let wait_seconds = wait_seconds(typed, state)?;
    let name = |nth| typed.operand_at(nth).and_then(OsStr::to_str);
    let Some((balancer, member)) = name(1).zip(name(2)) else {
        let action = action.unwrap_or_default();
        let what = format!("`anthill balancer {action}` needs BALANCER and MEMBER");
        return Err(refuse(&what));
    };
    let command = Command::member(MemberCommand {
        state,
        wait_seconds,
        balancer: balancer.to_owned(),
        member: member.to_owned(),
    });
    let command =
        command.ok_or_else(|| refuse("BALANCER and MEMBER have no line breaks or tabs"))?;
    let wait = Duration::from_secs(wait_seconds.unwrap_or(0).into());
    let outcome = ask(typed, 3, &command, Some(PATIENCE + wait));
    if typed.operand_at(3).is_none() && Path::new(member).exists() {
        let help = format!("`{member}` was read as MEMBER: write MEMBER before the folder or file");
        return outcome.map_err(|error| error.help(help));
    }
    outcome
}

fn list(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    if typed.has("wait") {
        return Err(refuse("`--wait` is for `drain`, `disable` and `stop`"));
    }
    let mut folder = usize::from(typed.operand_at(0).is_some_and(|word| word == "list"));
    let is_balancer = |nth| folder == 1 && typed.path_at(nth).is_some_and(|path| !path.exists());
    let name = match is_balancer(folder) {
        true => {
            folder += 1;
            typed.operand_at(folder - 1).and_then(OsStr::to_str)
        }
        false => None,
    };
    if typed.operand_at(folder + 1).is_some() {
        return Err(refuse(
            "`anthill balancer list` takes a balancer, and a folder or file",
        ));
    }
    let format = match typed.has("json") {
        true => StatusFormat::Json,
        false => StatusFormat::Text,
    };
    let command = Command::balancers(format, name);
    let command = command.ok_or_else(|| refuse("BALANCER has no line breaks"))?;
    ask(typed, folder, &command, Some(PATIENCE))
}

/// Returns the value of `--wait`.
fn wait_seconds(typed: &ParsedArguments, state: AdminState) -> Result<Option<u32>, OperatorError> {
    let Some(value) = typed.text("wait")? else {
        return Ok(None);
    };
    if state == AdminState::Enabled {
        return Err(refuse("`--wait` is for `drain`, `disable` and `stop`"));
    }
    if value.is_empty() {
        return Ok(Some(MEMBER_WAIT_SECONDS));
    }
    let seconds = parse_seconds(&value).and_then(|seconds| u32::try_from(seconds).ok());
    let seconds = seconds.filter(|seconds| *seconds <= MEMBER_WAIT_SECONDS_MAX);
    seconds.map(Some).ok_or_else(|| {
        let what = format!("`--wait` can't be `{value}`");
        let help =
            format!("write seconds up to {MEMBER_WAIT_SECONDS_MAX}, or a duration such as 5m");
        OperatorError::new(what).help(help)
    })
}

fn refuse(what: &str) -> OperatorError {
    OperatorError::new(what).help("see `anthill balancer --help`")
}
