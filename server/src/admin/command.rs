//! Commands of the control socket, one line each. The command line writes a line, and the control plane
//! parses the line.

use crate::admin::metrics::MetricsFormat;
use crate::upstream::settings::AdminState;
use std::fmt;

/// A command to a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads the configuration again and serves it.
    Reload,
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
    /// Changes the state of a balancer's member.
    Member(MemberCommand),
    /// Returns the URL of a login to the manager.
    ManagerLogin,
}

/// Change of a member's state by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberCommand {
    /// New state.
    pub state: AdminState,
    /// Longest wait for the end of the member's requests in seconds; `None` for no wait.
    pub wait_seconds: Option<u32>,
    /// Name of the balancer.
    pub balancer: String,
    /// URL, host and port, or route of the member.
    pub member: String,
}

/// Format of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFormat {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
}

/// Format of hit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitsFormat {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
    /// Format of the state file, for a backup.
    File,
}

/// Reason why a line is not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCommand(String);

impl fmt::Display for UnknownCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown command `{}`", self.0.escape_debug())
    }
}

impl Command {
    /// Returns the command for hit counts, or `None` if the name is not a single word.
    pub fn hits(format: HitsFormat, site: Option<&str>) -> Option<Command> {
        let site = site.map(|site| is_word(site).then(|| site.to_owned()));
        let site = match site {
            None => None,
            Some(site) => Some(site?),
        };
        Some(Command::Hits { format, site })
    }

    /// Returns the command for a purge, or `None` if the name or the path contains a line break.
    pub fn purge(site: &str, path: &str) -> Option<Command> {
        let is_line = !path.contains(['\n', '\r']) && !site.contains(['\n', '\r']);
        is_line.then(|| Command::Purge {
            site: site.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Returns the command for a list of balancers, or `None` if the name contains a line break.
    pub fn balancers(format: StatusFormat, name: Option<&str>) -> Option<Command> {
        let is_line = name.is_none_or(|name| !name.contains(['\n', '\r']));
        let name = name.map(str::to_owned);
        is_line.then_some(Command::Balancers { format, name })
    }

    /// Returns the command for a change of a member, or `None` if a name contains a tab or a line break.
    pub fn member(command: MemberCommand) -> Option<Command> {
        let is_field = |name: &str| !name.contains(['\n', '\r', '\t']);
        let are_fields = is_field(&command.balancer) && is_field(&command.member);
        are_fields.then_some(Command::Member(command))
    }

    /// Parses a line without its line feed.
    pub fn parse(line: &str) -> Result<Command, UnknownCommand> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        match (word, first) {
            ("reload", "") if rest.is_empty() => Ok(Command::Reload),
            ("stop", "") if rest.is_empty() => Ok(Command::Stop),
            ("status", "") if rest.is_empty() => Ok(Command::Status(StatusFormat::Text)),
            ("status", "json") if second.is_empty() => Ok(Command::Status(StatusFormat::Json)),
            ("metrics", "prometheus") if second.is_empty() => {
                Ok(Command::Metrics(MetricsFormat::Prometheus))
            }
            ("metrics", "openmetrics") if second.is_empty() => {
                Ok(Command::Metrics(MetricsFormat::OpenMetrics))
            }
            ("metrics", "history") if second.is_empty() => Ok(Command::History),
            ("hits", "text" | "json" | "file") => Ok(Command::Hits {
                format: match first {
                    "json" => HitsFormat::Json,
                    "file" => HitsFormat::File,
                    _ => HitsFormat::Text,
                },
                site: (!second.is_empty()).then(|| second.to_owned()),
            }),
            ("balancer", "text" | "json") => Ok(Command::Balancers {
                format: match first {
                    "json" => StatusFormat::Json,
                    _ => StatusFormat::Text,
                },
                name: (!second.is_empty()).then(|| second.to_owned()),
            }),
            ("manager", "login") if second.is_empty() => Ok(Command::ManagerLogin),
            ("member", state) => match MemberCommand::parse(state, second) {
                Some(command) => Ok(Command::Member(command)),
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

impl MemberCommand {
    /// Parses a state and a line `WAIT TAB BALANCER TAB MEMBER`. A tab separates the names, because the name
    /// of a route's own balancer may contain spaces.
    fn parse(state: &str, rest: &str) -> Option<MemberCommand> {
        let mut states = ADMIN_STATES.into_iter();
        let mut fields = rest.split('\t');
        let (wait, balancer, member) = (fields.next()?, fields.next()?, fields.next()?);
        let wait_seconds = match wait {
            "-" => None,
            seconds => Some(seconds.parse().ok()?),
        };
        fields.next().is_none().then_some(MemberCommand {
            state: states.find(|known| known.name() == state)?,
            wait_seconds,
            balancer: balancer.to_owned(),
            member: member.to_owned(),
        })
    }
}

const ADMIN_STATES: [AdminState; 4] = [
    AdminState::Enabled,
    AdminState::Draining,
    AdminState::Disabled,
    AdminState::Stopped,
];

/// Writes the line of a command without its line feed.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Reload => f.write_str("reload"),
            Command::Stop => f.write_str("stop"),
            Command::ManagerLogin => f.write_str("manager login"),
            Command::Status(StatusFormat::Text) => f.write_str("status"),
            Command::Status(StatusFormat::Json) => f.write_str("status json"),
            Command::Metrics(MetricsFormat::Prometheus) => f.write_str("metrics prometheus"),
            Command::Metrics(MetricsFormat::OpenMetrics) => f.write_str("metrics openmetrics"),
            Command::History => f.write_str("metrics history"),
            Command::Hits { format, site } => {
                f.write_str(match format {
                    HitsFormat::Text => "hits text",
                    HitsFormat::Json => "hits json",
                    HitsFormat::File => "hits file",
                })?;
                match site {
                    Some(site) => write!(f, " {site}"),
                    None => Ok(()),
                }
            }
            Command::Purge { site, path } => write!(f, "purge {site} {path}"),
            Command::Balancers { format, name } => {
                f.write_str(match format {
                    StatusFormat::Text => "balancer text",
                    StatusFormat::Json => "balancer json",
                })?;
                match name {
                    Some(name) => write!(f, " {name}"),
                    None => Ok(()),
                }
            }
            Command::Member(command) => {
                let (state, balancer) = (command.state.name(), &command.balancer);
                let wait = command.wait_seconds.map(|seconds| seconds.to_string());
                let wait = wait.as_deref().unwrap_or("-");
                write!(f, "member {state} {wait}\t{balancer}\t{}", command.member)
            }
        }
    }
}

/// Returns true if the text is one word of a line.
fn is_word(text: &str) -> bool {
    !text.contains(['\n', '\r', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(balancer: &str, wait_seconds: Option<u32>) -> Option<Command> {
        Command::member(MemberCommand {
            state: AdminState::Draining,
            wait_seconds,
            balancer: balancer.to_owned(),
            member: "http://b".to_owned(),
        })
    }

    #[test]
    fn a_formatted_command_is_parsed_back() {
        let hits = |format, site| Command::hits(format, site).unwrap();
        let balancers = |format, name| Command::balancers(format, name).unwrap();
        for (command, line) in [
            (Command::Reload, "reload"),
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
                Command::purge("a.org", "/news of/*").unwrap(),
                "purge a.org /news of/*",
            ),
            (balancers(StatusFormat::Text, None), "balancer text"),
            (balancers(StatusFormat::Json, None), "balancer json"),
            (
                balancers(StatusFormat::Text, Some("a.org/my app/")),
                "balancer text a.org/my app/",
            ),
            (
                member("a.org/my app/", None).unwrap(),
                "member draining -\ta.org/my app/\thttp://b",
            ),
            (
                member("app", Some(60)).unwrap(),
                "member draining 60\tapp\thttp://b",
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
            "Reload",
            "reload now",
            "status xml",
            "metrics",
            "metrics json",
            "metrics history now",
            "balancer",
            "balancer xml",
            "manager",
            "manager login now",
            "member",
            "member draining",
            "member up -\ta\tb",
            "member draining 1s\ta\tb",
            "member draining -\ta",
            "member draining -\ta\tb\tc",
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
        assert_eq!(Command::hits(HitsFormat::Text, Some("a b")), None);
        assert_eq!(Command::hits(HitsFormat::Text, Some("a\nstop")), None);
        assert_eq!(Command::purge("a", "/\nstop"), None);
        assert_eq!(Command::purge("a\rb", "/"), None);
        assert_eq!(Command::balancers(StatusFormat::Text, Some("a\nb")), None);
        assert_eq!(member("a\tb", None), None);
        assert_eq!(member("a\nstop", None), None);
    }
}
