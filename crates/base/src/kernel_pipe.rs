//! Pipe of the kernel, through which bytes of one socket reach another socket without a copy (splice(2)).
//!
//! Each thread has one pipe. The pipe is empty between two transfers: bytes that the second socket does not take
//! at once are copied out of the pipe. No pipe therefore waits with bytes of a slow client, and bytes of one
//! client never reach another client.

use crate::limits::PASSED_BYTES_MIN;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

thread_local! {
    /// The empty pipe of the thread, once a transfer has needed a pipe.
    static EMPTY: Cell<Option<KernelPipe>> = const { Cell::new(None) };
}

/// Receiver of bytes that wait in a pipe of the kernel.
pub trait PipeSink {
    /// Takes at most `max` bytes of `pipe` without waiting. Returns the number of bytes taken; 0 also after an
    /// error, which the next ordinary write reports.
    fn take(&self, pipe: BorrowedFd<'_>, max: usize) -> usize;
}

/// Bytes of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Transferred {
    /// Bytes received from the source, at least 1.
    pub received: usize,
    /// Bytes that the sink has taken. The other bytes were copied.
    pub passed: usize,
}

/// Both ends of a pipe.
struct KernelPipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// Moves at most `max` bytes of the socket `source` to `sink`, and appends the bytes that the sink does not take to
/// `rest`. Fewer bytes than [`PASSED_BYTES_MIN`] are copied. Returns None if no byte was moved; an ordinary read then
/// tells whether the source has bytes, has ended or broke. The kernel may report a reset to one call alone, so the
/// caller must know how many bytes follow.
///
/// # Errors
/// Bytes of the source are lost.
pub fn transfer(
    source: BorrowedFd<'_>,
    sink: &dyn PipeSink,
    max: usize,
    rest: &mut Vec<u8>,
) -> rustix::io::Result<Option<Transferred>> {
    let Some(pipe) = EMPTY.take().or_else(KernelPipe::open) else {
        return Ok(None);
    };
    let filled = rustix::io::retry_on_intr(|| splice(source, None, &pipe.write, None, max, FLAGS));
    let Some(received) = filled.ok().filter(|received| *received > 0) else {
        EMPTY.set(Some(pipe));
        return Ok(None);
    };
    let passed = match received {
        ..PASSED_BYTES_MIN => 0,
        _ => sink.take(pipe.read.as_fd(), received),
    };
    // A pipe that isn't empty is closed with its bytes.
    pipe.copy_out(received - passed, rest)?;
    EMPTY.set(Some(pipe));
    Ok(Some(Transferred { received, passed }))
}

/// Moves at most `max` bytes of `pipe` to the socket `to`.
pub fn splice_to_socket(
    pipe: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    max: usize,
) -> rustix::io::Result<usize> {
    splice(pipe, None, to, None, max, FLAGS)
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

impl KernelPipe {
    fn open() -> Option<KernelPipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        Some(KernelPipe { read, write })
    }

    /// Moves `count` bytes, which wait in the pipe, to the end of `rest`.
    fn copy_out(&self, count: usize, rest: &mut Vec<u8>) -> rustix::io::Result<()> {
        let whole = rest.len() + count;
        rest.reserve_exact(count);
        while rest.len() < whole {
            match rustix::io::read(&self.read, rustix::buffer::spare_capacity(rest)) {
                Ok(0) | Err(Errno::AGAIN) => return Err(Errno::IO),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Socket that takes at most `most` bytes at once.
    struct SlowSink {
        socket: UnixStream,
        most: usize,
    }

    impl PipeSink for SlowSink {
        fn take(&self, pipe: BorrowedFd<'_>, max: usize) -> usize {
            match self.most.min(max) {
                0 => 0,
                most => splice_to_socket(pipe, self.socket.as_fd(), most).unwrap(),
            }
        }
    }

    /// Returns both ends of a connection that never waits.
    fn pair() -> (UnixStream, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other)
    }

    #[test]
    fn bytes_reach_the_other_socket_or_the_copy_in_order() {
        let sent: Vec<u8> = (0..=250).cycle().take(100_000).collect();
        for most in [0, 1, 4_096, 30_000] {
            let ((mut member, source), (socket, mut client)) = (pair(), pair());
            let sink = SlowSink { socket, most };
            member.write_all(&sent).unwrap();
            drop(member);
            let mut arrived = Vec::new();
            let mut rest = Vec::new();
            while let Some(moved) = transfer(source.as_fd(), &sink, 30_000, &mut rest).unwrap() {
                assert!(moved.received <= 30_000 && moved.passed <= most);
                assert_eq!(moved.received, moved.passed + rest.len());
                let is_long = moved.received >= PASSED_BYTES_MIN;
                assert_eq!(moved.passed > 0, is_long && most > 0);
                let mut passed = vec![0; moved.passed];
                client.read_exact(&mut passed).unwrap();
                arrived.extend(passed);
                arrived.append(&mut rest);
            }
            assert!(arrived == sent, "at most {most} bytes at once");
        }
    }

    #[test]
    fn a_source_without_bytes_is_left_to_an_ordinary_read() {
        let ((_member, source), (socket, _client)) = (pair(), pair());
        let sink = SlowSink { socket, most: 10 };
        let mut rest = Vec::new();
        for _ in 0..2 {
            let moved = transfer(source.as_fd(), &sink, 10, &mut rest);
            assert_eq!(moved, Ok(None));
        }
        let folder = std::fs::File::open("/").unwrap();
        assert_eq!(transfer(folder.as_fd(), &sink, 10, &mut rest), Ok(None));
        assert!(rest.is_empty());
    }
}
