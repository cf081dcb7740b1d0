//! The error log: the `log` crate's lines, by way of a sink like any other log.
//!
//! Until it is given a sink it writes to standard error itself, for what goes wrong at the start. A
//! message is one line: newlines within it are escaped like all control characters (some of it may
//! come from a peer), so whoever has more to say puts it into one line, or logs each by itself.

use std::io::{self, Write};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use log::{LevelFilter, Log, Metadata, Record};

use super::sink::Sink;
use crate::base::clock::{rfc3339_ms, unix_ms_now};
use crate::base::log::access_log::push_message;

/// The backend of the `log` crate. Clones are the same log.
#[derive(Clone)]
pub struct ErrorLog {
    outputs: Arc<RwLock<Option<ErrorLogOutputs>>>,
}

#[derive(Clone)]
struct ErrorLogOutputs {
    sink: Sink,
    fallback: Sink,
}

impl ErrorLogOutputs {
    /// The destination is the fallback itself.
    fn is_one(&self) -> bool {
        self.sink.is_same(&self.fallback)
    }
}

impl ErrorLog {
    /// Makes it the process's log, at standard error for now. Fails if there is one already.
    pub fn install(level: LevelFilter) -> Result<ErrorLog, log::SetLoggerError> {
        let error_log = ErrorLog::new();
        log::set_boxed_logger(Box::new(error_log.clone()))?;
        log::set_max_level(level);
        Ok(error_log)
    }

    /// One that nobody writes to before it is installed.
    pub(crate) fn new() -> ErrorLog {
        ErrorLog {
            outputs: Arc::default(),
        }
    }

    /// From now on lines go to `sink`, and to `fallback` while that fails (its disk is full, say).
    pub fn direct_to(&self, sink: Sink, fallback: Sink) {
        let outputs = Some(ErrorLogOutputs { sink, fallback });
        *self.outputs.write().unwrap_or_else(PoisonError::into_inner) = outputs;
    }

    /// The outputs, out of the lock: a sink in trouble logs that, on this very thread.
    fn outputs(&self) -> Option<ErrorLogOutputs> {
        let outputs = self.outputs.read().unwrap_or_else(PoisonError::into_inner);
        outputs.clone()
    }
}

impl Log for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What libraries have to say is for those who look for it.
        metadata.target().starts_with("anthill") || log::max_level() >= LevelFilter::Debug
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut line = line(record, unix_ms_now());
        match self.outputs() {
            Some(outputs) if outputs.sink.is_failing() && !outputs.is_one() => {
                outputs.fallback.submit(&mut line.clone());
                // This one finds out when the destination works again.
                outputs.sink.submit(&mut line);
            }
            Some(outputs) => outputs.sink.submit(&mut line),
            // There is nobody left to tell if this fails.
            None => drop(io::stderr().write_all(&line)),
        }
    }

    fn flush(&self) {
        if let Some(outputs) = self.outputs() {
            let deadline = Instant::now() + FLUSH_MAX;
            outputs.sink.flush(deadline);
            outputs.fallback.flush(deadline);
        }
    }
}

/// `2026-11-20T18:39:14.123Z warn MESSAGE`.
fn line(record: &Record<'_>, unix_ms: u64) -> Vec<u8> {
    let message = record.args().to_string();
    let level = match record.level() {
        log::Level::Error => "error",
        log::Level::Warn => "warn",
        log::Level::Info => "info",
        log::Level::Debug => "debug",
        log::Level::Trace => "trace",
    };
    let mut line = Vec::with_capacity(message.len() + 40);
    line.extend_from_slice(&rfc3339_ms(unix_ms));
    line.push(b' ');
    line.extend_from_slice(level.as_bytes());
    line.push(b' ');
    push_message(&mut line, message.as_bytes());
    line.push(b'\n');
    line
}

/// `log::logger().flush()` waits no longer than this for a slow destination.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use log::Level;

    use super::super::sink::{LogDestination, Sinks};
    use super::*;

    fn log_to(error_log: &ErrorLog, target: &str, level: Level, message: &str) {
        error_log.log(
            &Record::builder()
                .args(format_args!("{message}"))
                .level(level)
                .target(target)
                .build(),
        );
    }

    #[test]
    fn a_message_is_one_line() {
        let record = Record::builder()
            .args(format_args!("can't read \"a\\b\": \n\u{1b}[31m\u{9b}7 é"))
            .level(Level::Warn)
            .build();
        let line = String::from_utf8(line(&record, 1_795_199_954_123)).unwrap();
        let expected = "2026-11-20T18:39:14.123Z warn can't read \"a\\b\": \
                        \\x0a\\x1b[31m\\xc2\\x9b7 é\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn lines_go_to_the_sink_and_to_the_fallback_while_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        let sinks = Sinks::new(Arc::new(|_, _| ()));
        let file = |name| LogDestination::File(folder.path().join(name));
        let (good, spare) = (file("good"), file("spare"));
        let error_log = ErrorLog::new();
        let open = |destination| sinks.open(&destination).unwrap();
        error_log.direct_to(open(good.clone()), open(spare.clone()));
        log_to(&error_log, "anthill::base", Level::Info, "one");
        log_to(&error_log, "elsewhere", Level::Info, "not ours");
        error_log.flush();

        let full = LogDestination::File("/dev/full".into());
        error_log.direct_to(open(full), open(spare));
        log_to(
            &error_log,
            "anthill",
            Level::Error,
            "lost, and makes it fail",
        );
        error_log.flush();
        log_to(&error_log, "anthill", Level::Error, "two");
        error_log.flush();

        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("good").ends_with("Z info one\n") && read("good").lines().count() == 1);
        assert!(read("spare").ends_with("Z error two\n") && read("spare").lines().count() == 1);
    }
}
