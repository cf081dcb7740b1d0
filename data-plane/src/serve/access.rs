//! Guards of paths: the methods, addresses and users that a route allows.

use crate::handler::proxy::forward_auth::{
    AuthAnswer, AuthDenial, AuthQuestion, AuthVerdict, ForwardAuth, auth_fields, auth_uri,
};
use crate::serve::auth_answers::AuthAnswers;
use crate::serve::dispatch_context::{DispatchContext, RateCheck};
use crate::serve::forwarding::stated_client;
use crate::serve::ruled_request::RuledRequest;
use crate::serve::step::Step;
use crate::world::method_set::MethodSet;
use crate::world::path_policy::take_rates;
use crate::world::users::{LoginLookup, UnverifiedLogin, Users};
use crate::world::{Host, PathPolicy, Route, World};
use std::rc::Rc;
use std::sync::Arc;
use wire::effective_host;
use wire::identity_fields::without_identity;
use wire::path_readings::{self, Slashes, page_path, sent_path};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::request_target::encode_path;

/// Check of one request against the guards of one host.
pub(super) struct AccessGate<'w, 'h> {
    pub(super) world: &'w World,
    host: &'w Host,
    context: &'h DispatchContext,
    authorization: Option<&'h [u8]>,
    head: &'h RequestHead<'h>,
    /// Answers of servers for forward authentication so far.
    answers: Option<&'h AuthAnswers>,
    /// True while the checked paths are those of another resource, to which the query of the request does not belong.
    pub(super) is_named: bool,
    /// Answers that let the request pass: the first of each server.
    granted: Vec<&'h Rc<AuthAnswer>>,
    /// True if the client logged in with a password.
    has_password: bool,
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
    /// A server for forward authentication must be asked before the next check.
    Auth(Box<AuthQuestion>),
    /// The client gets the answer of a server for forward authentication.
    Answered(Box<AuthDenial>),
}

impl<'w, 'h> AccessGate<'w, 'h> {
    /// Creates the gate of `host` for the client and the login of `head`.
    #[inline]
    pub(super) fn new(
        world: &'w World,
        host: &'w Host,
        context: &'h DispatchContext,
        head: &'h RequestHead<'h>,
        answers: Option<&'h AuthAnswers>,
    ) -> AccessGate<'w, 'h> {
        AccessGate {
            world,
            host,
            context,
            authorization: head.known_fields.authorization,
            head,
            answers,
            is_named: false,
            granted: Vec::new(),
            has_password: false,
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
    /// the logins, then the servers for forward authentication. Last, no other path may lead to a file of a closed route.
    #[inline(always)]
    pub(super) fn pass(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        if self.host.routes.is_guarded() {
            let policy = self.host.policy(path);
            self.pass_policy(policy)?;
            self.pass_servers(policy, path)?;
            match policy.route().and_then(Route::closed) {
                None => Ok(()),
                Some(status) => Err(AccessDenied::Refuse(Reject::closed(status))),
            }
        } else {
            Ok(())
        }
    }

    /// Checks all guards of the paths with a policy, except the servers for forward authentication. Their rules are for
    /// single paths.
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
            if route.guards_method(method) && !route.admits_without_login(self.context.peer) {
                self.log_in(users)?;
            }
        }
        self.passed = Some(policy);
        Ok(())
    }

    /// Asks the servers for forward authentication of a policy about `path`. The servers have rules of their own for paths,
    /// so each path under one policy is a question of its own.
    #[inline(always)]
    pub(super) fn pass_servers(
        &mut self,
        policy: &'w PathPolicy,
        path: &[u8],
    ) -> Result<(), AccessDenied> {
        if policy.asks_servers() {
            let mut encoded = Vec::with_capacity(path.len());
            encode_path(path, &mut encoded);
            self.ask_servers(policy, &encoded)
        } else {
            Ok(())
        }
    }

    /// Asks the servers about a path with encoded slashes, in the text that the application gets: an encoded slash may be a
    /// part of a name. Letters are decoded, dot segments are resolved, and doubled slashes are merged and kept.
    #[inline(never)]
    pub(super) fn pass_encoded_slashes(
        &mut self,
        policy: &'w PathPolicy,
        raw_path: &[u8],
    ) -> Result<(), AccessDenied> {
        if !policy.asks_servers() || !path_readings::has_encoded_slash(raw_path) {
            return Ok(());
        }
        self.ask_servers(policy, &page_path(&sent_path(raw_path, Slashes::Merge)))?;
        self.ask_servers(policy, &page_path(raw_path))
    }

    #[inline(never)]
    fn ask_servers(&mut self, policy: &'w PathPolicy, encoded: &[u8]) -> Result<(), AccessDenied> {
        for (route, auth) in policy.auths() {
            if route.guards_method(self.method) && !route.admits_without_login(self.context.peer) {
                self.ask(auth, encoded)?;
            }
        }
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
                self.has_password = true;
                Ok(())
            }
            LoginLookup::Wrong => Err(AccessDenied::Refuse(Reject::LOGIN_WRONG)),
            LoginLookup::TooManyFailed => Err(AccessDenied::Refuse(Reject::LOGINS_FAILED)),
            LoginLookup::Unverified(login) => Err(AccessDenied::Login(Box::new(login))),
        }
    }

    /// Applies the answer of a server for forward authentication. Each server is asked once about each path, which is
    /// percent-encoded. The first answer of a server names the user.
    fn ask(&mut self, auth: &Arc<ForwardAuth>, path: &[u8]) -> Result<(), AccessDenied> {
        self.is_guarded = true;
        self.is_for_few = true;
        let uri = auth_uri(path, self.head.query.filter(|_| !self.is_named));
        let Some(answer) = self.answers.and_then(|all| all.find(auth, &uri)) else {
            return Err(AccessDenied::Auth(Box::new(self.question(auth, uri))));
        };
        match &answer.verdict {
            AuthVerdict::Failed(reject) => Err(AccessDenied::Refuse(*reject)),
            AuthVerdict::Denied(denial) => Err(AccessDenied::Answered(Box::new(denial.clone()))),
            AuthVerdict::Passed(grant) => {
                if !self.granted.iter().any(|known| known.is_of(auth)) {
                    self.granted.push(answer);
                    if !self.has_password && grant.user.is_some() {
                        self.user.clone_from(&grant.user);
                    }
                }
                Ok(())
            }
        }
    }

    fn question(&self, auth: &Arc<ForwardAuth>, uri: Vec<u8>) -> AuthQuestion {
        let (world, context, head) = (self.world, self.context, self.head);
        let stated = context
            .forwarded_by
            .and_then(|proxy| stated_client(&world.trust, proxy, head.fields).ok()?.host);
        AuthQuestion {
            auth: Arc::clone(auth),
            uri,
            method: self.method,
            host: stated.unwrap_or_else(|| effective_host(head)).to_vec(),
            fields: auth_fields(head.fields),
            peer: context.peer,
            secure: context.secure,
            hides_login: self.hides_login,
        }
    }

    /// Returns the field lines about the user for the application. A field of a later server replaces the field of an
    /// earlier one.
    pub(super) fn identity(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for answer in &self.granted {
            if let AuthVerdict::Passed(grant) = &answer.verdict {
                if !lines.is_empty() {
                    lines = without_identity(&lines, answer.copied());
                }
                lines.extend_from_slice(&grant.identity);
            }
        }
        lines
    }

    /// Returns true if the name of the user does not tell the pages of two users apart: no server named the user, or several
    /// logins name users.
    pub(super) fn has_unclear_user(&self) -> bool {
        let has_auth = !self.granted.is_empty();
        has_auth && (self.user.is_none() || self.has_password || self.granted.len() > 1)
    }

    /// Returns true if a server for forward authentication let the request pass.
    #[inline]
    pub(super) fn is_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Adds the cookies of the servers to the response of `step`, and keeps stored pages from shared caches. The handler of
    /// a call changes the Cache-Control of its own response.
    #[inline]
    pub(super) fn add_fields_of_servers(&mut self, step: &Step) {
        if self.is_granted() && !matches!(step, Step::Wait(_)) {
            self.add_fields(matches!(step, Step::Call(_)));
        }
    }

    #[inline(never)]
    fn add_fields(&mut self, is_call: bool) {
        let mut lines = Vec::new();
        for answer in &self.granted {
            if let AuthVerdict::Passed(grant) = &answer.verdict
                && !self
                    .answers
                    .is_some_and(|all| all.has_earlier_cookies(answer))
            {
                lines.extend_from_slice(&grant.cookies);
            }
        }
        if !is_call {
            lines.extend_from_slice(b"Cache-Control: private\r\n");
        }
        let rate = self.context.rate;
        let ruled = self.ruled.get_or_insert_with(|| {
            Box::new(RuledRequest {
                rate,
                ..RuledRequest::default()
            })
        });
        if !lines.is_empty() {
            let fields = ruled.secure_fields.unwrap_or(&self.host.secure_fields);
            ruled.own_fields = Some(Arc::new(fields.with_plain(&lines)));
        }
        ruled.own_lines = lines;
        ruled.answers = self.answers.cloned();
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
            // A login stands for the address in a route with `any`.
            let allow = allow.filter(|_| !route.any);
            is_refused |= is_denied || allow.is_some_and(|allow| !allow.contains(peer));
        }
        if is_refused {
            Err(AccessDenied::Refuse(Reject::ADDRESS_DENIED))
        } else {
            Ok(())
        }
    }
}
