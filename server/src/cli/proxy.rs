//! `anthill proxy`: HTTPS in front of an application, without a configuration file.

use crate::cli::shared_options::{CommandSpec, SERVE_OPTIONS};
use cli::{Operand, ValueKind};
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::cli::serve;
use crate::config::{ConfigSource, OperatorError, parse_member_url};
use crate::control::{self, ServeOptions};

/// The command `proxy`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "proxy",
    about: "Serve an application over HTTPS, without a configuration",
    details: &[
        "The application is named by its port on this machine (3000), by an address with a port, or by a URL. It is \
         served for any name over HTTPS on port 8443 with a self-signed certificate; port 8080 redirects to HTTPS. \
         WebSockets and event streams need no setting.",
        "`anthill init proxy` writes the same as a configuration to build on.",
    ],
    operands: &[Operand {
        name: "PORT|URL",
        required: true,
        values: ValueKind::Any,
    }],
    options: SERVE_OPTIONS,
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let word = typed.operand_at(0).and_then(|word| word.to_str());
    let url = url(word.unwrap_or_default())?;
    let options = ServeOptions {
        chosen: ConfigSource::Proxy(url),
        overrides: serve::overrides(typed)?,
    };
    match control::serve(&options, false)? {}
}

/// Returns the URL of an application: of a port of this machine, of an address with a port, or as typed.
fn url(word: &str) -> Result<String, OperatorError> {
    let is_port = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let url = if is_port {
        format!("http://127.0.0.1:{word}")
    } else if word.contains("://") || word.starts_with("unix:") {
        word.to_owned()
    } else {
        format!("http://{word}")
    };
    let is_valid = parse_member_url(&url).is_ok() && !url.contains(['"', '\\', '\n']);
    if is_valid {
        Ok(url)
    } else {
        let what = format!("`{word}` is no application that anthill can reach");
        let help = "write its port, such as 3000, or its URL, such as http://127.0.0.1:3000";
        Err(OperatorError::new(what).help(help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_of_this_machine() {
        for (word, expected) in [
            ("3000", Some("http://127.0.0.1:3000")),
            ("localhost:3000", Some("http://localhost:3000")),
            ("192.0.2.1:80", Some("http://192.0.2.1:80")),
            ("https://app.test:8443", Some("https://app.test:8443")),
            ("99999", None),
            ("", None),
            ("a b", None),
            ("http://a/\"", None),
            ("./app", None),
        ] {
            assert_eq!(url(word).ok().as_deref(), expected, "{word}");
        }
    }
}
