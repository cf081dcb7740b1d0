//! Texts of weights and durations, for the operator and for anthill.toml. Pure.

use std::time::Duration;

/// Returns a weight in hundredths as a decimal number.
pub(crate) fn weight_text(hundredths: u32) -> String {
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => {
            let text = format!("{whole}.{rest:02}");
            text.trim_end_matches('0').to_owned()
        }
    }
}

/// Returns a duration in seconds, or in milliseconds unless whole seconds.
pub(crate) fn duration_text(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}
