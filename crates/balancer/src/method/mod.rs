//! Balancing methods: each chooses one of the candidates of a [`Contest`]. A method is a file and an entry of the list.

mod by_busyness;
mod by_requests;
mod by_traffic;
mod heartbeat;
mod ip_hash;
mod maglev;
mod p2c;
#[cfg(test)]
pub(super) mod test_contest;

use crate::contest::{Contest, Seat, SetTable};

/// Declares the balancing methods: the name in the configuration, the function that chooses a member, and for some
/// methods the function that prepares tables when the list of members changes.
macro_rules! declare_methods {
    ($(
        $(#[$attribute:meta])*
        $method:ident = $name:literal, $pick:path $(, $tables:path)?;
    )+) => {
        /// Rule for the choice of a member.
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
        pub enum BalancingMethod {
            $($(#[$attribute])* $method),+
        }

        impl BalancingMethod {
            /// All methods, in the order of the documentation.
            pub const ALL: &[BalancingMethod] = &[$(BalancingMethod::$method),+];

            /// Names of all methods, for messages to the operator.
            pub const NAMES: &str = listed!($($name),+);

            /// Returns the name in the configuration.
            pub fn name(self) -> &'static str {
                match self {
                    $(BalancingMethod::$method => $name),+
                }
            }

            /// Prepares the tables of the method for a list of members.
            pub(crate) fn tables<C>(self, seats: &[Seat<C>]) -> Vec<SetTable> {
                match self {
                    $($(BalancingMethod::$method => $tables(seats),)?)+
                    _ => Vec::new(),
                }
            }

            /// Chooses a member.
            pub(crate) fn pick<C>(self, contest: &mut Contest<'_, C>) -> u16 {
                match self {
                    $(BalancingMethod::$method => $pick(contest)),+
                }
            }
        }
    };
}

/// Joins words as `a, b or c`.
macro_rules! listed {
    ($text:expr, $last:literal) => {
        concat!($text, " or ", $last)
    };
    ($text:expr, $next:literal, $($rest:literal),+) => {
        listed!(concat!($text, ", ", $next), $($rest),+)
    };
}

declare_methods! {
    /// Shares requests by weight (Apache's lbmethod byrequests).
    #[default]
    ByRequests = "byrequests", by_requests::pick;
    /// Shares bytes by weight (Apache's lbmethod bytraffic).
    ByTraffic = "bytraffic", by_traffic::pick;
    /// Chooses the member with the fewest requests under way (Apache's lbmethod bybusyness).
    ByBusyness = "bybusyness", by_busyness::pick;
    /// Chooses by the load that members announce in datagrams (Apache's lbmethod heartbeat).
    Heartbeat = "heartbeat", heartbeat::pick;
    /// Chooses by a hash of the client's address.
    IpHash = "ip-hash", ip_hash::pick;
    /// Chooses by a hash of the client's address in a Maglev table: the loss of a member moves few clients
    /// of other members.
    Maglev = "maglev", maglev::pick, maglev::tables;
    /// Chooses the better of two random members, by latency and requests under way.
    P2c = "p2c", p2c::pick;
}
