//! `anthill balancer`: lists the balancers, and edits balancers and members.

use crate::cli::shared_options::{CLIENT_DETAILS, CONTROL, CommandSpec, JSON, STATE, YES};
use cli::output::print_message;
use cli::{CommandOption, Operand, ValueKind};
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::confirmation::confirms;
use super::control_client::{ask, ask_again, exchange_with, print_response};
use super::name_or_place::ask_about;
use crate::admin::command::{Command, EditAction, EditCommand, StatusFormat};
use crate::cli::arguments::ParsedArguments;
use crate::config::{OperatorError, parse_seconds};
use crate::control::limits::{MEMBER_WAIT_SECONDS, MEMBER_WAIT_SECONDS_MAX};
use balancer::settings::AdminState;

/// Returns true if a word after `--wait` is its duration.
fn is_duration(word: &str) -> bool {
    parse_seconds(word).is_some()
}

/// The command `balancer`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "balancer",
    about: "List and edit balancers and their members",
    details: &[
        "Without an action, or with list, the command prints the balancers and their members; \
         DIR|FILE may follow directly. list BALANCER prints a single balancer; ./NAME is the folder \
         of the same name. A route with a single server has a balancer as well, \
         with the name of the site and the path of the route.",
        "BALANCER is the name of a balancer. MEMBER is the URL of a member, the host and port, \
         or the route. drain: the member gets only the requests of its sessions. disable: the \
         member gets no requests. stop: the member gets neither requests nor checks. enable: \
         the member gets requests again. Requests under way complete.",
        "set changes values: set BALANCER MEMBER weight=2 route=a, or set BALANCER method=p2c. \
         Either all values are changed or none. add BALANCER URL adds a member, disabled at \
         first; remove BALANCER MEMBER removes a member.",
        "Edits hold over reloads and restarts, until anthill.toml changes the value. history \
         [BALANCER] prints the edits, undo ID undoes an edit, and differences prints the edits \
         in force with the lines for anthill.toml.",
        "On a terminal, the command asks before a member is removed, and before the last usable \
         member is drained, disabled or stopped; --yes goes on without the question.",
        "With --wait, the command returns when the member has no request under way; the exit \
         status is 1 if requests are still under way after the time.",
        CLIENT_DETAILS,
    ],
    operands: &[
        Operand {
            name: "ACTION",
            required: false,
            values: ValueKind::Words(ACTIONS),
        },
        Operand {
            name: "BALANCER|ID",
            required: false,
            values: ValueKind::Any,
        },
        Operand {
            name: "MEMBER|URL",
            required: false,
            values: ValueKind::Any,
        },
        Operand {
            name: "NAME=VALUE|DIR|FILE...",
            required: false,
            values: ValueKind::RepeatedPaths,
        },
    ],
    options: &[
        CommandOption {
            long: "wait",
            short: None,
            value: Some(("SECONDS", ValueKind::Optional(is_duration))),
            about: "Wait for the end of the member's requests, by default 60 s",
        },
        CommandOption {
            about: "Print a list as JSON, for programs",
            ..JSON
        },
        CommandOption {
            about: "Make dangerous edits without a question",
            ..YES
        },
        STATE,
        CONTROL,
    ],
    run,
};

/// Time for an answer that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Actions of the command. The first action is the default, also before a folder or file.
pub(super) const ACTIONS: &[&str] = &[
    "list",
    "drain",
    "disable",
    "enable",
    "stop",
    "set",
    "add",
    "remove",
    "history",
    "undo",
    "differences",
];

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let action = typed.operand_at(0).and_then(OsStr::to_str);
    let action = action.filter(|action| ACTIONS.contains(action));
    match action.unwrap_or("list") {
        "list" => list(typed),
        "history" => history(typed),
        "differences" => {
            refuse_option(typed, "yes")?;
            refuse_option(typed, "wait")?;
            let command = Command::EditDifferences(format(typed));
            no_more(typed, 2)?;
            ask(typed, 1, &command, Some(PATIENCE))
        }
        action => edit(typed, action),
    }
}

/// Sends an edit, and asks on a terminal before a dangerous edit.
fn edit(typed: &ParsedArguments, action: &str) -> Result<ExitCode, OperatorError> {
    refuse_option(typed, "json")?;
    let state = match action {
        "drain" => Some(AdminState::Draining),
        "disable" => Some(AdminState::Disabled),
        "enable" => Some(AdminState::Enabled),
        "stop" => Some(AdminState::Stopped),
        _ => None,
    };
    let wait_seconds = wait_seconds(typed, state)?;
    let (edit, folder) = match state {
        Some(state) => set_state(typed, action, state)?,
        None => edit_action(typed, action)?,
    };
    no_more(typed, folder + 1)?;
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    let command = EditCommand {
        action: edit,
        is_confirmed: typed.has("yes") || !is_interactive,
        wait_seconds,
    };
    let interrupt = match (&command.action, state, wait_seconds) {
        (
            EditAction::Set {
                balancer,
                member: Some(member),
                ..
            },
            Some(state),
            Some(_),
        ) => {
            let place = typed.path_at(folder);
            InterruptNote::arm(interrupted_wait(balancer, member, state, place))
        }
        _ => InterruptNote::default(),
    };
    let outcome = send(typed, folder, command, wait_seconds, &interrupt);
    let last = typed.operand_at(folder - 1);
    let is_folder = last.is_some_and(|last| Path::new(last).exists());
    if matches!(action, "set" | "undo") || typed.operand_at(folder).is_some() || !is_folder {
        return outcome;
    }
    let word = last.unwrap_or_default().to_string_lossy();
    let name = if action == "add" { "URL" } else { "MEMBER" };
    let help = format!("`{word}` was read as {name}: write {name} before the folder or file");
    outcome.map_err(|error| error.help(help))
}

fn send(
    typed: &ParsedArguments,
    folder: usize,
    command: EditCommand,
    wait_seconds: Option<u32>,
    interrupt: &InterruptNote,
) -> Result<ExitCode, OperatorError> {
    let wait = Duration::from_secs(wait_seconds.unwrap_or(0).into());
    let line = |command: EditCommand| {
        let help = || refuse("names and values have no line breaks or tabs");
        Command::edit(command).ok_or_else(help)
    };
    let patience = Some(PATIENCE + wait);
    let response =
        interrupt.during(|| exchange_with(typed, folder, &line(command.clone())?, patience))?;
    let Some(question) = response.text.strip_prefix("ask\n") else {
        return print_response(&response);
    };
    if !confirms(question) {
        print_message("nothing was changed\n");
        return Ok(ExitCode::FAILURE);
    }
    let command = EditCommand {
        is_confirmed: true,
        ..command
    };
    interrupt.during(|| ask_again(typed, folder, &line(command)?, patience))
}

/// Returns the note for an operator that no longer waits for the end of a member's requests.
fn interrupted_wait(
    balancer: &str,
    member: &str,
    state: AdminState,
    place: Option<&Path>,
) -> String {
    let place = place.map_or_else(String::new, |place| format!(" {}", place.display()));
    format!(
        "\nthe wait was interrupted: {member} of {balancer} stays {}\n\
         help: anthill balancer enable {balancer} {member}{place}\n",
        state.name()
    )
}

/// Note for an operator that interrupts a wait by Ctrl-C. The server keeps the edit.
#[derive(Default)]
struct InterruptNote {
    /// True while the server has the edit.
    is_sent: Arc<AtomicBool>,
}

impl InterruptNote {
    /// Prints `note` if SIGINT arrives during [`InterruptNote::during`]. SIGINT ends the command at any time.
    fn arm(note: String) -> InterruptNote {
        let armed = InterruptNote::default();
        let is_sent = Arc::clone(&armed.is_sent);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        // Without the thread, SIGINT ends the command without the note.
        let Ok(runtime) = runtime else { return armed };
        let (is_ready, ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
                    return;
                };
                let _ = is_ready.send(());
                let _ = interrupts.recv().await;
                if is_sent.load(Ordering::Relaxed) {
                    print_message(&note);
                }
                // The status of a program that SIGINT ends, as shells show it.
                std::process::exit(130);
            });
        });
        let _ = ready.recv();
        armed
    }

    /// Runs an exchange with the server.
    fn during<T>(&self, exchange: impl FnOnce() -> T) -> T {
        self.is_sent.store(true, Ordering::Relaxed);
        let answer = exchange();
        self.is_sent.store(false, Ordering::Relaxed);
        answer
    }
}

/// Returns the edit of a member's state, and the number of the operand with the folder or file.
fn set_state(
    typed: &ParsedArguments,
    action: &str,
    state: AdminState,
) -> Result<(EditAction, usize), OperatorError> {
    let Some((balancer, member)) = word(typed, 1).zip(word(typed, 2)) else {
        return Err(lacks(action, "BALANCER and MEMBER"));
    };
    let edit = EditAction::Set {
        balancer,
        member: Some(member),
        values: vec![("state".to_owned(), state.name().to_owned())],
    };
    Ok((edit, 3))
}

/// Returns an edit, and the number of the operand with the folder or file.
fn edit_action(
    typed: &ParsedArguments,
    action: &str,
) -> Result<(EditAction, usize), OperatorError> {
    let first = word(typed, 1);
    let second = word(typed, 2);
    match (action, first, second) {
        ("set", Some(balancer), Some(_)) => set(typed, balancer),
        ("set", ..) => Err(lacks(action, "BALANCER and NAME=VALUE")),
        ("add", Some(balancer), Some(url)) => Ok((EditAction::Add { balancer, url }, 3)),
        ("add", ..) => Err(lacks(action, "BALANCER and URL")),
        ("remove", Some(balancer), Some(member)) => {
            Ok((EditAction::Remove { balancer, member }, 3))
        }
        ("remove", ..) => Err(lacks(action, "BALANCER and MEMBER")),
        (_, first, _) => {
            let id = first.and_then(|id| id.parse().ok());
            let id = id.ok_or_else(|| lacks(action, "the number of an entry"))?;
            Ok((EditAction::Undo(id), 2))
        }
    }
}

/// Returns the edit of `set BALANCER [MEMBER] NAME=VALUE… [DIR|FILE]`.
fn set(typed: &ParsedArguments, balancer: String) -> Result<(EditAction, usize), OperatorError> {
    let is_value = |nth: &usize| word(typed, *nth).is_some_and(|word| word.contains('='));
    let member = word(typed, 2).filter(|_| !is_value(&2));
    let first = 2 + usize::from(member.is_some());
    let numbers: Vec<usize> = (first..).take_while(is_value).collect();
    let values = numbers.iter().filter_map(|nth| word(typed, *nth));
    let values: Vec<(String, String)> = values
        .filter_map(|value| {
            let (name, text) = value.split_once('=')?;
            Some((name.to_owned(), text.to_owned()))
        })
        .collect();
    if values.is_empty() {
        return Err(lacks("set", "NAME=VALUE, such as weight=2"));
    }
    let edit = EditAction::Set {
        balancer,
        member,
        values,
    };
    Ok((edit, first + numbers.len()))
}

fn word(typed: &ParsedArguments, nth: usize) -> Option<String> {
    typed
        .operand_at(nth)
        .and_then(OsStr::to_str)
        .map(str::to_owned)
}

fn lacks(action: &str, what: &str) -> OperatorError {
    refuse(&format!("`anthill balancer {action}` needs {what}"))
}

fn history(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    refuse_option(typed, "wait")?;
    refuse_option(typed, "yes")?;
    no_more(typed, 3)?;
    let command = |name: Option<&str>| {
        let command = Command::history(format(typed), name);
        command.ok_or_else(|| refuse("BALANCER has no line breaks"))
    };
    ask_about(typed, 1, "balancer", command, PATIENCE)
}

fn list(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    if typed.has("wait") {
        return Err(refuse("`--wait` is for `drain`, `disable` and `stop`"));
    }
    refuse_option(typed, "yes")?;
    let is_named = typed.operand_at(0).is_some_and(|word| word == "list");
    let operands_max = if is_named { 3 } else { 1 };
    if typed.operand_at(operands_max).is_some() {
        return Err(refuse(
            "`anthill balancer list` takes a balancer, and a folder or file",
        ));
    }
    let command = |name: Option<&str>| {
        let command = Command::balancers(format(typed), name);
        command.ok_or_else(|| refuse("BALANCER has no line breaks"))
    };
    if is_named {
        ask_about(typed, 1, "balancer", command, PATIENCE)
    } else {
        ask(typed, 0, &command(None)?, Some(PATIENCE))
    }
}

fn format(typed: &ParsedArguments) -> StatusFormat {
    match typed.has("json") {
        true => StatusFormat::Json,
        false => StatusFormat::Text,
    }
}

/// Refuses an option that the action does not have.
fn refuse_option(typed: &ParsedArguments, option: &str) -> Result<(), OperatorError> {
    let about = match option {
        "json" => "`--json` is for `list`, `history` and `differences`",
        "wait" => "`--wait` is for `drain`, `disable` and `stop`",
        _ => "`--yes` is for edits",
    };
    match typed.has(option) {
        true => Err(refuse(about)),
        false => Ok(()),
    }
}

/// Refuses operands from the number `nth` on.
fn no_more(typed: &ParsedArguments, nth: usize) -> Result<(), OperatorError> {
    match typed.operand_at(nth) {
        None => Ok(()),
        Some(word) => Err(refuse(&format!(
            "unexpected argument `{}`",
            word.to_string_lossy()
        ))),
    }
}

/// Returns the value of `--wait`.
fn wait_seconds(
    typed: &ParsedArguments,
    state: Option<AdminState>,
) -> Result<Option<u32>, OperatorError> {
    let Some(value) = typed.text("wait")? else {
        return Ok(None);
    };
    if matches!(state, None | Some(AdminState::Enabled)) {
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
