//! Strict parser of the Authorization field for basic authentication (RFC 7617).

/// User name and password in a request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: Vec<u8>,
}

/// Decodes the field value into user and password; `None` for another scheme or a malformed value.
pub(super) fn decode(value: &[u8]) -> Option<Credentials> {
    let (scheme, rest) = value.split_at_checked(5)?;
    if !scheme.eq_ignore_ascii_case(b"basic") || rest.first() != Some(&b' ') {
        return None;
    }
    let pair = decode_base64(rest.trim_ascii())?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    let (user, password) = (&pair[..colon], &pair[colon + 1..]);
    // RFC 7617 §2 forbids control characters in both parts.
    if pair.iter().any(u8::is_ascii_control) {
        return None;
    }
    Some(Credentials {
        user: String::from_utf8(user.to_vec()).ok()?,
        password: password.to_vec(),
    })
}

/// Returns the user name in an Authorization field; `None` for another scheme or a malformed value.
pub fn user_name(value: &[u8]) -> Option<String> {
    decode(value).map(|credentials| credentials.user)
}

/// Decodes padded base64 (RFC 4648 §4) without any other characters and with unused bits zero, so that a
/// value has exactly one text.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let digits = &text[..text.len() - padding];
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0;
        for &byte in group {
            bits = bits << 6 | u32::from(digit(byte)?);
        }
        // A group of 2 or 3 digits holds 12 or 18 bits, of which 8 or 16 bits are data.
        let missing = 4 - group.len();
        bits <<= 6 * missing;
        let bytes = bits.to_be_bytes();
        let (kept, unused) = bytes[1..].split_at(3 - missing);
        if unused.iter().any(|&byte| byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_rfc_4648_and_nothing_else() {
        let good: [(&str, &[u8]); 8] = [
            ("", b""),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYg==", b"foob"),
            ("Zm9vYmE=", b"fooba"),
            ("Zm9vYmFy", b"foobar"),
            ("+/+/", b"\xfb\xff\xbf"),
        ];
        for (text, bytes) in good {
            assert_eq!(
                decode_base64(text.as_bytes()).as_deref(),
                Some(bytes),
                "{text}"
            );
        }
        for bad in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z===", "====", "Zm 9v", "Zm9v\n",
            "_-_-", "=Zg=",
        ] {
            assert_eq!(decode_base64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn credentials_of_rfc_7617() {
        let decoded = |value: &str| {
            decode(value.as_bytes())
                .map(|found| (found.user, String::from_utf8(found.password).unwrap()))
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        let aladdin = pair("Aladdin", "open sesame");
        assert_eq!(decoded("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(decoded("bASIC   QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(decoded("Basic dGVzdDoxMjPCow=="), pair("test", "123£"));
        assert_eq!(decoded("Basic YTpiOmM="), pair("a", "b:c"));
        assert_eq!(decoded("Basic Og=="), pair("", ""));
        for bad in [
            "",
            "Basic",
            "Basic ",
            "BasicQWxh",
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "Basic YWJj",
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ",
            "Basic YQA6Yg==",
            "Basic YTpiCg==",
            "Basic /zpi",
            "Basic YTpi,realm=x",
        ] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
