//! The data plane: one thread per worker, its connections, and the one place where every version of
//! HTTP meets the World.

pub mod access;
mod accept;
mod body;
mod call;
pub mod connection;
pub mod dispatch;
pub mod h2;
#[cfg(feature = "http3")]
pub mod h3;
#[cfg(not(feature = "http3"))]
#[path = "no_h3.rs"]
pub mod h3;
mod inside;
pub mod ledger;
pub mod live;
pub mod outgoing;
mod pending;
pub mod poller;
mod refusal;
mod small;
mod stall;
pub mod socket;
pub mod stream;
pub mod worker;
