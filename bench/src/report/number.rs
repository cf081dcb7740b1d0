//! Formatting of numbers: at least three significant digits, thousands separators, and a fitting unit.

/// Formats a number without unit: `10,429`, `351.5`, `17.6`, `0.053`.
pub(crate) fn plain(value: f64) -> String {
    let decimals = match value.abs() {
        v if !v.is_finite() => return "–".to_owned(),
        v if v >= 999.5 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.0995 || v == 0.0 => 3,
        _ => 4,
    };
    if value == 0.0 {
        "0".to_owned()
    } else {
        grouped(value, decimals)
    }
}

/// Formats a whole number: `901,065,600`.
pub(crate) fn whole(value: f64) -> String {
    grouped(value, 0)
}

/// Formats a number briefly for small spaces: `45.7k`, `1.2M`, `351`.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 999_500.0 => format!("{}M", three_digits(value / 1e6)),
        v if v >= 999.5 => format!("{}k", three_digits(value / 1e3)),
        _ => three_digits(value),
    }
}

/// Formats a time given in microseconds: `16.3 µs`, `5.67 ms`, `1.05 s`.
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds.abs() {
        v if !v.is_finite() => "–".to_owned(),
        v if v >= 999_500.0 => format!("{} s", three_digits(microseconds / 1e6)),
        v if v >= 999.5 => format!("{} ms", three_digits(microseconds / 1e3)),
        _ => format!("{} µs", three_digits(microseconds)),
    }
}

/// Formats a size in decimal units: `228 B`, `61.7 kB`, `255 MB`.
pub(crate) fn bytes(value: f64) -> String {
    match value.abs() {
        v if v >= 999.5e6 => format!("{} GB", three_digits(value / 1e9)),
        v if v >= 999.5e3 => format!("{} MB", three_digits(value / 1e6)),
        v if v >= 999.5 => format!("{} kB", three_digits(value / 1e3)),
        _ => format!("{} B", whole(value)),
    }
}

/// Formats the memory of a machine in binary units, `32 GiB`, or in decimal units below 0.95 GiB: `512 MB`.
pub(crate) fn memory(value: u64) -> String {
    let gibibytes = value as f64 / (1u64 << 30) as f64;
    if gibibytes >= 0.95 {
        format!("{} GiB", three_digits(gibibytes))
    } else {
        bytes(value as f64)
    }
}

/// Formats the size of a file in binary units if exact, `16 KB` for 16,384 bytes, otherwise in bytes:
/// `5,100 bytes`.
pub(crate) fn file_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KB", b >> 10),
        b => format!("{} bytes", whole(b as f64)),
    }
}

/// Formats a difference with its sign: `+5,615`, `−53.5`.
pub(crate) fn signed(value: f64, format: impl Fn(f64) -> String) -> String {
    let size = format(value.abs());
    match value {
        v if v > 0.0 => format!("+{size}"),
        v if v < 0.0 => format!("−{size}"),
        _ => size,
    }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => grouped(value, 0),
        v if v >= 9.995 => grouped(value, 1),
        0.0 => "0".to_owned(),
        _ => grouped(value, 2),
    }
}

fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.*}", decimals, value.abs());
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), ""), |parts| parts);
    let mut out = String::new();
    if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
        out.push('−');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_in_the_source_documents() {
        assert_eq!(plain(10_429.40), "10,429");
        assert_eq!(plain(351.49), "351.5");
        assert_eq!(plain(17.63), "17.6");
        assert_eq!(plain(4.78), "4.78");
        assert_eq!(plain(0.5), "0.500");
        assert_eq!(plain(0.0), "0");
        assert_eq!(plain(f64::NAN), "–");
        assert_eq!(whole(901_065_600.0), "901,065,600");
        assert_eq!(short(45_700.0), "45.7k");
        assert_eq!(short(1_280.29), "1.28k");
        assert_eq!(short(28.17), "28.2");
    }

    #[test]
    fn units_fit_the_size() {
        assert_eq!(time(16.3), "16.3 µs");
        assert_eq!(time(5_670.0), "5.67 ms");
        assert_eq!(time(999_700.0), "1.00 s");
        assert_eq!(time(1_050_000.0), "1.05 s");
        assert_eq!(bytes(228.0), "228 B");
        assert_eq!(bytes(61_700.0), "61.7 kB");
        assert_eq!(bytes(255e6), "255 MB");
        assert_eq!(file_size(16_384), "16 KB");
        assert_eq!(file_size(5_100), "5,100 bytes");
    }

    #[test]
    fn a_difference_has_a_sign() {
        assert_eq!(signed(5_614.78, plain), "+5,615");
        assert_eq!(signed(-53_450.0, time), "−53.5 ms");
        assert_eq!(signed(0.0, plain), "0");
    }
}
