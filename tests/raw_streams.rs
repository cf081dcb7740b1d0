//! Clients of HTTP/2 and HTTP/3 that send field sections and content as given, also malformed ones. The encoders
//! are the tests' own, since the product's encoders write names in lower case.

use wire::h2::{H2ErrorCode, frame};

use crate::support::h2::H2;

/// Outcome of a request for the client.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Complete response: the status, and the content of a response with status 200.
    Response(u16, String),
    /// The request's stream was reset as malformed.
    Reset,
    /// A response was broken off, perhaps before its head arrived: a reset of QUIC discards bytes under way.
    Broken,
    /// Another end, which no test expects.
    Other(String),
}

impl Outcome {
    /// Returns the outcome of a complete response. The content of an error page does not count.
    pub fn complete(status: u16, text: String) -> Outcome {
        match status {
            200 => Outcome::Response(200, text),
            status => Outcome::Response(status, String::new()),
        }
    }
}

/// Request of HTTP/2 or HTTP/3.
pub struct StreamRequest {
    pub fields: Vec<(String, String)>,
    pub body: Option<String>,
    pub trailers: Vec<(String, String)>,
}

/// Returns fields that own their text.
pub fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| (String::from(*name), String::from(*value));
    fields.iter().map(own).collect()
}

impl StreamRequest {
    /// Returns a GET without further fields.
    pub fn get(path: &str) -> StreamRequest {
        StreamRequest {
            fields: changed(&[(":path", path)]),
            body: None,
            trailers: Vec::new(),
        }
    }
}

/// Returns the pseudo-header fields of a GET with changes. A change replaces a usual field, or removes the field if
/// the value is `-`. `+:name` adds a second pseudo-header field, and other fields are added.
pub fn changed(changes: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut fields = owned(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/a"),
    ]);
    for (name, value) in changes {
        let usual = fields.iter().position(|(own, _)| own == name);
        match (usual.filter(|_| name.starts_with(':')), *value) {
            (Some(at), "-") => {
                fields.remove(at);
            }
            (Some(at), value) => fields[at].1 = String::from(value),
            (None, value) => {
                let name = name.strip_prefix('+').unwrap_or(name);
                fields.push((String::from(name), String::from(value)));
            }
        }
    }
    fields
}

/// Appends an integer with a prefix of `bits` bits (RFC 7541 §5.1).
fn push_integer(number: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let max = (1 << bits) - 1;
    if number < max {
        return out.push(pattern | number as u8);
    }
    out.push(pattern | max as u8);
    let mut rest = number - max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Returns a field block of HPACK, in which each field is a literal.
fn hpack(fields: &[(String, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_integer(text.len(), 7, 0, &mut block);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Sends a request on the stream `id`, and returns the outcome.
pub fn ask_h2(h2: &mut H2, id: u32, request: &StreamRequest) -> Outcome {
    let ends = |is_last: bool| if is_last { frame::END_STREAM } else { 0 };
    let has_trailers = !request.trailers.is_empty();
    let head = ends(request.body.is_none() && !has_trailers) | frame::END_HEADERS;
    h2.frame(frame::HEADERS, head, id, &hpack(&request.fields));
    if let Some(body) = &request.body {
        h2.frame(frame::DATA, ends(!has_trailers), id, body.as_bytes());
    }
    if has_trailers {
        let flags = frame::END_STREAM | frame::END_HEADERS;
        h2.frame(frame::HEADERS, flags, id, &hpack(&request.trailers));
    }
    while let Some(frame) = h2.next() {
        if frame.kind == frame::GOAWAY {
            return Outcome::Other(format!("GOAWAY {}", frame.code()));
        }
        if frame.kind == frame::RST_STREAM && frame.stream == id {
            let begun = h2.partial_response(id).map(|response| response.status);
            return match (begun, frame.code()) {
                (None, code) if code == H2ErrorCode::PROTOCOL_ERROR.0 => Outcome::Reset,
                (Some(_), _) => Outcome::Broken,
                (None, code) => Outcome::Other(format!("RST_STREAM {code}")),
            };
        }
        h2.record_frame(&frame);
        if frame.ends() && frame.stream == id {
            let response = h2.partial_response(id).expect("a response");
            return Outcome::complete(response.status, response.text());
        }
    }
    Outcome::Other("the connection ended".to_owned())
}

/// Client of HTTP/3.
#[cfg(feature = "http3")]
pub mod h3 {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdout, Stdio};

    use super::{Outcome, StreamRequest, push_integer};
    use crate::support::{Server, lossy, spawn};

    /// Client program that sends bytes of HTTP/3 streams as given.
    pub struct H3Streams {
        client: Child,
        said: BufReader<ChildStdout>,
    }

    impl H3Streams {
        /// Starts the client.
        pub fn start(server: &Server) -> H3Streams {
            let mut command = crate::support::python::python();
            command
                .arg(crate::support::python::script("h3_client.py"))
                .arg(server.https_port.to_string())
                .arg("streams")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut client = spawn(&mut command).expect("a client");
            let said = BufReader::new(client.stdout.take().expect("a pipe"));
            H3Streams { client, said }
        }

        /// Sends a request, over a new connection if `is_new`, and returns the outcome.
        pub fn ask(&mut self, request: &StreamRequest, is_new: bool) -> Outcome {
            let input = self.client.stdin.as_mut().expect("a pipe");
            let new = if is_new { "new " } else { "" };
            let bytes = hexadecimal(&h3_stream(request));
            writeln!(input, "{new}{bytes}").expect("a client that reads");
            let mut line = String::new();
            self.said
                .read_line(&mut line)
                .expect("a client that speaks");
            let parts: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
            let [status, reset, over, body] = parts[..] else {
                return Outcome::Other(line);
            };
            let bytes = body.as_bytes().chunks(2);
            let bytes = bytes.map(|pair| u8::from_str_radix(&lossy(pair), 16));
            let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("hexadecimal digits");
            match (status.parse::<u16>(), reset, over) {
                // H3_MESSAGE_ERROR (RFC 9114 §8.1).
                (Ok(0), "270", "None") => Outcome::Reset,
                (Ok(status @ 1..), "None", "None") => Outcome::complete(status, lossy(&bytes)),
                // H3_INTERNAL_ERROR, or H3_MESSAGE_ERROR behind a head.
                (Ok(0 | 200), "258", "None") | (Ok(200), "270", "None") => Outcome::Broken,
                _ => Outcome::Other(line),
            }
        }
    }

    impl Drop for H3Streams {
        fn drop(&mut self) {
            let _ = self.client.kill();
            let _ = self.client.wait();
        }
    }

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the bytes of a request's stream.
    fn h3_stream(request: &StreamRequest) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_h3_frame(1, &qpack(&request.fields), &mut bytes);
        if let Some(body) = &request.body {
            push_h3_frame(0, body.as_bytes(), &mut bytes);
        }
        if !request.trailers.is_empty() {
            push_h3_frame(1, &qpack(&request.trailers), &mut bytes);
        }
        bytes
    }

    /// Appends a frame with a length of 2 bytes (RFC 9000 §16).
    fn push_h3_frame(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&(payload.len() as u16 | 0x4000).to_be_bytes());
        out.extend_from_slice(payload);
    }

    /// Returns a field section of QPACK, in which each field is a literal (RFC 9204 §4.5.6).
    fn qpack(fields: &[(String, String)]) -> Vec<u8> {
        let mut section = vec![0, 0];
        for (name, value) in fields {
            push_integer(name.len(), 3, 0x20, &mut section);
            section.extend_from_slice(name.as_bytes());
            push_integer(value.len(), 7, 0, &mut section);
            section.extend_from_slice(value.as_bytes());
        }
        section
    }
}
