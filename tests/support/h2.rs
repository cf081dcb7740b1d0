//! A raw HTTP/2 client: sends exactly the frames given and reads the server's frames one by one.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use wire::h2::frame::{self, H2FrameHeader, HEADER_BYTES, PREFACE};
use wire::h2::hpack::{HpackDecoder, HpackScratch, push_field};

use super::Server;
use super::wire::{Over, Response, Wire};

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the error code of an RST_STREAM or GOAWAY frame.
    pub fn code(&self) -> u32 {
        let at = if self.kind == frame::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("a code"))
    }

    pub fn ends(&self) -> bool {
        matches!(self.kind, frame::DATA | frame::HEADERS) && self.flags & frame::END_STREAM != 0
    }
}

/// A client's connection.
pub struct H2 {
    pub wire: Wire,
    decoder: HpackDecoder,
    next_id: u32,
    /// Responses of streams with at least one received frame.
    begun: HashMap<u32, Response>,
    /// Whether the client returns flow-control window for each DATA frame.
    pub grants: bool,
    /// Bytes of a body after which the client returns window; more than 1 as browsers do.
    pub grant_step: usize,
}

impl H2 {
    /// Connects and sends the preface with an empty SETTINGS frame.
    pub fn open(server: &Server, over: Over) -> H2 {
        H2::open_with(server, over, b"")
    }

    /// Connects and sends the preface with the SETTINGS payload.
    pub fn open_with(server: &Server, over: Over, settings: &[u8]) -> H2 {
        H2::silent(server, over).begin(settings)
    }

    /// Connects over TLS from another loopback address.
    pub fn open_from(server: &Server, from: Ipv4Addr) -> H2 {
        H2::open_from_with(server, from, b"")
    }

    /// Connects over TLS from another loopback address and sends the SETTINGS payload.
    pub fn open_from_with(server: &Server, from: Ipv4Addr, settings: &[u8]) -> H2 {
        H2::on(Wire::tls_from(server, from, "localhost", &[b"h2"])).begin(settings)
    }

    /// Returns once the server has read all bytes sent so far, by a PING and its acknowledgement.
    pub fn settle(&mut self) {
        self.frame(frame::PING, 0, 0, b"are you?");
        loop {
            let pong = self.until(frame::PING);
            if pong.flags & frame::ACK != 0 {
                return;
            }
        }
    }

    /// Sends the preface with the SETTINGS payload.
    pub fn begin(mut self, settings: &[u8]) -> H2 {
        self.wire.send(PREFACE);
        self.frame(frame::SETTINGS, 0, 0, settings);
        self
    }

    /// Connects without sending a preface.
    pub fn silent(server: &Server, over: Over) -> H2 {
        H2::on(match over {
            Over::Plain => Wire::plain(server),
            Over::Tls => Wire::tls_as(server, "localhost", &[b"h2"]),
        })
    }

    pub fn on(wire: Wire) -> H2 {
        H2 {
            wire,
            decoder: HpackDecoder::default(),
            next_id: 1,
            begun: HashMap::new(),
            grants: true,
            grant_step: 1,
        }
    }

    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let mut bytes = Vec::new();
        frame::header(&mut bytes, payload.len(), kind, flags, stream);
        bytes.extend_from_slice(payload);
        self.wire.send(bytes)
    }

    /// Encodes fields as a field block.
    pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            push_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        block
    }

    /// Begins a request with the four usual pseudo-header fields and further fields. Returns the stream.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], ends: bool) -> u32 {
        let host = [
            (":method", method),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
        ];
        self.ask_all(&[&host[..], fields].concat(), ends)
    }

    /// Begins a request with exactly the fields given. Returns the stream.
    pub fn ask_all(&mut self, fields: &[(&str, &str)], ends: bool) -> u32 {
        let id = self.next_id;
        self.next_id += 2;
        let end = if ends { frame::END_STREAM } else { 0 };
        self.frame(
            frame::HEADERS,
            frame::END_HEADERS | end,
            id,
            &H2::block(fields),
        );
        id
    }

    pub fn data(&mut self, id: u32, bytes: &[u8], ends: bool) {
        let flags = if ends { frame::END_STREAM } else { 0 };
        self.frame(frame::DATA, flags, id, bytes);
    }

    /// Sends a GET and returns the response.
    pub fn get(&mut self, path: &str) -> Response {
        let id = self.ask("GET", path, &[], true);
        self.response(id)
    }

    /// Returns the next frame, or None after the end of the connection.
    pub fn next(&mut self) -> Option<Frame> {
        let header = self.wire.take(HEADER_BYTES);
        let header = H2FrameHeader::parse(header.as_slice().try_into().ok()?);
        let payload = self.wire.take(header.length);
        assert_eq!(payload.len(), header.length, "a frame was cut off");
        let H2FrameHeader {
            kind,
            flags,
            stream,
            ..
        } = header;
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// Returns the next frame of the type, and records the frames before.
    pub fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self
                .next()
                .expect("a frame before the end of the connection");
            self.record_frame(&frame);
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Waits for the end of a stream and returns its response, marked whole after an orderly end.
    pub fn response(&mut self, id: u32) -> Response {
        // An earlier wait may have read the end of the stream already.
        let has_ended = |h2: &H2| h2.begun.get(&id).is_some_and(|it| it.whole);
        while !has_ended(self) {
            let Some(frame) = self.next() else { break };
            let is_its_end =
                frame.stream == id && (frame.ends() || frame.kind == frame::RST_STREAM);
            self.record_frame(&frame);
            if is_its_end {
                break;
            }
        }
        self.begun.remove(&id).expect("a response")
    }

    /// Returns the part of a stream's response received so far.
    pub fn partial_response(&self, id: u32) -> Option<&Response> {
        self.begun.get(&id)
    }

    /// Records a frame in its stream's response, and returns flow-control window.
    pub fn record_frame(&mut self, frame: &Frame) {
        match frame.kind {
            frame::HEADERS => {
                assert!(frame.flags & frame::END_HEADERS != 0, "{frame:?}");
                let mut fields = Vec::new();
                let mut strings = HpackScratch::default();
                self.decoder
                    .decode(&frame.payload, &mut strings, |name, value| {
                        let [name, value] = [name, value].map(super::lossy);
                        fields.push((name, value));
                        Ok(())
                    })
                    .expect("a field block");
                self.record_fields(frame, fields);
            }
            frame::DATA => {
                let response = self.begun.get_mut(&frame.stream).expect("a head first");
                response.body.extend_from_slice(&frame.payload);
                response.whole = frame.ends();
                let (all, step) = (response.body.len(), self.grant_step);
                let before = all - frame.payload.len();
                let taken = (all / step * step - before / step * step) as u32;
                if taken > 0 && self.grants {
                    self.grant(0, taken);
                    if !frame.ends() {
                        self.grant(frame.stream, taken);
                    }
                }
            }
            frame::SETTINGS if frame.flags & frame::ACK == 0 => {
                self.frame(frame::SETTINGS, frame::ACK, 0, b"");
            }
            _ => {}
        }
    }

    /// Records the fields of a head or of a trailer section.
    fn record_fields(&mut self, frame: &Frame, mut fields: Vec<(String, String)>) {
        let before = self.begun.remove(&frame.stream);
        if let Some(mut response) = before.clone().filter(|before| before.status >= 200) {
            assert!(frame.ends(), "trailers that don't end the stream");
            response.trailers = fields;
            response.whole = true;
            self.begun.insert(frame.stream, response);
            return;
        }
        let (name, status) = fields.remove(0);
        assert_eq!(name, ":status");
        let mut interim = Vec::new();
        if let Some(mut before) = before {
            interim = std::mem::take(&mut before.interim);
            interim.push(before);
        }
        let response = Response {
            status: status.parse().expect("a status"),
            fields,
            body: Vec::new(),
            whole: frame.ends(),
            trailers: Vec::new(),
            interim,
        };
        self.begun.insert(frame.stream, response);
    }

    pub fn grant(&mut self, id: u32, bytes: u32) {
        self.frame(frame::WINDOW_UPDATE, 0, id, &bytes.to_be_bytes());
    }

    /// Waits for GOAWAY and the end of the connection, and returns the error code. Frames before GOAWAY are
    /// ignored.
    pub fn goaway_code(&mut self) -> u32 {
        let code = self.until(frame::GOAWAY).code();
        while let Some(frame) = self.next() {
            assert_ne!(frame.kind, frame::HEADERS, "a response behind GOAWAY");
        }
        code
    }
}
