//! Requests without their body, as passed to programs and backends.

use crate::base::number_text::{push_address, push_number};
use crate::handler::call::body::budget::{BodyBudget, BodyReservation};
use crate::handler::call::body::spool::{BodySpool, SpooledBody};
use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader};
use crate::handler::{Endpoints, HandlerError, Request, Subrequest, Subrequests};
use crate::limits::{BODY_BUFFER_BYTES, BODY_BUFFER_PART_BYTES};
use crate::wire::cgi::MetaVariables;
use crate::wire::fields::Fields;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::request_head::{Method, Version};
use crate::wire::request_target::valid_host;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

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
    pub ends: Endpoints,
    /// True if the request came over TLS.
    pub secure: bool,
    /// Name of the authenticated user.
    pub user: Option<String>,
    /// Length of the body; None without a body or with an unknown length.
    pub length: Option<u64>,
    /// Number of internal redirects before the request.
    pub hops: u8,
}

/// Parts of a request that stay on its worker.
pub struct LocalRequestParts {
    /// The body; None if the request has no body.
    pub body: Option<RequestBody>,
    /// Access to other pages of the server.
    pub inside: Option<Rc<dyn Subrequests>>,
}

/// Body of a request, with a first part that may already be in memory.
pub struct RequestBody {
    /// First part of the body.
    pub ahead: Vec<u8>,
    /// Reservation of the first part in the memory budget; None for a body made by the server.
    pub share: Option<BodyReservation>,
    /// Rest of the body; None if the first part is the whole body.
    pub rest: Option<BodyRest>,
}

/// Rest of a body after its first part.
pub enum BodyRest {
    /// Pipe from the client's connection.
    Coming(PipeReader),
    /// Whole body on the disk.
    Kept(SpooledBody),
}

/// Limit for bodies of unknown length that are spooled until their length is known.
#[derive(Clone)]
pub struct SpoolLimit {
    /// Spool on the disk.
    pub spools: Arc<BodySpool>,
    /// Maximum size of all spooled bodies together.
    pub bytes_max: u64,
}

/// Reason for a failure to buffer or spool a request's body.
#[derive(PartialEq, Eq, Debug)]
pub enum BodyError {
    /// The body ended early.
    Broken,
    /// The client sends almost nothing while other bodies need the space.
    TooSlow,
    /// The memory budget is full, and the length of the body is unknown.
    BudgetFull,
    /// The spool on the disk is full.
    SpoolFull,
    /// The disk is full or has failed. The text is for the log.
    DiskFailed(String),
    /// No file descriptor is available. The text is for the log.
    NoDescriptor(String),
}

impl BodyError {
    /// Returns the error response for the client.
    pub fn reject(&self) -> Reject {
        match self {
            BodyError::Broken | BodyError::TooSlow => Reject::BODY_SLOW,
            BodyError::BudgetFull => Reject::CALLS_BUSY,
            BodyError::SpoolFull | BodyError::NoDescriptor(_) => Reject::BODIES_FULL,
            BodyError::DiskFailed(_) => Reject::BODY_NOT_KEPT,
        }
    }

    /// Converts the error to a handler's error for the request with the request line `line`.
    pub fn fault(self, line: &str) -> HandlerError {
        let reject = self.reject();
        match self {
            BodyError::DiskFailed(why) | BodyError::NoDescriptor(why) => {
                HandlerError::because("script", reject, format!("{line}: {why}"))
            }
            _ => HandlerError::new("script", reject),
        }
    }
}

/// Location of a script for the meta-variables. Paths are decoded.
pub struct ScriptLocation<'p> {
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
    /// arrived. A slow client therefore does not occupy a script during that time.
    ///
    /// A short body without a Content-Length gets the length as counted, because most programs read exactly
    /// CONTENT_LENGTH bytes. A long body without a Content-Length is spooled to its end if `room` allows
    /// spooling. If the memory budget `all` is full, a body of known length is passed on unbuffered.
    pub async fn from_request(
        request: Request,
        all: &Arc<BodyBudget>,
        room: Option<&SpoolLimit>,
    ) -> Result<(ScriptRequest, LocalRequestParts), BodyError> {
        let Request { mut body, .. } = request;
        let has_body = !matches!(request.length, BodyLength::None | BodyLength::Length(0));
        let mut share = all.share();
        let mut ahead = Vec::new();
        let mut end = BufferingEnd::Enough;
        if has_body {
            end = gather(&mut body, &mut ahead, &mut share).await?;
        }
        let is_all = end == BufferingEnd::Body;
        if end == BufferingEnd::NoRoom && request.length == BodyLength::Chunked {
            return Err(BodyError::BudgetFull);
        }
        let mut rest = (!is_all).then_some(BodyRest::Coming(body));
        let mut length = match request.length {
            BodyLength::None => None,
            BodyLength::Length(length) => Some(length),
            BodyLength::Chunked => is_all.then_some(ahead.len() as u64),
        };
        if has_body
            && length.is_none()
            && let Some(room) = room
            && let Some(BodyRest::Coming(body)) = rest
        {
            let (peer, ahead) = (request.peer, std::mem::take(&mut ahead));
            // The reservation covers the part on its way to the disk.
            let kept = room.spools.keep(peer, body, ahead, room.bytes_max);
            let kept = kept.await?;
            length = Some(kept.length());
            rest = Some(BodyRest::Kept(kept));
        }
        let here = LocalRequestParts {
            body: has_body.then(|| RequestBody {
                share: (!ahead.is_empty()).then_some(share),
                ahead,
                rest,
            }),
            inside: request.subrequests,
        };
        let asked = ScriptRequest {
            method: request.method,
            version: request.version,
            host: request.host,
            raw_path: request.raw_path,
            path: request.rewrite.path.unwrap_or(request.path),
            query: request.query,
            rewritten_query: request.rewrite.query,
            fields: request.fields,
            peer: request.peer,
            ends: request.ends,
            secure: request.secure,
            user: request.user,
            length,
            hops: request.hops,
        };
        Ok((asked, here))
    }

    /// Returns the request as `GET /path?query` for the log.
    pub fn line(&self) -> String {
        line(self.method, &self.raw_path, self.query.as_deref())
    }

    /// Calls `use_it` with the meta-variables of the request for the script at `place`.
    pub fn with_meta<T>(
        &self,
        place: &ScriptLocation<'_>,
        use_it: impl FnOnce(&MetaVariables<'_>) -> T,
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
        use_it(&MetaVariables {
            method: self.method.name(),
            version: self.version,
            host: &self.host,
            port: text(port),
            raw_path: &self.raw_path,
            query: self.query.as_deref(),
            rewritten_query: self.rewritten_query.as_deref(),
            fields: Fields(&self.fields),
            peer: text(peer),
            peer_port: known(peer_port),
            server: known(server),
            secure: self.secure,
            user: self.user.as_deref(),
            length: known(length),
            script_name: place.name,
            path_info: place.path_info,
            script_file: place.file,
            root: place.root,
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
    pub fn question(&self, path: Vec<u8>) -> Subrequest {
        Subrequest {
            is_head: self.method == Method::Head,
            version: self.version,
            host: self.host.clone(),
            path,
            fields: self.fields.clone(),
            hops: self.hops + 1,
        }
    }
}

/// Formats a request as `GET /path?query` for the log.
pub fn line(method: Method, raw_path: &[u8], query: Option<&[u8]>) -> String {
    let mut line = format!("{} {}", method.name(), String::from_utf8_lossy(raw_path));
    if let Some(query) = query {
        line.push('?');
        line.push_str(&String::from_utf8_lossy(query));
    }
    line
}

/// Reason for the end of buffering.
#[derive(PartialEq, Eq)]
enum BufferingEnd {
    /// End of the body.
    Body,
    /// The first part has its maximum size.
    Enough,
    /// The memory budget of all bodies is full.
    NoRoom,
}

/// Buffers the first part of a body as data arrives. Bytes are counted on arrival, so a client that sends
/// no data takes no space in the budget.
async fn gather(
    body: &mut PipeReader,
    ahead: &mut Vec<u8>,
    share: &mut BodyReservation,
) -> Result<BufferingEnd, BodyError> {
    while ahead.len() < BODY_BUFFER_BYTES {
        let left = BODY_BUFFER_BYTES - ahead.len();
        match body.take(ahead, left.min(BODY_BUFFER_PART_BYTES)).await {
            Ok(PipeRead::End) => return Ok(BufferingEnd::Body),
            Ok(PipeRead::Bytes(count)) if !share.grow(count) => return Ok(BufferingEnd::NoRoom),
            Ok(PipeRead::Bytes(_)) => {}
            Err(PipeBroken) => return Err(BodyError::Broken),
        }
    }
    Ok(BufferingEnd::Enough)
}

impl RequestBody {
    /// Waits for `place`. Meanwhile the body is marked as queued, so that the pause does not delay other
    /// bodies of the client.
    pub async fn queued<T>(body: &mut Option<RequestBody>, place: impl Future<Output = T>) -> T {
        let mut say = |is_queued| {
            let rest = body.as_mut().and_then(|body| body.rest.as_mut());
            if let Some(BodyRest::Coming(reader)) = rest {
                reader.queue(is_queued);
            }
        };
        say(true);
        let place = place.await;
        say(false);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Rewrite;
    use crate::handler::pipe::pipe;
    use crate::limits::BODY_BUDGET_BYTES_MAX;

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    fn request(length: BodyLength, body: PipeReader) -> Request {
        Request {
            method: Method::Post,
            version: Version::Http11,
            host: b"localhost".to_vec(),
            raw_path: b"/".to_vec(),
            path: b"/".to_vec(),
            query: None,
            rewrite: Rewrite::default(),
            script: None,
            fields: Vec::new(),
            peer: [127, 0, 0, 1].into(),
            ends: Endpoints::default(),
            secure: false,
            user: None,
            length,
            body,
            subrequests: None,
            hops: 0,
        }
    }

    #[test]
    fn beginnings_of_bodies_are_counted_while_they_are_there() {
        let all = Arc::new(BodyBudget::default());
        let (mut writer, reader) = pipe(BODY_BUFFER_BYTES);
        writer.write_some(&[b'x'; 10_000]).unwrap();
        writer.finish();
        let (asked, here) = wait(ScriptRequest::from_request(
            request(BodyLength::Chunked, reader),
            &all,
            None,
        ))
        .ok()
        .unwrap();
        assert_eq!((asked.length, all.bytes()), (Some(10_000), 10_000));
        drop(here);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn without_room_a_body_of_known_length_goes_on_and_another_does_not() {
        let all = Arc::new(BodyBudget::default());
        let mut others = all.share();
        assert!(others.grow(BODY_BUDGET_BYTES_MAX - 5_000));
        let asked = |length| {
            let (mut writer, reader) = pipe(BODY_BUFFER_BYTES);
            writer.write_some(&[b'x'; 60_000]).unwrap();
            wait(ScriptRequest::from_request(
                request(length, reader),
                &all,
                None,
            ))
        };
        let (_, here) = asked(BodyLength::Length(90_000)).ok().unwrap();
        let body = here.body.unwrap();
        assert!(body.rest.is_some());
        assert!(body.ahead.len() <= 5_000 + BODY_BUFFER_PART_BYTES);
        assert!(all.bytes() <= BODY_BUDGET_BYTES_MAX);
        drop(body);
        let error = asked(BodyLength::Chunked).err();
        assert_eq!(error, Some(BodyError::BudgetFull));
        assert_eq!(all.bytes(), BODY_BUDGET_BYTES_MAX - 5_000);
    }
}
