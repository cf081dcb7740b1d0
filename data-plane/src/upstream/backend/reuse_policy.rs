//! Policy for the connections to a backend between calls.

use crate::limits::BACKEND_CONNECTIONS_MAX;

/// Policy for a connection after the end of its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReusePolicy {
    /// The connection is closed.
    Never,
    /// The connection is handed over to a waiting call, or to a call arriving within a few milliseconds.
    Handover,
    /// The connection stays open. The number bounds all connections to the backend.
    UpTo(usize),
}

impl ReusePolicy {
    /// Converts the configured number of connections: 0 means [`ReusePolicy::Never`], and no number means
    /// [`ReusePolicy::Handover`].
    pub fn from_config(max: Option<usize>) -> ReusePolicy {
        match max {
            None => ReusePolicy::Handover,
            Some(0) => ReusePolicy::Never,
            Some(max) => ReusePolicy::UpTo(max),
        }
    }

    /// Returns true if a request that arrived under the policy `self` may use a connection left under the
    /// policy `other`.
    pub(super) fn is_compatible_with(self, other: ReusePolicy) -> bool {
        match (self, other) {
            (ReusePolicy::Handover, ReusePolicy::Handover)
            | (ReusePolicy::UpTo(_), ReusePolicy::UpTo(_)) => true,
            (ReusePolicy::Handover | ReusePolicy::UpTo(_) | ReusePolicy::Never, _) => false,
        }
    }

    /// Returns the maximum number of simultaneous connections.
    pub(super) fn connections_max(self) -> usize {
        match self {
            ReusePolicy::Never | ReusePolicy::Handover => BACKEND_CONNECTIONS_MAX,
            ReusePolicy::UpTo(max) => max,
        }
    }
}
