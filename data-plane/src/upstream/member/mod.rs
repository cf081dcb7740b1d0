//! Connections to members of balancers over HTTP/1.1 and HTTP/2, with their pools. The file has the exports alone.

mod address;
mod conn;
mod connecting;
mod h2_conn;
mod h2_connecting;
mod h2_driver;
mod h2_mailbox;
mod h2_window;
mod pool;
mod socket;
mod tls;
mod tls_failure;

pub(super) use crate::upstream::member::address::MemberAddress;
pub(crate) use crate::upstream::member::conn::MemberConn;
pub(crate) use crate::upstream::member::connecting::MemberConnecting;
pub(crate) use crate::upstream::member::h2_conn::{H2MemberConn, H2RequestStream, NotHttp2};
pub(crate) use crate::upstream::member::h2_connecting::{H2ConnNeeds, H2Connecting};
pub(crate) use crate::upstream::member::h2_mailbox::{H2Failure, ResponsePart};
pub use crate::upstream::member::pool::MemberPool;
pub(crate) use crate::upstream::member::pool::{ConnUser, close_idle_members};
pub(crate) use crate::upstream::member::socket::{MemberWindow, with_receive_buffer};
pub(crate) use crate::upstream::member::tls_failure::MemberTlsFailure;
