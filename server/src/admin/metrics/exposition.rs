//! Writer of the text formats of Prometheus (version 0.0.4) and OpenMetrics (version 1.0), and the choice of the
//! format by the Accept field. Pure.

use crate::admin::metrics::family::{Family, MetricKind};
use base::visible_text::is_hidden;
use std::fmt::Write;

/// Text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsFormat {
    /// Text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.
    OpenMetrics,
}

/// Media type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text";
/// Media type of the format of Prometheus.
const PROMETHEUS: &str = "text/plain";

impl MetricsFormat {
    /// Returns the value of Content-Type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }

    /// Chooses the format by the value of Accept (RFC 9110 §12.5.1). OpenMetrics is sent only to a client that
    /// names the format and prefers it, and only in version 1.0.
    pub(crate) fn by_accept(accept: Option<&[u8]>) -> MetricsFormat {
        let accept = String::from_utf8_lossy(accept.unwrap_or_default()).to_ascii_lowercase();
        let (mut open, mut plain, mut is_plain_exact) = (0, 0, false);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let mut quality = 1_000;
            let mut has_version = true;
            for parameter in parts {
                match parameter.split_once('=') {
                    Some(("q", value)) => quality = thousandths(value),
                    Some(("version", value)) => has_version = value.trim_matches('"') == "1.0.0",
                    _ => {}
                }
            }
            match name {
                OPENMETRICS if has_version => open = quality.max(open),
                PROMETHEUS => {
                    plain = if is_plain_exact {
                        quality.max(plain)
                    } else {
                        quality
                    };
                    is_plain_exact = true;
                }
                "*/*" | "text/*" if !is_plain_exact => plain = quality.max(plain),
                _ => {}
            }
        }
        if open > 0 && open >= plain {
            MetricsFormat::OpenMetrics
        } else {
            MetricsFormat::Prometheus
        }
    }
}

/// Returns a quality value (RFC 9110 §12.4.2) in thousandths; 0 for an invalid value.
fn thousandths(value: &str) -> u32 {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = fraction.len();
    let fraction = match digits {
        0 => Some(0),
        1..=3 => fraction.parse::<u32>().ok(),
        _ => None,
    };
    let scale = 10_u32.pow(3 - digits.min(3) as u32);
    match (whole, fraction) {
        ("1", Some(0)) => 1_000,
        ("0", Some(fraction)) => fraction * scale,
        _ => 0,
    }
}

/// Decimal number: an integer, divided by a power of ten.
#[derive(Clone, Copy)]
pub(super) struct Decimal {
    pub(super) number: i64,
    /// Number of digits behind the point.
    pub(super) digits: u32,
}

impl From<u64> for Decimal {
    fn from(number: u64) -> Decimal {
        Decimal {
            number: i64::try_from(number).unwrap_or(i64::MAX),
            digits: 0,
        }
    }
}

impl From<usize> for Decimal {
    fn from(number: usize) -> Decimal {
        Decimal::from(number as u64)
    }
}

impl From<bool> for Decimal {
    fn from(is: bool) -> Decimal {
        Decimal::from(u64::from(is))
    }
}

impl Decimal {
    /// Returns microseconds as seconds.
    pub(super) fn of_micros(micros: u64) -> Decimal {
        Decimal {
            digits: 6,
            ..Decimal::from(micros)
        }
    }

    fn push(self, out: &mut String) {
        let scale = 10_u64.pow(self.digits);
        let size = self.number.unsigned_abs();
        if self.number < 0 {
            out.push('-');
        }
        let _ = write!(out, "{}", size / scale);
        if self.digits > 0 {
            let digits = self.digits as usize;
            let fraction = format!("{:0digits$}", size % scale);
            let fraction = fraction.trim_end_matches('0');
            out.push('.');
            out.push_str(if fraction.is_empty() { "0" } else { fraction });
        }
    }
}

/// Metrics in one of the formats, in the making.
pub(super) struct Exposition {
    format: MetricsFormat,
    out: String,
    /// Name of the family, and the end of the name of its samples.
    name: &'static str,
    suffix: &'static str,
}

/// A label: name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

impl Exposition {
    /// Returns an empty exposition.
    pub(super) fn new(format: MetricsFormat) -> Exposition {
        Exposition {
            format,
            out: String::new(),
            name: "",
            suffix: "",
        }
    }

    /// Begins a family with its TYPE, HELP and UNIT.
    pub(super) fn begin(&mut self, family: &'static Family) {
        (self.name, self.suffix) = (family.name, family.kind.suffix());
        let is_open = self.format == MetricsFormat::OpenMetrics;
        let (name, kind) = match (is_open, family.kind) {
            (true, kind) => (family.name.to_owned(), kind.name()),
            (false, MetricKind::Info) => (family.sample_name(), MetricKind::Gauge.name()),
            (false, kind) => (family.sample_name(), kind.name()),
        };
        let _ = write!(self.out, "# HELP {name} {}", family.help);
        let _ = write!(self.out, "\n# TYPE {name} {kind}\n");
        if is_open && !family.unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {}", family.unit);
        }
    }

    /// Adds a sample of the family.
    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Into<Decimal>) {
        self.write(self.suffix, labels, None, value.into());
    }

    /// Adds a histogram with the cumulative `counts` of the durations up to each of `ends`, in microseconds.
    pub(super) fn histogram(
        &mut self,
        labels: &[Label<'_>],
        ends: &[u64],
        counts: &dyn Fn(usize) -> u64,
        (sum_micros, count): (u64, u64),
    ) {
        for (index, end) in ends.iter().enumerate() {
            let mut text = String::new();
            Decimal::of_micros(*end).push(&mut text);
            self.write("_bucket", labels, Some(&text), counts(index).into());
        }
        self.write("_bucket", labels, Some("+Inf"), count.into());
        self.write("_sum", labels, None, Decimal::of_micros(sum_micros));
        self.write("_count", labels, None, count.into());
    }

    fn write(&mut self, suffix: &str, labels: &[Label<'_>], end: Option<&str>, value: Decimal) {
        let out = &mut self.out;
        out.push_str(self.name);
        out.push_str(suffix);
        let end = end.map(|end| ("le", end));
        let mut separator = '{';
        for (name, value) in labels.iter().copied().chain(end) {
            out.push(separator);
            separator = ',';
            out.push_str(name);
            out.push_str("=\"");
            push_escaped(out, value);
            out.push('"');
        }
        out.push_str(if separator == ',' { "} " } else { " " });
        value.push(out);
        out.push('\n');
    }

    /// Returns the text.
    pub(super) fn finish(mut self) -> String {
        if self.format == MetricsFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

/// Appends the value of a label. Both formats escape the backslash, the quotation mark and the line feed, and have no
/// escape for other hidden characters, which therefore become the text `\\u` with their number.
fn push_escaped(out: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            hidden if is_hidden(hidden) => {
                let _ = write!(out, "\\\\u{:04x}", u32::from(hidden));
            }
            letter => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_the_accept_field() {
        use MetricsFormat::{OpenMetrics, Prometheus};
        let of_prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/html", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\"",
                OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=0.5, text/plain", Prometheus),
            (
                "application/openmetrics-text;q=0.5, text/plain;q=0.25",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;q=0.5, */*;q=0.501",
                Prometheus,
            ),
            (
                "application/openmetrics-text;q=0.5, text/plain;q=0.1, */*",
                OpenMetrics,
            ),
            ("application/openmetrics-text;q=2", Prometheus),
            (of_prometheus, OpenMetrics),
        ] {
            assert_eq!(
                MetricsFormat::by_accept(Some(accept.as_bytes())),
                format,
                "{accept}"
            );
        }
        assert_eq!(MetricsFormat::by_accept(None), Prometheus);
        assert_eq!(MetricsFormat::by_accept(Some(b"\xff")), Prometheus);
    }

    #[test]
    fn numbers_have_a_point_and_no_exponent() {
        let text = |number, digits| {
            let mut out = String::new();
            Decimal { number, digits }.push(&mut out);
            out
        };
        assert_eq!(text(0, 0), "0");
        assert_eq!(text(500, 6), "0.0005");
        assert_eq!(text(10_000_000, 6), "10.0");
        assert_eq!(text(1_000_001, 6), "1.000001");
        assert_eq!(text(-48_312, 3), "-48.312");
        assert_eq!(text(i64::MAX, 0), "9223372036854775807");
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let mut out = String::new();
        push_escaped(&mut out, "a\\b\"c\nd{}é\u{9b}\u{202e}");
        assert_eq!(out, "a\\\\b\\\"c\\nd{}é\\\\u009b\\\\u202e");
    }
}
