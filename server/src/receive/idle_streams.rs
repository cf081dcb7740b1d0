//! Input and output of a session, which end with an error after a time without progress. A publisher that stays connected
//! without a word, or that reads no answers, would keep the store from being swept for ever.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

/// Input with a bound of the time without a byte.
pub struct IdleInput<F> {
    input: F,
    patience: Timespec,
}

/// Output with a bound of the time in which the reader takes nothing.
pub struct IdleOutput<F> {
    output: F,
    patience: Timespec,
    /// The time has passed once, and each further write fails at once.
    is_over: bool,
}

impl<F: AsFd> IdleInput<F> {
    /// Returns an input that waits for each byte for some seconds.
    pub(crate) fn new(input: F, seconds: u64) -> IdleInput<F> {
        let patience = patience(seconds);
        IdleInput { input, patience }
    }
}

impl<F: AsFd> IdleOutput<F> {
    /// Returns an output that waits for room for some seconds.
    pub(crate) fn new(output: F, seconds: u64) -> IdleOutput<F> {
        IdleOutput {
            output,
            patience: patience(seconds),
            is_over: false,
        }
    }
}

impl<F: AsFd> Read for IdleInput<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !is_ready(&self.input, PollFlags::IN, &self.patience)? {
                return Err(timed_out("the publisher sent nothing for too long"));
            }
            match rustix::io::read(&self.input, &mut *buffer) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                count => return Ok(count?),
            }
        }
    }
}

impl<F: AsFd> Write for IdleOutput<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A pipe with room takes this many bytes without a wait (pipe(7)).
        let part = &bytes[..bytes.len().min(rustix::pipe::PIPE_BUF)];
        loop {
            self.is_over = self.is_over || !is_ready(&self.output, PollFlags::OUT, &self.patience)?;
            if self.is_over {
                return Err(timed_out("the publisher took no answer for too long"));
            }
            match rustix::io::write(&self.output, part) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                count => return Ok(count?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn patience(seconds: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: 0,
    }
}

/// Waits until the stream is ready or has ended. Returns false after the time.
fn is_ready(stream: &impl AsFd, wanted: PollFlags, patience: &Timespec) -> io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(stream, wanted)], Some(patience)) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_input_without_a_byte_ends() {
        let (input, mut output) = io::pipe().unwrap();
        let mut input = IdleInput::new(input, 0);
        let mut buffer = [0; 8];
        let error = input.read(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        output.write_all(b"abc").unwrap();
        assert_eq!(input.read(&mut buffer).unwrap(), 3);
        drop(output);
        assert_eq!(input.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn an_output_without_a_reader_ends() {
        let (mut input, output) = io::pipe().unwrap();
        let mut output = IdleOutput::new(output, 0);
        let answers = [7; 100_000];
        assert_eq!(output.write(&answers).unwrap(), rustix::pipe::PIPE_BUF);
        let error = output.write_all(&[7; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // A reader that comes back later gets no further bytes, since a part of the answer would be missing.
        input.read_exact(&mut [0; 8192]).unwrap();
        let error = output.write(&answers).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_slow_reader_gets_all_bytes() {
        let (mut input, output) = io::pipe().unwrap();
        let answers: Vec<u8> = (0..300_000).map(|at: u32| at as u8).collect();
        let wanted = answers.clone();
        let writer = std::thread::spawn(move || {
            let mut output = IdleOutput::new(output, 600);
            output.write_all(&answers).unwrap();
        });
        let mut got = Vec::new();
        input.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == wanted);
    }

    #[test]
    fn a_reader_that_has_left_is_an_error() {
        let (input, output) = io::pipe().unwrap();
        drop(input);
        let error = IdleOutput::new(output, 600).write(b"abc").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
