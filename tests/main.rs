//! End to end: the real binary, spoken to by real clients; and what holds the house together.

mod journal;
mod layers;
mod papers;
mod support;
