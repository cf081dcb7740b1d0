//! Guards of paths: the addresses that a route allows, and the users of a route.

use crate::serve::dispatch_context::DispatchContext;
use crate::wire::reject::Reject;
use crate::wire::request_head::RequestHead;
use crate::world::users::{LoginLookup, UnverifiedLogin, Users};
use crate::world::{Host, Route, World};
use std::sync::Arc;

/// Check of one request against the guards of one host.
pub(super) struct AccessGate<'w, 'h> {
    world: &'w World,
    host: &'w Host,
    facts: &'h DispatchContext,
    authorization: Option<&'h [u8]>,
    /// User that logged in.
    pub(super) user: Option<String>,
    /// True if at least one guard applied to a checked path.
    pub(super) is_guarded: bool,
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
        facts: &'h DispatchContext,
        head: &'h RequestHead<'h>,
    ) -> AccessGate<'w, 'h> {
        AccessGate {
            world,
            host,
            facts,
            authorization: head.known_fields.authorization,
            user: None,
            is_guarded: false,
        }
    }

    /// Checks all guards of `path`: first the addresses of every route, then the logins.
    #[inline(always)]
    pub(super) fn pass(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        match self.host.guarded {
            true => self.pass_guards(path),
            false => Ok(()),
        }
    }

    fn pass_guards(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        self.is_guarded |= self.host.guards(path).next().is_some();
        let denies = |route: &Route| {
            let allow = route.allow.as_ref();
            allow.is_some_and(|allow| !allow.contains(self.facts.peer))
        };
        if self.host.guards(path).any(denies) {
            return Err(AccessDenied::Refuse(Reject::ADDRESS_DENIED));
        }
        let routes = self.host.guards(path);
        for users in routes.filter_map(|route| route.users.as_ref()) {
            self.log_in(users)?;
        }
        Ok(())
    }

    /// Checks the login of the client.
    pub(super) fn log_in(&mut self, users: &Arc<Users>) -> Result<(), AccessDenied> {
        let Some(authorization) = self.authorization else {
            return Err(AccessDenied::Refuse(Reject::LOGIN_NEEDED));
        };
        let (client, now_ms) = (self.facts.peer.into(), self.facts.now_ms);
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
}
