//! Outcome of a publication for the summary: the state on the server as a clause, and the exit status.

use crate::text;
use release::acknowledgment::ServerReport;
use release::limits::{RECEIVE_FIRST_SERVED_MILLISECONDS_MAX, RECEIVE_SERVED_MILLISECONDS_MAX};
use std::process::ExitCode;
use std::time::Instant;

/// Exit status for a publication that is in the store, and that the server does not serve.
const NOT_SERVED: u8 = 3;

/// Outcome of a publication.
pub(super) struct Outcome {
    /// Outcome as a clause.
    pub(super) clause: String,
    /// True if the server refuses the publication, or has not acknowledged an unchanged one.
    pub(super) is_unserved: bool,
}

impl Outcome {
    /// Returns the outcome of a new publication of `site`. The publication began at `start`.
    pub(super) fn published(
        site: &str,
        sequence: u64,
        report: &ServerReport,
        start: Instant,
    ) -> Outcome {
        let state = match (&report.refusal, report.acknowledged) {
            _ if report.is_served(sequence) => {
                let time = text::seconds(start.elapsed().as_secs_f64());
                format!(", served by all workers after {time}")
            }
            (Some(reason), _) => refused(reason, report),
            (None, None) => "; no acknowledgment of a server can be read".to_owned(),
            (None, Some(0)) => format!(
                "; no server has acknowledged it after {} s, and none ever acknowledged a release of the site: no server \
                 runs with a site `release = \"{site}\"`",
                RECEIVE_FIRST_SERVED_MILLISECONDS_MAX / 1_000
            ),
            (None, Some(last)) => format!(
                "; no server has acknowledged it after {} s: no server runs with a site `release = \"{site}\"`, and \
                 sequence {last} was served last",
                RECEIVE_SERVED_MILLISECONDS_MAX / 1_000
            ),
        };
        Outcome {
            clause: format!("published, sequence {sequence}{state}"),
            is_unserved: report.refusal.is_some(),
        }
    }

    /// Returns the outcome for a folder that equals the release of the pointer.
    pub(super) fn unchanged(sequence: u64, report: &ServerReport) -> Outcome {
        let state = match (&report.refusal, report.acknowledged) {
            (Some(reason), _) => refused(reason, report),
            (None, Some(0)) => ", but no server has acknowledged it".to_owned(),
            (None, Some(last)) if last != sequence => {
                format!(", but no server has acknowledged it, and sequence {last} was served last")
            }
            _ => String::new(),
        };
        Outcome {
            is_unserved: !state.is_empty(),
            clause: format!("unchanged, sequence {sequence}{state}"),
        }
    }

    /// Returns the outcome for a release with a label for previews.
    pub(super) fn labelled(label: &str) -> Outcome {
        Outcome {
            clause: format!("labelled {label}"),
            is_unserved: false,
        }
    }

    /// Returns the exit status of the command.
    pub(super) fn code(is_unserved: bool) -> ExitCode {
        if is_unserved {
            ExitCode::from(NOT_SERVED)
        } else {
            ExitCode::SUCCESS
        }
    }
}

/// Returns the refusal of a publication as a clause.
fn refused(reason: &str, report: &ServerReport) -> String {
    let served = match report.acknowledged {
        None | Some(0) => "the server serves no release of the site".to_owned(),
        Some(last) => format!("sequence {last} was served last"),
    };
    format!(", but not served: {reason}; {served}")
}
