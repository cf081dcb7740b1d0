//! Fields of a member's response for the client.

use crate::handler::Request;
use crate::handler::proxy::route::ProxyRoute;
use crate::wire::cookie::CookieScope;
use crate::wire::fields::Fields;
use crate::wire::h1::response_head::ResponseHead;
use crate::wire::hop_by_hop::{TooManyConnectionOptions, copy_response_fields};
use crate::wire::reject::Reject;
use crate::wire::response_fields::ResponseFields;

/// Returns the fields of a response without the fields of the connection and the fields that the driver
/// writes. Location and cookies are rewritten if the route has a prefix.
pub(super) fn fields(
    head: &ResponseHead<'_>,
    request: &Request,
    route: &ProxyRoute,
    member_host: &[u8],
) -> Result<ResponseFields, Reject> {
    let replaced = &route.forward.response_fields;
    let rewrites = route.forward.prefix.is_some();
    let mut out = Vec::with_capacity(head.fields.0.len());
    let copied = copy_response_fields(head.fields, &mut out, |name, _| {
        let is_replaced =
            |(own, _): &(Box<str>, Box<str>)| name.eq_ignore_ascii_case(own.as_bytes());
        name.eq_ignore_ascii_case(b"content-length")
            || rewrites && is_rewritten(name)
            || replaced.iter().any(is_replaced)
    });
    copied.map_err(|TooManyConnectionOptions| Reject::UPSTREAM_FIELD_MALFORMED)?;
    let mut fields = ResponseFields::from_lines(out);
    if rewrites {
        push_rewritten(head.fields, request, route, member_host, &mut fields);
    }
    for (name, value) in replaced.iter().filter(|(_, value)| !value.is_empty()) {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    Ok(fields)
}

/// Returns true for a field with paths of the member.
fn is_rewritten(name: &[u8]) -> bool {
    [&b"location"[..], b"content-location", b"set-cookie"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Appends Location, Content-Location and Set-Cookie with the paths as seen by the client.
fn push_rewritten(
    fields: Fields<'_>,
    request: &Request,
    route: &ProxyRoute,
    member_host: &[u8],
    out: &mut ResponseFields,
) {
    let prefix = route.forward.prefix.as_deref().unwrap_or("/").as_bytes();
    let path = [&route.path, &b"/"[..]].concat();
    let host = Fields(&request.fields).first("host");
    let hosts = [member_host, host.unwrap_or(&request.host)];
    let scope = CookieScope {
        path: Some((prefix, &path)),
        domain: None,
    };
    for (name, value) in fields {
        if name.eq_ignore_ascii_case(b"set-cookie") {
            let mut cookie = Vec::with_capacity(value.len() + path.len());
            scope.push_set_cookie(value, &mut cookie);
            out.push(name, &cookie);
        } else if is_rewritten(name) {
            let location = client_location(value, &hosts, prefix, &path);
            out.push(name, &location);
        }
    }
}

/// Returns a Location as seen by the client: the prefix at the member becomes the path of the route, and a URL
/// of the member becomes a path. Other locations stay as they are.
fn client_location(value: &[u8], hosts: &[&[u8]], prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let local = hosts.iter().find_map(|host| without_origin(value, host));
    match local.unwrap_or(value).strip_prefix(prefix) {
        Some(rest) => [path, rest].concat(),
        None => value.to_vec(),
    }
}

/// Returns the path of a URL with the host, for either scheme.
fn without_origin<'v>(url: &'v [u8], host: &[u8]) -> Option<&'v [u8]> {
    let rest = url.strip_prefix(b"http://");
    let rest = rest.or_else(|| url.strip_prefix(b"https://"))?;
    let (start, path) = rest.split_at_checked(host.len())?;
    (start.eq_ignore_ascii_case(host) && path.starts_with(b"/")).then_some(path)
}
