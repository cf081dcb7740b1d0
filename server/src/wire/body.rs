//! How long a request's body is, and taking it out of its framing (RFC 9112 §6, §7).

/// What the head says of the body.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BodyLength { None, Length(u64), Chunked }
