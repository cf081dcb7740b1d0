//! Answers that precede the site of a host: ACME challenges, redirects to another name or to https, and refusals of
//! requests on a connection with another certificate.

use crate::serve::dispatch_context::DispatchContext;
use crate::serve::step::Step;
use crate::serve::synthetic_response::SyntheticResponse;
use crate::tls::Acceptance;
use crate::world::{Host, World};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::request_target;
use wire::status::Status;

/// Path prefix of http-01 challenges (RFC 8555 §8.3).
const CHALLENGE_PATH: &[u8] = b"/.well-known/acme-challenge/";

/// Returns the step of a request that does not reach the routes of the host: a refusal with 421 if the
/// request belongs on a connection with another certificate, the answer to an ACME challenge, or a
/// redirect to another name or to https.
#[inline]
pub(super) fn before_site(
    world: &World,
    host: &Host,
    head: &RequestHead<'_>,
    context: &DispatchContext,
) -> Option<Step> {
    let secure = context.secure;
    // A connection serves another site only if a new connection for the site would use an equal certificate
    // and equal client certificate demands (RFC 9110 §15.5.20).
    if let Some(identity) = context.identity {
        match host.identity.accepts(identity) {
            Acceptance::Accepted => {}
            Acceptance::Outdated => return Some(Step::refuse(Reject::CONNECTION_OUTDATED)),
            Acceptance::Foreign => return Some(Step::refuse(Reject::MISDIRECTED)),
        }
    }
    // A challenge is answered before any redirect: a redirect to https would lead to a certificate that
    // does not exist yet.
    if let Some(answer) = challenge(world, head) {
        return Some(Step::small(SyntheticResponse::challenge(answer)));
    }
    let to_https = !secure && host.http_redirects && world.https_port.is_some();
    // An HTTP/1.0 request may have no Host. Without a canonical name the redirect to https has no target,
    // and a site reserved for https must not be served over plain HTTP.
    if to_https && host.canonical.is_none() && head.host.is_empty() {
        return Some(Step::refuse(Reject::HOST_MISSING));
    }
    if let Some(location) = elsewhere(world, host, head, context) {
        return Some(Step::redirect(Status::PERMANENT_REDIRECT, &location));
    }
    // The configuration check refuses any configuration that leads here. A mistake in the check must not
    // open the site.
    if context.identity.is_none() && host.demands_certificate {
        return Some(Step::refuse(Reject::MISDIRECTED));
    }
    None
}

/// Returns the content of a pending http-01 challenge for the host name of the request (RFC 8555 §8.3).
fn challenge(world: &World, head: &RequestHead<'_>) -> Option<Vec<u8>> {
    let challenges = world.challenges.as_ref()?;
    let token = head.path.strip_prefix(CHALLENGE_PATH)?;
    // A successful response to CONNECT would open a tunnel.
    if head.method == Method::Connect {
        return None;
    }
    challenges.http(head.host, token)
}

/// Returns the Location for a client that uses plain HTTP or a name other than the canonical one; None
/// without a redirect.
///
/// One redirect corrects both the scheme and the name. Under HSTS the first redirect leads to https on the
/// requested name, so that the browser learns the HSTS policy for the requested name too (a demand of the
/// preload lists).
fn elsewhere(
    world: &World,
    host: &Host,
    head: &RequestHead<'_>,
    context: &DispatchContext,
) -> Option<Vec<u8>> {
    let secure = context.secure;
    let to_https = !secure && host.http_redirects && world.https_port.is_some();
    let canonical = host.canonical.as_deref();
    let misnamed = canonical.is_some_and(|name| !head.host.eq_ignore_ascii_case(name))
        && !head.host.is_empty();
    if !to_https && !misnamed {
        return None;
    }
    let same_host_first = to_https && host.hsts;
    let name = match canonical {
        Some(name) if !same_host_first || head.host.is_empty() => name,
        // The requested name belongs to the site, because `find` looked up the host by name.
        _ if !head.host.is_empty() => head.host,
        _ => return None,
    };
    let mut location = Vec::with_capacity(32 + name.len() + head.raw_path.len());
    let https = to_https || secure;
    location.extend_from_slice(if https { b"https://" } else { b"http://" });
    location.extend_from_slice(name);
    let port = match https {
        // A proxy in front ends TLS on a port of its own.
        true if secure && context.identity.is_none() => {
            asked_port(head).filter(|port| *port != 443)
        }
        true => world.https_port.filter(|port| *port != 443),
        false => asked_port(head).filter(|port| *port != 80),
    };
    if let Some(port) = port {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(head.raw_path);
    push_query(&mut location, head);
    Some(location)
}

/// Returns the port of the Host field. A redirect to another name keeps the port.
fn asked_port(head: &RequestHead<'_>) -> Option<u16> {
    let host = head.fields.first("host")?;
    request_target::valid_host(host)?.1
}

/// Appends the query of the request to the target of a redirect.
pub(super) fn push_query(location: &mut Vec<u8>, head: &RequestHead<'_>) {
    if let Some(query) = head.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
}
