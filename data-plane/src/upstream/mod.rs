//! Servers behind this server: pools of connections to FastCGI and SCGI backends, and balancers with their members.
//!
//! The crate [`balancer`] chooses the member of a request; the files here connect, look up names and check. The
//! paragraphs below are about FastCGI and SCGI backends.
//!
//! An idle connection occupies a process of most backends, php-fpm among them. By default no connection
//! stays open for longer than a few milliseconds without a call. The operator may configure a number of
//! kept connections. The number then bounds the connections of all workers together: a further call waits
//! for a free connection and reuses the connection unchanged.
//!
//! Without a configured number, a connection to a Unix socket is handed over to a waiting call, or to a
//! call arriving within a few milliseconds, for at most 50 ms in all. The handover spares a busy backend
//! most of the connection setup, and no process of the backend stays reserved for the server.

mod address;
mod change_log;
mod check_exchange;
mod check_h2_reader;
mod check_reader;
mod check_verdict;
pub mod checker;
mod conn;
mod connect_fault;
mod handover;
mod member_address;
mod member_conn;
mod member_connecting;
mod member_pool;
mod plan;
mod name_state;
mod member_socket;
mod member_tls;
mod member_tls_failure;
mod pool;
mod receive_buffer;
mod h2_mailbox;
mod h2_window;
mod h2_conn;
mod h2_driver;
mod h2_connecting;
pub mod resolver;
pub mod session_key_file;

pub use crate::upstream::address::BackendAddress;
pub use crate::upstream::change_log::{log_change, log_doubt};
pub(crate) use crate::upstream::conn::{Conn, IdleConn};
pub(crate) use crate::upstream::connect_fault::ConnectFault;
pub(crate) use crate::upstream::h2_conn::{H2MemberConn, H2RequestStream, NotHttp2};
pub(crate) use crate::upstream::h2_connecting::{H2ConnNeeds, H2Connecting};
pub(crate) use crate::upstream::h2_mailbox::{H2Failure, ResponsePart};
pub(crate) use crate::upstream::member_conn::MemberConn;
pub(crate) use crate::upstream::member_connecting::MemberConnecting;
pub use crate::upstream::member_pool::MemberPool;
pub(crate) use crate::upstream::member_pool::close_idle_members;
pub(crate) use crate::upstream::member_socket::MemberWindow;
pub(crate) use crate::upstream::member_tls_failure::MemberTlsFailure;
pub use crate::upstream::plan::BalancerPlan;
pub use crate::upstream::pool::{Backend, Backends, ReusePolicy};
pub(crate) use crate::upstream::receive_buffer::with_receive_buffer;

/// Balancer whose members have pools of connections.
pub type Balancer = balancer::Balancer<MemberPool>;
pub type Balancers = balancer::Balancers<MemberPool>;
pub type Member = balancer::Member<MemberPool>;
pub(crate) type CheckRun = balancer::CheckRun<MemberPool>;
pub type Lease = balancer::Lease<MemberPool>;
pub(crate) type LeftRequest = balancer::LeftRequest<MemberPool>;
pub(crate) type QueueTicket = balancer::QueueTicket<MemberPool>;
pub(crate) type ReconfigureReport = balancer::ReconfigureReport<MemberPool>;
