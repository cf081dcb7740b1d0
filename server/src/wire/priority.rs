//! Extensible priorities (RFC 9218): what the peer wants first.

use super::fields::items;

/// How urgent a response is, and whether its first part is of use without the rest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Priority {
    /// 0 = the most urgent, to 7.
    pub urgency: u8,
    /// It may be sent in turns with others of its urgency.
    pub incremental: bool,
}

impl Default for Priority {
    /// Of who says nothing. The standard's default would be to send one response after the other,
    /// which is for a client that knows about priorities; for one that doesn't, turns are fair.
    fn default() -> Priority {
        Priority {
            urgency: 3,
            incremental: true,
        }
    }
}

impl Priority {
    /// Reads the value of a Priority field or of PRIORITY_UPDATE: a dictionary of structured fields
    /// (RFC 8941 §3.2), of which all but `u` and `i` is ignored, as is what is malformed.
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
    fn what_values_mean() {
        #[rustfmt::skip] // A table reads better in columns.
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
