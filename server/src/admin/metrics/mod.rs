//! Metrics of the server in the text formats of Prometheus and OpenMetrics. The facts are the status, the
//! balancers and the counters; the table of families says how the facts are named.

mod exposition;
mod facts;
mod families;
mod family;
pub mod history;
#[cfg(test)]
mod tests;

pub use crate::admin::metrics::exposition::MetricsFormat;
pub use crate::admin::metrics::facts::{Metrics, MetricsFacts, RouteMetrics};
