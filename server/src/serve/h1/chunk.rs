//! Chunked transfer coding (RFC 9112 §7.1).

/// Returns content in the framing of one chunk (RFC 9112 §7.1).
pub(in crate::serve) fn encode_chunk(chunk: Vec<u8>) -> Vec<u8> {
    let mut framed = Vec::with_capacity(chunk.len() + 16);
    framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
    framed.extend_from_slice(&chunk);
    framed.extend_from_slice(b"\r\n");
    framed
}
