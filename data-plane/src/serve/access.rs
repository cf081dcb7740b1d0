//! Guards of paths: the methods, addresses and users that a route allows.

use crate::serve::dispatch_context::{DispatchContext, RateCheck};
use crate::serve::ruled_request::RuledRequest;
use crate::world::method_set::MethodSet;
use crate::world::request_rules::RequestRules;
use crate::world::users::{LoginLookup, UnverifiedLogin, Users};
use crate::world::{Host, Route, World};
use std::sync::Arc;
use wire::path_readings::PathReadings;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};

/// Check of one request against the guards of one host.
pub(super) struct AccessGate<'w, 'h> {
    pub(super) world: &'w World,
    host: &'w Host,
    context: &'h DispatchContext,
    authorization: Option<&'h [u8]>,
    /// Requested path.
    asked: &'h [u8],
    method: Method,
    /// User that logged in.
    pub(super) user: Option<String>,
    /// True if a guard of a checked path has users, whatever the guarded methods.
    pub(super) hides_login: bool,
    /// True if at least one guard applied to a checked path.
    pub(super) is_guarded: bool,
    /// Effect of the rules by request, if any.
    pub(super) ruled: Option<Box<RuledRequest<'w>>>,
}

/// Result of a check that does not grant access.
pub(super) enum AccessDenied {
    /// The request is refused.
    Refuse(Reject),
    /// A password must be checked on the thread pool before the next check.
    Login(Box<UnverifiedLogin>),
}

impl<'w, 'h> AccessGate<'w, 'h> {
    /// Creates the gate of `host` for the client and the login of `head`.
    #[inline]
    pub(super) fn new(
        world: &'w World,
        host: &'w Host,
        context: &'h DispatchContext,
        head: &'h RequestHead<'h>,
    ) -> AccessGate<'w, 'h> {
        AccessGate {
            world,
            host,
            context,
            authorization: head.known_fields.authorization,
            asked: &head.path,
            method: match head.method {
                // WebSocket over HTTP/2 and HTTP/3; over HTTP/1.1 the method is GET (RFC 8441 §5).
                Method::Connect if head.upgrade.is_some() => Method::Get,
                method => method,
            },
            user: None,
            hides_login: context.hides_login,
            is_guarded: false,
            ruled: None,
        }
    }

    /// Checks all guards of `path`: first the request rates, then the addresses of every route, then the methods, then
    /// the logins.
    #[inline(always)]
    pub(super) fn pass(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        if self.host.guarded {
            self.pass_guards(path)
        } else {
            Ok(())
        }
    }

    fn pass_guards(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        if let Some(rules) = &self.host.request_rules {
            self.pass_limits(rules, path, None)?;
        }
        self.pass_addresses(path)?;
        let methods = |route: &Route| {
            let methods = route.methods.as_ref();
            let refused = methods.filter(|methods| !methods.contains(self.method));
            refused.map(MethodSet::allow_line)
        };
        if let Some(allow) = self.host.guards(path).find_map(methods) {
            self.ruled.get_or_insert_default().refusal_fields = Some(allow);
            return Err(AccessDenied::Refuse(Reject::METHOD_NOT_ALLOWED));
        }
        let method = self.method;
        for route in self.host.guards(path) {
            let Some(users) = &route.users else {
                continue;
            };
            self.hides_login = true;
            if route.guards_method(method) {
                self.log_in(users)?;
            }
        }
        Ok(())
    }

    /// Returns the largest content of a request for a path without a size of its own.
    pub(super) fn body_bytes_usual(&self) -> u64 {
        self.world.limits.body_bytes
    }

    /// Takes a token of each rate of `path` and of its further readings that has not counted the request yet, and applies
    /// the largest content. The requested path may raise the size above the limit of the server, and the other paths only
    /// lower the size.
    pub(super) fn pass_limits(
        &mut self,
        rules: &'w RequestRules,
        path: &[u8],
        readings: Option<&PathReadings>,
    ) -> Result<(), AccessDenied> {
        let (client, now_ms) = (self.context.peer.into(), self.context.now_ms);
        let ruled = self.ruled.get_or_insert_default();
        if let Some(bytes) = rules.body_bytes_apart(path, self.asked) {
            let largest = ruled.body_bytes.unwrap_or(self.world.limits.body_bytes);
            ruled.body_bytes = Some(bytes.min(largest));
        }
        let all: Vec<&[u8]>;
        let paths = match readings {
            None => &[path][..],
            Some(readings) => {
                all = readings.iter().chain([path]).collect();
                &all
            }
        };
        let taken = match self.context.rate {
            RateCheck::Counted(counted) => rules
                .take(paths, client, now_ms, &mut ruled.rates, counted)
                .map(|()| counted.max(ruled.rates.len())),
            RateCheck::Refused { wait_ms } => Err(wait_ms),
        };
        ruled.rate = match taken {
            Ok(counted) => RateCheck::Counted(counted),
            Err(wait_ms) => {
                let line = format!("Retry-After: {}\r\n", wait_ms.div_ceil(1_000));
                ruled.refusal_fields = Some(line.into_bytes());
                RateCheck::Refused { wait_ms }
            }
        };
        match taken {
            Ok(_) => Ok(()),
            Err(_) => Err(AccessDenied::Refuse(Reject::RATE_EXCEEDED)),
        }
    }

    /// Checks the login of the client.
    pub(super) fn log_in(&mut self, users: &Arc<Users>) -> Result<(), AccessDenied> {
        let Some(authorization) = self.authorization else {
            return Err(AccessDenied::Refuse(Reject::LOGIN_NEEDED));
        };
        let (client, now_ms) = (self.context.peer.into(), self.context.now_ms);
        let logins = &self.world.logins;
        match logins.check(users, authorization, client, now_ms) {
            LoginLookup::Known(user) => {
                self.user = Some(user);
                Ok(())
            }
            LoginLookup::Wrong => Err(AccessDenied::Refuse(Reject::LOGIN_WRONG)),
            LoginLookup::TooManyFailed => Err(AccessDenied::Refuse(Reject::LOGINS_FAILED)),
            LoginLookup::Unverified(login) => Err(AccessDenied::Login(Box::new(login))),
        }
    }

    /// Checks the addresses of `path`. A client of both `allow` and `deny` is refused.
    pub(super) fn pass_addresses(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        let (peer, method) = (self.context.peer, self.method);
        let by_client = |route: &Route| {
            let is_guarded = route.allow.is_some() || route.users.is_some();
            route.deny.is_some() || (is_guarded && route.guards_method(method))
        };
        self.is_guarded |= self.host.guards(path).any(by_client);
        let denies = |route: &Route| {
            let is_denied = route.deny.as_ref().is_some_and(|deny| deny.contains(peer));
            let allow = route.allow.as_ref().filter(|_| route.guards_method(method));
            is_denied || allow.is_some_and(|allow| !allow.contains(peer))
        };
        if self.host.guards(path).any(denies) {
            Err(AccessDenied::Refuse(Reject::ADDRESS_DENIED))
        } else {
            Ok(())
        }
    }
}
