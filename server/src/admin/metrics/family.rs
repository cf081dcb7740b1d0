//! Family of metrics: samples with one name, type and meaning.

/// Type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MetricKind {
    /// Sum that only grows.
    Counter,
    /// Value at the moment.
    Gauge,
    /// Constant text in the labels of a sample with the value 1.
    Info,
    /// Distribution of durations.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the type in a TYPE line.
    pub(super) fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Info => "info",
            MetricKind::Histogram => "histogram",
        }
    }

    /// Returns the end of the name of a sample.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        }
    }
}

/// Samples with one meaning.
pub(super) struct Family {
    pub(super) kind: MetricKind,
    /// Name without the suffix of the type.
    pub(super) name: &'static str,
    /// Unit; empty for a number without a unit.
    pub(super) unit: &'static str,
    /// Labels for the guide.
    #[cfg(test)]
    pub(super) labels: &'static str,
    /// Documentation in a line.
    pub(super) help: &'static str,
}

impl Family {
    /// Returns the name with the suffix of the type.
    pub(super) fn sample_name(&self) -> String {
        [self.name, self.kind.suffix()].concat()
    }
}
