//! Requests without their body, as passed to programs and backends.

use crate::handler::call::body::error::BodyError;
use crate::handler::call::body::request_body::{RequestBody, SpoolLimit};
use crate::handler::{Endpoints, Request, Subrequest, Subrequests};
use crate::ledger::body_memory::BodyAccount;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use wire::cgi::MetaVariables;
use wire::fields::Fields;
use wire::number_text::{push_address, push_number};
use wire::path_readings::{Slashes, sent_path};
use wire::request_head::{Method, Version};
use wire::request_target::valid_host;

/// Parts of a request that can be sent to another thread.
pub struct ScriptRequest {
    /// The request method.
    pub method: Method,
    /// HTTP version of the client's request.
    pub version: Version,
    /// Host without port.
    pub host: Vec<u8>,
    /// Path as sent, percent-encoded.
    pub raw_path: Vec<u8>,
    /// Path decoded.
    pub path: Vec<u8>,
    /// Query that the client sent, without the `?`.
    pub query: Option<Vec<u8>>,
    /// Query for the script, replacing the client's query.
    pub rewritten_query: Option<Vec<u8>>,
    /// Field lines of the request.
    pub fields: Vec<u8>,
    /// Address of the client.
    pub peer: IpAddr,
    /// Port of the client and address of the server.
    pub(crate) ends: Endpoints,
    /// True if the request came over TLS.
    pub secure: bool,
    /// Name of the authenticated user.
    pub user: Option<String>,
    /// True if the client's password stays with this server, as in [`Request::hides_login`].
    pub hides_login: bool,
    /// Length of the body; None without a body or with an unknown length.
    pub length: Option<u64>,
    /// Number of internal redirects before the request.
    pub hops: u8,
}

/// Parts of a request that stay on its worker.
pub struct LocalRequestParts {
    /// The body; None if the request has no body.
    pub body: Option<RequestBody>,
    /// Memory of the bodies.
    pub memory: BodyAccount,
    /// Access to other pages of the server.
    pub(crate) subrequests: Option<Rc<dyn Subrequests>>,
}

/// Location of a script for the meta-variables. Paths are decoded.
pub(crate) struct ScriptLocation<'p> {
    /// Path of the script on the site.
    pub name: &'p [u8],
    /// Rest of the request's path after the script.
    pub path_info: &'p [u8],
    /// File of the script.
    pub file: &'p [u8],
    /// Folder with the files of the site.
    pub root: &'p [u8],
}

impl ScriptRequest {
    /// Splits a request in two parts, after the whole of a short body or the first part of a long body has
    /// arrived ([`RequestBody::receive`]).
    pub async fn from_request(
        request: Box<Request>,
        spool: Option<&SpoolLimit>,
    ) -> Result<(ScriptRequest, LocalRequestParts), BodyError> {
        let memory = &request.memory;
        let received =
            RequestBody::receive(request.body, request.length, request.peer, memory, spool);
        let (body, length) = received.await?;
        let local = LocalRequestParts {
            body,
            memory: request.memory,
            subrequests: request.subrequests,
        };
        let request = ScriptRequest {
            method: request.method,
            version: request.version,
            host: request.host,
            raw_path: request.raw_path,
            path: request.rewrite.path.unwrap_or(request.path),
            query: request.query,
            rewritten_query: request.rewrite.query,
            fields: if request.identity.is_empty() {
                request.fields
            } else {
                [request.fields, request.identity].concat()
            },
            peer: request.peer,
            ends: request.ends,
            secure: request.secure,
            user: request.user,
            hides_login: request.hides_login,
            length,
            hops: request.hops,
        };
        Ok((request, local))
    }

    /// Returns the request as `GET /path?query` for the log.
    pub fn line(&self) -> String {
        line(self.method, &self.raw_path, self.query.as_deref())
    }

    /// Calls `use_meta` with the meta-variables of the request for the script at `location`.
    pub(crate) fn with_meta<T>(
        &self,
        location: &ScriptLocation<'_>,
        use_meta: impl FnOnce(&MetaVariables<'_>) -> T,
    ) -> T {
        // Numbers and addresses as text, in one buffer.
        let mut text = Vec::with_capacity(128);
        push_address(&mut text, self.peer);
        let peer = 0..text.len();
        if let Some(server) = self.ends.server {
            push_address(&mut text, server);
        }
        let server = peer.end..text.len();
        push_number(&mut text, self.port().into());
        let port = server.end..text.len();
        if let Some(port) = self.ends.client_port {
            push_number(&mut text, port.into());
        }
        let peer_port = port.end..text.len();
        if let Some(length) = self.length {
            push_number(&mut text, length);
        }
        let length = peer_port.end..text.len();
        let text = |part: Range<usize>| std::str::from_utf8(&text[part]).unwrap_or_default();
        let known = |part: Range<usize>| Some(text(part)).filter(|text| !text.is_empty());
        // Programs that route by REQUEST_URI must not find a path behind `..` that the guards have not checked.
        let raw_path = sent_path(&self.raw_path, Slashes::Keep);
        use_meta(&MetaVariables {
            method: self.method.name(),
            version: self.version,
            host: &self.host,
            port: text(port),
            raw_path: &raw_path,
            query: self.query.as_deref(),
            rewritten_query: self.rewritten_query.as_deref(),
            fields: Fields(&self.fields),
            peer: text(peer),
            peer_port: known(peer_port),
            server: known(server),
            secure: self.secure,
            user: self.user.as_deref(),
            hides_login: self.hides_login,
            length: known(length),
            script_name: location.name,
            path_info: location.path_info,
            script_file: location.file,
            root: location.root,
        })
    }

    /// Returns the port of the Host field. A router may have changed the port on the way, so the port of
    /// the listening socket can differ.
    fn port(&self) -> u16 {
        let host = Fields(&self.fields).first("host").and_then(valid_host);
        let usual = if self.secure { 443 } else { 80 };
        host.and_then(|(_, port)| port).unwrap_or(usual)
    }

    /// Returns a subrequest of the client for another page of the server.
    pub(crate) fn subrequest(&self, path: Vec<u8>) -> Subrequest {
        Subrequest {
            is_head: self.method == Method::Head,
            version: self.version,
            host: self.host.clone(),
            path,
            fields: self.fields.clone(),
            hides_login: self.hides_login,
            hops: self.hops + 1,
        }
    }
}

/// Formats a request as `GET /path?query` for the log.
pub(crate) fn line(method: Method, raw_path: &[u8], query: Option<&[u8]>) -> String {
    let mut line = format!("{} {}", method.name(), String::from_utf8_lossy(raw_path));
    if let Some(query) = query {
        line.push('?');
        line.push_str(&String::from_utf8_lossy(query));
    }
    line
}
