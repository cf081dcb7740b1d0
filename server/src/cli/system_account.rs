//! System accounts of the machine, made by the machine's own programs.

use cli::output::print_message;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::config::{OperatorError, UnixAccount};

/// Account to be made.
pub(super) struct AccountSpec<'s> {
    /// Name of the account and of its group.
    pub(super) name: &'s str,
    /// Home folder.
    pub(super) home: &'s str,
    /// Permission to log in.
    pub(super) login: Login,
}

/// Permission to log in to an account.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    /// No login, and no home folder.
    Closed,
    /// Login by a key of ssh alone: a shell, a home folder, and a password that nothing matches. An account with a locked
    /// password would be refused by an sshd without PAM.
    ByKey,
}

/// Makes a system account, with useradd (shadow) or else with adduser (busybox).
pub(super) fn make(account: &AccountSpec<'_>) -> Result<(), OperatorError> {
    let AccountSpec { name, home, login } = *account;
    let no_login = match Path::new("/usr/sbin/nologin").exists() {
        true => "/usr/sbin/nologin",
        false => "/sbin/nologin",
    };
    let (shell, shadow_home, busybox_home) = match login {
        Login::Closed => (no_login, "--no-create-home", &["-H"][..]),
        Login::ByKey => ("/bin/sh", "--create-home", &[][..]),
    };
    if on_path("useradd") {
        let mut words = vec!["useradd", "--system", "--user-group", shadow_home];
        words.extend([
            "--home-dir",
            home,
            "--shell",
            shell,
            "--password",
            "*",
            name,
        ]);
        run(&words);
    } else if run(&["addgroup", "-S", name]) {
        let mut words = vec!["adduser", "-S", "-D"];
        words.extend(busybox_home);
        words.extend(["-h", home, "-s", shell, "-G", name, name]);
        if run(&words) && login == Login::ByKey {
            run(&["sh", "-c", &format!("echo '{name}:*' | chpasswd -e")]);
        }
    }
    if UnixAccount::find(name).is_none() {
        let what = format!("the account {name} could not be created");
        return Err(OperatorError::failure(what)
            .help("create the account by hand, or name another account with the option"));
    }
    print_message(&format!("created the account {name}"));
    Ok(())
}

/// Adds an account to a group.
pub(super) fn add_to_group(name: &str, group: &str) -> Result<(), OperatorError> {
    let is_added = match on_path("usermod") {
        true => run(&["usermod", "--append", "--groups", group, name]),
        false => run(&["addgroup", name, group]),
    };
    match is_added {
        true => Ok(()),
        false => Err(OperatorError::failure(format!(
            "the account {name} could not be added to the group {group}"
        ))),
    }
}

fn run(words: &[&str]) -> bool {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    run_aloud(&words)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Prints a command and runs it. The command inherits standard output and standard error.
pub(super) fn run_aloud(words: &[String]) -> bool {
    print_message(&format!("+ {}", words.join(" ")));
    let status = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
