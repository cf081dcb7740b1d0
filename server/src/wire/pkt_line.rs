//! The lines that git's protocol is cut into (gitprotocol-common), as far as the answer to a push
//! needs it: its last flush is kept back, so that words for who pushed can stand before it.
//!
//! Words are possible where the client has asked for bands (`side-band-64k`): each line then says in
//! its first byte whether it is data (1), words for the user (2), or the last words (3). git's own
//! hooks speak after the report and before the flush, in band 2, and so do we.

/// An answer to a push on its way to the client.
#[derive(Default)]
pub struct PushResponse {
    /// The length of a line, as far as it has come; four zeros are a flush that may be the last.
    length: Vec<u8>,
    /// Bytes of the current line that are still to come.
    left: usize,
    /// The first byte of the current line is next.
    begins: bool,
    bands: SideBand,
    /// Anything at all.
    has_come: bool,
    /// These are no lines: all goes on as it came.
    is_foreign: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum SideBand {
    #[default]
    Unknown,
    Yes,
    No,
}

const FLUSH: &[u8] = b"0000";
/// The longest line, its length included.
const LINE_BYTES_MAX: usize = 65_520;
/// What git sends so that nobody takes it for dead: data, but none.
pub const KEEP_ALIVE: &[u8] = b"0005\x01";

impl PushResponse {
    /// Takes what comes, and appends what can go on.
    pub fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        self.has_come |= !bytes.is_empty();
        while let [first, rest @ ..] = bytes {
            if self.is_foreign {
                return out.extend_from_slice(bytes);
            }
            if self.left > 0 {
                if std::mem::take(&mut self.begins) {
                    self.look_at_band(*first);
                }
                let (line, after) = bytes.split_at(self.left.min(bytes.len()));
                out.extend_from_slice(line);
                self.left -= line.len();
                bytes = after;
                continue;
            }
            if self.length == FLUSH {
                // It wasn't the last.
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
            // Delimiters are no part of such an answer.
            _ => self.is_foreign = true,
        }
        out.append(&mut self.length);
    }

    fn look_at_band(&mut self, first: u8) {
        self.bands = match (self.bands, first) {
            (SideBand::Unknown | SideBand::Yes, 1..=3) => SideBand::Yes,
            _ => SideBand::No,
        };
    }

    /// Nothing has come: a report on a push is something, so nothing was pushed. Clients ask so before
    /// they send much, to learn whether they may (`http.postBuffer`).
    pub fn is_empty(&self) -> bool {
        !self.has_come
    }

    /// It has come to its last flush, and words can stand before it.
    pub fn can_insert_message(&self) -> bool {
        self.length == FLUSH && self.bands == SideBand::Yes && !self.is_foreign
    }

    /// What is left to be sent, after these words for the user.
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
mod tests {
    use super::*;

    /// What goes on before the end, and then.
    fn through(parts: &[&[u8]], words: &[&str]) -> (Vec<u8>, Vec<u8>, bool) {
        let (mut answer, mut out) = (PushResponse::default(), Vec::new());
        for part in parts {
            answer.take(part, &mut out);
        }
        let can_speak = answer.can_insert_message();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        (out, answer.end(&words), can_speak)
    }

    const WITH_BANDS: &[u8] = b"0013\x01000eunpack ok\n0005\x010009\x02hook0009\x0100000000";
    const WITHOUT: &[u8] = b"000eunpack ok\n0019ok refs/heads/main\n0000";

    #[test]
    fn words_stand_before_the_last_flush_however_it_comes() {
        let before = &WITH_BANDS[..WITH_BANDS.len() - 4];
        for at in 0..=WITH_BANDS.len() {
            let (first, second) = WITH_BANDS.split_at(at);
            let (out, end, can_speak) = through(&[first, second], &["deployed"]);
            assert_eq!((out.as_slice(), can_speak), (before, true), "split at {at}");
            assert_eq!(end, b"000e\x02deployed\n0000");
        }
        let single: Vec<&[u8]> = WITH_BANDS.chunks(1).collect();
        assert_eq!(through(&single, &[]).1, b"0000");
    }

    #[test]
    fn who_asked_for_no_bands_gets_no_words() {
        for at in 0..=WITHOUT.len() {
            let (first, second) = WITHOUT.split_at(at);
            let (out, end, can_speak) = through(&[first, second], &["deployed"]);
            assert_eq!([out, end].concat(), WITHOUT);
            assert!(!can_speak);
        }
        // Not even a report, or one in which something else follows the flush.
        assert_eq!(through(&[], &["x"]).1, b"");
        let (out, end, can_speak) = through(&[b"0000", WITHOUT], &["x"]);
        assert_eq!([out, end].concat(), [b"0000", WITHOUT].concat());
        assert!(!can_speak);
    }

    #[test]
    fn what_is_no_answer_goes_on_as_it_came() {
        for bytes in [
            &b"<html>no such thing</html>"[..],
            b"0001",
            b"fff1\x01too long",
            b"+004abc0000",
            b"0009\x01cut",
            b"00",
            b"0000\xff",
        ] {
            for at in 0..=bytes.len() {
                let (out, end, can_speak) = through(&[&bytes[..at], &bytes[at..]], &["x"]);
                assert_eq!([out, end].concat(), bytes);
                assert!(!can_speak);
            }
        }
    }

    #[test]
    fn no_change_of_a_byte_loses_another() {
        for at in 0..WITH_BANDS.len() {
            for to in 0..=255 {
                let mut bytes = WITH_BANDS.to_vec();
                bytes[at] = to;
                crate::wire::invariants::push_answer(&bytes);
            }
        }
    }

    #[test]
    fn words_fit_into_a_line() {
        let long = "x".repeat(100_000);
        let end = through(&[WITH_BANDS], &[&long]).1;
        assert!(end.starts_with(b"fff0\x02xxx"));
        assert_eq!(end.len(), LINE_BYTES_MAX + 4);
    }
}
