//! Chunked transfer coding (RFC 9112 §7.1).

/// Appends the head of a chunk with `bytes` bytes.
pub(super) fn begin_chunk(bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
}

/// Returns content in the framing of one chunk (RFC 9112 §7.1).
pub(in crate::serve) fn encode_chunk(chunk: Vec<u8>) -> Vec<u8> {
    let mut framed = Vec::with_capacity(chunk.len() + 16);
    begin_chunk(chunk.len(), &mut framed);
    framed.extend_from_slice(&chunk);
    framed.extend_from_slice(b"\r\n");
    framed
}
