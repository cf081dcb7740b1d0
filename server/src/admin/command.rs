//! Commands of the control socket, one line each. The command line writes a line, and the control plane
//! parses the line.

use crate::admin::edit_ledger::EditChange;
use crate::admin::metrics::MetricsFormat;
use data_plane::hits::{DayRange, format_day, parse_day};
use std::fmt;

/// A command to a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Reads the configuration again and serves it.
    Reload,
    /// Opens the log files again; the response is sent when all files are open.
    Reopen,
    /// Stops the server; the response is sent at the end of the drain.
    Stop,
    /// Returns the status.
    Status(StatusFormat),
    /// Returns the metrics.
    Metrics(MetricsFormat),
    /// Returns the past of the counters as JSON.
    History,
    /// Returns the hit counts.
    Hits {
        /// Format of the response.
        format: HitsFormat,
        /// Name of the site; `None` for all sites.
        site: Option<String>,
        /// Days of the report; `None` for all days, and in the format of the file.
        days: Option<DayRange>,
    },
    /// Removes pages of a site from the page cache.
    Purge {
        /// Name of the site.
        site: String,
        /// Path of the pages. A `*` at the end of the path stands for all pages below.
        path: String,
    },
    /// Returns the balancers with their members.
    Balancers {
        /// Format of the response.
        format: StatusFormat,
        /// Name of the balancer; `None` for all balancers.
        name: Option<String>,
    },
    /// Returns the requests under way, the oldest first.
    Requests(StatusFormat),
    /// Returns the URL of a login to the manager.
    ManagerLogin,
    /// Changes a balancer or a member.
    Edit(EditCommand),
    /// Returns the history of the edits.
    EditHistory {
        /// Format of the response.
        format: StatusFormat,
        /// Name of the balancer; `None` for all balancers.
        name: Option<String>,
    },
    /// Returns the edits in force as differences from anthill.toml.
    EditDifferences(StatusFormat),
    /// Replaces the server by the program of its supervisor; the response is sent when the successor serves.
    Restart,
    /// Hands the sockets over to a successor that speaks the protocol with the number.
    Replace(u32),
}

/// Edit by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EditCommand {
    /// The edit.
    pub action: EditAction,
    /// False if the server asks before a dangerous edit.
    pub is_confirmed: bool,
    /// Longest wait for the end of the member's requests in seconds; `None` for no wait.
    pub wait_seconds: Option<u32>,
}

/// Edits of one balancer. Either all edits are made or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditBatch {
    /// The edits.
    pub actions: Vec<EditAction>,
    /// Changes as planned before the edits were sent. A value that is neither the old nor the new text of its change
    /// was changed by another edit meanwhile, and refuses the batch. A value without a planned change is not compared.
    pub planned: Vec<EditChange>,
    /// False if the server asks before a dangerous edit.
    pub is_confirmed: bool,
    /// Longest wait for the end of the member's requests in seconds; `None` for no wait.
    pub wait_seconds: Option<u32>,
}

/// Kind of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditAction {
    /// Sets values.
    Set {
        /// Name of the balancer.
        balancer: String,
        /// URL, host and port, or route of the member; `None` for values of the balancer.
        member: Option<String>,
        /// Names and texts of the values. Either all values are set or none.
        values: Vec<(String, String)>,
    },
    /// Adds a member.
    Add {
        /// Name of the balancer.
        balancer: String,
        /// URL of the new member.
        url: String,
    },
    /// Removes a member.
    Remove {
        /// Name of the balancer.
        balancer: String,
        /// URL, host and port, or route of the member.
        member: String,
    },
    /// Undoes the entry of the history with the number.
    Undo(u64),
}

/// Format of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusFormat {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
}

/// Format of hit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitsFormat {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
    /// Format of the state file, for a backup.
    File,
}

/// Reason why a line is not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownCommand(String);

impl fmt::Display for UnknownCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown command `{}`", self.0.escape_debug())
    }
}

impl Command {
    /// Returns the command for hit counts, or `None` if the name is not a single word.
    pub(crate) fn hits(
        format: HitsFormat,
        site: Option<&str>,
        days: Option<DayRange>,
    ) -> Option<Command> {
        let site = site.map(|site| is_word(site).then(|| site.to_owned()));
        let site = match site {
            None => None,
            Some(site) => Some(site?),
        };
        Some(Command::Hits { format, site, days })
    }

    /// Returns the command for a purge, or `None` if the name or the path contains a line break.
    pub(crate) fn purge(site: &str, path: &str) -> Option<Command> {
        let is_line = !path.contains(['\n', '\r']) && !site.contains(['\n', '\r']);
        is_line.then(|| Command::Purge {
            site: site.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Returns the command for a list of balancers, or `None` if the name contains a line break.
    pub(crate) fn balancers(format: StatusFormat, name: Option<&str>) -> Option<Command> {
        let is_line = name.is_none_or(|name| !name.contains(['\n', '\r']));
        let name = name.map(str::to_owned);
        is_line.then_some(Command::Balancers { format, name })
    }

    /// Returns the command for an edit, or `None` if a text contains a tab or a line break, or if the name of
    /// a value contains an equals sign.
    pub(crate) fn edit(command: EditCommand) -> Option<Command> {
        let command = Command::Edit(command);
        // A text with a separator is parsed back as another command, or as no command.
        (Command::parse(&command.to_string()).as_ref() == Ok(&command)).then_some(command)
    }

    /// Returns the command for the history of edits, or `None` if the name contains a line break.
    pub(crate) fn history(format: StatusFormat, name: Option<&str>) -> Option<Command> {
        let is_line = name.is_none_or(|name| !name.contains(['\n', '\r']));
        let name = name.map(str::to_owned);
        is_line.then_some(Command::EditHistory { format, name })
    }

    /// Parses a line without its line feed.
    pub(crate) fn parse(line: &str) -> Result<Command, UnknownCommand> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        match (word, first) {
            ("reload", "") if rest.is_empty() => Ok(Command::Reload),
            ("reopen", "") if rest.is_empty() => Ok(Command::Reopen),
            ("stop", "") if rest.is_empty() => Ok(Command::Stop),
            ("restart", "") if rest.is_empty() => Ok(Command::Restart),
            ("status", "") if rest.is_empty() => Ok(Command::Status(StatusFormat::Text)),
            ("status", "json") if second.is_empty() => Ok(Command::Status(StatusFormat::Json)),
            ("metrics", "prometheus") if second.is_empty() => {
                Ok(Command::Metrics(MetricsFormat::Prometheus))
            }
            ("metrics", "openmetrics") if second.is_empty() => {
                Ok(Command::Metrics(MetricsFormat::OpenMetrics))
            }
            ("metrics", "history") if second.is_empty() => Ok(Command::History),
            ("hits", _) => {
                let site = (!second.is_empty()).then(|| second.to_owned());
                parse_hits(first, site).ok_or_else(|| UnknownCommand(line.to_owned()))
            }
            ("balancer", "text" | "json") => Ok(Command::Balancers {
                format: StatusFormat::of(first),
                name: (!second.is_empty()).then(|| second.to_owned()),
            }),
            ("requests", "text" | "json") if second.is_empty() => {
                Ok(Command::Requests(StatusFormat::of(first)))
            }
            ("manager", "login") if second.is_empty() => Ok(Command::ManagerLogin),
            ("history", "text" | "json") => Ok(Command::EditHistory {
                format: StatusFormat::of(first),
                name: (!second.is_empty()).then(|| second.to_owned()),
            }),
            ("differences", "text" | "json") if second.is_empty() => {
                Ok(Command::EditDifferences(StatusFormat::of(first)))
            }
            ("replace", number) if second.is_empty() => match number.parse() {
                Ok(number) => Ok(Command::Replace(number)),
                Err(_) => Err(UnknownCommand(line.to_owned())),
            },
            ("edit", "ask" | "sure") => match EditCommand::parse(second) {
                Some(command) => Ok(Command::Edit(EditCommand {
                    is_confirmed: first == "sure",
                    ..command
                })),
                None => Err(UnknownCommand(line.to_owned())),
            },
            ("purge", site) if !site.is_empty() => Ok(Command::Purge {
                site: site.to_owned(),
                path: second.to_owned(),
            }),
            _ => Err(UnknownCommand(line.to_owned())),
        }
    }
}

impl From<EditCommand> for EditBatch {
    fn from(command: EditCommand) -> EditBatch {
        EditBatch {
            actions: vec![command.action],
            planned: Vec::new(),
            is_confirmed: command.is_confirmed,
            wait_seconds: command.wait_seconds,
        }
    }
}

impl EditCommand {
    /// Parses a line `WAIT TAB ACTION TAB FIELD…`. Tabs separate the fields, because the name of a route's own
    /// balancer may contain spaces. An empty member stands for the balancer.
    fn parse(line: &str) -> Option<EditCommand> {
        if line.contains(['\n', '\r']) {
            return None;
        }
        let mut fields = line.split('\t');
        let wait_seconds = match fields.next()? {
            "-" => None,
            seconds => Some(seconds.parse().ok()?),
        };
        let action = fields.next()?;
        let fields: Vec<&str> = fields.collect();
        let action = match (action, fields.as_slice()) {
            ("set", [balancer, member, values @ ..]) if !values.is_empty() => EditAction::Set {
                balancer: (*balancer).to_owned(),
                member: (!member.is_empty()).then(|| (*member).to_owned()),
                values: values
                    .iter()
                    .map(|value| pair(value))
                    .collect::<Option<_>>()?,
            },
            ("add", [balancer, url]) => EditAction::Add {
                balancer: (*balancer).to_owned(),
                url: (*url).to_owned(),
            },
            ("remove", [balancer, member]) => EditAction::Remove {
                balancer: (*balancer).to_owned(),
                member: (*member).to_owned(),
            },
            ("undo", [id]) => EditAction::Undo(id.parse().ok()?),
            _ => return None,
        };
        Some(EditCommand {
            action,
            is_confirmed: false,
            wait_seconds,
        })
    }
}

/// Splits `NAME=VALUE`.
fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}

impl fmt::Display for EditCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_confirmed { "sure " } else { "ask " })?;
        match self.wait_seconds {
            Some(seconds) => write!(f, "{seconds}\t")?,
            None => f.write_str("-\t")?,
        }
        match &self.action {
            EditAction::Set {
                balancer,
                member,
                values,
            } => {
                let member = member.as_deref().unwrap_or_default();
                write!(f, "set\t{balancer}\t{member}")?;
                let mut values = values.iter();
                values.try_for_each(|(name, value)| write!(f, "\t{name}={value}"))
            }
            EditAction::Add { balancer, url } => write!(f, "add\t{balancer}\t{url}"),
            EditAction::Remove { balancer, member } => write!(f, "remove\t{balancer}\t{member}"),
            EditAction::Undo(id) => write!(f, "undo\t{id}"),
        }
    }
}

impl StatusFormat {
    /// Returns the format with a name.
    fn of(word: &str) -> StatusFormat {
        match word {
            "json" => StatusFormat::Json,
            _ => StatusFormat::Text,
        }
    }

    /// Returns the name.
    fn word(self) -> &'static str {
        match self {
            StatusFormat::Json => "json",
            StatusFormat::Text => "text",
        }
    }
}

/// Writes a word, a format, and the name of a balancer, if any.
fn write_query(
    f: &mut fmt::Formatter<'_>,
    word: &str,
    format: StatusFormat,
    name: Option<&String>,
) -> fmt::Result {
    write!(f, "{word} {}", format.word())?;
    match name {
        Some(name) => write!(f, " {name}"),
        None => Ok(()),
    }
}

/// Writes the line of a command without its line feed.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Reload => f.write_str("reload"),
            Command::Reopen => f.write_str("reopen"),
            Command::Stop => f.write_str("stop"),
            Command::Restart => f.write_str("restart"),
            Command::ManagerLogin => f.write_str("manager login"),
            Command::Status(StatusFormat::Text) => f.write_str("status"),
            Command::Status(StatusFormat::Json) => f.write_str("status json"),
            Command::Metrics(MetricsFormat::Prometheus) => f.write_str("metrics prometheus"),
            Command::Metrics(MetricsFormat::OpenMetrics) => f.write_str("metrics openmetrics"),
            Command::History => f.write_str("metrics history"),
            Command::Hits { format, site, days } => {
                f.write_str(match format {
                    HitsFormat::Text => "hits text",
                    HitsFormat::Json => "hits json",
                    HitsFormat::File => "hits file",
                })?;
                if let Some(DayRange { first, last }) = days {
                    write!(f, ":{}:{}", format_day(*first), format_day(*last))?;
                }
                match site {
                    Some(site) => write!(f, " {site}"),
                    None => Ok(()),
                }
            }
            Command::Purge { site, path } => write!(f, "purge {site} {path}"),
            Command::Balancers { format, name } => {
                write_query(f, "balancer", *format, name.as_ref())
            }
            Command::EditHistory { format, name } => {
                write_query(f, "history", *format, name.as_ref())
            }
            Command::Requests(format) => write_query(f, "requests", *format, None),
            Command::EditDifferences(format) => write_query(f, "differences", *format, None),
            Command::Edit(command) => write!(f, "edit {command}"),
            Command::Replace(protocol) => write!(f, "replace {protocol}"),
        }
    }
}

/// Parses the format of hit counts, such as `json`, or `json:2026-11-01:2026-11-07` for a range of days.
fn parse_hits(format: &str, site: Option<String>) -> Option<Command> {
    let (format, days) = match format.split_once(':') {
        None => (format, None),
        Some((format, days)) => {
            let (first, last) = days.split_once(':')?;
            let (first, last) = (parse_day(first)?, parse_day(last)?);
            let is_range = first <= last && format != "file";
            (format, Some(is_range.then_some(DayRange { first, last })?))
        }
    };
    let format = match format {
        "text" => HitsFormat::Text,
        "json" => HitsFormat::Json,
        "file" => HitsFormat::File,
        _ => return None,
    };
    Some(Command::Hits { format, site, days })
}

/// Returns true if the text is one word of a line.
fn is_word(text: &str) -> bool {
    !text.contains(['\n', '\r', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(action: EditAction, wait_seconds: Option<u32>) -> Option<Command> {
        Command::edit(EditCommand {
            action,
            is_confirmed: wait_seconds.is_some(),
            wait_seconds,
        })
    }

    fn set(balancer: &str, member: Option<&str>, values: &[(&str, &str)]) -> EditAction {
        let values = values.iter();
        EditAction::Set {
            balancer: balancer.to_owned(),
            member: member.map(str::to_owned),
            values: values
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn remove(member: &str) -> EditAction {
        EditAction::Remove {
            balancer: "app".to_owned(),
            member: member.to_owned(),
        }
    }

    #[test]
    fn a_formatted_command_is_parsed_back() {
        let hits = |format, site| Command::hits(format, site, None).unwrap();
        let days = DayRange {
            first: parse_day("2026-11-01").unwrap(),
            last: parse_day("2026-11-07").unwrap(),
        };
        let balancers = |format, name| Command::balancers(format, name).unwrap();
        for (command, line) in [
            (Command::Reload, "reload"),
            (Command::Reopen, "reopen"),
            (Command::Stop, "stop"),
            (Command::ManagerLogin, "manager login"),
            (Command::Status(StatusFormat::Text), "status"),
            (Command::Status(StatusFormat::Json), "status json"),
            (
                Command::Metrics(MetricsFormat::Prometheus),
                "metrics prometheus",
            ),
            (
                Command::Metrics(MetricsFormat::OpenMetrics),
                "metrics openmetrics",
            ),
            (Command::History, "metrics history"),
            (hits(HitsFormat::Text, None), "hits text"),
            (hits(HitsFormat::Json, Some("a.org")), "hits json a.org"),
            (hits(HitsFormat::File, Some("*")), "hits file *"),
            (
                Command::hits(HitsFormat::Json, Some("a.org"), Some(days)).unwrap(),
                "hits json:2026-11-01:2026-11-07 a.org",
            ),
            (
                Command::purge("a.org", "/news of/*").unwrap(),
                "purge a.org /news of/*",
            ),
            (Command::Requests(StatusFormat::Text), "requests text"),
            (Command::Requests(StatusFormat::Json), "requests json"),
            (balancers(StatusFormat::Text, None), "balancer text"),
            (balancers(StatusFormat::Json, None), "balancer json"),
            (
                balancers(StatusFormat::Text, Some("a.org/my app/")),
                "balancer text a.org/my app/",
            ),
            (
                edit(
                    set("a.org/my app/", Some("http://b"), &[("state", "draining")]),
                    Some(60),
                )
                .unwrap(),
                "edit sure 60\tset\ta.org/my app/\thttp://b\tstate=draining",
            ),
            (
                edit(set("app", None, &[("sticky", "a=b"), ("strict", "")]), None).unwrap(),
                "edit ask -\tset\tapp\t\tsticky=a=b\tstrict=",
            ),
            (
                edit(remove("b"), None).unwrap(),
                "edit ask -\tremove\tapp\tb",
            ),
            (
                edit(EditAction::Undo(7), None).unwrap(),
                "edit ask -\tundo\t7",
            ),
            (
                Command::history(StatusFormat::Json, Some("my app")).unwrap(),
                "history json my app",
            ),
            (
                Command::EditDifferences(StatusFormat::Text),
                "differences text",
            ),
        ] {
            assert_eq!(command.to_string(), line);
            assert_eq!(Command::parse(line), Ok(command));
        }
        // The control plane reports a path without a slash, after the name of the site.
        let purge = Command::purge("a.org", "").unwrap();
        assert_eq!(Command::parse("purge a.org"), Ok(purge));
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            "",
            "hits",
            "purge",
            "purge ",
            "hits xml",
            "hits text:2026-11-07:2026-11-01",
            "hits text:2026-11-01",
            "hits file:2026-11-01:2026-11-07",
            "Reload",
            "reload now",
            "reopen now",
            "status xml",
            "metrics",
            "metrics json",
            "metrics history now",
            "balancer",
            "balancer xml",
            "requests",
            "requests xml",
            "requests json a",
            "manager",
            "manager login now",
            "edit",
            "edit now",
            "edit ask -\tset\ta\tb",
            "edit ask -\tset\ta\tb\tweight",
            "edit ask 1s\tundo\t1",
            "edit ask -\tundo\tone",
            "edit ask -\tadd\ta",
            "edit ask -\tadd\ta\tb\tc",
            "differences",
            "differences text a",
        ] {
            let refused = Command::parse(line).expect_err(line);
            let line = line.escape_debug();
            assert_eq!(refused.to_string(), format!("unknown command `{line}`"));
        }
        assert_eq!(
            Command::parse("a\tb").expect_err("a tab").to_string(),
            "unknown command `a\\tb`"
        );
    }

    #[test]
    fn a_line_holds_one_command() {
        assert_eq!(Command::hits(HitsFormat::Text, Some("a b"), None), None);
        assert_eq!(Command::hits(HitsFormat::Text, Some("a\nstop"), None), None);
        assert_eq!(Command::purge("a", "/\nstop"), None);
        assert_eq!(Command::purge("a\rb", "/"), None);
        assert_eq!(Command::balancers(StatusFormat::Text, Some("a\nb")), None);
        assert_eq!(edit(remove("a\tb"), None), None);
        assert_eq!(edit(remove("a\nstop"), None), None);
        assert_eq!(edit(set("a", None, &[("x\ty", "")]), None), None);
        assert_eq!(edit(set("a", Some(""), &[("weight", "1")]), None), None);
    }
}
