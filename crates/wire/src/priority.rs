//! Extensible priorities (RFC 9218).

use super::fields::items;

/// Urgency of a response, and whether its parts are useful before the whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Priority {
    /// Urgency from 0, the highest, to 7.
    pub urgency: u8,
    /// The response may be interleaved with responses of equal urgency.
    pub incremental: bool,
}

impl Default for Priority {
    /// Returns the priority of a request without a priority signal. RFC 9218 would send such responses one
    /// after the other, which suits clients with knowledge of priorities; for any other client,
    /// interleaving is fair.
    fn default() -> Priority {
        Priority {
            urgency: 3,
            incremental: true,
        }
    }
}

impl Priority {
    /// Parses the value of a Priority field or of PRIORITY_UPDATE: a dictionary of structured fields (RFC
    /// 8941 §3.2). Unknown keys and malformed members are ignored; only `u` and `i` count.
    pub fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority {
            urgency: 3,
            incremental: false,
        };
        for item in items(value) {
            let end = item.iter().position(|byte| *byte == b';');
            match item[..end.unwrap_or(item.len())].trim_ascii_end() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_values_are_parsed() {
        #[rustfmt::skip] // Keeps the columns of the table.
        let table: &[(&str, u8, bool)] = &[
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i", 3, true),
            ("i=?1,u=5", 5, true),
            ("i, i=?0", 3, false),
            ("u=1;x=\"a\", i;y", 1, true),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=10", 3, false),
            ("U=1, I", 3, false),
            ("a=(b c), u=2", 2, false),
        ];
        for (value, urgency, incremental) in table {
            let expected = Priority {
                urgency: *urgency,
                incremental: *incremental,
            };
            assert_eq!(Priority::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
