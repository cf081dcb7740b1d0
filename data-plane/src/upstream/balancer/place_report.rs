//! Places of members at the moment when a request finds none, for the log.

use std::fmt;

/// Places of members with `connections`, as one request finds them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PlaceReport {
    /// True if free places are reserved for clients with fewer places.
    pub is_share_taken: bool,
    /// Places of the client.
    pub held: usize,
    /// Places of all clients together; None if a member has no bound.
    pub places_max: Option<usize>,
    /// True if the request needs the member of its session.
    pub is_session: bool,
    /// True if the request needs a place of tunnels.
    pub is_tunnel: bool,
    /// Requests that may wait.
    pub queue_max: usize,
}

impl fmt::Display for PlaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_share_taken, self.places_max) {
            (true, Some(places_max)) => {
                let held = self.held;
                write!(
                    f,
                    "the client has its share ({held} of {places_max} places)"
                )
            }
            (true, None) => f.write_str("the client has its share of the places"),
            (false, _) if self.is_tunnel => {
                f.write_str("every place of tunnels and event streams is taken")
            }
            (false, _) if self.is_session => {
                f.write_str("every place of the session's member is taken")
            }
            (false, _) => f.write_str("every place is taken"),
        }
    }
}
