//! Bounds for which clients compete, and for each bound a counter of refusals to clients over their share.
//!
//! [`SharedLimit`] lists every such bound of the process or of a worker. docs/src/limits.md has the same table for
//! operators.

use base::counter::Counter;

macro_rules! shares {
    ($( $share:ident $name:literal $doc:literal; )*) => {
        /// A bound shared by all clients.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub enum SharedLimit {
            $( #[doc = $doc] $share, )*
        }

        impl SharedLimit {
            /// All shares, in the order of the table in docs/src/limits.md.
            pub const ALL: &'static [SharedLimit] = &[$( SharedLimit::$share, )*];

            /// Returns the name of the counter in `anthill status`.
            pub fn name(self) -> &'static str {
                match self {
                    $( SharedLimit::$share => $name, )*
                }
            }
        }
    };
}

shares! {
    Connections "connections_given_up" "Open connections: an idle connection of the largest holder is closed.";
    Streams "streams_refused" "Requests under way by HTTP/2 and 3: refused, or reset for another client.";
    HeadBytes "heads_refused" "Bytes of request heads that are kept while their requests wait.";
    Calls "calls_refused" "Calls of scripts and git: refused, or ended for another client.";
    MemberPlaces "member_places_refused" "Places at the members of balancers, and descriptors of connections to members: 503.";
    Logins "logins_refused" "Failed logins: 429.";
    BodyMemory "memory_refused" "Calls and bytes of bodies under way: 503.";
    SpooledBytes "bodies_refused" "Request bodies on the disk: 503.";
    GitPages "git_pages_refused" "Pages of repositories, their rate, downloads and bytes: 429 or 503.";
}

/// Counters of refusals and losses because a share was taken, one counter for each [`SharedLimit`]. The process
/// has one set of counters, written by any thread.
#[derive(Default, Debug)]
pub struct RefusalCounters([Counter; SharedLimit::ALL.len()]);

impl RefusalCounters {
    /// Counts one refusal.
    pub fn increment(&self, share: SharedLimit) {
        self.add(share, 1);
    }

    /// Counts `n` refusals.
    pub(crate) fn add(&self, share: SharedLimit, n: u64) {
        self.0[share as usize].add_shared(n);
    }

    /// Returns every share with its count.
    pub fn each(&self) -> impl Iterator<Item = (SharedLimit, u64)> {
        let share = |(share, counter): (&SharedLimit, &Counter)| (*share, counter.value());
        SharedLimit::ALL.iter().zip(&self.0).map(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_share() {
        let refusals = RefusalCounters::default();
        refusals.increment(SharedLimit::Logins);
        refusals.add(SharedLimit::Logins, 2);
        let counted: Vec<_> = refusals.each().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(SharedLimit::Logins, 3)]);
    }
}
