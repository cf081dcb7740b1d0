//! Standard error of a program or backend, logged line by line with the request. The number of logged bytes
//! is limited, so that a faulty program can't fill the disk.

use crate::handler::call::request::ScriptRequest;
use crate::limits;
use std::sync::Arc;

/// Standard error of one call.
pub(crate) struct StderrLog {
    about: Arc<ScriptRequest>,
    line: Vec<u8>,
    left: usize,
}

impl StderrLog {
    /// Makes the log for a request.
    pub(crate) fn new(about: &Arc<ScriptRequest>) -> StderrLog {
        StderrLog {
            about: Arc::clone(about),
            line: Vec::new(),
            left: limits::PROGRAM_STDERR_BYTES_MAX,
        }
    }

    /// Returns the request's line for log messages.
    pub(crate) fn about(&self) -> String {
        self.about.line()
    }

    /// Adds bytes and logs each complete line.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
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
                log::warn!(
                    "{}: script: further standard error is not logged",
                    self.about()
                );
            }
        }
    }

    /// Logs the unfinished last line.
    pub(crate) fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii_end();
        if !text.is_empty() {
            let text = String::from_utf8_lossy(text);
            log::warn!("{}: script stderr: {text}", self.about());
        }
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        self.flush();
    }
}
