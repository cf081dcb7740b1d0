//! Test harness: a whole worker under a virtual clock, with clients at the other ends of socket pairs.
//!
//! The worker is the one of the program, with its event loop, its sweep and its drain. Only the accept loop is left
//! out: `PairClient::connect` opens a connection on one end of a pair of Unix sockets, where bytes and the end of either
//! direction arrive before the system call returns. Time stands still until `Pair::advance`. Handlers do nothing by
//! themselves: a test takes each call as a `PairCall`, and reads and writes its bodies step by step.

mod call;
mod client;
mod worker;
mod world;

pub(in crate::serve) use call::{PairCall, PairRead, write_some};
pub(in crate::serve) use client::{PairClient, PairEnd, fill};
pub(in crate::serve) use worker::Pair;
pub(in crate::serve) use world::PairWorld;
