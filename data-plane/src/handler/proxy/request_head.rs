//! Head of the request for a member, written anew from the parsed request of the client, as text for HTTP/1.1 or
//! as a field block for HTTP/2.

use crate::handler::Request;
use crate::handler::proxy::route::{
    CLIENT_PLACEHOLDER, ForwardedHost, ProxyRoute, USER_PLACEHOLDER,
};
use crate::upstream::MemberPool;
use base::digest::base64;
use std::cell::Cell;
use std::net::IpAddr;
use wire::fields::{Fields, is_basic_login};
use wire::forwarded::{ForwardedLists, OwnHop};
use wire::h1::body_decoder::BodyLength;
use wire::h2::hpack;
use wire::hop_by_hop::{TooManyConnectionOptions, copy_request_fields};
use wire::identity_fields::is_identity;
use wire::ip_endpoint::IpOctets;
use wire::number_text::push_number;
use wire::origin_fields::states_origin;
use wire::path_readings::sent_path;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::request_target::{
    EncodedSlash, encode_path, encode_raw_text, is_below, parse_target_with, push_encoded,
};
use wire::via;
use wire::webdav::{own_reference, with_resource_tags};

/// Bytes of the fields that the proxy adds to a request, about.
const ADDED_BYTES: usize = 384;

/// Checks that a request may go to a member.
///
/// # Errors
/// The request came through this server before, members could read the path in another way than the guards of
/// the route, the method is TRACE, or Destination has no path at the member.
pub(super) fn check(request: &Request, route: &ProxyRoute) -> Result<(), Reject> {
    // A response to TRACE would contain the request, including passwords.
    if request.method == Method::Trace {
        return Err(Reject::METHOD_NOT_ALLOWED);
    }
    if via::has_passed(Fields(&request.fields), &route.pseudonym) {
        return Err(Reject::UPSTREAM_LOOP);
    }
    if request
        .path
        .split(|byte| *byte == b'/')
        .any(is_dots_with_parameter)
    {
        return Err(Reject::TARGET_DOT_PARAMETER);
    }
    if request.method.is_extension()
        && let Some(destination) = Fields(&request.fields).first("destination")
    {
        // The target of a rewrite has no path for the client, and Destination names a path of the client.
        let is_known = request.rewrite.path.is_none()
            && member_reference(destination, request, route).is_some();
        return is_known.then_some(()).ok_or(Reject::DESTINATION_ELSEWHERE);
    }
    Ok(())
}

/// Returns the path at the member of a URL in a field of WebDAV; None for a URL outside of the route.
fn member_reference(url: &[u8], request: &Request, route: &ProxyRoute) -> Option<Vec<u8>> {
    let forwarding = request.forwarding.as_ref();
    let stated = forwarding.and_then(|forwarding| forwarding.host.as_deref());
    let host = Fields(&request.fields).first("host");
    let hosts = [host.unwrap_or(&request.host), stated.unwrap_or_default()];
    let mut encoded = Vec::with_capacity(url.len());
    encode_raw_text(own_reference(url, &hosts)?, &mut encoded);
    let target = parse_target_with(Method::Get, &encoded, EncodedSlash::Separator).ok()?;
    let mut segments = target.path.split(|byte| *byte == b'/');
    if !is_below(&target.path, &route.path) || segments.any(is_dots_with_parameter) {
        return None;
    }
    let mut out = Vec::with_capacity(encoded.len());
    push_member_path(target.raw_path, &target.path, route, &mut out);
    if let Some(query) = target.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    Some(out)
}

/// Appends the fields of WebDAV with URLs, with the URLs of the route as URLs of the member. Apache's mod_dav takes only
/// absolute URLs with the scheme and the host by which the request reached Apache.
#[cold]
fn push_references(
    request: &Request,
    route: &ProxyRoute,
    member: MemberOrigin<'_>,
    out: &mut Vec<u8>,
) {
    let host = host(request, route, member.host);
    let fields = Fields(&request.fields).iter();
    for (name, value) in fields.filter(|(name, _)| !is_set_by_route(name, route)) {
        let rewrite = |url: &[u8]| {
            let path = member_reference(url, request, route)?;
            Some([member.scheme, b"://", host, &path].concat())
        };
        if name.eq_ignore_ascii_case(b"if") {
            push_field(out, name, &with_resource_tags(value, rewrite));
        } else if request.method.is_extension()
            && name.eq_ignore_ascii_case(b"destination")
            && let Some(url) = rewrite(value)
        {
            push_field(out, name, &url);
        }
    }
}

/// Returns true if the request may not go to a further server: OPTIONS with `Max-Forwards: 0` (RFC 9110
/// §7.6.2).
pub(super) fn ends_here(request: &Request) -> bool {
    max_forwards(request) == Some(0)
}

/// Returns the number of servers that may forward the request. The field counts for OPTIONS and TRACE alone (RFC
/// 9110 §7.6.2). None for an absent or malformed number.
fn max_forwards(request: &Request) -> Option<u32> {
    if request.method != Method::Options {
        return None;
    }
    let mut values = Fields(&request.fields).all("max-forwards");
    let digits = values.next().filter(|_| values.next().is_none())?;
    // A sign is no digit.
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns true for a segment such as `..;a=b`. Servlet containers remove the parameter and then climb to the
/// parent, past the guards of this server.
fn is_dots_with_parameter(segment: &[u8]) -> bool {
    segment.starts_with(b".;") || segment.starts_with(b"..;")
}

/// Scheme and host of a member's URL.
#[derive(Copy, Clone)]
pub(super) struct MemberOrigin<'p> {
    scheme: &'p [u8],
    host: &'p [u8],
}

impl<'p> MemberOrigin<'p> {
    /// Returns the scheme and the host of a member without a connection.
    pub(super) fn new(is_tls: bool, host: &'p [u8]) -> MemberOrigin<'p> {
        MemberOrigin {
            scheme: if is_tls { b"https" } else { b"http" },
            host,
        }
    }
}

impl MemberOrigin<'_> {
    /// Returns the scheme and the host of the members with the pool.
    pub(super) fn of(pool: &MemberPool) -> MemberOrigin<'_> {
        MemberOrigin {
            scheme: pool.scheme(),
            host: &pool.authority,
        }
    }
}

/// Returns the head of the request for a member, in the form of HTTP/1.1. `length` is the length of the body
/// as sent to the member.
pub(super) fn encode(
    request: &Request,
    route: &ProxyRoute,
    member: MemberOrigin<'_>,
    length: BodyLength,
    expects_continue: bool,
) -> Result<Vec<u8>, Reject> {
    let bytes =
        request.fields.len() + request.identity.len() + request.raw_path.len() + ADDED_BYTES;
    let mut out = Vec::with_capacity(bytes);
    push_request_line(request, route, &mut out);
    push_field(&mut out, b"Host", host(request, route, member.host));
    let accepts_trailers = push_client_fields(request, route, member, &mut out)?;
    push_connection_fields(request, accepts_trailers, &mut out);
    push_proxy_fields(request, route, length, expects_continue, &mut out);
    if length == BodyLength::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(out)
}

/// Returns the head of the request for a member over HTTP/2, as a field block. The arguments are those of [`encode`].
pub(super) fn encode_h2(
    request: &Request,
    route: &ProxyRoute,
    member: MemberOrigin<'_>,
    length: BodyLength,
    expects_continue: bool,
) -> Result<Vec<u8>, Reject> {
    let bytes =
        request.fields.len() + request.identity.len() + request.raw_path.len() + ADDED_BYTES;
    let mut lines = Vec::with_capacity(bytes);
    let accepts_trailers = push_client_fields(request, route, member, &mut lines)?;
    if accepts_trailers {
        // gRPC servers refuse a request without the field.
        lines.extend_from_slice(b"TE: trailers\r\n");
    }
    push_proxy_fields(request, route, length, expects_continue, &mut lines);
    let mut path = Vec::new();
    push_target(request, route, &mut path);
    let mut block = Vec::with_capacity(bytes);
    hpack::push_field(b":method", request.method.name().as_bytes(), &mut block);
    hpack::push_field(b":scheme", member.scheme, &mut block);
    let host = host(request, route, member.host);
    hpack::push_field(b":authority", host, &mut block);
    hpack::push_field(b":path", &path, &mut block);
    hpack::push_lines(&lines, &mut block);
    Ok(block)
}

/// Returns the bytes of the target and the fields of a request for a member over HTTP/2, before compression and apart
/// from fields of fixed length. The lists of a trusted proxy are counted as written for the member, because Forwarded
/// may be many times as long as X-Forwarded-For.
pub(super) fn h2_bytes(request: &Request, route: &ProxyRoute) -> usize {
    let mut own = Vec::new();
    push_target(request, route, &mut own);
    if request.forwarding.is_some() {
        push_origin(request, route, &mut own);
    }
    request.fields.len() + request.identity.len() + own.len()
}

/// Returns true if the client announces a trailer section (RFC 9110 §6.6.2).
pub(super) fn announces_trailers(request: &Request) -> bool {
    Fields(&request.fields).first("trailer").is_some()
}

/// Appends the fields that the proxy writes into a request of any version.
fn push_proxy_fields(
    request: &Request,
    route: &ProxyRoute,
    length: BodyLength,
    expects_continue: bool,
    out: &mut Vec<u8>,
) {
    if expects_continue {
        out.extend_from_slice(b"Expect: 100-continue\r\n");
    }
    if let Some(servers) = max_forwards(request) {
        out.extend_from_slice(b"Max-Forwards: ");
        push_number(out, u64::from(servers.saturating_sub(1)));
        out.extend_from_slice(b"\r\n");
    }
    push_origin(request, route, out);
    let earlier = Fields(&request.fields);
    via::push_via(earlier, request.version, &route.pseudonym, out);
    for (name, value) in &route.forward.request_fields {
        if !value.is_empty() {
            push_configured(out, name, value, request);
        }
    }
    if let BodyLength::Length(length) = length {
        out.extend_from_slice(b"Content-Length: ");
        push_number(out, length);
        out.extend_from_slice(b"\r\n");
    }
}

fn push_request_line(request: &Request, route: &ProxyRoute, out: &mut Vec<u8>) {
    // An extended CONNECT of HTTP/2 or HTTP/3 becomes the GET of a WebSocket handshake.
    let method = match &request.upgrade {
        Some(upgrade) if upgrade.is_extended_connect => "GET",
        _ => request.method.name(),
    };
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    push_target(request, route, out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Returns the path and the query for the member, as text.
pub(super) fn target(request: &Request, route: &ProxyRoute) -> String {
    let mut target = Vec::new();
    push_target(request, route, &mut target);
    String::from_utf8_lossy(&target).into_owned()
}

/// Appends the path and the query for the member.
fn push_target(request: &Request, route: &ProxyRoute, out: &mut Vec<u8>) {
    push_path(request, route, out);
    let query = request.rewrite.query.as_ref().or(request.query.as_ref());
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

/// Appends the path for the member. The path keeps the client's percent-encoding, since members may
/// distinguish `;` from `%3B`. Dot segments are resolved as for the guards of the route.
fn push_path(request: &Request, route: &ProxyRoute, out: &mut Vec<u8>) {
    if request.raw_path == b"*" {
        return out.push(b'*');
    }
    match &request.rewrite.path {
        Some(rewritten) => {
            let mut encoded = Vec::with_capacity(rewritten.len());
            encode_path(rewritten, &mut encoded);
            push_moved(&encoded, route, out);
        }
        None => push_member_path(&request.raw_path, &request.path, route, out),
    }
}

/// Appends a path of the client as a path of the member. `path` is the decoded form of `raw_path`.
fn push_member_path(raw_path: &[u8], path: &[u8], route: &ProxyRoute, out: &mut Vec<u8>) {
    if raw_path == path {
        push_moved(raw_path, route, out)
    } else {
        push_moved(&sent_path(raw_path, route.forward.slashes), route, out)
    }
}

/// Appends an encoded path with the path of the route replaced.
fn push_moved(path: &[u8], route: &ProxyRoute, out: &mut Vec<u8>) {
    match &route.forward.prefix {
        None => out.extend_from_slice(path),
        Some(prefix) => {
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(after_segments(path, route.segments()));
        }
    }
}

/// Returns the path without its first `count` segments and the slash behind. Empty segments among the first do not
/// count, since the route was found by the path without doubled slashes.
fn after_segments(path: &[u8], count: usize) -> &[u8] {
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments = 0;
    while segments < count {
        rest = match rest.iter().position(|byte| *byte == b'/') {
            Some(slash) => {
                segments += usize::from(slash > 0);
                &rest[slash + 1..]
            }
            None => return b"",
        };
    }
    rest
}

/// Returns the host for the member.
fn host<'a>(request: &'a Request, route: &'a ProxyRoute, member_host: &'a [u8]) -> &'a [u8] {
    let host = match &route.forward.host {
        ForwardedHost::Client => {
            let sent = Fields(&request.fields).first("host");
            sent.unwrap_or(&request.host)
        }
        ForwardedHost::Member => member_host,
        ForwardedHost::Fixed(host) => host.as_bytes(),
    };
    // A request in HTTP/1.0 may have no host.
    if host.is_empty() { member_host } else { host }
}

/// Appends the client's fields without the fields of the connection and the fields that the proxy writes. Fields
/// that state the client or the URL of a request pass only from a trusted proxy.
/// Returns true if the client accepts trailers.
fn push_client_fields(
    request: &Request,
    route: &ProxyRoute,
    member: MemberOrigin<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, Reject> {
    // A member would take the password for a login of its own.
    let hides_login = request.hides_login && !route.forward.passes_login;
    let has_references = Cell::new(false);
    let copied = copy_request_fields(Fields(&request.fields), out, |name, value| {
        is_written_by_proxy(name, request.method)
            || (hides_login && is_basic_login(name, value))
            || is_forged(name, request)
            || is_set_by_route(name, route)
            || (is_reference(name, request.method) && {
                has_references.set(true);
                true
            })
    });
    let copied = copied.map_err(|TooManyConnectionOptions| Reject::CONNECTION_OPTIONS)?;
    for (name, value) in Fields(&request.identity) {
        if !is_set_by_route(name, route) {
            push_field(out, name, value);
        }
    }
    if has_references.get() {
        push_references(request, route, member, out);
    }
    Ok(copied.accepts_trailers)
}

/// Returns true for a field of WebDAV with URLs.
fn is_reference(name: &[u8], method: Method) -> bool {
    match name.len() {
        2 => name.eq_ignore_ascii_case(b"if"),
        11 => method.is_extension() && name.eq_ignore_ascii_case(b"destination"),
        _ => false,
    }
}

/// Returns true for a field that the route sets or removes.
fn is_set_by_route(name: &[u8], route: &ProxyRoute) -> bool {
    let mut fields = route.forward.request_fields.iter();
    fields.any(|(own, _)| name.eq_ignore_ascii_case(own.as_bytes()))
}

/// Returns the lines of a trailer section without the fields that the route sets or removes. A member may merge
/// trailers into the head of the request.
pub(super) fn forwarded_trailers(lines: &[u8], route: &ProxyRoute) -> Box<[u8]> {
    let mut kept = Vec::with_capacity(lines.len());
    for (name, value) in Fields(lines) {
        if !is_set_by_route(name, route) && !is_identity(name, &route.identity_fields) {
            push_field(&mut kept, name, value);
        }
    }
    kept.into()
}

/// Returns true for a field that the proxy writes itself, or never forwards, in a request with the method.
fn is_written_by_proxy(name: &[u8], method: Method) -> bool {
    let known: &[u8] = match name.len() {
        3 => b"via",
        4 => b"host",
        // No field of HTTP. Many CGI programs behind a member take the field for their variable HTTP_PROXY
        // (CVE-2016-5385).
        5 => b"proxy",
        6 => b"expect",
        9 => b"forwarded",
        12 if method == Method::Options => b"max-forwards",
        14 => b"content-length",
        15 => b"x-forwarded-for",
        16 => b"x-forwarded-host",
        17 => b"x-forwarded-proto",
        _ => return false,
    };
    name.eq_ignore_ascii_case(known)
}

/// Appends the fields of the connection to the member.
fn push_connection_fields(request: &Request, accepts_trailers: bool, out: &mut Vec<u8>) {
    match (&request.upgrade, accepts_trailers) {
        (Some(upgrade), _) => {
            out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
            out.extend_from_slice(&upgrade.protocol);
            out.extend_from_slice(b"\r\n");
            if upgrade.is_extended_connect {
                push_websocket_key(out);
            }
        }
        (None, true) => out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n"),
        (None, false) => {}
    }
}

/// Appends a key for the handshake of a WebSocket (RFC 6455 §4.1), which a client over HTTP/2 or HTTP/3 doesn't
/// send (RFC 8441 §5). The key proves that the member speaks the protocol, and is no secret.
fn push_websocket_key(out: &mut Vec<u8>) {
    let mut key = [0; 16];
    // Without random numbers the key is constant, which members accept.
    let _ = aws_lc_rs::rand::fill(&mut key);
    out.extend_from_slice(b"Sec-WebSocket-Key: ");
    out.extend_from_slice(base64(&key).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the address of the client and the host and scheme of the client's request, which replace the
/// fields that the client sent. The lists of a trusted proxy are passed on and extended by the proxy. Fields that
/// the route sets are left out.
pub(super) fn push_origin(request: &Request, route: &ProxyRoute, out: &mut Vec<u8>) {
    let forwarding = request.forwarding.as_ref();
    let lists = match forwarding {
        Some(_) => ForwardedLists::of(Fields(&request.fields)),
        None => ForwardedLists::empty(),
    };
    let own_host = Fields(&request.fields).first("host").unwrap_or_default();
    let client_host = forwarding.and_then(|forwarding| forwarding.host.as_deref());
    let host = client_host.unwrap_or(own_host);
    let hop = OwnHop {
        address: Some(octets(forwarding.map_or(request.peer, |it| it.proxy))),
        proto: if request.secure { "https" } else { "http" },
        // Without earlier hops, the host that the proxy states belongs to the only hop.
        host: if lists.is_empty() { host } else { own_host },
    };
    let configured = &route.forward.request_fields;
    let is_own = |name: &str| {
        let mut names = configured.iter().map(|(name, _)| name);
        !names.any(|configured| configured.eq_ignore_ascii_case(name))
    };
    if is_own("X-Forwarded-For") {
        lists.push_x_forwarded_for(&hop, out);
    }
    if is_own("X-Forwarded-Proto") {
        push_field(out, b"X-Forwarded-Proto", hop.proto.as_bytes());
    }
    if is_own("X-Forwarded-Host") && !host.is_empty() {
        push_field(out, b"X-Forwarded-Host", host);
    }
    if is_own("Forwarded") {
        lists.push_forwarded(&hop, out);
    }
}

/// Appends a field.
pub(super) fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends a field that the route sets, with the client's address and the name of the user in place of their
/// placeholders. A field with the name of the user is left out of a request without a login.
pub(super) fn push_configured(out: &mut Vec<u8>, name: &str, value: &str, request: &Request) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let mut rest = value;
    while let Some(at) = rest.find('{') {
        let (text, placeholder) = rest.split_at(at);
        out.extend_from_slice(text.as_bytes());
        rest = if let Some(after) = placeholder.strip_prefix(CLIENT_PLACEHOLDER) {
            octets(request.peer).push(out);
            after
        } else if let Some(after) = placeholder.strip_prefix(USER_PLACEHOLDER) {
            let Some(user) = &request.user else {
                return out.truncate(start);
            };
            push_user(out, user);
            after
        } else {
            out.push(b'{');
            &placeholder[1..]
        };
    }
    out.extend_from_slice(rest.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the name of a user. Letters, digits and `-._~@+` stay as they are. All other bytes are percent-encoded: a
/// comma or a quote in a name can't begin another item of a list, and a member can decode the name without doubt.
fn push_user(out: &mut Vec<u8>, user: &str) {
    for byte in user.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b'@' | b'+' => out.push(byte),
            byte if byte.is_ascii_alphanumeric() => out.push(byte),
            byte => push_encoded(byte, out),
        }
    }
}

/// Returns true for a field about the client, or about the URL of the client's request, that only a trusted proxy
/// may set.
pub(super) fn is_forged(name: &[u8], request: &Request) -> bool {
    request.forwarding.is_none() && states_origin(name)
}

fn octets(address: IpAddr) -> IpOctets {
    match address.to_canonical() {
        IpAddr::V4(address) => IpOctets::V4(address.octets()),
        IpAddr::V6(address) => IpOctets::V6(address.octets()),
    }
}
