//! Via (RFC 9110 §7.6.3): the proxies that a message passed, which reveals a request that comes back to its
//! sender.

use crate::byte_search;
use crate::fields::Fields;
use crate::request_head::Version;

const VIA: &str = "via";

/// Returns true if a Via line names a recipient with this pseudonym, in any case and with or without a port.
///
/// Every comma separates members, even within comments and quotation marks. A client can therefore not hide
/// the members of proxies behind an open quotation mark or parenthesis.
pub fn has_passed(fields: Fields<'_>, pseudonym: &str) -> bool {
    let mut members = fields
        .all(VIA)
        .flat_map(|line| line.split(|byte| *byte == b','));
    members.any(|member| is_received_by(member, pseudonym.as_bytes()))
}

/// Returns true if the second word of a member is the pseudonym.
fn is_received_by(member: &[u8], pseudonym: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut words = member.split(is_space).filter(|word| !word.is_empty());
    let Some(received_by) = words.nth(1) else {
        return false;
    };
    let Some((name, rest)) = received_by.split_at_checked(pseudonym.len()) else {
        return false;
    };
    name.eq_ignore_ascii_case(pseudonym) && matches!(rest, [] | [b':', ..])
}

/// Appends a Via line with the members of `earlier` and with this server, which received the message in
/// `version`. `pseudonym` is a token.
pub fn push_via(earlier: Fields<'_>, version: Version, pseudonym: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Via: ");
    for line in earlier.all(VIA).filter(|line| !line.is_empty()) {
        out.extend_from_slice(line);
        out.extend_from_slice(b", ");
    }
    debug_assert_eq!(
        byte_search::token_end(pseudonym.as_bytes(), 0),
        pseudonym.len()
    );
    for part in [
        received_protocol(version),
        b" ",
        pseudonym.as_bytes(),
        b"\r\n",
    ] {
        out.extend_from_slice(part);
    }
}

/// Returns the version of HTTP, without the name of the protocol.
fn received_protocol(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"1.0",
        Version::Http11 => b"1.1",
        Version::Http2 => b"2.0",
        Version::Http3 => b"3.0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_found() {
        let table = [
            ("Via: 1.1 anthill-7\r\n", true),
            ("via:1.1 ANTHILL-7\r\n", true),
            ("Via: HTTP/1.1 anthill-7:8080\r\n", true),
            ("Via: 1.0 fred,1.1\t anthill-7 (comment)\r\n", true),
            (
                "Via: 1.0 fred\r\nVia: 1.1 p\r\nVia: 1.1 anthill-7, 1.1 x\r\n",
                true,
            ),
            ("Via: 1.0 fred (\", 1.1 anthill-7\r\n", true),
            ("Via: 1.0 fred (open, 1.1 anthill-7\r\n", true),
            ("", false),
            ("Via:\r\n", false),
            ("Via: anthill-7\r\n", false),
            ("Via: 1.1 anthill-77\r\n", false),
            ("Via: 1.1 anthill-\r\n", false),
            ("Via: 1.1 x-anthill-7\r\n", false),
            ("Via: 1.1 fred anthill-7\r\n", false),
            ("X-Via: 1.1 anthill-7\r\n", false),
        ];
        for (fields, is_loop) in table {
            assert_eq!(
                has_passed(Fields(fields.as_bytes()), "anthill-7"),
                is_loop,
                "{fields:?}"
            );
        }
    }

    #[test]
    fn members_are_appended() {
        let table = [
            ("", Version::Http11, "Via: 1.1 a\r\n"),
            ("Via:\r\n", Version::Http10, "Via: 1.0 a\r\n"),
            (
                "Via: 1.0 fred\r\n",
                Version::Http2,
                "Via: 1.0 fred, 2.0 a\r\n",
            ),
            (
                "Via: 1.0 f\r\nX: y\r\nvia: 2 g (\"\r\n",
                Version::Http3,
                "Via: 1.0 f, 2 g (\", 3.0 a\r\n",
            ),
        ];
        for (earlier, version, expected) in table {
            let mut out = Vec::new();
            push_via(Fields(earlier.as_bytes()), version, "a", &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
            assert!(has_passed(Fields(&out), "A"));
        }
    }
}
