//! Client of HTTP/2 that sends any frames, and reads the frames of the server.

use crate::serve::pair::{Pair, PairClient};
use wire::h2::H2ErrorCode;
use wire::h2::frame::{self, H2FrameHeader, HEADER_BYTES, PREFACE};
use wire::h2::hpack::{self, HpackDecoder, HpackScratch};

/// Client of a connection.
pub(super) struct H2Client {
    pub(super) client: PairClient,
    decoder: HpackDecoder,
    /// Bytes of an incomplete frame.
    rest: Vec<u8>,
}

/// Frame of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    Settings,
    SettingsAck,
    Head {
        id: u32,
        status: u16,
        ended: bool,
    },
    /// DATA with the number of its bytes.
    Data {
        id: u32,
        bytes: usize,
        ended: bool,
    },
    Reset {
        id: u32,
        code: H2ErrorCode,
    },
    Goaway {
        last: u32,
        code: H2ErrorCode,
    },
    Ping {
        is_ack: bool,
        payload: [u8; 8],
    },
    Window {
        id: u32,
        more: u32,
    },
}

/// Responses as their client understands them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Responses {
    pub(super) streams: Vec<StreamResponse>,
}

/// Response on one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StreamResponse {
    pub(super) id: u32,
    pub(super) status: u16,
    pub(super) content: Vec<u8>,
    pub(super) ended: bool,
}

const SETTING_WINDOW: u16 = 0x4;
pub(super) const WINDOW: u32 = 65_535;

/// Returns the first bytes of a client. The streams of the client begin with a window of `window` bytes.
pub(super) fn greeting(window: u32) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame::header(&mut bytes, 6, frame::SETTINGS, 0, 0);
    bytes.extend_from_slice(&SETTING_WINDOW.to_be_bytes());
    bytes.extend_from_slice(&window.to_be_bytes());
    bytes
}

/// Returns HEADERS of a request. `ended` is false if content follows.
pub(super) fn head(id: u32, path: &str, ended: bool) -> Vec<u8> {
    let method = if ended { "GET" } else { "POST" };
    head_with(id, &[(":method", method), (":path", path)], ended)
}

/// Returns HEADERS of a request with `fields` beside the scheme and the host.
pub(super) fn head_with(id: u32, fields: &[(&str, &str)], ended: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::header(&mut bytes, 0, frame::HEADERS, 0, id);
    for (name, value) in [(":scheme", "http"), (":authority", "a.test")]
        .iter()
        .chain(fields)
    {
        hpack::push_field(name.as_bytes(), value.as_bytes(), &mut bytes);
    }
    let end_stream = if ended { frame::END_STREAM } else { 0 };
    frame::finish(&mut bytes, 0, frame::END_HEADERS | end_stream);
    bytes
}

/// Returns DATA.
pub(super) fn data(id: u32, content: &[u8], ended: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = if ended { frame::END_STREAM } else { 0 };
    frame::header(&mut bytes, content.len(), frame::DATA, flags, id);
    bytes.extend_from_slice(content);
    bytes
}

/// Returns content in frames of at most 16 KiB.
pub(super) fn data_frames(id: u32, content: &[u8], ended: bool) -> Vec<u8> {
    let count = content.len().div_ceil(16_384);
    let parts = content.chunks(16_384).enumerate();
    parts
        .flat_map(|(nth, part)| data(id, part, ended && nth + 1 == count))
        .collect()
}

/// Returns WINDOW_UPDATE.
pub(super) fn window(id: u32, more: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::window_update(&mut bytes, id, more);
    bytes
}

/// Returns PING, or its acknowledgment.
pub(super) fn ping(is_ack: bool, payload: &[u8; 8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = if is_ack { frame::ACK } else { 0 };
    frame::ping(&mut bytes, flags, payload);
    bytes
}

/// Returns RST_STREAM.
pub(super) fn reset(id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::reset(&mut bytes, id, H2ErrorCode::CANCEL);
    bytes
}

impl H2Client {
    /// Opens a connection without a byte of the client.
    pub(super) fn silent(pair: &Pair) -> H2Client {
        H2Client::over(PairClient::connect(pair))
    }

    pub(super) fn over(client: PairClient) -> H2Client {
        H2Client {
            client,
            decoder: HpackDecoder::default(),
            rest: Vec::new(),
        }
    }

    /// Opens a connection and exchanges SETTINGS. Streams begin with a window of 64 KiB.
    pub(super) fn connect(pair: &Pair) -> H2Client {
        H2Client::silent(pair).greeted(WINDOW)
    }

    /// Exchanges SETTINGS. Streams begin with a window of `window` bytes.
    pub(super) fn greeted(mut self, window: u32) -> H2Client {
        self.send(&greeting(window));
        let more = 262_144 - WINDOW;
        assert_eq!(
            self.receive(),
            [
                Frame::Settings,
                Frame::Window { id: 0, more },
                Frame::SettingsAck
            ]
        );
        let mut ack = Vec::new();
        frame::settings_ack(&mut ack);
        self.send(&ack);
        self
    }

    #[track_caller]
    pub(super) fn send(&self, bytes: &[u8]) {
        self.client.send(bytes);
    }

    /// Receives the frames that the server sends until it waits.
    pub(super) fn receive(&mut self) -> Vec<Frame> {
        self.receive_with_content().0
    }

    /// Receives the frames, and the responses in them.
    pub(super) fn receive_with_content(&mut self) -> (Vec<Frame>, Responses) {
        let bytes = self.client.receive();
        self.frames_of(&bytes)
    }

    fn frames_of(&mut self, bytes: &[u8]) -> (Vec<Frame>, Responses) {
        self.rest.extend_from_slice(bytes);
        let (mut frames, mut responses) = (Vec::new(), Responses::default());
        let mut at = 0;
        while let Some(header) = self.rest[at..].first_chunk().map(H2FrameHeader::parse)
            && let Some(payload) = self.rest[at + HEADER_BYTES..].get(..header.length)
        {
            let frame = parse(&header, payload, &mut self.decoder);
            responses.add(&frame, payload);
            frames.push(frame);
            at += HEADER_BYTES + header.length;
        }
        self.rest.drain(..at);
        (frames, responses)
    }

    /// Returns true if the server has sent nothing and keeps the connection open.
    pub(super) fn hears_nothing(&mut self) -> bool {
        self.receive().is_empty() && self.client.end.is_none()
    }
}

impl Responses {
    fn add(&mut self, frame: &Frame, payload: &[u8]) {
        let (id, status, content, is_end) = match frame {
            Frame::Head { id, status, ended } => (*id, *status, &[][..], *ended),
            Frame::Data { id, ended, .. } => (*id, 0, payload, *ended),
            _ => return,
        };
        let known = self.streams.iter().position(|stream| stream.id == id);
        let at = known.unwrap_or(self.streams.len());
        if known.is_none() {
            self.streams.push(StreamResponse {
                id,
                status: 0,
                content: Vec::new(),
                ended: false,
            });
        }
        let stream = &mut self.streams[at];
        stream.status = stream.status.max(status);
        stream.content.extend_from_slice(content);
        stream.ended |= is_end;
    }

    /// Appends the continuation of the responses.
    pub(super) fn append(&mut self, more: Responses) {
        for stream in more.streams {
            match self.streams.iter_mut().find(|it| it.id == stream.id) {
                Some(known) => {
                    known.status = known.status.max(stream.status);
                    known.content.extend_from_slice(&stream.content);
                    known.ended |= stream.ended;
                }
                None => self.streams.push(stream),
            }
        }
        self.streams.sort_by_key(|stream| stream.id);
    }
}

fn parse(header: &H2FrameHeader, payload: &[u8], decoder: &mut HpackDecoder) -> Frame {
    let id = header.stream;
    let number = |at: usize| {
        let bytes = payload[at..].first_chunk().expect("4 bytes");
        u32::from_be_bytes(*bytes)
    };
    match header.kind {
        frame::SETTINGS if header.has(frame::ACK) => Frame::SettingsAck,
        frame::SETTINGS => Frame::Settings,
        frame::HEADERS => {
            assert!(header.has(frame::END_HEADERS));
            let mut status = 0;
            let decoded = decoder.decode(payload, &mut HpackScratch::default(), |name, value| {
                if name == b":status" {
                    let text = String::from_utf8_lossy(value);
                    status = text.parse().expect("a status");
                }
                Ok(())
            });
            decoded.expect("a sound block");
            Frame::Head {
                id,
                status,
                ended: header.has(frame::END_STREAM),
            }
        }
        frame::DATA => Frame::Data {
            id,
            bytes: payload.len(),
            ended: header.has(frame::END_STREAM),
        },
        frame::RST_STREAM => Frame::Reset {
            id,
            code: H2ErrorCode(number(0)),
        },
        frame::GOAWAY => Frame::Goaway {
            last: number(0),
            code: H2ErrorCode(number(4)),
        },
        frame::PING => Frame::Ping {
            is_ack: header.has(frame::ACK),
            payload: *payload.first_chunk().expect("8 bytes"),
        },
        frame::WINDOW_UPDATE => Frame::Window {
            id,
            more: number(0),
        },
        kind => panic!("frame of type {kind}"),
    }
}
