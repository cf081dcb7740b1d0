//! The data plane: worker threads, their connections, and the dispatch of requests of all versions of HTTP.

mod access;
pub mod access_log;
mod accept;
mod access_log_batches;
mod connection;
mod connection_table;
mod context;
mod sessions;
mod attempt;
mod body;
mod stream_call;
pub mod dispatch;
pub mod dispatch_context;
mod handler_request;
pub mod h2;
#[cfg(feature = "http3")]
pub mod h3;
#[cfg(not(feature = "http3"))]
#[path = "no_h3.rs"]
pub mod h3;
mod subrequest;
pub mod connection_ledger;
mod request_ledger;
pub mod poller;
mod redispatch;
mod refusal;
mod response_head;
mod synthetic_response;
mod stall;
pub mod socket;
pub mod maybe_tls_stream;
pub mod worker;
pub mod h1;
