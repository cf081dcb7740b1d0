//! All that isn't precomputed, behind one trait.
//!
//! A live request is copied out of the read buffer into an owned [`Request`] and runs as a future
//! on its connection's worker. Each body, both ways, is a bounded [`pipe`]; dropping the future, or
//! either end of a pipe, ends what the call started. Handlers don't know each other, and don't know
//! which version of HTTP asked.

pub mod pipe;
mod operator_fields;
pub mod route_handler;
#[cfg(feature = "test-handlers")]
pub mod test_handler;
pub mod git;
pub mod call;
pub mod script;

use crate::base::admission::AdmissionRefused;
use crate::wire::fields::Fields;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::request_head::{Method, Version};
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::StatusLine;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;

/// A future that stays on its worker.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Answers live requests; shared by all workers, while each call lives on one.
pub trait Handler: Send + Sync {
    /// Begins to answer. The body of `request` comes as the peer sends it, that of the response
    /// leaves as it is made; neither waits for the other.
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>>;
}

/// One request, owned.
pub struct Request {
    /// The method, one of those that parsing knows.
    pub method: Method,
    /// The version that the peer spoke.
    pub version: Version,
    /// Host without port, as sent.
    pub host: Vec<u8>,
    /// The path as sent, percent-encoded.
    pub raw_path: Vec<u8>,
    /// Path that the client requested, decoded and normalised.
    pub path: Vec<u8>,
    /// Query that the client sent, without the `?`.
    pub query: Option<Vec<u8>>,
    /// Path and query that replace those of the client.
    pub rewrite: Rewrite,
    /// Script of the site that answers; None where the handler has the whole route.
    pub script: Option<Script>,
    /// The field lines as sent, to be read with `wire::fields::Fields`.
    pub fields: Vec<u8>,
    /// Who asks.
    pub peer: IpAddr,
    /// Where its connection begins and ends.
    pub ends: Endpoints,
    /// Came over TLS.
    pub secure: bool,
    /// Who logged in, if the route asks for it.
    pub user: Option<String>,
    /// What the head says of the body.
    pub length: BodyLength,
    /// The body, out of its framing; its end is the body's end.
    pub body: pipe::PipeReader,
    /// The server itself, to be asked for another page.
    pub subrequests: Option<Rc<dyn Subrequests>>,
    /// How often the server has asked itself to come here.
    pub hops: u8,
}

/// The ends of a connection, as far as they are known, beside its client's address.
#[derive(Copy, Clone, Default, Debug)]
pub struct Endpoints {
    /// The client's port.
    pub client_port: Option<u16>,
    /// Which of our addresses it came to.
    pub server: Option<IpAddr>,
}

/// The server, asked from within: for what a handler wants to be sent instead of its own response.
pub trait Subrequests {
    /// Answers as if the client had asked for this path (encoded, maybe with a query) by GET, or by
    /// HEAD: the same guards, the same World, but no body.
    fn fetch(&self, question: Subrequest) -> LocalBoxFuture<Result<Response, HandlerError>>;

    /// Would the guards of the site let the client have this path? Gives the user that logged in for it.
    fn authorize(
        &self,
        admission: AccessCheck,
    ) -> LocalBoxFuture<Result<Option<String>, HandlerError>>;

    /// The same, with a note of what it is asked: it becomes true when an answer is guarded, and so
    /// isn't for everybody who may see what asked.
    fn with_guard_flag(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Subrequests>;
}

/// A path that a handler is about to open, where it isn't the one that was asked for: a link leads to
/// it, or an ending was left out. Guards protect what is opened, by whichever name.
pub struct AccessCheck {
    /// On the site, decoded.
    pub path: Vec<u8>,
    /// Host without port; may be empty in HTTP/1.0.
    pub host: Vec<u8>,
    /// The client's Authorization field.
    pub authorization: Option<Vec<u8>>,
}

impl AccessCheck {
    /// For this path, the host and the login of a request.
    pub fn new(path: Vec<u8>, request: &Request) -> AccessCheck {
        let authorization = Fields(&request.fields).first("authorization");
        AccessCheck {
            path,
            host: request.host.clone(),
            authorization: authorization.map(<[u8]>::to_vec),
        }
    }
}

/// Puts paths before the guards of their site, all of which must let the client in; gives the user that
/// logged in. A request without a server behind it is let through to none.
pub async fn check_access(
    request: &Request,
    paths: Vec<Vec<u8>>,
) -> Result<Option<String>, HandlerError> {
    let mut user = None;
    for path in paths {
        let Some(inside) = &request.subrequests else {
            return Err(HandlerError::new("guard", Reject::ADDRESS_DENIED));
        };
        let admission = AccessCheck::new(path, request);
        user = inside.authorize(admission).await?.or(user);
    }
    Ok(user)
}

/// What the server is asked from within.
pub struct Subrequest {
    /// HEAD instead of GET.
    pub is_head: bool,
    /// The version that the client spoke.
    pub version: Version,
    /// Host without port; may be empty in HTTP/1.0.
    pub host: Vec<u8>,
    /// With its query.
    pub path: Vec<u8>,
    /// The client's field lines.
    pub fields: Vec<u8>,
    /// Of the call that asks.
    pub hops: u8,
}

/// A script that lies in a site, as a request found it. Paths are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its path on the site.
    pub name: Vec<u8>,
    /// What followed that in the request's path.
    pub path_info: Vec<u8>,
}

/// Result of a rewrite, or of the last entry of `try`: values that replace the path and the query of the
/// client.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Path that the handler looks up, decoded; None for the client's path.
    pub path: Option<Vec<u8>>,
    /// Query for a script; None for the client's query.
    pub query: Option<Vec<u8>>,
}

impl Request {
    /// Returns the path that the handler looks up: the path of the rewrite, or else the client's path.
    pub fn target_path(&self) -> &[u8] {
        self.rewrite.path.as_deref().unwrap_or(&self.path)
    }
}

/// What a handler answers.
pub struct Response {
    /// A final status, and the reason phrase that a script may have chosen.
    pub status: StatusLine,
    /// Field lines in order; framing fields (Content-Length, Transfer-Encoding, Connection) and Date
    /// are the driver's and are left out here.
    pub fields: ResponseFields,
    /// The content.
    pub body: ResponseBody,
    /// True if the response already has the operator's fields of the path to which it belongs, as the
    /// target of an internal redirect has.
    has_operator_fields: bool,
}

impl Response {
    /// Makes the response of a handler, without the operator's fields.
    pub fn new(
        status: impl Into<StatusLine>,
        fields: ResponseFields,
        body: ResponseBody,
    ) -> Response {
        Response {
            status: status.into(),
            fields,
            body,
            has_operator_fields: false,
        }
    }
}

/// A response's content.
pub enum ResponseBody {
    /// None at all.
    Empty,
    /// All of it is here.
    Whole(Vec<u8>),
    /// It comes through a pipe; `length` in bytes where it is known beforehand.
    Stream {
        /// Bytes in all, if known.
        length: Option<u64>,
        /// The end to read.
        reader: pipe::PipeReader,
        /// What fills the pipe; it runs as long as the call does, and dropping the call ends it.
        work: LocalBoxFuture<()>,
    },
}

/// A handler failed.
#[derive(Debug)]
pub struct HandlerError {
    /// What it was doing, for the log.
    pub stage: &'static str,
    /// Would another try be right (nothing was sent on yet)?
    pub retry: bool,
    /// The answer to the peer.
    pub reject: Reject,
    /// In so many seconds the same would be answered, if that is known.
    pub after_seconds: Option<u64>,
    /// What lay beneath.
    pub source: Option<std::io::Error>,
}

impl HandlerError {
    /// Without more to say.
    pub fn new(stage: &'static str, reject: Reject) -> HandlerError {
        HandlerError {
            stage,
            retry: false,
            reject,
            after_seconds: None,
            source: None,
        }
    }

    /// With what was found out, for the log.
    pub fn because(stage: &'static str, reject: Reject, why: impl Into<String>) -> HandlerError {
        HandlerError {
            source: Some(std::io::Error::other(why.into())),
            ..HandlerError::new(stage, reject)
        }
    }

    /// Tells the operator, if there is anything to be done about it: what a client asked for in vain
    /// is in the access log, and so is that there was too much to do.
    pub fn log(&self) {
        if self.reject.status.0 >= 500 && self.source.is_some() {
            log::error!("{self}");
        } else if self.source.is_some() {
            log::warn!("{self}");
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.reject.reason)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

impl From<AdmissionRefused> for Reject {
    fn from(refused: AdmissionRefused) -> Reject {
        match refused {
            AdmissionRefused::Full => Reject::CALLS_BUSY,
            AdmissionRefused::ShareTaken => Reject::CALL_SHARE_TAKEN,
        }
    }
}
