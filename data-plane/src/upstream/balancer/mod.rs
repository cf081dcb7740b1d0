//! The core of the load balancer: choice of members, health, sessions and accounting, without any I/O.
//!
//! A [`Balancer`] owns the frozen list of its [`Member`]s. [`Balancer::choose`] gives a [`Lease`] of a
//! member for one request, and the lease takes the reports of the outcome. Everything is shared by all
//! workers. The methods `byrequests`, `bytraffic` and `bybusyness` follow the order of Apache's
//! mod_proxy_balancer exactly, and a test compares both (`tests/balancer_oracle.rs`).

#[allow(clippy::module_inception)]
mod balancer;
mod candidates;
mod check_run;
mod contest;
mod down_watch;
mod edit;
mod edited;
mod ejection;
mod health;
mod heartbeat_table;
mod latency;
mod latency_histogram;
mod lease;
mod member;
mod method;
mod place_ledger;
mod place_report;
mod policies;
mod random;
mod registry;
mod report;
mod request;
mod retry_budget;
mod roster;
mod schedule;
mod seat;
mod selection;
mod slot_queue;
mod slow_start;
mod standing;
mod state;
mod sticky;
#[cfg(test)]
mod test_waker;
#[cfg(test)]
mod tests;
mod ticket;

pub use crate::upstream::balancer::balancer::{Balancer, ReconfigureReport};
pub use crate::upstream::balancer::check_run::{CheckRun, DoubtChange, HealthReport, NextCheck};
pub use crate::upstream::balancer::edit::{BalancerEdit, BalancerEdits, EditError, MemberEdit};
pub use crate::upstream::balancer::latency_histogram::{LATENCY_BUCKET_MICROS, LatencyBuckets};
pub use crate::upstream::balancer::lease::{Lease, LeftRequest};
pub use crate::upstream::balancer::member::{Member, MemberCheck};
pub use crate::upstream::balancer::place_report::PlaceReport;
pub use crate::upstream::balancer::random::client_hash;
pub use crate::upstream::balancer::registry::Balancers;
pub use crate::upstream::balancer::report::{BalancerReport, MemberReport};
pub use crate::upstream::balancer::request::{ChooseRequest, MemberId, NoMember, SessionUse};
pub use crate::upstream::balancer::state::{
    ChangeReason, CheckFailure, CheckOutcome, MemberState, StateChange, state_changes,
};
pub use crate::upstream::balancer::sticky::{SessionKey, session_value};
pub use crate::upstream::balancer::ticket::{QueueTicket, WaitRefused, Waited};
