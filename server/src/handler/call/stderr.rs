//! What a program or a backend says on standard error, line by line into the log, with the request
//! that it was about. Bounded: a program that raves must not fill a disk.

use crate::handler::call::request::ScriptRequest;
use crate::limits;
use std::sync::Arc;

/// The words of one call.
pub struct StderrLog {
    about: Arc<ScriptRequest>,
    line: Vec<u8>,
    left: usize,
}

impl StderrLog {
    /// About this request.
    pub fn new(about: &Arc<ScriptRequest>) -> StderrLog {
        StderrLog {
            about: Arc::clone(about),
            line: Vec::new(),
            left: limits::PROGRAM_STDERR_BYTES_MAX,
        }
    }

    /// The request.
    pub fn about(&self) -> String {
        self.about.line()
    }

    /// Some more.
    pub fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            if byte != b'\n' {
                self.line.push(byte);
            }
            if byte == b'\n' || self.line.len() == limits::PROGRAM_STDERR_LINE_BYTES_MAX {
                self.flush();
            }
            if self.left == 0 {
                self.flush();
                log::warn!("{}: script said more than is logged", self.about());
            }
        }
    }

    /// No more will follow on this line.
    pub fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii_end();
        if !text.is_empty() {
            let text = String::from_utf8_lossy(text);
            log::warn!("{}: script said: {text}", self.about());
        }
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        self.flush();
    }
}
