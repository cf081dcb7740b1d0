//! Settings of the requests that a route forwards: Host, the prefix of the path, and the fields of both directions.

use wire::path_readings::Slashes;

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
