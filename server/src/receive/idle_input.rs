//! Input of a session that ends with an error after a time without a byte.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read};
use std::os::fd::AsFd;

/// Input with a bound of the time without a byte. A publisher that stays connected without a word would keep the store
/// from being swept for ever.
pub struct IdleInput<F> {
    input: F,
    patience: Timespec,
}

impl<F: AsFd> IdleInput<F> {
    /// Returns an input that waits for each byte for some seconds.
    pub fn new(input: F, seconds: u64) -> IdleInput<F> {
        let patience = Timespec {
            tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        IdleInput { input, patience }
    }
}

impl<F: AsFd> Read for IdleInput<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut polled = [PollFd::new(&self.input, PollFlags::IN)];
            match poll(&mut polled, Some(&self.patience)) {
                Ok(0) => {
                    let what = "the publisher sent nothing for too long";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            match rustix::io::read(&self.input, &mut *buffer) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                count => return Ok(count?),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write as _;

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
}
