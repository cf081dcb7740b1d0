//! Snapshot of the server: the state at one moment, with the renderings that all clients of the manager share.

use super::control_request::SnapshotState;
use super::gzip::SharedText;
use super::live_part::LivePart;
use super::xml::xml;
use crate::admin::edit_report::EditDifferences;
use crate::admin::metrics::{Metrics, MetricsFormat};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// State of the server at one moment, with the renderings that all clients share.
pub struct Snapshot {
    state: SnapshotState,
    pub(super) made_ms: u64,
    status_json: OnceLock<SharedText>,
    balancers_json: OnceLock<SharedText>,
    history_json: OnceLock<SharedText>,
    differences_json: OnceLock<SharedText>,
    /// Requests under way as JSON, without and with the texts and addresses of clients.
    requests_json: [OnceLock<SharedText>; 2],
    /// Balancers as XML, without and with places for a token.
    xml: [OnceLock<Vec<SharedText>>; 2],
    /// Part of the page that changes by itself, by the rights of the client.
    pub(super) live: [OnceLock<Arc<LivePart>>; 3],
    /// Metrics in the format of Prometheus, and in OpenMetrics.
    metrics: [OnceLock<SharedText>; 2],
}

impl Deref for Snapshot {
    type Target = SnapshotState;

    fn deref(&self) -> &SnapshotState {
        &self.state
    }
}

impl Snapshot {
    /// Returns a snapshot without renderings. `made_ms` is the time on the clock of the workers.
    pub(super) fn new(state: SnapshotState, made_ms: u64) -> Snapshot {
        Snapshot {
            state,
            made_ms,
            status_json: OnceLock::new(),
            balancers_json: OnceLock::new(),
            history_json: OnceLock::new(),
            differences_json: OnceLock::new(),
            requests_json: Default::default(),
            xml: Default::default(),
            live: Default::default(),
            metrics: Default::default(),
        }
    }

    /// Returns the metrics in a format.
    pub(super) fn metrics(&self, format: MetricsFormat) -> &SharedText {
        let text = &self.metrics[format as usize];
        text.get_or_init(|| self.facts_for_metrics().render(format).into())
    }

    /// Returns the metrics as values.
    pub(super) fn facts_for_metrics(&self) -> Metrics<'_> {
        Metrics {
            status: &self.status,
            balancers: &self.balancers.balancers,
            facts: &self.facts,
        }
    }

    /// Returns the JSON of a path, rendered once for all clients.
    pub(super) fn json(&self, path: &[u8]) -> &SharedText {
        let edits = &self.edits;
        let (text, render): (_, &dyn Fn() -> String) = match path {
            b"/status.json" => (&self.status_json, &|| self.status.json()),
            b"/balancers.json" => (&self.balancers_json, &|| self.balancers.json()),
            b"/history.json" => (&self.history_json, &|| edits.ledger.history_json(None)),
            _ => (&self.differences_json, &|| {
                EditDifferences::new(&edits.ledger, &edits.configured).json()
            }),
        };
        text.get_or_init(|| render().into())
    }

    /// Returns the balancers as XML, in pieces with places for a token between the pieces.
    pub(super) fn xml(&self, has_token: bool) -> &[SharedText] {
        let pieces = &self.xml[usize::from(has_token)];
        pieces.get_or_init(|| xml(&self.balancers, has_token))
    }

    /// Returns the requests under way as JSON, with the texts and addresses of clients for a login.
    pub(super) fn requests_json(&self, has_login: bool) -> &SharedText {
        let text = &self.requests_json[usize::from(has_login)];
        text.get_or_init(|| self.requests.json(has_login).into())
    }
}
