//! Response of an HTTP/2 server (RFC 9113 §8.3.2), read as strictly as the response heads of HTTP/1.1.

use super::{FieldSection, SectionKind};
use crate::fields::Fields;
use crate::framing_fields::content_length;
use crate::h1::response_head::{ResponseHead, ResponseLength};
use crate::reject::Reject;
use crate::request_head::Method;
use crate::status::Status;

impl FieldSection {
    /// Builds the head of a response to a request with the method, or returns the first fault.
    ///
    /// # Errors
    /// `:status` is absent or malformed, another pseudo-header field is present, a field belongs to a connection
    /// of HTTP/1.1 or has an upper-case name, Content-Length is contradictory, or the head exceeds a bound.
    pub fn response_head(&self, request_method: Method) -> Result<ResponseHead<'_>, Reject> {
        if let Some(fault) = self.response_fault() {
            return Err(fault);
        }
        let status = self.status().ok_or(Reject::UPSTREAM_PSEUDO_FIELDS)?;
        let length = self.content_length()?;
        let body = match (request_method, status.0) {
            _ if self.ended => ResponseLength::None,
            (Method::Head, _) | (_, 100..200 | 204 | 304) => ResponseLength::None,
            _ => length.map_or(ResponseLength::Chunked, ResponseLength::Length),
        };
        let is_bodiless = request_method == Method::Head || status == Status(304);
        if self.ended && !is_bodiless && length.is_some_and(|length| length > 0) {
            return Err(Reject::UPSTREAM_LENGTHS);
        }
        Ok(ResponseHead {
            status,
            minor_version: 1,
            reason: b"",
            fields: self.lines(),
            body,
            content_length: length,
            keep_alive: true,
            has_connection_options: false,
            upgrade: None,
            has_trailer: self.lines().first("trailer").is_some(),
            has_date: self.lines().first("date").is_some(),
            has_server: self.lines().first("server").is_some(),
        })
    }

    /// Returns the first fault of a response's section, as the rule for members.
    pub fn response_fault(&self) -> Option<Reject> {
        let is_trailer = self.kind == SectionKind::ResponseTrailers;
        self.fault.map(|fault| match fault {
            Reject::HEAD_TOO_LARGE | Reject::FIELDS_TOO_MANY => Reject::UPSTREAM_HEAD_TOO_LARGE,
            _ if is_trailer => Reject::UPSTREAM_CHUNK_MALFORMED,
            Reject::PSEUDO_FIELDS => Reject::UPSTREAM_PSEUDO_FIELDS,
            _ => Reject::UPSTREAM_FIELD_MALFORMED,
        })
    }

    /// Returns the status, three digits from 100 to 599.
    fn status(&self) -> Option<Status> {
        match self.value(self.status)? {
            [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                let [a, b, c] = [a, b, c].map(|digit| u16::from(digit - b'0'));
                Some(Status(a * 100 + b * 10 + c))
            }
            _ => None,
        }
    }

    fn content_length(&self) -> Result<Option<u64>, Reject> {
        let mut values = self.lines().all("content-length");
        let Some(value) = values.next() else {
            return Ok(None);
        };
        match (content_length(value), values.next()) {
            (Some(length), None) => Ok(Some(length)),
            _ => Err(Reject::UPSTREAM_LENGTHS),
        }
    }

    fn lines(&self) -> Fields<'_> {
        let start = self.fields_start.unwrap_or(self.fields_end);
        Fields(&self.text[start..self.fields_end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HeadLimits;
    use crate::request_head::Version;

    /// Name and value of a field.
    type Line<'a> = (&'a str, &'a str);

    fn section(fields: &[Line<'_>], ended: bool, kind: SectionKind) -> FieldSection {
        let mut section = FieldSection::default();
        section.begin(Version::Http2, &HeadLimits::default(), ended, kind);
        for (name, value) in fields {
            let taken = section.field(name.as_bytes(), value.as_bytes());
            assert_eq!(taken, Ok(()));
        }
        section.end();
        section
    }

    fn refused(fields: &[Line<'_>], ended: bool) -> Option<Reject> {
        let section = section(fields, ended, SectionKind::Response);
        section.response_head(Method::Get).err()
    }

    #[test]
    fn a_section_becomes_a_response_head() {
        let fields = [
            (":status", "200"),
            ("content-type", "a/b"),
            ("content-length", "5"),
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("cookie", "e"),
        ];
        let whole = section(&fields, false, SectionKind::Response);
        let head = whole.response_head(Method::Get).expect("a head");
        assert_eq!(
            (head.status, head.body),
            (Status(200), ResponseLength::Length(5))
        );
        let lines = b"content-type: a/b\r\ncontent-length: 5\r\nset-cookie: a=b\r\n\
            set-cookie: c=d\r\ncookie: e\r\n";
        assert_eq!(head.fields.0, lines);
        let head = whole.response_head(Method::Head).expect("a head");
        assert_eq!(
            (head.body, head.content_length),
            (ResponseLength::None, Some(5))
        );
        let unknown = section(&[(":status", "599")], false, SectionKind::Response);
        let head = unknown.response_head(Method::Get).expect("a head");
        assert_eq!(
            (head.status, head.body),
            (Status(599), ResponseLength::Chunked)
        );
        let ended = section(
            &[(":status", "304"), ("content-length", "9")],
            true,
            SectionKind::Response,
        );
        let head = ended.response_head(Method::Get).expect("a head");
        assert_eq!(
            (head.body, head.content_length),
            (ResponseLength::None, Some(9))
        );
    }

    #[test]
    fn malformed_responses_are_refused_by_their_rules() {
        let ok = (":status", "200");
        let pseudo = Some(Reject::UPSTREAM_PSEUDO_FIELDS);
        let field = Some(Reject::UPSTREAM_FIELD_MALFORMED);
        let lengths = Some(Reject::UPSTREAM_LENGTHS);
        let table: &[(&[Line<'_>], Option<Reject>)] = &[
            (&[], pseudo),
            (&[("a", "b")], pseudo),
            (&[("a", "b"), ok], pseudo),
            (&[ok, ok], pseudo),
            (&[ok, (":path", "/")], pseudo),
            (&[(":status", "20")], pseudo),
            (&[(":status", "2000")], pseudo),
            (&[(":status", "600")], pseudo),
            (&[(":status", "099")], pseudo),
            (&[(":status", "+20")], pseudo),
            (&[ok, ("A", "b")], field),
            (&[ok, ("", "b")], field),
            (&[ok, ("a b", "b")], field),
            (&[ok, ("a", "b\r\nc: d")], field),
            (&[ok, ("a", " b")], field),
            (&[ok, ("connection", "close")], field),
            (&[ok, ("transfer-encoding", "chunked")], field),
            (&[ok, ("keep-alive", "5")], field),
            (&[ok, ("upgrade", "x")], field),
            (&[ok, ("content-length", "x")], lengths),
            (
                &[ok, ("content-length", "1"), ("content-length", "1")],
                lengths,
            ),
        ];
        for (fields, expected) in table {
            assert_eq!(refused(fields, false), *expected, "{fields:?}");
        }
        assert_eq!(refused(&[ok, ("content-length", "1")], true), lengths);
        assert_eq!(refused(&[ok, ("content-length", "0")], true), None);
        let long = "x".repeat(40_000);
        let large = Some(Reject::UPSTREAM_HEAD_TOO_LARGE);
        assert_eq!(refused(&[ok, ("a", &long)], true), large);
        let kind = SectionKind::ResponseTrailers;
        let trailers = section(&[("grpc-status", "0"), ("host", "b")], true, kind);
        assert_eq!(trailers.trailers(), b"grpc-status: 0\r\n");
        let fault = section(&[ok], true, kind).response_fault();
        assert_eq!(fault, Some(Reject::UPSTREAM_CHUNK_MALFORMED));
    }
}
