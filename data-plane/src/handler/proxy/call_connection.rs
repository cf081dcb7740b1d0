//! Connection of a call to the chosen member, kept or new, and the start of the attempt.

use crate::handler::Request;
use crate::handler::proxy::attempt::Attempt;
use crate::handler::proxy::call::{CallState, ProxyCall};
use crate::handler::proxy::failure::{AttemptFailure, FailureStage, is_idempotent};
use crate::handler::proxy::h2_attempt::H2Attempt;
use crate::handler::proxy::{failure, place, request_head};
use crate::ledger::body_memory::BodyReservation;
use crate::limits::H2_MEMBER_SHARED_HEAD_BYTES_MAX;
use crate::upstream::Lease;
use crate::upstream::{
    ConnUser, ConnectFault, H2ConnNeeds, H2Connecting, H2MemberConn, MemberConn, MemberConnecting,
    MemberPool,
};
use balancer::settings::ProxyHeaderVersion;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use wire::ip_endpoint::{IpEndpoint, IpOctets};
use wire::proxy_protocol::{ProxyHeader, push_v1, push_v2};
use wire::reject::Reject;

impl ProxyCall {
    /// Takes an idle connection to the member, or starts a new one.
    pub(super) fn connect(&mut self, lease: Lease) -> Result<CallState, AttemptFailure> {
        self.log_repeated();
        self.request.active.set_member(lease.member().name());
        let pool = lease.member().pool();
        self.lease = Some(lease);
        self.stays = false;
        self.timer = None;
        let Some(pool) = pool else {
            return Err(AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE));
        };
        self.tries += 1;
        self.connecting_since = None;
        let is_http2 = pool.settings.is_http2;
        let mut window = BodyReservation::new(&self.request.memory);
        let idle = if self.needs_new_connection || is_http2 {
            None
        } else {
            pool.take_idle(|width| place::reserve_window(&mut window, width))
        };
        if let Some(conn) = idle {
            return self.attempt(conn, window);
        }
        self.connecting_since = Some(Instant::now());
        let version = pool.settings.send_proxy_header;
        let first = version.map(|version| proxy_header(version, &self.request));
        let first = first.unwrap_or_default();
        let user = ConnUser {
            client: self.request.peer.into(),
            waited: self.shortage.waited(Instant::now()),
        };
        if is_http2 {
            let needs = self.h2_needs();
            let connecting = H2Connecting::new(pool, first, self.h2_since, needs, user);
            return Ok(CallState::ConnectingH2(connecting));
        }
        let timeout = pool.settings.connect_timeout;
        let connecting = MemberConnecting::new(pool, timeout, first);
        Ok(CallState::Connecting(connecting.for_request(user)))
    }

    /// Returns the properties of the request that decide about its connection of HTTP/2.
    fn h2_needs(&self) -> H2ConnNeeds {
        let head_bytes = request_head::h2_bytes(&self.request, &self.route);
        let is_long = head_bytes > H2_MEMBER_SHARED_HEAD_BYTES_MAX;
        H2ConnNeeds {
            is_cautious: !is_idempotent(self.request.method),
            // Servers such as nginx 1.22 end the connection at the trailers of a request.
            is_exclusive: is_long || request_head::announces_trailers(&self.request),
            upload: self.body.upload_length(),
        }
    }

    /// Ends the wait for a connection. Returns the member's pool, and the time of a new connection.
    fn end_connecting(&mut self) -> Result<(Arc<MemberPool>, Option<Duration>), AttemptFailure> {
        self.timer = None;
        let pool = self.lease.as_ref().and_then(|lease| lease.member().pool());
        let pool = pool.ok_or(AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE))?;
        let connect_time = self.connecting_since.map(|since| since.elapsed());
        Ok((pool, connect_time))
    }

    /// Begins an attempt on a connection. `window` holds the memory for its window.
    fn attempt(
        &mut self,
        conn: MemberConn,
        window: BodyReservation,
    ) -> Result<CallState, AttemptFailure> {
        let (pool, connect_time) = self.end_connecting()?;
        let attempt = Attempt::new(
            (conn, window),
            pool,
            connect_time,
            &self.request,
            &self.route,
            &mut self.body,
        )?;
        Ok(CallState::Attempting(Box::new(attempt)))
    }

    /// Begins an attempt on a connection of HTTP/2.
    fn attempt_h2(&mut self, conn: &H2MemberConn) -> Result<CallState, AttemptFailure> {
        let (pool, connect_time) = self.end_connecting()?;
        if self.request.upgrade.is_some() {
            // The members changed to HTTP/2 by a reload since the request began.
            return Err(AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE));
        }
        let attempt = H2Attempt::new(
            conn,
            pool,
            connect_time,
            &self.request,
            &self.route,
            &mut self.body,
        )?;
        Ok(CallState::AttemptingH2(Box::new(attempt)))
    }

    /// Waits for a new connection, and begins the attempt.
    pub(super) fn poll_connected(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::Connecting(connecting) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Choosing));
        };
        let connected = connecting.poll(cx);
        if connected.is_pending() {
            return self.poll_connect_timeout(cx).map(Err);
        }
        let mut window = BodyReservation::new(&self.request.memory);
        let mut conn = match ready!(connected) {
            Ok(conn) => conn,
            Err(error) => self.instead_of_new_connection(error, &mut window)?,
        };
        if conn.has_unasked_bytes() {
            return Poll::Ready(Err(AttemptFailure::unasked_bytes()));
        }
        Poll::Ready(self.attempt(conn, window))
    }

    /// Returns a connection that has answered a moment ago, if no local port is left for a new connection.
    /// Otherwise classifies the failure of the connection attempt.
    fn instead_of_new_connection(
        &mut self,
        error: io::Error,
        window: &mut BodyReservation,
    ) -> Result<MemberConn, AttemptFailure> {
        let failure = self.connect_failure(error);
        if failure.stage == FailureStage::Shortage(ConnectFault::LocalPorts)
            && let Some(pool) = self.lease.as_ref().and_then(|lease| lease.member().pool())
            && let Some(conn) =
                pool.take_fresh(Instant::now(), |width| place::reserve_window(window, width))
        {
            return Ok(conn);
        }
        Err(failure)
    }

    /// Classifies the failure of a connection attempt, and logs a shortage of this machine.
    fn connect_failure(&self, error: io::Error) -> AttemptFailure {
        let pool = self.lease.as_ref().and_then(|lease| lease.member().pool());
        let is_unix = pool.is_some_and(|pool| pool.address.is_unix());
        let fault = ConnectFault::of(&error, is_unix);
        if fault.is_of_member() {
            return AttemptFailure::connect(error);
        }
        place::log_shortage(self.route.balancer.name(), fault);
        AttemptFailure::shortage(fault, error)
    }

    /// Returns true if the request may wait until a member has room for a connection.
    pub(super) fn may_await_room(&self) -> bool {
        let queue_timeout = self.route.balancer.settings().connection.queue_timeout;
        self.shortage.may_go_on(Instant::now(), queue_timeout)
    }

    /// Ready after the pause before the next attempt at the members without room.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<CallState> {
        ready!(self.shortage.poll_pause(cx));
        let short = self.shortage.take_members();
        self.tried.retain(|member| !short.contains(member));
        Poll::Ready(CallState::Choosing)
    }

    /// Waits for a connection of HTTP/2, and begins the attempt.
    pub(super) fn poll_connected_h2(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::ConnectingH2(connecting) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Choosing));
        };
        let connected = connecting.poll(cx);
        if !connecting.has_waited() {
            self.connecting_since = None;
        }
        if connected.is_pending() {
            return self.poll_connect_timeout(cx).map(Err);
        }
        let conn = ready!(connected).map_err(|error| self.connect_failure(error))?;
        Poll::Ready(self.attempt_h2(&conn))
    }

    /// Ready with a failure if the connection takes too long, or the member went down.
    fn poll_connect_timeout(&mut self, cx: &mut Context<'_>) -> Poll<AttemptFailure> {
        if self.poll_member_down(cx) {
            let gone = io::Error::other(failure::MEMBER_DOWN);
            return Poll::Ready(AttemptFailure::connect(gone));
        }
        let settings = self.lease.as_ref().and_then(|lease| lease.member().pool());
        let timeout = settings.map_or(Duration::ZERO, |pool| pool.settings.connect_timeout);
        ready!(self.poll_timer(cx, timeout));
        let why = failure::timeout_cause("connect_timeout", timeout);
        let slow = AttemptFailure::new(FailureStage::Connect, Reject::UPSTREAM_CONNECT_SLOW);
        Poll::Ready(slow.because(why))
    }
}

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
