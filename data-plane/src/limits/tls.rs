//! Bounds of `tls`: session tickets of a client, and former identities of a site.

/// Session tickets of one server that a client keeps for resumption. A server sends 1 to 4 tickets for each
/// full handshake, and each resumption consumes one ticket. A ticket takes about 1 KB.
pub(crate) const TLS_CLIENT_TICKETS: usize = 8;

/// Earlier identities of a site by which a site accepts connections from before a reload. Each reload that changes the
/// file of the site's certificate adds one of 24 bytes. A connection older than the last 64 such reloads is refused with
/// 421.
pub(crate) const FORMER_IDENTITIES_MAX: usize = 64;
/// Days until the end of a certificate file below which the manager warns, 14: two weeks to get another file.
pub const MANAGER_CERTIFICATE_DAYS_MIN: i64 = 14;
