//! A request without its body, as programs and backends are told of it.

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

/// The parts of a request that can go to another thread.
pub struct ScriptRequest {
    /// What is to be done.
    pub method: Method,
    /// The version that the client spoke.
    pub version: Version,
    /// Host without port.
    pub host: Vec<u8>,
    /// Still encoded.
    pub raw_path: Vec<u8>,
    /// Decoded.
    pub path: Vec<u8>,
    /// Without the `?`, as the client asked.
    pub query: Option<Vec<u8>>,
    /// Query for the script, in place of the client's.
    pub rewritten_query: Option<Vec<u8>>,
    /// The field lines.
    pub fields: Vec<u8>,
    /// Who asks.
    pub peer: IpAddr,
    /// Where its connection begins and ends.
    pub ends: Endpoints,
    /// Came over TLS.
    pub secure: bool,
    /// Who logged in.
    pub user: Option<String>,
    /// Of the body, if there is one and its length is known.
    pub length: Option<u64>,
    /// How often the server has asked itself to come here.
    pub hops: u8,
}

/// The rest of it, which stays where it is.
pub struct LocalRequestParts {
    /// The body; None if there is none.
    pub body: Option<RequestBody>,
    /// The server itself.
    pub inside: Option<Rc<dyn Subrequests>>,
}

/// A request's body, of which the beginning may have been read already.
pub struct RequestBody {
    /// What comes first.
    pub ahead: Vec<u8>,
    /// Its place in the ledger of such beginnings; None for what we say ourselves.
    pub share: Option<BodyReservation>,
    /// What comes then; None if that was all.
    pub rest: Option<BodyRest>,
}

/// The rest of a body.
pub enum BodyRest {
    /// As its client sends it.
    Coming(PipeReader),
    /// It was kept until it was whole.
    Kept(SpooledBody),
}

/// Where a body without a length may be kept until it has one.
#[derive(Clone)]
pub struct SpoolLimit {
    /// On the disk.
    pub spools: Arc<BodySpool>,
    /// For all bodies together.
    pub bytes_max: u64,
}

/// Why a request's body can't be gathered.
#[derive(PartialEq, Eq, Debug)]
pub enum BodyError {
    /// It broke off.
    Broken,
    /// Its client sends next to nothing, and there is no room for others.
    TooSlow,
    /// There is no room for it now, and its length isn't known.
    BudgetFull,
    /// The same on the disk.
    SpoolFull,
    /// The disk has failed, or is full: in words, for the log.
    DiskFailed(String),
    /// There is no descriptor for it now: in words, for the log.
    NoDescriptor(String),
}

impl BodyError {
    /// What its client is told.
    pub fn reject(&self) -> Reject {
        match self {
            BodyError::Broken | BodyError::TooSlow => Reject::BODY_SLOW,
            BodyError::BudgetFull => Reject::CALLS_BUSY,
            BodyError::SpoolFull | BodyError::NoDescriptor(_) => Reject::BODIES_FULL,
            BodyError::DiskFailed(_) => Reject::BODY_NOT_KEPT,
        }
    }

    /// The same for a handler that says `line` of its request.
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

/// Where a script is, as its variables tell it. Paths are decoded.
pub struct ScriptLocation<'p> {
    /// On the site.
    pub name: &'p [u8],
    /// What follows.
    pub path_info: &'p [u8],
    /// Its file.
    pub file: &'p [u8],
    /// The folder that paths of the site lie in.
    pub root: &'p [u8],
}

impl ScriptRequest {
    /// Takes a request apart. A short body is waited for, and so is the beginning of a long one: who is
    /// slow with it keeps no script waiting. One that came without its length is counted by that, for
    /// most programs read as much as CONTENT_LENGTH says and no more; a long one is kept until it is
    /// whole, if there is `room` for that. Where all such beginnings fill their ledger, one whose length
    /// is known goes on as it is.
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
            // Its share stands for the part that is on its way to the disk.
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

    /// `GET /path?query`, for the log.
    pub fn line(&self) -> String {
        line(self.method, &self.raw_path, self.query.as_deref())
    }

    /// What programs are told of it, where it leads to a script at `place`.
    pub fn with_meta<T>(
        &self,
        place: &ScriptLocation<'_>,
        use_it: impl FnOnce(&MetaVariables<'_>) -> T,
    ) -> T {
        // All numbers and addresses as text, one behind the other.
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

    /// Where the client was told to connect to, which a router may have changed on the way.
    fn port(&self) -> u16 {
        let host = Fields(&self.fields).first("host").and_then(valid_host);
        let usual = if self.secure { 443 } else { 80 };
        host.and_then(|(_, port)| port).unwrap_or(usual)
    }

    /// The same client asking for another page of this server.
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

/// `GET /path?query`, for the log.
pub fn line(method: Method, raw_path: &[u8], query: Option<&[u8]>) -> String {
    let mut line = format!("{} {}", method.name(), String::from_utf8_lossy(raw_path));
    if let Some(query) = query {
        line.push('?');
        line.push_str(&String::from_utf8_lossy(query));
    }
    line
}

/// What ended the gathering of a body.
#[derive(PartialEq, Eq)]
enum BufferingEnd {
    /// Its own.
    Body,
    /// So much is gathered of none.
    Enough,
    /// All others together.
    NoRoom,
}

/// Takes the beginning of a body as it comes. It is counted once it is here: who sends nothing takes
/// no room from others.
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
    /// Waits for `place`, and keeps no other body of its client waiting meanwhile.
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
