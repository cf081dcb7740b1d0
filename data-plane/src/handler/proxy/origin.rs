//! Fields of a request for a member about the client: address, scheme and host.

use crate::handler::Request;
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::proxy::settings::{CLIENT_PLACEHOLDER, USER_PLACEHOLDER};
use std::net::IpAddr;
use wire::fields::Fields;
use wire::forwarded::{ForwardedLists, OwnHop};
use wire::ip_endpoint::IpOctets;
use wire::origin_fields::states_origin;
use wire::request_target::push_encoded;

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
