//! Invariants of the decoders for arbitrary input, one function for each decoder. The fuzz targets and the
//! property tests share the functions, which panic on a violation.

pub mod h2;
pub mod h2_client;
pub mod h3;
use crate::byte_search;
use crate::cgi::{CgiHeadError, CgiResponse, MetaVariables, VariableSink};
use crate::fastcgi;
use crate::fields::{AcceptedCodings, FieldValues, Fields, entity_tags};
use crate::forwarded::{ForwardedLists, HopNode, Hops, OwnHop};
use crate::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use crate::h1::request::{ParsedHead, first_line, parse_head};
use crate::h1::response_head::{
    ParsedResponse, ResponseHead, ResponseHeadBounds, ResponseLength, parse_response_head,
};
use crate::hop_by_hop::copy_response_fields;
use crate::json::{Json, quoted};
use crate::limits::{HeadLimits, PROXY_V2_HEADER_BYTES_MAX, RANGES_MAX, TRAILER_BYTES_MAX};
use crate::normal_path::normalise;
use crate::path_readings::{
    PathReadings, Slashes, has_doubled_slash, has_encoded_slash, opaque_path, sent_path,
};
use crate::pkt_line;
use crate::proxy_protocol::{self, ParsedProxyHeader, parse_proxy_header};
use crate::range::{Ranges, parse_ranges};
use crate::reject::Reject;
use crate::request_head::{Method, RequestHead, Version};
use crate::request_target::{
    EncodedSlash, encode_path, encode_raw_text, is_raw_text, parse_target, parse_target_with,
    valid_host,
};

/// Checks the filter for responses to a push: all bytes pass in order, and a message is inserted before a
/// final flush or not at all.
pub fn push_answer(bytes: &[u8]) {
    let through = |parts: &[&[u8]], words: &[String]| {
        let (mut answer, mut out) = (pkt_line::PushResponse::default(), Vec::new());
        for part in parts {
            answer.take(part, &mut out);
        }
        let can_speak = answer.can_insert_message();
        out.extend(answer.end(words));
        (out, can_speak)
    };
    let whole = through(&[bytes], &[]);
    assert_eq!(whole.0, bytes);
    let half = bytes.len() / 2;
    assert_eq!(through(&[&bytes[..half], &bytes[half..]], &[]), whole);
    let (passed, can_speak) = through(&[bytes], &["x".to_owned()]);
    assert_eq!(passed.len(), bytes.len() + 7 * usize::from(can_speak));
    assert!(!can_speak || passed.ends_with(b"0007\x02x\n0000"));
}

/// Checks the parser of request heads: the result is independent of the split and satisfies the
/// documentation of `RequestHead`.
pub fn head(bytes: &[u8]) {
    let small = HeadLimits {
        request_line_bytes: 48,
        head_bytes: 160,
        fields: 4,
        ..HeadLimits::default()
    };
    for limits in [&HeadLimits::default(), &small] {
        let whole = head_verdict(bytes, &mut 0, limits);
        assert_eq!(whole, head_byte_by_byte(bytes, limits), "byte by byte");
        let half = bytes.len() / 2;
        assert_eq!(whole, head_in_two(bytes, half, limits), "cut at {half}");
    }
    let line = first_line(bytes);
    assert!(!line.contains(&b'\r') && !line.contains(&b'\n'));
    for (name, value) in Fields(bytes) {
        assert!(name.len() + value.len() < bytes.len());
    }
    for values in [
        FieldValues::One(bytes),
        FieldValues::Many(Fields(bytes), "if-none-match"),
    ] {
        values.items().for_each(|item| assert!(!item.is_empty()));
        entity_tags(&values).count();
        AcceptedCodings::from_values(&values);
    }
}

/// Returns the result for `bytes` that arrive in two parts.
pub fn head_in_two(
    bytes: &[u8],
    cut: usize,
    limits: &HeadLimits,
) -> Result<Option<String>, Reject> {
    let mut scanned = 0;
    match head_verdict(&bytes[..cut], &mut scanned, limits) {
        Ok(None) => head_verdict(bytes, &mut scanned, limits),
        early => early,
    }
}

/// Returns the result for `bytes` that arrive one at a time.
pub fn head_byte_by_byte(bytes: &[u8], limits: &HeadLimits) -> Result<Option<String>, Reject> {
    let mut scanned = 0;
    for end in 1..bytes.len() {
        let verdict = head_verdict(&bytes[..end], &mut scanned, limits);
        if verdict != Ok(None) {
            return verdict;
        }
    }
    head_verdict(bytes, &mut scanned, limits)
}

/// Calls `parse_head` once and returns a comparable result; `None` = partial.
pub fn head_verdict(
    bytes: &[u8],
    scanned: &mut usize,
    limits: &HeadLimits,
) -> Result<Option<String>, Reject> {
    let mut copy = Vec::new();
    match parse_head(bytes, &mut copy, scanned, limits)? {
        ParsedHead::Partial => Ok(None),
        ParsedHead::Complete { head, head_bytes } => {
            assert!(head_bytes <= bytes.len().min(limits.head_bytes));
            assert!(bytes[..head_bytes].ends_with(b"\r\n\r\n"));
            assert!(head.line.len() <= limits.request_line_bytes);
            assert!(head.fields.iter().count() <= limits.fields);
            check_head(&head);
            Ok(Some(format!("{head_bytes} {head:?}")))
        }
    }
}

fn check_head(head: &RequestHead<'_>) {
    normal_path(&head.path);
    assert!(head.line.is_ascii() && head.raw_path.is_ascii());
    assert!(head.query.is_none_or(<[u8]>::is_ascii));
    if head.host.is_empty() {
        assert_eq!(head.version, Version::Http10);
    } else {
        assert_eq!(valid_host(head.host), Some((head.host, None)));
    }
    for (name, value) in head.fields {
        assert_eq!(byte_search::token_end(name, 0), name.len());
        assert_eq!(byte_search::value_end(value, 0), value.len());
        assert_eq!(byte_search::trim(value), value);
    }
    if let Some(protocol) = head.upgrade {
        assert_eq!((head.method, head.version), (Method::Get, Version::Http11));
        assert!(matches!(
            head.body,
            BodyLength::None | BodyLength::Length(0)
        ));
        assert!(!protocol.is_empty() && !protocol.contains(&b','));
    }
    if head.body == BodyLength::Chunked {
        assert_eq!(head.version, Version::Http11);
        assert_eq!(head.fields.first("content-length"), None);
    }
}

fn normal_path(path: &[u8]) {
    if path == b"*" {
        return;
    }
    let Some((b'/', rest)) = path.split_first() else {
        panic!("a path begins with a slash");
    };
    let mut names = rest.split(|&byte| byte == b'/').peekable();
    while let Some(name) = names.next() {
        assert!(!name.is_empty() || names.peek().is_none());
        assert!(name != b"." && name != b"..");
        assert!(!name.contains(&0) && !name.contains(&b'\\'));
    }
}

/// Checks the decoder of bodies, with the framing chosen by the first byte: payload, trailers and end are
/// independent of the split, and trailers are well-formed field lines.
pub fn body(bytes: &[u8]) {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let length = match choice {
        0 => BodyLength::None,
        1 => BodyLength::Length(input.len() as u64 / 2),
        _ => BodyLength::Chunked,
    };
    let whole = decode(length, input, input.len().max(1));
    assert_eq!(whole, decode(length, input, 1), "byte by byte");
    assert_eq!(whole, decode(length, input, 7), "seven bytes at a time");
}

/// Returns the payload and the trailers, the number of consumed bytes, and whether the body ended, or the
/// refusal.
fn decode(
    length: BodyLength,
    input: &[u8],
    part_bytes: usize,
) -> ([Vec<u8>; 2], usize, Result<bool, Reject>) {
    let mut decoder = BodyDecoder::new(length);
    let (mut payload, mut trailers, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let part = &input[at..input.len().min(at + part_bytes)];
        let without_trailers = decoder.clone().step(part);
        let step = decoder.step_with_trailers(part, &mut trailers);
        assert_eq!(step, without_trailers);
        assert!(trailers.len() <= TRAILER_BYTES_MAX);
        match step {
            Ok(BodyStep::Data {
                consumed,
                payload: span,
            }) => {
                assert!(!span.is_empty() && span.end == consumed);
                payload.extend_from_slice(&part[span]);
                at += consumed;
            }
            Ok(BodyStep::More { consumed }) => {
                assert_eq!(consumed, part.len());
                at += consumed;
                if at == input.len() {
                    return ([payload, trailers], at, Ok(false));
                }
            }
            Ok(BodyStep::End { consumed }) => {
                assert!(decoder.is_done());
                check_trailers(&trailers);
                return ([payload, trailers], at + consumed, Ok(true));
            }
            // The number of bytes consumed before a refusal depends on the split.
            Err(reject) => return ([payload, trailers], 0, Err(reject)),
        }
    }
}

fn check_trailers(trailers: &[u8]) {
    let lines = trailers.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(Fields(trailers).iter().count(), lines);
    for (name, value) in Fields(trailers) {
        assert!(!name.is_empty() && byte_search::token_end(name, 0) == name.len());
        assert_eq!(byte_search::value_end(value, 0), value.len());
    }
}

/// Checks the parser of request targets: an accepted path is normalised, and encoding and normalising the
/// path again changes nothing.
pub fn target(bytes: &[u8]) {
    for method in Method::ALL {
        if let Ok(target) = parse_target(method, bytes) {
            normal_path(&target.path);
            if *target.path != *b"*" {
                readings(target.raw_path, &target.path);
            }
            assert!(target.authority.is_none_or(|a| valid_host(a).is_some()));
            assert_eq!(
                parse_target_with(method, bytes, EncodedSlash::Separator),
                Ok(target)
            );
        } else if let Ok(target) = parse_target_with(method, bytes, EncodedSlash::Separator) {
            normal_path(&target.path);
            assert!(has_encoded_slash(target.raw_path));
            // The readings agree only where a segment `..` removes the encoded slash.
            let raw = target.raw_path.to_ascii_lowercase();
            let may_remove =
                raw.windows(2).any(|it| it == b"..") || raw.windows(3).any(|it| it == b"%2e");
            let opaque = opaque_path(target.raw_path).expect("a second reading");
            assert!(may_remove || opaque != *target.path);
            readings(target.raw_path, &target.path);
        }
    }
    if is_raw_text(bytes) {
        // The encoded text has the same meaning, and is not encoded again.
        assert!(parse_target(Method::Get, bytes).is_err());
        let mut encoded = Vec::new();
        encode_raw_text(bytes, &mut encoded);
        assert!(encoded.is_ascii() && !is_raw_text(&encoded));
        assert_eq!(normalise(&encoded), normalise(bytes));
    }
    if let Ok(path) = normalise(bytes) {
        normal_path(&path);
        let mut encoded = Vec::new();
        encode_path(&path, &mut encoded);
        assert_eq!(normalise(&encoded), Ok(path));
    }
    if let Some((name, _)) = valid_host(bytes) {
        assert_eq!(valid_host(name), Some((name, None)));
    }
}

/// Checks that the further readings of a path are absolute, and have no doubled slashes where they should not.
fn readings(raw_path: &[u8], path: &[u8]) {
    let sent = sent_path(raw_path, Slashes::Keep);
    assert!(sent.first() == Some(&b'/') && sent.len() <= raw_path.len());
    if let Some(readings) = PathReadings::of(raw_path, path, Slashes::Keep) {
        assert!(readings.merged().all(|reading| !has_doubled_slash(reading)));
        assert!(
            readings
                .iter()
                .all(|reading| reading.first() == Some(&b'/'))
        );
        assert!(readings.iter().all(|reading| reading != path));
    }
}

/// Checks the parser of response heads: the result is independent of the split and satisfies the
/// documentation of `ResponseHead`.
pub fn response_head(bytes: &[u8]) {
    let bounds = |head_bytes, fields| ResponseHeadBounds { head_bytes, fields };
    for bounds in [bounds(16 * 1024, 100), bounds(96, 4)] {
        for method in [Method::Get, Method::Head, Method::Connect] {
            let whole = response_verdict(bytes, &mut 0, method, &bounds);
            let mut scanned = 0;
            let bytewise = (1..bytes.len())
                .map(|end| response_verdict(&bytes[..end], &mut scanned, method, &bounds))
                .find(|verdict| *verdict != Ok(None))
                .unwrap_or_else(|| response_verdict(bytes, &mut scanned, method, &bounds));
            assert_eq!(whole, bytewise, "byte by byte");
            let mut scanned = 0;
            let half = &bytes[..bytes.len() / 2];
            let halved = match response_verdict(half, &mut scanned, method, &bounds) {
                Ok(None) => response_verdict(bytes, &mut scanned, method, &bounds),
                early => early,
            };
            assert_eq!(whole, halved, "cut at {}", half.len());
        }
    }
}

/// Calls `parse_response_head` once and returns a comparable result; `None` = partial.
pub fn response_verdict(
    bytes: &[u8],
    scanned: &mut usize,
    method: Method,
    bounds: &ResponseHeadBounds,
) -> Result<Option<String>, Reject> {
    match parse_response_head(bytes, scanned, method, bounds)? {
        ParsedResponse::Partial => Ok(None),
        ParsedResponse::Complete { head, head_bytes } => {
            assert!(head_bytes <= bytes.len().min(bounds.head_bytes));
            assert!(bytes[..head_bytes].ends_with(b"\r\n\r\n"));
            assert!(head.fields.iter().count() <= bounds.fields);
            check_response_head(&head, method);
            Ok(Some(format!("{head_bytes} {head:?}")))
        }
    }
}

fn check_response_head(head: &ResponseHead<'_>, method: Method) {
    assert!((100..600).contains(&head.status.0) && head.minor_version <= 1);
    assert_eq!(byte_search::value_end(head.reason, 0), head.reason.len());
    for (name, value) in head.fields {
        assert_eq!(byte_search::token_end(name, 0), name.len());
        assert_eq!(byte_search::value_end(value, 0), value.len());
        assert_eq!(byte_search::trim(value), value);
    }
    let mut copied = Vec::new();
    if copy_response_fields(head.fields, &mut copied, |_, _| false).is_ok() {
        let lines = copied.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(Fields(&copied).iter().count(), lines);
        assert_eq!(Fields(&copied).first("connection"), None);
        assert_eq!(Fields(&copied).first("transfer-encoding"), None);
    }
    let has = |name: &str| head.fields.first(name).is_some();
    assert_eq!(has("connection"), head.has_connection_options);
    assert_eq!(has("upgrade"), head.upgrade.is_some());
    assert_eq!(has("content-length"), head.content_length.is_some());
    let is_without = matches!(head.status.0, 100..200 | 204 | 304) || method == Method::Head;
    assert!(!is_without || head.body == ResponseLength::None);
    match head.body {
        ResponseLength::None => {}
        ResponseLength::Length(length) => assert_eq!(head.content_length, Some(length)),
        ResponseLength::Chunked => assert!(head.minor_version == 1 && !has("content-length")),
        ResponseLength::UntilClose => assert!(!head.keep_alive && !has("transfer-encoding")),
    }
}

/// Checks the parser of PROXY headers: the result is independent of the split, and a header that is written
/// again in both versions is read as before.
pub fn proxy_header(bytes: &[u8]) {
    let whole = parse_proxy_header(bytes);
    let bytewise = (1..=bytes.len())
        .map(|end| parse_proxy_header(&bytes[..end]))
        .find(|parsed| *parsed != Ok(ParsedProxyHeader::Partial))
        .unwrap_or(Ok(ParsedProxyHeader::Partial));
    assert_eq!(whole, bytewise, "byte by byte");
    let Ok(ParsedProxyHeader::Complete {
        header,
        header_bytes,
    }) = whole
    else {
        return;
    };
    assert!(header_bytes <= bytes.len().min(PROXY_V2_HEADER_BYTES_MAX));
    for push in [proxy_protocol::push_v1, proxy_protocol::push_v2] {
        let mut out = Vec::new();
        push(&header, &mut out);
        let header_bytes = out.len();
        let again = ParsedProxyHeader::Complete {
            header,
            header_bytes,
        };
        assert_eq!(parse_proxy_header(&out), Ok(again));
    }
}

/// Checks the reader and the writer of forwarding fields: the members kept for the next recipient are read as before,
/// and both lists for the next recipient have equal nodes.
pub fn forwarded(bytes: &[u8]) {
    let fields = Fields(bytes);
    let kept = |hops: &Hops<'_>, name: &str| {
        let mut line = name.as_bytes().to_vec();
        let has_members = hops.clone().push_valid(&mut line);
        assert_eq!(has_members, hops.clone().next().is_some());
        line
    };
    let nodes = |hops: Hops<'_>| {
        hops.map(|hop| format!("{:?}", hop.node))
            .collect::<Vec<_>>()
    };
    let hops = Hops::by_forwarded(fields);
    let line = kept(&hops, "Forwarded: ");
    assert_eq!(nodes(Hops::by_forwarded(Fields(&line))), nodes(hops));
    let hops = Hops::by_x_forwarded(fields);
    let line = kept(&hops, "X-Forwarded-For: ");
    assert_eq!(nodes(Hops::by_x_forwarded(Fields(&line))), nodes(hops));
    let own = OwnHop {
        address: None,
        proto: "http",
        host: b"a.test",
    };
    let lists = ForwardedLists::of(fields);
    let mut lines = Vec::new();
    lists.push_forwarded(&own, &mut lines);
    lists.push_x_forwarded_for(&own, &mut lines);
    let lines = Fields(&lines);
    let without_ports = |hops: Hops<'_>| {
        let node = |node: HopNode<'_>| match node {
            HopNode::Address(address, _) => format!("{address:?}"),
            node => format!("{node:?}"),
        };
        hops.map(|hop| node(hop.node)).collect::<Vec<_>>()
    };
    let forwarded = without_ports(Hops::by_forwarded(lines));
    assert_eq!(forwarded, without_ports(Hops::by_x_forwarded(lines)));
    assert_eq!(forwarded.len() > 1, !lists.is_empty());
}

/// Checks the parser of JSON from other servers: encoding and parsing JSON text again changes nothing.
pub fn answer(bytes: &[u8]) {
    if let Some(Json::Text(text)) = Json::parse(bytes) {
        assert_eq!(
            Json::parse(quoted(&text).as_bytes()),
            Some(Json::Text(text))
        );
    }
}

/// Checks the parser of a script's response head: the result is independent of the split, and no field
/// breaks the framing of a response. The bytes also serve as request fields, which must yield variables
/// with safe names.
pub fn script(bytes: &[u8]) {
    let whole = CgiResponse::parse(bytes, &mut 0);
    let mut scanned = 0;
    let bytewise = (0..bytes.len())
        .find_map(|end| CgiResponse::parse(&bytes[..end], &mut scanned).transpose())
        .unwrap_or_else(|| {
            CgiResponse::parse(bytes, &mut scanned)
                .transpose()
                .unwrap_or(Err(CgiHeadError::TooLarge))
        });
    match &whole {
        Ok(None) => assert_eq!(bytewise, Err(CgiHeadError::TooLarge)),
        Ok(Some((answer, length))) => {
            assert_eq!(bytewise, Ok((answer.clone(), *length)));
            assert!(*length <= bytes.len());
            if let CgiResponse::Document(document) = answer {
                assert!((200..600).contains(&document.status.0));
                let reason = document.status.reason();
                assert_eq!(byte_search::value_end(reason, 0), reason.len());
                for (name, value) in &document.fields {
                    assert_eq!(byte_search::token_end(name, 0), name.len());
                    assert_eq!(byte_search::value_end(value, 0), value.len());
                }
            }
        }
        Err(_) => assert!(bytewise.is_err()),
    }
    variables(bytes);
}

fn variables(bytes: &[u8]) {
    let mut all = RecordedVariables::default();
    let meta = MetaVariables {
        method: "GET",
        version: Version::Http11,
        host: b"",
        port: "80",
        raw_path: bytes,
        query: Some(bytes),
        rewritten_query: Some(bytes),
        fields: Fields(bytes),
        peer: "192.0.2.1",
        peer_port: None,
        server: None,
        secure: false,
        user: None,
        hides_login: false,
        length: None,
        script_name: bytes,
        path_info: bytes,
        script_file: bytes,
        root: bytes,
    };
    meta.write_to(&mut all);
    for (nth, (name, value)) in all.0.iter().enumerate() {
        assert!(!value.contains(&0));
        assert_ne!(name, b"HTTP_PROXY");
        let is_plain =
            |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        assert!(name.iter().all(is_plain));
        assert!(all.0[nth + 1..].iter().all(|(other, _)| other != name));
    }
}

/// Recorded names and values.
#[derive(Default)]
struct RecordedVariables(Vec<(Vec<u8>, Vec<u8>)>);

impl VariableSink for RecordedVariables {
    fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        self.0.push((name.to_vec(), value.concat()));
    }
}

/// Records of a FastCGI backend: output, error output and end are independent of the split.
pub fn records(bytes: &[u8]) {
    for (request, was_used) in [(1, false), (2, true)] {
        let decoded = |part_bytes| {
            let decoder = fastcgi::FastCgiDecoder::new(request, was_used);
            decode_records(decoder, bytes, part_bytes)
        };
        let whole = decoded(bytes.len().max(1));
        assert_eq!(whole, decoded(1), "byte by byte");
        assert_eq!(whole, decoded(7), "seven bytes at a time");
    }
}

/// Returns the output, the error output, and the positions of the ends.
fn decode_records(
    mut decoder: fastcgi::FastCgiDecoder,
    bytes: &[u8],
    part_bytes: usize,
) -> Result<[Vec<u8>; 3], fastcgi::MalformedRecord> {
    let mut at = 0;
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    while at < bytes.len() {
        let window = &bytes[at..bytes.len().min(at + part_bytes)];
        match decoder.step(window)? {
            fastcgi::FastCgiStep::Stdout { consumed, part } => {
                assert!(!part.is_empty() && part.end == consumed);
                found[0].extend_from_slice(&window[part]);
                at += consumed;
            }
            fastcgi::FastCgiStep::Stderr { consumed, part } => {
                assert!(!part.is_empty() && part.end == consumed);
                found[1].extend_from_slice(&window[part]);
                at += consumed;
            }
            fastcgi::FastCgiStep::More => at += window.len(),
            fastcgi::FastCgiStep::End { consumed, end } => {
                at += consumed;
                found[2].extend_from_slice(format!("{end:?} at {at} ").as_bytes());
            }
        }
    }
    Ok(found)
}

/// Checks the parser of Range, with the size of the representation in the first 8 bytes: the ranges lie
/// inside the representation and do not overlap.
pub fn range(bytes: &[u8]) {
    let Some((size, value)) = bytes.split_first_chunk() else {
        return;
    };
    let size = u64::from_le_bytes(*size);
    let Ranges::Some(list) = parse_ranges(value, size) else {
        return;
    };
    assert!((1..=RANGES_MAX).contains(&list.len()));
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    assert!(
        sorted
            .iter()
            .all(|&(first, last)| first <= last && last < size)
    );
    assert!(sorted.windows(2).all(|pair| pair[0].1 < pair[1].0));
}
