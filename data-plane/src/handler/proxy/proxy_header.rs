//! PROXY header at the start of a connection to a member (`send_proxy_header`), with the addresses of the
//! client's connection.

use crate::handler::Request;
use crate::upstream::settings::ProxyHeaderVersion;
use wire::ip_endpoint::{IpEndpoint, IpOctets};
use wire::proxy_protocol::{ProxyHeader, push_v1, push_v2};

/// Returns the header for the client of `request`. Port 0 and the address with only zero bits stand for an
/// unknown port and an unknown address of the server.
pub(super) fn proxy_header(version: ProxyHeaderVersion, request: &Request) -> Vec<u8> {
    let source = IpEndpoint {
        address: request.peer.into(),
        port: request.ends.client_port.unwrap_or(0),
    };
    let unknown = match source.address {
        IpOctets::V4(_) => IpOctets::V4([0; 4]),
        IpOctets::V6(_) => IpOctets::V6([0; 16]),
    };
    let header = ProxyHeader::Relayed {
        source,
        destination: IpEndpoint {
            address: request.ends.server.map_or(unknown, IpOctets::from),
            port: request.ends.server_port.unwrap_or(0),
        },
    };
    let mut out = Vec::new();
    match version {
        ProxyHeaderVersion::V1 => push_v1(&header, &mut out),
        ProxyHeaderVersion::V2 => push_v2(&header, &mut out),
    }
    out
}
