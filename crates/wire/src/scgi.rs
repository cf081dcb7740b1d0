//! SCGI: encoding of a request as a netstring with the variables. The body follows unframed, and the
//! response is the output of a CGI script up to the end of the connection.

use crate::cgi::VariableSink;

/// Encoder of an SCGI request up to its body; a sink for variables.
pub struct ScgiRequestEncoder {
    text: Vec<u8>,
}

impl ScgiRequestEncoder {
    /// Begins a request with a body of `length` bytes, given in digits.
    pub fn begin(length: &str) -> ScgiRequestEncoder {
        let mut text = Vec::with_capacity(1_024);
        text.extend_from_slice(format!("CONTENT_LENGTH\0{length}\0SCGI\x001\0").as_bytes());
        ScgiRequestEncoder { text }
    }

    /// Ends the variables and appends the request to `out`.
    pub fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{}:", self.text.len()).as_bytes());
        out.extend_from_slice(&self.text);
        out.push(b',');
    }
}

impl VariableSink for ScgiRequestEncoder {
    fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        // `begin` wrote CONTENT_LENGTH, which must come first.
        if name == b"CONTENT_LENGTH" {
            return;
        }
        self.text.extend_from_slice(name);
        self.text.push(0);
        value
            .iter()
            .for_each(|part| self.text.extend_from_slice(part));
        self.text.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_encoded_as_scgi() {
        let mut request = ScgiRequestEncoder::begin("27");
        request.add(b"CONTENT_LENGTH", &[b"27"]);
        request.add(b"REQUEST_METHOD", &[b"PO", b"ST"]);
        let mut out = Vec::new();
        request.end(&mut out);
        assert_eq!(
            out,
            b"45:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0,"
        );
    }
}
