//! `anthill explain`: what the server would do with a request.

use crate::cli::arguments::ParsedArguments;
use crate::cli::shared_options::{CommandSpec, STATE, WHAT};
use crate::config::{ConfigSource, OperatorError, Overrides};
use crate::control::{Question, ServeOptions, explained};
use cli::output::print_result;
use cli::{CommandOption, Operand, ValueKind};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

/// The command `explain`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "explain",
    about: "Explain what the server would do with a request",
    details: &[
        "Prints the site, the route, the guards and rules, and what answers: a file with the fields of its response, a \
         refusal with its rule, or the member, backend or script that would be asked. The answer comes from the \
         configuration in the current folder, or in the given folder or file, and from the files; no server needs to run, \
         and no member or script is asked.",
        "The client has the address 203.0.113.1, which is of no network of its own, unless --client names another.",
    ],
    operands: &[
        Operand {
            name: "URL",
            required: true,
            values: ValueKind::Any,
        },
        WHAT,
    ],
    options: &[
        CommandOption {
            long: "method",
            short: Some('X'),
            value: Some(("METHOD", ValueKind::Any)),
            about: "Method of the request, instead of GET",
        },
        CommandOption {
            long: "client",
            short: None,
            value: Some(("ADDRESS", ValueKind::Any)),
            about: "Address of the client",
        },
        CommandOption {
            long: "header",
            short: Some('H'),
            value: Some(("FIELD", ValueKind::Any)),
            about: "Field of the request, such as 'Cookie: a=1'; may be repeated",
        },
        STATE,
    ],
    run,
};

/// Address of a client without a relation to the server (RFC 5737).
const USUAL_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));

fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let url = typed.operand_at(0).and_then(|url| url.to_str());
    let url = url.ok_or_else(|| OperatorError::new("the URL is not UTF-8"))?;
    let client = match typed.text("client")? {
        None => USUAL_CLIENT,
        Some(text) => text.parse().map_err(|_| {
            OperatorError::new(format!(
                "--client: `{}` is not an IP address",
                text.escape_debug()
            ))
            .help("write an address such as 192.168.0.7")
        })?,
    };
    let question = Question {
        url: url.to_owned(),
        method: typed.text("method")?.unwrap_or_else(|| "GET".to_owned()),
        client: client.to_canonical(),
        fields: typed.texts("header")?,
    };
    let options = ServeOptions {
        chosen: ConfigSource::of(typed.path_at(1))?,
        overrides: Overrides {
            state: typed.path("state"),
            ..Overrides::default()
        },
    };
    Ok(print_result(explained(&options, &question)?.trim_end()))
}
