//! Minimal DER (X.690 §10) reader and writer: reads validity, public key, issuer, subject and serial number
//! of a certificate, and writes the server's own certificates. webpki does all other work on certificates.
//!
//! The input is the operator's own file. Nevertheless no input makes the functions panic.

/// Fields of a certificate (RFC 5280 §4.1), borrowed from its DER.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DerCertificate<'a> {
    /// First second of validity, Unix time; 0 for a time before 1970.
    pub not_before: u64,
    /// Last second of validity, Unix time.
    pub not_after: u64,
    /// Issuer's name, the whole element.
    pub issuer: &'a [u8],
    /// Subject's name, the whole element.
    pub subject: &'a [u8],
    /// SubjectPublicKeyInfo, the whole element.
    pub public_key: &'a [u8],
    /// Serial number, the content of its INTEGER.
    pub serial: &'a [u8],
    /// Key identifier of the issuer (RFC 5280 §4.2.1.1), if present.
    pub authority_key: Option<&'a [u8]>,
}

impl<'a> DerCertificate<'a> {
    /// Parses a certificate. Returns None if `der` isn't a certificate.
    pub(super) fn parse(der: &'a [u8]) -> Option<DerCertificate<'a>> {
        let certificate = DerReader(der).expect(SEQUENCE)?;
        let mut body = DerReader(DerReader(certificate.content).expect(SEQUENCE)?.content);
        let first = body.next()?;
        let serial = match first.tag {
            VERSION => body.expect(INTEGER)?.content,
            INTEGER => first.content,
            _ => return None,
        };
        body.expect(SEQUENCE)?; // signature algorithm
        let issuer = body.expect(SEQUENCE)?.whole;
        let mut validity = DerReader(body.expect(SEQUENCE)?.content);
        let not_before = time(&validity.next()?)?;
        let not_after = time(&validity.next()?)?;
        let subject = body.expect(SEQUENCE)?.whole;
        let public_key = body.expect(SEQUENCE)?.whole;
        Some(DerCertificate {
            not_before,
            not_after,
            issuer,
            subject,
            public_key,
            serial,
            authority_key: authority_key(body),
        })
    }
}

/// Returns the authority's key identifier from the fields after the public key.
fn authority_key<'a>(mut rest: DerReader<'a>) -> Option<&'a [u8]> {
    let extensions = loop {
        let element = rest.next()?;
        if element.tag == EXTENSIONS {
            break DerReader(element.content).expect(SEQUENCE)?;
        }
    };
    let mut extensions = DerReader(extensions.content);
    while let Some(extension) = extensions.next() {
        let mut extension = DerReader(extension.content);
        if extension.expect(OBJECT_IDENTIFIER)?.content != AUTHORITY_KEY_IDENTIFIER {
            continue;
        }
        let value = extension.next().filter(|it| it.tag != BOOLEAN);
        let value = value.or_else(|| extension.next())?;
        let identifier = DerReader(value.content).expect(SEQUENCE)?;
        return Some(
            DerReader(identifier.content)
                .expect(KEY_IDENTIFIER)?
                .content,
        );
    }
    None
}

/// Element with its tag, its content, and its whole encoding.
#[derive(Clone, Copy)]
pub(super) struct DerElement<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    pub whole: &'a [u8],
}

/// Reader of consecutive elements. The unread input is `.0`.
pub(super) struct DerReader<'a>(pub(super) &'a [u8]);

impl<'a> DerReader<'a> {
    /// Returns the next element, or None at the end or for a length that isn't DER (X.690 §10.1).
    pub(super) fn next(&mut self) -> Option<DerElement<'a>> {
        let input = self.0;
        let (&tag, rest) = input.split_first()?;
        let (&short, rest) = rest.split_first()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                let length = digits
                    .iter()
                    .fold(0u32, |length, digit| length << 8 | u32::from(*digit));
                (usize::try_from(length).ok()?, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(DerElement {
            tag,
            content,
            whole: &input[..input.len() - rest.len()],
        })
    }

    /// Returns the next element if the element has the tag `tag`.
    pub(super) fn expect(&mut self, tag: u8) -> Option<DerElement<'a>> {
        self.next().filter(|element| element.tag == tag)
    }
}

/// Returns an element with the concatenated parts as content.
pub(super) fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let length: usize = content.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let digits = &bytes[zeros..];
        out.push(0x80 | digits.len() as u8);
        out.extend_from_slice(digits);
    }
    out.extend(content.iter().copied().flatten());
    out
}

/// Returns a UTCTime or GeneralizedTime as Unix seconds. Only the forms allowed by RFC 5280 §4.1.2.5 are
/// accepted.
fn time(element: &DerElement<'_>) -> Option<u64> {
    let (year_digits, century) = match element.tag {
        UTC_TIME => (2, None),
        GENERALIZED_TIME => (4, Some(0)),
        _ => return None,
    };
    let digits = element.content.strip_suffix(b"Z")?;
    if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0i64, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, rest) = digits.split_at(year_digits);
    let year = number(year);
    let year = year + century.unwrap_or(if year >= 50 { 1900 } else { 2000 });
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March, so that the
/// leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[0] EXPLICIT Version`, absent in an X.509 v1 certificate.
pub(super) const VERSION: u8 = 0xa0;
/// `[3] EXPLICIT Extensions`.
pub(super) const EXTENSIONS: u8 = 0xa3;
/// `[0] IMPLICIT KeyIdentifier` of an authority key identifier.
const KEY_IDENTIFIER: u8 = 0x80;
/// Object identifier 2.5.29.35.
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 35];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(tag: u8, text: &str) -> Option<u64> {
        time(&DerElement {
            tag,
            content: text.as_bytes(),
            whole: &[],
        })
    }

    #[test]
    fn both_kinds_of_time_are_read() {
        assert_eq!(at(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(at(UTC_TIME, "500101000000Z"), Some(0));
        assert_eq!(at(UTC_TIME, "240229235959Z"), Some(1_709_251_199));
        assert_eq!(at(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(
            at(GENERALIZED_TIME, "99991231235959Z"),
            Some(253_402_300_799)
        );
        for bad in [
            "",
            "Z",
            "2402292359Z",
            "240229235959",
            "241329235959Z",
            "24o229235959Z",
        ] {
            assert_eq!(at(UTC_TIME, bad), None, "{bad}");
        }
    }

    #[test]
    fn written_elements_are_read_back() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let (one, other) = content.split_at(length / 3);
            let written = element(OCTET_STRING, &[one, other]);
            let mut reader = DerReader(&written);
            let read = reader.expect(OCTET_STRING).unwrap();
            assert_eq!((read.content, reader.0), (&content[..], &[][..]));
        }
        assert_eq!(element(SEQUENCE, &[&[0; 128]])[..3], [0x30, 0x81, 0x80]);
        assert_eq!(element(SEQUENCE, &[&[0; 256]])[..4], [0x30, 0x82, 1, 0]);
    }

    #[test]
    fn a_certificate_of_rcgen_is_parsed() {
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2061, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let read = DerCertificate::parse(made.der()).unwrap();
        assert_eq!(read.not_before, 1_709_164_800);
        assert_eq!(read.not_after, 2_871_763_200);
        assert_eq!(read.issuer, read.subject);
        for end in 0..made.der().len() {
            assert_eq!(DerCertificate::parse(&made.der()[..end]), None);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = DerCertificate::parse(&bytes);
        }
    }
}
