//! Field lines and what values they hold (RFC 9110 §5).

/// All field lines of one head, borrowed: the bytes between the request line and the empty line.
#[derive(Copy, Clone, Debug, Default)]
pub struct Fields<'a>(pub &'a [u8]);

/// The values of one list-typed field: none, one line, or (rare) several lines to be read as one list.
#[derive(Copy, Clone, Debug, Default)]
pub enum Values<'a> { #[default] None, One(&'a [u8]), Many(Fields<'a>, &'static str) }
