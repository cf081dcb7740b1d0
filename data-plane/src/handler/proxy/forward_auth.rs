//! Forward authentication: another server decides whether a request goes on. It gets a GET with the login of the client
//! and with the place of the request, through the connections of a proxy.
//!
//! Only a complete answer with a status of 2xx lets the request go on. Every failure refuses the request.

use crate::handler::interim::InterimSender;
use crate::handler::pipe::{PipeRead, pipe};
use crate::handler::proxy::call::begin;
use crate::handler::proxy::route::{ForwardSettings, ForwardedHost, ProxyRoute};
use crate::handler::{Endpoints, LocalBoxFuture, Request, Response, ResponseBody, Rewrite};
use crate::ledger::active_requests::ActiveRequestHandle;
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::ledger::shared_limit::RefusalCounters;
use crate::limits::{AUTH_CONTENT_BYTES_MAX, AUTH_LOG_PAUSE_MILLISECONDS, AUTH_SECONDS};
use crate::upstream::Balancer;
use base::clock::monotonic_ms;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use wire::fields::Fields;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::{Method, Version};
use wire::request_target::{encode_raw_text, push_encoded};
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Placeholder for the path and the query of the request in [`ForwardAuthSettings::login`].
pub const URI_PLACEHOLDER: &str = "{uri}";

/// Settings of forward authentication.
pub struct ForwardAuthSettings {
    /// URL of the server, for the log.
    pub url: Box<str>,
    /// Path of the GET, percent-encoded.
    pub path: Box<[u8]>,
    /// Query of the GET.
    pub query: Option<Box<[u8]>>,
    /// Fields of the answer that go to the application. The first names the user.
    pub copy: Box<[Box<str>]>,
    /// Location to which a browser goes in place of a 401, with [`URI_PLACEHOLDER`].
    pub login: Option<Box<str>>,
    /// Name of this server in Via.
    pub pseudonym: Arc<str>,
    /// Counters of refusals because of shares already taken.
    pub refusals: Arc<RefusalCounters>,
}

/// Server for forward authentication, as one route asks it.
pub struct ForwardAuth {
    settings: ForwardAuthSettings,
    balancer: Arc<Balancer>,
    /// Time of the last log line about a failure, in milliseconds of the monotonic clock; 0 for none.
    logged_ms: AtomicU64,
}

impl fmt::Debug for ForwardAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.settings.url)
    }
}

impl ForwardAuth {
    /// Creates the server with the connections of the only member of `balancer`.
    pub fn new(settings: ForwardAuthSettings, balancer: Arc<Balancer>) -> ForwardAuth {
        ForwardAuth {
            settings,
            balancer,
            logged_ms: AtomicU64::new(0),
        }
    }

    /// Returns true if two routes ask one server the same question.
    fn is_like(&self, other: &ForwardAuth) -> bool {
        let (own, others) = (&self.settings, &other.settings);
        Arc::ptr_eq(&self.balancer, &other.balancer)
            && own.path == others.path
            && own.query == others.query
            && own.copy == others.copy
            && own.login == others.login
    }

    /// Logs a failure, at most one line in [`AUTH_LOG_PAUSE_MILLISECONDS`]: each request would repeat the line.
    fn log(&self, cause: &str) {
        let now_ms = monotonic_ms().max(1);
        let last_ms = self.logged_ms.load(Ordering::Relaxed);
        if last_ms == 0 || now_ms.saturating_sub(last_ms) >= AUTH_LOG_PAUSE_MILLISECONDS {
            self.logged_ms.store(now_ms, Ordering::Relaxed);
            log::error!("auth: {}: {cause}", self.settings.url);
        }
    }

    /// Returns the route of one GET. The fields about the request are set as the operator of a route would set them, so no
    /// field of the client can replace them.
    fn route(&self, question: &AuthQuestion) -> ProxyRoute {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into();
        ProxyRoute {
            balancer: Arc::clone(&self.balancer),
            forward: ForwardSettings {
                host: ForwardedHost::Member,
                request_fields: vec![
                    ("X-Forwarded-Method".into(), question.method.name().into()),
                    ("X-Forwarded-Uri".into(), text(&question.uri)),
                ],
                keeps_urls: true,
                ..ForwardSettings::default()
            },
            path: Box::default(),
            pseudonym: Arc::clone(&self.settings.pseudonym),
            refusals: Arc::clone(&self.settings.refusals),
            identity_fields: Arc::default(),
        }
    }

    /// Returns the location of the login page for a request.
    fn login(&self, uri: &[u8]) -> Option<Vec<u8>> {
        let template = self.settings.login.as_deref()?;
        let Some((before, after)) = template.split_once(URI_PLACEHOLDER) else {
            return Some(template.as_bytes().to_vec());
        };
        let mut location = before.as_bytes().to_vec();
        for byte in uri {
            match byte {
                b'-' | b'.' | b'_' | b'~' => location.push(*byte),
                byte if byte.is_ascii_alphanumeric() => location.push(*byte),
                byte => push_encoded(*byte, &mut location),
            }
        }
        location.extend_from_slice(after.as_bytes());
        Some(location)
    }
}

/// Question about one request.
#[derive(Debug)]
pub struct AuthQuestion {
    /// Server that decides.
    pub auth: Arc<ForwardAuth>,
    /// Path and query of the request in one spelling, percent-encoded.
    pub uri: Vec<u8>,
    /// Method of the request.
    pub method: Method,
    /// Host field of the request, as the client sent it.
    pub host: Vec<u8>,
    /// Field lines of the request for the server.
    pub fields: Vec<u8>,
    /// Address of the client.
    pub peer: IpAddr,
    /// True if the client uses TLS.
    pub secure: bool,
    /// True if the client's password belongs to this server.
    pub hides_login: bool,
}

/// Returns a path with its query for X-Forwarded-Uri. Braces are encoded, since they could be read as a placeholder.
pub fn auth_uri(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len() + query.map_or(0, |query| query.len() + 1));
    encode_raw_text(path, &mut text);
    if let Some(query) = query {
        text.push(b'?');
        encode_raw_text(query, &mut text);
    }
    let mut uri = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'{' | b'}' => push_encoded(byte, &mut uri),
            byte => uri.push(byte),
        }
    }
    uri
}

/// Returns the fields of a request for the server: those that carry a login, and Via, which ends a loop.
pub fn auth_fields(fields: Fields<'_>) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in fields {
        let mut known = ASKED_FIELDS.iter();
        if known.any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            push_line(&mut lines, name, value);
        }
    }
    lines
}

/// Fields of a request that the server gets.
const ASKED_FIELDS: [&str; 5] = [
    "accept",
    "authorization",
    "cookie",
    "via",
    "x-requested-with",
];

fn push_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// Answer to a question, kept for the dispatches of one request.
pub struct AuthAnswer {
    auth: Arc<ForwardAuth>,
    uri: Vec<u8>,
    /// Memory of the content for the client.
    _held: Option<BodyReservation>,
    /// Decision of the server.
    pub verdict: AuthVerdict,
}

impl fmt::Debug for AuthAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = String::from_utf8_lossy(&self.uri);
        write!(f, "{:?} to {uri}: {:?}", self.auth, self.verdict)
    }
}

impl AuthAnswer {
    /// Returns true if the answer is the server's to a request with the URI.
    pub fn is_for(&self, auth: &Arc<ForwardAuth>, uri: &[u8]) -> bool {
        self.is_of(auth) && self.uri == uri
    }

    /// Returns true if the server has given the answer.
    pub fn is_of(&self, auth: &Arc<ForwardAuth>) -> bool {
        Arc::ptr_eq(&self.auth, auth) || self.auth.is_like(auth)
    }

    /// Returns true if the server of the other answer has given the answer.
    pub fn is_of_server_of(&self, other: &AuthAnswer) -> bool {
        self.is_of(&other.auth)
    }

    /// Returns true if the client gets cookies of the server.
    pub fn has_cookies(&self) -> bool {
        matches!(&self.verdict, AuthVerdict::Passed(grant) if !grant.cookies.is_empty())
    }

    /// Returns the fields that the server sets.
    pub fn copied(&self) -> &[Box<str>] {
        &self.auth.settings.copy
    }
}

/// Decision of the server about a request.
#[derive(Debug)]
pub enum AuthVerdict {
    /// The request goes on.
    Passed(AuthGrant),
    /// The client gets the answer of the server.
    Denied(AuthDenial),
    /// The server gave no usable answer.
    Failed(Reject),
}

/// Result of a request that goes on.
#[derive(Debug, Default)]
pub struct AuthGrant {
    /// Name of the user: the first copied field.
    pub user: Option<String>,
    /// Field lines for the application.
    pub identity: Vec<u8>,
    /// Set-Cookie lines for the client.
    pub cookies: Vec<u8>,
}

/// Response to a request that does not go on.
#[derive(Debug, Clone)]
pub struct AuthDenial {
    /// A status of 3xx or 4xx.
    pub status: Status,
    /// Field lines.
    pub fields: Vec<u8>,
    /// The content.
    pub content: Vec<u8>,
}

impl AuthQuestion {
    /// Asks the server. `memory` is the account of the client's request.
    pub fn ask(self, memory: BodyAccount) -> LocalBoxFuture<AuthAnswer> {
        Box::pin(async move {
            let limit = Duration::from_secs(AUTH_SECONDS);
            let mut held = BodyReservation::new(&memory);
            let asked = self.verdict(memory, &mut held);
            let verdict = match tokio::time::timeout(limit, asked).await {
                Ok(Ok(verdict)) => verdict,
                Ok(Err(Failure::Answer(cause))) => self.failed(&cause),
                Ok(Err(Failure::Memory)) => AuthVerdict::Failed(Reject::BODY_MEMORY_FULL),
                Err(_) => self.failed(&format!("no complete answer within {AUTH_SECONDS} s")),
            };
            AuthAnswer {
                auth: self.auth,
                uri: self.uri,
                // A call without a content of its own has its place back.
                _held: (held.bytes() > 0).then_some(held),
                verdict,
            }
        })
    }

    /// Returns the answer for a request without a place to ask.
    pub fn refused(self, reject: Reject) -> AuthAnswer {
        AuthAnswer {
            auth: self.auth,
            uri: self.uri,
            _held: None,
            verdict: AuthVerdict::Failed(reject),
        }
    }

    /// Returns the answer that lets the request pass, for an explanation without a network.
    pub fn assumed(self) -> AuthAnswer {
        AuthAnswer {
            auth: self.auth,
            uri: self.uri,
            _held: None,
            verdict: AuthVerdict::Passed(AuthGrant::default()),
        }
    }

    fn failed(&self, cause: &str) -> AuthVerdict {
        self.auth.log(cause);
        AuthVerdict::Failed(Reject::AUTH_FAILED)
    }

    /// Returns the decision of the server.
    ///
    /// # Errors
    /// The reason why the server gave no usable answer.
    async fn verdict(
        &self,
        memory: BodyAccount,
        held: &mut BodyReservation,
    ) -> Result<AuthVerdict, Failure> {
        let route = Arc::new(self.auth.route(self));
        let response = begin(&route, self.request(memory)).await;
        let response = response.map_err(|error| Failure::Answer(error.to_string()))?;
        let status = *response.status;
        if !matches!(status.0, 200..=303 | 305..=499) {
            let cause = format!("the answer has the status {}", status.0);
            return Err(Failure::Answer(cause));
        }
        let Response { fields, body, .. } = response;
        let content = content(body, status.0 >= 300, held).await?;
        Ok(match status.0 {
            200..=299 => AuthVerdict::Passed(self.grant(&fields)),
            _ => AuthVerdict::Denied(self.denial(status, &fields, content)),
        })
    }

    /// Returns the GET for the server.
    fn request(&self, memory: BodyAccount) -> Request {
        let (writer, body) = pipe(1);
        writer.finish();
        let settings = &self.auth.settings;
        let mut fields = Vec::with_capacity(self.fields.len() + self.host.len() + 8);
        if !self.host.is_empty() {
            push_line(&mut fields, b"Host", &self.host);
        }
        fields.extend_from_slice(&self.fields);
        Request {
            method: Method::Get,
            version: Version::Http11,
            host: self.host.clone(),
            raw_path: settings.path.to_vec(),
            path: settings.path.to_vec(),
            query: settings.query.as_deref().map(<[u8]>::to_vec),
            rewrite: Rewrite::default(),
            script: None,
            fields,
            identity: Vec::new(),
            peer: self.peer,
            ends: Endpoints::default(),
            secure: self.secure,
            forwarding: None,
            user: None,
            hides_login: self.hides_login,
            length: BodyLength::None,
            expects_continue: false,
            body,
            upgrade: None,
            interim: InterimSender::default(),
            subrequests: None,
            hops: 0,
            memory,
            active: ActiveRequestHandle::default(),
        }
    }

    fn grant(&self, fields: &ResponseFields) -> AuthGrant {
        let copy = &self.auth.settings.copy;
        let mut grant = AuthGrant::default();
        for name in copy {
            for value in fields.all(name) {
                push_line(&mut grant.identity, name.as_bytes(), value);
            }
        }
        let user = copy.first().and_then(|name| fields.first(name));
        let user = user.and_then(|value| std::str::from_utf8(value).ok());
        grant.user = user.filter(|user| !user.is_empty()).map(str::to_owned);
        for cookie in fields.all("set-cookie") {
            push_line(&mut grant.cookies, b"Set-Cookie", cookie);
        }
        grant
    }

    /// Returns the response for the client. A 401 to a browser becomes a redirect to the login page, if the route has one.
    fn denial(&self, status: Status, fields: &ResponseFields, content: Vec<u8>) -> AuthDenial {
        let is_page = self.method == Method::Get && accepts_html(Fields(&self.fields));
        let login = if status == Status::UNAUTHORIZED && is_page {
            self.auth.login(&self.uri)
        } else {
            None
        };
        let mut lines = Vec::new();
        for (name, value) in fields.iter() {
            let mut passed = DENIAL_FIELDS.iter();
            let is_passed = passed.any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
            let is_cookie = name.eq_ignore_ascii_case(b"set-cookie");
            if is_cookie || (is_passed && login.is_none()) {
                push_line(&mut lines, name, value);
            }
        }
        // The next request may be allowed.
        push_line(&mut lines, b"Cache-Control", b"no-store");
        match login {
            None => AuthDenial {
                status,
                fields: lines,
                content,
            },
            Some(location) => {
                push_line(&mut lines, b"Location", &location);
                AuthDenial {
                    status: Status::FOUND,
                    fields: lines,
                    content: Vec::new(),
                }
            }
        }
    }
}

/// Fields of a denial for the client, beside Set-Cookie.
const DENIAL_FIELDS: [&str; 5] = [
    "content-encoding",
    "content-language",
    "content-type",
    "location",
    "www-authenticate",
];

/// Returns true for a request for a page of HTML. A script in a page asks with X-Requested-With or without `text/html`, and
/// can do nothing with a redirect to a login page.
fn accepts_html(fields: Fields<'_>) -> bool {
    let mut accepted = fields.all("accept");
    let needle = b"text/html";
    let accepts = accepted.any(|value| {
        let mut windows = value.windows(needle.len());
        windows.any(|part| part.eq_ignore_ascii_case(needle))
    });
    accepts && fields.first("x-requested-with").is_none()
}

/// Receives the complete content of an answer, and returns the content if the client `gets` it. The bytes are reserved in
/// `held`.
///
/// # Errors
/// The content is longer than [`AUTH_CONTENT_BYTES_MAX`], broke off, or found no memory.
async fn content(
    body: ResponseBody,
    gets: bool,
    held: &mut BodyReservation,
) -> Result<Vec<u8>, Failure> {
    let too_long = || {
        let cause = format!("the content is longer than {AUTH_CONTENT_BYTES_MAX} bytes");
        Failure::Answer(cause)
    };
    let (length, mut reader, work) = match body {
        ResponseBody::Empty => return Ok(Vec::new()),
        ResponseBody::Whole(bytes) if bytes.len() > AUTH_CONTENT_BYTES_MAX => {
            return Err(too_long());
        }
        ResponseBody::Whole(_) if !gets => return Ok(Vec::new()),
        ResponseBody::Whole(bytes) if held.try_grow(bytes.len(), BodyPurpose::Gathering) => {
            return Ok(bytes);
        }
        ResponseBody::Whole(_) => return Err(Failure::Memory),
        ResponseBody::Stream {
            length,
            reader,
            work,
        } => (length, reader, work),
    };
    if length.is_some_and(|length| length > AUTH_CONTENT_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let mut content = Vec::new();
    let mut received = 0;
    let mut work = Some(work);
    poll_fn(|cx| {
        loop {
            if let Some(running) = &mut work
                && running.as_mut().poll(cx).is_ready()
            {
                // The work owns the other end of the pipe, and the reader learns of the end by its drop.
                work = None;
            }
            let mut part = Vec::new();
            match reader.poll_take(cx, &mut part, AUTH_CONTENT_BYTES_MAX) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(PipeRead::End)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(_)) => {
                    let cause = "the content broke off".to_owned();
                    return Poll::Ready(Err(Failure::Answer(cause)));
                }
                Poll::Ready(Ok(PipeRead::Bytes(_))) => {
                    received += part.len();
                    if received > AUTH_CONTENT_BYTES_MAX {
                        return Poll::Ready(Err(too_long()));
                    }
                    if gets {
                        if !held.try_grow(part.len(), BodyPurpose::Gathering) {
                            return Poll::Ready(Err(Failure::Memory));
                        }
                        content.extend_from_slice(&part);
                    }
                }
            }
        }
    })
    .await?;
    Ok(content)
}

/// Reason why a question has no usable answer.
enum Failure {
    /// The answer of the server, for the log.
    Answer(String),
    /// The bodies of all requests have taken the memory.
    Memory,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::body_memory::{BodyMemory, WorkerBodyMemory};
    use std::future::Future;

    #[test]
    fn the_uri_has_no_placeholder_and_no_raw_byte() {
        let uri = auth_uri(b"/a%20b", Some(b"x={user}&y=\xff"));
        assert_eq!(uri, b"/a%20b?x=%7Buser%7D&y=%FF");
        assert_eq!(auth_uri(b"/", None), b"/");
    }

    #[test]
    fn the_server_gets_the_fields_of_a_login_alone() {
        let fields =
            b"Host: a\r\nCOOKIE: s=1\r\nX-Forwarded-Uri: /\r\nvia: 1.1 b\r\nTe: trailers\r\n";
        assert_eq!(
            auth_fields(Fields(fields)),
            b"COOKIE: s=1\r\nvia: 1.1 b\r\n"
        );
    }

    #[test]
    fn browsers_accept_html_and_scripts_do_not() {
        for (fields, expected) in [
            (&b"Accept: text/html,*/*;q=0.8\r\n"[..], true),
            (b"accept: application/xhtml+xml, TEXT/HTML\r\n", true),
            (b"Accept: */*\r\n", false),
            (
                b"Accept: text/html\r\nX-Requested-With: XMLHttpRequest\r\n",
                false,
            ),
            (b"", false),
        ] {
            assert_eq!(
                accepts_html(Fields(fields)),
                expected,
                "{}",
                fields.escape_ascii()
            );
        }
    }

    #[test]
    fn the_content_of_a_denial_alone_takes_memory() {
        let memory = BodyMemory::new(400_000);
        let worker = WorkerBodyMemory::new(&memory, 1);
        let account = worker.admit([127, 0, 0, 1].into()).expect("a place");
        let receive = |gets| {
            let body = ResponseBody::Whole(vec![b'a'; AUTH_CONTENT_BYTES_MAX]);
            let mut held = BodyReservation::new(&account);
            let mut received = Box::pin(content(body, gets, &mut held));
            let polled = received
                .as_mut()
                .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            drop(received);
            let length = match polled {
                Poll::Ready(Ok(content)) => Some(content.len()),
                Poll::Ready(Err(Failure::Memory)) => None,
                _ => panic!("no content"),
            };
            (length, held)
        };
        let (length, held) = receive(false);
        assert_eq!((length, held.bytes()), (Some(0), 0));
        let held: Vec<_> = (0..8).map(|_| receive(true)).collect();
        let (length, first) = &held[0];
        assert_eq!(*length, Some(AUTH_CONTENT_BYTES_MAX));
        assert_eq!(first.bytes(), AUTH_CONTENT_BYTES_MAX);
        assert!(held.iter().any(|(length, _)| length.is_none()));
        drop(held);
        assert_eq!(receive(true).0, Some(AUTH_CONTENT_BYTES_MAX));
    }
}
