//! Client of a request that a trusted proxy in front of the server forwarded (the key `trust`), by the fields
//! Forwarded, X-Forwarded-For and X-Forwarded-Proto. Without `trust` no request is searched for the fields.

use crate::serve::dispatch_context::{Audience, DispatchContext};
use crate::world::World;
use crate::world::allow_list::AllowList;
use std::net::IpAddr;
use wire::fields::Fields;
use wire::forwarded::{ForwardedClient, Hops};
use wire::ip_endpoint::IpOctets;
use wire::reject::Reject;
use wire::request_head::RequestHead;

impl DispatchContext {
    /// Returns the context with the client of the request in place of a trusted proxy.
    ///
    /// # Errors
    /// The fields of the proxy name two clients.
    #[inline(never)]
    pub(super) fn behind_proxy(
        &self,
        trust: &AllowList,
        head: &RequestHead<'_>,
    ) -> Result<DispatchContext, Reject> {
        let is_direct = self.audience == Audience::Manager || self.forwarded_by.is_some();
        if is_direct || !trust.contains(self.peer) {
            return Ok(*self);
        }
        let client = stated_client(trust, self.peer, head.fields)?;
        Ok(DispatchContext {
            peer: client.address.into(),
            secure: client.proto.map_or(self.secure, is_tls),
            forwarded_by: Some(self.peer),
            ..*self
        })
    }
}

/// Returns the client of a request from `peer`, for the log and the ledgers. A request with contradictory fields
/// is refused, and counts for the proxy.
#[inline]
pub(super) fn client_of(
    world: &World,
    audience: Audience,
    peer: IpAddr,
    head: &RequestHead<'_>,
) -> IpAddr {
    if world.trust.is_empty() || audience == Audience::Manager {
        peer
    } else {
        forwarded_client(&world.trust, peer, head)
    }
}

#[inline(never)]
fn forwarded_client(trust: &AllowList, peer: IpAddr, head: &RequestHead<'_>) -> IpAddr {
    let is_forwarded = trust.contains(peer);
    let client = is_forwarded.then(|| stated_client(trust, peer, head.fields));
    match client {
        Some(Ok(client)) => client.address.into(),
        _ => peer,
    }
}

/// Finds the client that the trusted proxy `proxy` states. Without a list the client is the proxy itself, with the
/// scheme and the host that the proxy states alone.
///
/// A proxy writes one of the two lists, and may pass the other list on as the client sent it. Lists with
/// different clients therefore leave open which list is forged, and the request is refused. Where the lists
/// state different schemes, the client counts as a client without TLS.
///
/// # Errors
/// Forwarded and X-Forwarded-For lead to different clients.
pub(super) fn stated_client<'h>(
    trust: &AllowList,
    proxy: IpAddr,
    fields: Fields<'h>,
) -> Result<ForwardedClient<'h>, Reject> {
    let find = |hops| {
        let is_trusted = |address: IpOctets| trust.contains(address.into());
        ForwardedClient::find(proxy.into(), hops, is_trusted)
    };
    let has = |name| fields.first(name).is_some();
    let x_forwarded = if has("x-forwarded-for") {
        find(Hops::by_x_forwarded(fields))
    } else {
        let (proto, host) = Hops::scheme_and_host(fields);
        ForwardedClient {
            address: proxy.into(),
            port: None,
            proto,
            host,
        }
    };
    if !has("forwarded") {
        return Ok(x_forwarded);
    }
    let forwarded = find(Hops::by_forwarded(fields));
    if has("x-forwarded-for") && forwarded.address != x_forwarded.address {
        return Err(Reject::FORWARDED_CONTRADICTION);
    }
    Ok(ForwardedClient {
        address: forwarded.address,
        port: forwarded.port.or(x_forwarded.port),
        proto: match (forwarded.proto, x_forwarded.proto) {
            (Some(one), Some(other)) if is_tls(one) != is_tls(other) => Some(b"http"),
            (one, other) => one.or(other),
        },
        host: forwarded.host.or(x_forwarded.host),
    })
}

/// Returns true for the name of a scheme with TLS, as proxies state the scheme. Some proxies name the scheme of
/// a WebSocket.
fn is_tls(proto: &[u8]) -> bool {
    proto.eq_ignore_ascii_case(b"https") || proto.eq_ignore_ascii_case(b"wss")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUST: [&str; 2] = ["10.0.0.0/8", "::1"];

    fn client(fields: &str) -> Result<(IpAddr, Option<bool>), Reject> {
        let trust = AllowList::parse(TRUST).expect("networks");
        let fields = fields.replace('|', "\r\n") + "\r\n";
        let found = stated_client(&trust, [10, 0, 0, 1].into(), Fields(fields.as_bytes()))?;
        Ok((found.address.into(), found.proto.map(is_tls)))
    }

    #[test]
    fn the_client_is_the_first_untrusted_address_from_the_right() {
        #[rustfmt::skip]
        let table: &[(&str, &str, Option<bool>)] = &[
            ("Host: a", "10.0.0.1", None),
            ("X-Forwarded-For: 192.0.2.7", "192.0.2.7", None),
            ("X-Forwarded-For: 192.0.2.7, 10.0.0.2", "192.0.2.7", None),
            ("X-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.0.0.2, 10.0.0.3", "192.0.2.7", None),
            ("X-Forwarded-For: 1.1.1.1|X-Forwarded-For: 192.0.2.7", "192.0.2.7", None),
            ("X-Forwarded-For: 10.0.0.9", "10.0.0.9", None),
            ("X-Forwarded-For: 192.0.2.7, nonsense", "10.0.0.1", None),
            ("X-Forwarded-For: 192.0.2.7, unknown, 10.0.0.2", "10.0.0.2", None),
            ("X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: https", "192.0.2.7", Some(true)),
            ("X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: wss", "192.0.2.7", Some(true)),
            ("X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: http", "192.0.2.7", Some(false)),
            ("X-Forwarded-Proto: https", "10.0.0.1", Some(true)),
            ("X-Forwarded-Proto: http, https", "10.0.0.1", Some(true)),
            ("X-Forwarded-Proto: <>", "10.0.0.1", None),
            ("Forwarded: for=192.0.2.7|X-Forwarded-Proto: https", "192.0.2.7", Some(true)),
            ("Forwarded: for=192.0.2.7;proto=https|X-Forwarded-Proto: http", "192.0.2.7", Some(false)),
            ("X-Forwarded-For: nonsense|X-Forwarded-Proto: https", "10.0.0.1", None),
            ("Forwarded: for=1.1.1.1, for=192.0.2.7;proto=https;host=a", "192.0.2.7", Some(true)),
            ("Forwarded: for=\"[2001:db8::7]:99\";proto=http, for=10.0.0.2", "2001:db8::7", Some(false)),
            ("Forwarded: for=192.0.2.7;proto=https|X-Forwarded-For: 192.0.2.7", "192.0.2.7", Some(true)),
            ("Forwarded: for=192.0.2.7|X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: https", "192.0.2.7", Some(true)),
            ("Forwarded: for=192.0.2.7;proto=https|X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: http", "192.0.2.7", Some(false)),
        ];
        for (fields, address, is_tls) in table {
            let address: IpAddr = address.parse().expect("address");
            assert_eq!(client(fields), Ok((address, *is_tls)), "{fields}");
        }
    }

    #[test]
    fn lists_with_different_clients_are_refused() {
        let table = [
            "Forwarded: for=192.0.2.7|X-Forwarded-For: 192.0.2.8",
            "Forwarded: for=unknown|X-Forwarded-For: 192.0.2.8",
            "Forwarded: nonsense|X-Forwarded-For: 192.0.2.8",
            "Forwarded: for=192.0.2.7|X-Forwarded-For: unknown",
        ];
        for fields in table {
            assert_eq!(
                client(fields),
                Err(Reject::FORWARDED_CONTRADICTION),
                "{fields}"
            );
        }
    }
}
