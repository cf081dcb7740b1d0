//! Servers behind this server: connections to FastCGI and SCGI backends, and to members of balancers.
//!
//! The crate [`balancer`] chooses the member of a request; the files here connect, look up names and check. The file has
//! the exports, and the types of the balancer with this room's connections.

mod address;
mod backend;
mod check;
mod member;
mod name_state;
mod plan;
pub mod resolver;
pub mod session_key_file;

pub use crate::upstream::address::BackendAddress;
pub(crate) use crate::upstream::address::ConnectFault;
pub use crate::upstream::backend::{Backend, BackendReport, BackendRoute, Backends, ReusePolicy};
pub(crate) use crate::upstream::backend::{Conn, IdleConn};
pub use crate::upstream::check::Checker;
pub use crate::upstream::member::MemberPool;
pub(crate) use crate::upstream::member::{
    ConnUser, H2ConnNeeds, H2Connecting, H2Failure, H2MemberConn, H2RequestStream, MemberConn,
    MemberConnecting, MemberTlsFailure, MemberWindow, NotHttp2, ResponsePart, close_idle_members,
    with_receive_buffer,
};
pub use crate::upstream::plan::{BalancerPlan, log_change, log_doubt};

/// Balancer of members with connection pools.
pub type Balancer = balancer::Balancer<MemberPool>;
pub type Balancers = balancer::Balancers<MemberPool>;
pub type Member = balancer::Member<MemberPool>;
pub(crate) type CheckRun = balancer::CheckRun<MemberPool>;
pub type Lease = balancer::Lease<MemberPool>;
pub(crate) type LeftRequest = balancer::LeftRequest<MemberPool>;
pub(crate) type QueueTicket = balancer::QueueTicket<MemberPool>;
pub(crate) type ReconfigureReport = balancer::ReconfigureReport<MemberPool>;
