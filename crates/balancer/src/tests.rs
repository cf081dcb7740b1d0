//! Tests of whole balancers under a virtual clock.

mod checks;
mod failures;
mod fixture;
mod order;
mod properties;
mod queue;
mod reload;
mod sessions;
mod threads;
