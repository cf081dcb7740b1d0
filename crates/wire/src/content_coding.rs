//! Content codings and their weights in Accept-Encoding (RFC 9110 §8.4.1, §12.5.3).

use crate::byte_search;
use crate::fields::FieldValues;

/// Content coding of a variant.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ContentCoding {
    /// No coding.
    Identity,
    /// gzip.
    Gzip,
    /// Brotli.
    Br,
    /// Zstandard.
    Zstd,
}

impl ContentCoding {
    /// All codings, in the order of `coding as usize`.
    pub const ALL: [ContentCoding; 4] = [
        ContentCoding::Identity,
        ContentCoding::Gzip,
        ContentCoding::Br,
        ContentCoding::Zstd,
    ];
    /// Order of preference among codings of equal weight: the smallest typical result first.
    const BY_PREFERENCE: [ContentCoding; 4] = [
        ContentCoding::Br,
        ContentCoding::Zstd,
        ContentCoding::Gzip,
        ContentCoding::Identity,
    ];

    /// Returns the name of the coding in Content-Encoding.
    pub fn token(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Br => "br",
            ContentCoding::Zstd => "zstd",
        }
    }

    fn from_token(token: &[u8]) -> Option<ContentCoding> {
        // `is_name` requires token bytes: other bytes would confuse its case folding.
        Some(match token.len() {
            2 if byte_search::is_name(token, b"br") => ContentCoding::Br,
            4 if byte_search::is_name(token, b"gzip") => ContentCoding::Gzip,
            4 if byte_search::is_name(token, b"zstd") => ContentCoding::Zstd,
            // RFC 9110 §8.4.1.3: x-gzip means gzip.
            6 if byte_search::is_name(token, b"x-gzip") => ContentCoding::Gzip,
            8 if byte_search::is_name(token, b"identity") => ContentCoding::Identity,
            _ => return None,
        })
    }
}

/// Weights of all codings for a client.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AcceptedCodings {
    /// Weights in thousandths, by `ContentCoding as usize`; 0 = not acceptable.
    q: [u16; 4],
}

impl AcceptedCodings {
    /// Weight of identity if Accept-Encoding does not mention identity: acceptable (RFC 9110 §12.5.3), and
    /// less than any coding requested by name.
    const IDENTITY_UNSPOKEN: u16 = 1;

    /// Parses Accept-Encoding. An absent field means identity only, since a client that wants a coding
    /// sends the field. A malformed member is ignored; the last of two equal members counts.
    pub fn from_values(values: &FieldValues<'_>) -> AcceptedCodings {
        let mut named: [Option<u16>; 4] = [None; 4];
        let mut unnamed = None;
        for line in values.lines() {
            for member in line.split(|&byte| byte == b',') {
                match weighed(member) {
                    Some((b"*", q)) => unnamed = Some(q),
                    Some((token, q)) => {
                        if let Some(coding) = ContentCoding::from_token(token) {
                            named[coding as usize] = Some(q);
                        }
                    }
                    None => {}
                }
            }
        }
        let mut q = named.map(|q| q.or(unnamed).unwrap_or(0));
        let identity = ContentCoding::Identity as usize;
        q[identity] = named[identity]
            .or(unnamed)
            .unwrap_or(AcceptedCodings::IDENTITY_UNSPOKEN);
        AcceptedCodings { q }
    }

    /// Returns the weight of a coding in thousandths; 0 = not acceptable.
    pub fn q(&self, coding: ContentCoding) -> u16 {
        self.q[coding as usize]
    }

    /// Chooses the available coding with the largest weight (`available` is indexed by `ContentCoding as
    /// usize`), among equals in the order br, zstd, gzip, identity. Without an acceptable coding the choice
    /// is identity: a plain page serves a client better than a 406.
    pub fn choose(&self, available: &[bool; 4]) -> ContentCoding {
        let mut best = ContentCoding::Identity;
        let mut best_q = 0;
        for coding in ContentCoding::BY_PREFERENCE {
            if available[coding as usize] && self.q(coding) > best_q {
                best = coding;
                best_q = self.q(coding);
            }
        }
        best
    }
}

/// Parses a member into coding and weight in thousandths: `codings [ OWS ";" OWS "q=" qvalue ]`.
fn weighed(member: &[u8]) -> Option<(&[u8], u16)> {
    let member = byte_search::trim(member);
    let token_end = byte_search::token_end(member, 0);
    let (token, rest) = member.split_at(token_end);
    if token.is_empty() {
        return None;
    }
    if rest.is_empty() {
        return Some((token, 1000));
    }
    let weight = byte_search::trim(byte_search::trim(rest).strip_prefix(b";")?);
    let [b'q' | b'Q', b'=', value @ ..] = weight else {
        return None;
    };
    Some((token, thousandths(value)?))
}

/// Parses a qvalue: 0 to 1 with at most three decimals (RFC 9110 §12.4.2).
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut q = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, unit) in decimals.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            return None;
        }
        q += u16::from(digit - b'0') * unit;
    }
    (q <= 1000).then_some(q)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;

    fn accepted(value: &str) -> AcceptedCodings {
        AcceptedCodings::from_values(&FieldValues::One(value.as_bytes()))
    }

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn weights_are_parsed() {
        // identity, gzip, br, zstd
        let table: &[(&str, [u16; 4])] = &[
            ("", [1, 0, 0, 0]),
            ("gzip", [1, 1000, 0, 0]),
            ("GZIP, Br", [1, 1000, 1000, 0]),
            ("x-gzip", [1, 1000, 0, 0]),
            ("gzip, deflate, br, zstd", [1, 1000, 1000, 1000]),
            ("gzip;q=0.5, br;q=0.25", [1, 500, 250, 0]),
            ("gzip ; q=0.5", [1, 500, 0, 0]),
            ("gzip;\tQ=0.123", [1, 123, 0, 0]),
            ("gzip;q=1.000", [1, 1000, 0, 0]),
            ("gzip;q=0.", [1, 0, 0, 0]),
            ("gzip;q=1.", [1, 1000, 0, 0]),
            ("*", [1000, 1000, 1000, 1000]),
            ("*;q=0", [0, 0, 0, 0]),
            ("*;q=0, identity", [1000, 0, 0, 0]),
            ("gzip, *;q=0", [0, 1000, 0, 0]),
            ("br;q=0, *;q=0.3", [300, 300, 0, 300]),
            ("identity;q=0", [0, 0, 0, 0]),
            ("identity;q=0.5, gzip;q=0.4", [500, 400, 0, 0]),
            ("gzip;q=0, gzip", [1, 1000, 0, 0]),
            (", ,gzip,,", [1, 1000, 0, 0]),
            // Malformed members are ignored.
            ("gzip;q=2, br", [1, 0, 1000, 0]),
            ("gzip;q=1.001", [1, 0, 0, 0]),
            ("gzip;q=0.1234", [1, 0, 0, 0]),
            ("gzip;q=.5", [1, 0, 0, 0]),
            ("gzip;q=-1", [1, 0, 0, 0]),
            ("gzip;q=", [1, 0, 0, 0]),
            ("gzip;q = 1", [1, 0, 0, 0]),
            ("gzip;level=9", [1, 0, 0, 0]),
            ("gzip;q=1;level=9", [1, 0, 0, 0]),
            ("gzip br", [1, 0, 0, 0]),
            ("\"gzip\"", [1, 0, 0, 0]),
            ("gzipx, xgzip, bro", [1, 0, 0, 0]),
        ];
        for (value, q) in table {
            assert_eq!(accepted(value).q, *q, "{value:?}");
        }
        assert_eq!(AcceptedCodings::from_values(&FieldValues::None).q, [1, 0, 0, 0]);
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = b"Accept-Encoding: gzip;q=0.5\r\naccept-encoding: br\r\n";
        let values = FieldValues::Many(Fields(lines), "accept-encoding");
        assert_eq!(AcceptedCodings::from_values(&values).q, [1, 500, 1000, 0]);
    }

    #[test]
    #[rustfmt::skip]
    fn the_coding_with_the_largest_weight_is_chosen() {
        use ContentCoding::{Br, Gzip, Identity, Zstd};
        let all = [true; 4];
        let table: &[(&str, [bool; 4], ContentCoding)] = &[
            ("", all, Identity),
            ("gzip, deflate, br, zstd", all, Br),
            ("gzip, deflate, zstd", all, Zstd),
            ("gzip, deflate", all, Gzip),
            ("gzip, deflate, br, zstd", [true, true, false, false], Gzip),
            ("gzip, deflate, br, zstd", [true, false, false, false], Identity),
            ("gzip, br;q=0.9", all, Gzip),
            ("gzip;q=0.001", all, Gzip),
            ("identity, gzip;q=0.9", all, Identity),
            ("identity, gzip", all, Gzip),
            ("*", all, Br),
            ("*;q=0", all, Identity),
            ("identity;q=0", [true, true, true, true], Identity),
            ("identity;q=0, gzip;q=0.1", all, Gzip),
            ("deflate", all, Identity),
        ];
        for (value, available, expected) in table {
            assert_eq!(accepted(value).choose(available), *expected, "{value:?}");
        }
    }
}
