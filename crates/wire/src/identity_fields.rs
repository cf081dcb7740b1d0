//! Request fields that state the user of a request to an application, as the server for forward authentication names them.
//! An application believes these fields, so a field sent by the client itself must not reach an application.

use crate::fields::Fields;

/// Returns true if `name` is one of `names`. Case does not matter, and `_` counts as `-`: CGI, FastCGI and WSGI make one
/// variable of both.
pub fn is_identity(name: &[u8], names: &[Box<str>]) -> bool {
    let folded = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    let is_same = |known: &str| {
        let mut pairs = known.bytes().zip(name);
        known.len() == name.len() && pairs.all(|(known, byte)| folded(known) == folded(*byte))
    };
    names.iter().any(|known| is_same(known))
}

/// Returns the field lines without the fields `names`.
pub fn without_identity(lines: &[u8], names: &[Box<str>]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(lines.len());
    for (name, value) in Fields(lines) {
        if !is_identity(name, names) {
            for part in [name, b": ", value, b"\r\n"] {
                kept.extend_from_slice(part);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_field_is_removed() {
        let names = ["Remote-User".into(), "X_Groups".into()];
        let lines =
            b"Host: a\r\nREMOTE-USER: b\r\nremote_user: c\r\nx-groups: d\r\nRemote-Users: e\r\n";
        let kept = without_identity(lines, &names);
        assert_eq!(kept, b"Host: a\r\nRemote-Users: e\r\n");
        assert_eq!(without_identity(lines, &[]), lines);
    }
}
