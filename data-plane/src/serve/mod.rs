//! The data plane: worker threads, their connections, and the dispatch of requests of all versions of HTTP.

mod accept;
mod access;
mod access_log;
mod access_log_batches;
mod accepted_connection;
mod attempt;
mod auth_answers;
mod before_site;
mod connection;
mod connection_entry;
mod connection_holders;
mod connection_ledger;
mod connection_table;
mod context;
mod disk_comparison;
mod dispatch;
mod dispatch_context;
mod ending_call;
pub mod explanation;
mod forwarding;
mod h1;
mod h2;
#[cfg(feature = "http3")]
pub mod h3;
#[cfg(not(feature = "http3"))]
#[path = "no_h3.rs"]
pub mod h3;
mod handler_request;
mod linger;
mod matched_request;
mod maybe_tls_stream;
mod named_resources;
#[cfg(test)]
mod pair;
mod poller;
mod proxy_header;
mod quic_forward;
mod rare_events;
mod redispatch;
mod refusal;
mod request_ledger;
mod responder;
mod response_body;
mod response_head;
mod response_record;
mod ruled_request;
mod search_pauses;
mod send_memory;
mod sessions;
mod socket;
mod stall;
mod step;
mod stream_call;
mod subrequest;
mod synthetic_response;
mod tunnel;
pub mod worker;
