//! Clients for TLS to the members of balancers.

use crate::config::{BalancerConfig, Config, OperatorError, Spanned};
use balancer::settings::{MemberHost, MemberUrl};
use data_plane::tls::{TlsClient, TlsClientSettings, TlsEndpoint, TlsError, TlsPart};
use data_plane::world::World;
use std::cell::RefCell;
use std::sync::Arc;

/// Clients of a World under construction, each once. A client of the previous World is reused if its settings
/// and the content of its files are unchanged.
pub(super) struct MemberTlsClients<'b> {
    config: &'b Config,
    previous: &'b [Arc<TlsClient>],
    clients: RefCell<Vec<Arc<TlsClient>>>,
}

impl<'b> MemberTlsClients<'b> {
    /// Returns no clients.
    pub(super) fn new(config: &'b Config, previous: Option<&'b World>) -> MemberTlsClients<'b> {
        MemberTlsClients {
            config,
            previous: previous.map_or(&[], |world| &world.tls_clients),
            clients: RefCell::default(),
        }
    }

    /// Returns the endpoint of the member with the index `member`; None for a member without TLS.
    pub(super) fn endpoint(
        &self,
        balancer: &BalancerConfig,
        member: usize,
    ) -> Result<Option<TlsEndpoint>, OperatorError> {
        let Some(url) = balancer.settings.members.get(member).map(|it| &it.url) else {
            return Ok(None);
        };
        if !url.is_tls {
            return Ok(None);
        }
        let own_name = balancer.settings.connection.tls.server_name.as_deref();
        let name = own_name.map_or_else(|| host(url), str::to_owned);
        let endpoint = self
            .client(balancer)
            .and_then(|client| client.endpoint(&name));
        let endpoint = endpoint.map_err(|error| self.point(balancer, member, &error))?;
        Ok(Some(endpoint))
    }

    fn client(&self, balancer: &BalancerConfig) -> Result<Arc<TlsClient>, TlsError> {
        let connection = &balancer.settings.connection;
        let tls = &connection.tls;
        let alpn = if connection.is_http2 {
            b"h2".to_vec()
        } else {
            b"http/1.1".to_vec()
        };
        let settings = TlsClientSettings {
            authorities: tls.authorities.clone(),
            client_certificate: tls.client_certificate.clone(),
            alpn: vec![alpn],
        };
        let mut clients = self.clients.borrow_mut();
        let known = clients.iter().chain(self.previous);
        let client = TlsClient::load(&settings, known)?;
        if !clients.iter().any(|known| Arc::ptr_eq(known, &client)) {
            clients.push(Arc::clone(&client));
        }
        Ok(client)
    }

    /// Converts an error to an error that points at the refused key, or at the member's URL.
    fn point(&self, balancer: &BalancerConfig, member: usize, error: &TlsError) -> OperatorError {
        let key = match error.part {
            TlsPart::Authorities => balancer.ca.as_ref(),
            TlsPart::ClientCertificate => balancer.client_certificate.as_ref(),
            TlsPart::ClientKey => {
                let key = balancer.client_key.as_ref();
                key.or(balancer.client_certificate.as_ref())
            }
            _ => None,
        };
        let url = balancer.member_spans.get(member).cloned();
        let span = key.map(Spanned::span).or(url).unwrap_or_default();
        let what = match &error.file {
            Some(file) => format!("{}: {}", file.display(), error.what),
            None => error.what.clone(),
        };
        self.config.point(span, what, error.hint.clone())
    }

    /// Returns all clients.
    pub(super) fn finish(self) -> Vec<Arc<TlsClient>> {
        self.clients.into_inner()
    }
}

/// Returns the member's host as the name in the certificate.
fn host(url: &MemberUrl) -> String {
    match &url.host {
        MemberHost::Address(address) => address.ip().to_string(),
        MemberHost::Name(name, _) => name.to_string(),
        MemberHost::Unix(_) => "localhost".to_owned(),
    }
}
