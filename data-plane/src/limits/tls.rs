//! Bounds of `tls`.

/// Session tickets of one server that a client keeps for resumption. A server sends 1 to 4 tickets for each
/// full handshake, and each resumption consumes one ticket. A ticket takes about 1 KB.
pub const TLS_CLIENT_TICKETS: usize = 8;
