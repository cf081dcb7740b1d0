//! Guards of paths: the methods, addresses and users that a route allows.

use crate::serve::dispatch_context::{DispatchContext, RateCheck};
use crate::serve::ruled_request::RuledRequest;
use crate::world::method_set::MethodSet;
use crate::world::path_policy::take_rates;
use crate::world::users::{LoginLookup, UnverifiedLogin, Users};
use crate::world::{Host, PathPolicy, Route, World};
use std::sync::Arc;
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
    /// True if a guard of a checked path admits some clients or users alone.
    pub(super) is_for_few: bool,
    /// Effect of the rules by request, if any.
    pub(super) ruled: Option<Box<RuledRequest<'w>>>,
    /// Policy of the path that passed last.
    passed: Option<&'w PathPolicy>,
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
            is_for_few: host.demands_certificate,
            ruled: None,
            passed: None,
        }
    }

    /// Checks all guards of `path`: first the request rates, then the addresses of every route, then the methods, then
    /// the logins. Last, no other path may lead to a file of a closed route.
    #[inline(always)]
    pub(super) fn pass(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        if self.host.routes.is_guarded() {
            let policy = self.host.policy(path);
            self.pass_policy(policy)?;
            match policy.route().and_then(Route::closed) {
                None => Ok(()),
                Some(status) => Err(AccessDenied::Refuse(Reject::closed(status))),
            }
        } else {
            Ok(())
        }
    }

    /// Checks all guards of the paths with a policy.
    pub(super) fn pass_policy(&mut self, policy: &'w PathPolicy) -> Result<(), AccessDenied> {
        // Most files are opened under the policy of the requested path.
        if self
            .passed
            .is_some_and(|passed| std::ptr::eq(passed, policy))
        {
            return Ok(());
        }
        if self.host.routes.has_request_rules() {
            self.pass_limits(&[policy])?;
        }
        self.pass_addresses(policy)?;
        let methods = |route: &Route| {
            let methods = route.methods.as_ref();
            let refused = methods.filter(|methods| !methods.contains(self.method));
            refused.map(MethodSet::allow_line)
        };
        if let Some(allow) = policy.guards().find_map(methods) {
            self.ruled.get_or_insert_default().refusal_fields = Some(allow);
            return Err(AccessDenied::Refuse(Reject::METHOD_NOT_ALLOWED));
        }
        let method = self.method;
        for route in policy.guards() {
            let Some(users) = &route.users else {
                continue;
            };
            self.hides_login = true;
            if route.guards_method(method) {
                self.log_in(users)?;
            }
        }
        self.passed = Some(policy);
        Ok(())
    }

    /// Returns the largest content of a request for a path without a size of its own.
    pub(super) fn body_bytes_usual(&self) -> u64 {
        self.world.limits.body_bytes
    }

    /// Takes a token of each rate of a path that has not counted the request yet, and applies the largest content. The
    /// policies are those of all readings of the path, the path itself last. The requested path may raise the size above
    /// the limit of the server, and the other paths only lower the size.
    pub(super) fn pass_limits(&mut self, policies: &[&'w PathPolicy]) -> Result<(), AccessDenied> {
        let (client, now_ms) = (self.context.peer.into(), self.context.now_ms);
        let ruled = self.ruled.get_or_insert_default();
        let policy = policies.last();
        if let Some(bytes) = policy.and_then(|policy| policy.body_bytes_apart(self.asked)) {
            let largest = ruled.body_bytes.unwrap_or(self.world.limits.body_bytes);
            ruled.body_bytes = Some(bytes.min(largest));
        }
        let taken = match self.context.rate {
            RateCheck::Counted(counted) => {
                take_rates(policies, client, now_ms, &mut ruled.rates, counted)
                    .map(|()| counted.max(ruled.rates.len()))
            }
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

    /// Checks the addresses of a path. A client of both `allow` and `deny` is refused.
    pub(super) fn pass_addresses(&mut self, policy: &PathPolicy) -> Result<(), AccessDenied> {
        let (peer, method) = (self.context.peer, self.method);
        let mut is_refused = false;
        for route in policy.guards() {
            let guards_method = route.guards_method(method);
            let is_guarded = route.allow.is_some() || route.users.is_some();
            self.is_for_few |= is_guarded && guards_method;
            self.is_guarded |= route.deny.is_some() || (is_guarded && guards_method);
            let is_denied = route.deny.as_ref().is_some_and(|deny| deny.contains(peer));
            let allow = route.allow.as_ref().filter(|_| guards_method);
            is_refused |= is_denied || allow.is_some_and(|allow| !allow.contains(peer));
        }
        if is_refused {
            Err(AccessDenied::Refuse(Reject::ADDRESS_DENIED))
        } else {
            Ok(())
        }
    }
}
