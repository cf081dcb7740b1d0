//! pkt-lines of git's protocol (gitprotocol-common), as far as the response to a push needs them: the final
//! flush is held back, and a message for the user can be inserted before the flush.
//!
//! A message is possible if the client requested `side-band-64k`. The first byte of each line then names
//! its band: data (1), progress messages for the user (2), or a fatal error (3). Git's own hooks write to
//! band 2 after the report and before the flush, and so does this module.

/// Filter for git's response to a push on its way to the client.
#[derive(Default)]
pub struct PushResponse {
    /// Length digits of the next line, as far as received. Four zeros are a flush, held back because a
    /// flush may be the final one.
    length: Vec<u8>,
    /// Bytes of the current line not yet received.
    left: usize,
    /// The next byte is the first of a line.
    begins: bool,
    bands: SideBand,
    /// At least one byte has been received.
    has_come: bool,
    /// The content is no sequence of pkt-lines and passes unchanged.
    is_unchanged: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum SideBand {
    #[default]
    Unknown,
    Yes,
    No,
}

const FLUSH: &[u8] = b"0000";
/// Longest line, including its length digits.
const LINE_BYTES_MAX: usize = 65_520;
/// Keep-alive line, an empty data line: git sends it during long silence to keep the client waiting.
pub const KEEP_ALIVE: &[u8] = b"0005\x01";

impl PushResponse {
    /// Passes received bytes to `out`, except for a flush that may be the final one.
    pub fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        self.has_come |= !bytes.is_empty();
        while let [first, rest @ ..] = bytes {
            if self.is_unchanged {
                return out.extend_from_slice(bytes);
            }
            if self.left > 0 {
                if std::mem::take(&mut self.begins) {
                    self.check_band(*first);
                }
                let (line, after) = bytes.split_at(self.left.min(bytes.len()));
                out.extend_from_slice(line);
                self.left -= line.len();
                bytes = after;
                continue;
            }
            if self.length == FLUSH {
                // More bytes followed, and the held-back flush was not the final one.
                out.append(&mut self.length);
            }
            self.length.push(*first);
            bytes = rest;
            if self.length.len() == 4 && self.length != FLUSH {
                self.begin_line(out);
            }
        }
    }

    fn begin_line(&mut self, out: &mut Vec<u8>) {
        let digits = std::str::from_utf8(&self.length).ok();
        let is_hex = self.length.iter().all(u8::is_ascii_hexdigit);
        let length = digits.filter(|_| is_hex);
        match length.and_then(|length| usize::from_str_radix(length, 16).ok()) {
            Some(length @ 4..=LINE_BYTES_MAX) => {
                self.left = length - 4;
                self.begins = self.left > 0;
            }
            // Delimiters (0001, 0002) never occur in the response to a push.
            _ => self.is_unchanged = true,
        }
        out.append(&mut self.length);
    }

    fn check_band(&mut self, first: u8) {
        self.bands = match (self.bands, first) {
            (SideBand::Unknown | SideBand::Yes, 1..=3) => SideBand::Yes,
            _ => SideBand::No,
        };
    }

    /// Returns true if no byte has been received. A real push has a report; an empty response answers a
    /// probe, with which clients ask for permission before a large push (`http.postBuffer`).
    pub fn is_empty(&self) -> bool {
        !self.has_come
    }

    /// Returns true if the response has reached a flush and a message can be inserted before the flush.
    pub fn can_insert_message(&self) -> bool {
        self.length == FLUSH && self.bands == SideBand::Yes && !self.is_unchanged
    }

    /// Ends the response: returns the lines of the message followed by the held-back bytes.
    pub fn end(self, words: &[String]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in words.iter().filter(|_| self.can_insert_message()) {
            let most = LINE_BYTES_MAX - 6;
            let text = &line.as_bytes()[..line.len().min(most)];
            out.extend_from_slice(format!("{:04x}\x02", text.len() + 6).as_bytes());
            out.extend_from_slice(text);
            out.push(b'\n');
        }
        out.extend_from_slice(&self.length);
        out
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
