//! Error log: the lines of the `log` crate, written by a sink like any other log.
//!
//! Before a sink is set, lines go directly to standard error, for failures at startup. A message is one
//! line: newlines, all other control characters and marks of the direction of text are escaped, since a message may contain text from a
//! peer. Callers put a message into one line, or log several messages.

use std::io::{self, Write};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use log::{LevelFilter, Log, Metadata, Record};

use super::sink::Sink;
use crate::clock::{rfc3339_ms, unix_ms_now};
use crate::log::escape::push_message;

/// Names of the project's crates that don't begin with `anthill`: targets of their messages begin with the name.
const OWN_CRATES: [&str; 6] = ["balancer", "base", "cli", "data_plane", "release", "wire"];

/// Backend of the `log` crate. Clones are the same log.
#[derive(Clone, Default)]
pub struct ErrorLog {
    outputs: Arc<RwLock<Option<ErrorLogOutputs>>>,
}

#[derive(Clone)]
struct ErrorLogOutputs {
    sink: Sink,
    fallback: Sink,
}

impl ErrorLogOutputs {
    /// Returns true if the sink and the fallback have the same destination.
    fn is_one(&self) -> bool {
        self.sink.is_same(&self.fallback)
    }
}

impl ErrorLog {
    /// Installs a log as the process's log, with output to standard error. Fails if the process has a log
    /// already.
    pub fn install(level: LevelFilter) -> Result<ErrorLog, log::SetLoggerError> {
        let error_log = ErrorLog::default();
        log::set_boxed_logger(Box::new(error_log.clone()))?;
        log::set_max_level(level);
        Ok(error_log)
    }

    /// Directs lines to `sink`, and to `fallback` while `sink` fails, for example because of a full disk.
    pub fn direct_to(&self, sink: Sink, fallback: Sink) {
        let outputs = Some(ErrorLogOutputs { sink, fallback });
        *self.outputs.write().unwrap_or_else(PoisonError::into_inner) = outputs;
    }

    /// Returns the outputs outside of the lock: a failing sink logs on the same thread.
    fn outputs(&self) -> Option<ErrorLogOutputs> {
        let outputs = self.outputs.read().unwrap_or_else(PoisonError::into_inner);
        outputs.clone()
    }
}

/// Returns true for a target in a crate of the project. Messages of libraries appear only at level debug or trace.
fn is_own(target: &str) -> bool {
    let name = target.split("::").next().unwrap_or(target);
    name.starts_with("anthill") || OWN_CRATES.contains(&name)
}

impl Log for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_own(metadata.target()) || log::max_level() >= LevelFilter::Debug
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut line = line(record, unix_ms_now());
        match self.outputs() {
            Some(outputs) if outputs.sink.is_failing() && !outputs.is_one() => {
                outputs.fallback.submit(&mut line.clone());
                // The failing sink gets the line, too, to detect that the destination works again.
                outputs.sink.submit(&mut line);
            }
            Some(outputs) => outputs.sink.submit(&mut line),
            // An error on standard error can't be reported anywhere.
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

/// Formats a line like `2026-11-20T18:39:14.123Z warn MESSAGE`.
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

/// Longest wait of `log::logger().flush()` for a slow destination.
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
    fn messages_of_the_own_crates_are_no_messages_of_libraries() {
        let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
        let crates = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        for name in crates {
            assert!(OWN_CRATES.contains(&name.as_str()), "{name}");
        }
        for target in ["base::log", "anthill", "data_plane", "wire"] {
            assert!(is_own(target), "{target}");
        }
        for target in ["rustls::conn", "baseline::log", "quinn_proto"] {
            assert!(!is_own(target), "{target}");
        }
    }

    #[test]
    fn a_message_is_one_line() {
        let record = Record::builder()
            .args(format_args!(
                "can't read \"a\\b\": \n\u{1b}[31m\u{9b}7 é\u{202e}\u{2028}\u{e0041}"
            ))
            .level(Level::Warn)
            .build();
        let line = String::from_utf8(line(&record, 1_795_199_954_123)).unwrap();
        let expected = "2026-11-20T18:39:14.123Z warn can't read \"a\\b\": \
                        \\x0a\\x1b[31m\\xc2\\x9b7 é\\xe2\\x80\\xae\\xe2\\x80\\xa8\\xf3\\xa0\\x81\\x81\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn lines_go_to_the_sink_and_to_the_fallback_while_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        let sinks = Sinks::new(Arc::new(|_, _| ()));
        let file = |name| LogDestination::File(folder.path().join(name));
        let (good, spare) = (file("good"), file("spare"));
        let error_log = ErrorLog::default();
        let open = |destination| sinks.open(&destination).unwrap();
        error_log.direct_to(open(good.clone()), open(spare.clone()));
        log_to(&error_log, "anthill::base", Level::Info, "one");
        log_to(&error_log, "elsewhere", Level::Info, "from a library");
        error_log.flush();

        let full = LogDestination::File("/dev/full".into());
        error_log.direct_to(open(full), open(spare));
        log_to(
            &error_log,
            "anthill",
            Level::Error,
            "lost at the failing destination",
        );
        error_log.flush();
        log_to(&error_log, "anthill", Level::Error, "two");
        error_log.flush();

        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("good").ends_with("Z info one\n") && read("good").lines().count() == 1);
        assert!(read("spare").ends_with("Z error two\n") && read("spare").lines().count() == 1);
    }
}
