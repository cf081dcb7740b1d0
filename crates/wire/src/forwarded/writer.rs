//! Lists of hops for the next recipient, in Forwarded (RFC 7239) and in X-Forwarded-For. Both lists are written
//! from one reading of the request, so that a recipient finds one client, whichever list it reads.

use crate::byte_search;
use crate::fields::Fields;
use crate::forwarded::{Hop, HopNode, Hops};
use crate::ip_endpoint::IpOctets;

/// Hop that this server adds to the list for the next recipient.
#[derive(Copy, Clone, Debug)]
pub struct OwnHop<'a> {
    /// Address of the client or proxy that sent the request; `None` for a unix socket.
    pub address: Option<IpOctets>,
    /// Scheme of the request, `http` or `https`.
    pub proto: &'static str,
    /// Valid Host field of the request; empty if absent.
    pub host: &'a [u8],
}

/// Well-formed hops of a request, for both lists.
#[derive(Copy, Clone, Debug)]
pub struct ForwardedLists<'a> {
    fields: Fields<'a>,
    source: Source,
}

/// List of the request from which the hops are taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Source {
    /// The request has no hops.
    None,
    /// Forwarded, the only list.
    Forwarded,
    /// X-Forwarded-For: the only list, or one of two lists with different nodes.
    XForwarded,
    /// Both lists, which have equal nodes.
    Both,
}

impl<'a> ForwardedLists<'a> {
    /// Returns lists without hops, for a request with untrusted fields.
    pub fn empty() -> ForwardedLists<'a> {
        ForwardedLists {
            fields: Fields(b""),
            source: Source::None,
        }
    }

    /// Reads the lists of a trusted proxy. Most proxies write one list, and many of them pass the other list on as
    /// sent by the client. Of two different lists, X-Forwarded-For counts, the list of most proxies.
    pub fn of(fields: Fields<'a>) -> ForwardedLists<'a> {
        let (forwarded, x_forwarded) = (Hops::by_forwarded(fields), Hops::by_x_forwarded(fields));
        let has_hops = |hops: &Hops<'_>| hops.clone().next().is_some();
        let source = match (has_hops(&forwarded), has_hops(&x_forwarded)) {
            (false, false) => Source::None,
            (true, false) => Source::Forwarded,
            (false, true) => Source::XForwarded,
            (true, true) if have_equal_nodes(forwarded, x_forwarded) => Source::Both,
            (true, true) => Source::XForwarded,
        };
        ForwardedLists { fields, source }
    }

    /// Returns true if the request has no hops.
    pub fn is_empty(&self) -> bool {
        self.source == Source::None
    }

    /// Appends a line of Forwarded with the hops of the request and with `own`.
    pub fn push_forwarded(&self, own: &OwnHop<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Forwarded: ");
        match self.source {
            Source::None => {}
            Source::Forwarded | Source::Both => {
                Hops::by_forwarded(self.fields).push_valid(out);
                out.extend_from_slice(b", ");
            }
            Source::XForwarded => {
                for hop in from_first(Hops::by_x_forwarded(self.fields)) {
                    push_element(hop.node, hop.host, hop.proto, out);
                    out.extend_from_slice(b", ");
                }
            }
        }
        let host = (!own.host.is_empty()).then_some(own.host);
        push_element(own.node(), host, Some(own.proto.as_bytes()), out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a line of X-Forwarded-For with the hops of the request and with `own`.
    pub fn push_x_forwarded_for(&self, own: &OwnHop<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"X-Forwarded-For: ");
        match self.source {
            Source::None => {}
            Source::XForwarded | Source::Both => {
                Hops::by_x_forwarded(self.fields).push_valid(out);
                out.extend_from_slice(b", ");
            }
            Source::Forwarded => {
                for hop in from_first(Hops::by_forwarded(self.fields)) {
                    push_node(hop.node, out);
                    out.extend_from_slice(b", ");
                }
            }
        }
        push_node(own.node(), out);
        out.extend_from_slice(b"\r\n");
    }
}

impl OwnHop<'_> {
    fn node(&self) -> HopNode<'static> {
        match self.address {
            Some(address) => HopNode::Address(address, None),
            None => HopNode::Unknown,
        }
    }
}

/// Returns true if two lists name the same clients and proxies, apart from ports.
fn have_equal_nodes(forwarded: Hops<'_>, x_forwarded: Hops<'_>) -> bool {
    fn without_port(hop: Hop<'_>) -> HopNode<'_> {
        match hop.node {
            HopNode::Address(address, _) => HopNode::Address(address, None),
            node => node,
        }
    }
    forwarded
        .map(without_port)
        .eq(x_forwarded.map(without_port))
}

/// Returns the hops from the first to the last.
fn from_first<'a>(hops: Hops<'a>) -> impl Iterator<Item = Hop<'a>> {
    let hops: Vec<Hop<'a>> = hops.collect();
    hops.into_iter().rev()
}

/// Appends a node as in X-Forwarded-For.
fn push_node(node: HopNode<'_>, out: &mut Vec<u8>) {
    match node {
        HopNode::Address(address, _) => address.push(out),
        HopNode::Obfuscated(name) => out.extend_from_slice(name),
        HopNode::Unknown => out.extend_from_slice(b"unknown"),
    }
}

/// Appends an element of Forwarded.
fn push_element(node: HopNode<'_>, host: Option<&[u8]>, proto: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"for=");
    match node {
        HopNode::Address(IpOctets::V6(_), _) => {
            out.extend_from_slice(b"\"[");
            push_node(node, out);
            out.extend_from_slice(b"]\"");
        }
        node => push_node(node, out),
    }
    let pairs: [(&[u8], _); 2] = [(b";host=", host), (b";proto=", proto)];
    for (name, value) in pairs {
        if let Some(value) = value {
            out.extend_from_slice(name);
            push_value(value, out);
        }
    }
}

/// Appends a value, as a quoted string unless a token. Hosts and schemes contain no quotation mark.
fn push_value(value: &[u8], out: &mut Vec<u8>) {
    let is_token = byte_search::token_end(value, 0) == value.len();
    let quote: &[u8] = if is_token { b"" } else { b"\"" };
    for part in [quote, value, quote] {
        out.extend_from_slice(part);
    }
}
