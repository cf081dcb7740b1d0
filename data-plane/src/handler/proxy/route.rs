//! A route with a proxy, as an attempt sees the route: the balancer, and the settings of the forwarded requests.
//!
//! The file is short so that every other file of the room can import it.

use crate::ledger::shared_limit::RefusalCounters;
use crate::upstream::Balancer;
use std::sync::Arc;
use wire::path_readings::Slashes;

/// Name of the handler in the log.
pub(super) const NAME: &str = "proxy";

/// Settings of a route with a proxy.
pub struct ProxyRoute {
    /// Balancer that chooses the member.
    pub balancer: Arc<Balancer>,
    /// Rules for the rewriting of requests and responses.
    pub forward: ForwardSettings,
    /// Path of the route, without a slash at its end.
    pub path: Box<[u8]>,
    /// Name of this server in Via, unique to the process.
    pub pseudonym: Arc<str>,
    /// Counters of refusals because of shares already taken.
    pub refusals: Arc<RefusalCounters>,
    /// Fields that the server for forward authentication alone may set, in a trailer section too.
    pub identity_fields: Arc<[Box<str>]>,
}

impl ProxyRoute {
    /// Returns the number of segments in the path of the route.
    pub(super) fn segments(&self) -> usize {
        self.path.iter().filter(|byte| **byte == b'/').count()
    }
}

/// Placeholder for the client's address in the values of [`ForwardSettings::request_fields`].
pub const CLIENT_PLACEHOLDER: &str = "{client}";

/// Placeholder for the name of the user that logged in, in the values of [`ForwardSettings::request_fields`].
pub const USER_PLACEHOLDER: &str = "{user}";

/// Settings of a route with `proxy` or `balance`, beside the settings of its balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForwardSettings {
    /// Host field that members get.
    pub host: ForwardedHost,
    /// Path that replaces the route's path, with slashes at both ends; None for the client's path. Location
    /// fields and cookie paths of responses are rewritten in the other direction.
    pub prefix: Option<Box<str>>,
    /// True if Location and its like reach the client as sent by the member.
    pub keeps_urls: bool,
    /// Doubled slashes in the path for the members.
    pub slashes: Slashes,
    /// Fields of the request that replace the client's fields and those of the proxy; an empty value removes the
    /// field. Values may contain [`CLIENT_PLACEHOLDER`] and [`USER_PLACEHOLDER`]. A field with the name of the user is
    /// removed from a request without a login.
    pub request_fields: Vec<(Box<str>, Box<str>)>,
    /// Fields of the response that replace the member's fields; an empty value removes the field.
    pub response_fields: Vec<(Box<str>, Box<str>)>,
    /// True if members get the Authorization field with which the client logged in at this server.
    pub passes_login: bool,
    /// True if clients with HTTP/1.1 get 103 (Early Hints).
    pub has_h1_hints: bool,
}

/// Host field that members get.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ForwardedHost {
    /// Host of the client's request.
    #[default]
    Client,
    /// Host of the member's URL.
    Member,
    /// Fixed host.
    Fixed(Box<str>),
}
