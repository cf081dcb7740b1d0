//! The core of the load balancer: choice of members, health, sessions and accounting, without any I/O.
//!
//! A [`Balancer`] owns the frozen list of its [`Member`]s. [`Balancer::choose`] gives a [`Lease`] of a
//! member for one request, and the lease takes the reports of the outcome. Everything is shared by all
//! workers. The methods `byrequests`, `bytraffic` and `bybusyness` follow the order of Apache's
//! mod_proxy_balancer exactly, and a test compares both (`tests/balancer_oracle.rs`).
//!
//! Each call gets the time, and clippy.toml refuses clocks, sockets and files. The [`Connections`] to a member belong to
//! the user of the crate.

#![forbid(unsafe_code)]

mod limits;
mod balancer;
mod balancer_settings;
mod check;
mod contest;
mod counters;
mod down_watch;
mod ejection;
mod lease;
mod member;
mod member_core;
mod member_settings;
mod method;
mod place_ledger;
mod random;
mod registry;
mod report;
mod request;
mod retry_budget;
mod roster;
mod selection;
mod slot_queue;
mod state;
mod sticky;
#[cfg(test)]
mod test_waker;
#[cfg(test)]
mod tests;

pub use crate::balancer::{Balancer, CheckRun, HealthReport, NextCheck, ReconfigureReport};
pub use crate::check::{CheckFailure, CheckOutcome, DoubtChange};
pub use crate::counters::{LATENCY_BUCKET_MICROS, LatencyBuckets, LatencyHistogram};
pub use crate::lease::{Lease, LeftRequest, QueueTicket, WaitRefused, Waited};
pub use crate::member::{Connections, Member};
pub use crate::random::client_hash;
pub use crate::registry::Balancers;
pub use crate::report::{BalancerReport, MemberReport, PlaceReport};
pub use crate::request::{ChooseRequest, MemberId, NoMember, SessionUse};
pub use crate::state::{ChangeReason, MemberState, StateChange, state_changes};
pub use crate::sticky::{SessionKey, session_value};

/// Settings of balancers, of members and of the connections to members.
pub mod settings {
    pub use crate::balancer_settings::{
        BalancerSettings, ConnectionSettings, MemberTlsSettings, ProxyHeaderVersion, RetrySettings,
        StickySettings,
    };
    pub use crate::member_settings::{
        AdminState, CheckKind, CheckSettings, EjectionSettings, MemberCheck, MemberHost,
        MemberRole, MemberSettings, MemberUrl,
    };
    pub use crate::method::BalancingMethod;
}
