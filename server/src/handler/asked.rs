//! A request without its body, as programs and backends are told of it.

use super::pipe::{Reader, Taken};
use super::{Inside, Question, Request};
use crate::limits::GATHERED_BODY_BYTES;
use crate::wire::body::BodyLength;
use crate::wire::cgi::{Meta, Variables};
use crate::wire::fields::Fields;
use crate::wire::head::{Method, Version};
use crate::wire::target::valid_host;
use std::net::IpAddr;
use std::rc::Rc;

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
    /// Without the `?`.
    pub query: Option<Vec<u8>>,
    /// The field lines.
    pub fields: Vec<u8>,
    /// Who asks.
    pub peer: IpAddr,
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
    /// What comes then; None if that was all.
    pub reader: Option<Reader>,
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
    /// most programs read as much as CONTENT_LENGTH says and no more. Errors: the body broke off.
    pub async fn of(request: Request) -> Result<(Asked, Here), super::pipe::Broken> {
        let Request { mut body, .. } = request;
        let mut ahead = Vec::new();
        let mut is_all = false;
        let has_body = !matches!(request.length, BodyLength::None | BodyLength::Length(0));
        while has_body && !is_all && ahead.len() < GATHERED_BODY_BYTES {
            let left = GATHERED_BODY_BYTES - ahead.len();
            is_all = body.take(&mut ahead, left).await? == Taken::End;
        }
        let length = match request.length {
            BodyLength::None => None,
            BodyLength::Length(length) => Some(length),
            BodyLength::Chunked => is_all.then_some(ahead.len() as u64),
        };
        let here = Here {
            body: has_body.then(|| Upload {
                ahead,
                reader: (!is_all).then_some(body),
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
            fields: request.fields,
            peer: request.peer,
            secure: request.secure,
            user: request.user,
            length,
            hops: request.hops,
        };
        Ok((asked, here))
    }

    /// `GET /path?query`, for the log.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{} {}",
            self.method.name(),
            String::from_utf8_lossy(&self.raw_path)
        );
        if let Some(query) = &self.query {
            line.push('?');
            line.push_str(&String::from_utf8_lossy(query));
        }
        line
    }

    /// What a program is told of it.
    pub fn variables(&self, place: &Place<'_>) -> Variables {
        let peer = self.peer.to_string();
        Variables::of(&Meta {
            method: self.method.name(),
            version: self.version,
            host: &self.host,
            port: self.port(),
            raw_path: &self.raw_path,
            query: self.query.as_deref(),
            fields: Fields(&self.fields),
            peer: &peer,
            secure: self.secure,
            user: self.user.as_deref(),
            length: self.length,
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
