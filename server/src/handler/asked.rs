//! A request without its body, as programs and backends are told of it.

use super::gathered::{Gathered, Share};
use super::pipe::{Broken, Reader, Taken};
use super::spool::{Spooled, Spools};
use super::{Ends, Fault, Inside, Question, Request};
use crate::base::text::{push_address, push_number};
use crate::limits::{GATHERED_BODY_BYTES, GATHERED_PART_BYTES};
use crate::wire::body::BodyLength;
use crate::wire::cgi::Meta;
use crate::wire::fields::Fields;
use crate::wire::head::{Method, Version};
use crate::wire::reject::Reject;
use crate::wire::target::valid_host;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The parts of a request that can go to another thread.
pub struct Asked {
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
    /// What a script is told instead.
    pub led_query: Option<Vec<u8>>,
    /// The field lines.
    pub fields: Vec<u8>,
    /// Who asks.
    pub peer: IpAddr,
    /// Where its connection begins and ends.
    pub ends: Ends,
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
pub struct Here {
    /// The body; None if there is none.
    pub body: Option<Upload>,
    /// The server itself.
    pub inside: Option<Rc<dyn Inside>>,
}

/// A request's body, of which the beginning may have been read already.
pub struct Upload {
    /// What comes first.
    pub ahead: Vec<u8>,
    /// Its place in the ledger of such beginnings; None for what we say ourselves.
    pub share: Option<Share>,
    /// What comes then; None if that was all.
    pub rest: Option<Rest>,
}

/// The rest of a body.
pub enum Rest {
    /// As its client sends it.
    Coming(Reader),
    /// It was kept until it was whole.
    Kept(Spooled),
}

/// Where a body without a length may be kept until it has one.
#[derive(Clone)]
pub struct Room {
    /// On the disk.
    pub spools: Arc<Spools>,
    /// For all bodies together.
    pub bytes_max: u64,
}

/// Why a request's body can't be gathered.
#[derive(PartialEq, Eq, Debug)]
pub enum Ungathered {
    /// It broke off.
    Broken,
    /// Its client sends next to nothing, and there is no room for others.
    Dripping,
    /// There is no room for it now, and its length isn't known.
    NoRoom,
    /// The same on the disk.
    NoPlace,
    /// The disk has failed, or is full: in words, for the log.
    NoDisk(String),
    /// There is no descriptor for it now: in words, for the log.
    NoFile(String),
}

impl Ungathered {
    /// What its client is told.
    pub fn reject(&self) -> Reject {
        match self {
            Ungathered::Broken | Ungathered::Dripping => Reject::BODY_SLOW,
            Ungathered::NoRoom => Reject::CALLS_BUSY,
            Ungathered::NoPlace | Ungathered::NoFile(_) => Reject::BODIES_FULL,
            Ungathered::NoDisk(_) => Reject::BODY_NOT_KEPT,
        }
    }

    /// The same for a handler that says `line` of its request.
    pub fn fault(self, line: &str) -> Fault {
        let reject = self.reject();
        match self {
            Ungathered::NoDisk(why) | Ungathered::NoFile(why) => {
                Fault::because("script", reject, format!("{line}: {why}"))
            }
            _ => Fault::new("script", reject),
        }
    }
}

/// Where a script is, as its variables tell it. Paths are decoded.
pub struct Place<'p> {
    /// On the site.
    pub name: &'p [u8],
    /// What follows.
    pub path_info: &'p [u8],
    /// Its file.
    pub file: &'p [u8],
    /// The folder that paths of the site lie in.
    pub root: &'p [u8],
}

impl Asked {
    /// Takes a request apart. A short body is waited for, and so is the beginning of a long one: who is
    /// slow with it keeps no script waiting. One that came without its length is counted by that, for
    /// most programs read as much as CONTENT_LENGTH says and no more; a long one is kept until it is
    /// whole, if there is `room` for that. Where all such beginnings fill their ledger, one whose length
    /// is known goes on as it is.
    pub async fn of(
        request: Request,
        all: &Arc<Gathered>,
        room: Option<&Room>,
    ) -> Result<(Asked, Here), Ungathered> {
        let Request { mut body, .. } = request;
        let has_body = !matches!(request.length, BodyLength::None | BodyLength::Length(0));
        let mut share = all.share();
        let mut ahead = Vec::new();
        let mut end = End::Enough;
        if has_body {
            end = gather(&mut body, &mut ahead, &mut share).await?;
        }
        let is_all = end == End::Body;
        if end == End::NoRoom && request.length == BodyLength::Chunked {
            return Err(Ungathered::NoRoom);
        }
        let mut rest = (!is_all).then_some(Rest::Coming(body));
        let mut length = match request.length {
            BodyLength::None => None,
            BodyLength::Length(length) => Some(length),
            BodyLength::Chunked => is_all.then_some(ahead.len() as u64),
        };
        if has_body
            && length.is_none()
            && let Some(room) = room
            && let Some(Rest::Coming(body)) = rest
        {
            let (peer, ahead) = (request.peer, std::mem::take(&mut ahead));
            // Its share stands for the part that is on its way to the disk.
            let kept = room.spools.keep(peer, body, ahead, room.bytes_max);
            let kept = kept.await?;
            length = Some(kept.length());
            rest = Some(Rest::Kept(kept));
        }
        let here = Here {
            body: has_body.then(|| Upload {
                share: (!ahead.is_empty()).then_some(share),
                ahead,
                rest,
            }),
            inside: request.inside,
        };
        let asked = Asked {
            method: request.method,
            version: request.version,
            host: request.host,
            raw_path: request.raw_path,
            path: request.path,
            query: request.query,
            led_query: request.led_query,
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
    pub fn with_meta<T>(&self, place: &Place<'_>, use_it: impl FnOnce(&Meta<'_>) -> T) -> T {
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
        use_it(&Meta {
            method: self.method.name(),
            version: self.version,
            host: &self.host,
            port: text(port),
            raw_path: &self.raw_path,
            query: self.query.as_deref(),
            led_query: self.led_query.as_deref(),
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
    pub fn question(&self, path: Vec<u8>) -> Question {
        Question {
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
enum End {
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
    body: &mut Reader,
    ahead: &mut Vec<u8>,
    share: &mut Share,
) -> Result<End, Ungathered> {
    while ahead.len() < GATHERED_BODY_BYTES {
        let left = GATHERED_BODY_BYTES - ahead.len();
        match body.take(ahead, left.min(GATHERED_PART_BYTES)).await {
            Ok(Taken::End) => return Ok(End::Body),
            Ok(Taken::Bytes(count)) if !share.grow(count) => return Ok(End::NoRoom),
            Ok(Taken::Bytes(_)) => {}
            Err(Broken) => return Err(Ungathered::Broken),
        }
    }
    Ok(End::Enough)
}

impl Upload {
    /// Waits for `place`, and keeps no other body of its client waiting meanwhile.
    pub async fn queued<T>(body: &mut Option<Upload>, place: impl Future<Output = T>) -> T {
        let mut say = |is_queued| {
            let rest = body.as_mut().and_then(|body| body.rest.as_mut());
            if let Some(Rest::Coming(reader)) = rest {
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
    use crate::handler::pipe::pipe;
    use crate::limits::GATHERED_BYTES_ALL_MAX;

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    fn request(length: BodyLength, body: Reader) -> Request {
        Request {
            method: Method::Post,
            version: Version::Http11,
            host: b"localhost".to_vec(),
            raw_path: b"/".to_vec(),
            path: b"/".to_vec(),
            asked_path: None,
            query: None,
            led_query: None,
            fields: Vec::new(),
            peer: [127, 0, 0, 1].into(),
            ends: Ends::default(),
            secure: false,
            user: None,
            length,
            body,
            inside: None,
            hops: 0,
        }
    }

    #[test]
    fn beginnings_of_bodies_are_counted_while_they_are_there() {
        let all = Arc::new(Gathered::default());
        let (mut writer, reader) = pipe(GATHERED_BODY_BYTES);
        writer.write_some(&[b'x'; 10_000]).unwrap();
        writer.finish();
        let (asked, here) = wait(Asked::of(request(BodyLength::Chunked, reader), &all, None))
            .ok()
            .unwrap();
        assert_eq!((asked.length, all.bytes()), (Some(10_000), 10_000));
        drop(here);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn without_room_a_body_of_known_length_goes_on_and_another_does_not() {
        let all = Arc::new(Gathered::default());
        let mut others = all.share();
        assert!(others.grow(GATHERED_BYTES_ALL_MAX - 5_000));
        let asked = |length| {
            let (mut writer, reader) = pipe(GATHERED_BODY_BYTES);
            writer.write_some(&[b'x'; 60_000]).unwrap();
            wait(Asked::of(request(length, reader), &all, None))
        };
        let (_, here) = asked(BodyLength::Length(90_000)).ok().unwrap();
        let body = here.body.unwrap();
        assert!(body.rest.is_some());
        assert!(body.ahead.len() <= 5_000 + GATHERED_PART_BYTES);
        assert!(all.bytes() <= GATHERED_BYTES_ALL_MAX);
        drop(body);
        let error = asked(BodyLength::Chunked).err();
        assert_eq!(error, Some(Ungathered::NoRoom));
        assert_eq!(all.bytes(), GATHERED_BYTES_ALL_MAX - 5_000);
    }
}
