//! Keys about the connections to members, shared by `[[balancer]]` and `proxy` of a route.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::limits::{CONFIG_DURATION_SECONDS_MAX, CONFIG_MEMBER_CONNECTIONS_MAX};
use crate::config::page_key::PageKey;
use crate::config::proxy_values::CertificateName;
use crate::config::toml_reader::SourceText;
use balancer::settings::{
    ConnectionSettings, MemberHost, MemberSettings, MemberTlsSettings, ProxyHeaderVersion,
};

/// Shortest duration of a proxy or balancer.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);
/// Longest duration of a proxy or balancer.
pub(super) const LONGEST: Duration = Duration::from_secs(CONFIG_DURATION_SECONDS_MAX);

declare_table! {
    /// Keys about the connections to members.
    pub(super) struct ConnectionKeys: "connections to members" {
        /// Longest time to establish a connection, with TLS.
        connect_timeout: Duration = default(usual().connect_timeout), within(SHORTEST, LONGEST),
            also ["proxy_connect_timeout", "dial_timeout", "connection_timeout"], example "\"2s\"";
        /// Longest time from the end of the request to the first byte of the response; then the client gets
        /// 504.
        first_byte_timeout: Duration = default(usual().first_byte_timeout), within(SHORTEST, LONGEST),
            also ["response_header_timeout", "timeout"], example "\"5m\"";
        /// Longest time without a byte within a response; then the response is broken off. Event streams
        /// need a longer time than their longest pause. Tunnels have no such bound.
        silence_timeout: Duration = default(usual().silence_timeout), within(SHORTEST, LONGEST),
            example "\"10m\"";
        /// Number of idle connections kept open to one member.
        idle: usize = default(usual().idle_max), within(0, CONFIG_MEMBER_CONNECTIONS_MAX),
            also ["keepalive"], example "32";
        /// Longest time that a connection stays idle. A shorter time than the member's own avoids requests on
        /// connections that the member is about to close.
        idle_timeout: Duration = default(usual().idle_timeout), within(SHORTEST, LONGEST),
            also ["keepalive_timeout"], example "\"20s\"";
        /// Number of simultaneous requests to one member. Further requests wait in the queue.
        connections: usize = optional("no bound"), within(1, CONFIG_MEMBER_CONNECTIONS_MAX),
            also ["max_conns", "maxconn"], example "64";
        /// Number of tunnels (WebSocket) and event streams among the simultaneous requests to one member. Further ones
        /// wait in the queue. Only with `connections`, and at most as many.
        tunnels: usize = optional("half of `connections`"), within(1, CONFIG_MEMBER_CONNECTIONS_MAX),
            example "16";
        /// Number of waiting requests for each member with `connections`; further requests get 503. Only with
        /// `connections`.
        queue: usize = default(usual().queue), within(0, CONFIG_MEMBER_CONNECTIONS_MAX),
            also ["maxqueue"], example "100";
        /// Longest wait in the queue, or for a member on a Unix socket with a full queue; then the client gets
        /// 503. Only with `connections` or a Unix socket.
        queue_timeout: Duration = default(usual().queue_timeout), within(SHORTEST, LONGEST),
            example "\"3s\"";
        /// PEM file with the authorities that sign the certificates of `https` members.
        ca: PathBuf = optional("the authorities of the system"),
            also ["proxy_ssl_trusted_certificate", "ca_file", "ca-file"], example "\"members-ca.pem\"";
        /// Name in the certificates of `https` members, also sent as server name (SNI).
        server_name: CertificateName = optional("the host of the URL"),
            also ["proxy_ssl_name", "sni"], example "\"app.example.org\"";
        /// PEM file with the certificate chain for members that require a client certificate, and with the
        /// key unless `client_key` is set.
        client_certificate: PathBuf = optional("none"),
            also ["proxy_ssl_certificate", "crt"], example "\"client.pem\"";
        /// PEM file with the key of the client certificate.
        client_key: PathBuf = optional("in `client_certificate`"),
            also ["proxy_ssl_certificate_key"], example "\"client-key.pem\"";
        /// Local address of the connections, for a machine in several networks. Of a member's name, only
        /// addresses of the same family count.
        from: IpAddr = optional("chosen by the system"),
            also ["proxy_bind", "source", "bind"], example "\"192.0.2.1\"";
        /// PROXY protocol header at the start of each connection, which then serves a single client.
        send_proxy_header: ProxyHeaderVersion = optional("none"),
            also ["proxy_protocol", "send-proxy", "send_proxy"], example "\"v2\"";
        /// HTTP/2 to the members, for gRPC: by ALPN with `https`, with prior knowledge with `http`.
        http2: bool = default(usual().is_http2), also ["h2c", "h2"], example "true";
    }
}

fn usual() -> ConnectionSettings {
    ConnectionSettings::default()
}

/// Adds every setting of a connection by which a server may choose a page to the key of pages. Durations and numbers of
/// connections change no page.
pub(super) fn add_connection(key: &mut PageKey, connection: &ConnectionSettings) {
    let ConnectionSettings {
        connect_timeout: _,
        first_byte_timeout: _,
        silence_timeout: _,
        idle_max: _,
        idle_timeout: _,
        queue: _,
        queue_timeout: _,
        tunnels: _,
        tls,
        from,
        send_proxy_header,
        is_http2,
    } = connection;
    let MemberTlsSettings {
        authorities,
        server_name,
        client_certificate,
    } = tls;
    key.option(authorities.as_ref(), |key, file| key.path(file));
    key.option(server_name.as_ref(), |key, name| key.text(name));
    key.option(client_certificate.as_ref(), |key, (certificate, own)| {
        key.path(certificate);
        key.path(own);
    });
    key.option(*from, |key, from| key.text(&from.to_string()));
    key.option(*send_proxy_header, |key, version| {
        key.number(match version {
            ProxyHeaderVersion::V1 => 1,
            ProxyHeaderVersion::V2 => 2,
        });
    });
    key.number((*is_http2).into());
}

impl ConnectionKeys {
    /// Returns the settings of the connections to `members`. Fails if a key has no effect or contradicts a
    /// member.
    pub(super) fn settings(
        &self,
        source: &SourceText<'_>,
        members: &[MemberSettings],
    ) -> Result<ConnectionSettings, OperatorError> {
        self.refuse_useless_queue(source, members)?;
        self.refuse_useless_tls(source, members)?;
        self.refuse_other_family(source, members)?;
        let path = |file: &Option<Spanned<PathBuf>>| file.as_ref().map(|it| it.get_ref().clone());
        let certificate = path(&self.client_certificate).map(|certificate| {
            let key = path(&self.client_key).unwrap_or_else(|| certificate.clone());
            (certificate, key)
        });
        let server_name = self.server_name.as_ref();
        Ok(ConnectionSettings {
            connect_timeout: *self.connect_timeout.get_ref(),
            first_byte_timeout: *self.first_byte_timeout.get_ref(),
            silence_timeout: *self.silence_timeout.get_ref(),
            idle_max: *self.idle.get_ref(),
            idle_timeout: *self.idle_timeout.get_ref(),
            queue: *self.queue.get_ref(),
            queue_timeout: *self.queue_timeout.get_ref(),
            tunnels: self.tunnels.as_ref().map(|tunnels| *tunnels.get_ref()),
            tls: MemberTlsSettings {
                authorities: path(&self.ca),
                server_name: server_name.map(|name| name.get_ref().0.clone()),
                client_certificate: certificate,
            },
            from: self.from.as_ref().map(|from| *from.get_ref()),
            send_proxy_header: self.send_proxy_header.as_ref().map(|it| *it.get_ref()),
            is_http2: *self.http2.get_ref(),
        })
    }

    /// Refuses keys about the queue and tunnels if no member has a bound of simultaneous requests, and more tunnels than
    /// requests. A Unix socket has a queue of its own in the kernel. A connection waits there for `queue_timeout` at most.
    fn refuse_useless_queue(
        &self,
        source: &SourceText<'_>,
        members: &[MemberSettings],
    ) -> Result<(), OperatorError> {
        let tunnels = self.tunnels.as_ref();
        let keys = [
            ("queue", self.queue.span()),
            ("queue_timeout", self.queue_timeout.span()),
            ("tunnels", tunnels.map_or(0..0, Spanned::span)),
        ];
        let is_bounded = members.iter().any(|it| it.connections_max.is_some());
        let most = members.iter().filter_map(|it| it.connections_max).max();
        if let (Some(tunnels), Some(most)) = (tunnels, most)
            && *tunnels.get_ref() > most
        {
            let what = format!("`tunnels` is more than `connections` ({most})");
            let help = "write fewer tunnels: they are among the simultaneous requests";
            return Err(source.error(tunnels.span(), what, help));
        }
        let has_backlog = |member: &MemberSettings| matches!(member.url.host, MemberHost::Unix(_));
        let times_backlog = |key: &str| key == "queue_timeout" && members.iter().any(has_backlog);
        let mut keys = keys
            .into_iter()
            .filter(|(key, span)| !span.is_empty() && !times_backlog(key));
        match keys.next() {
            Some((key, span)) if !is_bounded => {
                let what = match key {
                    "queue_timeout" => {
                        "`queue_timeout` has no effect without `connections` or a Unix socket"
                            .to_owned()
                    }
                    _ => format!("`{key}` has no effect without `connections`"),
                };
                let help = format!(
                    "add connections = 64, the number of simultaneous requests to one member, or \
                     remove `{key}`"
                );
                Err(source.error(span, what, help))
            }
            _ => Ok(()),
        }
    }

    /// Refuses keys about TLS for members without TLS, and a key without its certificate.
    fn refuse_useless_tls(
        &self,
        source: &SourceText<'_>,
        members: &[MemberSettings],
    ) -> Result<(), OperatorError> {
        if let (None, Some(key)) = (&self.client_certificate, &self.client_key) {
            let what = "`client_key` has no effect without `client_certificate`";
            let help = "add client_certificate = \"…\", the chain for the key";
            return Err(source.error(key.span(), what, help));
        }
        let span = |file: &Option<Spanned<PathBuf>>| file.as_ref().map(Spanned::span);
        let keys = [
            ("ca", span(&self.ca)),
            ("server_name", self.server_name.as_ref().map(Spanned::span)),
            ("client_certificate", span(&self.client_certificate)),
        ];
        let mut keys = keys
            .into_iter()
            .filter_map(|(key, span)| Some((key, span?)));
        match keys.next() {
            Some((key, span)) if !members.iter().any(|member| member.url.is_tls) => {
                let what = format!("`{key}` has no effect: no member has a URL with https://");
                let help = "write https:// in the URL, or remove the key";
                Err(source.error(span, what, help))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a local address that cannot reach a member: IPv4 to IPv6, IPv6 to IPv4, or an IP address to a
    /// Unix socket.
    fn refuse_other_family(
        &self,
        source: &SourceText<'_>,
        members: &[MemberSettings],
    ) -> Result<(), OperatorError> {
        let Some(from) = &self.from else {
            return Ok(());
        };
        let reaches = |member: &MemberSettings| match &member.url.host {
            MemberHost::Address(to) => to.is_ipv4() == from.get_ref().is_ipv4(),
            MemberHost::Name(..) => true,
            MemberHost::Unix(_) => false,
        };
        match members.iter().find(|member| !reaches(member)) {
            None => Ok(()),
            Some(member) => {
                let url = crate::config::member_url::shown_url(&member.url);
                let what = format!("no connection leads from {} to {url}", from.get_ref());
                let help = match &member.url.host {
                    MemberHost::Unix(_) => "remove `from`: a Unix socket has no addresses",
                    _ => {
                        "write an address of the same kind as the members' addresses, or remove `from`"
                    }
                };
                Err(source.error(from.span(), what, help))
            }
        }
    }
}
