//! Question to a balancer: which member gets the request, and the reasons for the answer "none".

use base::client_network::ClientNetwork;
use std::fmt;

/// Number of a member, unique within the balancer. A member keeps the number over reloads.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u32);

/// A request that needs a member.
#[derive(Copy, Clone, Debug)]
pub struct ChooseRequest<'a> {
    /// Client of the request, for the shares of members with `connections_max`.
    pub client: ClientNetwork,
    /// Hash of the client's address ([`client_hash`](crate::client_hash)), for the
    /// methods `ip-hash` and `maglev`, and for the shares of clients.
    pub client_hash: u64,
    /// Value of the session cookie or of the session's path parameter, without its name
    /// ([`session_value`](crate::session_value)); None for a request without a session.
    pub session: Option<&'a str>,
    /// Members that failed to answer the request.
    pub tried: &'a [MemberId],
    /// True if the whole body of the request is in memory, or the request has no body. The time until the answer
    /// then depends on the member alone, so the request may be the trial of an ejected member.
    pub is_gathered: bool,
    /// True for a request for a tunnel or an event stream, which takes one of the member's places for such requests.
    pub is_tunnel: bool,
    /// Milliseconds on the monotonic clock of the process.
    pub now_ms: u64,
}

/// Facts about a request that the lease of a member keeps.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Requester {
    /// Hash of the client's address.
    pub(crate) client: u64,
    /// Time of the choice.
    pub(crate) began_ms: u64,
    /// True if another member failed to answer the request.
    pub(crate) is_retry: bool,
}

impl From<&ChooseRequest<'_>> for Requester {
    fn from(request: &ChooseRequest<'_>) -> Requester {
        Requester {
            client: request.client_hash,
            began_ms: request.now_ms,
            is_retry: !request.tried.is_empty(),
        }
    }
}

/// Reason for a request without a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NoMember {
    /// Usable members exist, but each has `connections_max` requests under way. The caller may wait.
    Busy {
        /// Member of the request's session, if only that member may answer.
        session_member: Option<MemberId>,
    },
    /// No member is usable, or the request tried all usable members.
    NoneUsable,
    /// The member of the request's session is unusable, and sessions of the balancer are strict.
    SessionLost,
}

impl fmt::Display for NoMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoMember::Busy { .. } => "all usable members are busy",
            NoMember::NoneUsable => "no member is usable",
            NoMember::SessionLost => "the member of the session is not usable",
        })
    }
}

impl std::error::Error for NoMember {}

/// Relation between the session of a request and the chosen member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum SessionUse {
    /// The balancer has no sessions.
    #[default]
    None,
    /// The member of the session was chosen.
    Kept,
    /// The request has no session yet, or another member than the session's was chosen (Apache's
    /// BALANCER_ROUTE_CHANGED).
    Changed,
}
