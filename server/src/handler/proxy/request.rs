//! Request for a member, written anew from the parsed request of the client.

use crate::base::number_text::{push_address, push_number};
use crate::handler::Request;
use crate::handler::proxy::ProxyRoute;
use crate::handler::proxy::settings::ForwardedHost;
use crate::wire::fields::Fields;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::request_target::encode_path;

/// Returns the head of the request for a member, in the form of HTTP/1.1.
pub(super) fn encode_head(request: &Request, route: &ProxyRoute, length: BodyLength) -> Vec<u8> {
    let mut out = Vec::with_capacity(request.fields.len() + request.raw_path.len() + HEAD_EXTRA);
    push_request_line(request, route, &mut out);
    push_host(request, route, &mut out);
    push_client_fields(request, route, &mut out);
    push_forwarded(request, &mut out);
    push_length(length, &mut out);
    out.extend_from_slice(b"\r\n");
    out
}

/// Bytes for the fields of the proxy itself.
const HEAD_EXTRA: usize = 384;

fn push_request_line(request: &Request, route: &ProxyRoute, out: &mut Vec<u8>) {
    out.extend_from_slice(request.method.name().as_bytes());
    out.push(b' ');
    match (&request.rewrite.path, &route.forward.prefix) {
        (None, None) => out.extend_from_slice(&request.raw_path),
        (rewritten, prefix) => {
            let path = rewritten.as_deref().unwrap_or(&request.path);
            match prefix {
                Some(prefix) => {
                    out.extend_from_slice(prefix.as_bytes());
                    let rest = path.strip_prefix(&*route.path).unwrap_or(path);
                    encode_path(rest.strip_prefix(b"/").unwrap_or(rest), out);
                }
                None => encode_path(path, out),
            }
        }
    }
    let query = request.rewrite.query.as_ref().or(request.query.as_ref());
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

fn push_host(request: &Request, route: &ProxyRoute, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Host: ");
    match &route.forward.host {
        ForwardedHost::Client => {
            let sent = Fields(&request.fields).first("host");
            out.extend_from_slice(sent.unwrap_or(&request.host));
        }
        ForwardedHost::Member => out.extend_from_slice(&route.member_host),
        ForwardedHost::Fixed(host) => out.extend_from_slice(host.as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the client's fields without the fields of the connection and the fields that the proxy writes.
fn push_client_fields(request: &Request, _route: &ProxyRoute, out: &mut Vec<u8>) {
    for (name, value) in Fields(&request.fields) {
        if is_dropped(name) {
            continue;
        }
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

fn is_dropped(name: &[u8]) -> bool {
    let known: &[&[u8]] = match name.len() {
        2 => &[b"te"],
        3 => &[b"via"],
        4 => &[b"host"],
        6 => &[b"expect"],
        7 => &[b"upgrade"],
        9 => &[b"forwarded"],
        10 => &[b"connection", b"keep-alive"],
        14 => &[b"content-length"],
        15 => &[b"x-forwarded-for"],
        16 => &[b"proxy-connection", b"x-forwarded-host"],
        17 => &[b"transfer-encoding", b"x-forwarded-proto"],
        _ => return false,
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn push_forwarded(request: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    push_address(out, request.peer);
    out.extend_from_slice(match request.secure {
        true => b"\r\nX-Forwarded-Proto: https\r\n",
        false => b"\r\nX-Forwarded-Proto: http\r\n",
    });
}

fn push_length(length: BodyLength, out: &mut Vec<u8>) {
    match length {
        BodyLength::None => {}
        BodyLength::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            push_number(out, length);
            out.extend_from_slice(b"\r\n");
        }
        BodyLength::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}
