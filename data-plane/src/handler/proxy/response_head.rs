//! Fields of a member's response for the client.

use crate::handler::Request;
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::proxy::settings::ForwardedHost;
use std::cell::Cell;
use wire::cookie::CookieScope;
use wire::fields::Fields;
use wire::h1::response_head::ResponseHead;
use wire::hop_by_hop::{TooManyConnectionOptions, copy_response_fields};
use wire::location::LocationScope;
use wire::reject::Reject;
use wire::response_fields::ResponseFields;

/// Returns the fields of a response without the fields of the connection and the fields that the driver
/// writes. URLs and cookies are rewritten.
pub(super) fn fields(
    head: &ResponseHead<'_>,
    request: &Request,
    route: &ProxyRoute,
    member_host: &[u8],
) -> Result<ResponseFields, Reject> {
    let rewriter = Rewriter {
        request,
        route,
        member_host,
    };
    let replaced = &route.forward.response_fields;
    let is_replaced = |name: &[u8]| {
        let mut names = replaced.iter().map(|(own, _)| own.as_bytes());
        names.any(|own| name.eq_ignore_ascii_case(own))
    };
    let has_rewritten = Cell::new(false);
    let mut out = Vec::with_capacity(head.fields.0.len());
    let copied = copy_response_fields(head.fields, &mut out, |name, value| {
        if name.eq_ignore_ascii_case(b"content-length") || is_replaced(name) {
            return true;
        }
        let is_rewritten = rewriter.rewritten(name, value).is_some();
        has_rewritten.set(has_rewritten.get() || is_rewritten);
        is_rewritten
    });
    copied.map_err(|TooManyConnectionOptions| Reject::UPSTREAM_FIELD_MALFORMED)?;
    let mut fields = ResponseFields::from_lines(out);
    if has_rewritten.get() {
        for (name, value) in head.fields.iter().filter(|(name, _)| !is_replaced(name)) {
            if let Some(rewritten) = rewriter.rewritten(name, value) {
                fields.push(name, &rewritten);
            }
        }
    }
    for (name, value) in replaced.iter().filter(|(_, value)| !value.is_empty()) {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    Ok(fields)
}

/// Rewriting of a member's URLs and cookies for the client of one request.
struct Rewriter<'r> {
    request: &'r Request,
    route: &'r ProxyRoute,
    /// Host of the member's URL.
    member_host: &'r [u8],
}

impl Rewriter<'_> {
    /// Returns the value of a field for the client; None for a field that stays as sent by the member.
    fn rewritten(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"refresh") => {
                self.with_urls(|scope| scope.rewritten_refresh(value))
            }
            8 if name.eq_ignore_ascii_case(b"location") => {
                self.with_urls(|scope| scope.rewritten(value))
            }
            16 if name.eq_ignore_ascii_case(b"content-location") => {
                self.with_urls(|scope| scope.rewritten(value))
            }
            10 if name.eq_ignore_ascii_case(b"set-cookie") => self.cookie(value),
            _ => None,
        }
    }

    /// Returns the path of the route, with a slash at its end, if members get another path.
    fn moved_path(&self) -> Option<(&[u8], Vec<u8>)> {
        let prefix = self.route.forward.prefix.as_deref()?.as_bytes();
        Some((prefix, [&self.route.path, &b"/"[..]].concat()))
    }

    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let (prefix, path) = self.moved_path()?;
        let scope = CookieScope {
            path: Some((prefix, &path)),
            domain: None,
        };
        let mut cookie = Vec::with_capacity(value.len() + path.len());
        scope.push_set_cookie(value, &mut cookie);
        Some(cookie)
    }

    fn with_urls(
        &self,
        rewrite: impl FnOnce(LocationScope<'_>) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let path = self.moved_path();
        let request = self.request;
        let host = Fields(&request.fields).first("host");
        let forwarding = request.forwarding.as_ref();
        let forwarded_host = forwarding.and_then(|forwarding| forwarding.host.as_deref());
        let sent_host = match &self.route.forward.host {
            ForwardedHost::Fixed(host) => host.as_bytes(),
            ForwardedHost::Client | ForwardedHost::Member => self.member_host,
        };
        rewrite(LocationScope {
            client_hosts: [
                host.unwrap_or(&request.host),
                forwarded_host.unwrap_or_default(),
            ],
            member_hosts: [self.member_host, sent_host],
            path: path.as_ref().map(|(prefix, path)| (*prefix, &path[..])),
            is_secure: request.secure,
        })
    }
}
