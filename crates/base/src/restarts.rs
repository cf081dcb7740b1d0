//! Restarts of the server by its supervisor. The supervisor passes the record on in variables of the environment, and the
//! server shows the record in its status.

use crate::limits::RESTART_REASON_CHARACTERS_MAX;
use crate::visible_text::is_hidden;

/// Record of the restarts since the start of the supervisor.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Restarts {
    /// Starts of the server after an end.
    pub count: u64,
    /// The last end in words; empty before the first end.
    pub reason: String,
}

/// Name of the socket between the server and its supervisor.
pub const SUPERVISOR_SOCKET: &str = "anthill/supervisor";
/// Name of the socket between a successor and the running server.
pub const SUCCESSOR_SOCKET: &str = "anthill/successor";
/// Message of the server to the supervisor: the server is to be replaced.
pub const RESTART_REQUEST: &str = "restart";
/// Message of the supervisor to the server: a successor starts.
pub const SUCCESSOR_STARTS: &str = "successor";
/// Message of the server to the supervisor: the successor serves.
pub const SERVER_LEAVES: &str = "leaving";
/// Beginning of a message with the reason why the running server stays in use.
pub const RESTART_REFUSED: &str = "refused";

const COUNT: &str = "ANTHILL_RESTARTS";
const REASON: &str = "ANTHILL_RESTART_REASON";

impl Restarts {
    /// Returns the variables for the environment of the next server.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        [
            (COUNT, self.count.to_string()),
            (REASON, self.reason.clone()),
        ]
    }

    /// Reads the record from the environment of this process; None for a server without a supervisor.
    pub fn from_environment() -> Option<Restarts> {
        let variable = |name| std::env::var(name).ok();
        Restarts::read(&variable(COUNT)?, &variable(REASON)?)
    }

    /// Reads the two variables. A reason is cut off after [`RESTART_REASON_CHARACTERS_MAX`], and has no hidden characters.
    fn read(count: &str, reason: &str) -> Option<Restarts> {
        let reason = reason.chars().filter(|it| !is_hidden(*it));
        Some(Restarts {
            count: count.parse().ok()?,
            reason: reason.take(RESTART_REASON_CHARACTERS_MAX).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_read_as_written() {
        let record = Restarts {
            count: 3,
            reason: "signal 9 (SIGKILL)".to_owned(),
        };
        let [(_, count), (_, reason)] = record.variables();
        assert_eq!(Restarts::read(&count, &reason), Some(record));
    }

    #[test]
    fn other_values_are_refused_or_cut() {
        for count in ["", "-1", "x", "99999999999999999999999"] {
            assert_eq!(Restarts::read(count, ""), None, "{count}");
        }
        let long = Restarts::read("1", &"x".repeat(1_000)).unwrap();
        assert_eq!(long.reason.len(), RESTART_REASON_CHARACTERS_MAX);
        let odd = Restarts::read("1", "a\u{1b}[2Jb").unwrap();
        assert_eq!(odd.reason, "a[2Jb");
    }
}
